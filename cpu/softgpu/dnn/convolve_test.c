/* cuDNN's convolutions on the software GPU, in every type and layout, against their definition as plain loops. */
#include "cpu/softgpu/dnn/test.h"

struct shape {
    int dims, n, c, k, groups, from[3], window[3], padding[3], strides[3], dilation[3], mode;
};

/* Spatial dimensions are the last ones of each list. */
static const struct shape shapes[] = {
    {4, 2, 3, 4, 1, {1, 5, 6}, {1, 3, 2}, {0, 1, 0}, {1, 1, 2}, {1, 1, 1}, CUDNN_CROSS_CORRELATION},
    {4, 2, 4, 6, 2, {1, 7, 5}, {1, 2, 3}, {0, 1, 2}, {1, 2, 1}, {1, 2, 1}, CUDNN_CONVOLUTION},
    {4, 1, 3, 6, 3, {1, 4, 4}, {1, 3, 3}, {0, 1, 1}, {1, 1, 1}, {1, 1, 1}, CUDNN_CROSS_CORRELATION},
    {4, 3, 5, 2, 1, {1, 3, 3}, {1, 1, 1}, {0, 0, 0}, {1, 2, 2}, {1, 1, 1}, CUDNN_CROSS_CORRELATION},
    {5, 2, 2, 3, 1, {4, 3, 5}, {2, 2, 3}, {1, 0, 1}, {1, 1, 2}, {1, 1, 2}, CUDNN_CONVOLUTION},
    {3, 2, 3, 2, 1, {1, 1, 9}, {1, 1, 4}, {0, 0, 2}, {1, 1, 3}, {1, 1, 1}, CUDNN_CROSS_CORRELATION},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };
/* More outputs than are worked on at a time. */
static const struct shape large = {
    4, 1, 64, 2, 1, {1, 64, 60}, {1, 3, 3}, {0, 1, 1}, {1, 1, 1}, {1, 1, 1}, CUDNN_CROSS_CORRELATION};

/* One convolution with all its tensors. */
struct problem {
    const struct shape *shape;
    cudnnConvolutionDescriptor_t convolution;
    struct tensor x, w, y;
    int to[3];
};

static struct problem problem_new(const struct shape *s, int type, enum layout layout)
{
    struct problem p = {.shape = s};
    int first = 5 - s->dims, x_sizes[5] = {s->n, s->c}, w_sizes[5] = {s->k, s->c / s->groups}, y_sizes[5];

    memcpy(x_sizes + 2, s->from + first, (size_t)(s->dims - 2) * sizeof(int));
    memcpy(w_sizes + 2, s->window + first, (size_t)(s->dims - 2) * sizeof(int));
    p.x = tensor_new(type, layout, s->dims, x_sizes);
    p.w = filter_new(type, layout == WITH_GAPS ? PACKED : layout, s->dims, w_sizes);
    assert_ok(cudnnCreateConvolutionDescriptor(&p.convolution));
    assert_ok(cudnnSetConvolutionNdDescriptor(p.convolution, s->dims - 2, s->padding + first, s->strides + first,
                                              s->dilation + first, s->mode,
                                              type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT));
    assert_ok(cudnnSetConvolutionGroupCount(p.convolution, s->groups));
    assert_ok(cudnnGetConvolutionNdForwardOutputDim(p.convolution, p.x.desc, p.w.filter, s->dims, y_sizes));
    for (int d = 0; d < 3; d++) {
        p.to[d] = (s->from[d] + 2 * s->padding[d] - ((s->window[d] - 1) * s->dilation[d] + 1)) / s->strides[d] + 1;
        if (d >= first)
            assert_int_equal(y_sizes[2 + d - first], p.to[d]);
    }
    assert_int_equal(y_sizes[0], s->n);
    assert_int_equal(y_sizes[1], s->k);
    p.y = tensor_new(type, layout, s->dims, y_sizes);
    return p;
}

static void problem_free(struct problem *p)
{
    assert_ok(cudnnDestroyConvolutionDescriptor(p->convolution));
    tensor_free(&p->x);
    tensor_free(&p->w);
    tensor_free(&p->y);
}

/* Where number (i, j, place) is in an array with so many j and such a space. */
static size_t index_of(int i, int j, int j_count, const int space[3], const int place[3])
{
    size_t index = (size_t)i * (size_t)j_count + (size_t)j;

    for (int d = 0; d < 3; d++)
        index = index * (size_t)space[d] + (size_t)place[d];
    return index;
}

/* Counts `place` on within `space`; false: it was the last one. */
static bool next(int place[3], const int space[3])
{
    for (int d = 2; d >= 0; d--) {
        if (++place[d] < space[d])
            return true;
        place[d] = 0;
    }
    return false;
}

/* The definition: adds what each pair of an input and a weight has to do with an output to whichever array is `to`. */
static void convolve(const struct problem *p, const double *x, const double *w, const double *y, double *to)
{
    const struct shape *s = p->shape;
    int channels = s->c / s->groups, filters = s->k / s->groups;

    for (int n = 0; n < s->n; n++)
        for (int k = 0; k < s->k; k++)
            for (int c = 0; c < channels; c++) {
                int out[3] = {0};
                do {
                    int tap[3] = {0};
                    do {
                        int in[3], turned[3];
                        bool is_inside = true;

                        for (int d = 0; d < 3; d++) {
                            in[d] = out[d] * s->strides[d] - s->padding[d] + tap[d] * s->dilation[d];
                            turned[d] = s->mode == CUDNN_CONVOLUTION ? s->window[d] - 1 - tap[d] : tap[d];
                            is_inside = is_inside && in[d] >= 0 && in[d] < s->from[d];
                        }
                        if (!is_inside)
                            continue;
                        size_t of_x = index_of(n, k / filters * channels + c, s->c, s->from, in),
                               of_w = index_of(k, c, channels, s->window, turned),
                               of_y = index_of(n, k, s->k, p->to, out);
                        if (!y)
                            to[of_y] += x[of_x] * w[of_w];
                        else if (!x)
                            to[of_x] += w[of_w] * y[of_y];
                        else
                            to[of_w] += x[of_x] * y[of_y];
                    } while (next(tap, s->window));
                } while (next(out, p->to));
            }
}

static void check_problem(const struct shape *shape, int type, enum layout layout)
{
    static const double alpha = 0.75, beta = -0.5;
    struct problem p = problem_new(shape, type, layout);
    struct tensor *all[] = {&p.x, &p.w, &p.y};

    for (int which = 0; which < 3; which++) {
        struct tensor *result = all[which];
        double *before = copy_of(result), *wanted = calloc((size_t)result->count, sizeof(double));
        const void *a = scalar(type, alpha), *b = scalar(type, beta);

        convolve(&p, which == 0 ? NULL : p.x.value, which == 1 ? NULL : p.w.value, which == 2 ? NULL : p.y.value,
                 wanted);
        blend(wanted, before, result->count, alpha, beta);
        if (which == 0)
            assert_ok(cudnnConvolutionBackwardData(handle, a, p.w.filter, at(&p.w), p.y.desc, at(&p.y), p.convolution,
                                                   1, NULL, 0, b, p.x.desc, at(&p.x)));
        else if (which == 1)
            assert_ok(cudnnConvolutionBackwardFilter(handle, a, p.x.desc, at(&p.x), p.y.desc, at(&p.y), p.convolution,
                                                     1, NULL, 0, b, p.w.filter, at(&p.w)));
        else
            assert_ok(cudnnConvolutionForward(handle, a, p.x.desc, at(&p.x), p.w.filter, at(&p.w), p.convolution, 0,
                                              NULL, 0, b, p.y.desc, at(&p.y)));
        expect(result, wanted, (shape == &large ? 16 : 4) * tolerance_of(type));
        memcpy(result->value, before, (size_t)result->count * sizeof(double));
        upload(result);
        free(before);
        free(wanted);
    }
    problem_free(&p);
}

static void convolutions(void **state)
{
    for (unsigned s = 0; s < SHAPES; s++)
        for (unsigned t = 0; t < TYPES; t++)
            for (int layout = 0; layout < LAYOUTS; layout++)
                check_problem(&shapes[s], types[t], (enum layout)layout);
}

static void a_convolution_in_blocks(void **state)
{
    check_problem(&large, CUDNN_DATA_FLOAT, PACKED);
}

/* Without a number for it nothing is read of what was there before. */
static void what_was_there_is_not_read(void **state)
{
    struct problem p = problem_new(&shapes[0], CUDNN_DATA_FLOAT, PACKED);
    double *wanted = calloc((size_t)p.y.count, sizeof(double));

    convolve(&p, p.x.value, p.w.value, NULL, wanted);
    for (int64_t i = 0; i < p.y.count; i++)
        p.y.value[i] = NAN;
    upload(&p.y);
    assert_ok(cudnnConvolutionForward(handle, scalar(CUDNN_DATA_FLOAT, 1), p.x.desc, at(&p.x), p.w.filter, at(&p.w),
                                      p.convolution, 0, NULL, 0, scalar(CUDNN_DATA_FLOAT, 0), p.y.desc, at(&p.y)));
    expect(&p.y, wanted, 1e-5);
    free(wanted);
    problem_free(&p);
}

/* ---- biases ---- */

static void check_bias(int type, int activation_mode, double alpha2)
{
    struct problem p = problem_new(&shapes[0], type, INTERLEAVED);
    const int k = shapes[0].k, bias_sizes[] = {1, k, 1, 1};
    struct tensor bias = tensor_new(type, PACKED, 4, bias_sizes), z = tensor_new(type, WITH_GAPS, 4, p.y.shape.sizes);
    double *wanted = calloc((size_t)p.y.count, sizeof(double));
    cudnnActivationDescriptor_t activation;

    assert_ok(cudnnCreateActivationDescriptor(&activation));
    assert_ok(cudnnSetActivationDescriptor(activation, activation_mode, CUDNN_NOT_PROPAGATE_NAN, 0));
    convolve(&p, p.x.value, p.w.value, NULL, wanted);
    for (int64_t i = 0; i < p.y.count; i++) {
        int64_t space = p.y.count / (shapes[0].n * k);

        wanted[i] = 0.5 * wanted[i] + alpha2 * z.value[i] + bias.value[i / space % k];
        if (activation_mode == CUDNN_ACTIVATION_RELU)
            wanted[i] = fmax(wanted[i], 0);
    }
    assert_ok(cudnnConvolutionBiasActivationForward(handle, scalar(type, 0.5), p.x.desc, at(&p.x), p.w.filter, at(&p.w),
                                                    p.convolution, 1, NULL, 0, scalar(type, alpha2), z.desc, at(&z),
                                                    bias.desc, at(&bias), activation, p.y.desc, at(&p.y)));
    expect(&p.y, wanted, 4 * tolerance_of(type));

    double sums[8] = {0};
    for (int64_t i = 0; i < p.y.count; i++)
        sums[i / (p.y.count / (shapes[0].n * k)) % k] += p.y.value[i];
    blend(sums, bias.value, k, 2, 3);
    assert_ok(cudnnConvolutionBackwardBias(handle, scalar(type, 2), p.y.desc, at(&p.y), scalar(type, 3), bias.desc,
                                           at(&bias)));
    expect(&bias, sums, 4 * tolerance_of(type));
    assert_ok(cudnnDestroyActivationDescriptor(activation));
    free(wanted);
    tensor_free(&bias);
    tensor_free(&z);
    problem_free(&p);
}

static void biases(void **state)
{
    for (unsigned t = 0; t < TYPES; t++) {
        check_bias(types[t], CUDNN_ACTIVATION_RELU, -0.25);
        check_bias(types[t], CUDNN_ACTIVATION_IDENTITY, 0);
    }
}

/* ---- algorithms ---- */

static void check_perf(int count, const struct flyt_soft_dnn_perf *perf, bool is_measured)
{
    assert_int_equal(count, 1);
    assert_int_equal(perf->status, CUDNN_STATUS_SUCCESS);
    assert_int_equal(perf->memory, 0);
    assert_true(is_measured ? perf->time > 0 : perf->time == -1);
}

static void algorithms(void **state)
{
    struct problem p = problem_new(&shapes[1], CUDNN_DATA_DOUBLE, PACKED);
    struct flyt_soft_dnn_perf perf[2];
    double *wanted = calloc((size_t)p.y.count, sizeof(double));
    size_t bytes = 1;
    int count;

    assert_ok(cudnnGetConvolutionForwardAlgorithmMaxCount(handle, &count));
    assert_int_equal(count, 1);
    assert_ok(
        cudnnGetConvolutionForwardAlgorithm_v7(handle, p.x.desc, p.w.filter, p.convolution, p.y.desc, 2, &count, perf));
    check_perf(count, perf, false);
    assert_ok(cudnnGetConvolutionForwardWorkspaceSize(handle, p.x.desc, p.w.filter, p.convolution, p.y.desc,
                                                      perf[0].algo, &bytes));
    assert_int_equal(bytes, 0);
    assert_ok(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, p.w.filter, p.y.desc, p.convolution, p.x.desc, 2,
                                                          &count, perf));
    check_perf(count, perf, false);
    assert_ok(cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, p.x.desc, p.y.desc, p.convolution, p.w.filter, 2,
                                                            &count, perf));
    check_perf(count, perf, false);
    convolve(&p, p.x.value, p.w.value, NULL, wanted);
    assert_ok(cudnnFindConvolutionForwardAlgorithmEx(handle, p.x.desc, at(&p.x), p.w.filter, at(&p.w), p.convolution,
                                                     p.y.desc, at(&p.y), 2, &count, perf, NULL, 0));
    check_perf(count, perf, true);
    expect(&p.y, wanted, 1e-10);
    free(wanted);
    problem_free(&p);
}

static void wrong_arguments_are_refused(void **state)
{
    struct problem p = problem_new(&shapes[0], CUDNN_DATA_FLOAT, PACKED);
    struct tensor other = tensor_new(CUDNN_DATA_FLOAT, PACKED, 4, (const int[]){2, 4, 1, 1}),
                  half = tensor_new(CUDNN_DATA_HALF, PACKED, 4, p.y.shape.sizes);
    const void *one = scalar(CUDNN_DATA_FLOAT, 1);
    const int zeros[] = {0, 0}, ones[] = {1, 1}, huge[] = {1 << 16, 1 << 16, 1, 1};

#define CONVOLVE(alpha_, algo_, y_)                                                                                    \
    cudnnConvolutionForward(handle, alpha_, p.x.desc, at(&p.x), p.w.filter, at(&p.w), p.convolution, algo_, NULL, 0,   \
                            one, (y_).desc, at(&(y_)))
    assert_int_equal(CONVOLVE(NULL, 0, p.y), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(CONVOLVE(one, 8, p.y), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(CONVOLVE(one, 0, half), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(CONVOLVE(one, 0, other), CUDNN_STATUS_NOT_SUPPORTED);
    assert_ok(cudnnSetConvolutionGroupCount(p.convolution, 2));
    assert_int_equal(CONVOLVE(one, 0, p.y), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(cudnnSetConvolutionGroupCount(p.convolution, 0), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(cudnnSetConvolutionNdDescriptor(p.convolution, 2, zeros, zeros, ones, 1, CUDNN_DATA_FLOAT),
                     CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(cudnnSetConvolutionNdDescriptor(p.convolution, 4, zeros, ones, ones, 1, CUDNN_DATA_FLOAT),
                     CUDNN_STATUS_NOT_SUPPORTED);
    assert_int_equal(cudnnSetTensorNdDescriptor(other.desc, CUDNN_DATA_FLOAT, 4, huge, huge),
                     CUDNN_STATUS_NOT_SUPPORTED);
    assert_int_equal(cudnnSetTensorNdDescriptor(other.desc, 99, 4, p.y.shape.sizes, p.y.shape.strides),
                     CUDNN_STATUS_NOT_SUPPORTED);
    assert_int_equal(cudnnSetTensorNdDescriptor(other.desc, CUDNN_DATA_FLOAT, 4, (const int[]){1, 0, 1, 1}, huge),
                     CUDNN_STATUS_BAD_PARAM);
    tensor_free(&other);
    tensor_free(&half);
    problem_free(&p);
}

/* Last, for it breaks the device. */
static void what_is_no_memory_is_no_tensor(void **state)
{
    struct problem p = problem_new(&shapes[0], CUDNN_DATA_FLOAT, PACKED);
    const void *one = scalar(CUDNN_DATA_FLOAT, 1);

    assert_ok(cudnnConvolutionForward(handle, one, p.x.desc, (void *)16, p.w.filter, at(&p.w), p.convolution, 0, NULL,
                                      0, one, p.y.desc, at(&p.y)));
    assert_int_equal(cuStreamSynchronize(test_stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_ok(cudnnDestroyConvolutionDescriptor(p.convolution));
    free(p.x.value);
    free(p.w.value);
    free(p.y.value);
    free(p.x.desc);
    free(p.w.desc);
    free(p.w.filter);
    free(p.y.desc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(a_convolution_in_blocks),
        cmocka_unit_test(what_was_there_is_not_read),
        cmocka_unit_test(biases),
        cmocka_unit_test(algorithms),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(what_is_no_memory_is_no_tensor),
    };

    test_needs("libopenblas.so.0");
    return cmocka_run_group_tests(tests, start, NULL);
}
