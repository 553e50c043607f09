// Solves sparse systems of cuSOLVER's again and again, as told: those of the program's memory and of device memory, with right
// sides to which numbers of a cuRAND generator on the host are added. What it has come to depends on every step before.
//
//   steps N   N steps: "steps SUM", the bits of the first place's number
//   hold      makes what an analysis of cuSOLVER's goes into: "hold"
//   let       ends it: "let"
//   refactor  makes a refactorization of cuSOLVER's: "refactor"
//   forget    ends it: "forget"
//   end       also the end of input: exit status 0
//
// The first line is "ready". An error is "error LIBRARY STATUS" and exit status 7.
// nvcc: -lcusolver -lcusparse -lcurand
#define DISABLE_CUSPARSE_DEPRECATED // their own declarations use what they deprecate
#define DISABLE_CUSOLVER_DEPRECATED
#include <curand.h>
#include <cusolverRf.h>
#include <cusolverSp.h>
#include <cusparse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 48, NUMBERS = 3 * PLACES };

static double values[NUMBERS], *device_values, places[PLACES], *device_places, *device_right;
static int offsets[PLACES + 1], indices[NUMBERS], *device_offsets, *device_indices;
static cusolverSpHandle_t handle;
static cusparseMatDescr_t descr;
static curandGenerator_t generator;

static void check(const char *library, int status)
{
    if (!status)
        return;
    printf("error %s %d\n", library, status);
    fflush(stdout);
    _Exit(7);
}

// A ring, in which each place has neighbours to both sides.
static void describe()
{
    for (int i = 0; i <= PLACES; i++)
        offsets[i] = 3 * i;
    for (int i = 0; i < NUMBERS; i++) {
        indices[i] = (i / 3 + i % 3 + PLACES - 1) % PLACES;
        values[i] = i % 3 == 1 ? 3 : -1;
    }
    check("cuda", cudaMalloc(&device_offsets, sizeof offsets));
    check("cuda", cudaMalloc(&device_indices, sizeof indices));
    check("cuda", cudaMalloc(&device_values, sizeof values));
    check("cuda", cudaMalloc(&device_places, sizeof places));
    check("cuda", cudaMalloc(&device_right, sizeof places));
    check("cuda", cudaMemcpy(device_offsets, offsets, sizeof offsets, cudaMemcpyHostToDevice));
    check("cuda", cudaMemcpy(device_indices, indices, sizeof indices, cudaMemcpyHostToDevice));
    check("cuda", cudaMemcpy(device_values, values, sizeof values, cudaMemcpyHostToDevice));
}

static void solve(double *x)
{
    double noise[PLACES], sum[PLACES];
    int singularity = -1;
    check("curand", curandGenerateUniformDouble(generator, noise, PLACES));
    for (int i = 0; i < PLACES; i++)
        sum[i] = x[i] + noise[i];
    check("cusolver", cusolverSpDcsrlsvcholHost(handle, PLACES, NUMBERS, descr, values, offsets, indices, sum, 1e-12, 0, x, &singularity));
    check("singularity", singularity + 1);
    check("cuda", cudaMemcpy(device_right, x, PLACES * sizeof *x, cudaMemcpyHostToDevice));
    check("cusolver", cusolverSpDcsrlsvqr(handle, PLACES, NUMBERS, descr, device_values, device_offsets, device_indices, device_right,
                                          1e-12, 0, device_places, &singularity));
    check("singularity", singularity + 1);
    check("cuda", cudaMemcpy(x, device_places, PLACES * sizeof *x, cudaMemcpyDeviceToHost));
}

int main()
{
    char line[64];
    csrqrInfo_t held;
    cusolverRfHandle_t refactorization;
    for (int i = 0; i < PLACES; i++)
        places[i] = i % 7 * 1.25;
    describe();
    check("cusolver", cusolverSpCreate(&handle));
    check("cusparse", cusparseCreateMatDescr(&descr));
    check("curand", curandCreateGeneratorHost(&generator, CURAND_RNG_PSEUDO_PHILOX4_32_10));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        int steps = strncmp(line, "steps ", 6) ? 0 : atoi(line + 6);
        line[strcspn(line, " \n")] = '\0';
        check("curand", curandSetPseudoRandomGeneratorSeed(generator, 7));
        for (int step = 0; step < steps; step++)
            solve(places);
        check("curand", curandSetGeneratorOffset(generator, 0)); // at a beginning, it can move
        if (!strcmp(line, "hold"))
            check("cusolver", cusolverSpCreateCsrqrInfo(&held));
        if (!strcmp(line, "let"))
            check("cusolver", cusolverSpDestroyCsrqrInfo(held));
        if (!strcmp(line, "refactor"))
            check("cusolver", cusolverRfCreate(&refactorization));
        if (!strcmp(line, "forget"))
            check("cusolver", cusolverRfDestroy(refactorization));
        check("cuda", cudaDeviceSynchronize());
        unsigned bits;
        memcpy(&bits, places, sizeof bits);
        if (strcmp(line, "steps"))
            printf("%s\n", line);
        else
            printf("steps %u\n", bits);
        fflush(stdout);
    }
    check("cusolver", cusolverSpDestroy(handle));
    return 0;
}
