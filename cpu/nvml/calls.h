/* The answered functions of libnvidia-ml.so.1, as flyt-smi and the tests call them. NVIDIA's reference says what they
 * do. */
#ifndef FLYT_NVML_CALLS_H
#define FLYT_NVML_CALLS_H

#include "cpu/nvml/types.h"

int nvmlInit_v2(void);
int nvmlInitWithFlags(unsigned flags);
int nvmlShutdown(void);
const char *nvmlErrorString(int result);
int nvmlSystemGetDriverVersion(char *ret_version, unsigned bytes);
int nvmlSystemGetNVMLVersion(char *ret_version, unsigned bytes);
int nvmlSystemGetCudaDriverVersion_v2(int *ret_version);
int nvmlSystemGetProcessName(unsigned pid, char *ret_name, unsigned bytes);
int nvmlUnitGetCount(unsigned *ret_count);
int nvmlDeviceGetCount_v2(unsigned *ret_count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, flyt_nvml_device *ret_device);
int nvmlDeviceGetHandleByUUID(const char *uuid, flyt_nvml_device *ret_device);
int nvmlDeviceGetHandleByUUIDV(const struct flyt_nvml_uuid *uuid, flyt_nvml_device *ret_device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, flyt_nvml_device *ret_device);
int nvmlDeviceGetName(flyt_nvml_device device, char *ret_name, unsigned bytes);
int nvmlDeviceGetUUID(flyt_nvml_device device, char *ret_uuid, unsigned bytes);
int nvmlDeviceGetIndex(flyt_nvml_device device, unsigned *ret_index);
int nvmlDeviceGetBrand(flyt_nvml_device device, int *ret_brand);
int nvmlDeviceGetCudaComputeCapability(flyt_nvml_device device, int *ret_major, int *ret_minor);
int nvmlDeviceGetArchitecture(flyt_nvml_device device, unsigned *ret_architecture);
int nvmlDeviceGetMigMode(flyt_nvml_device device, unsigned *ret_now, unsigned *ret_pending);
int nvmlDeviceGetPersistenceMode(flyt_nvml_device device, unsigned *ret_mode);
int nvmlDeviceGetPciInfo_v2(flyt_nvml_device device, void *ret_pci);
int nvmlDeviceGetPciInfo_v3(flyt_nvml_device device, struct flyt_nvml_pci *ret_pci);
int nvmlDeviceGetPciInfoExt(flyt_nvml_device device, struct flyt_nvml_pci_ext *ret_pci);
int nvmlDeviceGetTopologyCommonAncestor(flyt_nvml_device one, flyt_nvml_device other, unsigned *ret_level);
int nvmlDeviceGetMemoryInfo(flyt_nvml_device device, struct flyt_nvml_memory *ret_memory);
int nvmlDeviceGetMemoryInfo_v2(flyt_nvml_device device, struct flyt_nvml_memory_v2 *ret_memory);
int nvmlDeviceGetUtilizationRates(flyt_nvml_device device, struct flyt_nvml_utilization *ret_rates);
int nvmlDeviceGetComputeRunningProcesses(flyt_nvml_device device, unsigned *count,
                                         struct flyt_nvml_process_v1 *ret_processes);
int nvmlDeviceGetComputeRunningProcesses_v3(flyt_nvml_device device, unsigned *count,
                                            struct flyt_nvml_process *ret_processes);
int nvmlDeviceGetGraphicsRunningProcesses_v3(flyt_nvml_device device, unsigned *count, void *ret_processes);
/* Refused ones, for the tests. */
int nvmlDeviceGetTemperature(flyt_nvml_device device, int sensor, unsigned *ret_celsius);
int nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned *count, flyt_nvml_device *ret_devices);

#endif
