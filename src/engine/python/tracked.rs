//! Whether an expression contains the tracked value.

use std::collections::BTreeSet;

use super::tree::{Expr, ExprKind};

/// Their result is a number, a string or another object on the host.
pub(super) const ON_HOST: [&str; 22] = [
    "item",
    "cpu",
    "tolist",
    "numpy",
    "size",
    "numel",
    "dim",
    "float",
    "int",
    "bool",
    "str",
    "len",
    "print",
    "range",
    "isinstance",
    "hasattr",
    "id",
    "type",
    "repr",
    "format",
    "join",
    "backward",
];

/// Attributes of a tensor that do not keep its memory.
const FACTS: [&str; 6] = ["shape", "dtype", "device", "ndim", "grad_fn", "requires_grad"];

/// The variables of one function that contain the tracked value. `made`: the calls that make it in the frame's statement.
#[derive(Debug, Default, Clone)]
pub(super) struct Tracked<'n> {
    pub(super) names: BTreeSet<String>,
    pub(super) made: Option<Made<'n>>,
}

/// The calls that make the value in a statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Made<'n> {
    /// Any call or operation.
    Anything,
    /// The call of the next inner frame's function.
    Call(&'n str),
}

/// Whether the value of `expression` contains the tracked value, or is computed from it.
pub(super) fn carries(expression: &Expr<'_>, tracked: &Tracked<'_>) -> bool {
    let is_tracked = |part: &Expr<'_>| part.kind == ExprKind::Name && tracked.names.contains(part.word);
    let any = |parts: &[Expr<'_>]| parts.iter().any(|part| carries(part, tracked));
    let anything = matches!(tracked.made, Some(Made::Anything));
    match expression.kind {
        ExprKind::Constant => false,
        // A closure keeps its variables.
        ExprKind::Lambda => expression.walk().any(is_tracked),
        ExprKind::Name => is_tracked(expression),
        ExprKind::Attribute if FACTS.contains(&expression.word) => false,
        ExprKind::Attribute | ExprKind::Subscript => {
            carries(&expression.parts[0], tracked)
                || expression.variable().is_some_and(|variable| tracked.names.contains(&variable))
        }
        ExprKind::Comparison => anything,
        ExprKind::Operation if anything => true,
        ExprKind::Clause => carries(&expression.parts[1], tracked),
        ExprKind::Comprehension => {
            let mut inner = tracked.clone();
            for clause in expression.parts.iter().filter(|part| part.kind == ExprKind::Clause) {
                if carries(&clause.parts[1], &inner) {
                    inner.names.extend(clause.parts[0].targets().filter_map(Expr::variable));
                }
            }
            expression.parts.iter().any(|part| part.kind != ExprKind::Clause && carries(part, &inner))
        }
        ExprKind::Call => match (expression.called(), tracked.made) {
            (Some(name), _) if ON_HOST.contains(&name) => false,
            (Some("to"), _) if expression.parts.iter().any(|given| given.word.trim_matches(['"', '\'']) == "cpu") => {
                false
            }
            (_, Some(Made::Anything)) => true,
            (Some(name), Some(Made::Call(inner))) if name == inner => true,
            _ => any(&expression.parts[1..]) || expression.receiver().is_some_and(|it| carries(it, tracked)),
        },
        _ => any(&expression.parts),
    }
}
