/* Drives the stub from standard input, a call a line; prints what came of it and how much is free. Addresses are told
 * from where the device's begin. `c` reads memory of a device in every way there is, into memory that is not zero. */
#include "stub.c"

static int zero(const unsigned char *p, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (p[i]) return 0;
  return 1;
}
static uint64_t reads = 0;
static void read_back(const char *operators, uint64_t size) { reads += size; }
static const char *copies(void) {
  static unsigned char host[1 << 16];
  void *device, *pinned;
  enum { ALL = sizeof host, PART = 1000 };
  if (cudaMalloc(&device, ALL) || cudaHostAlloc(&pinned, ALL, 0)) return "no memory";
#define READS(call, n) \
  memset(host, 0xff, ALL); \
  reads = 0; \
  call; \
  if (!zero(host, n) || host[n] != 0xff || reads != n) return #call;
  stub_on_read(read_back);
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
  reads = 0;
  cudaMemcpy(device, host, PART, 1);
  cudaMemcpy(pinned, device, PART, 2);
  if (!zero(pinned, PART)) return "what was written to the device came back";
  cudaMemcpy(pinned, host, PART, 0);
  return memcmp(pinned, host, PART) ? "a copy within the host was lost" : "zero";
}

/* A stream that captures is remembered, however many others a program makes. */
static const char *many_streams(void) {
  void *first, *s;
  int capturing = 0;
  cudaStreamCreate(&first);
  cudaStreamBeginCapture(first, 0);
  for (int i = 0; i < 3 * MAX_STREAMS; i++) {
    cudaStreamCreate(&s);
    cudaStreamIsCapturing(s, &capturing);
    if (capturing || n_streams > MAX_STREAMS) return "one too many";
  }
  cudaStreamIsCapturing(first, &capturing);
  return capturing ? "kept" : "forgotten";
}

/* A product's algorithm fits where cuBLAS has it written: an object of 96 bytes, often the last of a caller's frame. */
static const char *one_product(void) {
  unsigned char result[256];
  int got = 0;
  memset(result, 0xff, sizeof result);
  cublasLtMatmulAlgoGetHeuristic(0, 0, 0, 0, 0, 0, 0, 1, (char *)result, &got);
  return got == 1 && zero(result, 96) && result[96] == 0xff ? "fits" : "does not fit";
}

int main(void) {
  char line[128], call;
  unsigned long long at, size;
  while (fgets(line, sizeof line, stdin)) {
    at = size = 0;
    sscanf(line, "%c %llu %llu", &call, &at, &size);
    uint64_t got = 0, n;
    const char *what = "";
    switch (call) {
    case 'a':
      got = memory_allocate(1, at);
      if (got) got -= MALLOC_BASE + DEVICE_SPAN;
      else what = " oom";
      break;
    case 'f':
      if (!memory_free(1, at + MALLOC_BASE + DEVICE_SPAN, &n)) what = " unknown";
      break;
    case 'r': got = memory_reserve(1, at) - RESERVE_BASE; break;
    case 'l':
      if (!space_give(&reserve_space, at + RESERVE_BASE, &n)) what = " unknown";
      break;
    case 'm':
      if (!take_memory(1, size)) what = " oom";
      break;
    case 'u': give_memory(1, size); break;
    case 'c': puts(copies()); continue;
    case 's': puts(many_streams()); continue;
    case 'h': puts(one_product()); continue;
    }
    printf("%llu%s %llu\n", (unsigned long long)got, what, (unsigned long long)memory_free_bytes(1));
  }
  return 0;
}
