/* Takes device memory block by block until it is refused, waits until it is granted more while it runs, takes that too,
 * and then finds in every page what it wrote at the beginning. */
#include "demo.h"
#include <ctime>
#include <unistd.h>
#include <vector>

const size_t page_words = 1024; /* a word in each 4 KiB */

__global__ void write_pages(unsigned *words, size_t page_count, unsigned block)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < page_count; i += gridDim.x * blockDim.x)
        words[i * page_words] = (unsigned)i * 2654435761u + block;
}

__global__ void compare_pages(const unsigned *words, size_t page_count, unsigned block, unsigned *differ)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < page_count; i += gridDim.x * blockDim.x)
        if (words[i * page_words] != (unsigned)i * 2654435761u + block)
            atomicAdd(differ, 1u);
}

static size_t total_bytes()
{
    size_t free_bytes, total;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    return total;
}

static void take_all(std::vector<unsigned *> &blocks, size_t block_bytes)
{
    unsigned *block;
    cudaError_t error;
    while ((error = cudaMalloc(&block, block_bytes)) == cudaSuccess) {
        write_pages<<<8, 128>>>(block, block_bytes / 4096, (unsigned)blocks.size());
        blocks.push_back(block);
    }
    CHECK(cudaDeviceSynchronize());
    if (error != cudaErrorMemoryAllocation) {
        fprintf(stderr, "cudaMalloc: %s\n", cudaGetErrorString(error));
        exit(1);
    }
    printf("    holds %zu of %zu MiB; the next cudaMalloc said: %s\n", blocks.size() * block_bytes >> 20, total_bytes() >> 20,
           cudaGetErrorString(error));
    fflush(stdout);
}

/* Until cudaMemGetInfo shows more than `bytes`, for two minutes at most. */
static bool waits_for_more(size_t bytes)
{
    time_t end = time(NULL) + 120;
    while (total_bytes() <= bytes && time(NULL) < end)
        usleep(20000);
    return total_bytes() > bytes;
}

int main()
{
    print_device();
    fflush(stdout);
    const size_t begin_bytes = total_bytes(), block_bytes = begin_bytes / 8 & ~((size_t)(2 << 20) - 1);
    std::vector<unsigned *> blocks;
    take_all(blocks, block_bytes);
    size_t before = blocks.size();
    if (!waits_for_more(begin_bytes)) {
        printf("    no more memory was granted: WRONG\n");
        return 1;
    }
    printf("    was granted more while it runs: %zu MiB\n", total_bytes() >> 20);
    take_all(blocks, block_bytes);
    unsigned *differ_device, differ = 0;
    CHECK(cudaFree(blocks.back()));
    size_t kept = blocks.size() - 1;
    CHECK(cudaMalloc(&differ_device, sizeof differ));
    CHECK(cudaMemset(differ_device, 0, sizeof differ));
    for (size_t i = 0; i < kept; i++)
        compare_pages<<<8, 128>>>(blocks[i], block_bytes / 4096, (unsigned)i, differ_device);
    CHECK(cudaMemcpy(&differ, differ_device, sizeof differ, cudaMemcpyDeviceToHost));
    bool is_right = differ == 0 && blocks.size() > before;
    printf("    %zu blocks before, %zu after; %u pages differ from what was written: %s\n", before, blocks.size(), differ,
           is_right ? "correct" : "WRONG");
    return is_right ? 0 : 1;
}
