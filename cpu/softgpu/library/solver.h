/*
 * cuSOLVER's dense functions over LAPACK: what its files share. A function fills in a record, push checks what all have
 * in common and launches it. LAPACK's workspace is the CPU's: the buffers that callers bring are not looked at, and
 * none need be larger than one number.
 */
#ifndef FLYT_SOFTGPU_LIBRARY_SOLVER_H
#define FLYT_SOFTGPU_LIBRARY_SOLVER_H

#include <cuda.h>
#include <cusolverDn.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/softgpu/library/provider.h"

#define FLYT_SOFT_CUSOLVER __attribute__((visibility("default"))) cusolverStatus_t

/* As NVIDIA's it keeps a stream of its own, made with the handle, in whose context that then is: the work is done
 * there, after what the caller's stream has, and before what that gets later. */
struct cusolverDnContext {
    CUstream stream, own;
    CUevent before, after;
    cusolverDeterministicMode_t deterministic_mode;
    cusolverMathMode_t math_mode;
    cudaEmulationStrategy_t emulation_strategy;
};

struct flyt_soft_solver;
/* One member of a batch. False: memory is out. */
typedef bool (*flyt_soft_solver_kernel)(const struct flyt_soft_solver *call, int *ret_info);

/* Matrices and vectors in device memory. */
enum { FLYT_SOFT_SOLVER_OPERANDS = 5 };

struct flyt_soft_solver {
    flyt_soft_solver_kernel kernel;
    enum flyt_soft_letter letter;
    enum flyt_soft_routine routine; /* of LAPACK; `fn` is it */
    flyt_soft_fn fn;
    char side, uplo, trans, diag, job, job2; /* as LAPACK names them; 0: there is none */
    int type, m, n, k, lda, ldb, ldc;
    bool is_economic;
    void *at[FLYT_SOFT_SOLVER_OPERANDS];
    uint64_t bytes[FLYT_SOFT_SOLVER_OPERANDS]; /* of each; 0: there is none, or it may be missing */
    int64_t stride[FLYT_SOFT_SOLVER_OPERANDS]; /* bytes between the members of a batch */
    bool is_array;                             /* the first two are arrays of pointers */
    int *pivots;                               /* in device memory, or: */
    int64_t *wide_pivots;
    int pivot_count;
    int *info;            /* one for each member, or: */
    bool has_single_info; /* one for all */
    int64_t batch_count;  /* 0 stands for 1 */
    bool is_empty;        /* a batch of none */
};

/* Describes an operand: a matrix of `rows` × `columns`, or a vector with 1 column; numbers of its letter, or real ones.
 */
void flyt_soft_solver_matrix(struct flyt_soft_solver *call, unsigned index, const void *at, int64_t rows,
                             int64_t columns, int64_t leading);
void flyt_soft_solver_real_vector(struct flyt_soft_solver *call, unsigned index, const void *at, int64_t count);

/* Sizes as LAPACK takes them: INVALID_VALUE below 0 or, for a leading dimension, below `rows`; NOT_SUPPORTED above. */
cusolverStatus_t flyt_soft_solver_size(int64_t value, int *ret_size);
cusolverStatus_t flyt_soft_solver_leading(int64_t value, int64_t rows, int *ret_leading);
/* The letter of the types of all matrices. NOT_SUPPORTED. */
cusolverStatus_t flyt_soft_solver_letter(cudaDataType type, cudaDataType compute, enum flyt_soft_letter *ret_letter);
bool flyt_soft_solver_fill(cublasFillMode_t fill, char *ret_letter);
bool flyt_soft_solver_operation(cublasOperation_t operation, char *ret_letter);

/* Launches it. NULL where an operand has bytes: INVALID_VALUE; no LAPACK: NOT_SUPPORTED. */
cusolverStatus_t flyt_soft_solver_push(cusolverDnHandle_t handle, struct flyt_soft_solver *call);

/* What every …_bufferSize answers. */
cusolverStatus_t flyt_soft_solver_buffer(cusolverDnHandle_t handle, int *ret_count);
cusolverStatus_t flyt_soft_solver_buffers(cusolverDnHandle_t handle, size_t *ret_device_bytes, size_t *ret_host_bytes);

/*
 * LAPACK's workspace, asked for and then made. Used so:
 *     begin(&s, letter);
 *     do FORTRAN(…, s.work, &s.work_count, s.real, &s.real_count, s.ints, &s.int_count, &info); while (more(&s));
 * A routine that is asked with a count of -1 writes the count that it needs. False at the end in has_memory: memory is
 * out.
 */
struct flyt_soft_scratch {
    enum flyt_soft_letter letter;
    void *work, *real;
    int *ints;
    int work_count, real_count, int_count;
    _Alignas(16) unsigned char asked_work[16], asked_real[16];
    int asked_ints[4];
    bool is_asking, has_memory;
};
void flyt_soft_scratch_begin(struct flyt_soft_scratch *scratch, enum flyt_soft_letter letter);
bool flyt_soft_scratch_more(struct flyt_soft_scratch *scratch);
void flyt_soft_scratch_end(struct flyt_soft_scratch *scratch);

/* LU of an m × n matrix without exchanging rows, which LAPACK does not have. The first pivot that is 0, from 1; 0:
 * none. */
int flyt_soft_factor_in_order(cudaDataType type, void *a, int64_t lda, int m, int n);

#define FLYT_SOFT_SOLVER_CHECK(call_)                                                                                  \
    do {                                                                                                               \
        cusolverStatus_t status_ = (call_);                                                                            \
        if (status_ != CUSOLVER_STATUS_SUCCESS)                                                                        \
            return status_;                                                                                            \
    } while (0)

#endif
