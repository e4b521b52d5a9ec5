/* CUDA runtime, driver, cuBLAS, cuDNN, NCCL and NVML without a GPU.
 *
 * Loaded before a stock PyTorch CUDA wheel, it lets PyTorch's own caching allocator (libc10_cuda.so) run on a machine
 * without a GPU. Device memory is bookkeeping only, kernels do not run, and copies to the host read as zeros. PyTorch's
 * own code makes every decision of the allocator: which block, when to split, when to map, when to give up.
 *
 * The stub is one library in several files. python/oomscope/_stub.py compiles it for one installed torch, and generates
 * an entry point for every symbol that torch needs and that is not implemented here.
 *
 * Environment:
 *   STUBCUDA_DEVICES       number of devices (default 1)
 *   STUBCUDA_TOTAL_MIB     capacity of each device, MiB (default 81920)
 *   STUBCUDA_OTHER_MIB     memory used by other processes and by the context, MiB (default 0)
 *   STUBCUDA_NAME          name of the devices (default "Stub GPU")
 *   STUBCUDA_CC            compute capability, 90 for 9.0 (default 90)
 *   STUBCUDA_SMS           number of multiprocessors (default 132, as an H100)
 *   STUBCUDA_L2            size of the L2 cache, bytes (default: an H100's)
 *   STUBCUDA_SHARED        maximum shared memory per block, bytes (default: an H100's)
 *   STUBCUDA_THREADS       maximum threads per multiprocessor (default 2048)
 *   STUBCUDA_EVENT_LAG     an event completes this many driver calls after it was recorded (default 0)
 *   STUBCUDA_EVENT_JITTER  plus a random number of calls below this (default 0)
 *   STUBCUDA_PLACEMENT     address of new memory: lowest | highest | random (default lowest: the lowest free range).
 *                          With the other two, the order of addresses differs from the order of allocation.
 *   STUBCUDA_FAIL_ONE_IN   about one device allocation in this many fails although there is room (default 0: none)
 *   STUBCUDA_SEED          seed of the random choices above (default 1)
 *   STUBCUDA_LOG           path of a log of every call that allocates, frees, reserves or maps device memory
 */
#define _GNU_SOURCE
/* Releases of CUDA, cuDNN and NCCL; _stub.py takes them from the headers beside torch. */
#ifndef CUDART_V
#define CUDART_V 12010
#endif
#ifndef CUDNN_V
#define CUDNN_V 90000
#endif
#ifndef NCCL_V
#define NCCL_V 22000
#endif
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <driver_types.h>

#include "memory.c"
#include "operators.c"
#include "ledger.c"
#include "allocation.c"
#include "devices.c"
#include "streams.c"
#include "copies.c"
#include "kernels.c"
#include "blas.c"
#include "workspaces.c"
#include "dnn.c"
#include "rnn.c"
#include "convolutions.c"
#include "fft.c"
#include "solvers.c"
#include "nccl.c"
#include "nvml.c"
#include "lookup.c"
