/* cuBLAS: rotg and rotmg, which make rotations out of scalars. */
#include <complex.h>
#include <math.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/library/blas.h"
#include "cpu/softgpu/library/number.h"

enum { SCALARS_MAX = 5 };

/* All scalars are where the pointer mode says: some are read, some written. */
struct rotate {
    void (*make)(const struct rotate *call);
    void *at[SCALARS_MAX];
    cudaDataType types[SCALARS_MAX];
    unsigned counts[SCALARS_MAX]; /* numbers at each; 0: none */
};

static double real_at(const struct rotate *call, unsigned i)
{
    return creal(flyt_soft_number_get(call->types[i], call->at[i]));
}

static void put(const struct rotate *call, unsigned i, double _Complex value)
{
    flyt_soft_number_put(call->types[i], call->at[i], value);
}

/* a, b, c, s: as the reference BLAS has it; a becomes r, b becomes z, from which c and s can be made again. */
static void make_real(const struct rotate *call)
{
    double a = real_at(call, 0), b = real_at(call, 1), c = 1, s = 0, r = 0, z = 0;

    if (a != 0 || b != 0) {
        r = copysign(hypot(a, b), fabs(a) > fabs(b) ? a : b);
        c = a / r;
        s = b / r;
        z = fabs(a) > fabs(b) ? s : c != 0 ? 1 / c : 1;
    }
    put(call, 0, r);
    put(call, 1, z);
    put(call, 2, c);
    put(call, 3, s);
}

static void make_complex(const struct rotate *call)
{
    double _Complex a = flyt_soft_number_get(call->types[0], call->at[0]);
    double _Complex b = flyt_soft_number_get(call->types[1], call->at[1]), s = 1, r = b;
    double c = 0, norm;

    if (cabs(a) != 0) {
        norm = hypot(cabs(a), cabs(b));
        c = cabs(a) / norm;
        s = a / cabs(a) * conj(b) / norm;
        r = a / cabs(a) * norm;
    }
    put(call, 0, r);
    put(call, 2, c);
    put(call, 3, s);
}

/* d1, d2, x1, y1, param: the modified Givens transformation, scaled so that d1 and d2 stay within gamma's square. */
static void make_modified(const struct rotate *call)
{
    const double gamma = 4096, gamma2 = gamma * gamma;
    double d1 = real_at(call, 0), d2 = real_at(call, 1), x1 = real_at(call, 2), y1 = real_at(call, 3);
    double flag = -1, h11 = 0, h12 = 0, h21 = 0, h22 = 0, p1, p2, q1, q2, u, old;
    double params[5];

    p2 = d2 * y1;
    if (d1 >= 0 && p2 == 0) {
        put(call, 4, -2);
        return;
    }
    p1 = d1 * x1;
    q2 = p2 * y1;
    q1 = p1 * x1;
    if (d1 >= 0 && fabs(q1) > fabs(q2) && 1 + p2 * y1 / (p1 * x1) > 0) {
        h21 = -y1 / x1;
        h12 = p2 / p1;
        u = 1 - h12 * h21;
        flag = 0;
        d1 /= u;
        d2 /= u;
        x1 *= u;
    } else if (d1 >= 0 && fabs(q1) <= fabs(q2) && q2 >= 0) {
        flag = 1;
        h11 = p1 / p2;
        h22 = x1 / y1;
        u = 1 + h11 * h22;
        old = d2 / u;
        d2 = d1 / u;
        d1 = old;
        x1 = y1 * u;
    } else {
        d1 = d2 = x1 = 0;
    }
    for (int i = 0; i < 2; i++) { /* d1 with the upper row of H, d2 with the lower */
        double *d = i ? &d2 : &d1, *left = i ? &h21 : &h11, *right = i ? &h22 : &h12;

        while (*d != 0 && isfinite(*d) && (fabs(*d) <= 1 / gamma2 || fabs(*d) >= gamma2)) {
            double factor = fabs(*d) <= 1 / gamma2 ? gamma : 1 / gamma;

            if (flag == 0) {
                h11 = h22 = 1;
            } else if (flag > 0) {
                h21 = -1;
                h12 = 1;
            }
            flag = -1;
            *d *= factor * factor;
            x1 = i ? x1 : x1 / factor;
            *left /= factor;
            *right /= factor;
        }
    }
    params[0] = flag;
    params[1] = h11;
    params[2] = h21;
    params[3] = h12;
    params[4] = h22;
    put(call, 0, d1);
    put(call, 1, d2);
    put(call, 2, x1);
    for (int i = 0; i < 5; i++)
        if (i == 0 || flag < 0 || (flag > 0 ? i == 1 || i == 4 : i == 2 || i == 3))
            flyt_soft_number_put(call->types[4],
                                 (char *)call->at[4] + (unsigned)i * flyt_soft_number_bytes(call->types[4]), params[i]);
}

static CUresult run(void *record)
{
    const struct rotate *call = record;

    for (unsigned i = 0; i < SCALARS_MAX; i++)
        if (!flyt_soft_work_reaches(call->at[i], call->counts[i] * flyt_soft_number_bytes(call->types[i])))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
    call->make(call);
    return CUDA_SUCCESS;
}

/* What is in host memory is made at once: no work of the stream sees it. */
static cublasStatus_t rotate(cublasHandle_t handle, const struct rotate *call)
{
    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    for (unsigned i = 0; i < SCALARS_MAX; i++) {
        if (call->counts[i] && !call->at[i])
            return CUBLAS_STATUS_INVALID_VALUE;
        if (call->counts[i] && !flyt_soft_number_bytes(call->types[i]))
            return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE)
        return flyt_soft_blas_push_work(handle, run, call, sizeof(*call));
    call->make(call);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t rotg(cublasHandle_t handle, void *a, void *b, cudaDataType ab_type, void *c, cudaDataType c_type,
                           void *s, cudaDataType s_type)
{
    const struct rotate call = {
        .make = flyt_soft_number_is_complex(ab_type) ? make_complex : make_real,
        .at = {a, b, c, s},
        .types = {ab_type, ab_type, c_type, s_type},
        .counts = {1, 1, 1, 1},
    };

    return rotate(handle, &call);
}

FLYT_SOFT_CUBLAS cublasRotmgEx(cublasHandle_t handle, void *d1, cudaDataType d1Type, void *d2, cudaDataType d2Type,
                               void *x1, cudaDataType x1Type, const void *y1, cudaDataType y1Type, void *param,
                               cudaDataType paramType, cudaDataType executiontype)
{
    const struct rotate call = {
        .make = make_modified,
        .at = {d1, d2, x1, (void *)y1, param},
        .types = {d1Type, d2Type, x1Type, y1Type, paramType},
        .counts = {1, 1, 1, 1, 5},
    };

    return rotate(handle, &call);
}

/* c has the real type of the others. */
FLYT_SOFT_CUBLAS cublasRotgEx(cublasHandle_t handle, void *a, void *b, cudaDataType abType, void *c, void *s,
                              cudaDataType csType, cudaDataType executiontype)
{
    cudaDataType c_type = csType == CUDA_C_32F ? CUDA_R_32F : csType == CUDA_C_64F ? CUDA_R_64F : csType;

    return rotg(handle, a, b, abType, c, c_type, s, csType);
}

#define ROTG(letter_, T_, R_, type_, real_type_)                                                                       \
    FLYT_SOFT_CUBLAS cublas##letter_##rotg_v2(cublasHandle_t handle, T_ *a, T_ *b, R_ *c, T_ *s)                       \
    {                                                                                                                  \
        return rotg(handle, a, b, type_, c, real_type_, s, type_);                                                     \
    }
ROTG(S, float, float, CUDA_R_32F, CUDA_R_32F)
ROTG(D, double, double, CUDA_R_64F, CUDA_R_64F)
ROTG(C, cuComplex, float, CUDA_C_32F, CUDA_R_32F)
ROTG(Z, cuDoubleComplex, double, CUDA_C_64F, CUDA_R_64F)

#define ROTMG(letter_, T_, type_)                                                                                      \
    FLYT_SOFT_CUBLAS cublas##letter_##rotmg_v2(cublasHandle_t handle, T_ *d1, T_ *d2, T_ *x1, const T_ *y1, T_ *param) \
    {                                                                                                                  \
        return cublasRotmgEx(handle, d1, type_, d2, type_, x1, type_, y1, type_, param, type_, type_);                 \
    }
ROTMG(S, float, CUDA_R_32F)
ROTMG(D, double, CUDA_R_64F)
