/* An estimate of the workspace of a cuDNN plan. Only cuDNN knows which algorithm it chooses and what that needs, and
 * nothing bounds it. The estimate is the largest need of the algorithms that cuDNN documents. See docs/dry-run.md. */
#define MAX_RANK 8
typedef struct {
  int64_t dims[MAX_RANK]; /* images or filters, channels, then space */
  int rank, is_virtual;
} tensor_shape;
/* Any cudnnBackendDescriptor_t. A tensor uses `shape`. A convolution uses `filter`, `input` and `output`; any other
 * operation counts its tensors and matrix products. Descriptors made from an operation, up to the plan, take over its
 * figures. */
typedef struct {
  tensor_shape shape, filter, input, output;
  int is_strided;
  int is_required; /* PyTorch has no other plan to try if memory is short; for a convolution it has */
  int products;    /* matrix products: 2 in the forward pass of attention, 5 in its backward pass */
  /* of its tensors with a batch, heads, positions and features */
  uint64_t most_heads, fewest_heads, fewest_positions, most_elements;
  uint64_t bytes; /* the most that the plan could need */
} descriptor;

/* Elements of a tensor whose channels are padded to a multiple of `channel_multiple`. */
static uint64_t padded_elements(const tensor_shape *shape, int channel_multiple) {
  uint64_t elements = 1;
  for (int i = 0; i < shape->rank; i++) {
    int multiple = i == 1 ? channel_multiple : 1;
    elements *= (shape->dims[i] + multiple - 1) / multiple * multiple;
  }
  return shape->rank ? elements : 0;
}
/* Convolution by FFT in tiles: the spectra of all input images, output images and filters, in complex single precision.
 * Spectra of real data are symmetric, so half is stored. A tile has at most 32 x 32 or 16 x 16 x 16 points. */
static uint64_t fft_workspace(const descriptor *conv) {
  const int64_t *filter = conv->filter.dims, *input = conv->input.dims, *output = conv->output.dims;
  uint64_t tiles = input[0], points = 1;
  int rank = conv->filter.rank, is_pointwise = 1;
  for (int i = 2; i < rank; i++) {
    int64_t max_tile = rank - 2 > 2 ? 16 : 32, tile = 8;
    if (filter[i] > max_tile) return 0;
    if (filter[i] > 1) is_pointwise = 0;
    while (tile < max_tile && tile < output[i] + filter[i] - 1) tile *= 2;
    if (tile < filter[i]) tile = max_tile;
    tiles *= (output[i] + tile - filter[i]) / (tile - filter[i] + 1);
    points *= i == rank - 1 ? tile / 2 + 1 : tile;
  }
  if (is_pointwise || conv->is_strided) return 0;
  return 8 * points * (tiles * (input[1] + output[1]) + filter[0] * filter[1]);
}
/* Convolution as a matrix product: each column holds the input values that one output value depends on. */
static uint64_t im2col_workspace(const descriptor *conv) {
  uint64_t elements = conv->input.dims[1] * conv->output.dims[0];
  for (int i = 2; i < conv->filter.rank; i++) elements *= conv->filter.dims[i] * conv->output.dims[i];
  return 4 * elements;
}
static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }
static uint64_t smaller_known(uint64_t a, uint64_t b) { return a && (!b || a < b) ? a : b; }
/* Attention of more than one query needs 256 bytes; its backward pass also gradients of keys and values for every head
 * of the queries, in 16 bits, where several heads share one. Measured on an H200 with cuDNN 9.19 (tests/gpu), in all
 * calls of 14 programs. What the frontend within PyTorch adds is part of the request already. */
static uint64_t attention_workspace(const descriptor *plan) {
  int is_grouped = plan->products > 2 && plan->fewest_heads < plan->most_heads;
  return plan->fewest_positions > 1 ? 256 + (is_grouped ? 2 * 2 * plan->most_elements : 0) : 0;
}
static void count_attention(descriptor *d, const descriptor *part) {
  const tensor_shape *shape = &part->shape;
  int is_operand = shape->rank == 4 && !shape->is_virtual && shape->dims[3] > 1;
  uint64_t heads = is_operand ? shape->dims[1] : 0;
  d->products += part->products;
  d->most_heads = larger(d->most_heads, larger(heads, part->most_heads));
  d->fewest_heads = smaller_known(smaller_known(heads, part->fewest_heads), d->fewest_heads);
  d->fewest_positions =
      smaller_known(smaller_known(is_operand ? shape->dims[2] : 0, part->fewest_positions), d->fewest_positions);
  d->most_elements = larger(d->most_elements, is_operand ? padded_elements(shape, 1) : part->most_elements);
  d->is_required |= shape->rank || part->is_required;
  /* Other releases and GPUs may copy as much where no heads are shared. */
  if (d->is_required) d->bytes = 256 + (d->products > 2 ? 2 * 2 * d->most_elements : 0);
}
static void finalize_descriptor(descriptor *d) {
  if (!d || !d->filter.rank || d->filter.rank != d->input.rank || d->filter.rank != d->output.rank) return;
  /* Copies of all tensors in cuDNN's own layout, and up to 16 partial sums of the gradient of the weights. */
  uint64_t elements = padded_elements(&d->input, 8) + padded_elements(&d->filter, 8) + padded_elements(&d->output, 8);
  uint64_t partial_sums = 16 * 4 * padded_elements(&d->filter, 1);
  d->bytes = 4 * elements + larger(larger(fft_workspace(d), im2col_workspace(d)), partial_sums);
}
/* By number of cudnnBackendAttributeName_t. Each of the three convolutions has six attributes from 702 on (forward,
 * backward data, backward filter): the convolution, its filter, input and output, and two factors. */
static void set_attribute(descriptor *d, int name, int type, int64_t count, const void *values) {
  if (!d || !values || count < 1) return;
  switch (name) {
  case 103: /* CONVOLUTION_FILTER_STRIDES */
    for (int i = 0; i < count; i++) d->is_strided |= ((const int64_t *)values)[i] > 1;
    break;
  case 902: /* TENSOR_DIMENSIONS */
    d->shape.rank = count < MAX_RANK ? count : MAX_RANK;
    memcpy(d->shape.dims, values, sizeof(int64_t) * d->shape.rank);
    break;
  case 907: d->shape.is_virtual = *(const char *)values; break; /* TENSOR_IS_VIRTUAL */
  case 1520: d->products = 1; break;                            /* OPERATION_MATMUL_ADESC */
  }
  if (type != 15) return; /* CUDNN_TYPE_BACKEND_DESCRIPTOR */
  const descriptor *const *parts = values;
  for (int i = 0; i < count; i++) {
    const descriptor *part = parts[i];
    if (!part) continue;
    switch (name >= 702 && name <= 717 ? (name - 702) % 6 : -1) {
    case 0: d->is_strided = part->is_strided; break;
    case 1: d->filter = part->shape; break;
    case 2: d->input = part->shape; break;
    case 3: d->output = part->shape; break;
    default: d->bytes = larger(d->bytes, part->bytes); count_attention(d, part);
    }
  }
}

/* ---- the workspaces of this run, for the ledger; _dry_run.py reads six numbers of 8 bytes each ---- */
typedef struct {
  uint64_t time_us, device, stream, bytes, is_required;
  uint64_t minimum_bytes; /* if not 0, the program's next request of this size may be one of `bytes`, and keeps them */
} workspace;
#define MAX_WORKSPACES (1 << 18)
static workspace *workspaces;
static uint64_t workspace_count, workspace_room;
static __thread uint64_t dnn_stream;
EXPORT const workspace *stub_workspaces(uint64_t *count) {
  *count = workspace_count;
  return workspaces;
}
static void add_workspace(uint64_t bytes, int is_required, uint64_t minimum_bytes) {
  struct timespec now;
  if (!on_read || !bytes) return;
  clock_gettime(CLOCK_REALTIME, &now);
  pthread_mutex_lock(&lock);
  if (workspace_count == workspace_room && workspace_room < MAX_WORKSPACES) {
    uint64_t room = workspace_room ? 2 * workspace_room : 1024;
    void *larger = realloc(workspaces, room * sizeof(workspace));
    if (larger) {
      workspaces = larger;
      workspace_room = room;
    }
  }
  if (workspace_count < workspace_room) {
    uint64_t time_us = now.tv_sec * 1000000ull + now.tv_nsec / 1000;
    workspaces[workspace_count++] = (workspace){time_us, current_device, dnn_stream, bytes, is_required, minimum_bytes};
  }
  pthread_mutex_unlock(&lock);
}
static void record_workspace(const descriptor *plan) {
  if (plan) add_workspace(plan->bytes, plan->is_required, 0);
}
/* A workspace of a library other than cuDNN, without which a call fails. */
static void estimate_workspace(int library, uint64_t bytes) {
  unknown_sizes[library]++;
  add_workspace(bytes, 1, 0);
}
