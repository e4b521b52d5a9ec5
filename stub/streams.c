/* Streams, captures and events. Nothing runs, so all are always done; a lag can be asked for. */
typedef struct {
  uint64_t id;
  int capturing;
  uint64_t capture_id;
} stream_rec;
#define MAX_STREAMS 4096
static stream_rec streams[MAX_STREAMS];
static int n_streams = 0;
static uint64_t captures = 0;
static uint64_t next_handle = 0x10000;
static stream_rec *stream_of(uint64_t s) {
  int row = -1; /* what is known of a stream is only whether it captures: where there is no room, one that does not is
                   forgotten */
  for (int i = 0; i < n_streams; i++) {
    if (streams[i].id == s) return &streams[i];
    if (!streams[i].capturing) row = i;
  }
  if (n_streams < MAX_STREAMS) row = n_streams++;
  if (row < 0) row = 0;
  streams[row] = (stream_rec){s, 0, 0};
  return &streams[row];
}
EXPORT int cudaStreamCreateWithPriority(void **s, unsigned f, int p) {
  pthread_mutex_lock(&lock);
  next_handle += 0x100;
  *s = (void *)next_handle;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaStreamCreateWithFlags(void **s, unsigned f) { return cudaStreamCreateWithPriority(s, f, 0); }
EXPORT int cudaStreamCreate(void **s) { return cudaStreamCreateWithPriority(s, 0, 0); }
EXPORT int cudaStreamIsCapturing(void *s, int *st) {
  pthread_mutex_lock(&lock);
  *st = stream_of((uint64_t)s)->capturing;
  pthread_mutex_unlock(&lock);
  return 0;
}
static int capture_info(void *s, int *st, unsigned long long *id) {
  pthread_mutex_lock(&lock);
  stream_rec *r = stream_of((uint64_t)s);
  *st = r->capturing;
  if (id) *id = r->capture_id;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaStreamGetCaptureInfo(void *s, int *st, unsigned long long *id, void **g, const void ***deps,
                                    const void **edges, size_t *n) {
  if (CUDART_V >= 13000) {
    if (g) *g = (void *)0x77;
    if (deps) *deps = NULL;
    if (edges) *edges = NULL;
    if (n) *n = 0;
  }
  return capture_info(s, st, id);
}
EXPORT int cudaStreamGetCaptureInfo_v2(void *s, int *st, unsigned long long *id, void **g, const void ***deps,
                                       size_t *n) {
  if (g) *g = (void *)0x77;
  if (deps) *deps = NULL;
  if (n) *n = 0;
  return capture_info(s, st, id);
}
EXPORT int cudaStreamBeginCapture(void *s, int mode) {
  pthread_mutex_lock(&lock);
  stream_rec *r = stream_of((uint64_t)s);
  r->capturing = 1;
  r->capture_id = ++captures;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaStreamEndCapture(void *s, void **g) { /* every stream that joined leaves with it */
  pthread_mutex_lock(&lock);
  uint64_t id = stream_of((uint64_t)s)->capture_id;
  for (int i = 0; i < n_streams; i++)
    if (streams[i].capturing && streams[i].capture_id == id) streams[i].capturing = 0;
  *g = (void *)0x77;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaGraphInstantiate(void **e, void *g, unsigned long long f) {
  *e = (void *)0x78;
  return 0;
}
EXPORT int cudaGraphInstantiateWithFlags(void **e, void *g, unsigned long long f) {
  *e = (void *)0x78;
  return 0;
}
EXPORT int cudaGraphGetNodes(void *g, void **nodes, size_t *n) {
  if (n) *n = 1;
  return 0;
}

typedef struct {
  uint64_t due, capture_id;
} event_rec; /* capture_id: of the capture it was recorded in, 0 outside */
EXPORT int cudaEventCreateWithFlags(void **e, unsigned f) {
  event_rec *r = calloc(1, sizeof *r);
  *e = r;
  return 0;
}
EXPORT int cudaEventCreate(void **e) { return cudaEventCreateWithFlags(e, 0); }
EXPORT int cudaEventDestroy(void *e) {
  free(e);
  return 0;
}
EXPORT int cudaEventRecord(void *e, void *s) {
  static uint64_t lag, jitter;
  static int known = 0;
  pthread_mutex_lock(&lock);
  if (!known) {
    lag = env_u64("STUBCUDA_EVENT_LAG", 0);
    jitter = env_u64("STUBCUDA_EVENT_JITTER", 0);
    known = 1;
  }
  stream_rec *r = stream_of((uint64_t)s);
  ((event_rec *)e)->due = ticks + lag + (jitter ? next_random() % jitter : 0);
  ((event_rec *)e)->capture_id = r->capturing ? r->capture_id : 0;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaEventRecordWithFlags(void *e, void *s, unsigned f) { return cudaEventRecord(e, s); }
EXPORT int cudaStreamWaitEvent(void *s, void *e, unsigned f) { /* waiting on a capturing stream joins its capture */
  pthread_mutex_lock(&lock);
  uint64_t id = ((event_rec *)e)->capture_id;
  int active = 0;
  for (int i = 0; id && i < n_streams; i++)
    if (streams[i].capturing && streams[i].capture_id == id) active = 1;
  if (active) {
    stream_rec *r = stream_of((uint64_t)s);
    r->capturing = 1;
    r->capture_id = id;
  }
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaEventQuery(void *e) {
  pthread_mutex_lock(&lock);
  int busy = ticks < ((event_rec *)e)->due;
  ticks++;
  pthread_mutex_unlock(&lock);
  return busy ? fail(NOT_READY) : 0;
}
EXPORT int cudaEventSynchronize(void *e) {
  pthread_mutex_lock(&lock);
  ((event_rec *)e)->due = 0;
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int cudaEventElapsedTime(float *ms, void *a, void *b) {
  unsized[TIMINGS]++;
  *ms = 1.0f;
  return 0;
} /* autotuning cannot choose by it */
EXPORT int cudaEventElapsedTime_v2(float *ms, void *a, void *b) { return cudaEventElapsedTime(ms, a, b); }
EXPORT int cuEventElapsedTime(float *ms, void *a, void *b) { return cudaEventElapsedTime(ms, a, b); }
EXPORT int cuStreamIsCapturing(void *s, int *st) { return cudaStreamIsCapturing(s, st); }
EXPORT int cuStreamGetCaptureInfo_v2(void *s, int *st, unsigned long long *id, void **g, const void ***deps,
                                     size_t *n) {
  return cudaStreamGetCaptureInfo_v2(s, st, id, g, deps, n);
}
EXPORT int cudaDeviceSynchronize(void) { return 0; }
