// Special registers, read by inline assembly, agree with the built-in variables and with each other.
#include "check.h"

enum { FIELDS = 12 };

#define READ32(name)                                                                                                   \
    ({                                                                                                                 \
        unsigned value_;                                                                                               \
        asm volatile("mov.u32 %0, %%" name ";" : "=r"(value_));                                                        \
        value_;                                                                                                        \
    })

__global__ void read_all(unsigned *out)
{
    extern __shared__ int unused[];
    int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned *mine = out + (blockIdx.x * blockDim.x * blockDim.y * blockDim.z + thread) * FIELDS;
    unsigned long long begin, end, time_begin, time_end;

    asm volatile("mov.u64 %0, %%clock64;" : "=l"(begin));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time_begin));
    mine[0] = READ32("tid.x") | READ32("tid.y") << 8 | READ32("tid.z") << 16;
    mine[1] = READ32("ntid.x") | READ32("ntid.y") << 8 | READ32("ntid.z") << 16;
    mine[2] = READ32("ctaid.x");
    mine[3] = READ32("nctaid.x");
    mine[4] = READ32("laneid");
    mine[5] = READ32("lanemask_lt");
    mine[6] = READ32("lanemask_le");
    mine[7] = READ32("lanemask_ge");
    mine[8] = READ32("smid") < READ32("nsmid");
    mine[9] = READ32("dynamic_smem_size");
    mine[10] = READ32("warpid") < 64;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(end));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time_end));
    mine[11] = end >= begin && time_end >= time_begin && time_begin > 0;
}

int main(void)
{
    const dim3 block(8, 5, 2);
    enum { THREADS = 80, BLOCKS = 3 };
    static unsigned back[BLOCKS * THREADS * FIELDS];
    unsigned *out;

    CHECK(cudaMalloc(&out, sizeof(back)));
    read_all<<<BLOCKS, block, 512>>>(out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    for (unsigned b = 0; b < BLOCKS; b++)
        for (unsigned t = 0; t < THREADS; t++) {
            unsigned lane = t % 32, bit = 1u << lane;
            const unsigned want[FIELDS] = {t % 8 | t / 8 % 5 << 8 | t / 40 << 16,
                                           8 | 5 << 8 | 2 << 16,
                                           b,
                                           BLOCKS,
                                           lane,
                                           bit - 1,
                                           bit | (bit - 1),
                                           ~(bit - 1),
                                           1,
                                           512,
                                           1,
                                           1};

            for (int f = 0; f < FIELDS; f++)
                EXPECT(back[(b * THREADS + t) * FIELDS + f] == want[f],
                       "block %u, thread %u, field %d: 0x%x, expected 0x%x", b, t, f,
                       back[(b * THREADS + t) * FIELDS + f], want[f]);
        }
    CHECK(cudaFree(out));
    return 0;
}
