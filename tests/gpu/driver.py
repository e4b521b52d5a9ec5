#!/usr/bin/env python3
"""The CUDA driver by ctypes: what it counts as free, what it rounds, and a process that holds memory.

usage: driver.py hold LEAVE    takes all memory but LEAVE bytes, prints a line, and holds it until standard input ends
       driver.py context       creates a context, prints a line, and keeps it until standard input ends
"""

import ctypes
import sys
import time

MIB = 1 << 20
OUT_OF_MEMORY = 2


class Driver:
    """The primary context of one GPU."""

    def __init__(self, gpu=0):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), gpu)
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 255, device)
        self.name = name.value.decode(errors="replace")
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        self.version = f"{version.value // 1000}.{version.value % 1000 // 10}"
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        if code:
            raise OSError(code, f"{name} returned {code}")

    def memory(self):
        """Free and total bytes of the device."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size):
        """The address, or None if the driver refuses."""
        address = ctypes.c_uint64()
        code = self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        if code == OUT_OF_MEMORY:
            return None
        if code:
            raise OSError(code, f"cuMemAlloc_v2 returned {code}")
        return address.value

    def free(self, address):
        self.call("cuMemFree_v2", ctypes.c_uint64(address))

    def take_all_but(self, leave):
        """Allocates until the driver reports at most `leave` free bytes or refuses; returns the addresses."""
        taken = []
        for piece in (1024 * MIB, 64 * MIB, 2 * MIB):
            while self.memory()[0] >= leave + piece:
                address = self.allocate(piece)
                if address is None:
                    break
                taken.append(address)
        return taken


def rounding(driver, sizes):
    """For each size: bytes by which free memory falls, and the microseconds of the allocation and of the free."""
    rows = []
    for size in sizes:
        before = driver.memory()[0]
        started = time.perf_counter()
        address = driver.allocate(size)
        allocated = time.perf_counter()
        after = driver.memory()[0]
        freed_from = time.perf_counter()
        driver.free(address)
        freed = time.perf_counter()
        left = driver.memory()[0]
        rows.append((size, before - after, before - left, (allocated - started) * 1e6, (freed - freed_from) * 1e6))
    return rows


def main():
    driver = Driver()
    if sys.argv[1] == "hold":
        driver.take_all_but(int(sys.argv[2]))
    print(driver.memory()[0], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
