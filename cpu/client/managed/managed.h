/*
 * Managed memory: of the program and of its GPUs, at one address. It lies in one of two places, which is chosen when
 * the connection is made (FLYT_MANAGED_MEMORY).
 *
 * "host": pages of the region that program and server share (cpu/client/cuda/host.h). Kernels work on the program's own
 * pages, over the bus, and nothing travels: CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 1. Where kernels do not
 * reach the region it is "device" that counts.
 *
 * "device": it is device memory, and the program has pages of its own in the window at the same address. What the host
 * has changed goes to the GPU before work that may use it; what the GPU has changed comes back when the host waits for
 * it. So it is as CUDA has it for devices whose CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 0: the host leaves
 * memory alone while work may use it, which is all work of any stream, or that of the stream that the memory is
 * attached to.
 */
#ifndef FLYT_CLIENT_MANAGED_H
#define FLYT_CLIENT_MANAGED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/api.h"

/* cuMemAllocManaged. flags: CU_MEM_ATTACH_GLOBAL or _HOST. No bytes: success and 0, as the runtime answers.
 * CUDA_ERROR_INVALID_VALUE: other flags; CUDA_ERROR_OUT_OF_MEMORY: also where the program has something in the window,
 * or may have no more page-locked memory; CUDA_ERROR_NOT_SUPPORTED: it is to lie on the host, and the session has gone
 * on at a server that shares no memory. flyt_memory_free frees it. */
FLYT_API CUresult flyt_managed_alloc(size_t bytes, unsigned flags, CUdeviceptr *ret_address);
/* cuStreamAttachMemAsync. Waits for the stream where bytes may have to come. CUDA_ERROR_INVALID_VALUE: no managed
 * allocation begins there, bytes are neither 0 nor all, other flags, or a default stream for CU_MEM_ATTACH_SINGLE. */
FLYT_API CUresult flyt_managed_attach(CUstream stream, CUdeviceptr address, size_t bytes, unsigned flags);
/* cuMemAdvise. What is noted is for flyt_managed_attribute. CUDA_ERROR_INVALID_DEVICE: the advice is about a GPU which
 * there is not, or, in device memory, about any: all access it in turn with the host. */
FLYT_API CUresult flyt_managed_advise(CUdeviceptr address, size_t bytes, int advice, int location_type,
                                      int location_id);
/* cuMemPrefetchAsync: on the host it is noted, and moves nothing; in device memory CUDA_ERROR_INVALID_DEVICE, for the
 * same reason. CUDA_ERROR_INVALID_VALUE. */
FLYT_API CUresult flyt_managed_prefetch(CUdeviceptr address, size_t bytes, int location_type, int location_id,
                                        unsigned flags, CUstream stream);
/* cuMemPrefetchBatchAsync and cuMemDiscardAndPrefetchBatchAsync; cuMemDiscardBatchAsync: in the batch's order, as far
 * as nothing is refused. Discarding changes nothing. CUDA_ERROR_INVALID_DEVICE: as flyt_managed_prefetch;
 * CUDA_ERROR_INVALID_VALUE: what they document, also the legacy default stream. */
FLYT_API CUresult flyt_managed_prefetch_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                                              const CUmemLocation *locations, const size_t *firsts,
                                              size_t location_count, unsigned long long flags, CUstream stream);
FLYT_API CUresult flyt_managed_discard_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                                             unsigned long long flags, CUstream stream);
/* cuMemRangeGetAttribute, and several. */
FLYT_API CUresult flyt_managed_attribute(void *ret_data, size_t data_bytes, int attribute, CUdeviceptr address,
                                         size_t bytes);
FLYT_API CUresult flyt_managed_attributes(void *const *ret_data, const size_t *data_bytes, const void *attributes,
                                          size_t count, CUdeviceptr address, size_t bytes);

/* What a device's number means where the location is only that: CU_DEVICE_CPU or a device. */
static inline int flyt_managed_location(CUdevice device)
{
    return device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
}

/* Before anything is asked of a module. */
void flyt_managed_init(void);
/* The device has nothing of this library's any more. */
void flyt_managed_after_reset(int device);
/* What lies on the host is unlocked, by calls: before the device is reset. */
void flyt_managed_before_reset(int device, uint64_t context_id);
/* A context ends: its pieces are gone. */
void flyt_managed_clear(uint64_t context_id, bool is_on_server);

#endif
