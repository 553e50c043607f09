// A program that has something only its server has: a block that a kernel has allocated on the device, known by an
// address in device memory. Prints "ready", and for each line "check" on its input changes the block by a kernel and
// prints "right N", the N-th time; "wrong N" and exit status 1 where it holds something else. "end" ends it: "ended". A
// call that fails: "error CODE", exit status 7.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 64 };

static void check(cudaError_t error)
{
    if (!error)
        return;
    printf("error %d\n", (int)error);
    exit(7);
}

__global__ void allocate(uint32_t **place)
{
    uint32_t *block = (uint32_t *)malloc(WORDS * sizeof *block);

    for (uint32_t i = 0; block && i < WORDS; i++)
        block[i] = i;
    *place = block;
}

__global__ void change(uint32_t **place, uint32_t *copy)
{
    for (uint32_t i = 0; i < WORDS; i++) {
        if (*place)
            (*place)[i] = (*place)[i] * 3 + 1;
        copy[i] = *place ? (*place)[i] : UINT32_MAX;
    }
}

int main(void)
{
    uint32_t want[WORDS], got[WORDS], **place, *copy;
    unsigned count = 0;
    char line[64];

    setvbuf(stdout, NULL, _IOLBF, 0);
    check(cudaMalloc(&place, sizeof *place));
    check(cudaMalloc(&copy, sizeof got));
    allocate<<<1, 1>>>(place);
    check(cudaGetLastError());
    check(cudaDeviceSynchronize());
    for (uint32_t i = 0; i < WORDS; i++)
        want[i] = i;
    printf("ready\n");
    while (fgets(line, sizeof line, stdin) && !strcmp(line, "check\n")) {
        for (uint32_t i = 0; i < WORDS; i++)
            want[i] = want[i] * 3 + 1;
        change<<<1, 1>>>(place, copy);
        check(cudaGetLastError());
        check(cudaMemcpy(got, copy, sizeof got, cudaMemcpyDeviceToHost));
        bool is_right = memcmp(got, want, sizeof got) == 0;
        printf("%s %u\n", is_right ? "right" : "wrong", ++count);
        if (!is_right)
            return 1;
    }
    printf("ended\n");
    return 0;
}
