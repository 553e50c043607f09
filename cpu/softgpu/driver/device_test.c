/* Devices, partitions of SMs, limits of launches, modules and fat binaries. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cpu/softgpu/driver/test.h"

/* ---- what a process finds that was configured so ---- */

enum { DEVICES = 3 };

static const struct {
    const char *text;
    int status; /* 0, or what cuInit answers */
    int capabilities[DEVICES];
} configured[] = {
    {"", 0, {90, 90, 90}},
    {"8.0", 0, {80, 80, 80}},
    {"9.0,8.0", 0, {90, 80, 80}},
    {"7.5,10.0,8.9", 0, {75, 100, 89}},
    {"9.0,", CUDA_ERROR_INVALID_VALUE, {0}},
    {",9.0", CUDA_ERROR_INVALID_VALUE, {0}},
    {"9.0;8.0", CUDA_ERROR_INVALID_VALUE, {0}},
    {"9.0,8.1", CUDA_ERROR_INVALID_VALUE, {0}},
    {"9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0,9.0", CUDA_ERROR_INVALID_VALUE, {0}},
};

struct found {
    int status, capabilities[DEVICES];
};

static struct found seen_by[sizeof(configured) / sizeof(configured[0])];

_Noreturn static void look(const char *text, int fd)
{
    struct found seen = {0};
    int major = 0, minor = 0;

    setenv("FLYT_SOFT_DEVICES", "3", 1);
    setenv("FLYT_SOFT_CC", text, 1);
    seen.status = (int)cuInit(0);
    for (int i = 0; !seen.status && i < DEVICES; i++) {
        if (cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, i) ||
            cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, i))
            _exit(1);
        seen.capabilities[i] = 10 * major + minor;
    }
    _exit(write(fd, &seen, sizeof seen) != sizeof seen);
}

/* Before this process has a driver, which its children would have, too. */
static int start(void **state)
{
    for (size_t i = 0; i < sizeof(configured) / sizeof(configured[0]); i++) {
        int fds[2], status;
        if (pipe(fds))
            return -1;
        pid_t child = fork();
        if (!child)
            look(configured[i].text, fds[1]);
        close(fds[1]);
        if (read(fds[0], &seen_by[i], sizeof seen_by[i]) != (ssize_t)sizeof seen_by[i] ||
            waitpid(child, &status, 0) != child || status)
            return -1;
        close(fds[0]);
    }
    test_start();
    return 0;
}

static void each_device_has_its_compute_capability(void **state)
{
    for (size_t i = 0; i < sizeof(configured) / sizeof(configured[0]); i++) {
        assert_int_equal(seen_by[i].status, configured[i].status);
        assert_memory_equal(seen_by[i].capabilities, configured[i].capabilities, sizeof seen_by[i].capabilities);
    }
}

static void the_device_describes_itself(void **state)
{
    char text[64];
    int value, major;
    CUdevice device;
    CUuuid uuid;

    assert_ok(cuDriverGetVersion(&value));
    assert_int_equal(value, 13000);
    assert_ok(cuDeviceGetCount(&value));
    assert_int_equal(value, 1);
    assert_int_equal(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
    assert_ok(cuDeviceGetName(text, sizeof(text), 0));
    assert_string_equal(text, "Flyt software GPU");
    assert_ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
    assert_int_equal(value, 132);
    assert_ok(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
    assert_int_equal(major, 9);
    assert_ok(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 0));
    assert_int_equal(value, 227 << 10);
    assert_int_equal(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuDeviceGetUuid(&uuid, 0));
    assert_ok(cuDeviceGetPCIBusId(text, sizeof(text), 0));
    assert_ok(cuDeviceGetByPCIBusId(&device, text));
    assert_int_equal(device, 0);
    assert_int_equal(cuDeviceGetByPCIBusId(&device, "0000:01:00.0"), CUDA_ERROR_INVALID_DEVICE);
}

static void entry_points_are_found_by_name(void **state)
{
    CUdriverProcAddressQueryResult status;
    void *function;

    assert_ok(cuGetProcAddress("cuMemAlloc", &function, 13000, 0, &status));
    assert_ptr_equal(function, cuMemAlloc);
    assert_ok(cuGetProcAddress("cuCtxCreate", &function, 12000, 0, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    assert_null(function);
    assert_ok(cuGetProcAddress("cuMemAllocAsync", &function, 13000, 0, &status));
    assert_int_equal(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

/* How a device's SMs split: the number of groups, their size, and what remains; as an H200 answers. */
static void groups_of_sms_are_those_of_a_gpu(void **state)
{
    static const struct {
        unsigned flags, min, count, group_sms, rest_sms;
    } cases[] = {
        {0, 0, 15, 8, 12},  {0, 8, 15, 8, 12},   {0, 9, 8, 16, 4},    {0, 17, 5, 24, 12},
        {0, 33, 3, 40, 12}, {0, 129, 1, 132, 0}, {1, 0, 66, 2, 0},    {1, 3, 33, 4, 0},
        {1, 8, 16, 8, 4},   {1, 13, 9, 14, 6},   {1, 126, 1, 126, 6},
    };
    CUdevResource all, groups[80], rest;
    unsigned count;

    assert_ok(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    assert_int_equal(all.sm.smCount, 132);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        count = 80;
        assert_ok(cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, cases[i].flags, cases[i].min));
        assert_int_equal(count, cases[i].count);
        count = 80;
        assert_ok(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, cases[i].flags, cases[i].min));
        assert_int_equal(count, cases[i].count);
        for (unsigned j = 0; j < count; j++)
            assert_int_equal(groups[j].sm.smCount, cases[i].group_sms);
        assert_int_equal(rest.sm.smCount, cases[i].rest_sms);
        assert_int_equal(rest.type, cases[i].rest_sms ? CU_DEV_RESOURCE_TYPE_SM : CU_DEV_RESOURCE_TYPE_INVALID);
    }
    count = 80;
    assert_int_equal(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 133),
                     CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    assert_int_equal(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 3, 8), CUDA_ERROR_INVALID_VALUE);
}

static void a_green_context_limits_cooperative_launches(void **state)
{
    CUlibrary library = test_library();
    CUfunction add = test_kernel(library, "add");
    CUdevResource all, groups[3], rest, own;
    CUdevResourceDesc desc;
    CUgreenCtx green, found;
    CUcontext ctx;
    CUstream stream;
    CUevent event;
    CUdeviceptr word;
    uint32_t value = 1;
    void *params[] = {&word, &value};
    unsigned count = 3;
    int per_sm;

    assert_ok(cuMemAlloc(&word, 4));
    assert_ok(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
    assert_ok(cuDevSmResourceSplitByCount(groups, &count, &all, &rest, 0, 8));
    assert_int_equal(count, 3);
    assert_int_equal(rest.sm.smCount, 132 - 24);
    groups[1] = rest;
    assert_ok(cuDevResourceGenerateDesc(&desc, groups, 1));
    assert_int_equal(cuGreenCtxCreate(&green, desc, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuGreenCtxCreate(&green, desc, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    assert_ok(cuGreenCtxGetDevResource(green, &own, CU_DEV_RESOURCE_TYPE_SM));
    assert_int_equal(own.sm.smCount, 8);
    assert_ok(cuCtxFromGreenCtx(&ctx, green));
    assert_int_equal(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_DEFAULT, 0), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, -3));
    assert_ok(cuStreamGetGreenCtx(stream, &found));
    assert_ptr_equal(found, green);
    assert_ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, add, 64, 0));
    assert_int_equal(cuLaunchCooperativeKernel(add, (unsigned)per_sm * 8 + 1, 1, 1, 64, 1, 1, 0, stream, params),
                     CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    assert_ok(cuLaunchCooperativeKernel(add, 8, 1, 1, 1, 1, 1, 0, stream, params));
    assert_ok(cuEventCreate(&event, 0));
    assert_ok(cuGreenCtxRecordEvent(green, event));
    assert_ok(cuEventSynchronize(event));
    assert_ok(cuGreenCtxWaitEvent(green, event));
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuGreenCtxDestroy(green));
    assert_ok(cuEventDestroy(event));
    assert_ok(cuLibraryUnload(library));
    assert_ok(cuMemFree(word));
}

static void launches_beyond_the_limits_are_refused(void **state)
{
    CUlibrary library = test_library();
    CUfunction add = test_kernel(library, "add");
    CUdeviceptr word = 0;
    uint32_t value = 0;
    void *params[] = {&word, &value};
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value.clusterDim = {.x = 2, .y = 1, .z = 1}};
    CUlaunchConfig config = {.gridDimX = 2,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = 1,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .attrs = &attribute,
                             .numAttrs = 1};
    static const struct {
        unsigned grid[3], block[3], shared_bytes;
    } cases[] = {
        {{0, 1, 1}, {1, 1, 1}, 0},    {{1, 65536, 1}, {1, 1, 1}, 0},         {{0x80000000, 1, 1}, {1, 1, 1}, 0},
        {{1, 1, 1}, {1025, 1, 1}, 0}, {{1, 1, 1}, {512, 4, 1}, 0},           {{1, 1, 1}, {1, 1, 65}, 0},
        {{1, 1, 1}, {1, 0, 1}, 0},    {{1, 1, 1}, {1, 1, 1}, 48 * 1024 + 1},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(cuLaunchKernel(add, cases[i].grid[0], cases[i].grid[1], cases[i].grid[2], cases[i].block[0],
                                        cases[i].block[1], cases[i].block[2], cases[i].shared_bytes, NULL, params,
                                        NULL),
                         CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLaunchKernelEx(&config, add, params, NULL), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
    assert_int_equal(cuLaunchKernelEx(&config, add, params, NULL), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232449),
                     CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuFuncSetAttribute(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 232448));
    assert_ok(cuLibraryUnload(library));
}

static void a_module_has_kernels_and_variables(void **state)
{
    CUlibrary library = test_library();
    unsigned count;
    CUkernel kernel, all[8];
    CUmodule module;
    CUfunction function;
    CUdeviceptr address, again;
    size_t offset, bytes;
    const char *name;

    assert_ok(cuLibraryGetKernelCount(&count, library));
    assert_int_equal(count, 4);
    assert_ok(cuLibraryEnumerateKernels(all, 8, library));
    assert_ok(cuKernelGetName(&name, all[0]));
    assert_string_equal(name, "add");
    assert_int_equal(cuLibraryGetKernel(&kernel, library, "none"), CUDA_ERROR_NOT_FOUND);
    assert_ok(cuKernelGetParamInfo(all[0], 1, &offset, &bytes));
    assert_int_equal(offset, 8);
    assert_int_equal(bytes, 4);
    assert_int_equal(cuKernelGetParamInfo(all[0], 2, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuLibraryGetGlobal(&address, &bytes, library, "table"));
    assert_int_equal(bytes, 64);
    assert_true(address >= 0x1f0000000000 && address < 0x200000000000);
    assert_int_equal(cuLibraryGetGlobal(&address, &bytes, library, "none"), CUDA_ERROR_NOT_FOUND);
    assert_ok(cuLibraryUnload(library));
    /* Placement is deterministic: loaded again, the same addresses. */
    assert_ok(cuModuleLoadData(&module, test_ptx));
    assert_ok(cuModuleGetGlobal(&again, &bytes, module, "table"));
    assert_int_equal(again, address);
    assert_ok(cuMemsetD8(again, 0x55, 64));
    assert_ok(cuModuleGetFunction(&function, module, "mul"));
    assert_int_equal(cuModuleGetFunction(&function, module, "none"), CUDA_ERROR_NOT_FOUND);
    assert_ok(cuModuleUnload(module));
}

static void images_that_cannot_be_used_say_why(void **state)
{
    static const unsigned char truncated[64] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 48};
    static const char another_machine[64] = "\177ELF\2\1\1"; /* a whole header of machine code */
    char log[128] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof(log)};
    CUlibrary library;
    CUmodule module;

    assert_int_equal(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuModuleLoadData(&module, another_machine), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_int_equal(cuModuleLoadData(&module, truncated), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(cuModuleLoadData(&module, ""), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(cuModuleLoadData(&module, "\1\2\3\4"), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(cuLibraryLoadData(&library, ".version 9.0\n.target sm_75\n.address_size 64\nthis is not it",
                                       options, values, 2, NULL, NULL, 0),
                     CUDA_ERROR_INVALID_PTX);
    assert_int_not_equal(log[0], 0);
}

static void occupancy_is_that_of_a_gpu(void **state)
{
    CUlibrary library = test_library();
    CUfunction add = test_kernel(library, "add");
    static const struct {
        size_t shared_bytes;
        int blocks;
    } cases[] = {{23000, 9}, {46000, 4}, {69000, 3}, {92000, 2}, {115000, 2}, {138000, 1}, {230000, 1}};
    int blocks, threads;
    size_t room;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 128, cases[i].shared_bytes));
        assert_int_equal(blocks, cases[i].blocks);
    }
    assert_ok(cuOccupancyMaxPotentialBlockSize(&blocks, &threads, add, NULL, 0, 0));
    assert_int_equal(threads, 1024);
    assert_int_equal(blocks, 264);
    assert_ok(cuOccupancyAvailableDynamicSMemPerBlock(&room, add, 7, 64));
    assert_int_equal(room, 33280);
    assert_ok(cuLibraryUnload(library));
}

static void contexts_are_each_threads_own_stack(void **state)
{
    CUcontext primary, made, current;
    unsigned flags;
    int is_active;

    assert_ok(cuCtxGetCurrent(&primary));
    assert_ok(cuCtxCreate(&made, NULL, 0, 0));
    assert_ok(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, made);
    assert_ok(cuCtxDestroy(made));
    assert_ok(cuCtxGetCurrent(&current));
    assert_ptr_equal(current, primary);
    assert_ok(cuCtxPopCurrent(&current));
    assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    assert_ok(cuCtxPushCurrent(primary));
    assert_ok(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
    assert_true(is_active);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_device_has_its_compute_capability),
        cmocka_unit_test(the_device_describes_itself),
        cmocka_unit_test(entry_points_are_found_by_name),
        cmocka_unit_test(groups_of_sms_are_those_of_a_gpu),
        cmocka_unit_test(a_green_context_limits_cooperative_launches),
        cmocka_unit_test(launches_beyond_the_limits_are_refused),
        cmocka_unit_test(a_module_has_kernels_and_variables),
        cmocka_unit_test(images_that_cannot_be_used_say_why),
        cmocka_unit_test(occupancy_is_that_of_a_gpu),
        cmocka_unit_test(contexts_are_each_threads_own_stack),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
