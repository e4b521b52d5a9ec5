"""What a command answers, for Python: its JSON, its page, and rows with typed fields."""

import html
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple, TypeVar, cast

if TYPE_CHECKING:
    import pandas

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


class Report(Dict[str, Any]):
    """The JSON of a command (docs/json.md), and its page: `str()` and notebooks show that."""

    def __init__(self, data: Dict[str, Any], page: str, markdown: str) -> None:
        super().__init__(data)
        self._page, self._markdown = page, markdown
        #: What the command of `dry_run` printed.
        self.output: str = ""

    @property
    def summary(self) -> Dict[str, Optional[str]]:
        """What failed and why (`answer`), `who` holds most, what to do (`action`) and a setting to `copy`."""
        return self.get("summary") or {}

    @property
    def holders(self) -> "Rows[Holder]":
        """The lines that hold most at the moment of the report: `at`, else the last failure, else the peak, else the
        snapshot."""
        rows: Rows[Holder] = Rows()
        for path, device in self._devices():
            failures = [oom.get("held") for oom in device.get("ooms", ())[-1:]]
            moments = [device.get("at_moment"), *failures, device.get("at_peak")]
            found = [moment["by_line"]["rows"] for moment in moments if moment]
            rows += (row_of(Holder, path, device, row) for row in [*found, device.get("top_lines", ())][0])
        return rows

    @property
    def failures(self) -> "Rows[Failure]":
        """The requests that failed, oldest first."""
        return Rows(
            row_of(Failure, path, device, {**oom, "frame": oom["culprit"], "reason": oom["verdict_reason"]})
            for path, device in self._devices()
            for oom in device.get("ooms", ())
        )

    @property
    def tried(self) -> "Rows[Tried]":
        """What was replayed, the best first."""
        return Rows(
            row_of(Tried, path, device, {**row.get("location", {}), **row, "outcome": row["then"]["outcome"]})
            for path, device in self._devices()
            for row in device.get("tried", ())
        )

    @property
    def findings(self) -> "Rows[Finding]":
        """What `check` compared."""
        return Rows(Finding(*map(row.get, Finding.__annotations__)) for row in self.get("findings", ()))

    @property
    def passed(self) -> Optional[bool]:
        """Whether the limits of `check` hold; None in other reports."""
        return self.get("passed")

    @property
    def verdict(self) -> Optional[str]:
        """Whether the job of a dry run would fit: `would-fit`, `may-fit` or another word; None in other reports."""
        return (self.get("dry_run") or {}).get("verdict")

    def _devices(self) -> Iterator[Tuple[str, Dict[str, Any]]]:
        """The devices of all snapshots, each with its path."""
        for snapshot in self.get("snapshots") or [self]:
            for device in snapshot.get("devices", ()):
                yield snapshot.get("path") or "", device

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


def row_of(kind: Callable[..., T], path: str, device: Dict[str, Any], row: Dict[str, Any]) -> T:
    """A row of `kind`, whose fields have the names of the JSON's keys. `line` is that of the `frame`."""
    frame = row.get("frame")
    line = "{file}:{line} {name}".format(**frame) if frame else row.get("backward")
    found = {**row, "path": path, "device": device["device"], "line": line}
    return kind(**{name: found.get(name) for name in kind.__annotations__})
