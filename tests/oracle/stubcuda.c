/* stubcuda: a CUDA runtime, driver and cuBLAS with no GPU behind them.
 *
 * Preloaded under a stock PyTorch CUDA wheel it lets the real caching allocator
 * (libc10_cuda.so) run on a machine without a GPU: device memory is bookkeeping
 * only, kernels are not executed, copies to the host read as zeros. Everything
 * the allocator decides (which block, when to split, when to map, when to give
 * up) is decided by PyTorch's own code, so a snapshot it dumps is ground truth.
 *
 * Environment:
 *   STUBCUDA_DEVICES       number of devices                     (default 1)
 *   STUBCUDA_TOTAL_MIB     capacity of each device, MiB          (default 81920)
 *   STUBCUDA_OTHER_MIB     memory held by "other processes", MiB (default 0)
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
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <dlfcn.h>
#include <driver_types.h>

#define EXPORT __attribute__((visibility("default")))
#define MIB (1024ull * 1024ull)
#define PAGE (2 * MIB)
#define MAX_DEVICES 16
#define OOM 2
#define NOT_READY 600

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread int current_device = 0;
static __thread int last_error = 0;
static uint64_t ticks = 0;

static uint64_t env_u64(const char *name, uint64_t fallback) {
  const char *v = getenv(name);
  return v && *v ? strtoull(v, NULL, 0) : fallback;
}
static int device_count(void) { return (int)env_u64("STUBCUDA_DEVICES", 1); }
static uint64_t capacity(void) { return env_u64("STUBCUDA_TOTAL_MIB", 81920) * MIB; }
static uint64_t others(void) { return env_u64("STUBCUDA_OTHER_MIB", 0) * MIB; }
static int random_seeded = 0; static uint64_t random_state;
static uint64_t next_random(void) { /* splitmix64 */
  if (!random_seeded) { random_state = env_u64("STUBCUDA_SEED", 1); random_seeded = 1; }
  uint64_t z = (random_state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull; z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
static int unlucky(void) { uint64_t n = env_u64("STUBCUDA_FAIL_ONE_IN", 0); return n && next_random() % n == 0; }
static int fail(int code) { last_error = code; return code; }

static void note(const char *what, int dev, uint64_t a, uint64_t n, int rc) {
  static FILE *out = NULL; static int tried = 0;
  if (!tried) { const char *p = getenv("STUBCUDA_LOG"); tried = 1; if (p && *p) out = fopen(p, "w"); }
  if (out) { fprintf(out, "%s %d 0x%llx %llu %d\n", what, dev, (unsigned long long)a, (unsigned long long)n, rc); fflush(out); }
}

/* ---- address ranges: a sorted list, 2 MiB granularity; each device has its own TiB ---- */
#define DEVICE_SHIFT 40
#define DEVICE_SPAN (1ull << DEVICE_SHIFT)
#define RESERVE_BASE 0x300000000000ull
#define RESERVE_SPAN 0x100000000000ull
#define MALLOC_BASE (RESERVE_BASE + RESERVE_SPAN)
#define MALLOC_END (MALLOC_BASE + MAX_DEVICES * DEVICE_SPAN)

/* No memory of the host may lie there, or copies to it would be taken for copies to a device. The heap of a
 * position-independent program begins above 0x555555554000, libraries and stacks lie above 0x7f0000000000. */
__attribute__((constructor)) static void keep_clear(void) {
  void *all = (void *)RESERVE_BASE; uint64_t size = MALLOC_END - RESERVE_BASE;
  if (mmap(all, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == all) return;
  fprintf(stderr, "stubcuda: the addresses of its devices, 0x%llx to 0x%llx, are not free\n", (unsigned long long)RESERVE_BASE, (unsigned long long)MALLOC_END);
  abort();
}
typedef struct range { uint64_t base, size; int dev; struct range *next; } range;
typedef struct { uint64_t origin; range *head; } space;
static space malloc_space[MAX_DEVICES];
static space reserve_space = {RESERVE_BASE, NULL};
static uint64_t used[MAX_DEVICES];

static uint64_t space_take(space *s, uint64_t size, int dev) {
  static char mode = 0;
  uint64_t span = s->origin == RESERVE_BASE ? RESERVE_SPAN : DEVICE_SPAN, at = 0; range **link = NULL;
  if (!mode) { const char *v = getenv("STUBCUDA_PLACEMENT"); mode = v && *v ? *v : 'l'; }
  for (int tries = 0; mode != 'l' && tries < 64; tries++) {
    if (mode == 'h') { /* just below everything taken so far */
      at = s->head ? s->head->base : s->origin + span / 2;
      if (at - s->origin < size) break;
      at -= size;
    } else at = s->origin + next_random() % (span / 4 / PAGE) * PAGE;
    for (link = &s->head; *link && (*link)->base + (*link)->size <= at; ) link = &(*link)->next;
    if (!*link || (*link)->base >= at + size) goto found;
  }
  link = &s->head; at = s->origin;
  while (*link && (*link)->base - at < size) { at = (*link)->base + (*link)->size; link = &(*link)->next; }
found:;
  range *r = malloc(sizeof *r); r->base = at; r->size = size; r->dev = dev; r->next = *link; *link = r;
  return at;
}
static int space_give(space *s, uint64_t base, uint64_t *size) {
  for (range **link = &s->head; *link; link = &(*link)->next)
    if ((*link)->base == base) { range *r = *link; *size = r->size; *link = r->next; free(r); return 1; }
  return 0;
}
static int is_device_pointer(uint64_t p) {
  return (p >= MALLOC_BASE && p < MALLOC_END) || (p >= RESERVE_BASE && p < RESERVE_BASE + RESERVE_SPAN);
}
static int pointer_device(uint64_t p) {
  if (p >= MALLOC_BASE && p < MALLOC_END) return (int)((p - MALLOC_BASE) >> DEVICE_SHIFT);
  for (range *r = reserve_space.head; r; r = r->next) if (p >= r->base && p < r->base + r->size) return r->dev;
  return 0;
}

EXPORT int cudaMalloc(void **out, size_t size) {
  pthread_mutex_lock(&lock); ticks++;
  int d = current_device; uint64_t n = (size + PAGE - 1) / PAGE * PAGE;
  if (!n) n = PAGE;
  if (!malloc_space[d].origin) malloc_space[d].origin = MALLOC_BASE + ((uint64_t)d << DEVICE_SHIFT);
  if (used[d] + n + others() > capacity() || unlucky()) { note("cudaMalloc", d, 0, size, OOM); pthread_mutex_unlock(&lock); *out = NULL; return fail(OOM); }
  used[d] += n;
  uint64_t a = space_take(&malloc_space[d], n, d);
  note("cudaMalloc", d, a, size, 0);
  pthread_mutex_unlock(&lock);
  *out = (void *)a; return 0;
}
EXPORT int cudaFree(void *p) {
  if (!p) return 0;
  pthread_mutex_lock(&lock); ticks++;
  int d = pointer_device((uint64_t)p); uint64_t n = 0;
  int ok = space_give(&malloc_space[d], (uint64_t)p, &n);
  if (ok) used[d] -= n;
  note("cudaFree", d, (uint64_t)p, n, ok ? 0 : 1);
  pthread_mutex_unlock(&lock);
  return ok ? 0 : fail(1);
}
EXPORT int cudaMemGetInfo(size_t *fr, size_t *total) {
  pthread_mutex_lock(&lock);
  *total = capacity(); *fr = capacity() - others() - used[current_device];
  pthread_mutex_unlock(&lock); return 0;
}

/* ---- a pair for torch.cuda.memory.CUDAPluggableAllocator ---- */
EXPORT int cudaSetDevice(int d);
EXPORT int cudaGetLastError(void);
EXPORT void *stub_plug_alloc(ssize_t size, int device, void *stream) {
  void *p = NULL; int was = current_device;
  current_device = device; if (cudaMalloc(&p, size)) { p = NULL; cudaGetLastError(); }
  current_device = was; return p;
}
EXPORT void stub_plug_free(void *p, ssize_t size, int device, void *stream) { cudaFree(p); }

/* ---- virtual memory management (expandable segments) ---- */
typedef struct { uint64_t size; int dev; } physical;
EXPORT int cuMemAddressReserve(uint64_t *out, size_t size, size_t align, uint64_t addr, unsigned long long flags) {
  pthread_mutex_lock(&lock); ticks++;
  *out = space_take(&reserve_space, (size + PAGE - 1) / PAGE * PAGE, current_device);
  note("cuMemAddressReserve", current_device, *out, size, 0);
  pthread_mutex_unlock(&lock); return 0;
}
EXPORT int cuMemAddressFree(uint64_t p, size_t size) {
  pthread_mutex_lock(&lock); ticks++; uint64_t n = 0; space_give(&reserve_space, p, &n);
  note("cuMemAddressFree", current_device, p, n, 0);
  pthread_mutex_unlock(&lock); return 0;
}
typedef struct { int type; int requestedHandleTypes; struct { int type; int id; } location; } prop_head;
EXPORT int cuMemCreate(unsigned long long *handle, size_t size, const prop_head *prop, unsigned long long flags) {
  pthread_mutex_lock(&lock); ticks++;
  int d = prop ? prop->location.id : current_device; uint64_t n = (size + PAGE - 1) / PAGE * PAGE;
  if (used[d] + n + others() > capacity() || unlucky()) { note("cuMemCreate", d, 0, size, OOM); pthread_mutex_unlock(&lock); return OOM; }
  used[d] += n;
  physical *h = malloc(sizeof *h); h->size = n; h->dev = d; *handle = (unsigned long long)(uintptr_t)h;
  note("cuMemCreate", d, 0, size, 0);
  pthread_mutex_unlock(&lock); return 0;
}
EXPORT int cuMemRelease(unsigned long long handle) {
  pthread_mutex_lock(&lock); ticks++;
  physical *h = (physical *)(uintptr_t)handle; used[h->dev] -= h->size; note("cuMemRelease", h->dev, 0, h->size, 0); free(h);
  pthread_mutex_unlock(&lock); return 0;
}
EXPORT int cuMemMap(uint64_t p, size_t size, size_t off, unsigned long long h, unsigned long long f) { ticks++; note("cuMemMap", current_device, p, size, 0); return 0; }
EXPORT int cuMemUnmap(uint64_t p, size_t size) { ticks++; note("cuMemUnmap", current_device, p, size, 0); return 0; }
EXPORT int cuMemSetAccess(uint64_t p, size_t size, const void *d, size_t n) { return 0; }
EXPORT int cuMemGetAllocationGranularity(size_t *g, const void *p, int o) { *g = PAGE; return 0; }
EXPORT int cuMemGetAddressRange_v2(uint64_t *b, size_t *s, uint64_t p) { if (b) *b = p; if (s) *s = 0; return 0; }
EXPORT int cuMemGetAddressRange(uint64_t *b, size_t *s, uint64_t p) { return cuMemGetAddressRange_v2(b, s, p); }

/* ---- driver basics ---- */
static int attribute(int attr) {
  switch (attr) {
    case 1: return 1024; case 2: return 1024; case 3: return 1024; case 4: return 64;
    case 5: return 2147483647; case 6: case 7: return 65535; case 8: return 49152;
    case 9: return 65536; case 10: return 32; case 11: return 2147483647; case 12: return 65536; case 13: return 1980000;
    case 14: return 512; case 15: return 1; case 16: return 132; case 17: return 0; case 18: return 0;
    case 20: return 0; case 36: return 3201000; case 37: return 6144; case 38: return 62914560; case 39: return 2048;
    case 75: return 9; case 76: return 0; case 81: return 233472; case 82: return 65536; case 97: return 232448;
    case 102: return 1; case 103: return 1; case 106: return 32; case 115: return 1; case 128: return 0; case 132: return 0;
    default: return 1;
  }
}
EXPORT int cudaDeviceGetAttribute(int *v, int attr, int dev) { *v = attribute(attr); return 0; }
EXPORT int cuDeviceGetAttribute(int *v, int attr, int dev) { *v = attribute(attr); if (attr == 132 || attr == 128) *v = 0; return 0; }
EXPORT int cuDeviceGetUuid(void *u, int d) { memset(u, 0, 16); return 0; }
EXPORT int cuMemExportToShareableHandle(void *out, unsigned long long h, int type, unsigned long long f) { return 801; }
EXPORT int cuMemRetainAllocationHandle(unsigned long long *h, void *p) { return 801; }
EXPORT int cuInit(unsigned f) { return 0; }
EXPORT int cuDeviceGet(int *d, int ordinal) { *d = ordinal; return 0; }
EXPORT int cuDeviceGetCount(int *n) { *n = device_count(); return 0; }
EXPORT int cuDriverGetVersion(int *v) { *v = CUDART_V; return 0; }
EXPORT int cudaDriverGetVersion(int *v) { *v = CUDART_V; return 0; }
EXPORT int cudaRuntimeGetVersion(int *v) { *v = CUDART_V; return 0; }
EXPORT int cuCtxGetCurrent(void **c) { *c = (void *)0x1000; return 0; }
EXPORT int cuCtxPopCurrent_v2(void **c) { if (c) *c = (void *)0x1000; return 0; }
EXPORT int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *active) { *f = 0; *active = 1; return 0; }
EXPORT int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)0x1000; return 0; }
EXPORT int cuGetErrorString(int e, const char **s) { *s = e == OOM ? "out of memory" : "stub error"; return 0; }
EXPORT int cudaGetDeviceCount(int *n) { *n = device_count(); return 0; }
EXPORT int cudaGetDevice(int *d) { *d = current_device; return 0; }
EXPORT int cudaSetDevice(int d) { if (d < 0 || d >= device_count()) return fail(101); current_device = d; return 0; }
EXPORT int cudaGetLastError(void) { int e = last_error; last_error = 0; return e; }
EXPORT int cudaPeekAtLastError(void) { return last_error; }
EXPORT const char *cudaGetErrorString(int e) { return e == OOM ? "out of memory" : e == NOT_READY ? "device not ready" : e ? "stub error" : "no error"; }
EXPORT const char *cudaGetErrorName(int e) { return e == OOM ? "cudaErrorMemoryAllocation" : e == NOT_READY ? "cudaErrorNotReady" : e ? "cudaErrorStub" : "cudaSuccess"; }
EXPORT int cudaDeviceGetStreamPriorityRange(int *lo, int *hi) { if (lo) *lo = 0; if (hi) *hi = -5; return 0; }
EXPORT int cudaDeviceCanAccessPeer(int *c, int a, int b) { *c = 1; return 0; }
EXPORT int cudaDeviceGetPCIBusId(char *s, int n, int d) { snprintf(s, n, "0000:%02x:00.0", d + 1); return 0; }
static int properties(struct cudaDeviceProp *p, int dev) {
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "Stub GPU");
  p->totalGlobalMem = capacity(); p->sharedMemPerBlock = 49152; p->regsPerBlock = 65536; p->warpSize = 32;
  p->maxThreadsPerBlock = 1024; p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024; p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647; p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536; p->major = 9; p->minor = 0; p->multiProcessorCount = 132;
  p->l2CacheSize = 62914560; p->maxThreadsPerMultiProcessor = 2048; p->sharedMemPerMultiprocessor = 233472;
  p->regsPerMultiprocessor = 65536; p->sharedMemPerBlockOptin = 232448; p->maxBlocksPerMultiProcessor = 32;
  p->memoryPoolsSupported = 1; p->textureAlignment = 512; p->pciBusID = dev + 1; p->concurrentKernels = 1;
  p->uuid.bytes[15] = (char)(dev + 1);
  return 0;
}
EXPORT int cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) { return properties(p, d); }
EXPORT int cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int d) { return properties(p, d); }

/* ---- streams, capture, events ---- */
typedef struct { uint64_t id; int capturing; uint64_t capture_id; } stream_rec;
#define MAX_STREAMS 4096
static stream_rec streams[MAX_STREAMS]; static int n_streams = 0; static uint64_t captures = 0; static uint64_t next_handle = 0x10000;
static stream_rec *stream_of(uint64_t s) {
  for (int i = 0; i < n_streams; i++) if (streams[i].id == s) return &streams[i];
  streams[n_streams].id = s; return &streams[n_streams++];
}
EXPORT int cudaStreamCreateWithPriority(void **s, unsigned f, int p) { pthread_mutex_lock(&lock); next_handle += 0x100; *s = (void *)next_handle; pthread_mutex_unlock(&lock); return 0; }
EXPORT int cudaStreamCreateWithFlags(void **s, unsigned f) { return cudaStreamCreateWithPriority(s, f, 0); }
EXPORT int cudaStreamCreate(void **s) { return cudaStreamCreateWithPriority(s, 0, 0); }
EXPORT int cudaStreamIsCapturing(void *s, int *st) { pthread_mutex_lock(&lock); *st = stream_of((uint64_t)s)->capturing; pthread_mutex_unlock(&lock); return 0; }
static int capture_info(void *s, int *st, unsigned long long *id) {
  pthread_mutex_lock(&lock); stream_rec *r = stream_of((uint64_t)s); *st = r->capturing; if (id) *id = r->capture_id; pthread_mutex_unlock(&lock); return 0;
}
EXPORT int cudaStreamGetCaptureInfo(void *s, int *st, unsigned long long *id, void **g, const void ***deps, const void **edges, size_t *n) {
  if (CUDART_V >= 13000) { if (g) *g = (void *)0x77; if (deps) *deps = NULL; if (edges) *edges = NULL; if (n) *n = 0; }
  return capture_info(s, st, id);
}
EXPORT int cudaStreamGetCaptureInfo_v2(void *s, int *st, unsigned long long *id, void **g, const void ***deps, size_t *n) {
  if (g) *g = (void *)0x77; if (deps) *deps = NULL; if (n) *n = 0; return capture_info(s, st, id);
}
EXPORT int cudaStreamBeginCapture(void *s, int mode) { pthread_mutex_lock(&lock); stream_rec *r = stream_of((uint64_t)s); r->capturing = 1; r->capture_id = ++captures; pthread_mutex_unlock(&lock); return 0; }
EXPORT int cudaStreamEndCapture(void *s, void **g) { /* every stream that joined leaves with it */
  pthread_mutex_lock(&lock);
  uint64_t id = stream_of((uint64_t)s)->capture_id;
  for (int i = 0; i < n_streams; i++) if (streams[i].capturing && streams[i].capture_id == id) streams[i].capturing = 0;
  *g = (void *)0x77; pthread_mutex_unlock(&lock); return 0;
}
EXPORT int cudaGraphInstantiate(void **e, void *g, unsigned long long f) { *e = (void *)0x78; return 0; }
EXPORT int cudaGraphInstantiateWithFlags(void **e, void *g, unsigned long long f) { *e = (void *)0x78; return 0; }
EXPORT int cudaGraphGetNodes(void *g, void **nodes, size_t *n) { if (n) *n = 1; return 0; }

typedef struct { uint64_t due, capture_id; } event_rec; /* capture_id: of the capture it was recorded in, 0 outside */
EXPORT int cudaEventCreateWithFlags(void **e, unsigned f) { event_rec *r = calloc(1, sizeof *r); *e = r; return 0; }
EXPORT int cudaEventCreate(void **e) { return cudaEventCreateWithFlags(e, 0); }
EXPORT int cudaEventDestroy(void *e) { free(e); return 0; }
EXPORT int cudaEventRecord(void *e, void *s) {
  static uint64_t lag, jitter; static int known = 0;
  pthread_mutex_lock(&lock);
  if (!known) { lag = env_u64("STUBCUDA_EVENT_LAG", 0); jitter = env_u64("STUBCUDA_EVENT_JITTER", 0); known = 1; }
  stream_rec *r = stream_of((uint64_t)s);
  ((event_rec *)e)->due = ticks + lag + (jitter ? next_random() % jitter : 0);
  ((event_rec *)e)->capture_id = r->capturing ? r->capture_id : 0;
  pthread_mutex_unlock(&lock); return 0;
}
EXPORT int cudaEventRecordWithFlags(void *e, void *s, unsigned f) { return cudaEventRecord(e, s); }
EXPORT int cudaStreamWaitEvent(void *s, void *e, unsigned f) { /* waiting on a capturing stream joins its capture */
  pthread_mutex_lock(&lock);
  uint64_t id = ((event_rec *)e)->capture_id; int active = 0;
  for (int i = 0; id && i < n_streams; i++) if (streams[i].capturing && streams[i].capture_id == id) active = 1;
  if (active) { stream_rec *r = stream_of((uint64_t)s); r->capturing = 1; r->capture_id = id; }
  pthread_mutex_unlock(&lock); return 0;
}
EXPORT int cudaEventQuery(void *e) { pthread_mutex_lock(&lock); int busy = ticks < ((event_rec *)e)->due; ticks++; pthread_mutex_unlock(&lock); return busy ? fail(NOT_READY) : 0; }
EXPORT int cudaEventSynchronize(void *e) { pthread_mutex_lock(&lock); ((event_rec *)e)->due = 0; pthread_mutex_unlock(&lock); return 0; }
EXPORT int cudaEventElapsedTime(float *ms, void *a, void *b) { *ms = 1.0f; return 0; }
EXPORT int cudaDeviceSynchronize(void) { return 0; }

/* ---- copies: the host sees zeros ---- */
static int copy(void *dst, const void *src, size_t n, int kind) {
  int dd = is_device_pointer((uint64_t)dst), sd = is_device_pointer((uint64_t)src);
  if (!dd && sd) memset(dst, 0, n); else if (!dd && !sd) memmove(dst, src, n);
  return 0;
}
EXPORT int cudaMemcpy(void *d, const void *s, size_t n, int k) { return copy(d, s, n, k); }
EXPORT int cudaMemcpyAsync(void *d, const void *s, size_t n, int k, void *st) { return copy(d, s, n, k); }
EXPORT int cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, int k, void *st) { for (size_t i = 0; i < h; i++) copy((char *)d + i * dp, (const char *)s + i * sp, w, k); return 0; }
EXPORT int cudaHostAlloc(void **p, size_t n, unsigned f) { *p = NULL; return posix_memalign(p, 4096, n ? n : 1) ? fail(OOM) : 0; }
EXPORT int cudaMallocHost(void **p, size_t n) { return cudaHostAlloc(p, n, 0); }
EXPORT int cudaFreeHost(void *p) { free(p); return 0; }
EXPORT int cudaHostGetDevicePointer(void **d, void *h, unsigned f) { *d = h; return 0; }
EXPORT int cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  memset(a, 0, sizeof *a);
  if (is_device_pointer((uint64_t)p)) { a->type = cudaMemoryTypeDevice; a->device = pointer_device((uint64_t)p); a->devicePointer = (void *)p; }
  else { a->type = cudaMemoryTypeUnregistered; a->device = -1; }
  return 0;
}

/* ---- kernels: accepted, never run ---- */
typedef struct { unsigned x, y, z; } d3;
static __thread struct { d3 g, b; size_t sh; void *s; } launch;
EXPORT unsigned __cudaPushCallConfiguration(d3 g, d3 b, size_t sh, void *s) { launch.g = g; launch.b = b; launch.sh = sh; launch.s = s; return 0; }
EXPORT int __cudaPopCallConfiguration(d3 *g, d3 *b, size_t *sh, void *s) { *g = launch.g; *b = launch.b; *sh = launch.sh; *(void **)s = launch.s; return 0; }
EXPORT int __cudaGetKernel(void **k, const void *f) { *k = (void *)f; return 0; }
EXPORT int __cudaLaunchKernel(void *k, d3 g, d3 b, void **a, size_t sh, void *s) { ticks++; return 0; }
EXPORT int cudaLaunchKernel(const void *k, d3 g, d3 b, void **a, size_t sh, void *s) { ticks++; return 0; }
EXPORT int cudaLaunchKernelExC(const void *c, const void *k, void **a) { ticks++; return 0; }
EXPORT void **__cudaRegisterFatBinary(void *f) { static void *h[4]; return h; }
EXPORT char __cudaInitModule(void **h) { return 1; }
EXPORT int cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) { memset(a, 0, sizeof *a); a->maxThreadsPerBlock = 1024; a->numRegs = 32; a->ptxVersion = 90; a->binaryVersion = 90; return 0; }
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int b, size_t s) { *n = 2; return 0; }
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t s, unsigned fl) { *n = 2; return 0; }
EXPORT int cudaOccupancyMaxPotentialBlockSize(int *g, int *b, const void *f, size_t s, int l) { *g = 132; *b = 256; return 0; }
EXPORT int cudaGetSymbolAddress(void **p, const void *s) { *p = (void *)0x3ffff0000000ull; return 0; }

/* ---- cuBLAS ---- */
EXPORT int cublasCreate_v2(void **h) { *h = malloc(64); return 0; }
EXPORT int cublasGetPointerMode_v2(void *h, int *m) { *m = 0; return 0; }
EXPORT int cublasGetMathMode(void *h, int *m) { *m = 0; return 0; }
EXPORT int cublasLtCreate(void **h) { *h = malloc(64); return 0; }
EXPORT int cublasLtMatmulDescCreate(void **d, int c, int t) { *d = malloc(64); return 0; }
EXPORT int cublasLtMatrixLayoutCreate(void **d, int t, uint64_t r, uint64_t c, int64_t ld) { *d = malloc(64); return 0; }
EXPORT int cublasLtMatmulPreferenceCreate(void **d) { *d = malloc(64); return 0; }
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *h, void *o, void *a, void *b, void *c, void *d, void *p, int n, char *res, int *got) {
  memset(res, 0, 128); *got = 1; return 0;
}

/* ---- NVML: asked about fabric handles (none) and, on OOM, about other processes (none) ---- */
EXPORT int nvmlInit_v2(void) { return 0; }
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **d) { *d = (void *)0x2000; return 0; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)0x2000; return 0; }
EXPORT int nvmlDeviceGetCount_v2(unsigned *n) { *n = device_count(); return 0; }
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void *d, unsigned l, int *t) { return 3; }
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *d, unsigned l, void *p) { return 3; }
EXPORT int nvmlDeviceGetComputeRunningProcesses(void *d, unsigned *n, void *infos) { *n = 0; return 0; }
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, void *infos) { *n = 0; return 0; }
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *v) { *v = CUDART_V; return 0; }
EXPORT int nvmlDeviceGetGpuFabricInfoV(void *d, void *info) { memset((char *)info + 4, 0, 16 + 4 + 4 + 1); return 0; } /* after the version: no cluster, state "not supported" */

/* ---- driver entry points ---- */
static int unimplemented(void) { return 0; }
static void *entry(const char *name) {
  void *p = dlsym(RTLD_DEFAULT, name);
  if (!p) { char v2[256]; snprintf(v2, sizeof v2, "%s_v2", name); p = dlsym(RTLD_DEFAULT, v2); }
  return p ? p : (void *)unimplemented;
}
EXPORT int cudaGetDriverEntryPoint(const char *s, void **f, unsigned long long fl, int *st) { *f = entry(s); if (st) *st = 0; return 0; }
EXPORT int cudaGetDriverEntryPoint_ptsz(const char *s, void **f, unsigned long long fl, int *st) { return cudaGetDriverEntryPoint(s, f, fl, st); }
EXPORT int cudaGetDriverEntryPointByVersion(const char *s, void **f, unsigned v, unsigned long long fl, int *st) { return cudaGetDriverEntryPoint(s, f, fl, st); }
EXPORT int cudaGetDriverEntryPointByVersion_ptsz(const char *s, void **f, unsigned v, unsigned long long fl, int *st) { return cudaGetDriverEntryPoint(s, f, fl, st); }
EXPORT int cuGetProcAddress_v2(const char *s, void **f, int v, unsigned long long fl, int *st) { *f = entry(s); if (st) *st = 0; return 0; }
EXPORT int cuGetProcAddress(const char *s, void **f, int v, unsigned long long fl) { *f = entry(s); return 0; }
