//! Whether an expression contains the tracked value.

use std::collections::BTreeSet;

use super::tree::{Expr, ExprKind};

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

/// Methods of a tensor, and functions of Python, whose result is a number, a string or another object on the host.
const ON_HOST: [&str; 15] = [
    "item", "cpu", "tolist", "numpy", "size", "numel", "dim", "backward", "float", "int", "bool", "str", "repr",
    "format", "join",
];

/// Whether the result of function `name` has no part of its arguments that is on the device.
pub(super) fn is_on_host(name: &str) -> bool {
    let describes = matches!(name, "len" | "id" | "type" | "isinstance" | "hasattr" | "print" | "range");
    describes || ON_HOST.contains(&name)
}

/// Whether the value of `expression` contains the tracked value, or is computed from it.
pub(super) fn carries(expression: &Expr<'_>, tracked: &Tracked<'_>) -> bool {
    let anything = matches!(tracked.made, Some(Made::Anything));
    match expression.kind {
        ExprKind::Constant => false,
        // A closure keeps its variables.
        ExprKind::Lambda => {
            expression.walk().any(|part| part.kind == ExprKind::Name && tracked.names.contains(part.word))
        }
        ExprKind::Name => tracked.names.contains(expression.word),
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
            (Some(name), _) if is_on_host(name) => false,
            (Some("to"), _) if expression.parts.iter().any(|given| given.word.trim_matches(['"', '\'']) == "cpu") => {
                false
            }
            (_, Some(Made::Anything)) => true,
            (Some(name), Some(Made::Call(inner))) if name == inner => true,
            _ => {
                let mut given = expression.parts[1..].iter().chain(expression.receiver());
                given.any(|given| carries(given, tracked))
            }
        },
        _ => expression.parts.iter().any(|part| carries(part, tracked)),
    }
}
