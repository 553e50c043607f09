/* cuDNN on the software GPU but for convolutions, in every type and layout, against plain loops over doubles. Gradients
 * are compared with finite differences of these. */
#include "cpu/softgpu/dnn/test.h"

static const int sizes_4d[] = {2, 3, 4, 5};

/* Calls `check` for each type and layout. */
static void each(void (*check)(int type, enum layout layout))
{
    for (unsigned t = 0; t < TYPES; t++)
        for (int layout = 0; layout < LAYOUTS; layout++)
            check(types[t], (enum layout)layout);
}

static double *zeros(int64_t count)
{
    return calloc((size_t)count, sizeof(double));
}

/* ---- tensors ---- */

/* The number of `small` that number `index` of `large` is made of, by the places in all dimensions. */
static double spread(const struct tensor *small, const struct tensor *large, int64_t index)
{
    int places[CUDNN_DIM_MAX];
    int64_t found = 0;

    for (int i = large->shape.dims - 1; i >= 0; i--) {
        places[i] = (int)(index % large->shape.sizes[i]);
        index /= large->shape.sizes[i];
    }
    for (int i = 0; i < small->shape.dims; i++)
        found = found * small->shape.sizes[i] + (small->shape.sizes[i] == 1 ? 0 : places[i]);
    return small->value[found];
}

static void check_sums(int type, enum layout layout)
{
    struct tensor a = tensor_new(type, PACKED, 4, (const int[]){1, 3, 1, 5}), b = tensor_new(type, layout, 4, sizes_4d),
                  c = tensor_new(type, WITH_GAPS, 4, sizes_4d);
    double *wanted = copy_of(&c);

    for (int64_t i = 0; i < c.count; i++)
        wanted[i] = 0.5 * spread(&a, &c, i) - 2 * wanted[i];
    assert_ok(cudnnAddTensor(handle, scalar(type, 0.5), a.desc, at(&a), scalar(type, -2), c.desc, at(&c)));
    expect(&c, wanted, tolerance_of(type));
    for (int64_t i = 0; i < c.count; i++)
        wanted[i] = -1.5 * b.value[i] + 0.25 * c.value[i];
    assert_ok(cudnnTransformTensor(handle, scalar(type, -1.5), b.desc, at(&b), scalar(type, 0.25), c.desc, at(&c)));
    expect(&c, wanted, tolerance_of(type));
    for (int64_t i = 0; i < b.count; i++)
        wanted[i] = 3 * b.value[i];
    assert_ok(cudnnScaleTensor(handle, b.desc, at(&b), scalar(type, 3)));
    expect(&b, wanted, tolerance_of(type));
    free(wanted);
    tensor_free(&a);
    tensor_free(&b);
    tensor_free(&c);
}

static void sums_and_copies(void **state)
{
    each(check_sums);
}

static double combined(int op, double a, double b)
{
    const double all[] = {a + b, a * b, a < b ? a : b, a > b ? a : b, sqrt(a), 1 - a};

    return all[op];
}

static void check_operation(int op, int type, enum layout layout)
{
    struct tensor a = tensor_new(type, layout, 4, sizes_4d), b = tensor_new(type, PACKED, 4, (const int[]){2, 1, 4, 1}),
                  c = tensor_new(type, INTERLEAVED, 4, sizes_4d);
    double *wanted = copy_of(&c);
    cudnnOpTensorDescriptor_t desc;

    for (int64_t i = 0; i < a.count && op == CUDNN_OP_TENSOR_SQRT; i++)
        a.value[i] = fabs(a.value[i]);
    upload(&a);
    for (int64_t i = 0; i < c.count; i++)
        wanted[i] = combined(op, 0.5 * a.value[i], -2 * spread(&b, &c, i)) + 3 * wanted[i];
    assert_ok(cudnnCreateOpTensorDescriptor(&desc));
    assert_ok(cudnnSetOpTensorDescriptor(desc, op, type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT,
                                         CUDNN_NOT_PROPAGATE_NAN));
    assert_ok(cudnnOpTensor(handle, desc, scalar(type, 0.5), a.desc, at(&a), scalar(type, -2), b.desc, at(&b),
                            scalar(type, 3), c.desc, at(&c)));
    expect(&c, wanted, tolerance_of(type));
    assert_ok(cudnnDestroyOpTensorDescriptor(desc));
    free(wanted);
    tensor_free(&a);
    tensor_free(&b);
    tensor_free(&c);
}

static void operations_on_two_tensors(void **state)
{
    for (int op = CUDNN_OP_TENSOR_ADD; op <= CUDNN_OP_TENSOR_NOT; op++)
        for (unsigned t = 0; t < TYPES; t++)
            for (int layout = 0; layout < LAYOUTS; layout++)
                check_operation(op, types[t], (enum layout)layout);
}

/* Over `count` numbers; *ret_index: which one a smallest or largest is. */
static double reduced(int op, const double *x, int count, unsigned *ret_index)
{
    double sum = 0, product = 1, nonzero = 1, least = x[0], most = x[0], widest = 0, absolute = 0, squares = 0;
    unsigned at[3] = {0};

    for (int i = 0; i < count; i++) {
        sum += x[i];
        product *= x[i];
        nonzero *= x[i] == 0 ? 1 : x[i];
        absolute += fabs(x[i]);
        squares += x[i] * x[i];
        at[0] = x[i] < least ? (unsigned)i : at[0];
        at[1] = x[i] > most ? (unsigned)i : at[1];
        at[2] = fabs(x[i]) > widest ? (unsigned)i : at[2];
        least = fmin(least, x[i]);
        most = fmax(most, x[i]);
        widest = fmax(widest, fabs(x[i]));
    }
    const double all[] = {sum, product, least, most, widest, sum / count, absolute, sqrt(squares), nonzero};
    *ret_index = op >= CUDNN_REDUCE_TENSOR_MIN && op <= CUDNN_REDUCE_TENSOR_AMAX ? at[op - CUDNN_REDUCE_TENSOR_MIN] : 0;
    return all[op];
}

static void check_reduction(int op, int type, enum layout layout)
{
    bool has_indices = op >= CUDNN_REDUCE_TENSOR_MIN && op <= CUDNN_REDUCE_TENSOR_AMAX;
    struct tensor a = tensor_new(type, layout, 4, sizes_4d), c = tensor_new(type, layout, 4, (const int[]){1, 3, 1, 5});
    double *wanted = copy_of(&c);
    unsigned indices[15], got[15];
    cudnnReduceTensorDescriptor_t desc;
    CUdeviceptr place;
    size_t bytes;

    for (int i = 0; i < 15; i++) {
        double of_one[8];

        for (int k = 0; k < 8; k++)
            of_one[k] = a.value[((k / 4 * 3 + i / 5) * 4 + k % 4) * 5 + i % 5];
        wanted[i] = 2 * reduced(op, of_one, 8, &indices[i]) - wanted[i];
    }
    assert_ok(cuMemAlloc(&place, sizeof(got)));
    assert_ok(cudnnCreateReduceTensorDescriptor(&desc));
    assert_ok(cudnnSetReduceTensorDescriptor(desc, op, type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT,
                                             CUDNN_PROPAGATE_NAN, CUDNN_REDUCE_TENSOR_FLATTENED_INDICES,
                                             CUDNN_32BIT_INDICES));
    assert_ok(cudnnGetReductionIndicesSize(handle, desc, a.desc, c.desc, &bytes));
    assert_int_equal(bytes, has_indices ? sizeof(got) : 0);
    assert_ok(cudnnReduceTensor(handle, desc, (void *)place, bytes, NULL, 0, scalar(type, 2), a.desc, at(&a),
                                scalar(type, -1), c.desc, at(&c)));
    expect(&c, wanted, 2 * tolerance_of(type));
    assert_ok(cuMemcpyDtoH(got, place, sizeof(got)));
    if (has_indices)
        assert_memory_equal(got, indices, sizeof(got));
    assert_ok(cudnnDestroyReduceTensorDescriptor(desc));
    assert_ok(cuMemFree(place));
    free(wanted);
    tensor_free(&a);
    tensor_free(&c);
}

static void reductions(void **state)
{
    for (int op = CUDNN_REDUCE_TENSOR_ADD; op <= CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS; op++)
        for (unsigned t = 0; t < TYPES; t++)
            for (int layout = 0; layout < LAYOUTS; layout++)
                check_reduction(op, types[t], (enum layout)layout);
}

/* ---- functions of one tensor, with their gradients ---- */

/* What a function's forward and backward calls have in common. x and y, dx and dy are alike where `is_even`. */
struct function {
    forward_fn forward;
    const void *what;
    int (*call)(const void *what, const void *alpha, const struct tensor *x, const void *beta, const struct tensor *y);
    int (*call_backward)(const void *what, const void *alpha, const struct tensor *x, const struct tensor *y,
                         const struct tensor *dy, const void *beta, const struct tensor *dx);
    int dims;
    const int *x_sizes, *y_sizes;
};

static void check_function(const struct function *f, int type, enum layout layout)
{
    struct tensor x = tensor_new(type, layout, f->dims, f->x_sizes),
                  dx = tensor_new(type, layout == PACKED ? INTERLEAVED : layout, f->dims, f->x_sizes),
                  y = tensor_new(type, layout, f->dims, f->y_sizes),
                  dy = tensor_new(type, INTERLEAVED, f->dims, f->y_sizes);
    double *wanted = zeros(y.count), *gradient = zeros(x.count), *y_before = copy_of(&y), *dx_before = copy_of(&dx);

    f->forward(f->what, x.value, wanted);
    blend(wanted, y_before, y.count, 0.75, 0.5);
    assert_ok(f->call(f->what, scalar(type, 0.75), &x, scalar(type, 0.5), &y));
    expect(&y, wanted, 4 * tolerance_of(type));

    assert_ok(f->call(f->what, scalar(type, 1), &x, scalar(type, 0), &y));
    differentiate(f->forward, f->what, x.value, x.count, dy.value, y.count, gradient);
    blend(gradient, dx_before, x.count, 2, -0.5);
    assert_ok(f->call_backward(f->what, scalar(type, 2), &x, &y, &dy, scalar(type, -0.5), &dx));
    expect(&dx, gradient, 4 * gradient_tolerance(type));
    free(wanted);
    free(gradient);
    free(y_before);
    free(dx_before);
    tensor_free(&x);
    tensor_free(&y);
    tensor_free(&dx);
    tensor_free(&dy);
}

static void check_everywhere(const struct function *f)
{
    for (unsigned t = 0; t < TYPES; t++)
        for (int layout = 0; layout < LAYOUTS; layout++)
            check_function(f, types[t], (enum layout)layout);
}

/* ---- activations ---- */

struct activation {
    int mode;
    cudnnActivationDescriptor_t desc;
};

static void forward_activation(const void *what, const double *x, double *y)
{
    const struct activation *a = what;

    for (int i = 0; i < 2 * 3 * 4 * 5; i++) {
        const double all[] = {[CUDNN_ACTIVATION_SIGMOID] = 1 / (1 + exp(-x[i])),
                              [CUDNN_ACTIVATION_RELU] = fmax(x[i], 0),
                              [CUDNN_ACTIVATION_TANH] = tanh(x[i]),
                              [CUDNN_ACTIVATION_CLIPPED_RELU] = fmin(fmax(x[i], 0), 0.55),
                              [CUDNN_ACTIVATION_ELU] = x[i] > 0 ? x[i] : 0.55 * (exp(x[i]) - 1),
                              [CUDNN_ACTIVATION_SWISH] = x[i] / (1 + exp(-1.5 * x[i]))};

        y[i] = all[a->mode];
    }
}

static int call_activation(const void *what, const void *alpha, const struct tensor *x, const void *beta,
                           const struct tensor *y)
{
    return cudnnActivationForward(handle, ((const struct activation *)what)->desc, alpha, x->desc, at(x), beta, y->desc,
                                  at(y));
}

static int call_activation_backward(const void *what, const void *alpha, const struct tensor *x, const struct tensor *y,
                                    const struct tensor *dy, const void *beta, const struct tensor *dx)
{
    return cudnnActivationBackward(handle, ((const struct activation *)what)->desc, alpha, y->desc, at(y), dy->desc,
                                   at(dy), x->desc, at(x), beta, dx->desc, at(dx));
}

static void activations(void **state)
{
    for (int mode = CUDNN_ACTIVATION_SIGMOID; mode <= CUDNN_ACTIVATION_SWISH; mode++) {
        struct activation a = {.mode = mode};
        struct function f = {forward_activation, &a, call_activation, call_activation_backward, 4, sizes_4d, sizes_4d};

        if (mode == CUDNN_ACTIVATION_IDENTITY)
            continue;
        assert_ok(cudnnCreateActivationDescriptor(&a.desc));
        assert_ok(cudnnSetActivationDescriptor(a.desc, mode, CUDNN_PROPAGATE_NAN, 0.55));
        assert_ok(cudnnSetActivationDescriptorSwishBeta(a.desc, 1.5));
        check_everywhere(&f);
        assert_ok(cudnnDestroyActivationDescriptor(a.desc));
    }
}

static void what_is_no_number_is_passed_on_when_asked(void **state)
{
    struct tensor x = tensor_new(CUDNN_DATA_FLOAT, PACKED, 4, sizes_4d);
    const void *one = scalar(CUDNN_DATA_FLOAT, 1), *zero = scalar(CUDNN_DATA_FLOAT, 0);
    cudnnActivationDescriptor_t desc;

    assert_ok(cudnnCreateActivationDescriptor(&desc));
    for (int option = CUDNN_NOT_PROPAGATE_NAN; option <= CUDNN_PROPAGATE_NAN; option++) {
        x.value[7] = NAN;
        upload(&x);
        double *wanted = copy_of(&x);
        for (int64_t i = 0; i < x.count; i++)
            wanted[i] = fmax(x.value[i], 0);
        wanted[7] = option == CUDNN_PROPAGATE_NAN ? NAN : 0;
        assert_ok(cudnnSetActivationDescriptor(desc, CUDNN_ACTIVATION_RELU, option, 0));
        assert_ok(cudnnActivationForward(handle, desc, one, x.desc, at(&x), zero, x.desc, at(&x)));
        expect(&x, wanted, 1e-6);
        free(wanted);
    }
    assert_ok(cudnnDestroyActivationDescriptor(desc));
    tensor_free(&x);
}

/* ---- softmax ---- */

struct softmax {
    int algo, mode;
};

static void forward_softmax(const void *what, const double *x, double *y)
{
    const struct softmax *s = what;

    for (int n = 0; n < 2; n++) {
        for (int i = 0; i < 60; i++) {
            double sum = 0;

            for (int k = 0; k < 60; k++)
                if (s->mode == CUDNN_SOFTMAX_MODE_INSTANCE || k % 20 == i % 20)
                    sum += exp(x[n * 60 + k]);
            y[n * 60 + i] = exp(x[n * 60 + i]) / sum;
            if (s->algo == CUDNN_SOFTMAX_LOG)
                y[n * 60 + i] = log(y[n * 60 + i]);
        }
    }
}

static int call_softmax(const void *what, const void *alpha, const struct tensor *x, const void *beta,
                        const struct tensor *y)
{
    const struct softmax *s = what;

    return cudnnSoftmaxForward(handle, s->algo, s->mode, alpha, x->desc, at(x), beta, y->desc, at(y));
}

static int call_softmax_backward(const void *what, const void *alpha, const struct tensor *x, const struct tensor *y,
                                 const struct tensor *dy, const void *beta, const struct tensor *dx)
{
    const struct softmax *s = what;

    return cudnnSoftmaxBackward(handle, s->algo, s->mode, alpha, y->desc, at(y), dy->desc, at(dy), beta, dx->desc,
                                at(dx));
}

static void softmaxes(void **state)
{
    for (int algo = CUDNN_SOFTMAX_FAST; algo <= CUDNN_SOFTMAX_LOG; algo++) {
        for (int mode = CUDNN_SOFTMAX_MODE_INSTANCE; mode <= CUDNN_SOFTMAX_MODE_CHANNEL; mode++) {
            struct softmax s = {algo, mode};
            struct function f = {forward_softmax, &s, call_softmax, call_softmax_backward, 4, sizes_4d, sizes_4d};

            check_everywhere(&f);
        }
    }
}

static void large_numbers_do_not_overflow(void **state)
{
    struct tensor x = tensor_new(CUDNN_DATA_FLOAT, PACKED, 4, (const int[]){1, 2, 1, 1});
    const void *one = scalar(CUDNN_DATA_FLOAT, 1), *zero = scalar(CUDNN_DATA_FLOAT, 0);
    const double wanted[] = {0.5, 0.5};

    x.value[0] = x.value[1] = 5000;
    upload(&x);
    assert_ok(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, one, x.desc, at(&x), zero,
                                  x.desc, at(&x)));
    expect(&x, wanted, 1e-6);
    tensor_free(&x);
}

/* ---- pooling ---- */

struct pooling {
    int dims, mode, window[3], padding[3], strides[3];
    int x_sizes[5], y_sizes[5];
    cudnnPoolingDescriptor_t desc;
};

/* Of one output: all inputs are asked whether they are in its window. */
static double pool(const struct pooling *p, const double *x, const int out[3])
{
    const int *from = p->x_sizes + 2;
    int space = p->dims - 2, numbers = 1, seen = 0, whole = 1;
    double sum = 0, most = -INFINITY;

    for (int d = 0; d < space; d++) {
        numbers *= from[d];
        whole *= p->window[d];
    }
    for (int i = 0; i < numbers; i++) {
        bool is_inside = true;
        for (int d = space - 1, rest = i; d >= 0; rest /= from[d], d--) {
            int distance = rest % from[d] - (out[d] * p->strides[d] - p->padding[d]);

            is_inside = is_inside && distance >= 0 && distance < p->window[d];
        }
        if (!is_inside)
            continue;
        seen++;
        sum += x[i];
        most = fmax(most, x[i]);
    }
    return p->mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING   ? sum / whole
           : p->mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING ? sum / seen
                                                                    : most;
}

static void forward_pooling(const void *what, const double *x, double *y)
{
    const struct pooling *p = what;
    int from = 1, to = 1;

    for (int d = 2; d < p->dims; d++) {
        from *= p->x_sizes[d];
        to *= p->y_sizes[d];
    }
    for (int plane = 0; plane < p->x_sizes[0] * p->x_sizes[1]; plane++) {
        for (int i = 0; i < to; i++) {
            int out[3];
            for (int d = p->dims - 3, rest = i; d >= 0; rest /= p->y_sizes[d + 2], d--)
                out[d] = rest % p->y_sizes[d + 2];
            y[plane * to + i] = pool(p, x + plane * from, out);
        }
    }
}

static int call_pooling(const void *what, const void *alpha, const struct tensor *x, const void *beta,
                        const struct tensor *y)
{
    return cudnnPoolingForward(handle, ((const struct pooling *)what)->desc, alpha, x->desc, at(x), beta, y->desc,
                               at(y));
}

static int call_pooling_backward(const void *what, const void *alpha, const struct tensor *x, const struct tensor *y,
                                 const struct tensor *dy, const void *beta, const struct tensor *dx)
{
    return cudnnPoolingBackward(handle, ((const struct pooling *)what)->desc, alpha, y->desc, at(y), dy->desc, at(dy),
                                x->desc, at(x), beta, dx->desc, at(dx));
}

static void poolings(void **state)
{
    static const struct pooling all[] = {
        {4, 0, {2, 3}, {1, 1}, {2, 1}, {2, 3, 4, 5}, {2, 3, 3, 5}, NULL},
        {5, 0, {2, 1, 3}, {0, 0, 1}, {2, 2, 2}, {2, 2, 4, 3, 5}, {2, 2, 2, 2, 3}, NULL},
        {3, 0, {3}, {1}, {2}, {2, 3, 7}, {2, 3, 4}, NULL},
    };

    for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        for (int mode = CUDNN_POOLING_MAX; mode <= CUDNN_POOLING_MAX_DETERMINISTIC; mode++) {
            struct pooling p = all[i];
            struct function f = {forward_pooling, &p,        call_pooling, call_pooling_backward,
                                 p.dims,          p.x_sizes, p.y_sizes};
            cudnnTensorDescriptor_t x;
            int found[5], strides[5] = {1, 1, 1, 1, 1};

            p.mode = mode;
            assert_ok(cudnnCreatePoolingDescriptor(&p.desc));
            assert_ok(cudnnSetPoolingNdDescriptor(p.desc, mode, CUDNN_PROPAGATE_NAN, p.dims - 2, p.window, p.padding,
                                                  p.strides));
            assert_ok(cudnnCreateTensorDescriptor(&x));
            assert_ok(cudnnSetTensorNdDescriptor(x, CUDNN_DATA_FLOAT, p.dims, p.x_sizes, strides));
            assert_ok(cudnnGetPoolingNdForwardOutputDim(p.desc, x, p.dims, found));
            assert_memory_equal(found, p.y_sizes, (size_t)p.dims * sizeof(int));
            assert_ok(cudnnDestroyTensorDescriptor(x));
            check_everywhere(&f);
            assert_ok(cudnnDestroyPoolingDescriptor(p.desc));
        }
    }
}

/* ---- dropout ---- */

static void what_is_dropped_is_dropped_backward_too(void **state)
{
    static const int many[] = {1, 10, 40, 50};
    enum { COUNT = 20000 };
    struct tensor x = tensor_new(CUDNN_DATA_FLOAT, PACKED, 4, many), y = tensor_new(CUDNN_DATA_FLOAT, PACKED, 4, many);
    cudnnDropoutDescriptor_t desc;
    CUdeviceptr states, reserve;
    size_t states_bytes, bytes;
    double *first, *wanted = zeros(COUNT);
    int dropped = 0, same = 0;

    assert_ok(cudnnCreateDropoutDescriptor(&desc));
    assert_ok(cudnnDropoutGetStatesSize(handle, &states_bytes));
    assert_ok(cudnnDropoutGetReserveSpaceSize(x.desc, &bytes));
    assert_ok(cuMemAlloc(&states, states_bytes));
    assert_ok(cuMemAlloc(&reserve, bytes));
    assert_ok(cudnnSetDropoutDescriptor(desc, handle, 0.25f, (void *)states, states_bytes, 42));
    assert_ok(cudnnDropoutForward(handle, desc, x.desc, at(&x), y.desc, at(&y), (void *)reserve, bytes));
    download(&y);
    first = copy_of(&y);
    for (int i = 0; i < COUNT; i++) {
        dropped += y.value[i] == 0;
        assert_true(y.value[i] == 0 || fabs(y.value[i] - x.value[i] / 0.75) < 1e-6);
        wanted[i] = y.value[i] == 0 ? 0 : x.value[i] / 0.75;
    }
    assert_true(abs(dropped - COUNT / 4) < 4 * 62); /* four standard deviations */
    assert_ok(cudnnDropoutBackward(handle, desc, x.desc, at(&x), y.desc, at(&y), (void *)reserve, bytes));
    expect(&y, wanted, 1e-6);

    /* The states go on from where they are, also under another descriptor; the same seed begins again. */
    assert_ok(cudnnRestoreDropoutDescriptor(desc, handle, 0.25f, (void *)states, states_bytes, 42));
    assert_ok(cudnnDropoutForward(handle, desc, x.desc, at(&x), y.desc, at(&y), (void *)reserve, bytes));
    download(&y);
    for (int i = 0; i < COUNT; i++)
        same += (y.value[i] == 0) == (first[i] == 0);
    assert_true(same < COUNT * 0.65); /* 0.625 of them, by chance */
    assert_ok(cudnnSetDropoutDescriptor(desc, handle, 0.25f, (void *)states, states_bytes, 42));
    assert_ok(cudnnDropoutForward(handle, desc, x.desc, at(&x), y.desc, at(&y), (void *)reserve, bytes));
    expect(&y, first, 0);
    assert_int_equal(cudnnDropoutForward(handle, desc, x.desc, at(&x), y.desc, at(&y), (void *)reserve, bytes - 1),
                     CUDNN_STATUS_BAD_PARAM);
    assert_ok(cudnnDestroyDropoutDescriptor(desc));
    assert_ok(cuMemFree(states));
    assert_ok(cuMemFree(reserve));
    free(first);
    free(wanted);
    tensor_free(&x);
    tensor_free(&y);
}

/* ---- the rest ---- */

static void versions(void **state)
{
    int major = 0;
    CUstream stream = NULL;

    assert_ok(cudnnGetProperty(MAJOR_VERSION, &major));
    assert_int_equal(major, 9);
    assert_int_equal(cudnnGetVersion() / 10000, 9);
    assert_int_equal(cudnnGetProperty((libraryPropertyType)3, &major), CUDNN_STATUS_BAD_PARAM);
    assert_ok(cudnnGraphVersionCheck());
    assert_ok(cudnnGetStream(handle, &stream));
    assert_ptr_equal(stream, test_stream);
}

static void wrong_arguments_are_refused(void **state)
{
    struct tensor x = tensor_new(CUDNN_DATA_FLOAT, PACKED, 4, sizes_4d),
                  other = tensor_new(CUDNN_DATA_FLOAT, PACKED, 4, (const int[]){2, 3, 5, 4}),
                  half = tensor_new(CUDNN_DATA_HALF, PACKED, 4, sizes_4d);
    const void *one = scalar(CUDNN_DATA_FLOAT, 1);
    cudnnActivationDescriptor_t identity;
    cudnnTensorDescriptor_t unset;

#define SOFTMAX(handle_, algo_, y_desc_, y_)                                                                           \
    cudnnSoftmaxForward(handle_, algo_, 0, one, x.desc, at(&x), one, y_desc_, y_)
    assert_ok(cudnnCreateTensorDescriptor(&unset));
    assert_int_equal(SOFTMAX(NULL, 0, x.desc, at(&x)), CUDNN_STATUS_NOT_INITIALIZED);
    assert_int_equal(SOFTMAX(handle, 3, x.desc, at(&x)), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(SOFTMAX(handle, 0, x.desc, NULL), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(SOFTMAX(handle, 0, other.desc, at(&other)), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(SOFTMAX(handle, 0, half.desc, at(&half)), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(SOFTMAX(handle, 0, unset, at(&x)), CUDNN_STATUS_BAD_PARAM);
    assert_int_equal(cudnnAddTensor(handle, one, other.desc, at(&other), one, x.desc, at(&x)), CUDNN_STATUS_BAD_PARAM);
    assert_ok(cudnnCreateActivationDescriptor(&identity));
    assert_int_equal(cudnnSetActivationDescriptor(identity, 7, 0, 0), CUDNN_STATUS_BAD_PARAM);
    assert_ok(cudnnSetActivationDescriptor(identity, CUDNN_ACTIVATION_IDENTITY, 0, 0));
    assert_int_equal(cudnnActivationForward(handle, identity, one, x.desc, at(&x), one, x.desc, at(&x)),
                     CUDNN_STATUS_BAD_PARAM);
    assert_ok(cudnnDestroyActivationDescriptor(identity));
    assert_ok(cudnnDestroyTensorDescriptor(unset));
    tensor_free(&x);
    tensor_free(&other);
    tensor_free(&half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_copies),
        cmocka_unit_test(operations_on_two_tensors),
        cmocka_unit_test(reductions),
        cmocka_unit_test(activations),
        cmocka_unit_test(what_is_no_number_is_passed_on_when_asked),
        cmocka_unit_test(softmaxes),
        cmocka_unit_test(large_numbers_do_not_overflow),
        cmocka_unit_test(poolings),
        cmocka_unit_test(what_is_dropped_is_dropped_backward_too),
        cmocka_unit_test(versions),
        cmocka_unit_test(wrong_arguments_are_refused),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
