// Draws numbers, brings them to their spectrum and back, and adds them up, as told: through a plan of cuFFT's that is made in
// parts and a generator of cuRAND's. What it has come to depends on every step before.
//
//   steps N   N steps, each of which goes on with the generator: "steps SUM", the bits of the first sum as a number
//   poisson   draws numbers that take nobody knows how many: "poisson"
//   twister   the same of a generator that has no offset: "twister"
//   place     both generators to a beginning: "place"
//   end       also the end of input: exit status 0
//
// The first line is "ready". An error is "error LIBRARY STATUS" and exit status 7.
// nvcc: -lcufft -lcurand
#include <cufft.h>
#include <curand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS = 32, BATCH = 4, NUMBERS = POINTS * BATCH };

static void fail(const char *library, int status)
{
    printf("error %s %d\n", library, status);
    fflush(stdout);
    _Exit(7);
}

static void check(cudaError_t status)
{
    if (status)
        fail("cuda", status);
}

static void check(cufftResult status)
{
    if (status)
        fail("cufft", status);
}

static void check(curandStatus_t status)
{
    if (status)
        fail("curand", status);
}

__global__ static void add(float *sums, const cufftComplex *numbers)
{
    sums[threadIdx.x] += numbers[threadIdx.x].x / POINTS + numbers[threadIdx.x].y / POINTS;
}

int main()
{
    char line[64];
    cufftHandle plan;
    curandGenerator_t generator, twister;
    cudaStream_t stream;
    cufftComplex *numbers;
    float *sums;
    void *area;
    size_t bytes;
    unsigned long long seed = 1;
    check(cudaStreamCreate(&stream));
    check(cudaMalloc(&numbers, NUMBERS * sizeof *numbers));
    check(cudaMalloc(&sums, NUMBERS * sizeof *sums));
    check(cudaMemset(sums, 0, NUMBERS * sizeof *sums));
    check(cufftCreate(&plan));
    check(cufftSetAutoAllocation(plan, 0));
    check(cufftMakePlan1d(plan, POINTS, CUFFT_C2C, BATCH, &bytes));
    check(cudaMalloc(&area, bytes + 256));
    check(cufftSetWorkArea(plan, area));
    check(cufftSetStream(plan, stream));
    check(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_PHILOX4_32_10));
    check(curandSetStream(generator, stream));
    check(curandSetPseudoRandomGeneratorSeed(generator, seed));
    check(curandCreateGenerator(&twister, CURAND_RNG_PSEUDO_MT19937));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        int steps = strncmp(line, "steps ", 6) ? 0 : atoi(line + 6);
        line[strcspn(line, " \n")] = '\0';
        for (int step = 0; step < steps; step++) {
            check(curandGenerateUniform(generator, (float *)numbers, 2 * NUMBERS));
            check(cufftExecC2C(plan, numbers, numbers, CUFFT_FORWARD));
            check(cufftExecC2C(plan, numbers, numbers, CUFFT_INVERSE));
            add<<<1, NUMBERS, 0, stream>>>(sums, numbers);
            check(cudaGetLastError());
        }
        if (!strcmp(line, "poisson"))
            check(curandGeneratePoisson(generator, (unsigned *)numbers, NUMBERS, 3));
        if (!strcmp(line, "twister"))
            check(curandGenerateUniform(twister, (float *)numbers, 2 * NUMBERS));
        if (!strcmp(line, "place")) {
            check(curandSetGeneratorOffset(generator, 4 * ++seed));
            check(curandSetPseudoRandomGeneratorSeed(twister, seed));
        }
        check(cudaStreamSynchronize(stream));
        float sum;
        unsigned sum_bits;
        check(cudaMemcpy(&sum, sums, sizeof sum, cudaMemcpyDeviceToHost));
        memcpy(&sum_bits, &sum, sizeof sum_bits);
        if (strcmp(line, "steps"))
            printf("%s\n", line);
        else
            printf("steps %u\n", sum_bits);
        fflush(stdout);
    }
    check(curandDestroyGenerator(generator));
    check(curandDestroyGenerator(twister));
    check(cufftDestroy(plan));
    return 0;
}
