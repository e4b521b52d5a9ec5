/* Copies: what the host reads of a device is zero; what it writes there is lost. */
static int copy(void *dst, const void *src, size_t n, int kind) {
  int dd = is_device_pointer((uint64_t)dst), sd = is_device_pointer((uint64_t)src);
  if (!dd && sd) {
    if (!host_reads(n)) memset(dst, 0, n);
  } else if (!dd && !sd) memmove(dst, src, n);
  return 0;
}
EXPORT int cudaMemcpy(void *d, const void *s, size_t n, int k) { return copy(d, s, n, k); }
EXPORT int cudaMemcpyAsync(void *d, const void *s, size_t n, int k, void *st) { return copy(d, s, n, k); }
EXPORT int cudaMemcpy2D(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, int k) {
  int reads = !is_device_pointer((uint64_t)d) && is_device_pointer((uint64_t)s);
  for (size_t i = 0; i < h; i++) {
    if (reads) memset((char *)d + i * dp, 0, w);
    else copy((char *)d + i * dp, (const char *)s + i * sp, w, k);
  }
  if (reads) host_reads(w * h);
  return 0;
}
EXPORT int cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, int k, void *st) {
  return cudaMemcpy2D(d, dp, s, sp, w, h, k);
}
EXPORT int cuMemcpyDtoH_v2(void *d, uint64_t s, size_t n) { return copy(d, (void *)s, n, 2); }
EXPORT int cuMemcpyDtoHAsync_v2(void *d, uint64_t s, size_t n, void *st) { return copy(d, (void *)s, n, 2); }
EXPORT int cuMemcpyAsync(uint64_t d, uint64_t s, size_t n, void *st) { return copy((void *)d, (void *)s, n, 4); }
/* Both forms; the newer one has no place for the number of the copy that failed. */
EXPORT int cudaMemcpyBatchAsync(void **d, void **s, size_t *n, size_t count) {
  for (size_t i = 0; i < count; i++) copy(d[i], s[i], n[i], 4);
  return 0;
}
EXPORT int cudaMemcpyFromSymbol(void *d, const void *s, size_t n, size_t off, int k) {
  memset(d, 0, n);
  host_reads(n);
  return 0;
}

/* Pinned memory, so that is_pinned() says so, which DDP insists on. What the table has no room for is not pinned. */
static struct {
  uint64_t at, bytes;
} pinned[4096];
static int pinned_row(uint64_t at) {
  for (int i = 0; i < 4096; i++)
    if (pinned[i].bytes && at - pinned[i].at < pinned[i].bytes) return i;
  return -1;
}
/* Pinned memory is zero at first, as large memory is anyway: a kernel that would write there does not. */
EXPORT int cudaHostAlloc(void **p, size_t n, unsigned f) {
  *p = NULL;
  if (posix_memalign(p, 4096, n ? n : 1)) return fail(OOM);
  if (n < MIB) memset(*p, 0, n);
  pthread_mutex_lock(&lock);
  for (int i = 0; i < 4096; i++)
    if (!pinned[i].bytes) {
      pinned[i].at = (uint64_t)*p;
      pinned[i].bytes = n ? n : 1;
      break;
    }
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaMallocHost(void **p, size_t n) { return cudaHostAlloc(p, n, 0); }
EXPORT int cudaFreeHost(void *p) {
  pthread_mutex_lock(&lock);
  int row = p ? pinned_row((uint64_t)p) : -1;
  if (row >= 0) pinned[row].bytes = 0;
  pthread_mutex_unlock(&lock);
  free(p);
  return 0;
}
EXPORT int cuMemHostAlloc(void **p, size_t n, unsigned f) { return cudaHostAlloc(p, n, f); }
EXPORT int cuMemAllocHost_v2(void **p, size_t n) { return cudaHostAlloc(p, n, 0); }
EXPORT int cuMemFreeHost(void *p) { return cudaFreeHost(p); }
EXPORT int cudaHostGetDevicePointer(void **d, void *h, unsigned f) {
  *d = h;
  return 0;
}
EXPORT int cuMemHostGetDevicePointer_v2(uint64_t *d, void *p, unsigned f) {
  *d = (uint64_t)p;
  return 0;
}
EXPORT int cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
  memset(a, 0, sizeof *a);
  if (is_device_pointer((uint64_t)p)) {
    a->type = cudaMemoryTypeDevice;
    a->device = pointer_device((uint64_t)p);
    a->devicePointer = (void *)p;
  } else {
    pthread_mutex_lock(&lock);
    int is_pinned = pinned_row((uint64_t)p) >= 0;
    pthread_mutex_unlock(&lock);
    a->type = is_pinned ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    a->device = is_pinned ? 0 : -1;
    if (is_pinned) a->devicePointer = a->hostPointer = (void *)p;
  }
  return 0;
}
EXPORT int cuPointerGetAttribute(void *data, int attribute, uint64_t p) {
  if (!is_device_pointer(p)) return 1;
  switch (attribute) {
  case 2: *(int *)data = 2; break;      /* memory type: of a device */
  case 3: *(uint64_t *)data = p; break; /* as the device calls it */
  case 9: *(int *)data = pointer_device(p); break;
  default: *(int *)data = 0;
  }
  return 0;
}
EXPORT int cuPointerGetAttributes(unsigned n, int *attributes, void **data, uint64_t p) {
  for (unsigned i = 0; i < n; i++) cuPointerGetAttribute(data[i], attributes[i], p);
  return 0;
}
