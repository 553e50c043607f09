// Computes and compares, then calls what needs rows of the call tables that an older build lacks (older_tables.py), and
// computes again. Prints "NAME CODE" for each of those calls, "right" for each computation, and ends with status 0;
// wrong results are "wrong …" and status 1.
#include <cuda_profiler_api.h>
#include <stdio.h>

enum { VALUES = 5000, THREADS = 128 };

__constant__ unsigned factor = 1; // which is written by its name: an older build has other rows for that

__global__ void steps(unsigned *values, unsigned count)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] = values[i] * factor + i;
}

static bool computes(unsigned seed)
{
    static unsigned values[VALUES];
    unsigned *device, wrong = 0, by = 2654435761u, written = 0;
    for (unsigned i = 0; i < VALUES; i++)
        values[i] = seed + i;
    bool works = !cudaMemcpyToSymbol(factor, &by, sizeof by) &&
                 !cudaMemcpyFromSymbol(&written, factor, sizeof written) && written == by &&
                 !cudaMalloc(&device, sizeof values) &&
                 !cudaMemcpy(device, values, sizeof values, cudaMemcpyHostToDevice);
    if (works)
        steps<<<(VALUES + THREADS - 1) / THREADS, THREADS>>>(device, VALUES);
    works = works && !cudaGetLastError() && !cudaMemcpy(values, device, sizeof values, cudaMemcpyDeviceToHost) &&
            !cudaFree(device);
    for (unsigned i = 0; i < VALUES; i++)
        wrong += values[i] != (seed + i) * 2654435761u + i;
    if (works && !wrong)
        printf("right\n");
    else
        printf("wrong %u %s\n", wrong, cudaGetErrorName(cudaGetLastError()));
    return works && !wrong;
}

int main()
{
    cudaEvent_t begin, end;
    float elapsed_ms = -1;
    int clusters = -1;
    size_t shared_bytes = 0;
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = THREADS;
    bool works = computes(1) && !cudaEventCreate(&begin) && !cudaEventCreate(&end) && !cudaEventRecord(begin) &&
                 computes(2) && !cudaEventRecord(end) && !cudaEventSynchronize(end);
    printf("event_elapsed %d\n", (int)cudaEventElapsedTime(&elapsed_ms, begin, end));
    printf("kernel_cluster_occupancy %d\n", (int)cudaOccupancyMaxActiveClusters(&clusters, steps, &config));
    printf("kernel_available_shared %d\n",
           (int)cudaOccupancyAvailableDynamicSMemPerBlock(&shared_bytes, steps, 1, THREADS));
    printf("profiler_set %d\n", (int)cudaProfilerStart());
    cudaGetLastError();
    works = works && computes(3) && !cudaEventDestroy(begin) && !cudaEventDestroy(end) && computes(4);
    return works ? 0 : 1;
}
