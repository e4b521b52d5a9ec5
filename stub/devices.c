/* What the devices say of themselves. */
#define NOT_READY 600
static int device_count(void) { return (int)env_u64("STUBCUDA_DEVICES", 1); }
static int cc(void) { return (int)env_u64("STUBCUDA_CC", 90); }
static int sms(void) { return (int)env_u64("STUBCUDA_SMS", 132); }
static int l2(void) { return (int)env_u64("STUBCUDA_L2", 62914560); }
static int shared(void) { return (int)env_u64("STUBCUDA_SHARED", 232448); }
/* Of a multiprocessor: a block's and 1 KiB that the system keeps, but on 7.x, which keeps none. */
static int shared_of_sm(void) { return shared() + (cc() >= 80 ? 1024 : 0); }
static int threads_of_sm(void) { return (int)env_u64("STUBCUDA_THREADS", 2048); }

static int attribute(int attr) {
  switch (attr) {
  case 1: return 1024;
  case 2: return 1024;
  case 3: return 1024;
  case 4: return 64;
  case 5: return 2147483647;
  case 6:
  case 7: return 65535;
  case 8: return 49152;
  case 9: return 65536;
  case 10: return 32;
  case 11: return 2147483647;
  case 12: return 65536;
  case 13: return 1980000;
  case 14: return 512;
  case 15: return 1;
  case 16: return sms();
  case 17: return 0;
  case 18: return 0;
  case 20: return 0;
  case 36: return 3201000;
  case 37: return 6144;
  case 38: return l2();
  case 39: return threads_of_sm();
  case 75: return cc() / 10;
  case 76: return cc() % 10;
  case 81: return shared_of_sm();
  case 82: return 65536;
  case 97: return shared();
  case 102: return 1;
  case 103: return 1;
  case 106: return 32;
  case 115: return 1;
  case 128: return 0;
  case 132: return 0;
  default: return 1;
  }
}
EXPORT int cudaDeviceGetAttribute(int *v, int attr, int dev) {
  *v = attribute(attr);
  return 0;
}
EXPORT int cuDeviceGetAttribute(int *v, int attr, int dev) {
  *v = attribute(attr);
  if (attr == 132 || attr == 128) *v = 0;
  return 0;
}
EXPORT int cuDeviceGetUuid(void *u, int d) {
  memset(u, 0, 16);
  return 0;
}
EXPORT int cuDeviceGetUuid_v2(void *u, int d) {
  memset(u, 0, 16);
  return 0;
}
EXPORT int cuDeviceGetName(char *s, int n, int d) {
  const char *v = getenv("STUBCUDA_NAME");
  snprintf(s, n, "%s", v && *v ? v : "Stub GPU");
  return 0;
}
EXPORT int cuDeviceTotalMem_v2(size_t *n, int d) {
  *n = capacity();
  return 0;
}
EXPORT int cuDeviceGetPCIBusId(char *s, int n, int d) {
  snprintf(s, n, "0000:%02x:00.0", d + 1);
  return 0;
}
EXPORT int cuDeviceCanAccessPeer(int *c, int a, int b) {
  *c = 1;
  return 0;
}
EXPORT int cuInit(unsigned f) { return 0; }
EXPORT int cuDeviceGet(int *d, int ordinal) {
  *d = ordinal;
  return 0;
}
EXPORT int cuDeviceGetCount(int *n) {
  *n = device_count();
  return 0;
}
EXPORT int cuDriverGetVersion(int *v) {
  *v = CUDART_V;
  return 0;
}
EXPORT int cudaDriverGetVersion(int *v) {
  *v = CUDART_V;
  return 0;
}
EXPORT int cudaRuntimeGetVersion(int *v) {
  *v = CUDART_V;
  return 0;
}
EXPORT int cuCtxGetCurrent(void **c) {
  *c = (void *)0x1000;
  return 0;
}
EXPORT int cuCtxGetDevice(int *d) {
  *d = current_device;
  return 0;
}
EXPORT int cuCtxGetStreamPriorityRange(int *lo, int *hi) {
  if (lo) *lo = 0;
  if (hi) *hi = -5;
  return 0;
}
EXPORT int cuCtxGetApiVersion(void *c, unsigned *v) {
  *v = CUDART_V;
  return 0;
}
EXPORT int cuCtxPopCurrent_v2(void **c) {
  if (c) *c = (void *)0x1000;
  return 0;
}
EXPORT int cuCtxCreate_v2(void **c, unsigned f, int d) {
  *c = (void *)0x1000;
  return 0;
}
EXPORT int cuDevicePrimaryCtxGetState(int d, unsigned *f, int *active) {
  *f = 0;
  *active = 1;
  return 0;
}
EXPORT int cuDevicePrimaryCtxRetain(void **c, int d) {
  *c = (void *)0x1000;
  return 0;
}
EXPORT int cuGetErrorString(int e, const char **s) {
  *s = e == OOM ? "out of memory" : "stub error";
  return 0;
}
EXPORT int cuGetErrorName(int e, const char **s) {
  *s = e == OOM ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_STUB";
  return 0;
}
EXPORT int cudaGetDeviceCount(int *n) {
  *n = device_count();
  return 0;
}
EXPORT int cudaGetDevice(int *d) {
  *d = current_device;
  return 0;
}
EXPORT int cudaSetDevice(int d) {
  if (d < 0 || d >= device_count()) return fail(101);
  current_device = d;
  return 0;
}
EXPORT int cudaGetLastError(void) {
  int e = last_error;
  last_error = 0;
  return e;
}
EXPORT int cudaPeekAtLastError(void) { return last_error; }
EXPORT const char *cudaGetErrorString(int e) {
  return e == OOM         ? "out of memory"
         : e == NOT_READY ? "device not ready"
         : e == 801       ? "operation not supported"
         : e              ? "stub error"
                          : "no error";
}
EXPORT const char *cudaGetErrorName(int e) {
  return e == OOM         ? "cudaErrorMemoryAllocation"
         : e == NOT_READY ? "cudaErrorNotReady"
         : e == 801       ? "cudaErrorNotSupported"
         : e              ? "cudaErrorStub"
                          : "cudaSuccess";
}
EXPORT int cudaDeviceGetStreamPriorityRange(int *lo, int *hi) {
  if (lo) *lo = 0;
  if (hi) *hi = -5;
  return 0;
}
EXPORT int cudaDeviceCanAccessPeer(int *c, int a, int b) {
  *c = 1;
  return 0;
}
EXPORT int cudaDeviceGetPCIBusId(char *s, int n, int d) { return cuDeviceGetPCIBusId(s, n, d); }
static int properties(struct cudaDeviceProp *p, int dev) {
  memset(p, 0, sizeof *p);
  cuDeviceGetName(p->name, sizeof p->name, dev);
  p->totalGlobalMem = capacity();
  p->sharedMemPerBlock = 49152;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->major = cc() / 10;
  p->minor = cc() % 10;
  p->multiProcessorCount = sms();
  p->l2CacheSize = l2();
  p->maxThreadsPerMultiProcessor = threads_of_sm();
  p->sharedMemPerMultiprocessor = shared_of_sm();
  p->regsPerMultiprocessor = 65536;
  p->sharedMemPerBlockOptin = shared();
  p->maxBlocksPerMultiProcessor = 32;
  p->memoryPoolsSupported = 1;
  p->textureAlignment = 512;
  p->pciBusID = dev + 1;
  p->concurrentKernels = 1;
  p->uuid.bytes[15] = (char)(dev + 1);
  return 0;
}
EXPORT int cudaGetDeviceProperties(struct cudaDeviceProp *p, int d) { return properties(p, d); }
EXPORT int cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int d) { return properties(p, d); }
