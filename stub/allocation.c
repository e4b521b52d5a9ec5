/* Entry points that allocate and free device memory. */
static __thread int current_device = 0;
static __thread int last_error = 0;
/* Returns `code`, and keeps it for cudaGetLastError. */
static int fail(int code) {
  last_error = code;
  return code;
}

static void log_call(const char *call, int device, uint64_t address, uint64_t size, int result) {
  static FILE *log = NULL;
  static int is_opened = 0;
  if (!is_opened) {
    const char *path = getenv("STUBCUDA_LOG");
    is_opened = 1;
    if (path && *path) log = fopen(path, "w");
  }
  if (log) {
    fprintf(log, "%s %d 0x%llx %llu %d\n", call, device, (unsigned long long)address, (unsigned long long)size, result);
    fflush(log);
  }
}

EXPORT int cudaMalloc(void **out, size_t size) {
  pthread_mutex_lock(&lock);
  ticks++;
  uint64_t address = memory_allocate(current_device, size);
  log_call("cudaMalloc", current_device, address, size, address ? 0 : OOM);
  pthread_mutex_unlock(&lock);
  *out = (void *)address;
  return address ? 0 : fail(OOM);
}
EXPORT int cudaFree(void *pointer) {
  if (!pointer) return 0;
  pthread_mutex_lock(&lock);
  ticks++;
  int device = pointer_device((uint64_t)pointer);
  uint64_t size = 0;
  int ok = memory_free(device, (uint64_t)pointer, &size);
  log_call("cudaFree", device, (uint64_t)pointer, size, ok ? 0 : INVALID_VALUE);
  pthread_mutex_unlock(&lock);
  return ok ? 0 : fail(INVALID_VALUE);
}
EXPORT int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  pthread_mutex_lock(&lock);
  *total = capacity();
  *free_bytes = memory_free_bytes(current_device);
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { return cudaMemGetInfo(free_bytes, total); }
EXPORT int cuMemAlloc_v2(uint64_t *pointer, size_t size) { return cudaMalloc((void **)pointer, size); }
EXPORT int cuMemFree_v2(uint64_t pointer) { return cudaFree((void *)pointer); }
/* Stream-ordered allocation, for PyTorch's cudaMallocAsync backend and some libraries. The stub has no queue of work,
 * so it allocates and frees at once. */
EXPORT int cudaMallocAsync(void **pointer, size_t size, void *stream) { return cudaMalloc(pointer, size); }
EXPORT int cudaFreeAsync(void *pointer, void *stream) { return cudaFree(pointer); }

/* ---- alloc and free functions for torch.cuda.memory.CUDAPluggableAllocator ---- */
EXPORT int cudaSetDevice(int device);
EXPORT int cudaGetLastError(void);
EXPORT void *stub_pluggable_alloc(ssize_t size, int device, void *stream) {
  void *pointer = NULL;
  int previous = current_device;
  current_device = device;
  if (cudaMalloc(&pointer, size)) {
    pointer = NULL;
    cudaGetLastError();
  }
  current_device = previous;
  return pointer;
}
EXPORT void stub_pluggable_free(void *pointer, ssize_t size, int device, void *stream) { cudaFree(pointer); }

/* ---- virtual memory management (expandable segments) ---- */
/* Released memory keeps its record, without a size: a handle that is released again is an error, as with the driver. */
typedef struct {
  uint64_t size;
  int device;
} physical_memory;
EXPORT int cuMemAddressReserve(uint64_t *out, size_t size, size_t align, uint64_t addr, unsigned long long flags) {
  pthread_mutex_lock(&lock);
  ticks++;
  *out = memory_reserve(current_device, size);
  log_call("cuMemAddressReserve", current_device, *out, size, 0);
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cuMemAddressFree(uint64_t pointer, size_t size) {
  pthread_mutex_lock(&lock);
  ticks++;
  uint64_t reserved = 0;
  release_addresses(&reserve_space, pointer, &reserved);
  log_call("cuMemAddressFree", current_device, pointer, reserved, 0);
  pthread_mutex_unlock(&lock);
  return 0;
}
/* The first fields of CUmemAllocationProp. */
typedef struct {
  int type;
  int requestedHandleTypes;
  struct {
    int type;
    int id;
  } location;
} allocation_prop;
EXPORT int cuMemCreate(unsigned long long *handle, size_t size, const allocation_prop *prop, unsigned long long flags) {
  pthread_mutex_lock(&lock);
  ticks++;
  int device = prop ? prop->location.id : current_device;
  if (!take_memory(device, size)) {
    log_call("cuMemCreate", device, 0, size, OOM);
    pthread_mutex_unlock(&lock);
    return OOM;
  }
  physical_memory *memory = malloc(sizeof *memory);
  memory->size = size;
  memory->device = device;
  *handle = (unsigned long long)(uintptr_t)memory;
  log_call("cuMemCreate", device, 0, size, 0);
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cuMemRelease(unsigned long long handle) {
  pthread_mutex_lock(&lock);
  ticks++;
  physical_memory *memory = (physical_memory *)(uintptr_t)handle;
  int result = memory->size ? 0 : INVALID_VALUE;
  log_call("cuMemRelease", memory->device, 0, memory->size, result);
  if (!result) release_memory(memory->device, memory->size);
  memory->size = 0;
  pthread_mutex_unlock(&lock);
  return result;
}
EXPORT int cuMemMap(uint64_t pointer, size_t size, size_t offset, unsigned long long handle, unsigned long long flags) {
  ticks++;
  log_call("cuMemMap", current_device, pointer, size, 0);
  return 0;
}
EXPORT int cuMemUnmap(uint64_t pointer, size_t size) {
  ticks++;
  log_call("cuMemUnmap", current_device, pointer, size, 0);
  return 0;
}
EXPORT int cuMemSetAccess(uint64_t pointer, size_t size, const void *access, size_t count) { return 0; }
EXPORT int cuMemGetAllocationGranularity(size_t *granularity, const void *prop, int option) {
  *granularity = PAGE;
  return 0;
}
EXPORT int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t pointer) {
  if (base) *base = pointer;
  if (size) *size = 0;
  return 0;
}
EXPORT int cuMemGetAddressRange(uint64_t *base, size_t *size, uint64_t pointer) {
  return cuMemGetAddressRange_v2(base, size, pointer);
}
EXPORT int cuMemExportToShareableHandle(void *out, unsigned long long handle, int type, unsigned long long flags) {
  return NOT_SUPPORTED;
}
EXPORT int cuMemRetainAllocationHandle(unsigned long long *handle, void *pointer) { return NOT_SUPPORTED; }
