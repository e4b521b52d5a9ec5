/* cuDNN's recurrent networks: PyTorch asks where in one buffer each matrix and each bias is. Here all matrices come
 * first, layer by layer, then all biases; together they are as large as the parameters are. */
typedef struct {
  int mode, biases, directions, type, input, hidden, projected, layers;
} rnn;
static int gates(const rnn *r) { return r->mode == 2 ? 4 : r->mode == 3 ? 3 : 1; } /* LSTM, GRU, plain */
static size_t element(int type) { return type == 1 ? 8 : type == 2 || type == 9 ? 2 : 4; }
static int state(const rnn *r) { return r->projected > 0 && r->projected < r->hidden ? r->projected : r->hidden; }
/* Rows and columns of matrix `id` of a layer and direction; the last one is the projection. */
static int columns(const rnn *r, int layer, int id) {
  if (id == 2 * gates(r)) return r->hidden;
  if (id >= gates(r)) return state(r);
  return layer < r->directions ? r->input : state(r) * r->directions;
}
static int rows(const rnn *r, int id) { return id == 2 * gates(r) ? state(r) : r->hidden; }
static int matrices(const rnn *r) { return 2 * gates(r) + (state(r) < r->hidden); }
static int biases(const rnn *r) { return r->biases == 0 ? 0 : r->biases == 2 ? 2 * gates(r) : gates(r); }
/* Elements before a matrix, or before a bias. */
static size_t matrix_at(const rnn *r, int layer, int id) {
  size_t n = 0;
  for (int l = 0; l <= layer; l++)
    for (int i = 0; i < (l == layer ? id : matrices(r)); i++) n += (size_t)rows(r, i) * columns(r, l, i);
  return n;
}
static int all_layers(const rnn *r) { return r->layers * r->directions; }
static size_t bias_at(const rnn *r, int layer, int id) {
  return matrix_at(r, all_layers(r) - 1, matrices(r)) + ((size_t)layer * biases(r) + id) * r->hidden;
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
EXPORT int cudnnGetRNNWeightSpaceSize(void *h, rnn *r, size_t *s) {
  *s = element(r->type) * bias_at(r, all_layers(r), 0);
  return 0;
}
typedef struct {
  int type, n, dims[3];
} tensor;
EXPORT int cudnnGetRNNWeightParams(void *h, rnn *r, int layer, size_t all, char *space, int id, tensor *matrix,
                                   void **matrix_address, tensor *bias, void **bias_address) {
  /* Whoever wants the one gives no place for the other. */
  if (matrix && id < matrices(r)) *matrix = (tensor){r->type, 3, {1, rows(r, id), columns(r, layer, id)}};
  if (matrix_address) *matrix_address = id < matrices(r) ? space + element(r->type) * matrix_at(r, layer, id) : NULL;
  if (bias && id < biases(r)) *bias = (tensor){r->type, 3, {1, r->hidden, 1}};
  if (bias_address) *bias_address = id < biases(r) ? space + element(r->type) * bias_at(r, layer, id) : NULL;
  return 0;
}
EXPORT int cudnnGetTensorNdDescriptor(tensor *t, int most, int *type, int *n, int *dims, int *strides) {
  *type = t->type;
  *n = t->n;
  for (int i = 0, left = 1; i < t->n && i < most; i++) {
    dims[i] = t->dims[i];
    strides[t->n - 1 - i] = left;
    left *= t->dims[t->n - 1 - i];
  }
  return 0;
}
EXPORT int cudnnGetFilterNdDescriptor(tensor *t, int most, int *type, int *format, int *n, int *dims) {
  int strides[8];
  *format = 0;
  return cudnnGetTensorNdDescriptor(t, most, type, n, dims, strides);
}
