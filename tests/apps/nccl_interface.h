/*
 * NCCL's interface as NVIDIA documents it, as far as the tests use it. nccl.h is not in the CUDA toolkit, so the
 * library is opened when a program runs, and nothing of it is needed to build one.
 */
#ifndef TESTS_APPS_NCCL_INTERFACE_H
#define TESTS_APPS_NCCL_INTERFACE_H

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef enum {
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress
} ncclResult_t;
typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg } ncclRedOp_t;
typedef enum {
    ncclInt8,
    ncclUint8,
    ncclInt32,
    ncclUint32,
    ncclInt64,
    ncclUint64,
    ncclFloat16,
    ncclFloat32,
    ncclFloat64,
    ncclBfloat16
} ncclDataType_t;
typedef enum { ncclScalarDevice, ncclScalarHostImmediate } ncclScalarResidence_t;

/* ncclConfig_t of 2.28, with its initializer. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER                                                                                        \
    {                                                                                                                  \
        sizeof(ncclConfig_t), 0xcafebeef, 22809, INT_MIN, INT_MIN, INT_MIN, INT_MIN, NULL, INT_MIN, INT_MIN, NULL,     \
            INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN, INT_MIN                                                       \
    }

#define NCCL_FUNCTIONS(X)                                                                                              \
    X(ncclGetVersion, (int *))                                                                                         \
    X(ncclGetUniqueId, (ncclUniqueId *))                                                                               \
    X(ncclCommInitRank, (ncclComm_t *, int, ncclUniqueId, int))                                                        \
    X(ncclCommInitRankConfig, (ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *))                                  \
    X(ncclCommInitAll, (ncclComm_t *, int, const int *))                                                               \
    X(ncclCommSplit, (ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *))                                             \
    X(ncclCommFinalize, (ncclComm_t))                                                                                  \
    X(ncclCommDestroy, (ncclComm_t))                                                                                   \
    X(ncclCommAbort, (ncclComm_t))                                                                                     \
    X(ncclCommGetAsyncError, (ncclComm_t, ncclResult_t *))                                                             \
    X(ncclCommCount, (ncclComm_t, int *))                                                                              \
    X(ncclCommCuDevice, (ncclComm_t, int *))                                                                           \
    X(ncclCommUserRank, (ncclComm_t, int *))                                                                           \
    X(ncclRedOpCreatePreMulSum, (int *, void *, ncclDataType_t, ncclScalarResidence_t, ncclComm_t))                    \
    X(ncclRedOpDestroy, (int, ncclComm_t))                                                                             \
    X(ncclAllReduce, (const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))                    \
    X(ncclReduce, (const void *, void *, size_t, ncclDataType_t, int, int, ncclComm_t, cudaStream_t))                  \
    X(ncclBroadcast, (const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))                    \
    X(ncclBcast, (void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))                                      \
    X(ncclAllGather, (const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t))                         \
    X(ncclReduceScatter, (const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))                \
    X(ncclSend, (const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))                                 \
    X(ncclRecv, (void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))                                       \
    X(ncclGroupStart, (void))                                                                                          \
    X(ncclGroupEnd, (void))                                                                                            \
    X(ncclCommRegister, (ncclComm_t, void *, size_t, void **))                                                         \
    X(ncclCommDeregister, (ncclComm_t, void *))                                                                        \
    X(ncclMemAlloc, (void **, size_t))                                                                                 \
    X(ncclMemFree, (void *))

#define NCCL_DECLARE(name, parameters) static ncclResult_t(*name) parameters;
NCCL_FUNCTIONS(NCCL_DECLARE)
static const char *(*ncclGetErrorString)(ncclResult_t);
static const char *(*ncclGetLastError)(ncclComm_t);

static void nccl_find(void *file, const char *name, void *place)
{
    *(void **)place = dlsym(file, name);
    if (!*(void **)place) {
        fprintf(stderr, "libnccl.so.2 has no %s\n", name);
        exit(1);
    }
}

/* Whether there is an NCCL; else dlerror has the reason. */
static bool nccl_is_found(void)
{
    void *file = dlopen("libnccl.so.2", RTLD_NOW);
    if (!file)
        return false;
#define NCCL_FIND(name, parameters) nccl_find(file, #name, &name);
    NCCL_FUNCTIONS(NCCL_FIND)
    nccl_find(file, "ncclGetErrorString", &ncclGetErrorString);
    nccl_find(file, "ncclGetLastError", &ncclGetLastError);
    return true;
}

/* Ends the program with 77 where there is none. */
static inline void nccl_open(void)
{
    if (!nccl_is_found()) {
        printf("skip: needs libnccl.so.2: %s\n", dlerror());
        exit(77);
    }
}

#define CHECK_NCCL(call)                                                                                               \
    do {                                                                                                               \
        ncclResult_t status_ = (call);                                                                                 \
        if (status_ != ncclSuccess) {                                                                                  \
            fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, (int)status_,                            \
                    ncclGetErrorString(status_));                                                                      \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)

#endif
