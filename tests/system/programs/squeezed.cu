// Has an LZ4 block on its GPU, and lets the GPU decompress it when it is told. usage: squeezed
//
//   go      decompresses, and compares: "right", or "refused CODE" where the GPU does not
//   end     exit status 0
//
// The first line is "ready".
// nvcc: -lcuda
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Twenty bytes: "abcd" five times. Four literals, a match of eleven at distance 4, five literals.
static const unsigned char block[] = {4 << 4 | 7, 'a', 'b', 'c', 'd', 4, 0, 5 << 4, 'd', 'a', 'b', 'c', 'd'};
static const char text[] = "abcdabcdabcdabcdabcd";

static void check(CUresult code)
{
    if (code == CUDA_SUCCESS)
        return;
    printf("error %d\n", (int)code);
    exit(7);
}

static void go(CUdeviceptr memory)
{
    CUmemDecompressParams params = {};
    char got[sizeof text] = "";
    unsigned written = 0;

    params.srcNumBytes = sizeof block;
    params.dstNumBytes = 1024;
    params.src = (const void *)memory;
    params.dst = (void *)(memory + 1024);
    params.dstActBytes = (cuuint32_t *)(memory + 2048);
    params.algo = CU_MEM_DECOMPRESS_ALGORITHM_LZ4;
    check(cuMemsetD8(memory + 1024, 0, 1028));
    CUresult result = cuMemBatchDecompressAsync(&params, 1, 0, NULL, NULL);
    if (result != CUDA_SUCCESS) {
        printf("refused %d\n", (int)result);
        return;
    }
    check(cuMemcpyDtoH(got, memory + 1024, sizeof text - 1));
    check(cuMemcpyDtoH(&written, memory + 2048, sizeof written));
    puts(written == sizeof text - 1 && !strcmp(got, text) ? "right" : "wrong");
}

int main(void)
{
    CUcontext context;
    CUdeviceptr memory;
    char line[64];

    setvbuf(stdout, NULL, _IOLBF, 0);
    check(cuInit(0));
    check(cuDevicePrimaryCtxRetain(&context, 0));
    check(cuCtxSetCurrent(context));
    check(cuMemAlloc(&memory, 4096));
    check(cuMemcpyHtoD(memory, block, sizeof block));
    puts("ready");
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n"))
        go(memory);
    return 0;
}
