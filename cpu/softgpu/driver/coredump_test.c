/* Core dumps of several devices, each of which a fault breaks; the order of the tests matters. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/softgpu/driver/test.h"

/* By device: what its context begins with, and what is tried there. */
enum { PLAIN, WHOLE, LIGHT, SLOW, DISABLED, GREEN, DEVICES };

static char folder[] = "/tmp/flyt-coredump-XXXXXX";
static char path[DEVICES][64];

static int start(void **state)
{
    setenv("FLYT_SOFT_DEVICES", "6", 1);
    if (!mkdtemp(folder))
        return -1;
    for (unsigned i = 0; i < DEVICES; i++)
        snprintf(path[i], sizeof path[i], "%s/%u", folder, i);
    test_start();
    return 0;
}

static int stop(void **state)
{
    for (unsigned i = 0; i < DEVICES; i++)
        unlink(path[i]);
    return rmdir(folder);
}

static void use_device(CUdevice device)
{
    CUcontext ctx;

    assert_ok(cuDevicePrimaryCtxRetain(&ctx, device));
    assert_ok(cuCtxSetCurrent(ctx));
}

static CUresult set(CUcoredumpSettings attrib, const void *value, size_t size)
{
    return cuCoredumpSetAttribute(attrib, (void *)(uintptr_t)value, &size);
}

static CUresult set_for_all(CUcoredumpSettings attrib, const void *value, size_t size)
{
    return cuCoredumpSetAttributeGlobal(attrib, (void *)(uintptr_t)value, &size);
}

static void attributes_have_sizes_and_values(void **state)
{
    bool is_on = true;
    int flags = -1;
    char name[1024];
    size_t size = 0;

    assert_ok(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, NULL, &size));
    assert_int_equal(size, sizeof(bool));
    assert_ok(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_on, &size));
    assert_false(is_on);
    assert_ok(cuCoredumpGetAttribute(CU_COREDUMP_TRIGGER_HOST, &is_on, &size));
    assert_true(is_on);
    assert_ok(cuCoredumpSetAttribute(CU_COREDUMP_FILE, NULL, &size));
    assert_int_equal(size, 1024);
    assert_ok(cuCoredumpGetAttributeGlobal(CU_COREDUMP_FILE, name, &size));
    assert_string_equal(name, "");
    assert_ok(cuCoredumpGetAttributeGlobal(CU_COREDUMP_PIPE, name, &size));
    assert_string_equal(name, "");
    size = 1;
    assert_ok(cuCoredumpGetAttribute(CU_COREDUMP_FILE, name, &size));
    assert_int_equal(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_USER_TRIGGER, &is_on, &size), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCoredumpGetAttribute(CU_COREDUMP_PIPE, name, &size), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuCoredumpGetAttributeGlobal(CU_COREDUMP_ENABLE_USER_TRIGGER, &is_on, &size));
    assert_false(is_on);
    size = sizeof flags;
    assert_int_equal(cuCoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, &is_on, &size), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuCoredumpGetAttribute(CU_COREDUMP_GENERATION_FLAGS, &flags, &size));
    assert_int_equal(flags, 0);
    size = 2;
    assert_int_equal(cuCoredumpGetAttribute(CU_COREDUMP_GENERATION_FLAGS, &flags, &size), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCoredumpGetAttribute(0, &is_on, &size), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCoredumpGetAttribute(CU_COREDUMP_MAX, &is_on, &size), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCoredumpGetAttribute(CU_COREDUMP_FILE, name, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_ok(cuCtxSetCurrent(NULL));
    assert_int_equal(cuCoredumpGetAttribute(CU_COREDUMP_FILE, NULL, &size), CUDA_ERROR_INVALID_CONTEXT);
    use_device(PLAIN);
}

static void some_cannot_be_set(void **state)
{
    int flags = 1 << 10;
    bool is_on = true;
    char name[1024];

    memset(name, 'n', sizeof name);
    assert_int_equal(set(CU_COREDUMP_FILE, name, sizeof name), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(set(CU_COREDUMP_GENERATION_FLAGS, &flags, sizeof flags), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(set(CU_COREDUMP_ENABLE_USER_TRIGGER, &is_on, 1), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(set(CU_COREDUMP_PIPE, "pipe", 5), CUDA_ERROR_NOT_PERMITTED);
}

/* Of the process: what contexts begin with that are made afterwards. */
static void a_context_begins_with_what_holds_for_all(void **state)
{
    size_t size = 1;
    bool is_on = true;

    assert_ok(set_for_all(CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_on, 1));
    assert_ok(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_on, &size));
    assert_false(is_on);
    use_device(WHOLE);
    assert_ok(cuCoredumpGetAttribute(CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_on, &size));
    assert_true(is_on);
}

static CUlibrary library; /* that the fault is of */

/* A fault of a kernel on the current device, with this word in its memory. */
static void begin_fault(CUstream stream, uint32_t value, CUdeviceptr *ret_word)
{
    library = test_library();
    assert_ok(cuMemAlloc(ret_word, 4));
    assert_ok(cuMemsetD32(*ret_word, value, 1));
    assert_ok(test_launch(test_kernel(library, "fault"), stream, *ret_word, 1));
}

/* Until then what asks and what waits hears that all is done. */
static CUresult await_fault(CUstream stream)
{
    CUresult r = CUDA_ERROR_NOT_READY;

    for (unsigned i = 0; i < 60000 && (r == CUDA_SUCCESS || r == CUDA_ERROR_NOT_READY); i++) {
        usleep(1000);
        r = cuStreamQuery(stream);
    }
    assert_ok(cuLibraryUnload(library));
    return r;
}

static void break_device(unsigned device, uint32_t value, CUdeviceptr *ret_word)
{
    use_device((CUdevice)device);
    assert_ok(set_for_all(CU_COREDUMP_FILE, path[device], strlen(path[device])));
    begin_fault(NULL, value, ret_word);
    assert_int_equal(await_fault(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void who_enables_it_later_leaves_none(void **state)
{
    bool is_on = true;
    CUdeviceptr word;

    use_device(PLAIN);
    assert_ok(set(CU_COREDUMP_FILE, path[PLAIN], strlen(path[PLAIN])));
    assert_ok(set(CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_on, 1));
    break_device(PLAIN, 1, &word);
    assert_int_equal(access(path[PLAIN], F_OK), -1);
}

static char *read_dump(unsigned device, size_t *ret_bytes)
{
    struct stat info;
    FILE *file = fopen(path[device], "r");

    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    char *text = malloc((size_t)info.st_size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)info.st_size, file), info.st_size);
    text[info.st_size] = 0;
    fclose(file);
    *ret_bytes = (size_t)info.st_size;
    return text;
}

/* Past the head's lines; the text of a line must be there. */
static const char *skip_head(const char *text)
{
    static const char *const lines[] = {"flyt-soft-core 1\n",
                                        "error 700 CUDA_ERROR_ILLEGAL_ADDRESS\n",
                                        "device ",
                                        "context ",
                                        "kernel fault\n",
                                        "grid 1 1 1\n",
                                        "block 1 1 1\n",
                                        "shared 0\n"};

    for (unsigned i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_int_equal(strncmp(text, lines[i], strlen(lines[i])), 0);
        text = strchr(text, '\n') + 1;
    }
    return text;
}

static void the_dump_has_the_kernel_and_the_memory(void **state)
{
    CUdeviceptr word;
    size_t bytes;
    bool is_found = false;

    const int flags = CU_COREDUMP_SKIP_GLOBAL_MEMORY;
    use_device(WHOLE);
    /* What a context says of these does not count. */
    assert_ok(set(CU_COREDUMP_GENERATION_FLAGS, &flags, sizeof flags));
    assert_ok(set(CU_COREDUMP_FILE, path[PLAIN], strlen(path[PLAIN])));
    break_device(WHOLE, 0xfeedbeef, &word);
    assert_int_equal(access(path[PLAIN], F_OK), -1);
    char *text = read_dump(WHOLE, &bytes);
    const char *at = skip_head(text);
    while (strncmp(at, "memory ", 7) == 0) {
        unsigned long long address, length;
        assert_int_equal(sscanf(at, "memory %llx %llu", &address, &length), 2);
        at = strchr(at, '\n') + 1;
        if (word >= address && word < address + length) {
            uint32_t value;
            memcpy(&value, at + (word - address), sizeof value);
            assert_int_equal(value, 0xfeedbeef);
            is_found = true;
        }
        at += length;
    }
    assert_true(is_found);
    assert_string_equal(at, "end\n");
    assert_ptr_equal(at + 4, text + bytes);
    free(text);
}

static void a_light_dump_has_no_memory(void **state)
{
    bool is_on = true;
    CUdeviceptr word;
    size_t bytes;

    use_device(LIGHT);
    assert_ok(set_for_all(CU_COREDUMP_LIGHTWEIGHT, &is_on, 1));
    break_device(LIGHT, 7, &word);
    char *text = read_dump(LIGHT, &bytes);
    assert_string_equal(skip_head(text), "end\n");
    free(text);
}

/* As NVIDIA's driver has it. The pipe's other end holds the dump up. */
static void until_it_is_there_work_behind_the_kernel_is_done(void **state)
{
    CUdeviceptr word;
    CUstream stream;
    CUevent event;
    uint32_t value = 1;
    char byte;

    use_device(SLOW);
    assert_int_equal(mkfifo(path[SLOW], 0600), 0);
    assert_ok(set_for_all(CU_COREDUMP_FILE, path[SLOW], strlen(path[SLOW])));
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_ok(cuEventCreate(&event, CU_EVENT_DEFAULT));
    begin_fault(stream, 9, &word);
    assert_ok(test_launch(test_kernel(library, "fault"), stream, word, 1)); /* one fault is enough */
    assert_ok(cuMemcpyDtoHAsync(&value, word, sizeof value, stream));
    assert_ok(cuEventRecord(event, stream));
    assert_ok(cuEventSynchronize(event));
    assert_ok(cuEventQuery(event));
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(cuStreamQuery(stream));
    assert_ok(cuCtxSynchronize());
    assert_int_equal(value, 9);
    FILE *file = fopen(path[SLOW], "r");
    assert_non_null(file);
    while (fread(&byte, 1, 1, file) == 1)
        ;
    fclose(file);
    assert_int_equal(await_fault(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuEventQuery(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuEventDestroy(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cuStreamDestroy(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void who_disables_it_loads_no_modules_and_leaves_none(void **state)
{
    const bool is_off = false;
    CUlibrary other;
    CUdeviceptr word;

    use_device(DISABLED);
    assert_ok(set_for_all(CU_COREDUMP_FILE, path[DISABLED], strlen(path[DISABLED])));
    library = test_library();
    assert_ok(cuMemAlloc(&word, 4));
    assert_ok(set(CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_off, 1));
    assert_int_equal(cuLibraryLoadData(&other, test_ptx, NULL, NULL, 0, NULL, NULL, 0), CUDA_ERROR_UNKNOWN);
    assert_ok(test_launch(test_kernel(library, "fault"), NULL, word, 1));
    assert_int_equal(await_fault(NULL), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(access(path[DISABLED], F_OK), -1);
}

static void a_green_context_leaves_one_where_its_primary_context_does(void **state)
{
    CUdevResource all;
    CUdevResourceDesc desc;
    CUgreenCtx green;
    CUcontext context;
    CUdeviceptr word;
    size_t bytes;

    use_device(GREEN);
    assert_ok(cuDeviceGetDevResource(GREEN, &all, CU_DEV_RESOURCE_TYPE_SM));
    assert_ok(cuDevResourceGenerateDesc(&desc, &all, 1));
    assert_ok(cuGreenCtxCreate(&green, desc, GREEN, CU_GREEN_CTX_DEFAULT_STREAM));
    assert_ok(cuCtxFromGreenCtx(&context, green));
    assert_ok(cuCtxSetCurrent(context));
    assert_ok(set_for_all(CU_COREDUMP_FILE, path[GREEN], strlen(path[GREEN])));
    begin_fault(NULL, 4, &word);
    assert_int_equal(await_fault(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    char *text = read_dump(GREEN, &bytes);
    assert_string_equal(skip_head(text), "end\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attributes_have_sizes_and_values),
        cmocka_unit_test(some_cannot_be_set),
        cmocka_unit_test(a_context_begins_with_what_holds_for_all),
        cmocka_unit_test(who_enables_it_later_leaves_none),
        cmocka_unit_test(the_dump_has_the_kernel_and_the_memory),
        cmocka_unit_test(a_light_dump_has_no_memory),
        cmocka_unit_test(until_it_is_there_work_behind_the_kernel_is_done),
        cmocka_unit_test(who_disables_it_loads_no_modules_and_leaves_none),
        cmocka_unit_test(a_green_context_leaves_one_where_its_primary_context_does),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
