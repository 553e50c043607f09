/*
 * What the tests of cuDNN share: tensors in device memory, in any layout, and what is expected of them. A tensor's
 * numbers on the host are doubles without gaps; around them the device's memory has a pattern that nobody may change.
 */
#ifndef FLYT_SOFTGPU_DNN_TEST_H
#define FLYT_SOFTGPU_DNN_TEST_H

#include "cpu/softgpu/dnn/dnn.h"
#include "cpu/softgpu/library/test.h"

enum layout { PACKED, INTERLEAVED, WITH_GAPS, LAYOUTS };
enum { PATTERN = 0xee };

static cudnnHandle_t handle;
static const int types[] = {CUDNN_DATA_DOUBLE, CUDNN_DATA_FLOAT, CUDNN_DATA_HALF, CUDNN_DATA_BFLOAT16};
enum { TYPES = sizeof types / sizeof types[0] };

struct tensor {
    cudnnTensorDescriptor_t desc;
    cudnnFilterDescriptor_t filter; /* the same as a filter, where it is one */
    struct cudnnTensorStruct shape;
    int64_t count, span;
    double *value; /* as the type holds them */
    CUdeviceptr device;
};

static inline int start(void **state)
{
    test_start();
    assert_ok(cudnnCreate(&handle));
    assert_ok(cudnnSetStream(handle, test_stream));
    return 0;
}

static inline cudaDataType cuda_type(int type)
{
    return type == CUDNN_DATA_DOUBLE  ? CUDA_R_64F
           : type == CUDNN_DATA_FLOAT ? CUDA_R_32F
           : type == CUDNN_DATA_HALF  ? CUDA_R_16F
                                      : CUDA_R_16BF;
}

static inline double tolerance_of(int type)
{
    return type == CUDNN_DATA_DOUBLE ? 1e-10 : type == CUDNN_DATA_FLOAT ? 2e-6 : type == CUDNN_DATA_HALF ? 1e-3 : 8e-3;
}

/* Where number `index` of the tensor is, in numbers. */
static inline int64_t offset_of(const struct cudnnTensorStruct *shape, int64_t index)
{
    int64_t offset = 0;

    for (int i = shape->dims - 1; i >= 0; i--) {
        offset += index % shape->sizes[i] * shape->strides[i];
        index /= shape->sizes[i];
    }
    return offset;
}

/* A scalar in host memory, for tensors of a type. */
static inline const void *scalar(int type, double value)
{
    static _Alignas(8) unsigned char places[4][8];
    static unsigned next;
    void *place = places[next++ % 4];

    flyt_soft_number_put(type == CUDNN_DATA_DOUBLE ? CUDA_R_64F : CUDA_R_32F, place, value);
    return place;
}

static inline void upload(struct tensor *t)
{
    size_t bytes = flyt_soft_number_bytes(cuda_type(t->shape.type));
    char *raw = malloc((size_t)t->span * bytes);

    memset(raw, PATTERN, (size_t)t->span * bytes);
    for (int64_t i = 0; i < t->count; i++) {
        char *at = raw + (size_t)offset_of(&t->shape, i) * bytes;

        flyt_soft_number_put(cuda_type(t->shape.type), at, t->value[i]);
        t->value[i] = creal(flyt_soft_number_get(cuda_type(t->shape.type), at));
    }
    assert_ok(cuMemcpyHtoD(t->device, raw, (size_t)t->span * bytes));
    free(raw);
}

static inline void set_strides(struct cudnnTensorStruct *shape, enum layout layout)
{
    int order[CUDNN_DIM_MAX], stride = layout == WITH_GAPS ? 2 : 1, at = 0;

    order[at++] = 0;
    if (layout != INTERLEAVED)
        order[at++] = 1;
    for (int i = 2; i < shape->dims; i++)
        order[at++] = i;
    if (layout == INTERLEAVED)
        order[at++] = 1;
    while (at-- > 0) {
        shape->strides[order[at]] = stride;
        stride = stride * shape->sizes[order[at]] + (layout == WITH_GAPS);
    }
}

/* Numbers between -1 and 1 in any order, of which no two are the same (but where the type is too coarse) and none is 0,
 * where functions have edges. */
static inline void shuffle(double *values, int64_t count)
{
    static uint64_t state = 1;

    for (int64_t i = 0; i < count; i++) {
        int64_t other;

        state = state * 6364136223846793005u + 1442695040888963407u;
        other = (int64_t)((state >> 33) % (uint64_t)(i + 1));
        values[i] = values[other];
        values[other] = ((double)i + 0.25) / (double)count * 2 - 1;
    }
}

static inline struct tensor tensor_new(int type, enum layout layout, int dims, const int sizes[])
{
    struct tensor t = {.shape = {.type = type, .dims = dims}, .count = 1};
    size_t bytes;

    memcpy(t.shape.sizes, sizes, (size_t)dims * sizeof(sizes[0]));
    set_strides(&t.shape, layout);
    for (int i = 0; i < dims; i++)
        t.count *= sizes[i];
    t.span = offset_of(&t.shape, t.count - 1) + 1;
    assert_ok(cudnnCreateTensorDescriptor(&t.desc));
    assert_ok(cudnnSetTensorNdDescriptor(t.desc, type, dims, sizes, t.shape.strides));
    assert_ok(cudnnGetTensorSizeInBytes(t.desc, &bytes));
    assert_int_equal(bytes, t.span * flyt_soft_number_bytes(cuda_type(type)));
    t.value = malloc((size_t)t.count * sizeof(double));
    shuffle(t.value, t.count);
    assert_ok(cuMemAlloc(&t.device, bytes));
    upload(&t);
    return t;
}

/* Layouts of filters are PACKED and INTERLEAVED. */
static inline struct tensor filter_new(int type, enum layout layout, int dims, const int sizes[])
{
    struct tensor t = tensor_new(type, layout, dims, sizes);
    size_t bytes;

    assert_ok(cudnnCreateFilterDescriptor(&t.filter));
    assert_ok(cudnnSetFilterNdDescriptor(t.filter, type, layout == PACKED ? CUDNN_TENSOR_NCHW : CUDNN_TENSOR_NHWC, dims,
                                         sizes));
    assert_ok(cudnnGetFilterSizeInBytes(t.filter, &bytes));
    assert_int_equal(bytes, t.count * flyt_soft_number_bytes(cuda_type(type)));
    return t;
}

static inline void tensor_free(struct tensor *t)
{
    assert_ok(cuMemFree(t->device));
    assert_ok(cudnnDestroyTensorDescriptor(t->desc));
    if (t->filter)
        assert_ok(cudnnDestroyFilterDescriptor(t->filter));
    free(t->value);
}

/* A tensor's address for a call. */
static inline void *at(const struct tensor *t)
{
    return (void *)t->device;
}

static inline double *copy_of(const struct tensor *t)
{
    double *copy = malloc((size_t)t->count * sizeof(double));

    memcpy(copy, t->value, (size_t)t->count * sizeof(double));
    return copy;
}

/* Reads it back; what is between its numbers must be as it was. */
static inline void download(struct tensor *t)
{
    size_t bytes = flyt_soft_number_bytes(cuda_type(t->shape.type));
    unsigned char *raw = malloc((size_t)t->span * bytes);

    assert_ok(cuStreamSynchronize(test_stream));
    assert_ok(cuMemcpyDtoH(raw, t->device, (size_t)t->span * bytes));
    for (int64_t i = 0; i < t->count; i++) {
        void *place = raw + (size_t)offset_of(&t->shape, i) * bytes;

        t->value[i] = creal(flyt_soft_number_get(cuda_type(t->shape.type), place));
        memset(place, PATTERN, bytes);
    }
    for (size_t i = 0; i < (size_t)t->span * bytes; i++)
        assert_int_equal(raw[i], PATTERN);
    free(raw);
}

/* Reads it back and compares it; `tolerance` is of the larger of 1 and the number. */
static inline void expect(struct tensor *t, const double *wanted, double tolerance)
{
    download(t);
    for (int64_t i = 0; i < t->count; i++) {
        double got = t->value[i];

        if (isnan(wanted[i]) ? isnan(got) : fabs(got - wanted[i]) <= tolerance * fmax(1, fabs(wanted[i])))
            continue;
        fail_msg("type %d, number %d of %d: %g, not %g", t->shape.type, (int)i, (int)t->count, got, wanted[i]);
    }
}

/* What is expected of a gradient by finite differences: of sum(dy forward(x)) by each x. */
typedef void (*forward_fn)(const void *what, const double *x, double *y);

static inline void differentiate(forward_fn forward, const void *what, const double *x, int64_t x_count,
                                 const double *dy, int64_t y_count, double *ret_dx)
{
    const double h = 1e-5;
    double *moved = malloc((size_t)x_count * sizeof(double)), *y = malloc((size_t)y_count * sizeof(double));

    memcpy(moved, x, (size_t)x_count * sizeof(double));
    for (int64_t i = 0; i < x_count; i++) {
        double sums[2] = {0, 0};

        for (int side = 0; side < 2; side++) {
            moved[i] = x[i] + (side ? h : -h);
            forward(what, moved, y);
            for (int64_t k = 0; k < y_count; k++)
                sums[side] += dy[k] * y[k];
        }
        moved[i] = x[i];
        ret_dx[i] = (sums[1] - sums[0]) / (2 * h);
    }
    free(moved);
    free(y);
}

/* Finite differences are exact to about this. */
static inline double gradient_tolerance(int type)
{
    return fmax(4 * tolerance_of(type), 1e-7);
}

/* wanted = alpha wanted + beta what was there */
static inline void blend(double *wanted, const double *before, int64_t count, double alpha, double beta)
{
    for (int64_t i = 0; i < count; i++)
        wanted[i] = alpha * wanted[i] + beta * before[i];
}

#endif
