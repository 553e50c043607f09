/*
 * Names and sentences of error codes: made from the toolkit's header and rpc/api/errors.txt. Both calls work at any
 * time, before cuInit too.
 */
#include "cpu/cuda/driver.h"
#include "flyt_error_names.h"

static CUresult give_text(const char *text, const char **ret_text)
{
    if (!ret_text)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_text = text;
    return text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **ret_name)
{
    return give_text(flyt_cuda_error_name((int)error), ret_name);
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **ret_sentence)
{
    return give_text(flyt_cuda_error_sentence((int)error), ret_sentence);
}
