/* Entry points that take and give device memory. */
static __thread int current_device = 0;
static __thread int last_error = 0;
static int fail(int code) {
  last_error = code;
  return code;
}

static void note(const char *what, int dev, uint64_t a, uint64_t n, int rc) {
  static FILE *out = NULL;
  static int tried = 0;
  if (!tried) {
    const char *p = getenv("STUBCUDA_LOG");
    tried = 1;
    if (p && *p) out = fopen(p, "w");
  }
  if (out) {
    fprintf(out, "%s %d 0x%llx %llu %d\n", what, dev, (unsigned long long)a, (unsigned long long)n, rc);
    fflush(out);
  }
}

EXPORT int cudaMalloc(void **out, size_t size) {
  pthread_mutex_lock(&lock);
  ticks++;
  int d = current_device;
  uint64_t a = memory_allocate(d, size);
  note("cudaMalloc", d, a, size, a ? 0 : OOM);
  pthread_mutex_unlock(&lock);
  *out = (void *)a;
  return a ? 0 : fail(OOM);
}
EXPORT int cudaFree(void *p) {
  if (!p) return 0;
  pthread_mutex_lock(&lock);
  ticks++;
  int d = pointer_device((uint64_t)p);
  uint64_t n = 0;
  int ok = memory_free(d, (uint64_t)p, &n);
  note("cudaFree", d, (uint64_t)p, n, ok ? 0 : 1);
  pthread_mutex_unlock(&lock);
  return ok ? 0 : fail(1);
}
EXPORT int cudaMemGetInfo(size_t *fr, size_t *total) {
  pthread_mutex_lock(&lock);
  *total = capacity();
  *fr = memory_free_bytes(current_device);
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cuMemGetInfo_v2(size_t *f, size_t *t) { return cudaMemGetInfo(f, t); }
EXPORT int cuMemAlloc_v2(uint64_t *p, size_t n) { return cudaMalloc((void **)p, n); }
EXPORT int cuMemFree_v2(uint64_t p) { return cudaFree((void *)p); }
/* Memory of a stream's pool, as cudaMallocAsync's backend and some libraries ask for it: given at once. */
EXPORT int cudaMallocAsync(void **p, size_t n, void *s) { return cudaMalloc(p, n); }
EXPORT int cudaFreeAsync(void *p, void *s) { return cudaFree(p); }

/* ---- a pair for torch.cuda.memory.CUDAPluggableAllocator ---- */
EXPORT int cudaSetDevice(int d);
EXPORT int cudaGetLastError(void);
EXPORT void *stub_plug_alloc(ssize_t size, int device, void *stream) {
  void *p = NULL;
  int was = current_device;
  current_device = device;
  if (cudaMalloc(&p, size)) {
    p = NULL;
    cudaGetLastError();
  }
  current_device = was;
  return p;
}
EXPORT void stub_plug_free(void *p, ssize_t size, int device, void *stream) { cudaFree(p); }

/* ---- virtual memory management (expandable segments) ---- */
typedef struct {
  uint64_t size;
  int dev;
} physical;
EXPORT int cuMemAddressReserve(uint64_t *out, size_t size, size_t align, uint64_t addr, unsigned long long flags) {
  pthread_mutex_lock(&lock);
  ticks++;
  *out = memory_reserve(current_device, size);
  note("cuMemAddressReserve", current_device, *out, size, 0);
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cuMemAddressFree(uint64_t p, size_t size) {
  pthread_mutex_lock(&lock);
  ticks++;
  uint64_t n = 0;
  space_give(&reserve_space, p, &n);
  note("cuMemAddressFree", current_device, p, n, 0);
  pthread_mutex_unlock(&lock);
  return 0;
}
typedef struct {
  int type;
  int requestedHandleTypes;
  struct {
    int type;
    int id;
  } location;
} prop_head;
EXPORT int cuMemCreate(unsigned long long *handle, size_t size, const prop_head *prop, unsigned long long flags) {
  pthread_mutex_lock(&lock);
  ticks++;
  int d = prop ? prop->location.id : current_device;
  if (!take_memory(d, size)) {
    note("cuMemCreate", d, 0, size, OOM);
    pthread_mutex_unlock(&lock);
    return OOM;
  }
  physical *h = malloc(sizeof *h);
  h->size = size;
  h->dev = d;
  *handle = (unsigned long long)(uintptr_t)h;
  note("cuMemCreate", d, 0, size, 0);
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cuMemRelease(unsigned long long handle) {
  pthread_mutex_lock(&lock);
  ticks++;
  physical *h = (physical *)(uintptr_t)handle;
  give_memory(h->dev, h->size);
  note("cuMemRelease", h->dev, 0, h->size, 0);
  free(h);
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cuMemMap(uint64_t p, size_t size, size_t off, unsigned long long h, unsigned long long f) {
  ticks++;
  note("cuMemMap", current_device, p, size, 0);
  return 0;
}
EXPORT int cuMemUnmap(uint64_t p, size_t size) {
  ticks++;
  note("cuMemUnmap", current_device, p, size, 0);
  return 0;
}
EXPORT int cuMemSetAccess(uint64_t p, size_t size, const void *d, size_t n) { return 0; }
EXPORT int cuMemGetAllocationGranularity(size_t *g, const void *p, int o) {
  *g = PAGE;
  return 0;
}
EXPORT int cuMemGetAddressRange_v2(uint64_t *b, size_t *s, uint64_t p) {
  if (b) *b = p;
  if (s) *s = 0;
  return 0;
}
EXPORT int cuMemGetAddressRange(uint64_t *b, size_t *s, uint64_t p) { return cuMemGetAddressRange_v2(b, s, p); }
EXPORT int cuMemExportToShareableHandle(void *out, unsigned long long h, int type, unsigned long long f) { return 801; }
EXPORT int cuMemRetainAllocationHandle(unsigned long long *h, void *p) { return 801; }
