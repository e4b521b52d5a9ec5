/* NCCL: every rank succeeds alone, as the rank and size that it was given; nothing goes from one to another. */
typedef struct {
  int rank, size;
} communicator;
static int join(communicator **c, int size, int rank) {
  *c = calloc(1, 256);
  (*c)->rank = rank;
  (*c)->size = size;
  return 0;
}
typedef struct {
  char bytes[128];
} unique_id;
EXPORT int ncclGetVersion(int *v) {
  *v = NCCL_V;
  return 0;
}
EXPORT int ncclGetUniqueId(unique_id *id) {
  memset(id, 1, sizeof *id);
  return 0;
}
EXPORT int ncclCommInitRank(communicator **c, int size, unique_id id, int rank) { return join(c, size, rank); }
EXPORT int ncclCommInitRankConfig(communicator **c, int size, unique_id id, int rank, void *config) {
  return join(c, size, rank);
}
EXPORT int ncclCommInitRankScalable(communicator **c, int size, int rank, int n, unique_id *ids, void *config) {
  return join(c, size, rank);
}
EXPORT int ncclCommInitAll(communicator **c, int n, const int *devices) {
  for (int i = 0; i < n; i++) join(&c[i], n, i);
  return 0;
}
EXPORT int ncclCommSplit(communicator *c, int color, int key, communicator **made, void *config) {
  return join(made, c->size, c->rank);
}
EXPORT int ncclCommCount(communicator *c, int *n) {
  *n = c->size;
  return 0;
}
EXPORT int ncclCommUserRank(communicator *c, int *n) {
  *n = c->rank;
  return 0;
}
EXPORT int ncclCommCuDevice(communicator *c, int *n) {
  *n = current_device;
  return 0;
}
EXPORT int ncclCommGetAsyncError(communicator *c, int *e) {
  *e = 0;
  return 0;
}
EXPORT const char *ncclGetErrorString(int e) { return e ? "NCCL error of the stub" : "no error"; }
EXPORT const char *ncclGetLastError(void *c) { return ""; }
EXPORT int ncclMemAlloc(void **p, size_t n) { return cudaMalloc(p, n); }
EXPORT int ncclMemFree(void *p) { return cudaFree(p); }
