//! Whether a running function reads a variable, or calls `backward`, from its line on.

use std::collections::BTreeSet;

use super::program::{Line, Place, ProgramText, is_backward};
use super::tree::{Expr, ExprKind, Stmt, StmtKind};

impl ProgramText<'_> {
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
        let is_loop = |it: &&Stmt<'_>| it.kind == StmtKind::Loop && (it.first_line..=it.last_line).contains(&line.line);
        let loops = outer.iter().flat_map(Stmt::walk).filter(is_loop).map(|it| it.first_line);
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
