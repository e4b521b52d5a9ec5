/* Kernel launches are accepted and nothing runs. Modules and functions are opaque handles. */
#define MODULE ((void *)0x3000)
#define FUNCTION ((void *)0x3100)
#define SYMBOL 0x3ffff0000000ull /* the address of every variable in a module */
typedef struct {
  unsigned x, y, z;
} dimensions;
static __thread struct {
  dimensions grid, block;
  size_t shared_bytes;
  void *stream;
} launch;
EXPORT unsigned __cudaPushCallConfiguration(dimensions grid, dimensions block, size_t shared_bytes, void *stream) {
  launch.grid = grid;
  launch.block = block;
  launch.shared_bytes = shared_bytes;
  launch.stream = stream;
  return 0;
}
EXPORT int __cudaPopCallConfiguration(dimensions *grid, dimensions *block, size_t *shared_bytes, void *stream) {
  *grid = launch.grid;
  *block = launch.block;
  *shared_bytes = launch.shared_bytes;
  *(void **)stream = launch.stream;
  return 0;
}
EXPORT int __cudaGetKernel(void **kernel, const void *function) {
  *kernel = (void *)function;
  return 0;
}
EXPORT int __cudaLaunchKernel(void *kernel, dimensions grid, dimensions block, void **args, size_t shared_bytes,
                              void *stream) {
  submit_work();
  return 0;
}
EXPORT int cudaLaunchKernel(const void *kernel, dimensions grid, dimensions block, void **args, size_t shared_bytes,
                            void *stream) {
  submit_work();
  return 0;
}
EXPORT int cudaLaunchKernelExC(const void *config, const void *kernel, void **args) {
  submit_work();
  return 0;
}
EXPORT int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared_bytes, void *stream, void **args, void **extra) {
  submit_work();
  return 0;
}
EXPORT int cuLaunchKernelEx(const void *config, void *function, void **args, void **extra) {
  submit_work();
  return 0;
}
EXPORT int cuLaunchCooperativeKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                     unsigned bz, unsigned shared_bytes, void *stream, void **args) {
  submit_work();
  return 0;
}
EXPORT int cudaGraphLaunch(void *graph, void *stream) {
  write_outside(NULL);
  return 0;
}
EXPORT void **__cudaRegisterFatBinary(void *binary) {
  static void *handle[4];
  return handle;
}
EXPORT char __cudaInitModule(void **handle) { return 1; }
EXPORT int cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  /* PyTorch's wheels have no binary for 8.9; such a GPU runs the one for 8.6. */
  attributes->ptxVersion = attributes->binaryVersion = compute_capability() == 89 ? 86 : compute_capability();
  return 0;
}
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int threads,
                                                         size_t shared_bytes) {
  *blocks = 2;
  return 0;
}
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int threads,
                                                                  size_t shared_bytes, unsigned flags) {
  *blocks = 2;
  return 0;
}
EXPORT int cudaOccupancyMaxPotentialBlockSize(int *grid, int *block, const void *function, size_t shared_bytes,
                                              int limit) {
  *grid = multiprocessors();
  *block = 256;
  return 0;
}
EXPORT int cudaGetSymbolAddress(void **pointer, const void *symbol) {
  *pointer = (void *)SYMBOL;
  return 0;
}

/* ---- driver calls of Triton and of run-time compilation ---- */
EXPORT int cuFuncGetAttribute(int *value, int attr, void *function) {
  *value = attr == 0 ? 1024 : attr == 4 ? 32 : 0; /* MAX_THREADS_PER_BLOCK, NUM_REGS */
  return 0;
}
EXPORT int cuFuncGetModule(void **module, void *function) {
  *module = MODULE;
  return 0;
}
EXPORT int cuKernelGetAttribute(int *value, int attr, void *kernel, int device) {
  return cuFuncGetAttribute(value, attr, kernel);
}
EXPORT int cuKernelGetFunction(void **function, void *kernel) {
  *function = FUNCTION;
  return 0;
}
EXPORT int cuLibraryLoadData(void **library, const void *code, void *jit_options, void *jit_values, unsigned jit_count,
                             void *options, void *values, unsigned count) {
  *library = MODULE;
  return 0;
}
EXPORT int cuLibraryGetKernel(void **kernel, void *library, const char *name) {
  *kernel = FUNCTION;
  return 0;
}
EXPORT int cuLibraryGetModule(void **module, void *library) {
  *module = MODULE;
  return 0;
}
EXPORT int cuModuleLoad(void **module, const char *path) {
  *module = MODULE;
  return 0;
}
EXPORT int cuModuleLoadData(void **module, const void *image) {
  *module = MODULE;
  return 0;
}
EXPORT int cuModuleLoadDataEx(void **module, const void *image, unsigned count, void *options, void *values) {
  *module = MODULE;
  return 0;
}
EXPORT int cuModuleLoadFatBinary(void **module, const void *image) {
  *module = MODULE;
  return 0;
}
EXPORT int cuModuleGetFunction(void **function, void *module, const char *name) {
  *function = FUNCTION;
  return 0;
}
EXPORT int cuModuleGetGlobal_v2(uint64_t *pointer, size_t *size, void *module, const char *name) {
  if (pointer) *pointer = SYMBOL;
  if (size) *size = 4096;
  return 0;
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared_bytes) {
  *blocks = 2;
  return 0;
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, void *function, int threads,
                                                                size_t shared_bytes, unsigned flags) {
  *blocks = 2;
  return 0;
}
EXPORT int cuOccupancyMaxActiveClusters(int *clusters, void *function, const void *config) {
  *clusters = multiprocessors();
  return 0;
}
EXPORT int cuTensorMapEncodeTiled(void *map) {
  memset(map, 0, 128);
  return 0;
}
