//! A cursor over tokens, and how it parses expressions.

use super::tokens::{Token, TokenKind};
use super::tree::{Expr, ExprKind};

/// Maximum nesting, and length of a chain of calls. The text may come from anybody, and the parser recurses.
const MAX_DEPTH: usize = 40;

pub(super) struct Parser<'a> {
    pub(super) tokens: Vec<Token<'a>>,
    pub(super) at: usize,
    pub(super) depth: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn peek(&self) -> Option<&Token<'a>> {
        self.tokens.get(self.at)
    }

    pub(super) fn is(&self, text: &str) -> bool {
        self.peek()
            .filter(|token| matches!(token.kind, TokenKind::Name | TokenKind::Operator))
            .is_some_and(|token| token.text == text)
    }

    pub(super) fn is_kind(&self, kind: TokenKind) -> bool {
        self.peek().is_some_and(|token| token.kind == kind)
    }

    pub(super) fn take(&mut self, text: &str) -> Option<()> {
        self.is(text).then(|| self.at += 1)
    }

    pub(super) fn take_kind(&mut self, kind: TokenKind) -> Option<&'a str> {
        let token = *self.peek().filter(|token| token.kind == kind)?;
        self.at += 1;
        Some(token.text)
    }

    pub(super) fn line(&self) -> u32 {
        self.peek().or(self.tokens.last()).map_or(1, |token| token.line)
    }

    /// The line of the last token that was taken.
    pub(super) fn last_line(&self) -> u32 {
        let last = self.tokens[..self.at.min(self.tokens.len())].iter().rev();
        let mut code = last.skip_while(|token| token.text.is_empty());
        code.next().map_or(1, |token| token.line + u32::try_from(token.text.matches('\n').count()).unwrap_or(0))
    }

    pub(super) fn skip_line(&mut self) {
        while let Some(token) = self.peek()
            && !matches!(token.kind, TokenKind::Newline | TokenKind::Indent | TokenKind::Dedent)
        {
            self.at += 1;
        }
    }

    pub(super) fn skip_brackets(&mut self) {
        let mut open = 0usize;
        while let Some(token) = self.peek() {
            match token.text {
                "(" | "[" | "{" => open += 1,
                ")" | "]" | "}" => open = open.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if open == 0 {
                return;
            }
        }
    }

    /// Whether the bracket at the cursor closes right before the header's colon.
    pub(super) fn closes_before_colon(&mut self) -> bool {
        let start = self.at;
        self.skip_brackets();
        let closes = self.is(":");
        self.at = start;
        closes
    }

    /// An expression from byte `start` to the last token that was taken.
    pub(super) fn expr(&self, kind: ExprKind, word: &'a str, parts: Vec<Expr<'a>>, start: usize) -> Expr<'a> {
        Expr { kind, word, parts, start, end: self.tokens[..self.at].last().map_or(start, Token::end) }
    }

    /// Calls `read` one level deeper; `None` at the maximum depth.
    pub(super) fn deeper(&mut self, read: impl Fn(&mut Self) -> Option<Expr<'a>>) -> Option<Expr<'a>> {
        self.depth += 1;
        let found = if self.depth > MAX_DEPTH { None } else { read(self) };
        self.depth -= 1;
        found
    }

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
        let start = first.start;
        let mut parts = vec![first];
        while self.take(",").is_some() {
            let is_end = self.peek().is_none_or(|token| {
                token.kind == TokenKind::Newline || matches!(token.text, "=" | ")" | "]" | "}" | ":" | "in" | ";")
            });
            if is_end {
                break;
            }
            parts.push(item(self)?);
        }
        let end = parts.last()?.end; // without a trailing comma
        Some(Expr { kind: ExprKind::Group, word: "(", parts, start, end })
    }

    fn star(&mut self, inner: impl Fn(&mut Self) -> Option<Expr<'a>>) -> Option<Expr<'a>> {
        let start = self.peek()?.start;
        if self.take("*").is_none() && self.take("**").is_none() {
            return inner(self);
        }
        let value = inner(self)?;
        Some(self.expr(ExprKind::Star, "", vec![value], start))
    }

    pub(super) fn expression(&mut self) -> Option<Expr<'a>> {
        self.deeper(Self::any_expression)
    }

    fn any_expression(&mut self) -> Option<Expr<'a>> {
        let start = self.peek()?.start;
        if self.take("lambda").is_some() {
            let mut parts = self.parameters(":")?;
            parts.push(self.expression()?);
            return Some(self.expr(ExprKind::Lambda, "", parts, start));
        }
        if self.take("yield").is_some() {
            let word = if self.take("from").is_some() { "from" } else { "" };
            let is_bare =
                self.peek().is_none_or(|next| next.kind == TokenKind::Newline || matches!(next.text, ")" | "]" | "="));
            let parts = if is_bare { Vec::new() } else { vec![self.expressions()?] };
            let end = parts.last().map_or(start, |value| value.end);
            return Some(Expr { kind: ExprKind::Yield, word, parts, start, end });
        }
        let value = self.operation()?;
        if self.take(":=").is_some() {
            let parts = vec![self.expression()?, value];
            return Some(self.expr(ExprKind::As, "", parts, start));
        }
        if self.take("if").is_none() {
            return Some(value);
        }
        let test = self.operation()?;
        self.take("else")?;
        let parts = vec![value, test, self.expression()?];
        Some(self.expr(ExprKind::Conditional, "", parts, start))
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
        if parts.len() == 1 {
            return parts.pop();
        }
        let kind = if is_compared { ExprKind::Comparison } else { ExprKind::Operation };
        Some(self.expr(kind, word, parts, start))
    }

    /// An atom with its attributes, calls and indexes.
    pub(super) fn primary(&mut self) -> Option<Expr<'a>> {
        let mut value = self.deeper(Self::atom)?;
        for _ in 0..MAX_DEPTH {
            let start = value.start;
            if self.take(".").is_some() {
                let word = self.take_kind(TokenKind::Name)?;
                value = self.expr(ExprKind::Attribute, word, vec![value], start);
            } else if self.is("(") || self.is("[") {
                let (kind, close) = if self.is("(") { (ExprKind::Call, ")") } else { (ExprKind::Subscript, "]") };
                self.at += 1;
                let mut parts = vec![value];
                self.items(close, &mut parts)?;
                value = self.expr(kind, "", parts, start);
            } else {
                return Some(value);
            }
        }
        None
    }

    fn atom(&mut self) -> Option<Expr<'a>> {
        let token = *self.peek()?;
        let start = token.start;
        let kind = match (token.kind, token.text) {
            (TokenKind::Operator, open @ ("(" | "[" | "{")) => {
                self.at += 1;
                let close = match open {
                    "(" => ")",
                    "[" => "]",
                    _ => "}",
                };
                let mut parts = Vec::new();
                let has_comma = self.items(close, &mut parts)?;
                let is_made = parts.iter().any(|part| part.kind == ExprKind::Clause);
                let kind = if is_made { ExprKind::Comprehension } else { ExprKind::Group };
                let is_tuple = open != "(" || parts.len() != 1 || has_comma;
                let mut group = self.expr(kind, token.text, parts, start);
                return if is_tuple {
                    Some(group)
                } else {
                    group.parts.pop().map(|it| Expr { start, end: group.end, ..it })
                };
            }
            (TokenKind::Constant, _) => {
                while self.take_kind(TokenKind::Constant).is_some() {}
                ExprKind::Constant
            }
            (TokenKind::Name, "None" | "True" | "False") | (TokenKind::Operator, "..." | ":") => {
                self.at += usize::from(token.text != ":");
                ExprKind::Constant
            }
            (TokenKind::Name, "for" | "if" | "else" | "in" | "as" | "and" | "or" | "is") => return None,
            (TokenKind::Name, _) => {
                self.at += 1;
                ExprKind::Name
            }
            _ => return None,
        };
        Some(self.expr(kind, token.text, Vec::new(), start))
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
                parts.push(self.expr(ExprKind::Clause, "", clause, start));
            } else if self.take(":").is_none() {
                let value = self.star(Self::expression)?;
                if value.kind == ExprKind::Name && self.take("=").is_some() {
                    let given = vec![self.expression()?];
                    parts.push(self.expr(ExprKind::Keyword, value.word, given, value.start));
                } else {
                    parts.push(value);
                }
            }
        }
        Some(has_comma)
    }
}
