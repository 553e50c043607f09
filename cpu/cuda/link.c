/*
 * cuLink*: images that were compiled apart are linked on the node. The older interfaces without _v2 are refused by
 * name.
 */
#include "cpu/cuda/driver.h"
#include "cpu/client/cuda/jit_link.h"

CUresult CUDAAPI cuLinkCreate_v2(unsigned option_count, CUjit_option *options, void **option_values,
                                 CUlinkState *ret_state)
{
    FLYT_CUDA_ENTER();
    if (!ret_state || (option_count && (!options || !option_values)))
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_jit_options jit = {.count = option_count, .options = options, .values = option_values};
    return flyt_jit_link_create(&jit, ret_state);
}
