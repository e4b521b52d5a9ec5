//! Splits Python source text into tokens, with significant line ends and indentation.

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Name,
    /// A number or a string.
    Constant,
    Operator,
    Newline,
    Indent,
    Dedent,
}

/// A token: `text` begins at byte `start` of the file, in line `line`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
    pub(super) start: usize,
    pub(super) line: u32,
}

impl Token<'_> {
    pub(super) fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// Longest first, so that the first match is the longest.
const OPERATORS: [&str; 24] = [
    "**=", "//=", ">>=", "<<=", "...", "->", ":=", "**", "//", ">>", "<<", "==", "!=", "<=", ">=", "+=", "-=", "*=",
    "/=", "%=", "@=", "&=", "|=", "^=",
];
/// Python aligns a tab to this many columns.
const TAB_COLUMNS: usize = 8;
/// Maximum number of nested blocks, as in Python.
const MAX_INDENTS: usize = 100;

/// The tokens of `text`. A character that Python does not know is skipped.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer { text, at: 0, line: 1, tokens: Vec::new(), indents: Vec::new(), brackets: 0 };
    lexer.run();
    lexer.tokens
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
    tokens: Vec<Token<'a>>,
    /// Columns of the enclosing blocks.
    indents: Vec<usize>,
    brackets: usize,
}

impl<'a> Lexer<'a> {
    fn run(&mut self) {
        self.indentation();
        while let Some(next) = self.rest().chars().next() {
            match next {
                '\n' => {
                    if self.brackets == 0 {
                        self.push_unless_repeated(TokenKind::Newline);
                    }
                    self.at += 1;
                    self.line += 1;
                    if self.brackets == 0 {
                        self.indentation();
                    }
                }
                '\\' if self.rest().starts_with("\\\n") || self.rest().starts_with("\\\r\n") => {
                    self.at = self.text[self.at..].find('\n').map_or(self.text.len(), |end| self.at + end + 1);
                    self.line += 1;
                }
                '#' => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                _ if next.is_whitespace() => self.at += next.len_utf8(),
                '"' | '\'' => self.quoted(0),
                _ if next.is_alphabetic() || next == '_' => self.word(),
                _ if next.is_ascii_digit() => {
                    let end = self.rest().find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.')));
                    self.push(TokenKind::Constant, end.unwrap_or(self.rest().len()));
                }
                _ => self.operator(next),
            }
        }
        self.push_unless_repeated(TokenKind::Newline);
        for _ in 0..self.indents.len() {
            self.push(TokenKind::Dedent, 0);
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn push(&mut self, kind: TokenKind, len: usize) {
        let text = &self.text[self.at..self.at + len];
        self.tokens.push(Token { kind, text, start: self.at, line: self.line });
        self.at += len;
    }

    fn push_unless_repeated(&mut self, kind: TokenKind) {
        if self.tokens.last().is_some_and(|last| !matches!(last.kind, TokenKind::Newline | TokenKind::Dedent)) {
            self.push(kind, 0);
        }
    }

    /// Emits the indents and dedents of a line. Blank lines have none.
    fn indentation(&mut self) {
        let code = self.rest().trim_start_matches([' ', '\t', '\u{feff}']);
        if code.is_empty() || code.starts_with(['\n', '\r', '#']) {
            return;
        }
        let indent = &self.rest()[..self.rest().len() - code.len()];
        let column = indent
            .chars()
            .fold(0, |column, c| if c == '\t' { (column / TAB_COLUMNS + 1) * TAB_COLUMNS } else { column + 1 });
        if column > self.indents.last().copied().unwrap_or(0) && self.indents.len() < MAX_INDENTS {
            self.indents.push(column);
            self.push(TokenKind::Indent, 0);
        }
        while self.indents.last().is_some_and(|last| *last > column) {
            self.indents.pop();
            self.push(TokenKind::Dedent, 0);
        }
    }

    /// A name, or the prefix of a string.
    fn word(&mut self) {
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let is_prefix = len <= 2 && rest[..len].bytes().all(|byte| b"rRbBuUfFtT".contains(&byte));
        if is_prefix && rest[len..].starts_with(['"', '\'']) {
            self.quoted(len);
        } else {
            self.push(TokenKind::Name, len);
        }
    }

    /// A string whose first quote follows a prefix of `prefix` bytes.
    fn quoted(&mut self, prefix: usize) {
        let rest = &self.rest()[prefix..];
        let triple = ["\"\"\"", "'''"].into_iter().find(|quote| rest.starts_with(quote));
        let quote = triple.unwrap_or(&rest[..1]);
        let (mut at, mut is_escaped) = (quote.len(), false);
        while at < rest.len() {
            let next = rest.as_bytes()[at];
            if !is_escaped && rest.as_bytes()[at..].starts_with(quote.as_bytes()) {
                at += quote.len();
                break;
            }
            if next == b'\n' && triple.is_none() && !is_escaped {
                break; // unfinished
            }
            is_escaped = next == b'\\' && !is_escaped;
            at += 1;
        }
        let lines = rest[..at].matches('\n').count();
        self.push(TokenKind::Constant, prefix + at);
        self.line = self.line.saturating_add(u32::try_from(lines).unwrap_or(u32::MAX));
    }

    fn operator(&mut self, next: char) {
        match next {
            '(' | '[' | '{' => self.brackets += 1,
            ')' | ']' | '}' => self.brackets = self.brackets.saturating_sub(1),
            _ => {}
        }
        let long = OPERATORS.into_iter().find(|operator| self.rest().starts_with(operator));
        self.push(TokenKind::Operator, long.map_or(next.len_utf8(), str::len));
    }
}
