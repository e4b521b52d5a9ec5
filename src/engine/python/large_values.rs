//! Statements that make a larger tensor than the program may need: all pairs, copies, zeros.

use super::program::{Line, Place, ProgramText};
use super::tree::{Expr, ExprKind, Stmt, StmtKind};

/// A value that the running statement makes, or that it reads and that a statement before it made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LargeValue {
    /// The differences of all pairs of rows of two tensors, which are then added.
    Distances([String; 2]),
    /// All pairs of items of two tensors.
    Pairs([String; 2]),
    /// An operation of two variables, which may not have the same shape.
    Elements([String; 2]),
    /// The scores of attention: query, key and value.
    Scores([String; 3]),
    /// A tensor that is sorted.
    Sorted(String),
    /// A tensor that is repeated.
    Repeated(String),
    /// A square of zeros; the text of its length.
    Zeros(String),
    /// A variable of zeros and ones, in int64.
    OneHot(String),
    /// The diagonal of a matrix.
    Diagonal(String),
}

impl ProgramText<'_> {
    /// The values that the statement of `line` makes, and those made by statements whose results it reads.
    pub fn large_values(&self, line: &Line<'_>) -> Vec<LargeValue> {
        let Some(place) = self.place(line) else { return Vec::new() };
        let (statement, own) = (place.statement(), place.own_statements());
        let targets = statement.parts.split_last().map(|(_, targets)| targets).unwrap_or_default();
        let target = targets.first().filter(|_| statement.kind == StmtKind::Assign).map_or("", |it| it.word);
        let here = statement.parts.iter().map(|value| (target, value));
        let made = here.chain(assigned_before(&place, &own)).filter_map(|(target, value)| made(value, target, &own));
        let mut values: Vec<LargeValue> = scores(&place, &own).into_iter().chain(made).collect();
        // Only a tensor of all pairs is large here.
        values.sort_by_key(|value| !matches!(value, LargeValue::Pairs([left, right]) if left == right)); // stable
        values
    }
}

/// The variables that the statement of `place` reads, with the values that statements of its function assign to them.
fn assigned_before<'p, 'a>(place: &Place<'p, 'a>, own: &[Place<'p, 'a>]) -> Vec<(&'a str, &'p Expr<'a>)> {
    let statement = place.statement();
    let read: Vec<&str> = statement.expressions().map(|part| part.word).collect();
    let before = own.iter().map(Place::statement).filter(|other| other.first_line < statement.first_line);
    let assigned = before.flat_map(Stmt::assignments);
    let of_read = assigned.filter(|(target, _)| target.kind == ExprKind::Name && read.contains(&target.word));
    of_read.map(|(target, value)| (target.word, value)).collect()
}

/// Describes `value`, which `target` gets.
fn made(value: &Expr<'_>, target: &str, own: &[Place<'_, '_>]) -> Option<LargeValue> {
    value.walk().find_map(|part| {
        match (part.kind, part.called()) {
            (ExprKind::Call, Some("sort" | "argsort")) => operand(part).map(LargeValue::Sorted),
            // Only the whole value: a part of it has a common size.
            (ExprKind::Call, Some("repeat" | "repeat_interleave" | "tile")) if std::ptr::eq(part, value) => {
                operand(part).map(LargeValue::Repeated)
            }
            (ExprKind::Call, Some("one_hot")) if std::ptr::eq(part, value) && !target.is_empty() => {
                Some(LargeValue::OneHot(target.to_owned()))
            }
            (ExprKind::Call, Some("zeros")) => {
                let sizes = if let [_, sizes] = part.parts.as_slice() { &sizes.parts } else { &part.parts[1..] };
                let [rows, columns] = [sizes.first()?, sizes.get(1)?].map(Expr::variable);
                rows.filter(|rows| columns.as_ref() == Some(rows)).map(LargeValue::Zeros)
            }
            (ExprKind::Call, Some("diag")) => part.parts.get(1)?.variable().map(LargeValue::Diagonal),
            (ExprKind::Call, Some("cdist")) => {
                Some(LargeValue::Pairs([part.parts.get(1)?.variable()?, part.parts.get(2)?.variable()?]))
            }
            (ExprKind::Operation | ExprKind::Comparison, _) => of_operands(part, target, own),
            _ => None,
        }
    })
}

/// The tensor whose method `call` calls, or the first argument of a function.
fn operand(call: &Expr<'_>) -> Option<String> {
    let object = call.receiver().and_then(Expr::variable).filter(|name| name != "torch");
    object.or_else(|| call.parts.get(1)?.variable())
}

fn of_operands(operation: &Expr<'_>, target: &str, own: &[Place<'_, '_>]) -> Option<LargeValue> {
    let [left, right] = operation.parts.as_slice() else { return None };
    if let [Some(left), Some(right)] = [left, right].map(with_new_dimension) {
        let both = [left, right];
        let calls = own.iter().map(Place::statement).flat_map(Stmt::calls);
        let mut sums = calls.filter(|call| matches!(call.called(), Some("sum" | "norm")));
        let is_distance = operation.word == "-"
            && sums.any(|sum| sum.walk().any(|part| std::ptr::eq(part, operation) || part.word == target));
        return Some(if is_distance { LargeValue::Distances(both) } else { LargeValue::Pairs(both) });
    }
    if operation.word == "@" {
        let of_right =
            right.parts.first().and_then(|it| if right.kind == ExprKind::Call { it.parts.first() } else { Some(it) });
        let [left, of_right] = [left.variable()?, of_right?.variable()?];
        return ((matches!(right.word, "T" | "mT") || right.called() == Some("t")) && left == of_right)
            .then_some(LargeValue::Pairs([left, of_right]));
    }
    let is_simple = left.kind == ExprKind::Name && right.kind == ExprKind::Name;
    is_simple.then(|| LargeValue::Elements([left, right].map(|part| part.word.to_owned())))
}

/// `scores` of `scores[:, None]` and `scores.unsqueeze(0)`.
fn with_new_dimension(part: &Expr<'_>) -> Option<String> {
    match part.kind {
        ExprKind::Subscript => part.variable().filter(|_| part.parts[1..].iter().any(|index| index.word == "None")),
        _ => part.receiver().filter(|_| part.called() == Some("unsqueeze"))?.variable(),
    }
}

/// The operands of a product of matrices.
fn product<'e, 'a>(part: &'e Expr<'a>) -> Option<[&'e Expr<'a>; 2]> {
    match (part.kind, part.called()) {
        (ExprKind::Operation, _) if part.word == "@" => Some([&part.parts[0], &part.parts[1]]),
        (ExprKind::Call, Some("matmul" | "bmm")) => {
            match (part.receiver().filter(|it| it.word != "torch"), &part.parts[1..]) {
                (Some(left), [right, ..]) | (None, [left, right, ..]) => Some([left, right]),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Attention: a product of two tensors whose softmax is multiplied with a third, if the statement of `place` is part of it.
fn scores(place: &Place<'_, '_>, own: &[Place<'_, '_>]) -> Option<LargeValue> {
    let statements = own.iter().map(Place::statement).filter(|it| it.kind != StmtKind::Function);
    let (softmax, call) = statements.clone().find_map(|it| Some((it, it.calls().find(|call| is_softmax(call))?)))?;
    // The softmax is of a product, or of a variable that has one.
    let here = call.walk().find_map(product).map(|both| (softmax, both));
    let (start, [query, key]) = here.or_else(|| {
        call.walk().filter(|part| part.kind == ExprKind::Name).find_map(|name| {
            let mut assigned = statements.clone().filter_map(|it| Some((it, assigned_to(name.word, it)?)));
            let (statement, value) = assigned.next()?;
            value.walk().find_map(product).map(|both| (statement, both))
        })
    })?;
    let weights = softmax.parts.split_last().and_then(|(_, targets)| targets.first()).map_or("", |target| target.word);
    let mut values = statements.flat_map(Stmt::expressions).filter_map(product);
    let [_, value] = values
        .find(|[left, _]| left.walk().any(|part| is_softmax(part) || !weights.is_empty() && part.word == weights))?;
    let failing = place.statement();
    let is_part = (start.first_line..=softmax.last_line.max(start.last_line)).contains(&failing.first_line)
        || failing.expressions().any(|part| !weights.is_empty() && part.word == weights);
    is_part.then_some(LargeValue::Scores([first_name(query)?, first_name(key)?, first_name(value)?]))
}

fn is_softmax(call: &Expr<'_>) -> bool {
    call.called() == Some("softmax")
}

/// The value that `statement` assigns to `name`.
fn assigned_to<'s, 'a>(name: &str, statement: &'s Stmt<'a>) -> Option<&'s Expr<'a>> {
    let (value, targets) = statement.parts.split_last().filter(|_| statement.kind == StmtKind::Assign)?;
    targets.iter().any(|target| target.word == name).then_some(value)
}

fn first_name(part: &Expr<'_>) -> Option<String> {
    part.walk().find(|part| part.kind == ExprKind::Name).map(|it| it.word.to_owned())
}
