/*
 * Memory and events that processes of one VM share: handles of allocations (cuIpc*), which open what they are of at an
 * address of the other process's, and descriptors of physical memory: sealed memfds with a token, which mean something
 * only to programs of the same VM. Where the server has no node manager, all of it is CUDA_ERROR_NOT_SUPPORTED.
 *
 * Functions enter the library, but for the last, and return what the driver's functions of these names document. Any
 * thread.
 */
#ifndef FLYT_CLIENT_IPC_H
#define FLYT_CLIENT_IPC_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/api.h"

/* cuIpcGetMemHandle: of what cuMemAlloc has made. The handles of one allocation are alike. */
FLYT_API CUresult flyt_ipc_get_handle(CUdeviceptr address, CUipcMemHandle *ret_handle);
/* cuIpcOpenMemHandle: the allocation, from its beginning on; opened again, at the same address.
 * CUDA_ERROR_INVALID_CONTEXT: in the process that has it. Where the memory is on another device than the current one,
 * that one reaches it from now on, as by cuCtxEnablePeerAccess; CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: it cannot. */
FLYT_API CUresult flyt_ipc_open(const CUipcMemHandle *handle, unsigned flags, CUdeviceptr *ret_address);
/* cuIpcCloseMemHandle: closed as often as it was opened, it goes. */
FLYT_API CUresult flyt_ipc_close(CUdeviceptr address);

/* cuIpcGetEventHandle. The handles of one event are alike. CUDA_ERROR_INVALID_HANDLE: it was not made with
 * CU_EVENT_INTERPROCESS, or another process has made it. */
FLYT_API CUresult flyt_ipc_get_event_handle(CUevent event, CUipcEventHandle *ret_handle);
/* cuIpcOpenEventHandle: an event of the current context, without timing. CUDA_ERROR_MAP_FAILED: the handle names none
 * that is there; CUDA_ERROR_INVALID_CONTEXT: in the process that has it. */
FLYT_API CUresult flyt_ipc_open_event(const CUipcEventHandle *handle, CUevent *ret_event);

/* cuMemExportToShareableHandle, cuMemImportFromShareableHandle: POSIX file descriptors. */
FLYT_API CUresult flyt_ipc_export_physical(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                           unsigned long long flags, void *ret_handle);
FLYT_API CUresult flyt_ipc_import_physical(void *os_handle, CUmemAllocationHandleType type,
                                           CUmemGenericAllocationHandle *ret_handle);

/* cuMemPoolExportToShareableHandle, cuMemPoolImportFromShareableHandle, cuMemPoolExportPointer, cuMemPoolImportPointer.
 * Nothing can be allocated of an imported pool. What is imported of it is freed as what a pool has given out is; that
 * waits for what uses it. */
FLYT_API CUresult flyt_ipc_export_pool(CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags,
                                       void *ret_handle);
FLYT_API CUresult flyt_ipc_import_pool(void *os_handle, CUmemAllocationHandleType type, unsigned long long flags,
                                       CUmemoryPool *ret_pool);
FLYT_API CUresult flyt_ipc_export_pointer(CUmemPoolPtrExportData *ret_data, CUdeviceptr address);
FLYT_API CUresult flyt_ipc_import_pointer(CUdeviceptr *ret_address, CUmemoryPool pool,
                                          const CUmemPoolPtrExportData *data);

/* What attributes of a pointer say of sharing. All zero where nothing can be shared, the pool apart. */
struct flyt_ipc_pointer {
    bool has_handle;       /* CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE */
    unsigned handle_types; /* CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES */
    CUmemoryPool pool;     /* CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE */
};

/* Does not enter. */
FLYT_API struct flyt_ipc_pointer flyt_ipc_pointer_find(CUdeviceptr address);

/* A context ends, and what it has opened with it (core/part.h). */
void flyt_ipc_clear(uint64_t context_id, bool is_on_server);

#endif
