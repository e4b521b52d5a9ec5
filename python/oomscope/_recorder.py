"""Records CUDA memory history in a Python process, and writes a snapshot when a request for GPU memory fails.

It uses only the standard library. It never imports torch and never initializes CUDA: it waits until the program does.
`install` waits for torch, `arm` for CUDA, `Recorder.start` starts recording, and `Recorder.on_oom` writes a snapshot.
`oomscope run` puts it on PYTHONPATH as `sitecustomize` (`_start.py`), the wheel declares `autoload` as an entry point
of torch, and `oomscope.record(...)` uses `start_history`, `snapshot` and `write_to`.

The processes of a job communicate through files in DIR/.recorder:

- `recorded-HOST-PID`: the process is being recorded.
- `done-HOST-PID`: the state of its last snapshot.
- `served-HOST-PID`: no request of it has failed. A full disk can lose a file, but not take a new one.
- `dump`: a request for snapshots. Every recorded process answers when this file changes.

An error in this file becomes one line on standard error, never an exception in the program. The recorder needs Python
3.8; older versions can parse this file and skip it.
"""

import os
import sys
import time  # built into Python

# How often to read `dump`.
POLL_S = 0.5
# Minimum time between snapshots of failures that the program survives, after the first few.
MIN_INTERVAL_S = 30.0
# Wait this many times longer for a process that has started to write than for one that has not.
WRITING_FACTOR = 10
# State of a process that has started to write.
WRITING = "writing"
# A snapshot newer than this answers a request from another process.
FRESH_S = 5.0
# Start of a request by `oomscope dump`; other requests come from processes in which an allocation failed.
BY_HAND = "by hand "
# Limit of frames per thread in the snapshot.
MAX_FRAMES = 100
# Options in the file DIR/.recorder/config. The environment can set them, too: OOMSCOPE_MAX_ENTRIES and so on.
DEFAULTS = {"max_entries": 1000000, "stacks": "python", "at": "oom", "keep": 3, "wait": 10.0, "names": 1}
# Seconds for the names of variables in a dry run.
DRY_RUN_NAMES_S = 10
RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def log(text):
    try:
        sys.stderr.write("oomscope: %s\n" % " ".join(str(text).split()))
        sys.stderr.flush()
    except Exception:  # a closed stream
        pass


def describe_error(error):
    """Type and first line of an exception."""
    lines = str(error).strip().split("\n")
    return "%s: %s" % (type(error).__name__, lines[0]) if lines[0] else type(error).__name__


def attempt(what, function, *args, **options):
    """Calls a function. If it fails, one line says so, unless the error is `ignored`, and the result is None."""
    try:
        return function(*args)
    except options.get("ignored", ()):
        pass
    except Exception as error:
        log("%s: %s" % (what, describe_error(error)))


# Before CUDA ---------------------------------------------------------------------------------------------------------


def autoload():
    """The entry point of `torch.backends`. It must not raise: `import torch` would fail."""
    if os.environ.get("OOMSCOPE_DIR"):
        attempt("not recording", install, os.environ["OOMSCOPE_DIR"])


def run_as_sitecustomize(path):
    """Entry point if Python imports this file as `sitecustomize`."""
    control = os.path.dirname(os.path.abspath(path))
    real = os.path.realpath(control)
    ours = sys.__dict__.setdefault("_oomscope_sitecustomize", [])
    if real in ours:  # already running: the hidden sitecustomize also runs the next one, which is this file
        return
    ours.append(real)
    try:
        run_hidden_sitecustomize(ours)
    finally:
        if sys.version_info >= (3, 8):
            attempt("not recording", install, os.path.dirname(control))
        else:
            touch_marker(os.path.dirname(control), "saw-old-python")


def run_hidden_sitecustomize(ours):
    """Runs the environment's own sitecustomize, if any: the first one outside the directories `ours`."""
    from importlib import util
    from importlib.machinery import PathFinder

    others = [entry for entry in sys.path if os.path.realpath(entry or os.curdir) not in ours]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        module = util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def install(directory):
    """Arranges for `arm` to run once torch is imported. Only the first call in a process has an effect."""
    if getattr(sys, "_oomscope_installed", False):
        return
    sys._oomscope_installed = True
    touch_marker(directory, "saw-python")
    prepare_dry_run(directory)
    if "torch" not in sys.modules:
        wait_for_torch(directory)
    elif dry_run():
        log("a dry run must start before torch is imported: run Python without the options -I and -E")
        os._exit(2)
    else:
        arm(directory)


def wait_for_torch(directory):
    """Prepares the import of torch, and arms the recorder after it."""

    def before(module):
        if dry_run():
            dry_run().before_torch(os.path.dirname(module.__spec__.origin))

    def after(module):
        if dry_run():
            dry_run().after_torch(module)
        attempt("not recording", arm, directory)

    import_beside("imports").after("torch", after, before)


def prepare_dry_run(directory):
    """Prepares the dry run of this process, unless it uses a GPU."""
    control = os.path.join(os.path.abspath(directory), ".recorder")
    if os.path.exists(os.path.join(control, "dry-run.json")):
        # Another run's recorder may have started first, which has none of these files.
        sys.modules[__package__].__path__.append(os.path.join(control, "_oomscope"))
        sys._oomscope_dry_run = import_beside("dry_run").DryRun(control)


def arm(directory):
    """Starts recording when CUDA is initialized. A forked process that initializes CUDA itself is recorded, too."""
    torch = sys.modules["torch"]
    touch_marker(directory, "saw-torch")
    if not hasattr(torch._C, "_cuda_init"):
        touch_marker(directory, "saw-torch-without-cuda")
        return

    sys._oomscope_history = History(torch.cuda.memory, read_options(directory))
    attempt("sleeping memory will be counted", watch_sleep, ignored=ImportError)

    def start():
        attempt("not recording in process %d" % os.getpid(), lambda: Recorder(directory).start())

    torch.cuda._lazy_call(start)


def marker(directory, name):
    return os.path.join(directory, ".recorder", name)


def touch_marker(directory, name):
    """Creates an empty file that records how far any process came, for the last line of `oomscope run`."""
    path = marker(directory, name)
    if not os.path.exists(path):
        attempt("no marker", lambda: open(path, "w").close(), ignored=EnvironmentError)


def read_options(directory):
    """The options from the file that `oomscope run` wrote, else from the environment, else the defaults."""
    import json

    options = dict(DEFAULTS)
    for name, value in DEFAULTS.items():
        text = os.environ.get("OOMSCOPE_" + name.upper())
        if text:
            options[name] = type(value)(text)
    try:
        with open(marker(directory, "config")) as file:
            options.update(json.load(file))
    except OSError:
        pass
    return options


# With CUDA -----------------------------------------------------------------------------------------------------------


class Recorder(object):
    def __init__(self, directory):
        import socket
        import threading

        self.directory = os.path.abspath(directory)
        self.control = os.path.join(self.directory, ".recorder")
        self.options = read_options(directory)
        self.pid = os.getpid()
        self.name = "%s-%d" % (socket.gethostname(), self.pid)
        self.lock = threading.RLock()
        # Failed allocations, snapshots of these, and snapshots that other processes requested.
        self.failures = self.failure_snapshots = self.requested_snapshots = 0
        # time.monotonic() of the last snapshot of a failure, and of the last snapshot of any kind.
        self.last_failure_snapshot = self.last_snapshot = None
        # Contents of `dump` that this process has answered or written itself.
        self.seen_requests = set()
        self.is_finished = self.is_finishing = False

    def start(self):
        """Starts recording. torch calls this once CUDA is initialized in this process."""
        import atexit
        import threading

        self.options = sys._oomscope_history.start()
        load_describers(self.options)
        sys.modules["torch"]._C._cuda_attach_out_of_memory_observer(self.on_oom)
        if dry_run():
            dry_run().on_cuda(self)
        sys._oomscope_recorder = self
        atexit.register(self.at_exit)
        os.makedirs(self.control, exist_ok=True)
        self.seen_requests.add(self.request())
        self.write_state("served", "")
        self.write_state("recorded", "rank %s\n" % rank() if rank() else "\n")
        threading.Thread(target=self.watch_requests, name="oomscope", daemon=True).start()

    def on_oom(self, device, requested, total, free):
        """The allocator calls this when a request fails, on the requesting thread, before it raises the exception."""
        if os.getpid() != self.pid:
            return
        try:
            self.failures += 1
            if self.failures == 1:
                attempt("no state", os.unlink, self.path_of("served"), ignored=OSError)
            if dry_run():
                dry_run().ending.on_failure(device, requested)
            if self.should_write():
                self.failure_snapshots, self.last_failure_snapshot = self.failure_snapshots + 1, time.monotonic()
                oom = describe_failure(device, requested, free)
                others = self.read_answers()
                self.ask("%s %d" % (self.name, self.failures))  # torchrun kills them as soon as this one fails
                self.dump("oom", oom)
                self.last_failure_snapshot = time.monotonic()
                self.wait_for(others)
        except Exception as error:
            log("no snapshot of this failure: " + describe_error(error))

    def should_write(self):
        """Whether to write a snapshot of this failure: of the first ones, and if one is left, of one after a pause."""
        keep = self.options["keep"]
        if self.failure_snapshots >= keep:
            return False
        is_first = self.failure_snapshots < max(1, keep - 1)
        return is_first or time.monotonic() - self.last_failure_snapshot >= MIN_INTERVAL_S

    def at_exit(self):
        if os.getpid() != self.pid:
            return
        if dry_run():
            dry_run().ending.at_exit()
        self.finish()
        if isinstance(getattr(sys, "last_value", None), KeyboardInterrupt):
            end_by_interrupt()

    def finish(self):
        """Writes the last snapshot: also after failures that a dry run has survived."""
        if self.is_finished:
            return
        self.is_finished = self.is_finishing = True
        has_survived = dry_run() is not None and dry_run().ending.is_well()
        if self.options["at"] == "exit" and (self.failure_snapshots == 0 or has_survived) and not is_idle():
            path = self.dump("exit")
            if path and dry_run():
                dry_run().on_snapshot_at_exit(path, self.path_of("ended"))
        self.write_state("done", "gone")
        self.is_finishing = False

    def dump(self, reason, oom=None):
        """Writes a snapshot, and reports it on standard error. Returns its path."""
        with self.lock:
            unblock_signals = block_signals()
            self.write_state("done", WRITING)
            try:
                taken = snapshot(reason, oom, self.options)
                path = write_snapshot(taken, self.directory, file_stem(), reason)
                self.last_snapshot = time.monotonic()
                entries = sum(len(trace) for trace in taken["device_traces"])
                why = "a request for %s failed; " % format_bytes(oom["request_bytes"]) if oom else ""
                log("%swrote %s (%d entries, %s)" % (why, path, entries, format_bytes(os.path.getsize(path))))
                return path
            except Exception as error:
                log("no snapshot written: " + describe_error(error))
            finally:
                self.write_state("done", "%s %.6f" % (reason, time.time()))
                unblock_signals()

    # The other ranks ---------------------------------------------------------------------------------------------

    def request(self):
        return read_text(os.path.join(self.control, "dump"))

    def ask(self, request):
        self.seen_requests.add(request)
        write_atomically(os.path.join(self.control, "dump"), request)

    def watch_requests(self):
        """Answers requests, in a thread of its own.

        The main thread may be waiting in NCCL. A signal would kill a process that has no handler for it.
        """
        while True:
            time.sleep(POLL_S)
            try:
                request = self.request()
                if request and request not in self.seen_requests:
                    self.seen_requests.add(request)
                    self.answer(request)
            except Exception as error:
                log("no snapshot written: " + describe_error(error))

    def answer(self, request):
        """Writes a snapshot, unless the request is for a failure elsewhere and there is a recent one."""
        requested_at = time.monotonic()
        with self.lock:
            if dry_run() and dry_run().ending.is_told_to_end(request):
                if not is_idle():
                    self.dump("exit")
                self.is_finished = True
                return self.write_state("done", "gone")
            is_fresh = self.last_snapshot is not None and self.last_snapshot > requested_at - FRESH_S
            is_failure = not request.startswith(BY_HAND)
            if is_failure and (is_fresh or self.requested_snapshots >= self.options["keep"]):
                self.write_state("done", "have one %.6f" % time.time())
            else:
                self.requested_snapshots += is_failure
                self.dump("asked")

    def read_answers(self):
        """The state of every other recorded process, by name."""
        found = [name for name in os.listdir(self.control) if name.startswith("recorded-")]
        names = [name[len("recorded-") :] for name in found if not name.endswith(".part")]
        return {name: self.read_answer(name) for name in names if name != self.name}

    def read_answer(self, name):
        return read_text(os.path.join(self.control, "done-" + name))

    def wait_for(self, before):
        """Waits until every process that is alive has answered, at most `wait` seconds.

        `before` holds the states before the request. A process that has started to write gets more time: to write a
        full ring takes longer than to notice a request.
        """
        start, limit = time.monotonic(), self.options["wait"]
        waiting = {name: old for name, old in before.items() if old != "gone"}
        while waiting:
            now = {name: self.read_answer(name) for name in waiting}
            waiting = {name: old for name, old in waiting.items() if now[name] in (old, WRITING) and may_live(name)}
            is_writing = any(now[name] == WRITING for name in waiting)
            if not waiting or time.monotonic() >= start + limit * (WRITING_FACTOR if is_writing else 1):
                break
            time.sleep(POLL_S / 2)
        if waiting:
            seconds = time.monotonic() - start
            log("no snapshot from %d of %d other processes after %d s" % (len(waiting), len(before), seconds))

    def path_of(self, kind):
        return os.path.join(self.control, "%s-%s" % (kind, self.name))

    def write_state(self, kind, text):
        attempt("no state", write_atomically, self.path_of(kind), text, ignored=OSError)


def end_by_interrupt():
    """Makes this process end by SIGINT, as after Ctrl-C without the recorder.

    Python notes whether the last source text that it ran was interrupted. An import of `at_exit`, in which a namedtuple
    is made of a text, would replace that note: the exit code would be 1.
    """
    try:
        exec("raise KeyboardInterrupt")
    except KeyboardInterrupt:
        pass


def dry_run():
    """The dry run of this process, or None."""
    return getattr(sys, "_oomscope_dry_run", None)


def is_idle():
    """Whether this is a dry run that has used no GPU memory, such as a compiler's helper process."""
    return dry_run() is not None and dry_run().peak_bytes() == 0


def may_live(name):
    """Whether process HOST-PID may be alive. For another host that is unknown, so it may."""
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


def read_text(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def write_atomically(path, text):
    """Writes a small file. Readers see all of it or nothing."""
    part = "%s.%d.part" % (path, os.getpid())
    with open(part, "w") as file:
        file.write(text)
    for tries_left in reversed(range(20)):
        try:
            return os.replace(part, path)
        except PermissionError:  # Windows: also if another process is reading the file
            if os.name != "nt" or not tries_left:
                raise
            time.sleep(0.01)


# PyTorch's interface -------------------------------------------------------------------------------------------------


class History(object):
    """The memory history of this process, in which the program may also record one.

    The program's calls of `_record_memory_history` stay as they are: its `max_entries` and `stacks` replace those of
    the recorder. When the program ends its history, that of the recorder goes on.
    """

    def __init__(self, memory, options):
        import_beside("imports").around(memory, "_record_memory_history")(self.on_call)
        self.options, self.is_started = options, False
        # The options that a program's call replaces: those of the recorder, and of the program's history if it has one.
        self.settings, self.program = {name: options[name] for name in ("max_entries", "stacks")}, None

    def start(self):
        """Starts the history of the recorder, unless the program has started one. Returns the options."""
        self.is_started = True
        if self.program is None or dry_run():  # which needs its own
            self.options.update(self.settings)
            start_history(**self.settings)
        return self.options

    def on_call(self, original, *args, **kwargs):
        original(*args, **kwargs)
        attempt("the program's own memory history", self.note, settings_of_call(*args, **kwargs))

    def note(self, settings):
        self.program = settings
        self.options.update(self.program or self.settings)
        if self.program is None and self.is_started:
            start_history(**self.settings)


def settings_of_call(enabled="all", context="all", stacks="all", max_entries=sys.maxsize, *_, **others):
    """What a call of `_record_memory_history` sets, or None if it ends the history."""
    if isinstance(enabled, bool):  # as in 2.0
        stacks, max_entries = "python", others.get("trace_alloc_max_entries", 1)
    return {"max_entries": max_entries, "stacks": stacks} if enabled else None


def start_history(max_entries, stacks):
    """Starts recording in this process, on all devices. Raises if there is no caching allocator."""
    import torch

    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        raise RuntimeError("PYTORCH_NO_CUDA_MEMORY_CACHING is set, so there is no allocator to record")
    record = torch.cuda.memory._record_memory_history
    record = getattr(record, "__wrapped__", record)  # without `History`, which is for calls of the program
    # 2.11 loses an exception that is pending while a free with a stack is recorded during a backward pass.
    context = "alloc" if torch.__version__.startswith("2.11.") else "all"
    record("all", context=context, stacks=stacks, max_entries=max_entries)


def snapshot(reason, oom, options):
    """PyTorch's snapshot, with metadata under the key `oomscope`, which other viewers ignore."""
    import torch

    # Before the snapshot, which adds a million objects to this process. In a dry run the job waits for nothing.
    budget = (DRY_RUN_NAMES_S,) if dry_run() else ()
    named = describe_by("names", "variables have no names", *budget) if options.get("names") else None
    taken = take_without_inductor(torch)
    taken["oomscope"] = dict(metadata(reason, oom, options), names=named)
    taken["oomscope"]["program"] = source(taken)
    return taken


def take_without_inductor(torch):
    """PyTorch's snapshot, without an import of `torch._inductor`, which takes three seconds of processor time.

    To resolve frames of compiled code, PyTorch reads `torch._inductor.codecache`, which imports it. A program that has
    not imported it has no such frames.
    """
    if "torch._inductor" in sys.modules:
        return torch.cuda.memory._snapshot()
    placeholder = torch._inductor = type(sys)("torch._inductor")
    try:
        return torch.cuda.memory._snapshot()
    finally:
        if torch.__dict__.get("_inductor") is placeholder:
            del torch._inductor


def load_describers(options):
    """Loads what describes this process in a snapshot: at a failure an import would run the program's import hooks.

    The modules may be gone with their directory, in which no snapshot can be written either.
    """
    for name in ("names", "source") if options.get("names") else ("source",):
        attempt("snapshots without `_%s`" % name, import_beside, name, ignored=ImportError)


def import_beside(name):
    import importlib

    return importlib.import_module("._" + name, __package__)


def watch_sleep():
    """Notes when an engine that sleeps unmaps memory: `_sleep`."""
    for name, watch in import_beside("sleep").MODULES.items():
        if name in sys.modules:
            watch(sys.modules[name])
        else:
            import_beside("imports").after(name, watch)


def describe_by(name, without, *args):
    """What `describe` of the module `_NAME` returns, or None if the module is not loaded."""
    module = sys.modules.get("%s._%s" % (__package__, name))
    return module and attempt(without, module.describe, *args)


def source(taken):
    """The text of the program: `_source.describe`. None if it is not wanted."""
    is_wanted = os.environ.get("OOMSCOPE_SOURCE") != "0"
    return describe_by("source", "no text of the program", taken) if is_wanted else None


def describe_failure(device, requested, free):
    """What the allocator says of a failed request, for the metadata."""
    return {"device": device, "request_bytes": requested, "device_free_bytes": free}


def metadata(reason, oom, options):
    """What a reader cannot know from the snapshot. Only built-in types, so that unpickling needs no imports."""
    import socket

    import torch

    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return {
        "recorder": 1,
        "reason": reason,
        "oom": oom,
        "rank": rank(),
        "world_size": os.environ.get("WORLD_SIZE"),
        "restarts": os.environ.get("TORCHELASTIC_RESTART_COUNT"),
        "run_id": os.environ.get("TORCHELASTIC_RUN_ID") or os.environ.get("SLURM_JOB_ID"),
        "visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "argv": [str(arg) for arg in getattr(sys, "argv", [])],
        "torch": str(torch.__version__),
        "alloc_conf": os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF"),
        # In the order that the snapshot uses.
        "devices": [{"name": str(one.name), "total_bytes": int(one.total_memory)} for one in properties],
        "max_entries": options["max_entries"],
        "stacks": options["stacks"],
        "time_us": int(time.time() * 1e6),
        "threads": threads(),
        "sleep": describe_by("sleep", "sleeping memory is counted"),
        "dry_run": dry_run().describe() if dry_run() else None,
    }


def threads():
    """The stack of every Python thread without frames of this file, the requesting thread first.

    The threads of the backward pass have no Python frames. The thread that waits for them shows who called backward().
    """
    import itertools
    import threading

    objects = import_beside("objects")

    def frames_from(frame):
        others = (one for one in objects.outward(frame) if one.f_code.co_filename != __file__)
        return [objects.describe_frame(one) for one in itertools.islice(others, MAX_FRAMES)]

    names = {thread.ident: thread.name for thread in threading.enumerate()}
    this = threading.get_ident()
    found = [
        {"name": names.get(ident, "?"), "asked": ident == this, "frames": frames_from(frame)}
        for ident, frame in sys._current_frames().items()
        if names.get(ident) != "oomscope" or ident == this
    ]
    return sorted(found, key=lambda thread: not thread["asked"])


# Files ---------------------------------------------------------------------------------------------------------------


def rank():
    """The rank of this process in the job, from the launcher's variables, or None."""
    return next(filter(None, map(os.environ.get, RANK_VARIABLES)), None)


def file_stem():
    """First part of the names of this process's snapshots."""
    import socket

    name = (dry_run() and dry_run().ending.actor()) or socket.gethostname()
    return "rank%s" % rank() if rank() is not None else "%s-pid%d" % (name, os.getpid())


def write_snapshot(taken, directory, name, reason):
    """Writes `NAME-REASON1.pickle.gz`, or the next free number, completely or not at all. Returns the path."""
    import itertools

    os.makedirs(directory, exist_ok=True)
    for number in itertools.count(1):
        path = os.path.join(directory, "%s-%s%d.pickle.gz" % (name, reason, number))
        part = path + ".part"
        if not os.path.exists(path):
            try:
                os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                break
            except FileExistsError:
                pass
    write_to(taken, path, part)
    return path


def write_to(taken, path, part):
    """Writes `part`, then renames it to `path`. Removes it on failure.

    Only this user may read it: it has command lines and paths.
    """
    import gzip
    import pickle

    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(part, flags, 0o600), "wb") as raw:
            # Level 1 is as fast as no compression, and the file is a twelfth of the size.
            is_gzip = path.endswith(".gz")
            with gzip.GzipFile("", "wb", 1, raw) if is_gzip else raw as file:
                pickle.dump(taken, file, 4)
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.unlink(part)


def block_signals():
    """Delays SIGTERM and SIGINT on this thread until the returned function is called."""
    import signal

    mask = getattr(signal, "pthread_sigmask", None)  # not on Windows
    before = mask and mask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    return lambda: mask and mask(signal.SIG_SETMASK, before)


def format_bytes(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return "%d %s" % (size, unit) if unit == "B" else "%.1f %s" % (size, unit)
        size /= 1024.0
