"""The values of small tensors of the device, on the host.

What decides the course of a program is small: tokens, masks, lengths, indices, counts, flags. The kernels of a dry run
do nothing, so `_operators` computes such tensors on the host as well, and keeps the results here, by storage: views and
in-place operators share them. A value is known while all that it was computed from is known. What the host reads from
the device comes from here (`read`), else it is zero.

A value has an origin: 0, or a union of RANDOM (of a generator, whose numbers differ on a GPU), ASSUMED (drawn in place
of a value that is not known, see `_draws`), FINITE (whether unknown numbers are finite) and MAXIMUM (the largest size
that a result can have).
"""

RANDOM, ASSUMED, FINITE, MAXIMUM = 1, 2, 4, 8
# Limits of one storage and of all, in bytes.
MAX_BYTES = 1 << 20
MAX_TOTAL_BYTES = 256 << 20


class Record:
    """The bytes of one storage. `mask` has a byte for each: not 0 if it is known; None: all are."""

    __slots__ = ("address", "mask", "origin", "size", "storage")

    def __init__(self, address, size, storage, mask):
        self.address, self.size, self.storage, self.mask, self.origin = address, size, storage, mask, 0


class Shadow:
    def __init__(self, torch):
        self.torch = torch
        self.address_of = torch._C._data_address
        self.storages = torch.UntypedStorage
        # By the object of PyTorch's storage. A weak reference to it keeps its number from another one.
        self.records = {}
        self.total_bytes = 0
        # Number of times that values became known.
        self.changes = 0
        # Number of records at which those of freed storages are removed.
        self.crowded = 1000
        # The largest tensor that is looked for.
        self.limit = MAX_BYTES

    # Tensors -----------------------------------------------------------------------------------------------------

    def record_of(self, tensor):
        try:
            if not self.records or tensor.nbytes > self.limit:
                return None
            record = self.records.get(tensor.untyped_storage()._cdata)
            # A storage that was resized has other memory.
            return record if record is not None and record.address == self.address_of(tensor) else None
        except (RuntimeError, NotImplementedError):  # it has no storage of its own: a sparse tensor
            return None

    def known(self, tensor):
        """The values of a tensor of the device, as a tensor of the host that shares them, and their origin; or None."""
        if tensor.numel() == 0:
            return self.torch.empty(tensor.size(), dtype=tensor.dtype, device="cpu"), 0
        record = self.record_of(tensor)
        if record is None:
            return None
        if record.mask is not None and not bool(self.bytes_of(tensor, record.mask).all()):
            return None
        return self.view(tensor, record), record.origin

    def wrote(self, tensor, origin):
        """All values of `tensor` are known now: its record has them."""
        record = self.record_of(tensor)
        if record is None:
            return
        self.changes += 1
        if self.is_whole(tensor, record):
            record.mask, record.origin = None, origin
        else:
            record.origin |= origin
            if record.mask is not None:
                self.bytes_of(tensor, record.mask).fill_(1)

    def set(self, tensor, values, origin):
        record = self.record_of(tensor) or self.new_record(tensor)
        if record is not None:
            self.view(tensor, record).copy_(values)
            self.wrote(tensor, origin)

    def forget(self, tensor):
        record = self.record_of(tensor)
        if record is None:
            return
        if self.is_whole(tensor, record):
            self.remove(tensor.untyped_storage()._cdata)
            return
        if record.mask is None:
            record.mask = self.filled(record.size, 1)
        self.bytes_of(tensor, record.mask).fill_(0)

    # Memory ------------------------------------------------------------------------------------------------------

    def read(self, address, size):
        """The bytes at an address of the device, as the address of a copy on the host, and their origin; or None."""
        for key, record in list(self.records.items()):
            offset = address - record.address
            if 0 <= offset < record.size and not self.storages._expired(key):
                if offset + size > record.size:
                    return None
                if record.mask is not None and not bool(record.mask.narrow(0, offset, size).all()):
                    return None
                return record.storage.data_ptr() + offset, record.origin
        return None

    def forget_address(self, address):
        """Something other than an operator wrote to this address; 0: to any."""
        for key, record in list(self.records.items()):
            if not address or 0 <= address - record.address < record.size:
                self.remove(key)

    # Records -----------------------------------------------------------------------------------------------------

    def new_record(self, tensor):
        try:
            storage, address = tensor.untyped_storage(), self.address_of(tensor)
        except (RuntimeError, NotImplementedError):
            return None
        size = storage.nbytes()
        if not address or not 0 < size <= self.limit:
            return None
        if len(self.records) >= self.crowded:
            for key in [key for key in self.records if self.storages._expired(key)]:
                self.remove(key)
            self.crowded = max(1000, 2 * len(self.records))
        while self.records and self.total_bytes + size > MAX_TOTAL_BYTES:
            self.remove(next(iter(self.records)))
        self.remove(storage._cdata)
        record = Record(address, size, self.filled(size, 0).untyped_storage(), self.filled(size, 0))
        self.records[storage._weak_ref()] = record
        self.total_bytes += size
        return record

    def remove(self, key):
        record = self.records.pop(key, None)
        if record is not None:
            self.total_bytes -= record.size
            self.storages._free_weak_ref(key)

    # Views -------------------------------------------------------------------------------------------------------

    def filled(self, size, value):
        return self.torch.full((size,), value, dtype=self.torch.uint8, device="cpu")

    def view(self, tensor, record):
        empty = self.torch.empty(0, dtype=tensor.dtype, device="cpu")
        return empty.set_(record.storage, tensor.storage_offset(), tensor.size(), tensor.stride())

    def bytes_of(self, tensor, mask):
        """The part of `mask` that belongs to `tensor`."""
        width = tensor.element_size()
        sizes, strides = (*tensor.size(), width), (*(step * width for step in tensor.stride()), 1)
        return mask.as_strided(sizes, strides, tensor.storage_offset() * width)

    def is_whole(self, tensor, record):
        return tensor.nbytes == record.size and (tensor.is_contiguous() or is_dense(tensor))


def is_dense(tensor):
    """Whether every element of a tensor has a place of its own, without gaps."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.size())):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
