//! The syntax tree of Python source: only as much grammar as the flow of values needs.

/// The kind of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExprKind {
    /// `word`.
    Name,
    /// `parts[0].word`.
    Attribute,
    /// `parts[0](parts[1], ..)`.
    Call,
    /// `parts[0][parts[1], ..]`.
    Subscript,
    /// A tuple, list, set or dict that starts with the bracket `word`.
    Group,
    /// A comprehension that starts with the bracket `word`: an item, or a key and a value, then the clauses.
    Comprehension,
    /// `for parts[0] in parts[1]`, with conditions.
    Clause,
    /// `word=parts[0]`: an argument, or a parameter with or without a default.
    Keyword,
    /// `*parts[0]`, `**parts[0]`.
    Star,
    /// A lambda: its parameters, then its body.
    Lambda,
    /// `parts[0] if parts[1] else parts[2]`.
    Conditional,
    /// An arithmetic or a boolean operation.
    Operation,
    /// A comparison.
    Comparison,
    /// `yield parts[0]`, `yield from parts[0]`.
    Yield,
    /// `parts[0] as parts[1]`; `parts[1] := parts[0]`.
    As,
    /// A number, a string, or anything else without a value to follow.
    Constant,
}

/// An expression, at bytes `start` to `end` of the text.
#[derive(Debug, Clone)]
pub(super) struct Expr<'a> {
    /// Its kind, which gives `word` and `parts` their meaning.
    pub(super) kind: ExprKind,
    pub(super) word: &'a str,
    pub(super) parts: Vec<Expr<'a>>,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The kind of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StmtKind {
    /// `parts[0]`.
    Expression,
    /// `parts[..] = parts.last()`.
    Assign,
    /// `parts[0] += parts[1]`.
    Augmented,
    /// `return parts[0]`.
    Return,
    /// `for parts[0] in parts[1]`, `while parts[0]`.
    Loop,
    /// `with parts`.
    With,
    /// A function `word` with parameters `parts`.
    Function,
    /// A class `word` with bases `parts`.
    Class,
    /// `global`, `nonlocal` of `parts`.
    Shared,
    /// Another header of a block: `if`, `else`, `try`, `except`, `match`, ..; `word` is its keyword.
    Block,
    /// Anything else.
    Other,
}

/// A statement in lines `first_line` to `last_line`, including its body.
#[derive(Debug, Clone)]
pub(super) struct Stmt<'a> {
    /// Its kind, which gives `word` and `parts` their meaning.
    pub(super) kind: StmtKind,
    pub(super) word: &'a str,
    pub(super) parts: Vec<Expr<'a>>,
    pub(super) decorators: Vec<Expr<'a>>,
    pub(super) body: Vec<Stmt<'a>>,
    pub(super) first_line: u32,
    pub(super) last_line: u32,
}

/// Each target of an assignment with its value: tuples of equal length item by item, else the whole value.
fn pairs<'e, 'a>(target: &'e Expr<'a>, value: &'e Expr<'a>) -> Vec<(&'e Expr<'a>, &'e Expr<'a>)> {
    if target.kind != ExprKind::Group {
        return vec![(target, value)];
    }
    let is_tuple = value.kind == ExprKind::Group && value.parts.len() == target.parts.len();
    let parts = target.parts.iter().enumerate();
    parts.flat_map(|(index, part)| pairs(part, if is_tuple { &value.parts[index] } else { value })).collect()
}

impl<'a> Expr<'a> {
    /// The variable: `self.history` for `self.history[-1]`; `None` for anything but a variable or an item of one.
    pub(super) fn variable(&self) -> Option<String> {
        match self.kind {
            ExprKind::Name => Some(self.word.to_owned()),
            ExprKind::Attribute => Some(format!("{}.{}", self.parts[0].variable()?, self.word)),
            ExprKind::Subscript | ExprKind::Star => self.parts.first()?.variable(),
            _ => None,
        }
    }

    pub(super) fn is_variable(&self, name: &str) -> bool {
        self.variable().is_some_and(|variable| variable == name)
    }

    /// Whether `word` is the last part of a variable's name, with nothing after it.
    pub(super) fn is_named(&self, word: &str) -> bool {
        matches!(self.kind, ExprKind::Name | ExprKind::Attribute) && self.word == word
    }

    /// The targets in a tuple of targets, or the only one.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Self> {
        pairs(self, self).into_iter().map(|(target, _)| target)
    }

    /// The last word of a called name: `append` for `self.history.append(x)`.
    pub(super) fn called(&self) -> Option<&'a str> {
        let function = self.parts.first().filter(|_| self.kind == ExprKind::Call)?;
        matches!(function.kind, ExprKind::Name | ExprKind::Attribute).then_some(function.word)
    }

    /// The object whose method it calls.
    pub(super) fn receiver(&self) -> Option<&Expr<'a>> {
        let function = self.parts.first().filter(|_| self.kind == ExprKind::Call)?;
        function.parts.first().filter(|_| function.kind == ExprKind::Attribute)
    }

    /// This expression and all nested ones, outer ones first.
    pub(super) fn walk(&self) -> impl Iterator<Item = &Expr<'a>> {
        let mut waiting = vec![self];
        std::iter::from_fn(move || {
            let next = waiting.pop()?;
            waiting.extend(next.parts.iter().rev());
            Some(next)
        })
    }
}

impl<'a> Stmt<'a> {
    /// The names of a function's decorators.
    pub(super) fn decorator_names(&self) -> impl Iterator<Item = &'a str> {
        let is_function = self.kind == StmtKind::Function;
        self.decorators.iter().filter(move |_| is_function).map(|it| it.called().unwrap_or(it.word))
    }

    /// Whether it has `line`, itself or in its body.
    pub(super) fn contains_line(&self, line: u32) -> bool {
        (self.first_line..=self.last_line).contains(&line)
    }

    /// This statement and all nested ones, in the order of the text.
    pub(super) fn walk(&self) -> impl Iterator<Item = &Stmt<'a>> {
        let mut waiting = vec![self];
        std::iter::from_fn(move || {
            let next = waiting.pop()?;
            waiting.extend(next.body.iter().rev());
            Some(next)
        })
    }

    /// Its own expressions and all nested ones, without those of its body.
    pub(super) fn expressions(&self) -> impl Iterator<Item = &Expr<'a>> {
        self.parts.iter().flat_map(Expr::walk)
    }

    /// Each target of an assignment with its value; none for another statement.
    pub(super) fn assignments(&self) -> Vec<(&Expr<'a>, &Expr<'a>)> {
        match (self.kind, self.parts.split_last()) {
            (StmtKind::Assign, Some((value, targets))) => targets.iter().flat_map(|it| pairs(it, value)).collect(),
            _ => Vec::new(),
        }
    }

    /// The calls in its own expressions.
    pub(super) fn calls(&self) -> impl Iterator<Item = &Expr<'a>> {
        self.expressions().filter(|part| part.kind == ExprKind::Call)
    }
}
