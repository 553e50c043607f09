// What the runtime API answers at its edges, call by call: devices, limits, errors, streams, events, host functions,
// entry points and libraries. behaviour.h says what a row is.
// nvcc: -lcuda -Wno-deprecated-declarations -Xcompiler -Wno-deprecated-declarations
#include "behaviour.h"
#include <cuda.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>
#include <pthread.h>

static const int nowhere = 99; /* no machine has that many devices */

static void devices(void)
{
    cudaDeviceProp properties;
    int value = 0, count = 0, list[20] = {0};

    RT(0, cudaGetDevice(&value));
    IS(0, value);
    RT(0, cudaGetDeviceCount(&count));
    RT(1, cudaGetDeviceCount(NULL));
    RT(1, cudaGetDevice(NULL));
    RT(101, cudaSetDevice(nowhere));
    RT(101, cudaSetDevice(-1));
    RT(0, cudaInitDevice(0, 0, 0));
    RT(1, cudaInitDevice(0, 0x7fff0000, 1));
    RT(0, cudaInitDevice(0, 0, 2));
    RT(101, cudaInitDevice(nowhere, 0, 0));
    RT(101, cudaInitDevice(-1, 0, 0));
    RT(1, cudaGetDeviceProperties(NULL, 0));
    RT(101, cudaGetDeviceProperties(&properties, nowhere));
    RT(101, cudaGetDeviceProperties(&properties, -1));
    RT(1, cudaDeviceGetAttribute(NULL, cudaDevAttrWarpSize, 0));
    RT(1, cudaDeviceGetAttribute(&value, (cudaDeviceAttr)0, 0));
    RT(1, cudaDeviceGetAttribute(&value, (cudaDeviceAttr)-1, 0));
    RT(1, cudaDeviceGetAttribute(&value, (cudaDeviceAttr)9999, 0));
    RT(101, cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, nowhere));
    RT(1, cudaChooseDevice(&value, NULL));
    RT(1, cudaChooseDevice(NULL, NULL));
    memset(&properties, 0, sizeof(properties));
    RT(0, cudaChooseDevice(&value, &properties));
    RT(0, cudaSetValidDevices(list, 1));
    RT(0, cudaSetValidDevices(NULL, 0));
    RT(1, cudaSetValidDevices(NULL, 1));
    RT(1, cudaSetValidDevices(list, 20));
    RT(1, cudaSetValidDevices(list, -1));
    list[0] = 50;
    RT(101, cudaSetValidDevices(list, 1));
    RT(1, cudaDriverGetVersion(NULL));
    RT(1, cudaRuntimeGetVersion(NULL));
    RT(0, cudaRuntimeGetVersion(&value));
    IS(CUDART_VERSION, value);
}

static void device_names(void)
{
    char bus[32] = "";
    int value = -1;

    RT(1, cudaDeviceGetPCIBusId(bus, 5, 0));
    RT(1, cudaDeviceGetPCIBusId(bus, 12, 0));
    RT(1, cudaDeviceGetPCIBusId(bus, 0, 0));
    RT(1, cudaDeviceGetPCIBusId(bus, -1, 0));
    RT(1, cudaDeviceGetPCIBusId(NULL, 13, 0));
    RT(101, cudaDeviceGetPCIBusId(bus, 13, nowhere));
    RT(0, cudaDeviceGetPCIBusId(bus, 13, 0));
    IS(12, strlen(bus));
    RT(0, cudaDeviceGetByPCIBusId(&value, bus));
    IS(0, value);
    RT(0, cudaDeviceGetByPCIBusId(&value, bus + 5));
    RT(1, cudaDeviceGetByPCIBusId(&value, "junk"));
    RT(1, cudaDeviceGetByPCIBusId(&value, ""));
    RT(1, cudaDeviceGetByPCIBusId(&value, NULL));
    RT(1, cudaDeviceGetByPCIBusId(NULL, bus));
    RT(101, cudaDeviceGetByPCIBusId(&value, "ffff:ff:1f.0"));
}

static void peers(void)
{
    int value = 7;

    RT(0, cudaDeviceCanAccessPeer(&value, 0, 0));
    IS(0, value);
    RT(101, cudaDeviceCanAccessPeer(&value, 0, nowhere));
    RT(101, cudaDeviceCanAccessPeer(&value, -1, 0));
    RT(1, cudaDeviceCanAccessPeer(NULL, 0, 0));
    RT(217, cudaDeviceEnablePeerAccess(0, 0));
    RT(101, cudaDeviceEnablePeerAccess(nowhere, 0));
    RT(1, cudaDeviceEnablePeerAccess(0, 1));
    RT(705, cudaDeviceDisablePeerAccess(0));
    RT(101, cudaDeviceDisablePeerAccess(nowhere));
    RT(101, cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrPerformanceRank, 0, 0));
    RT(101, cudaDeviceGetP2PAttribute(&value, cudaDevP2PAttrPerformanceRank, 0, nowhere));
    RT(1, cudaDeviceGetP2PAttribute(NULL, cudaDevP2PAttrPerformanceRank, 0, 0));
}

static void flags_and_limits(void)
{
    cudaFuncCache cache;
    cudaSharedMemConfig banks;
    size_t value = 0;
    int least = 7, greatest = 7;

    RT(1, cudaSetDeviceFlags(3));
    RT(1, cudaSetDeviceFlags(7));
    RT(1, cudaSetDeviceFlags(0x100));
    RT(1, cudaSetDeviceFlags(0xff00));
    RT(0, cudaSetDeviceFlags(0x80));
    RT(0, cudaSetDeviceFlags(0x20));
    RT(0, cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    RT(0, cudaSetDeviceFlags(0));
    RT(1, cudaGetDeviceFlags(NULL));
    RT(0, cudaDeviceGetStreamPriorityRange(NULL, NULL));
    RT(0, cudaDeviceGetStreamPriorityRange(&least, NULL));
    RT(0, cudaDeviceGetStreamPriorityRange(NULL, &greatest));
    IS(0, least);
    IS(1, greatest < 0);
    RT(1, cudaDeviceGetLimit(NULL, cudaLimitStackSize));
    RT(1, cudaDeviceGetLimit(&value, (cudaLimit)77));
    RT(1, cudaDeviceGetLimit(&value, (cudaLimit)-1));
    RT(1, cudaDeviceSetLimit((cudaLimit)99, 1));
    RT(1, cudaDeviceSetLimit(cudaLimitStackSize, 1 << 30));
    RT(0, cudaDeviceGetLimit(&value, cudaLimitStackSize));
    IS(1024, value);
    RT(0, cudaDeviceSetLimit(cudaLimitStackSize, 4000));
    RT(0, cudaDeviceGetLimit(&value, cudaLimitStackSize));
    IS(4000, value);
    RT(0, cudaDeviceSetLimit(cudaLimitStackSize, 0));
    RT(0, cudaDeviceGetLimit(&value, cudaLimitMallocHeapSize));
    IS(8388608, value);
    RT(215, cudaDeviceGetLimit(&value, cudaLimitDevRuntimeSyncDepth));
    RT(0, cudaDeviceGetLimit(&value, cudaLimitDevRuntimePendingLaunchCount));
    IS(2048, value);
    RT(0, cudaDeviceGetLimit(&value, cudaLimitMaxL2FetchGranularity));
    IS(64, value);
    RT(0, cudaDeviceGetLimit(&value, cudaLimitPersistingL2CacheSize));
    RT(0, cudaDeviceGetLimit(&value, cudaLimitPrintfFifoSize));
    RT(1, cudaDeviceSetCacheConfig((cudaFuncCache)9));
    RT(1, cudaDeviceSetCacheConfig((cudaFuncCache)-1));
    RT(1, cudaDeviceGetCacheConfig(NULL));
    RT(0, cudaDeviceGetCacheConfig(&cache));
    IS(0, cache);
    RT(0, cudaDeviceSetCacheConfig(cudaFuncCachePreferShared));
    RT(0, cudaDeviceGetCacheConfig(&cache));
    IS(cudaFuncCachePreferShared, cache);
    RT(0, cudaDeviceGetSharedMemConfig(&banks));
    IS(cudaSharedMemBankSizeFourByte, banks);
    RT(1, cudaDeviceGetSharedMemConfig(NULL));
    RT(0, cudaDeviceSetSharedMemConfig(cudaSharedMemBankSizeEightByte));
    RT(0, cudaDeviceGetSharedMemConfig(&banks));
    IS(cudaSharedMemBankSizeFourByte, banks);
    RT(1, cudaDeviceSetSharedMemConfig((cudaSharedMemConfig)9));
}

static void error_texts(void)
{
    IS(0, strcmp(cudaGetErrorName((cudaError_t)5000), "unrecognized error code"));
    IS(0, strcmp(cudaGetErrorString((cudaError_t)5000), "unrecognized error code"));
    IS(0, strcmp(cudaGetErrorString((cudaError_t)-1), "unrecognized error code"));
    IS(0, strcmp(cudaGetErrorString((cudaError_t)8), "profiler already stopped"));
}

static void *query_legacy(void *ret_last)
{
    *(int *)ret_last = cudaPeekAtLastError();
    cudaStreamQuery(cudaStreamLegacy);
    return NULL;
}

/* What the last error remembers, and what leaves it alone. */
static void last_error(void)
{
    pthread_t thread;
    CUdeviceptr memory;
    cudaEvent_t event;
    int seen = -1, value;

    CHECK(cudaFree(NULL)); /* the primary context is current from here on */
    IS(0, cudaPeekAtLastError());
    IS(1, cudaMalloc((void **)NULL, 4));
    IS(1, cudaPeekAtLastError());
    IS(0, cudaGetDevice(&value));
    IS(1, cudaPeekAtLastError());
    IS(101, cudaSetDevice(nowhere));
    IS(101, cudaPeekAtLastError());
    IS(0, pthread_create(&thread, NULL, query_legacy, &seen));
    IS(0, pthread_join(thread, NULL));
    IS(0, seen);
    IS(101, cudaGetLastError());
    IS(0, cudaGetLastError());
    /* The driver API's errors are its own. */
    DR(1, cuMemAlloc(NULL, 4));
    DR(1, cuMemAlloc(&memory, 0));
    IS(0, cudaPeekAtLastError());
    IS(1, cudaDeviceGetLimit(NULL, cudaLimitStackSize));
    DR(0, cuMemAlloc(&memory, 4));
    IS(1, cudaPeekAtLastError());
    IS(0, cudaEventCreate(&event));
    IS(1, cudaGetLastError());
    /* Questions that get an answer of "no" are no errors. */
    IS(0, cudaEventQuery(event));
    IS(0, cudaPeekAtLastError());
}

static void CUDART_CB wait_for_word(void *word)
{
    while (!*(volatile int *)word)
        usleep(100);
}

static void CUDART_CB callback(cudaStream_t stream, cudaError_t status, void *unused)
{
}

static void streams(void)
{
    cudaStream_t stream = NULL, other = NULL;
    unsigned flags = 9;
    unsigned long long id = 0, legacy_id = 0;
    int priority = 9, least, greatest, device = 9, word = 0;

    CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    RT(1, cudaStreamCreate(NULL));
    RT(1, cudaStreamCreateWithFlags(NULL, 0));
    RT(1, cudaStreamCreateWithFlags(&stream, 7));
    RT(1, cudaStreamCreateWithFlags(&stream, 2));
    RT(1, cudaStreamCreateWithPriority(&stream, 2, 0));
    RT(1, cudaStreamCreateWithPriority(NULL, 0, 0));
    RT(0, cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, -100));
    RT(0, cudaStreamGetPriority(other, &priority));
    IS(greatest, priority);
    RT(0, cudaStreamGetFlags(other, &flags));
    IS(cudaStreamNonBlocking, flags);
    RT(0, cudaStreamDestroy(other));
    RT(0, cudaStreamCreateWithPriority(&other, 0, 100));
    RT(0, cudaStreamGetPriority(other, &priority));
    IS(least, priority);
    RT(0, cudaStreamCreate(&stream));
    RT(400, cudaStreamDestroy(NULL));
    RT(400, cudaStreamDestroy(cudaStreamLegacy));
    RT(400, cudaStreamDestroy(cudaStreamPerThread));
    RT(1, cudaStreamGetFlags(stream, NULL));
    RT(1, cudaStreamGetPriority(stream, NULL));
    RT(1, cudaStreamGetId(stream, NULL));
    RT(0, cudaStreamGetDevice(stream, &device));
    IS(0, device);
    RT(0, cudaStreamGetDevice(NULL, &device));
    RT(0, cudaStreamGetFlags(cudaStreamLegacy, &flags));
    IS(0, flags);
    RT(0, cudaStreamGetFlags(cudaStreamPerThread, &flags));
    IS(0, flags);
    RT(0, cudaStreamGetFlags(NULL, &flags));
    IS(0, flags);
    RT(0, cudaStreamGetPriority(NULL, &priority));
    IS(0, priority);
    RT(0, cudaStreamGetId(NULL, &legacy_id));
    RT(0, cudaStreamGetId(cudaStreamLegacy, &id));
    IS(legacy_id, id);
    RT(0, cudaStreamGetId(cudaStreamPerThread, &id));
    IS(1, id != legacy_id);
    RT(0, cudaStreamGetId(stream, &id));
    IS(1, id != legacy_id);
    RT(0, cudaStreamQuery(cudaStreamLegacy));
    RT(0, cudaStreamQuery(cudaStreamPerThread));
    RT(0, cudaStreamQuery(NULL));
    RT(0, cudaStreamSynchronize(cudaStreamLegacy));
    RT(0, cudaStreamSynchronize(cudaStreamPerThread));
    RT(0, cudaStreamSynchronize(NULL));
    RT(1, cudaLaunchHostFunc(stream, NULL, NULL));
    RT(1, cudaLaunchHostFunc(NULL, NULL, NULL));
    RT(1, cudaStreamAddCallback(stream, NULL, NULL, 0));
    RT(1, cudaStreamAddCallback(stream, callback, NULL, 1));
    RT(0, cudaStreamAddCallback(stream, callback, NULL, 0));
    RT(0, cudaStreamSynchronize(stream));
    RT(0, cudaLaunchHostFunc(stream, wait_for_word, &word));
    RT(600, cudaStreamQuery(stream));
    RT(600, cudaStreamQuery(NULL));
    RT(0, cudaStreamQuery(cudaStreamPerThread));
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    RT(0, cudaStreamSynchronize(stream));
    RT(0, cudaStreamQuery(stream));
    RT(0, cudaStreamDestroy(stream));
}

static void capture_questions(void)
{
    cudaStream_t stream;
    cudaStreamCaptureStatus status = (cudaStreamCaptureStatus)7;
    cudaStreamCaptureMode mode = (cudaStreamCaptureMode)7;
    unsigned long long id = 77;

    CHECK(cudaStreamCreate(&stream));
    RT(1, cudaStreamIsCapturing(stream, NULL));
    RT(0, cudaStreamIsCapturing(stream, &status));
    IS(0, status);
    RT(0, cudaStreamIsCapturing(NULL, &status));
    RT(0, cudaStreamGetCaptureInfo(stream, &status, &id));
    IS(77, id);
    RT(1, cudaStreamGetCaptureInfo(stream, NULL, &id));
    RT(0, cudaThreadExchangeStreamCaptureMode(&mode));
    IS(0, mode);
    mode = cudaStreamCaptureModeRelaxed;
    RT(0, cudaThreadExchangeStreamCaptureMode(&mode));
    IS(7, mode);
    RT(0, cudaThreadExchangeStreamCaptureMode(&mode));
    IS(cudaStreamCaptureModeRelaxed, mode);
}

static void events(void)
{
    cudaStream_t stream;
    cudaEvent_t event, other, untimed;
    float ms;
    int word = 0;

    CHECK(cudaStreamCreate(&stream));
    RT(1, cudaEventCreate(NULL));
    RT(1, cudaEventCreateWithFlags(NULL, 0));
    RT(1, cudaEventCreateWithFlags(&event, 8));
    RT(1, cudaEventCreateWithFlags(&event, 0x80));
    RT(1, cudaEventCreateWithFlags(&event, cudaEventInterprocess));
    RT(0, cudaEventCreateWithFlags(&event, cudaEventBlockingSync));
    RT(0, cudaEventCreate(&other));
    RT(0, cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    RT(0, cudaEventQuery(event));
    RT(0, cudaEventSynchronize(event));
    RT(400, cudaEventElapsedTime(&ms, event, other));
    RT(400, cudaEventElapsedTime(&ms, event, event));
    RT(0, cudaStreamWaitEvent(stream, event, 0));
    RT(400, cudaStreamWaitEvent(stream, NULL, 0));
    RT(1, cudaStreamWaitEvent(stream, event, 2));
    RT(401, cudaStreamWaitEvent(stream, event, cudaEventWaitExternal));
    RT(1, cudaEventRecordWithFlags(event, stream, 2));
    RT(401, cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal));
    RT(400, cudaEventRecordWithFlags(NULL, stream, 0));
    RT(400, cudaEventRecord(NULL, NULL));
    RT(400, cudaEventDestroy(NULL));
    RT(400, cudaEventQuery(NULL));
    RT(400, cudaEventSynchronize(NULL));
    RT(1, cudaEventElapsedTime(NULL, event, event));
    RT(400, cudaEventElapsedTime(&ms, NULL, event));
    RT(400, cudaEventElapsedTime(&ms, event, NULL));
    RT(0, cudaEventRecord(event, stream));
    RT(0, cudaEventRecord(untimed, stream));
    RT(0, cudaStreamSynchronize(stream));
    RT(400, cudaEventElapsedTime(&ms, event, other));
    RT(400, cudaEventElapsedTime(&ms, event, untimed));
    RT(0, cudaEventElapsedTime(&ms, event, event));
    RT(0, cudaLaunchHostFunc(stream, wait_for_word, &word));
    RT(0, cudaEventRecord(other, stream));
    RT(600, cudaEventQuery(other));
    RT(600, cudaEventElapsedTime(&ms, event, other));
    RT(600, cudaEventElapsedTime(&ms, other, other));
    RT(0, cudaEventQuery(event));
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    RT(0, cudaEventSynchronize(other));
    RT(0, cudaEventElapsedTime(&ms, event, other));
    RT(0, cudaEventElapsedTime(&ms, other, event));
    IS(1, ms <= 0);
    RT(0, cudaEventDestroy(event));
    RT(0, cudaEventDestroy(other));
}

static void entry_points(void)
{
    cudaDriverEntryPointQueryResult status = (cudaDriverEntryPointQueryResult)9;
    void *entry = (void *)5;

    RT(0, cudaGetDriverEntryPointByVersion("cuNope", &entry, 13000, 0, &status));
    IS(0, (uintptr_t)entry);
    IS(cudaDriverEntryPointSymbolNotFound, status);
    RT(0, cudaGetDriverEntryPointByVersion("cuNope", &entry, 13000, 0, NULL));
    entry = (void *)5;
    RT(0, cudaGetDriverEntryPointByVersion("cuLibraryLoadData", &entry, 11000, 0, &status));
    IS(0, (uintptr_t)entry);
    IS(cudaDriverEntryPointVersionNotSufficent, status);
    RT(1, cudaGetDriverEntryPointByVersion("cuMemAlloc", &entry, 99000, 0, &status));
    RT(1, cudaGetDriverEntryPointByVersion("cuMemAlloc", &entry, 12000, 7, &status));
    RT(0, cudaGetDriverEntryPointByVersion("", &entry, 12000, 0, &status));
    IS(cudaDriverEntryPointSymbolNotFound, status);
    RT(0, cudaGetDriverEntryPointByVersion("cuMemAlloc", &entry, 12000, cudaEnableDefault, &status));
    IS(cudaDriverEntryPointSuccess, status);
    IS(1, entry != NULL);
    RT(0, cudaGetDriverEntryPointByVersion("cuMemAlloc_v2", &entry, 12000, 0, &status));
    IS(cudaDriverEntryPointSymbolNotFound, status);
    RT(0, cudaGetDriverEntryPoint("cuStreamQuery", &entry, cudaEnablePerThreadDefaultStream, &status));
    IS(cudaDriverEntryPointSuccess, status);
    RT(0, cudaGetDriverEntryPoint("cuNope", &entry, cudaEnableDefault, &status));
    IS(cudaDriverEntryPointSymbolNotFound, status);
}

static const char ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .global .u32 gv;\n"
                          ".visible .entry foo(.param .u64 p){ret;}\n.visible .entry bar(){ret;}\n";

static void libraries(void)
{
    cudaLibraryOption option = cudaLibraryBinaryIsPreserved;
    void *option_value = (void *)1, *address = NULL;
    cudaLibrary_t library = NULL, other = NULL;
    cudaKernel_t kernel = NULL, kernels[4] = {};
    cudaFuncAttributes attributes;
    size_t bytes = 0;
    unsigned count = 0;
    void *arguments[] = {&address};

    RT(1, cudaLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0));
    RT(1, cudaLibraryLoadData(NULL, ptx, NULL, NULL, 0, NULL, NULL, 0));
    RT(301, cudaLibraryLoadFromFile(&library, "/nonexistent", NULL, NULL, 0, NULL, NULL, 0));
    RT(1, cudaLibraryLoadFromFile(&library, NULL, NULL, NULL, 0, NULL, NULL, 0));
    RT(1, cudaLibraryLoadFromFile(NULL, "/nonexistent", NULL, NULL, 0, NULL, NULL, 0));
    RT(0, cudaLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    RT(0, cudaLibraryLoadData(&other, ptx, NULL, NULL, 0, &option, &option_value, 1));
    RT(0, cudaLibraryUnload(other));
    RT(500, cudaLibraryGetKernel(&kernel, library, "nope"));
    RT(1, cudaLibraryGetKernel(&kernel, library, NULL));
    RT(1, cudaLibraryGetKernel(NULL, library, "foo"));
    RT(400, cudaLibraryGetKernel(&kernel, NULL, "foo"));
    RT(0, cudaLibraryGetKernel(&kernel, library, "foo"));
    RT(500, cudaLibraryGetGlobal(&address, &bytes, library, "nope"));
    RT(0, cudaLibraryGetGlobal(&address, NULL, library, "gv"));
    RT(0, cudaLibraryGetGlobal(NULL, &bytes, library, "gv"));
    IS(4, bytes);
    RT(1, cudaLibraryGetGlobal(NULL, NULL, library, "gv"));
    RT(1, cudaLibraryGetGlobal(&address, &bytes, library, NULL));
    RT(400, cudaLibraryGetGlobal(&address, &bytes, NULL, "gv"));
    RT(0, cudaLibraryGetKernelCount(&count, library));
    IS(2, count);
    RT(1, cudaLibraryGetKernelCount(NULL, library));
    RT(400, cudaLibraryGetKernelCount(&count, NULL));
    RT(0, cudaLibraryEnumerateKernels(kernels, 0, library));
    IS(0, kernels[0] != NULL);
    RT(1, cudaLibraryEnumerateKernels(NULL, 1, library));
    RT(400, cudaLibraryEnumerateKernels(kernels, 1, NULL));
    RT(0, cudaLibraryEnumerateKernels(kernels, 1, library));
    IS(1, kernels[0] && !kernels[1]);
    RT(0, cudaLibraryEnumerateKernels(kernels, 4, library));
    IS(1, kernels[1] && !kernels[2]);
    RT(0, cudaFuncGetAttributes(&attributes, kernel));
    RT(0, cudaLaunchKernel((void *)kernel, dim3(1), dim3(1), arguments, 0, NULL));
    RT(101, cudaKernelSetAttributeForDevice(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 100, nowhere));
    RT(1, cudaKernelSetAttributeForDevice(kernel, (cudaFuncAttribute)1, 100, 0));
    RT(0, cudaKernelSetAttributeForDevice(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 100, 0));
    RT(0, cudaDeviceSynchronize());
    RT(1, cudaLibraryGetUnifiedFunction(&address, library, "foo"));
    RT(1, cudaLibraryGetUnifiedFunction(NULL, library, "foo"));
    RT(1, cudaLibraryGetUnifiedFunction(&address, library, NULL));
    RT(400, cudaLibraryGetUnifiedFunction(&address, NULL, "foo"));
    RT(0, cudaLibraryUnload(library));
    RT(400, cudaLibraryUnload(NULL));
}

static void profiler_and_reset(void)
{
    void *memory = NULL;

    RT(0, cudaProfilerStop());
    RT(0, cudaProfilerStart());
    RT(0, cudaProfilerStart());
    RT(0, cudaMalloc(&memory, 4));
    RT(0, cudaDeviceReset());
    RT(1, cudaFree(memory));
    RT(0, cudaDeviceSynchronize());
    RT(0, cudaStreamSynchronize(NULL));
    RT(0, cudaMalloc(&memory, 4));
    RT(0, cudaDeviceReset());
    RT(0, cudaDeviceReset());
}

BEHAVIOUR_MAIN({"devices", devices}, {"device names", device_names}, {"peers", peers},
               {"flags and limits", flags_and_limits}, {"error texts", error_texts}, {"last error", last_error},
               {"streams", streams}, {"capture questions", capture_questions}, {"events", events},
               {"entry points", entry_points}, {"libraries", libraries}, {"profiler and reset", profiler_and_reset})
