/*
 * Whether two users' programs that share a GPU by MPS (nvidia-cuda-mps-control -M) have their memory apart. The driver
 * API alone, from the library that is named first: libcuda.so.1 on a GPU.
 *
 *     mps_users LIBRARY hold             makes memory at ADDRESS, fills it, prints "holding"; at the end of its
 * standard input compares it: "unharmed", or "harmed" or "lost CODE" mps_users LIBRARY look             reads there by
 * a kernel, without having made anything: "fault CODE", or "read WORD", where "read 5ec2e75ec2e7" is what the holder
 * wrote mps_users LIBRARY write            the same, writing: "fault CODE" or "written"
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "tests/system/programs/driver_library.h"

#define ADDRESS 0x200000000000ull
#define WINDOW  (1ull << 40) /* so much, before there is a context, is what the driver gives where it is asked for */
#define BYTES   (4ull << 20)
#define MARKER  0x5ec2e75ec2e7ull

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        CUresult result = (call);                                                                                      \
        if (result != CUDA_SUCCESS) {                                                                                  \
            printf("%s: %d\n", #call, (int)result);                                                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const char kernels[] =
    ".version 7.0\n.target sm_75\n.address_size 64\n"
    ".visible .entry look(.param .u64 from, .param .u64 to)\n{\n.reg .b64 %a, %b, %c;\n"
    "ld.param.u64 %a, [from];\nld.param.u64 %b, [to];\nld.global.u64 %c, [%a];\nst.global.u64 [%b], %c;\nret;\n}\n";

static void reserve(void)
{
    CUdeviceptr at = 0;

    CHECK(LOAD(cuMemAddressReserve)(&at, WINDOW, 0, ADDRESS, 0));
    if (at != ADDRESS) {
        printf("the address is not free\n");
        exit(1);
    }
}

static void make(void)
{
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
    };
    const CUmemAccessDesc access = {.location = properties.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;

    CHECK(LOAD(cuMemCreate)(&handle, BYTES, &properties, 0));
    CHECK(LOAD(cuMemMap)(ADDRESS, BYTES, 0, handle, 0));
    CHECK(LOAD(cuMemSetAccess)(ADDRESS, BYTES, &access, 1));
}

static int hold(void)
{
    uint64_t *words = malloc(BYTES);
    char byte;

    for (size_t i = 0; words && i < BYTES / sizeof *words; i++)
        words[i] = MARKER;
    make();
    CHECK(LOAD(cuMemcpyHtoD)(ADDRESS, words, BYTES));
    printf("holding\n");
    fflush(stdout);
    while (read(0, &byte, 1) == 1)
        continue;
    CUresult result = LOAD(cuMemcpyDtoH)(words, ADDRESS, BYTES);
    if (result != CUDA_SUCCESS) {
        printf("lost %d\n", (int)result);
        return 0;
    }
    for (size_t i = 0; i < BYTES / sizeof *words; i++)
        if (words[i] != MARKER) {
            printf("harmed\n");
            return 0;
        }
    printf("unharmed\n");
    return 0;
}

static int reach(bool is_writing)
{
    CUlibrary module;
    CUkernel kernel;
    CUdeviceptr own, other = ADDRESS;
    uint64_t word = 0;

    CHECK(LOAD(cuMemAlloc)(&own, sizeof word));
    CHECK(LOAD(cuMemcpyHtoD)(own, &word, sizeof word));
    CHECK(LOAD(cuLibraryLoadData)(&module, kernels, NULL, NULL, 0, NULL, NULL, 0));
    CHECK(LOAD(cuLibraryGetKernel)(&kernel, module, "look"));
    void *params[] = {is_writing ? &own : &other, is_writing ? &other : &own};
    CHECK(LOAD(cuLaunchKernel)((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    CUresult result = LOAD(cuCtxSynchronize)();
    if (result == CUDA_SUCCESS && !is_writing)
        result = LOAD(cuMemcpyDtoH)(&word, own, sizeof word);
    if (result != CUDA_SUCCESS)
        printf("fault %d\n", (int)result);
    else if (is_writing)
        printf("written\n");
    else
        printf("read %llx\n", (unsigned long long)word);
    return 0;
}

int main(int argc, char **argv)
{
    CUcontext context;

    if (argc != 3 || !(library = dlopen(argv[1], RTLD_NOW))) {
        printf("usage: mps_users LIBRARY hold | look | write: %s\n", argc == 3 ? dlerror() : "");
        return 2;
    }
    CHECK(LOAD(cuInit)(0));
    if (!strcmp(argv[2], "hold"))
        reserve();
    CHECK(LOAD(cuDevicePrimaryCtxRetain)(&context, 0));
    CHECK(LOAD(cuCtxSetCurrent)(context));
    return !strcmp(argv[2], "hold") ? hold() : reach(!strcmp(argv[2], "write"));
}
