#include "cpu/client/jit.h"

#include <stdlib.h>
#include <string.h>

/* Pointers mean nothing to the server. */
static bool is_number(CUjit_option id)
{
    return id != CU_JIT_INFO_LOG_BUFFER && id != CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES && id != CU_JIT_ERROR_LOG_BUFFER &&
           id != CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES && id != CU_JIT_WALL_TIME && id != CU_JIT_GLOBAL_SYMBOL_NAMES &&
           id != CU_JIT_GLOBAL_SYMBOL_ADDRESSES;
}

CUresult flyt_jit_numbers_init(struct flyt_jit_numbers *numbers, const struct flyt_jit_options *options)
{
    *numbers = (struct flyt_jit_numbers){0};
    if (!options || !options->count)
        return CUDA_SUCCESS;
    if (options->count > FLYT_OPTIONS_MAX || !options->options || !options->values)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < options->count; i++)
        if (options->options[i] >= CU_JIT_NUM_OPTIONS)
            return CUDA_ERROR_INVALID_VALUE;
    numbers->values = calloc(options->count, sizeof *numbers->values);
    if (!numbers->values)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < options->count; i++)
        if (is_number(options->options[i]))
            numbers->values[numbers->count++] =
                (flyt_load_option){.id = options->options[i], .value = (uint64_t)(uintptr_t)options->values[i]};
    return CUDA_SUCCESS;
}

CUresult flyt_jit_numbers_copy(struct flyt_jit_numbers *numbers, const struct flyt_jit_numbers *from)
{
    *numbers = (struct flyt_jit_numbers){0};
    if (!from->count)
        return CUDA_SUCCESS;
    numbers->values = calloc(from->count, sizeof *numbers->values);
    if (!numbers->values)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(numbers->values, from->values, from->count * sizeof *numbers->values);
    numbers->count = from->count;
    return CUDA_SUCCESS;
}

void flyt_jit_numbers_fini(struct flyt_jit_numbers *numbers)
{
    free(numbers->values);
    *numbers = (struct flyt_jit_numbers){0};
}

void flyt_jit_logs_init(struct flyt_jit_logs *logs, const struct flyt_jit_options *options)
{
    *logs = (struct flyt_jit_logs){0};
    for (unsigned i = 0; options && i < options->count; i++) {
        void **value = (void **)(uintptr_t)&options->values[i];
        switch (options->options[i]) {
        case CU_JIT_INFO_LOG_BUFFER:
            logs->info.text = *value;
            break;
        case CU_JIT_ERROR_LOG_BUFFER:
            logs->error.text = *value;
            break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            logs->info.size_value = value;
            logs->info.room_bytes = (size_t)(uintptr_t)*value & UINT32_MAX;
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            logs->error.size_value = value;
            logs->error.room_bytes = (size_t)(uintptr_t)*value & UINT32_MAX;
            break;
        default:
            break;
        }
    }
}

static void give(const struct flyt_jit_log *log, const char *text)
{
    if (!log->text || !log->room_bytes)
        return;
    size_t bytes = text ? strnlen(text, log->room_bytes - 1) : 0;
    memcpy(log->text, text ? text : "", bytes);
    log->text[bytes] = 0;
    *log->size_value = (void *)(uintptr_t)bytes;
}

void flyt_jit_logs_give(const struct flyt_jit_logs *logs, const char *info, const char *error)
{
    give(&logs->info, info);
    give(&logs->error, error);
}
