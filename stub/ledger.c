/* The ledger: what this run did that a GPU might answer differently. Values that the host read, sizes that only a
 * closed library knows, missing entry points, a crash. python/oomscope/_dry_run.py reads it through the stub_*
 * functions. */

/* Number of queries, for each library, whose real answer is unknown. _dry_run.py lists the same names in this order. */
enum { CUDNN, CUSOLVER, CUFFT, CUSPARSE, ATTENTION, TIMINGS, UNKNOWN_KINDS };
static uint64_t unknown_sizes[UNKNOWN_KINDS];
EXPORT const uint64_t *stub_unknown_sizes(void) { return unknown_sizes; }
EXPORT uint64_t stub_peak_bytes(int device) { return peak_used[device]; }

/* ---- device values that the host reads ---- */
typedef void (*read_callback)(const char *operators, uint64_t size, void *destination, const void *source);
static read_callback on_read = NULL; /* NULL: no recorder, and nothing is recorded */
EXPORT void stub_on_read(read_callback callback) { on_read = callback; }

/* Stands for an operator name in DistributedDataParallel's sync_bucket_indices. Rank 0 broadcasts bucket indices that
 * every rank has computed already, so the host keeps its own values: zeros would mean that there are no buckets. */
#define KEEP_HOST_VALUE "="

/* NAME if `pc` is in PyTorch's at::_ops::NAME::call or redispatch (exported, so dladdr finds them), else "". Cached. */
static const char *operator_name(void *pc) {
  static struct cached {
    void *pc;
    char name[56];
  } cache[1024];
  struct cached *slot = &cache[((uintptr_t)pc >> 2) % 1024];
  if (slot->pc == pc) return slot->name;
  Dl_info info = {0};
  const char *name = NULL;
  long length = 0;
  slot->pc = pc;
  slot->name[0] = 0;
  if (dladdr(pc, &info) && info.dli_sname && !strncmp(info.dli_sname, "_ZN2at4_ops", 11))
    length = strtol(info.dli_sname + 11, (char **)&name, 10);
  if (length > 0 && length < (long)sizeof slot->name) {
    memcpy(slot->name, name, length);
    slot->name[length] = 0;
  } else if (info.dli_sname && strstr(info.dli_sname, "sync_bucket_indices")) strcpy(slot->name, KEEP_HOST_VALUE);
  return slot->name;
}
/* The host reads `size` bytes of a device at `source` into `destination`: zeros, or what the recorder writes there. It
 * is called with the operators on the stack, innermost first. */
static void read_back(void *destination, const void *source, size_t size) {
  static __thread int is_recording = 0; /* the callback may read, too */
  void *stack[64];
  int depth = on_read && !is_recording && size ? backtrace(stack, 64) : 0;
  char operators[512] = "";
  size_t length = 0;
  const char *last = "";
  for (int i = 0; i < depth; i++) {
    const char *name = operator_name(stack[i]);
    if (!strcmp(name, KEEP_HOST_VALUE)) return;
    if (*name && strcmp(name, last) && length + strlen(name) + 2 < sizeof operators)
      length += snprintf(operators + length, sizeof operators - length, "%s%s", length ? " " : "", name);
    if (*name) last = name;
  }
  memset(destination, 0, size);
  if (!depth) return;
  is_recording = 1;
  on_read(operators, size, destination, source);
  is_recording = 0;
}

/* The program gives the device something to do. */
static void submit_work(void) {
  ticks++;
  write_by_work();
}

/* ---- the exit code, which Python's own exit does not show ---- */
static struct {
  pid_t pid;
  int expected;
  char *state, *snapshot;
} last_snapshot;
static void compare_exit_code(int code, void *unused) {
  FILE *file = NULL;
  if (last_snapshot.pid == getpid() && (code & 255) != last_snapshot.expected) file = fopen(last_snapshot.state, "w");
  if (!file) return;
  fprintf(file, "%d %s", code & 255, last_snapshot.snapshot);
  fclose(file);
}
/* `snapshot` says that this process will end with the code `expected`. If not, the code goes into the file `state`. */
EXPORT void stub_check_exit_code(int expected, const char *state, const char *snapshot) {
  last_snapshot.pid = getpid();
  last_snapshot.expected = expected;
  last_snapshot.state = strdup(state);
  last_snapshot.snapshot = strdup(snapshot);
  on_exit(compare_exit_code, NULL);
}

/* ---- missing entry points ---- */
#define MAX_MISSING 64
static const char *missing[MAX_MISSING];
static int missing_count = 0;
EXPORT const char *stub_missing(int index) { return index < missing_count ? missing[index] : NULL; }
static void report_missing(const char *name) {
  for (int i = 0; i < missing_count; i++)
    if (!strcmp(missing[i], name)) return;
  if (missing_count == MAX_MISSING) return;
  missing[missing_count++] = strdup(name);
  if (on_read) fprintf(stderr, "oomscope: dry run: the program calls %s, which the stub of CUDA does not have\n", name);
}
/* ---- output parameters of generated entry points (_stub.py): zero, or a new opaque object ---- */
static int is_host_pointer(const void *pointer) {
  return (uint64_t)pointer > 4096 && !is_device_pointer((uint64_t)pointer);
}
static void zero_output(void *pointer, size_t size) {
  if (is_host_pointer(pointer)) memset(pointer, 0, size);
}
static void new_object(void *pointer) {
  if (is_host_pointer(pointer)) *(void **)pointer = calloc(1, 256);
}

/* ---- crashes ---- */
static struct sigaction previous_handlers[NSIG];
static void write_stderr(const char *text) {
  if (write(2, text, strlen(text)) < 0) return;
}
static void on_crash(int signal_number, siginfo_t *info, void *context) {
  char *address = info ? info->si_addr : NULL;
  write_stderr("oomscope: dry run: the program crashed");
  if (signal_number == SIGSEGV && is_device_pointer((uint64_t)address))
    write_stderr(": the host accessed memory of the assumed GPU, which does not exist");
  for (int i = 0; i < missing_count; i++) {
    write_stderr(i ? ", " : "; it had called entry points that the stub of CUDA does not have: ");
    write_stderr(missing[i]);
  }
  write_stderr("\n");
  /* On return the instruction faults again, and the previous handler runs; abort() has to be repeated. */
  sigaction(signal_number, &previous_handlers[signal_number], NULL);
  if (signal_number == SIGABRT) raise(signal_number);
}
EXPORT void stub_catch_crashes(void) {
  int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
    sigaction(signals[i], &action, &previous_handlers[signals[i]]);
}
