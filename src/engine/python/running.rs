//! Whether a running function reads a variable, or calls `backward`, from its line on.

use std::collections::BTreeSet;

use super::program::{Line, Place, ProgramText, is_backward, last_part};
use super::tree::{Expr, ExprKind, Stmt, StmtKind};

/// Operators of PyTorch that make a tensor from sizes.
const CREATION: [&str; 9] = ["zeros", "ones", "empty", "full", "rand", "randn", "randint", "arange", "eye"];

/// The value that a running line computes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningValue {
    /// Its text, if it has one line.
    pub text: Option<String>,
    /// The first variable that it comes from.
    pub source: String,
    /// The line adds a dimension of size 1 to that: a batch of one item.
    pub is_one_item: bool,
}

/// A loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopKind {
    /// `while`, or a number of times.
    Counted,
    /// Over the items of anything else.
    OverData,
}

impl ProgramText<'_> {
    /// Whether the text of `line` is known.
    pub fn has_text(&self, line: &Line<'_>) -> bool {
        self.place(line).is_some()
    }

    /// The value that `line` computes now, with the function `inner` if that is known; `None` if it comes from no variable, or if
    /// sizes alone make it.
    pub fn running_value(&self, line: &Line<'_>, inner: Option<&str>) -> Option<RunningValue> {
        let place = self.place(line)?;
        let statement = place.statement();
        let call = statement.calls().find(|call| call.called().is_some_and(|name| Some(name) == inner));
        let value = call.or(match (statement.kind, statement.parts.as_slice()) {
            (StmtKind::Assign | StmtKind::Augmented | StmtKind::Loop, [.., value])
            | (StmtKind::Return | StmtKind::Expression, [value]) => Some(value),
            _ => None,
        })?;
        // A tensor is not called, unlike a module that the program makes.
        let (source, is_one_item) = source_of(value, &|name: &str| {
            let parameters = place.function().map(|it| it.parts.as_slice()).unwrap_or_default();
            let is_known =
                self.writing(last_part(name)).next().is_some() || parameters.iter().any(|it| it.word == name);
            is_known && !self.statements().flat_map(Stmt::calls).any(|call| call.called() == Some(last_part(name)))
        })
        .filter(|_| !value.walk().any(is_creation))?;
        Some(RunningValue { text: place.text_of(value).map(str::to_owned), source, is_one_item })
    }

    /// The innermost loop of the function around `line`; `None` if there is none. That of an unknown text goes over data.
    pub fn innermost_loop(&self, line: &Line<'_>) -> Option<LoopKind> {
        let Some(place) = self.place(line) else { return Some(LoopKind::OverData) };
        if place.statement().expressions().any(|part| part.kind == ExprKind::Clause) {
            return Some(LoopKind::OverData);
        }
        place.innermost_loop().map(|it| match it.parts.as_slice() {
            [_, items] if items.called() != Some("range") => LoopKind::OverData,
            _ => LoopKind::Counted,
        })
    }

    /// Whether the function of a running line, or a file outside of functions, may call `backward` from there on; `None`
    /// if its text is not known.
    pub fn has_backward_from(&self, line: &Line<'_>) -> Option<bool> {
        let place = self.place(line)?;
        let mut statements = place.statements_of(line).iter().flat_map(Stmt::walk);
        Some(statements.any(|it| is_from(it, line.line) && it.calls().any(is_backward)))
    }

    /// The variables that a running function (or a file) has assigned and does not read from `line` on; `None` if its text
    /// is not known. A loop around the line may run again, and a nested function at any time, so both count as read.
    pub fn unread_from(&self, line: &Line<'_>) -> Option<BTreeSet<String>> {
        let place = self.place(line)?;
        let outer = place.statements_of(line);
        let loops = outer.iter().flat_map(Stmt::walk).filter(|it| it.kind == StmtKind::Loop);
        let loops = loops.filter(|it| it.contains_line(line.line)).map(|it| it.first_line);
        let start = loops.min().unwrap_or(line.line).min(line.line);
        let (mut assigned, mut read) = (BTreeSet::new(), BTreeSet::new());
        let mut waiting: Vec<(&Stmt<'_>, bool)> = outer.iter().map(|it| (it, false)).collect();
        while let Some((statement, is_inner)) = waiting.pop() {
            if statement.kind == StmtKind::Other && statement.word.is_empty() {
                return None; // it may read anything
            }
            let is_inner_body = is_inner || matches!(statement.kind, StmtKind::Function | StmtKind::Class);
            waiting.extend(statement.body.iter().map(|inner| (inner, is_inner_body)));
            let is_read = is_inner || is_from(statement, start);
            for (name, is_target) in names(statement, place.file.text) {
                if is_target {
                    assigned.insert(name.to_owned());
                } else if is_read {
                    read.insert(name);
                }
            }
        }
        assigned.retain(|name| !read.contains(name.as_str()));
        Some(assigned)
    }
}

fn is_creation(call: &Expr<'_>) -> bool {
    call.receiver().is_some_and(|it| it.word == "torch") && CREATION.contains(&call.called().unwrap_or_default())
}

/// The first variable that `value` is computed from (in a call: an argument, else the object), and whether a dimension of
/// size 1 is added to it.
fn source_of(value: &Expr<'_>, is_variable: &impl Fn(&str) -> bool) -> Option<(String, bool)> {
    match value.kind {
        ExprKind::Name | ExprKind::Attribute => {
            let variable = value.variable().filter(|name| is_variable(name)).map(|name| (name, false));
            variable.or_else(|| source_in(&value.parts, is_variable))
        }
        ExprKind::Subscript => {
            let (source, is_one) = source_of(&value.parts[0], is_variable)?;
            Some((source, is_one || value.parts.get(1).is_some_and(|index| index.word == "None")))
        }
        ExprKind::Call => {
            source_in(&value.parts[1..], is_variable).or_else(|| source_of(value.receiver()?, is_variable))
        }
        ExprKind::Constant | ExprKind::Lambda => None,
        _ => source_in(&value.parts, is_variable),
    }
}

fn source_in(values: &[Expr<'_>], is_variable: &impl Fn(&str) -> bool) -> Option<(String, bool)> {
    values.iter().find_map(|value| source_of(value, is_variable))
}

/// Whether `statement` runs at `line` or below it.
fn is_from(statement: &Stmt<'_>, line: u32) -> bool {
    statement.first_line >= line || statement.body.is_empty() && statement.last_line >= line
}

impl<'a> Place<'_, 'a> {
    /// The statements of the function, or of the file for a line outside of functions.
    fn statements_of(&self, line: &Line<'_>) -> &[Stmt<'a>] {
        match self.function() {
            Some(function) if line.function != "<module>" => &function.body,
            _ => &self.file.statements,
        }
    }
}

/// The names in `statement`, without its body, and whether it assigns each.
fn names<'a>(statement: &Stmt<'a>, text: &'a str) -> Vec<(&'a str, bool)> {
    let targets = match (statement.kind, statement.parts.len()) {
        (StmtKind::Shared, _) => return Vec::new(),
        (StmtKind::Assign, parts) => parts - 1,
        (StmtKind::Augmented, _) | (StmtKind::Loop, 2) => 1,
        _ => 0,
    };
    let parts = statement.parts.iter().enumerate().map(|(index, part)| (part, index < targets));
    let mut waiting: Vec<(&Expr<'a>, bool)> = parts.chain(statement.decorators.iter().map(|it| (it, false))).collect();
    let mut found = Vec::new();
    while let Some((part, is_target)) = waiting.pop() {
        match part.kind {
            ExprKind::Name => found.push((part.word, is_target)),
            ExprKind::Group | ExprKind::Star => waiting.extend(part.parts.iter().map(|it| (it, is_target))),
            ExprKind::As => waiting.extend([(&part.parts[0], false), (&part.parts[1], true)]),
            ExprKind::Clause => waiting.extend(part.parts.iter().enumerate().map(|(at, it)| (it, at == 0))),
            // The values in an f-string.
            ExprKind::Constant => {
                let text = text.get(part.start..part.end).filter(|text| text.contains('{')).unwrap_or_default();
                found.extend(text.split(|one: char| !one.is_alphanumeric() && one != '_').map(|word| (word, false)));
            }
            _ => waiting.extend(part.parts.iter().map(|it| (it, false))),
        }
    }
    found
}
