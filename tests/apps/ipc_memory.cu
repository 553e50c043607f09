// Memory that a process shares with its child, which was forked before either used CUDA: IPC handles through a pipe, of
// memory large and small, asked for and opened twice, and what is no handle. Through a server without a node manager all
// of it is refused.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>
#include <sys/wait.h>

enum { COUNT = 3, WORDS = 2500 };

static void put(int fd, const void *data, size_t bytes)
{
    EXPECT(write(fd, data, bytes) == (ssize_t)bytes);
}

static void take(int fd, void *data, size_t bytes)
{
    EXPECT(read(fd, data, bytes) == (ssize_t)bytes);
}

static size_t words_of(int i)
{
    return i == COUNT - 1 ? (6u << 20) / sizeof(unsigned) : (size_t)WORDS;
}

__global__ void multiply(unsigned *words, size_t count, unsigned factor)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        words[i] *= factor;
}

static void expect_words(const unsigned *device, size_t count, unsigned factor)
{
    unsigned *words = (unsigned *)malloc(count * sizeof *words);
    CHECK(cudaMemcpy(words, device, count * sizeof *words, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        EXPECT_EQ(words[i], (unsigned)(i * 2654435761u) * factor);
    free(words);
}

static void child(int in, int out)
{
    cudaIpcMemHandle_t handle;
    unsigned *memory[COUNT], *again;
    CUdeviceptr base;
    size_t bytes;
    char is_done = 1;
    for (int i = 0; i < COUNT; i++) {
        take(in, &handle, sizeof handle);
        CHECK(cudaIpcOpenMemHandle((void **)&memory[i], handle, cudaIpcMemLazyEnablePeerAccess));
        CHECK(cudaIpcOpenMemHandle((void **)&again, handle, cudaIpcMemLazyEnablePeerAccess));
        EXPECT(again == memory[i], "opened twice");
        CHECK_CU(cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)(memory[i] + 7)));
        EXPECT_EQ(base, (CUdeviceptr)memory[i]);
        EXPECT_EQ(bytes, words_of(i) * sizeof(unsigned));
        expect_words(memory[i], words_of(i), 1);
        multiply<<<4, 128>>>(memory[i], words_of(i), 3 + (unsigned)i);
        CHECK(cudaDeviceSynchronize());
        EXPECT_CU(cuMemFree((CUdeviceptr)memory[i]), CUDA_ERROR_INVALID_VALUE);
        CHECK(cudaIpcCloseMemHandle(again));
    }
    put(out, &is_done, 1);
    for (int i = 0; i < COUNT; i++) {
        CHECK(cudaIpcCloseMemHandle(memory[i]));
        EXPECT_ERR(cudaIpcCloseMemHandle(memory[i]), cudaErrorInvalidValue);
    }
    EXPECT_ERR(cudaIpcOpenMemHandle((void **)&again, handle, 0), cudaErrorInvalidValue);
    _exit(0);
}

static void refused(void *memory)
{
    cudaIpcMemHandle_t handle = {};
    void *other;
    EXPECT(is_forwarded());
    EXPECT_ERR(cudaIpcGetMemHandle(&handle, memory), cudaErrorNotSupported);
    EXPECT_ERR(cudaIpcOpenMemHandle(&other, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorNotSupported);
    EXPECT_ERR(cudaIpcCloseMemHandle(memory), cudaErrorNotSupported);
}

int main()
{
    int to[2], from[2], status, can_share;
    unsigned *memory[COUNT], is_capable;
    void *pooled, *opened;
    cudaIpcMemHandle_t handle, other;
    char is_done;
    EXPECT(!pipe(to) && !pipe(from));
    pid_t pid = fork();
    EXPECT(pid >= 0);
    if (!pid) {
        close(to[1]);
        char go;
        if (read(to[0], &go, 1) != 1)
            _exit(0); /* nothing is shared here */
        child(to[0], from[1]);
    }
    CHECK(cudaDeviceGetAttribute(&can_share, (cudaDeviceAttr)CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                 0));
    for (int i = 0; i < COUNT; i++) {
        unsigned *words = (unsigned *)malloc(words_of(i) * sizeof *words);
        for (size_t j = 0; j < words_of(i); j++)
            words[j] = (unsigned)(j * 2654435761u);
        CHECK(cudaMalloc(&memory[i], words_of(i) * sizeof *words));
        CHECK(cudaMemcpy(memory[i], words, words_of(i) * sizeof *words, cudaMemcpyHostToDevice));
        CHECK_CU(cuPointerGetAttribute(&is_capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                       (CUdeviceptr)memory[i]));
        EXPECT_EQ(is_capable, can_share);
        free(words);
    }
    if (!can_share) {
        refused(memory[0]);
        close(to[1]);
    } else {
        put(to[1], "g", 1);
        for (int i = 0; i < COUNT; i++) {
            CHECK(cudaIpcGetMemHandle(&handle, memory[i] + 5));
            CHECK(cudaIpcGetMemHandle(&other, memory[i]));
            EXPECT(!memcmp(&handle, &other, sizeof handle), "handles of one allocation");
            put(to[1], &handle, sizeof handle);
        }
        EXPECT_ERR(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorDeviceUninitialized);
        CHECK(cudaMallocAsync(&pooled, 4096, 0));
        EXPECT_ERR(cudaIpcGetMemHandle(&handle, pooled), cudaErrorInvalidValue);
        EXPECT_ERR(cudaIpcGetMemHandle(&handle, &handle), cudaErrorInvalidValue);
        take(from[0], &is_done, 1);
        for (int i = 0; i < COUNT; i++)
            expect_words(memory[i], words_of(i), 3 + (unsigned)i);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    for (int i = 0; i < COUNT; i++)
        CHECK(cudaFree(memory[i]));
    printf("ok\n");
    return 0;
}
