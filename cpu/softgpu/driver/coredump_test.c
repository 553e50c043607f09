/* Core dumps of two devices, each of which a fault breaks; the order of the tests matters. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/softgpu/driver/test.h"

static char folder[] = "/tmp/flyt-coredump-XXXXXX";
static char path[2][64];

static int start(void **state)
{
    setenv("FLYT_SOFT_DEVICES", "2", 1);
    if (!mkdtemp(folder))
        return -1;
    for (unsigned i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/%u", folder, i);
    test_start();
    return 0;
}

static int stop(void **state)
{
    for (unsigned i = 0; i < 2; i++)
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
    assert_int_equal(strncmp(name, "core.cuda.", 10), 0);
    assert_ok(cuCoredumpGetAttributeGlobal(CU_COREDUMP_PIPE, name, &size));
    assert_int_equal(strncmp(name, "corepipe.cuda.", 14), 0);
    size = sizeof flags;
    assert_ok(cuCoredumpGetAttribute(CU_COREDUMP_GENERATION_FLAGS, &flags, &size));
    assert_int_equal(flags, 0);
    size = 2;
    assert_int_equal(cuCoredumpGetAttribute(CU_COREDUMP_FILE, name, &size), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCoredumpGetAttribute(CU_COREDUMP_GENERATION_FLAGS, &flags, &size), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCoredumpGetAttribute(0, &is_on, &size), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCoredumpGetAttribute(CU_COREDUMP_MAX, &is_on, &size), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCoredumpGetAttribute(CU_COREDUMP_FILE, name, NULL), CUDA_ERROR_INVALID_VALUE);
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

    assert_ok(cuCoredumpSetAttributeGlobal(CU_COREDUMP_LIGHTWEIGHT, &is_on, &size));
    assert_ok(cuCoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, &is_on, &size));
    assert_false(is_on);
    use_device(1);
    assert_ok(cuCoredumpGetAttribute(CU_COREDUMP_LIGHTWEIGHT, &is_on, &size));
    assert_true(is_on);
    use_device(0);
}

/* A fault of a kernel on the current device, with this word in its memory. */
static void break_device(unsigned device, uint32_t value, CUdeviceptr *ret_word)
{
    bool is_on = true;
    CUlibrary library = test_library();

    assert_ok(set(CU_COREDUMP_FILE, path[device], strlen(path[device])));
    assert_ok(set(CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_on, 1));
    assert_ok(cuMemAlloc(ret_word, 4));
    assert_ok(cuMemsetD32(*ret_word, value, 1));
    assert_int_equal(access(path[device], F_OK), -1);
    assert_ok(test_launch(test_kernel(library, "fault"), NULL, *ret_word, 1));
    assert_int_equal(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_ok(cuLibraryUnload(library));
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

    break_device(0, 0xfeedbeef, &word);
    char *text = read_dump(0, &bytes);
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
    CUdeviceptr word;
    size_t bytes;

    use_device(1);
    break_device(1, 7, &word);
    char *text = read_dump(1, &bytes);
    assert_string_equal(skip_head(text), "end\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attributes_have_sizes_and_values),
        cmocka_unit_test(some_cannot_be_set),
        cmocka_unit_test(a_context_begins_with_what_holds_for_all),
        cmocka_unit_test(the_dump_has_the_kernel_and_the_memory),
        cmocka_unit_test(a_light_dump_has_no_memory),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
