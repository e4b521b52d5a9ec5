"""The statement that writes to a variable."""

from oomscope import _writes

SOURCE = """
class Trainer:
    @torch.no_grad()
    def evaluate(self, batches):
        outputs = []
        for batch in batches:
            # self.history.append(0)
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
    outputs.setdefault("a", []).append(1)


rows = []
rows += [1]
data = dataset.images.to("cuda")
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
"""


def find(tmp_path, *variables):
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    keyed = [(key, *variable) for key, variable in enumerate(variables)]
    found = _writes.writes(keyed, [str(tmp_path / "gone.py"), str(path)], lambda: False)
    assert all(write.file == str(path) for write in found.values())
    return [found.get(key) for key in range(len(variables))]


def test_the_only_statement_that_fills_a_container_is_found(tmp_path):
    path = str(tmp_path / "train.py")
    found = find(
        tmp_path,
        ("trainer.history", None, None),
        ("trainer.cache", None, None),
        ("outputs", path, "evaluate"),
        ("outputs", path, "main"),
        ("rows", path, None),
    )
    assert [(write.line, write.function, write.how, write.value) for write in found] == [
        (9, "evaluate", "put", "loss"),
        (11, "evaluate", "store", "outputs"),
        (10, "evaluate", "put", "loss"),
        (20, "main", "put", "1"),
        (24, "<module>", "extend", "[1]"),
    ]


def test_what_is_around_the_statement_is_told(tmp_path):
    path = str(tmp_path / "train.py")
    names = ("history", "data", "total", "seen", "hidden", "parts")
    found = find(tmp_path, ("a.history", None, None), *((name, path, None) for name in names[1:]))
    described = [write.describe() for write in found]
    assert [name for name, one in zip(names, described) if one["read"]] == ["hidden", "parts"]
    keys = "how", "value", "in_loop", "grad", "backward"
    assert {name: tuple(one[key] for key in keys) for name, one in zip(names, described)} == {
        "history": ("put", "loss", True, False, None),
        "data": ("assign", 'dataset.images.to("cuda")', False, True, None),
        "total": ("accumulate", "loss", True, True, "loop"),
        "seen": ("join", "torch.cat([seen, x])", True, False, "loop"),
        "hidden": ("recur", "hidden", True, True, "loop"),
        "parts": ("accumulate", "", True, True, "itself"),
    }


def test_a_backward_pass_below_a_line_is_seen():
    train = "def train():\n    x = f()\n    x.backward()\n    f()\n"
    text = train + "def test():\n    f()\nfor x in y:\n    f()\nx.backward()\n"

    def below(line, name):
        return _writes.has_later_backward("train.py", text.split("\n"), line, name)

    assert [below(line, "train") for line in (2, 3, 4)] == [True, True, False]
    assert not below(6, "test")
    assert below(8, "<module>")
    assert not below(10, "<module>")


def test_variables_that_are_not_read_below_a_line_are_found():
    text = "a, b, c = 1, 2, 3\nfor x in y:\n    d = c\n    f(a)\nf(e)\ndef g():\n    h = b\n    f(h)\n    return 1\n"

    def unread(line, name):
        return sorted(_writes.unread_below("train.py", text.split("\n"), line, name))

    assert unread(2, "<module>") == ["d", "x"]
    assert unread(5, "<module>") == ["a", "c", "d", "x"]
    assert unread(9, "g") == ["h"]


def test_a_state_that_goes_from_step_to_step_is_read(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("for x in data:\n    out, past = model(x, past)\n    seen = join(seen, out)\n")
    found = _writes.writes([(name, name, str(path), None) for name in ("past", "seen")], [str(path)], lambda: False)
    assert [(found[name].how, found[name].is_read) for name in ("past", "seen")] == [("recur", True), ("recur", False)]


def test_joining_the_items_of_a_list_fills_it_not(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("xs, ys = [], []\nfor x in data:\n    xs.append(x)\nxs, ys = cat(xs), cat(ys)\n")
    found = _writes.writes([(0, "xs", str(path), None)], [str(path)], lambda: False)
    assert (found[0].line, found[0].how) == (3, "put")


def test_a_backward_pass_of_another_function_is_told(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(
        "def act(policy, state):\n    policy.log_probs.append(policy(state))\n"
        "def finish(policy):\n    sum(policy.log_probs).backward()\n"
    )
    found = _writes.writes([(0, "policy.log_probs", None, None)], [str(path)], lambda: False)
    assert (found[0].line, found[0].backward) == (2, "elsewhere")
    assert _writes.has_backward([str(path)], lambda: False)
    path.write_text("model(x)\n")
    assert not _writes.has_backward([str(path)], lambda: False)


def test_modules_that_are_called_with_grad_are_found(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("with torch.no_grad():\n    a(x)\nb = self.b(x)\nfor x in y:\n    c.append(x)\n")
    names = [(name, name, None, None) for name in ("a", "trainer.b", "c")]
    assert _writes.called_with_grad(names, [str(path)], lambda: False) == {"trainer.b"}


def test_nothing_is_said_if_it_is_not_certain(tmp_path):
    path = str(tmp_path / "train.py")
    variables = (
        ("trainer.twice", None, None),
        ("outputs", path, None),
        ("history", None, None),
        ("trainer.model", None, None),
        ("a.b['outputs']", None, None),
        ("rows", str(tmp_path / "other.py"), None),
    )
    assert find(tmp_path, *variables) == [None] * 6


def test_text_that_is_no_program_is_passed_over(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("x.history.append(1\nx.history.append((\0)\ny = 1\nx.history.append(2)\n")
    assert _writes.writes([(0, "x.history", None, None)], [str(path)], lambda: False)[0].line == 4


def test_it_stops_in_time(tmp_path):
    path = tmp_path / "large.py"
    path.write_text("x.history.append(1)\n" + "pass\n" * 100000)
    assert _writes.writes([(0, "x.history", None, None)], [str(path)], lambda: True) == {}


def test_a_backward_pass_that_keeps_its_graph_is_found(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("def step():\n    loss.backward()\n    loss.backward(create_graph=True)\n")
    found = _writes.graph_backward([str(path)], lambda: False)
    assert found == {"frames": [{"filename": str(path), "line": 3, "name": "step"}]}
    path.write_text("loss.backward(create_graph=False)\ngrad(loss, x, create_graph=True)\n")
    assert _writes.graph_backward([str(path)], lambda: False) is None
