// Tensor maps: the same description gives the same bytes, another address only another address, and what cannot be one
// is refused; on a GPU that has it, the tensor memory accelerator loads and stores tiles by them, at the edge of the
// tensor, too, and goes on with a map of which the address was replaced.
// nvcc: -lcuda -gencode arch=compute_75,code=compute_75 -gencode arch=compute_90,code=compute_90
#include "check.h"
#include <cuda.h>

enum { WIDTH = 100, HEIGHT = 50, BOX_WIDTH = 32, BOX_HEIGHT = 16, PITCH = 112 };

/* Loads the box at (x, y) into shared memory, and stores it as it is. */
__global__ void move_box(const __grid_constant__ CUtensorMap from, int x, int y, float *to)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    __shared__ alignas(128) float tile[BOX_HEIGHT * BOX_WIDTH];
    __shared__ alignas(8) unsigned long long barrier;
    unsigned bar = (unsigned)__cvta_generic_to_shared(&barrier), at = (unsigned)__cvta_generic_to_shared(tile);

    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
        asm volatile("fence.proxy.async.shared::cta;");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"((unsigned)sizeof tile));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
                     "%3}], [%4];" ::"r"(at),
                     "l"(&from), "r"(x), "r"(y), "r"(bar)
                     : "memory");
    }
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(bar)
                     : "memory");
    for (int i = threadIdx.x; i < BOX_HEIGHT * BOX_WIDTH; i += blockDim.x)
        to[i] = tile[i];
#endif
}

static const cuuint64_t dims[] = {WIDTH, HEIGHT}, strides[] = {PITCH * sizeof(float)};
static const cuuint32_t box[] = {BOX_WIDTH, BOX_HEIGHT}, steps[] = {1, 1};

static CUresult encode(CUtensorMap *map, CUdeviceptr address)
{
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void *)(uintptr_t)address, dims, strides,
                                  box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

static void check_maps(CUdeviceptr one, CUdeviceptr other)
{
    CUtensorMap first, second, third;

    CHECK_CU(encode(&first, one));
    CHECK_CU(encode(&second, one));
    CHECK_CU(encode(&third, other));
    EXPECT(memcmp(&first, &second, sizeof first) == 0, "the same description gives other bytes");
    EXPECT(memcmp(&first, &third, sizeof first) != 0, "the address is not in it");
    CHECK_CU(cuTensorMapReplaceAddress(&second, (void *)(uintptr_t)other));
    EXPECT(memcmp(&second, &third, sizeof second) == 0, "the replaced address is not all that is another");

    const cuuint64_t image[] = {16, 20, 20, 2}, image_strides[] = {64, 1280, 25600};
    const cuuint32_t image_steps[] = {1, 1, 1, 1};
    const int lower[] = {-1, -1}, upper[] = {-1, -1};
    CHECK_CU(cuTensorMapEncodeIm2col(&first, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, (void *)(uintptr_t)one, image,
                                     image_strides, lower, upper, 16, 64, image_steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                     CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

#define TILED(type, rank, address, dims, strides, box, steps, swizzle)                                                 \
    cuTensorMapEncodeTiled(&map, type, rank, (void *)(uintptr_t)(address), dims, strides, box, steps,                  \
                           CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,                    \
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)

static void check_refusals(CUdeviceptr address)
{
    CUtensorMap map;
    const CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    const CUtensorMapSwizzle plain = CU_TENSOR_MAP_SWIZZLE_NONE;
    const cuuint64_t no_dims[] = {0, 50}, odd_strides[] = {PITCH * sizeof(float) + 4};
    const cuuint32_t large_box[] = {257, 16}, odd_box[] = {3, 16}, no_box[] = {0, 16}, large_steps[] = {1, 9},
                     no_steps[] = {1, 0};

    EXPECT_CU(TILED(type, 0, address, dims, strides, box, steps, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(TILED(type, 6, address, dims, strides, box, steps, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(TILED((CUtensorMapDataType)77, 2, address, dims, strides, box, steps, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(TILED(type, 2, address + 4, dims, strides, box, steps, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(TILED(type, 2, address, no_dims, strides, box, steps, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(TILED(type, 2, address, dims, odd_strides, box, steps, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(TILED(type, 2, address, dims, strides, large_box, steps, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(TILED(type, 2, address, dims, strides, odd_box, steps, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(TILED(type, 2, address, dims, strides, no_box, steps, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(TILED(type, 2, address, dims, strides, box, large_steps, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(TILED(type, 2, address, dims, strides, box, no_steps, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(TILED(type, 2, address, dims, strides, box, steps, CU_TENSOR_MAP_SWIZZLE_64B), CUDA_ERROR_INVALID_VALUE);
}

static void check_box(const CUtensorMap *map, const float *values, int x, int y, float *to)
{
    float tile[BOX_HEIGHT * BOX_WIDTH];

    move_box<<<1, 64>>>(*map, x, y, to);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(tile, to, sizeof tile, cudaMemcpyDeviceToHost));
    for (int i = 0; i < BOX_HEIGHT; i++)
        for (int j = 0; j < BOX_WIDTH; j++) {
            bool is_in = x + j >= 0 && x + j < WIDTH && y + i >= 0 && y + i < HEIGHT;
            float want = is_in ? values[(y + i) * PITCH + x + j] : 0;

            EXPECT(tile[i * BOX_WIDTH + j] == want, "(%d, %d) of the box at (%d, %d): %g, expected %g", j, i, x, y,
                   tile[i * BOX_WIDTH + j], want);
        }
}

static void check_loads(float *one, float *other)
{
    static float values[HEIGHT * PITCH], more[HEIGHT * PITCH];
    CUtensorMap map;
    float *to;

    for (int i = 0; i < HEIGHT * PITCH; i++) {
        values[i] = (float)i;
        more[i] = (float)(2 * i + 1);
    }
    CHECK(cudaMemcpy(one, values, sizeof values, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(other, more, sizeof more, cudaMemcpyHostToDevice));
    CHECK(cudaMalloc(&to, BOX_HEIGHT * BOX_WIDTH * sizeof *to));
    CHECK_CU(encode(&map, (CUdeviceptr)(uintptr_t)one));
    check_box(&map, values, 0, 0, to);
    check_box(&map, values, 36, 11, to); /* rows begin at whole 16 bytes */
    check_box(&map, values, 80, 40, to); /* over the edge, where there is 0 */
    check_box(&map, values, -8, -3, to);
    CHECK_CU(cuTensorMapReplaceAddress(&map, other));
    check_box(&map, more, 12, 20, to);
    CHECK(cudaFree(to));
}

int main(void)
{
    struct cudaDeviceProp properties;
    float *one, *other;

    CHECK(cudaGetDeviceProperties(&properties, 0));
    CHECK(cudaMalloc(&one, HEIGHT * PITCH * sizeof *one));
    CHECK(cudaMalloc(&other, HEIGHT * PITCH * sizeof *other));
    check_maps((CUdeviceptr)(uintptr_t)one, (CUdeviceptr)(uintptr_t)other);
    check_refusals((CUdeviceptr)(uintptr_t)one);
    if (properties.major >= 9 && !IS_SOFT_NAME(properties.name))
        check_loads(one, other);
    CHECK(cudaFree(one));
    CHECK(cudaFree(other));
    return 0;
}
