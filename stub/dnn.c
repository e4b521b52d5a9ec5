/* cuDNN. Heuristics find one engine, and its plans need no workspace: the real sizes are known only to cuDNN. What a
 * plan could need is recorded (workspaces.c). Entry points that are not here are generated and return opaque objects.
 */
/* Answers 0. The execution of the convolution is counted (convolutions.c). */
static int no_workspace(size_t *bytes) {
  if (bytes) *bytes = 0;
  return 0;
}
/* Counts that the real size is unknown. */
static int unknown_workspace(size_t *bytes) {
  unknown_sizes[CUDNN]++;
  return no_workspace(bytes);
}
EXPORT int cudnnBackendCreateDescriptor(int type, void **out) {
  *out = calloc(1, sizeof(descriptor));
  return 0;
}
EXPORT int cudnnBackendDestroyDescriptor(void *d) {
  free(d);
  return 0;
}
EXPORT int cudnnBackendSetAttribute(descriptor *d, int name, int type, int64_t count, const void *values) {
  set_attribute(d, name, type, count, values);
  return 0;
}
EXPORT int cudnnBackendFinalize(descriptor *d) {
  finalize_descriptor(d);
  return 0;
}
EXPORT int cudnnBackendExecute(void *handle, descriptor *plan, void *variants) {
  ticks++;
  /* PyTorch's only graph without another plan to try is attention. */
  unknown_sizes[plan && plan->is_required ? ATTENTION : CUDNN]++;
  record_workspace(plan);
  return 0;
}
EXPORT int cudnnSetStream(void *handle, void *stream) {
  dnn_stream = (uint64_t)stream;
  return 0;
}
/* By number of cudnnBackendAttributeName_t. An attribute is an int64_t, an int32_t or a descriptor that the caller
 * made. */
EXPORT int cudnnBackendGetAttribute(descriptor *d, int name, int type, int64_t requested, int64_t *count, void *out) {
  enum { NONE, INT64, INT32, DESCRIPTOR } kind = NONE;
  int64_t value = 0;
  switch (name) {
  case 202: kind = DESCRIPTOR; break; /* ENGINEHEUR_RESULTS: one configuration, of the same operations */
  case 300: kind = DESCRIPTOR; break; /* ENGINECFG_ENGINE */
  case 303: kind = INT64; break;      /* ENGINECFG_WORKSPACE_SIZE */
  case 304: kind = INT32; break;      /* ENGINECFG_SHARED_MEMORY_USED */
  case 402:                           /* EXECUTION_PLAN_WORKSPACE_SIZE */
    kind = INT64, value = d->is_required ? attention_workspace(d) : 0;
    break;
  case 802: kind = INT64, value = 1; break; /* OPERATIONGRAPH_ENGINE_GLOBAL_COUNT */
  case 1301: kind = INT64; break;           /* ENGINE_GLOBAL_INDEX */
  }
  if (kind != NONE && requested > 0 && out) {
    descriptor *result = name == 202 ? *(descriptor **)out : NULL;
    if (result) *result = *d;
    if (kind == INT64) *(int64_t *)out = value;
    if (kind == INT32) *(int *)out = 0;
  }
  if (count) *count = kind != NONE;
  return 0;
}
/* Fills a cudnnConvolution..AlgoPerf_t (48 bytes): algorithm 1, status success, no workspace. */
static int one_algorithm(int *count, int *result) {
  if (count) *count = 1;
  memset(result, 0, 48);
  result[0] = 1;
  return 0;
}
EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(void *handle, void *a, void *b, void *c, void *d, int n, int *count,
                                                  int *r) {
  return one_algorithm(count, r);
}
EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *handle, void *a, void *b, void *c, void *d, int n,
                                                       int *count, int *r) {
  return one_algorithm(count, r);
}
EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *handle, void *a, void *b, void *c, void *d, int n,
                                                         int *count, int *r) {
  return one_algorithm(count, r);
}
EXPORT int cudnnFindConvolutionForwardAlgorithmEx(void *handle, void *a, void *x, void *b, void *y, void *c, void *d,
                                                  void *z, int n, int *count, int *r) {
  return one_algorithm(count, r);
}
EXPORT int cudnnFindConvolutionBackwardDataAlgorithmEx(void *handle, void *a, void *x, void *b, void *y, void *c,
                                                       void *d, void *z, int n, int *count, int *r) {
  return one_algorithm(count, r);
}
EXPORT int cudnnFindConvolutionBackwardFilterAlgorithmEx(void *handle, void *a, void *x, void *b, void *y, void *c,
                                                         void *d, void *z, int n, int *count, int *r) {
  return one_algorithm(count, r);
}
EXPORT int cudnnGetConvolutionForwardWorkspaceSize(void *handle, void *a, void *b, void *c, void *d, int g,
                                                   size_t *bytes) {
  return no_workspace(bytes);
}
EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(void *handle, void *a, void *b, void *c, void *d, int g,
                                                        size_t *bytes) {
  return no_workspace(bytes);
}
EXPORT int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *handle, void *a, void *b, void *c, void *d, int g,
                                                          size_t *bytes) {
  return no_workspace(bytes);
}
EXPORT int cudnnGetRNNWorkspaceSize(void *handle, void *d, int n, void *x, size_t *bytes) {
  return unknown_workspace(bytes);
}
EXPORT int cudnnGetRNNTrainingReserveSize(void *handle, void *d, int n, void *x, size_t *bytes) {
  return unknown_workspace(bytes);
}
EXPORT int cudnnDropoutGetStatesSize(void *handle, size_t *bytes) {
  *bytes = 3145728;
  return 0;
}

/* PyTorch checks this against the release that it was built with, which is the one of the headers beside it. */
EXPORT size_t cudnnGetVersion(void) { return CUDNN_V; }
EXPORT int cudnnGetProperty(int type, int *value) {
  int major = CUDNN_V < 90000 ? CUDNN_V / 1000 : CUDNN_V / 10000, minor = CUDNN_V / 100 % (CUDNN_V < 90000 ? 10 : 100);
  *value = type == 0 ? major : type == 1 ? minor : CUDNN_V % 100;
  return 0;
}
EXPORT const char *cudnnGetErrorString(int status) { return status ? "CUDNN_STATUS_STUB" : "CUDNN_STATUS_SUCCESS"; }
EXPORT void cudnnGetLastErrorString(char *message, size_t size) {
  if (size) *message = 0;
}
