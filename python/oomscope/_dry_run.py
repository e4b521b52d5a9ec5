"""A dry run in a Python process: CUDA without a GPU, and a ledger of what such a run cannot know.

The recorder calls `before_torch`, which loads the stub (`_stub`) before torch's own libraries, which then find CUDA in
it, and `after_torch`. `describe` returns the ledger for the snapshot: the code locations that read values of the
device, calls whose memory only a closed library knows, missing entry points.
"""

import ast
import collections
import ctypes
import functools
import glob
import itertools
import json
import os
import re
import shutil
import sys
import time

from . import (
    _children,
    _ending,
    _files,
    _generation,
    _imports,
    _kernels,
    _objects,
    _observed,
    _operators,
    _ranks,
    _serving,
    _sglang,
    _stub,
    _usage,
    _values,
    _vllm,
)

# Limit of code locations in the ledger. Reads at further ones are only counted.
MAX_LOCATIONS = 1000
# Limit of lines in a message.
MAX_NAMED = 5
# A location that has read so many values, while no device used more memory, may wait for a value that never comes.
MIN_READS_TO_STOP = 1000
# Host tensors larger than this are not filled with random numbers.
LARGE_BYTES = 1 << 20
# Methods that fill a tensor in place, and methods that change the numbers of a filled one.
FILL_METHODS = "normal_ uniform_ random_ exponential_ log_normal_ cauchy_ geometric_ bernoulli_".split()
CHANGE_METHODS = "erfinv_ mul_ add_ sub_ div_ clamp_ zero_ fill_".split()
# Code that asks how much memory there is, and takes no more for that: PyTorch, the recorder, and the loading of a
# model, which asks how much of it fits. A serving engine divides the memory as its page says.
NOT_ADAPTING = "/torch/ /.recorder/ /oomscope/_recorder.py transformers/modeling_utils.py /vllm/ /sglang/".split()
# Same order as the enum in stub/ledger.c.
UNKNOWN_SIZES = ("cudnn", "cusolver", "cufft", "cusparse", "attention", "timings")
# The type workspace in stub/workspaces.c.
WORKSPACE_FIELDS = 6
# What a read gave in place of an unknown value, by its origin: see `_shadow`.
VALUE_NAMES = ((8, "maximum"), (2, "assumed"), (1, "random"), (4, "finite"))
# A place in the snapshot for a number: see `src/cli/dry_run/other_branches.rs`.
OTHER_BRANCHES = "oomscope other branches: " + 16 * "?"
# Of the system: size of a page, and the advice to drop pages, which then read as zero.
PAGE = 4096
MADV_DONTNEED = 4

# Modules of Triton, and their classes that launch kernels.
TRITON_LAUNCHERS = {
    "triton.runtime.jit": "JITFunction",
    "torch._inductor.runtime.triton_heuristics": "CachingAutotuner",
}

READ_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)


class DryRun:
    def __init__(self, control):
        with open(os.path.join(control, "dry-run.json")) as file:
            self.options = json.load(file)
        self.control = control
        # Compiled code, which an earlier run left for this one or not: a compiler allocates, and what it finds it does
        # not compile.
        self.cache = os.environ.setdefault("OOMSCOPE_CACHE", os.path.join(control, "cache"))
        os.environ.update(VLLM_CACHE_ROOT=self.cache, TORCHINDUCTOR_CACHE_DIR=os.path.join(self.cache, "inductor"))
        self.library = None
        # By operators and frames: count, bytes, time of the first read, its frames with instructions, and the truths of
        # the condition that it is in.
        self.reads = {}
        # The last one, and the value that it gave.
        self.last_read = None
        # Computes small tensors on the host; None if this torch has no way for it.
        self.operators = None
        self.set_values = _values.SetValues(self.options.get("values", ()))
        self.observed = _observed.Observed()
        self.skipped_reads = 0
        # Reads of known values by instruction, which may wait for another value.
        self.known_at = collections.Counter()
        # By instruction that asks how much memory there is: the frames with instructions, or None.
        self.memory_queries = {}
        # Large host tensors that were not filled: bytes by address.
        self.unfilled = {}
        self.unfilled_bytes = 0
        # Peak memory of any device, and time.monotonic() when it was reached.
        self.peak = (0, time.monotonic())
        # Kept alive here: ctypes does not hold on to a callback.
        self.read_callback = READ_CALLBACK(self.on_read)
        self.ending = _ending.Ending()
        _children.watch(os.path.dirname(control))
        try:
            self.stderr = os.dup(2)
        except OSError:  # it is closed
            self.stderr = None
        _imports.after("ray._private.worker", _ending.ask_before_shutdown)
        for module, hook in _sglang.HOOKS.items():  # one of them imports torch
            _imports.after(module, hook)
        self.overlay = None
        if self.options["redirect_files"]:
            self.overlay = _files.Overlay(os.path.dirname(control))
            self.overlay.install()
            _imports.after("safetensors", self.overlay.after_safetensors)
            # wandb writes to a temporary directory if this one does not exist.
            _imports.after("wandb", lambda _: os.makedirs(self.overlay.root, exist_ok=True))
            _imports.after("sqlite3", self.overlay.after_sqlite)
            _imports.after("huggingface_hub.hf_api", _files.keep_off_hub)

    # Loading -----------------------------------------------------------------------------------------------------

    def before_torch(self, directory):
        """Loads the stub for the torch in `directory`. Ends the process on failure: the program has no other CUDA."""
        provide_toolkit(directory)
        try:
            self.load(_stub.prepare(directory, os.path.join(self.control, "stub")))
        except Exception as error:
            kind = "" if isinstance(error, _stub.StubError) else type(error).__name__ + ": "
            self.write_error("oomscope: no dry run: %s%s\n" % (kind, error))
            os._exit(2)

    def write_error(self, text):
        """Writes to the standard error with which the process started: pytest loses its own at this end."""
        try:
            os.write(self.stderr, text.encode("utf-8", "replace"))
        except (OSError, TypeError):
            sys.stderr.write(text)
            sys.stderr.flush()

    def load(self, directory):
        os.environ.update((name, str(value)) for name, value in self.options["environment"].items())
        local_ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
        if local_ranks.isdigit() and int(local_ranks) > int(os.environ.get("STUBCUDA_DEVICES", "1")):
            os.environ["STUBCUDA_DEVICES"] = local_ranks  # one device per rank on this machine
        os.environ["TRITON_LIBCUDA_PATH"] = directory
        os.environ["VLLM_NCCL_SO_PATH"] = os.path.join(directory, _stub.LIBRARY)
        mode = os.RTLD_NOW | os.RTLD_GLOBAL
        self.library = ctypes.CDLL(os.path.join(directory, _stub.LIBRARY), mode)
        ctypes.CDLL(os.path.join(directory, _stub.NVML), mode)
        self.library.stub_unknown_sizes.restype = ctypes.POINTER(ctypes.c_uint64)
        self.library.stub_workspaces.restype = ctypes.POINTER(ctypes.c_uint64)
        self.library.stub_peak_bytes.restype = ctypes.c_uint64
        self.library.stub_missing.restype = ctypes.c_char_p
        self.library.stub_catch_crashes()
        self.library.stub_on_read(self.read_callback)
        import atexit

        atexit.register(self.library.stub_on_read, None)

    def after_torch(self, torch):
        self.observed.start()
        self.skip_large_fills(torch)
        self.note_memory_queries(torch)
        if not os.environ.get("OOMSCOPE_NO_VALUES"):  # set by tests
            self.compute_values(torch)
        validate_no_parameters(torch.distributions.Distribution)
        if self.overlay:
            self.overlay.after_torch(torch)
        _ranks.after_torch(torch, self.options["alone"], self.library.stub_announce_group)
        if self.options["steps_by_parameter"]:
            step_by_parameter()
        _generation.length = self.options["generate"]
        _imports.after("transformers.generation.utils", _generation.end_by_length)
        _imports.after("vllm.v1.worker.gpu.model_runner", _generation.sample_tokens)
        _imports.after("flashinfer.jit.core", _kernels.load_idle_modules)
        _imports.after("cutlass.cutlass_dsl.tvm_ffi_provider", _kernels.launch_nothing)
        _imports.after("deepspeed.runtime.zero.utils", _ranks.agree_on_parameters)
        for module, hook in _vllm.HOOKS.items():
            _imports.after(module, hook)

    def note_memory_queries(self, torch):
        """Notes the lines that ask how much memory the device has or has free: the program may adapt to that."""
        cuda, properties = torch.cuda, torch._C._CudaDeviceProperties
        free_memory, total_memory = cuda.mem_get_info, properties.total_memory

        def note(frame):
            key = frame.f_code, frame.f_lasti
            if len(self.memory_queries) < MAX_LOCATIONS and key not in self.memory_queries:
                is_own = any(part in frame.f_code.co_filename for part in NOT_ADAPTING)
                self.memory_queries[key] = None if is_own else _ending.places_of(frame)

        def mem_get_info(*args, **kwargs):
            note(sys._getframe(1))
            return free_memory(*args, **kwargs)

        def total(device):
            note(sys._getframe(1))
            return total_memory.__get__(device)

        cuda.mem_get_info = cuda.memory.mem_get_info = mem_get_info
        properties.total_memory = property(total)

    def memory_query(self, files):
        """The stack of the first query whose answer is not only printed or logged, or None."""
        queries = filter(None, self.memory_queries.values())
        used = (one for one in queries if _usage.find(one, files=files, seen=self.observed)[0] != _usage.REPORT)
        return next(map(_ending.describe_places, used), None)

    def compute_values(self, torch):
        """Computes small tensors on the host from now on, if this torch has a way for it."""
        try:
            self.operators = _operators.install(torch, self.library, self.set_values)
        except Exception as error:
            sys.stderr.write("oomscope: dry run: every value of the GPU is zero: %s\n" % error)
        if self.operators is not None:
            for module, launcher in TRITON_LAUNCHERS.items():
                _imports.after(module, functools.partial(self.operators.after_triton, launcher))
            _imports.after("torch._meta_registrations", self.operators.pass_by)
            _imports.after("torchvision", lambda _: self.operators.register("torchvision"))

    def on_cuda(self, recorder):
        """The recorder has started the history, which the program cannot switch off: the verdict needs it."""
        memory = sys.modules["torch"].cuda.memory
        memory._record_memory_history = lambda *_, **__: None
        self.ending.on_cuda(recorder, self.options["program"])

    def on_snapshot_at_exit(self, path, state):
        """The snapshot `path` says how this process ends. If it ends otherwise, the stub writes that to `state`."""
        self.warn_unused_values()
        expected = self.ending.end.get("code", 0)
        self.library.stub_check_exit_code(expected, os.fsencode(state), os.fsencode(path))

    # Reads of device values --------------------------------------------------------------------------------------

    def on_read(self, operators, size, destination, source):
        """The stub calls this when the host reads `size` bytes of a device within `operators`, innermost first.

        `destination` holds zeros, in place of which this may write other values.
        """
        try:
            innermost = sys._getframe().f_back  # None in a thread without Python
            places = _ending.places_of(innermost)
            frames = [(code.co_filename, line, code.co_name) for code, _, line in places]
            while innermost is not None and innermost.f_code.co_filename.endswith("torch/utils/_device.py"):
                innermost = innermost.f_back  # `with torch.device(..)` is around every operator
            name = (operators or b"").decode("ascii", "replace")
            known = self.operators.read(name, source, size) if self.operators is not None else None
            is_mask = name.split(" ")[0] == "nonzero"  # how many of its elements are set, `_operators` knows
            if known is not None and (is_mask or self.set_values.at(frames) in (None, _values.ANOTHER)):
                ctypes.memmove(destination, known[0], size)
                if not known[1] or (is_mask and _usage.is_harmless(places)):
                    place = innermost and (innermost.f_code, innermost.f_lasti)
                    self.known_at[place] += 1
                    self.stop_if_stuck(self.known_at[place], frames)
                    return
            else:
                known = None
                self.last_read = (name, self.write_value(name, size, destination, frames, innermost), places)
            key = (name, tuple(frames), known[1] if known else None)
            read = self.reads.get(key)
            if read is None:
                if len(self.reads) >= MAX_LOCATIONS:
                    self.skipped_reads += 1
                    return
                if innermost is not None and (_usage.is_surely_zero(innermost) or selects_an_element(innermost)):
                    places = []
                read = self.reads[key] = [0, size, time.time(), places, set()]
            read[0] += 1
            read[4].add(innermost and _values.condition(innermost))
            self.stop_if_stuck(read[0], frames)
        except Exception as error:
            sys.stderr.write("oomscope: dry run: a read is not in the ledger: %s\n" % error)

    def write_value(self, operators, size, destination, frames, innermost):
        """Writes the value of a read, if it is not zero. Returns it as text."""
        text = self.set_values.at(frames)
        asserted = asserted_truth(innermost) if size == 1 else None
        is_true = size == 1 and is_true_for_zeros(operators, innermost) if asserted is None else asserted
        if text == _values.ANOTHER:
            is_number = size > 1 and _values.SIZE_OPERATORS.isdisjoint(operators.split())
            text = str(_values.OTHER_NUMBER if is_number else not is_true) if is_number or size == 1 else None
        if text is not None:
            kind = self.operators.kind_of_read(operators) if self.operators is not None else None
            data = self.set_values.encode(text, operators, size, kind)
            if data:
                ctypes.memmove(destination, data, size)
                return text
        if size != 1:
            return "0"
        if is_true:
            ctypes.memmove(destination, b"\1", 1)
        return str(bool(is_true))

    def warn_unused_values(self):
        unused = self.set_values.unused()
        if not unused:
            return
        lines = list(dict.fromkeys("%s:%d" % users_line(frames) for _, frames, _ in self.reads))
        known = ", ".join(lines[:MAX_NAMED]) or "no line"
        self.write_error(
            "oomscope: dry run: --value %s: the program reads no value there; it reads unknown ones at %s\n"
            % (", ".join(unused), known)
        )

    def stop_if_stuck(self, count, frames):
        """Ends the program if it has read `count` values at one location and its memory no longer grows."""
        if count < MIN_READS_TO_STOP or count % 100:
            return
        now = time.monotonic()
        peak = self.peak_bytes()
        if peak > self.peak[0]:
            self.peak = (peak, now)
        patience = self.options["patience"]
        is_over = os.getpid() != self.ending.pid or self.ending.end["kind"] == "stopped"
        if is_over or not patience or now - self.peak[1] < patience:
            return
        self.ending.end = {"kind": "stopped"}
        sys.stderr.write(
            "oomscope: dry run: stopped: for %d s the program has read GPU values at %s:%d, and its memory has not "
            "grown; either its steps repeat, or it waits for a value that does not change here (--patience)\n"
            % (now - self.peak[1], *users_line(frames))
        )
        self.ending.finish()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    # Host memory -------------------------------------------------------------------------------------------------

    def skip_large_fills(self, torch):
        """Makes in-place fills of large host tensors set them to zero.

        The system then has no pages for them. The values do not matter: on the device all values are zero.
        """

        def is_skipped(tensor):
            is_host_float = tensor.device.type == "cpu" and tensor.is_floating_point()
            is_large = is_host_float and tensor.numel() * tensor.element_size() > LARGE_BYTES
            return is_large and type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.is_contiguous()

        def fill(original, tensor, *args, **kwargs):
            name = original.__name__
            if not is_skipped(tensor):
                return original(tensor, *args, **kwargs)
            address, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
            is_unfilled = self.unfilled.get(address) == size
            if name in CHANGE_METHODS and not is_unfilled:
                return original(tensor, *args, **kwargs)
            if name in FILL_METHODS or name == "zero_":
                zero_pages(address, size)
            if not is_unfilled:
                if len(self.unfilled) > 100000:
                    self.unfilled.clear()
                self.unfilled[address] = size
                self.unfilled_bytes += size
            return tensor

        for name in FILL_METHODS + CHANGE_METHODS:
            _imports.around(torch.Tensor, name)(fill)

    def peak_bytes(self):
        return max(self.library.stub_peak_bytes(device) for device in range(self.library.stub_device_count()))

    def absent_device(self):
        """The highest device that the program wanted to use and that does not exist, or None."""
        device = self.library.stub_absent_device()
        error = str(getattr(sys, "last_value", None))
        is_absent = device >= 0 or re.search(r"[Ii]nvalid device (id|ordinal)", error)
        return max(device, self.library.stub_device_count()) if is_absent else None

    # Result ------------------------------------------------------------------------------------------------------

    def describe(self):
        """The ledger for the snapshot: only built-in types."""
        reads, files = [], _usage.users_files()
        for (names, frames, origin), (count, size, first, places, truths) in self.reads.items():
            is_set = self.set_values.at(frames) is not None
            used, place = ("set", None) if is_set else _usage.find(places, truths, names, files, self.observed)
            reads.append(
                {
                    "operators": names,
                    "count": count,
                    "bytes": int(size),
                    "first_us": int(first * 1e6),
                    "frames": describe_frames(frames),
                    "value": next((name for bit, name in VALUE_NAMES if (origin or 0) & bit), "zero"),
                    "usage": used,
                    "decided_at": describe_frames([place]) if place else None,
                }
            )
        counts = self.library.stub_unknown_sizes()
        missing = itertools.takewhile(bool, map(self.library.stub_missing, itertools.count()))
        count = ctypes.c_uint64()
        numbers = self.library.stub_workspaces(ctypes.byref(count))
        starts = range(0, count.value * WORKSPACE_FIELDS, WORKSPACE_FIELDS)
        workspaces = [[int(number) for number in numbers[start : start + WORKSPACE_FIELDS]] for start in starts]
        return {
            **{key: self.options[key] for key in ("gpu", "capability", "total_bytes", "context_bytes")},
            "communicators": ctypes.c_uint64.in_dll(self.library, "stub_communicators").value,
            "reads": reads,
            "other_branches": OTHER_BRANCHES,
            "reads_untold": self.skipped_reads,
            "reads_known": sum(self.known_at.values()),
            "unsized": {name: int(counts[at]) for at, name in enumerate(UNKNOWN_SIZES)},
            "workspaces": workspaces,
            "missing": [name.decode("ascii", "replace") for name in missing],
            "unfilled_bytes": self.unfilled_bytes,
            "stopped": self.ending.end["kind"] == "stopped",
            "alone": _ranks.is_alone,
            "absent_device": self.absent_device(),
            "generated": _generation.length if _generation.is_used else None,
            "free_memory_query": self.memory_query(files),
            "serving": _serving.describe(),
            **self.ending.describe(self.last_read),
        }


def zero_pages(address, size):
    """Sets host memory to zero, and gives its pages back to the system."""
    start, end = -(-address // PAGE) * PAGE, (address + size) // PAGE * PAGE
    libc = ctypes.CDLL(None)
    is_done = start < end and libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_DONTNEED) == 0
    edges = [(address, start - address), (end, address + size - end)] if is_done else [(address, size)]
    for edge, length in edges:
        ctypes.memset(edge, 0, length)


def is_true_for_zeros(operators, innermost):
    """Whether `innermost` reads a truth that follows from zeros."""
    is_true = not _values.TRUE_OPERATORS.isdisjoint(operators.split())
    return is_true or bool(innermost is not None and _values.compare(innermost))


def asserted_truth(frame):
    """What `frame` asserts of the value that it reads, or None: if that fails, the program takes no more memory."""
    source, node = _usage.read_by(frame) if frame else (None, None)
    if node is None:
        return None
    truth = True
    while isinstance(source.parents.get(node), (ast.UnaryOp, ast.BoolOp)):
        node = source.parents[node]
        truth ^= isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    parent = source.parents.get(node)
    return truth if isinstance(parent, ast.Assert) and node is parent.test else None


def selects_an_element(frame):
    """Whether `frame` reads an index of a tensor, as in `boxes[first, :2]`: its result has the same size for each."""
    _, node = _usage.read_by(frame)
    if not isinstance(node, ast.Subscript):
        return False
    slices = [part for part in ast.walk(node.slice) if isinstance(part, ast.Slice)]
    bounds = [bound for part in slices for bound in (part.lower, part.upper, part.step) if bound is not None]
    indexed = _objects.variable(frame, getattr(node.value, "id", None))
    is_tensor = isinstance(indexed, sys.modules["torch"].Tensor)
    return is_tensor and all(isinstance(bound, (ast.Constant, ast.UnaryOp)) for bound in bounds)


def users_line(frames):
    return next((frame for frame in frames if _objects.is_users_file(frame[0])), frames[0])[:2]


def describe_frames(frames):
    return [{"filename": file, "line": line, "name": name} for file, line, name in frames]


def provide_toolkit(torch_directory):
    """Names the CUDA compiler of NVIDIA's packages if there is no other: some libraries look for one at import."""
    has_own = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or shutil.which("nvcc")
    site = glob.escape(os.path.dirname(os.path.abspath(torch_directory)))
    compilers = sorted(glob.glob(os.path.join(site, "nvidia", "*", "bin", "nvcc")))
    if compilers and not has_own and not os.path.exists("/usr/local/cuda"):
        os.environ["CUDA_HOME"] = os.path.dirname(os.path.dirname(compilers[-1]))


def validate_no_parameters(distribution):
    """Keeps distributions from reading whether their parameters are valid, which zeros are not."""

    @_imports.around(distribution, "__init__")
    def __init__(original, self, *args, validate_args=None, **kwargs):
        original(self, *args[:2], validate_args=False, **kwargs)

    distribution.set_default_validate_args(False)


def step_by_parameter():
    """Makes every optimizer of PyTorch work on one parameter after the other, as with `foreach=False`."""
    from torch.optim import optimizer

    def before_step(stepping, _args, _kwargs):
        for group in stepping.param_groups:
            if "foreach" in group and not group.get("fused"):
                group["foreach"] = False

    optimizer.register_optimizer_step_pre_hook(before_step)
