//! Parses expressions.

use super::parser::{MAX_DEPTH, Parser};
use super::tokens::{Token, TokenKind};
use super::tree::{Expr, ExprKind};

impl<'a> Parser<'a> {
    /// Parameters of a function up to `close`, or bases of a class.
    pub(super) fn parameters(&mut self, close: &str) -> Option<Vec<Expr<'a>>> {
        let mut found = Vec::new();
        while self.take(close).is_none() {
            if self.take("/").is_none() {
                let is_rest = self.take("*").or_else(|| self.take("**")).is_some();
                if !self.is(",") {
                    let start = self.peek()?.start;
                    let base = self.primary()?;
                    let word = if base.kind == ExprKind::Name { base.word } else { "" };
                    if close == ")" && self.take(":").is_some() {
                        let _ = self.take("*");
                        self.expression()?;
                    }
                    let default = if self.take("=").is_some() { vec![self.expression()?] } else { Vec::new() };
                    let kind = if is_rest { ExprKind::Star } else { ExprKind::Keyword };
                    found.push(Expr { kind, word, parts: default, start, end: base.end });
                }
            }
            if self.take(",").is_none() && !self.is(close) {
                return None;
            }
        }
        Some(found)
    }

    /// The targets of a `for`, up to its `in`.
    pub(super) fn targets(&mut self) -> Option<Expr<'a>> {
        self.list(|parser| parser.star(Self::primary))
    }

    /// A comma-separated list of expressions: a tuple if there are several.
    pub(super) fn expressions(&mut self) -> Option<Expr<'a>> {
        self.list(|parser| parser.star(Self::expression))
    }

    fn list(&mut self, item: impl Fn(&mut Self) -> Option<Expr<'a>>) -> Option<Expr<'a>> {
        let first = item(self)?;
        if !self.is(",") {
            return Some(first);
        }
        let (start, mut end) = (first.start, first.end);
        let mut parts = vec![first];
        while self.take(",").is_some() {
            let ends = |token: &Token<'_>| {
                token.kind == TokenKind::Newline || matches!(token.text, "=" | ")" | "]" | "}" | ":" | "in" | ";")
            };
            if self.peek().is_none_or(ends) {
                break;
            }
            let next = item(self)?;
            end = next.end;
            parts.push(next);
        }
        Some(Expr { kind: ExprKind::Group, word: "(", parts, start, end })
    }

    fn star(&mut self, inner: impl Fn(&mut Self) -> Option<Expr<'a>>) -> Option<Expr<'a>> {
        let start = self.peek()?.start;
        if self.take("*").is_none() && self.take("**").is_none() {
            return inner(self);
        }
        let value = inner(self)?;
        Some(Expr { kind: ExprKind::Star, word: "", end: value.end, parts: vec![value], start })
    }

    pub(super) fn expression(&mut self) -> Option<Expr<'a>> {
        self.deeper(Self::any_expression)
    }

    fn any_expression(&mut self) -> Option<Expr<'a>> {
        let start = self.peek()?.start;
        if self.take("lambda").is_some() {
            let mut parts = self.parameters(":")?;
            parts.push(self.expression()?);
            let end = parts.last()?.end;
            return Some(Expr { kind: ExprKind::Lambda, word: "", parts, start, end });
        }
        if self.take("yield").is_some() {
            let word = if self.take("from").is_some() { "from" } else { "" };
            let ends = |token: &Token<'_>| token.kind == TokenKind::Newline || matches!(token.text, ")" | "]" | "=");
            let parts = if self.peek().is_none_or(ends) { Vec::new() } else { vec![self.expressions()?] };
            let end = parts.last().map_or(start, |value| value.end);
            return Some(Expr { kind: ExprKind::Yield, word, parts, start, end });
        }
        let value = self.operation()?;
        if self.take(":=").is_some() {
            let new = self.expression()?;
            let end = new.end;
            return Some(Expr { kind: ExprKind::As, word: "", parts: vec![new, value], start, end });
        }
        if self.take("if").is_none() {
            return Some(value);
        }
        let test = self.operation()?;
        self.take("else")?;
        let other = self.expression()?;
        let end = other.end;
        Some(Expr { kind: ExprKind::Conditional, word: "", parts: vec![value, test, other], start, end })
    }

    /// A chain of binary operators, without precedence: values flow through every operator in the same way, but the
    /// result of a comparison has no part of its operands.
    fn operation(&mut self) -> Option<Expr<'a>> {
        let start = self.peek()?.start;
        while matches!(self.peek()?.text, "not" | "-" | "+" | "~" | "await") && !self.is_kind(TokenKind::Constant) {
            self.at += 1;
        }
        let first = self.primary()?;
        let (mut parts, mut is_compared, mut word) = (vec![first], false, "");
        while let Some(token) = self.peek() {
            let text = token.text;
            let is_comparison = matches!(text, "==" | "!=" | "<" | ">" | "<=" | ">=" | "in" | "is" | "not");
            let is_arithmetic = matches!(
                text,
                "+" | "-" | "*" | "/" | "//" | "%" | "@" | "**" | "&" | "|" | "^" | "<<" | ">>" | "and" | "or"
            );
            if !(is_comparison || is_arithmetic) || !self.is(text) {
                break;
            }
            (is_compared, word) = (is_compared || is_comparison, if word.is_empty() { text } else { word });
            self.at += 1;
            while matches!(self.peek()?.text, "not" | "in" | "-" | "+" | "~" | "await") {
                self.at += 1;
            }
            parts.push(self.primary()?);
        }
        let end = parts.last()?.end;
        match (parts.len(), is_compared) {
            (1, _) => parts.pop(),
            (_, true) => Some(Expr { kind: ExprKind::Comparison, word, parts, start, end }),
            (_, false) => Some(Expr { kind: ExprKind::Operation, word, parts, start, end }),
        }
    }

    /// An atom with its attributes, calls and indexes.
    pub(super) fn primary(&mut self) -> Option<Expr<'a>> {
        let mut value = self.deeper(Self::atom)?;
        for _ in 0..MAX_DEPTH {
            let start = value.start;
            if self.take(".").is_some() {
                let end = self.peek()?.end();
                let word = self.take_kind(TokenKind::Name)?;
                value = Expr { kind: ExprKind::Attribute, word, parts: vec![value], start, end };
            } else if self.is("(") || self.is("[") {
                let (kind, close) = if self.is("(") { (ExprKind::Call, ")") } else { (ExprKind::Subscript, "]") };
                self.at += 1;
                let mut parts = vec![value];
                self.items(close, &mut parts)?;
                let end = self.tokens[self.at - 1].end();
                value = Expr { kind, word: "", parts, start, end };
            } else {
                return Some(value);
            }
        }
        None
    }

    fn atom(&mut self) -> Option<Expr<'a>> {
        let token = *self.peek()?;
        let (start, end) = (token.start, token.end());
        match (token.kind, token.text) {
            (TokenKind::Operator, open @ ("(" | "[" | "{")) => {
                self.at += 1;
                let close = if open == "(" {
                    ")"
                } else if open == "[" {
                    "]"
                } else {
                    "}"
                };
                let mut parts = Vec::new();
                let has_comma = self.items(close, &mut parts)?;
                let end = self.tokens[self.at - 1].end();
                let is_made = parts.iter().any(|part| part.kind == ExprKind::Clause);
                if open == "(" && parts.len() == 1 && !has_comma {
                    return parts.pop().map(|inner| Expr { start, end, ..inner });
                }
                let kind = if is_made { ExprKind::Comprehension } else { ExprKind::Group };
                Some(Expr { kind, word: &self.text[start..=start], parts, start, end })
            }
            (TokenKind::Constant, _) => {
                while self.take_kind(TokenKind::Constant).is_some() {}
                let end = self.tokens[self.at - 1].end();
                Some(Expr { kind: ExprKind::Constant, word: token.text, parts: Vec::new(), start, end })
            }
            (TokenKind::Name, "None" | "True" | "False") | (TokenKind::Operator, "..." | ":") => {
                self.at += usize::from(token.text != ":");
                Some(Expr { kind: ExprKind::Constant, word: token.text, parts: Vec::new(), start, end })
            }
            (TokenKind::Name, "for" | "if" | "else" | "in" | "as" | "and" | "or" | "is") => None,
            (TokenKind::Name, word) => {
                self.at += 1;
                Some(Expr { kind: ExprKind::Name, word, parts: Vec::new(), start, end })
            }
            _ => None,
        }
    }

    /// Reads the contents of brackets up to `close`: arguments, indexes, items, keys with values, clauses. Returns whether
    /// there is a comma.
    fn items(&mut self, close: &str, parts: &mut Vec<Expr<'a>>) -> Option<bool> {
        let mut has_comma = false;
        while self.take(close).is_none() {
            if self.take(",").is_some() {
                has_comma = true;
            } else if self.is("for") || self.is("async") {
                let start = self.peek()?.start;
                self.at += 1 + usize::from(self.is("async"));
                let target = self.targets()?;
                self.take("in")?;
                let mut clause = vec![target, self.operation()?];
                while self.take("if").is_some() {
                    clause.push(self.operation()?);
                }
                let end = clause.last()?.end;
                parts.push(Expr { kind: ExprKind::Clause, word: "", parts: clause, start, end });
            } else if self.take(":").is_none() {
                let value = self.star(Self::expression)?;
                if value.kind == ExprKind::Name && self.take("=").is_some() {
                    let given = self.expression()?;
                    let (word, start, end) = (value.word, value.start, given.end);
                    parts.push(Expr { kind: ExprKind::Keyword, word, parts: vec![given], start, end });
                } else {
                    parts.push(value);
                }
            }
        }
        Some(has_comma)
    }
}
