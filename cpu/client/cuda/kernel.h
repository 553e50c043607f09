/*
 * Kernels: attributes, occupancy, launch. A CUkernel and a CUfunction are the same id (type FLYT_ID_KERNEL): the
 * functions below take a CUfunction, to which callers cast a CUkernel. Where the device matters it is a parameter:
 * −1 means the current context's.
 *
 * Unknown handles are CUDA_ERROR_INVALID_HANDLE at once.
 */
#ifndef FLYT_CLIENT_KERNEL_H
#define FLYT_CLIENT_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <cuda.h>
#include "cpu/client/core/api.h"

struct flyt_launch {
    CUfunction function;
    const void *symbol; /* what the runtime calls the function; NULL: nothing. For graphs alone */
    unsigned grid[3];
    unsigned block[3];
    unsigned dynamic_shared_bytes;
    CUstream stream;
    /* One of the two: pointers to the values, one per parameter (may be NULL where the kernel has none); or all values
     * laid out as the kernel wants them (CU_LAUNCH_PARAM_BUFFER_POINTER): what a shorter buffer lacks is 0, a longer
     * one is CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES. */
    void *const *params;
    const void *param_buffer;
    size_t param_buffer_bytes;
    /* CUlaunchAttribute; cooperative launches are CU_LAUNCH_ATTRIBUTE_COOPERATIVE. */
    const CUlaunchAttribute *attributes;
    unsigned attribute_count;
};

/*
 * Launches; the arguments have been copied when it returns. Checked at once: CUDA_ERROR_INVALID_VALUE (a dimension is 0
 * or above the device's limit, too much shared memory, missing parameters, a buffer of another size, too many or
 * unknown attributes), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (more threads than this kernel can have in a block),
 * CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, CUDA_ERROR_INVALID_HANDLE, _INVALID_CONTEXT. Blocks only where the stream is
 * FLYT_STREAM_CREDIT_CALLS calls ahead, or at the first launch of a kernel (its attributes are asked).
 */
FLYT_API CUresult flyt_kernel_launch(const struct flyt_launch *launch);
/* Whether grid and block are inside the limits of the current device, for callers whose code for that is another than
 * CUDA_ERROR_INVALID_VALUE (cudaErrorInvalidConfiguration). CUDA_SUCCESS or CUDA_ERROR_INVALID_VALUE. */
FLYT_API CUresult flyt_kernel_check_dimensions(const unsigned grid[3], const unsigned block[3]);

/*
 * Launches in steps (cuFuncSetBlockShape, cuFuncSetSharedSize, cuParamSetSize, cuParamSetv, cuLaunchGridAsync), which
 * CUDA has deprecated: what is set stays for all launches of the function that come later, of whatever thread.
 * CUDA_ERROR_INVALID_HANDLE; CUDA_ERROR_INVALID_VALUE: a dimension is not above 0 or was not set, the place is beyond
 * what parameters may take, NULL; CUDA_ERROR_OUT_OF_MEMORY; what flyt_kernel_launch returns.
 */
FLYT_API CUresult flyt_steps_block(CUfunction function, int x, int y, int z);
FLYT_API CUresult flyt_steps_shared(CUfunction function, unsigned bytes);
FLYT_API CUresult flyt_steps_size(CUfunction function, unsigned bytes);
FLYT_API CUresult flyt_steps_put(CUfunction function, int offset_bytes, const void *data, unsigned bytes);
FLYT_API CUresult flyt_steps_launch(CUfunction function, int width, int height, CUstream stream);

/* cuFuncGetName: owned by the library until the kernel's library is unloaded. */
FLYT_API CUresult flyt_kernel_name(CUfunction function, const char **ret_name);
/* Size and place of parameter `index` in the parameter buffer. Either result may be NULL. CUDA_ERROR_INVALID_VALUE: no
 * such parameter. */
FLYT_API CUresult flyt_kernel_param_at(CUfunction function, size_t index, size_t *ret_offset_bytes, size_t *ret_bytes);

/* cuFuncGetAttribute, cuKernelGetAttribute. CUDA_ERROR_INVALID_VALUE: no such attribute. Asked once. */
FLYT_API CUresult flyt_kernel_attribute(CUfunction function, int device, CUfunction_attribute attribute,
                                        int *ret_value);
FLYT_API CUresult flyt_kernel_attribute_set(CUfunction function, int device, CUfunction_attribute attribute, int value);
FLYT_API CUresult flyt_kernel_cache_config_set(CUfunction function, int device, CUfunc_cache config);
/* cuFuncSetSharedMemConfig: checked and without effect on today's devices. */
FLYT_API CUresult flyt_kernel_shared_config_set(CUfunction function, CUsharedconfig config);
/* cuFuncIsLoaded: asking has its module loaded, as a function's handle has (NVIDIA's driver says the same of one). */
FLYT_API CUresult flyt_kernel_is_loaded(CUfunction function, CUfunctionLoadingState *ret_state);
/* cuFuncLoad: whatever the first launch on the current device would ask the server for is there. */
FLYT_API CUresult flyt_kernel_load(CUfunction function);

/* cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags on the current device; answers are kept. */
FLYT_API CUresult flyt_kernel_occupancy(CUfunction function, int block_threads, size_t dynamic_shared_bytes,
                                        unsigned flags, int *ret_block_count);
/*
 * cuOccupancyMaxPotentialBlockSizeWithFlags: the block with the best occupancy and the smallest grid that fills the
 * device. block_to_shared may be NULL, then dynamic_shared_bytes holds for every block; block_limit 0: none.
 */
FLYT_API CUresult flyt_kernel_potential_block(CUfunction function, CUoccupancyB2DSize block_to_shared,
                                              size_t dynamic_shared_bytes, int block_limit, unsigned flags,
                                              int *ret_min_grid, int *ret_block_threads);
/* cuOccupancyAvailableDynamicSMemPerBlock. */
FLYT_API CUresult flyt_kernel_available_shared(CUfunction function, int block_count, int block_threads,
                                               size_t *ret_bytes);
/* cuOccupancyMaxPotentialClusterSize and cuOccupancyMaxActiveClusters: grid, block, shared memory and attributes of
 * `launch` count. */
FLYT_API CUresult flyt_kernel_max_cluster_size(const struct flyt_launch *launch, int *ret_cluster_blocks);
FLYT_API CUresult flyt_kernel_max_active_clusters(const struct flyt_launch *launch, int *ret_clusters);

#endif
