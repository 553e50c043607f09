// Loads COUNT libraries one after another: each has a text of BYTES that no other has, so that each is uploaded, kept by
// the node, and unloaded again. Launches the kernel of each. Prints "loaded COUNT" at the end, or what failed and its code.
// usage: uploads COUNT BYTES
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        printf("%s: %d\n", what, (int)error);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 0;
    size_t bytes = argc > 2 ? (size_t)atol(argv[2]) : 0;
    char *text = (char *)malloc(bytes + 1);
    unsigned *word, value;

    if (!text || bytes < 512)
        return 2;
    check(cudaMalloc((void **)&word, 4), "cudaMalloc");
    for (int i = 0; i < count; i++) {
        cudaLibrary_t library;
        cudaKernel_t kernel;
        void *args[] = {&word};
        size_t used = (size_t)sprintf(text,
                                      ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry store(.param .u64 p)\n"
                                      "{\n.reg .u64 %%a;\nld.param.u64 %%a, [p];\nst.global.u32 [%%a], %d;\nret;\n}\n"
                                      "// %d of %d ",
                                      i, i, (int)getpid());
        memset(text + used, 'x', bytes - used);
        text[bytes] = 0;
        check(cudaLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0), "cudaLibraryLoadData");
        check(cudaLibraryGetKernel(&kernel, library, "store"), "cudaLibraryGetKernel");
        check(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(1), args, 0, 0), "cudaLaunchKernel");
        check(cudaMemcpy(&value, word, 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
        if (value != (unsigned)i) {
            printf("library %d stored %u\n", i, value);
            return 1;
        }
        check(cudaLibraryUnload(library), "cudaLibraryUnload");
    }
    printf("loaded %d\n", count);
    return 0;
}
