"""`@pytest.mark.oomscope_limits(max_peak_allocated="2GiB")`: limits on the GPU memory of a test, with or without a GPU.

Each marked test runs in a process of its own, from an empty allocator. `oomscope run` records it if there is a GPU;
otherwise it is a dry run. `oomscope check` then compares the recording with the limits, which are its flags, and with
the test's entry in the baseline.
"""

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Optional, Tuple

import pytest

from . import _pytest_process
from ._program import OomscopeError, find_program, output_of, to_flags
from ._recorder import format_bytes

MARKER = "oomscope_limits"
DEFAULT_GPU = "h100"
# Arguments of the marker for the dry run. `baseline` is for the plugin, the others are limits.
DRY_RUN_OPTIONS = ("gpu", "memory", "devices", "value")
GROWTH = ("max_growth", "max_growth_ratio")
# Outcomes that the last lines of the session count, as names of user properties of a report.
ADDED, UPDATED, NOT_RUN = "oomscope added", "oomscope updated", "oomscope not run"

DRY_RUN = "This was a dry run, without a GPU: values that the test reads from the GPU are zero."
NO_DRY_RUN = re.compile(r"^oomscope: no dry run: (.*)$", re.M)


def pytest_addoption(parser: Any) -> None:
    group = parser.getgroup("oomscope", "limits on GPU memory (oomscope)")
    group.addoption(
        "--oomscope-gpu", metavar="NAME", help="GPU of the dry runs, for tests that name none, such as h100 or t4"
    )
    mode = {"action": "store_const", "dest": "oomscope_mode"}
    group.addoption("--oomscope-dry-run", const="dry-run", help="dry runs also where there is a GPU", **mode)
    group.addoption("--oomscope-record", const="record", help="no dry runs, also where no GPU is found", **mode)
    group.addoption("--oomscope-update", action="store_true", help="accept the tests' memory as their baseline")
    parser.addini("oomscope_gpu", "GPU of the dry runs, for tests that name none", default=DEFAULT_GPU)
    parser.addini("oomscope_baseline", "file of the baselines, in the root directory", default="oomscope-baseline.json")


def pytest_configure(config: Any) -> None:
    config.addinivalue_line(
        "markers",
        MARKER + "(gpu=None, **limits): limits of `oomscope check` on the GPU memory of the test, such as "
        'max_peak_allocated="2GiB" or max_ooms=0; without limits, the test is compared with its baseline',
    )
    config.pluginmanager.register(Plugin(config), "oomscope-limits")


def is_ci() -> bool:
    """Whether nobody would see or commit a file that this session writes."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


class Marker:
    """The arguments of a marker, checked."""

    def __init__(self, marker: Any, config: Any) -> None:
        if marker.args:
            raise pytest.UsageError(MARKER + ' takes limits by name, such as max_peak_allocated="2GiB"')
        limits = dict(marker.kwargs)
        named = limits.pop("baseline", None)
        if named not in (None, True, False):
            raise pytest.UsageError("baseline=%r: write True or False" % (named,))
        options = {name: limits.pop(name) for name in DRY_RUN_OPTIONS if name in limits}
        options.setdefault("gpu", config.getoption("oomscope_gpu") or config.getini("oomscope_gpu"))
        self.dry_run_flags = to_flags(options)
        has_growth = any(name in limits for name in GROWTH)
        self.has_baseline: bool = named if named is not None else has_growth or not limits
        if not self.has_baseline and (has_growth or not limits):
            raise pytest.UsageError("baseline=False leaves nothing to check")
        self.limits: Dict[str, Any] = limits
        self.check_flags = to_flags(limits)


@functools.lru_cache(maxsize=None)
def check_flags(*command: str) -> None:
    """Raises if `oomscope` does not know these flags. The last one makes it end before it does anything."""
    result = subprocess.run([find_program(), *command], stdin=subprocess.DEVNULL, capture_output=True)
    if result.returncode:
        message = result.stderr.decode("utf-8", "replace").strip()
        error = " ".join(message.split("\n\n")[: 2 if "tip:" in message else 1])
        raise OomscopeError(" ".join(error.replace("error: ", "", 1).split()))


class Plugin:
    def __init__(self, config: Any) -> None:
        self.config = config
        # Reports that have one of the properties.
        self.counted: Dict[str, List[str]] = {ADDED: [], UPDATED: [], NOT_RUN: []}

    # Collection --------------------------------------------------------------------------------------------------

    def pytest_collection_modifyitems(self, items: List[Any]) -> None:
        for item in items:
            marker = item.get_closest_marker(MARKER)
            if marker is None:
                continue
            try:
                limits = Marker(marker, self.config)
                check_flags("check", *limits.check_flags, "--print-config")
                check_flags("dry-run", *limits.dry_run_flags, "--help")
            except (pytest.UsageError, OomscopeError) as error:
                raise pytest.UsageError("%s: %s: %s" % (item.nodeid, MARKER, error)) from None
            item.oomscope_limits = limits

    @pytest.hookimpl(trylast=True)
    def pytest_collectreport(self, report: Any) -> None:
        """A file that skips itself, as where there is no GPU, hides its markers."""
        if not report.skipped or not str(report.nodeid).endswith(".py"):
            return
        try:
            text = (self.config.rootpath / report.nodeid).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        if MARKER in text:
            self.counted[NOT_RUN].append(report.nodeid + ": the file skips itself; skip its other tests one by one")

    # Running -----------------------------------------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Optional[bool]:
        limits = getattr(item, "oomscope_limits", None)
        is_here = any(isinstance(one, _pytest_process.Child) for one in self.config.pluginmanager.get_plugins())
        if limits is None or is_here or item.get_closest_marker("skip"):
            return None
        ihook = item.ihook
        ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        reports = self.run(item, limits)
        # Fixtures that earlier tests have left to this one, and that the next one does not need.
        last = pytest.CallInfo.from_call(lambda: item.session._setupstate.teardown_exact(nextitem), when="teardown")
        if last.excinfo is not None:
            reports.append(ihook.pytest_runtest_makereport(item=item, call=last))
        for report in reports:
            ihook.pytest_runtest_logreport(report=report)
        ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def run(self, item: Any, limits: Marker) -> List[Any]:
        """Runs the test, and adds what its recording shows to its reports."""
        process = _pytest_process.TestProcess(item, self.directory(item))
        is_recorded = getattr(sys, "_oomscope_installed", False)
        mode = self.config.getoption("oomscope_mode")
        is_dry_run = not is_recorded and (mode == "dry-run" if mode else not _pytest_process.has_gpu())
        options = ["--output", process.directory]
        prefix = [find_program(), "run", "--at", "exit", *options, "--"]
        if is_dry_run:
            prefix = [find_program(), "dry-run", "--exit-code", "verdict", *limits.dry_run_flags, *options, "--"]
        # A dry run follows a value that the test reads through its source, which rewritten assertions do not match.
        arguments = ["--assert=plain"] if is_dry_run else []
        process.run([] if is_recorded else prefix, arguments, in_process=is_recorded)
        return Judge(self.config, item, limits, process, is_dry_run).reports()

    def directory(self, item: Any) -> str:
        name = re.sub(r"[^\w.-]+", "-", item.nodeid)[-100:].strip("-")
        factory = getattr(self.config, "_tmp_path_factory", None)
        parent = str(factory.mktemp("oomscope")) if factory else tempfile.mkdtemp(prefix="oomscope-")
        path = os.path.join(parent, name)
        os.mkdir(path, 0o700)
        return path

    # The last lines ----------------------------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: Any) -> None:
        for name, value in getattr(report, "user_properties", ()):
            if name in self.counted and report.when == "call":
                self.counted[name].append("%s: %s" % (report.nodeid, value))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        path = self.config.getini("oomscope_baseline")
        lines = []
        for name, word in ((ADDED, "added to"), (UPDATED, "updated in")):
            number = len(self.counted[name])
            if number:
                lines.append("%d %s %s %s: commit it" % (number, "entry" if number == 1 else "entries", word, path))
        lines += ["not run: " + line for line in self.counted[NOT_RUN]]
        if lines:
            terminalreporter.section("GPU memory (oomscope)")
            for line in lines:
                terminalreporter.write_line(line)


class Judge:
    """Compares the recording of a test with its limits and its baseline."""

    def __init__(self, config: Any, item: Any, limits: Marker, process: Any, is_dry_run: bool) -> None:
        self.config, self.item, self.limits, self.process, self.is_dry_run = config, item, limits, process, is_dry_run

    def reports(self) -> List[Any]:
        """The reports of the test, with a failure if a limit does not hold."""
        process = self.process
        reports = process.reports
        if not any(report.when == "teardown" for report in reports):
            return [*reports, self.report_on_end()]
        call = next((report for report in reports if report.when == "call"), None)
        failed = [report for report in reports if report.failed]
        if failed and self.snapshots():
            failed[0].sections.append(("GPU memory (oomscope)", "\n".join(self.describe_failure())))
        if failed or call is None or not call.passed:
            return list(reports)
        try:
            lines = self.judge(call)
        except (OomscopeError, OSError) as error:
            lines = [str(error)]
        if lines:
            lines.append("look further: oomscope " + process.directory)
            call.longrepr = "\n".join(lines)
            call.outcome = "skipped" if hasattr(call, "wasxfail") else "failed"
        return list(reports)

    def describe_failure(self) -> List[str]:
        """The recording of a test that failed by itself."""
        lines = [DRY_RUN] if self.is_dry_run else []
        names = os.listdir(self.process.directory)
        if any("-oom" in name for name in names):
            summary = json.loads(output_of(["analyze", "--format", "json", "--", self.process.directory]))["summary"]
            lines += [summary[key] for key in ("answer", "action") if summary[key]]
            lines += holders([self.process.directory])
        return [*lines, "look further: oomscope " + self.process.directory]

    def report_on_end(self) -> Any:
        """The process has ended without the end of the test."""
        reason = NO_DRY_RUN.search(self.process.log) if self.is_dry_run else None
        if reason and not is_ci():
            path, line, _ = self.item.location
            return self.report("skipped", (path, line, "no dry run: " + reason.group(1)), [(NOT_RUN, reason.group(1))])
        text = "\n".join(self.process.errors)
        if not text:
            code, log = self.process.exit_code, self.process.log[-_pytest_process.MAX_LOG :]
            text = "the process of the test ended with exit code %d before the test did\n%s" % (code, log)
        return self.report("failed", text, [])

    def report(self, outcome: str, text: Any, properties: List[Tuple[str, str]]) -> Any:
        keywords = {str(name): 1 for name in self.item.keywords}
        return pytest.TestReport(
            self.item.nodeid, self.item.location, keywords, outcome, text, "call", user_properties=properties
        )

    def judge(self, call: Any) -> List[str]:
        """Why the memory of the test does not pass; empty if it does."""
        paths = self.snapshots()
        if not paths:
            return ["the test used no GPU memory, so there is nothing to check"]
        lines = []
        if self.is_dry_run and self.process.exit_code != 0:
            result = json.loads(output_of(["analyze", "--format", "json", "--", self.process.directory]))["dry_run"]
            # A test that provokes a failure says how many there may be.
            is_expected = result["verdict"] == "would-not-fit" and "max_ooms" in self.limits.limits
            allowed = str(self.limits.limits.get("allow_missing", "")).split(",")
            if not is_expected and result["verdict"] not in allowed:
                lines.append("%s: %s" % (result["verdict"].replace("-", " "), result["reason"]))
                if result["verdict"] == "may-fit":
                    lines.append('  value=["FILE:LINE=V"] sets the value; allow_missing="may-fit" accepts both')
        flags = self.limits.check_flags
        if self.limits.has_baseline:
            flags = [*flags, *self.baseline_flags(may_write=not lines)]
        report = json.loads(output_of(["check", "--format", "json", *flags, "--", *paths], is_quiet=True))
        failed = [finding for finding in report["findings"] if not finding["passed"]]
        baseline = report.get("baseline") or {}
        changes = baseline.get("text") if failed else None
        lines += changes or ()
        if not failed and not report["passed"]:  # not by a limit, such as a baseline of another GPU
            lines.append(report["summary"]["answer"])
        if any(finding.get("missing") == "not-in-baseline" for finding in failed):
            name = self.config.getini("oomscope_baseline")
            lines.append("%s has no entry of this test: run it where CI is not set, and commit the file" % name)
            failed = [finding for finding in failed if finding.get("missing") != "not-in-baseline"]
        tables: Dict[str, List[str]] = {}
        for finding in failed:
            lines.append(finding["message"])
            if finding["code"].startswith("peak-") and finding["path"]:
                tables[finding["path"]] = holders([finding["path"]])
            elif not (changes and "growth" in finding["code"]):  # the changes name its lines
                lines += ["  " + describe_line(line) for line in finding.get("lines", ())]
        lines += (line for table in tables.values() for line in table)
        if changes and all("growth" in finding["code"] for finding in failed):
            lines.append("accept this as the baseline: pytest --oomscope-update")
        written = {"added": ADDED, "updated": UPDATED}.get(baseline.get("written"))
        if written:
            call.user_properties.append((written, baseline["path"]))
        return lines

    def snapshots(self) -> List[str]:
        """The recording of each process: that of its end, or if it has none, those of its failures."""
        names = sorted(name for name in os.listdir(self.process.directory) if name.endswith(".pickle.gz"))
        last = [name for name in names if "-exit" in name or name == _pytest_process.RECORD]
        return [os.path.join(self.process.directory, name) for name in last or names]

    def baseline_flags(self, may_write: bool) -> List[str]:
        path = os.path.join(str(self.config.rootpath), self.config.getini("oomscope_baseline"))
        flags = ["--baseline", path, "--entry", self.item.nodeid]
        if not may_write:
            return flags
        if self.config.getoption("oomscope_update"):
            return [*flags, "--update"]
        # In CI a new entry would be lost, and the test would pass for ever with nothing to compare.
        return flags if is_ci() else [*flags, "--add"]


def holders(paths: List[str]) -> List[str]:
    """The table of the page that shows what holds the memory."""
    page = output_of(["analyze", "--color", "never", "--", *paths], is_quiet=True)
    tables = (block.splitlines() for block in page.split("\n\n") if block.startswith("held "))
    return next(tables, [])


def describe_line(line: Dict[str, Any]) -> str:
    path = line["source"] or line["file"]
    return "%s:%d in %s: %s %s" % (path, line["line"], line["name"], format_bytes(line["bytes"]), line["what"])
