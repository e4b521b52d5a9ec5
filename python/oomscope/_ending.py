"""How a process of a dry run ends: at the last line of its program, by an error, an exit code or a signal.

`Ending` also counts the failed requests, because a program may switch off the history in which they are recorded. A
process that ends without Python's own exit (`os._exit`, SIGTERM) first writes its snapshot here.
"""

import atexit
import builtins
import glob
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback

from . import _imports, _objects, _recorder, _usage

# Seconds that other threads get to end after the main one.
MAX_WAIT = 3
# Limit of frames, of failed requests, and of characters of an error message.
MAX_FRAMES = 40
MAX_FAILURES = 20
MAX_TEXT = 300
# `oomscope dry-run` writes the exit code into the snapshot in place of the question marks, if it is not the one below:
# Python's own exit does not show that of `raise SystemExit(3)`.
EXIT_CODE = "oomscope exit code: ???"


class Ending:
    def __init__(self):
        # The last end that was announced: see `describe`.
        self.end = {"kind": "running"}
        self.failures = []
        self.failure_count = 0
        # Writes the last snapshot; set when CUDA starts.
        self.recorder = None
        self.program = None
        self.pid = os.getpid()
        _imports.around(sys, "exit")(self.on_exit)
        if hasattr(builtins, "exit"):  # absent under -S
            _imports.around(type(builtins.exit), "__call__")(self.on_exit)
        _imports.around(os, "_exit")(self.on_immediate_exit)

    def on_cuda(self, recorder, program):
        """CUDA starts in this process; `recorder` writes the last snapshot, and `program` is oomscope."""
        self.pid, self.recorder, self.program = os.getpid(), recorder, program
        _imports.around(sys, "excepthook")(self.on_error)
        if threading.current_thread() is threading.main_thread():  # no other may set handlers
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU):  # of a batch system or a launcher
                if signal.getsignal(number) == signal.SIG_DFL:
                    signal.signal(number, self.on_signal)

    # Threads that go on ----------------------------------------------------------------------------------------------

    def on_error(self, original, *error):
        """An error has ended the main thread: Python now waits for other threads, perhaps for ever."""
        original(*error)
        register = getattr(threading, "_register_atexit", None)  # before it waits; since Python 3.9
        if register is not None and os.getpid() == self.pid:
            register(self.answer_before_waiting)

    def answer_before_waiting(self):
        """Writes the last snapshot and the answer now if other threads do not end by themselves."""
        deadline = time.monotonic() + MAX_WAIT
        threads = [one for one in threading.enumerate() if one is not threading.current_thread() and not one.daemon]
        for thread in threads:
            thread.join(max(0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            self.at_exit()
            self.finish()
            sys.stderr.write("oomscope: the main thread has ended, and the process waits for other threads\n")
            sys.stderr.flush()
            paths = sorted(glob.glob(os.path.join(glob.escape(self.recorder.directory), "*.pickle.gz")))
            subprocess.call([self.program, "run", "--page-on", *paths, "--ended-with", "1"], stdin=subprocess.DEVNULL)

    # Ways to end ---------------------------------------------------------------------------------------------------

    def on_exit(self, original, *arguments):
        value = arguments[-1] if arguments and not callable(arguments[-1]) else None
        code = int(value or 0) & 255 if value is None or isinstance(value, int) else 1
        self.end = self.exit_with(code, sys._getframe(2))
        return original(*arguments)

    def on_immediate_exit(self, original, status):
        if os.getpid() == self.pid and self.end["kind"] != "stopped":
            self.end = self.exit_with(status, sys._getframe(2))
            self.finish()
        original(status)

    def exit_with(self, code, frame):
        """An exit with `code`; within an `except` block, the error that led to it if the code is not 0."""
        error = sys.exc_info()[1]
        if code and error is not None and not isinstance(error, SystemExit):
            return describe_exception(error, code)
        return {"kind": "exit", "code": code, "frames": stack(frame)}

    def finish(self):
        if self.recorder is not None:
            self.recorder.finish()

    def on_signal(self, number, frame):
        if os.getpid() == self.pid:
            # Python exits already. A notebook's kernel has 2.5 s for that, then it gets SIGTERM.
            if self.recorder is not None and self.recorder.is_finishing:
                return
            self.end = {"kind": "signal", "code": int(number), "frames": stack(frame)}
            self.finish()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def at_exit(self):
        """Python ends: by an error that nothing caught, by an exit code, or at the program's last line."""
        error = getattr(sys, "last_value", None)
        if self.end["kind"] in ("signal", "stopped") or (self.end["kind"] == "exit" and self.end["code"]):
            return
        if error is not None and not isinstance(error, SystemExit):
            self.end = describe_exception(error, 1)
        elif self.end["kind"] != "exception":
            self.end = {"kind": "finished"}

    def is_well(self):
        """The program came to its end, and gave no error."""
        return self.end["kind"] == "finished" or (self.end["kind"] == "exit" and not self.end["code"])

    def is_told_to_end(self, request):
        """Whether `request` is of the driver of Ray, which kills this process next: it has come to its end."""
        is_told = request.startswith(JOB_ENDS)
        if is_told and self.end["kind"] == "running":
            self.end = {"kind": "finished"}
        return is_told

    def actor(self):
        """The name of the class of this process's actor, or None."""
        module = sys.modules.get("ray._private.worker")
        actors = getattr(getattr(module, "global_worker", None), "actors", None) or {}
        name = next((type(instance).__name__ for instance in list(actors.values())), "")
        return re.sub(r"[^A-Za-z0-9_]", "", name)[:40] or None

    # Failed requests -----------------------------------------------------------------------------------------------

    def on_failure(self, device, requested):
        self.failure_count += 1
        if len(self.failures) < MAX_FAILURES:
            frames = [frame for frame in stack(sys._getframe(1)) if "/.recorder/" not in frame["filename"]]
            main = threading.main_thread().ident
            if not frames and threading.get_ident() != main:  # the main thread waits for a backward pass
                frames = stack(sys._current_frames().get(main))
            self.failures.append({"bytes": int(requested), "frames": frames})

    def describe(self, last_read):
        """For the snapshot: how the process ended so far, and its failed requests.

        `last_read` is the last read of a value, as (operators, value, places): see `_usage.find`.
        """
        end = dict(self.end, final=EXIT_CODE)
        if end["kind"] == "exception" and last_read is not None:
            operators, value, places = last_read
            if _usage.reaches(places, [(frame["filename"], frame["line"]) for frame in end["frames"]]):
                end["read"] = {"operator": operators, "frames": describe_places(places), "value": value}
        return {"end": end, "failures": self.failures, "failure_count": self.failure_count}


def places_of(frame):
    """The frames from `frame` outward, as `_usage` takes them."""
    frames = itertools.islice(_objects.outward(frame), MAX_FRAMES)
    return [(frame.f_code, frame.f_lasti, frame.f_lineno or 0) for frame in frames]


def describe_places(places):
    return [{"filename": code.co_filename, "line": line, "name": code.co_name} for code, _, line in places]


def stack(frame):
    return describe_places(places_of(frame))


def describe_exception(error, code):
    places = [(frame.f_code, 0, line or 0) for frame, line in traceback.walk_tb(error.__traceback__)]
    lines = str(error).strip().split("\n")
    return {
        "kind": "exception",
        "code": code,
        "error": type(error).__name__,
        "message": lines[0][:MAX_TEXT],
        "frames": describe_places(places[::-1][:MAX_FRAMES]),
    }


# Ray, which kills its workers when the driver ends: they write their snapshots before ------------------------------

# Start of the request of a driver that ends.
JOB_ENDS = "the job ends "
# Mode of a worker of Ray that runs the user's program.
DRIVER = 0


def ask_before_shutdown(module):
    """Makes the driver ask the workers for their snapshots (`ray._private.worker`)."""

    def ask():
        worker = getattr(module, "global_worker", None)
        if not getattr(worker, "connected", False) or getattr(worker, "mode", None) != DRIVER:
            return
        recorder = getattr(sys, "_oomscope_recorder", None) or _recorder.Recorder(os.environ["OOMSCOPE_DIR"])
        before = recorder.read_answers()
        if before:
            recorder.ask("%s%d %d" % (JOB_ENDS, os.getpid(), time.time_ns()))
            recorder.wait_for(before)

    @_imports.around(module, "shutdown")
    def shutdown(original, *args, **kwargs):
        ask()
        return original(*args, **kwargs)

    atexit.register(ask)  # runs before the same function of Ray, which was registered earlier
