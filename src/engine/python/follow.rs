//! Follows a value from the line that makes it to the statements that keep it: from the program's innermost frame outward,
//! through variables, results and arguments.

use std::collections::BTreeSet;

use super::program::{Place, ProgramText, calls_backward, is_backward, last_part};
use super::tracked::{Tracked, carries, is_on_host};
use super::tree::{Expr, ExprKind, Stmt, StmtKind};
use super::writes::{FILL, PUT, Write, writes};
use crate::snapshot::{BackwardCall, WriteKind};

/// A statement of the program that keeps a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a statement")]
pub struct Keep {
    /// How it writes to `variable`.
    pub kind: WriteKind,
    /// Such as `self.history`.
    pub variable: String,
    /// The type of the container, such as `list`; `None` for a plain variable.
    pub container: Option<&'static str>,
    /// The container has a maximum length, which it may not have reached.
    pub is_bounded: bool,
    /// The source text of the written value, if it is on one line.
    pub value: Option<String>,
    /// The file, as recorded.
    pub file: String,
    /// The line.
    pub line: u32,
    /// The function of the statement.
    pub function: String,
    /// The variable lives only while this function runs; `None` if it outlives the call.
    pub local_to: Option<String>,
    /// Whether it is inside a loop of the function.
    pub in_loop: bool,
    /// Whether no statement on the way turns gradients off.
    pub has_grad: bool,
    /// Whether another statement in a loop of the function reads the variable.
    pub is_read: bool,
    /// Where the function calls `backward()`, if it does.
    pub backward: Option<BackwardCall>,
}

/// Maximum depth of calls into which a value is followed.
const MAX_CALLS: usize = 3;
/// If more functions have a name, a call of that name may be any of them, and is not followed.
const MAX_FUNCTIONS: usize = 3;

pub(super) struct Flow<'p, 'a> {
    pub(super) program: &'p ProgramText<'a>,
    pub(super) keeps: Vec<Keep>,
    pub(super) has_grad: bool,
    /// The functions that the value has entered, and by which parameter.
    pub(super) entered: BTreeSet<(usize, String)>,
}

impl<'p, 'a> Flow<'p, 'a> {
    /// Adds the function of `place`, which returns the value, if a decorator caches its results.
    pub(super) fn keep_cached(&mut self, place: &Place<'p, 'a>) {
        let Some(function) = place.function() else { return };
        let mut decorators = function.decorators.iter().zip(function.decorator_names());
        let Some((decorator, name)) = decorators.find(|(_, name)| matches!(*name, "lru_cache" | "cache")) else {
            return;
        };
        let before = place.file.text.get(..decorator.start).unwrap_or_default();
        let is_bounded = name == "lru_cache" && !decorator.walk().any(|part| part.word == "None");
        self.keeps.push(Keep {
            kind: WriteKind::Assign,
            variable: function.word.to_owned(),
            container: Some("lru_cache"),
            is_bounded,
            value: None,
            file: place.file.path.to_owned(),
            line: u32::try_from(before.matches('\n').count()).unwrap_or(0) + 1,
            function: function.word.to_owned(),
            local_to: None,
            in_loop: false,
            has_grad: self.has_grad,
            is_read: true,
            backward: None,
        });
    }

    /// Follows the value through the function of `place`, from its statement on. Returns whether the function returns it.
    pub(super) fn through(&mut self, place: &Place<'p, 'a>, tracked: &Tracked<'_>, depth: usize) -> bool {
        let start = place.statement();
        let mut known = Tracked { names: tracked.names.clone(), made: None };
        let mut goes_on = false;
        if tracked.made.is_some() {
            let mut here = tracked.clone();
            goes_on |= self.step(place, &mut here, depth);
            known.names = here.names;
        }
        let is_whole = start.kind == StmtKind::Function;
        let enclosing = place.innermost_loop();
        let statements = place.own_statements();
        for round in 0..2 {
            for other in &statements {
                let statement = other.statement();
                let is_later = is_whole || statement.first_line > start.first_line;
                let is_around = enclosing.is_some_and(|it| it.contains_line(statement.first_line));
                let is_start = std::ptr::eq(statement, start) && !is_whole;
                if !is_start && (is_later || round > 0 && is_around) && !known.names.is_empty() {
                    goes_on |= self.step(other, &mut known, depth);
                }
            }
        }
        goes_on
    }

    /// Follows the value through one statement. Returns whether it leaves the function.
    fn step(&mut self, place: &Place<'p, 'a>, tracked: &mut Tracked<'_>, depth: usize) -> bool {
        let leaves = self.write(place, tracked);
        self.enter_calls(place, tracked, depth);
        leaves
    }

    fn write(&mut self, place: &Place<'p, 'a>, tracked: &mut Tracked<'_>) -> bool {
        let statement = place.statement();
        let is_yielded = statement
            .expressions()
            .any(|part| part.kind == ExprKind::Yield && part.parts.iter().any(|value| carries(value, tracked)));
        match (statement.kind, statement.parts.as_slice()) {
            (StmtKind::Return, [value]) => return carries(value, tracked),
            (StmtKind::Loop, [target, items]) if carries(items, tracked) => {
                tracked.names.extend(target.targets().filter_map(Expr::variable));
            }
            (StmtKind::With | StmtKind::Block, items) => {
                for named in items.iter().flat_map(Expr::walk).filter(|part| part.kind == ExprKind::As) {
                    if carries(&named.parts[0], tracked) {
                        tracked.names.extend(named.parts[1].variable());
                    }
                }
            }
            _ => {}
        }
        for write in writes(statement) {
            let Some(value) = write.values.iter().rev().find(|value| carries(value, tracked)) else { continue };
            if self.is_write(&write) {
                self.keep(place, &write, value);
                tracked.names.extend(write.target.variable());
                tracked.names.extend(items_with(place, write.target));
            }
        }
        is_yielded
    }

    /// Whether the target of a method is a container, as far as the source text shows.
    fn is_write(&self, write: &Write<'_, 'a>) -> bool {
        let Some(variable) = write.target.variable() else { return false };
        match write.method {
            None => true,
            // The program defines the method: the item is an object of its own, not a container.
            Some((method, true)) if !self.program.functions(method).is_empty() => false,
            Some(("update", _)) => self.program.is_dict(&variable),
            Some((method, _)) => self.program.functions(method).is_empty() || self.program.is_container(&variable),
        }
    }

    /// Follows the value into the functions of the program that `statement` calls with it.
    fn enter_calls(&mut self, place: &Place<'p, 'a>, tracked: &Tracked<'_>, depth: usize) {
        if depth >= MAX_CALLS {
            return;
        }
        for call in place.statement().calls() {
            let Some(name) = call.called() else { continue };
            let given = call.parts.iter().skip(1).enumerate().filter(|(_, given)| carries(given, tracked));
            let given: Vec<(usize, &Expr<'a>)> = given.collect();
            let mut functions = if given.is_empty() { Vec::new() } else { self.program.functions(name) };
            // `module(x)` and `self.module(x)` call an object; other receivers have a method called.
            let is_object = call.receiver().is_none_or(|receiver| receiver.word == "self");
            if functions.is_empty() && !given.is_empty() && is_object && !is_on_host(name) {
                functions = self.program.functions("__call__");
                functions.extend(self.program.closures());
            }
            if functions.len() > MAX_FUNCTIONS {
                continue;
            }
            for function in functions {
                let parameters = &function.statement().parts;
                let is_method = parameters.first().is_some_and(|first| matches!(first.word, "self" | "cls"));
                for (index, given) in &given {
                    let place = index + usize::from(is_method);
                    let Some(parameter) = parameter_for(given, place, parameters) else { continue };
                    let key = (parameter.start, function.file.path.to_owned());
                    if !self.entered.insert(key) {
                        continue;
                    }
                    let before = self.keeps.len();
                    let has_grad = self.has_grad;
                    self.has_grad &= function.has_grad();
                    let names = [parameter.word.to_owned()].into();
                    self.through(&function, &Tracked { names, made: None }, depth + 1);
                    self.has_grad = has_grad;
                    // Inside the method, `self` is the object that the caller names.
                    let object = call.receiver().and_then(Expr::variable).filter(|_| is_method);
                    for keep in &mut self.keeps[before..] {
                        if let (Some(object), Some(attribute)) = (&object, keep.variable.strip_prefix("self.")) {
                            keep.variable = format!("{object}.{attribute}");
                        }
                    }
                }
            }
        }
    }

    fn keep(&mut self, place: &Place<'p, 'a>, write: &Write<'_, 'a>, value: &Expr<'a>) {
        let Some(mut keep) = self.program.keep_at(place, write, value) else { return };
        keep.has_grad &= self.has_grad;
        // Other statements write into this memory: it is a buffer, and cannot be kept elsewhere.
        if keep.kind == WriteKind::Assign && keep.container.is_none() && self.program.is_filled(&keep.variable) {
            keep.kind = WriteKind::Store;
        }
        let mut known = self.keeps.iter();
        if !known.any(|it| (&it.file, it.line, &it.variable) == (&keep.file, keep.line, &keep.variable)) {
            self.keeps.push(keep);
        }
    }
}

impl<'a> ProgramText<'a> {
    /// The statement of `place`, whose `write` keeps `value`.
    pub(super) fn keep_at(&self, place: &Place<'_, 'a>, write: &Write<'_, 'a>, value: &Expr<'a>) -> Option<Keep> {
        let (kind, variable) = (write.kind, write.target.variable()?);
        let makes_list = value.walk().any(makes_parts) || value.called() == Some("list");
        let (container, is_bounded) = match kind {
            WriteKind::Put | WriteKind::Extend | WriteKind::Store => {
                let (container, is_bounded) = self.container_of(&variable, kind);
                (Some(container), is_bounded)
            }
            _ => (makes_list.then_some("list"), false),
        };
        let steps = kind == WriteKind::Recur && variable.contains('.') && self.computes_gradients();
        let backward = match place.backward(&variable) {
            // An attribute outlives the step: the backward pass of each step finds it.
            None if steps => Some(BackwardCall::Loop),
            Some(BackwardCall::Itself) if self.is_in_window(place) => Some(BackwardCall::Window),
            Some(_) if kind == WriteKind::Recur && self.is_in_window(place) => Some(BackwardCall::Window),
            found => found.or_else(|| self.backward_elsewhere(place, &variable)),
        };
        let in_loop = place.innermost_loop().is_some();
        Some(Keep {
            kind,
            container,
            is_bounded,
            value: place.text_of(write.state.unwrap_or(value)).map(str::to_owned),
            file: place.file.path.to_owned(),
            line: place.statement().first_line,
            function: place.function_name().to_owned(),
            local_to: is_local(place, &variable).then(|| place.function_name().to_owned()),
            in_loop,
            has_grad: place.has_grad(),
            is_read: in_loop && write.state.is_some() || is_read_in_loop(place, &variable),
            backward,
            variable,
        })
    }

    /// Whether the function detaches a state beside `backward()`, less often than the statement of `place` runs: until then,
    /// each run adds to one graph.
    fn is_in_window(&self, place: &Place<'_, 'a>) -> bool {
        let (own_body_line, _) = body_of(place);
        place.own_statements().iter().any(|other| {
            let (line, body) = body_of(other);
            line != own_body_line
                && body.iter().any(|it| it.calls().any(is_backward))
                && self.detaches_state(other.statement())
        })
    }

    /// Whether `statement` detaches a state, itself or in a function that it calls.
    fn detaches_state(&self, statement: &Stmt<'a>) -> bool {
        let called = statement.calls().filter_map(Expr::called).flat_map(|name| self.functions(name));
        let called = called.flat_map(|function| function.statement().walk().flat_map(Stmt::calls));
        let is_state = writes(statement).iter().any(|write| write.kind == WriteKind::Recur);
        statement.calls().any(|call| call.called() == Some("detach_"))
            || is_state
                && statement.calls().chain(called).any(|call| matches!(call.called(), Some("detach" | "detach_")))
    }

    /// The call of `backward` in another function that reads a variable of this name.
    fn backward_elsewhere(&self, place: &Place<'_, 'a>, variable: &str) -> Option<BackwardCall> {
        let word = last_part(variable);
        let here = place.function().map(|function| function.first_line);
        let mut others = self.statements().filter(|it| it.kind == StmtKind::Function && Some(it.first_line) != here);
        let is_found = others.any(|function| {
            let mut parts = function.walk().flat_map(Stmt::expressions);
            calls_backward(function).next().is_some() && parts.any(|part| part.is_named(word))
        });
        is_found.then_some(BackwardCall::Elsewhere)
    }

    /// The type of the container in `variable`, inferred from the values assigned to it, and whether it is bounded.
    fn container_of(&self, variable: &str, kind: WriteKind) -> (&'static str, bool) {
        let mut found = if kind == WriteKind::Store { "dict" } else { "list" };
        let mut has_bound = false;
        for value in self.assigned(variable) {
            let is_empty = value.parts.len() <= 1;
            found = match (value.kind, value.called().unwrap_or(value.word)) {
                (ExprKind::Call, name @ ("Queue" | "LifoQueue" | "PriorityQueue" | "deque")) => {
                    has_bound |= is_bounded(value);
                    if name == "deque" { "deque" } else { "queue" }
                }
                (ExprKind::Call, "SimpleQueue") => "queue",
                (ExprKind::Call, "dict" | "defaultdict" | "OrderedDict") => "dict",
                (ExprKind::Group | ExprKind::Comprehension, "{") if is_empty || kind == WriteKind::Store => "dict",
                (ExprKind::Group | ExprKind::Comprehension | ExprKind::Operation, _) | (ExprKind::Call, "list") => {
                    "list"
                }
                _ => found,
            };
        }
        (found, has_bound)
    }

    fn is_container(&self, variable: &str) -> bool {
        self.assigned(variable)
            .any(|it| matches!(it.kind, ExprKind::Group | ExprKind::Comprehension) || it.called() == Some("deque"))
    }

    fn is_dict(&self, variable: &str) -> bool {
        self.assigned(variable)
            .any(|it| it.word == "{" || matches!(it.called(), Some("dict" | "defaultdict" | "OrderedDict")))
    }
}

/// Whether `variable` dies when its function returns: it is no attribute, and assigned there. The variables of a generator
/// live as long as the generator.
fn is_local(place: &Place<'_, '_>, variable: &str) -> bool {
    if variable.contains('.') || place.function().is_none() {
        return false;
    }
    let own = place.own_statements();
    let mut statements = own.iter().map(Place::statement);
    let is_shared = statements
        .clone()
        .any(|statement| statement.kind == StmtKind::Shared && statement.expressions().any(|it| it.word == variable));
    let is_assigned = statements.clone().any(|statement| match (statement.kind, statement.parts.as_slice()) {
        (StmtKind::Assign, _) => {
            let mut assigned = statement.assignments().into_iter();
            assigned.any(|(it, _)| it.kind == ExprKind::Name && it.word == variable)
        }
        (StmtKind::Augmented | StmtKind::Loop, [target, _]) => target.targets().any(|it| it.word == variable),
        (StmtKind::With, items) => items.iter().any(|it| it.kind == ExprKind::As && it.parts[1].word == variable),
        _ => false,
    });
    let is_generator = statements.any(|statement| statement.expressions().any(|part| part.kind == ExprKind::Yield));
    !is_shared && is_assigned && !is_generator
}

/// The object with the attribute `target`, and the iterable from which a loop takes that object.
fn items_with<'a>(place: &Place<'_, 'a>, target: &Expr<'a>) -> Vec<String> {
    let object = target.parts.first().filter(|object| target.kind == ExprKind::Attribute && object.word != "self");
    let Some(object) = object.and_then(Expr::variable) else { return Vec::new() };
    let loops = place.path.iter().filter(|enclosing| enclosing.kind == StmtKind::Loop && enclosing.parts.len() == 2);
    let items = loops
        .filter(|enclosing| enclosing.parts[0].walk().any(|part| part.word == object))
        .filter_map(|enclosing| enclosing.parts[1].variable());
    items.chain([object.clone()]).collect()
}

/// Whether a statement in a loop of the function reads the variable, other than to write to it.
fn is_read_in_loop(place: &Place<'_, '_>, variable: &str) -> bool {
    // An attribute outlives the call, and a loop may call the method again.
    place.own_statements().iter().filter(|other| variable.contains('.') || is_in_loop(other)).any(|other| {
        let statement = other.statement();
        let read = match statement.kind {
            StmtKind::Assign => statement.parts.last().map(std::slice::from_ref).unwrap_or_default(),
            StmtKind::Augmented => &statement.parts[1..],
            _ => &statement.parts,
        };
        let writes = statement.kind == StmtKind::Assign
            && statement
                .parts
                .split_last()
                .is_some_and(|(_, targets)| targets.iter().any(|target| target.is_variable(variable)));
        let puts = statement.kind == StmtKind::Expression
            && statement
                .parts
                .iter()
                .any(|call| call.called().is_some_and(|name| PUT.contains(&name) || FILL.contains(&name)));
        !writes && !puts && read.iter().flat_map(Expr::walk).any(|part| part.is_variable(variable))
    })
}

/// The statements of the body that has the one of `place`, and the line where that begins; 0 for a file.
fn body_of<'p, 'a>(place: &Place<'p, 'a>) -> (u32, &'p [Stmt<'a>]) {
    let outer = place.path.iter().rev().nth(1);
    outer.map_or((0, &place.file.statements[..]), |outer| (outer.first_line, &outer.body[..]))
}

/// Whether the statement of `place` is inside a loop of its function, other than as its header.
fn is_in_loop(place: &Place<'_, '_>) -> bool {
    place.path.iter().rev().skip(1).any(|it| it.kind == StmtKind::Loop)
}

/// Whether `value` is a comprehension, whose items are parts of another value.
fn makes_parts(value: &Expr<'_>) -> bool {
    let (clauses, items): (Vec<_>, Vec<_>) = value.parts.iter().partition(|part| part.kind == ExprKind::Clause);
    let targets = clauses.iter().flat_map(|clause| clause.parts[0].walk()).filter(|part| part.kind == ExprKind::Name);
    let targets: Vec<&str> = targets.map(|target| target.word).collect();
    value.kind == ExprKind::Comprehension
        && items.iter().flat_map(|item| item.walk()).any(|part| targets.contains(&part.word))
}

/// The parameter that gets the argument `given`: by its name, as positional argument number `place`, or the rest.
fn parameter_for<'e, 'a>(given: &Expr<'_>, place: usize, parameters: &'e [Expr<'a>]) -> Option<&'e Expr<'a>> {
    let parameter = if given.kind == ExprKind::Keyword {
        parameters.iter().find(|parameter| parameter.word == given.word)
    } else {
        parameters.get(place)
    };
    parameter.or_else(|| parameters.iter().rfind(|parameter| parameter.kind == ExprKind::Star))
}

/// Whether `made` constructs a queue or a deque with a maximum length.
fn is_bounded(made: &Expr<'_>) -> bool {
    let is_deque = made.called() == Some("deque");
    made.parts.iter().skip(1).enumerate().any(|(index, given)| match given.kind {
        ExprKind::Keyword => {
            given.word.starts_with("max") && given.parts.iter().all(|it| !matches!(it.word, "0" | "None"))
        }
        _ => index == usize::from(is_deque) && given.word != "0",
    })
}
