"""The recorder on its own: what it does to a process that knows nothing of it."""

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

import pytest

from conftest import ROOT, environment

RECORDER = ROOT / "python" / "oomscope" / "_recorder.py"
OOM = "import torch\nheld = []\nwhile True: held.append(torch.empty(100 << 20, device='cuda'))\n"
SURVIVE = """
import torch
for _ in range(%d):
    try: torch.empty(2 << 30, device='cuda')
    except torch.OutOfMemoryError: pass
"""


needs_posix = pytest.mark.skipif(os.name != "posix", reason="fork, or a limit on the size of files")


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError("%s.%s is no plain type" % (module, name))


def read(path):
    with gzip.open(str(path), "rb") as file:
        return Plain(file).load()


@pytest.fixture
def recorded(tmp_path, child):
    """Runs code with the recorder as `oomscope run` brings it in; returns the process and its snapshots."""

    def run(code, options=None, **variables):
        control = tmp_path / "out" / ".recorder"
        control.mkdir(parents=True, exist_ok=True)
        shutil.copy(str(RECORDER), str(control / "sitecustomize.py"))
        if options is not None:
            (control / "config").write_text(json.dumps(options))
        path = str(control) + os.pathsep + environment()["PYTHONPATH"]
        done = child(code, PYTHONPATH=path, **variables)
        return done, sorted((tmp_path / "out").glob("*.pickle.gz"))

    return run


def test_a_failure_writes_what_no_snapshot_tells(recorded):
    done, paths = recorded(OOM, RANK=3, WORLD_SIZE=8, PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64")
    assert done.returncode == 1 and "OutOfMemoryError" in done.stderr
    assert [path.name for path in paths] == ["rank3-oom1.pickle.gz"]
    taken = read(paths[0])  # plain types alone
    told = taken["oomscope"]
    assert told["reason"] == "oom" and told["rank"] == "3" and told["world_size"] == "8"
    assert told["torch"] == "2.15.0+fake" and type(told["torch"]) is str
    assert told["devices"] == [{"name": "Fake GPU", "total_bytes": 1 << 30}]
    assert told["alloc_conf"] == "max_split_size_mb:64"
    assert told["oom"]["request_bytes"] == 100 << 20
    assert told["threads"][0]["asked"] and told["threads"][0]["frames"][0]["line"] > 0
    assert not [f for t in told["threads"] for f in t["frames"] if "sitecustomize" in f["filename"]]
    assert taken["device_traces"][0][-1]["action"] == "oom"


def test_nothing_is_written_or_said_where_nothing_fails(recorded):
    done, paths = recorded("import torch\ntorch.empty(1, device='cuda')\nprint('done')")
    assert (done.returncode, done.stdout, done.stderr, paths) == (0, "done\n", "", [])


def test_torch_is_not_imported_and_cuda_not_started(recorded):
    done, _ = recorded("import sys\nassert 'torch' not in sys.modules and 'json' not in sys.modules")
    assert (done.returncode, done.stderr) == (0, "")
    done, _ = recorded(
        "import torch\nassert not torch.cuda.is_initialized()\nimport sys\n"
        "assert not [f for f in sys.meta_path if 'Torch' in type(f).__name__]"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_search_for_torch_alone_does_nothing(recorded):
    code = (
        "import importlib.util\nassert importlib.util.find_spec('torch')\nassert importlib.util.find_spec('json')\n"
        "import torch\ntry: torch.empty(2 << 30, device='cuda')\nexcept torch.OutOfMemoryError: pass\n"
    )
    done, paths = recorded(code)
    assert done.returncode == 0 and len(paths) == 1, done.stderr


@pytest.mark.parametrize("keep, kept", [(1, 1), (3, 2), (5, 4)])
def test_survived_failures_are_few(recorded, keep, kept):
    done, paths = recorded(SURVIVE % 1000, {"keep": keep})
    assert done.returncode == 0 and len(paths) == kept, done.stderr


def test_a_snapshot_at_the_end(recorded):
    done, paths = recorded("import torch\nheld = torch.empty(1 << 20, device='cuda')", {"at": "exit"})
    assert done.returncode == 0
    assert [path.name.split("-")[-1] for path in paths] == ["exit1.pickle.gz"]
    assert read(paths[0])["segments"]


def test_the_ring_is_as_large_as_asked(recorded):
    _, paths = recorded(OOM, {"max_entries": 5})
    taken = read(paths[0])
    assert len(taken["device_traces"][0]) == 5 and taken["oomscope"]["max_entries"] == 5


def test_an_own_sitecustomize_runs_and_its_error_is_its_own(recorded, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.own = True\n")
    code = (
        "import sys\nassert sys.own\nimport torch\nassert sys.modules['sitecustomize'].__file__.startswith(%r)\n" + OOM
    )
    control = str(tmp_path / "out" / ".recorder")
    path = os.pathsep.join([control, str(own), environment()["PYTHONPATH"]])
    done, paths = recorded(code % str(own))
    assert "AttributeError" in done.stderr  # not on the path yet
    recorded("pass")
    done = subprocess.run(
        [sys.executable, "-c", code % str(own)],
        env=environment(PYTHONPATH=path),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert "OutOfMemoryError" in done.stderr
    assert list((tmp_path / "out").glob("*oom1.pickle.gz"))
    (own / "sitecustomize.py").write_text("1 / 0\n")
    done = subprocess.run(
        [sys.executable, "-c", OOM], env=environment(PYTHONPATH=path), stderr=subprocess.PIPE, text=True
    )
    assert "ZeroDivisionError" in done.stderr and "OutOfMemoryError" in done.stderr
    assert len(list((tmp_path / "out").glob("*oom1.pickle.gz"))) == 2


def test_two_recorders_hide_each_other_without_a_circle(recorded, tmp_path):
    other = tmp_path / "other" / ".recorder"
    other.mkdir(parents=True)
    shutil.copy(str(RECORDER), str(other / "sitecustomize.py"))
    recorded("pass")
    path = os.pathsep.join([str(tmp_path / "out" / ".recorder"), str(other), environment()["PYTHONPATH"]])
    done = subprocess.run(
        [sys.executable, "-c", OOM], env=environment(PYTHONPATH=path), stderr=subprocess.PIPE, text=True
    )
    assert "RecursionError" not in done.stderr and "OutOfMemoryError" in done.stderr
    assert len(list(tmp_path.glob("*/*oom1.pickle.gz"))) == 1


def test_a_directory_that_cannot_be_written_is_one_line(recorded, tmp_path):
    code = "import os, shutil\nshutil.rmtree('out')\nopen('out', 'w').close()\n" + SURVIVE % 3 + "\nprint('done')"
    done, _ = recorded(code)
    assert done.returncode == 0 and done.stdout == "done\n"
    assert all(line.startswith("oomscope: ") for line in done.stderr.splitlines()), done.stderr
    assert 1 <= len(done.stderr.splitlines()) <= 3


@needs_posix
def test_a_full_disk_leaves_no_half_of_a_file(recorded, tmp_path):
    code = (
        "import resource\nimport torch\ntorch.empty(1, device='cuda')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n" + SURVIVE % 3 + "\nprint('done')"
    )
    done, paths = recorded(code)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
    assert paths == [] and list((tmp_path / "out").glob("*.part")) == []
    assert "no snapshot written: OSError" in done.stderr


def test_an_allocator_that_cannot_be_recorded_is_said(recorded):
    done, paths = recorded("import torch\ntorch.empty(1, device='cuda')", PYTORCH_NO_CUDA_MEMORY_CACHING=1)
    assert done.returncode == 0 and paths == []
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING" in done.stderr and len(done.stderr.splitlines()) == 1


@needs_posix
def test_a_forked_child_is_left_alone(recorded):
    code = (
        "import os, torch\ntorch.empty(1, device='cuda')\npid = os.fork()\nif pid == 0: os._exit(0)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n" + SURVIVE % 1
    )
    done, paths = recorded(code, {"at": "exit"})
    assert done.returncode == 0 and len(paths) == 1, done.stderr


@needs_posix
def test_a_fork_before_cuda_is_recorded_for_itself(recorded):
    code = "import os, torch\npid = os.fork()\n" + SURVIVE % 1 + "\nif pid: os.waitpid(pid, 0)\n"
    done, paths = recorded(code)
    assert done.returncode == 0 and len(paths) == 2, done.stderr


def test_who_has_begun_to_write_is_waited_for_longer(tmp_path, capsys):
    from oomscope import _recorder

    one = _recorder.Recorder(str(tmp_path))
    one.options["wait"] = 0.4
    answer = tmp_path / ".recorder" / "done-elsewhere-7"
    answer.parent.mkdir()

    def waits(*answers):
        """Seconds until it goes on, when the other process gives these answers, a second apart."""
        answer.write_text(answers[0])
        later = [threading.Timer(at, answer.write_text, [text]) for at, text in enumerate(answers) if at]
        began = time.monotonic()
        for timer in later:
            timer.start()
        one.wait_for({"elsewhere-7": ""})
        return time.monotonic() - began, capsys.readouterr().err

    took, said = waits("writing", "asked 1.0")
    assert took > 0.9 and said == ""
    took, said = waits("")
    assert took >= 0.4 and "no snapshot from 1 of 1 other processes" in said


def test_old_pythons_can_read_it():
    """Nothing newer than Python 3.8: launchers may start anything."""
    ast.parse(RECORDER.read_text(), feature_version=(3, 4))


def test_it_uses_the_standard_library_alone():
    tree = ast.parse(RECORDER.read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.split(".")[0])
    assert names - {"torch"} <= {
        "atexit",
        "gzip",
        "importlib",
        "json",
        "os",
        "pickle",
        "platform",
        "signal",
        "socket",
        "sys",
        "threading",
        "time",
    }
