/* Streams, captures and events. Nothing runs, so every event is complete at once, unless STUBCUDA_EVENT_LAG says later.
 */
typedef struct {
  uint64_t handle;
  int is_capturing;
  uint64_t capture_id;
} stream_state;
#define GRAPH ((void *)0x77)
#define MAX_STREAMS 4096
static stream_state streams[MAX_STREAMS];
static int stream_count = 0;
static uint64_t capture_count = 0;
static uint64_t next_handle = 0x10000;
/* The state of a stream, new if it has none. If there is no room, it replaces a stream that is not capturing: such a
 * state holds no information. */
static stream_state *find_stream(void *handle) {
  int index = -1;
  for (int i = 0; i < stream_count; i++) {
    if (streams[i].handle == (uint64_t)handle) return &streams[i];
    if (!streams[i].is_capturing) index = i;
  }
  if (stream_count < MAX_STREAMS) index = stream_count++;
  if (index < 0) index = 0;
  streams[index] = (stream_state){(uint64_t)handle, 0, 0};
  return &streams[index];
}
EXPORT int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  pthread_mutex_lock(&lock);
  next_handle += 0x100;
  *stream = (void *)next_handle;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaStreamCreateWithFlags(void **stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
EXPORT int cudaStreamCreate(void **stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
EXPORT int cudaStreamIsCapturing(void *stream, int *status) {
  pthread_mutex_lock(&lock);
  *status = find_stream(stream)->is_capturing;
  pthread_mutex_unlock(&lock);
  return 0;
}
static int capture_info(void *stream, int *status, unsigned long long *id) {
  pthread_mutex_lock(&lock);
  stream_state *state = find_stream(stream);
  *status = state->is_capturing;
  if (id) *id = state->capture_id;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaStreamGetCaptureInfo(void *stream, int *status, unsigned long long *id, void **graph, const void ***deps,
                                    const void **edges, size_t *count) {
  if (CUDART_V >= 13000) {
    if (graph) *graph = GRAPH;
    if (deps) *deps = NULL;
    if (edges) *edges = NULL;
    if (count) *count = 0;
  }
  return capture_info(stream, status, id);
}
EXPORT int cudaStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph,
                                       const void ***deps, size_t *count) {
  if (graph) *graph = GRAPH;
  if (deps) *deps = NULL;
  if (count) *count = 0;
  return capture_info(stream, status, id);
}
EXPORT int cudaStreamBeginCapture(void *stream, int mode) {
  pthread_mutex_lock(&lock);
  stream_state *state = find_stream(stream);
  state->is_capturing = 1;
  state->capture_id = ++capture_count;
  captured_nodes = 0;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaStreamEndCapture(void *stream, void **graph) { /* also ends it on every stream that joined */
  pthread_mutex_lock(&lock);
  uint64_t id = find_stream(stream)->capture_id;
  for (int i = 0; i < stream_count; i++)
    if (streams[i].is_capturing && streams[i].capture_id == id) streams[i].is_capturing = 0;
  *graph = GRAPH;
  pthread_mutex_unlock(&lock);
  return 0;
}
/* An estimate of the driver's memory for a kernel in a CUDA graph, which lessens free memory and fails no request. 32
 * layers with 51 batch sizes, each as one graph and as one for each layer, have 31,000 kernels. On an H100 vLLM 0.19
 * measured 0.91 GiB with their pool, for 16 of the layers 0.65, for 8 0.51: 17 MiB for a layer (llm-d-planner,
 * accuracy/results/v0.19.0). */
#define NODE_BYTES (18 << 10)
typedef struct {
  int device;
  uint64_t bytes;
} executable_graph;
EXPORT int cudaGraphInstantiate(executable_graph **exec, void *graph, unsigned long long flags) {
  *exec = malloc(sizeof **exec);
  pthread_mutex_lock(&lock);
  (*exec)->device = current_device;
  (*exec)->bytes = captured_nodes * NODE_BYTES;
  graph_bytes[current_device] += (*exec)->bytes;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaGraphInstantiateWithFlags(executable_graph **exec, void *graph, unsigned long long flags) {
  return cudaGraphInstantiate(exec, graph, flags);
}
EXPORT int cudaGraphExecDestroy(executable_graph *exec) {
  pthread_mutex_lock(&lock);
  graph_bytes[exec->device] -= exec->bytes;
  pthread_mutex_unlock(&lock);
  free(exec);
  return 0;
}
EXPORT int cudaGraphGetNodes(void *graph, void **nodes, size_t *count) {
  if (count) *count = 1;
  return 0;
}

typedef struct {
  uint64_t due, capture_id;
} event_state; /* capture_id: the capture in which it was recorded, or 0 */
EXPORT int cudaEventCreateWithFlags(void **event, unsigned flags) {
  *event = calloc(1, sizeof(event_state));
  return 0;
}
EXPORT int cudaEventCreate(void **event) { return cudaEventCreateWithFlags(event, 0); }
EXPORT int cudaEventDestroy(void *event) {
  free(event);
  return 0;
}
EXPORT int cudaEventRecord(void *event, void *stream) {
  static uint64_t lag, jitter;
  static int is_known = 0;
  pthread_mutex_lock(&lock);
  if (!is_known) {
    lag = env_u64("STUBCUDA_EVENT_LAG", 0);
    jitter = env_u64("STUBCUDA_EVENT_JITTER", 0);
    is_known = 1;
  }
  stream_state *state = find_stream(stream);
  ((event_state *)event)->due = ticks + lag + (jitter ? next_random() % jitter : 0);
  ((event_state *)event)->capture_id = state->is_capturing ? state->capture_id : 0;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaEventRecordWithFlags(void *event, void *stream, unsigned flags) {
  return cudaEventRecord(event, stream);
}
EXPORT int cudaStreamWaitEvent(void *stream, void *event,
                               unsigned flags) { /* waiting on a capturing stream joins its capture */
  pthread_mutex_lock(&lock);
  uint64_t id = ((event_state *)event)->capture_id;
  int active = 0;
  for (int i = 0; id && i < stream_count; i++)
    if (streams[i].is_capturing && streams[i].capture_id == id) active = 1;
  if (active) {
    stream_state *state = find_stream(stream);
    state->is_capturing = 1;
    state->capture_id = id;
  }
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaEventQuery(void *event) {
  pthread_mutex_lock(&lock);
  int busy = ticks < ((event_state *)event)->due;
  ticks++;
  pthread_mutex_unlock(&lock);
  return busy ? fail(NOT_READY) : 0;
}
EXPORT int cudaEventSynchronize(void *event) {
  pthread_mutex_lock(&lock);
  ((event_state *)event)->due = 0;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaEventElapsedTime(float *ms, void *start, void *end) {
  unknown_sizes[TIMINGS]++;
  *ms = 1.0f; /* to an autotuner every candidate takes the same time */
  return 0;
}
EXPORT int cudaEventElapsedTime_v2(float *ms, void *start, void *end) { return cudaEventElapsedTime(ms, start, end); }
EXPORT int cuEventElapsedTime(float *ms, void *start, void *end) { return cudaEventElapsedTime(ms, start, end); }
EXPORT int cuStreamIsCapturing(void *stream, int *status) { return cudaStreamIsCapturing(stream, status); }
EXPORT int cuStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph,
                                     const void ***deps, size_t *count) {
  return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, deps, count);
}
EXPORT int cudaDeviceSynchronize(void) { return 0; }
