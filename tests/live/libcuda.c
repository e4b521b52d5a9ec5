/* A CUDA driver with no GPU behind it, strict about its rules, for the tests of `oomscope live`.
 *
 * Memory is bookkeeping only, in addresses that have nothing to do with those of oomscope's simulated
 * device. What a real driver refuses is refused here: unknown addresses and handles, sizes that are no
 * whole pages, memory mapped twice or where nothing is reserved, writes to memory that was not opened.
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
enum { OK, INVALID_VALUE, OUT_OF_MEMORY, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };

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
static int contexts, current;

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
    while ((now.tv_sec - start.tv_sec) * 1000000ll + (now.tv_nsec - start.tv_nsec) / 1000
           < (long long)number(slow, 0));
  }
  if (calls == number("STUB_FAIL_AT", 0)) return (Code)number("STUB_FAIL_WITH", 999);
  return current ? OK : INVALID_CONTEXT;
}
#define ENTER(slow) do { Code failed = enter(slow); if (failed) return failed; } while (0)

static uint64_t total(void) { return number("STUB_TOTAL_MIB", 81920) * MIB; }
static uint64_t others(void) { return number("STUB_OTHERS_MIB", 0) * MIB; }
static int fits(uint64_t size) {
  return taken + size + others() + number("STUB_HIDDEN_MIB", 0) * MIB <= total();
}
static void count_in(uint64_t size) { taken += size; if (taken > peak) peak = taken; }

static int is_gpu(int ordinal) { return ordinal >= 0 && ordinal < (int)number("STUB_GPUS", 1); }

Code cuInit(unsigned flags) { (void)flags; return (Code)number("STUB_INIT", OK); }
Code cuDriverGetVersion(int *version) { *version = 12080; return OK; }
Code cuDeviceGetCount(int *n) { *n = (int)number("STUB_GPUS", 1); return OK; }
Code cuDeviceGet(int *device, int n) {
  *device = n + 40; /* what stands for a device is not its number */
  return is_gpu(n) ? OK : INVALID_DEVICE;
}
Code cuDeviceGetName(char *name, int length, int device) {
  ENTER(NULL);
  snprintf(name, (size_t)length, "Stub GPU %d", device - 40);
  return OK;
}
Code cuGetErrorName(int code, const char **text) {
  *text = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
        : code == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : code == 999 ? "CUDA_ERROR_UNKNOWN" : NULL;
  return *text ? OK : INVALID_VALUE;
}
Code cuGetErrorString(int code, const char **text) {
  *text = code == OUT_OF_MEMORY ? "out of memory" : code == 999 ? "unknown error" : NULL;
  return *text ? OK : INVALID_VALUE;
}
Code cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; contexts++; *context = &contexts; return OK; }
Code cuDevicePrimaryCtxRelease_v2(int device) { (void)device; ENTER(NULL); contexts--; return OK; }
Code cuCtxSetCurrent(void *context) { current = context == &contexts; ENTER(NULL); return OK; }
Code cuCtxSynchronize(void) { ENTER(NULL); return OK; }

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
  return OK;
}

/* The properties, as far as they are looked at. */
typedef struct { int type, handle_types, location_type, location; } Properties;
typedef struct { int location_type, location, flags; } Access;

Code cuMemAddressReserve(uint64_t *out, size_t size, size_t alignment, uint64_t wish, unsigned long long flags) {
  ENTER(NULL);
  if (!size || size % PAGE || alignment || wish || flags) return INVALID_VALUE;
  *out = addresses(size);
  add(&reservations, *out, size, 0);
  return OK;
}
Code cuMemAddressFree(uint64_t base, size_t size) {
  ENTER(NULL);
  if (meets(mappings, base, size) || !take(&reservations, base, size, NULL)) return INVALID_VALUE;
  return OK;
}
Code cuMemCreate(uint64_t *out, size_t size, const Properties *properties, unsigned long long flags) {
  ENTER(NULL);
  if (!size || size % PAGE || flags || properties->type != 1 || properties->handle_types
      || properties->location_type != 1 || !is_gpu(properties->location)) return INVALID_VALUE;
  if (!fits(size)) return OUT_OF_MEMORY;
  count_in(size);
  *out = next_handle++;
  add(&handles, *out, size, 0);
  return OK;
}
Code cuMemRelease(uint64_t handle) {
  Range created;
  ENTER(NULL);
  if (!take(&handles, handle, 0, &created)) return INVALID_VALUE;
  for (Range *range = mappings; range; range = range->next)
    if (range->handle == handle) return OK; /* memory that is mapped stays until it is unmapped */
  taken -= created.size;
  return OK;
}
Code cuMemMap(uint64_t base, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
  ENTER("STUB_MAP_US");
  Range *created = around(handles, handle, 1);
  if (!created || created->base != handle || created->size != size || offset || flags
      || !around(reservations, base, size) || meets(mappings, base, size)) return INVALID_VALUE;
  add(&mappings, base, size, handle);
  return OK;
}
Code cuMemUnmap(uint64_t base, size_t size) {
  Range mapping;
  ENTER("STUB_UNMAP_US");
  if (!take(&mappings, base, size, &mapping)) return INVALID_VALUE;
  for (Range *range = handles; range; range = range->next)
    if (range->base == mapping.handle) return OK;
  taken -= mapping.size;
  return OK;
}
Code cuMemSetAccess(uint64_t base, size_t size, const Access *access, size_t n) {
  ENTER(NULL);
  if (n != 1 || access->location_type != 1 || !is_gpu(access->location) || access->flags != 3) return INVALID_VALUE;
  for (uint64_t at = base; at < base + size;) {
    Range *range = around(mappings, at, 1);
    if (!range) return INVALID_VALUE;
    range->is_open = 1;
    at = range->base + range->size;
  }
  return OK;
}

/* The library may be loaded and unloaded before it is used: the last word stands. */
__attribute__((destructor)) static void close_ledger(void) {
  const char *path = getenv("STUB_LEDGER");
  FILE *file = path ? fopen(path, "w") : NULL;
  if (!file) return;
  fprintf(file,
          "{\"calls\": %llu, \"taken\": %llu, \"peak\": %llu, \"written\": %llu, \"segments\": %llu,"
          " \"reservations\": %llu, \"mappings\": %llu, \"handles\": %llu, \"contexts\": %d}\n",
          (unsigned long long)calls, (unsigned long long)taken, (unsigned long long)peak,
          (unsigned long long)written, (unsigned long long)count(segments),
          (unsigned long long)count(reservations), (unsigned long long)count(mappings),
          (unsigned long long)count(handles), contexts);
  fclose(file);
}
