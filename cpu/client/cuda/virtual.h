/*
 * Virtual memory management by the program: it reserves addresses, creates physical memory on a device or the host,
 * maps it there, and says who may access it. Reservations are the client's own, in a window that no device's memory is
 * in; the server hears of physical memory, and of what is mapped (cpu/server/cuda/physical.h). Physical memory belongs
 * to no context: a device that is reset keeps it.
 *
 * Memory of the host is page-locked pages of the region (host.h), where devices reach that; else there is none. Mapped,
 * it is pages of the program's at the address, with the rights that the program gives itself; and pages of the server's
 * at the same address, once a device may access it: then all of them do.
 *
 * The functions enter the library where nothing else is said, and return what the driver's functions of these names
 * document. Any thread.
 */
#ifndef FLYT_CLIENT_VIRTUAL_H
#define FLYT_CLIENT_VIRTUAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/api.h"

/* cuMemAddressReserve, cuMemAddressFree. */
FLYT_API CUresult flyt_virtual_reserve(size_t bytes, size_t alignment, CUdeviceptr wanted, unsigned long long flags,
                                       CUdeviceptr *ret_address);
FLYT_API CUresult flyt_virtual_free(CUdeviceptr address, size_t bytes);

/* cuMemCreate. A handle for POSIX file descriptors may be asked for everywhere; where there is no node manager it is
 * not exported. */
FLYT_API CUresult flyt_virtual_create(size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags,
                                      CUmemGenericAllocationHandle *ret_handle);
/* cuMemRelease, cuMemRetainAllocationHandle. */
FLYT_API CUresult flyt_virtual_release(CUmemGenericAllocationHandle handle);
FLYT_API CUresult flyt_virtual_retain(CUdeviceptr address, CUmemGenericAllocationHandle *ret_handle);

/* cuMemMap, cuMemUnmap, cuMemSetAccess, cuMemGetAccess. */
FLYT_API CUresult flyt_virtual_map(CUdeviceptr address, size_t bytes, size_t offset,
                                   CUmemGenericAllocationHandle handle, unsigned long long flags);
FLYT_API CUresult flyt_virtual_unmap(CUdeviceptr address, size_t bytes);
FLYT_API CUresult flyt_virtual_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *descs,
                                          size_t count);
FLYT_API CUresult flyt_virtual_get_access(const CUmemLocation *location, CUdeviceptr address,
                                          unsigned long long *ret_flags);

/* cuMemGetAllocationGranularity, cuMemGetAllocationPropertiesFromHandle. */
FLYT_API CUresult flyt_virtual_granularity(const CUmemAllocationProp *properties, int option, size_t *ret_bytes);
FLYT_API CUresult flyt_virtual_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *ret_properties);

/* ---- inside the library; these do not enter ---- */

struct flyt_import;

/* Physical memory that the program has a handle of. */
struct flyt_virtual_memory {
    uint64_t address, bytes; /* address: of its extent; of an import, nothing */
    unsigned handle_types;
    struct flyt_import *import; /* that it is; NULL: the session's own */
};

/* CUDA_ERROR_INVALID_VALUE: it is no handle. */
CUresult flyt_virtual_describe(CUmemGenericAllocationHandle handle, struct flyt_virtual_memory *ret_memory);
/* Whether the server has physical memory of this id, with a handle or without. */
bool flyt_virtual_is_there(uint64_t physical_id);
/* Handle types of what is mapped at the address; 0: nothing is. */
unsigned flyt_virtual_handle_types(CUdeviceptr address);
/* Physical memory that is an import (cpu/client/ipc): what it is tells `ended`, when nothing of it is left here. */
CUresult flyt_virtual_adopt(struct flyt_import *import, uint64_t import_id, int device, uint64_t bytes,
                            void (*ended)(struct flyt_import *import), CUmemGenericAllocationHandle *ret_handle);

/* Makes physical memory again (records/restore.h), behind the allocations: the program's own, which others may import;
 * and behind what this one imports, that which is imported, and mappings. */
struct flyt_restore;
int flyt_virtual_restore_own(struct flyt_restore *restore);
int flyt_virtual_restore(struct flyt_restore *restore);
/* What devices reach of the host's memory, when its pages are locked (flyt_host_restore). */
int flyt_virtual_restore_host(struct flyt_restore *restore);

#endif
