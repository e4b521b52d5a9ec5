"""The files of a dry run: the program sees what it wrote, and no file that existed before changes."""

import os
import random
import shutil
import subprocess
import sys

import pytest

from conftest import ROOT

# Runs the code of a test with everything redirected, also in the temporary directory of the test.
PREFIX = """
import os, random, shutil, sys
sys.path.insert(0, {package!r})
from oomscope import _files
overlay = _files.Overlay({output!r})
overlay.scratch = {scratch!r}
overlay.install()
"""


@pytest.fixture
def project(tmp_path):
    """A directory of a user, with files, directories and links."""
    directory = tmp_path / "project"
    (directory / "old" / "deep").mkdir(parents=True)
    (directory / "best.pt").write_text("real")
    (directory / "log.txt").write_text("line\n")
    (directory / "old" / "model.pt").write_text("old")
    (directory / "old" / "deep" / "state.pt").write_text("deep")
    (directory / "latest").symlink_to("old")
    (directory / "link.pt").symlink_to("best.pt")
    return directory


@pytest.fixture
def redirected(tmp_path, project):
    """Runs code in `project` under the overlay, and checks that nothing there has changed."""
    (tmp_path / "out" / ".recorder").mkdir(parents=True)

    def run(code, scratch=()):
        before = state_of(project)
        prefix = PREFIX.format(
            package=str(ROOT / "python"), output=str(tmp_path / "out"), scratch=list(map(str, scratch))
        )
        result = subprocess.run(
            [sys.executable, "-c", prefix + code], cwd=project, capture_output=True, text=True, timeout=120
        )
        assert result.returncode == 0, result.stderr
        assert state_of(project) == before
        return result.stdout

    return run


def state_of(directory):
    """Everything in `directory`: links with their targets, files with their content and time of change."""
    state = {}
    for folder, folders, files in os.walk(directory):
        for name in folders + files:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                state[path] = os.readlink(path)
            elif os.path.isfile(path):
                with open(path, "rb") as file:
                    state[path] = (file.read(), os.stat(path).st_mtime_ns)
            else:
                state[path] = None
    return state


def test_what_is_written_is_read_back(redirected, tmp_path):
    output = redirected("""
with open("best.pt", "w") as file:
    file.write("zeros")
with open("log.txt", "a") as file:
    file.write("more\\n")
import pathlib
pathlib.Path("runs/1").mkdir(parents=True)
pathlib.Path("runs/1/model.pt").write_text("new")
print(open("best.pt").read(), open("log.txt").read().split(), sorted(os.listdir(".")), sorted(os.listdir(b"runs/1")))
print(os.path.getsize("best.pt"), os.path.exists("runs/1/model.pt"), [p.name for p in pathlib.Path().glob("runs/*/*")])
""")
    assert output.splitlines() == [
        "zeros ['line', 'more'] ['best.pt', 'latest', 'link.pt', 'log.txt', 'old', 'runs'] [b'model.pt']",
        "5 True ['model.pt']",
    ]
    copies = tmp_path / "out" / "files" / str(tmp_path)[1:] / "project"
    assert (copies / "best.pt").read_text() == "zeros"
    assert (copies / "log.txt").read_text() == "line\nmore\n"


def test_pathlib_changes_no_file_either(redirected):
    output = redirected("""
from pathlib import Path
Path("new").mkdir()
Path("best.pt").rename("new/kept.pt")
Path("log.txt").unlink()
Path("old/model.pt").write_text("zeros")
Path("old/deep/state.pt").touch()
print(sorted(path.name for path in Path().iterdir()), Path("old/model.pt").read_text(), Path("log.txt").exists())
""")
    assert output == "['latest', 'link.pt', 'new', 'old'] zeros False\n"


def test_a_file_in_the_root_directory_has_its_copy(redirected, tmp_path):
    redirected("""
with open("/oomscope-model.pt", "w") as file:
    file.write("zeros")
assert open("/oomscope-model.pt").read() == "zeros"
os.makedirs("/tmp", exist_ok=True)
""")
    assert (tmp_path / "out" / "files" / "oomscope-model.pt").read_text() == "zeros"
    assert not os.path.exists("/oomscope-model.pt")
    assert sorted(os.listdir(tmp_path / "out")) == [".recorder", "files"]


def test_a_removed_file_stays(redirected):
    output = redirected("""
os.remove("best.pt")
shutil.rmtree("old")
print(os.path.exists("best.pt"), os.path.exists("old/deep/state.pt"), sorted(os.listdir(".")))
os.mkdir("old")
print(os.listdir("old"), [entry.name for entry in os.scandir("old")])
try:
    open("old/model.pt")
except FileNotFoundError:
    print("gone")
""")
    assert output.splitlines() == ["False False ['latest', 'link.pt', 'log.txt']", "[] []", "gone"]


def test_a_rename_moves_what_the_program_sees(redirected):
    output = redirected("""
open("new.pt", "w").write("new")
os.replace("new.pt", "best.pt")
os.rename("old", "kept")
open("kept/model.pt", "a").write(" and new")
print(open("best.pt").read(), os.path.exists("old"), open("kept/model.pt").read(), open("kept/deep/state.pt").read())
open("old2", "w").write("x")
os.makedirs("kept/deep/more")
os.rename("kept", "moved")
print(sorted(os.listdir("moved")), sorted(os.listdir("moved/deep")))
""")
    assert output.splitlines() == ["new False old and new deep", "['deep', 'model.pt'] ['more', 'state.pt']"]


def test_no_write_reaches_a_file_through_a_link(redirected):
    output = redirected("""
open("link.pt", "w").write("zeros")
open("latest/model.pt", "w").write("zeros")
os.symlink("old", "mine")
open("mine/deep/state.pt", "w").write("zeros")
os.link("log.txt", "hard")
open("hard", "a").write("more")
os.chdir("old")
open("../best.pt", "a").write("!")
print(open("model.pt").read(), open("deep/state.pt").read(), open("../best.pt").read(), open("../log.txt").read())
""")
    assert output == "zeros zeros zeros! line\n\n"


def test_descriptors_of_directories_are_resolved(redirected):
    output = redirected("""
folder = os.open("old", os.O_RDONLY)
os.unlink("model.pt", dir_fd=folder)
with open(os.open("other.pt", os.O_CREAT | os.O_WRONLY, dir_fd=folder), "w") as file:
    file.write("x")
os.rename("other.pt", "third.pt", src_dir_fd=folder, dst_dir_fd=folder)
os.utime("best.pt", (0, 0))
os.chmod("log.txt", 0o600)
os.truncate("link.pt", 1)
print(sorted(os.listdir("old")), open("best.pt").read(), os.stat("best.pt").st_mtime < 1000000000)
""")
    assert output == "['deep', 'third.pt'] r False\n"


def test_errors_are_those_of_the_files_that_the_program_sees(redirected):
    output = redirected("""
def attempt(function, *arguments):
    try:
        return function(*arguments)
    except OSError as error:
        print(type(error).__name__, end=" ")
attempt(open, "best.pt", "x")
attempt(open, "absent/x.pt", "w")
attempt(open, "absent.pt", "r+")
attempt(os.mkdir, "old")
attempt(os.rmdir, "old")
attempt(os.remove, "absent")
attempt(os.remove, "old")
attempt(os.rename, "absent", "x")
attempt(os.listdir, "best.pt")
attempt(os.open, "best.pt", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
""")
    assert output.split() == (
        "FileExistsError FileNotFoundError FileNotFoundError FileExistsError OSError FileNotFoundError "
        "IsADirectoryError FileNotFoundError NotADirectoryError FileExistsError".split()
    )


def test_temporary_files_are_created_in_place(redirected, project, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "existing").write_text("real")
    code = """
import tempfile
scratch = %r
with tempfile.TemporaryDirectory(dir=scratch) as directory:
    path = os.path.join(directory, "x")
    open(path, "w").write("x")
    os.rename(path, path + "y")
    print(overlay.resolve(overlay.to_read, path + "y") == path + "y")
open(os.path.join(scratch, "existing"), "w").write("zeros")
open(os.path.join(scratch, "new"), "w").write("new")
print(open(os.path.join(scratch, "existing")).read())
""" % str(scratch)
    assert redirected(code, scratch=[scratch]).split() == ["True", "zeros"]
    assert sorted(os.listdir(scratch)) == ["existing", "new"]
    assert (scratch / "existing").read_text() == "real"


def test_processes_share_what_they_wrote(redirected):
    redirected("open('best.pt', 'w').write('zeros'); os.remove('log.txt'); os.makedirs('runs')")
    output = redirected("print(open('best.pt').read(), sorted(os.listdir('.')))")
    assert output == "zeros ['best.pt', 'latest', 'link.pt', 'old', 'runs']\n"


def test_databases_are_copied(redirected, project):
    import sqlite3

    with sqlite3.connect(project / "trials.db") as connection:
        connection.execute("create table trials (value)")
    output = redirected("""
import sqlite3
overlay.after_sqlite(sqlite3)
with sqlite3.connect("trials.db") as connection:
    connection.execute("insert into trials values (1)")
with sqlite3.connect(":memory:") as memory:
    memory.execute("create table other (value)")
print(sqlite3.connect("trials.db").execute("select * from trials").fetchall())
""")
    assert output == "[(1,)]\n"


# Operations on a few names, as a program might do them in any order.
RANDOM = """
import random
def act(seed):
    choose = random.Random(seed)
    names = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "f", "f/a"]
    log = []
    for step in range(60):
        one, two = choose.choice(names), choose.choice(names)
        kind = choose.randrange(12)
        try:
            if kind < 2:
                with open(one, "w") as file:
                    file.write(str(step))
            elif kind == 2:
                with open(one, "a") as file:
                    file.write(str(step))
            elif kind == 3:
                with open(one, "r+") as file:
                    file.write("r")
            elif kind == 4:
                os.remove(one)
            elif kind == 5:
                os.rmdir(one)
            elif kind == 6:
                os.mkdir(one)
            elif kind == 7:
                shutil.rmtree(one)
            elif kind == 8:
                os.rename(one, two)
            elif kind == 9:
                log.append((one, sorted(os.listdir(one))))
            elif kind == 10:
                log.append((one, open(one).read()))
            else:
                with os.scandir(one) as entries:
                    log.append(sorted((entry.name, entry.is_dir(), entry.is_file()) for entry in entries))
        except OSError as error:
            log.append((kind, one, two, type(error).__name__))
    for folder, folders, files in sorted(os.walk(".")):
        contents = [(name, open(os.path.join(folder, name)).read()) for name in sorted(files)]
        log.append((folder, sorted(folders), contents))
    return log
"""


def test_random_programs_see_the_same_files(tmp_path):
    space = {"os": os, "shutil": shutil, "random": random}
    exec(RANDOM, space)
    for seed in range(30):
        plain, real, out = (tmp_path / ("%s-%d" % (name, seed)) for name in ("plain", "real", "out"))
        (out / ".recorder").mkdir(parents=True)
        for directory in (plain, real):
            (directory / "d" / "e").mkdir(parents=True)
            (directory / "a").write_text("A")
            (directory / "d" / "b").write_text("B")
            (directory / "d" / "e" / "a").write_text("C")
    prefix = PREFIX.format(package=str(ROOT / "python"), output=str(tmp_path / "out-0"), scratch=[])
    loop = """
import json
for seed in range(30):
    overlay.__init__(%r %% seed)
    overlay.scratch = []
    os.chdir(%r %% seed)
    print(json.dumps(act(seed)))
"""
    loop %= (str(tmp_path / "out-%d"), str(tmp_path / "real-%d"))
    before = {seed: state_of(tmp_path / ("real-%d" % seed)) for seed in range(30)}
    result = subprocess.run([sys.executable, "-c", prefix + RANDOM + loop], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    import json

    here = os.getcwd()
    try:
        for seed, line in enumerate(result.stdout.splitlines()):
            os.chdir(tmp_path / ("plain-%d" % seed))
            assert json.loads(line) == json.loads(json.dumps(space["act"](seed))), seed
            assert state_of(tmp_path / ("real-%d" % seed)) == before[seed]
    finally:
        os.chdir(here)
