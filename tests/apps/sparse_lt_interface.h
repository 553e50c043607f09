/*
 * cuSPARSELt's interface as NVIDIA documents it, as far as the tests use it. cusparseLt.h is not in the CUDA toolkit,
 * so the library is opened when a program runs, and nothing of it is needed to build one.
 */
#ifndef TESTS_APPS_SPARSE_LT_INTERFACE_H
#define TESTS_APPS_SPARSE_LT_INTERFACE_H

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Handles and descriptors, all of which live in the program's memory. */
typedef struct {
    alignas(16) uint8_t data[512];
} sparse_lt_room;

enum { SPARSE_LT_SUCCESS = 0, SPARSE_LT_NOT_INITIALIZED = 1, SPARSE_LT_INVALID = 3, SPARSE_LT_NOT_SUPPORTED = 10 };
enum { SPARSE_LT_ORDER_COL = 1, SPARSE_LT_ORDER_ROW = 2 };
enum { SPARSE_LT_COMPUTE_32I, SPARSE_LT_COMPUTE_16F, SPARSE_LT_COMPUTE_32F };
enum { SPARSE_LT_PRUNE_TILE, SPARSE_LT_PRUNE_STRIP };
enum { SPARSE_LT_ALG_CONFIG_ID, SPARSE_LT_ALG_CONFIG_MAX_ID, SPARSE_LT_ALG_SEARCH_ITERATIONS };
enum {
    SPARSE_LT_RELU,
    SPARSE_LT_RELU_UPPER_BOUND,
    SPARSE_LT_RELU_THRESHOLD,
    SPARSE_LT_GELU,
    SPARSE_LT_GELU_SCALING,
    SPARSE_LT_ALPHA_VECTOR,
    SPARSE_LT_BETA_VECTOR,
    SPARSE_LT_BIAS_STRIDE,
    SPARSE_LT_BIAS_POINTER
};

#define SPARSE_LT_PRODUCT                                                                                              \
    const void *, const void *, const void *, const void *, const void *, void *, void *, cudaStream_t *, int32_t
#define SPARSE_LT_FUNCTIONS(X)                                                                                         \
    X(cusparseLtInit, (sparse_lt_room *))                                                                              \
    X(cusparseLtDestroy, (const sparse_lt_room *))                                                                     \
    X(cusparseLtGetVersion, (const sparse_lt_room *, int *))                                                           \
    X(cusparseLtGetProperty, (int, int *))                                                                             \
    X(cusparseLtDenseDescriptorInit,                                                                                   \
      (const sparse_lt_room *, sparse_lt_room *, int64_t, int64_t, int64_t, uint32_t, int, int))                       \
    X(cusparseLtStructuredDescriptorInit,                                                                              \
      (const sparse_lt_room *, sparse_lt_room *, int64_t, int64_t, int64_t, uint32_t, int, int, int))                  \
    X(cusparseLtMatDescriptorDestroy, (const sparse_lt_room *))                                                        \
    X(cusparseLtMatDescSetAttribute, (const sparse_lt_room *, sparse_lt_room *, int, const void *, size_t))            \
    X(cusparseLtMatDescGetAttribute, (const sparse_lt_room *, const sparse_lt_room *, int, void *, size_t))            \
    X(cusparseLtMatmulDescriptorInit, (const sparse_lt_room *, sparse_lt_room *, int, int, const sparse_lt_room *,     \
                                       const sparse_lt_room *, const sparse_lt_room *, const sparse_lt_room *, int))   \
    X(cusparseLtMatmulDescSetAttribute, (const sparse_lt_room *, sparse_lt_room *, int, const void *, size_t))         \
    X(cusparseLtMatmulDescGetAttribute, (const sparse_lt_room *, const sparse_lt_room *, int, void *, size_t))         \
    X(cusparseLtMatmulAlgSelectionInit, (const sparse_lt_room *, sparse_lt_room *, const sparse_lt_room *, int))       \
    X(cusparseLtMatmulAlgSelectionDestroy, (const sparse_lt_room *))                                                   \
    X(cusparseLtMatmulAlgSetAttribute, (const sparse_lt_room *, sparse_lt_room *, int, const void *, size_t))          \
    X(cusparseLtMatmulAlgGetAttribute, (const sparse_lt_room *, const sparse_lt_room *, int, void *, size_t))          \
    X(cusparseLtMatmulPlanInit,                                                                                        \
      (const sparse_lt_room *, sparse_lt_room *, const sparse_lt_room *, const sparse_lt_room *))                      \
    X(cusparseLtMatmulPlanDestroy, (const sparse_lt_room *))                                                           \
    X(cusparseLtMatmulGetWorkspace, (const sparse_lt_room *, const sparse_lt_room *, size_t *))                        \
    X(cusparseLtMatmul, (const sparse_lt_room *, const sparse_lt_room *, SPARSE_LT_PRODUCT))                           \
    X(cusparseLtMatmulSearch, (const sparse_lt_room *, sparse_lt_room *, SPARSE_LT_PRODUCT))                           \
    X(cusparseLtSpMMAPrune, (const sparse_lt_room *, const sparse_lt_room *, const void *, void *, int, cudaStream_t)) \
    X(cusparseLtSpMMAPruneCheck, (const sparse_lt_room *, const sparse_lt_room *, const void *, int *, cudaStream_t))  \
    X(cusparseLtSpMMAPrune2,                                                                                           \
      (const sparse_lt_room *, const sparse_lt_room *, int, int, const void *, void *, int, cudaStream_t))             \
    X(cusparseLtSpMMAPruneCheck2,                                                                                      \
      (const sparse_lt_room *, const sparse_lt_room *, int, int, const void *, int *, cudaStream_t))                   \
    X(cusparseLtSpMMACompressedSize, (const sparse_lt_room *, const sparse_lt_room *, size_t *, size_t *))             \
    X(cusparseLtSpMMACompress,                                                                                         \
      (const sparse_lt_room *, const sparse_lt_room *, const void *, void *, void *, cudaStream_t))                    \
    X(cusparseLtSpMMACompressedSize2, (const sparse_lt_room *, const sparse_lt_room *, size_t *, size_t *))            \
    X(cusparseLtSpMMACompress2,                                                                                        \
      (const sparse_lt_room *, const sparse_lt_room *, int, int, const void *, void *, void *, cudaStream_t))

#define SPARSE_LT_DECLARE(name, parameters) __attribute__((unused)) static int(*name) parameters;
SPARSE_LT_FUNCTIONS(SPARSE_LT_DECLARE)
static const char *(*cusparseLtGetErrorName)(int);
__attribute__((unused)) static const char *(*cusparseLtGetErrorString)(int);

static void sparse_lt_find(void *file, const char *name, void *place)
{
    *(void **)place = dlsym(file, name);
    if (!*(void **)place) {
        fprintf(stderr, "libcusparseLt.so.0 has no %s\n", name);
        exit(1);
    }
}

/* Whether there is a cuSPARSELt; else dlerror has the reason. */
static bool sparse_lt_is_found(void)
{
    void *file = dlopen("libcusparseLt.so.0", RTLD_NOW);
    if (!file)
        return false;
#define SPARSE_LT_FIND(name, parameters) sparse_lt_find(file, #name, &name);
    SPARSE_LT_FUNCTIONS(SPARSE_LT_FIND)
    sparse_lt_find(file, "cusparseLtGetErrorName", &cusparseLtGetErrorName);
    sparse_lt_find(file, "cusparseLtGetErrorString", &cusparseLtGetErrorString);
    return true;
}

/* Ends the program with 77 where there is none. */
static inline void sparse_lt_open(void)
{
    if (!sparse_lt_is_found()) {
        printf("skip: needs libcusparseLt.so.0: %s\n", dlerror());
        exit(77);
    }
}

#define CHECK_LT(call)                                                                                                 \
    do {                                                                                                               \
        int status_ = (call);                                                                                          \
        if (status_) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, status_,                                 \
                    cusparseLtGetErrorName(status_));                                                                  \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

#endif
