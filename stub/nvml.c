/* NVML, for PyTorch (fabric handles: none; on OOM, other processes on the device: none) and for pynvml. The handle of a
 * device is its index plus a constant. */
#define FIRST_HANDLE 0x2000
#define NVML_INVALID_ARGUMENT 2
#define NVML_NOT_SUPPORTED 3
static int nvml_device(void *handle) { return (int)((uint64_t)handle - FIRST_HANDLE); }
EXPORT int nvmlInit_v2(void) { return 0; }
/* PyTorch counts devices by this name. Without it CUDA would be initialized, after which a process must not fork. */
EXPORT int nvmlInit(void) { return 0; }
EXPORT int nvmlInitWithFlags(unsigned flags) { return 0; }
EXPORT int nvmlShutdown(void) { return 0; }
EXPORT const char *nvmlErrorString(int error) { return error ? "not supported by the stub of CUDA" : "success"; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  if (index >= MAX_DEVICES) return NVML_INVALID_ARGUMENT;
  *device = (void *)(uint64_t)(FIRST_HANDLE + index);
  return 0;
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
  const char *colon = bus ? strchr(bus, ':') : NULL;
  long index = colon ? strtol(colon + 1, NULL, 16) - 1 : 0;
  return nvmlDeviceGetHandleByIndex_v2(index < 0 ? 0 : (unsigned)index, device);
}
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  return nvmlDeviceGetHandleByIndex_v2(0, device);
}
/* PyTorch counts those that CUDA_VISIBLE_DEVICES names, by their numbers, which this machine need not have. */
EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  *count = machine_devices();
  while (visible && *visible) {
    unsigned number = (unsigned)strtoul(visible, NULL, 10);
    if (number < MAX_DEVICES && number >= *count) *count = number + 1;
    visible = strchr(visible, ',');
    visible = visible ? visible + 1 : NULL;
  }
  return 0;
}
EXPORT int nvmlDeviceGetIndex(void *device, unsigned *index) {
  *index = nvml_device(device);
  return 0;
}
EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned size) {
  return cuDeviceGetName(name, size, nvml_device(device));
}
EXPORT int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size) {
  snprintf(uuid, size, "GPU-00000000-0000-0000-0000-0000000000%02x", nvml_device(device) + 1);
  return 0;
}
EXPORT int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
  *major = compute_capability() / 10;
  *minor = compute_capability() % 10;
  return 0;
}
/* nvmlMemory_t and nvmlMemory_v2_t: the second has a version and reserved bytes. */
EXPORT int nvmlDeviceGetMemoryInfo(void *device, uint64_t *info) {
  pthread_mutex_lock(&lock);
  info[0] = capacity();
  info[1] = memory_free_bytes(nvml_device(device));
  info[2] = info[0] - info[1];
  pthread_mutex_unlock(&lock);
  return 0;
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, uint64_t *info) {
  uint64_t plain[3];
  nvmlDeviceGetMemoryInfo(device, plain);
  info[1] = plain[0];
  info[2] = 0;
  info[3] = plain[1];
  info[4] = plain[2];
  return 0;
}
EXPORT int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
  rates[0] = rates[1] = 0;
  return 0;
}
EXPORT int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees) {
  *degrees = 40;
  return 0;
}
EXPORT int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
  *milliwatts = 100000;
  return 0;
}
EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned size) {
  snprintf(version, size, "%s", CUDART_V >= 13000 ? "580.65.06" : "570.86.15"); /* a driver of that release of CUDA */
  return 0;
}
EXPORT int nvmlDeviceGetP2PStatus(void *one, void *other, int index, int *status) {
  *status = 0;
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
EXPORT int nvmlSystemGetCudaDriverVersion(int *version) {
  *version = CUDART_V;
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
