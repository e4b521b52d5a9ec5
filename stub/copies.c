/* Copies. What the host reads from a device is zero; what it writes to a device is lost. The direction comes from the
 * addresses: cudaMemcpyDefault leaves it to them. */
static int copy(void *dst, const void *src, size_t size) {
  int to_device = is_device_pointer((uint64_t)dst), from_device = is_device_pointer((uint64_t)src);
  if (to_device && !depth) write_outside(dst);
  if (to_device) return 0;
  if (from_device) read_back(dst, src, size);
  else memmove(dst, src, size);
  return 0;
}
EXPORT int cudaMemcpy(void *dst, const void *src, size_t size, int kind) { return copy(dst, src, size); }
EXPORT int cudaMemcpyAsync(void *dst, const void *src, size_t size, int kind, void *stream) {
  return copy(dst, src, size);
}
EXPORT int cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height,
                        int kind) {
  int is_read = !is_device_pointer((uint64_t)dst) && is_device_pointer((uint64_t)src);
  if (is_read && dst_pitch == width) read_back(dst, src_pitch == width ? src : NULL, width * height);
  else
    for (size_t row = 0; row < height; row++) /* a read is reported row by row */
      copy((char *)dst + row * dst_pitch, (const char *)src + row * src_pitch, width);
  return 0;
}
EXPORT int cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                             size_t height, int kind, void *stream) {
  return cudaMemcpy2D(dst, dst_pitch, src, src_pitch, width, height, kind);
}
EXPORT int cuMemcpyDtoH_v2(void *dst, uint64_t src, size_t size) { return copy(dst, (void *)src, size); }
EXPORT int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t size, void *stream) {
  return copy(dst, (void *)src, size);
}
EXPORT int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t size, void *stream) {
  return copy((void *)dst, (void *)src, size);
}
/* CUDA 13 removed a parameter (the index of the copy that failed). Both forms start with the ones used here. */
EXPORT int cudaMemcpyBatchAsync(void **dsts, void **srcs, size_t *sizes, size_t count) {
  for (size_t i = 0; i < count; i++) copy(dsts[i], srcs[i], sizes[i]);
  return 0;
}
EXPORT int cudaMemcpyFromSymbol(void *dst, const void *symbol, size_t size, size_t offset, int kind) {
  read_back(dst, NULL, size);
  return 0;
}

/* Pinned host memory. The table is for Tensor.is_pinned(), which DistributedDataParallel checks; an allocation that
 * does not fit into the table is reported as not pinned. */
#define MAX_PINNED 4096
static struct {
  uint64_t address, bytes;
} pinned[MAX_PINNED];
static int pinned_index(uint64_t address) {
  for (int i = 0; i < MAX_PINNED; i++)
    if (pinned[i].bytes && address - pinned[i].address < pinned[i].bytes) return i;
  return -1;
}
static int is_pinned(uint64_t address) {
  pthread_mutex_lock(&lock);
  int index = pinned_index(address);
  pthread_mutex_unlock(&lock);
  return index >= 0;
}
static void pin(const void *address, size_t size) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAX_PINNED; i++)
    if (!pinned[i].bytes) {
      pinned[i].address = (uint64_t)address;
      pinned[i].bytes = size ? size : 1;
      break;
    }
  pthread_mutex_unlock(&lock);
}
static void unpin(const void *address) {
  pthread_mutex_lock(&lock);
  int index = address ? pinned_index((uint64_t)address) : -1;
  if (index >= 0) pinned[index].bytes = 0;
  pthread_mutex_unlock(&lock);
}
/* Kernels that would write to pinned memory do not run, so it must start as zero. Large allocations already do. */
EXPORT int cudaHostAlloc(void **pointer, size_t size, unsigned flags) {
  *pointer = NULL;
  if (posix_memalign(pointer, 4096, size ? size : 1)) return fail(OOM);
  if (size < MIB) memset(*pointer, 0, size);
  pin(*pointer, size);
  return 0;
}
EXPORT int cudaMallocHost(void **pointer, size_t size) { return cudaHostAlloc(pointer, size, 0); }
EXPORT int cudaFreeHost(void *pointer) {
  unpin(pointer);
  free(pointer);
  return 0;
}
EXPORT int cudaHostRegister(void *pointer, size_t size, unsigned flags) {
  pin(pointer, size);
  return 0;
}
EXPORT int cudaHostUnregister(void *pointer) {
  unpin(pointer);
  return 0;
}
EXPORT int cuMemHostRegister_v2(void *pointer, size_t size, unsigned flags) {
  return cudaHostRegister(pointer, size, flags);
}
EXPORT int cuMemHostUnregister(void *pointer) { return cudaHostUnregister(pointer); }
EXPORT int cuMemHostAlloc(void **pointer, size_t size, unsigned flags) { return cudaHostAlloc(pointer, size, flags); }
EXPORT int cuMemAllocHost_v2(void **pointer, size_t size) { return cudaHostAlloc(pointer, size, 0); }
EXPORT int cuMemFreeHost(void *pointer) { return cudaFreeHost(pointer); }
EXPORT int cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
  *device = host;
  return 0;
}
EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *device, void *host, unsigned flags) {
  *device = (uint64_t)host;
  return 0;
}
EXPORT int cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer) {
  memset(attributes, 0, sizeof *attributes);
  if (is_device_pointer((uint64_t)pointer)) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->device = pointer_device((uint64_t)pointer);
    attributes->devicePointer = (void *)pointer;
  } else {
    int is_host = is_pinned((uint64_t)pointer);
    attributes->type = is_host ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    attributes->device = is_host ? 0 : -1;
    if (is_host) attributes->devicePointer = attributes->hostPointer = (void *)pointer;
  }
  return 0;
}
EXPORT int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer) {
  int is_device = is_device_pointer(pointer);
  if (!is_device && !is_pinned(pointer)) return INVALID_VALUE;
  switch (attribute) {
  case 2: *(int *)data = is_device ? 2 : 1; break; /* MEMORY_TYPE: device or host */
  case 3: *(uint64_t *)data = pointer; break; /* DEVICE_POINTER: pinned memory of the host has the same on devices */
  case 9: *(int *)data = is_device ? pointer_device(pointer) : 0; break; /* DEVICE_ORDINAL */
  default: *(int *)data = 0;
  }
  return 0;
}
EXPORT int cuPointerGetAttributes(unsigned count, int *attributes, void **data, uint64_t pointer) {
  for (unsigned i = 0; i < count; i++) cuPointerGetAttribute(data[i], attributes[i], pointer);
  return 0;
}
