/* cuDNN: one engine for every plan, without a workspace; what the real one takes only it knows. What it could take is
 * told beside: see workspaces.c. Whatever is not here is generated and gives objects that nobody looks into. */
static int asked_workspace(size_t *s) {
  unsized[CUDNN]++;
  if (s) *s = 0;
  return 0;
}
EXPORT int cudnnBackendCreateDescriptor(int type, void **d) {
  *d = calloc(1, sizeof(descriptor));
  return 0;
}
EXPORT int cudnnBackendDestroyDescriptor(void *d) {
  free(d);
  return 0;
}
EXPORT int cudnnBackendSetAttribute(descriptor *d, int a, int type, int64_t n, const void *from) {
  set_attribute(d, a, type, n, from);
  return 0;
}
EXPORT int cudnnBackendFinalize(descriptor *d) {
  finalize(d);
  return 0;
}
EXPORT int cudnnBackendExecute(void *h, descriptor *plan, void *v) {
  ticks++;
  unsized[CUDNN]++;
  tell_workspace(plan);
  return 0;
}
EXPORT int cudnnSetStream(void *h, void *stream) {
  dnn_stream = (uint64_t)stream;
  return 0;
}
EXPORT int cudnnBackendGetAttribute(descriptor *d, int a, int t, int64_t want, int64_t *got, void *to) {
  int64_t n = 0, value = 0;
  int wide = 1;
  switch (a) { /* numbers of cudnnBackendAttributeName_t */
  case 202:    /* heuristics found one configuration */
    n = 1;
    wide = -1;
    if (want > 0 && to && *(descriptor **)to) {
      (*(descriptor **)to)->bytes = d->bytes;
      (*(descriptor **)to)->is_needed = d->is_needed;
    }
    break;
  case 303:
  case 402: n = 1; break; /* workspace of a configuration, of a plan */
  case 300:
    n = 1;
    wide = -1;
    break; /* the engine of a configuration */
  case 304:
    n = 1;
    wide = 0;
    break; /* index of an engine */
  case 802:
    n = 1;
    value = 1;
    break;
  case 1301: n = 1; break;
  default: break;
  }
  if (n && want > 0 && to && wide == 1) *(int64_t *)to = value;
  if (n && want > 0 && to && wide == 0) *(int *)to = 0;
  if (got) *got = n;
  return 0;
}
/* An algorithm: its first two numbers are which, and that it succeeded. */
static int algorithm(int *found, int *result) {
  if (found) *found = 1;
  memset(result, 0, 48);
  result[0] = 1;
  unsized[CUDNN]++;
  return 0;
}
EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(void *h, void *a, void *b, void *c, void *d, int n, int *found,
                                                  int *r) {
  return algorithm(found, r);
}
EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(void *h, void *a, void *b, void *c, void *d, int n, int *found,
                                                       int *r) {
  return algorithm(found, r);
}
EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void *h, void *a, void *b, void *c, void *d, int n, int *found,
                                                         int *r) {
  return algorithm(found, r);
}
EXPORT int cudnnFindConvolutionForwardAlgorithmEx(void *h, void *a, void *x, void *b, void *y, void *c, void *d,
                                                  void *z, int n, int *found, int *r) {
  return algorithm(found, r);
}
EXPORT int cudnnFindConvolutionBackwardDataAlgorithmEx(void *h, void *a, void *x, void *b, void *y, void *c, void *d,
                                                       void *z, int n, int *found, int *r) {
  return algorithm(found, r);
}
EXPORT int cudnnFindConvolutionBackwardFilterAlgorithmEx(void *h, void *a, void *x, void *b, void *y, void *c, void *d,
                                                         void *z, int n, int *found, int *r) {
  return algorithm(found, r);
}
EXPORT int cudnnGetConvolutionForwardWorkspaceSize(void *h, void *a, void *b, void *c, void *d, int g, size_t *s) {
  return asked_workspace(s);
}
EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(void *h, void *a, void *b, void *c, void *d, int g, size_t *s) {
  return asked_workspace(s);
}
EXPORT int cudnnGetConvolutionBackwardFilterWorkspaceSize(void *h, void *a, void *b, void *c, void *d, int g,
                                                          size_t *s) {
  return asked_workspace(s);
}
EXPORT int cudnnGetRNNTempSpaceSizes(void *h, void *d, int m, void *x, size_t *s, size_t *r) {
  if (r) *r = 0;
  return asked_workspace(s);
}
EXPORT int cudnnGetRNNWorkspaceSize(void *h, void *d, int n, void *x, size_t *s) { return asked_workspace(s); }
EXPORT int cudnnGetRNNTrainingReserveSize(void *h, void *d, int n, void *x, size_t *s) {
  unsized[CUDNN]++;
  *s = 0;
  return 0;
}
EXPORT int cudnnDropoutGetStatesSize(void *h, size_t *s) {
  *s = 3145728;
  return 0;
}

/* PyTorch compares it with the release that it was built for: that of the headers beside it. */
EXPORT size_t cudnnGetVersion(void) { return CUDNN_V; }
EXPORT int cudnnGetProperty(int which, int *v) {
  int major = CUDNN_V < 90000 ? CUDNN_V / 1000 : CUDNN_V / 10000, minor = CUDNN_V / 100 % (CUDNN_V < 90000 ? 10 : 100);
  *v = which == 0 ? major : which == 1 ? minor : CUDNN_V % 100;
  return 0;
}
EXPORT const char *cudnnGetErrorString(int e) { return e ? "CUDNN_STATUS_STUB" : "CUDNN_STATUS_SUCCESS"; }
EXPORT void cudnnGetLastErrorString(char *s, size_t n) {
  if (n) *s = 0;
}
