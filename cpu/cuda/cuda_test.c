/*
 * The entry points over a core of fakes: the order of complaints, what reaches the core, per-thread variants, and
 * cuGetProcAddress. Expected codes are those that NVIDIA's driver 580 gave for the same calls. What is not faked here
 * comes from libflyt-client.so.1 and is not called.
 */
#include "cpu/cuda/driver.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/function.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/kernel.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/module.h"

#define CONTEXT        ((CUcontext)0x15)
#define STREAM         ((CUstream)0x11000000000000aa)
#define KERNEL         ((CUfunction)0x14000000000000bb)
#define DEVICE_ADDRESS 0x200000001000ull

/* ---- the fake core: what it was told last ---- */

static struct {
    bool is_initialized;
    CUcontext current;
    unsigned copies, fills, launches;
    struct flyt_copy copy;
    struct flyt_fill fill;
    struct flyt_launch launch;
    CUstream stream, handle;
    bool is_async;
    struct flyt_pointer pointer;
    const char *refused;
    int peer_device;
    int driver_version; /* of the node; 0: 13000 */
} core;

CUresult flyt_client_init(void)
{
    core.is_initialized = true;
    return CUDA_SUCCESS;
}

bool flyt_client_is_initialized(void)
{
    return core.is_initialized;
}

int flyt_client_driver_version(void)
{
    return core.driver_version ? core.driver_version : 13000;
}

int flyt_client_newest_version(void)
{
    return core.driver_version > 13000 ? core.driver_version : 13000;
}

CUresult flyt_not_supported(const char *name)
{
    core.refused = name;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult flyt_context_current(CUcontext *ret_context)
{
    *ret_context = core.current;
    return CUDA_SUCCESS;
}

CUresult flyt_context_device(CUcontext context, int *ret_device)
{
    if (!context && !core.current)
        return CUDA_ERROR_INVALID_CONTEXT;
    *ret_device = !context || context == CONTEXT ? 0 : core.peer_device;
    return CUDA_SUCCESS;
}

CUresult flyt_context_device_any(CUcontext context, int *ret_device)
{
    return flyt_context_device(context, ret_device);
}

CUresult flyt_device_check(int device)
{
    return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult flyt_device_info(int device, const struct flyt_device_info **ret_info)
{
    static const struct flyt_device_info info = {
        .name = "Flyt test", .pci_bus_id = "0000:00:06.0", .least_priority = 0, .greatest_priority = -5};
    *ret_info = &info;
    return flyt_device_check(device);
}

CUresult flyt_device_peer_enable(int peer_device, unsigned flags)
{
    return CUDA_SUCCESS;
}

CUresult flyt_memory_free(CUdeviceptr address)
{
    return address ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

bool flyt_pointer_is_reached(const struct flyt_pointer *pointer)
{
    return pointer->kind == FLYT_POINTER_DEVICE && pointer->device == 0;
}

CUresult flyt_pointer_find(const void *address, struct flyt_pointer *ret_pointer)
{
    *ret_pointer = core.pointer;
    return CUDA_SUCCESS;
}

CUresult flyt_copy(const struct flyt_copy *copy, CUstream stream, bool is_async)
{
    core.copies++;
    core.copy = *copy;
    core.stream = stream;
    core.is_async = is_async;
    return CUDA_SUCCESS;
}

CUresult flyt_fill(const struct flyt_fill *fill, CUstream stream, bool is_async)
{
    core.fills++;
    core.fill = *fill;
    core.stream = stream;
    core.is_async = is_async;
    return CUDA_SUCCESS;
}

CUresult flyt_kernel_launch(const struct flyt_launch *launch)
{
    core.launches++;
    core.launch = *launch;
    core.stream = launch->stream;
    return CUDA_SUCCESS;
}

CUresult flyt_stream_query(CUstream stream)
{
    core.stream = stream;
    return CUDA_ERROR_NOT_READY;
}

CUresult flyt_stream_flags(CUstream stream, unsigned *ret_flags)
{
    core.stream = stream;
    *ret_flags = 0;
    return CUDA_SUCCESS;
}

CUresult flyt_stream_callback_add(CUstream stream, CUstream handle, CUstreamCallback callback, void *user,
                                  unsigned flags)
{
    core.stream = stream;
    core.handle = handle;
    return CUDA_SUCCESS;
}

CUresult flyt_stream_create(unsigned flags, int priority, CUstream *ret_stream)
{
    *ret_stream = STREAM;
    return core.current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult flyt_host_alloc(size_t bytes, unsigned flags, void **ret_address)
{
    if (bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_address = NULL;
    return core.current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static int setup(void **state)
{
    memset(&core, 0, sizeof core);
    core.is_initialized = true;
    core.current = CONTEXT;
    return 0;
}

/* ---- order of complaints ---- */

static void before_init(void **state)
{
    core.is_initialized = false;
    core.current = NULL;
    int number;
    CUdeviceptr address;
    CUcontext context;
    assert_int_equal(cuDeviceGetCount(&number), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuDeviceGetCount(NULL), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuMemAlloc_v2(&address, 4), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuMemAlloc_v2(NULL, 4), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuStreamQuery(0), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuStreamQuery_ptsz(0), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuMemcpy2D_v2_ptds(NULL), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuLaunchKernel(0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuProfilerStart(), CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuDriverGetVersion(&number), CUDA_SUCCESS);
    assert_int_equal(number, 13000);
    assert_int_equal(cuDriverGetVersion(NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    assert_false(core.is_initialized);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
}

static void without_context(void **state)
{
    core.current = NULL;
    int least, greatest;
    CUdevice device;
    assert_int_equal(cuMemAlloc_v2(NULL, 4), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuModuleLoadData(NULL, NULL), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxGetDevice(NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuMemGetAddressRange_v2(NULL, NULL, 0), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuProfilerStop(), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuMemFree_v2(0), CUDA_SUCCESS);
    assert_int_equal(cuMemFree_v2(5), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemFreeHost(NULL), CUDA_SUCCESS);
}

static void bad_arguments(void **state)
{
    char name[16];
    CUdeviceptr address;
    assert_int_equal(cuMemAlloc_v2(NULL, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDeviceGetName(NULL, 10, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDeviceGetName(name, 4, 99), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(cuDeviceGetName(name, 4, 0), CUDA_SUCCESS);
    assert_string_equal(name, "Fly");
    assert_int_equal(cuDeviceGetPCIBusId(name, 12, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuDeviceGetPCIBusId(name, 13, 0), CUDA_SUCCESS);
    assert_string_equal(name, "0000:00:06.0");
    assert_int_equal(cuCtxDestroy_v2(NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxPushCurrent_v2(NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxEnablePeerAccess(NULL, 0), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxEnablePeerAccess(CONTEXT, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    assert_int_equal(cuCtxDisablePeerAccess(CONTEXT), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    core.peer_device = 1;
    assert_int_equal(cuCtxEnablePeerAccess((CUcontext)0x99, 0), CUDA_SUCCESS);
    assert_int_equal(cuLaunchHostFunc(0, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    void *host = name;
    assert_int_equal(cuMemHostAlloc(&host, 0, 0), CUDA_SUCCESS);
    assert_null(host);
}

/* ---- copies and fills ---- */

static void plain_copies(void **state)
{
    char host[8] = {0};
    assert_int_equal(cuMemcpyHtoD_v2(DEVICE_ADDRESS, host, 8), CUDA_SUCCESS);
    assert_int_equal(core.copy.src.place, FLYT_PLACE_HOST);
    assert_int_equal(core.copy.src.address, (uint64_t)host);
    assert_int_equal(core.copy.dst.place, FLYT_PLACE_DEVICE);
    assert_int_equal(core.copy.width_bytes, 8);
    assert_false(core.is_async);
    assert_null(core.stream);
    assert_int_equal(cuMemcpyDtoH_v2_ptds(host, DEVICE_ADDRESS, 8), CUDA_SUCCESS);
    assert_int_equal(core.copy.dst.address, (uint64_t)host);
    assert_false(core.is_async);
    assert_ptr_equal(core.stream, CU_STREAM_PER_THREAD);
    assert_int_equal(cuMemcpyAsync_ptsz(DEVICE_ADDRESS, DEVICE_ADDRESS, 8, STREAM), CUDA_SUCCESS);
    assert_int_equal(core.copy.dst.place, FLYT_PLACE_ANY);
    assert_true(core.is_async);
    assert_ptr_equal(core.stream, STREAM);
    assert_int_equal(cuMemcpyPeer(DEVICE_ADDRESS, CONTEXT, DEVICE_ADDRESS, NULL, 8), CUDA_SUCCESS);
    assert_int_equal(core.copies, 4);
}

static void copies_2d(void **state)
{
    char host[64] = {0};
    CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .srcPitch = 16,
                          .srcXInBytes = 2,
                          .srcY = 1,
                          .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .dstDevice = DEVICE_ADDRESS,
                          .WidthInBytes = 8,
                          .Height = 2};
    assert_int_equal(cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
    assert_int_equal(core.copy.src.address, (uint64_t)host + 16 + 2);
    assert_int_equal(core.copy.src.pitch_bytes, 16);
    assert_int_equal(core.copy.dst.place, FLYT_PLACE_ANY);
    assert_int_equal(core.copy.dst.pitch_bytes, 8); /* none given: rows follow each other */
    assert_int_equal(core.copy.height, 2);
    assert_int_equal(core.copy.depth, 1);

    assert_int_equal(cuMemcpy2D_v2(NULL), CUDA_ERROR_INVALID_VALUE);
    copy.srcPitch = 9; /* x and width leave the row */
    assert_int_equal(cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcPitch = 16;
    copy.srcY = SIZE_MAX / 8;
    assert_int_equal(cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcY = 0;
    copy.srcMemoryType = 0;
    assert_int_equal(cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    assert_int_equal(cuMemcpy2DUnaligned_v2(&copy), CUDA_ERROR_INVALID_HANDLE); /* no array */
    assert_int_equal(core.copies, 1);
}

static void copies_3d(void **state)
{
    char host[64] = {0};
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                          .srcHost = host,
                          .srcPitch = 4,
                          .srcHeight = 3,
                          .srcZ = 1,
                          .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = DEVICE_ADDRESS,
                          .dstPitch = 32,
                          .WidthInBytes = 4,
                          .Height = 2,
                          .Depth = 2};
    assert_int_equal(cuMemcpy3DAsync_v2(&copy, STREAM), CUDA_SUCCESS);
    assert_int_equal(core.copy.src.address, (uint64_t)host + 12);
    assert_int_equal(core.copy.src.slice_bytes, 12);
    assert_int_equal(core.copy.dst.slice_bytes, 64); /* no height given: slices follow each other */
    assert_int_equal(core.copy.depth, 2);
    assert_ptr_equal(core.stream, STREAM);
    assert_true(core.is_async);
    copy.srcHeight = 1;
    assert_int_equal(cuMemcpy3D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcZ = 0;
    copy.Depth = 1; /* heights do not matter then */
    assert_int_equal(cuMemcpy3D_v2(&copy), CUDA_SUCCESS);
    CUDA_MEMCPY3D_PEER peer = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                               .srcDevice = DEVICE_ADDRESS,
                               .dstXInBytes = 4,
                               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                               .dstDevice = DEVICE_ADDRESS,
                               .dstPitch = 8,
                               .WidthInBytes = 4,
                               .Height = 1,
                               .Depth = 1};
    assert_int_equal(cuMemcpy3DPeer(&peer), CUDA_SUCCESS);
    assert_int_equal(core.copy.dst.address, DEVICE_ADDRESS + 4);
}

static void fills(void **state)
{
    assert_int_equal(cuMemsetD16_v2(DEVICE_ADDRESS, 0xabcd, 5), CUDA_SUCCESS);
    assert_int_equal(core.fill.element_bytes, 2);
    assert_int_equal(core.fill.value, 0xabcd);
    assert_int_equal(core.fill.width, 5);
    assert_int_equal(core.fill.height, 1);
    assert_false(core.is_async);
    assert_int_equal(cuMemsetD2D32Async_ptsz(DEVICE_ADDRESS, 64, 7, 3, 2, NULL), CUDA_SUCCESS);
    assert_int_equal(core.fill.element_bytes, 4);
    assert_int_equal(core.fill.pitch_bytes, 64);
    assert_int_equal(core.fill.height, 2);
    assert_true(core.is_async);
    assert_ptr_equal(core.stream, CU_STREAM_PER_THREAD);
    assert_int_equal(cuMemsetD8_v2_ptds(DEVICE_ADDRESS, 1, 1), CUDA_SUCCESS);
    assert_ptr_equal(core.stream, CU_STREAM_PER_THREAD);
}

/* ---- pointers ---- */

static void pointer_attributes(void **state)
{
    unsigned type = 77;
    int ordinal = 77;
    uint64_t address = 77;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *data[] = {&type, &ordinal};

    core.pointer = (struct flyt_pointer){.kind = FLYT_POINTER_DEVICE, .device = 3, .base = DEVICE_ADDRESS, .bytes = 64};
    assert_int_equal(cuPointerGetAttributes(2, attributes, data, DEVICE_ADDRESS), CUDA_SUCCESS);
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    assert_int_equal(ordinal, 3);
    assert_int_equal(cuPointerGetAttribute(&address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, DEVICE_ADDRESS + 4),
                     CUDA_SUCCESS);
    assert_int_equal(address, DEVICE_ADDRESS + 4);
    assert_int_equal(cuPointerGetAttribute(&address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, DEVICE_ADDRESS + 4),
                     CUDA_SUCCESS);
    assert_int_equal(address, DEVICE_ADDRESS);
    assert_int_equal(cuPointerGetAttribute(&address, CU_POINTER_ATTRIBUTE_HOST_POINTER, DEVICE_ADDRESS),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuPointerGetAttribute(&address, 99, DEVICE_ADDRESS), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, DEVICE_ADDRESS),
                     CUDA_ERROR_INVALID_VALUE);

    core.pointer = (struct flyt_pointer){.kind = FLYT_POINTER_UNKNOWN};
    assert_int_equal(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&type),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE); /* untouched */
    assert_int_equal(cuPointerGetAttributes(2, attributes, data, (CUdeviceptr)&type), CUDA_SUCCESS);
    assert_int_equal(type, 0);
    assert_int_equal(ordinal, -2);
    assert_int_equal(cuPointerGetAttributes(0, attributes, data, (CUdeviceptr)&type), CUDA_ERROR_INVALID_VALUE);
    attributes[0] = 99;
    assert_int_equal(cuPointerGetAttributes(1, attributes, data, (CUdeviceptr)&type), CUDA_ERROR_INVALID_VALUE);
}

/* ---- launches and streams ---- */

static void launch_parameters(void **state)
{
    char buffer[12] = {0};
    size_t bytes = sizeof buffer;
    void *params[] = {buffer};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_END};
    void *no_extra[] = {CU_LAUNCH_PARAM_END};
    void *bad_extra[] = {buffer, buffer, CU_LAUNCH_PARAM_END};
    assert_int_equal(cuLaunchKernel(KERNEL, 1, 2, 3, 4, 5, 6, 7, STREAM, NULL, extra), CUDA_SUCCESS);
    assert_ptr_equal(core.launch.param_buffer, buffer);
    assert_int_equal(core.launch.param_buffer_bytes, sizeof buffer);
    assert_int_equal(core.launch.grid[2], 3);
    assert_int_equal(core.launch.block[0], 4);
    assert_int_equal(core.launch.dynamic_shared_bytes, 7);
    assert_int_equal(cuLaunchKernel_ptsz(KERNEL, 1, 1, 1, 1, 1, 1, 0, NULL, params, no_extra), CUDA_SUCCESS);
    assert_ptr_equal(core.launch.params, params);
    assert_null(core.launch.param_buffer);
    assert_ptr_equal(core.stream, CU_STREAM_PER_THREAD);
    assert_int_equal(cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, 0, params, extra), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLaunchKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, 0, NULL, bad_extra), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(core.launches, 2);
}

static void launch_config(void **state)
{
    CUlaunchConfig config = {
        .gridDimX = 2, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1, .numAttrs = 1};
    assert_int_equal(cuLaunchKernelEx(NULL, KERNEL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLaunchKernelEx(&config, KERNEL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY};
    config.attrs = &attribute;
    assert_int_equal(cuLaunchKernelEx(&config, KERNEL, NULL, NULL), CUDA_SUCCESS);
    assert_int_equal(core.launch.attribute_count, 1);
    assert_null(core.stream);
    assert_int_equal(cuLaunchKernelEx_ptsz(&config, KERNEL, NULL, NULL), CUDA_SUCCESS);
    assert_ptr_equal(core.stream, CU_STREAM_PER_THREAD);
    assert_int_equal(cuLaunchCooperativeKernel(KERNEL, 1, 1, 1, 1, 1, 1, 0, STREAM, NULL), CUDA_SUCCESS);
    assert_int_equal(core.launch.attribute_count, 1);
    assert_ptr_equal(core.stream, STREAM);
}

static void callback(CUstream stream, CUresult status, void *user)
{
}

static void per_thread_streams(void **state)
{
    assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    assert_null(core.stream);
    assert_int_equal(cuStreamQuery_ptsz(NULL), CUDA_ERROR_NOT_READY);
    assert_ptr_equal(core.stream, CU_STREAM_PER_THREAD);
    assert_int_equal(cuStreamQuery_ptsz(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
    assert_ptr_equal(core.stream, CU_STREAM_LEGACY);
    assert_int_equal(cuStreamAddCallback_ptsz(NULL, callback, NULL, 0), CUDA_SUCCESS);
    assert_ptr_equal(core.stream, CU_STREAM_PER_THREAD);
    assert_null(core.handle); /* the callback hears what the program said */
    assert_int_equal(cuStreamAddCallback(STREAM, NULL, NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

static void refused_by_name(void **state)
{
    CUarrayMapInfo map;
    assert_int_equal(cuMemMapArrayAsync(&map, 1, NULL), CUDA_ERROR_NOT_SUPPORTED);
    assert_string_equal(core.refused, "cuMemMapArrayAsync");
    assert_int_equal(cuMemMapArrayAsync_ptsz(NULL, 0, NULL), CUDA_ERROR_NOT_SUPPORTED);
    assert_string_equal(core.refused, "cuMemMapArrayAsync_ptsz");
    const void *table;
    CUuuid id = {{0}};
    assert_int_equal(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_SUPPORTED);
}

/* ---- cuGetProcAddress, errors ---- */

static void expect_address(const char *name, int cuda_version, cuuint64_t flags, void *address,
                           CUdriverProcAddressQueryResult status)
{
    void *found = (void *)1;
    CUdriverProcAddressQueryResult said;
    assert_int_equal(cuGetProcAddress_v2(name, &found, cuda_version, flags, &said), CUDA_SUCCESS);
    assert_int_equal(said, status);
    assert_ptr_equal(found, address);
}

static void proc_addresses(void **state)
{
    const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    core.is_initialized = false; /* works before cuInit */
    expect_address("cuMemcpy", 4000, 0, (void *)cuMemcpy, CU_GET_PROC_ADDRESS_SUCCESS);
    expect_address("cuMemcpy", 3000, 0, NULL, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    expect_address("cuMemcpy", 4000, per_thread, NULL, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    expect_address("cuMemcpy", 7000, per_thread, (void *)cuMemcpy_ptds, CU_GET_PROC_ADDRESS_SUCCESS);
    expect_address("cuMemcpy", 13000, 1, (void *)cuMemcpy, CU_GET_PROC_ADDRESS_SUCCESS);
    expect_address("cuMemcpy", 0, 0, NULL, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    expect_address("cuMemAlloc", 2000, 0, (void *)cuMemAlloc, CU_GET_PROC_ADDRESS_SUCCESS);
    expect_address("cuMemAlloc", 3020, 0, (void *)cuMemAlloc_v2, CU_GET_PROC_ADDRESS_SUCCESS);
    expect_address("cuMemAlloc", 13000, per_thread, (void *)cuMemAlloc_v2, CU_GET_PROC_ADDRESS_SUCCESS);
    expect_address("cuStreamGetCaptureInfo", 12020, 0, (void *)cuStreamGetCaptureInfo_v2, CU_GET_PROC_ADDRESS_SUCCESS);
    expect_address("cuStreamGetCaptureInfo", 12030, per_thread, (void *)cuStreamGetCaptureInfo_v3_ptsz,
                   CU_GET_PROC_ADDRESS_SUCCESS);
    expect_address("cuCtxCreate", 12040, 0, (void *)cuCtxCreate_v3, CU_GET_PROC_ADDRESS_SUCCESS);
    expect_address("cuGetProcAddress", 13000, 0, (void *)cuGetProcAddress_v2, CU_GET_PROC_ADDRESS_SUCCESS);
    expect_address("cuGraphCreate", 13000, 0, (void *)cuGraphCreate, CU_GET_PROC_ADDRESS_SUCCESS);
    expect_address("cuMemAlloc_v2", 13000, 0, NULL, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    expect_address("cuMemcpy_ptds", 13000, 0, NULL, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    expect_address("", 13000, 0, NULL, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    expect_address("zz", 13000, 0, NULL, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    /* A program may ask by the number that the driver says, on a node with a newer one, too. */
    void *found = NULL;
    int version;
    assert_int_equal(cuGetProcAddress_v2("cuMemAlloc", &found, 13020, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    core.driver_version = 13020;
    assert_int_equal(cuDriverGetVersion(&version), CUDA_SUCCESS);
    assert_int_equal(version, 13020);
    expect_address("cuMemAlloc", 13020, 0, (void *)cuMemAlloc_v2, CU_GET_PROC_ADDRESS_SUCCESS);
    core.driver_version = 12080; /* an older one changes nothing of this library's interface */
    expect_address("cuMemAlloc", 13000, 0, (void *)cuMemAlloc_v2, CU_GET_PROC_ADDRESS_SUCCESS);
    core.driver_version = 0;

    void *address = (void *)1;
    assert_int_equal(cuGetProcAddress_v2("cuMemcpy", &address, 99000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGetProcAddress_v2("cuMemcpy", &address, 13000, 4, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGetProcAddress_v2(NULL, &address, 13000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGetProcAddress_v2("cuMemcpy", NULL, 13000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuGetProcAddress("nope", &address, 13000, 0), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cuGetProcAddress("cuMemcpy", &address, 3000, 0), CUDA_ERROR_NOT_FOUND);
    assert_ptr_equal(address, (void *)1);
    assert_int_equal(cuGetProcAddress("cuMemcpy", &address, 13000, 0), CUDA_SUCCESS);
    assert_ptr_equal(address, (void *)cuMemcpy);
}

static void error_texts(void **state)
{
    const char *text = "x";
    assert_int_equal(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
    assert_string_equal(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_int_equal(cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
    assert_string_equal(text, "an illegal memory access was encountered");
    assert_int_equal(cuGetErrorString(CUDA_ERROR_CONTEXT_ALREADY_CURRENT, &text), CUDA_SUCCESS);
    assert_string_equal(text, "context already current");
    assert_int_equal(cuGetErrorString(998, &text), CUDA_ERROR_INVALID_VALUE);
    assert_null(text);
    assert_int_equal(cuGetErrorName(CUDA_SUCCESS, NULL), CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(before_init, setup),
        cmocka_unit_test_setup(without_context, setup),
        cmocka_unit_test_setup(bad_arguments, setup),
        cmocka_unit_test_setup(plain_copies, setup),
        cmocka_unit_test_setup(copies_2d, setup),
        cmocka_unit_test_setup(copies_3d, setup),
        cmocka_unit_test_setup(fills, setup),
        cmocka_unit_test_setup(pointer_attributes, setup),
        cmocka_unit_test_setup(launch_parameters, setup),
        cmocka_unit_test_setup(launch_config, setup),
        cmocka_unit_test_setup(per_thread_streams, setup),
        cmocka_unit_test_setup(refused_by_name, setup),
        cmocka_unit_test_setup(proc_addresses, setup),
        cmocka_unit_test_setup(error_texts, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
