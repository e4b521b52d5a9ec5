//! The variables that a statement writes to.

use std::collections::BTreeSet;

use super::tree::{Expr, ExprKind, Stmt, StmtKind};
use crate::snapshot::WriteKind;

/// A statement that writes `values` to `target`.
pub(super) struct Write<'s, 'a> {
    pub(super) kind: WriteKind,
    pub(super) target: &'s Expr<'a>,
    /// The written value, or the arguments of a container's method.
    pub(super) values: &'s [Expr<'a>],
    /// The writing method, and whether an item of the container has it.
    pub(super) method: Option<(&'a str, bool)>,
    /// The variable that a statement both reads and writes, such as `state` in `out, state = f(x, state)`, for all of its
    /// targets: the next run needs it.
    pub(super) state: Option<&'s Expr<'a>>,
}

pub(super) const PUT: [&str; 7] = ["append", "appendleft", "add", "insert", "push", "put", "put_nowait"];
/// The functions of Python's library that add their second argument to their first.
pub(super) const FILL: [&str; 4] = ["heappush", "insort", "insort_left", "insort_right"];
const JOIN: [&str; 7] = ["cat", "concat", "concatenate", "stack", "hstack", "vstack", "append"];

/// The writes of `statement`, without those in its body.
pub(super) fn writes<'s, 'a>(statement: &'s Stmt<'a>) -> Vec<Write<'s, 'a>> {
    let mut found = Vec::new();
    match (statement.kind, statement.parts.as_slice()) {
        (StmtKind::Augmented, [target, value]) => {
            let is_list = matches!(value.kind, ExprKind::Group | ExprKind::Comprehension) && statement.word == "+=";
            let kind = if is_list { WriteKind::Extend } else { WriteKind::Accumulate };
            found.push(Write { kind, target, values: std::slice::from_ref(value), method: None, state: None });
        }
        (StmtKind::Assign, [targets @ .., value]) => {
            // A tuple of values has one for each target.
            let is_paired = value.kind == ExprKind::Group;
            let tuple = targets.iter().find(|target| target.kind == ExprKind::Group && !is_paired);
            found.extend(statement.assignments().into_iter().map(|(target, value)| assigned(tuple, target, value)));
        }
        _ => {}
    }
    found.extend(statement.calls().find_map(put));
    found
}

fn assigned<'s, 'a>(tuple: Option<&'s Expr<'a>>, target: &'s Expr<'a>, value: &'s Expr<'a>) -> Write<'s, 'a> {
    let target = if target.kind == ExprKind::Star { &target.parts[0] } else { target };
    let is_join = value.called().is_some_and(|name| JOIN.contains(&name));
    // `x = cat(x)` joins the items of `x`.
    let is_alone = value.parts.get(1).is_none_or(|first| first.kind == target.kind);
    let state =
        tuple.and_then(|tuple| [target].into_iter().chain(tuple.parts.iter().rev()).find(|one| reads(value, one)));
    let kind = match value.kind {
        _ if target.kind == ExprKind::Subscript => WriteKind::Store,
        _ if state.is_some() => WriteKind::Recur,
        _ if !reads(value, target) => WriteKind::Assign,
        ExprKind::Operation => WriteKind::Accumulate,
        ExprKind::Call if is_join && is_alone => WriteKind::Assign,
        ExprKind::Call if is_join => WriteKind::Join,
        _ => WriteKind::Recur,
    };
    Write { kind, target, values: std::slice::from_ref(value), method: None, state }
}

/// Whether `value` reads the variable `target`.
fn reads(value: &Expr<'_>, target: &Expr<'_>) -> bool {
    let name = target.variable().filter(|_| target.kind != ExprKind::Subscript);
    name.is_some_and(|name| value.walk().any(|part| part.is_variable(&name)))
}

/// The write of a call to a container's method, or of one that gets the container.
fn put<'s, 'a>(call: &'s Expr<'a>) -> Option<Write<'s, 'a>> {
    let name = call.called()?;
    if let [_, target, value, ..] = call.parts.as_slice()
        && FILL.contains(&name)
    {
        let values = std::slice::from_ref(value);
        return Some(Write { kind: WriteKind::Put, target: base(target), values, method: None, state: None });
    }
    let (receiver, values) = (call.receiver()?, call.parts.get(1..)?);
    let kind = match name {
        _ if PUT.contains(&name) => WriteKind::Put,
        "extend" => WriteKind::Extend,
        "setdefault" | "update" => WriteKind::Store,
        _ => return None,
    };
    let method = Some((name, receiver.kind == ExprKind::Subscript));
    (!values.is_empty()).then_some(Write { kind, target: base(receiver), values, method, state: None })
}

/// The container of `d[k]` and `d.setdefault(k, [])`.
fn base<'s, 'a>(mut value: &'s Expr<'a>) -> &'s Expr<'a> {
    loop {
        value = match value.kind {
            ExprKind::Subscript | ExprKind::Star => &value.parts[0],
            _ => match value.receiver().filter(|_| matches!(value.called(), Some("setdefault" | "update"))) {
                Some(receiver) => receiver,
                None => return value,
            },
        };
    }
}

impl Write<'_, '_> {
    /// The last word of the variable.
    pub(super) fn is_to(&self, kind: ExprKind, word: &str) -> bool {
        let target = base(self.target);
        (target.kind, target.word) == (kind, word)
    }
}

/// The variables that `statement` writes to, by the last word of each.
pub(super) fn written_words<'a>(statement: &Stmt<'a>) -> BTreeSet<&'a str> {
    writes(statement).iter().map(|write| base(write.target).word).collect()
}
