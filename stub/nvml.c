/* NVML: asked about fabric handles (none) and, on OOM, about other processes (none). */
EXPORT int nvmlInit_v2(void) { return 0; }
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **d) {
  *d = (void *)0x2000;
  return 0;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) {
  *d = (void *)0x2000;
  return 0;
}
EXPORT int nvmlDeviceGetCount_v2(unsigned *n) {
  *n = device_count();
  return 0;
}
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void *d, unsigned l, int *t) { return 3; }
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *d, unsigned l, void *p) { return 3; }
EXPORT int nvmlDeviceGetComputeRunningProcesses(void *d, unsigned *n, void *infos) {
  *n = 0;
  return 0;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *n, void *infos) {
  *n = 0;
  return 0;
}
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *v) {
  *v = CUDART_V;
  return 0;
}
EXPORT int nvmlDeviceGetGpuFabricInfoV(void *d, void *info) {
  memset((char *)info + 4, 0, 16 + 4 + 4 + 1);
  return 0;
} /* after the version: no cluster, state "not supported" */
