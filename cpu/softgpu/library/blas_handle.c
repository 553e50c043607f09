/* cuBLAS: handles, their settings, names of statuses, the logger. */
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/library/blas.h"
#include "rpc/library/blas_status.h"

FLYT_SOFT_CUBLAS cublasCreate_v2(cublasHandle_t *handle)
{
    CUcontext ctx = NULL;

    if (!handle)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof(**handle));
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

/* Blocks until the handle's work is done, as NVIDIA's does. */
FLYT_SOFT_CUBLAS cublasDestroy_v2(cublasHandle_t handle)
{
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    (void)cuCtxSynchronize();
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

FLYT_SOFT_CUBLAS cublasGetVersion_v2(cublasHandle_t handle, int *version)
{
    if (!version)
        return CUBLAS_STATUS_INVALID_VALUE;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

FLYT_SOFT_CUBLAS cublasGetProperty(libraryPropertyType type, int *value)
{
    static const int values[] = {CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH};

    if (!value || (unsigned)type > PATCH_LEVEL)
        return CUBLAS_STATUS_INVALID_VALUE;
    *value = values[type];
    return CUBLAS_STATUS_SUCCESS;
}

__attribute__((visibility("default"))) size_t cublasGetCudartVersion(void)
{
    return CUDA_VERSION;
}

/* No work needs the workspace. Setting the stream would take it back, which nobody can see. */
FLYT_SOFT_CUBLAS cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t workspaceSizeInBytes)
{
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    return (uintptr_t)workspace % 256 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

/* A setter and the getter of a field, and which values it takes. */
#define SETTING(set_, get_, type_, argument_, field_, is_valid_)                                                       \
    FLYT_SOFT_CUBLAS set_(cublasHandle_t handle, type_ argument_)                                                      \
    {                                                                                                                  \
        if (!handle)                                                                                                   \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                                                      \
        if (!(is_valid_))                                                                                              \
            return CUBLAS_STATUS_INVALID_VALUE;                                                                        \
        handle->field_ = (__typeof__(handle->field_))argument_;                                                        \
        return CUBLAS_STATUS_SUCCESS;                                                                                  \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS get_(cublasHandle_t handle, type_ *argument_)                                                     \
    {                                                                                                                  \
        if (!handle)                                                                                                   \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                                                      \
        if (!argument_)                                                                                                \
            return CUBLAS_STATUS_INVALID_VALUE;                                                                        \
        *argument_ = (type_)handle->field_;                                                                            \
        return CUBLAS_STATUS_SUCCESS;                                                                                  \
    }

SETTING(cublasSetStream_v2, cublasGetStream_v2, cudaStream_t, streamId, stream, true)
SETTING(cublasSetPointerMode_v2, cublasGetPointerMode_v2, cublasPointerMode_t, mode, pointer_mode, (unsigned)mode <= 1)
SETTING(cublasSetAtomicsMode, cublasGetAtomicsMode, cublasAtomicsMode_t, mode, atomics_mode, (unsigned)mode <= 1)
SETTING(cublasSetMathMode, cublasGetMathMode, cublasMath_t, mode, math_mode,
        (mode & ~(unsigned)CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) <= CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH)
SETTING(cublasSetSmCountTarget, cublasGetSmCountTarget, int, smCountTarget, sm_count_target, smCountTarget >= 0)
SETTING(cublasSetEmulationStrategy, cublasGetEmulationStrategy, cublasEmulationStrategy_t, emulationStrategy,
        emulation_strategy, (unsigned)emulationStrategy <= CUBLAS_EMULATION_STRATEGY_EAGER)
SETTING(cublasSetEmulationSpecialValuesSupport, cublasGetEmulationSpecialValuesSupport,
        cudaEmulationSpecialValuesSupport, mask, emulation_special_values, true)
SETTING(cublasSetFixedPointEmulationMantissaControl, cublasGetFixedPointEmulationMantissaControl,
        cudaEmulationMantissaControl, mantissaControl, emulation_mantissa_control, true)
SETTING(cublasSetFixedPointEmulationMaxMantissaBitCount, cublasGetFixedPointEmulationMaxMantissaBitCount, int,
        maxMantissaBitCount, emulation_mantissa_bits_max, maxMantissaBitCount >= 0)
SETTING(cublasSetFixedPointEmulationMantissaBitOffset, cublasGetFixedPointEmulationMantissaBitOffset, int,
        mantissaBitOffset, emulation_mantissa_offset, true)
SETTING(cublasSetFixedPointEmulationMantissaBitCountPointer, cublasGetFixedPointEmulationMantissaBitCountPointer, int *,
        mantissaBitCount, emulation_mantissa_bits, true)

/* ---- statuses ---- */

__attribute__((visibility("default"))) const char *cublasGetStatusName(cublasStatus_t status)
{
    return flyt_blas_status_name(status);
}

__attribute__((visibility("default"))) const char *cublasGetStatusString(cublasStatus_t status)
{
    return flyt_blas_status_text(status);
}

/* ---- the logger: kept, and never called, as nothing is logged ---- */

static cublasLogCallback log_callback;

FLYT_SOFT_CUBLAS cublasLoggerConfigure(int logIsOn, int logToStdOut, int logToStdErr, const char *logFileName)
{
    return CUBLAS_STATUS_SUCCESS;
}

FLYT_SOFT_CUBLAS cublasSetLoggerCallback(cublasLogCallback userCallback)
{
    log_callback = userCallback;
    return CUBLAS_STATUS_SUCCESS;
}

FLYT_SOFT_CUBLAS cublasGetLoggerCallback(cublasLogCallback *userCallback)
{
    if (!userCallback)
        return CUBLAS_STATUS_INVALID_VALUE;
    *userCallback = log_callback;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- copies between host and device ---- */

static cublasStatus_t copy(int64_t rows, int64_t columns, int64_t number_bytes, const void *from, int64_t from_leading,
                           void *to, int64_t to_leading, CUstream stream, bool waits)
{
    size_t width_bytes = (size_t)rows * (size_t)number_bytes;
    CUDA_MEMCPY2D shape = {
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = (CUdeviceptr)from,
        .srcPitch = (size_t)from_leading * (size_t)number_bytes,
        .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
        .dstDevice = (CUdeviceptr)to,
        .dstPitch = (size_t)to_leading * (size_t)number_bytes,
        .WidthInBytes = width_bytes,
        .Height = (size_t)columns,
    };
    CUresult r;

    if (rows < 0 || columns < 0 || number_bytes <= 0 || from_leading < rows || to_leading < rows || from_leading <= 0 ||
        to_leading <= 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (rows == 0 || columns == 0)
        return CUBLAS_STATUS_SUCCESS;
    if (waits)
        r = cuMemcpy2DUnaligned(&shape);
    else
        r = cuMemcpy2DAsync(&shape, stream);
    return r == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

/* A vector is a matrix of one row. */
#define COPIES(direction_, I_, suffix_)                                                                                \
    FLYT_SOFT_CUBLAS cublas##direction_##Vector##suffix_(I_ n, I_ elemSize, const void *x, I_ incx, void *y, I_ incy)  \
    {                                                                                                                  \
        return copy(1, n, elemSize, x, incx, y, incy, NULL, true);                                                     \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##direction_##VectorAsync##suffix_(I_ n, I_ elemSize, const void *x, I_ incx, void *y,      \
                                                              I_ incy, cudaStream_t stream)                            \
    {                                                                                                                  \
        return copy(1, n, elemSize, x, incx, y, incy, stream, false);                                                  \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##direction_##Matrix##suffix_(I_ rows, I_ cols, I_ elemSize, const void *A, I_ lda,         \
                                                         void *B, I_ ldb)                                              \
    {                                                                                                                  \
        return copy(rows, cols, elemSize, A, lda, B, ldb, NULL, true);                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##direction_##MatrixAsync##suffix_(I_ rows, I_ cols, I_ elemSize, const void *A, I_ lda,    \
                                                              void *B, I_ ldb, cudaStream_t stream)                    \
    {                                                                                                                  \
        return copy(rows, cols, elemSize, A, lda, B, ldb, stream, false);                                              \
    }
COPIES(Set, int, )
COPIES(Get, int, )
COPIES(Set, int64_t, _64)
COPIES(Get, int64_t, _64)
