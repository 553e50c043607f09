// cudaLimitStackSize: recursion as deep as the limit allows, with frames of a kilobyte.
#include "check.h"

enum { FRAME_WORDS = 256, DEPTH = 120 };

/* Sums what all frames hold, so that none can be left out. */
static __device__ __noinline__ int descend(int depth, const int *above)
{
    volatile int frame[FRAME_WORDS];
    int sum = above ? above[depth % FRAME_WORDS] : 0;

    for (int i = 0; i < FRAME_WORDS; i++)
        frame[i] = depth + i;
    if (depth > 0)
        sum += descend(depth - 1, (const int *)frame);
    return sum + frame[FRAME_WORDS - 1];
}

__global__ void run(int *out)
{
    out[threadIdx.x] = descend(DEPTH, nullptr);
}

int main(void)
{
    int *out, back[32], expected = 0;
    size_t bytes = 0;

    for (int depth = DEPTH; depth >= 0; depth--) {
        expected += depth + FRAME_WORDS - 1;
        if (depth < DEPTH)
            expected += depth + 1 + depth % FRAME_WORDS;
    }
    CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 192 * 1024));
    CHECK(cudaDeviceGetLimit(&bytes, cudaLimitStackSize));
    EXPECT(bytes >= 192 * 1024, "%zu", bytes);
    CHECK(cudaMalloc(&out, sizeof(back)));
    run<<<1, 32>>>(out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 32; i++)
        EXPECT_EQ(back[i], expected);
    CHECK(cudaFree(out));
    return 0;
}
