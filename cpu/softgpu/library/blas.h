/*
 * cuBLAS: what its files share. A function checks its arguments, fills in a record and pushes it into the handle's
 * stream; the record is all that the work sees. A handle is used by one thread at a time, as NVIDIA's are.
 *
 * Functions come in four types (letters S, D, C, Z) and two widths (int, and int64_t with the suffix _64): the macros
 * at the end make all of them from one.
 */
#ifndef FLYT_SOFTGPU_LIBRARY_BLAS_H
#define FLYT_SOFTGPU_LIBRARY_BLAS_H

#include <cublas_api.h>
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/softgpu/library/provider.h"

#define FLYT_SOFT_CUBLAS __attribute__((visibility("default"))) cublasStatus_t

struct cublasContext {
    CUstream stream;
    cublasPointerMode_t pointer_mode;
    cublasMath_t math_mode;
    cublasAtomicsMode_t atomics_mode;
    int sm_count_target;
    cublasEmulationStrategy_t emulation_strategy;
    int emulation_special_values, emulation_mantissa_control, emulation_mantissa_bits_max, emulation_mantissa_offset;
    int *emulation_mantissa_bits;
};

/* A scalar of the caller's: read at the call in host pointer mode, when the stream reaches the work in the other. */
struct flyt_soft_scalar {
    const void *from; /* in device memory; NULL: `value` holds it */
    unsigned bytes;
    _Alignas(16) unsigned char value[40]; /* five doubles for rotm */
};

/* One matrix or vector for each member of the batch: `stride_bytes` apart, or where an array in device memory says. */
struct flyt_soft_operand {
    const void *at;
    int64_t stride_bytes;
    uint64_t bytes; /* of each; 0: not looked at */
    bool is_array;
};

struct flyt_soft_blas;

/* Computes one member of the batch, of the operands that the record has. False: memory is out. */
typedef bool (*flyt_soft_blas_kernel)(const struct flyt_soft_blas *call, void *const at[], int64_t member);

enum { FLYT_SOFT_OPERANDS = 3 };

struct flyt_soft_blas {
    flyt_soft_blas_kernel kernel;
    enum flyt_soft_letter letter;
    flyt_soft_fn fn, fn2; /* routines that the kernel calls */
    struct flyt_soft_operand operands[FLYT_SOFT_OPERANDS];
    struct flyt_soft_scalar alpha, beta;
    int64_t batch_count;
    int m, n, k, kl, ku;
    int lda, ldb, ldc; /* or increments */
    char transa, transb, side, uplo, diag;
    bool is_conjugated;
    cudaDataType types[FLYT_SOFT_OPERANDS]; /* where they are mixed */
    cublasComputeType_t compute;
    cudaDataType scale_type;
    int *infos, *pivots; /* in device memory */
};

/* ---- checks; each gives CUBLAS_STATUS_SUCCESS or the status to return ---- */

/* 0 to INT_MAX: what the CPU's libraries take. INVALID_VALUE below, NOT_SUPPORTED above. */
cublasStatus_t flyt_soft_blas_size(int64_t value, int *ret_size);
cublasStatus_t flyt_soft_blas_increment(int64_t value, int *ret_increment);
/* A leading dimension of at least max(1, rows). */
cublasStatus_t flyt_soft_blas_leading(int64_t value, int rows, int *ret_leading);
/* BLAS's letters. */
cublasStatus_t flyt_soft_blas_operation(cublasOperation_t operation, char *ret_letter);
cublasStatus_t flyt_soft_blas_fill(cublasFillMode_t fill, char *ret_letter);
cublasStatus_t flyt_soft_blas_side(cublasSideMode_t side, char *ret_letter);
cublasStatus_t flyt_soft_blas_diag(cublasDiagType_t diag, char *ret_letter);

/* Returns the status of a check from the calling function where it is none of success. */
#define FLYT_SOFT_CHECK(call_)                                                                                         \
    do {                                                                                                               \
        cublasStatus_t status_ = (call_);                                                                              \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                                                          \
            return status_;                                                                                            \
    } while (0)

/* ---- records ---- */

unsigned flyt_soft_letter_bytes(enum flyt_soft_letter letter);
/* Bytes of its real part. */
unsigned flyt_soft_letter_real_bytes(enum flyt_soft_letter letter);
cudaDataType flyt_soft_letter_type(enum flyt_soft_letter letter);

/* INVALID_VALUE: NULL. */
cublasStatus_t flyt_soft_scalar_set(cublasHandle_t handle, struct flyt_soft_scalar *scalar, const void *value,
                                    unsigned bytes);
/* Brings a scalar of device memory into `value`. False: nothing is there. */
bool flyt_soft_scalar_read(struct flyt_soft_scalar *scalar);

/* A column-major matrix and a vector, of numbers of `number_bytes`. */
struct flyt_soft_operand flyt_soft_matrix(const void *at, int64_t rows, int64_t columns, int64_t leading,
                                          unsigned number_bytes, int64_t stride);
struct flyt_soft_operand flyt_soft_vector(const void *at, int64_t count, int64_t increment, unsigned number_bytes,
                                          int64_t stride);
/* The same where `at` is an array of pointers in device memory. */
struct flyt_soft_operand flyt_soft_array_of(struct flyt_soft_operand operand);

/* Names the routine; NOT_SUPPORTED where there is none. */
cublasStatus_t flyt_soft_blas_routine(struct flyt_soft_blas *call, enum flyt_soft_routine routine);
/* Pushes the record, unless its batch is empty. An operand with bytes that is NULL: INVALID_VALUE. */
cublasStatus_t flyt_soft_blas_push(cublasHandle_t handle, const struct flyt_soft_blas *call);
/* Pushes any other record. */
cublasStatus_t flyt_soft_blas_push_work(cublasHandle_t handle, CUresult (*run)(void *record), const void *record,
                                        size_t record_bytes);
cublasStatus_t flyt_soft_blas_status(CUresult r);

/* ---- the functions of a family: F(letter, C type, C type of the real part, integer type, suffix) ---- */

#define FLYT_SOFT_WIDTHS(F_, letter_, T_, R_)                                                                          \
    F_(letter_, T_, R_, int, )                                                                                         \
    F_(letter_, T_, R_, int64_t, _64)
#define FLYT_SOFT_REAL(F_)                                                                                             \
    FLYT_SOFT_WIDTHS(F_, S, float, float)                                                                              \
    FLYT_SOFT_WIDTHS(F_, D, double, double)
#define FLYT_SOFT_COMPLEX(F_)                                                                                          \
    FLYT_SOFT_WIDTHS(F_, C, cuComplex, float)                                                                          \
    FLYT_SOFT_WIDTHS(F_, Z, cuDoubleComplex, double)
#define FLYT_SOFT_ALL(F_)                                                                                              \
    FLYT_SOFT_REAL(F_)                                                                                                 \
    FLYT_SOFT_COMPLEX(F_)

#endif
