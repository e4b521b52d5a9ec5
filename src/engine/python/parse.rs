//! Parses statements. One that is not understood is [`StmtKind::Other`]; the statements around it are still parsed.

use super::expressions::Parser;
use super::tokens::{TokenKind, tokens};
use super::tree::{Expr, ExprKind, Stmt, StmtKind};

/// The statements of `text`.
pub(super) fn parse(text: &str) -> Vec<Stmt<'_>> {
    let mut parser = Parser { tokens: tokens(text), at: 0, depth: 0 };
    let mut statements = Vec::new();
    while parser.at < parser.tokens.len() {
        parser.statements(&mut statements);
        parser.at += 1; // an indent without a header
    }
    statements
}

impl<'a> Parser<'a> {
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
                    let start = self.at;
                    let mut statement = self.header_or_simple();
                    if self.at > start && self.take(":").is_some() {
                        statement.body = self.block();
                    } else if self.take(";").is_none() {
                        self.skip_line();
                    }
                    statement.last_line = self.last_line().max(statement.first_line);
                    statement.decorators = std::mem::take(&mut decorators);
                    found.push(statement);
                }
            }
        }
    }

    /// The body of a header: the rest of the line, or an indented block.
    fn block(&mut self) -> Vec<Stmt<'a>> {
        let mut body = Vec::new();
        if self.take_kind(TokenKind::Newline).is_none() {
            while !self.is_kind(TokenKind::Newline) && self.peek().is_some() {
                let before = self.at;
                body.push(self.header_or_simple());
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

    /// The header of a statement, or a whole simple one, in the line where it begins.
    fn header_or_simple(&mut self) -> Stmt<'a> {
        let line = self.line();
        let (kind, word, parts) = self.statement().unwrap_or((StmtKind::Other, "", Vec::new()));
        Stmt { kind, word, parts, decorators: Vec::new(), body: Vec::new(), first_line: line, last_line: line }
    }

    /// The kind, word and parts of a header or a simple statement; `None` if it is not understood.
    fn statement(&mut self) -> Option<(StmtKind, &'a str, Vec<Expr<'a>>)> {
        while self.take("async").is_some() {}
        let word = self.peek().map_or("", |token| token.text);
        if !self.is(word) {
            return self.simple(); // a string, such as a docstring
        }
        let start = self.at;
        self.at += 1;
        match word {
            "def" => self.definition(StmtKind::Function),
            "class" => self.definition(StmtKind::Class),
            "for" => {
                let target = self.targets()?;
                self.take("in")?;
                Some((StmtKind::Loop, word, vec![target, self.expressions()?]))
            }
            "while" => Some((StmtKind::Loop, word, vec![self.expression()?])),
            "with" => Some((StmtKind::With, word, self.with_items()?)),
            "match" | "case" if self.peek().is_some_and(|after| matches!(after.text, "=" | "." | ",")) => {
                self.at = start;
                self.simple()
            }
            "if" | "elif" | "else" | "try" | "except" | "finally" | "match" | "case" => {
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
                let is_empty = self.is_kind(TokenKind::Newline) || self.is(";") || self.peek().is_none();
                Some((StmtKind::Return, word, if is_empty { Vec::new() } else { vec![self.expressions()?] }))
            }
            "global" | "nonlocal" => Some((StmtKind::Shared, word, vec![self.expressions()?])),
            "del" | "assert" | "raise" if self.peek().is_some_and(|next| next.kind != TokenKind::Newline) => {
                let mut parts = vec![self.expressions()?];
                if self.take("from").is_some() {
                    parts.push(self.expression()?);
                }
                Some((StmtKind::Other, word, parts))
            }
            "import" | "from" | "raise" | "pass" | "break" | "continue" => {
                self.skip_line();
                Some((StmtKind::Other, word, Vec::new()))
            }
            _ => {
                self.at = start;
                self.simple()
            }
        }
    }

    /// The header of a function or a class, after its keyword.
    fn definition(&mut self, kind: StmtKind) -> Option<(StmtKind, &'a str, Vec<Expr<'a>>)> {
        let name = self.take_kind(TokenKind::Name)?;
        if self.is("[") {
            self.skip_brackets();
        }
        let parts = if self.take("(").is_some() { self.parameters(")")? } else { Vec::new() };
        if self.take("->").is_some() {
            self.expression()?;
        }
        Some((kind, name, parts))
    }

    /// The items of a `with`, which may be in brackets.
    fn with_items(&mut self) -> Option<Vec<Expr<'a>>> {
        let is_open = self.is("(") && self.closes_before_colon() && self.take("(").is_some();
        let mut items = Vec::new();
        while !self.is(":") && !self.is(")") {
            let item = self.expression()?;
            items.push(if self.take("as").is_some() {
                let (start, target) = (item.start, self.primary()?);
                self.expr(ExprKind::As, "", vec![item, target], start)
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
        Some(items)
    }

    /// An expression, or an assignment.
    fn simple(&mut self) -> Option<(StmtKind, &'a str, Vec<Expr<'a>>)> {
        let mut parts = vec![self.expressions()?];
        if self.take(":").is_some() {
            self.expression()?; // the annotation
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape_of(part: &Expr<'_>) -> String {
        let inner: Vec<String> = part.parts.iter().map(shape_of).collect();
        let word = if part.kind == ExprKind::Constant { "" } else { part.word };
        format!("{:?} {word}({})", part.kind, inner.join(", "))
    }

    fn shape(text: &str) -> String {
        let statements = parse(text);
        let lines = statements.iter().map(|statement| {
            let parts: Vec<String> = statement.parts.iter().map(shape_of).collect();
            format!("{:?} {} [{}] {}", statement.kind, statement.word, parts.join("; "), statement.body.len())
        });
        lines.collect::<Vec<_>>().join("\n")
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
        let indented: Vec<String> = (0..400).map(|depth| format!("{}if x:", " ".repeat(depth))).collect();
        assert!(!shape(&indented.join("\n")).is_empty());
    }

    #[test]
    fn lines_are_those_of_the_text() {
        let text = "\"\"\"a\nb\"\"\"\nx = f(\n  1,\n)\nfor a in b:\n    c = '''\n'''\n    d\ne";
        let lines: Vec<_> = parse(text).iter().map(|s| (s.first_line, s.last_line)).collect();
        assert_eq!(lines, [(1, 2), (3, 5), (6, 9), (10, 10)]);
    }
}
