"""The recorder without the program, in processes that do not know of it."""

import ast
import gzip
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
import zlib

import pytest

from conftest import ROOT, environment

PACKAGE = ROOT / "python" / "oomscope"
RECORDER = PACKAGE / "_recorder.py"
OOM = "import torch\nheld = []\nwhile True: held.append(torch.empty(100 << 20, device='cuda'))\n"
SURVIVE = """
import torch
for _ in range(%d):
    try: torch.empty(2 << 30, device='cuda')
    except torch.OutOfMemoryError: pass
"""


needs_posix = pytest.mark.skipif(os.name != "posix", reason="fork, or a limit on the size of files")


class PlainUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError("%s.%s is not a built-in type" % (module, name))


def read(path):
    with gzip.open(str(path), "rb") as file:
        return PlainUnpickler(file).load()


def copy_recorder(control):
    """Copies the recorder to a directory for PYTHONPATH, as `oomscope run` does."""
    shutil.copytree(str(PACKAGE), str(control / "_oomscope"), dirs_exist_ok=True)
    (control / "_oomscope" / "__init__.py").write_text("")
    shutil.copy(str(PACKAGE / "_start.py"), str(control / "sitecustomize.py"))


@pytest.fixture
def recorded(tmp_path, child):
    """Returns a function that runs code as `oomscope run` does, and returns the process and its snapshots."""

    def run(code, options=None, **variables):
        control = tmp_path / "out" / ".recorder"
        copy_recorder(control)
        if options is not None:
            (control / "config").write_text(json.dumps(options))
        path = str(control) + os.pathsep + environment()["PYTHONPATH"]
        result = child(code, PYTHONPATH=path, **variables)
        return result, sorted((tmp_path / "out").glob("*.pickle.gz"))

    return run


def test_a_failure_writes_metadata_beside_the_snapshot(recorded):
    result, paths = recorded(OOM, RANK=3, WORLD_SIZE=8, PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64")
    assert result.returncode == 1 and "OutOfMemoryError" in result.stderr
    assert [path.name for path in paths] == ["rank3-oom1.pickle.gz"]
    taken = read(paths[0])  # only built-in types
    metadata = taken["oomscope"]
    assert metadata["reason"] == "oom" and metadata["rank"] == "3" and metadata["world_size"] == "8"
    assert metadata["torch"] == "2.15.0+fake" and type(metadata["torch"]) is str
    assert metadata["devices"] == [{"name": "Fake GPU", "total_bytes": 1 << 30}]
    assert metadata["alloc_conf"] == "max_split_size_mb:64"
    assert metadata["oom"]["request_bytes"] == 100 << 20
    assert metadata["threads"][0]["asked"] and metadata["threads"][0]["frames"][0]["line"] > 0
    assert not [f for t in metadata["threads"] for f in t["frames"] if "sitecustomize" in f["filename"]]
    assert taken["device_traces"][0][-1]["action"] == "oom"


def test_a_failure_has_the_text_of_the_program(recorded, tmp_path):
    _, paths = recorded(OOM)
    text = read(paths[0])["oomscope"]["program"]["files"][str(tmp_path / "job.py")]
    assert zlib.decompress(text.encode("latin-1")).decode().splitlines() == OOM.splitlines()
    _, paths = recorded(OOM, OOMSCOPE_SOURCE=0)
    assert read(paths[1])["oomscope"]["program"] is None


def test_without_a_failure_nothing_is_written_or_printed(recorded):
    result, paths = recorded("import torch\ntorch.empty(1, device='cuda')\nprint('done')")
    assert (result.returncode, result.stdout, result.stderr, paths) == (0, "done\n", "", [])


def test_torch_is_not_imported_and_cuda_not_started(recorded):
    result, _ = recorded("import sys\nassert 'torch' not in sys.modules and 'json' not in sys.modules")
    assert (result.returncode, result.stderr) == (0, "")
    result, _ = recorded(
        "import torch\nassert not torch.cuda.is_initialized()\nimport sys\n"
        "assert not [f for f in sys.meta_path if 'Torch' in type(f).__name__]"
    )
    assert (result.returncode, result.stderr) == (0, "")


def test_finding_torch_without_importing_it_does_nothing(recorded):
    code = (
        "import importlib.util\nassert importlib.util.find_spec('torch')\nassert importlib.util.find_spec('json')\n"
        "import torch\ntry: torch.empty(2 << 30, device='cuda')\nexcept torch.OutOfMemoryError: pass\n"
    )
    result, paths = recorded(code)
    assert result.returncode == 0 and len(paths) == 1, result.stderr


@pytest.mark.parametrize("keep, snapshots", [(1, 1), (3, 2), (5, 4)])
def test_snapshots_of_survived_failures_are_limited(recorded, keep, snapshots):
    result, paths = recorded(SURVIVE % 1000, {"keep": keep})
    assert result.returncode == 0 and len(paths) == snapshots, result.stderr


def test_a_snapshot_at_the_end(recorded):
    result, paths = recorded("import torch\nheld = torch.empty(1 << 20, device='cuda')", {"at": "exit"})
    assert result.returncode == 0
    assert [path.name.split("-")[-1] for path in paths] == ["exit1.pickle.gz"]
    assert read(paths[0])["segments"]


def test_the_ring_has_the_requested_size(recorded):
    _, paths = recorded(OOM, {"max_entries": 5})
    taken = read(paths[0])
    assert len(taken["device_traces"][0]) == 5 and taken["oomscope"]["max_entries"] == 5


OWN_HISTORY = """
import torch
%s
torch.cuda.memory._record_memory_history(max_entries=7, stacks="all")
assert torch._C.State.recording == 7 and torch._C.State.stacks == "all"
%s
"""


@pytest.mark.parametrize("before", ["", "torch.empty(1, device='cuda')"])
def test_a_history_of_the_programs_own_keeps_its_size(recorded, before):
    code = OWN_HISTORY % (before, "torch.empty(1, device='cuda'); assert torch._C.State.recording == 7\n" + OOM)
    result, paths = recorded(code)
    assert "OutOfMemoryError" in result.stderr and len(paths) == 1, result.stderr
    taken = read(paths[0])
    assert len(taken["device_traces"][0]) == 7
    assert (taken["oomscope"]["max_entries"], taken["oomscope"]["stacks"]) == (7, "all")


def test_the_recording_goes_on_when_the_program_ends_its_own(recorded):
    result, paths = recorded(OWN_HISTORY % ("", "torch.cuda.memory._record_memory_history(enabled=None)\n" + OOM))
    assert "OutOfMemoryError" in result.stderr and len(paths) == 1, result.stderr
    taken = read(paths[0])
    assert len(taken["device_traces"][0]) > 7 and taken["oomscope"]["max_entries"] == 1000000


def run_with_path(path, code):
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment(PYTHONPATH=path), stderr=subprocess.PIPE, text=True)


def test_the_environments_sitecustomize_runs_and_keeps_its_errors(recorded, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.own = True\n")
    code = (
        "import sys\nassert sys.own\nimport torch\nassert sys.modules['sitecustomize'].__file__.startswith(%r)\n" + OOM
    )
    control = str(tmp_path / "out" / ".recorder")
    path = os.pathsep.join([control, str(own), environment()["PYTHONPATH"]])
    result, _ = recorded(code % str(own))
    assert "AttributeError" in result.stderr  # the recorder's directory is not on the path yet
    recorded("pass")
    result = run_with_path(path, code % str(own))
    assert "OutOfMemoryError" in result.stderr
    assert list((tmp_path / "out").glob("*oom1.pickle.gz"))
    (own / "sitecustomize.py").write_text("1 / 0\n")
    result = run_with_path(path, OOM)
    assert "ZeroDivisionError" in result.stderr and "OutOfMemoryError" in result.stderr
    assert len(list((tmp_path / "out").glob("*oom1.pickle.gz"))) == 2


def test_two_recorders_do_not_call_each_other_forever(recorded, tmp_path):
    other = tmp_path / "other" / ".recorder"
    copy_recorder(other)
    recorded("pass")
    path = os.pathsep.join([str(tmp_path / "out" / ".recorder"), str(other), environment()["PYTHONPATH"]])
    result = run_with_path(path, OOM)
    assert "RecursionError" not in result.stderr and "OutOfMemoryError" in result.stderr
    assert len(list(tmp_path.glob("*/*oom1.pickle.gz"))) == 1


def test_an_unwritable_directory_is_one_line_per_failure(recorded, tmp_path):
    code = "import os, shutil\nshutil.rmtree('out')\nopen('out', 'w').close()\n" + SURVIVE % 3 + "\nprint('done')"
    result, _ = recorded(code)
    assert result.returncode == 0 and result.stdout == "done\n"
    assert all(line.startswith("oomscope: ") for line in result.stderr.splitlines()), result.stderr
    assert 1 <= len(result.stderr.splitlines()) <= 3


@needs_posix
def test_a_full_disk_leaves_no_partial_file(recorded, tmp_path):
    code = (
        "import resource\nimport torch\ntorch.empty(1, device='cuda')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n" + SURVIVE % 3 + "\nprint('done')"
    )
    result, paths = recorded(code)
    assert result.returncode == 0 and result.stdout == "done\n", result.stderr
    assert paths == [] and list((tmp_path / "out").glob("*.part")) == []
    assert "no snapshot written: OSError" in result.stderr


def test_an_allocator_that_cannot_be_recorded_is_reported(recorded):
    result, paths = recorded("import torch\ntorch.empty(1, device='cuda')", PYTORCH_NO_CUDA_MEMORY_CACHING=1)
    assert result.returncode == 0 and paths == []
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING" in result.stderr and len(result.stderr.splitlines()) == 1


@needs_posix
def test_a_forked_child_is_left_alone(recorded):
    code = (
        "import os, torch\ntorch.empty(1, device='cuda')\npid = os.fork()\nif pid == 0: os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n" + SURVIVE % 1
    )
    result, paths = recorded(code, {"at": "exit"})
    assert result.returncode == 0 and len(paths) == 1, result.stderr


@needs_posix
def test_a_fork_before_cuda_is_recorded_separately(recorded):
    code = "import os, torch\npid = os.fork()\n" + SURVIVE % 1 + "\nif pid: os.waitpid(pid, 0)\n"
    result, paths = recorded(code)
    assert result.returncode == 0 and len(paths) == 2, result.stderr


def test_a_process_that_is_writing_gets_more_time(tmp_path, capsys):
    from oomscope import _recorder

    recorder = _recorder.Recorder(str(tmp_path))
    recorder.options["wait"] = 0.4
    answer = tmp_path / ".recorder" / "done-elsewhere-7"
    answer.parent.mkdir()

    def waits(*answers):
        """Seconds that it waits, if the other process gives these answers, a second apart."""
        answer.write_text(answers[0])
        later = [threading.Timer(at, answer.write_text, [text]) for at, text in enumerate(answers) if at]
        start = time.monotonic()
        for timer in later:
            timer.start()
        recorder.wait_for({"elsewhere-7": ""})
        return time.monotonic() - start, capsys.readouterr().err

    seconds, errors = waits("writing", "asked 1.0")
    assert seconds > 0.9 and errors == ""
    seconds, errors = waits("")
    assert seconds >= 0.4 and "no snapshot from 1 of 1 other processes" in errors


def test_old_pythons_can_parse_it():
    """Launchers may start any Python: an old one must be able to parse the recorder."""
    ast.parse(RECORDER.read_text(), feature_version=(3, 4))


STANDARD = """
ast atexit collections contextlib dis functools gc gzip heapq importlib inspect itertools json
linecache operator os pickle platform re signal socket stat sys sysconfig threading time types
zipimport zlib
"""


def test_it_uses_only_the_standard_library():
    beside = ("names", "objects", "source", "tensors")
    sources = [RECORDER, *(PACKAGE / f"_{name}.py" for name in beside)]
    names = set()
    for node in (node for source in sources for node in ast.walk(ast.parse(source.read_text()))):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    assert names - {"torch"} <= set(STANDARD.split())
