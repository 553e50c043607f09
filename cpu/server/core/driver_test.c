/* Waiting for work of a context whose core dump is being written: its end must not be taken for that of the work. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/server/test/fake_soft.h"

static const char fault_ptx[] = ".version 9.0\n.target sm_75\n.address_size 64\n.visible .entry fault()\n{\n"
                                ".reg .b64 %d;\n.reg .b32 %a;\nmov.u64 %d, 16;\nmov.u32 %a, 1;\n"
                                "st.global.u32 [%d], %a;\nret;\n}\n";

static char folder[] = "/tmp/flyt-driver-XXXXXX", path[64];
static CUstream stream;

static void set(CUcoredumpSettings attribute, const void *value, size_t bytes)
{
    assert_ok(cuCoredumpSetAttributeGlobal(attribute, (void *)(uintptr_t)value, &bytes));
}

/* Its dump goes into a pipe, that is: as slowly as the test wants. */
static int start(void **state)
{
    const bool is_on = true;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_ok(cuInit(0));
    set(CU_COREDUMP_FILE, path, strlen(path));
    set(CU_COREDUMP_LIGHTWEIGHT, &is_on, sizeof is_on);
    set(CU_COREDUMP_ENABLE_ON_EXCEPTION, &is_on, sizeof is_on);
    stream = fake_soft_begin();
    return 0;
}

static int stop(void **state)
{
    unlink(path);
    return rmdir(folder);
}

static void what_is_done_is_waited_for(void **state)
{
    CUevent event;
    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    assert_ok(cuEventRecord(event, stream));
    assert_ok(flyt_driver_wait(&fake_soft_driver, stream));
    assert_ok(flyt_driver_wait_event(&fake_soft_driver, event));
    assert_ok(flyt_driver_wait(&fake_soft_driver, NULL));
    assert_ok(cuEventDestroy(event));
}

static void *take_dump(void *unused)
{
    char byte;
    FILE *file = fopen(path, "r");
    while (file && fread(&byte, 1, 1, file) == 1)
        ;
    return file ? (fclose(file), NULL) : (void *)1;
}

static void a_fault_is_heard_of_when_its_dump_is_there(void **state)
{
    flyt_driver_expect_dumps();
    CUlibrary library;
    CUkernel kernel;
    CUevent event;
    pthread_t thread;
    void *failed;
    assert_ok(cuLibraryLoadData(&library, fault_ptx, NULL, NULL, 0, NULL, NULL, 0));
    assert_ok(cuLibraryGetKernel(&kernel, library, "fault"));
    assert_ok(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    assert_ok(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
    assert_ok(cuEventRecord(event, stream));
    assert_ok(cuStreamSynchronize(stream)); /* what the driver says itself */
    assert_ok(cuEventSynchronize(event));
    assert_int_equal(pthread_create(&thread, NULL, take_dump, NULL), 0);
    assert_int_equal(flyt_driver_wait(&fake_soft_driver, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(flyt_driver_wait_event(&fake_soft_driver, event), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    cuEventDestroy(event); /* the fault's error: they are freed all the same */
    cuStreamDestroy(stream);
    assert_ok(cuLibraryUnload(library));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_done_is_waited_for),
        cmocka_unit_test(a_fault_is_heard_of_when_its_dump_is_there),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
