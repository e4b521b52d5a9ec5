"""The pytest plugin: marked tests run in processes of their own, with the fake torch, which says that it has a GPU."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest

from conftest import environment

HEAD = "import os, sys, unittest\nimport pytest, torch\nlimit = pytest.mark.oomscope_limits\n"
FUNCTIONS = """
@limit(max_peak_allocated="20MiB", max_ooms=0)
def test_within():
    torch.empty(10 << 20, device="cuda")

@limit(max_peak_allocated="20MiB")
def test_beyond():
    held = torch.empty(40 << 20, device="cuda")
"""
# Beside functions. A name says how the test ends.
KINDS = """
class TestMethods:
    @limit(max_peak_allocated="20MiB")
    def test_within(self):
        torch.empty(10 << 20, device="cuda")

    @limit(max_peak_allocated="20MiB")
    def test_beyond(self):
        held = torch.empty(40 << 20, device="cuda")

class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.size = 20 << 20

    @limit(max_peak_allocated="20MiB")
    def test_within(self):
        torch.empty(self.size, device="cuda")

    @limit(max_peak_allocated="20MiB")
    def test_beyond(self):
        held = torch.empty(2 * self.size, device="cuda")

@pytest.fixture(scope="session")
def unit():
    return 1 << 20

@limit(max_peak_allocated="20MiB")
@pytest.mark.parametrize("size", [pytest.param(10, id="within"), pytest.param(40, id="beyond::b [c]")])
def test_parameters(unit, size, tmp_path):
    held = torch.empty(size * unit, device="cuda")

@limit(max_peak_allocated="20MiB")
class TestMarkedClass:
    @pytest.fixture
    def model(self):
        return torch.empty(16 << 20, device="cuda")

    def test_within(self):
        torch.empty(10 << 20, device="cuda")

    def test_beyond(self, model):
        torch.empty(10 << 20, device="cuda")
"""
ASYNCHRONOUS = """
@pytest.fixture
def anyio_backend():
    return "asyncio"

@limit(max_peak_allocated="20MiB")
@pytest.mark.anyio
@pytest.mark.parametrize("size", [pytest.param(10, id="within"), pytest.param(40, id="beyond")])
async def test_asynchronous(size):
    held = torch.empty(size << 20, device="cuda")
"""


@pytest.fixture
def run(tmp_path):
    """Returns a function that runs pytest on a file, and returns its result."""

    def run(text, *arguments, expect=None, prefix=(), **variables):
        (tmp_path / "test_it.py").write_text(HEAD + text)
        (tmp_path / "pytest.ini").touch()
        pytest_command = "-m pytest -q -p no:cacheprovider --oomscope-record".split()
        command = [*prefix, sys.executable, *pytest_command, *arguments]
        variables = {"CI": "", "PYTEST_ADDOPTS": "", "PYTEST_PLUGINS": "oomscope.pytest_plugin", **variables}
        result = subprocess.run(
            command, cwd=str(tmp_path), env=environment(**variables), text=True, capture_output=True, timeout=300
        )
        assert expect is None or expect in result.stdout, result.stdout + result.stderr
        return result

    return run


def test_limits_hold_for_every_kind_of_test(run):
    has_anyio = importlib.util.find_spec("anyio") is not None
    result = run(FUNCTIONS + KINDS + ASYNCHRONOUS * has_anyio, "-vv")
    ends = re.findall(r"^test_it\.py::(.*) (PASSED|FAILED)", result.stdout, re.M)
    assert len(ends) == 10 + 2 * has_anyio, result.stdout
    for name, end in ends:
        assert end == ("FAILED" if "beyond" in name else "PASSED"), result.stdout
    table = r"the limit is 20 MiB\nheld at the peak by .*\n  test_it\.py:\d+ "
    assert len(re.findall(table, result.stdout)) == len(ends) / 2, result.stdout
    assert "look further: oomscope " in result.stdout


def test_each_test_has_a_process_of_its_own(run):
    text = """
@pytest.fixture(scope="module")
def here():
    yield os.getpid()

def test_first(here):
    os.environ["FIRST"] = str(here)

@limit(max_peak_allocated="20MiB")
def test_marked(here):
    assert os.environ["FIRST"] != str(os.getpid())
    torch.empty(10 << 20, device="cuda")

def test_last(here):
    assert os.environ["FIRST"] == str(here) and not torch.cuda.is_initialized()
"""
    run(text, expect="3 passed")


def test_results_of_the_test_itself_stay(run):
    text = """
@limit(max_ooms=0)
@pytest.mark.parametrize("size", [1 << 40])
def test_that_fails(size):
    print("printed by the test")
    held = torch.empty(8 << 20, device="cuda")
    torch.empty(size, device="cuda")

@limit(max_ooms=0)
@pytest.mark.skip(reason="not now")
def test_skipped(): pass

@limit(max_ooms=0)
def test_that_skips(): pytest.skip("later")

@pytest.mark.xfail(reason="too large")
@limit(max_peak_allocated="1MiB")
def test_expected(): torch.empty(10 << 20, device="cuda")

@limit(max_ooms=0)
def test_that_dies(): os._exit(3)

@limit(max_ooms=0)
def test_without_memory(): pass
"""
    result = run(text, "-rs", "--junitxml=junit.xml", expect="3 failed, 2 skipped, 1 xfailed")
    headline = r"out of memory on GPU 0: \S*test_it.py:\d+ test_that_fails requested"
    assert re.search(headline, result.stdout), result.stdout
    assert re.search(r"^held by .*\n  \S*test_it.py:\d+ test_that_fails .* 8 MiB", result.stdout, re.M), result.stdout
    assert "CUDA out of memory" in result.stdout and "printed by the test" in result.stdout
    assert "exit code 3 before the test did" in result.stdout
    assert "the test used no GPU memory" in result.stdout


@pytest.mark.parametrize(
    "marker, message",
    [
        ("limit(max_peek_allocated='1GiB')", "unexpected argument '--max-peek-allocated' found"),
        ("limit(max_peak_allocated='1GiX')", "'1GiX' is not a size"),
        ("limit(gpu='gtx1080', max_ooms=0)", "known GPUs: v100"),
        ("limit('1GiB')", "takes limits by name"),
        ("limit(baseline=3)", "write True or False"),
        ("limit(baseline=False)", "nothing to check"),
    ],
)
def test_a_wrong_marker_is_an_error_of_the_collection(run, marker, message):
    result = run("@%s\ndef test_it(): pass\ndef test_other(): pass\n" % marker)
    output = " ".join((result.stdout + result.stderr).split())
    assert result.returncode == 4 and "test_it.py::test_it" in output and message in output, output
    assert "passed" not in output


def test_a_wrong_gpu_is_an_error(run):
    text = "@limit(max_ooms=0)\ndef test_it(): pass\n"
    result = run(text, "--oomscope-gpu", "h1000")
    assert result.returncode == 4 and "known GPUs" in result.stderr, result.stdout + result.stderr


NO_DRY_RUN = "@limit(max_ooms=0)\ndef test_it():\n    torch.empty(1, device='cuda')\n"


def test_a_dry_run_that_is_not_possible_is_no_silent_skip(run):
    """The fake torch has no CUDA headers, from which the stub is made."""
    result = run(NO_DRY_RUN, "--oomscope-dry-run", expect="1 skipped")
    assert "not run: test_it.py::test_it: " in result.stdout and result.returncode == 0
    result = run(NO_DRY_RUN, "--oomscope-dry-run", expect="1 failed", CI="true")
    assert "oomscope: no dry run: " in result.stdout


def test_a_file_that_skips_itself_is_named(run):
    text = "pytest.skip('no GPU', allow_module_level=True)\n" + NO_DRY_RUN
    run(text, expect="not run: test_it.py: the file skips itself")


def test_options_of_the_session_hold_in_the_process(run, tmp_path):
    (tmp_path / "conftest.py").write_text("def pytest_addoption(parser): parser.addoption('--size', type=int)\n")
    text = """
@limit(max_peak_allocated="20MiB")
def test_size(request):
    torch.empty(request.config.getoption("--size") << 20, device="cuda")

def test_other(): pass
"""
    result = run(text, "--size=10", "-k", "size", "--junitxml=out.xml", expect="1 passed, 1 deselected")
    assert result.returncode == 0 and 'name="test_size"' in (tmp_path / "out.xml").read_text()
    run(text, "--size=40", "-k", "size", expect="1 failed, 1 deselected")


def test_many_workers(run):
    pytest.importorskip("xdist")
    text = """
@limit(max_peak_allocated="20MiB")
@pytest.mark.parametrize("size", [10, 12, 40])
def test_size(size):
    held = torch.empty(size << 20, device="cuda")
"""
    run(text, "-n", "2", expect="1 failed, 2 passed")


def test_under_a_recording_of_the_session(run, tmp_path):
    text = FUNCTIONS + "\ndef test_of_the_session():\n    torch.empty(2 << 30, device='cuda')\n"
    prefix = [os.environ.get("OOMSCOPE_PROGRAM") or environment()["OOMSCOPE_PROGRAM"], "run", "-o", "out", "--"]
    result = run(text, prefix=prefix, expect="2 failed, 1 passed")
    assert "the limit is 20 MiB" in result.stdout
    assert len(list((tmp_path / "out").glob("*-oom1.pickle.gz"))) == 1


GROWING = """
import os

@limit
@pytest.mark.parametrize("name", ["a", "b"])
def test_size(name):
    held = [torch.empty(int(os.environ["SIZE"]) << 20, device="cuda") for _ in range(2)]
"""


def test_a_baseline_is_written_compared_and_accepted(run, tmp_path):
    path = tmp_path / "oomscope-baseline.json"
    run(GROWING, SIZE=10, CI="true", expect="2 failed")
    assert not path.exists()
    run(GROWING, SIZE=10, expect="2 entries added to oomscope-baseline.json: commit it")
    written = path.read_text()
    assert written.index("test_it.py::test_size[a]") < written.index("test_it.py::test_size[b]")
    result = run(GROWING, SIZE=10, CI="true", expect="2 passed")
    assert "GPU memory" not in result.stdout and path.read_text() == written
    result = run(GROWING, "-k", "[a]", SIZE=30, expect="1 failed")
    assert "+40 MiB at test_it.py:" in result.stdout and "pytest --oomscope-update" in result.stdout
    run(GROWING, "-k", "[a]", "--oomscope-update", SIZE=30, expect="1 entry updated in oomscope-baseline.json")
    run(GROWING, SIZE=30, expect="1 failed, 1 passed")


def test_workers_write_one_baseline(run, tmp_path):
    pytest.importorskip("xdist")
    run(GROWING, "-n", "2", SIZE=10, expect="2 entries added")
    run(GROWING, SIZE=10, CI="true", expect="2 passed")


def test_limits_and_a_baseline(run):
    text = "@limit(max_ooms=0, max_growth_ratio='50%')" + GROWING.split("@limit")[1]
    run(text, SIZE=10, expect="2 entries added")
    run(text, "-k", "[a]", SIZE=14, expect="1 passed")
    run(text, "-k", "[a]", SIZE=16, expect="1 failed")
