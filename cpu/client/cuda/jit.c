#include "cpu/client/cuda/jit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "rpc/base/log.h"

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

/* The first line that says something: a compiler's log has many. */
static void take_reason(struct flyt_jit_logs *logs, const char *error)
{
    error += strspn(error, " \t\r\n");
    size_t bytes = strcspn(error, "\r\n");
    bytes = bytes < sizeof logs->reason ? bytes : sizeof logs->reason - 1;
    memcpy(logs->reason, error, bytes);
    logs->reason[bytes] = 0;
}

void flyt_jit_logs_give(struct flyt_jit_logs *logs, const char *info, const char *error)
{
    give(&logs->info, info);
    give(&logs->error, error);
    take_reason(logs, error ? error : "");
}

CUresult flyt_jit_logs_refuse(struct flyt_jit_logs *logs, CUresult result, const char *format, ...)
{
    char text[FLYT_JIT_REASON_BYTES];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    give(&logs->error, text);
    take_reason(logs, text);
    return result;
}

/* What there is to say without a reason; NULL: nothing. */
static const char *default_reason(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_INVALID_IMAGE:
        return "it is neither PTX nor machine code nor a fat binary, or damaged";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
        return "no image for this device";
    case CUDA_ERROR_INVALID_PTX:
        return "its PTX has an error";
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        return "its PTX is newer than the driver";
    case CUDA_ERROR_NOT_SUPPORTED:
        return "it needs what is not supported";
    default:
        return NULL;
    }
}

/* Whether this is not among the last texts that were said: no module is refused in silence, and one that is loaded
 * again and again is named once. */
static bool is_new(const char *text)
{
    enum { TEXTS_MAX = 64 };
    static struct {
        pthread_mutex_t mutex;
        uint64_t hashes[TEXTS_MAX];
        unsigned count;
    } said = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
    for (const char *at = text; *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3;
    pthread_mutex_lock(&said.mutex);
    bool is_known = false;
    for (unsigned i = 0; i < TEXTS_MAX && i < said.count && !is_known; i++)
        is_known = said.hashes[i] == hash;
    if (!is_known)
        said.hashes[said.count++ % TEXTS_MAX] = hash;
    pthread_mutex_unlock(&said.mutex);
    return !is_known;
}

void flyt_jit_logs_say(const struct flyt_jit_logs *logs, CUresult result)
{
    const char *reason = logs->reason[0] ? logs->reason : default_reason(result);
    if (!result || !reason || !is_new(reason))
        return;
    flyt_log_init("flyt", FLYT_LOG_WARN);
    flyt_warn("a module is refused: %s, cuda_result=%d", reason, (int)result);
}
