/* What of cuBLAS is answered in the client, by hand: texts, versions, copies. */
#include <stdio.h>
#include <string.h>
#include "cpu/client/core/client.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/library/library_call.h"
#include "rpc/library/blas_status.h"
#include "flyt_lib_cublas.h"

extern const struct flyt_lib flyt_lib_cublas;
extern const struct flyt_lib_kind flyt_lib_kind_cublas_cublas;

FLYT_LIB_ENTRY int cublasSetStream_v2(void *handle, void *stream)
{
    struct flyt_lib_object *object = flyt_lib_find((uint64_t)(uintptr_t)handle, &flyt_lib_kind_cublas_cublas);
    if (!object)
        return flyt_lib_cublas.handle;
    struct flyt_state_cublas *state = flyt_lib_state(object);
    flyt_lib_set_stream(object, stream);
    state->workspace = 0; /* "unconditionally resets the workspace to the default one" */
    state->workspace_bytes = 0;
    return flyt_lib_cublas.success;
}

/* ---- versions and texts ---- */

enum { VERSION_MAJOR = 13, VERSION_MINOR = 1, VERSION_PATCH = 0 };

FLYT_LIB_ENTRY int cublasGetVersion_v2(void *handle, int *version)
{
    (void)handle;
    if (!version)
        return flyt_lib_cublas.invalid;
    *version = VERSION_MAJOR * 10000 + VERSION_MINOR * 100 + VERSION_PATCH;
    return flyt_lib_cublas.success;
}

FLYT_LIB_ENTRY int cublasGetProperty(int type, int *value)
{
    static const int values[] = {VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH};
    if (type < 0 || type > 2 || !value)
        return flyt_lib_cublas.invalid;
    *value = values[type];
    return flyt_lib_cublas.success;
}

FLYT_LIB_ENTRY size_t cublasGetCudartVersion(void)
{
    return (size_t)flyt_client_cuda_version();
}

FLYT_LIB_ENTRY const char *cublasGetStatusName(int status)
{
    return flyt_blas_status_name(status);
}

FLYT_LIB_ENTRY const char *cublasGetStatusString(int status)
{
    return flyt_blas_status_text(status);
}

FLYT_LIB_ENTRY void cublasXerbla(const char *name, int argument)
{
    fprintf(stderr, "On entry to %s parameter number %d had an illegal value\n", name, argument);
}

/* ---- the log, which nobody writes ---- */

static void (*logger)(const char *message);

FLYT_LIB_ENTRY int cublasLoggerConfigure(int is_on, int to_stdout, int to_stderr, const char *file)
{
    (void)is_on, (void)to_stdout, (void)to_stderr, (void)file;
    return flyt_lib_cublas.success;
}

FLYT_LIB_ENTRY int cublasSetLoggerCallback(void (*callback)(const char *message))
{
    logger = callback;
    return flyt_lib_cublas.success;
}

FLYT_LIB_ENTRY int cublasGetLoggerCallback(void (**ret_callback)(const char *message))
{
    if (!ret_callback)
        return flyt_lib_cublas.invalid;
    *ret_callback = logger;
    return flyt_lib_cublas.success;
}

/* ---- copies of vectors and matrices ---- */

enum direction { TO_DEVICE, FROM_DEVICE };

static int status_of(CUresult result)
{
    switch (result) {
    case CUDA_SUCCESS:
        return flyt_lib_cublas.success;
    case CUDA_ERROR_INVALID_VALUE:
        return flyt_lib_cublas.invalid;
    case CUDA_ERROR_NOT_INITIALIZED:
        return flyt_lib_cublas.handle;
    default:
        return 11; /* CUBLAS_STATUS_MAPPING_ERROR */
    }
}

/* `rows` × `columns` elements, whose columns begin `from_step` and `to_step` elements after each other. */
static int copy(enum direction direction, int64_t rows, int64_t columns, int64_t bytes, const void *from,
                int64_t from_step, void *to, int64_t to_step, void *stream, bool is_async)
{
    if (rows < 0 || columns < 0 || bytes <= 0 || from_step <= 0 || to_step <= 0)
        return flyt_lib_cublas.invalid;
    if (!rows || !columns)
        return flyt_lib_cublas.success;
    CUresult result = flyt_runtime_enter();
    if (result)
        return status_of(result);
    const struct flyt_copy box = {.dst = {direction == TO_DEVICE ? FLYT_PLACE_DEVICE : FLYT_PLACE_HOST,
                                          (uint64_t)(uintptr_t)to, (uint64_t)(to_step * bytes), 0},
                                  .src = {direction == TO_DEVICE ? FLYT_PLACE_HOST : FLYT_PLACE_DEVICE,
                                          (uint64_t)(uintptr_t)from, (uint64_t)(from_step * bytes), 0},
                                  .width_bytes = (uint64_t)(rows * bytes),
                                  .height = (uint64_t)columns,
                                  .depth = 1};
    return status_of(flyt_copy(&box, stream, is_async));
}

/* Each in its four forms. A vector with a step is a matrix of one row. */
#define COPIES(word, direction, twin, number)                                                                          \
    FLYT_LIB_ENTRY int cublas##word##Vector##twin(number n, number bytes, const void *from, number from_step,          \
                                                  void *to, number to_step)                                            \
    {                                                                                                                  \
        return copy(direction, 1, n, bytes, from, from_step, to, to_step, NULL, false);                                \
    }                                                                                                                  \
    FLYT_LIB_ENTRY int cublas##word##VectorAsync##twin(number n, number bytes, const void *from, number from_step,     \
                                                       void *to, number to_step, void *stream)                         \
    {                                                                                                                  \
        return copy(direction, 1, n, bytes, from, from_step, to, to_step, stream, true);                               \
    }                                                                                                                  \
    FLYT_LIB_ENTRY int cublas##word##Matrix##twin(number rows, number columns, number bytes, const void *from,         \
                                                  number from_step, void *to, number to_step)                          \
    {                                                                                                                  \
        if (from_step < rows || to_step < rows)                                                                        \
            return flyt_lib_cublas.invalid;                                                                            \
        return copy(direction, rows, columns, bytes, from, from_step, to, to_step, NULL, false);                       \
    }                                                                                                                  \
    FLYT_LIB_ENTRY int cublas##word##MatrixAsync##twin(number rows, number columns, number bytes, const void *from,    \
                                                       number from_step, void *to, number to_step, void *stream)       \
    {                                                                                                                  \
        if (from_step < rows || to_step < rows)                                                                        \
            return flyt_lib_cublas.invalid;                                                                            \
        return copy(direction, rows, columns, bytes, from, from_step, to, to_step, stream, true);                      \
    }

COPIES(Set, TO_DEVICE, , int)
COPIES(Get, FROM_DEVICE, , int)
COPIES(Set, TO_DEVICE, _64, int64_t)
COPIES(Get, FROM_DEVICE, _64, int64_t)
