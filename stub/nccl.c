/* NCCL: every call succeeds at once, on the rank and group size that the program gave. No data is exchanged, so what a
 * call receives is not known. */
static int receive(void *address) {
  write_outside(address);
  return 0;
}
EXPORT int ncclReduce(const void *sent, void *received) { return receive(received); }
EXPORT int ncclAllReduce(const void *sent, void *received) { return receive(received); }
EXPORT int ncclReduceScatter(const void *sent, void *received) { return receive(received); }
EXPORT int ncclAllGather(const void *sent, void *received) { return receive(received); }
EXPORT int ncclAlltoAll(const void *sent, void *received) { return receive(received); }
EXPORT int ncclGather(const void *sent, void *received) { return receive(received); }
EXPORT int ncclScatter(const void *sent, void *received) { return receive(received); }
EXPORT int ncclRecv(void *received) { return receive(received); }
typedef struct {
  int rank, size;
} communicator;
EXPORT uint64_t stub_communicators = 0; /* that this process made */
static int init_rank(communicator **comm, int size, int rank) {
  __atomic_add_fetch(&stub_communicators, 1, __ATOMIC_RELAXED);
  *comm = calloc(1, 256);
  (*comm)->rank = rank;
  (*comm)->size = size;
  return 0;
}
/* The rank that sends keeps its data. */
EXPORT int ncclBroadcast(const void *sent, void *received, size_t count, int type, int root, communicator *comm) {
  return sent == received && comm->rank == root ? 0 : receive(received);
}
EXPORT int ncclBcast(void *data, size_t count, int type, int root, communicator *comm) {
  return comm->rank == root ? 0 : receive(data);
}
typedef struct {
  char bytes[128];
} unique_id;
EXPORT int ncclGetVersion(int *version) {
  *version = NCCL_V;
  return 0;
}
EXPORT int ncclGetUniqueId(unique_id *id) {
  memset(id, 1, sizeof *id);
  return 0;
}
EXPORT int ncclCommInitRank(communicator **comm, int size, unique_id id, int rank) {
  return init_rank(comm, size, rank);
}
EXPORT int ncclCommInitRankConfig(communicator **comm, int size, unique_id id, int rank, void *config) {
  return init_rank(comm, size, rank);
}
EXPORT int ncclCommInitRankScalable(communicator **comm, int size, int rank, int id_count, unique_id *ids,
                                    void *config) {
  return init_rank(comm, size, rank);
}
EXPORT int ncclCommInitAll(communicator **comms, int size, const int *devices) {
  for (int rank = 0; rank < size; rank++) init_rank(&comms[rank], size, rank);
  return 0;
}
/* The ranks that call ncclCommSplit with one color form a group. NCCL counts them; here python/oomscope/_ranks.py
 * announces the size of the group before PyTorch splits. PyTorch passes the rank within the group as `key`. */
#define MAX_COLORS 256
static struct {
  int color, size;
} colors[MAX_COLORS];
static int color_count = 0, announced_size = 0;
EXPORT void stub_announce_group(int color, int size) {
  if (color < 0) announced_size = size;
  else {
    colors[color_count % MAX_COLORS].color = color;
    colors[color_count++ % MAX_COLORS].size = size;
  }
}
EXPORT int ncclCommSplit(communicator *comm, int color, int key, communicator **result, void *config) {
  int size = announced_size ? announced_size : comm->size;
  if (color < 0) { /* NCCL_SPLIT_NOCOLOR: this rank is in no group */
    *result = NULL;
    return 0;
  }
  for (int i = 0; i < color_count && i < MAX_COLORS; i++)
    if (colors[i].color == color) size = colors[i].size;
  return init_rank(result, size, key);
}
EXPORT int ncclCommCount(communicator *comm, int *size) {
  *size = comm->size;
  return 0;
}
EXPORT int ncclCommUserRank(communicator *comm, int *rank) {
  *rank = comm->rank;
  return 0;
}
EXPORT int ncclCommCuDevice(communicator *comm, int *device) {
  *device = current_device;
  return 0;
}
EXPORT int ncclCommGetAsyncError(communicator *comm, int *error) {
  *error = 0;
  return 0;
}
EXPORT const char *ncclGetErrorString(int error) { return error ? "NCCL error of the stub" : "no error"; }
EXPORT const char *ncclGetLastError(void *comm) { return ""; }
EXPORT int ncclMemAlloc(void **pointer, size_t size) { return cudaMalloc(pointer, size); }
EXPORT int ncclMemFree(void *pointer) { return cudaFree(pointer); }
