"""What a command answers, for Python: its JSON, its page, and rows with typed fields."""

import html
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple, TypeVar, Union, cast

if TYPE_CHECKING:
    import pandas

Json = Union[Dict[str, "Json"], List["Json"], str, int, float, bool, None]
T = TypeVar("T")
# A row of a notebook's table, which would otherwise be aligned to the right.
ROW = '<tr><th style="text-align: left">%s</th><td style="text-align: left">%s</td></tr>'


@dataclass(frozen=True)
class Holder:
    """Memory that one source line holds, at the moment of the report."""

    path: str
    device: int
    line: Optional[str]
    category: Optional[str]
    bytes: int
    blocks: int
    share_ratio: float
    operation: Optional[str]


@dataclass(frozen=True)
class Failure:
    """A request that failed."""

    path: str
    device: int
    line: Optional[str]
    event: int
    requested_bytes: int
    device_free_bytes: int
    reserved_bytes: int
    allocated_bytes: int
    verdict: str
    reason: str


@dataclass(frozen=True)
class Tried:
    """A setting, or a change of the program, that was replayed: `mark` is `helps`, `may-help` or `no-help`.

    Compare `peak_reserved_bytes` with `unchanged_peak_reserved_bytes`.
    """

    path: str
    device: int
    mark: str
    kind: str
    what: str
    outcome: str
    peak_reserved_bytes: int
    unchanged_peak_reserved_bytes: Optional[int]
    sure: str
    line: Optional[str]


@dataclass(frozen=True)
class Finding:
    """A limit of `check`: `actual` is None if the file does not have the figure."""

    path: Optional[str]
    device: Optional[int]
    code: str
    passed: bool
    limit: Optional[float]
    actual: Optional[float]
    message: str


class Rows(List[T]):
    """Rows of one kind."""

    def to_pandas(self) -> "pandas.DataFrame":
        """A table with a column for each field."""
        import pandas

        return pandas.DataFrame([asdict(cast(Any, row)) for row in self])


class Report(Dict[str, Json]):
    """The JSON of a command (docs/json.md), and its page: `str()` and notebooks show that."""

    def __init__(self, data: Dict[str, Json], page: str, markdown: str) -> None:
        super().__init__(data)
        self._page, self._markdown = page, markdown
        #: What the command of `dry_run` printed.
        self.output: str = ""

    @property
    def summary(self) -> Dict[str, Optional[str]]:
        """What failed and why (`answer`), `who` holds most, what to do (`action`) and a setting to `copy`."""
        found = self.get("summary")
        return cast(Dict[str, Optional[str]], found) if isinstance(found, dict) else {}

    @property
    def holders(self) -> "Rows[Holder]":
        """The lines that hold most at the moment of the report: `at`, else the last failure, else the peak, else the
        snapshot."""
        rows: Rows[Holder] = Rows()
        for path, device in self._devices():
            moments = [device.get("at_moment"), *(oom.get("held") for oom in dicts(device.get("ooms"))[-1:])]
            moments.append(device.get("at_peak"))
            found = [dicts(part(part(moment, "by_line"), "rows")) for moment in moments if moment]
            for row in [*found, dicts(device.get("top_lines"))][0]:
                rows.append(Holder(path, integer(device, "device"), line_of(row), text(row, "category"), *sizes(row)))
        return rows

    @property
    def failures(self) -> "Rows[Failure]":
        """The requests that failed, oldest first."""
        keys = "event requested_bytes device_free_bytes reserved_bytes allocated_bytes".split()
        rows: Rows[Failure] = Rows()
        for path, device in self._devices():
            for oom in dicts(device.get("ooms")):
                numbers = [integer(oom, key) for key in keys]
                line = line_of(oom, "culprit")
                words = [text(oom, key) or "" for key in ("verdict", "verdict_reason")]
                rows.append(Failure(path, integer(device, "device"), line, *numbers, *words))
        return rows

    @property
    def tried(self) -> "Rows[Tried]":
        """What was replayed, the best first."""
        rows: Rows[Tried] = Rows()
        for path, device in self._devices():
            for row in dicts(device.get("tried")):
                mark, kind, what, sure = (text(row, key) or "" for key in ("mark", "kind", "what", "sure"))
                outcome = text(part(row, "then"), "outcome") or ""
                unchanged = cast(Optional[int], row.get("unchanged_peak_reserved_bytes"))
                peak = integer(row, "peak_reserved_bytes")
                line = line_of(part(row, "location"))
                number = integer(device, "device")
                rows.append(Tried(path, number, mark, kind, what, outcome, peak, unchanged, sure, line))
        return rows

    @property
    def findings(self) -> "Rows[Finding]":
        """What `check` compared."""
        keys = "path device code passed limit actual message".split()
        found = dicts(self.get("findings"))
        return Rows(Finding(*(cast(Any, row.get(key)) for key in keys)) for row in found)

    @property
    def passed(self) -> Optional[bool]:
        """Whether the limits of `check` hold; None in other reports."""
        return cast(Optional[bool], self.get("passed"))

    @property
    def verdict(self) -> Optional[str]:
        """Whether the job of a dry run would fit: `would-fit`, `may-fit` or another word; None in other reports."""
        return text(self.get("dry_run"), "verdict")

    def _devices(self) -> Iterator[Tuple[str, Dict[str, Json]]]:
        """The devices of all snapshots, each with its path."""
        for snapshot in dicts(self.get("snapshots")) or [cast(Dict[str, Json], self)]:
            for device in dicts(snapshot.get("devices")):
                yield text(snapshot, "path") or "", device

    def to_markdown(self) -> str:
        """The page as Markdown, for an issue, a comment or a notebook."""
        return self._markdown

    def __str__(self) -> str:
        return self._page

    def _repr_html_(self) -> str:
        names = {"answer": "result", "who": "held by", "variable": "kept by", "action": "to do", "copy": "copy"}
        rows = [(label, self.summary.get(key)) for key, label in names.items()]
        table = "".join(ROW % (label, html.escape(value)) for label, value in rows if value)
        page = html.escape(self._page)
        return "<table>%s</table><details><summary>all of it</summary><pre>%s</pre></details>" % (table, page)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # IPython in a terminal

    _repr_markdown_ = to_markdown


def part(value: Json, key: str) -> Json:
    return value.get(key) if isinstance(value, dict) else None


def dicts(value: Json) -> List[Dict[str, Json]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text(value: Json, key: str) -> Optional[str]:
    found = part(value, key)
    return found if isinstance(found, str) else None


def integer(value: Json, key: str) -> int:
    found = part(value, key)
    return found if isinstance(found, int) else 0


def sizes(row: Dict[str, Json]) -> Tuple[int, int, float, Optional[str]]:
    share = row.get("share_ratio")
    ratio = float(share) if isinstance(share, (int, float)) else 0.0
    return integer(row, "bytes"), integer(row, "blocks"), ratio, text(row, "operation")


def line_of(row: Json, key: str = "frame") -> Optional[str]:
    """`train.py:12 step`, of the code location of `row`."""
    frame = part(row, key)
    backward = text(row, "backward")
    if not isinstance(frame, dict):
        return backward
    return "%s:%d %s" % (text(frame, "file") or "", integer(frame, "line"), text(frame, "name") or "")
