/* cuCoredumpGetAttribute and its like: settings of the current context, and of the process. */
#include "cpu/softgpu/driver/driver.h"

/* What all four begin with. False: they are answered with *ret. */
static bool look(CUcoredumpSettings attrib, const void *value, size_t *size, CUresult *ret)
{
    size_t bytes = flyt_soft_coredump_size(attrib);
    bool is_name = bytes == FLYT_SOFT_COREDUMP_NAME_BYTES;

    *ret = bytes && size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (*ret == CUDA_SUCCESS && !value)
        *size = bytes;
    else if (*ret == CUDA_SUCCESS && (is_name ? !*size : *size < bytes))
        *ret = CUDA_ERROR_INVALID_VALUE;
    return value && *ret == CUDA_SUCCESS;
}

FLYT_SOFT_API cuCoredumpGetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    struct CUctx_st *ctx;
    CUresult r;

    if (!look(attrib, value, size, &r))
        return r;
    r = flyt_soft_enter_broken(&ctx);
    return r == CUDA_SUCCESS ? flyt_soft_coredump_get(&ctx->coredump, attrib, value, *size) : r;
}

FLYT_SOFT_API cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size)
{
    CUresult r;

    return look(attrib, value, size, &r) ? flyt_soft_coredump_get(NULL, attrib, value, *size) : r;
}

FLYT_SOFT_API cuCoredumpSetAttribute(CUcoredumpSettings attrib, void *value, size_t *size)
{
    struct CUctx_st *ctx;
    CUresult r;

    if (!look(attrib, value, size, &r))
        return r;
    r = flyt_soft_enter_broken(&ctx);
    return r == CUDA_SUCCESS ? flyt_soft_coredump_set(&ctx->coredump, attrib, value, *size) : r;
}

FLYT_SOFT_API cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size)
{
    CUresult r;

    return look(attrib, value, size, &r) ? flyt_soft_coredump_set(NULL, attrib, value, *size) : r;
}
