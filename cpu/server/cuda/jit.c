#include "cpu/server/cuda/jit.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/driver.h"

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
        return flyt_jit_refuse(jit, CUDA_ERROR_NOT_SUPPORTED, "JIT option %u is not supported", option->id);
    }
}

CUresult flyt_jit_init(struct flyt_jit *jit, const flyt_load_option *options, unsigned count, enum flyt_jit_use use)
{
    CUresult result = CUDA_SUCCESS;
    jit->option_count = 0;
    jit->info_log[0] = jit->error_log[0] = 0;
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
        if (use != FLYT_JIT_LINK || options[i].id != CU_JIT_FALLBACK_STRATEGY)
            result = add_number(jit, &options[i]);
    if (result != CUDA_SUCCESS || use == FLYT_JIT_INPUT)
        return result;
    add(jit, CU_JIT_INFO_LOG_BUFFER, (uintptr_t)jit->info_log);
    add(jit, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, sizeof jit->info_log);
    add(jit, CU_JIT_ERROR_LOG_BUFFER, (uintptr_t)jit->error_log);
    add(jit, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, sizeof jit->error_log);
    return CUDA_SUCCESS;
}

/* What the linker makes belongs to it. */
static CUresult copy_code(const struct flyt_driver *driver, CUlinkState state, char **ret_code, uint64_t *ret_bytes)
{
    void *image;
    size_t bytes;
    CUresult result = driver->cuLinkComplete(state, &image, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    char *copy = malloc(bytes + 1);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(copy, image, bytes);
    copy[bytes] = 0;
    *ret_code = copy;
    *ret_bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult flyt_jit_link(const struct flyt_driver *driver, const char *text, size_t bytes, const char *name,
                       struct flyt_jit *jit, char **ret_code, uint64_t *ret_bytes)
{
    CUlinkState state;
    CUresult result =
        driver->cuLinkCreate(jit ? jit->option_count : 0, jit ? jit->options : NULL, jit ? jit->values : NULL, &state);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)text, bytes, name, 0, NULL, NULL);
    if (result == CUDA_SUCCESS)
        result = copy_code(driver, state, ret_code, ret_bytes);
    driver->cuLinkDestroy(state);
    return result;
}

CUresult flyt_jit_refuse(struct flyt_jit *jit, CUresult result, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(jit->error_log, sizeof jit->error_log, format, values);
    va_end(values);
    return result;
}

void flyt_jit_explain(struct flyt_jit *jit, CUresult result, const void *image, uint64_t bytes)
{
    static const char elf_magic[] = "\177ELF";
    bool is_machine_code = image && bytes >= sizeof elf_magic - 1 && !memcmp(image, elf_magic, sizeof elf_magic - 1);
    if (jit->error_log[0])
        return;
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU)
        flyt_jit_refuse(jit, result, "%s",
                        is_machine_code ? "machine code only, no PTX for this device" : "no image for this device");
    else if (result == CUDA_ERROR_NOT_SUPPORTED)
        flyt_jit_refuse(jit, result, "the driver does not support it, and says no more");
}
