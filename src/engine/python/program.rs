//! The source files of a program: the statements around a line, and the definitions of a name.

use rustc_hash::{FxHashMap, FxHashSet};

use super::parse::parse;
use super::tree::{Expr, ExprKind, Stmt, StmtKind};
use super::writes::written_words;
use crate::snapshot::BackwardCall;

/// The parsed files of a program.
#[derive(Debug, Default)]
pub struct ProgramText<'a> {
    pub(super) files: Vec<File<'a>>,
    /// Functions by name; under the name of a class, its `__init__`.
    functions: FxHashMap<&'a str, Vec<StmtPath>>,
    /// The statements that write to a variable, by the last part of its name.
    writes: FxHashMap<&'a str, Vec<StmtPath>>,
    /// All source files of the program are known.
    pub is_complete: bool,
}

/// A file, and the path of indexes to one of its statements, the outermost first.
type StmtPath = (usize, Vec<usize>);

/// A file of the program, named as in the stacks.
#[derive(Debug)]
pub(super) struct File<'a> {
    pub(super) path: &'a str,
    pub(super) text: &'a str,
    pub(super) statements: Vec<Stmt<'a>>,
}

/// A frame of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// The file, as recorded.
    pub file: &'a str,
    /// The line.
    pub line: u32,
    /// The name of the function, `<module>` outside of any.
    pub function: &'a str,
    /// The next inner frame belongs to an installed package, which gets the value of a function that this line calls.
    pub calls_package: bool,
}

/// A statement with everything around it, from the file's outermost statement on.
#[derive(Debug, Clone)]
pub(super) struct Place<'p, 'a> {
    pub(super) file: &'p File<'a>,
    /// Not empty.
    pub(super) path: Vec<&'p Stmt<'a>>,
}

/// Functions of PyTorch that turn gradients off, as a decorator or in a `with`.
const GRAD_OFF: [&str; 2] = ["no_grad", "inference_mode"];

impl<'a> ProgramText<'a> {
    /// Parses `files`, pairs of recorded path and text. `is_complete`: no file of the program is missing.
    pub fn new(files: impl Iterator<Item = (&'a str, &'a str)>, is_complete: bool) -> Self {
        let files: Vec<File<'a>> = files.map(|(path, text)| File { path, text, statements: parse(text) }).collect();
        let mut program = Self { is_complete, ..Self::default() };
        for (index, file) in files.iter().enumerate() {
            program.index(index, &file.statements);
        }
        Self { files, ..program }
    }

    fn index(&mut self, file: usize, statements: &[Stmt<'a>]) {
        let outer = statements.iter().enumerate().map(|(index, statement)| (statement, vec![index], ""));
        let mut waiting: Vec<(&Stmt<'a>, Vec<usize>, &'a str)> = outer.collect();
        while let Some((statement, path, class)) = waiting.pop() {
            if statement.kind == StmtKind::Function {
                let name = if statement.word == "__init__" { class } else { statement.word };
                self.functions.entry(name).or_default().push((file, path.clone()));
            }
            for word in written_words(statement) {
                self.writes.entry(word).or_default().push((file, path.clone()));
            }
            let class = if statement.kind == StmtKind::Class { statement.word } else { "" };
            let inner = statement.body.iter().enumerate();
            waiting.extend(inner.map(|(index, inner)| (inner, path.iter().copied().chain([index]).collect(), class)));
        }
    }

    fn place_at(&self, (file, indexes): &StmtPath) -> Place<'_, 'a> {
        let file = &self.files[*file];
        let (mut path, mut inside) = (Vec::new(), &file.statements);
        for index in indexes {
            let Some(statement) = inside.get(*index) else { break };
            path.push(statement);
            inside = &statement.body;
        }
        Place { file, path }
    }

    /// Every statement with what is around it.
    pub(super) fn all_places(&self) -> impl Iterator<Item = Place<'_, 'a>> {
        self.files.iter().flat_map(|file| places(file, &[], &file.statements, |_| true))
    }

    /// Every statement, in the order of the text.
    pub(super) fn statements(&self) -> impl Iterator<Item = &Stmt<'a>> {
        self.files.iter().flat_map(|file| &file.statements).flat_map(Stmt::walk)
    }

    /// Whether the program has no text.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Whether the program computes gradients.
    pub fn computes_gradients(&self) -> bool {
        self.files
            .iter()
            .any(|file| ["backward(", "autograd", "torch.func"].iter().any(|word| file.text.contains(word)))
    }

    /// The innermost statement of `line`; `None` if its function does not match the text, which may be another version.
    pub(super) fn place(&self, line: &Line<'_>) -> Option<Place<'_, 'a>> {
        let file = self.files.iter().find(|file| file.path == line.file)?;
        let mut path: Vec<&Stmt<'a>> = Vec::new();
        let mut inside = &file.statements;
        while let Some(next) = inside.iter().rfind(|next| next.contains_line(line.line)) {
            path.push(next);
            inside = &next.body;
        }
        let place = Place { file, path };
        // A lambda or a comprehension belongs to the function around it.
        let is_same = line.function.starts_with('<') || place.function().is_some_and(|it| it.word == line.function);
        (is_same && !place.path.is_empty()).then_some(place)
    }

    /// The functions called `name`; for a class, its `__init__`.
    pub(super) fn functions(&self, name: &str) -> Vec<Place<'_, 'a>> {
        self.functions.get(name).into_iter().flatten().map(|path| self.place_at(path)).collect()
    }

    /// The functions that a variable may stand for: those that another function returns, unless they decorate others, and
    /// those that they decorate.
    pub(super) fn closures(&self) -> Vec<Place<'_, 'a>> {
        let used: FxHashSet<&str> = self.all_places().flat_map(|place| place.statement().decorator_names()).collect();
        let functions = self.all_places().filter(|place| {
            place.returning_function().is_some_and(|outer| !used.contains(outer.word))
                || place.statement().decorator_names().any(|it| !self.functions(it).is_empty())
        });
        functions.collect()
    }

    /// The statements that write to a variable with this last part of its name, in reverse order of the text.
    pub(super) fn writing(&self, word: &str) -> impl Iterator<Item = Place<'_, 'a>> {
        self.writes.get(word).into_iter().flatten().map(|path| self.place_at(path))
    }

    /// The values that the program assigns to a variable with this last part, anywhere.
    pub(super) fn assigned(&self, variable: &str) -> impl Iterator<Item = &Expr<'a>> {
        let word = last_part(variable);
        let assignments = self.writing(word).flat_map(|place| place.statement().assignments());
        assignments.filter(move |(target, _)| target.word == word).map(|(_, value)| value)
    }
}

/// The statements of `body`, which is inside the statements `outer`, each followed by those inside it if `is_entered`.
fn places<'p, 'a>(
    file: &'p File<'a>,
    outer: &[&'p Stmt<'a>],
    body: &'p [Stmt<'a>],
    is_entered: impl Fn(&Stmt<'_>) -> bool,
) -> impl Iterator<Item = Place<'p, 'a>> {
    let mut waiting: Vec<Place<'_, '_>> = places_backwards(file, outer, body).collect();
    std::iter::from_fn(move || {
        let place = waiting.pop()?;
        if is_entered(place.statement()) {
            waiting.extend(places_backwards(file, &place.path, &place.statement().body));
        }
        Some(place)
    })
}

/// The statements of `body`, which is inside the statements `outer`, without those inside them, from the last to the first.
fn places_backwards<'p, 'a>(
    file: &'p File<'a>,
    outer: &[&'p Stmt<'a>],
    body: &'p [Stmt<'a>],
) -> impl Iterator<Item = Place<'p, 'a>> {
    body.iter().rev().map(move |inner| Place { file, path: outer.iter().copied().chain([inner]).collect() })
}

/// `history` of `self.history`.
pub(super) fn last_part(variable: &str) -> &str {
    variable.rsplit('.').next().unwrap_or(variable)
}

/// Whether `expression` calls a function that turns gradients off.
fn turns_grad_off(expression: &Expr<'_>) -> bool {
    expression.walk().any(|part| {
        let is_set = part.called() == Some("set_grad_enabled");
        matches!(part.kind, ExprKind::Name | ExprKind::Attribute) && GRAD_OFF.contains(&part.word)
            || is_set && part.parts.iter().any(|given| given.word == "False")
    })
}

pub(super) fn calls_backward<'s, 'a>(statement: &'s Stmt<'a>) -> impl Iterator<Item = &'s Expr<'a>> {
    statement.walk().flat_map(Stmt::calls).filter(|call| is_backward(call))
}

pub(super) fn is_backward(call: &Expr<'_>) -> bool {
    matches!(call.called(), Some("backward" | "manual_backward"))
}

impl<'p, 'a> Place<'p, 'a> {
    pub(super) fn statement(&self) -> &'p Stmt<'a> {
        self.path[self.path.len() - 1]
    }

    /// The innermost function around the statement.
    pub(super) fn function(&self) -> Option<&'p Stmt<'a>> {
        self.path.iter().rev().find(|statement| statement.kind == StmtKind::Function).copied()
    }

    /// The function right around the one at this place, if it returns that.
    fn returning_function(&self) -> Option<&'p Stmt<'a>> {
        let [.., outer, inner] = self.path.as_slice() else { return None };
        let mut returns = outer.body.iter().filter(|it| it.kind == StmtKind::Return);
        let is_returned = [outer, inner].iter().all(|it| it.kind == StmtKind::Function)
            && returns.any(|it| it.parts.iter().any(|part| part.word == inner.word));
        is_returned.then_some(outer)
    }

    pub(super) fn function_name(&self) -> &'a str {
        self.function().map_or("<module>", |function| function.word)
    }

    /// The part of the path inside the innermost function.
    fn own_path(&self) -> &[&'p Stmt<'a>] {
        let function = self.path.iter().rposition(|statement| statement.kind == StmtKind::Function);
        &self.path[function.map_or(0, |at| at + 1)..]
    }

    pub(super) fn innermost_loop(&self) -> Option<&'p Stmt<'a>> {
        self.own_path().iter().rev().find(|statement| statement.kind == StmtKind::Loop).copied()
    }

    /// Whether a statement around this one turns gradients off. The callers of the function are not considered.
    pub(super) fn has_grad(&self) -> bool {
        let with = self.own_path().iter().filter(|statement| statement.kind == StmtKind::With);
        let decorators = self.function().into_iter().flat_map(|function| &function.decorators);
        !with.flat_map(|with| &with.parts).chain(decorators).any(turns_grad_off)
    }

    /// The statements of the function, without those of nested functions and classes, each with the statements around it.
    pub(super) fn own_statements(&self) -> Vec<Self> {
        let outer = &self.path[..self.path.len() - self.own_path().len()];
        let body = outer.last().map_or(&self.file.statements, |function| &function.body);
        places(self.file, outer, body, |inner: &Stmt<'_>| !matches!(inner.kind, StmtKind::Function | StmtKind::Class))
            .collect()
    }

    /// Where the function calls `backward()`, as seen from a statement that keeps something in `variable`.
    pub(super) fn backward(&self, variable: &str) -> Option<BackwardCall> {
        let enclosing = self.function().or_else(|| self.path.iter().find(|it| it.kind == StmtKind::Loop).copied())?;
        let mut calls = calls_backward(enclosing).peekable();
        calls.peek()?;
        Some(match self.innermost_loop() {
            _ if calls.any(|call| call.walk().any(|part| part.is_variable(variable))) => BackwardCall::Itself,
            Some(inner) if calls_backward(inner).next().is_some() => BackwardCall::Loop,
            // An attribute outlives the call, and a loop may call the method.
            None if variable.contains('.') => BackwardCall::Loop,
            _ => BackwardCall::Function,
        })
    }

    /// The text of `part` on one line.
    pub(super) fn text_of(&self, part: &Expr<'a>) -> Option<&'a str> {
        self.file.text.get(part.start..part.end).filter(|text| !text.contains('\n') && text.len() <= MAX_VALUE_BYTES)
    }
}

/// Maximum length of a value that is shown.
const MAX_VALUE_BYTES: usize = 80;
