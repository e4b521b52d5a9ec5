"""One test in a process of its own, for the pytest plugin.

The process is pytest with the arguments of the session and one test in place of the files. So fixtures, plugins, kinds
of tests and options are those of the session. It returns its reports in a file in the directory of the recording,
which a dry run does not redirect.
"""

import contextlib
import functools
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
from typing import Any, Dict, List

import pytest

REPORTS = "reports.jsonl"
RECORD = "test.pickle.gz"
# What a process prints before the tests: limit of the part that a report shows.
MAX_LOG = 4000
# Python sets the path first, so that it imports what the session imports.
START = """
import json, sys
with open(sys.argv[1]) as file:
    spec = json.load(file)
sys.path[:] = spec["path"] + [entry for entry in sys.path if entry not in spec["path"]]
sys.argv[:] = spec["argv"]
from oomscope import _pytest_process
sys.exit(_pytest_process.main(spec))
"""
# Options of pytest and of plugins that select tests, write results or distribute, as they are without the option.
OPTIONS_OF_THE_SESSION: Dict[str, Any] = {
    **dict.fromkeys("keyword markexpr".split(), ""),
    **dict.fromkeys(
        "lf failedfirst newfirst stepwise stepwise_skip usepdb trace json_report looponfail".split(), False
    ),
    **dict.fromkeys("deselect xmlpath htmlpath report_log pastebin numprocesses".split()),
    "dist": "no",
    "tx": [],
}
# Without any of these files there is no GPU: NVIDIA's, Jetson's, that of WSL and AMD's.
DEVICE_FILES = ("/dev/nvidia*", "/dev/nvhost*", "/dev/dxg", "/dev/kfd")
# Is there a GPU, for the PyTorch of this interpreter?
PROBE = "import sys, torch; sys.exit(not torch.cuda.is_available())"


@functools.lru_cache(maxsize=None)
def has_gpu() -> bool:
    """Asks in another process, because the session itself may not import torch."""
    if sys.platform == "linux" and not any(glob.glob(name) for name in DEVICE_FILES):
        return False
    return subprocess.run([sys.executable, "-c", PROBE], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


class TestProcess:
    """The process of one test. `run` starts it and waits for its end."""

    __test__ = False

    def __init__(self, item: Any, directory: str) -> None:
        self.item = item
        self.config = item.config
        #: The directory of the recording.
        self.directory = directory
        #: Its reports, as data.
        self.reports: List[Any] = []
        #: Errors of its collection.
        self.errors: List[str] = []
        self.exit_code = 0
        self.log = ""

    def run(self, prefix: List[str], arguments: List[str], in_process: bool) -> None:
        """Runs it as the command of `prefix`, with more arguments for pytest.

        If `in_process`, it records itself, under a recording of the session.
        """
        files = tempfile.mkdtemp(prefix="oomscope-")
        try:
            spec = self.specification(files, arguments, in_process)
            path = os.path.join(files, "test.json")
            with open(path, "w") as file:
                json.dump(spec, file)
            command = [*prefix, sys.executable, "-c", START, path]
            self.exit_code = self.call(command, os.path.join(files, "log"))
        finally:
            shutil.rmtree(files, ignore_errors=True)
        self.read_reports()

    def specification(self, files: str, more: List[str], in_process: bool) -> Dict[str, Any]:
        config, item = self.config, self.item
        arguments = [*(str(argument) for argument in config.invocation_params.args), *more]
        if config.pluginmanager.has_plugin("pytest_cov"):
            arguments.append("--no-cov")
        path = str(getattr(item, "path", None) or item.fspath)
        return {
            "path": sys.path,
            "argv": sys.argv,
            "arguments": arguments,
            "target": "::".join([path, *item.nodeid.split("::", 1)[1:]]),
            "basetemp": os.path.join(files, "tmp"),
            "reports": os.path.join(self.directory, REPORTS),
            "record": os.path.join(self.directory, RECORD) if in_process else None,
        }

    def call(self, command: List[str], log_path: str) -> int:
        is_shown = self.config.getoption("capture") == "no"
        with open(log_path, "wb+") as log:
            output: Dict[str, Any] = {} if is_shown else {"stdout": log, "stderr": subprocess.STDOUT}
            directory = str(self.config.invocation_params.dir)
            process = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, **output)
            try:
                code = process.wait()
            except BaseException:
                process.terminate()
                process.wait()
                raise
            log.seek(0)
            self.log = log.read().decode("utf-8", "replace")
        return code

    def read_reports(self) -> None:
        try:
            with open(os.path.join(self.directory, REPORTS)) as file:
                lines = [json.loads(line) for line in file]
        except (OSError, ValueError):  # it has not come that far, or was killed while it wrote
            lines = []
        for line in lines:
            if "error" in line:
                self.errors.append(line["error"])
            else:
                hook = self.config.hook
                report = hook.pytest_report_from_serializable(config=self.config, data=line["report"])
                if isinstance(report.longrepr, list):  # the place of a skip, a tuple before it was JSON
                    report.longrepr = tuple(report.longrepr)
                self.reports.append(report)


# In the process ------------------------------------------------------------------------------------------------------


def main(spec: Dict[str, Any]) -> int:
    from ._record import record

    with record(spec["record"]) if spec["record"] else contextlib.nullcontext():
        return int(pytest.main(spec["arguments"], plugins=[Child(spec)]))


class Child:
    """A plugin: runs the one test, and writes its reports to a file."""

    def __init__(self, spec: Dict[str, Any]) -> None:
        self.spec = spec
        self.config: Any = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: Any) -> None:
        self.config = config
        config.args = [self.spec["target"]]
        config.option.basetemp = self.spec["basetemp"]
        for name, value in OPTIONS_OF_THE_SESSION.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)

    def pytest_runtest_logreport(self, report: Any) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.write({"report": data})

    def pytest_collectreport(self, report: Any) -> None:
        if not report.passed:
            self.write({"error": report.longreprtext})

    def write(self, line: Dict[str, Any]) -> None:
        with open(self.spec["reports"], "a") as file:
            file.write(json.dumps(line, default=str) + "\n")
