/*
 * Pinned host memory, and managed memory that lies on the host. Where program and server share a region
 * (rpc/base/region.h), what is allocated here are pages of it that the server has page-locked: copies leave them to the
 * GPU. Elsewhere, and for what is registered, it is ordinary memory of the program that is remembered as pinned, so
 * that copies may read it late and asynchronous copies from the device may write it after the call has returned; it is
 * not locked, and no device reaches it. What is shared is mapped into all devices, at the program's own addresses,
 * where server and program have the region at its own place (canMapHostMemory is 1 then). A child that is forked shares
 * what is shared.
 *
 * Where the session goes on at another server of this host, that one locks pages of the region when they are used
 * next, or all of them before it goes on where kernels may have addresses of them. Where it goes to another node, the
 * memory stays the program's, and copies of it travel. It cannot go there once kernels may have an address of it: it
 * was asked for, or is among the arguments of a launch or of a library's call, or the server finds it in device memory
 * when the session is about to leave (cpu/server/move/out/scan.h).
 */
#ifndef FLYT_CLIENT_HOST_H
#define FLYT_CLIENT_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/api.h"

/* cuMemHostAlloc. flags: CU_MEMHOSTALLOC_PORTABLE and _WRITECOMBINED are accepted; _DEVICEMAP is
 * CUDA_ERROR_NOT_SUPPORTED where host memory is not mapped, others CUDA_ERROR_INVALID_VALUE, as is NULL.
 * CUDA_ERROR_OUT_OF_MEMORY. Needs a current context. The memory is page-aligned and zeroed; where it is shared, the
 * server locks it before this returns. bytes 0: success and NULL, as NVIDIA's driver answers. */
FLYT_API CUresult flyt_host_alloc(size_t bytes, unsigned flags, void **ret_address);
/* cuMemFreeHost: waits for copies that still use the memory, and, where it is shared, for all work that was submitted.
 * CUDA_ERROR_INVALID_VALUE: not from flyt_host_alloc. */
FLYT_API CUresult flyt_host_free(void *address);
/* cuMemHostRegister. flags: CU_MEMHOSTREGISTER_PORTABLE, _READ_ONLY are accepted; _DEVICEMAP and _IOMEMORY are
 * CUDA_ERROR_NOT_SUPPORTED. CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: overlaps pinned memory.
 * CUDA_ERROR_INVALID_VALUE: the process has no memory on some of its pages, or none that may be written (with
 * _READ_ONLY: read). Makes the pages present. */
FLYT_API CUresult flyt_host_register(void *address, size_t bytes, unsigned flags);
/* Waits for copies that still use the memory. CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED; CUDA_ERROR_INVALID_VALUE: NULL or
 * not the start of the range. */
FLYT_API CUresult flyt_host_unregister(void *address);
/* cuMemHostGetFlags. CUDA_ERROR_INVALID_VALUE: not pinned. */
FLYT_API CUresult flyt_host_flags(const void *address, unsigned *ret_flags);
/* cuMemHostGetDevicePointer: of mapped memory the address itself; CUDA_ERROR_NOT_SUPPORTED for other pinned memory,
 * _INVALID_VALUE for what is not pinned, _OUT_OF_MEMORY where the session's present server cannot lock it. */
FLYT_API CUresult flyt_host_device_pointer(const void *address, unsigned flags, CUdeviceptr *ret_address);
/* Whose memory it is, beside the flags of cuMemHostAlloc: a pool's, which is mapped where host memory is; managed
 * (managed.h), or physical memory of the host (virtual.h), which are mapped or not to be had. */
enum {
    FLYT_HOST_OF_POOL = 1 << 30,
    FLYT_HOST_MANAGED = 1 << 29,
    FLYT_HOST_PHYSICAL = 1 << 28,
    FLYT_HOST_OWNERS = FLYT_HOST_OF_POOL | FLYT_HOST_MANAGED | FLYT_HOST_PHYSICAL
};
/* What flyt_host_alloc does without entering, for a context of a device. bytes: not 0. */
CUresult flyt_host_take(size_t bytes, unsigned flags, uint64_t context_id, int device, void **ret_address);
/* The same of flyt_host_free. owner: that of FLYT_HOST_OWNERS which the memory has, or 0. */
CUresult flyt_host_give(void *address, unsigned owner);
/* The same, and a thread of this library's waits for the GPU: nobody may name the memory any more, and its pages are
 * there again some time later. An allocation that finds none waits for them; so does who gives while very much waits.
 */
CUresult flyt_host_give_later(void *address, unsigned owner);
/* Page-locked memory that program and server share, of this library's own: whole pages, which are no pinned memory of
 * the program's, and stay. NULL: there is none to be had. */
void *flyt_host_take_shared(uint64_t bytes);
/* Whether the GPU copies from and to the shared memory at the address itself. Pages that the server has not locked yet,
 * because the session has gone on there, are locked first: who uses them waits for that once. *ret_server: where. */
bool flyt_host_is_shared(uint64_t address, uint64_t *ret_server);
/* Whether kernels reach pinned memory that begins at, or holds, the address. */
bool flyt_host_is_mapped(uint64_t address);
/* Kernels may have an address of mapped memory from now on: before what gives it to them is sent. */
void flyt_host_note_reached(void);
/* Whether they may. */
bool flyt_host_is_reached(void);
/* The same where any of these aligned words is one. */
void flyt_host_look_for_reached(const void *data, size_t bytes);

struct flyt_restore;
/* What is shared, at another server (core/part.h). */
int flyt_host_restore(struct flyt_restore *restore);

#endif
