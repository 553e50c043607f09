/* What client and server share of the calls of NVIDIA's libraries: numbers, sizes of types, bounds. The layouts of the
 * calls' arguments are made from the rows (rpc/library). */
#ifndef FLYT_LIBRARY_LIBRARY_H
#define FLYT_LIBRARY_LIBRARY_H

#include <library_types.h>
#include <stddef.h>
#include <stdint.h>

enum { FLYT_LIB_OBJECTS_MAX = 4, FLYT_LIB_STATE_BYTES = 192 };

struct flyt_c32 {
    float x, y;
};
struct flyt_c64 {
    double x, y;
};

/* What descriptors that live in the program's memory begin with. */
struct flyt_lib_value_head {
    uint32_t magic;    /* 0: none was given */
    uint32_t is_owned; /* in memory of the client library's */
};

enum flyt_lib_place { FLYT_LIB_NULL = 0, FLYT_LIB_HOST, FLYT_LIB_DEVICE };

/* A number that the library reads, or writes, where its pointer mode says. */
struct flyt_lib_scalar {
    uint32_t place, bytes;
    union {
        uint64_t address;
        unsigned char value[40]; /* five of 8 bytes: what rotm takes */
    };
};

/* Device memory of the session's in which a call's arrays are that do not fit into the call: first those that it reads,
 * then those that it writes. */
struct flyt_lib_stage {
    uint64_t address; /* 0: they are in the call */
    uint64_t in_bytes, out_bytes;
};
#define FLYT_LIB_STAGE_BYTES_MAX ((uint64_t)1 << 30)

/* Arrays lie one behind the other, each at a multiple of this: NVIDIA's libraries read complex numbers of 16 bytes with
 * instructions that need it. Part of the rows' numbers (rpc/gen/library_rows.py). */
enum { FLYT_LIB_ALIGN = 16 };
#define FLYT_LIB_ALIGNED __attribute__((aligned(FLYT_LIB_ALIGN)))

static inline size_t flyt_lib_align(size_t bytes)
{
    return (bytes + FLYT_LIB_ALIGN - 1) & ~(size_t)(FLYT_LIB_ALIGN - 1);
}

/* Bytes of so many elements; SIZE_MAX where that is no number of bytes that a call may have. */
static inline size_t flyt_lib_extent(long long count, size_t bytes)
{
    return count < 0 || count > (1 << 28) ? SIZE_MAX : (size_t)count * bytes;
}

/* Bytes of an element of a cudaDataType; 0: unknown. */
static inline size_t flyt_lib_type_bytes(int type)
{
    switch ((cudaDataType)type) {
    case CUDA_R_8I:
    case CUDA_R_8U:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
        return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF:
    case CUDA_R_16I:
    case CUDA_R_16U:
    case CUDA_C_8I:
    case CUDA_C_8U:
        return 2;
    case CUDA_R_32F:
    case CUDA_R_32I:
    case CUDA_R_32U:
    case CUDA_C_16F:
    case CUDA_C_16BF:
    case CUDA_C_16I:
    case CUDA_C_16U:
        return 4;
    case CUDA_R_64F:
    case CUDA_R_64I:
    case CUDA_R_64U:
    case CUDA_C_32F:
    case CUDA_C_32I:
    case CUDA_C_32U:
        return 8;
    case CUDA_C_64F:
    case CUDA_C_64I:
    case CUDA_C_64U:
        return 16;
    default:
        return 0;
    }
}

/* Bytes of the scalars of cuSPARSE's that multiply vectors of a cudaDataType: those of halves and less are floats. */
static inline size_t flyt_lib_wide_bytes(int type)
{
    size_t bytes = flyt_lib_type_bytes(type);
    if (type == CUDA_C_8I || type == CUDA_C_16F || type == CUDA_C_16BF)
        return 8;
    return bytes && bytes < 4 ? 4 : bytes;
}

/* Bytes of the scalars of cuDNN's calls, by the cudnnDataType_t of what they scale: CUDNN_DATA_DOUBLE has such ones,
 * too. */
static inline size_t flyt_lib_real_bytes(int type)
{
    return type == 1 ? 8 : 4;
}

/* Bytes of alpha and beta of a product that is computed as cublasComputeType_t `compute`, whose result is of `type`:
 * cuBLAS's table of cublasGemmEx. 0: unknown. */
static inline size_t flyt_lib_scale_bytes(int compute, int type)
{
    int is_complex =
        type == CUDA_C_8I || type == CUDA_C_16F || type == CUDA_C_16BF || type == CUDA_C_32F || type == CUDA_C_64F;
    switch (compute) {
    case 64: /* CUBLAS_COMPUTE_16F, _PEDANTIC */
    case 65:
        return 2;
    case 68: /* CUBLAS_COMPUTE_32F, _PEDANTIC, _FAST_16F, _FAST_16BF, _FAST_TF32, _EMULATED_16BFX9 */
    case 69:
    case 74:
    case 75:
    case 77:
    case 78:
        return is_complex ? 8 : 4;
    case 70: /* CUBLAS_COMPUTE_64F, _PEDANTIC, _EMULATED_FIXEDPOINT */
    case 71:
    case 79:
        return is_complex ? 16 : 8;
    case 72: /* CUBLAS_COMPUTE_32I, _PEDANTIC */
    case 73:
        return 4;
    default: /* an older interface has a cudaDataType there */
        return flyt_lib_type_bytes(compute);
    }
}

#endif
