"""A dry run in a Python process: CUDA without a GPU, and a ledger of what such a run cannot know.

`oomscope dry-run` puts this file beside the recorder. `before_torch` is called as the program imports torch: it has the
stub built (`_stub`) and loaded before torch's own libraries, which then find CUDA there. `after_torch` follows the
import. `describe` is what the recorder writes under `oomscope.dry_run` of a snapshot.

The ledger: each line that reads a value of a device (all are zero), by which operators, how often, first when; calls
whose memory only a closed library knows; entry points that are missing; large tensors of the host that were not filled.
"""

import ctypes
import importlib.util
import json
import os
import sys
import time

import _oomscope_ranks as ranks
import _oomscope_stub as stub

# Lines that are told apart; reads by further lines are counted together.
MOST_LINES = 1000
# Frames of a line that are written down.
MOST_FRAMES = 40
# A line that has read so many values while no device lent more memory may wait for one that never comes.
PATIENT_READS = 1000
# Tensors of the host that are larger are not filled with random numbers, bytes.
LARGE = 1 << 20
# What fills or changes numbers in place, one by one.
FILLS = ("normal_", "uniform_", "random_", "exponential_", "log_normal_", "cauchy_", "geometric_", "bernoulli_")
CHANGES = ("erfinv_", "mul_", "add_", "sub_", "div_", "clamp_", "zero_", "fill_")
# In the order of the stub's own list.
UNSIZED = ("cudnn", "cusolver", "cufft", "cusparse", "timings")

READER = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64)


class DryRun:
    """The dry run of this process."""

    def __init__(self, control):
        with open(os.path.join(control, "dry-run.json")) as file:
            self.options = json.load(file)
        self.control = control
        self.library = None
        self.lines = {}
        self.untold = 0
        self.unfilled = {}
        self.unfilled_bytes = 0
        self.pid = os.getpid()
        # The most memory that any device lent, and since when.
        self.most = (0, time.monotonic())
        self.stopped = None
        self.reader = READER(self.on_read)

    # Loading -----------------------------------------------------------------------------------------------------

    def before_torch(self, directory):
        """Has CUDA be the stub, for the torch in `directory`. Without it the program ends: it would use no GPU at all."""
        try:
            self.load(stub.ready(directory, os.path.join(self.control, "stub")))
        except Exception as error:
            what = "" if isinstance(error, stub.StubError) else type(error).__name__ + ": "
            sys.stderr.write("oomscope: no dry run: %s%s\n" % (what, error))
            sys.stderr.flush()
            os._exit(2)

    def load(self, place):
        for name, value in self.options["environment"].items():
            os.environ[name] = str(value)
        beside = os.environ.get("LOCAL_WORLD_SIZE", "1")
        if beside.isdigit() and int(beside) > int(os.environ.get("STUBCUDA_DEVICES", "1")):
            os.environ["STUBCUDA_DEVICES"] = beside  # a device for each rank of this machine
        os.environ["TRITON_LIBCUDA_PATH"] = place
        mode = os.RTLD_NOW | os.RTLD_GLOBAL
        self.library = ctypes.CDLL(os.path.join(place, stub.LIBRARY), mode)
        ctypes.CDLL(os.path.join(place, stub.NVML), mode)
        self.library.stub_unknown_sizes.restype = ctypes.POINTER(ctypes.c_uint64)
        self.library.stub_workspaces.restype = ctypes.POINTER(ctypes.c_uint64)
        self.library.stub_peak_bytes.restype = ctypes.c_uint64
        self.library.stub_missing.restype = ctypes.c_char_p
        self.library.stub_catch_crashes()
        self.library.stub_on_read(self.reader)
        import atexit

        atexit.register(self.library.stub_on_read, None)

    def after_torch(self, torch):
        self.leave_large_tensors(torch)
        ranks.after_torch(torch, self.options["alone"])
        sys.meta_path.insert(0, After("transformers.generation.utils", end_generation))

    # Values that are read ----------------------------------------------------------------------------------------

    def on_read(self, operators, size):
        """Called by the stub as the host reads `size` bytes of a device, in the `operators`, innermost first."""
        try:
            frames, frame = [], sys._getframe(1) if sys.version_info >= (3, 8) else None
            while frame is not None and len(frames) < MOST_FRAMES:
                frames.append((frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
                frame = frame.f_back
            name = (operators or b"").decode("ascii", "replace")
            key = (name, tuple(frames))
            line = self.lines.get(key)
            if line is None:
                if len(self.lines) >= MOST_LINES:
                    self.untold += 1
                    return
                line = self.lines[key] = [0, size, time.time(), 0.0]
            line[0] += 1
            line[3] = time.time()
            if line[0] >= PATIENT_READS and line[0] % 100 == 0:
                self.lose_patience(frames)
        except Exception as error:
            sys.stderr.write("oomscope: dry run: a read is not in the ledger: %s\n" % error)

    def lose_patience(self, frames):
        """Ends the program where a line goes on to read values, and nothing else comes of it."""
        now = time.monotonic()
        most = self.most_used()
        if most > self.most[0]:
            self.most = (most, now)
        patience = self.options["patience"]
        if not patience or now - self.most[1] < patience or os.getpid() != self.pid or self.stopped:
            return
        self.stopped = True
        own = next(
            (frame for frame in frames if "-packages" not in frame[0] and "/lib/python" not in frame[0]), frames[0]
        )
        sys.stderr.write(
            "oomscope: dry run: stopped: %s:%d has read values of the GPU again and again for %d s, and the program took no "
            "more memory: it repeats its steps, or waits for a value that is always zero here (--patience)\n"
            % (own[0], own[1], now - self.most[1])
        )
        recorder = getattr(sys, "_oomscope_recorder", None)
        if recorder is not None and not recorder.kept:
            recorder.dump("exit")
            recorder.tell("done", "gone")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    # Memory of the host ------------------------------------------------------------------------------------------

    def leave_large_tensors(self, torch):
        """A large tensor of the host that is only filled is left as it is: zero, and not a page of it taken."""
        kind = torch.Tensor

        def is_left(tensor):
            return (
                tensor.device.type == "cpu"
                and tensor.is_floating_point()
                and type(tensor) in (kind, torch.nn.Parameter)
            )

        def fill(name, fills):
            before = getattr(kind, name, None)
            if before is None:
                return

            def filled(tensor, *args, **named):
                size = tensor.numel() * tensor.element_size() if is_left(tensor) else 0
                if size <= LARGE or not tensor.is_contiguous():
                    return before(tensor, *args, **named)
                at = tensor.data_ptr()
                if not fills and self.unfilled.get(at) != size:
                    return before(tensor, *args, **named)
                if self.unfilled.get(at) != size:
                    if len(self.unfilled) > 100000:
                        self.unfilled.clear()
                    self.unfilled[at] = size
                    self.unfilled_bytes += size
                return tensor

            filled.__name__ = name
            setattr(kind, name, filled)

        for name in FILLS:
            fill(name, True)
        for name in CHANGES:
            fill(name, False)

    def most_used(self):
        """The most memory that any device lent at once, bytes."""
        return max(self.library.stub_peak_bytes(index) for index in range(16))

    # Telling -----------------------------------------------------------------------------------------------------

    def describe(self):
        """Plain types alone, for the snapshot."""
        reads = []
        for (operators, frames), (count, size, first, last) in self.lines.items():
            reads.append(
                {
                    "operators": operators,
                    "count": count,
                    "bytes": int(size),
                    "first_us": int(first * 1e6),
                    "last_us": int(last * 1e6),
                    "frames": [{"filename": file, "line": line, "name": name} for file, line, name in frames],
                }
            )
        reads.sort(key=lambda read: read["first_us"])
        counts = self.library.stub_unknown_sizes()
        missing, index = [], 0
        while self.library.stub_missing(index):
            missing.append(self.library.stub_missing(index).decode("ascii", "replace"))
            index += 1
        told = ctypes.c_uint64()
        rows = self.library.stub_workspaces(ctypes.byref(told))
        workspaces = [[int(rows[5 * at + part]) for part in range(5)] for at in range(told.value)]
        return {
            "gpu": self.options["gpu"],
            "capability": self.options["capability"],
            "total_bytes": self.options["total_bytes"],
            "context_bytes": self.options["context_bytes"],
            "reads": reads,
            "reads_untold": self.untold,
            "unsized": {name: int(counts[at]) for at, name in enumerate(UNSIZED)},
            "workspaces": workspaces,
            "missing": missing,
            "unfilled_bytes": self.unfilled_bytes,
            "stopped": bool(self.stopped),
            "alone": self.options["alone"],
        }


class After:
    """Finds the module `name` as the other finders do, and does `then` with it once it is imported."""

    def __init__(self, name, then):
        self.name = name
        self.then = then

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = getattr(spec.loader, "exec_module", None) if spec else None
        if execute is not None:

            def exec_module(module):
                execute(module)
                self.then(module)

            spec.loader.exec_module = exec_module
        return spec


def end_generation(module):
    """`generate` of transformers asks the device whether every sequence is done, which is never so where all is zero. How
    long one may become the host knows: generation goes on until then, which is the most that it can need."""
    criterion = getattr(module, "MaxLengthCriteria", None)
    loop = getattr(module, "GenerationMixin", None)
    unfinished = getattr(loop, "_has_unfinished_sequences", None)
    if criterion is None or unfinished is None:
        return
    is_reached, left = criterion.__call__, []

    def reached(self, input_ids, *args, **named):
        left[:] = [input_ids.shape[-1] < self.max_length]
        return is_reached(self, input_ids, *args, **named)

    def has_unfinished(self, *args, **named):
        goes_on = left[0] if left else unfinished(self, *args, **named)
        del left[:]
        return goes_on

    criterion.__call__ = reached
    loop._has_unfinished_sequences = has_unfinished
