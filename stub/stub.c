/* A CUDA runtime, driver, cuBLAS, cuDNN and NCCL with no GPU behind them.
 *
 * Loaded before a stock PyTorch CUDA wheel it lets PyTorch's own caching allocator
 * (libc10_cuda.so) run on a machine without a GPU: device memory is bookkeeping
 * only, kernels are not executed, copies to the host read as zeros. Everything
 * the allocator decides (which block, when to split, when to map, when to give
 * up) is decided by PyTorch's own code. Only public entry points are here, by name.
 *
 * One library in several files; python/oomscope/_stub.py compiles it for one installed
 * torch and adds an entry point for every symbol that torch asks for and that has none here.
 *
 * Environment:
 *   STUBCUDA_DEVICES       number of devices                     (default 1)
 *   STUBCUDA_TOTAL_MIB     capacity of each device, MiB          (default 81920)
 *   STUBCUDA_OTHER_MIB     memory held by "other processes", and by the context, MiB (default 0)
 *   STUBCUDA_NAME          what the devices are called           (default "Stub GPU")
 *   STUBCUDA_CC            compute capability, 90 for 9.0        (default 90)
 *   STUBCUDA_SMS, _L2, _SHARED, _THREADS   multiprocessors; bytes of L2; bytes of shared memory that a
 *                          block can have; threads of a multiprocessor (default: those of an H100)
 *   STUBCUDA_EVENT_LAG     an event completes this many driver calls after it
 *                          was recorded                          (default 0)
 *   STUBCUDA_EVENT_JITTER  plus a random number of calls below this (default 0)
 *   STUBCUDA_PLACEMENT     where new memory goes: lowest | highest | random
 *                          (lowest: the lowest free range; the other two keep
 *                          clear of it, so that age and address disagree)
 *   STUBCUDA_FAIL_ONE_IN   about one device allocation in this many fails with
 *                          "out of memory" though there is room (default 0: none)
 *   STUBCUDA_SEED          of the three random choices above     (default 1)
 *   STUBCUDA_LOG           path: log every device allocation call there
 */
#define _GNU_SOURCE
/* Releases, of the headers beside torch: CUDA's, cuDNN's and NCCL's. */
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
#include "told.c"
#include "allocation.c"
#include "devices.c"
#include "streams.c"
#include "copies.c"
#include "kernels.c"
#include "blas.c"
#include "workspaces.c"
#include "dnn.c"
#include "rnn.c"
#include "nccl.c"
#include "nvml.c"
#include "lookup.c"
