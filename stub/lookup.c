/* Entry points looked up by name. A name that the stub lacks gets a thunk, because many callers look up functions that
 * they never call. The thunk reports the name when it is called, and fails. */
#define THUNKS 32
static char missing_names[THUNKS][96];
#define THUNK(i) \
  static int missing_##i(void) { \
    report_missing(missing_names[i]); \
    return NOT_SUPPORTED; \
  }
#define EACH(f) \
  f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7) f(8) f(9) f(10) f(11) f(12) f(13) f(14) f(15) f(16) f(17) f(18) f(19) f(20) \
      f(21) f(22) f(23) f(24) f(25) f(26) f(27) f(28) f(29) f(30) f(31)
EACH(THUNK)
#define NAME(i) (void *)missing_##i,
static void *missing_thunks[THUNKS] = {EACH(NAME)};
static void *missing_entry(const char *name) {
  int i = 0;
  while (i < THUNKS - 1 && missing_names[i][0] && strcmp(missing_names[i], name)) i++;
  snprintf(missing_names[i], sizeof missing_names[i], "%s", name);
  return missing_thunks[i];
}
/* The entry point of this name; its _v2 form if there is one, as in the driver. */
static void *find_entry(const char *name) {
  static void *self = NULL;
  char v2_name[256];
  if (!self) {
    Dl_info info;
    if (dladdr((void *)cudaMalloc, &info)) self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }
  snprintf(v2_name, sizeof v2_name, "%s_v2", name);
  void *entry = dlsym(self, v2_name);
  if (!entry) entry = dlsym(self, name);
  return entry ? entry : missing_entry(name);
}
EXPORT int cudaGetDriverEntryPoint(const char *name, void **entry, unsigned long long flags, int *status) {
  *entry = find_entry(name);
  if (status) *status = 0;
  return 0;
}
EXPORT int cudaGetDriverEntryPoint_ptsz(const char *name, void **entry, unsigned long long flags, int *status) {
  return cudaGetDriverEntryPoint(name, entry, flags, status);
}
EXPORT int cudaGetDriverEntryPointByVersion(const char *name, void **entry, unsigned version, unsigned long long flags,
                                            int *status) {
  return cudaGetDriverEntryPoint(name, entry, flags, status);
}
EXPORT int cudaGetDriverEntryPointByVersion_ptsz(const char *name, void **entry, unsigned version,
                                                 unsigned long long flags, int *status) {
  return cudaGetDriverEntryPoint(name, entry, flags, status);
}
EXPORT int cuGetProcAddress_v2(const char *name, void **entry, int version, unsigned long long flags, int *status) {
  *entry = find_entry(name);
  if (status) *status = 0;
  return 0;
}
EXPORT int cuGetProcAddress(const char *name, void **entry, int version, unsigned long long flags) {
  *entry = find_entry(name);
  return 0;
}
/* NVIDIA does not document the tables that its own libraries exchange. */
EXPORT int cuGetExportTable(const void **table, const void *id) {
  report_missing("cuGetExportTable (a library of NVIDIA's that brings its own runtime)");
  *table = NULL;
  return NOT_SUPPORTED;
}
