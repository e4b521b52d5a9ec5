"""The line that fills a container."""

from oomscope import _fills

SOURCE = """
class Trainer:
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
    outputs["a"] = 1


rows = []
rows += [1]
"""


def fill(tmp_path, *containers):
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    keyed = [(key, *container) for key, container in enumerate(containers)]
    found = _fills.fills(keyed, [str(tmp_path / "gone.py"), str(path)], lambda: False)
    assert all(line[0] == str(path) for line in found.values())
    return [found[key][1:] if key in found else None for key in range(len(containers))]


def test_the_only_line_that_fills_a_container_is_found(tmp_path):
    path = str(tmp_path / "train.py")
    assert fill(
        tmp_path,
        ("trainer.history", None, None),
        ("trainer.cache", None, None),
        ("outputs", path, "evaluate"),
        ("outputs", path, "main"),
        ("rows", path, None),
    ) == [(8, "evaluate"), (10, "evaluate"), (9, "evaluate"), (19, "main"), (23, "<module>")]


def test_nothing_is_said_if_it_is_not_certain(tmp_path):
    path = str(tmp_path / "train.py")
    assert (
        fill(
            tmp_path,
            ("trainer.twice", None, None),
            ("outputs", path, None),
            ("history", None, None),
            ("trainer.model", None, None),
            ("a.b['outputs']", None, None),
            ("rows", str(tmp_path / "other.py"), None),
        )
        == [None] * 6
    )


def test_it_stops_in_time(tmp_path):
    path = tmp_path / "large.py"
    path.write_text("x.history.append(1)\n" + "pass\n" * 100000)
    assert _fills.fills([(0, "x.history", None, None)], [str(path)], lambda: True) == {}
