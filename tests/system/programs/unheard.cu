// Ends with exit status 0 although a call of its main thread has failed: it calls nothing more that could say so.
// Another thread waits for the device meanwhile, so that the error has come.
#include <pthread.h>

enum { BYTES = 64 };

/* Nobody's memory: no allocation and no mapping of a process lies there. */
static void *const nowhere = (void *)0x500000000000;

static void *wait_for_all(void *user)
{
    *(cudaError_t *)user = cudaDeviceSynchronize();
    return NULL;
}

int main(void)
{
    cudaError_t waited = cudaErrorUnknown;
    pthread_t thread;

    if (cudaFree(NULL))
        return 1;
    cudaMemsetAsync(nowhere, 1, BYTES, cudaStreamPerThread);
    if (pthread_create(&thread, NULL, wait_for_all, &waited) || pthread_join(thread, NULL))
        return 2;
    return waited ? 3 : 0;
}
