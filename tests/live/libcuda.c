/* A CUDA driver without a GPU that checks how it is called, for the tests of `oomscope live`.
 *
 * Memory is bookkeeping only, at addresses unrelated to those of oomscope's simulated device. The driver rejects what
 * NVIDIA documents as an error or as undefined:
 * - calls before cuInit, on a thread without a current context, or after the context was released;
 * - unknown devices, addresses and handles; sizes and addresses that are not multiples of a page;
 * - mapping over a mapping or outside a reservation; unmapping or setting access for part of a mapping;
 * - freeing part of a reservation, or one that still has mappings;
 * - writing to memory without access, and unmapping memory while a write may be in progress.
 *
 * Environment:
 *   STUB_GPUS=n          number of GPUs (1)
 *   STUB_TOTAL_MIB=n     memory of each GPU (81920)
 *   STUB_OTHERS_MIB=n    memory in use by other processes (0)
 *   STUB_HIDDEN_MIB=n    memory that is reported free but cannot be allocated (0)
 *   STUB_FAIL_AT=n       index from 1 of the call to fail, counted while a context exists (0: none)
 *   STUB_FAIL_WITH=code  CUresult of that call (999)
 *   STUB_INTERRUPT_AT=n  raise SIGINT in call n (0: never)
 *   STUB_MALLOC_US=n, STUB_FREE_US=n, STUB_MAP_US=n, STUB_UNMAP_US=n
 *                        minimum duration of such a call (0)
 *   STUB_INIT=code       result of cuInit (0)
 *   STUB_RETAIN=code     result of cuDevicePrimaryCtxRetain (0)
 *   STUB_NO_VMM=1        virtual memory management is not supported (0)
 *   STUB_NO_ADDRESSES=1  cuMemAddressReserve fails (0)
 *   STUB_LEDGER=path     written at exit: JSON with the number of calls and what was not released
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
/* An address range, in one of the lists below. */
typedef struct Range {
  uint64_t base, size, handle;
  int is_accessible;
  struct Range *next;
} Range;

static Range *segments, *reservations, *mappings, *handles;
static uint64_t next_address = 0x7f0000000000ull, next_handle = 1;
static uint64_t taken, peak, written, calls;
static int contexts, is_initialized, is_writing;
static _Thread_local int is_current; /* the context is current on this thread */

static uint64_t env_u64(const char *name, uint64_t fallback) {
  const char *value = getenv(name);
  return value && *value ? strtoull(value, NULL, 0) : fallback;
}

static Range *add_range(Range **list, uint64_t base, uint64_t size, uint64_t handle) {
  Range *range = calloc(1, sizeof *range);
  *range = (Range){base, size, handle, 0, *list};
  return *list = range;
}
/* Removes the range that starts at `base` and has `size` bytes (0: any size). */
static int remove_range(Range **list, uint64_t base, uint64_t size, Range *out) {
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
static Range *find_containing(Range *list, uint64_t base, uint64_t size) {
  for (; list; list = list->next)
    if (list->base <= base && base + size <= list->base + list->size) return list;
  return NULL;
}
static int overlaps(Range *list, uint64_t base, uint64_t size) {
  for (; list; list = list->next)
    if (list->base < base + size && base < list->base + list->size) return 1;
  return 0;
}
static uint64_t range_count(Range *list) {
  uint64_t n = 0;
  for (; list; list = list->next) n++;
  return n;
}
static uint64_t round_to_pages(uint64_t size) { return (size + PAGE - 1) / PAGE * PAGE; }
static uint64_t new_address(uint64_t size) { /* not contiguous; newer ranges are lower */
  return next_address -= round_to_pages(size) + 7 * PAGE;
}

/* Starts every call that needs a context; `slow` names the variable with its duration. */
static Code begin_call(const char *slow) {
  calls++;
  if (calls == env_u64("STUB_INTERRUPT_AT", 0)) raise(SIGINT);
  if (slow && env_u64(slow, 0)) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1000000ll + (now.tv_nsec - start.tv_nsec) / 1000 <
           (long long)env_u64(slow, 0));
  }
  if (calls == env_u64("STUB_FAIL_AT", 0)) return (Code)env_u64("STUB_FAIL_WITH", 999);
  if (!is_initialized) return NOT_INITIALIZED;
  return contexts && is_current ? OK : INVALID_CONTEXT;
}
#define TRY(call) \
  do { \
    Code failed = call; \
    if (failed) return failed; \
  } while (0)
#define BEGIN(slow) TRY(begin_call(slow))
/* For calls of virtual memory management. */
#define BEGIN_VMM(slow) \
  do { \
    BEGIN(slow); \
    if (!can_map()) return NOT_SUPPORTED; \
  } while (0)
static int can_map(void) { return !env_u64("STUB_NO_VMM", 0); }

static uint64_t total(void) { return env_u64("STUB_TOTAL_MIB", 81920) * MIB; }
static uint64_t others_bytes(void) { return env_u64("STUB_OTHERS_MIB", 0) * MIB; }
static int has_room(uint64_t size) {
  return taken + size + others_bytes() + env_u64("STUB_HIDDEN_MIB", 0) * MIB <= total();
}
static void add_taken(uint64_t size) {
  taken += size;
  if (taken > peak) peak = taken;
}

static int is_gpu(int ordinal) { return ordinal >= 0 && ordinal < (int)env_u64("STUB_GPUS", 1); }

/* The handle of device 0: a caller that confuses handles and ordinals fails. */
#define DEVICE_HANDLE 40

/* For calls that need no context. */
static Code without_context(int device) {
  return !is_initialized                                             ? NOT_INITIALIZED
         : is_gpu(device - DEVICE_HANDLE) || device == DEVICE_HANDLE ? OK
                                                                     : INVALID_DEVICE;
}

Code cuInit(unsigned flags) {
  Code code = flags ? INVALID_VALUE : (Code)env_u64("STUB_INIT", OK);
  is_initialized = code == OK;
  return code;
}
Code cuDriverGetVersion(int *version) {
  *version = 12080;
  return OK;
}
Code cuDeviceGetCount(int *count) {
  TRY(without_context(DEVICE_HANDLE));
  *count = (int)env_u64("STUB_GPUS", 1);
  return OK;
}
Code cuDeviceGet(int *device, int ordinal) {
  *device = ordinal + DEVICE_HANDLE;
  return without_context(*device);
}
Code cuDeviceGetAttribute(int *value, int attribute, int device) {
  BEGIN(NULL);
  TRY(without_context(device));
  if (attribute != 102) return INVALID_VALUE; /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
  *value = can_map();
  return OK;
}
Code cuDeviceGetName(char *name, int length, int device) {
  BEGIN(NULL);
  TRY(without_context(device));
  snprintf(name, (size_t)length, "Stub GPU %d", device - DEVICE_HANDLE);
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
  TRY((Code)env_u64("STUB_RETAIN", OK));
  contexts++;
  *context = &contexts;
  return OK;
}
Code cuDevicePrimaryCtxRelease_v2(int device) {
  TRY(without_context(device));
  BEGIN(NULL);
  contexts--;
  return OK;
}
Code cuCtxSetCurrent(void *context) {
  is_current = context == &contexts;
  BEGIN(NULL);
  return OK;
}
Code cuCtxSynchronize(void) {
  BEGIN(NULL);
  is_writing = 0;
  return OK;
}

Code cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  BEGIN(NULL);
  *total_bytes = total();
  *free_bytes = total() - others_bytes() - taken;
  return OK;
}
Code cuMemAlloc_v2(uint64_t *out, size_t size) {
  BEGIN("STUB_MALLOC_US");
  if (!size) return INVALID_VALUE;
  if (!has_room(round_to_pages(size))) return OUT_OF_MEMORY;
  add_taken(round_to_pages(size));
  *out = new_address(size);
  add_range(&segments, *out, size, 0)->is_accessible = 1;
  return OK;
}
Code cuMemFree_v2(uint64_t base) {
  Range segment;
  BEGIN("STUB_FREE_US");
  if (!remove_range(&segments, base, 0, &segment)) return INVALID_VALUE;
  is_writing = 0; /* cuMemFree synchronizes */
  taken -= round_to_pages(segment.size);
  return OK;
}
Code cuMemsetD8_v2(uint64_t base, unsigned char byte, size_t size) {
  (void)byte;
  BEGIN(NULL);
  for (uint64_t at = base; at < base + size;) { /* may span several mappings */
    Range *range = find_containing(segments, at, 1);
    if (!range) range = find_containing(mappings, at, 1);
    if (!range || !range->is_accessible) return INVALID_VALUE;
    at = range->base + range->size;
  }
  written += size;
  is_writing = 1; /* until something synchronizes */
  return OK;
}

/* CUmemAllocationProp and CUmemAccessDesc, laid out as in cuda.h. Fields that are not used must be zero. */
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
_Static_assert(sizeof(Properties) == 32 && sizeof(Access) == 12, "layout of cuda.h");

static int is_page_aligned(uint64_t base, uint64_t size) { return size && base % PAGE == 0 && size % PAGE == 0; }

Code cuMemAddressReserve(uint64_t *out, size_t size, size_t alignment, uint64_t address, unsigned long long flags) {
  BEGIN_VMM(NULL);
  if (!is_page_aligned(0, size) || alignment || address || flags) return INVALID_VALUE;
  if (env_u64("STUB_NO_ADDRESSES", 0)) return OUT_OF_MEMORY;
  *out = new_address(size);
  add_range(&reservations, *out, size, 0);
  return OK;
}
Code cuMemAddressFree(uint64_t base, size_t size) {
  BEGIN_VMM(NULL);
  if (!is_page_aligned(base, size) || overlaps(mappings, base, size) || !remove_range(&reservations, base, size, NULL))
    return INVALID_VALUE;
  return OK;
}
Code cuMemCreate(uint64_t *out, size_t size, const Properties *properties, unsigned long long flags) {
  static const Properties unset;
  BEGIN_VMM(NULL);
  if (!is_page_aligned(0, size) || flags || properties->type != 1 || properties->handle_types ||
      properties->location_type != 1 || properties->for_windows ||
      memcmp(&properties->flags, &unset.flags, sizeof unset.flags))
    return INVALID_VALUE;
  if (!is_gpu(properties->location)) return INVALID_DEVICE;
  if (!has_room(size)) return OUT_OF_MEMORY;
  add_taken(size);
  *out = next_handle++;
  add_range(&handles, *out, size, 0);
  return OK;
}
Code cuMemRelease(uint64_t handle) {
  Range created;
  BEGIN_VMM(NULL);
  if (!remove_range(&handles, handle, 0, &created)) return INVALID_VALUE;
  for (Range *range = mappings; range; range = range->next)
    if (range->handle == handle) return OK; /* memory with a mapping stays until it is unmapped */
  taken -= created.size;
  return OK;
}
Code cuMemMap(uint64_t base, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
  BEGIN_VMM("STUB_MAP_US");
  Range *created = find_containing(handles, handle, 1);
  if (!is_page_aligned(base, size) || !created || created->base != handle || created->size != size || offset || flags ||
      !find_containing(reservations, base, size) || overlaps(mappings, base, size))
    return INVALID_VALUE;
  add_range(&mappings, base, size, handle);
  return OK;
}
Code cuMemUnmap(uint64_t base, size_t size) {
  Range mapping;
  BEGIN_VMM("STUB_UNMAP_US");
  if (is_writing) return ILLEGAL_ADDRESS;
  if (!is_page_aligned(base, size) || !remove_range(&mappings, base, size, &mapping)) return INVALID_VALUE;
  for (Range *range = handles; range; range = range->next)
    if (range->base == mapping.handle) return OK;
  taken -= mapping.size;
  return OK;
}
Code cuMemSetAccess(uint64_t base, size_t size, const Access *access, size_t count) {
  BEGIN_VMM(NULL);
  if (!is_page_aligned(base, size) || count != 1 || access->location_type != 1 || access->flags != 3)
    return INVALID_VALUE;
  if (!is_gpu(access->location)) return INVALID_DEVICE;
  for (uint64_t at = base; at < base + size;) { /* only whole mappings */
    Range *range = find_containing(mappings, at, 1);
    if (!range || range->base != at || at + range->size > base + size) return INVALID_VALUE;
    range->is_accessible = 1;
    at += range->size;
  }
  return OK;
}

__attribute__((destructor)) static void write_ledger(void) {
  const char *path = getenv("STUB_LEDGER");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (!file) return;
  fprintf(file,
          "{\"calls\": %llu, \"taken\": %llu, \"peak\": %llu, \"written\": %llu, \"segments\": %llu,"
          " \"reservations\": %llu, \"mappings\": %llu, \"handles\": %llu, \"contexts\": %d}\n",
          (unsigned long long)calls, (unsigned long long)taken, (unsigned long long)peak, (unsigned long long)written,
          (unsigned long long)range_count(segments), (unsigned long long)range_count(reservations),
          (unsigned long long)range_count(mappings), (unsigned long long)range_count(handles), contexts);
  fclose(file);
}
