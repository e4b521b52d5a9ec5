/* cuSOLVER and cuSPARSE: workspaces by the sizes of the matrices. Neither documents them. The functions that query a
 * workspace are generated (_stub.py), and call these. */

/* Dense factorizations of LAPACK need at most 4 n^2 + 7 n numbers (gesdd) besides blocks of columns. Twice that is
 * assumed, for each matrix of a batch. */
static void estimate_solver(int64_t rows, int64_t columns, int64_t batch, int element_bytes) {
  uint64_t n = rows > columns ? rows : columns, m = rows > columns ? columns : rows;
  uint64_t square = rows > 0 && columns > 0 ? m * n : n * n;
  if (rows > 0 || columns > 0)
    estimate_workspace(CUSOLVER, (8 * square + 1024 * n) * (batch > 0 ? batch : 1) * element_bytes);
}

/* Bytes of the operands of cuSPARSE, by their descriptors. */
#define MAX_OPERANDS 4096
static struct {
  void *descriptor;
  uint64_t bytes;
} operands[MAX_OPERANDS];
static void *new_operand(uint64_t bytes) {
  static unsigned next = 0;
  void *descriptor = calloc(1, 64);
  unsigned slot = __sync_fetch_and_add(&next, 1) % MAX_OPERANDS;
  operands[slot].descriptor = descriptor;
  operands[slot].bytes = bytes;
  return descriptor;
}
static uint64_t operand_bytes(const void *descriptor) {
  for (int i = 0; descriptor && i < MAX_OPERANDS; i++)
    if (operands[i].descriptor == descriptor) return operands[i].bytes;
  return 0;
}
/* A product or a solution with sparse matrices is assumed to need at most a copy of each operand. */
static void estimate_sparse(void *const *arguments, int count) {
  uint64_t bytes = 0;
  for (int i = 0; i < count; i++) bytes += operand_bytes(arguments[i]);
  estimate_workspace(CUSPARSE, bytes);
}
/* An entry has a value of at most 16 bytes and two indices. */
EXPORT int cusparseCreateCsr(void **out, int64_t rows, int64_t columns, int64_t entries, void *offsets, void *indices,
                             void *values, int offset_type, int index_type, int base, int type) {
  *out = new_operand(8 * (rows + 1) + 24 * entries);
  return 0;
}
EXPORT int cusparseCreateConstCsr(void **out, int64_t rows, int64_t columns, int64_t entries, void *offsets,
                                  void *indices, void *values, int offset_type, int index_type, int base, int type) {
  *out = new_operand(8 * (rows + 1) + 24 * entries);
  return 0;
}
EXPORT int cusparseCreateCoo(void **out, int64_t rows, int64_t columns, int64_t entries, void *row_indices,
                             void *column_indices, void *values, int index_type, int base, int type) {
  *out = new_operand(32 * entries);
  return 0;
}
EXPORT int cusparseCreateDnMat(void **out, int64_t rows, int64_t columns, int64_t stride, void *values, int type,
                               int order) {
  *out = new_operand(16 * rows * columns);
  return 0;
}
EXPORT int cusparseCreateDnVec(void **out, int64_t size, void *values, int type) {
  *out = new_operand(16 * size);
  return 0;
}
EXPORT int cusparseDestroySpMat(void *descriptor) { return 0; }
EXPORT int cusparseDestroyDnMat(void *descriptor) { return 0; }
EXPORT int cusparseDestroyDnVec(void *descriptor) { return 0; }
