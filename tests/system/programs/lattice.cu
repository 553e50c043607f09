// Spreads heat over a ring, as told: through matrices and vectors of cuSPARSE's that are described once. What it has come to
// depends on every step before.
//
//   steps N   N steps: "steps SUM", the bits of the first place's heat as a number
//   hold      makes a triangular system of cuSPARSE's: "hold"
//   let       ends it: "let"
//   end       also the end of input: exit status 0
//
// The first line is "ready". An error is "error LIBRARY STATUS" and exit status 7.
// nvcc: -lcusparse
#define DISABLE_CUSPARSE_DEPRECATED // its own declarations use what it deprecates
#include <cusparse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 64, NUMBERS = 3 * PLACES };

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

static void check(cusparseStatus_t status)
{
    if (status)
        fail("cusparse", status);
}

// Each place gets half of its own heat and a part of its neighbours'.
static void describe(cusparseSpMatDescr_t *matrix)
{
    int offsets[PLACES + 1], indices[NUMBERS], *device_offsets, *device_indices;
    float values[NUMBERS], *device_values;
    for (int i = 0; i <= PLACES; i++)
        offsets[i] = 3 * i;
    for (int i = 0; i < NUMBERS; i++) {
        indices[i] = (i / 3 + i % 3 + PLACES - 1) % PLACES;
        values[i] = i % 3 == 1 ? 0.5f : i % 3 ? 0.3f : 0.2f;
    }
    check(cudaMalloc(&device_offsets, sizeof offsets));
    check(cudaMalloc(&device_indices, sizeof indices));
    check(cudaMalloc(&device_values, sizeof values));
    check(cudaMemcpy(device_offsets, offsets, sizeof offsets, cudaMemcpyHostToDevice));
    check(cudaMemcpy(device_indices, indices, sizeof indices, cudaMemcpyHostToDevice));
    check(cudaMemcpy(device_values, values, sizeof values, cudaMemcpyHostToDevice));
    check(cusparseCreateCsr(matrix, PLACES, PLACES, NUMBERS, device_offsets, device_indices, device_values, CUSPARSE_INDEX_32I,
                            CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
}

int main()
{
    char line[64];
    cusparseHandle_t handle;
    cusparseSpMatDescr_t matrix;
    cusparseDnVecDescr_t heat[2];
    cusparseSpSVDescr_t held;
    cudaStream_t stream;
    float *places, *scalars, first[PLACES], values[2] = {1, 0};
    void *buffer;
    size_t bytes;
    for (int i = 0; i < PLACES; i++)
        first[i] = i % 7 * 1.25f;
    check(cudaStreamCreate(&stream));
    check(cudaMalloc(&places, 2 * sizeof first));
    check(cudaMalloc(&scalars, sizeof values));
    check(cudaMemcpy(places, first, sizeof first, cudaMemcpyHostToDevice));
    check(cudaMemcpy(scalars, values, sizeof values, cudaMemcpyHostToDevice));
    check(cusparseCreate(&handle));
    check(cusparseSetStream(handle, stream));
    check(cusparseSetPointerMode(handle, CUSPARSE_POINTER_MODE_DEVICE));
    describe(&matrix);
    for (int i = 0; i < 2; i++)
        check(cusparseCreateDnVec(&heat[i], PLACES, places + i * PLACES, CUDA_R_32F));
    check(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, scalars, matrix, heat[0], scalars + 1, heat[1],
                                  CUDA_R_32F, CUSPARSE_SPMV_CSR_ALG2, &bytes));
    check(cudaMalloc(&buffer, bytes + 16));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        int steps = strncmp(line, "steps ", 6) ? 0 : atoi(line + 6);
        line[strcspn(line, " \n")] = '\0';
        for (int step = 0; step < 2 * steps; step++)
            check(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, scalars, matrix, heat[step % 2], scalars + 1,
                               heat[1 - step % 2], CUDA_R_32F, CUSPARSE_SPMV_CSR_ALG2, buffer));
        if (!strcmp(line, "hold"))
            check(cusparseSpSV_createDescr(&held));
        if (!strcmp(line, "let"))
            check(cusparseSpSV_destroyDescr(held));
        check(cudaStreamSynchronize(stream));
        unsigned bits;
        check(cudaMemcpy(&bits, places, sizeof bits, cudaMemcpyDeviceToHost));
        if (strcmp(line, "steps"))
            printf("%s\n", line);
        else
            printf("steps %u\n", bits);
        fflush(stdout);
    }
    check(cusparseDestroy(handle));
    return 0;
}
