// Where a device variable is, the program has no memory: the address that the runtime tells means the variable alone, and
// one that lies where the program has memory already is refused by name. The place is found by a child: without
// randomization every process is told the same one.
#include "check.h"
#include <sys/mman.h>

__device__ int table[4096] = {1, 2, 3};
__device__ int neighbour = 7;

static int *told; /* shared with the child */

static int tell(void)
{
    void *address = NULL;
    cudaError_t error = cudaGetSymbolAddress(&address, table);

    *(void **)told = error == cudaSuccess ? address : NULL;
    return 0;
}

/* Whether a page of the program's own comes to lie at `place`; it stays. */
static bool map_at(void *place)
{
    void *page = (void *)((uintptr_t)place & ~(uintptr_t)4095);
    void *got = mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    if (got != MAP_FAILED && got != page)
        munmap(got, 4096);
    return got == page;
}

/* Copies whose direction the address alone says: from the program's memory to the device's and back. */
static void check_copies(const void *own)
{
    char *memory, back[64];

    CHECK(cudaMalloc((void **)&memory, sizeof(back)));
    CHECK(cudaMemcpy(memory, own, sizeof(back), cudaMemcpyDefault));
    CHECK(cudaMemcpy(back, memory, sizeof(back), cudaMemcpyDefault));
    EXPECT(memcmp(back, own, sizeof(back)) == 0);
    CHECK(cudaFree(memory));
}

int main(void)
{
    void *address = NULL, *again = NULL;
    char *page;
    int value = 0;

    told = (int *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_EQ(run_in_child(tell), 0);
    void *place = *(void **)told;
    EXPECT(place, "the child was told no address");
    if (!map_at(place))
        SKIP("the address that another process was told is taken here");
    page = (char *)((uintptr_t)place & ~(uintptr_t)4095);
    memset(page, 'x', 4096);
    cudaError_t error = cudaGetSymbolAddress(&address, table);
    if (error != cudaSuccess) { /* natively it lies elsewhere */
        EXPECT_EQ(error, cudaErrorMapBufferObjectFailed);
        EXPECT(is_forwarded(), "refused natively");
        EXPECT_EQ(cudaGetLastError(), cudaErrorMapBufferObjectFailed);
        check_copies(page);
        EXPECT_EQ(page[0], 'x');
        munmap(page, 4096);
        CHECK(cudaGetSymbolAddress(&address, table));
    } else {
        EXPECT(address != place, "the address means the program's memory, too");
    }
    CHECK(cudaMemcpy(&value, (int *)address + 2, sizeof(value), cudaMemcpyDefault));
    EXPECT_EQ(value, 3);
    EXPECT(!map_at(address), "memory of the program lies where the variable is");
    CHECK(cudaGetSymbolAddress(&again, neighbour));
    CHECK(cudaMemcpy(&value, again, sizeof(value), cudaMemcpyDefault));
    EXPECT_EQ(value, 7);

    /* A child has the reservation, and no CUDA; its end is none of the parent's. */
    int status = 0;
    pid_t child = fork();
    EXPECT(child >= 0, "fork: %m");
    if (!child)
        _exit(map_at(address) || cudaMemcpy(&value, address, sizeof(value), cudaMemcpyDefault) == cudaSuccess);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    CHECK(cudaMemcpy(&value, (int *)address + 1, sizeof(value), cudaMemcpyDefault));
    EXPECT_EQ(value, 2);
    return 0;
}
