/* What of cuBLASLt is answered in the client, by hand: texts and versions. */
#include <stddef.h>
#include "cpu/client/core/client.h"
#include "cpu/client/library/library_call.h"
#include "rpc/library/blas_status.h"

extern const struct flyt_lib flyt_lib_cublaslt;

enum { VERSION_MAJOR = 13, VERSION_MINOR = 1, VERSION_PATCH = 0 };

FLYT_LIB_ENTRY size_t cublasLtGetVersion(void)
{
    return VERSION_MAJOR * 10000 + VERSION_MINOR * 100 + VERSION_PATCH;
}

FLYT_LIB_ENTRY size_t cublasLtGetCudartVersion(void)
{
    return (size_t)flyt_client_cuda_version();
}

FLYT_LIB_ENTRY int cublasLtGetProperty(int type, int *value)
{
    static const int values[] = {VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH};
    if (type < 0 || type > 2 || !value)
        return flyt_lib_cublaslt.invalid;
    *value = values[type];
    return flyt_lib_cublaslt.success;
}

FLYT_LIB_ENTRY const char *cublasLtGetStatusName(int status)
{
    return flyt_blas_status_name(status);
}

FLYT_LIB_ENTRY const char *cublasLtGetStatusString(int status)
{
    return flyt_blas_status_text(status);
}

/* The server's library has the cache of heuristics, and what is asked is kept here besides. */
static size_t cache_capacity = 8192;

FLYT_LIB_ENTRY int cublasLtHeuristicsCacheGetCapacity(size_t *ret_capacity)
{
    if (!ret_capacity)
        return flyt_lib_cublaslt.invalid;
    *ret_capacity = cache_capacity;
    return flyt_lib_cublaslt.success;
}

FLYT_LIB_ENTRY int cublasLtHeuristicsCacheSetCapacity(size_t capacity)
{
    cache_capacity = capacity;
    return flyt_lib_cublaslt.success;
}

/* ---- the log, which nobody writes ---- */

#define ACCEPTS(name, type)                                                                                            \
    FLYT_LIB_ENTRY int name(type value)                                                                                \
    {                                                                                                                  \
        (void)value;                                                                                                   \
        return flyt_lib_cublaslt.success;                                                                              \
    }

ACCEPTS(cublasLtLoggerSetCallback, void *)
ACCEPTS(cublasLtLoggerSetFile, void *)
ACCEPTS(cublasLtLoggerOpenFile, const char *)
ACCEPTS(cublasLtLoggerSetLevel, int)
ACCEPTS(cublasLtLoggerSetMask, int)

FLYT_LIB_ENTRY int cublasLtLoggerForceDisable(void)
{
    return flyt_lib_cublaslt.success;
}
