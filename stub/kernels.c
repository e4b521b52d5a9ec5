/* Kernels: accepted, never run. Modules and functions are handles that nobody looks into. */
#define MODULE ((void *)0x3000)
#define FUNCTION ((void *)0x3100)
#define SYMBOL 0x3ffff0000000ull /* where every variable of a module is */
typedef struct {
  unsigned x, y, z;
} d3;
static __thread struct {
  d3 g, b;
  size_t sh;
  void *s;
} launch;
EXPORT unsigned __cudaPushCallConfiguration(d3 g, d3 b, size_t sh, void *s) {
  launch.g = g;
  launch.b = b;
  launch.sh = sh;
  launch.s = s;
  return 0;
}
EXPORT int __cudaPopCallConfiguration(d3 *g, d3 *b, size_t *sh, void *s) {
  *g = launch.g;
  *b = launch.b;
  *sh = launch.sh;
  *(void **)s = launch.s;
  return 0;
}
EXPORT int __cudaGetKernel(void **k, const void *f) {
  *k = (void *)f;
  return 0;
}
EXPORT int __cudaLaunchKernel(void *k, d3 g, d3 b, void **a, size_t sh, void *s) {
  ticks++;
  return 0;
}
EXPORT int cudaLaunchKernel(const void *k, d3 g, d3 b, void **a, size_t sh, void *s) {
  ticks++;
  return 0;
}
EXPORT int cudaLaunchKernelExC(const void *c, const void *k, void **a) {
  ticks++;
  return 0;
}
EXPORT int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned sh, void *s, void **a, void **e) {
  ticks++;
  return 0;
}
EXPORT int cuLaunchKernelEx(const void *c, void *f, void **a, void **e) {
  ticks++;
  return 0;
}
EXPORT int cuLaunchCooperativeKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                     unsigned bz, unsigned sh, void *s, void **a) {
  ticks++;
  return 0;
}
EXPORT void **__cudaRegisterFatBinary(void *f) {
  static void *h[4];
  return h;
}
EXPORT char __cudaInitModule(void **h) { return 1; }
EXPORT int cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = cc() == 89 ? 86 : cc();
  return 0;
} /* wheels have no binary for 8.9: it runs that of 8.6 */
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int b, size_t s) {
  *n = 2;
  return 0;
}
EXPORT int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int b, size_t s, unsigned fl) {
  *n = 2;
  return 0;
}
EXPORT int cudaOccupancyMaxPotentialBlockSize(int *g, int *b, const void *f, size_t s, int l) {
  *g = sms();
  *b = 256;
  return 0;
}
EXPORT int cudaGetSymbolAddress(void **p, const void *s) {
  *p = (void *)SYMBOL;
  return 0;
}

/* ---- what Triton and run-time compilation ask of the driver ---- */
EXPORT int cuFuncGetAttribute(int *v, int attr, void *f) {
  *v = attr == 0 ? 1024 : attr == 4 ? 32 : 0;
  return 0;
} /* most threads of a block; registers */
EXPORT int cuFuncGetModule(void **m, void *f) {
  *m = MODULE;
  return 0;
}
EXPORT int cuKernelGetAttribute(int *v, int attr, void *k, int d) { return cuFuncGetAttribute(v, attr, k); }
EXPORT int cuKernelGetFunction(void **f, void *k) {
  *f = FUNCTION;
  return 0;
}
EXPORT int cuLibraryLoadData(void **l, const void *code, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
  *l = MODULE;
  return 0;
}
EXPORT int cuLibraryGetKernel(void **k, void *l, const char *n) {
  *k = FUNCTION;
  return 0;
}
EXPORT int cuLibraryGetModule(void **m, void *l) {
  *m = MODULE;
  return 0;
}
EXPORT int cuModuleLoad(void **m, const char *path) {
  *m = MODULE;
  return 0;
}
EXPORT int cuModuleLoadData(void **m, const void *image) {
  *m = MODULE;
  return 0;
}
EXPORT int cuModuleLoadDataEx(void **m, const void *i, unsigned n, void *o, void *v) {
  *m = MODULE;
  return 0;
}
EXPORT int cuModuleLoadFatBinary(void **m, const void *i) {
  *m = MODULE;
  return 0;
}
EXPORT int cuModuleGetFunction(void **f, void *m, const char *name) {
  *f = FUNCTION;
  return 0;
}
EXPORT int cuModuleGetGlobal_v2(uint64_t *p, size_t *n, void *m, const char *name) {
  if (p) *p = SYMBOL;
  if (n) *n = 4096;
  return 0;
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int b, size_t s) {
  *n = 2;
  return 0;
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, void *f, int b, size_t s, unsigned fl) {
  *n = 2;
  return 0;
}
EXPORT int cuOccupancyMaxActiveClusters(int *n, void *f, const void *c) {
  *n = sms();
  return 0;
}
EXPORT int cuTensorMapEncodeTiled(void *map) {
  memset(map, 0, 128);
  return 0;
}
