/* cuBLAS: handles, and one algorithm for every product. PyTorch gives it a workspace of its own, by capability. */
EXPORT int cublasCreate_v2(void **h) {
  *h = malloc(64);
  return 0;
}
EXPORT int cublasGetPointerMode_v2(void *h, int *m) {
  *m = 0;
  return 0;
}
EXPORT int cublasGetMathMode(void *h, int *m) {
  *m = 0;
  return 0;
}
EXPORT int cublasLtCreate(void **h) {
  *h = malloc(64);
  return 0;
}
EXPORT int cublasLtMatmulDescCreate(void **d, int c, int t) {
  *d = malloc(64);
  return 0;
}
EXPORT int cublasLtMatrixLayoutCreate(void **d, int t, uint64_t r, uint64_t c, int64_t ld) {
  *d = malloc(64);
  return 0;
}
EXPORT int cublasLtMatmulPreferenceCreate(void **d) {
  *d = malloc(64);
  return 0;
}
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *h, void *o, void *a, void *b, void *c, void *d, void *p, int n,
                                          char *res, int *got) {
  memset(res, 0, 96);
  *got = 1;
  return 0; /* the size of one result, in every release */
}
