/* Drives the stub from standard input, one call per line. For each call it prints the result and the free memory of the
 * device. Addresses are relative to the start of the device's range. tests/suite/dry_run_stub.rs runs it. */
#include "stub.c"

static int is_zero(const unsigned char *bytes, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (bytes[i]) return 0;
  return 1;
}
static uint64_t bytes_read = 0;
static void count_read(const char *operators, uint64_t size, void *destination) { bytes_read += size; }

/* Reads device memory through every copy function, into host memory that is not zero. */
static const char *check_copies(void) {
  static unsigned char host[1 << 16];
  void *device, *pinned;
  enum { ALL = sizeof host, PART = 1000 };
  if (cudaMalloc(&device, ALL) || cudaHostAlloc(&pinned, ALL, 0)) return "no memory";
#define READS(call, size) \
  memset(host, 0xff, ALL); \
  bytes_read = 0; \
  call; \
  if (!is_zero(host, size) || host[size] != 0xff || bytes_read != size) return #call;
  stub_on_read(count_read);
  READS(cudaMemcpy(host, device, PART, 2), PART)
  READS(cudaMemcpy(host, (char *)device + 77, PART, 4), PART)
  READS(cudaMemcpyAsync(host, device, PART, 2, 0), PART)
  READS(cudaMemcpy2D(host, 10, device, 20, 10, 50, 2), 500)
  READS(cudaMemcpy2DAsync(host, 10, device, 20, 10, 50, 2, 0), 500)
  READS(cuMemcpyDtoH_v2(host, (uint64_t)device, PART), PART)
  READS(cuMemcpyDtoHAsync_v2(host, (uint64_t)device, PART, 0), PART)
  READS(cuMemcpyAsync((uint64_t)host, (uint64_t)device, PART, 0), PART)
  READS(cudaMemcpyFromSymbol(host, device, PART, 0, 2), PART)
  void *to[2] = {host, host + 500}, *from[2] = {device, device};
  size_t sizes[2] = {500, 500};
  READS(cudaMemcpyBatchAsync(to, from, sizes, 2), PART)
  memset(host, 7, PART);
  memset(pinned, 0xff, PART);
  cudaMemcpy(device, host, PART, 1);
  cudaMemcpy(pinned, device, PART, 2);
  if (!is_zero(pinned, PART)) return "what was written to the device came back";
  cudaMemcpy(pinned, host, PART, 0);
  return memcmp(pinned, host, PART) ? "a copy within the host was lost" : "zero";
}

/* A capturing stream keeps its state however many others a program creates. */
static const char *check_streams(void) {
  void *first, *other;
  int capturing = 0;
  cudaStreamCreate(&first);
  cudaStreamBeginCapture(first, 0);
  for (int i = 0; i < 3 * MAX_STREAMS; i++) {
    cudaStreamCreate(&other);
    cudaStreamIsCapturing(other, &capturing);
    if (capturing || stream_count > MAX_STREAMS) return "one too many";
  }
  cudaStreamIsCapturing(first, &capturing);
  return capturing ? "kept" : "forgotten";
}

/* A CUDA graph takes free memory by its kernels until it is destroyed. */
static const char *check_graphs(void) {
  void *stream, *graph;
  executable_graph *exec;
  uint64_t before = memory_free_bytes(0), kernels = 1000;
  cudaStreamCreate(&stream);
  cudaLaunchKernelExC(0, 0, 0);
  cudaStreamBeginCapture(stream, 0);
  for (uint64_t i = 0; i < kernels; i++) cudaLaunchKernelExC(0, 0, 0);
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&exec, graph, 0);
  if (before - memory_free_bytes(0) != kernels * NODE_BYTES / PAGE * PAGE) return "not its kernels";
  cudaGraphExecDestroy(exec);
  return memory_free_bytes(0) == before ? "freed" : "kept";
}

/* The stub writes only the 96 bytes of a cublasLt result, which is often the last object in the caller's stack frame.
 */
static const char *check_algorithm_size(void) {
  unsigned char result[256];
  int count = 0;
  memset(result, 0xff, sizeof result);
  cublasLtMatmulAlgoGetHeuristic(0, 0, 0, 0, 0, 0, 0, 1, (char *)result, &count);
  return count == 1 && is_zero(result, 96) && result[96] == 0xff ? "fits" : "does not fit";
}

/* Calls on device 1: `a SIZE` and `f ADDRESS` allocate and free; `r SIZE` and `l ADDRESS` reserve and release
 * addresses; `m 0 SIZE` and `u 0 SIZE` take and release physical memory. `c`, `s`, `g` and `h` run the checks above. */
int main(void) {
  char line[128], call;
  unsigned long long first, size;
  while (fgets(line, sizeof line, stdin)) {
    first = size = 0;
    sscanf(line, "%c %llu %llu", &call, &first, &size);
    uint64_t address = 0, freed;
    const char *failure = "";
    switch (call) {
    case 'a':
      address = memory_allocate(1, first);
      if (address) address -= MALLOC_BASE + DEVICE_SPAN;
      else failure = " oom";
      break;
    case 'f':
      if (!memory_free(1, first + MALLOC_BASE + DEVICE_SPAN, &freed)) failure = " unknown";
      break;
    case 'r': address = memory_reserve(1, first) - RESERVE_BASE; break;
    case 'l':
      if (!release_addresses(&reserve_space, first + RESERVE_BASE, &freed)) failure = " unknown";
      break;
    case 'm':
      if (!take_memory(1, size)) failure = " oom";
      break;
    case 'u': release_memory(1, size); break;
    case 'c': puts(check_copies()); continue;
    case 's': puts(check_streams()); continue;
    case 'g': puts(check_graphs()); continue;
    case 'h': puts(check_algorithm_size()); continue;
    }
    printf("%llu%s %llu\n", (unsigned long long)address, failure, (unsigned long long)memory_free_bytes(1));
  }
  return 0;
}
