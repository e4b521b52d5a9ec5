"""Computes small tensors of the device on the host, operator by operator, into `_shadow`.

PyTorch's dispatcher has a key that nothing uses, `CustomRNGKeyId`, just above the kernels of a device. With that key in
the thread's set, every operator with a kernel for CUDA comes here first, and goes on to that kernel: below autograd,
autocast, functorch, and the modes and subclasses of Python, none of which notices. A dispatch mode would: under one,
torch.compile does not compile. The kernel at this key is C (stub/operators.c), because one in Python would be on the
stack of every request. It calls `before` and `after` of an `Operator`.

Not intercepted: views, which share the values of their storage, operators without a kernel of their own, which call
others, and those on sparse and nested tensors, whose kernels precede the key: their work on the device forgets all
values. Not computed: large computations of floating point, which decide nothing before they are compared or drawn from.

A kernel may call operators, such as `zeros` for the buffer into which it adds. They come here as well: a mask's
`nonzero` within `index` has to be computed. What they leave in the results is forgotten after the kernel, unless the
operator itself was computed; the buffer's zeros at once.
"""

import ctypes
import functools
import os
import sys
import threading

from . import _draws, _imports, _shadow, _triton

KEY = "CustomRNGKeyId"
# Functions of PyTorch's libraries, in the order of `struct torch` in stub/operators.c.
TORCH_FUNCTIONS = (
    "_ZN5torch3jit29ToIValueAllowNumbersAsTensorsC1Eb",
    "_ZN5torch3jit29ToIValueAllowNumbersAsTensorsD1Ev",
    "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv",
    "_ZN2at4impl22PythonTorchFunctionTLS18set_disabled_stateENS0_26TorchFunctionDisabledStateE",
    "_ZN3c104impl28tls_is_dispatch_key_excludedENS_11DispatchKeyE",
    "_ZN3c104impl29tls_set_dispatch_key_excludedENS_11DispatchKeyEb",
)
# Parts of the names of operators that are not computed if they write to none of their arguments.
LARGE = (
    "_backward attention conv norm mm fft linalg pool upsample grid_sampler dropout rnn lstm gru softmax gelu silu "
    "mish dequantize quantize cdist cudnn miopen thnn local_scalar_dense sparse embedding_dense ctc addr lu_ cholesky"
).split()
# Operators without a kernel for each device that call no other operator.
GENERAL = frozenset(("copy_",))
# Keys of kernels for all devices, and of those for one.
GENERAL_KEYS = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd")
DEVICES = ("CPU", "CUDA", "Meta", "QuantizedCPU", "QuantizedCUDA")
# Operators that overwrite their first argument without reading it.
OVERWRITES = frozenset(
    "fill_ zero_ copy_ normal_ uniform_ random_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_ _foreach_copy_ "
    "_foreach_zero_".split()
)
# Operators that prepare a buffer, if a kernel calls them.
BUFFERS = frozenset(("fill_", "zero_"))
# Operators that start no work on the device.
IDLE = ("_local_scalar_dense", "_fused_sdp_choice")
# Operators that call others with a number as a tensor of the device, which no kernel in Python can take.
HIDES = ("pow.Scalar", "pow.Scalar_out", "bucketize.Scalar", "searchsorted.Scalar")
# The size of the result is the number of elements that the kernel reads back: in which dimension of which result.
SIZED = ("nonzero", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive", "masked_select")
# Those of one dimension, which is the second argument.
SIZED_BY_DIMENSION = ("unique_dim", "unique_dim_consecutive")
# Elements of the largest tensor that `nonzero` looks through at once.
MAX_SELECTED = (1 << 31) - 1
# Operators that copy to the host, with the index of the argument.
READS = {"_local_scalar_dense": 0, "copy_": 1}


class Operators:
    """What all operators share."""

    def __init__(self, torch, library, set_values):
        self.torch, self.shadow, self.set_values = torch, _shadow.Shadow(torch), set_values
        self.core, self.tensor = torch._C, torch.Tensor
        self.host = self.core.DispatchKeySet(self.core.DispatchKey.CPU)
        self.generator = torch.Generator()
        # Makes a kernel in C of the function that calls the next one, the keys below, and what runs before and after.
        self.kernel_of = ctypes.PyDLL(library._name).stub_operator_kernel
        self.kernel_of.restype, self.kernel_of.argtypes = ctypes.py_object, [ctypes.py_object]
        self.libraries = []
        # Names, and libraries that can register kernels for them.
        self.not_intercepted = []
        # By operator, the size of its result, or its result if that is a truth, while it runs.
        self.sizes = {}
        self.outside_writes = ctypes.c_uint64.in_dll(library, "stub_outside_writes")
        self.outside_write = library.stub_outside_write
        self.outside_write.restype, self.outside_write.argtypes = ctypes.c_uint64, [ctypes.c_uint64]
        self.seen_writes = self.outside_writes.value
        # The type of what the last of READS read.
        self.read_type = None
        # Number of operators in whose kernels this thread is.
        self.depth = library.stub_operator_depth

    def catch_up(self):
        """Forgets what something other than an operator has written to."""
        count = self.outside_writes.value
        if count != self.seen_writes:
            unseen = range(self.seen_writes, count) if count - self.seen_writes < 200 else ()
            addresses = {self.outside_write(index) for index in unseen} or {0}
            for address in {0} if 0 in addresses else addresses:
                self.shadow.forget_address(address)
            self.seen_writes = count

    def seeded(self, given, device):
        """A generator on the host for the next numbers of the program's generator on the device."""
        if given is None:
            given = self.torch.cuda.default_generators[device.index or 0]
        seed = hash((given.initial_seed(), given.get_offset())) & (2**63 - 1)
        return self.generator.manual_seed(seed)

    def read(self, operators, address, size):
        """The bytes of a read, and their origin; or None."""
        self.catch_up()
        found = self.shadow.read(address, size) if address else None
        if found is not None:
            return ctypes.string_at(found[0], size), found[1]
        for name in operators.split():
            if name in self.sizes and size <= 8:
                count, origin = self.sizes[name]
                return count.to_bytes(size, "little"), origin
        return None

    def noting_type(self, index, before=lambda *_, **__: None):
        """`before`, which first notes the type of the argument that is read."""

        def noting(keys, *args, **kwargs):
            self.read_type = str(getattr(args[index], "dtype", "")).rpartition(".")[2]
            return before(keys, *args, **kwargs)

        return noting

    def kind_of_read(self, operators):
        """The name of the type that these operators, innermost first, read; or None."""
        return self.read_type if operators.split(" ")[0] in READS else None

    def set_mask(self, mask, frame):
        """Gives a mask that is not known as many elements as `--value` sets for this line: the first ones."""
        count = self.set_values.count_at(frame)
        if count is not None and self.shadow.known(mask) is None:
            self.shadow.limit = max(self.shadow.limit, mask.nbytes)
            chosen = self.torch.arange(mask.numel(), device="cpu").view(mask.size()) < count
            self.shadow.set(mask, chosen.to(mask.dtype), 0)

    def forget(self, value):
        if isinstance(value, self.tensor):
            if value.is_cuda:
                self.shadow.forget(value)
        elif isinstance(value, (list, tuple)):
            for item in value:
                self.forget(item)

    def before_coalesce(self, _keys, tensor):
        """The kernel reads back how many indices differ. If they are not known, all do, which needs the most memory."""
        if type(tensor) is self.tensor and tensor.is_cuda:
            known = self.shadow.known(tensor._indices())
            count = tensor._nnz() if known is None else self.torch.unique(known[0], dim=1).size(1)
            self.sizes["_coalesce"] = count, _shadow.ASSUMED if known is None else known[1]

    def after_triton(self, launcher, module):
        """Makes the class `launcher` of a module forget what its kernels may write to."""

        @_imports.around(getattr(module, launcher, None), "run")
        def run_and_forget(run, kernel, *args, **kwargs):
            self.catch_up()
            result = run(kernel, *args, **kwargs)
            function = kernel if hasattr(kernel, "arg_names") else kernel.fn
            self.seen_writes = self.outside_writes.value
            self.forget(_triton.written_arguments(function, args, kwargs))
            return result

    # Kernels at the key ------------------------------------------------------------------------------------------

    def library(self, namespace):
        """A library of PyTorch that adds kernels to a namespace. They go with it."""
        self.libraries.append(self.torch.library.Library(namespace, "IMPL"))
        return self.libraries[-1]

    def register(self, namespace):
        """Registers the kernels of a namespace's operators. A library's have to be there already."""
        core, has = self.core, self.core._dispatch_has_kernel_for_dispatch_key
        library, below = self.library(namespace), core._dispatch_keyset_full_after(core._dispatch_key_parse(KEY))
        for full in core._dispatch_get_all_op_names():
            if not full.startswith(namespace + "::"):
                continue
            name = full.partition("::")[2]
            base, _, overload = name.partition(".")
            is_leaf = has(full, "CUDA") or base in GENERAL
            schema = core._get_schema(full.partition(".")[0], overload) if is_leaf else None
            if schema is None or not is_intercepted(base, schema):
                self.not_intercepted.append((full, library))
                continue
            operator = Operator(self, full, schema)
            is_large = not operator.written and any(part in base for part in LARGE)
            before = operator.before_unknown if is_large else operator.before
            if name in READS and self.set_values.values:
                before = self.noting_type(READS[name], before)
            plan = (operator.handle.redispatch_boxed, below, before, operator.after, *("hides",) * (name in HIDES))
            library.m.impl(name, KEY, self.kernel_of(plan), True)
        self.pass_by()

    def pass_by(self, _=None):
        """Lets the kernel of an operator for one device run, which the general one would precede. Some come later."""
        has, waiting = self.core._dispatch_has_kernel_for_dispatch_key, []
        for full, library in self.not_intercepted:
            if not any(has(full, general) for general in GENERAL_KEYS):
                continue
            if any(has(full, device) for device in DEVICES):
                library.m.impl(full.partition("::")[2], KEY, self.torch.library.fallthrough_kernel, False)
            else:
                waiting.append((full, library))
        self.not_intercepted = waiting

    def run_before(self, name, before, key=KEY):
        """Runs `before` before the kernel of one operator."""
        run = self.core._dispatch_find_schema_or_throw("aten::" + name, "").redispatch_boxed
        below = self.core._dispatch_keyset_full_after(self.core._dispatch_key_parse(key))
        self.library("aten").m.impl(name, key, self.kernel_of((run, below, before, None)), True)


class Operator:
    def __init__(self, shared, full, schema):
        self.shared, self.full = shared, full
        self.namespace, _, self.name = full.partition("::")
        self.base, _, self.overload = self.name.partition(".")
        self.handle = shared.core._dispatch_find_schema_or_throw(full.partition(".")[0], self.overload)
        self.arguments = [argument.name for argument in schema.arguments]
        self.written = {
            argument.name: argument.kwarg_only or self.base in OVERWRITES
            for argument in schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        }
        self.has_generator = "generator" in self.arguments
        self.draw = _draws.DRAWS.get(self.name) or _draws.COMPARISONS.get(self.name)
        self.draw_origin = _shadow.FINITE if self.name in _draws.COMPARISONS else _shadow.ASSUMED

    @functools.cached_property
    def is_computable(self):
        """Whether the host has the same operator, and its result depends on nothing else than its arguments."""
        torch = self.shared.torch
        packet = getattr(getattr(torch.ops, self.namespace), self.base)
        overload = getattr(packet, self.overload or "default")
        is_random = torch.Tag.nondeterministic_seeded in overload.tags and not self.has_generator
        has = self.shared.core._dispatch_has_kernel_for_dispatch_key
        return any(has(self.full, key) for key in ("CPU", *GENERAL_KEYS[:2])) and not is_random

    # Before the kernel -------------------------------------------------------------------------------------------

    def before(self, _keys, *args, **kwargs):
        """Computes the operator on the host. Returns what `after` needs, or None."""
        shared = self.shared
        shared.catch_up()
        shared.sizes.pop(self.base, None)
        is_general = not self.written and self.draw is None and self.base not in SIZED
        first = args[0] if args and is_general else None
        if isinstance(first, shared.tensor) and first.is_cuda and first.nbytes > shared.shadow.limit:
            return (), shared.shadow.changes  # most calls: not known, without a look at the rest
        if self.base == "nonzero" and shared.set_values.values:
            shared.set_mask(args[0], sys._getframe().f_back)
        call = Call(self, args, kwargs)
        if call.device is None:
            return None
        is_buffer = self.base in BUFFERS and shared.depth()
        if call.is_known and self.is_computable and not is_buffer:
            try:
                return call.compute()
            except Exception:  # what is an error on the host may be none on a GPU; the kernel's own follows
                pass
        shared.forget(call.written)
        if self.base in SIZED and not call.is_known:
            most = args[0].size(args[1]) if self.base in SIZED_BY_DIMENSION else args[0].numel()
            if most <= MAX_SELECTED:
                shared.sizes[self.base] = most, _shadow.MAXIMUM
        drawn = call.drawn(args, kwargs) if self.draw is not None and not call.is_known else None
        return drawn or (call.written, shared.shadow.changes)

    def before_unknown(self, *_args, **_kwargs):
        return (), self.shared.shadow.changes

    def after(self, token, result):
        """The kernel has run: `token` has what it would have computed, or what it may have written to."""
        store = self.shared.shadow
        if len(token) == 2:
            written, changes = token
            if store.changes != changes:  # by operators that the kernel called
                self.shared.forget(written)
                self.shared.forget(result)
            return
        targets, values, origin = token
        for tensor, value in targets:
            keep(store, tensor, value, origin)
        if not self.written:
            keep(store, result, values, origin)


def keep(store, tensor, value, origin):
    """`tensor` of the device has the values of the host's `value`; None: they are not known."""
    if isinstance(tensor, (list, tuple)):
        for one, its in zip(tensor, value or (None,) * len(tensor)):
            keep(store, one, its, origin)
    elif hasattr(tensor, "is_cuda") and tensor.is_cuda:
        if value is not None and tensor.size() == value.size():
            store.set(tensor, value, origin)
        else:
            store.forget(tensor)


class Call:
    """One call of an operator: its arguments, for the host."""

    def __init__(self, operator, args, kwargs):
        self.operator, self.shared = operator, operator.shared
        self.device, self.is_known, self.origin = None, True, 0
        # Tensors of the device that the operator writes to: all; those that it only overwrites, with those of the host;
        # the others.
        self.written, self.overwritten, self.changed = [], [], []
        self.args = [self.argument(value, name) for value, name in zip(args, operator.arguments)]
        self.kwargs = {name: self.argument(value, name) for name, value in kwargs.items()}

    def argument(self, value, name):
        overwrites = self.operator.written.get(name)
        if overwrites is not None:
            self.written.append(value)
        return self.to_host(value, overwrites)

    def to_host(self, value, overwrites):
        """`value` for the host. `overwrites` is None for an argument that is only read."""
        if isinstance(value, self.shared.tensor):
            return self.tensor(value, overwrites)
        if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
            return [self.to_host(item, overwrites) for item in value]
        return value

    def tensor(self, tensor, overwrites):
        is_written = overwrites is not None
        if not tensor.is_cuda:
            # What an operator writes to the host comes from a read.
            self.is_known = self.is_known and not is_written and tensor.is_cpu and tensor.nbytes <= _shadow.MAX_BYTES
            return tensor
        self.device = tensor.device
        if overwrites and tensor.nbytes > _shadow.MAX_BYTES:
            self.is_known = False
        if not self.is_known:
            return None
        if overwrites:
            torch = self.shared.torch
            host = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
            self.overwritten.append((tensor, host))
            return host
        known = self.shared.shadow.known(tensor)
        if known is None:
            self.is_known = False
            return None
        self.origin |= known[1]
        if is_written:
            self.changed.append(tensor)
        return known[0]

    def compute(self):
        operator, shared = self.operator, self.shared
        if operator.has_generator:
            at = operator.arguments.index("generator")
            if at < len(self.args):
                self.args[at] = shared.seeded(self.args[at], self.device)
            else:
                self.kwargs["generator"] = shared.seeded(self.kwargs.get("generator"), self.device)
            self.origin |= _shadow.RANDOM
        try:
            result = operator.handle.redispatch_boxed(shared.host, *self.args, **self.kwargs)
        except NotImplementedError:  # the host lacks it for this type, such as histc for integers
            if operator.written:
                raise
            widest = shared.torch.float64  # which every operator of the host knows
            args = [value.to(widest) if isinstance(value, shared.tensor) else value for value in self.args]
            result = operator.handle.redispatch_boxed(shared.host, *args, **self.kwargs)
        for tensor in self.changed:
            shared.shadow.wrote(tensor, self.origin)
        if operator.base in SIZED:
            first = result[0] if isinstance(result, (list, tuple)) else result
            dim = self.args[1] if operator.base in SIZED_BY_DIMENSION else 0
            shared.sizes[operator.base] = (first.size(dim), self.origin)
        elif isinstance(result, bool):  # it reads back as much
            shared.sizes[operator.base] = (int(result), self.origin)
        if operator.written:
            result = None  # it is among the arguments
        return self.overwritten, result, self.origin

    def drawn(self, args, kwargs):
        """A result that is assumed."""
        options = {name: value for name, value in kwargs.items() if name != "generator"}
        generator = self.shared.seeded(kwargs.get("generator"), self.device)
        return (), self.operator.draw(self.shared.torch, generator, *args, **options), self.operator.draw_origin


# Installation --------------------------------------------------------------------------------------------------------


def install(torch, library, set_values):
    """Computes small tensors from now on, in all threads of Python. Returns None if this torch has no way for it."""
    core = torch._C
    functions = torch_functions(torch)
    if functions is None or not hasattr(core, "_data_address"):
        return None
    key = core._dispatch_key_parse(KEY)
    keys = (ctypes.c_uint16 * 3)(int(key), int(core.DispatchKey.Python), 0)
    if not library.stub_prepare_operators(functions, keys):
        return None
    shared = Operators(torch, library, set_values)
    shared.library("_").m.fallback(KEY, torch.library.fallthrough_kernel, False)
    shared.register("aten")
    shared.register("prims")  # decompositions on the meta device use them
    # Fake tensors have their own `_to_copy`. The general kernel, which would precede it, calls `copy_`, which for them
    # calls `_to_copy`.
    shared.run_before("_to_copy", lambda *_, **__: None)
    # By the only key above the kernel of sparse tensors that no tensor uses.
    shared.run_before("_coalesce", shared.before_coalesce, "BackendSelect")
    if set_values.values:
        shared.run_before("_local_scalar_dense", shared.noting_type(READS["_local_scalar_dense"]))
    keep_out_of_the_way(torch, key)
    core._dispatch_tls_set_dispatch_key_included(key, True)
    follow_threads(core, key)
    return shared


def torch_functions(torch):
    """The addresses of TORCH_FUNCTIONS, or None. A library also has the functions of those that it needs."""
    directory = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "lib")
    library = ctypes.CDLL(os.path.join(directory, "libtorch_python.so"))
    found = [getattr(library, name, None) for name in TORCH_FUNCTIONS]
    if None in found:
        return None
    return (ctypes.c_void_p * len(found))(*(ctypes.cast(function, ctypes.c_void_p) for function in found))


def is_intercepted(base, schema):
    if any(argument.alias_info and argument.alias_info.is_write for argument in schema.arguments):
        return base not in ("set_", "resize_as_")
    is_view = any(result.alias_info for result in schema.returns)
    return not is_view and base not in IDLE and not base.startswith("empty")


def keep_out_of_the_way(torch, key):
    """Makes what lists the dispatcher's keys in Python pass over this one."""
    from torch import _ops as operators

    skipped = getattr(operators, "_HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS", None)
    if skipped is not None:
        skipped.append(key)
        for operator in operators._higher_order_ops.values():
            operator.fallthrough(key)

    # Fake tensors call the functions of the meta device, which has no values.
    @_imports.around(torch._C, "_set_meta_in_tls_dispatch_include")
    def set_meta(original, is_included):
        original(is_included)
        if is_included:  # PyTorch restores all keys afterwards
            torch._C._dispatch_tls_set_dispatch_key_included(key, False)


def follow_threads(core, key):
    """Threads of Python start with the key; those of autograd inherit it. Processes that are forked load data."""

    @_imports.around(threading.Thread, "_set_ident")  # a new thread calls it first
    def set_ident(begin, thread):
        core._dispatch_tls_set_dispatch_key_included(key, True)
        begin(thread)

    os.register_at_fork(after_in_child=lambda: core._dispatch_tls_set_dispatch_key_included(key, False))
