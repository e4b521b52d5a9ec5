/* cuDNN's recurrent networks: the layout of all parameters in one buffer. PyTorch queries the address of each matrix
 * and each bias. Here all matrices come first, layer by layer, then all biases. The total size is that of the
 * parameters. */
typedef struct {
  int mode, biases, directions, type, input, hidden, projected, layers;
} rnn;
static int gates(const rnn *r) { return r->mode == 2 ? 4 : r->mode == 3 ? 3 : 1; } /* LSTM, GRU, plain RNN */
static size_t element_bytes(int type) {
  return type == 1 ? 8 : type == 2 || type == 9 ? 2 : 4;
} /* double, half, bf16 */
static int state_size(const rnn *r) { return r->projected > 0 && r->projected < r->hidden ? r->projected : r->hidden; }
/* Columns and rows of matrix `id` in a layer (each direction counts as one). The last matrix is the projection. */
static int columns(const rnn *r, int layer, int id) {
  if (id == 2 * gates(r)) return r->hidden;
  if (id >= gates(r)) return state_size(r);
  return layer < r->directions ? r->input : state_size(r) * r->directions;
}
static int rows(const rnn *r, int id) { return id == 2 * gates(r) ? state_size(r) : r->hidden; }
static int matrices(const rnn *r) { return 2 * gates(r) + (state_size(r) < r->hidden); }
static int biases(const rnn *r) { return r->biases == 0 ? 0 : r->biases == 2 ? 2 * gates(r) : gates(r); }
/* Offsets are numbers of elements. */
static size_t matrix_offset(const rnn *r, int layer, int id) {
  size_t offset = 0;
  for (int l = 0; l <= layer; l++)
    for (int i = 0; i < (l == layer ? id : matrices(r)); i++) offset += (size_t)rows(r, i) * columns(r, l, i);
  return offset;
}
static int layer_count(const rnn *r) { return r->layers * r->directions; }
static size_t bias_offset(const rnn *r, int layer, int id) {
  return matrix_offset(r, layer_count(r) - 1, matrices(r)) + ((size_t)layer * biases(r) + id) * r->hidden;
}
EXPORT int cudnnSetRNNDescriptor_v8(rnn *r, int algorithm, int mode, int bias, int direction, int input_mode, int type,
                                    int math, int math_type, int input, int hidden, int projected, int layers,
                                    void *dropout, unsigned flags) {
  r->mode = mode;
  r->biases = bias;
  r->directions = direction + 1;
  r->type = type;
  r->input = input;
  r->hidden = hidden;
  r->projected = projected;
  r->layers = layers;
  return 0;
}
EXPORT int cudnnGetRNNWeightSpaceSize(void *handle, rnn *r, size_t *size) {
  *size = element_bytes(r->type) * bias_offset(r, layer_count(r), 0);
  return 0;
}
typedef struct {
  int type, rank, dims[3];
} tensor;
EXPORT int cudnnGetRNNWeightParams(void *handle, rnn *r, int layer, size_t size, char *space, int id, tensor *matrix,
                                   void **matrix_address, tensor *bias, void **bias_address) {
  /* A caller that wants only the matrix, or only the bias, passes NULL for the other. */
  if (matrix && id < matrices(r)) *matrix = (tensor){r->type, 3, {1, rows(r, id), columns(r, layer, id)}};
  if (matrix_address)
    *matrix_address = id < matrices(r) ? space + element_bytes(r->type) * matrix_offset(r, layer, id) : NULL;
  if (bias && id < biases(r)) *bias = (tensor){r->type, 3, {1, r->hidden, 1}};
  if (bias_address) *bias_address = id < biases(r) ? space + element_bytes(r->type) * bias_offset(r, layer, id) : NULL;
  return 0;
}
EXPORT int cudnnGetTensorNdDescriptor(tensor *t, int requested, int *type, int *rank, int *dims, int *strides) {
  *type = t->type;
  *rank = t->rank;
  for (int i = 0, stride = 1; i < t->rank && i < requested; i++) {
    int innermost = t->rank - 1 - i;
    dims[i] = t->dims[i];
    strides[innermost] = stride;
    stride *= t->dims[innermost];
  }
  return 0;
}
EXPORT int cudnnGetFilterNdDescriptor(tensor *t, int requested, int *type, int *format, int *rank, int *dims) {
  int strides[8];
  *format = 0;
  return cudnnGetTensorNdDescriptor(t, requested, type, rank, dims, strides);
}

/* ---- the memory of a pass ----
 * A unit is one number for each step, sequence, hidden value and direction. The reserve goes from the forward to the
 * backward pass: at least what gradients follow from, which is for each layer the gates and the cell, and the output of
 * each layer but the last. (An LSTM and a GRU of four layers, pytorch#2895: 23 and 27 units; here at least 23 and 19.)
 * At most twice what MIOpen keeps, the open library with the same interface. The workspace of a call: MIOpen's, and a
 * copy of the parameters. */
typedef struct {
  int64_t steps; /* of all sequences */
} rnn_data;
EXPORT int cudnnSetRNNDataDescriptor(rnn_data *data, int type, int layout, int max_length, int batch, int vector,
                                     const int *lengths, void *padding) {
  data->steps = 0;
  for (int i = 0; i < batch; i++) data->steps += lengths ? lengths[i] : max_length;
  return 0;
}
EXPORT int cudnnGetRNNTempSpaceSizes(void *handle, const rnn *r, int is_training, const rnn_data *data, size_t *bytes,
                                     size_t *reserve) {
  int least_units = r->mode == 2 ? 5 : r->mode == 3 ? 4 : 0, units = r->mode == 2 ? 6 : r->mode == 3 ? 4 : 1;
  uint64_t unit = (uint64_t)data->steps * r->hidden * r->directions * element_bytes(r->type);
  uint64_t parameters = element_bytes(r->type) * bias_offset(r, layer_count(r), 0);
  uint64_t least = is_training ? (least_units * r->layers + r->layers - 1) * unit : 0;
  if (bytes) *bytes = 0;
  if (reserve) *reserve = least;
  unknown_sizes[CUDNN]++;
  add_workspace(units * r->layers * unit + parameters, 1, 0);
  if (least) {
    unknown_sizes[CUDNN]++;
    add_workspace(2 * units * r->layers * unit, 1, least);
  }
  return 0;
}
