/* What the workspace of a plan of cuDNN could come to. Which algorithm cuDNN takes, and what it needs, only cuDNN
 * knows, and nothing bounds it; this is what the algorithms that it documents need of themselves. See docs/dry-run.md.
 */
typedef struct {
  int64_t n[8];
  int rank, is_virtual;
} shape;
/* A tensor has a shape; an operation has the shapes of a convolution, or the bytes of its tensors; whatever is made of
 * an operation, up to a plan, has its bytes, and whether PyTorch has nothing to fall back on: for a convolution it
 * tries other plans where memory is short. */
typedef struct {
  shape own, w, x, y;
  int is_strided, is_needed;
  uint64_t bytes;
} descriptor;

static uint64_t elements(const shape *s, int multiple) { /* with channels, the second of its lengths, in a multiple */
  uint64_t n = 1;
  for (int i = 0; i < s->rank; i++) n *= i == 1 ? (s->n[i] + multiple - 1) / multiple * multiple : s->n[i];
  return s->rank ? n : 0;
}
/* A transform by Fourier in tiles: of every image of the input, of the output and of every filter, complex numbers in
 * single precision, half of them as they are symmetrical. A tile has at most 32 by 32 points, or 16 by 16 by 16. */
static uint64_t transforms(const descriptor *d) {
  uint64_t tiles = d->x.n[0], points = 1;
  int wide = 0, spatial = d->w.rank - 2;
  for (int i = 2; i < d->w.rank; i++) {
    int64_t filter = d->w.n[i], out = d->y.n[i], most = spatial > 2 ? 16 : 32, tile = 8;
    if (filter > most) return 0;
    if (filter > 1) wide = 1;
    while (tile < most && tile < out + filter - 1) tile *= 2;
    if (tile < filter) tile = most;
    tiles *= (out + tile - filter) / (tile - filter + 1);
    points *= i == d->w.rank - 1 ? tile / 2 + 1 : tile;
  }
  return wide && !d->is_strided ? 8 * points * (tiles * (d->x.n[1] + d->y.n[1]) + d->w.n[0] * d->w.n[1]) : 0;
}
/* The matrix of all that each output sees. */
static uint64_t columns_of(const descriptor *d) {
  uint64_t n = d->x.n[1] * d->y.n[0];
  for (int i = 2; i < d->w.rank; i++) n *= d->w.n[i] * d->y.n[i];
  return 4 * n;
}
static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
static void finalize(descriptor *d) {
  if (!d || !d->w.rank || d->w.rank != d->x.rank || d->w.rank != d->y.rank) return;
  uint64_t copies = 4 * (elements(&d->x, 8) + elements(&d->w, 8) + elements(&d->y, 8)); /* in its own layout */
  uint64_t parts = 16 * 4 * elements(&d->w, 1); /* partial sums of the gradient of the weights */
  d->bytes = copies + larger(larger(transforms(d), columns_of(d)), parts);
}
/* Numbers of cudnnBackendAttributeName_t: a convolution's (702, 708, 714) is followed by its weights, its input and its
 * output. */
static void set_attribute(descriptor *d, int a, int type, int64_t n, const void *from) {
  if (!d || !from || n < 1) return;
  if (a == 902) { /* lengths of a tensor */
    d->own.rank = n < 8 ? n : 8;
    memcpy(d->own.n, from, 8 * d->own.rank);
  } else if (a == 907) d->own.is_virtual = *(const char *)from;
  else if (a == 103)
    for (int i = 0; i < n; i++) d->is_strided |= ((const int64_t *)from)[i] > 1;
  if (type != 15) return; /* a descriptor */
  const descriptor *const *parts = from;
  for (int i = 0; i < n; i++) {
    const descriptor *it = parts[i];
    if (!it) continue;
    int what = a >= 702 && a <= 717 ? (a - 702) % 6 : -1;
    if (what == 0) d->is_strided = it->is_strided;
    else if (what == 1) d->w = it->own;
    else if (what == 2) d->x = it->own;
    else if (what == 3) d->y = it->own;
    else if (it->own.rank) {
      d->bytes += it->own.is_virtual ? 0 : 4 * elements(&it->own, 1);
      d->is_needed = 1;
    } else {
      d->bytes += it->bytes;
      d->is_needed |= it->is_needed;
    }
  }
}

/* ---- what is told: when, where and how much ---- */
typedef struct {
  uint64_t time_us, device, stream, bytes, is_needed;
} workspace;
#define MOST_WORKSPACES (1 << 18)
static workspace *workspaces;
static uint64_t n_workspaces, room;
static __thread uint64_t dnn_stream;
EXPORT const workspace *stub_workspaces(uint64_t *n) {
  *n = n_workspaces;
  return workspaces;
}
static void tell_workspace(const descriptor *plan) {
  struct timespec now;
  if (!on_read || !plan || !plan->bytes) return;
  clock_gettime(CLOCK_REALTIME, &now);
  pthread_mutex_lock(&lock);
  if (n_workspaces == room && room < MOST_WORKSPACES) {
    void *more = realloc(workspaces, (room = room ? 2 * room : 1024) * sizeof(workspace));
    if (more) workspaces = more;
    else room = n_workspaces;
  }
  if (n_workspaces < room)
    workspaces[n_workspaces++] = (workspace){now.tv_sec * 1000000ull + now.tv_nsec / 1000, current_device, dnn_stream,
                                             plan->bytes, plan->is_needed};
  pthread_mutex_unlock(&lock);
}
