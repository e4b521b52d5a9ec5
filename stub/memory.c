/* The placementl of device memory: how much is used, how much is free, and at which addresses. It knows nothing of
 * CUDA. It is the same placementl as `device::Simulated` in Rust; tests/suite/dry_run_stub.rs compares the two. */
#define EXPORT __attribute__((visibility("default")))
#define MIB (1024ull * 1024ull)
#define PAGE (2 * MIB) /* the driver's granularity for memory and addresses */
#define MAX_DEVICES 16
/* CUresult and cudaError_t agree on these. */
#define INVALID_VALUE 1
#define OOM 2
#define NOT_SUPPORTED 801

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t ticks = 0; /* driver calls so far: the clock for events */

static uint64_t env_u64(const char *name, uint64_t fallback) {
  const char *value = getenv(name);
  return value && *value ? strtoull(value, NULL, 0) : fallback;
}
static uint64_t capacity(void) { return env_u64("STUBCUDA_TOTAL_MIB", 81920) * MIB; }
static uint64_t other_processes_bytes(void) { return env_u64("STUBCUDA_OTHER_MIB", 0) * MIB; }
static int is_random_seeded = 0;
static uint64_t random_state;
static uint64_t next_random(void) { /* splitmix64 */
  if (!is_random_seeded) {
    random_state = env_u64("STUBCUDA_SEED", 1);
    is_random_seeded = 1;
  }
  uint64_t z = (random_state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
static int fails_at_random(void) {
  uint64_t one_in = env_u64("STUBCUDA_FAIL_ONE_IN", 0);
  return one_in && next_random() % one_in == 0;
}

/* ---- address ranges: a sorted list; cudaMalloc has a TiB of addresses for each device ---- */
#define DEVICE_SHIFT 40
#define DEVICE_SPAN (1ull << DEVICE_SHIFT)
#define RESERVE_BASE 0x300000000000ull
#define RESERVE_SPAN 0x100000000000ull
#define MALLOC_BASE (RESERVE_BASE + RESERVE_SPAN)
#define MALLOC_END (MALLOC_BASE + MAX_DEVICES * DEVICE_SPAN)

/* Host memory must not lie at these addresses: copies to it would be mistaken for copies to a device. The heap of a
 * position-independent program starts above 0x555555554000, libraries and stacks lie above 0x7f0000000000. */
__attribute__((constructor)) static void reserve_device_addresses(void) {
  void *base = (void *)RESERVE_BASE;
  uint64_t size = MALLOC_END - RESERVE_BASE;
  if (mmap(base, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == base) {
    madvise(base, size, MADV_DONTDUMP);
    return;
  }
  fprintf(stderr,
          "oomscope: cannot reserve the addresses 0x%llx to 0x%llx for the assumed devices; is virtual memory limited "
          "(ulimit -v)?\n",
          (unsigned long long)RESERVE_BASE, (unsigned long long)MALLOC_END);
  _exit(2);
}
typedef struct range {
  uint64_t base, size;
  int device;
  struct range *next;
} range;
typedef struct {
  uint64_t origin;
  range *head;
} address_space;
static address_space malloc_space[MAX_DEVICES];
static address_space reserve_space = {RESERVE_BASE, NULL};
static uint64_t used[MAX_DEVICES], peak_used[MAX_DEVICES];
static uint64_t graph_bytes[MAX_DEVICES]; /* an estimate, so it makes no allocation fail */

/* Takes a free range of `size` bytes where STUBCUDA_PLACEMENT says: l(owest), h(ighest) or r(andom). */
static uint64_t take_addresses(address_space *space, uint64_t size, int device) {
  static char placement = 0;
  uint64_t span = space->origin == RESERVE_BASE ? RESERVE_SPAN : DEVICE_SPAN, at = 0;
  range **link = NULL;
  if (!placement) {
    const char *value = getenv("STUBCUDA_PLACEMENT");
    placement = value && *value ? *value : 'l';
  }
  for (int tries = 0; placement != 'l' && tries < 64; tries++) {
    if (placement == 'h') { /* just below everything in use */
      at = space->head ? space->head->base : space->origin + span / 2;
      if (at - space->origin < size) break;
      at -= size;
    } else at = space->origin + next_random() % (span / 4 / PAGE) * PAGE;
    for (link = &space->head; *link && (*link)->base + (*link)->size <= at;) link = &(*link)->next;
    if (!*link || (*link)->base >= at + size) goto found;
  }
  link = &space->head;
  at = space->origin;
  while (*link && (*link)->base - at < size) {
    at = (*link)->base + (*link)->size;
    link = &(*link)->next;
  }
found:;
  range *r = malloc(sizeof *r);
  r->base = at;
  r->size = size;
  r->device = device;
  r->next = *link;
  *link = r;
  return at;
}
static int release_addresses(address_space *space, uint64_t base, uint64_t *size) {
  for (range **link = &space->head; *link; link = &(*link)->next)
    if ((*link)->base == base) {
      range *r = *link;
      *size = r->size;
      *link = r->next;
      free(r);
      return 1;
    }
  return 0;
}
static int is_device_pointer(uint64_t p) {
  return (p >= MALLOC_BASE && p < MALLOC_END) || (p >= RESERVE_BASE && p < RESERVE_BASE + RESERVE_SPAN);
}
static int pointer_device(uint64_t p) {
  if (p >= MALLOC_BASE && p < MALLOC_END) return (int)((p - MALLOC_BASE) >> DEVICE_SHIFT);
  for (range *r = reserve_space.head; r; r = r->next)
    if (p >= r->base && p < r->base + r->size) return r->device;
  return 0;
}

/* ---- the calls; the caller holds the lock ---- */
static uint64_t round_to_pages(uint64_t size) {
  uint64_t rounded = (size + PAGE - 1) / PAGE * PAGE;
  return rounded ? rounded : PAGE;
}
/* Uses `size` bytes of the device's memory; 0 if it has no room. */
static int take_memory(int device, uint64_t size) {
  uint64_t pages = round_to_pages(size);
  if (pages < size || pages > capacity()) return 0;
  if (used[device] + pages + other_processes_bytes() > capacity() || fails_at_random()) return 0;
  used[device] += pages;
  if (used[device] > peak_used[device]) peak_used[device] = used[device];
  return 1;
}
static void release_memory(int device, uint64_t size) { used[device] -= round_to_pages(size); }
static uint64_t memory_allocate(int device, uint64_t size) { /* 0: no memory */
  address_space *space = &malloc_space[device];
  if (!space->origin) space->origin = MALLOC_BASE + ((uint64_t)device << DEVICE_SHIFT);
  return take_memory(device, size) ? take_addresses(space, round_to_pages(size), device) : 0;
}
static int memory_free(int device, uint64_t address, uint64_t *size) {
  int ok = release_addresses(&malloc_space[device], address, size);
  if (ok) release_memory(device, *size);
  return ok;
}
static uint64_t memory_reserve(int device, uint64_t size) {
  return take_addresses(&reserve_space, round_to_pages(size), device);
}
static uint64_t memory_free_bytes(int device) {
  uint64_t taken = used[device] + graph_bytes[device] / PAGE * PAGE + other_processes_bytes();
  return taken > capacity() ? 0 : capacity() - taken;
}
