//! Statements and expressions from tokens. A statement that is not understood is [`StmtKind::Other`]; those around it
//! are read.

use super::tokens::{Token, TokenKind, tokens};
use super::tree::{Expr, ExprKind, Stmt, StmtKind};

/// Deeper nesting, and longer chains of calls, are not understood: the text may come from anybody, and the stack is finite.
const MAX_DEPTH: usize = 40;

/// The statements of `text`.
pub(super) fn parse(text: &str) -> Vec<Stmt<'_>> {
    let mut parser = Parser { text, tokens: tokens(text), at: 0, depth: 0 };
    let mut statements = Vec::new();
    while parser.at < parser.tokens.len() {
        parser.statements(&mut statements);
        parser.at += 1; // an indentation that no block explains
    }
    statements
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&Token<'a>> {
        self.tokens.get(self.at)
    }

    fn is(&self, text: &str) -> bool {
        let is_code = |token: &&Token<'_>| matches!(token.kind, TokenKind::Name | TokenKind::Operator);
        self.peek().filter(is_code).is_some_and(|token| token.text == text)
    }

    fn is_kind(&self, kind: TokenKind) -> bool {
        self.peek().is_some_and(|token| token.kind == kind)
    }

    fn take(&mut self, text: &str) -> Option<()> {
        self.is(text).then(|| self.at += 1)
    }

    fn take_kind(&mut self, kind: TokenKind) -> Option<&'a str> {
        let token = *self.peek().filter(|token| token.kind == kind)?;
        self.at += 1;
        Some(token.text)
    }

    fn line(&self) -> u32 {
        self.peek().or(self.tokens.last()).map_or(1, |token| token.line)
    }

    /// The line of the last token that was taken.
    fn last_line(&self) -> u32 {
        let last = self.tokens[..self.at.min(self.tokens.len())].iter().rev();
        let mut code = last.skip_while(|token| token.text.is_empty());
        code.next().map_or(1, |token| token.line + u32::try_from(token.text.matches('\n').count()).unwrap_or(0))
    }

    fn skip_line(&mut self) {
        while let Some(token) = self.peek()
            && !matches!(token.kind, TokenKind::Newline | TokenKind::Indent | TokenKind::Dedent)
        {
            self.at += 1;
        }
    }

    /// Adds the statements up to the end of their block.
    fn statements(&mut self, found: &mut Vec<Stmt<'a>>) {
        let mut decorators = Vec::new();
        while let Some(token) = self.peek() {
            match token.kind {
                TokenKind::Indent | TokenKind::Dedent => return,
                TokenKind::Newline => self.at += 1,
                TokenKind::Operator if token.text == "@" => {
                    self.at += 1;
                    decorators.extend(self.expression());
                    self.skip_line();
                }
                _ => {
                    let (first_line, start) = (self.line(), self.at);
                    let understood = self.statement();
                    let (kind, word, parts) = understood.unwrap_or((StmtKind::Other, "", Vec::new()));
                    let is_block = self.is(":") && self.at > start;
                    if is_block {
                        self.at += 1;
                    } else if self.take(";").is_none() {
                        self.skip_line();
                    }
                    let body = if is_block { self.block() } else { Vec::new() };
                    let last_line = self.last_line().max(first_line);
                    let decorators = std::mem::take(&mut decorators);
                    found.push(Stmt { kind, word, parts, decorators, body, first_line, last_line });
                }
            }
        }
    }

    /// The body of a header: the rest of the line, or an indented block.
    fn block(&mut self) -> Vec<Stmt<'a>> {
        let mut body = Vec::new();
        if self.take_kind(TokenKind::Newline).is_none() {
            while !self.is_kind(TokenKind::Newline) && self.peek().is_some() {
                let (line, before) = (self.line(), self.at);
                let (kind, word, parts) = self.statement().unwrap_or((StmtKind::Other, "", Vec::new()));
                body.push(Stmt {
                    kind,
                    word,
                    parts,
                    decorators: Vec::new(),
                    body: Vec::new(),
                    first_line: line,
                    last_line: line,
                });
                if self.take(";").is_none() || self.at == before {
                    self.skip_line();
                    break;
                }
            }
        } else if self.take_kind(TokenKind::Indent).is_some() {
            self.statements(&mut body);
            let _ = self.take_kind(TokenKind::Dedent);
        }
        body
    }

    /// The header of a statement, or a whole simple one.
    fn statement(&mut self) -> Option<(StmtKind, &'a str, Vec<Expr<'a>>)> {
        while self.take("async").is_some() {}
        let word = self.peek().map_or("", |token| token.text);
        if !self.is(word) {
            return self.simple(); // a text
        }
        let is_header = |word: &str| {
            let after = self.tokens.get(self.at + 1);
            let is_name = after.is_some_and(|after| after.text == "=" || after.text == "." || after.text == ",");
            !(is_name && matches!(word, "match" | "case"))
        };
        match word {
            "def" | "class" => {
                self.at += 1;
                let name = self.take_kind(TokenKind::Name)?;
                if self.is("[") {
                    self.skip_brackets();
                }
                let parts = if self.take("(").is_some() { self.parameters(")")? } else { Vec::new() };
                if self.take("->").is_some() {
                    self.expression()?;
                }
                Some((if word == "def" { StmtKind::Function } else { StmtKind::Class }, name, parts))
            }
            "for" => {
                self.at += 1;
                let target = self.targets()?;
                self.take("in")?;
                Some((StmtKind::Loop, word, vec![target, self.expressions()?]))
            }
            "while" => {
                self.at += 1;
                Some((StmtKind::Loop, word, vec![self.expression()?]))
            }
            "with" => {
                self.at += 1;
                let is_open = self.is("(") && self.closes_before_colon();
                if is_open {
                    self.at += 1;
                }
                let mut items = Vec::new();
                while !self.is(":") && !self.is(")") {
                    let item = self.expression()?;
                    items.push(if self.take("as").is_some() {
                        let target = self.primary()?;
                        let (start, end) = (item.start, target.end);
                        Expr { kind: ExprKind::As, word: "", parts: vec![item, target], start, end }
                    } else {
                        item
                    });
                    if self.take(",").is_none() {
                        break;
                    }
                }
                if is_open {
                    self.take(")")?;
                }
                Some((StmtKind::With, word, items))
            }
            "if" | "elif" | "else" | "try" | "except" | "finally" | "match" | "case" if is_header(word) => {
                self.at += 1;
                let _ = self.take("*");
                let mut parts = if self.is(":") { Vec::new() } else { vec![self.expressions()?] };
                if self.take("as").is_some() {
                    parts.push(self.primary()?);
                }
                while word == "case" && !self.is(":") && self.peek().is_some() && !self.is_kind(TokenKind::Newline) {
                    self.at += 1;
                }
                Some((StmtKind::Block, word, parts))
            }
            "return" => {
                self.at += 1;
                let is_empty = self.is_kind(TokenKind::Newline) || self.is(";") || self.peek().is_none();
                Some((StmtKind::Return, word, if is_empty { Vec::new() } else { vec![self.expressions()?] }))
            }
            "global" | "nonlocal" => {
                self.at += 1;
                Some((StmtKind::Shared, word, vec![self.expressions()?]))
            }
            "import" | "from" | "raise" | "assert" | "pass" | "break" | "continue" | "del" => {
                self.skip_line();
                Some((StmtKind::Other, word, Vec::new()))
            }
            _ => self.simple(),
        }
    }

    /// An expression, or an assignment.
    fn simple(&mut self) -> Option<(StmtKind, &'a str, Vec<Expr<'a>>)> {
        let mut parts = vec![self.expressions()?];
        if self.take(":").is_some() {
            self.expression()?; // a type
        }
        if let Some(token) = self.peek()
            && token.kind == TokenKind::Operator
            && token.text.len() > 1
            && token.text.ends_with('=')
            && !matches!(token.text, "==" | "!=" | "<=" | ">=")
        {
            let word = token.text;
            self.at += 1;
            parts.push(self.expressions()?);
            return Some((StmtKind::Augmented, word, parts));
        }
        while self.take("=").is_some() {
            parts.push(self.expressions()?);
        }
        Some((if parts.len() > 1 { StmtKind::Assign } else { StmtKind::Expression }, "", parts))
    }

    fn skip_brackets(&mut self) {
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

    /// Whether the bracket here closes right before the colon of the header.
    fn closes_before_colon(&mut self) -> bool {
        let start = self.at;
        self.skip_brackets();
        let closes = self.is(":");
        self.at = start;
        closes
    }

    /// Parameters of a function up to `close`, or bases of a class.
    fn parameters(&mut self, close: &str) -> Option<Vec<Expr<'a>>> {
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

    /// Targets of a `for`: no `in` belongs to them.
    fn targets(&mut self) -> Option<Expr<'a>> {
        self.list(|parser| parser.star(Self::primary))
    }

    /// Expressions with commas between them: a tuple unless there is one.
    fn expressions(&mut self) -> Option<Expr<'a>> {
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

    /// `read`, one level deeper.
    fn deeper(&mut self, read: impl Fn(&mut Self) -> Option<Expr<'a>>) -> Option<Expr<'a>> {
        self.depth += 1;
        let found = if self.depth > MAX_DEPTH { None } else { read(self) };
        self.depth -= 1;
        found
    }

    fn expression(&mut self) -> Option<Expr<'a>> {
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

    /// Operators without their precedence, which decides nothing about where a value goes, but that a comparison gives
    /// no part of what it compares.
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
    fn primary(&mut self) -> Option<Expr<'a>> {
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

    /// What brackets have up to `close`: arguments, indexes, items, keys with values, clauses. Whether it has a comma.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> String {
        fn expr(part: &Expr<'_>) -> String {
            let inner: Vec<String> = part.parts.iter().map(expr).collect();
            let word = if part.kind == ExprKind::Constant { "" } else { part.word };
            format!("{:?} {word}({})", part.kind, inner.join(", "))
        }
        let line = |statement: &Stmt<'_>| {
            let parts: Vec<String> = statement.parts.iter().map(expr).collect();
            format!("{:?} {} [{}] {}", statement.kind, statement.word, parts.join("; "), statement.body.len())
        };
        parse(text).iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn statements_have_their_parts() {
        assert_eq!(shape("a = b = f(x)"), "Assign  [Name a(); Name b(); Call (Name f(), Name x())] 0");
        assert_eq!(shape("a += b"), "Augmented += [Name a(); Name b()] 0");
        assert_eq!(shape("x: list[int] = []"), "Assign  [Name x(); Group [()] 0");
        assert_eq!(
            shape("for i, x in enumerate(xs):\n    f(x)\n    g(x)\nh()"),
            "Loop for [Group ((Name i(), Name x()); Call (Name enumerate(), Name xs())] 2\nExpression  [Call (Name h())] 0"
        );
        assert_eq!(
            shape("async def f(a, /, *b: int, c=1, **d) -> dict[str, int]:\n\n  # nothing\n  return a"),
            "Function f [Keyword a(); Star b(); Keyword c(Constant ()); Star d()] 1"
        );
        assert_eq!(shape("with (a as b,\n  c): pass"), "With with [As (Name a(), Name b()); Name c()] 1");
        assert_eq!(shape("if x: y = 1; z = 2\nelse: w"), "Block if [Name x()] 2\nBlock else [] 1");
        assert_eq!(shape("return"), "Return return [] 0");
    }

    #[test]
    fn expressions_have_their_parts() {
        assert_eq!(
            shape("a.b.append({'k': x.y[0], **z})"),
            "Expression  [Call (Attribute append(Attribute b(Name a())), Group {(Constant (), Subscript (Attribute y(Name \
             x()), Constant ()), Star (Name z())))] 0"
        );
        assert_eq!(
            shape("[f(x) for x in xs if x > 0]"),
            "Expression  [Comprehension [(Call (Name f(), Name x()), Clause (Name x(), Name xs(), Comparison >(Name x(), \
             Constant ())))] 0"
        );
        assert_eq!(
            shape("-a * (b + c) ** 2"),
            "Expression  [Operation *(Name a(), Operation +(Name b(), Name c()), Constant ())] 0"
        );
        assert_eq!(
            shape("f(lambda x, y=2: x + y, key=z if a else b)"),
            "Expression  [Call (Name f(), Lambda (Keyword x(), Keyword y(Constant ()), Operation +(Name x(), Name y())), \
             Keyword key(Conditional (Name z(), Name a(), Name b())))] 0"
        );
        assert_eq!(shape("x = yield a, b"), "Assign  [Name x(); Yield (Group ((Name a(), Name b()))] 0");
        assert_eq!(
            shape("if (n := f(x)) is not None: pass"),
            "Block if [Comparison is(As (Call (Name f(), Name x()), Name n()), Constant ())] 1"
        );
        assert_eq!(
            shape("x[1:2, :, ...]"),
            "Expression  [Subscript (Name x(), Constant (), Constant (), Constant ())] 0"
        );
    }

    #[test]
    fn text_that_is_no_python_stops_nothing() {
        assert_eq!(shape("x = = 3\ny = 1"), "Other  [] 0\nAssign  [Name y(); Constant ()] 0");
        assert_eq!(shape("def (x):\n    a\nb = 1").lines().last(), Some("Assign  [Name b(); Constant ()] 0"));
        let deep = format!("x = {}1{}\ny = 2", "(".repeat(5000), ")".repeat(5000));
        assert_eq!(shape(&deep).lines().last(), Some("Assign  [Name y(); Constant ()] 0"));
        assert!(shape(&"if x:\n".repeat(400)).len() > 10);
        let indented: String = (0..400).map(|depth| format!("{}if x:\n", " ".repeat(depth))).collect();
        assert!(!shape(&indented).is_empty());
    }

    #[test]
    fn lines_are_those_of_the_text() {
        let text = "\"\"\"a\nb\"\"\"\nx = f(\n  1,\n)\nfor a in b:\n    c = '''\n'''\n    d\ne";
        let lines: Vec<_> = parse(text).iter().map(|s| (s.first_line, s.last_line)).collect();
        assert_eq!(lines, [(1, 2), (3, 5), (6, 9), (10, 10)]);
    }
}
