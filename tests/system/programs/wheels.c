/* As PyTorch, it is linked to libraries that lie in one folder for each wheel. Calls each, and says what each call came
 * to and in which file its function is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

extern int cudaMalloc(void **, size_t), cublasCreate_v2(void **), cudnnCreate(void **),
    cudnnCreateTensorDescriptor(void **), ncclGetUniqueId(void *), cusparseLtInit(void *);

static void say(int status, void *function)
{
    Dl_info info = {0};
    dladdr(function, &info);
    printf("%d %s\n", status, info.dli_fname);
}

int main(void)
{
    void *memory, *blas, *dnn, *tensor;
    static char id[128];
    static _Alignas(16) char sparse[65536];
    say(cudnnCreate(&dnn), (void *)cudnnCreate);
    say(cudnnCreateTensorDescriptor(&tensor), (void *)cudnnCreateTensorDescriptor);
    say(ncclGetUniqueId(id), (void *)ncclGetUniqueId);
    say(cusparseLtInit(sparse), (void *)cusparseLtInit);
    say(cublasCreate_v2(&blas), (void *)cublasCreate_v2);
    say(cudaMalloc(&memory, 1 << 20), (void *)cudaMalloc);
    return 0;
}
