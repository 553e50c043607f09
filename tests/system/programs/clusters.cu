// Runs kernels in thread-block clusters, made so by __cluster_dims__ and by the launch's attribute. usage: clusters
// SIZE with SIZE 2, 4 or 8. Each block fills its shared memory, and after the cluster's barrier reads its neighbour's
// and the first one's; all words are compared with what the CPU computes. Prints lines "active N"
// (cudaOccupancyMaxActiveClusters; "active error CODE NAME" where it fails) and "WAY right" or "WAY error CODE NAME"
// for each WAY, dims and attribute; then "plain right", for a kernel without clusters in the same process, also after
// such an error. Exit status 0 where all that ran was right, 1 where a result or a call besides those was wrong; 77 on
// a GPU without clusters.
// nvcc: -std=c++17 -gencode arch=compute_90,code=sm_90 -gencode arch=compute_90,code=compute_90
#include <cooperative_groups.h>
#include <stdio.h>
#include <stdlib.h>

namespace cg = cooperative_groups;

enum { CLUSTERS = 4, THREADS = 64, BLOCKS_MAX = CLUSTERS * 8 };

__host__ __device__ static unsigned word_of(unsigned block, unsigned thread)
{
    return (block * THREADS + thread) * 2654435761u + 12345u;
}

__device__ static void exchange(unsigned *words)
{
#if __CUDA_ARCH__ >= 900
    __shared__ unsigned own[THREADS];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();

    own[threadIdx.x] = word_of(blockIdx.x, threadIdx.x);
    cluster.sync();
    unsigned *others = cluster.map_shared_rank(own, next), *firsts = cluster.map_shared_rank(own, 0);
    words[blockIdx.x * THREADS + threadIdx.x] = others[THREADS - 1 - threadIdx.x] ^ firsts[threadIdx.x] >> 3;
    cluster.sync(); // nobody leaves while its memory is read
#endif
}

template <unsigned SIZE> __global__ void __cluster_dims__(SIZE) by_dims(unsigned *words)
{
    exchange(words);
}

__global__ void by_attribute(unsigned *words)
{
    exchange(words);
}

__global__ void plain(unsigned *words)
{
    words[blockIdx.x * THREADS + threadIdx.x] = word_of(blockIdx.x, threadIdx.x);
}

static unsigned found[BLOCKS_MAX * THREADS], *words;

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    printf("%s: error %d %s\n", what, error, cudaGetErrorName(error));
    exit(1);
}

// Of `size` blocks to a cluster; 0: the plain kernel's.
static unsigned expected(unsigned size, unsigned block, unsigned thread)
{
    if (!size)
        return word_of(block, thread);
    unsigned first = block / size * size, next = first + (block - first + 1) % size;
    return word_of(next, THREADS - 1 - thread) ^ word_of(first, thread) >> 3;
}

// `error`: what the launch said.
static void conclude(const char *way, unsigned size, unsigned blocks, cudaError_t error)
{
    cudaError_t later = cudaDeviceSynchronize();

    if (error == cudaSuccess)
        error = later;
    cudaGetLastError();
    if (error != cudaSuccess) {
        printf("%s error %d %s\n", way, error, cudaGetErrorName(error));
        return;
    }
    check(cudaMemcpy(found, words, blocks * THREADS * sizeof *found, cudaMemcpyDeviceToHost), way);
    for (unsigned i = 0; i < blocks * THREADS; i++) {
        if (found[i] == expected(size, i / THREADS, i % THREADS))
            continue;
        printf("%s wrong word %u: %u, not %u\n", way, i, found[i], expected(size, i / THREADS, i % THREADS));
        exit(1);
    }
    printf("%s right\n", way);
}

static void clear()
{
    check(cudaMemset(words, 0, sizeof found), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaMemset's end");
}

template <unsigned SIZE> static void run()
{
    cudaLaunchAttribute attribute;
    cudaLaunchConfig_t config = {};
    int active = 0;

    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {SIZE, 1, 1};
    config.gridDim = dim3(CLUSTERS * SIZE);
    config.blockDim = dim3(THREADS);
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaError_t error = cudaOccupancyMaxActiveClusters(&active, by_attribute, &config);
    cudaGetLastError();
    if (error == cudaSuccess)
        printf("active %d\n", active);
    else
        printf("active error %d %s\n", error, cudaGetErrorName(error));

    clear();
    by_dims<SIZE><<<CLUSTERS * SIZE, THREADS>>>(words);
    conclude("dims", SIZE, CLUSTERS * SIZE, cudaGetLastError());
    clear();
    conclude("attribute", SIZE, CLUSTERS * SIZE, cudaLaunchKernelEx(&config, by_attribute, words));
    clear();
    plain<<<BLOCKS_MAX, THREADS>>>(words);
    conclude("plain", 0, BLOCKS_MAX, cudaGetLastError());
}

int main(int argc, char **argv)
{
    int size = argc == 2 ? atoi(argv[1]) : 0, has_clusters = 0;

    if (size != 2 && size != 4 && size != 8)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    check(cudaDeviceGetAttribute(&has_clusters, cudaDevAttrClusterLaunch, 0), "cudaDeviceGetAttribute");
    if (!has_clusters) {
        printf("skip: a GPU without thread-block clusters\n");
        return 77;
    }
    check(cudaMalloc(&words, sizeof found), "cudaMalloc");
    if (size == 2)
        run<2>();
    else if (size == 4)
        run<4>();
    else
        run<8>();
    return 0;
}
