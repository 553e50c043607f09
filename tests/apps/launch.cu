// Launches by <<<>>>, cudaLaunchKernel and cudaLaunchKernelExC: grids and blocks in three dimensions, arguments
// of every kind, templates, streams, and thousands of launches in order.
#include "check.h"

struct point {
    char tag;
    double x;
    short y[3];
};

__global__ void index3(int *out)
{
    unsigned x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    unsigned z = blockIdx.z * blockDim.z + threadIdx.z, nx = gridDim.x * blockDim.x, ny = gridDim.y * blockDim.y;

    out[(z * ny + y) * nx + x] = (int)(x + 100 * y + 10000 * z);
}

__global__ void arguments(double *out, char c, short s, long long l, float f, struct point p, bool b, uint8_t u)
{
    out[0] = c;
    out[1] = s;
    out[2] = (double)l;
    out[3] = f;
    out[4] = p.tag + p.x + p.y[0] + p.y[2];
    out[5] = b;
    out[6] = u;
}

template <typename T, int N> __global__ void templated(T *out)
{
    out[threadIdx.x] = (T)(threadIdx.x * N) / 2;
}

__global__ void append(int *log, int value)
{
    log[++log[0]] = value;
}

static void check_indices(void)
{
    enum { X = 4 * 3, Y = 2 * 5, Z = 3 * 2 };
    int *out, back[X * Y * Z];

    CHECK(cudaMalloc(&out, sizeof(back)));
    index3<<<dim3(4, 2, 3), dim3(3, 5, 2)>>>(out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < X * Y * Z; i++)
        EXPECT_EQ(back[i], i % X + 100 * (i / X % Y) + 10000 * (i / X / Y));
    CHECK(cudaFree(out));
}

static void check_arguments(void)
{
    const double want[7] = {-5, -300, 1e15, 0.25, 3 + 2.5 - 7 + 9, 1, 200};
    struct point p = {3, 2.5, {-7, 8, 9}};
    char c = -5;
    short s = -300;
    long long l = 1000000000000000ll;
    float f = 0.25f;
    bool b = true;
    uint8_t u = 200;
    double *out, back[7];
    void *args[] = {&out, &c, &s, &l, &f, &p, &b, &u};
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};

    CHECK(cudaMalloc(&out, sizeof(back)));
    for (int way = 0; way < 3; way++) {
        CHECK(cudaMemset(out, 0, sizeof(back)));
        config.gridDim = config.blockDim = dim3(1);
        attribute.id = cudaLaunchAttributePriority;
        attribute.val.priority = 0;
        config.attrs = &attribute;
        config.numAttrs = 1;
        if (way == 0)
            arguments<<<1, 1>>>(out, c, s, l, f, p, b, u);
        else if (way == 1)
            CHECK(cudaLaunchKernel((const void *)arguments, dim3(1), dim3(1), args, 0, 0));
        else
            CHECK(cudaLaunchKernelExC(&config, (const void *)arguments, args));
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
        for (int i = 0; i < 7; i++)
            EXPECT(back[i] == want[i], "way %d, argument %d: %f, expected %f", way, i, back[i], want[i]);
    }
    CHECK(cudaFree(out));
}

static void check_templates(void)
{
    float *f, back_f[32];
    int *n, back_n[32];

    CHECK(cudaMalloc(&f, sizeof(back_f)));
    CHECK(cudaMalloc(&n, sizeof(back_n)));
    templated<float, 3><<<1, 32>>>(f);
    templated<int, 5><<<1, 32>>>(n);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back_f, f, sizeof(back_f), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(back_n, n, sizeof(back_n), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++)
        EXPECT(back_f[i] == i * 3 / 2.0f && back_n[i] == i * 5 / 2, "%d", i);
    CHECK(cudaFree(f));
    CHECK(cudaFree(n));
}

/* The argument is copied at the launch: changing it afterwards changes nothing. */
static void check_order(void)
{
    enum { LAUNCHES = 3000 };
    static int back[LAUNCHES + 1];
    int *log;
    int value;
    void *args[] = {&log, &value};
    cudaStream_t stream;

    CHECK(cudaMalloc(&log, sizeof(back)));
    CHECK(cudaMemset(log, 0, sizeof(back)));
    CHECK(cudaStreamCreate(&stream));
    for (int i = 0; i < LAUNCHES; i++) {
        value = i * 7;
        CHECK(cudaLaunchKernel((const void *)append, dim3(1), dim3(1), args, 0, stream));
        value = -1;
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(back, log, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back[0], LAUNCHES);
    for (int i = 0; i < LAUNCHES; i++)
        EXPECT_EQ(back[i + 1], i * 7);
    CHECK(cudaFree(log));
    CHECK(cudaStreamDestroy(stream));
}

int main(void)
{
    check_indices();
    check_arguments();
    check_templates();
    check_order();
    return 0;
}
