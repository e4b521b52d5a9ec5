//! Programs, and the statements in them that keep memory.

use super::{Keep, Line, ProgramText};

fn lines(frames: &[(u32, &'static str)]) -> Vec<Line<'static>> {
    let line =
        |(line, function): &(u32, &'static str)| Line { file: "t.py", line: *line, function, calls_package: false };
    frames.iter().map(line).collect()
}

fn program(text: &str) -> ProgramText<'_> {
    ProgramText::new([("t.py", text)].into_iter())
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
    let text = |optimizer: &str| {
        format!(
            "class T:\n    def __init__(self, student, teacher):\n        self.teacher = teacher\n        self.o = {optimizer}\n    def step(self, x):\n        y = self.teacher(x)\n    def log(self, m, x):\n        return m(x)\n    def other(self, x):\n        z = self.log(self.teacher, x)\n"
        )
    };
    let untrained =
        |optimizer: &str, frames: &[(u32, &'static str)]| program(&text(optimizer)).untrained(&lines(frames));
    let direct = [(3, "forward"), (6, "step")];
    assert_eq!(untrained("optim.Adam(student.parameters())", &direct).as_deref(), Some("self.teacher"));
    let through = [(3, "forward"), (8, "log"), (10, "other")];
    assert_eq!(untrained("optim.Adam(student.parameters())", &through).as_deref(), Some("self.teacher"));
    for trained in ["optim.Adam(teacher.parameters())", "optim.Adam(groups)", "optim.Adam(self.parameters())", "None"] {
        assert_eq!(untrained(trained, &direct), None, "{trained}");
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
