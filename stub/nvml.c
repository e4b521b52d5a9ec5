/* NVML: PyTorch queries fabric handles (none) and, on OOM, other processes on the device (none). */
#define DEVICE_HANDLE ((void *)0x2000)
#define NVML_NOT_SUPPORTED 3
EXPORT int nvmlInit_v2(void) { return 0; }
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
  *device = DEVICE_HANDLE;
  return 0;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = DEVICE_HANDLE;
  return 0;
}
EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = device_count();
  return 0;
}
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type) { return NVML_NOT_SUPPORTED; }
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, void *pci) { return NVML_NOT_SUPPORTED; }
EXPORT int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, void *infos) {
  *count = 0;
  return 0;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *infos) {
  *count = 0;
  return 0;
}
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = CUDART_V;
  return 0;
}
EXPORT int nvmlDeviceGetGpuFabricInfoV(void *device, void *info) {
  /* After the version: clusterUuid[16], status, cliqueId and state, which is "not supported". */
  memset((char *)info + 4, 0, 16 + 4 + 4 + 1);
  return 0;
}
