/*
 * cuBLAS level 1, computed here: one kernel for each operation, in blocks of doubles, whatever the types. That is what
 * the functions with types as arguments (…Ex) need, and at least as accurate as the types of the others ask for.
 */
#include <complex.h>
#include <math.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/library/blas.h"
#include "cpu/softgpu/library/number.h"

struct vector {
    const void *at;
    int64_t inc;
    cudaDataType type;
};

struct level1 {
    void (*kernel)(const struct level1 *call, void *result);
    int64_t n;
    struct vector x, y;
    struct flyt_soft_scalar a, b; /* alpha; c and s; param */
    cudaDataType a_type, b_type;
    void *result;
    unsigned result_bytes;
    cudaDataType result_type; /* of an index: CUDA_R_32I or CUDA_R_64I */
    bool is_conjugated, is_smallest, result_is_host;
};

static void *at(const struct level1 *call, const struct vector *v, int64_t index)
{
    return flyt_soft_number_at(v->type, v->at, v->inc, call->n, index);
}

static int block_count(const struct level1 *call, int64_t index)
{
    return call->n - index < FLYT_SOFT_BLOCK ? (int)(call->n - index) : FLYT_SOFT_BLOCK;
}

/* Goes through a vector, or two of them, in blocks: x and y are loaded, i is the first index and `count` the number. */
#define BLOCKS_OF_X(call_)                                                                                             \
    struct flyt_soft_block x;                                                                                          \
    for (int64_t i = 0, count; i < (call_)->n && (count = block_count((call_), i)) > 0; i += FLYT_SOFT_BLOCK)          \
        if (flyt_soft_block_load(&x, (call_)->x.type, at((call_), &(call_)->x, i), (call_)->x.inc, (int)count), true)

#define BLOCKS_OF_XY(call_)                                                                                            \
    struct flyt_soft_block y;                                                                                          \
    BLOCKS_OF_X(call_)                                                                                                 \
    if (flyt_soft_block_load(&y, (call_)->y.type, at((call_), &(call_)->y, i), (call_)->y.inc, (int)count), true)

static void store(const struct level1 *call, const struct vector *v, const struct flyt_soft_block *block, int64_t i,
                  int64_t count)
{
    flyt_soft_block_store(block, v->type, at(call, v, i), v->inc, (int)count);
}

/* ---- kernels ---- */

/* A long double has room for the square of every double. */
static void nrm2(const struct level1 *call, void *result)
{
    long double sum = 0;

    BLOCKS_OF_X(call)
    for (int j = 0; j < count; j++)
        sum += (long double)x.re[j] * x.re[j] + (long double)x.im[j] * x.im[j];
    flyt_soft_number_put(call->result_type, result, (double)sqrtl(sum));
}

static void asum(const struct level1 *call, void *result)
{
    double sum = 0;

    BLOCKS_OF_X(call)
    for (int j = 0; j < count; j++)
        sum += fabs(x.re[j]) + fabs(x.im[j]);
    flyt_soft_number_put(call->result_type, result, sum);
}

static void dot(const struct level1 *call, void *result)
{
    double re = 0, im = 0, sign = call->is_conjugated ? -1 : 1;

    BLOCKS_OF_XY(call)
    for (int j = 0; j < count; j++) {
        re += x.re[j] * y.re[j] - sign * x.im[j] * y.im[j];
        im += x.re[j] * y.im[j] + sign * x.im[j] * y.re[j];
    }
    flyt_soft_number_put(call->result_type, result, CMPLX(re, im));
}

/* The first of the largest or smallest |re| + |im|, counted from 1. */
static void extreme(const struct level1 *call, void *result)
{
    double best = 0;
    int64_t index = 0;

    BLOCKS_OF_X(call)
    for (int j = 0; j < count; j++) {
        double value = fabs(x.re[j]) + fabs(x.im[j]);

        if (index == 0 || (call->is_smallest ? value < best : value > best)) {
            best = value;
            index = i + j + 1;
        }
    }
    if (call->result_bytes == sizeof(int))
        *(int *)result = (int)index;
    else
        *(int64_t *)result = index;
}

static void scal(const struct level1 *call, void *result)
{
    double _Complex alpha = flyt_soft_number_get(call->a_type, call->a.value);
    double re = creal(alpha), im = cimag(alpha);

    BLOCKS_OF_X(call)
    {
        for (int j = 0; j < count; j++) {
            double old = x.re[j];

            x.re[j] = re * old - im * x.im[j];
            x.im[j] = re * x.im[j] + im * old;
        }
        store(call, &call->x, &x, i, count);
    }
}

static void axpy(const struct level1 *call, void *result)
{
    double _Complex alpha = flyt_soft_number_get(call->a_type, call->a.value);
    double re = creal(alpha), im = cimag(alpha);

    if (re == 0 && im == 0)
        return;
    BLOCKS_OF_XY(call)
    {
        for (int j = 0; j < count; j++) {
            y.re[j] += re * x.re[j] - im * x.im[j];
            y.im[j] += re * x.im[j] + im * x.re[j];
        }
        store(call, &call->y, &y, i, count);
    }
}

static void copy(const struct level1 *call, void *result)
{
    BLOCKS_OF_X(call)
    store(call, &call->y, &x, i, count);
}

static void swap(const struct level1 *call, void *result)
{
    BLOCKS_OF_XY(call)
    {
        store(call, &call->x, &y, i, count);
        store(call, &call->y, &x, i, count);
    }
}

/* x = c x + s y, y = c y − conj(s) x */
static void rot(const struct level1 *call, void *result)
{
    double c = creal(flyt_soft_number_get(call->a_type, call->a.value));
    double _Complex s = flyt_soft_number_get(call->b_type, call->b.value);
    double re = creal(s), im = cimag(s);

    BLOCKS_OF_XY(call)
    {
        for (int j = 0; j < count; j++) {
            double x_re = x.re[j], x_im = x.im[j];

            x.re[j] = c * x_re + re * y.re[j] - im * y.im[j];
            x.im[j] = c * x_im + re * y.im[j] + im * y.re[j];
            y.re[j] = c * y.re[j] - (re * x_re + im * x_im);
            y.im[j] = c * y.im[j] - (re * x_im - im * x_re);
        }
        store(call, &call->x, &x, i, count);
        store(call, &call->y, &y, i, count);
    }
}

/* The matrix H of param[1..4], by the flag param[0]. */
static void rotm(const struct level1 *call, void *result)
{
    double p[5], h11, h12, h21, h22;

    for (int j = 0; j < 5; j++)
        p[j] = creal(flyt_soft_number_get(call->a_type, call->a.value + j * flyt_soft_number_bytes(call->a_type)));
    if (p[0] == -2)
        return;
    h11 = p[0] == 0 ? 1 : p[1];
    h21 = p[0] == 1 ? -1 : p[2];
    h12 = p[0] == 1 ? 1 : p[3];
    h22 = p[0] == 0 ? 1 : p[4];
    BLOCKS_OF_XY(call)
    {
        for (int j = 0; j < count; j++) {
            double old = x.re[j];

            x.re[j] = h11 * old + h12 * y.re[j];
            y.re[j] = h21 * old + h22 * y.re[j];
        }
        store(call, &call->x, &x, i, count);
        store(call, &call->y, &y, i, count);
    }
}

/* ---- pushing ---- */

static bool vector_is_in_reach(const struct level1 *call, const struct vector *v)
{
    uint64_t inc = v->inc < 0 ? -(uint64_t)v->inc : (uint64_t)v->inc;

    return !v->at || call->n <= 0 ||
           flyt_soft_work_reaches(v->at, ((uint64_t)(call->n - 1) * inc + 1) * flyt_soft_number_bytes(v->type));
}

static CUresult run(void *record)
{
    struct level1 *call = record;

    if (!flyt_soft_scalar_read(&call->a) || !flyt_soft_scalar_read(&call->b) || !vector_is_in_reach(call, &call->x) ||
        !vector_is_in_reach(call, &call->y) ||
        (call->result && !call->result_is_host && !flyt_soft_work_reaches(call->result, call->result_bytes)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    call->kernel(call, call->result);
    return CUDA_SUCCESS;
}

/* A result in host memory is there when the call returns. */
static cublasStatus_t push(cublasHandle_t handle, struct level1 *call)
{
    cublasStatus_t status;

    if (!flyt_soft_number_bytes(call->x.type) || (call->y.type && !flyt_soft_number_bytes(call->y.type)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (call->n > 0 && (!call->x.at || (call->y.inc && !call->y.at)))
        return CUBLAS_STATUS_INVALID_VALUE;
    call->result_is_host = call->result && handle->pointer_mode == CUBLAS_POINTER_MODE_HOST;
    status = flyt_soft_blas_push_work(handle, run, call, sizeof(*call));
    if (status == CUBLAS_STATUS_SUCCESS && call->result_is_host)
        status = flyt_soft_blas_status(cuStreamSynchronize(handle->stream));
    return status;
}

/* A result of one vector, or of two: y.inc is 0 where there is one. Those of one are nothing where inc is not positive.
 */
static cublasStatus_t reduce(cublasHandle_t handle, void (*kernel)(const struct level1 *, void *), int64_t n,
                             struct vector x, struct vector y, void *result, cudaDataType result_type, bool flag)
{
    struct level1 call = {
        .kernel = kernel,
        .n = n > 0 && (x.inc > 0 || y.inc) ? n : 0,
        .x = x,
        .y = y,
        .result = result,
        .result_type = result_type,
        .result_bytes = result_type == CUDA_R_64I ? sizeof(int64_t) : flyt_soft_number_bytes(result_type),
        .is_conjugated = flag,
        .is_smallest = flag,
    };

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!result)
        return CUBLAS_STATUS_INVALID_VALUE;
    return call.result_bytes ? push(handle, &call) : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* Changes vectors, with up to two scalars. */
static cublasStatus_t change(cublasHandle_t handle, void (*kernel)(const struct level1 *, void *), int64_t n,
                             struct vector x, struct vector y, const void *a, cudaDataType a_type, const void *b,
                             cudaDataType b_type)
{
    struct level1 call = {.kernel = kernel, .n = n, .x = x, .y = y, .a_type = a_type, .b_type = b_type};

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if ((a_type && !flyt_soft_number_bytes(a_type)) || (b_type && !flyt_soft_number_bytes(b_type)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (n <= 0 || (y.inc == 0 && !y.at && x.inc <= 0))
        return CUBLAS_STATUS_SUCCESS;
    if (kernel == scal || kernel == axpy || kernel == rot)
        FLYT_SOFT_CHECK(flyt_soft_scalar_set(handle, &call.a, a, flyt_soft_number_bytes(a_type)));
    if (kernel == rotm)
        FLYT_SOFT_CHECK(flyt_soft_scalar_set(handle, &call.a, a, 5 * flyt_soft_number_bytes(a_type)));
    if (kernel == rot)
        FLYT_SOFT_CHECK(flyt_soft_scalar_set(handle, &call.b, b, flyt_soft_number_bytes(b_type)));
    return push(handle, &call);
}

static const struct vector none;

#define VECTOR(at_, inc_, type_)                                                                                       \
    (struct vector)                                                                                                    \
    {                                                                                                                  \
        (at_), (inc_), (type_)                                                                                         \
    }
#define TYPE(letter_) flyt_soft_letter_type(FLYT_SOFT_##letter_)
/* The real type of a letter's type. */
#define REAL_TYPE(letter_) (flyt_soft_letter_real_bytes(FLYT_SOFT_##letter_) == 4 ? CUDA_R_32F : CUDA_R_64F)
#define INDEX_TYPE(I_)     (sizeof(I_) == sizeof(int) ? CUDA_R_32I : CUDA_R_64I)

/* ---- functions of one type: nrm2, asum, amax, amin have names of their own for complex numbers ---- */

#define REDUCES(letter_, T_, R_, I_, suffix_, nrm2_, asum_, amax_, amin_)                                              \
    FLYT_SOFT_CUBLAS cublas##nrm2_##_v2##suffix_(cublasHandle_t handle, I_ n, const T_ *x, I_ incx, R_ *result)        \
    {                                                                                                                  \
        return reduce(handle, nrm2, n, VECTOR(x, incx, TYPE(letter_)), none, result, REAL_TYPE(letter_), false);       \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##asum_##_v2##suffix_(cublasHandle_t handle, I_ n, const T_ *x, I_ incx, R_ *result)        \
    {                                                                                                                  \
        return reduce(handle, asum, n, VECTOR(x, incx, TYPE(letter_)), none, result, REAL_TYPE(letter_), false);       \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##amax_##_v2##suffix_(cublasHandle_t handle, I_ n, const T_ *x, I_ incx, I_ *result)        \
    {                                                                                                                  \
        return reduce(handle, extreme, n, VECTOR(x, incx, TYPE(letter_)), none, result, INDEX_TYPE(I_), false);        \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##amin_##_v2##suffix_(cublasHandle_t handle, I_ n, const T_ *x, I_ incx, I_ *result)        \
    {                                                                                                                  \
        return reduce(handle, extreme, n, VECTOR(x, incx, TYPE(letter_)), none, result, INDEX_TYPE(I_), true);         \
    }
#define REDUCES_BOTH(letter_, T_, R_, ...)                                                                             \
    REDUCES(letter_, T_, R_, int, , __VA_ARGS__) REDUCES(letter_, T_, R_, int64_t, _64, __VA_ARGS__)
REDUCES_BOTH(S, float, float, Snrm2, Sasum, Isamax, Isamin)
REDUCES_BOTH(D, double, double, Dnrm2, Dasum, Idamax, Idamin)
REDUCES_BOTH(C, cuComplex, float, Scnrm2, Scasum, Icamax, Icamin)
REDUCES_BOTH(Z, cuDoubleComplex, double, Dznrm2, Dzasum, Izamax, Izamin)

#define DOT(name_, letter_, T_, I_, suffix_, is_conjugated_)                                                           \
    FLYT_SOFT_CUBLAS cublas##name_##_v2##suffix_(cublasHandle_t handle, I_ n, const T_ *x, I_ incx, const T_ *y,       \
                                                 I_ incy, T_ *result)                                                  \
    {                                                                                                                  \
        return reduce(handle, dot, n, VECTOR(x, incx, TYPE(letter_)), VECTOR(y, incy, TYPE(letter_)), result,          \
                      TYPE(letter_), is_conjugated_);                                                                  \
    }
#define DOT_REAL(letter_, T_, R_, I_, suffix_) DOT(letter_##dot, letter_, T_, I_, suffix_, false)
#define DOT_COMPLEX(letter_, T_, R_, I_, suffix_)                                                                      \
    DOT(letter_##dotu, letter_, T_, I_, suffix_, false) DOT(letter_##dotc, letter_, T_, I_, suffix_, true)
FLYT_SOFT_REAL(DOT_REAL)
FLYT_SOFT_COMPLEX(DOT_COMPLEX)

#define SCAL(name_, letter_, T_, A_, a_type_, I_, suffix_)                                                             \
    FLYT_SOFT_CUBLAS cublas##name_##_v2##suffix_(cublasHandle_t handle, I_ n, const A_ *alpha, T_ *x, I_ incx)         \
    {                                                                                                                  \
        return change(handle, scal, n, VECTOR(x, incx, TYPE(letter_)), none, alpha, a_type_, NULL, CUDA_R_32F);        \
    }
#define CHANGES(letter_, T_, R_, I_, suffix_)                                                                          \
    SCAL(letter_##scal, letter_, T_, T_, TYPE(letter_), I_, suffix_)                                                   \
    FLYT_SOFT_CUBLAS cublas##letter_##axpy_v2##suffix_(cublasHandle_t handle, I_ n, const T_ *alpha, const T_ *x,      \
                                                       I_ incx, T_ *y, I_ incy)                                        \
    {                                                                                                                  \
        return change(handle, axpy, n, VECTOR(x, incx, TYPE(letter_)), VECTOR(y, incy, TYPE(letter_)), alpha,          \
                      TYPE(letter_), NULL, CUDA_R_32F);                                                                \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##copy_v2##suffix_(cublasHandle_t handle, I_ n, const T_ *x, I_ incx, T_ *y,       \
                                                       I_ incy)                                                        \
    {                                                                                                                  \
        return change(handle, copy, n, VECTOR(x, incx, TYPE(letter_)), VECTOR(y, incy, TYPE(letter_)), NULL,           \
                      CUDA_R_32F, NULL, CUDA_R_32F);                                                                   \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##swap_v2##suffix_(cublasHandle_t handle, I_ n, T_ *x, I_ incx, T_ *y, I_ incy)    \
    {                                                                                                                  \
        return change(handle, swap, n, VECTOR(x, incx, TYPE(letter_)), VECTOR(y, incy, TYPE(letter_)), NULL,           \
                      CUDA_R_32F, NULL, CUDA_R_32F);                                                                   \
    }
FLYT_SOFT_ALL(CHANGES)

#define ROT(name_, letter_, T_, R_, S_, s_type_, I_, suffix_)                                                          \
    FLYT_SOFT_CUBLAS cublas##name_##_v2##suffix_(cublasHandle_t handle, I_ n, T_ *x, I_ incx, T_ *y, I_ incy,          \
                                                 const R_ *c, const S_ *s)                                             \
    {                                                                                                                  \
        return change(handle, rot, n, VECTOR(x, incx, TYPE(letter_)), VECTOR(y, incy, TYPE(letter_)), c,               \
                      REAL_TYPE(letter_), s, s_type_);                                                                 \
    }
#define ROT_OWN(letter_, T_, R_, I_, suffix_) ROT(letter_##rot, letter_, T_, R_, T_, TYPE(letter_), I_, suffix_)
FLYT_SOFT_ALL(ROT_OWN)

#define ROTM(letter_, T_, R_, I_, suffix_)                                                                             \
    FLYT_SOFT_CUBLAS cublas##letter_##rotm_v2##suffix_(cublasHandle_t handle, I_ n, T_ *x, I_ incx, T_ *y, I_ incy,    \
                                                       const T_ *param)                                                \
    {                                                                                                                  \
        return change(handle, rotm, n, VECTOR(x, incx, TYPE(letter_)), VECTOR(y, incy, TYPE(letter_)), param,          \
                      TYPE(letter_), NULL, CUDA_R_32F);                                                                \
    }
FLYT_SOFT_REAL(ROTM)

/* Complex vectors with a real factor. */
#define REAL_FACTOR(letter_, real_, T_, R_, I_, suffix_)                                                               \
    SCAL(letter_##real_##scal, letter_, T_, R_, REAL_TYPE(letter_), I_, suffix_)                                       \
    ROT(letter_##real_##rot, letter_, T_, R_, R_, REAL_TYPE(letter_), I_, suffix_)
REAL_FACTOR(C, s, cuComplex, float, int, )
REAL_FACTOR(C, s, cuComplex, float, int64_t, _64)
REAL_FACTOR(Z, d, cuDoubleComplex, double, int, )
REAL_FACTOR(Z, d, cuDoubleComplex, double, int64_t, _64)

/* ---- functions with types as arguments ---- */

#define EX(I_, suffix_)                                                                                                \
    FLYT_SOFT_CUBLAS cublasNrm2Ex##suffix_(cublasHandle_t handle, I_ n, const void *x, cudaDataType xType, I_ incx,    \
                                           void *result, cudaDataType resultType, cudaDataType executionType)          \
    {                                                                                                                  \
        return reduce(handle, nrm2, n, VECTOR(x, incx, xType), none, result, resultType, false);                       \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublasAsumEx##suffix_(cublasHandle_t handle, I_ n, const void *x, cudaDataType xType, I_ incx,    \
                                           void *result, cudaDataType resultType, cudaDataType executiontype)          \
    {                                                                                                                  \
        return reduce(handle, asum, n, VECTOR(x, incx, xType), none, result, resultType, false);                       \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublasIamaxEx##suffix_(cublasHandle_t handle, I_ n, const void *x, cudaDataType xType, I_ incx,   \
                                            I_ *result)                                                                \
    {                                                                                                                  \
        return reduce(handle, extreme, n, VECTOR(x, incx, xType), none, result, INDEX_TYPE(I_), false);                \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublasIaminEx##suffix_(cublasHandle_t handle, I_ n, const void *x, cudaDataType xType, I_ incx,   \
                                            I_ *result)                                                                \
    {                                                                                                                  \
        return reduce(handle, extreme, n, VECTOR(x, incx, xType), none, result, INDEX_TYPE(I_), true);                 \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublasDotEx##suffix_(cublasHandle_t handle, I_ n, const void *x, cudaDataType xType, I_ incx,     \
                                          const void *y, cudaDataType yType, I_ incy, void *result,                    \
                                          cudaDataType resultType, cudaDataType executionType)                         \
    {                                                                                                                  \
        return reduce(handle, dot, n, VECTOR(x, incx, xType), VECTOR(y, incy, yType), result, resultType, false);      \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublasDotcEx##suffix_(cublasHandle_t handle, I_ n, const void *x, cudaDataType xType, I_ incx,    \
                                           const void *y, cudaDataType yType, I_ incy, void *result,                   \
                                           cudaDataType resultType, cudaDataType executionType)                        \
    {                                                                                                                  \
        return reduce(handle, dot, n, VECTOR(x, incx, xType), VECTOR(y, incy, yType), result, resultType, true);       \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublasScalEx##suffix_(cublasHandle_t handle, I_ n, const void *alpha, cudaDataType alphaType,     \
                                           void *x, cudaDataType xType, I_ incx, cudaDataType executionType)           \
    {                                                                                                                  \
        return change(handle, scal, n, VECTOR(x, incx, xType), none, alpha, alphaType, NULL, CUDA_R_32F);              \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublasAxpyEx##suffix_(cublasHandle_t handle, I_ n, const void *alpha, cudaDataType alphaType,     \
                                           const void *x, cudaDataType xType, I_ incx, void *y, cudaDataType yType,    \
                                           I_ incy, cudaDataType executiontype)                                        \
    {                                                                                                                  \
        return change(handle, axpy, n, VECTOR(x, incx, xType), VECTOR(y, incy, yType), alpha, alphaType, NULL,         \
                      CUDA_R_32F);                                                                                     \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublasCopyEx##suffix_(cublasHandle_t handle, I_ n, const void *x, cudaDataType xType, I_ incx,    \
                                           void *y, cudaDataType yType, I_ incy)                                       \
    {                                                                                                                  \
        return change(handle, copy, n, VECTOR(x, incx, xType), VECTOR(y, incy, yType), NULL, CUDA_R_32F, NULL,         \
                      CUDA_R_32F);                                                                                     \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublasSwapEx##suffix_(cublasHandle_t handle, I_ n, void *x, cudaDataType xType, I_ incx, void *y, \
                                           cudaDataType yType, I_ incy)                                                \
    {                                                                                                                  \
        return change(handle, swap, n, VECTOR(x, incx, xType), VECTOR(y, incy, yType), NULL, CUDA_R_32F, NULL,         \
                      CUDA_R_32F);                                                                                     \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublasRotEx##suffix_(cublasHandle_t handle, I_ n, void *x, cudaDataType xType, I_ incx, void *y,  \
                                          cudaDataType yType, I_ incy, const void *c, const void *s,                   \
                                          cudaDataType csType, cudaDataType executiontype)                             \
    {                                                                                                                  \
        return change(handle, rot, n, VECTOR(x, incx, xType), VECTOR(y, incy, yType), c, csType, s, csType);           \
    }
#define ROTM_EX(I_, suffix_)                                                                                           \
    FLYT_SOFT_CUBLAS cublasRotmEx##suffix_(cublasHandle_t handle, I_ n, void *x, cudaDataType xType, I_ incx, void *y, \
                                           cudaDataType yType, I_ incy, const void *param, cudaDataType paramType,     \
                                           cudaDataType executiontype)                                                 \
    {                                                                                                                  \
        return change(handle, rotm, n, VECTOR(x, incx, xType), VECTOR(y, incy, yType), param, paramType, NULL,         \
                      CUDA_R_32F);                                                                                     \
    }
EX(int, )
EX(int64_t, _64)
ROTM_EX(int, )
ROTM_EX(int64_t, _64)
