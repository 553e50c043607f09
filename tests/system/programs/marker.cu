// Copies 4 MiB of "flyt-marker-on-the-wire." to the GPU, has each byte's successor made there, copies it back and
// compares: what somebody who looks at the wire would find. With the argument "wait" it waits for the end of standard
// input between the copies. For tests of encrypted channels.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 4 << 20 };

__global__ void succeed(unsigned char *bytes)
{
    unsigned *words = (unsigned *)bytes + (blockIdx.x * blockDim.x + threadIdx.x) * 16;

    for (int i = 0; i < 16; i++)
        words[i] += 0x01010101u; // no byte is 255
}

int main(int argc, char **argv)
{
    static const char marker[] = "flyt-marker-on-the-wire.";
    unsigned char *host = (unsigned char *)malloc(BYTES), *device;

    for (int i = 0; i < BYTES; i++)
        host[i] = (unsigned char)marker[i % (sizeof(marker) - 1)];
    if (cudaMalloc(&device, BYTES) || cudaMemcpy(device, host, BYTES, cudaMemcpyHostToDevice))
        return 1;
    if (argc > 1 && !strcmp(argv[1], "wait")) {
        printf("waiting\n");
        fflush(stdout);
        while (getchar() != EOF)
            ;
    }
    succeed<<<BYTES / 64 / 256, 256>>>(device);
    memset(host, 0, BYTES);
    if (cudaMemcpy(host, device, BYTES, cudaMemcpyDeviceToHost))
        return 1;
    for (int i = 0; i < BYTES; i++)
        if (host[i] != marker[i % (sizeof(marker) - 1)] + 1) {
            fprintf(stderr, "byte %d is %d\n", i, host[i]);
            return 1;
        }
    printf("correct\n");
    return 0;
}
