/* cuBLAS: opaque handles, and one algorithm for every product. PyTorch allocates its workspace, sized by capability. */
EXPORT int cublasCreate_v2(void **handle) {
  *handle = malloc(64);
  return 0;
}
EXPORT int cublasGetPointerMode_v2(void *handle, int *mode) {
  *mode = 0;
  return 0;
}
EXPORT int cublasGetMathMode(void *handle, int *mode) {
  *mode = 0;
  return 0;
}
EXPORT int cublasLtCreate(void **handle) {
  *handle = malloc(64);
  return 0;
}
EXPORT int cublasLtMatmulDescCreate(void **description, int compute_type, int scale_type) {
  *description = malloc(64);
  return 0;
}
EXPORT int cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  *layout = malloc(64);
  return 0;
}
EXPORT int cublasLtMatmulPreferenceCreate(void **preference) {
  *preference = malloc(64);
  return 0;
}
EXPORT int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d,
                                          void *preference, int requested, char *result, int *count) {
  memset(result, 0, 96); /* sizeof(cublasLtMatmulHeuristicResult_t), in every release */
  *count = 1;
  return 0;
}
