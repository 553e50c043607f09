// Applies a pruned matrix of cuSPARSELt's again and again, as told: through a plan that is made once, with the algorithm that a
// search has found. What it has come to depends on every step before.
//
//   steps N   N steps: "steps SUM", the bits of the first number as a number
//   end       also the end of input: exit status 0
//
// The first line is "ready".
// nvcc: -ldl
#include <string.h>
#include <unistd.h>
#include "../../apps/sparse_lt_interface.h"

enum { SIZE = 64, COLUMNS = 16 };

static void check(cudaError_t status)
{
    if (status) {
        fprintf(stderr, "cuda: %s\n", cudaGetErrorString(status));
        _exit(1);
    }
}

static sparse_lt_room handle, plan;
static cudaStream_t stream;
static void *workspace;

static float *on_device(const float *from, size_t count)
{
    float *device;
    check(cudaMalloc(&device, count * sizeof *from));
    check(cudaMemcpy(device, from, count * sizeof *from, cudaMemcpyHostToDevice));
    return device;
}

static void make_plan(sparse_lt_room *matrix)
{
    static sparse_lt_room numbers, desc, selection; // the plan goes on telling the selection what a search has found
    const int yes = 1;
    CHECK_LT(cusparseLtStructuredDescriptorInit(&handle, matrix, SIZE, SIZE, SIZE, 16, CUDA_R_32F, SPARSE_LT_ORDER_ROW, 0));
    CHECK_LT(cusparseLtDenseDescriptorInit(&handle, &numbers, SIZE, COLUMNS, COLUMNS, 16, CUDA_R_32F, SPARSE_LT_ORDER_ROW));
    CHECK_LT(cusparseLtMatmulDescriptorInit(&handle, &desc, 0, 0, matrix, &numbers, &numbers, &numbers,
                                            SPARSE_LT_COMPUTE_32F));
    CHECK_LT(cusparseLtMatmulDescSetAttribute(&handle, &desc, SPARSE_LT_RELU, &yes, sizeof yes));
    CHECK_LT(cusparseLtMatmulAlgSelectionInit(&handle, &selection, &desc, 0));
    CHECK_LT(cusparseLtMatmulPlanInit(&handle, &plan, &desc, &selection));
}

// Each row has one large number in each pair, and about as many that lose heat as gain it.
static void *compressed_matrix(const sparse_lt_room *matrix)
{
    static float weights[SIZE * SIZE];
    size_t bytes, buffer_bytes, workspace_bytes;
    void *compressed, *buffer;
    for (int i = 0; i < SIZE * SIZE; i++)
        weights[i] = (float)((i * 37 + i / SIZE * 11) % 17) / (8.5f * SIZE);
    float *dense = on_device(weights, SIZE * SIZE);
    CHECK_LT(cusparseLtSpMMAPrune2(&handle, matrix, 1, 0, dense, dense, SPARSE_LT_PRUNE_STRIP, stream));
    CHECK_LT(cusparseLtSpMMACompressedSize(&handle, &plan, &bytes, &buffer_bytes));
    CHECK_LT(cusparseLtMatmulGetWorkspace(&handle, &plan, &workspace_bytes));
    check(cudaMalloc(&compressed, bytes));
    check(cudaMalloc(&buffer, buffer_bytes + 16));
    check(cudaMalloc(&workspace, workspace_bytes + (1 << 20)));
    CHECK_LT(cusparseLtSpMMACompress(&handle, &plan, dense, compressed, buffer, stream));
    check(cudaStreamSynchronize(stream));
    check(cudaFree(dense));
    return compressed;
}

int main()
{
    char line[64];
    sparse_lt_room matrix;
    float first[2][SIZE * COLUMNS], alpha = 1.25f, beta = 0.125f;
    sparse_lt_open();
    for (int i = 0; i < 2 * SIZE * COLUMNS; i++)
        first[0][i] = (float)(i % 7) * 1.25f;
    check(cudaStreamCreate(&stream));
    CHECK_LT(cusparseLtInit(&handle));
    make_plan(&matrix);
    void *weights = compressed_matrix(&matrix);
    float *numbers = on_device(first[0], 2 * SIZE * COLUMNS);
    CHECK_LT(cusparseLtMatmulSearch(&handle, &plan, &alpha, weights, numbers, &beta, numbers, numbers + SIZE * COLUMNS,
                                    workspace, &stream, 1));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        int steps = strncmp(line, "steps ", 6) ? 0 : atoi(line + 6);
        for (int step = 0; step < 2 * steps; step++) {
            float *from = numbers + step % 2 * SIZE * COLUMNS, *to = numbers + (1 - step % 2) * SIZE * COLUMNS;
            CHECK_LT(cusparseLtMatmul(&handle, &plan, &alpha, weights, from, &beta, to, to, workspace, &stream, 1));
        }
        check(cudaStreamSynchronize(stream));
        unsigned bits;
        check(cudaMemcpy(&bits, numbers, sizeof bits, cudaMemcpyDeviceToHost));
        printf("steps %u\n", bits);
        fflush(stdout);
    }
    CHECK_LT(cusparseLtMatmulPlanDestroy(&plan));
    CHECK_LT(cusparseLtDestroy(&handle));
    return 0;
}
