/* cuBLASLt: handles, the one algorithm that there is, the logger. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>

#include "cpu/softgpu/library/lt.h"

/* ---- handles: nothing is kept in one; a cuBLAS handle can stand for it ---- */

struct cublasLtContext {
    int unused;
};

FLYT_SOFT_LT cublasLtCreate(cublasLtHandle_t *lightHandle)
{
    CUcontext ctx = NULL;

    if (!lightHandle)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *lightHandle = calloc(1, sizeof(struct cublasLtContext));
    return *lightHandle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

FLYT_SOFT_LT cublasLtDestroy(cublasLtHandle_t lightHandle)
{
    if (!lightHandle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    (void)cuCtxSynchronize();
    free(lightHandle);
    return CUBLAS_STATUS_SUCCESS;
}

__attribute__((visibility("default"))) const char *cublasLtGetStatusName(cublasStatus_t status)
{
    return cublasGetStatusName(status);
}

__attribute__((visibility("default"))) const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasGetStatusString(status);
}

__attribute__((visibility("default"))) size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

__attribute__((visibility("default"))) size_t cublasLtGetCudartVersion(void)
{
    return CUDA_VERSION;
}

FLYT_SOFT_LT cublasLtGetProperty(libraryPropertyType type, int *value)
{
    return cublasGetProperty(type, value);
}

/* No cache: there is nothing to choose. */
FLYT_SOFT_LT cublasLtHeuristicsCacheGetCapacity(size_t *capacity)
{
    if (!capacity)
        return CUBLAS_STATUS_INVALID_VALUE;
    *capacity = 0;
    return CUBLAS_STATUS_SUCCESS;
}

FLYT_SOFT_LT cublasLtHeuristicsCacheSetCapacity(size_t capacity)
{
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the algorithm ---- */

enum { ALGORITHM = 0 };

#define COUNT(table_) (sizeof(table_) / sizeof((table_)[0]))

static const struct flyt_soft_lt_attribute config[] = {
#define ROW(number_, field_)                                                                                           \
    {                                                                                                                  \
        CUBLASLT_ALGO_CONFIG_##number_, offsetof(struct flyt_soft_lt_algo, field_),                                    \
            sizeof(((struct flyt_soft_lt_algo *)0)->field_)                                                            \
    }
    ROW(ID, id),
    ROW(TILE_ID, tile),
    ROW(SPLITK_NUM, split_k),
    ROW(REDUCTION_SCHEME, reduction),
    ROW(CTA_SWIZZLING, swizzle),
    ROW(CUSTOM_OPTION, custom),
    ROW(STAGES_ID, stages),
    ROW(INNER_SHAPE_ID, inner_shape),
    ROW(CLUSTER_SHAPE_ID, cluster_shape),
#undef ROW
};

FLYT_SOFT_LT cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attr,
                                                  const void *buf, size_t sizeInBytes)
{
    if (attr == CUBLASLT_ALGO_CONFIG_ID)
        return CUBLAS_STATUS_INVALID_VALUE; /* cublasLtMatmulAlgoInit sets it */
    return flyt_soft_lt_set(algo, config, COUNT(config), (int)attr, buf, sizeInBytes);
}

FLYT_SOFT_LT cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                  cublasLtMatmulAlgoConfigAttributes_t attr, void *buf,
                                                  size_t sizeInBytes, size_t *sizeWritten)
{
    return flyt_soft_lt_get(algo, config, COUNT(config), (int)attr, buf, sizeInBytes, sizeWritten);
}

/* What the algorithm can do. */
struct capability {
    uint64_t implementation;
    int32_t yes, no;
    uint32_t none, pointer_modes, epilogues, alignment, all;
};

static const struct capability capability = {
    .yes = 1,
    .pointer_modes = CUBLASLT_POINTER_MODE_MASK_HOST | CUBLASLT_POINTER_MODE_MASK_DEVICE,
    .epilogues = 0x3ff,
    .alignment = 1,
    .all = CUBLASLT_REDUCTION_SCHEME_MASK,
};

static const struct flyt_soft_lt_attribute capabilities[] = {
#define ROW(number_, field_)                                                                                           \
    {                                                                                                                  \
        CUBLASLT_ALGO_CAP_##number_, offsetof(struct capability, field_), sizeof(((struct capability *)0)->field_)     \
    }
    ROW(SPLITK_SUPPORT, no),
    ROW(REDUCTION_SCHEME_MASK, all),
    ROW(CTA_SWIZZLING_SUPPORT, none),
    ROW(STRIDED_BATCH_SUPPORT, yes),
    ROW(OUT_OF_PLACE_RESULT_SUPPORT, yes),
    ROW(UPLO_SUPPORT, no),
    ROW(TILE_IDS, none),
    ROW(CUSTOM_OPTION_MAX, no),
    ROW(CUSTOM_MEMORY_ORDER, no),
    ROW(POINTER_MODE_MASK, pointer_modes),
    ROW(EPILOGUE_MASK, epilogues),
    ROW(STAGES_IDS, none),
    ROW(LD_NEGATIVE, no),
    ROW(NUMERICAL_IMPL_FLAGS, implementation),
    ROW(MIN_ALIGNMENT_A_BYTES, alignment),
    ROW(MIN_ALIGNMENT_B_BYTES, alignment),
    ROW(MIN_ALIGNMENT_C_BYTES, alignment),
    ROW(MIN_ALIGNMENT_D_BYTES, alignment),
    ROW(POINTER_ARRAY_BATCH_SUPPORT, yes),
    ROW(FLOATING_POINT_EMULATION_SUPPORT, no),
#undef ROW
};

FLYT_SOFT_LT cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoCapAttributes_t attr,
                                               void *buf, size_t sizeInBytes, size_t *sizeWritten)
{
    if (!algo)
        return CUBLAS_STATUS_INVALID_VALUE;
    return flyt_soft_lt_get(&capability, capabilities, COUNT(capabilities), (int)attr, buf, sizeInBytes, sizeWritten);
}

static void algo_init(cublasLtMatmulAlgo_t *algo)
{
    const struct flyt_soft_lt_algo initial = {.id = ALGORITHM, .split_k = 1};

    memset(algo, 0, sizeof(*algo));
    memcpy(algo, &initial, sizeof(initial));
}

FLYT_SOFT_LT cublasLtMatmulAlgoGetIds(cublasLtHandle_t lightHandle, cublasComputeType_t computeType,
                                      cudaDataType_t scaleType, cudaDataType_t Atype, cudaDataType_t Btype,
                                      cudaDataType_t Ctype, cudaDataType_t Dtype, int requestedAlgoCount,
                                      int algoIdsArray[], int *returnAlgoCount)
{
    if (!lightHandle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (requestedAlgoCount <= 0 || !algoIdsArray || !returnAlgoCount)
        return CUBLAS_STATUS_INVALID_VALUE;
    algoIdsArray[0] = ALGORITHM;
    *returnAlgoCount = 1;
    return CUBLAS_STATUS_SUCCESS;
}

FLYT_SOFT_LT cublasLtMatmulAlgoInit(cublasLtHandle_t lightHandle, cublasComputeType_t computeType,
                                    cudaDataType_t scaleType, cudaDataType_t Atype, cudaDataType_t Btype,
                                    cudaDataType_t Ctype, cudaDataType_t Dtype, int algoId, cublasLtMatmulAlgo_t *algo)
{
    if (!lightHandle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!algo || algoId != ALGORITHM)
        return CUBLAS_STATUS_INVALID_VALUE;
    algo_init(algo);
    return CUBLAS_STATUS_SUCCESS;
}

FLYT_SOFT_LT cublasLtMatmulAlgoCheck(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc,
                                     cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                     cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                     const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result)
{
    cublasStatus_t status;

    if (!lightHandle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!operationDesc || !Adesc || !Bdesc || !Cdesc || !Ddesc || !algo || !result)
        return CUBLAS_STATUS_INVALID_VALUE;
    status = flyt_soft_lt_matmul_check((const void *)operationDesc, (const void *)Adesc, (const void *)Bdesc,
                                       (const void *)Cdesc, (const void *)Ddesc);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    *result = (cublasLtMatmulHeuristicResult_t){.algo = *algo, .state = CUBLAS_STATUS_SUCCESS, .wavesCount = 1};
    return CUBLAS_STATUS_SUCCESS;
}

FLYT_SOFT_LT cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t lightHandle, cublasLtMatmulDesc_t operationDesc,
                                            cublasLtMatrixLayout_t Adesc, cublasLtMatrixLayout_t Bdesc,
                                            cublasLtMatrixLayout_t Cdesc, cublasLtMatrixLayout_t Ddesc,
                                            cublasLtMatmulPreference_t preference, int requestedAlgoCount,
                                            cublasLtMatmulHeuristicResult_t heuristicResultsArray[],
                                            int *returnAlgoCount)
{
    cublasLtMatmulAlgo_t algo;
    cublasStatus_t status;

    if (!preference || requestedAlgoCount <= 0 || !heuristicResultsArray || !returnAlgoCount)
        return lightHandle ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_NOT_INITIALIZED;
    algo_init(&algo);
    status =
        cublasLtMatmulAlgoCheck(lightHandle, operationDesc, Adesc, Bdesc, Cdesc, Ddesc, &algo, heuristicResultsArray);
    *returnAlgoCount = status == CUBLAS_STATUS_SUCCESS;
    return status;
}

/* ---- the logger: nothing is logged ---- */

FLYT_SOFT_LT cublasLtLoggerSetCallback(cublasLtLoggerCallback_t callback)
{
    return CUBLAS_STATUS_SUCCESS;
}

FLYT_SOFT_LT cublasLtLoggerSetFile(FILE *file)
{
    return CUBLAS_STATUS_SUCCESS;
}

FLYT_SOFT_LT cublasLtLoggerOpenFile(const char *logFile)
{
    return CUBLAS_STATUS_SUCCESS;
}

FLYT_SOFT_LT cublasLtLoggerSetLevel(int level)
{
    return level < 0 || level > 5 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

FLYT_SOFT_LT cublasLtLoggerSetMask(int mask)
{
    return CUBLAS_STATUS_SUCCESS;
}

/* The header's declaration is none of its arguments. */
FLYT_SOFT_LT cublasLtLoggerForceDisable(void);

FLYT_SOFT_LT cublasLtLoggerForceDisable(void)
{
    return CUBLAS_STATUS_SUCCESS;
}
