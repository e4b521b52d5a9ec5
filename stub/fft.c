/* cuFFT. Its documentation bounds the workspace of a plan: at worst eight complex numbers for each point of the data.
 * PyTorch allocates the workspace for each execution. */
#define MAX_PLANS 4096
static uint64_t plan_bytes[MAX_PLANS];
static int plan_count = 0;
EXPORT int cufftCreate(int *plan) {
  *plan = __sync_add_and_fetch(&plan_count, 1);
  return 0;
}
EXPORT int cufftXtMakePlanMany(int plan, int rank, const long long *sizes, void *input_embed, long long input_stride,
                               long long input_distance, int input_type, void *output_embed, long long output_stride,
                               long long output_distance, int output_type, long long batch, size_t *bytes,
                               int execution_type) {
  uint64_t points = batch;
  int complex_bytes = execution_type == 2 || execution_type == 6   ? 4
                      : execution_type == 1 || execution_type == 5 ? 16
                                                                   : 8;
  for (int i = 0; i < rank; i++) points *= sizes[i];
  plan_bytes[(unsigned)plan % MAX_PLANS] = 8 * points * complex_bytes;
  if (bytes) *bytes = 0;
  return 0;
}
EXPORT int cufftSetStream(int plan, void *stream) { return 0; }
EXPORT int cufftXtExec(int plan, void *input, void *output, int direction) {
  submit_work();
  estimate_workspace(CUFFT, plan_bytes[(unsigned)plan % MAX_PLANS]);
  return 0;
}
