//! Where a value goes from the line that makes it: from the innermost frame of the program outward, through variables,
//! results and arguments, to the statements that keep it.

use std::collections::BTreeSet;

use super::program::{Line, Place, ProgramText, last_part, pairs};
use super::tree::{Expr, ExprKind, Stmt, StmtKind};
use crate::snapshot::{BackwardCall, WriteKind};

/// A statement of the program that keeps a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keep {
    /// How it writes to `variable`.
    pub kind: WriteKind,
    /// Such as `self.history`.
    pub variable: String,
    /// The type of the container, such as `list`; `None` of a plain variable.
    pub container: Option<&'static str>,
    /// The container is made with a bound, which it may not have reached.
    pub is_bounded: bool,
    /// The text of what it writes, if it has one line.
    pub value: Option<String>,
    /// The file, as recorded.
    pub file: String,
    /// The line.
    pub line: u32,
    /// The function of the statement.
    pub function: String,
    /// The variable lives only while this function runs; `None` if it outlives the call.
    pub local_to: Option<String>,
    /// Whether a loop of the function has it.
    pub in_loop: bool,
    /// Whether the text turns gradients off nowhere on the way.
    pub has_grad: bool,
    /// Whether another statement in a loop of the function reads the variable.
    pub is_read: bool,
    /// Where the function calls `backward()`.
    pub backward: Option<BackwardCall>,
}

const PUT: [&str; 7] = ["append", "appendleft", "add", "insert", "push", "put", "put_nowait"];
const JOIN: [&str; 6] = ["cat", "concat", "concatenate", "stack", "hstack", "vstack"];
/// Their result is a number, a text or an object of the host.
const ON_HOST: [&str; 22] = [
    "item",
    "cpu",
    "tolist",
    "numpy",
    "size",
    "numel",
    "dim",
    "float",
    "int",
    "bool",
    "str",
    "len",
    "print",
    "range",
    "isinstance",
    "hasattr",
    "id",
    "type",
    "repr",
    "format",
    "join",
    "backward",
];
/// Facts about a tensor that keep nothing of it.
const FACTS: [&str; 6] = ["shape", "dtype", "device", "ndim", "grad_fn", "requires_grad"];
/// A value goes into functions of functions at most so deep.
const MAX_CALLS: usize = 3;
/// A name that more functions have says nothing.
const MAX_FUNCTIONS: usize = 3;

/// Of one function, the variables with the value. `made` describes the calls that make it, in the statement of the frame.
#[derive(Debug, Default, Clone)]
struct Tracked<'n> {
    names: BTreeSet<String>,
    made: Option<Made<'n>>,
}

/// What makes the value in a statement.
#[derive(Debug, Clone, Copy)]
enum Made<'n> {
    /// Anything that it calls or computes.
    Anything,
    /// The function of the frame inside.
    Call(&'n str),
}

impl ProgramText<'_> {
    /// The statements that may keep what the innermost of `frames` makes, the nearest first.
    pub fn keepers(&self, frames: &[Line<'_>]) -> Vec<Keep> {
        let mut flow = Flow { program: self, keeps: Vec::new(), has_grad: true, entered: BTreeSet::new() };
        let mut inner: Option<&str> = None;
        for frame in frames.iter().filter(|frame| !frame.function.ends_with("comp>") && frame.function != "<genexpr>") {
            let Some(place) = self.place(frame) else { break };
            flow.has_grad &= place.has_grad();
            let named = inner.filter(|name| place.statement().is_some_and(|statement| calls(statement, name)));
            // A package between the two has the value.
            if inner.is_some() && named.is_none() && frame.calls_package {
                break;
            }
            let made = named.map_or(Made::Anything, Made::Call);
            let goes_on = flow.through(&place, &Tracked { names: BTreeSet::new(), made: Some(made) }, 0);
            if !goes_on {
                break;
            }
            flow.keep_cached(&place);
            inner = Some(frame.function);
        }
        flow.keeps
    }

    /// Whether a loop or a comprehension of the function has the statement of `line`; also if its text is not known.
    pub fn is_repeated(&self, line: &Line<'_>) -> bool {
        let has_list = |statement: &Stmt<'_>| {
            statement.parts.iter().flat_map(Expr::walk).any(|part| part.kind == ExprKind::Comprehension)
        };
        self.place(line).is_none_or(|it| it.innermost_loop().is_some() || it.statement().is_some_and(has_list))
    }

    /// Whether the text of no frame turns gradients off.
    pub fn has_grad(&self, frames: &[Line<'_>]) -> bool {
        frames.iter().filter_map(|frame| self.place(frame)).all(|place| place.has_grad())
    }

    /// The module whose graphs the innermost of `frames` makes, if no optimizer of the program has its parameters.
    pub fn untrained(&self, frames: &[Line<'_>]) -> Option<String> {
        let at = frames.iter().rposition(|frame| frame.function == "forward")? + 1;
        let place = self.place(frames.get(at)?)?;
        let is_module = |call: &&Expr<'_>| {
            let name = call.called().unwrap_or_default();
            let is_own = call.receiver().is_none_or(|receiver| receiver.word == "self");
            is_own && name.starts_with(char::is_lowercase) && self.functions(name).is_empty() && !ON_HOST.contains(&name)
        };
        let calls: Vec<&Expr<'_>> = place.statement()?.calls().filter(is_module).collect();
        let [call] = calls.as_slice() else { return None };
        let module = self.argument(call.parts.first()?.variable()?, &frames[at..]);
        let name = last_part(&module);
        let trained = self.trained()?;
        let mentions = |name: &str, other: &str| {
            let copies = |value: &Expr<'_>| value.called() == Some("deepcopy");
            self.assigned(name).into_iter().any(|it| !copies(it) && it.walk().any(|part| part.word == other))
        };
        let is_trained = trained.iter().any(|one| one == name || mentions(name, one) || mentions(one, name));
        let mut calls = self.all_places().flat_map(|place| place.statement().into_iter().flat_map(Stmt::calls));
        let is_frozen = calls.any(|call| {
            let is_it = call.receiver().and_then(Expr::variable).is_some_and(|it| last_part(&it) == name);
            is_it && matches!(call.called(), Some("requires_grad_" | "parameters"))
        });
        (!is_trained && !is_frozen).then_some(module)
    }

    /// The variable of the caller that a parameter stands for; else the variable itself.
    fn argument(&self, variable: String, frames: &[Line<'_>]) -> String {
        let [frame, caller, ..] = frames else { return variable };
        let function = self.place(frame).and_then(|place| place.function());
        let index = function.and_then(|it| it.parts.iter().position(|parameter| parameter.word == variable));
        let (Some(function), Some(index), Some(caller)) = (function, index, self.place(caller)) else { return variable };
        let is_method = function.parts.first().is_some_and(|first| first.word == "self");
        let mut calls = caller.statement().into_iter().flat_map(Stmt::calls);
        let call = calls.find(|call| call.called() == Some(function.word));
        call.and_then(|call| call.parts.get(index + 1 - usize::from(is_method))?.variable()).unwrap_or(variable)
    }

    /// The last parts of the names of what optimizers get; `None` if there is no optimizer, or it is not known what one gets.
    fn trained(&self) -> Option<Vec<String>> {
        let mut names = Vec::new();
        for place in self.all_places() {
            for call in place.statement().into_iter().flat_map(Stmt::calls).filter(|call| is_optimizer(call)) {
                let given = call.parts.get(1)?;
                let is_source = |part: &&Expr<'_>| part.called() == Some("parameters");
                let modules: Vec<String> =
                    given.walk().filter(is_source).filter_map(|part| part.receiver()?.variable()).collect();
                let is_list = given.kind == ExprKind::Group;
                if modules.is_empty() && !is_list || modules.iter().any(|name| name == "self") {
                    return None;
                }
                names.extend(modules.iter().flat_map(|name| name.split('.')).filter(|it| *it != "self").map(str::to_owned));
                names.extend(given.parts.iter().filter(|_| is_list).filter_map(Expr::variable));
            }
        }
        (!names.is_empty()).then_some(names)
    }

    /// The module in evaluation mode that a running function calls, unless one of them calls `backward`.
    pub fn evaluated(&self, frames: &[Line<'_>]) -> Option<String> {
        let places: Vec<Place<'_, '_>> = frames.iter().filter_map(|frame| self.place(frame)).collect();
        let functions = || places.iter().filter_map(Place::function);
        if functions().any(|function| super::program::calls_backward(function).next().is_some()) {
            return None;
        }
        let calls = functions().flat_map(Stmt::walk).flat_map(Stmt::calls);
        calls.filter(|call| call.called() == Some("eval")).find_map(|call| call.receiver()?.variable())
    }

    /// The statements that keep optimizers, which are made with the parameters of a module.
    pub fn optimizer_keepers(&self) -> Vec<Keep> {
        self.made_by(is_optimizer)
    }

    /// Loaders that `itertools.cycle` repeats: it keeps all that they yield.
    pub fn cycle_keepers(&self) -> Vec<Keep> {
        let mut keeps = self.made_by(|call| call.called() == Some("cycle"));
        keeps.retain(|keep| keep.kind == WriteKind::Assign);
        keeps.truncate(1);
        keeps.iter_mut().for_each(|keep| keep.container = Some("cycle"));
        keeps
    }

    /// The statements that keep what calls such as `is_maker` return.
    fn made_by(&self, is_maker: impl Fn(&Expr<'_>) -> bool) -> Vec<Keep> {
        let mut flow = Flow { program: self, keeps: Vec::new(), has_grad: true, entered: BTreeSet::new() };
        let tracked = Tracked { names: BTreeSet::new(), made: Some(Made::Anything) };
        for place in self.all_places() {
            let Some(statement) = place.statement() else { continue };
            if statement.calls().any(&is_maker) && flow.through(&place, &tracked, 0) {
                let caller = place.function_name();
                let callers = self.all_places();
                for caller in callers.filter(|other| other.statement().is_some_and(|it| calls(it, caller))) {
                    flow.through(&caller, &tracked, 0);
                }
            }
        }
        flow.keeps
    }

    /// The statements that keep what hooks of modules see.
    pub fn hook_keepers(&self) -> Vec<Keep> {
        let mut flow = Flow { program: self, keeps: Vec::new(), has_grad: true, entered: BTreeSet::new() };
        let statements = self.files.iter().flat_map(|file| file.statements.iter().flat_map(Stmt::walk));
        for call in statements.flat_map(Stmt::calls) {
            let is_hook = call.called().is_some_and(|name| name.starts_with("register_") && name.ends_with("_hook"));
            let Some(hook) = call.parts.get(1).filter(|_| is_hook) else { continue };
            let name = hook.called().unwrap_or(hook.word);
            for function in self.functions(name) {
                let inner = function.statement().into_iter().flat_map(|function| function.body.iter());
                let inner = inner.rev().find(|inner| inner.kind == StmtKind::Function && hook.called().is_some());
                let mut place = function.clone();
                place.path.extend(inner);
                let parameters = place.function().map(|function| function.parts.as_slice()).unwrap_or_default();
                let skipped = usize::from(parameters.first().is_some_and(|first| first.word == "self"));
                // The module, its inputs, its output.
                let names = parameters.iter().skip(skipped + 1).take(2).map(|one| one.word.to_owned()).collect();
                flow.through(&place, &Tracked { names, made: None }, 1);
            }
        }
        flow.keeps
    }

    /// Whether the failure of `frames` happens while an exception is handled, whose traceback keeps the failed call.
    pub fn is_in_handler(&self, frames: &[Line<'_>]) -> bool {
        frames.iter().filter_map(|frame| self.place(frame)).any(|place| place.is_in_handler())
    }

    /// The type of the container in `variable`, by the values that the program assigns to it, and whether it has a bound.
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
                (ExprKind::Group | ExprKind::Comprehension | ExprKind::Operation, _) => "list",
                (ExprKind::Call, "list") => "list",
                _ => found,
            };
        }
        (found, has_bound)
    }
}

/// Whether `call` makes an optimizer: a class of `optim`, or one that gets the parameters of a module.
fn is_optimizer(call: &Expr<'_>) -> bool {
    let is_class = call.called().is_some_and(|name| name.starts_with(char::is_uppercase));
    let of_optim = || call.receiver().is_some_and(|module| module.word == "optim");
    is_class && (of_optim() || call.parts.iter().skip(1).any(|given| given.called() == Some("parameters")))
}

/// Whether a queue or a deque is made with a bound.
fn is_bounded(made: &Expr<'_>) -> bool {
    let is_deque = made.called() == Some("deque");
    made.parts.iter().skip(1).enumerate().any(|(index, given)| match given.kind {
        ExprKind::Keyword => {
            given.word.starts_with("max") && given.parts.iter().all(|it| !matches!(it.word, "0" | "None"))
        }
        _ => index == usize::from(is_deque) && given.word != "0",
    })
}

/// Whether `statement` calls `name`: a function, a class of it, or a module whose `forward` it is.
fn calls(statement: &Stmt<'_>, name: &str) -> bool {
    statement.parts.iter().flat_map(Expr::walk).any(|part| part.called() == Some(name))
}

struct Flow<'p, 'a> {
    program: &'p ProgramText<'a>,
    keeps: Vec<Keep>,
    has_grad: bool,
    /// Functions that a value has entered, with the parameter.
    entered: BTreeSet<(usize, String)>,
}

impl<'p, 'a> Flow<'p, 'a> {
    /// A function that returns the value, and that a decorator caches.
    fn keep_cached(&mut self, place: &Place<'p, 'a>) {
        let Some(function) = place.function() else { return };
        let name = |decorator: &Expr<'a>| decorator.called().unwrap_or(decorator.word);
        let caches = |decorator: &&Expr<'a>| matches!(name(decorator), "lru_cache" | "cache");
        let Some(decorator) = function.decorators.iter().find(caches) else { return };
        let before = place.file.text.get(..decorator.start).unwrap_or_default();
        let is_bounded = name(decorator) == "lru_cache" && !decorator.walk().any(|part| part.word == "None");
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

    /// Follows the value through the function of `place`, from its statement on. Whether the function returns it.
    fn through(&mut self, place: &Place<'p, 'a>, tracked: &Tracked<'_>, depth: usize) -> bool {
        let Some(start) = place.statement() else { return false };
        let mut known = Tracked { names: tracked.names.clone(), made: None };
        let mut goes_on = false;
        if tracked.made.is_some() {
            let mut here = tracked.clone();
            goes_on |= self.step(place, &mut here, depth);
            known.names = here.names;
        }
        let is_whole = start.kind == StmtKind::Function;
        let around = place.innermost_loop();
        let statements = place.own_statements();
        for round in 0..2 {
            for other in &statements {
                let Some(statement) = other.statement() else { continue };
                let is_later = is_whole || statement.first_line > start.first_line;
                let is_around =
                    || around.is_some_and(|it| (it.first_line..=it.last_line).contains(&statement.first_line));
                let is_start = std::ptr::eq(statement, start) && !is_whole;
                if !is_start && (is_later || round > 0 && is_around()) && !known.names.is_empty() {
                    goes_on |= self.step(other, &mut known, depth);
                }
            }
        }
        goes_on
    }

    /// Follows the value through one statement. Whether it leaves the function.
    fn step(&mut self, place: &Place<'p, 'a>, tracked: &mut Tracked<'_>, depth: usize) -> bool {
        let leaves = self.write(place, tracked);
        self.enter_calls(place, tracked, depth);
        leaves
    }

    fn write(&mut self, place: &Place<'p, 'a>, tracked: &mut Tracked<'_>) -> bool {
        let Some(statement) = place.statement() else { return false };
        let is_yielded = statement
            .parts
            .iter()
            .flat_map(Expr::walk)
            .any(|part| part.kind == ExprKind::Yield && part.parts.iter().any(|value| carries(value, tracked)));
        match (statement.kind, statement.parts.as_slice()) {
            (StmtKind::Return, [value]) => return carries(value, tracked),
            (StmtKind::Augmented, [target, value]) if carries(value, tracked) => {
                let is_list = matches!(value.kind, ExprKind::Group | ExprKind::Comprehension) && statement.word == "+=";
                let kind = if is_list { WriteKind::Extend } else { WriteKind::Accumulate };
                self.keep(place, kind, target, value);
                tracked.names.extend(target.variable());
            }
            (StmtKind::Assign, [targets @ .., value]) => {
                for (target, value) in targets.iter().flat_map(|target| pairs(target, Some(value))) {
                    if let Some(value) = value.filter(|value| carries(value, tracked)) {
                        self.assign(place, target, value, tracked);
                    }
                }
            }
            (StmtKind::Loop, [target, items]) if carries(items, tracked) => {
                tracked.names.extend(pairs(target, None).iter().filter_map(|(target, _)| target.variable()));
            }
            (StmtKind::With | StmtKind::Block, items) => {
                for named in items.iter().flat_map(Expr::walk).filter(|part| part.kind == ExprKind::As) {
                    if carries(&named.parts[0], tracked) {
                        tracked.names.extend(named.parts[1].variable());
                    }
                }
            }
            (StmtKind::Expression, [call]) => self.put(place, call, tracked),
            _ => {}
        }
        is_yielded
    }

    /// A call of a method of a container.
    fn put(&mut self, place: &Place<'p, 'a>, call: &Expr<'a>, tracked: &mut Tracked<'_>) {
        let (Some(name), Some(receiver)) = (call.called(), call.receiver()) else { return };
        let Some(value) = call.parts.iter().skip(1).rev().find(|given| carries(given, tracked)) else { return };
        // `d.setdefault(k, []).append(v)` puts into `d`.
        let container = if receiver.called() == Some("setdefault") { receiver.receiver() } else { Some(receiver) };
        let Some(container) = container else { return };
        let kind = match name {
            _ if PUT.contains(&name) => WriteKind::Put,
            "extend" => WriteKind::Extend,
            "setdefault" => WriteKind::Store,
            "update" if container.variable().is_some_and(|it| self.is_dict(&it)) => WriteKind::Store,
            _ => return,
        };
        let is_own = !self.program.functions(name).is_empty();
        if !is_own || container.variable().is_some_and(|variable| self.is_container(&variable)) {
            self.keep(place, kind, container, value);
            tracked.names.extend(container.variable());
        }
    }

    fn is_container(&self, variable: &str) -> bool {
        let values = self.program.assigned(variable);
        values
            .iter()
            .any(|it| matches!(it.kind, ExprKind::Group | ExprKind::Comprehension) || it.called() == Some("deque"))
    }

    fn is_dict(&self, variable: &str) -> bool {
        let values = self.program.assigned(variable);
        values
            .iter()
            .any(|value| value.word == "{" || matches!(value.called(), Some("dict" | "defaultdict" | "OrderedDict")))
    }

    fn assign(&mut self, place: &Place<'p, 'a>, target: &Expr<'a>, value: &Expr<'a>, tracked: &mut Tracked<'_>) {
        let target = if target.kind == ExprKind::Star { &target.parts[0] } else { target };
        if target.kind == ExprKind::Subscript {
            self.keep(place, WriteKind::Store, target, value);
            tracked.names.extend(target.variable());
            return;
        }
        let Some(variable) = target.variable() else { return };
        let again = value.walk().any(|part| part.variable().is_some_and(|name| name == variable));
        let kind = match value.kind {
            _ if !again => WriteKind::Assign,
            ExprKind::Operation => WriteKind::Accumulate,
            ExprKind::Call if value.called().is_some_and(|name| JOIN.contains(&name)) => WriteKind::Join,
            _ => WriteKind::Recur,
        };
        self.keep(place, kind, target, value);
        // An item of a container, or an object, has it.
        let object = target.parts.first().filter(|_| target.kind == ExprKind::Attribute && target.parts[0].word != "self");
        if let Some(object) = object.and_then(Expr::variable) {
            let loops = place.path.iter().filter(|around| around.kind == StmtKind::Loop && around.parts.len() == 2);
            let of_object = |around: &&&Stmt<'_>| around.parts[0].walk().any(|part| part.word == object);
            tracked.names.extend(loops.filter(of_object).filter_map(|around| around.parts[1].variable()));
            tracked.names.insert(object);
        }
        tracked.names.insert(variable);
    }

    /// Follows the value into the functions of the program that `statement` calls with it.
    fn enter_calls(&mut self, place: &Place<'p, 'a>, tracked: &Tracked<'_>, depth: usize) {
        let Some(statement) = place.statement().filter(|_| depth < MAX_CALLS) else { return };
        for call in statement.calls() {
            let Some(name) = call.called() else { continue };
            let given =
                |(index, given): (usize, &Expr<'a>)| carries(given, tracked).then(|| (index, given.word, given.kind));
            let given: Vec<_> = call.parts.iter().skip(1).enumerate().filter_map(given).collect();
            let mut functions = if given.is_empty() { Vec::new() } else { self.program.functions(name) };
            // An object that is called, not a method.
            let is_object = call.receiver().is_none_or(|receiver| receiver.word == "self");
            if functions.is_empty() && !given.is_empty() && is_object && !ON_HOST.contains(&name) {
                functions = self.program.functions("__call__");
            }
            if functions.len() > MAX_FUNCTIONS {
                continue;
            }
            for function in functions {
                let Some(parameters) = function.statement().map(|function| &function.parts) else { continue };
                let is_method = parameters.first().is_some_and(|first| matches!(first.word, "self" | "cls"));
                for (index, word, kind) in &given {
                    let by_name = |one: &&Expr<'_>| *kind == ExprKind::Keyword && one.word == *word;
                    let by_place =
                        || parameters.get(index + usize::from(is_method)).filter(|_| *kind != ExprKind::Keyword);
                    let rest = || parameters.iter().rfind(|one| one.kind == ExprKind::Star);
                    let Some(parameter) = parameters.iter().find(by_name).or_else(by_place).or_else(rest) else {
                        continue;
                    };
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
                    // The object has the name that the caller gives it.
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

    fn keep(&mut self, place: &Place<'p, 'a>, kind: WriteKind, target: &Expr<'a>, value: &Expr<'a>) {
        let (Some(variable), Some(statement)) = (target.variable(), place.statement()) else { return };
        let makes_list =
            value.walk().any(|part| part.kind == ExprKind::Comprehension) || value.called() == Some("list");
        let (container, is_bounded) = match kind {
            WriteKind::Put | WriteKind::Extend | WriteKind::Store => {
                let (container, is_bounded) = self.program.container_of(&variable, kind);
                (Some(container), is_bounded)
            }
            _ => (makes_list.then_some("list"), false),
        };
        let local_to = self.is_local(place, &variable).then(|| place.function_name().to_owned());
        let keep = Keep {
            kind,
            container,
            is_bounded,
            value: place.text_of(value).map(str::to_owned),
            file: place.file.path.to_owned(),
            line: statement.first_line,
            function: place.function_name().to_owned(),
            local_to,
            in_loop: place.innermost_loop().is_some(),
            has_grad: self.has_grad && place.has_grad(),
            is_read: is_read_in_loop(place, &variable),
            backward: place.backward(&variable).or_else(|| self.backward_elsewhere(place, &variable)),
            variable,
        };
        let is_same =
            |other: &Keep| (&other.file, other.line, &other.variable) == (&keep.file, keep.line, &keep.variable);
        if !self.keeps.iter().any(is_same) {
            self.keeps.push(keep);
        }
    }

    /// Whether `variable` ends with the call of the function: it is no attribute, and assigned there. The variables of a
    /// generator wait with it.
    fn is_local(&self, place: &Place<'p, 'a>, variable: &str) -> bool {
        if variable.contains('.') || place.function().is_none() {
            return false;
        }
        let own = place.own_statements();
        let is_shared = |statement: &Stmt<'_>| {
            statement.kind == StmtKind::Shared
                && statement.parts.iter().flat_map(Expr::walk).any(|it| it.word == variable)
        };
        let assigns = |statement: &Stmt<'a>| match (statement.kind, statement.parts.as_slice()) {
            (StmtKind::Assign, [targets @ .., _]) => targets
                .iter()
                .flat_map(|it| pairs(it, None))
                .any(|(it, _)| it.kind == ExprKind::Name && it.word == variable),
            (StmtKind::Augmented | StmtKind::Loop, [target, _]) => {
                pairs(target, None).iter().any(|(it, _)| it.word == variable)
            }
            (StmtKind::With, items) => items.iter().any(|it| it.kind == ExprKind::As && it.parts[1].word == variable),
            _ => false,
        };
        let statements = || own.iter().filter_map(Place::statement);
        let yields =
            |statement: &Stmt<'_>| statement.parts.iter().flat_map(Expr::walk).any(|part| part.kind == ExprKind::Yield);
        !statements().any(is_shared) && statements().any(assigns) && !statements().any(yields)
    }

    /// Another function that reads a variable of this name calls `backward`.
    fn backward_elsewhere(&self, place: &Place<'p, 'a>, variable: &str) -> Option<BackwardCall> {
        let word = last_part(variable);
        let here = place.function().map(|function| function.first_line);
        let functions = self.program.files.iter().flat_map(|file| file.statements.iter().flat_map(Stmt::walk));
        let mut others = functions.filter(|it| it.kind == StmtKind::Function && Some(it.first_line) != here);
        let reads = |function: &Stmt<'_>| {
            let mut parts = function.walk().flat_map(|statement| statement.parts.iter().flat_map(Expr::walk));
            parts.any(|part| matches!(part.kind, ExprKind::Name | ExprKind::Attribute) && part.word == word)
        };
        let is_backward = |function: &Stmt<'_>| super::program::calls_backward(function).next().is_some();
        others.any(|function| is_backward(function) && reads(function)).then_some(BackwardCall::Elsewhere)
    }
}

/// Whether a statement in a loop of the function reads the variable, other than to write to it.
fn is_read_in_loop(place: &Place<'_, '_>, variable: &str) -> bool {
    // An object lives on: its methods are called again.
    let repeats = |other: &&Place<'_, '_>| variable.contains('.') || other.innermost_loop().is_some();
    place.own_statements().iter().filter(repeats).any(|other| {
        let Some(statement) = other.statement() else { return false };
        let read = match statement.kind {
            StmtKind::Assign => statement.parts.last().map(std::slice::from_ref).unwrap_or_default(),
            StmtKind::Augmented => &statement.parts[1..],
            _ => &statement.parts,
        };
        let is_it = |part: &Expr<'_>| part.variable().is_some_and(|name| name == variable);
        let writes = statement.kind == StmtKind::Assign
            && statement.parts.split_last().is_some_and(|(_, targets)| targets.iter().any(is_it));
        let puts = statement.kind == StmtKind::Expression
            && statement.parts.iter().any(|call| call.called().is_some_and(|name| PUT.contains(&name)));
        !writes && !puts && read.iter().flat_map(Expr::walk).any(is_it)
    })
}

fn any_name(expression: &Expr<'_>, tracked: &Tracked<'_>) -> bool {
    expression.walk().any(|part| part.kind == ExprKind::Name && tracked.names.contains(part.word))
}

/// Whether the value of `expression` has the tracked one, or comes from it.
fn carries(expression: &Expr<'_>, tracked: &Tracked<'_>) -> bool {
    let any = |parts: &[Expr<'_>]| parts.iter().any(|part| carries(part, tracked));
    let anything = matches!(tracked.made, Some(Made::Anything));
    match expression.kind {
        ExprKind::Constant => false,
        // A closure keeps its variables.
        ExprKind::Lambda => any_name(expression, tracked),
        ExprKind::Name => tracked.names.contains(expression.word),
        ExprKind::Attribute if FACTS.contains(&expression.word) => false,
        ExprKind::Attribute => {
            any(&expression.parts) || expression.variable().is_some_and(|variable| tracked.names.contains(&variable))
        }
        ExprKind::Subscript => {
            carries(&expression.parts[0], tracked)
                || expression.variable().is_some_and(|variable| tracked.names.contains(&variable))
        }
        ExprKind::Comparison => anything,
        ExprKind::Operation if anything => true,
        ExprKind::Clause => carries(&expression.parts[1], tracked),
        ExprKind::Comprehension => {
            let mut inner = tracked.clone();
            for clause in expression.parts.iter().filter(|part| part.kind == ExprKind::Clause) {
                if carries(&clause.parts[1], &inner) {
                    inner.names.extend(pairs(&clause.parts[0], None).iter().filter_map(|(it, _)| it.variable()));
                }
            }
            expression.parts.iter().any(|part| part.kind != ExprKind::Clause && carries(part, &inner))
        }
        ExprKind::Call => match (expression.called(), tracked.made) {
            (Some(name), _) if ON_HOST.contains(&name) => false,
            (Some("to"), _) if expression.parts.iter().any(|given| given.word.trim_matches(['"', '\'']) == "cpu") => {
                false
            }
            (_, Some(Made::Anything)) => true,
            (Some(name), Some(Made::Call(inner))) if name == inner => true,
            _ => any(&expression.parts[1..]) || expression.receiver().is_some_and(|it| carries(it, tracked)),
        },
        _ => any(&expression.parts),
    }
}

