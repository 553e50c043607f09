// cuDNN through its older interface: convolutions forward and backward in several shapes and types, pooling, normalization,
// softmax, activations, tensors and dropout; each compared with plain loops over doubles, gradients with finite differences
// of these.
// nvcc: -ldl
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <functional>
#include <math.h>
#include <vector>
#include "cudnn_interface.h"
#include "check.h"

#define CHECK_DNN(call)                                                                                                \
    do {                                                                                                               \
        cudnnStatus_t status_ = (call);                                                                                \
        if (status_ != CUDNN_STATUS_SUCCESS)                                                                           \
            fail_at(__FILE__, __LINE__, #call, " status %d", status_);                                                 \
    } while (0)
/* The kind of a status: cuDNN's versions differ in the rest. */
#define EXPECT_DNN(call, kind) EXPECT_EQ((call) / 1000 * 1000, kind)

typedef std::vector<double> numbers;

static cudnnHandle_t handle;
static cudaStream_t stream;

template <typename T> struct kind;
#define KIND(type_, number_, tolerance_)                                                                               \
    template <> struct kind<type_> {                                                                                   \
        static const int type = number_;                                                                               \
        static double tolerance()                                                                                      \
        {                                                                                                              \
            return tolerance_;                                                                                         \
        }                                                                                                              \
    };
KIND(double, CUDNN_DATA_DOUBLE, 1e-9)
KIND(float, CUDNN_DATA_FLOAT, 1e-4)
KIND(__half, CUDNN_DATA_HALF, 5e-3)
KIND(__nv_bfloat16, CUDNN_DATA_BFLOAT16, 4e-2)

/* A scalar in host memory: a double for doubles, else a float. */
template <typename T> struct scalar {
    double wide;
    float narrow;
    scalar(double value) : wide(value), narrow((float)value)
    {
    }
    operator const void *() const
    {
        return kind<T>::type == CUDNN_DATA_DOUBLE ? (const void *)&wide : &narrow;
    }
};

/* ---- tensors ---- */

struct sizes {
    int n, c, h, w;
    size_t count() const
    {
        return (size_t)n * c * h * w;
    }
    size_t at(int i, int j, int k, int l) const
    {
        return (((size_t)i * c + j) * h + k) * w + l;
    }
};

/* Different numbers between -1 and 1, of which none is 0, in any order. */
static void shuffle(numbers &all)
{
    static uint32_t state = 1;
    for (size_t i = 0; i < all.size(); i++) {
        size_t other = next_random(&state) % (i + 1);
        all[i] = all[other];
        all[other] = (i + 0.25) / all.size() * 2 - 1;
    }
}

/* A tensor, or a filter, in device memory in one of the two formats; its numbers on the host are in the order n c h w. */
template <typename T> struct tensor {
    struct sizes size;
    int format;
    numbers value;
    T *device;
    cudnnTensorDescriptor_t desc;
    cudnnFilterDescriptor_t filter;

    tensor(struct sizes size_, int format_ = CUDNN_TENSOR_NCHW) : size(size_), format(format_), value(size_.count())
    {
        CHECK_DNN(cudnnCreateTensorDescriptor(&desc));
        CHECK_DNN(cudnnSetTensor4dDescriptor(desc, format, kind<T>::type, size.n, size.c, size.h, size.w));
        CHECK_DNN(cudnnCreateFilterDescriptor(&filter));
        CHECK_DNN(cudnnSetFilter4dDescriptor(filter, kind<T>::type, format, size.n, size.c, size.h, size.w));
        CHECK(cudaMalloc(&device, size.count() * sizeof(T)));
        shuffle(value);
        upload();
    }
    ~tensor()
    {
        CHECK_DNN(cudnnDestroyTensorDescriptor(desc));
        CHECK_DNN(cudnnDestroyFilterDescriptor(filter));
        CHECK(cudaFree(device));
    }
    size_t place(size_t i) const
    {
        size_t area = (size_t)size.h * size.w, n = i / (size.c * area), c = i / area % size.c;
        return format == CUDNN_TENSOR_NCHW ? i : (n * area + i % area) * size.c + c;
    }
    void upload()
    {
        std::vector<T> host(size.count());
        for (size_t i = 0; i < value.size(); i++) {
            host[place(i)] = (T)(float)value[i];
            if (sizeof(T) == sizeof(double))
                host[place(i)] = (T)value[i];
            value[i] = (double)host[place(i)];
        }
        CHECK(cudaMemcpyAsync(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice, stream));
        CHECK(cudaStreamSynchronize(stream));
    }
    void download()
    {
        std::vector<T> host(size.count());
        CHECK(cudaMemcpyAsync(host.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (size_t i = 0; i < value.size(); i++)
            value[i] = (double)host[place(i)];
    }
};

/* Reads it back; `factor`: so many times the type's tolerance, of the larger of 1 and the number. */
#define EXPECT_TENSOR(t, wanted, factor) expect_tensor(t, wanted, factor, __LINE__)
template <typename T> static void expect_tensor(tensor<T> &t, const numbers &wanted, double factor, int line)
{
    t.download();
    for (size_t i = 0; i < wanted.size(); i++)
        if (!(fabs(t.value[i] - wanted[i]) <= factor * kind<T>::tolerance() * fmax(1, fabs(wanted[i]))))
            fail_at(__FILE__, line, "a tensor", " type %d format %d, number %zu: %g, expected %g", kind<T>::type, t.format, i,
                    t.value[i], wanted[i]);
}

static numbers blend(const numbers &wanted, const numbers &before, double alpha, double beta)
{
    numbers all(wanted.size());
    for (size_t i = 0; i < all.size(); i++)
        all[i] = alpha * wanted[i] + beta * before[i];
    return all;
}

typedef std::function<numbers(const numbers &)> function;

/* How the sum of dy f(x) changes with each x. */
static numbers differentiate(const function &f, numbers x, const numbers &dy)
{
    const double h = 1e-5;
    numbers dx(x.size());
    for (size_t i = 0; i < x.size(); i++) {
        double middle = x[i], sum = 0;
        x[i] = middle + h;
        numbers above = f(x);
        x[i] = middle - h;
        numbers below = f(x);
        x[i] = middle;
        for (size_t k = 0; k < dy.size(); k++)
            sum += dy[k] * (above[k] - below[k]);
        dx[i] = sum / (2 * h);
    }
    return dx;
}

/* ---- convolutions ---- */

struct shape {
    struct sizes x, w;
    int groups, pad_h, pad_w, stride_h, stride_w, dilation_h, dilation_w, mode;
};

static const struct shape shapes[] = {
    {{2, 8, 9, 7}, {16, 8, 3, 3}, 1, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION},
    {{2, 8, 8, 8}, {8, 8, 1, 1}, 1, 0, 0, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION},
    {{3, 8, 11, 10}, {8, 8, 3, 5}, 1, 2, 1, 2, 3, 1, 1, CUDNN_CROSS_CORRELATION},
    {{2, 16, 10, 9}, {16, 8, 3, 3}, 2, 1, 2, 1, 1, 2, 1, CUDNN_CROSS_CORRELATION},
    {{1, 8, 7, 9}, {8, 8, 2, 3}, 1, 1, 1, 1, 1, 1, 1, CUDNN_CONVOLUTION},
};

/* What is found by trying all pairs of an input and a weight. */
struct products {
    numbers x, w, y;
};

static products convolve(const struct shape &s, const struct sizes &to, const numbers &x, const numbers &w, const numbers &dy)
{
    products all = {numbers(x.size()), numbers(w.size()), numbers(to.count())};
    int filters = s.w.n / s.groups;
    for (int n = 0; n < to.n; n++)
        for (int k = 0; k < to.c; k++)
            for (int i = 0; i < to.h * to.w; i++)
                for (int j = 0; j < s.w.c * s.w.h * s.w.w; j++) {
                    int c = j / (s.w.h * s.w.w), r = j / s.w.w % s.w.h, q = j % s.w.w;
                    int h = i / to.w * s.stride_h - s.pad_h + r * s.dilation_h;
                    int v = i % to.w * s.stride_w - s.pad_w + q * s.dilation_w;
                    if (h < 0 || h >= s.x.h || v < 0 || v >= s.x.w)
                        continue;
                    if (s.mode == CUDNN_CONVOLUTION) {
                        r = s.w.h - 1 - r;
                        q = s.w.w - 1 - q;
                    }
                    size_t of_x = s.x.at(n, k / filters * s.w.c + c, h, v), of_w = s.w.at(k, c, r, q);
                    size_t of_y = to.at(n, k, i / to.w, i % to.w);
                    all.y[of_y] += x[of_x] * w[of_w];
                    all.x[of_x] += dy[of_y] * w[of_w];
                    all.w[of_w] += dy[of_y] * x[of_x];
                }
    return all;
}

/* The first algorithm that the library recommends and has. */
static int chosen(const struct cudnnAlgoPerf *perf, int count)
{
    for (int i = 0; i < count; i++)
        if (perf[i].status == CUDNN_STATUS_SUCCESS)
            return perf[i].algo;
    fail_at(__FILE__, __LINE__, "no algorithm", " of %d", count);
}

struct workspace {
    void *at = NULL;
    size_t bytes;
    workspace(size_t bytes_) : bytes(bytes_)
    {
        CHECK(cudaMalloc(&at, bytes + 16));
    }
    ~workspace()
    {
        CHECK(cudaFree(at));
    }
};

/* Exactly, where the library would take a shortcut through tf32. */
template <typename T> static cudnnConvolutionDescriptor_t describe(const struct shape &s)
{
    cudnnConvolutionDescriptor_t desc;
    CHECK_DNN(cudnnCreateConvolutionDescriptor(&desc));
    CHECK_DNN(cudnnSetConvolution2dDescriptor(desc, s.pad_h, s.pad_w, s.stride_h, s.stride_w, s.dilation_h, s.dilation_w, s.mode,
                                              sizeof(T) == 8 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT));
    CHECK_DNN(cudnnSetConvolutionGroupCount(desc, s.groups));
    CHECK_DNN(cudnnSetConvolutionMathType(desc, sizeof(T) == 4 ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH));
    return desc;
}

template <typename T> static void convolution(const struct shape &s, int format)
{
    tensor<T> x(s.x, format), w(s.w, format);
    cudnnConvolutionDescriptor_t desc = describe<T>(s);
    struct sizes to;
    CHECK_DNN(cudnnGetConvolution2dForwardOutputDim(desc, x.desc, w.filter, &to.n, &to.c, &to.h, &to.w));
    EXPECT_EQ(to.h, (s.x.h + 2 * s.pad_h - (s.w.h - 1) * s.dilation_h - 1) / s.stride_h + 1);
    EXPECT_EQ(to.w, (s.x.w + 2 * s.pad_w - (s.w.w - 1) * s.dilation_w - 1) / s.stride_w + 1);
    EXPECT(to.n == s.x.n && to.c == s.w.n, "%d %d", to.n, to.c);
    tensor<T> y(to, format), dx(s.x, format), dw(s.w, format);
    tensor<T> dy(to, format);
    products wanted = convolve(s, to, x.value, w.value, dy.value);
    struct cudnnAlgoPerf perf[8];
    int count;
    size_t bytes;

    CHECK_DNN(cudnnGetConvolutionForwardAlgorithm_v7(handle, x.desc, w.filter, desc, y.desc, 8, &count, perf));
    int algo = chosen(perf, count);
    CHECK_DNN(cudnnGetConvolutionForwardWorkspaceSize(handle, x.desc, w.filter, desc, y.desc, algo, &bytes));
    {
        workspace room(bytes);
        numbers blended = blend(wanted.y, y.value, 0.5, -2);
        CHECK_DNN(cudnnConvolutionForward(handle, scalar<T>(0.5), x.desc, x.device, w.filter, w.device, desc, algo, room.at, bytes,
                                          scalar<T>(-2), y.desc, y.device));
        EXPECT_TENSOR(y, blended, 4);
    }
    CHECK_DNN(cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w.filter, dy.desc, desc, dx.desc, 8, &count, perf));
    algo = chosen(perf, count);
    CHECK_DNN(cudnnGetConvolutionBackwardDataWorkspaceSize(handle, w.filter, dy.desc, desc, dx.desc, algo, &bytes));
    {
        workspace room(bytes);
        CHECK_DNN(cudnnConvolutionBackwardData(handle, scalar<T>(1), w.filter, w.device, dy.desc, dy.device, desc, algo, room.at,
                                               bytes, scalar<T>(0), dx.desc, dx.device));
        EXPECT_TENSOR(dx, wanted.x, 4);
    }
    CHECK_DNN(cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, x.desc, dy.desc, desc, dw.filter, 8, &count, perf));
    algo = chosen(perf, count);
    CHECK_DNN(cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, x.desc, dy.desc, desc, dw.filter, algo, &bytes));
    {
        workspace room(bytes);
        CHECK_DNN(cudnnConvolutionBackwardFilter(handle, scalar<T>(1), x.desc, x.device, dy.desc, dy.device, desc, algo, room.at,
                                                 bytes, scalar<T>(0), dw.filter, dw.device));
        EXPECT_TENSOR(dw, wanted.w, 8);
    }
    CHECK_DNN(cudnnDestroyConvolutionDescriptor(desc));
}

/* Three spatial dimensions, by the functions for any number of them. */
static void convolution_of_a_volume(void)
{
    const int from[] = {1, 2, 4, 5, 6}, steps[] = {240, 120, 30, 6, 1}, window[] = {3, 2, 2, 3, 2};
    const int padding[] = {0, 1, 1}, strides[] = {1, 1, 2}, ones[] = {1, 1, 1};
    tensor<float> x({1, 2, 4, 30}), w({3, 2, 2, 6}), y({1, 3, 3, 20});
    cudnnTensorDescriptor_t x_desc, y_desc;
    cudnnFilterDescriptor_t w_desc;
    cudnnConvolutionDescriptor_t desc;
    int to[5], count;
    struct cudnnAlgoPerf perf[8];

    CHECK_DNN(cudnnCreateTensorDescriptor(&x_desc));
    CHECK_DNN(cudnnCreateTensorDescriptor(&y_desc));
    CHECK_DNN(cudnnCreateFilterDescriptor(&w_desc));
    CHECK_DNN(cudnnCreateConvolutionDescriptor(&desc));
    CHECK_DNN(cudnnSetTensorNdDescriptor(x_desc, CUDNN_DATA_FLOAT, 5, from, steps));
    CHECK_DNN(cudnnSetFilterNdDescriptor(w_desc, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, 5, window));
    CHECK_DNN(cudnnSetConvolutionNdDescriptor(desc, 3, padding, strides, ones, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    CHECK_DNN(cudnnSetConvolutionMathType(desc, CUDNN_FMA_MATH));
    CHECK_DNN(cudnnGetConvolutionNdForwardOutputDim(desc, x_desc, w_desc, 5, to));
    EXPECT(to[0] == 1 && to[1] == 3 && to[2] == 3 && to[3] == 5 && to[4] == 4, "%d %d %d", to[2], to[3], to[4]);
    const int to_steps[] = {180, 60, 20, 4, 1};
    CHECK_DNN(cudnnSetTensorNdDescriptor(y_desc, CUDNN_DATA_FLOAT, 5, to, to_steps));
    numbers wanted(180);
    for (int i = 0; i < 180; i++)
        for (int j = 0; j < 24; j++) {
            int d = i / 20 % 3 + j / 6 % 2, h = i / 4 % 5 - 1 + j / 2 % 3, v = i % 4 * 2 - 1 + j % 2;
            if (h >= 0 && h < 5 && v >= 0 && v < 6)
                wanted[i] += x.value[j / 12 * 120 + d * 30 + h * 6 + v] * w.value[i / 60 * 24 + j];
        }
    CHECK_DNN(cudnnGetConvolutionForwardAlgorithm_v7(handle, x_desc, w_desc, desc, y_desc, 8, &count, perf));
    int algo = chosen(perf, count);
    size_t bytes;
    CHECK_DNN(cudnnGetConvolutionForwardWorkspaceSize(handle, x_desc, w_desc, desc, y_desc, algo, &bytes));
    workspace room(bytes);
    CHECK_DNN(cudnnConvolutionForward(handle, scalar<float>(1), x_desc, x.device, w_desc, w.device, desc, algo, room.at, bytes,
                                      scalar<float>(0), y_desc, y.device));
    EXPECT_TENSOR(y, wanted, 1);
    CHECK_DNN(cudnnDestroyTensorDescriptor(x_desc));
    CHECK_DNN(cudnnDestroyTensorDescriptor(y_desc));
    CHECK_DNN(cudnnDestroyFilterDescriptor(w_desc));
    CHECK_DNN(cudnnDestroyConvolutionDescriptor(desc));
}

template <typename T> static void convolution_with_bias(int format)
{
    const struct shape &s = shapes[0];
    const struct sizes to = {2, 16, 9, 7};
    tensor<T> x(s.x, format), w(s.w, format), y(to, format), z(to, format), bias({1, 16, 1, 1}, format);
    cudnnConvolutionDescriptor_t desc = describe<T>(s);
    cudnnActivationDescriptor_t relu;
    workspace room(1 << 24);
    numbers wanted = convolve(s, to, x.value, w.value, y.value).y, sums(16);

    CHECK_DNN(cudnnCreateActivationDescriptor(&relu));
    CHECK_DNN(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0));
    for (size_t i = 0; i < wanted.size(); i++)
        wanted[i] = fmax(0, 0.5 * wanted[i] + 2 * z.value[i] + bias.value[i / 63 % 16]);
    CHECK_DNN(cudnnConvolutionBiasActivationForward(handle, scalar<T>(0.5), x.desc, x.device, w.filter, w.device, desc, 1, room.at,
                                                    room.bytes, scalar<T>(2), z.desc, z.device, bias.desc, bias.device, relu,
                                                    y.desc, y.device));
    EXPECT_TENSOR(y, wanted, 4);
    for (size_t i = 0; i < y.value.size(); i++)
        sums[i / 63 % 16] += y.value[i];
    CHECK_DNN(cudnnConvolutionBackwardBias(handle, scalar<T>(1), y.desc, y.device, scalar<T>(0), bias.desc, bias.device));
    EXPECT_TENSOR(bias, sums, 4);
    CHECK_DNN(cudnnDestroyActivationDescriptor(relu));
    CHECK_DNN(cudnnDestroyConvolutionDescriptor(desc));
}

static void a_search_finds_what_works(void)
{
    const struct shape &s = shapes[0];
    tensor<float> x(s.x), w(s.w), y({2, 16, 9, 7});
    cudnnConvolutionDescriptor_t desc = describe<float>(s);
    workspace room(1 << 24);
    struct cudnnAlgoPerf perf[8];
    int count;

    CHECK_DNN(cudnnFindConvolutionForwardAlgorithmEx(handle, x.desc, x.device, w.filter, w.device, desc, y.desc, y.device, 8,
                                                     &count, perf, room.at, room.bytes));
    int algo = chosen(perf, count);
    EXPECT(perf[0].time > 0, "%g", perf[0].time);
    CHECK_DNN(cudnnConvolutionForward(handle, scalar<float>(1), x.desc, x.device, w.filter, w.device, desc, algo, room.at,
                                      room.bytes, scalar<float>(0), y.desc, y.device));
    EXPECT_TENSOR(y, convolve(s, y.size, x.value, w.value, y.value).y, 1);
    CHECK_DNN(cudnnDestroyConvolutionDescriptor(desc));
}

/* ---- functions of one tensor ---- */

/* Checks y = f(x) and its gradient. The calls get x and y; and x, y, dy, dx. */
template <typename T, typename Forward, typename Backward>
static void check_function(struct sizes from, struct sizes to, int format, const function &f, Forward forward, Backward backward)
{
    tensor<T> x(from, format), y(to, format), dy(to, format), dx(from, format);
    forward(x, y);
    EXPECT_TENSOR(y, f(x.value), 2);
    backward(x, y, dy, dx);
    EXPECT_TENSOR(dx, differentiate(f, x.value, dy.value), sizeof(T) == 8 ? 100 : 4);
}

static double activated(int mode, double x)
{
    const double all[] = {1 / (1 + exp(-x)), fmax(x, 0), tanh(x), fmin(fmax(x, 0), 0.55), x > 0 ? x : 0.55 * (exp(x) - 1),
                          x,                 x / (1 + exp(-x))};
    return all[mode];
}

template <typename T> static void activations(int format)
{
    const struct sizes size = {2, 3, 4, 5};
    for (int mode = CUDNN_ACTIVATION_SIGMOID; mode <= CUDNN_ACTIVATION_SWISH; mode++) {
        cudnnActivationDescriptor_t desc;
        if (mode == CUDNN_ACTIVATION_IDENTITY)
            continue;
        CHECK_DNN(cudnnCreateActivationDescriptor(&desc));
        CHECK_DNN(cudnnSetActivationDescriptor(desc, mode, CUDNN_PROPAGATE_NAN, 0.55));
        CHECK_DNN(cudnnSetActivationDescriptorSwishBeta(desc, 1));
        check_function<T>(
            size, size, format,
            [mode](const numbers &x) {
                numbers y(x.size());
                for (size_t i = 0; i < x.size(); i++)
                    y[i] = activated(mode, x[i]);
                return y;
            },
            [desc](tensor<T> &x, tensor<T> &y) {
                CHECK_DNN(cudnnActivationForward(handle, desc, scalar<T>(1), x.desc, x.device, scalar<T>(0), y.desc, y.device));
            },
            [desc](tensor<T> &x, tensor<T> &y, tensor<T> &dy, tensor<T> &dx) {
                CHECK_DNN(cudnnActivationBackward(handle, desc, scalar<T>(1), y.desc, y.device, dy.desc, dy.device, x.desc,
                                                  x.device, scalar<T>(0), dx.desc, dx.device));
            });
        CHECK_DNN(cudnnDestroyActivationDescriptor(desc));
    }
}

/* Of numbers i and k of 2 x 3 x 20 numbers: whether one softmax is over both. */
static bool go_together(int mode, size_t i, size_t k)
{
    return i / 60 == k / 60 && (mode == CUDNN_SOFTMAX_MODE_INSTANCE || i % 20 == k % 20);
}

template <typename T> static void softmaxes(int format)
{
    const struct sizes size = {2, 3, 4, 5};
    for (int kinds = 0; kinds < 6; kinds++) {
        int algo = kinds % 3, mode = kinds / 3;
        check_function<T>(
            size, size, format,
            [algo, mode](const numbers &x) {
                numbers y(x.size());
                for (size_t i = 0; i < x.size(); i++) {
                    double sum = 0;
                    for (size_t k = 0; k < x.size(); k++)
                        sum += go_together(mode, i, k) ? exp(x[k]) : 0;
                    y[i] = algo == CUDNN_SOFTMAX_LOG ? x[i] - log(sum) : exp(x[i]) / sum;
                }
                return y;
            },
            [algo, mode](tensor<T> &x, tensor<T> &y) {
                CHECK_DNN(cudnnSoftmaxForward(handle, algo, mode, scalar<T>(1), x.desc, x.device, scalar<T>(0), y.desc, y.device));
            },
            [algo, mode](tensor<T> &x, tensor<T> &y, tensor<T> &dy, tensor<T> &dx) {
                CHECK_DNN(cudnnSoftmaxBackward(handle, algo, mode, scalar<T>(1), y.desc, y.device, dy.desc, dy.device,
                                               scalar<T>(0), dx.desc, dx.device));
            });
    }
}

/* A window of 2 x 3, padded by 1 in both directions, that moves by 2 and 1. */
static numbers pool(int mode, const struct sizes &from, const struct sizes &to, const numbers &x)
{
    numbers y(to.count());
    for (size_t i = 0; i < y.size(); i++) {
        int h = (int)(i / to.w % to.h) * 2 - 1, w = (int)(i % to.w) - 1, seen = 0;
        double sum = 0, most = -INFINITY;
        for (int k = 0; k < 6; k++) {
            int at_h = h + k / 3, at_w = w + k % 3;
            if (at_h < 0 || at_h >= from.h || at_w < 0 || at_w >= from.w)
                continue;
            double one = x[from.at(0, (int)(i / (to.h * to.w)), at_h, at_w)];
            sum += one;
            most = fmax(most, one);
            seen++;
        }
        y[i] = mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING   ? sum / 6
               : mode == CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING ? sum / seen
                                                                     : most;
    }
    return y;
}

template <typename T> static void poolings(int format)
{
    const struct sizes from = {2, 3, 4, 5};
    for (int mode = CUDNN_POOLING_MAX; mode <= CUDNN_POOLING_MAX_DETERMINISTIC; mode++) {
        cudnnPoolingDescriptor_t desc;
        tensor<T> like(from, format);
        struct sizes to;
        CHECK_DNN(cudnnCreatePoolingDescriptor(&desc));
        CHECK_DNN(cudnnSetPooling2dDescriptor(desc, mode, CUDNN_PROPAGATE_NAN, 2, 3, 1, 1, 2, 1));
        CHECK_DNN(cudnnGetPooling2dForwardOutputDim(desc, like.desc, &to.n, &to.c, &to.h, &to.w));
        EXPECT(to.n == 2 && to.c == 3 && to.h == 3 && to.w == 5, "%d %d %d %d", to.n, to.c, to.h, to.w);
        check_function<T>(
            from, to, format, [&](const numbers &x) { return pool(mode, from, to, x); },
            [desc](tensor<T> &x, tensor<T> &y) {
                CHECK_DNN(cudnnPoolingForward(handle, desc, scalar<T>(1), x.desc, x.device, scalar<T>(0), y.desc, y.device));
            },
            [desc](tensor<T> &x, tensor<T> &y, tensor<T> &dy, tensor<T> &dx) {
                CHECK_DNN(cudnnPoolingBackward(handle, desc, scalar<T>(1), y.desc, y.device, dy.desc, dy.device, x.desc, x.device,
                                               scalar<T>(0), dx.desc, dx.device));
            });
        CHECK_DNN(cudnnDestroyPoolingDescriptor(desc));
    }
}

/* Over five channels, two before and two behind. */
template <typename T> static void across_channels(void)
{
    const struct sizes size = {2, 7, 2, 3};
    cudnnLRNDescriptor_t desc;
    CHECK_DNN(cudnnCreateLRNDescriptor(&desc));
    CHECK_DNN(cudnnSetLRNDescriptor(desc, 5, 0.7, 0.75, 2));
    check_function<T>(
        size, size, CUDNN_TENSOR_NCHW,
        [](const numbers &x) {
            numbers y(x.size());
            for (int i = 0; i < (int)x.size(); i++) {
                double sum = 0;
                for (int c = i / 6 % 7 - 2; c <= i / 6 % 7 + 2; c++)
                    if (c >= 0 && c < 7)
                        sum += pow(x[i / 42 * 42 + c * 6 + i % 6], 2);
                y[i] = x[i] / pow(2 + 0.7 / 5 * sum, 0.75);
            }
            return y;
        },
        [desc](tensor<T> &x, tensor<T> &y) {
            CHECK_DNN(cudnnLRNCrossChannelForward(handle, desc, 0, scalar<T>(1), x.desc, x.device, scalar<T>(0), y.desc, y.device));
        },
        [desc](tensor<T> &x, tensor<T> &y, tensor<T> &dy, tensor<T> &dx) {
            CHECK_DNN(cudnnLRNCrossChannelBackward(handle, desc, 0, scalar<T>(1), y.desc, y.device, dy.desc, dy.device, x.desc,
                                                   x.device, scalar<T>(0), dx.desc, dx.device));
        });
    CHECK_DNN(cudnnDestroyLRNDescriptor(desc));
}

/* ---- normalization over a batch ---- */

/* What is computed for each group of numbers: a channel's, or those of one place. */
struct norm {
    int mode;
    double epsilon;
    numbers scale, bias, mean, variance;
    size_t group(size_t i) const
    {
        return mode == CUDNN_BATCHNORM_SPATIAL ? i / 6 % 8 : i % 48;
    }
    void measure(const numbers &x)
    {
        size_t groups = scale.size();
        mean.assign(groups, 0);
        variance.assign(groups, 0);
        for (size_t i = 0; i < x.size(); i++)
            mean[group(i)] += x[i] * groups / x.size();
        for (size_t i = 0; i < x.size(); i++)
            variance[group(i)] += pow(x[i] - mean[group(i)], 2) * groups / x.size();
    }
    numbers apply(const numbers &x) const
    {
        numbers y(x.size());
        for (size_t i = 0; i < x.size(); i++)
            y[i] = scale[group(i)] * (x[i] - mean[group(i)]) / sqrt(variance[group(i)] + epsilon) + bias[group(i)];
        return y;
    }
};

template <typename T, typename P> static void batches(int mode, int format)
{
    const struct sizes size = {4, 8, 2, 3};
    const bool is_spatial = mode == CUDNN_BATCHNORM_SPATIAL;
    const struct sizes small = {1, 8, is_spatial ? 1 : 2, is_spatial ? 1 : 3};
    const double factor = 0.25, count = is_spatial ? 24 : 4;
    tensor<T> x(size, format), y(size, format), dx(size, format), dy(size, format);
    tensor<P> scale(small, format), bias(small, format), mean(small, format), variance(small, format), saved(small, format),
        inverse(small, format);
    struct norm norm = {mode, 1e-2, scale.value, bias.value, {}, {}};

    for (double &one : variance.value)
        one += 1.5;
    variance.upload();
    norm.mean = mean.value;
    norm.variance = variance.value;
    CHECK_DNN(cudnnBatchNormalizationForwardInference(handle, mode, scalar<T>(1), scalar<T>(0), x.desc, x.device, y.desc, y.device,
                                                      scale.desc, scale.device, bias.device, mean.device, variance.device,
                                                      norm.epsilon));
    EXPECT_TENSOR(y, norm.apply(x.value), 2);

    norm.measure(x.value);
    numbers moved_mean = blend(norm.mean, mean.value, factor, 1 - factor), inverses(norm.mean.size());
    numbers moved_variance = blend(norm.variance, variance.value, factor * count / (count - 1), 1 - factor);
    for (size_t i = 0; i < inverses.size(); i++)
        inverses[i] = 1 / sqrt(norm.variance[i] + norm.epsilon);
    CHECK_DNN(cudnnBatchNormalizationForwardTraining(handle, mode, scalar<T>(1), scalar<T>(0), x.desc, x.device, y.desc, y.device,
                                                     scale.desc, scale.device, bias.device, factor, mean.device, variance.device,
                                                     norm.epsilon, saved.device, inverse.device));
    EXPECT_TENSOR(y, norm.apply(x.value), 2);
    EXPECT_TENSOR(mean, moved_mean, 1);
    EXPECT_TENSOR(variance, moved_variance, 1);
    EXPECT_TENSOR(saved, norm.mean, 1);
    EXPECT_TENSOR(inverse, inverses, 1);

    numbers dscale(norm.mean.size()), dbias(norm.mean.size());
    for (size_t i = 0; i < size.count(); i++) {
        size_t g = norm.group(i);
        dscale[g] += dy.value[i] * (x.value[i] - norm.mean[g]) * inverses[g];
        dbias[g] += dy.value[i];
    }
    CHECK_DNN(cudnnBatchNormalizationBackward(handle, mode, scalar<T>(1), scalar<T>(0), scalar<T>(1), scalar<T>(0), x.desc, x.device,
                                              dy.desc, dy.device, dx.desc, dx.device, scale.desc, scale.device, mean.device,
                                              variance.device, norm.epsilon, saved.device, inverse.device));
    EXPECT_TENSOR(mean, dscale, 4);
    EXPECT_TENSOR(variance, dbias, 4);
    function forward = [norm](const numbers &at) {
        struct norm there = norm;
        there.measure(at);
        return there.apply(at);
    };
    EXPECT_TENSOR(dx, differentiate(forward, x.value, dy.value), sizeof(T) == 8 ? 100 : 4);
}

/* ---- tensors ---- */

template <typename T> static void tensors(void)
{
    const struct sizes size = {2, 8, 4, 5};
    tensor<T> a(size), b({1, 8, 1, 1}), c(size, CUDNN_TENSOR_NHWC), d(size), sum({1, 8, 1, 1});
    cudnnOpTensorDescriptor_t op;
    cudnnReduceTensorDescriptor_t reduce;
    const int compute = sizeof(T) == 8 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    numbers wanted(size.count());

    CHECK_DNN(cudnnTransformTensor(handle, scalar<T>(1), a.desc, a.device, scalar<T>(0), c.desc, c.device));
    EXPECT_TENSOR(c, a.value, 1);
    for (size_t i = 0; i < wanted.size(); i++)
        wanted[i] = 0.5 * b.value[i / 20 % 8] - 2 * d.value[i];
    CHECK_DNN(cudnnAddTensor(handle, scalar<T>(0.5), b.desc, b.device, scalar<T>(-2), d.desc, d.device));
    EXPECT_TENSOR(d, wanted, 1);
    for (double &one : wanted)
        one *= 3;
    CHECK_DNN(cudnnScaleTensor(handle, d.desc, d.device, scalar<T>(3)));
    EXPECT_TENSOR(d, wanted, 1);
    CHECK_DNN(cudnnCreateOpTensorDescriptor(&op));
    for (int kind = CUDNN_OP_TENSOR_ADD; kind <= CUDNN_OP_TENSOR_MAX; kind++) {
        CHECK_DNN(cudnnSetOpTensorDescriptor(op, kind, compute, CUDNN_PROPAGATE_NAN));
        for (size_t i = 0; i < wanted.size(); i++) {
            double l = 2 * a.value[i], r = -b.value[i / 20 % 8];
            const double all[] = {l + r, l * r, fmin(l, r), fmax(l, r)};
            wanted[i] = all[kind];
        }
        CHECK_DNN(cudnnOpTensor(handle, op, scalar<T>(2), a.desc, a.device, scalar<T>(-1), b.desc, b.device, scalar<T>(0), d.desc,
                                d.device));
        EXPECT_TENSOR(d, wanted, 1);
    }
    CHECK_DNN(cudnnDestroyOpTensorDescriptor(op));
    CHECK_DNN(cudnnCreateReduceTensorDescriptor(&reduce));
    static const int kinds[] = {CUDNN_REDUCE_TENSOR_ADD, CUDNN_REDUCE_TENSOR_MAX, CUDNN_REDUCE_TENSOR_AVG, CUDNN_REDUCE_TENSOR_NORM2};
    for (int kind : kinds) {
        size_t bytes;
        numbers sums(8), most(8, -INFINITY), squares(8);
        for (size_t i = 0; i < a.value.size(); i++) {
            sums[i / 20 % 8] += a.value[i];
            squares[i / 20 % 8] += a.value[i] * a.value[i];
            most[i / 20 % 8] = fmax(most[i / 20 % 8], a.value[i]);
        }
        for (size_t i = 0; i < 8; i++)
            sums[i] = kind == CUDNN_REDUCE_TENSOR_MAX     ? most[i]
                      : kind == CUDNN_REDUCE_TENSOR_AVG   ? sums[i] / 40
                      : kind == CUDNN_REDUCE_TENSOR_NORM2 ? sqrt(squares[i])
                                                          : sums[i];
        CHECK_DNN(cudnnSetReduceTensorDescriptor(reduce, kind, compute, CUDNN_PROPAGATE_NAN, CUDNN_REDUCE_TENSOR_NO_INDICES,
                                                 CUDNN_32BIT_INDICES));
        CHECK_DNN(cudnnGetReductionWorkspaceSize(handle, reduce, a.desc, sum.desc, &bytes));
        workspace room(bytes);
        CHECK_DNN(cudnnReduceTensor(handle, reduce, NULL, 0, room.at, bytes, scalar<T>(1), a.desc, a.device, scalar<T>(0), sum.desc,
                                    sum.device));
        EXPECT_TENSOR(sum, sums, 2);
    }
    CHECK_DNN(cudnnDestroyReduceTensorDescriptor(reduce));
}

/* The place of the largest of all numbers. */
static void a_reduction_tells_where(void)
{
    tensor<float> a({2, 8, 4, 5}), largest({1, 1, 1, 1});
    cudnnReduceTensorDescriptor_t reduce;
    size_t bytes, indices_bytes, wanted = 0;
    unsigned place;
    for (size_t i = 0; i < a.value.size(); i++)
        wanted = a.value[i] > a.value[wanted] ? i : wanted;
    CHECK_DNN(cudnnCreateReduceTensorDescriptor(&reduce));
    CHECK_DNN(cudnnSetReduceTensorDescriptor(reduce, CUDNN_REDUCE_TENSOR_MAX, CUDNN_DATA_FLOAT, CUDNN_PROPAGATE_NAN,
                                             CUDNN_REDUCE_TENSOR_FLATTENED_INDICES, CUDNN_32BIT_INDICES));
    CHECK_DNN(cudnnGetReductionWorkspaceSize(handle, reduce, a.desc, largest.desc, &bytes));
    CHECK_DNN(cudnnGetReductionIndicesSize(handle, reduce, a.desc, largest.desc, &indices_bytes));
    workspace room(bytes), indices(indices_bytes);
    CHECK_DNN(cudnnReduceTensor(handle, reduce, indices.at, indices_bytes, room.at, bytes, scalar<float>(1), a.desc, a.device,
                                scalar<float>(0), largest.desc, largest.device));
    EXPECT_TENSOR(largest, numbers(1, a.value[wanted]), 1);
    CHECK(cudaMemcpy(&place, indices.at, sizeof place, cudaMemcpyDeviceToHost));
    EXPECT_EQ(place, wanted);
    CHECK_DNN(cudnnDestroyReduceTensorDescriptor(reduce));
}

static void dropout(void)
{
    const size_t count = 20000;
    tensor<float> x({1, 10, 40, 50}), y({1, 10, 40, 50}), dx({1, 10, 40, 50});
    cudnnDropoutDescriptor_t desc;
    size_t states_bytes, bytes, dropped = 0;
    CHECK_DNN(cudnnCreateDropoutDescriptor(&desc));
    CHECK_DNN(cudnnDropoutGetStatesSize(handle, &states_bytes));
    CHECK_DNN(cudnnDropoutGetReserveSpaceSize(x.desc, &bytes));
    workspace states(states_bytes), reserve(bytes);
    CHECK_DNN(cudnnSetDropoutDescriptor(desc, handle, 0.25f, states.at, states_bytes, 42));
    CHECK_DNN(cudnnDropoutForward(handle, desc, x.desc, x.device, y.desc, y.device, reserve.at, bytes));
    y.download();
    numbers wanted(count), first = y.value;
    for (size_t i = 0; i < count; i++) {
        dropped += y.value[i] == 0;
        wanted[i] = y.value[i] == 0 ? 0 : x.value[i] / 0.75;
    }
    EXPECT_TENSOR(y, wanted, 1);
    EXPECT(dropped > 4700 && dropped < 5300, "%zu of %zu", dropped, count);
    CHECK_DNN(cudnnDropoutBackward(handle, desc, x.desc, x.device, dx.desc, dx.device, reserve.at, bytes));
    EXPECT_TENSOR(dx, wanted, 1);
    CHECK_DNN(cudnnDropoutForward(handle, desc, x.desc, x.device, y.desc, y.device, reserve.at, bytes));
    y.download();
    EXPECT(y.value != first, "the second time is as the first one");
    CHECK_DNN(cudnnDestroyDropoutDescriptor(desc));
}

/* ---- order, errors ---- */

__global__ static void halve(float *numbers, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        numbers[i] *= 0.5f;
}

/* Calls take their places between a stream's kernels, once nothing of them is awaited any more. */
static void keep_their_places(void)
{
    tensor<float> x({1, 8, 4, 4}), y({1, 8, 4, 4});
    cudnnActivationDescriptor_t relu;
    numbers wanted = y.value;
    CHECK_DNN(cudnnCreateActivationDescriptor(&relu));
    CHECK_DNN(cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_PROPAGATE_NAN, 0));
    for (int round = 0; round < 40; round++) {
        CHECK_DNN(cudnnAddTensor(handle, scalar<float>(1), x.desc, x.device, scalar<float>(1), y.desc, y.device));
        CHECK_DNN(cudnnActivationForward(handle, relu, scalar<float>(1), y.desc, y.device, scalar<float>(0), y.desc, y.device));
        halve<<<1, 128, 0, stream>>>(y.device, 128);
        for (size_t i = 0; i < wanted.size(); i++)
            wanted[i] = fmax(0, wanted[i] + x.value[i]) / 2;
    }
    CHECK_LAUNCH();
    EXPECT_TENSOR(y, wanted, 1);
    CHECK_DNN(cudnnDestroyActivationDescriptor(relu));
}

static void what_is_wrong_is_said(void)
{
    const struct shape &s = shapes[0];
    tensor<float> x(s.x), w(s.w), y({2, 16, 9, 7}), other({2, 16, 9, 6}), few({2, 4, 9, 7});
    cudnnConvolutionDescriptor_t desc = describe<float>(s);
    workspace room(1 << 20);
    scalar<float> one(1);
    const int negative[] = {1, -1, 1, 1};
    EXPECT(cudnnConvolutionForward(handle, one, x.desc, x.device, w.filter, w.device, desc, 0, room.at, room.bytes, one, other.desc,
                                   other.device) != CUDNN_STATUS_SUCCESS,
           "an output of another size");
    EXPECT_DNN(cudnnConvolutionForward(handle, one, few.desc, few.device, w.filter, w.device, desc, 0, room.at, room.bytes, one,
                                       y.desc, y.device),
               CUDNN_STATUS_BAD_PARAM);
    EXPECT_DNN(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, one, y.desc, y.device, one, other.desc,
                                   other.device),
               CUDNN_STATUS_BAD_PARAM);
    EXPECT(cudnnSetTensorNdDescriptor(few.desc, CUDNN_DATA_FLOAT, 4, negative, negative) != CUDNN_STATUS_SUCCESS ||
               cudnnScaleTensor(handle, few.desc, few.device, one) != CUDNN_STATUS_SUCCESS,
           "a size below 0");
    EXPECT_TENSOR(y, y.value, 1);
    CHECK_DNN(cudnnDestroyConvolutionDescriptor(desc));
}

template <typename T> static void everything(int format)
{
    activations<T>(format);
    softmaxes<T>(format);
    poolings<T>(format);
}

int main()
{
    int major;
    cudnn_open();
    CHECK_DNN(cudnnGetProperty(MAJOR_VERSION, &major));
    EXPECT_EQ(major, 9);
    CHECK_DNN(cudnnOpsVersionCheck());
    CHECK_DNN(cudnnCnnVersionCheck());
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK_DNN(cudnnCreate(&handle));
    CHECK_DNN(cudnnSetStream(handle, stream));
    for (const struct shape &s : shapes) {
        convolution<float>(s, CUDNN_TENSOR_NCHW);
        convolution<double>(s, CUDNN_TENSOR_NCHW);
    }
    convolution<__half>(shapes[0], CUDNN_TENSOR_NCHW);
    convolution<__half>(shapes[0], CUDNN_TENSOR_NHWC);
    convolution<__nv_bfloat16>(shapes[2], CUDNN_TENSOR_NHWC);
    convolution_of_a_volume();
    convolution_with_bias<float>(CUDNN_TENSOR_NCHW);
    convolution_with_bias<__half>(CUDNN_TENSOR_NHWC);
    a_search_finds_what_works();
    for (int format = CUDNN_TENSOR_NCHW; format <= CUDNN_TENSOR_NHWC; format++) {
        everything<float>(format);
        everything<double>(format);
        everything<__half>(format);
        batches<float, float>(CUDNN_BATCHNORM_SPATIAL, format);
        batches<__half, float>(CUDNN_BATCHNORM_SPATIAL, format);
    }
    batches<float, float>(CUDNN_BATCHNORM_PER_ACTIVATION, CUDNN_TENSOR_NCHW);
    batches<double, double>(CUDNN_BATCHNORM_SPATIAL, CUDNN_TENSOR_NCHW);
    across_channels<float>();
    across_channels<double>();
    tensors<float>();
    tensors<double>();
    tensors<__half>();
    a_reduction_tells_where();
    dropout();
    keep_their_places();
    what_is_wrong_is_said();
    CHECK_DNN(cudnnDestroy(handle));
    printf("cuDNN %d\n", major);
    return 0;
}
