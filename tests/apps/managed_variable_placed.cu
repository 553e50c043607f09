// A managed variable for which there is no place in the program, because it has memory of its own where the variable
// is: nothing of its module is used, by the variable's name, and the rest of the program works. The place is found by a
// child: without randomization every process is told the same one.
#include "capture.h"
#include <sys/mman.h>

__managed__ int lent = 5;

__global__ void add(void)
{
    lent++;
}

static void **told; /* shared with the child */

static int tell(void)
{
    lent = 6;
    add<<<1, 1>>>();
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(lent, 7);
    *told = &lent;
    return 0;
}

int main(void)
{
    struct capture capture;
    char said[4096], *memory;

    if (!is_forwarded())
        SKIP("natively the variable lies elsewhere then");
    told = (void **)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_EQ(run_in_child(tell), 0);
    EXPECT(*told, "the child was told no address");
    void *page = (void *)((uintptr_t)*told & ~(uintptr_t)4095);
    void *got = mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != page)
        SKIP("the address that another process was told is taken here");
    memset(page, 'x', 4096);
    capture_begin(&capture, stderr);
    add<<<1, 1>>>();
    cudaError_t first = cudaGetLastError();
    add<<<1, 1>>>();
    cudaError_t second = cudaGetLastError();
    capture_end(&capture, said, sizeof(said));
    cudaDeviceProp properties;
    if (first == cudaSuccess && !cudaGetDeviceProperties(&properties, 0) && !IS_SOFT_NAME(properties.name))
        SKIP("this GPU's driver has it elsewhere in every process");
    EXPECT_EQ(first, cudaErrorMapBufferObjectFailed);
    EXPECT_EQ(second, cudaErrorNotSupported);
    EXPECT(count_of(said, "variable lent of device 0 is refused") == 1, "said: %s", said);
    EXPECT(count_of(said, "managed variable lent is not supported") == 1, "said: %s", said);
    for (int i = 0; i < 4096; i++)
        EXPECT_EQ(((char *)page)[i], 'x');
    CHECK(cudaMalloc((void **)&memory, 4));
    CHECK(cudaMemset(memory, 0, 4));
    CHECK(cudaFree(memory));
    return 0;
}
