//! A cursor over tokens.

use super::tokens::{Token, TokenKind};
use super::tree::{Expr, ExprKind};

/// Maximum nesting, and length of a chain of calls. The text may come from anybody, and the parser recurses.
pub(super) const MAX_DEPTH: usize = 40;

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
        let is_code = |token: &&Token<'_>| matches!(token.kind, TokenKind::Name | TokenKind::Operator);
        self.peek().filter(is_code).is_some_and(|token| token.text == text)
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
}
