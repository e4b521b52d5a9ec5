//! The types of containers, inferred from the values that the program assigns.

use super::program::ProgramText;
use super::tree::{Expr, ExprKind};
use crate::snapshot::WriteKind;

impl ProgramText<'_> {
    /// The type of the container in `variable`, inferred from the values assigned to it, and whether it is bounded.
    pub(super) fn container_of(&self, variable: &str, kind: WriteKind) -> (&'static str, bool) {
        let mut found = if kind == WriteKind::Store { "dict" } else { "list" };
        let mut has_bound = false;
        for value in self.assigned(variable) {
            let is_empty = value.parts.len() <= 1;
            found = match (value.kind, value.called().unwrap_or(value.word)) {
                (ExprKind::Call, name @ ("Queue" | "LifoQueue" | "PriorityQueue" | "deque")) => {
                    has_bound |= is_bounded(value);
                    if name == "deque" { "deque" } else { "queue" }
                }
                (ExprKind::Call, "SimpleQueue") => "queue",
                (ExprKind::Call, "dict" | "defaultdict" | "OrderedDict") => "dict",
                (ExprKind::Group | ExprKind::Comprehension, "{") if is_empty || kind == WriteKind::Store => "dict",
                (ExprKind::Group | ExprKind::Comprehension | ExprKind::Operation, _) | (ExprKind::Call, "list") => {
                    "list"
                }
                _ => found,
            };
        }
        (found, has_bound)
    }

    pub(super) fn is_container(&self, variable: &str) -> bool {
        let is_it = |it: &Expr<'_>| matches!(it.kind, ExprKind::Group | ExprKind::Comprehension);
        self.assigned(variable).into_iter().any(|it| is_it(it) || it.called() == Some("deque"))
    }

    pub(super) fn is_dict(&self, variable: &str) -> bool {
        let is_made = |call: Option<&str>| matches!(call, Some("dict" | "defaultdict" | "OrderedDict"));
        self.assigned(variable).into_iter().any(|it| it.word == "{" || is_made(it.called()))
    }
}

/// Whether `value` is a comprehension, whose items are parts of another value.
pub(super) fn makes_parts(value: &Expr<'_>) -> bool {
    let clauses = || value.parts.iter().filter(|part| part.kind == ExprKind::Clause);
    let targets = || clauses().flat_map(|clause| clause.parts[0].walk()).filter(|part| part.kind == ExprKind::Name);
    let mut items = value.parts.iter().filter(|part| part.kind != ExprKind::Clause).flat_map(Expr::walk);
    value.kind == ExprKind::Comprehension && items.any(|part| targets().any(|target| target.word == part.word))
}

/// Whether `made` constructs a queue or a deque with a maximum length.
fn is_bounded(made: &Expr<'_>) -> bool {
    let is_deque = made.called() == Some("deque");
    made.parts.iter().skip(1).enumerate().any(|(index, given)| match given.kind {
        ExprKind::Keyword => {
            given.word.starts_with("max") && given.parts.iter().all(|it| !matches!(it.word, "0" | "None"))
        }
        _ => index == usize::from(is_deque) && given.word != "0",
    })
}
