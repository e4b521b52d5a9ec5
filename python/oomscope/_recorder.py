"""Records CUDA memory history in a Python process, and writes a snapshot when a request for GPU memory fails.

This one file is all that `oomscope run` brings into a job. It uses the standard library alone, imports torch never by
itself, and starts CUDA never: it waits until the program does both. It is used in three ways:

1. `oomscope run -- python train.py` writes a copy of this file as `DIR/.recorder/sitecustomize.py` and puts that
   directory on PYTHONPATH. Python imports `sitecustomize` at its start; the one that is hidden by ours is run first.
2. The wheel names `autoload` as an entry point of `torch.backends`: torch 2.5 and later call it at the end of
   `import torch`. It does something only where OOMSCOPE_DIR is set.
3. `oomscope.record(...)` of the Python package uses `start_history`, `snapshot` and `write`.

What is done, in order: `install` waits for torch, `arm` waits for CUDA, `Recorder.start` records, `Recorder.on_oom`
writes. DIR/.recorder holds, by process (HOST-PID): `recorded-*` one file for each process that records, `done-*` what it
writes or last wrote, and `dump`: whoever changes that file asks every recorded process for a snapshot.

Whatever fails in here is one line on standard error, never an exception in the program. Python 3.8 and later; older
ones can read this file, and are left alone.
"""

import os
import sys

# Seconds between two looks at `dump`.
POLL_S = 0.5
# Failures that are survived, after the first few: at most one snapshot in so many seconds.
EVERY_S = 30.0
# Who has begun to write is waited for so many times as long as who has not.
BEGUN = 10
# What a process says that has begun.
WRITING = "writing"
# A snapshot that is not older than this serves whoever asks for one.
FRESH_S = 5.0
# How a request by `oomscope dump` begins; the others come from processes in which a request failed.
BY_HAND = "by hand "
# Frames of each thread that are written down.
MAX_FRAMES = 100
# What is in the file DIR/.recorder/config and, in capitals after OOMSCOPE_, in the environment.
DEFAULTS = {"max_entries": 1000000, "stacks": "python", "at": "oom", "keep": 3, "wait": 10.0}
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def say(text):
    """One line on standard error."""
    try:
        sys.stderr.write("oomscope: %s\n" % " ".join(str(text).split()))
        sys.stderr.flush()
    except Exception:  # a closed stream
        pass


def short(error):
    """The first line of an exception."""
    lines = str(error).strip().split("\n")
    return "%s: %s" % (type(error).__name__, lines[0]) if lines[0] else type(error).__name__


# Before CUDA ---------------------------------------------------------------------------------------------------------


def autoload():
    """The entry point of `torch.backends`. Raises nothing: torch would make a failed import of it."""
    try:
        if os.environ.get("OOMSCOPE_DIR"):
            install(os.environ["OOMSCOPE_DIR"])
    except Exception as error:
        say("not recording: " + short(error))


def as_sitecustomize(path):
    """What this file does where Python imports it as `sitecustomize`."""
    control = os.path.dirname(os.path.abspath(path))
    ours = sys.__dict__.setdefault("_oomscope_sitecustomize", [])
    if os.path.realpath(control) in ours:  # found again by a sitecustomize that runs the next one, too
        return
    ours.append(os.path.realpath(control))
    try:
        run_hidden_sitecustomize(ours)
    finally:
        try:
            if sys.version_info >= (3, 8):
                install(os.path.dirname(control))
        except Exception as error:
            say("not recording: " + short(error))


def run_hidden_sitecustomize(ours):
    """Runs the environment's own sitecustomize, if it has one, as if those in the directories `ours` were not there."""
    from importlib import util
    from importlib.machinery import PathFinder

    others = [entry for entry in sys.path if os.path.realpath(entry or os.curdir) not in ours]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def install(directory):
    """Waits for torch; at once if it is there. Only the first call in a process does anything."""
    if getattr(sys, "_oomscope_installed", False):
        return
    sys._oomscope_installed = True
    mark(directory, "saw-python")
    dry_run = prepare_dry_run(directory)
    if "torch" in sys.modules and dry_run:
        say("a dry run begins before torch is imported: leave out Python's options -I and -E")
        os._exit(2)
    elif "torch" in sys.modules:
        arm(directory)
    else:
        sys.meta_path.insert(0, TorchFinder(directory))


def prepare_dry_run(directory):
    """What `oomscope dry-run` wants of this process; None where a GPU is to be used."""
    control = os.path.join(os.path.abspath(directory), ".recorder")
    if not os.path.exists(os.path.join(control, "dry-run.json")):
        return None
    if control not in sys.path:
        sys.path.append(control)
    import _oomscope_dry_run

    sys._oomscope_dry_run = _oomscope_dry_run.DryRun(control)
    return sys._oomscope_dry_run


class TorchFinder(object):
    """Finds `torch` as the other finders do, and arms the recorder once its import is done."""

    def __init__(self, directory):
        self.directory = directory

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find else None
            if spec is not None:
                break
        else:
            return None
        if getattr(spec.loader, "exec_module", None) is not None:
            self.follow(spec.loader)
        return spec

    def follow(self, loader):
        execute = loader.exec_module

        def exec_module(module):
            dry_run = getattr(sys, "_oomscope_dry_run", None)
            if dry_run:
                dry_run.before_torch(os.path.dirname(module.__spec__.origin))
            execute(module)
            if dry_run:
                dry_run.after_torch(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            try:
                arm(self.directory)
            except Exception as error:
                say("not recording: " + short(error))

        loader.exec_module = exec_module


def arm(directory):
    """Waits for CUDA: torch calls back as soon as the program uses it, in each process for itself."""
    torch = sys.modules["torch"]
    mark(directory, "saw-torch")
    if not hasattr(torch._C, "_cuda_init"):
        mark(directory, "saw-torch-without-cuda")
        return

    def start():
        try:
            Recorder(directory).start()
        except Exception as error:
            say("not recording in process %d: %s" % (os.getpid(), short(error)))

    torch.cuda._lazy_call(start)


def mark(directory, name):
    """Leaves word of how far some process came, for the line that `oomscope run` ends with."""
    try:
        path = os.path.join(directory, ".recorder", name)
        if not os.path.exists(path):
            open(path, "w").close()
    except OSError:
        pass


def configuration(directory):
    """The options: of the file that `oomscope run` wrote, else of the environment, else the defaults."""
    import json

    options = dict(DEFAULTS)
    for name, value in DEFAULTS.items():
        text = os.environ.get("OOMSCOPE_" + name.upper())
        if text:
            options[name] = type(value)(text)
    try:
        with open(os.path.join(directory, ".recorder", "config")) as file:
            options.update(json.load(file))
    except (IOError, OSError):
        pass
    return options


# With CUDA -----------------------------------------------------------------------------------------------------------


class Recorder(object):
    """One process whose memory history is recorded."""

    def __init__(self, directory):
        import socket
        import threading

        self.directory = os.path.abspath(directory)
        self.control = os.path.join(self.directory, ".recorder")
        self.options = configuration(directory)
        self.pid = os.getpid()
        self.name = "%s-%d" % (socket.gethostname(), self.pid)
        self.lock = threading.RLock()
        # Failed requests, those of which a snapshot was taken, and snapshots that others asked for.
        self.failed = self.kept = self.asked = 0
        # time.monotonic() of the last snapshot of a failure, and of the last that was written.
        self.last_kept = self.last_written = None
        # What was asked of all processes and is known here, in the words of who asked.
        self.seen = set()

    def start(self):
        """Called once CUDA is initialised in this process."""
        import atexit
        import threading

        start_history(self.options["max_entries"], self.options["stacks"])
        sys._oomscope_recording = True
        attach_observer(self.on_oom)
        sys._oomscope_recorder = self
        atexit.register(self.at_exit)
        make_directory(self.control)
        self.seen.add(self.request())
        self.tell("recorded", "rank %s\n" % rank() if rank() else "\n")
        threading.Thread(target=self.watch, name="oomscope", daemon=True).start()

    def on_oom(self, device, requested, total, free):
        """Called by the allocator as a request fails, before the exception is raised, on the thread that asked."""
        import time

        if os.getpid() != self.pid:
            return
        try:
            self.failed += 1
            if self.is_kept():
                self.kept, self.last_kept = self.kept + 1, time.monotonic()
                oom = {
                    "device": device,
                    "request_bytes": requested,
                    "device_total_bytes": total,
                    "device_free_bytes": free,
                    "nth": self.failed,
                }
                others = self.answers()
                self.ask_others()
                self.dump("oom", oom)
                self.last_kept = time.monotonic()
                self.wait_for(others)
        except Exception as error:
            say("no snapshot of this failure: " + short(error))

    def is_kept(self):
        """The first failures that a program survives are kept, then one now and then, and not too many."""
        import time

        if self.kept >= self.options["keep"]:
            return False
        at_once = max(1, self.options["keep"] - 1)
        return self.kept < at_once or time.monotonic() - self.last_kept >= EVERY_S

    def at_exit(self):
        if os.getpid() != self.pid:
            return
        if self.options["at"] == "exit" and self.kept == 0 and not is_idle():
            self.dump("exit")
        self.tell("done", "gone")

    def dump(self, reason, oom=None):
        """Writes a snapshot, and says so."""
        import time

        with self.lock, Uninterrupted():
            self.tell("done", WRITING)
            try:
                taken = snapshot(reason, oom, self.options)
                path = write(taken, self.directory, stem(), reason)
                self.last_written = time.monotonic()
                entries = sum(len(trace) for trace in taken["device_traces"])
                why = "a request for %s failed; " % readable(oom["request_bytes"]) if oom else ""
                say("%swrote %s (%d entries, %s)" % (why, path, entries, readable(os.path.getsize(path))))
            except Exception as error:
                say("no snapshot written: " + short(error))
            finally:
                self.tell("done", "%s %.6f" % (reason, time.time()))

    # The other ranks ---------------------------------------------------------------------------------------------

    def request(self):
        """Who last asked for snapshots, in their own words."""
        return content(os.path.join(self.control, "dump"))

    def ask_others(self):
        """torchrun ends the other ranks as soon as one is gone: they write before this one goes on."""
        request = "%s %d" % (self.name, self.failed)
        self.seen.add(request)
        replace(os.path.join(self.control, "dump"), request)

    def watch(self):
        """A thread of its own: the main one may wait in NCCL. No signals: they kill who is not ready for them."""
        import time

        while True:
            time.sleep(POLL_S)
            try:
                asked = self.request()
                if asked and asked not in self.seen:
                    self.seen.add(asked)
                    self.answer(asked)
            except Exception as error:
                say("no snapshot written: " + short(error))

    def answer(self, asked):
        """A snapshot for whoever asked, unless a failure elsewhere is the reason and there is one of just now."""
        import time

        asked_at = time.monotonic()
        with self.lock:
            is_fresh = self.last_written is not None and self.last_written > asked_at - FRESH_S
            is_failure = not asked.startswith(BY_HAND)
            if is_failure and (is_fresh or self.asked >= self.options["keep"]):
                self.tell("done", "have one %.6f" % time.time())
            else:
                self.asked += is_failure
                self.dump("asked")

    def answers(self):
        """What every other recorded process last wrote."""
        found = [name for name in os.listdir(self.control) if name.startswith("recorded-")]
        names = [name[len("recorded-") :] for name in found if not name.endswith(".part")]
        return {name: self.answer_of(name) for name in names if name != self.name}

    def answer_of(self, name):
        return content(os.path.join(self.control, "done-" + name))

    def wait_for(self, before):
        """Until each process has answered that has not ended, and no longer than is allowed: a snapshot of a full ring
        takes longer than it takes to notice that one is wanted."""
        import time

        began, allowed = time.monotonic(), self.options["wait"]
        waiting = {name: old for name, old in before.items() if old != "gone"}
        while waiting:
            now = {name: self.answer_of(name) for name in waiting}
            waiting = {name: old for name, old in waiting.items() if now[name] in (old, WRITING) and may_live(name)}
            has_begun = any(now[name] == WRITING for name in waiting)
            if not waiting or time.monotonic() >= began + allowed * (BEGUN if has_begun else 1):
                break
            time.sleep(POLL_S / 2)
        if waiting:
            say(
                "no snapshot from %d of %d other processes after %d s"
                % (len(waiting), len(before), time.monotonic() - began)
            )

    def tell(self, what, text):
        try:
            replace(os.path.join(self.control, "%s-%s" % (what, self.name)), text)
        except OSError:
            pass


def is_idle():
    """Whether this is a process of a dry run that has taken no memory, such as one that compiles for another."""
    dry_run = getattr(sys, "_oomscope_dry_run", None)
    return dry_run is not None and dry_run.most_used() == 0


def may_live(name):
    """Whether process HOST-PID may still be there; of another host that is not known."""
    import socket

    host, _, pid = name.rpartition("-")
    if os.name != "posix" or host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def content(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def replace(path, text):
    """Writes a small file that appears whole."""
    import time

    part = "%s.%d.part" % (path, os.getpid())
    with open(part, "w") as file:
        file.write(text)
    for tries_left in reversed(range(20)):
        try:
            return os.replace(part, path)
        except PermissionError:  # on Windows also where another process reads the file just now
            if os.name != "nt" or not tries_left:
                raise
            time.sleep(0.01)


def make_directory(path):
    if not os.path.isdir(path):
        os.makedirs(path, exist_ok=True)


# PyTorch's interface -------------------------------------------------------------------------------------------------


def start_history(max_entries, stacks):
    """Starts recording in this process, on all devices; fails where the allocator cannot."""
    import torch

    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        raise RuntimeError("PYTORCH_NO_CUDA_MEMORY_CACHING is set, so there is no allocator to record")
    memory = torch.cuda.memory
    if hasattr(memory, "_record_memory_history_impl"):
        memory._record_memory_history("all", context="all", stacks=stacks, max_entries=max_entries)
    else:  # 2.0
        memory._record_memory_history(True, trace_alloc_max_entries=max_entries, trace_alloc_record_context=True)


def attach_observer(observer):
    """Has `observer` called at every failed request. There is no way to detach it."""
    import torch

    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
    attach = attach or torch._C._cuda_attachOutOfMemoryObserver
    attach(observer)


def snapshot(reason, oom, options):
    """PyTorch's snapshot, and under the key `oomscope` what it does not say. Viewers ignore keys they do not know."""
    import torch

    taken = torch.cuda.memory._snapshot()
    taken["oomscope"] = metadata(reason, oom, options)
    return taken


def metadata(reason, oom, options):
    """What a reader cannot know from the snapshot. Plain types alone: no reader should have to import anything."""
    import platform
    import socket
    import time

    import torch

    return {
        "recorder": 1,
        "reason": reason,
        "oom": oom,
        "rank": rank(),
        "local_rank": os.environ.get("LOCAL_RANK"),
        "world_size": os.environ.get("WORLD_SIZE"),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "argv": [str(arg) for arg in getattr(sys, "argv", [])],
        "torch": str(torch.__version__),
        "cuda": str(torch.version.cuda),
        "python": platform.python_version(),
        "alloc_conf": os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF"),
        "devices": devices(),
        "max_entries": options["max_entries"],
        "stacks": options["stacks"],
        "time": int(time.time()),
        "threads": threads(),
        "dry_run": sys._oomscope_dry_run.describe() if hasattr(sys, "_oomscope_dry_run") else None,
    }


def devices():
    """Name and memory of each device, by the numbers that the snapshot uses."""
    import torch

    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return [{"name": str(one.name), "total_bytes": int(one.total_memory)} for one in properties]


def threads():
    """Where every Python thread is, the one that asked for memory first. Threads of the backward pass have no frame
    of Python: the line that called backward() is found in the thread that waits for them."""
    import threading

    names = {thread.ident: thread.name for thread in threading.enumerate()}
    this = threading.get_ident()
    found = []
    for ident, frame in sys._current_frames().items():
        frames = []
        while frame is not None and len(frames) < MAX_FRAMES:
            code = frame.f_code
            if code.co_filename != __file__:
                frames.append({"filename": code.co_filename, "line": frame.f_lineno or 0, "name": code.co_name})
            frame = frame.f_back
        if names.get(ident) == "oomscope" and ident != this:
            continue
        found.append({"name": names.get(ident, "?"), "asked": ident == this, "frames": frames})
    found.sort(key=lambda thread: not thread["asked"])
    return found


# Files ---------------------------------------------------------------------------------------------------------------


def rank():
    """The number of this process among those of the job, as launchers tell it, or None."""
    values = [os.environ.get(name) for name in RANK_VARIABLES]
    return next((value for value in values if value), None)


def stem():
    """How the snapshots of this process begin."""
    import socket

    return "rank%s" % rank() if rank() is not None else "%s-pid%d" % (socket.gethostname(), os.getpid())


def write(taken, directory, name, reason):
    """Writes `NAME-REASON1.pickle.gz`, or the next number that is free; whole or not at all. Returns its path."""
    make_directory(directory)
    number = 1
    while True:
        path = os.path.join(directory, "%s-%s%d.pickle.gz" % (name, reason, number))
        part = path + ".part"
        if not os.path.exists(path):
            try:
                os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
                break
            except FileExistsError:
                pass
        number += 1
    write_to(taken, path, part)
    return path


def write_to(taken, path, part):
    """Writes `path` by way of `part`, which is gone afterwards."""
    import gzip
    import pickle

    try:
        # Level 1 is as fast as no compression, for a twelfth of the size.
        opened = gzip.open(part, "wb", compresslevel=1) if path.endswith(".gz") else open(part, "wb")
        with opened as file:
            pickle.dump(taken, file, 4)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)


class Uninterrupted(object):
    """In here this thread is not interrupted: an end that somebody asks for waits until the file is whole."""

    def __enter__(self):
        import signal

        self.mask = getattr(signal, "pthread_sigmask", None)  # not on Windows
        self.before = self.mask and self.mask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])

    def __exit__(self, *_):
        import signal

        if self.mask:
            self.mask(signal.SIG_SETMASK, self.before)


def readable(size):
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return "%d %s" % (size, unit) if unit == "B" else "%.1f %s" % (size, unit)
        size /= 1024.0


if __name__ == "sitecustomize":
    as_sitecustomize(__file__)
