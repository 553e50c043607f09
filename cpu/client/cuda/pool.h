/*
 * Stream-ordered allocation: pools of device, pinned host or managed memory, which are the client's own. A block is an
 * allocation of the server's, pinned memory (host.h), which devices reach where host memory is mapped, or managed
 * memory, wherever such lies (cpu/client/managed), whatever the pool's preferred location; freed in a
 * stream's order it stays in its pool, and is given out again without a message: in the same stream at once, in another
 * one when what was before the free is complete. The server hears of a pool when it grows, and when it gives memory
 * back: at synchronizations what is above its release threshold, when it is trimmed, and where memory has run out. So a
 * pool moves as its allocations do.
 *
 * All functions but those at the end enter the library, and return what the driver's functions of these names document.
 * Any thread.
 */
#ifndef FLYT_CLIENT_POOL_H
#define FLYT_CLIENT_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/api.h"

/* cuDeviceGetDefaultMemPool, cuDeviceGetMemPool, cuDeviceSetMemPool. */
FLYT_API CUresult flyt_pool_default(int device, CUmemoryPool *ret_pool);
FLYT_API CUresult flyt_pool_current(int device, CUmemoryPool *ret_pool);
FLYT_API CUresult flyt_pool_set_current(int device, CUmemoryPool pool);
/* Whether that means the host's memory. Devices say that there are no NUMA nodes (CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID):
 * then CUDA asks for the id 0 of what is to lie on one. */
bool flyt_pool_is_of_host(const CUmemLocation *location);
/* cuMemGetDefaultMemPool, cuMemGetMemPool, cuMemSetMemPool: pinned and managed memory of devices and of the host,
 * managed memory also of no location; a NUMA node's has the id 0, as where there are none, and is the host's. */
FLYT_API CUresult flyt_pool_default_at(const CUmemLocation *location, CUmemAllocationType type, CUmemoryPool *ret_pool);
FLYT_API CUresult flyt_pool_current_at(const CUmemLocation *location, CUmemAllocationType type, CUmemoryPool *ret_pool);
FLYT_API CUresult flyt_pool_set_current_at(const CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool);
/* cuMemPoolCreate: memory as above; devices' is shared by file descriptors where there is a node manager. Else
 * CUDA_ERROR_NOT_SUPPORTED. */
FLYT_API CUresult flyt_pool_create(const CUmemPoolProps *props, CUmemoryPool *ret_pool);
/* cuMemPoolDestroy. What is allocated of it stays until it is freed. */
FLYT_API CUresult flyt_pool_destroy(CUmemoryPool pool);
/* cuMemAllocFromPoolAsync; pool NULL: the current one of the stream's device. bytes 0: success and 0, as the runtime
 * answers. */
FLYT_API CUresult flyt_pool_alloc(size_t bytes, CUmemoryPool pool, CUstream stream, CUdeviceptr *ret_address);
/* cuMemFreeAsync, also of what cuMemAlloc has made. 0 does nothing and succeeds. CUDA_ERROR_NOT_SUPPORTED: managed
 * memory. */
FLYT_API CUresult flyt_pool_free(CUdeviceptr address, CUstream stream);
/* cuMemPoolTrimTo. */
FLYT_API CUresult flyt_pool_trim(CUmemoryPool pool, size_t bytes_kept);
/* cuMemPoolGetAttribute, cuMemPoolSetAttribute. value: an int of the first three, else a cuuint64_t. */
FLYT_API CUresult flyt_pool_get_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
FLYT_API CUresult flyt_pool_set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value);
/* cuMemPoolSetAccess, cuMemPoolGetAccess. CUDA_ERROR_NOT_SUPPORTED: devices' access to host memory that is not mapped.
 */
FLYT_API CUresult flyt_pool_set_access(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count);
FLYT_API CUresult flyt_pool_get_access(CUmemoryPool pool, const CUmemLocation *location, CUmemAccess_flags *ret_flags);

/* ---- inside the library; these do not enter ---- */

/* Whether the address is where something begins that a pool has given out; which pool, and its handle types (NULL:
 * not asked for). */
bool flyt_pool_has(uint64_t address, CUmemoryPool *ret_pool, unsigned *ret_handle_types);
/* Whether what begins there was freed, which is complete, and the pool keeps it: to the program it is no memory. */
bool flyt_pool_has_back(uint64_t address);
struct flyt_import;

/* What is to be known of a pool that processes share. */
struct flyt_pool_shared {
    int device;
    unsigned handle_types; /* CUmemAllocationHandleType */
    uint64_t pool_id;      /* the same in all of them */
    bool is_imported;
};

/* CUDA_ERROR_INVALID_VALUE: it is none. */
CUresult flyt_pool_describe(CUmemoryPool handle, struct flyt_pool_shared *ret_shared);
/* Another process's pool, of which nothing can be allocated. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_pool_adopt(int device, uint64_t pool_id, CUmemoryPool *ret_pool);
/* What is imported of such a pool, in use; freed, it is told `ended`. CUDA_ERROR_INVALID_VALUE: it is no such pool;
 * CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_pool_adopt_block(CUmemoryPool handle, uint64_t address, uint64_t bytes, struct flyt_import *import,
                               CUresult (*ended)(struct flyt_import *import, uint64_t address, bool is_on_server));
/* cuMemFree of an address that a pool has given out. False: it is none; true: *ret_result. */
bool flyt_pool_take_back(uint64_t address, CUresult *ret_result);
/* Something was waited for: what pools hold above their thresholds, and nothing uses any more, goes to the server. */
void flyt_pool_settle(void);
/* There was no memory on the device: gives back what pools hold unused, and waits for it. Whether there was any. */
bool flyt_pool_give_back(int device);
/* What belonged to a context is gone (core/part.h). Pinned memory goes before a reset: to unlock it is a call. */
void flyt_pool_before_reset(int device, uint64_t context_id);
void flyt_pool_clear(uint64_t context_id, bool is_on_server);

#endif
