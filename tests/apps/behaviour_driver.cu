// What the driver API answers at its edges: devices, entry points, streams, events, modules, libraries.
// behaviour.h says what a row is.
// nvcc: -lcuda -Wno-deprecated-declarations -Xcompiler -Wno-deprecated-declarations
#include "behaviour.h"
#include <cuda.h>
#include <cudaProfiler.h>

/* Entry points that the header's macros hide. */
extern "C" {
CUresult CUDAAPI before_12_proc_address(const char *, void **, int, cuuint64_t) __asm__("cuGetProcAddress");
CUresult CUDAAPI v1_uuid(CUuuid *, CUdevice) __asm__("cuDeviceGetUuid");
CUresult CUDAAPI v1_elapsed(float *, CUevent, CUevent) __asm__("cuEventElapsedTime");
CUresult CUDAAPI v1_stream_destroy(CUstream) __asm__("cuStreamDestroy");
CUresult CUDAAPI v1_event_destroy(CUevent) __asm__("cuEventDestroy");
CUresult CUDAAPI v1_capture_info(CUstream, CUstreamCaptureStatus *, cuuint64_t *) __asm__("cuStreamGetCaptureInfo");
CUresult CUDAAPI v2_capture_info(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **,
                                 size_t *) __asm__("cuStreamGetCaptureInfo_v2");
}

static const int nowhere = 99; /* no machine has that many devices */

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .global .align 4 .u32 g[4];\n"
                          ".visible .entry k(.param .u64 p, .param .u32 n)\n{\n.reg .u64 %rd<3>;\n.reg .u32 %r<3>;\n"
                          "ld.param.u64 %rd1,[p];\nld.param.u32 %r1,[n];\nst.global.u32 [%rd1],%r1;\nret;\n}\n"
                          ".visible .entry spin()\n{\nret;\n}\n";

static CUcontext start(void)
{
    CUcontext context;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_CU(cuCtxSetCurrent(context));
    return context;
}

static void texts(void)
{
    const char *text = "x";

    DR(0, cuGetErrorName(CUDA_ERROR_INVALID_VALUE, &text));
    IS(0, strcmp(text, "CUDA_ERROR_INVALID_VALUE"));
    DR(0, cuGetErrorString(CUDA_ERROR_CONTAINED, &text));
    IS(0, strcmp(text, "Invalid access of peer GPU memory over nvlink or a hardware error"));
    DR(1, cuGetErrorName((CUresult)998, &text));
    IS(1, text == NULL);
    text = "x";
    DR(1, cuGetErrorString((CUresult)-1, &text));
    IS(1, text == NULL);
    DR(1, cuGetErrorName((CUresult)10, &text));
}

static void devices(void)
{
    CUdevprop properties;
    CUdevice device = 9;
    CUuuid uuid, same;
    char name[64] = "";
    size_t bytes;
    int value = 9, other = 9;

    CHECK_CU(cuInit(0));
    DR(1, cuDeviceGetCount(NULL));
    DR(1, cuDeviceGet(NULL, 0));
    DR(101, cuDeviceGet(&device, -1));
    DR(101, cuDeviceGet(&device, nowhere));
    DR(0, cuDeviceGet(&device, 0));
    DR(1, cuDeviceGetName(NULL, 10, 0));
    DR(0, cuDeviceGetName(name, 4, 0));
    IS(3, strlen(name));
    DR(101, cuDeviceGetName(name, 4, nowhere));
    DR(1, cuDeviceTotalMem(NULL, 0));
    DR(101, cuDeviceTotalMem(&bytes, nowhere));
    DR(1, cuDeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    DR(1, cuDeviceGetAttribute(&value, (CUdevice_attribute)0, 0));
    DR(1, cuDeviceGetAttribute(&value, (CUdevice_attribute)999, 0));
    DR(1, cuDeviceGetAttribute(&value, (CUdevice_attribute)9999, 0));
    DR(1, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0));
    DR(101, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, nowhere));
    DR(1, cuDeviceGetPCIBusId(name, 5, 0));
    DR(1, cuDeviceGetPCIBusId(NULL, 64, 0));
    DR(101, cuDeviceGetPCIBusId(name, 64, nowhere));
    DR(0, cuDeviceGetPCIBusId(name, 13, 0));
    IS(12, strlen(name));
    DR(0, cuDeviceGetByPCIBusId(&device, name));
    IS(0, device);
    DR(0, cuDeviceGetByPCIBusId(&device, name + 5));
    DR(1, cuDeviceGetByPCIBusId(NULL, name));
    DR(1, cuDeviceGetByPCIBusId(&device, NULL));
    DR(1, cuDeviceGetByPCIBusId(&device, "bad"));
    DR(1, cuDeviceGetByPCIBusId(&device, ""));
    DR(101, cuDeviceGetByPCIBusId(&device, "ffff:ff:1f.7"));
    DR(1, cuDeviceGetUuid(NULL, 0));
    DR(101, cuDeviceGetUuid(&uuid, nowhere));
    DR(0, cuDeviceGetUuid(&uuid, 0));
    DR(0, v1_uuid(&same, 0));
    IS(0, memcmp(&uuid, &same, sizeof(uuid)));
    DR(1, cuDeviceComputeCapability(NULL, &value, 0));
    DR(1, cuDeviceComputeCapability(&value, NULL, 0));
    DR(101, cuDeviceComputeCapability(&value, &other, nowhere));
    DR(0, cuDeviceComputeCapability(&value, &other, 0));
    IS(1, value >= 7 && other >= 0);
    DR(1, cuDeviceGetProperties(NULL, 0));
    DR(101, cuDeviceGetProperties(&properties, nowhere));
    DR(0, cuDeviceGetProperties(&properties, 0));
    IS(1024, properties.maxThreadsPerBlock);
    IS(65535, properties.maxGridSize[1]);
    IS(32, properties.SIMDWidth);
    IS(65536, properties.totalConstantMemory);
    DR(0, cuDeviceCanAccessPeer(&value, 0, 0));
    IS(0, value);
    DR(101, cuDeviceCanAccessPeer(&value, 0, nowhere));
    DR(1, cuDeviceCanAccessPeer(NULL, 0, 0));
    DR(101, cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
    DR(101, cuDeviceGetP2PAttribute(&value, (CUdevice_P2PAttribute)99, 0, 0));
    DR(101, cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, nowhere));
    DR(1, cuDeviceGetP2PAttribute(NULL, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 0));
}

/* cuGetProcAddress: what it returns, whether it gives an address, and its word on the symbol. */
static void ask(int line, const char *name, int version, cuuint64_t flags, int want, int want_entry, int want_status)
{
    CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)9;
    void *entry = (void *)5;

    behaviour_row(line, name, cuGetProcAddress(name, &entry, version, flags, &status), want);
    behaviour_row(line, "its entry (0: NULL, 1: an address, 5: untouched)", entry == (void *)5 ? 5 : entry != NULL,
                  want_entry);
    behaviour_row(line, "its status", status, want_status);
}
#define ASK(...) ask(__LINE__, __VA_ARGS__)

static void entry_points(void)
{
    void *entry = (void *)5;

    CHECK_CU(cuInit(0));
    ASK("cuMemcpy", 3000, 0, 0, 0, 2);
    ASK("cuMemcpy", 4000, 2, 0, 0, 2);
    ASK("cuMemcpy", 7000, 2, 0, 1, 0);
    ASK("cuMemcpy", 13000, 1, 0, 1, 0);
    ASK("cuMemcpy", 13000, 3, 0, 1, 0);
    ASK("cuMemcpy", 13000, 4, 1, 5, 9);
    ASK("cuMemcpy", 99000, 0, 1, 5, 9);
    ASK("cuMemcpy", 0, 0, 0, 0, 2);
    ASK("cuMemcpy", -1, 0, 0, 1, 0);
    ASK("nope", 13000, 0, 0, 0, 1);
    ASK("", 13000, 0, 0, 0, 1);
    ASK("cuMemAlloc_v2", 13000, 0, 0, 0, 1);
    ASK("cuMemAlloc", 2000, 0, 0, 1, 0);
    ASK("cuMemAlloc", 1000, 0, 0, 0, 2);
    ASK("cuMemcpy_ptds", 13000, 0, 0, 0, 1);
    ASK("cuGetExportTable", 13000, 0, 0, 1, 0);
    ASK("cuProfilerStart", 13000, 0, 0, 1, 0);
    ASK("cuGraphInstantiate", 12000, 0, 0, 1, 0);
    ASK("cuDbgGetAPI", 13000, 0, 0, 0, 1);
    ASK("cuGetProcAddress", 13000, 0, 0, 1, 0);
    ASK("cuGetProcAddress_v2", 13000, 0, 0, 0, 1);
    ASK("cuMemGetInfo", 13000, 2, 0, 1, 0);
    DR(0, cuGetProcAddress("cuInit", &entry, 13000, 0, NULL));
    entry = (void *)5;
    DR(500, before_12_proc_address("nope", &entry, 13000, 0));
    IS(1, entry == (void *)5);
    DR(500, before_12_proc_address("cuMemcpy", &entry, 3000, 0));
    DR(1, before_12_proc_address("cuMemcpy", &entry, 99000, 0));
    IS(1, entry == (void *)5);
    DR(0, before_12_proc_address("cuMemcpy", &entry, 13000, 0));
    IS(1, entry != (void *)5 && entry != NULL);
}

static void CUDA_CB wait_for_word(void *word)
{
    while (!*(volatile int *)word)
        usleep(100);
}

static void CUDA_CB callback(CUstream stream, CUresult status, void *unused)
{
}

static void streams(void)
{
    CUstream stream = NULL, other = NULL;
    CUcontext context = start(), found;
    CUdevice device = 9;
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)7;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    cuuint64_t capture_id = 77;
    CUgraph graph = (CUgraph)7;
    unsigned flags = 9;
    unsigned long long id = 0, legacy_id = 1;
    int priority = 9, least, greatest, word = 0;

    CHECK_CU(cuCtxGetStreamPriorityRange(&least, &greatest));
    DR(1, cuStreamCreate(NULL, 0));
    DR(1, cuStreamCreate(&stream, 2));
    DR(1, cuStreamCreateWithPriority(NULL, 0, 0));
    DR(1, cuStreamCreateWithPriority(&stream, 2, 0));
    DR(0, cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    DR(0, cuStreamCreateWithPriority(&other, 0, -99));
    DR(0, cuStreamGetPriority(other, &priority));
    IS(greatest, priority);
    DR(0, cuStreamGetPriority(NULL, &priority));
    IS(0, priority);
    DR(1, cuStreamGetPriority(stream, NULL));
    DR(0, cuStreamGetFlags(stream, &flags));
    IS(1, flags);
    DR(0, cuStreamGetFlags(NULL, &flags));
    IS(0, flags);
    DR(0, cuStreamGetFlags(CU_STREAM_PER_THREAD, &flags));
    IS(0, flags);
    DR(1, cuStreamGetFlags(stream, NULL));
    DR(0, cuStreamGetId(NULL, &legacy_id));
    DR(0, cuStreamGetId(CU_STREAM_LEGACY, &id));
    IS(legacy_id, id);
    DR(0, cuStreamGetId(CU_STREAM_PER_THREAD, &id));
    IS(1, id != legacy_id);
    DR(0, cuStreamGetId(stream, &id));
    IS(1, id != legacy_id);
    DR(1, cuStreamGetId(stream, NULL));
    DR(0, cuStreamGetCtx(stream, &found));
    IS(1, found == context);
    DR(0, cuStreamGetCtx(NULL, &found));
    IS(1, found == context);
    DR(1, cuStreamGetCtx(stream, NULL));
    DR(0, cuStreamGetDevice(stream, &device));
    IS(0, device);
    DR(1, cuStreamGetDevice(stream, NULL));
    DR(400, cuStreamDestroy(NULL));
    DR(400, cuStreamDestroy(CU_STREAM_LEGACY));
    DR(400, cuStreamDestroy(CU_STREAM_PER_THREAD));
    DR(1, cuStreamAddCallback(NULL, NULL, NULL, 0));
    DR(1, cuStreamAddCallback(NULL, callback, NULL, 1));
    DR(0, cuStreamAddCallback(NULL, callback, NULL, 0));
    DR(0, cuStreamSynchronize(NULL));
    DR(1, cuLaunchHostFunc(NULL, NULL, NULL));
    DR(1, cuStreamIsCapturing(stream, NULL));
    DR(0, cuStreamIsCapturing(stream, &status));
    IS(0, status);
    DR(0, cuStreamGetCaptureInfo(stream, &status, &capture_id, &graph, NULL, NULL, NULL));
    IS(0, status);
    IS(77, capture_id);
    IS(7, (uintptr_t)graph);
    DR(1, cuStreamGetCaptureInfo(stream, NULL, &capture_id, &graph, NULL, NULL, NULL));
    DR(0, v1_capture_info(stream, &status, &capture_id));
    DR(0, v2_capture_info(stream, &status, &capture_id, NULL, NULL, NULL));
    DR(0, cuThreadExchangeStreamCaptureMode(&mode));
    IS(CU_STREAM_CAPTURE_MODE_GLOBAL, mode);
    mode = (CUstreamCaptureMode)9;
    DR(0, cuThreadExchangeStreamCaptureMode(&mode));
    IS(CU_STREAM_CAPTURE_MODE_RELAXED, mode);
    DR(0, cuLaunchHostFunc(stream, wait_for_word, &word));
    DR(600, cuStreamQuery(stream));
    DR(0, cuStreamQuery(NULL)); /* the other one is not a blocking stream */
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    DR(0, cuStreamSynchronize(stream));
    DR(0, cuStreamDestroy(stream));
    DR(0, v1_stream_destroy(other));
}

static void events(void)
{
    CUstream stream;
    CUevent event = NULL, untimed = NULL;
    float ms = -1;

    start();
    CHECK_CU(cuStreamCreate(&stream, 0));
    DR(1, cuEventCreate(NULL, 0));
    DR(1, cuEventCreate(&event, 99));
    DR(1, cuEventCreate(&event, CU_EVENT_INTERPROCESS));
    DR(0, cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC));
    DR(0, cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    DR(400, cuStreamWaitEvent(NULL, NULL, 0));
    DR(1, cuStreamWaitEvent(NULL, event, 99));
    DR(401, cuStreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL));
    DR(0, cuStreamWaitEvent(stream, untimed, 0));
    DR(0, cuEventQuery(event));
    DR(0, cuEventSynchronize(event));
    DR(400, cuEventElapsedTime(&ms, event, event));
    DR(0, cuEventRecord(event, stream));
    DR(400, cuEventRecord(NULL, NULL));
    DR(1, cuEventRecordWithFlags(event, stream, 99));
    DR(401, cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL));
    DR(0, cuEventSynchronize(event));
    DR(0, cuEventElapsedTime(&ms, event, event));
    IS(1, ms == 0);
    DR(0, v1_elapsed(&ms, event, event));
    DR(400, cuEventElapsedTime(&ms, event, untimed));
    DR(400, cuEventElapsedTime(&ms, event, NULL));
    DR(400, cuEventDestroy(NULL));
    DR(400, cuEventQuery(NULL));
    DR(400, cuEventSynchronize(NULL));
    DR(0, cuEventDestroy(event));
    DR(0, v1_event_destroy(untimed));
}

static void modules(void)
{
    CUmodule module = NULL, found = NULL;
    CUfunction function = NULL, functions[4] = {};
    CUfunctionLoadingState state = (CUfunctionLoadingState)9;
    CUmoduleLoadingMode loading = (CUmoduleLoadingMode)9;
    CUdeviceptr address;
    const char *name = NULL;
    size_t bytes = 0, offset = 0;
    unsigned count = 0;

    start();
    DR(0, cuModuleGetLoadingMode(&loading));
    IS(CU_MODULE_LAZY_LOADING, loading);
    DR(1, cuModuleLoadData(NULL, ptx));
    DR(1, cuModuleLoadData(&module, NULL));
    DR(200, cuModuleLoadData(&module, "garbage"));
    DR(218, cuModuleLoadData(&module, ".version 6.0\n.target sm_50\nnonsense"));
    DR(301, cuModuleLoad(&module, "/nonexistent"));
    DR(1, cuModuleLoad(NULL, "x"));
    DR(1, cuModuleLoad(&module, NULL));
    DR(0, cuModuleLoadData(&module, ptx));
    DR(1, cuModuleGetFunction(NULL, module, "k"));
    DR(1, cuModuleGetFunction(&function, module, NULL));
    DR(500, cuModuleGetFunction(&function, module, "nope"));
    DR(400, cuModuleGetFunction(&function, NULL, "k"));
    DR(0, cuModuleGetFunction(&function, module, "k"));
    DR(0, cuModuleGetGlobal(&address, &bytes, module, "g"));
    IS(16, bytes);
    DR(0, cuModuleGetGlobal(&address, NULL, module, "g"));
    DR(0, cuModuleGetGlobal(NULL, &bytes, module, "g"));
    DR(1, cuModuleGetGlobal(NULL, NULL, module, "g"));
    DR(1, cuModuleGetGlobal(&address, &bytes, module, NULL));
    DR(500, cuModuleGetGlobal(&address, &bytes, module, "nope"));
    DR(400, cuModuleGetGlobal(&address, &bytes, NULL, "g"));
    DR(0, cuModuleGetFunctionCount(&count, module));
    IS(2, count);
    DR(1, cuModuleGetFunctionCount(NULL, module));
    DR(400, cuModuleGetFunctionCount(&count, NULL));
    DR(0, cuModuleEnumerateFunctions(functions, 0, module));
    IS(1, functions[0] == NULL);
    DR(1, cuModuleEnumerateFunctions(NULL, 2, module));
    DR(0, cuModuleEnumerateFunctions(functions, 4, module));
    IS(1, functions[1] && !functions[2]);
    DR(0, cuFuncGetName(&name, function));
    IS(0, strcmp(name, "k"));
    DR(1, cuFuncGetName(NULL, function));
    DR(1, cuFuncGetName(&name, NULL));
    DR(0, cuFuncGetModule(&found, function));
    IS(1, found == module);
    DR(1, cuFuncGetModule(NULL, function));
    DR(1, cuFuncGetModule(&found, NULL));
    DR(0, cuFuncGetParamInfo(function, 1, &offset, &bytes));
    IS(8, offset);
    IS(4, bytes);
    DR(1, cuFuncGetParamInfo(function, 2, &offset, &bytes));
    DR(1, cuFuncGetParamInfo(function, 0, NULL, &bytes));
    DR(0, cuFuncGetParamInfo(function, 0, &offset, NULL));
    DR(0, cuFuncIsLoaded(&state, function));
    IS(CU_FUNCTION_LOADING_STATE_LOADED, state);
    DR(1, cuFuncIsLoaded(NULL, function));
    DR(0, cuFuncLoad(function));
    DR(400, cuModuleUnload(NULL));
    DR(0, cuModuleUnload(module));
}

static void libraries(void)
{
    CUlibrary library = NULL, found;
    CUkernel kernel = NULL, kernels[4] = {};
    CUfunction function = NULL;
    CUmodule module = NULL, of_function = NULL;
    CUdeviceptr address;
    const char *name = NULL;
    void *pointer = NULL;
    size_t bytes = 0, offset = 0;
    unsigned count = 0;
    int value = 0;

    start();
    DR(1, cuLibraryLoadData(NULL, ptx, NULL, NULL, 0, NULL, NULL, 0));
    DR(1, cuLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0));
    DR(301, cuLibraryLoadFromFile(&library, "/nonexistent", NULL, NULL, 0, NULL, NULL, 0));
    DR(0, cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    DR(500, cuLibraryGetKernel(&kernel, library, "nope"));
    DR(1, cuLibraryGetKernel(NULL, library, "k"));
    DR(1, cuLibraryGetKernel(&kernel, library, NULL));
    DR(400, cuLibraryGetKernel(&kernel, NULL, "k"));
    DR(0, cuLibraryGetKernel(&kernel, library, "k"));
    DR(0, cuLibraryGetKernelCount(&count, library));
    IS(2, count);
    DR(1, cuLibraryGetKernelCount(NULL, library));
    DR(0, cuLibraryEnumerateKernels(kernels, 4, library));
    IS(1, kernels[1] && !kernels[2]);
    DR(1, cuLibraryEnumerateKernels(NULL, 1, library));
    DR(0, cuKernelGetName(&name, kernel));
    IS(0, strcmp(name, "k"));
    DR(1, cuKernelGetName(NULL, kernel));
    DR(0, cuKernelGetLibrary(&found, kernel));
    IS(1, found == library);
    DR(1, cuKernelGetLibrary(NULL, kernel));
    DR(0, cuKernelGetParamInfo(kernel, 1, &offset, &bytes));
    IS(8, offset);
    DR(1, cuKernelGetParamInfo(kernel, 2, &offset, &bytes));
    DR(0, cuKernelGetFunction(&function, kernel));
    DR(1, cuKernelGetFunction(NULL, kernel));
    DR(0, cuFuncGetModule(&of_function, function));
    DR(0, cuLibraryGetModule(&module, library));
    IS(1, of_function == module);
    DR(1, cuLibraryGetModule(NULL, library));
    DR(0, cuModuleGetFunction(&function, module, "k"));
    DR(0, cuLibraryGetGlobal(&address, &bytes, library, "g"));
    IS(16, bytes);
    DR(500, cuLibraryGetGlobal(&address, &bytes, library, "nope"));
    DR(1, cuLibraryGetGlobal(NULL, NULL, library, "g"));
    DR(0, cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
    IS(1024, value);
    DR(1, cuKernelGetAttribute(NULL, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
    DR(101, cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, nowhere));
    DR(1, cuKernelGetAttribute(&value, (CUfunction_attribute)99, kernel, 0));
    DR(0, cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100, kernel, 0));
    DR(1, cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NUM_REGS, 100, kernel, 0));
    DR(101, cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100, kernel, nowhere));
    DR(0, cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, 0));
    DR(1, cuKernelSetCacheConfig(kernel, (CUfunc_cache)9, 0));
    DR(101, cuKernelSetCacheConfig(kernel, CU_FUNC_CACHE_PREFER_L1, nowhere));
    /* No device here has unified function pointers, so no function is found. */
    DR(1, cuLibraryGetUnifiedFunction(&pointer, library, "k"));
    DR(1, cuLibraryGetUnifiedFunction(&pointer, library, "nope"));
    DR(1, cuLibraryGetUnifiedFunction(NULL, library, "k"));
    DR(1, cuLibraryGetUnifiedFunction(&pointer, library, NULL));
    DR(400, cuLibraryGetUnifiedFunction(&pointer, NULL, "k"));
    DR(400, cuLibraryUnload(NULL));
    DR(0, cuLibraryUnload(library));
    DR(0, cuProfilerStart());
    DR(0, cuProfilerStart());
    DR(0, cuProfilerStop());
    DR(0, cuProfilerStop());
}

static void links(void)
{
    CUjit_option option = CU_JIT_MAX_REGISTERS;
    void *option_value = (void *)32, *image = NULL;
    CUlinkState state = NULL;
    CUmodule module;
    char *text = (char *)ptx;
    size_t bytes = 0;

    start();
    DR(1, cuModuleLoadDataEx(&module, ptx, 1, NULL, NULL));
    DR(0, cuModuleLoadDataEx(&module, ptx, 1, &option, &option_value));
    DR(0, cuModuleUnload(module));
    DR(1, cuModuleLoadFatBinary(NULL, "garbage"));
    DR(1, cuModuleLoadFatBinary(&module, NULL));
    DR(200, cuModuleLoadFatBinary(&module, "garbage"));
    DR(1, cuLinkCreate(0, NULL, NULL, NULL));
    DR(1, cuLinkCreate(1, NULL, NULL, &state));
    DR(0, cuLinkCreate(0, NULL, NULL, &state));
    DR(1, cuLinkAddData(state, CU_JIT_INPUT_PTX, NULL, 10, "x", 0, NULL, NULL));
    DR(1, cuLinkAddData(state, (CUjitInputType)99, text, sizeof(ptx), "x", 0, NULL, NULL));
    DR(301, cuLinkAddFile(state, CU_JIT_INPUT_PTX, "/nonexistent", 0, NULL, NULL));
    DR(1, cuLinkAddFile(state, CU_JIT_INPUT_PTX, NULL, 0, NULL, NULL));
    DR(0, cuLinkAddData(state, CU_JIT_INPUT_PTX, text, sizeof(ptx), NULL, 0, NULL, NULL));
    DR(0, cuLinkComplete(state, &image, &bytes));
    IS(1, image && bytes);
    DR(0, cuModuleLoadData(&module, image));
    DR(0, cuLinkDestroy(state));
}

BEHAVIOUR_MAIN({"texts", texts}, {"devices", devices}, {"entry points", entry_points}, {"streams", streams},
               {"events", events}, {"modules", modules}, {"libraries", libraries}, {"links", links})
