/*
 * Device memory, and what the client knows about every address: a table of allocations, of variables whose address the
 * program asked for, and of pinned host memory, with owner and device. Device addresses lie in the window of
 * rpc/base/id.h, which is reserved in the program too, so that no host memory is ever there.
 */
#ifndef FLYT_CLIENT_MEMORY_H
#define FLYT_CLIENT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/api.h"

/* cuMemAlloc in the current context. bytes 0 or ret_address NULL: CUDA_ERROR_INVALID_VALUE. CUDA_ERROR_OUT_OF_MEMORY.
 */
FLYT_API CUresult flyt_memory_alloc(size_t bytes, CUdeviceptr *ret_address);
/* cuMemAllocPitch. element_bytes: 4, 8 or 16. The pitch is a multiple of 512. */
FLYT_API CUresult flyt_memory_alloc_pitch(size_t width_bytes, size_t height, unsigned element_bytes,
                                          CUdeviceptr *ret_address, size_t *ret_pitch_bytes);
/* cuMemFree. 0 does nothing and succeeds; what is not the start of an allocation is CUDA_ERROR_INVALID_VALUE. */
FLYT_API CUresult flyt_memory_free(CUdeviceptr address);
/* cuMemGetAddressRange. Either result may be NULL. CUDA_ERROR_NOT_FOUND: no allocation holds the address. */
FLYT_API CUresult flyt_memory_range(CUdeviceptr address, CUdeviceptr *ret_base, size_t *ret_bytes);

/* flyt_memory_alloc for a context and its device, without entering. Inside the library. */
CUresult flyt_memory_take(uint64_t context_id, int device, uint64_t bytes, CUdeviceptr *ret_address);

enum flyt_pointer_kind {
    FLYT_POINTER_UNKNOWN = 0, /* pageable host memory, as far as CUDA knows */
    FLYT_POINTER_DEVICE,      /* an allocation, or a variable of a module */
    FLYT_POINTER_HOST         /* pinned by flyt_host_alloc or flyt_host_register */
};

/* What cuPointerGetAttribute and cudaPointerGetAttributes need. */
struct flyt_pointer {
    enum flyt_pointer_kind kind;
    bool is_variable;   /* DEVICE: a module's variable */
    bool is_managed;    /* DEVICE: the host has it at the same address (managed.h) */
    bool is_registered; /* HOST: by flyt_host_register */
    bool is_mapped;     /* HOST: kernels of all devices reach it, at this address */
    int device;         /* -1 where unknown */
    CUcontext context;  /* that made it; NULL where unknown */
    uint64_t base;      /* of the range that holds the address */
    uint64_t bytes;
    uint64_t buffer_id;  /* unique in the process, CU_POINTER_ATTRIBUTE_BUFFER_ID */
    unsigned flags;      /* HOST: as given when it was made */
    bool is_synchronous; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
};

/* Never fails for want of an entry: kind says. Does not connect and does not need a context. */
FLYT_API CUresult flyt_pointer_find(const void *address, struct flyt_pointer *ret_pointer);
/* cuPointerSetAttribute. Waits for what the legacy default stream has, where synchronous copies may still be under way.
 * CUDA_ERROR_INVALID_VALUE: any attribute but CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, or memory that CUDA has not allocated.
 */
FLYT_API CUresult flyt_pointer_attribute_set(const void *value, CUpointer_attribute attribute, CUdeviceptr address);
/* Whether kernels of the current context reach what is there: its device's memory, and that of peers that it has
 * enabled, and mapped host memory. */
FLYT_API bool flyt_pointer_is_reached(const struct flyt_pointer *pointer);

/* ---- inside the library ---- */

struct flyt_range;
/* The allocation that the range describes, but for its address, in the books: its base is set. Without entering. Where
 * quantum_bytes is not 0, it begins with a page of the program's, and nothing else is in its last quantum.
 * CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_memory_alloc_range(struct flyt_range *in_out_range, uint64_t quantum_bytes);

#endif
