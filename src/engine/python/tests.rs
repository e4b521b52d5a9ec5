//! Programs, and the statements in them that keep memory.

use super::{Keep, Line, LoopKind, ProgramText};
use crate::snapshot::BackwardCall;

fn lines(frames: &[(u32, &'static str)]) -> Vec<Line<'static>> {
    frames.iter().map(|(number, function)| line(*number, function)).collect()
}

fn line(line: u32, function: &'static str) -> Line<'static> {
    Line { file: "t.py", line, function, calls_package: false }
}

fn program(text: &str) -> ProgramText<'_> {
    ProgramText::new([("t.py", text)].into_iter(), true)
}

fn shown(keep: &Keep) -> String {
    let local = keep.local_to.as_ref().map_or("", |_| " local");
    let value = keep.value.as_deref().unwrap_or_default();
    format!("{} {} {} {value}{local}", keep.line, keep.kind, keep.variable)
}

/// The statements that may keep what `frames`, lines with their functions, make: line, kind, variable, value.
fn keepers(text: &str, frames: &[(u32, &'static str)]) -> Vec<String> {
    program(text).keepers(&lines(frames)).iter().map(shown).collect()
}

const LOOP: &str = "\
class Log:
    def __init__(self):
        self.kept = []
    def add(self, value, **others):
        self.kept.append(value)
def step(model, x):
    y = model(x)
    return y, x
def main():
    log = Log()
    for x in data:
        out, _ = step(model, x)
        log.add(out)
";

#[test]
fn a_result_goes_to_the_caller_and_into_its_calls() {
    let found = keepers(LOOP, &[(7, "step"), (12, "main")]);
    let expected = [
        "7 assign y model(x) local",
        "12 assign out step(model, x) local",
        "12 assign _ step(model, x) local",
        "5 put log.kept value",
    ];
    assert_eq!(found, expected);
    // The text is not that of the frames.
    assert_eq!(keepers(LOOP, &[(7, "main")]), Vec::<String>::new());
    // A package calls `step`, and has its result.
    let program = program(LOOP);
    let mut frames = lines(&[(7, "step"), (10, "main")]);
    frames[1].calls_package = true;
    assert_eq!(program.keepers(&frames).len(), 1);
}

#[test]
fn numbers_and_copies_on_the_host_keep_nothing() {
    for value in ["f(x).item()", "float(f(x))", "f(x).to('cpu')", "f(x).detach().cpu()", "f(x).shape", "len(f(x))"] {
        assert_eq!(
            keepers(&format!("for x in y:\n    kept.append({value})\n"), &[(2, "<module>")]),
            Vec::<String>::new()
        );
    }
    for value in
        ["f(x)", "f(x).detach()", "(x, f(x))", "{'a': f(x)}", "[g(f(x))]", "f(x) if x else None", "f(x).logits"]
    {
        assert_eq!(
            keepers(&format!("for x in y:\n    kept.append({value})\n"), &[(2, "<module>")]).len(),
            1,
            "{value}"
        );
    }
}

#[test]
fn every_form_of_statement_has_its_kind() {
    for (statement, kind) in [
        ("total += f(x)", "accumulate"),
        ("total = total + f(x)", "accumulate"),
        ("kept += [f(x)]", "extend"),
        ("kept.extend([f(x)])", "extend"),
        ("cache[x] = f(x)", "store"),
        ("cache.setdefault(x, []).append(f(x))", "put"),
        ("heapq.heappush(kept, (x, f(x)))", "put"),
        ("insort(kept, f(x), key=f)", "put"),
        ("bank = torch.cat([bank, f(x)])", "join"),
        ("h = f(x, h)", "recur"),
        ("y = f(x)", "assign"),
    ] {
        let found = program(&format!("for x in y:\n    {statement}\n")).keepers(&lines(&[(2, "<module>")]));
        assert_eq!(found.iter().map(|keep| keep.kind.to_string()).collect::<Vec<_>>(), [kind], "{statement}");
        assert!(found[0].in_loop && found[0].local_to.is_none(), "{statement}");
    }
}

#[test]
fn containers_have_their_type_and_bound() {
    for (made, of, is_bounded) in [
        ("[]", "list", false),
        ("queue.Queue()", "queue", false),
        ("queue.Queue(maxsize=4)", "queue", true),
        ("deque()", "deque", false),
        ("deque([], 8)", "deque", true),
        ("deque(maxlen=size)", "deque", true),
        ("deque(maxlen=None)", "deque", false),
    ] {
        let text = format!("kept = {made}\nfor x in y:\n    kept.append(f(x))\n");
        let found = program(&text).keepers(&lines(&[(3, "<module>")]));
        assert_eq!((found[0].container, found[0].is_bounded), (Some(of), is_bounded), "{made}");
    }
}

#[test]
fn closures_generators_and_caches_outlive_the_call() {
    let closure = "def run(kept):\n    for x in y:\n        z = f(x)\n        kept.append(lambda: g(z))\n";
    assert!(keepers(closure, &[(3, "run")]).contains(&"4 put kept lambda: g(z)".to_owned()));
    let generator =
        "def run():\n    seen = []\n    for x in y:\n        z = f(x)\n        seen.append(z)\n        yield z\n";
    assert!(keepers(generator, &[(4, "run")]).contains(&"5 put seen z".to_owned()));
    let cached =
        "import functools\n@functools.lru_cache(maxsize=None)\ndef mask(n):\n    return torch.ones(n)\nmask(3)\n";
    let found = program(cached).keepers(&lines(&[(4, "mask"), (5, "<module>")]));
    assert_eq!((found[0].container, found[0].line, found[0].is_bounded), (Some("lru_cache"), 2, false));
}

#[test]
fn hooks_keep_what_they_see() {
    let text = "def watch(m):\n    def hook(module, inputs, output):\n        seen[m] = output\n    m.register_forward_hook(hook)\n";
    let found: Vec<String> = program(text).hook_keepers().iter().map(shown).collect();
    assert_eq!(found, ["3 store seen output"]);
}

#[test]
fn an_item_of_a_loop_belongs_to_its_container() {
    let text = "def run(self):\n    beams = []\n    for beam in beams:\n        beam.cache = f(x)\n    for done in beams:\n        self.done.append(done)\n";
    assert!(keepers(text, &[(4, "run")]).contains(&"6 put self.done done".to_owned()));
}

#[test]
fn a_module_that_no_optimizer_has_is_not_trained() {
    for (optimizer, frames, untrained) in [
        ("optim.Adam(student.parameters())", &[(3, "forward"), (6, "step")][..], Some("self.teacher")),
        ("optim.Adam(student.parameters())", &[(3, "forward"), (8, "log"), (10, "other")], Some("self.teacher")),
        ("optim.Adam(teacher.parameters())", &[(3, "forward"), (6, "step")], None),
        ("optim.Adam(groups)", &[(3, "forward"), (6, "step")], None),
        ("optim.Adam(self.parameters())", &[(3, "forward"), (6, "step")], None),
        ("None", &[(3, "forward"), (6, "step")], None),
    ] {
        let text = format!(
            "class T:\n    def __init__(self, student, teacher):\n        self.teacher = teacher\n        self.o = {optimizer}\n    def step(self, x):\n        y = self.teacher(x)\n    def log(self, m, x):\n        return m(x)\n    def other(self, x):\n        z = self.log(self.teacher, x)\n"
        );
        assert_eq!(program(&text).untrained(&lines(frames)).as_deref(), untrained, "{optimizer}");
    }
    for (module, tensors) in [("student", Some(3)), ("student.head", Some(3)), ("student[1]", None)] {
        let text = format!("optim.Adam({module}.parameters())");
        assert_eq!(program(&text).training_tensors().map(|(_, tensors)| tensors), tensors, "{module}");
    }
}

#[test]
fn no_text_makes_the_flow_fail() {
    for text in
        ["", "def f(", "x = [", "for x in", "class A:\n  def f(self): return self.g(", "f(*)", "a.b.c[", "lambda"]
    {
        for line in 1..4 {
            let _ = keepers(text, &[(line, "<module>"), (line, "f")]);
        }
        let program = program(text);
        let _ = (program.hook_keepers(), program.optimizer_keepers(), program.cycle_keepers());
    }
}

const WRITTEN: &str = "\
class Trainer:
    @torch.no_grad()
    def evaluate(self, batches):
        outputs = []
        for batch in batches:
            loss = self.model(batch)
            self.history.append(loss)
            outputs.append(loss)
        self.cache[len(outputs)] = outputs
        if self.cache[0] == 1:
            self.twice += [1]
            self.twice.extend([2])
        return outputs


async def main():
    outputs = {}
    outputs.setdefault('a', []).append(1)


rows = []
rows += [1]
data = dataset.images.to('cuda')
total = parts = 0
for step, x in enumerate(data):
    with torch.no_grad():
        seen = torch.cat([seen, x])
    hidden, cell = rnn(x, (hidden, cell))
    loss = f(hidden)
    total += loss
    for part in x.split(8):
        parts = parts + g(
            part)
    parts.backward()
";

/// Line, kind and value of the statement that writes to `variable`.
fn written(text: &str, variable: &str, file: Option<&str>, function: Option<&str>) -> Option<String> {
    let keep = program(text).written(variable, file, function)?;
    Some(format!("{} {} {}", keep.line, keep.kind, keep.value.unwrap_or_default()))
}

#[test]
fn the_only_statement_that_writes_to_a_variable_is_found() {
    let file = Some("t.py");
    for (variable, file, function, found) in [
        ("trainer.history", None, None, Some("7 put loss")),
        ("trainer.cache", None, None, Some("9 store outputs")),
        ("outputs", file, Some("evaluate"), Some("8 put loss")),
        ("outputs", file, Some("main"), Some("18 put 1")),
        ("rows", file, None, Some("22 extend [1]")),
        ("data", file, None, Some("23 assign dataset.images.to('cuda')")),
        ("seen", file, None, Some("27 join torch.cat([seen, x])")),
        // Several, none, or another file.
        ("trainer.twice", None, None, None),
        ("outputs", file, None, None),
        ("history", None, None, None),
        ("trainer.model", None, None, None),
        ("a.b['outputs']", None, None, None),
        ("rows", Some("other.py"), None, None),
    ] {
        assert_eq!(written(WRITTEN, variable, file, function).as_deref(), found, "{variable}");
    }
}

#[test]
fn a_write_has_its_surroundings() {
    for (name, expected) in [
        ("a.history", "put loop=true grad=false read=false none"),
        ("data", "assign loop=false grad=true read=false none"),
        ("total", "accumulate loop=true grad=true read=false loop"),
        ("seen", "join loop=true grad=false read=false loop"),
        ("hidden", "recur loop=true grad=true read=true loop"),
        ("parts", "accumulate loop=true grad=true read=true itself"),
    ] {
        let keep = program(WRITTEN).written(name, name.contains('.').then_some("t.py"), None).unwrap();
        let backward = keep.backward.map_or("none".to_owned(), |call| call.to_string());
        let facts =
            format!("{} loop={} grad={} read={} {backward}", keep.kind, keep.in_loop, keep.has_grad, keep.is_read);
        assert_eq!(facts, expected, "{name}");
    }
}

#[test]
fn a_state_is_not_what_is_joined() {
    let text = "for x in data:\n    out, past = model(x, past)\n    seen = join(seen, out)\n";
    assert_eq!(written(text, "past", None, None).as_deref(), Some("2 recur past"));
    assert_eq!(written(text, "out", None, None).as_deref(), Some("2 recur past"));
    let text = "xs, ys = [], []\nfor x in data:\n    xs.append(x)\nxs, ys = cat(xs), cat(ys)\n";
    assert_eq!(written(text, "xs", None, None).as_deref(), Some("3 put x"));
    let text = "def act(policy, state):\n    policy.log_probs.append(policy(state))\n\
                def finish(policy):\n    sum(policy.log_probs).backward()\n";
    let keep = program(text).written("policy.log_probs", None, None).unwrap();
    assert_eq!((keep.line, keep.backward), (2, Some(BackwardCall::Elsewhere)));
}

#[test]
fn a_state_that_is_detached_beside_backward_is_one_graph_until_then() {
    use BackwardCall::{Itself, Loop, Window};
    let body = "for x in data:\n    out, h = model(x, h)\n    losses.append(f(out))\n    total += f(out)\n";
    for (end, name, expected) in [
        ("sum(losses).backward()\n        h = h.detach()", "h", Some(Window)),
        ("sum(losses).backward()\n        h = cut(h)", "losses", Some(Window)),
        ("total.backward(); h.detach_()", "total", Some(Window)),
        // No value of the state is detached there, or the variable is only a log.
        ("sum(losses).backward()", "losses", Some(Itself)),
        ("sum(losses).backward(); last = h.detach()", "h", Some(Loop)),
        ("total.backward(); h = h.detach()", "losses", Some(Loop)),
    ] {
        let text = format!("{body}    if full():\n        {end}\ndef cut(h):\n    return h.detach()\n");
        let found = program(&text).written(name, None, None);
        assert_eq!(found.and_then(|keep| keep.backward), expected, "{end}: {name}");
    }
    let text = "for x in data:\n    h = model(x, h)\n    h.sum().backward()\n    h.detach_()\n";
    assert_eq!(program(text).written("h", None, None).and_then(|keep| keep.backward), Some(Itself), "in each step");
}

fn unread(text: &str, number: u32, function: &'static str) -> Option<String> {
    let found = program(text).unread_from(&line(number, function));
    found.map(|names| names.into_iter().collect::<Vec<_>>().join(" "))
}

#[test]
fn a_function_is_read_below_its_line() {
    let text = "def train():\n    x = f()\n    x.backward()\n    f()\ndef test():\n    f()\nfor x in y:\n    f()\nx.backward()\nf()\n";
    for (number, function, trains) in [
        (2, "train", Some(true)),
        (3, "train", Some(true)),
        (4, "train", Some(false)),
        (6, "test", Some(false)),
        (8, "<module>", Some(true)),
        (10, "<module>", Some(false)),
        (6, "other", None),
    ] {
        assert_eq!(program(text).has_backward_from(&line(number, function)), trains, "{number} {function}");
    }

    let text =
        "a, b, c = 1, 2, 3\nfor x in y:\n    d = c\n    f(a)\nf(e)\ndef g():\n    h = b\n    f(h)\n    return 1\n";
    assert_eq!(unread(text, 2, "<module>").as_deref(), Some("d x"));
    assert_eq!(unread(text, 5, "<module>").as_deref(), Some("a c d x"));
    assert_eq!(unread(text, 9, "g").as_deref(), Some("h"));
    for used in ["print(f'{a:.3f}')", "assert a, 'no'", "del a", "raise Error(a)", "x = [a for b in c]"] {
        let text = format!("a = load()\nf()\n{used}\n");
        assert_eq!(unread(&text, 2, "<module>").map(|names| names.contains('a')), Some(false), "{used}");
    }
    assert_eq!(unread("a = load()\nf()\na = = 3\n", 2, "<module>"), None);
}

#[test]
fn calls_of_modules_and_backward_passes_are_found() {
    let text = "with torch.no_grad():\n    a(x)\nb = self.b(x)\nfor x in y:\n    c.append(x)\n";
    assert_eq!(["a", "trainer.b", "c"].map(|name| program(text).is_called_with_grad(name)), [false, true, false]);
    let text = "def step():\n    loss.backward()\n    loss.backward(create_graph=True)\n";
    let program = program(text);
    let line = program.graph_backward().unwrap();
    assert_eq!((line.line, line.function), (3, "step"));
    let other = "loss.backward(create_graph=False)\ngrad(loss, x, create_graph=True)\n";
    assert!(ProgramText::new([("t.py", other)].into_iter(), true).graph_backward().is_none());
}

#[test]
fn a_closure_that_a_function_returns_keeps_what_it_gets() {
    let text = "def make():\n    kept = deque()\n    def on_batch(x):\n        kept.append(x)\n    return on_batch\n\
                def train(callbacks):\n    y = f()\n    for callback in callbacks:\n        callback(y)\n";
    let found = keepers(text, &[(7, "train")]);
    assert!(found.contains(&"4 put kept x".to_owned()), "{found:?}");
}

#[test]
fn a_method_of_an_item_is_no_write_to_its_container() {
    let text = "class Tracker:\n    def update(self, value):\n        self.last = value\n\
                trackers = {'a': Tracker()}\nfor x in data:\n    trackers['a'].update(f(x))\n";
    let found = keepers(text, &[(6, "<module>")]);
    assert_eq!(found, ["3 assign trackers.last value"]);
}

#[test]
fn exceptions_in_containers_and_filled_tensors_are_found() {
    let text = "failures = []\nfor x in data:\n    try:\n        f(x)\n    except RuntimeError as error:\n        failures.append((x, error))\n";
    let found: Vec<String> = program(text).exception_keepers().iter().map(shown).collect();
    assert_eq!(found, ["6 put failures (x, error)"]);
    let text = "keys = torch.zeros(9)\nfor i in range(9):\n    keys[i] = f(i)\n";
    assert_eq!(keepers(text, &[(1, "<module>")])[0], "1 store keys torch.zeros(9)");
}

/// The large values of the last line of a function, whose `body` has `|` before each line.
fn values(body: &str) -> String {
    let text = format!("def f(a, b, v, x):{}", body.replace('|', "\n    "));
    let last = u32::try_from(text.lines().count()).unwrap();
    let found = program(&text).large_values(&line(last, "f"));
    found.into_iter().map(|value| format!("{value:?}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_statement_shows_a_tensor_that_could_be_smaller() {
    assert_eq!(values("|y = a - b"), "Elements([\"a\", \"b\"])");
    assert_eq!(values("|y = a - b|z = y.abs()"), "Elements([\"a\", \"b\"])");
    assert_eq!(values("|d = a[:, None] - b[None]|z = d.square().sum(-1)"), "Distances([\"a\", \"b\"])");
    assert_eq!(values("|d = a.unsqueeze(0) - b.unsqueeze(1)|z = torch.relu(d)"), "Pairs([\"a\", \"b\"])");
    assert_eq!(values("|d = torch.cdist(a, b)"), "Pairs([\"a\", \"b\"])");
    assert_eq!(values("|s = a @ a.T|o = s.argsort(1)"), "Pairs([\"a\", \"a\"]) Sorted(\"s\")");
    assert_eq!(values("|s = a @ b.T"), "");
    assert_eq!(values("|s = (a @ b.mT / 8).softmax(-1)|y = s @ v"), "Scores([\"a\", \"b\", \"v\"])");
    assert_eq!(values("|s = torch.matmul(a, b.mT)|y = torch.softmax(s, -1) @ v"), "Scores([\"a\", \"b\", \"v\"])");
    // No part of it.
    assert_eq!(values("|s = (a @ b.mT / 8).softmax(-1)|y = s @ v|z = x.exp()"), "");
    assert_eq!(values("|c = a.repeat(9, 1)"), "Repeated(\"a\")");
    assert_eq!(values("|c = g(a.repeat(9, 1))"), "");
    assert_eq!(values("|m = torch.diag(a)"), "Diagonal(\"a\")");
    assert_eq!(values("|m = F.one_hot(a, 9)"), "OneHot(\"m\")");
    assert_eq!(values("|m = torch.zeros(x, x, device=d)"), "Zeros(\"x\")");
    assert_eq!(values("|m = torch.zeros((a, b))"), "");
}

#[test]
fn a_running_value_comes_from_a_tensor() {
    let text = "def f(self, images, size):\n    for i in range(size):\n        y = self.model(images[None].cuda())[0]\n\
                    return [self.model(x) for x in images]\n";
    let program = program(text);
    let value = program.running_value(&lines(&[(3, "f")])[0], None).unwrap();
    assert_eq!((value.source.as_str(), value.is_one_item), ("images", true));
    assert_eq!(value.text.as_deref(), Some("self.model(images[None].cuda())[0]"));
    let made = "def f(n):\n    keys = torch.zeros(n, 9)\n";
    assert_eq!(ProgramText::new([("t.py", made)].into_iter(), true).running_value(&lines(&[(2, "f")])[0], None), None);
    let kinds = [3, 4].map(|at| program.innermost_loop(&lines(&[(at, "f")])[0]));
    assert_eq!(kinds, [Some(LoopKind::Counted), Some(LoopKind::OverData)]);
}

#[test]
fn a_function_that_a_decorator_registers_keeps_what_it_gets() {
    let text = "def on(function):\n    listeners.append(function)\n    return function\n\
                @on\ndef remember(payload):\n    archive.append(payload)\n\
                def fit():\n    y = f()\n    for listener in listeners:\n        listener(y)\n";
    let found = keepers(text, &[(8, "fit")]);
    assert!(found.contains(&"6 put archive payload".to_owned()), "{found:?}");
    assert!(!found.iter().any(|keep| keep.contains("listeners")), "{found:?}");
    assert!(ProgramText::new([("t.py", "import gc\ngc.disable()\n")].into_iter(), true).turns_collector_off());
}

#[test]
fn imports_are_statements() {
    let text = "import a.b as c, d\nfrom .e import (\n    f,  # from g\n    h as i)\ntry: from j import *\nexcept: raise k from l\n\
                from .. import m\nn = 'import o'\n";
    let modules: Vec<String> = super::imported_modules(text).into_iter().collect();
    assert_eq!(modules, ["a/b", "d", "e", "e/f", "e/h", "j", "m"]);
}
