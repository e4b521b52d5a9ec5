/* The part of CUDA's driver_types.h that the stub uses, for tests without a CUDA package. */
struct cudaDeviceProp {
  char name[256];
  struct {
    char bytes[16];
  } uuid;
  unsigned long totalGlobalMem, sharedMemPerBlock, totalConstMem, sharedMemPerMultiprocessor, sharedMemPerBlockOptin,
      textureAlignment;
  int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3], major, minor, multiProcessorCount,
      l2CacheSize;
  int maxThreadsPerMultiProcessor, regsPerMultiprocessor, maxBlocksPerMultiProcessor, memoryPoolsSupported, pciBusID,
      concurrentKernels;
};
enum { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice };
struct cudaPointerAttributes {
  int type, device;
  void *devicePointer, *hostPointer;
};
struct cudaFuncAttributes {
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion;
};
