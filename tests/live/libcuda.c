/* A CUDA driver with no GPU behind it, strict about its rules, for the tests of `oomscope live`.
 *
 * Memory is bookkeeping only, in addresses that have nothing to do with those of oomscope's simulated
 * device. What NVIDIA documents as wrong, or as undefined, is refused here: calls before cuInit, on a thread
 * without a current context or with one given back, unknown devices, addresses and handles, sizes and places that
 * are no whole pages, memory mapped twice or where nothing is reserved, a part of a mapping unmapped or opened,
 * reservations given back in part or with memory in them, writes to memory that was not opened, and memory
 * unmapped while it may still be written.
 *
 * Environment:
 *   STUB_GPUS=n          GPUs                                                (1)
 *   STUB_TOTAL_MIB=n     memory of each                                      (81920)
 *   STUB_OTHERS_MIB=n    memory that others hold                             (0)
 *   STUB_HIDDEN_MIB=n    of what counts as free, memory that cannot be had   (0)
 *   STUB_FAIL_AT=n       call number n, from 1, of those with a GPU open fails (0: none)
 *   STUB_FAIL_WITH=code  with this CUresult                                  (999)
 *   STUB_INTERRUPT_AT=n  SIGINT is raised in call number n                   (0: never)
 *   STUB_MALLOC_US=n, STUB_FREE_US=n, STUB_MAP_US=n, STUB_UNMAP_US=n
 *                        a call takes at least this long                     (0)
 *   STUB_INIT=code       what cuInit answers                                 (0)
 *   STUB_RETAIN=code     what cuDevicePrimaryCtxRetain answers               (0)
 *   STUB_NO_VMM=1        memory cannot be mapped, only allocated             (0)
 *   STUB_NO_ADDRESSES=1  no addresses are left to reserve                    (0)
 *   STUB_LEDGER=path     written when the process ends: a line of calls, their numbers, what is left
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB (1024ull * 1024ull)
#define PAGE (2 * MIB)
enum {
  OK,
  INVALID_VALUE,
  OUT_OF_MEMORY,
  NOT_INITIALIZED,
  INVALID_DEVICE = 101,
  INVALID_CONTEXT = 201,
  ILLEGAL_ADDRESS = 700,
  NOT_SUPPORTED = 801
};

typedef int Code;
/* Ranges of addresses, of one kind each. */
typedef struct Range {
  uint64_t base, size, handle;
  int is_open;
  struct Range *next;
} Range;

static Range *segments, *reservations, *mappings, *handles;
static uint64_t next_address = 0x7f0000000000ull, next_handle = 1;
static uint64_t taken, peak, written, calls;
static int contexts, is_initialized, is_writing;
static _Thread_local int is_current; /* the context */

static uint64_t number(const char *name, uint64_t otherwise) {
  const char *value = getenv(name);
  return value && *value ? strtoull(value, NULL, 0) : otherwise;
}

static Range *add(Range **list, uint64_t base, uint64_t size, uint64_t handle) {
  Range *range = calloc(1, sizeof *range);
  *range = (Range){base, size, handle, 0, *list};
  return *list = range;
}
/* Takes the range that begins at `base`, with `size` bytes unless that is 0, out of the list. */
static int take(Range **list, uint64_t base, uint64_t size, Range *out) {
  for (Range **at = list; *at; at = &(*at)->next)
    if ((*at)->base == base && (!size || (*at)->size == size)) {
      Range *found = *at;
      if (out) *out = *found;
      *at = found->next;
      free(found);
      return 1;
    }
  return 0;
}
static Range *around(Range *list, uint64_t base, uint64_t size) {
  for (; list; list = list->next)
    if (list->base <= base && base + size <= list->base + list->size) return list;
  return NULL;
}
static int meets(Range *list, uint64_t base, uint64_t size) {
  for (; list; list = list->next)
    if (list->base < base + size && base < list->base + list->size) return 1;
  return 0;
}
static uint64_t count(Range *list) {
  uint64_t n = 0;
  for (; list; list = list->next) n++;
  return n;
}
static uint64_t pages(uint64_t size) { return (size + PAGE - 1) / PAGE * PAGE; }
static uint64_t addresses(uint64_t size) { /* scattered: the newest is the lowest */
  return next_address -= pages(size) + 7 * PAGE;
}

/* Every call with a GPU open passes here. */
static Code enter(const char *slow) {
  calls++;
  if (calls == number("STUB_INTERRUPT_AT", 0)) raise(SIGINT);
  if (slow && number(slow, 0)) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1000000ll + (now.tv_nsec - start.tv_nsec) / 1000 < (long long)number(slow, 0));
  }
  if (calls == number("STUB_FAIL_AT", 0)) return (Code)number("STUB_FAIL_WITH", 999);
  if (!is_initialized) return NOT_INITIALIZED;
  return contexts && is_current ? OK : INVALID_CONTEXT;
}
#define TRY(call) \
  do { \
    Code failed = call; \
    if (failed) return failed; \
  } while (0)
#define ENTER(slow) TRY(enter(slow))
/* The calls for memory that is mapped. */
#define ENTER_MAPPED(slow) \
  do { \
    ENTER(slow); \
    if (!maps()) return NOT_SUPPORTED; \
  } while (0)
static int maps(void) { return !number("STUB_NO_VMM", 0); }

static uint64_t total(void) { return number("STUB_TOTAL_MIB", 81920) * MIB; }
static uint64_t others(void) { return number("STUB_OTHERS_MIB", 0) * MIB; }
static int fits(uint64_t size) { return taken + size + others() + number("STUB_HIDDEN_MIB", 0) * MIB <= total(); }
static void count_in(uint64_t size) {
  taken += size;
  if (taken > peak) peak = taken;
}

static int is_gpu(int ordinal) { return ordinal >= 0 && ordinal < (int)number("STUB_GPUS", 1); }

/* Calls that need no context; `device` is what cuDeviceGet gave, 40 where any will do. */
static Code without_context(int device) {
  return !is_initialized ? NOT_INITIALIZED : is_gpu(device - 40) || device == 40 ? OK : INVALID_DEVICE;
}

Code cuInit(unsigned flags) {
  Code code = flags ? INVALID_VALUE : (Code)number("STUB_INIT", OK);
  is_initialized = code == OK;
  return code;
}
Code cuDriverGetVersion(int *version) {
  *version = 12080;
  return OK;
}
Code cuDeviceGetCount(int *n) {
  TRY(without_context(40));
  *n = (int)number("STUB_GPUS", 1);
  return OK;
}
Code cuDeviceGet(int *device, int n) {
  *device = n + 40; /* what stands for a device is not its number */
  return without_context(*device);
}
Code cuDeviceGetAttribute(int *value, int attribute, int device) {
  ENTER(NULL);
  TRY(without_context(device));
  if (attribute != 102) return INVALID_VALUE; /* whether memory can be mapped */
  *value = maps();
  return OK;
}
Code cuDeviceGetName(char *name, int length, int device) {
  ENTER(NULL);
  TRY(without_context(device));
  snprintf(name, (size_t)length, "Stub GPU %d", device - 40);
  return OK;
}
Code cuGetErrorName(int code, const char **text) {
  *text = code == OUT_OF_MEMORY   ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
          : code == 999           ? "CUDA_ERROR_UNKNOWN"
                                  : NULL;
  return *text ? OK : INVALID_VALUE;
}
Code cuGetErrorString(int code, const char **text) {
  *text = code == OUT_OF_MEMORY ? "out of memory" : code == 999 ? "unknown error" : NULL;
  return *text ? OK : INVALID_VALUE;
}
Code cuDevicePrimaryCtxRetain(void **context, int device) {
  TRY(without_context(device));
  TRY((Code)number("STUB_RETAIN", OK));
  contexts++;
  *context = &contexts;
  return OK;
}
Code cuDevicePrimaryCtxRelease_v2(int device) {
  TRY(without_context(device));
  ENTER(NULL);
  contexts--;
  return OK;
}
Code cuCtxSetCurrent(void *context) {
  is_current = context == &contexts;
  ENTER(NULL);
  return OK;
}
Code cuCtxSynchronize(void) {
  ENTER(NULL);
  is_writing = 0;
  return OK;
}

Code cuMemGetInfo_v2(size_t *free_bytes, size_t *all) {
  ENTER(NULL);
  *all = total();
  *free_bytes = total() - others() - taken;
  return OK;
}
Code cuMemAlloc_v2(uint64_t *out, size_t size) {
  ENTER("STUB_MALLOC_US");
  if (!size) return INVALID_VALUE;
  if (!fits(pages(size))) return OUT_OF_MEMORY;
  count_in(pages(size));
  *out = addresses(size);
  add(&segments, *out, size, 0)->is_open = 1;
  return OK;
}
Code cuMemFree_v2(uint64_t base) {
  Range segment;
  ENTER("STUB_FREE_US");
  if (!take(&segments, base, 0, &segment)) return INVALID_VALUE;
  is_writing = 0; /* it waits */
  taken -= pages(segment.size);
  return OK;
}
Code cuMemsetD8_v2(uint64_t base, unsigned char byte, size_t size) {
  (void)byte;
  ENTER(NULL);
  for (uint64_t at = base; at < base + size;) { /* a range may span mappings */
    Range *range = around(segments, at, 1);
    if (!range) range = around(mappings, at, 1);
    if (!range || !range->is_open) return INVALID_VALUE;
    at = range->base + range->size;
  }
  written += size;
  is_writing = 1; /* until somebody waits */
  return OK;
}

/* As in cuda.h, where all but what the driver is told must be zero. */
typedef struct {
  int type, handle_types, location_type, location;
  void *for_windows;
  struct {
    unsigned char compression, is_for_rdma;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
} Properties;
typedef struct {
  int location_type, location, flags;
} Access;
_Static_assert(sizeof(Properties) == 32 && sizeof(Access) == 12, "the driver's own sizes");

static int is_whole(uint64_t base, uint64_t size) { return size && base % PAGE == 0 && size % PAGE == 0; }

Code cuMemAddressReserve(uint64_t *out, size_t size, size_t alignment, uint64_t wish, unsigned long long flags) {
  ENTER_MAPPED(NULL);
  if (!is_whole(0, size) || alignment || wish || flags) return INVALID_VALUE;
  if (number("STUB_NO_ADDRESSES", 0)) return OUT_OF_MEMORY;
  *out = addresses(size);
  add(&reservations, *out, size, 0);
  return OK;
}
Code cuMemAddressFree(uint64_t base, size_t size) {
  ENTER_MAPPED(NULL);
  if (!is_whole(base, size) || meets(mappings, base, size) || !take(&reservations, base, size, NULL))
    return INVALID_VALUE;
  return OK;
}
Code cuMemCreate(uint64_t *out, size_t size, const Properties *properties, unsigned long long flags) {
  static const Properties unset;
  ENTER_MAPPED(NULL);
  if (!is_whole(0, size) || flags || properties->type != 1 || properties->handle_types ||
      properties->location_type != 1 || properties->for_windows ||
      memcmp(&properties->flags, &unset.flags, sizeof unset.flags))
    return INVALID_VALUE;
  if (!is_gpu(properties->location)) return INVALID_DEVICE;
  if (!fits(size)) return OUT_OF_MEMORY;
  count_in(size);
  *out = next_handle++;
  add(&handles, *out, size, 0);
  return OK;
}
Code cuMemRelease(uint64_t handle) {
  Range created;
  ENTER_MAPPED(NULL);
  if (!take(&handles, handle, 0, &created)) return INVALID_VALUE;
  for (Range *range = mappings; range; range = range->next)
    if (range->handle == handle) return OK; /* memory that is mapped stays until it is unmapped */
  taken -= created.size;
  return OK;
}
Code cuMemMap(uint64_t base, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
  ENTER_MAPPED("STUB_MAP_US");
  Range *created = around(handles, handle, 1);
  if (!is_whole(base, size) || !created || created->base != handle || created->size != size || offset || flags ||
      !around(reservations, base, size) || meets(mappings, base, size))
    return INVALID_VALUE;
  add(&mappings, base, size, handle);
  return OK;
}
Code cuMemUnmap(uint64_t base, size_t size) {
  Range mapping;
  ENTER_MAPPED("STUB_UNMAP_US");
  if (is_writing) return ILLEGAL_ADDRESS;
  if (!is_whole(base, size) || !take(&mappings, base, size, &mapping)) return INVALID_VALUE;
  for (Range *range = handles; range; range = range->next)
    if (range->base == mapping.handle) return OK;
  taken -= mapping.size;
  return OK;
}
Code cuMemSetAccess(uint64_t base, size_t size, const Access *access, size_t n) {
  ENTER_MAPPED(NULL);
  if (!is_whole(base, size) || n != 1 || access->location_type != 1 || access->flags != 3) return INVALID_VALUE;
  if (!is_gpu(access->location)) return INVALID_DEVICE;
  for (uint64_t at = base; at < base + size;) { /* mappings, each of them whole */
    Range *range = around(mappings, at, 1);
    if (!range || range->base != at || at + range->size > base + size) return INVALID_VALUE;
    range->is_open = 1;
    at += range->size;
  }
  return OK;
}

__attribute__((destructor)) static void close_ledger(void) {
  const char *path = getenv("STUB_LEDGER");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (!file) return;
  fprintf(file,
          "{\"calls\": %llu, \"taken\": %llu, \"peak\": %llu, \"written\": %llu, \"segments\": %llu,"
          " \"reservations\": %llu, \"mappings\": %llu, \"handles\": %llu, \"contexts\": %d}\n",
          (unsigned long long)calls, (unsigned long long)taken, (unsigned long long)peak, (unsigned long long)written,
          (unsigned long long)count(segments), (unsigned long long)count(reservations),
          (unsigned long long)count(mappings), (unsigned long long)count(handles), contexts);
  fclose(file);
}
