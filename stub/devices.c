/* Device properties, driver and runtime versions, contexts and error names. */
#define NO_DEVICE 100
#define INVALID_DEVICE 101
#define NOT_READY 600
#define CONTEXT ((void *)0x1000) /* the handle of every context */
static int machine_devices(void) { return (int)env_u64("STUBCUDA_DEVICES", 1); }
/* As many of them as CUDA_VISIBLE_DEVICES names: none if it is empty or -1. Their numbers do not matter. */
static int device_count(void) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return machine_devices();
  if (!*visible || !strncmp(visible, "-1", 2)) return 0;
  int named = 1;
  for (; *visible; visible++) named += *visible == ',';
  return named < machine_devices() ? named : machine_devices();
}
static int compute_capability(void) { return (int)env_u64("STUBCUDA_CC", 90); }
static int multiprocessors(void) { return (int)env_u64("STUBCUDA_SMS", 132); }
static int l2_bytes(void) { return (int)env_u64("STUBCUDA_L2", 62914560); }
static int shared_memory_per_block(void) { return (int)env_u64("STUBCUDA_SHARED", 232448); }
/* From compute capability 8.0 on the system reserves 1 KiB in addition to what a block can have. */
static int shared_memory_per_multiprocessor(void) {
  return shared_memory_per_block() + (compute_capability() >= 80 ? 1024 : 0);
}
static int threads_per_multiprocessor(void) { return (int)env_u64("STUBCUDA_THREADS", 2048); }

/* By number of CUdevice_attribute. Capabilities that are not listed here are there: 1. */
static int attribute(int attr) {
  switch (attr) {
  case 1: return 1024; /* MAX_THREADS_PER_BLOCK */
  case 2: return 1024; /* MAX_BLOCK_DIM_X, _Y, _Z */
  case 3: return 1024;
  case 4: return 64;
  case 5: return 2147483647; /* MAX_GRID_DIM_X, _Y, _Z */
  case 6:
  case 7: return 65535;
  case 8: return 49152;                         /* MAX_SHARED_MEMORY_PER_BLOCK */
  case 9: return 65536;                         /* TOTAL_CONSTANT_MEMORY */
  case 10: return 32;                           /* WARP_SIZE */
  case 11: return 2147483647;                   /* MAX_PITCH */
  case 12: return 65536;                        /* MAX_REGISTERS_PER_BLOCK */
  case 13: return 1980000;                      /* CLOCK_RATE, kHz */
  case 14: return 512;                          /* TEXTURE_ALIGNMENT */
  case 16: return multiprocessors();            /* MULTIPROCESSOR_COUNT */
  case 17: return 0;                            /* KERNEL_EXEC_TIMEOUT */
  case 18: return 0;                            /* INTEGRATED */
  case 20: return 0;                            /* COMPUTE_MODE: default */
  case 36: return 3201000;                      /* MEMORY_CLOCK_RATE, kHz */
  case 37: return 6144;                         /* GLOBAL_MEMORY_BUS_WIDTH, bits */
  case 38: return l2_bytes();                   /* L2_CACHE_SIZE */
  case 39: return threads_per_multiprocessor(); /* MAX_THREADS_PER_MULTIPROCESSOR */
  case 75: return compute_capability() / 10;    /* COMPUTE_CAPABILITY_MAJOR, _MINOR */
  case 76: return compute_capability() % 10;
  case 81: return shared_memory_per_multiprocessor(); /* MAX_SHARED_MEMORY_PER_MULTIPROCESSOR */
  case 82: return 65536;                              /* MAX_REGISTERS_PER_MULTIPROCESSOR */
  case 97: return shared_memory_per_block();          /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
  case 106: return 32;                                /* MAX_BLOCKS_PER_MULTIPROCESSOR */
  case 128: return 0;                                 /* HANDLE_TYPE_FABRIC_SUPPORTED */
  case 132: return 0;                                 /* MULTICAST_SUPPORTED */
  default: return 1;
  }
}
EXPORT int cudaDeviceGetAttribute(int *value, int attr, int device) {
  *value = attribute(attr);
  return 0;
}
EXPORT int cuDeviceGetAttribute(int *value, int attr, int device) {
  *value = attribute(attr);
  return 0;
}
EXPORT int cuDeviceGetUuid(void *uuid, int device) {
  memset(uuid, 0, 16);
  return 0;
}
EXPORT int cuDeviceGetUuid_v2(void *uuid, int device) {
  memset(uuid, 0, 16);
  return 0;
}
EXPORT int cuDeviceGetName(char *name, int size, int device) {
  const char *value = getenv("STUBCUDA_NAME");
  snprintf(name, size, "%s", value && *value ? value : "Stub GPU");
  return 0;
}
EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device) {
  *bytes = capacity();
  return 0;
}
EXPORT int cuDeviceGetPCIBusId(char *id, int size, int device) {
  snprintf(id, size, "0000:%02x:00.0", device + 1);
  return 0;
}
EXPORT int cuDeviceCanAccessPeer(int *can_access, int device, int peer) {
  *can_access = 1;
  return 0;
}
EXPORT int cuInit(unsigned flags) { return 0; }
EXPORT int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return 0;
}
EXPORT int cuDeviceGetCount(int *count) {
  *count = device_count();
  return 0;
}
EXPORT int cuDriverGetVersion(int *value) {
  *value = CUDART_V;
  return 0;
}
EXPORT int cudaDriverGetVersion(int *value) {
  *value = CUDART_V;
  return 0;
}
EXPORT int cudaRuntimeGetVersion(int *value) {
  *value = CUDART_V;
  return 0;
}
EXPORT int cuCtxGetCurrent(void **context) {
  *context = CONTEXT;
  return 0;
}
EXPORT int cuCtxGetDevice(int *device) {
  *device = current_device;
  return 0;
}
EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return 0;
}
EXPORT int cuCtxGetApiVersion(void *context, unsigned *value) {
  *value = CUDART_V;
  return 0;
}
EXPORT int cuCtxPopCurrent_v2(void **context) {
  if (context) *context = CONTEXT;
  return 0;
}
EXPORT int cuCtxCreate_v2(void **context, unsigned flags, int device) {
  *context = CONTEXT;
  return 0;
}
EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active) {
  *flags = 0;
  *is_active = 1;
  return 0;
}
EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
  *context = CONTEXT;
  return 0;
}
EXPORT int cuGetErrorString(int error, const char **text) {
  *text = error == OOM ? "out of memory" : "stub error";
  return 0;
}
EXPORT int cuGetErrorName(int error, const char **text) {
  *text = error == OOM ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_STUB";
  return 0;
}
EXPORT int cudaGetDeviceCount(int *count) {
  *count = device_count();
  return *count ? 0 : fail(NO_DEVICE);
}
EXPORT int cudaGetDevice(int *device) {
  *device = current_device;
  return 0;
}
/* The highest device that the program wanted to use and that does not exist; -1: none. */
static int absent_device = -1;
EXPORT int stub_absent_device(void) { return absent_device; }
EXPORT int stub_device_count(void) { return device_count(); }
EXPORT int cudaSetDevice(int device) {
  if (device >= device_count() && device > absent_device) absent_device = device;
  if (device < 0 || device >= device_count()) return fail(INVALID_DEVICE);
  current_device = device;
  return 0;
}
EXPORT int cudaGetLastError(void) {
  int error = last_error;
  last_error = 0;
  return error;
}
EXPORT int cudaPeekAtLastError(void) { return last_error; }
EXPORT const char *cudaGetErrorString(int error) {
  return error == OOM              ? "out of memory"
         : error == NOT_READY      ? "device not ready"
         : error == NOT_SUPPORTED  ? "operation not supported"
         : error == INVALID_DEVICE ? "invalid device ordinal"
         : error == NO_DEVICE      ? "no CUDA-capable device is detected"
         : error                   ? "stub error"
                                   : "no error";
}
EXPORT const char *cudaGetErrorName(int error) {
  return error == OOM              ? "cudaErrorMemoryAllocation"
         : error == NOT_READY      ? "cudaErrorNotReady"
         : error == NOT_SUPPORTED  ? "cudaErrorNotSupported"
         : error == INVALID_DEVICE ? "cudaErrorInvalidDevice"
         : error                   ? "cudaErrorStub"
                                   : "cudaSuccess";
}
EXPORT int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return 0;
}
EXPORT int cudaDeviceCanAccessPeer(int *can_access, int device, int peer) {
  *can_access = 1;
  return 0;
}
EXPORT int cudaDeviceGetPCIBusId(char *id, int size, int device) { return cuDeviceGetPCIBusId(id, size, device); }
static int fill_properties(struct cudaDeviceProp *p, int device) {
  memset(p, 0, sizeof *p);
  cuDeviceGetName(p->name, sizeof p->name, device);
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
  p->major = compute_capability() / 10;
  p->minor = compute_capability() % 10;
  p->multiProcessorCount = multiprocessors();
  p->l2CacheSize = l2_bytes();
  p->maxThreadsPerMultiProcessor = threads_per_multiprocessor();
  p->sharedMemPerMultiprocessor = shared_memory_per_multiprocessor();
  p->regsPerMultiprocessor = 65536;
  p->sharedMemPerBlockOptin = shared_memory_per_block();
  p->maxBlocksPerMultiProcessor = 32;
  p->memoryPoolsSupported = 1;
  p->textureAlignment = 512;
  p->pciBusID = device + 1;
  p->concurrentKernels = 1;
  p->uuid.bytes[15] = (char)(device + 1);
  return 0;
}
EXPORT int cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) { return fill_properties(p, device); }
EXPORT int cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int device) { return fill_properties(p, device); }
