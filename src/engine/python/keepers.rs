//! Finds the statements that may keep a value, by what makes the value.

use std::collections::BTreeSet;

use super::follow::{Flow, Keep};
use super::modules::is_optimizer;
use super::program::{Line, ProgramText};
use super::tracked::{Made, Tracked};
use super::tree::{Expr, ExprKind, Stmt, StmtKind};
use crate::snapshot::WriteKind;

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
        let mut keeps = self.made_by(|call| call.called() == Some("cycle"));
        keeps.retain(|keep| keep.kind == WriteKind::Assign);
        keeps.truncate(1);
        for keep in &mut keeps {
            keep.container = Some("cycle");
        }
        keeps
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
        let is_list = |part: &Expr<'_>| part.kind == ExprKind::Comprehension;
        let place = self.place(line);
        place.is_none_or(|it| it.innermost_loop().is_some() || it.statement().expressions().any(is_list))
    }
}

/// Whether `statement` calls `name`: by that name, as `__init__` by constructing its class, or as `forward` by calling its
/// module.
fn calls(statement: &Stmt<'_>, name: &str) -> bool {
    statement.calls().any(|call| call.called() == Some(name))
}
