// Surface objects: stores and loads of every width in one, two and three dimensions and in layers, what each boundary
// mode does outside, reductions, and textures that see what was stored.
#include "check.h"

#include <vector>

enum { WIDTH = 24, HEIGHT = 10, DEPTH = 4 };

template <class T> __device__ T made(int i);
template <> __device__ unsigned char made(int i)
{
    return (unsigned char)(i * 7);
}
template <> __device__ uchar4 made(int i)
{
    return make_uchar4(i, i + 1, i + 2, i + 3);
}
template <> __device__ short2 made(int i)
{
    return make_short2(i, -i);
}
template <> __device__ ushort4 made(int i)
{
    return make_ushort4(i, i * 2, i * 3, i * 4);
}
template <> __device__ float made(int i)
{
    return i * 0.5f;
}
template <> __device__ int2 made(int i)
{
    return make_int2(i, -i);
}
template <> __device__ float4 made(int i)
{
    return make_float4(i, i + 0.25f, i + 0.5f, i + 0.75f);
}
template <> __device__ long long made(int i)
{
    return i * 0x100000001ll;
}

/* What is stored is read again by another kernel, as bytes of memory. */
template <class T> __global__ void store(cudaSurfaceObject_t surface, int dimensions, bool is_layered)
{
    int x = (int)threadIdx.x, y = (int)blockIdx.x, z = (int)blockIdx.y, i = (z * HEIGHT + y) * WIDTH + x;
    T v = made<T>(i);
    if (dimensions == 1 && is_layered)
        surf1DLayeredwrite(v, surface, x * (int)sizeof(T), z);
    else if (dimensions == 1)
        surf1Dwrite(v, surface, x * (int)sizeof(T));
    else if (dimensions == 2 && is_layered)
        surf2DLayeredwrite(v, surface, x * (int)sizeof(T), y, z);
    else if (dimensions == 2)
        surf2Dwrite(v, surface, x * (int)sizeof(T), y);
    else
        surf3Dwrite(v, surface, x * (int)sizeof(T), y, z);
}

template <class T> __global__ void load(cudaSurfaceObject_t surface, int dimensions, bool is_layered, T *out)
{
    int x = (int)threadIdx.x, y = (int)blockIdx.x, z = (int)blockIdx.y, i = (z * HEIGHT + y) * WIDTH + x;
    if (dimensions == 1 && is_layered)
        surf1DLayeredread(&out[i], surface, x * (int)sizeof(T), z);
    else if (dimensions == 1)
        surf1Dread(&out[i], surface, x * (int)sizeof(T));
    else if (dimensions == 2 && is_layered)
        surf2DLayeredread(&out[i], surface, x * (int)sizeof(T), y, z);
    else if (dimensions == 2)
        surf2Dread(&out[i], surface, x * (int)sizeof(T), y);
    else
        surf3Dread(&out[i], surface, x * (int)sizeof(T), y, z);
}

template <class T> __global__ void expected(T *out)
{
    int x = (int)threadIdx.x, y = (int)blockIdx.x, z = (int)blockIdx.y, i = (z * HEIGHT + y) * WIDTH + x;
    out[i] = made<T>(i);
}

static cudaSurfaceObject_t make_surface(cudaArray_t array)
{
    cudaResourceDesc resource = {}, found;
    cudaSurfaceObject_t surface;
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    CHECK(cudaGetSurfaceObjectResourceDesc(&found, surface));
    EXPECT_EQ(found.resType, cudaResourceTypeArray);
    EXPECT(found.res.array.array == array);
    return surface;
}

template <class T> void test_width(const cudaChannelFormatDesc &format, int dimensions, bool is_layered)
{
    const dim3 grid(dimensions > 1 ? HEIGHT : 1, dimensions > 2 || is_layered ? DEPTH : 1);
    const size_t rows = grid.x, slices = grid.y, count = (size_t)HEIGHT * WIDTH * DEPTH;
    std::vector<T> want(count), got(count), direct(count);
    cudaArray_t array;
    T *device;
    CHECK(cudaMalloc(&device, count * sizeof(T)));
    CHECK(cudaMalloc3DArray(&array, &format,
                            make_cudaExtent(WIDTH, dimensions > 1 ? HEIGHT : 0, slices > 1 ? slices : 0),
                            cudaArraySurfaceLoadStore | (is_layered ? cudaArrayLayered : 0)));
    cudaSurfaceObject_t surface = make_surface(array);
    store<T><<<grid, WIDTH>>>(surface, dimensions, is_layered);
    CHECK_LAUNCH();
    CHECK(cudaMemset(device, 0, count * sizeof(T)));
    load<T><<<grid, WIDTH>>>(surface, dimensions, is_layered, device);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(got.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    CHECK(cudaMemset(device, 0, count * sizeof(T)));
    expected<<<grid, WIDTH>>>(device);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(want.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    EXPECT_EQ(memcmp(got.data(), want.data(), count * sizeof(T)), 0);
    cudaMemcpy3DParms copy = {};
    copy.srcArray = array;
    copy.dstPtr = make_cudaPitchedPtr(direct.data(), WIDTH * sizeof(T), WIDTH, HEIGHT);
    copy.extent = make_cudaExtent(WIDTH, rows, slices);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    EXPECT_EQ(memcmp(direct.data(), want.data(), count * sizeof(T)), 0);
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(device));
}

template <class T> void test_widths(const cudaChannelFormatDesc &format)
{
    test_width<T>(format, 1, false);
    test_width<T>(format, 1, true);
    test_width<T>(format, 2, false);
    test_width<T>(format, 2, true);
    test_width<T>(format, 3, false);
}

/* ---- outside ---- */

__global__ void store_outside(cudaSurfaceObject_t surface, bool is_clamped)
{
    int x = (int)threadIdx.x - 4, y = (int)blockIdx.x - 2, v = 1000 + (y + 2) * 100 + x + 4;
    bool is_inside = x >= 0 && x < WIDTH && y >= 0 && y < HEIGHT;
    if (is_inside)
        return;
    if (is_clamped && x == -1 && y == 3) /* one alone: others would race for the same place */
        surf2Dwrite(v, surface, x * 4, y, cudaBoundaryModeClamp);
    else if (!is_clamped)
        surf2Dwrite(v, surface, x * 4, y, cudaBoundaryModeZero);
}

__global__ void load_outside(cudaSurfaceObject_t surface, int *out)
{
    int x = (int)threadIdx.x - 4, y = (int)blockIdx.x - 2, i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    out[2 * i] = surf2Dread<int>(surface, x * 4, y, cudaBoundaryModeZero);
    out[2 * i + 1] = surf2Dread<int>(surface, x * 4, y, cudaBoundaryModeClamp);
}

static int clamped(int i, int n)
{
    return i < 0 ? 0 : i < n ? i : n - 1;
}

static void test_bounds(void)
{
    enum { ACROSS = WIDTH + 8, DOWN = HEIGHT + 4 };
    cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
    std::vector<int> in(WIDTH * HEIGHT), got(2 * ACROSS * DOWN), after(WIDTH * HEIGHT);
    cudaArray_t array;
    int *device;
    for (size_t i = 0; i < in.size(); i++)
        in[i] = (int)i + 1;
    CHECK(cudaMalloc(&device, got.size() * 4));
    CHECK(cudaMallocArray(&array, &format, WIDTH, HEIGHT, cudaArraySurfaceLoadStore));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, in.data(), WIDTH * 4, WIDTH * 4, HEIGHT, cudaMemcpyHostToDevice));
    cudaSurfaceObject_t surface = make_surface(array);
    load_outside<<<DOWN, ACROSS>>>(surface, device);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(got.data(), device, got.size() * 4, cudaMemcpyDeviceToHost));
    for (int y = -2; y < HEIGHT + 2; y++)
        for (int x = -4; x < WIDTH + 4; x++) {
            size_t i = (size_t)((y + 2) * ACROSS + x + 4);
            bool is_inside = x >= 0 && x < WIDTH && y >= 0 && y < HEIGHT;
            int nearest = in[(size_t)(clamped(y, HEIGHT) * WIDTH + clamped(x, WIDTH))];
            EXPECT_EQ(got[2 * i], is_inside ? nearest : 0);
            EXPECT_EQ(got[2 * i + 1], nearest);
        }
    store_outside<<<DOWN, ACROSS>>>(surface, false);
    CHECK_LAUNCH();
    store_outside<<<DOWN, ACROSS>>>(surface, true);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy2DFromArray(after.data(), WIDTH * 4, array, 0, 0, WIDTH * 4, HEIGHT, cudaMemcpyDeviceToHost));
    in[3 * WIDTH] = 1000 + 5 * 100 + 3;
    for (size_t i = 0; i < in.size(); i++)
        EXPECT_EQ(after[i], in[i]);
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(device));
}

/* ---- reductions ---- */

__global__ void reduce(cudaSurfaceObject_t surface)
{
    unsigned v = threadIdx.x + 1, bit = 1u << threadIdx.x % 32;
    asm volatile("sured.b.add.1d.u32.trap [%0, {%1}], %2;" ::"l"(surface), "r"(0), "r"(v));
    asm volatile("sured.b.max.1d.u32.trap [%0, {%1}], %2;" ::"l"(surface), "r"(4), "r"(v));
    asm volatile("sured.b.min.1d.s32.trap [%0, {%1}], %2;" ::"l"(surface), "r"(8), "r"(-(int)v));
    asm volatile("sured.b.or.1d.b32.trap [%0, {%1}], %2;" ::"l"(surface), "r"(12), "r"(bit));
    asm volatile("sured.b.and.1d.b32.trap [%0, {%1}], %2;" ::"l"(surface), "r"(16), "r"(~(bit & 0xff)));
    asm volatile("sured.b.add.1d.u64.trap [%0, {%1}], %2;" ::"l"(surface), "r"(24), "l"((unsigned long long)v << 32));
}

static void test_reductions(void)
{
    cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
    unsigned words[8] = {0, 0, 0, 0, 0xffffffff, 0, 0, 0};
    unsigned long long wide;
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &format, 8, 0, cudaArraySurfaceLoadStore));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, words, 32, 32, 1, cudaMemcpyHostToDevice));
    cudaSurfaceObject_t surface = make_surface(array);
    reduce<<<1, 256>>>(surface);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy2DFromArray(words, 32, array, 0, 0, 32, 1, cudaMemcpyDeviceToHost));
    memcpy(&wide, &words[6], sizeof wide);
    EXPECT_EQ(words[0], 256 * 257 / 2);
    EXPECT_EQ(words[1], 256);
    EXPECT_EQ((int)words[2], -256);
    EXPECT_EQ(words[3], 0xffffffff);
    EXPECT_EQ(words[4], 0xffffff00);
    EXPECT_EQ(wide, (256ull * 257 / 2) << 32);
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(array));
}

/* ---- a surface and a texture of one array ---- */

__global__ void bump(cudaSurfaceObject_t surface, cudaTextureObject_t texture)
{
    int x = (int)threadIdx.x, y = (int)blockIdx.x;
    surf2Dwrite(tex2D<float>(texture, x + 0.5f, y + 0.5f) + 1, surface, x * 4, y);
}

__global__ void ask(cudaTextureObject_t texture, cudaSurfaceObject_t surface, int *out)
{
    asm("txq.width.b32 %0, [%1];" : "=r"(out[0]) : "l"(texture));
    asm("txq.height.b32 %0, [%1];" : "=r"(out[1]) : "l"(texture));
    asm("suq.width.b32 %0, [%1];" : "=r"(out[2]) : "l"(surface));
    asm("suq.height.b32 %0, [%1];" : "=r"(out[3]) : "l"(surface));
}

static void test_both(void)
{
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    std::vector<float> in(WIDTH * HEIGHT), out(WIDTH * HEIGHT);
    cudaResourceDesc resource = {};
    cudaTextureDesc desc = {};
    cudaTextureObject_t texture;
    int *device, answers[4];
    for (size_t i = 0; i < in.size(); i++)
        in[i] = (float)i;
    resource.resType = cudaResourceTypeArray;
    CHECK(cudaMallocArray(&resource.res.array.array, &format, WIDTH, HEIGHT, cudaArraySurfaceLoadStore));
    CHECK(cudaMemcpy2DToArray(resource.res.array.array, 0, 0, in.data(), WIDTH * 4, WIDTH * 4, HEIGHT,
                              cudaMemcpyHostToDevice));
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, NULL));
    cudaSurfaceObject_t surface = make_surface(resource.res.array.array);
    for (int round = 0; round < 5; round++) {
        bump<<<HEIGHT, WIDTH>>>(surface, texture);
        CHECK_LAUNCH();
    }
    CHECK(cudaMemcpy2DFromArray(out.data(), WIDTH * 4, resource.res.array.array, 0, 0, WIDTH * 4, HEIGHT,
                                cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < in.size(); i++)
        EXPECT(out[i] == in[i] + 5);
    CHECK(cudaMalloc(&device, sizeof answers));
    ask<<<1, 1>>>(texture, surface, device);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(answers, device, sizeof answers, cudaMemcpyDeviceToHost));
    EXPECT_EQ(answers[0], WIDTH);
    EXPECT_EQ(answers[1], HEIGHT);
    EXPECT_EQ(answers[2], WIDTH);
    EXPECT_EQ(answers[3], HEIGHT);
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(resource.res.array.array));
    CHECK(cudaFree(device));
}

static void test_refusals(void)
{
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaResourceDesc resource = {};
    cudaSurfaceObject_t surface;
    void *memory;
    CHECK(cudaMalloc(&memory, 4096));
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = memory;
    resource.res.linear.desc = format;
    resource.res.linear.sizeInBytes = 4096;
    EXPECT_ERR(cudaCreateSurfaceObject(&surface, &resource), cudaErrorInvalidValue);
    CHECK(cudaFree(memory));
}

int main(void)
{
    test_widths<unsigned char>(cudaCreateChannelDesc<unsigned char>());
    test_widths<uchar4>(cudaCreateChannelDesc<uchar4>());
    test_widths<short2>(cudaCreateChannelDesc<short2>());
    test_widths<ushort4>(cudaCreateChannelDesc<ushort4>());
    test_widths<float>(cudaCreateChannelDesc<float>());
    test_widths<int2>(cudaCreateChannelDesc<int2>());
    test_widths<float4>(cudaCreateChannelDesc<float4>());
    test_widths<long long>(cudaCreateChannelDesc<uint2>());
    test_bounds();
    test_reductions();
    test_both();
    test_refusals();
    return 0;
}
