// Page-locked memory of all kinds of use, by one command a line on standard input:
//
//   check         all of it is written, copied to the GPU, changed there, copied back, and compared: "right N"
//   more | less   one buffer more | the last one is freed: "buffers N"
//   leave | take  copies that wait for a kernel that runs for a while: "left" | they have ended, and are compared: "taken"
//   mapped        a kernel writes a buffer by its address: "mapped N", the code of what it needs (0, or what CUDA answered)
//   asked         a buffer's address is asked for, and used by nothing: "asked 0"
//   flag          memory is allocated that is to be mapped, and used by nothing: "flag 0"
//   plain         a kernel writes a buffer by the host's own pointer: "plain 0"
//   graph         a kernel of a graph does: "graph 0"
//   update        the same by an update of the executable graph, whose kernel had a pointer of the device's before: "update 0"
//   library       cuBLAS does: "library 0"
//   managed       managed memory, which every check from then on uses, too: "managed N", whether the host may use it beside kernels
//   virtual       physical memory of the host at an address of the program's, which every check from then on uses, too: "virtual N"
//   large N       managed memory of N MiB, in place of what there was, used by nothing; 0: none: "large N", the code of what it needs
//   end           also the end of input: "ended" and exit status 0
//
// The first line is "ready". What is wrong is "wrong …" and exit status 8, a CUDA error "error CODE" and 7.
// nvcc: -ldl -lcuda
#include <cublas_v2.h>
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT(x)  #x
#define NAMED(x) TEXT(x)
#define LIBRARY  "libcublas.so." NAMED(CUBLAS_VER_MAJOR)

enum { COUNT = 300007, BUFFERS = 8, ROW = 1000, ROWS = 90, APART = 1040, SPINS = 30 };

static void check(cudaError_t error)
{
    if (!error)
        return;
    printf("error %d\n", (int)error);
    fflush(stdout);
    _Exit(7);
}

static void wrong(const char *what, unsigned n, long at)
{
    printf("wrong %s n=%u at=%ld\n", what, n, at);
    fflush(stdout);
    _Exit(8);
}

__global__ void change(uint32_t *values, int count, uint32_t n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = values[i] * 2654435761u + n;
}

__global__ void spin(uint32_t *value, int turns)
{
    uint32_t x = *value;
    for (int i = 0; i < turns * 20000; i++)
        x = x * 1664525u + 1013904223u;
    *value = x;
}

struct buffer {
    uint32_t *host;
    uint32_t *device;
};

static struct buffer buffers[BUFFERS];
static unsigned count, checks;
static cudaStream_t stream;
static uint32_t *left, *spun, *managed, *placed;

static uint32_t pattern(unsigned n, unsigned which, long i)
{
    return (uint32_t)i * 40503u + n * 7919u + which;
}

static void more(void)
{
    if (count == BUFFERS)
        return;
    struct buffer *one = &buffers[count++];
    check(cudaHostAlloc((void **)&one->host, COUNT * sizeof *one->host,
                        count % 2 ? cudaHostAllocDefault : cudaHostAllocPortable));
    check(cudaMalloc((void **)&one->device, COUNT * sizeof *one->device));
    for (long i = 0; i < COUNT; i += 1009)
        if (one->host[i])
            wrong("new", count, i);
}

static void less(void)
{
    struct buffer *one = &buffers[--count];
    check(cudaFreeHost(one->host));
    check(cudaFree(one->device));
}

/* Rows that are apart on both sides, from and to the middle of a buffer. */
static void check_rows(const struct buffer *one, unsigned n)
{
    unsigned char *host = (unsigned char *)one->host + 4096 + 3;
    for (int row = 0; row < ROWS; row++)
        memset(host + row * APART, (int)(n + row), ROW);
    check(cudaMemcpy2DAsync(one->device, APART + 48, host, APART, ROW, ROWS, cudaMemcpyHostToDevice, stream));
    check(cudaStreamSynchronize(stream));
    memset(host, 0, ROWS * APART);
    check(cudaMemcpy2D(host, APART, one->device, APART + 48, ROW, ROWS, cudaMemcpyDeviceToHost));
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < APART; i++)
            if (host[row * APART + i] != (i < ROW ? (unsigned char)(n + row) : 0))
                wrong("row", n, row * APART + i);
}

/* The kernel waits for the host to say so in the memory itself, where the host may use it then. */
__global__ void change_when_told(uint32_t *values, int count, uint32_t n, volatile uint32_t *word)
{
    while (*word != n)
        ;
    for (int i = threadIdx.x; i < count; i += blockDim.x)
        values[i] = values[i] * 2654435761u + n;
}

static int is_concurrent(void)
{
    int is_so = 0;
    check(cudaDeviceGetAttribute(&is_so, cudaDevAttrConcurrentManagedAccess, 0));
    return is_so;
}

static void check_managed(unsigned n)
{
    volatile uint32_t *word = managed + COUNT;
    for (long i = 0; i < COUNT; i++)
        managed[i] = pattern(n, 7, i);
    *word = is_concurrent() ? 0 : n;
    change_when_told<<<1, 256, 0, stream>>>(managed, COUNT, n, word);
    check(cudaGetLastError());
    if (is_concurrent())
        *word = n;
    check(cudaStreamSynchronize(stream));
    for (long i = 0; i < COUNT; i++)
        if (managed[i] != pattern(n, 7, i) * 2654435761u + n)
            wrong("managed", n, i);
}

static void check_placed(unsigned n)
{
    for (long i = 0; i < COUNT; i++)
        placed[i] = pattern(n, 8, i);
    change<<<(COUNT + 255) / 256, 256, 0, stream>>>(placed, COUNT, n);
    check(cudaGetLastError());
    check(cudaStreamSynchronize(stream));
    for (long i = 0; i < COUNT; i++)
        if (placed[i] != pattern(n, 8, i) * 2654435761u + n)
            wrong("virtual", n, i);
    check(cudaMemset(placed, 0x21, 4));
    if (placed[0] != 0x21212121)
        wrong("virtual", n, 0);
}

static void check_all(void)
{
    unsigned n = ++checks;
    if (managed)
        check_managed(n);
    if (placed)
        check_placed(n);
    for (unsigned which = 0; which < count; which++) {
        struct buffer *one = &buffers[which];
        for (long i = 0; i < COUNT; i++)
            one->host[i] = pattern(n, which, i);
        check(cudaMemcpyAsync(one->device, one->host, COUNT * sizeof *one->host, cudaMemcpyHostToDevice, stream));
        change<<<(COUNT + 255) / 256, 256, 0, stream>>>(one->device, COUNT, n);
        check(cudaMemcpyAsync(one->host, one->device, COUNT * sizeof *one->host, cudaMemcpyDeviceToHost, stream));
    }
    check(cudaStreamSynchronize(stream));
    for (unsigned which = 0; which < count; which++)
        for (long i = 0; i < COUNT; i++)
            if (buffers[which].host[i] != pattern(n, which, i) * 2654435761u + n)
                wrong("copy", n, i);
    if (count)
        check_rows(&buffers[n % count], n);
    printf("right %u\n", n);
}

static void leave(void)
{
    if (!left)
        check(cudaMallocHost((void **)&left, COUNT * sizeof *left));
    for (long i = 0; i < COUNT; i++)
        left[i] = pattern(checks, 99, i);
    spin<<<1, 1, 0, stream>>>(spun, SPINS);
    check(cudaMemcpyAsync(buffers[0].device, left, COUNT * sizeof *left, cudaMemcpyHostToDevice, stream));
    change<<<(COUNT + 255) / 256, 256, 0, stream>>>(buffers[0].device, COUNT, 5);
    check(cudaMemcpyAsync(left, buffers[0].device, COUNT * sizeof *left, cudaMemcpyDeviceToHost, stream));
    printf("left\n");
}

static void take(void)
{
    check(cudaStreamSynchronize(stream));
    for (long i = 0; i < COUNT; i++)
        if (left[i] != pattern(checks, 99, i) * 2654435761u + 5)
            wrong("left", checks, i);
    printf("taken\n");
}

static void map(void)
{
    uint32_t *at = NULL;
    cudaError_t error = cudaHostGetDevicePointer((void **)&at, buffers[0].host, 0);
    cudaGetLastError();
    if (!error) {
        buffers[0].host[17] = 5;
        change<<<1, 32, 0, stream>>>(at, 32, 1);
        check(cudaStreamSynchronize(stream));
        if (buffers[0].host[17] != 5 * 2654435761u + 1)
            wrong("mapped", 0, 17);
    }
    printf("mapped %d\n", (int)error);
}

static void ask(void)
{
    uint32_t *at;
    check(cudaHostGetDevicePointer((void **)&at, buffers[0].host, 0));
    printf("asked 0\n");
}

static void flag(void)
{
    void *memory;
    check(cudaHostAlloc(&memory, 4096, cudaHostAllocMapped));
    printf("flag 0\n");
}

static void plain(void)
{
    uint32_t *host = buffers[0].host;
    host[17] = 6;
    change<<<1, 32, 0, stream>>>(host, 32, 2);
    check(cudaStreamSynchronize(stream));
    if (host[17] != 6 * 2654435761u + 2)
        wrong("plain", 0, 17);
    printf("plain 0\n");
}

static void graph(bool is_update)
{
    uint32_t *host = buffers[0].host, *values = is_update ? buffers[0].device : host, n = 3;
    int width = 32;
    void *params[] = {&values, &width, &n};
    cudaKernelNodeParams node = {};
    cudaGraph_t made;
    cudaGraphExec_t exec;
    cudaGraphNode_t only;
    node.func = (void *)change;
    node.gridDim = dim3(1);
    node.blockDim = dim3(32);
    node.kernelParams = params;
    host[17] = 7;
    check(cudaGraphCreate(&made, 0));
    check(cudaGraphAddKernelNode(&only, made, NULL, 0, &node));
    check(cudaGraphInstantiate(&exec, made, 0));
    check(cudaGraphLaunch(exec, stream));
    check(cudaStreamSynchronize(stream));
    if (is_update) {
        values = host;
        check(cudaGraphExecKernelNodeSetParams(exec, only, &node));
        check(cudaGraphLaunch(exec, stream));
        check(cudaStreamSynchronize(stream));
    }
    if (host[17] != 7 * 2654435761u + 3)
        wrong("graph", 0, 17);
    check(cudaGraphExecDestroy(exec));
    check(cudaGraphDestroy(made));
    printf("%s 0\n", is_update ? "update" : "graph");
}

/* Loaded when it is used: not every machine with this program has it. */
static void *cublas(const char *name)
{
    void *library = dlopen(LIBRARY, RTLD_NOW), *entry = library ? dlsym(library, name) : NULL;
    if (!entry)
        wrong(dlerror(), 0, 0);
    return entry;
}

static void library(void)
{
    auto create = (cublasStatus_t(*)(cublasHandle_t *))cublas("cublasCreate_v2");
    auto scale = (cublasStatus_t(*)(cublasHandle_t, int, const float *, float *, int))cublas("cublasSscal_v2");
    auto destroy = (cublasStatus_t(*)(cublasHandle_t))cublas("cublasDestroy_v2");
    float *host = (float *)buffers[0].host;
    const float by = 4;
    cublasHandle_t handle;
    host[17] = 2.5f;
    if (create(&handle) || scale(handle, 32, &by, host, 1))
        wrong("library", 0, 0);
    check(cudaDeviceSynchronize());
    if (host[17] != 10)
        wrong("library", 0, 17);
    if (destroy(handle))
        wrong("library", 0, 1);
    printf("library 0\n");
}

static void manage(void)
{
    if (!managed)
        check(cudaMallocManaged((void **)&managed, (COUNT + 1) * sizeof *managed));
    printf("managed %d\n", is_concurrent());
}

static void place(void)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {};
    CUmemAccessDesc access[2] = {};
    CUdeviceptr address = 0;
    const size_t bytes = 4 << 20;
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = access[0].location.type = CU_MEM_LOCATION_TYPE_HOST;
    access[1].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access[0].flags = access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUresult result = cuMemCreate(&handle, bytes, &prop, 0);
    if (!result) {
        result = cuMemAddressReserve(&address, bytes, 0, 0, 0);
        result = result ? result : cuMemMap(address, bytes, 0, handle, 0);
        result = result ? result : cuMemSetAccess(address, bytes, access, 2);
        result = result ? result : cuMemRelease(handle);
        placed = (uint32_t *)(uintptr_t)address;
    }
    printf("virtual %d\n", (int)result);
}

static void make_large(const char *mib)
{
    static void *memory;
    check(cudaFree(memory));
    memory = NULL;
    size_t bytes = (size_t)strtoul(mib, NULL, 10) << 20;
    printf("large %d\n", bytes ? (int)cudaMallocManaged(&memory, bytes) : 0);
    cudaGetLastError();
}

int main(void)
{
    char line[64];
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaMalloc((void **)&spun, sizeof *spun));
    check(cudaMemset(spun, 0, sizeof *spun));
    more();
    more();
    check(cudaDeviceSynchronize());
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n") != 0) {
        if (!strcmp(line, "check\n"))
            check_all();
        else if (!strcmp(line, "leave\n"))
            leave();
        else if (!strcmp(line, "take\n"))
            take();
        else if (!strcmp(line, "mapped\n"))
            map();
        else if (!strcmp(line, "asked\n"))
            ask();
        else if (!strcmp(line, "flag\n"))
            flag();
        else if (!strcmp(line, "plain\n"))
            plain();
        else if (!strcmp(line, "graph\n") || !strcmp(line, "update\n"))
            graph(line[0] == 'u');
        else if (!strcmp(line, "library\n"))
            library();
        else if (!strncmp(line, "large ", 6))
            make_large(line + 6);
        else if (!strcmp(line, "virtual\n"))
            place();
        else if (!strcmp(line, "managed\n"))
            manage();
        else {
            if (!strcmp(line, "more\n"))
                more();
            else if (count > 1)
                less();
            printf("buffers %u\n", count);
        }
        fflush(stdout);
    }
    printf("ended\n");
    return 0;
}
