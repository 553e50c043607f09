/* Core dumps as the driver wants them: contexts begin with them, and are never told otherwise afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/core/call.h"
#include "cpu/server/cuda/coredump.h"
#include "cpu/server/test/fake_client.h"
#include "flyt_serve.h"

enum { DEVICES = 2 };

static struct flyt_driver driver;
static char folder[] = "/tmp/flyt-coredump-XXXXXX";
static char done[1024]; /* by the driver, in order */
static char file[1024];
static int flags;

static void note(const char *what)
{
    assert_true(strlen(done) + strlen(what) + 2 < sizeof done);
    strcat(strcat(done, *done ? " " : ""), what);
}

static CUresult count_devices(int *ret_count)
{
    *ret_count = DEVICES;
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *ret_context, CUdevice device)
{
    note(device ? "retain1" : "retain0");
    *ret_context = (CUcontext)(uintptr_t)(device + 1);
    return CUDA_SUCCESS;
}

static CUresult release(CUdevice device)
{
    note(device ? "release1" : "release0");
    return CUDA_SUCCESS;
}

static CUresult reset(CUdevice device)
{
    note(device ? "reset1" : "reset0");
    return CUDA_SUCCESS;
}

static CUresult destroy_green(CUgreenCtx green)
{
    note("ungreen");
    return CUDA_SUCCESS;
}

static CUresult set_for_all(CUcoredumpSettings attribute, void *value, size_t *bytes)
{
    if (attribute == CU_COREDUMP_FILE)
        snprintf(file, sizeof file, "%s", (const char *)value);
    else if (attribute == CU_COREDUMP_GENERATION_FLAGS)
        memcpy(&flags, value, sizeof flags);
    else if (attribute == CU_COREDUMP_ENABLE_ON_EXCEPTION)
        note(*(const bool *)value ? "enable" : "disable");
    return CUDA_SUCCESS;
}

static CUresult told; /* of work */

static CUresult tell(CUstream stream)
{
    return told;
}

static struct fixture *begin(void)
{
    driver = *flyt_fake_driver();
    driver.cuDeviceGetCount = count_devices;
    driver.cuDevicePrimaryCtxRetain = retain;
    driver.cuDevicePrimaryCtxRelease = release;
    driver.cuDevicePrimaryCtxReset = reset;
    driver.cuGreenCtxDestroy = destroy_green;
    driver.cuCoredumpSetAttributeGlobal = set_for_all;
    driver.cuStreamQuery = tell;
    told = CUDA_SUCCESS;
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    assert_non_null(mkdtemp(folder));
    struct fixture *self = make_over(&driver);
    flyt_coredump_grant(&self->session, open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), 1 << 20);
    *done = *file = 0;
    return self;
}

static void end(struct fixture *self)
{
    close(self->fd);
    flyt_session_fini(&self->session);
    free(self);
    assert_int_equal(rmdir(folder), 0);
}

static CUresult ask(struct fixture *self, unsigned device, bool is_enabled, unsigned left_out)
{
    struct flyt_call call = {.session = &self->session};
    const flyt_coredump_set_args args = {.device = device, .is_enabled = is_enabled, .flags = left_out};
    flyt_coredump_set_res res = {0};
    return flyt_serve_coredump_set(&call, &args, &res);
}

static bool is_file(const char *end_of_name)
{
    return strlen(file) > strlen(end_of_name) && !strcmp(file + strlen(file) - strlen(end_of_name), end_of_name);
}

static void contexts_are_made_again_once_and_not_disabled(void **state)
{
    struct fixture *self = begin();
    const struct flyt_stream *stream = self->session.devices[0].legacy;
    assert_int_equal(ask(self, 0, true, CU_COREDUMP_SKIP_GLOBAL_MEMORY), CUDA_SUCCESS);
    assert_string_equal(done, "enable ungreen release0 reset0 retain0");
    assert_true(is_file(".0.nvcudmp"));
    assert_int_equal(flags, CU_COREDUMP_SKIP_GLOBAL_MEMORY | CU_COREDUMP_SKIP_ABORT);
    assert_ptr_equal(self->session.devices[0].legacy, stream);
    assert_true(self->session.devices[0].is_made && self->session.devices[0].leaves_coredumps);
    /* A device that has no context yet begins so. */
    assert_int_equal(ask(self, 1, true, 0), CUDA_SUCCESS);
    assert_int_equal(flags, CU_COREDUMP_SKIP_ABORT);
    assert_int_equal(flyt_device_make(&self->session.devices[1]), CUDA_SUCCESS);
    assert_true(self->session.devices[1].leaves_coredumps);
    assert_int_equal(ask(self, 0, false, 0), CUDA_SUCCESS);
    assert_true(is_file(".0.nvcudmp"));
    assert_int_equal(ask(self, 1, false, 0), CUDA_SUCCESS);
    assert_true(is_file(".16.nvcudmp"));
    assert_int_equal(flags, CU_COREDUMP_LIGHTWEIGHT_FLAGS | CU_COREDUMP_SKIP_ABORT);
    assert_string_equal(done, "enable ungreen release0 reset0 retain0 retain1");
    end(self);
}

/* The driver tells of it when the dump is there, and until then that all is well. */
static void a_fault_whose_dump_has_begun_is_looked_for(void **state)
{
    const uint64_t long_ns = 3600000000000;
    struct fixture *self = begin();
    struct flyt_session *session = &self->session;
    assert_false(flyt_coredump_may_come(session, 0));
    assert_int_equal(ask(self, 0, true, 0), CUDA_SUCCESS);
    assert_true(flyt_coredump_may_come(session, 0));
    assert_false(flyt_coredump_may_come(session, long_ns));
    assert_false(flyt_coredump_advance(session));
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    while (!flyt_coredump_may_come(session, long_ns))
        usleep(1000);
    assert_true(flyt_coredump_advance(session));
    assert_int_equal(session->fatal, CUDA_SUCCESS);
    told = CUDA_ERROR_ILLEGAL_ADDRESS;
    close(fd);
    assert_false(flyt_coredump_advance(session));
    assert_int_equal(session->fatal, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_non_null(strstr(session->fatal_note, "core dump core."));
    assert_false(flyt_coredump_may_come(session, 0));
    assert_int_equal(unlink(file), 0);
    end(self);
}

static void contexts_in_use_stay(void **state)
{
    struct fixture *self = begin();
    struct flyt_stream *stream;
    assert_int_equal(flyt_stream_new(&self->session.devices[0], flyt_id(FLYT_ID_STREAM, 7), 0, 0, false, &stream),
                     CUDA_SUCCESS);
    assert_int_equal(flyt_session_insert(&self->session, &stream->object, FLYT_ID_STREAM), CUDA_SUCCESS);
    assert_int_equal(ask(self, 0, true, 0), CUDA_ERROR_ILLEGAL_STATE);
    flyt_coredump_go_on(&self->session);
    assert_string_equal(done, "");
    /* Another device's contexts are still to begin. */
    assert_int_equal(ask(self, 1, true, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_device_make(&self->session.devices[1]), CUDA_SUCCESS);
    assert_string_equal(done, "enable retain1");
    assert_int_equal(ask(self, 0, true, 0), CUDA_ERROR_ILLEGAL_STATE);
    end(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts_are_made_again_once_and_not_disabled),
        cmocka_unit_test(a_fault_whose_dump_has_begun_is_looked_for),
        cmocka_unit_test(contexts_in_use_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
