/*
 * What the libraries' tests share: a software GPU, matrices of every type in its memory, random numbers, and a
 * comparison. What is expected is computed by plain loops over complex doubles, never by the libraries under test.
 */
#ifndef FLYT_SOFTGPU_LIBRARY_TEST_H
#define FLYT_SOFTGPU_LIBRARY_TEST_H

#include <complex.h>
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <cuda.h>
#include <library_types.h>

#include "cpu/softgpu/library/number.h"

#define assert_ok(call_) assert_int_equal((call_), 0)

typedef double _Complex test_number;

static CUstream test_stream;

/* Ends the test with 77 where a file of the system's is missing. */
static inline void test_needs(const char *file)
{
    if (!dlopen(file, RTLD_NOW)) {
        printf("skipped: needs %s\n", file);
        exit(77);
    }
}

static inline void test_start(void)
{
    CUcontext ctx;

    setenv("FLYT_SOFT_MEMORY", "256M", 0);
    assert_ok(cuInit(0));
    assert_ok(cuDevicePrimaryCtxRetain(&ctx, 0));
    assert_ok(cuCtxSetCurrent(ctx));
    assert_ok(cuStreamCreate(&test_stream, CU_STREAM_NON_BLOCKING));
}

/* A number between −1 and 1, in steps that every type but integers holds exactly. */
static inline double test_random(void)
{
    static uint32_t state = 1;

    state = state * 1664525 + 1013904223;
    return ((double)(state >> 28) - 8) / 8;
}

/* A vector in device memory with what it was made of. */
struct test_vector {
    cudaDataType type;
    size_t count;
    test_number *value; /* `count` of them, as the type holds them */
    CUdeviceptr device;
};

static inline void test_upload(struct test_vector *v)
{
    unsigned bytes = flyt_soft_number_bytes(v->type);
    char *raw = malloc(v->count * bytes);

    for (size_t i = 0; i < v->count; i++)
        flyt_soft_number_put(v->type, raw + i * bytes, v->value[i]);
    assert_ok(cuMemcpyHtoD(v->device, raw, v->count * bytes));
    free(raw);
}

/* Reads it back from the device, after what the stream has. */
static inline void test_download(struct test_vector *v)
{
    unsigned bytes = flyt_soft_number_bytes(v->type);
    char *raw = malloc(v->count * bytes);

    assert_ok(cuStreamSynchronize(test_stream));
    assert_ok(cuMemcpyDtoH(raw, v->device, v->count * bytes));
    for (size_t i = 0; i < v->count; i++)
        v->value[i] = flyt_soft_number_get(v->type, raw + i * bytes);
    free(raw);
}

static inline struct test_vector test_vector_new(cudaDataType type, size_t count)
{
    struct test_vector v = {.type = type, .count = count};
    bool is_integer = type == CUDA_R_8I || type == CUDA_R_32I;

    v.value = calloc(count, sizeof(*v.value));
    for (size_t i = 0; i < count; i++) {
        double re = test_random(), im = test_random();

        v.value[i] = is_integer ? re * 8 : flyt_soft_number_is_complex(type) ? CMPLX(re, im) : re;
    }
    assert_ok(cuMemAlloc(&v.device, count * flyt_soft_number_bytes(type)));
    test_upload(&v);
    return v;
}

static inline void test_vector_free(struct test_vector *v)
{
    assert_ok(cuMemFree(v->device));
    free(v->value);
}

/* Compares what the device has with what is expected, `tolerance` of the larger of 1 and the number. */
static inline void test_compare(struct test_vector *v, const test_number *expected, double tolerance)
{
    test_download(v);
    for (size_t i = 0; i < v->count; i++) {
        if (cabs(v->value[i] - expected[i]) <= tolerance * fmax(1, cabs(expected[i])))
            continue;
        fail_msg("number %zu is %g%+gi, not %g%+gi", i, creal(v->value[i]), cimag(v->value[i]), creal(expected[i]),
                 cimag(expected[i]));
    }
}

/* A copy of the numbers, to be changed into what is expected. */
static inline test_number *test_copy(const struct test_vector *v)
{
    test_number *copy = malloc(v->count * sizeof(*copy));

    memcpy(copy, v->value, v->count * sizeof(*copy));
    return copy;
}

static inline test_number test_op(const test_number *a, int leading, char trans, int i, int j)
{
    test_number x = trans == 'N' ? a[i + (ptrdiff_t)j * leading] : a[j + (ptrdiff_t)i * leading];

    return trans == 'C' ? conj(x) : x;
}

/* C = alpha op(A) op(B) + beta C */
static inline void test_product(char transa, char transb, int m, int n, int k, test_number alpha, const test_number *a,
                                int lda, const test_number *b, int ldb, test_number beta, test_number *c, int ldc)
{
    for (int j = 0; j < n; j++) {
        for (int i = 0; i < m; i++) {
            test_number sum = 0;

            for (int l = 0; l < k; l++)
                sum += test_op(a, lda, transa, i, l) * test_op(b, ldb, transb, l, j);
            c[i + (ptrdiff_t)j * ldc] = alpha * sum + (beta == 0 ? 0 : beta * c[i + (ptrdiff_t)j * ldc]);
        }
    }
}

static inline double test_tolerance(cudaDataType type)
{
    switch (type) {
    case CUDA_R_64F:
    case CUDA_C_64F:
        return 1e-12;
    case CUDA_R_16F:
        return 1e-3;
    case CUDA_R_16BF:
        return 8e-3;
    default:
        return 1e-5;
    }
}

#endif
