/* cuSPARSE: tridiagonal systems, solved by elimination with row exchanges whatever the function's name says. */
#include <stdlib.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/sparse/sparse.h"

/* `count` right sides `leading` numbers apart; is_batch: the diagonals are as far apart. */
struct tridiagonal {
    cudaDataType type;
    const void *lower, *diagonal, *upper;
    void *x;
    int64_t rows, count, leading;
    bool is_batch;
};

/* Rows of what is left to solve: the diagonal with two numbers above, and the right side. */
struct line {
    flyt_soft_complex d, u, uu, x;
};

static const void *at(const struct tridiagonal *self, const void *base, int64_t place)
{
    return (const char *)base + place * flyt_soft_number_bytes(self->type);
}

static void solve(const struct tridiagonal *self, int64_t member, struct line *lines)
{
    int64_t first = self->is_batch ? member * self->leading : 0, n = self->rows;

    for (int64_t i = 0; i < n; i++)
        lines[i] = (struct line){
            .d = flyt_soft_number_get(self->type, at(self, self->diagonal, first + i)),
            .u = i + 1 < n ? flyt_soft_number_get(self->type, at(self, self->upper, first + i)) : 0,
            .x = flyt_soft_number_get(self->type, at(self, self->x, member * self->leading + i)),
        };
    for (int64_t i = 0; i + 1 < n; i++) {
        struct line *one = &lines[i], *next = &lines[i + 1];
        flyt_soft_complex low = flyt_soft_number_get(self->type, at(self, self->lower, first + i + 1)), factor;

        if (cabs(low) > cabs(one->d)) {
            struct line other = {low, next->d, next->u, next->x};

            low = one->d;
            *next = (struct line){one->u, one->uu, 0, one->x};
            *one = other;
        }
        factor = low / one->d;
        next->d -= factor * one->u;
        next->u -= factor * one->uu;
        next->x -= factor * one->x;
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        flyt_soft_complex sum = lines[i].x;

        if (i + 1 < n)
            sum -= lines[i].u * lines[i + 1].x;
        if (i + 2 < n)
            sum -= lines[i].uu * lines[i + 2].x;
        lines[i].x = sum / lines[i].d;
        flyt_soft_number_put(self->type, (void *)at(self, self->x, member * self->leading + i), lines[i].x);
    }
}

static CUresult run(void *record)
{
    const struct tridiagonal *self = record;
    uint64_t bytes = flyt_soft_number_bytes(self->type), one = (uint64_t)self->rows * bytes,
             all = self->count ? (uint64_t)(self->leading * (self->count - 1)) * bytes + one : 0;
    struct line *lines;

    if (!flyt_soft_work_reaches(self->x, all) || !flyt_soft_work_reaches(self->lower, self->is_batch ? all : one) ||
        !flyt_soft_work_reaches(self->diagonal, self->is_batch ? all : one) ||
        !flyt_soft_work_reaches(self->upper, self->is_batch ? all : one))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    lines = calloc((size_t)self->rows + 1, sizeof(*lines));
    if (!lines)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (int64_t member = 0; member < self->count; member++)
        solve(self, member, lines);
    free(lines);
    return CUDA_SUCCESS;
}

static cusparseStatus_t push(cusparseHandle_t handle, const struct tridiagonal *self)
{
    if (!handle)
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    FLYT_SOFT_SPARSE_CHECK(self->rows >= 0 && self->count >= 0 && self->leading >= self->rows);
    return flyt_soft_sparse_status(flyt_soft_work_push(handle->stream, run, NULL, self, sizeof(*self)));
}

#define SYSTEM(name_, letter_, type_, cuda_)                                                                           \
    FLYT_SOFT_CUSPARSE cusparse##letter_##name_##_bufferSizeExt(cusparseHandle_t handle, int m, int n,                 \
                                                                const type_ *dl, const type_ *d, const type_ *du,      \
                                                                const type_ *b, int ldb, size_t *ret_bytes)            \
    {                                                                                                                  \
        return flyt_soft_sparse_buffer(handle, ret_bytes);                                                             \
    }                                                                                                                  \
    FLYT_SOFT_CUSPARSE cusparse##letter_##name_(cusparseHandle_t handle, int m, int n, const type_ *dl,                \
                                                const type_ *d, const type_ *du, type_ *b, int ldb, void *buffer)      \
    {                                                                                                                  \
        const struct tridiagonal self = {cuda_, dl, d, du, b, m, n, ldb, false};                                       \
        return push(handle, &self);                                                                                    \
    }
#define BATCH(letter_, type_, cuda_)                                                                                   \
    FLYT_SOFT_CUSPARSE cusparse##letter_##gtsv2StridedBatch_bufferSizeExt(                                             \
        cusparseHandle_t handle, int m, const type_ *dl, const type_ *d, const type_ *du, const type_ *x,              \
        int batch_count, int stride, size_t *ret_bytes)                                                                \
    {                                                                                                                  \
        return flyt_soft_sparse_buffer(handle, ret_bytes);                                                             \
    }                                                                                                                  \
    FLYT_SOFT_CUSPARSE cusparse##letter_##gtsv2StridedBatch(cusparseHandle_t handle, int m, const type_ *dl,           \
                                                            const type_ *d, const type_ *du, type_ *x,                 \
                                                            int batch_count, int stride, void *buffer)                 \
    {                                                                                                                  \
        const struct tridiagonal self = {cuda_, dl, d, du, x, m, batch_count, stride, true};                           \
        return push(handle, &self);                                                                                    \
    }
#define OF_TYPE(letter_, type_, cuda_)                                                                                 \
    SYSTEM(gtsv2, letter_, type_, cuda_)                                                                               \
    SYSTEM(gtsv2_nopivot, letter_, type_, cuda_)                                                                       \
    BATCH(letter_, type_, cuda_)
OF_TYPE(S, float, CUDA_R_32F)
OF_TYPE(D, double, CUDA_R_64F)
OF_TYPE(C, cuComplex, CUDA_C_32F)
OF_TYPE(Z, cuDoubleComplex, CUDA_C_64F)
