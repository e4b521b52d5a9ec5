/* Entry points that are asked for by name. One that is missing is there, says its name when it is called, and fails. */
#define UNKNOWN 801 /* CUDA_ERROR_NOT_SUPPORTED */
#define THUNKS 32
static char unknown_names[THUNKS][96];
#define THUNK(i) \
  static int unknown_##i(void) { \
    is_missing(unknown_names[i]); \
    return UNKNOWN; \
  }
#define EACH(f) \
  f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14) f(15) f(16) f(17) f(18) f(19) f(20) \
      f(21) f(22) f(23) f(24) f(25) f(26) f(27) f(28) f(29) f(30) f(31)
EACH(THUNK)
#define NAME(i) (void *)unknown_##i,
static void *unknown_thunks[THUNKS] = {EACH(NAME)};
static void *unknown(const char *name) {
  int i = 0;
  while (i < THUNKS - 1 && unknown_names[i][0] && strcmp(unknown_names[i], name)) i++;
  snprintf(unknown_names[i], sizeof unknown_names[i], "%s", name);
  return unknown_thunks[i];
}
static void *entry(const char *name) {
  static void *self = NULL;
  char newer[256];
  if (!self) {
    Dl_info info;
    if (dladdr((void *)cudaMalloc, &info)) self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }
  snprintf(newer, sizeof newer, "%s_v2", name);
  void *p = dlsym(self, newer);
  if (!p) p = dlsym(self, name);
  return p ? p : unknown(name);
}
EXPORT int cudaGetDriverEntryPoint(const char *s, void **f, unsigned long long fl, int *st) {
  *f = entry(s);
  if (st) *st = 0;
  return 0;
}
EXPORT int cudaGetDriverEntryPoint_ptsz(const char *s, void **f, unsigned long long fl, int *st) {
  return cudaGetDriverEntryPoint(s, f, fl, st);
}
EXPORT int cudaGetDriverEntryPointByVersion(const char *s, void **f, unsigned v, unsigned long long fl, int *st) {
  return cudaGetDriverEntryPoint(s, f, fl, st);
}
EXPORT int cudaGetDriverEntryPointByVersion_ptsz(const char *s, void **f, unsigned v, unsigned long long fl, int *st) {
  return cudaGetDriverEntryPoint(s, f, fl, st);
}
EXPORT int cuGetProcAddress_v2(const char *s, void **f, int v, unsigned long long fl, int *st) {
  *f = entry(s);
  if (st) *st = 0;
  return 0;
}
EXPORT int cuGetProcAddress(const char *s, void **f, int v, unsigned long long fl) {
  *f = entry(s);
  return 0;
}
/* The inner tables of NVIDIA's own libraries are not documented, and not imitated. */
EXPORT int cuGetExportTable(const void **t, const void *id) {
  is_missing("cuGetExportTable (a library of NVIDIA's that brings its own runtime)");
  *t = NULL;
  return UNKNOWN;
}
