/* cuCoredumpGetAttribute and its like: settings of the current context, and of the process. */
#include "cpu/softgpu/driver/driver.h"

/* What all four begin with. is_of_context: the current one, whose become *ret_coredump. */
static CUresult look(CUcoredumpSettings attrib, const size_t *size, bool is_of_context,
                     struct flyt_soft_coredump **ret_coredump)
{
    struct CUctx_st *ctx;

    *ret_coredump = NULL;
    if (!flyt_soft_coredump_size(attrib) || !size)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_of_context)
        return CUDA_SUCCESS;
    CUresult r = flyt_soft_enter_broken(&ctx);
    if (r == CUDA_SUCCESS)
        *ret_coredump = &ctx->coredump;
    return r;
}

static bool is_size(CUcoredumpSettings attrib, size_t bytes, bool is_to_get)
{
    const size_t needed = flyt_soft_coredump_size(attrib);

    if (needed == FLYT_SOFT_COREDUMP_NAME_BYTES)
        return bytes > 0;
    return is_to_get ? bytes == needed : bytes >= needed;
}

static CUresult get(CUcoredumpSettings attrib, void *value, size_t *size, bool is_of_context)
{
    char unused[FLYT_SOFT_COREDUMP_NAME_BYTES];
    const size_t needed = flyt_soft_coredump_size(attrib);
    struct flyt_soft_coredump *coredump;
    CUresult r = look(attrib, size, is_of_context, &coredump);

    if (r != CUDA_SUCCESS)
        return r;
    if (value && !is_size(attrib, *size, true))
        return CUDA_ERROR_INVALID_VALUE;
    r = flyt_soft_coredump_get(coredump, attrib, value ? value : unused, value ? *size : needed);
    if (r == CUDA_SUCCESS && !value)
        *size = needed;
    return r;
}

static CUresult set(CUcoredumpSettings attrib, const void *value, size_t *size, bool is_of_context)
{
    struct flyt_soft_coredump *coredump;
    CUresult r = look(attrib, size, is_of_context, &coredump);

    if (r != CUDA_SUCCESS)
        return r;
    if (value)
        return is_size(attrib, *size, false) ? flyt_soft_coredump_set(coredump, attrib, value, *size)
                                             : CUDA_ERROR_INVALID_VALUE;
    *size = flyt_soft_coredump_size(attrib);
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuCoredumpGetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    return get(attrib, value, size, true);
}

FLYT_SOFT_API cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size)
{
    return get(attrib, value, size, false);
}

FLYT_SOFT_API cuCoredumpSetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    return set(attrib, value, size, true);
}

FLYT_SOFT_API cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size)
{
    return set(attrib, value, size, false);
}
