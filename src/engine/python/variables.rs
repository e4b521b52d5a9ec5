//! Finds the statement that fills a variable, and the calls of a module.

use super::follow::Keep;
use super::program::{Line, ProgramText, last_part};
use super::tree::{Expr, ExprKind, Stmt};
use super::writes::{Write, writes};
use crate::snapshot::WriteKind;

impl ProgramText<'_> {
    /// The only statement that fills `variable`; else the only one that assigns it in a loop; else the only one that assigns
    /// it. `file` and `function` narrow the search for a variable of a function or a module.
    pub fn written(&self, variable: &str, file: Option<&str>, function: Option<&str>) -> Option<Keep> {
        let word = variable.rsplit(|one: char| !one.is_alphanumeric() && one != '_').next()?;
        let is_attribute = variable.strip_suffix(word)?.ends_with('.');
        if word.is_empty() {
            return None;
        }
        // Variables of generators and closures are named `function.variable`.
        let kinds: &[ExprKind] = if is_attribute { &[ExprKind::Attribute, ExprKind::Name] } else { &[ExprKind::Name] };
        let found =
            kinds.iter().map(|kind| self.writes_to(*kind, word, file, function)).find(|found| !found.is_empty());
        <[Keep; 1]>::try_from(found?).ok().map(|[keep]| keep)
    }

    /// Whether a statement assigns to items of `variable`.
    pub(super) fn is_filled(&self, variable: &str) -> bool {
        let fills = |write: &Write<'_, '_>| write.kind == WriteKind::Store && write.method.is_none();
        let is_it = |write: &Write<'_, '_>| write.target.variable().is_some_and(|name| name == variable);
        let mut places = self.writing(last_part(variable));
        places.any(|place| writes(place.statement()).iter().any(|write| fills(write) && is_it(write)))
    }

    fn writes_to(&self, kind: ExprKind, word: &str, file: Option<&str>, function: Option<&str>) -> Vec<Keep> {
        let mut found = Vec::new();
        for place in self.writing(word) {
            let is_here = file.is_none_or(|file| file == place.file.path)
                && function.is_none_or(|function| function == place.function_name());
            let of_variable = writes(place.statement()).into_iter().filter(|write| is_here && write.is_to(kind, word));
            found.extend(of_variable.filter_map(|write| self.keep_at(&place, &write, write.values.last()?)));
        }
        let fills = |keep: &Keep| keep.kind != WriteKind::Assign;
        let classes: [&dyn Fn(&Keep) -> bool; 2] = [&fills, &|keep| keep.in_loop];
        if let Some(class) = classes.into_iter().find(|class| found.iter().any(*class)) {
            found.retain(class);
        }
        found
    }

    /// The line that calls `backward(create_graph=True)`.
    pub fn graph_backward(&self) -> Option<Line<'_>> {
        let keeps_graph = |given: &Expr<'_>| {
            given.word == "create_graph" && given.parts.first().is_some_and(|value| value.word == "True")
        };
        let is_it = |call: &Expr<'_>| call.called() == Some("backward") && call.parts.iter().any(keeps_graph);
        let place = self.all_places().find(|place| place.statement().calls().any(is_it))?;
        let (file, function) = (place.file.path, place.function_name());
        Some(Line { file, line: place.statement().first_line, function, calls_package: false })
    }

    /// Whether the program calls `gc.disable()`.
    pub fn turns_collector_off(&self) -> bool {
        let is_it =
            |call: &Expr<'_>| call.called() == Some("disable") && call.receiver().is_some_and(|it| it.word == "gc");
        self.statements().flat_map(Stmt::calls).any(is_it)
    }

    /// Whether the program calls `module` where nothing turns gradients off: by its name, or else as an argument.
    pub fn is_called_with_grad(&self, module: &str) -> bool {
        let word = last_part(module);
        let is_it = |part: &Expr<'_>| matches!(part.kind, ExprKind::Name | ExprKind::Attribute) && part.word == word;
        // (by its name, with gradients)
        let mut best = (false, false);
        for place in self.all_places() {
            for call in place.statement().calls() {
                if is_it(&call.parts[0]) || call.parts[1..].iter().any(is_it) {
                    best = best.max((is_it(&call.parts[0]), place.has_grad()));
                }
            }
        }
        best.1
    }
}
