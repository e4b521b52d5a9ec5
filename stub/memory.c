/* The device memory model: what is taken, what is free, and at which addresses. It is the model of
 * `device::Simulated`, which tests/suite/dry_run_memory.rs holds it to. Knows nothing of CUDA. */
#define EXPORT __attribute__((visibility("default")))
#define MIB (1024ull * 1024ull)
#define PAGE (2 * MIB) /* memory and addresses are handed out in multiples of this, as the driver does */
#define MAX_DEVICES 16
#define OOM 2

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t ticks = 0; /* driver calls so far: the clock of events */

static uint64_t env_u64(const char *name, uint64_t fallback) {
  const char *v = getenv(name);
  return v && *v ? strtoull(v, NULL, 0) : fallback;
}
static uint64_t capacity(void) { return env_u64("STUBCUDA_TOTAL_MIB", 81920) * MIB; }
static uint64_t others(void) { return env_u64("STUBCUDA_OTHER_MIB", 0) * MIB; }
static int random_seeded = 0;
static uint64_t random_state;
static uint64_t next_random(void) { /* splitmix64 */
  if (!random_seeded) {
    random_state = env_u64("STUBCUDA_SEED", 1);
    random_seeded = 1;
  }
  uint64_t z = (random_state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}
static int unlucky(void) {
  uint64_t n = env_u64("STUBCUDA_FAIL_ONE_IN", 0);
  return n && next_random() % n == 0;
}

/* ---- address ranges: a sorted list; each device has its own TiB ---- */
#define DEVICE_SHIFT 40
#define DEVICE_SPAN (1ull << DEVICE_SHIFT)
#define RESERVE_BASE 0x300000000000ull
#define RESERVE_SPAN 0x100000000000ull
#define MALLOC_BASE (RESERVE_BASE + RESERVE_SPAN)
#define MALLOC_END (MALLOC_BASE + MAX_DEVICES * DEVICE_SPAN)

/* No memory of the host may lie there, or copies to it would be taken for copies to a device. The heap of a
 * position-independent program begins above 0x555555554000, libraries and stacks lie above 0x7f0000000000. */
__attribute__((constructor)) static void keep_clear(void) {
  void *all = (void *)RESERVE_BASE;
  uint64_t size = MALLOC_END - RESERVE_BASE;
  if (mmap(all, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0) == all) {
    madvise(all, size, MADV_DONTDUMP);
    return;
  }
  fprintf(stderr,
          "oomscope: the addresses of the assumed devices, 0x%llx to 0x%llx, are not free; a limit on virtual memory "
          "(ulimit -v) has this effect\n",
          (unsigned long long)RESERVE_BASE, (unsigned long long)MALLOC_END);
  _exit(2);
}
typedef struct range {
  uint64_t base, size;
  int dev;
  struct range *next;
} range;
typedef struct {
  uint64_t origin;
  range *head;
} space;
static space malloc_space[MAX_DEVICES];
static space reserve_space = {RESERVE_BASE, NULL};
static uint64_t used[MAX_DEVICES], most_used[MAX_DEVICES];

static uint64_t space_take(space *s, uint64_t size, int dev) {
  static char mode = 0;
  uint64_t span = s->origin == RESERVE_BASE ? RESERVE_SPAN : DEVICE_SPAN, at = 0;
  range **link = NULL;
  if (!mode) {
    const char *v = getenv("STUBCUDA_PLACEMENT");
    mode = v && *v ? *v : 'l';
  }
  for (int tries = 0; mode != 'l' && tries < 64; tries++) {
    if (mode == 'h') { /* just below everything taken so far */
      at = s->head ? s->head->base : s->origin + span / 2;
      if (at - s->origin < size) break;
      at -= size;
    } else at = s->origin + next_random() % (span / 4 / PAGE) * PAGE;
    for (link = &s->head; *link && (*link)->base + (*link)->size <= at;) link = &(*link)->next;
    if (!*link || (*link)->base >= at + size) goto found;
  }
  link = &s->head;
  at = s->origin;
  while (*link && (*link)->base - at < size) {
    at = (*link)->base + (*link)->size;
    link = &(*link)->next;
  }
found:;
  range *r = malloc(sizeof *r);
  r->base = at;
  r->size = size;
  r->dev = dev;
  r->next = *link;
  *link = r;
  return at;
}
static int space_give(space *s, uint64_t base, uint64_t *size) {
  for (range **link = &s->head; *link; link = &(*link)->next)
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
    if (p >= r->base && p < r->base + r->size) return r->dev;
  return 0;
}

/* ---- the calls; the caller holds the lock ---- */
static uint64_t whole_pages(uint64_t size) {
  uint64_t n = (size + PAGE - 1) / PAGE * PAGE;
  return n ? n : PAGE;
}
/* Whether device `d` has memory for `size` bytes, which it has no more then. */
static int take_memory(int d, uint64_t size) {
  uint64_t n = whole_pages(size);
  if (n < size || n > capacity() || used[d] + n + others() > capacity() || unlucky()) return 0;
  used[d] += n;
  if (used[d] > most_used[d]) most_used[d] = used[d];
  return 1;
}
static void give_memory(int d, uint64_t size) { used[d] -= whole_pages(size); }
static uint64_t memory_allocate(int d, uint64_t size) { /* 0: no memory */
  if (!malloc_space[d].origin) malloc_space[d].origin = MALLOC_BASE + ((uint64_t)d << DEVICE_SHIFT);
  return take_memory(d, size) ? space_take(&malloc_space[d], whole_pages(size), d) : 0;
}
static int memory_free(int d, uint64_t at, uint64_t *size) {
  int ok = space_give(&malloc_space[d], at, size);
  if (ok) give_memory(d, *size);
  return ok;
}
static uint64_t memory_reserve(int d, uint64_t size) { return space_take(&reserve_space, whole_pages(size), d); }
static uint64_t memory_free_bytes(int d) {
  uint64_t taken = used[d] + others();
  return taken > capacity() ? 0 : capacity() - taken;
}
