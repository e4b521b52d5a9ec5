"""Reads PyTorch's tensors and autograd graphs without running code of the program.

All getters come from PyTorch's own base classes, so a subclass cannot answer in their place. `_names` turns off
`__torch_function__` and `__torch_dispatch__`. No getter allocates GPU memory: `data_ptr` would for a lazy clone, so
the address comes from `_data_address`.

Saved tensors are read as they were packed. Since PyTorch 2.15 a node shows what its pack hook returned. Before, the
only way is to unpack; a profile function stops the program's unpack hook at its first call.
"""

import os
import sys
import types

from . import _objects

RAW_SAVED, SAVED = "_raw_saved_", "_saved_"
# The function of torch.autograd.graph (since 2.3) and the one before, which wait for a backward pass.
BACKWARD_FUNCTIONS = ("_engine_run_backward", "backward", "grad")


class Denied(Exception):
    """Stops a function of the program before its first line."""


def deny(frame, event, argument):
    if event == "call":
        raise Denied


class Tensors:
    """The getters of the imported PyTorch."""

    def __init__(self, torch):
        self.torch = torch
        self.directory = os.path.join(os.path.dirname(os.path.abspath(torch.__file__)), "")
        self.base = torch._C.TensorBase
        self.module, self.optimizer = torch.nn.Module, torch.optim.Optimizer
        self.is_cuda, self.is_leaf = self.getter("is_cuda"), self.getter("is_leaf")
        self.requires_grad = self.getter("requires_grad")
        self.retains_grad, self.grad_of = self.getter("retains_grad"), self.getter("grad")
        self.grad_fn, self.shape_of, self.dtype_of = self.getter("grad_fn"), self.getter("shape"), self.getter("dtype")
        # The address of the storage, not of the tensor in it.
        self.address_of = getattr(torch._C, "_data_address", None) or self.address_without_offset
        # Whether a saved tensor can be read without unpacking it.
        self.has_packed = hasattr(torch._C._autograd.SavedTensor, "data")
        self.node_type = _objects.ByClass(node_type).of

    def getter(self, name):
        return next(cls.__dict__[name] for cls in self.base.__mro__ if name in cls.__dict__).__get__

    def allocated(self):
        """Bytes of GPU memory that the allocator has handed out, on each device."""
        return [self.torch.cuda.memory_allocated(index) for index in range(self.torch.cuda.device_count())]

    def kind(self, cls):
        """`tensor`, `module`, `optimizer`, `node` (of an autograd graph), `sharded` (FSDP2) or `object`."""
        for base, kind in ((self.base, "tensor"), (self.module, "module"), (self.optimizer, "optimizer")):
            if _objects.is_subtype(cls, base):
                return kind
        for parent in _objects.mro_of(cls):
            if type(_objects.dict_of_type(parent).get("next_functions")) is types.GetSetDescriptorType:
                return "node"
        return "sharded" if _objects.type_name(cls) == "FSDPParam" else "object"

    # Tensors ---------------------------------------------------------------------------------------------------------

    def storage(self, tensor):
        """Address and bytes of the GPU memory of a tensor, and where the tensor begins in it; or None."""
        try:
            if not self.is_cuda(tensor):
                return None
            address = self.address_of(tensor)
            if type(address) is not int or address <= 0:  # a wrapper: its methods below would run its own code
                return None
            offset = self.offset(tensor)
            size = self.torch.UntypedStorage.nbytes(self.base.untyped_storage(tensor))
        except Exception:  # a tensor without a storage
            return None
        is_known = type(offset) is int and type(size) is int and size > 0
        return (address, size, offset) if is_known else None

    def identity(self, parameter):
        """The address and the bytes of the storage of a parameter, or its id and 0 if it has none."""
        storage = self.storage(parameter) if _objects.is_subtype(type(parameter), self.base) else None
        return storage[:2] if storage else (id(parameter), 0)

    def world_size(self):
        distributed = self.torch.distributed
        is_job = distributed.is_available() and distributed.is_initialized()
        return distributed.get_world_size() if is_job else 1

    def offset(self, tensor):
        """Where the tensor begins in its storage, in bytes."""
        return self.base.storage_offset(tensor) * self.base.element_size(tensor)

    def address_without_offset(self, tensor):
        address = self.base.data_ptr(tensor)
        return address - self.offset(tensor) if address else 0

    def dtype(self, tensor):
        return str(self.dtype_of(tensor)).replace("torch.", "")

    def shape(self, tensor):
        """The shape, or None if it is unknown or symbolic."""
        try:
            sizes = tuple(tuple.__iter__(self.shape_of(tensor)))
        except Exception:  # a nested tensor
            return None
        return sizes if all(type(size) is int for size in sizes) else None

    def gradient(self, tensor):
        # For other tensors PyTorch warns.
        return self.grad_of(tensor) if self.is_leaf(tensor) or self.retains_grad(tensor) else None

    def parts(self, tensor):
        """The tensors inside a sparse one: (label, tensor)."""
        if not self.is_cuda(tensor):
            return []
        keys, key = self.torch._C._dispatch_keys(tensor), self.torch._C.DispatchKey
        if keys.has(key.SparseCUDA):
            return [(".indices", self.base._indices(tensor)), (".values", self.base._values(tensor))]
        if keys.has(key.SparseCsrCUDA):
            names = ("values", "crow_indices", "col_indices")
            return [("." + name, getattr(self.base, name)(tensor)) for name in names]
        return []

    # Autograd graphs -------------------------------------------------------------------------------------------------

    def is_graph_stable(self):
        """Whether no other thread can free saved tensors while they are read, which would crash the process: a backward
        pass does, in threads without the GIL.

        Other threads get their turn during the walk. One that waits in the standard library, or that belongs to PyTorch
        itself, is taken to start no backward pass.
        """
        import threading

        threads = sys._current_frames()
        mine = threads.pop(threading.get_ident(), None)
        mine = next((frame for frame in _objects.outward(mine) if self.author(frame) != _objects.OWN), None)
        waiting = [frame for frame in threads.values() if self.waits_for_backward(frame)]
        if any(self.may_start_backward(frame) for frame in threads.values() if not self.waits_for_backward(frame)):
            return False
        # A thread of the engine has no Python frame. It works for the one backward pass that a thread waits for; with
        # several devices it has others beside it.
        return not waiting or (mine is None and len(waiting) == 1 and sum(map(bool, self.allocated())) <= 1)

    def waits_for_backward(self, frame):
        code = frame.f_code
        in_autograd = code.co_filename.startswith(os.path.join(self.directory, "autograd"))
        return in_autograd and code.co_name in BACKWARD_FUNCTIONS

    def may_start_backward(self, frame):
        if _objects.is_standard_library(frame.f_code.co_filename):
            return False
        called_by = [one for one in _objects.outward(frame) if not _objects.is_standard_library(one.f_code.co_filename)]
        return any(self.author(one) not in (_objects.OWN, _objects.PYTORCH) for one in called_by)

    def author(self, frame):
        return _objects.author_of_file(frame.f_code.co_filename, self.directory)

    def saved_by(self, node):
        """(operator and argument, object) for what a node saved; a tensor, or what a pack hook returned."""
        cls = type(node)
        saved, variable, _ = self.node_type(cls)
        found = []
        for name, get_raw, unpack in saved:
            try:
                raw = get_raw(node)
            except Exception:  # freed by a backward pass
                continue
            operator = "%s.%s" % (_objects.type_name(cls), name)
            if raw is not None:
                values = self.packed(raw) if self.has_packed else self.unpacked(node, unpack)
                found += [(operator, value) for value in values if value is not None]
        if variable is not None:
            try:
                found.append((None, variable(node)))
            except Exception:  # freed by a backward pass
                pass
        return found

    def packed(self, raw):
        found = []
        for one in raw if type(raw) in (tuple, list) else (raw,):
            try:
                found.append(one.data)
            except Exception:  # freed, or nothing was saved
                continue
        return found

    def unpacked(self, node, unpack):
        """Unpacks, unless that runs Python. A profiler of the program would notice, and could not be put back."""
        if unpack is None or sys.getprofile() is not None:
            return []
        sys.setprofile(deny)
        try:
            value = unpack(node)
        except Exception:  # `Denied`, freed, or changed in place since
            value = None
        finally:
            sys.setprofile(None)
        return value if type(value) in (tuple, list) else [value]

    def next_nodes(self, node):
        following = self.node_type(type(node))[2]
        return (pair[0] for pair in (following(node) if following else ()) if pair[0] is not None)


def node_type(cls):
    """The getters of a node: for each saved tensor (name, raw, unpacked); `variable`; `next_functions`."""
    saved, variable, following = [], None, None
    for parent in _objects.mro_of(cls):
        members = _objects.dict_of_type(parent)
        for name, member in members.items():
            if type(member) is not types.GetSetDescriptorType:
                continue
            if name.startswith(RAW_SAVED):
                short = name[len(RAW_SAVED) :]
                unpacking = members.get(SAVED + short) or members.get("saved_tensors")
                saved.append((short, member.__get__, unpacking and unpacking.__get__))
            elif name == "variable":
                variable = member.__get__
            elif name == "next_functions" and following is None:
                following = member.__get__
    return saved, variable, following
