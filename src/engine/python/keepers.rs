//! Finds the statements that may keep a value, by what makes the value or by the variable, and the calls of a module.

use std::collections::BTreeSet;

use super::follow::{Flow, Keep};
use super::modules::is_optimizer;
use super::program::{Line, ProgramText, last_part};
use super::tracked::{Made, Tracked};
use super::tree::{Expr, ExprKind, Stmt, StmtKind};
use super::writes::writes;
use crate::snapshot::{BackwardCall, WriteKind};

impl ProgramText<'_> {
    /// The statements that may keep what the innermost of `frames` makes, the nearest first.
    pub fn keepers(&self, frames: &[Line<'_>]) -> Vec<Keep> {
        // A caller that turns gradients off does so for all that it calls.
        let has_grad = self.has_grad(frames);
        let mut flow = Flow { program: self, keeps: Vec::new(), has_grad, entered: BTreeSet::new() };
        let mut inner: Option<&str> = None;
        for frame in frames.iter().filter(|frame| !frame.function.ends_with("comp>") && frame.function != "<genexpr>") {
            let Some(place) = self.place(frame) else { break };
            let named = inner.filter(|name| calls(place.statement(), name));
            // A package is between the two frames, and gets the value.
            if inner.is_some() && named.is_none() && frame.calls_package {
                break;
            }
            let made = named.map_or(Made::Anything, Made::Call);
            let goes_on = flow.through(&place, &Tracked { names: BTreeSet::new(), made: Some(made) }, 0);
            if !goes_on {
                break;
            }
            flow.keep_cached(&place);
            inner = Some(frame.function);
        }
        flow.keeps
    }

    /// The statements that keep optimizers: objects constructed with the parameters of a module.
    pub fn optimizer_keepers(&self) -> Vec<Keep> {
        self.made_by(is_optimizer)
    }

    /// Loaders in `itertools.cycle`, which keeps everything that they yield.
    pub fn cycle_keepers(&self) -> Vec<Keep> {
        let keeps = self.made_by(|call| call.called() == Some("cycle")).into_iter();
        let first = keeps.filter(|keep| keep.kind == WriteKind::Assign).take(1);
        first.map(|keep| Keep { container: Some("cycle"), ..keep }).collect()
    }

    /// The statements that keep a caught exception in a container.
    pub fn exception_keepers(&self) -> Vec<Keep> {
        let mut flow = Flow { program: self, keeps: Vec::new(), has_grad: true, entered: BTreeSet::new() };
        for place in self.all_places() {
            let statement = place.statement();
            if let ("except", [_, name]) = (statement.word, statement.parts.as_slice()) {
                flow.through(&place, &Tracked { names: name.variable().into_iter().collect(), made: None }, 1);
            }
        }
        flow.keeps.retain(|keep| keep.container.is_some());
        flow.keeps
    }

    /// The statements that keep what calls such as `is_maker` return.
    fn made_by(&self, is_maker: impl Fn(&Expr<'_>) -> bool) -> Vec<Keep> {
        let mut flow = Flow { program: self, keeps: Vec::new(), has_grad: true, entered: BTreeSet::new() };
        let tracked = Tracked { names: BTreeSet::new(), made: Some(Made::Anything) };
        for place in self.all_places() {
            if place.statement().calls().any(&is_maker) && flow.through(&place, &tracked, 0) {
                let caller = place.function_name();
                for caller in self.all_places().filter(|other| calls(other.statement(), caller)) {
                    flow.through(&caller, &tracked, 0);
                }
            }
        }
        flow.keeps
    }

    /// The statements that keep arguments of module hooks.
    pub fn hook_keepers(&self) -> Vec<Keep> {
        let mut flow = Flow { program: self, keeps: Vec::new(), has_grad: true, entered: BTreeSet::new() };
        for call in self.statements().flat_map(Stmt::calls) {
            let is_hook = call.called().is_some_and(|name| name.starts_with("register_") && name.ends_with("_hook"));
            let Some(hook) = call.parts.get(1).filter(|_| is_hook) else { continue };
            let name = hook.called().unwrap_or(hook.word);
            for function in self.functions(name) {
                let mut inner = function.statement().body.iter().rev();
                let inner = inner.find(|inner| inner.kind == StmtKind::Function && hook.called().is_some());
                let mut place = function.clone();
                place.path.extend(inner);
                let parameters = place.function().map(|function| function.parts.as_slice()).unwrap_or_default();
                let skipped = usize::from(parameters.first().is_some_and(|first| first.word == "self"));
                // A hook's parameters are the module, its inputs and its output.
                let names = parameters.iter().skip(skipped + 1).take(2).map(|one| one.word.to_owned()).collect();
                flow.through(&place, &Tracked { names, made: None }, 1);
            }
        }
        flow.keeps
    }

    /// Whether the statement of `line` is inside a loop or a comprehension of its function. True if its text is unknown.
    pub fn is_repeated(&self, line: &Line<'_>) -> bool {
        let Some(place) = self.place(line) else { return true };
        let mut parts = place.statement().expressions();
        place.innermost_loop().is_some() || parts.any(|part| part.kind == ExprKind::Comprehension)
    }

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
        let mut writes = self.writing(last_part(variable)).flat_map(|place| writes(place.statement()));
        writes.any(|it| it.kind == WriteKind::Store && it.method.is_none() && it.target.is_variable(variable))
    }

    fn writes_to(&self, kind: ExprKind, word: &str, file: Option<&str>, function: Option<&str>) -> Vec<Keep> {
        let mut found = Vec::new();
        for place in self.writing(word) {
            let is_here = file.is_none_or(|file| file == place.file.path)
                && function.is_none_or(|function| function == place.function_name());
            let of_variable = writes(place.statement()).into_iter().filter(|write| is_here && write.is_to(kind, word));
            found.extend(of_variable.filter_map(|write| self.keep_at(&place, &write, write.values.last()?)));
        }
        let classes: [fn(&Keep) -> bool; 3] = [
            |keep| keep.backward == Some(BackwardCall::Window),
            |keep| keep.kind != WriteKind::Assign,
            |keep| keep.in_loop,
        ];
        if let Some(class) = classes.into_iter().find(|class| found.iter().any(class)) {
            found.retain(class);
        }
        found
    }

    /// The line that calls `backward(create_graph=True)`.
    pub fn graph_backward(&self) -> Option<Line<'_>> {
        let place = self.all_places().find(|place| place.statement().calls().any(keeps_graph))?;
        let (file, function) = (place.file.path, place.function_name());
        Some(Line { file, line: place.statement().first_line, function, calls_package: false })
    }

    /// Whether the program calls `gc.disable()`.
    pub fn turns_collector_off(&self) -> bool {
        self.statements()
            .flat_map(Stmt::calls)
            .any(|call| call.called() == Some("disable") && call.receiver().is_some_and(|it| it.word == "gc"))
    }

    /// Whether the program calls `module` where nothing turns gradients off: by its name, or else as an argument.
    pub fn is_called_with_grad(&self, module: &str) -> bool {
        let word = last_part(module);
        // (by its name, with gradients)
        let mut best = (false, false);
        for place in self.all_places() {
            for call in place.statement().calls() {
                let is_called = call.parts[0].is_named(word);
                if is_called || call.parts[1..].iter().any(|given| given.is_named(word)) {
                    best = best.max((is_called, place.has_grad()));
                }
            }
        }
        best.1
    }
}

/// Whether `call` is `backward(create_graph=True)`.
fn keeps_graph(call: &Expr<'_>) -> bool {
    let mut graphs = call.parts.iter().filter(|given| given.word == "create_graph");
    call.called() == Some("backward")
        && graphs.any(|given| given.parts.first().is_some_and(|value| value.word == "True"))
}

/// Whether `statement` calls `name`: by that name, as `__init__` by constructing its class, or as `forward` by calling its
/// module.
fn calls(statement: &Stmt<'_>, name: &str) -> bool {
    statement.calls().any(|call| call.called() == Some(name))
}
