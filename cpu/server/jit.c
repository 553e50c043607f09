#include "cpu/server/jit.h"

#include <stdint.h>

static void add(struct flyt_jit *jit, CUjit_option id, uintptr_t value)
{
    jit->options[jit->option_count] = id;
    jit->values[jit->option_count++] = (void *)value;
}

static CUresult add_number(struct flyt_jit *jit, const flyt_load_option *option)
{
    switch (option->id) {
    case CU_JIT_MAX_REGISTERS:
    case CU_JIT_THREADS_PER_BLOCK:
    case CU_JIT_OPTIMIZATION_LEVEL:
    case CU_JIT_TARGET_FROM_CUCONTEXT:
    case CU_JIT_TARGET:
    case CU_JIT_FALLBACK_STRATEGY:
    case CU_JIT_GENERATE_DEBUG_INFO:
    case CU_JIT_LOG_VERBOSE:
    case CU_JIT_GENERATE_LINE_INFO:
    case CU_JIT_CACHE_MODE:
        add(jit, (CUjit_option)option->id, option->value);
        return CUDA_SUCCESS;
    case CU_JIT_WALL_TIME:
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_ERROR_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult flyt_jit_init(struct flyt_jit *jit, const flyt_load_option *options, unsigned count, bool has_logs)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = add_number(jit, &options[i]);
    if (result != CUDA_SUCCESS || !has_logs)
        return result;
    add(jit, CU_JIT_INFO_LOG_BUFFER, (uintptr_t)jit->info_log);
    add(jit, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, sizeof jit->info_log);
    add(jit, CU_JIT_ERROR_LOG_BUFFER, (uintptr_t)jit->error_log);
    add(jit, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, sizeof jit->error_log);
    return CUDA_SUCCESS;
}
