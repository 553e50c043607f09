/* What the driver's header would declare of valves (valve.api). */
#ifndef FLYT_GEN_TEST_FAKE_DRIVER_H
#define FLYT_GEN_TEST_FAKE_DRIVER_H

#include <cuda.h>
#include <stdint.h>

typedef struct CUvalve_st *CUvalve;

CUresult CUDAAPI cuValveCreate(CUvalve *valve, unsigned int flags, CUdevice device);
CUresult CUDAAPI cuValveDestroy(CUvalve valve);
CUresult CUDAAPI cuValveSetLevel(CUvalve valve, unsigned int level);
CUresult CUDAAPI cuValveGetLevel(CUvalve valve, unsigned int *level);
CUresult CUDAAPI cuValveSums(CUvalve valve, unsigned int count, const unsigned int *values, uint64_t *sums);
/* factor and offset lie where onDevice says; the driver itself finds out. */
CUresult CUDAAPI cuValveScale(CUvalve valve, unsigned int onDevice, const double *factor, const unsigned int *offset,
                              double *level);
CUresult CUDAAPI cuDeviceGetValveRoom(unsigned int *room, unsigned int flags, CUdevice device);

#endif
