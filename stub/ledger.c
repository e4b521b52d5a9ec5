/* What a run is told of: values that the host reads, sizes that only a library knows, entry points that are missing,
 * a crash. The recorder asks by stub_*; without one nothing is kept. */

/* How often something was asked whose answer only a GPU or a closed library has. */
enum { CUDNN, CUSOLVER, CUFFT, CUSPARSE, TIMINGS, KINDS };
static uint64_t unsized[KINDS];
EXPORT const uint64_t *stub_unsized(void) { return unsized; }
/* The most memory that device `d` lent at once. */
EXPORT uint64_t stub_most_used(int d) { return most_used[d]; }

/* ---- values that are read ---- */
typedef void (*reader)(const char *operators, uint64_t size);
static reader on_read = NULL;
EXPORT void stub_on_read(reader f) { on_read = f; }

/* In place of an operator: where DistributedDataParallel's ranks agree on buckets. Rank 0 tells the others what each
 * has worked out by itself, so the host keeps what it has; with zeros there would be no bucket. */
#define AGREED "="

/* Operators of PyTorch that the caller is in, innermost first: at::_ops::NAME::call and its kin are exported. */
static const char *operator_at(void *pc) {
  static struct {
    void *pc;
    char name[56];
  } known[1024];
  unsigned at = (unsigned)((uintptr_t)pc >> 2) % 1024;
  if (known[at].pc == pc) return known[at].name;
  Dl_info info = {0};
  const char *rest = NULL;
  long n = 0;
  known[at].pc = pc;
  known[at].name[0] = 0;
  if (dladdr(pc, &info) && info.dli_sname && !strncmp(info.dli_sname, "_ZN2at4_ops", 11))
    n = strtol(info.dli_sname + 11, (char **)&rest, 10);
  if (n > 0 && n < 56) {
    memcpy(known[at].name, rest, n);
    known[at].name[n] = 0;
  } else if (info.dli_sname && strstr(info.dli_sname, "sync_bucket_indices")) strcpy(known[at].name, AGREED);
  return known[at].name;
}
/* Tells of a read of `size` bytes; whether they are what the host has already. */
static int host_reads(size_t size) {
  static __thread int inside = 0;
  if (!on_read || inside || !size) return 0;
  inside = 1;
  void *stack[64];
  int depth = backtrace(stack, 64);
  char text[512];
  size_t used_up = 0;
  const char *last = "";
  text[0] = 0;
  for (int i = 0; i < depth; i++) {
    const char *name = operator_at(stack[i]);
    if (!strcmp(name, AGREED)) {
      inside = 0;
      return 1;
    }
    if (*name && strcmp(name, last) && used_up + strlen(name) + 2 < sizeof text)
      used_up += snprintf(text + used_up, sizeof text - used_up, "%s%s", used_up ? " " : "", name);
    if (*name) last = name;
  }
  on_read(text, size);
  inside = 0;
  return 0;
}

/* ---- entry points that are missing ---- */
#define MOST_MISSING 64
static const char *missing[MOST_MISSING];
static int n_missing = 0;
EXPORT const char *stub_missing(int i) { return i < n_missing ? missing[i] : NULL; }
static void is_missing(const char *name) {
  for (int i = 0; i < n_missing; i++)
    if (!strcmp(missing[i], name)) return;
  if (n_missing == MOST_MISSING) return;
  missing[n_missing++] = strdup(name);
  if (on_read)
    fprintf(stderr, "oomscope: dry run: the program asks for %s, which the stub of CUDA does not have\n", name);
}
/* For entry points that are generated: what goes out is nothing, or an object that nobody looks into. */
static void out(void *p, size_t n) {
  if ((uint64_t)p > 4096 && !is_device_pointer((uint64_t)p)) memset(p, 0, n);
}
static void made(void *p) {
  if ((uint64_t)p > 4096 && !is_device_pointer((uint64_t)p)) *(void **)p = calloc(1, 256);
}

/* ---- a crash ---- */
static struct sigaction before[NSIG];
static void say(const char *text) {
  if (write(2, text, strlen(text)) < 0) return;
}
static void on_crash(int number, siginfo_t *info, void *context) {
  char *touched = info ? info->si_addr : NULL;
  say("oomscope: dry run: the program crashed");
  if (number == SIGSEGV && is_device_pointer((uint64_t)touched))
    say(" as the host touched memory of the assumed GPU, which is not there");
  for (int i = 0; i < n_missing; i++) {
    say(i ? ", " : "; the stub of CUDA lacks what it had asked for: ");
    say(missing[i]);
  }
  say("\n");
  sigaction(number, &before[number], NULL); /* whoever was there before goes on; else it ends here, by this signal */
  if (number == SIGABRT) raise(number);
}
EXPORT void stub_catch_crashes(void) {
  int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, &before[numbers[i]]);
}
