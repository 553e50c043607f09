/* What the driver says of a session's work when the session is over, and whether its process may leave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "cpu/server/process/linger.h"
#include "cpu/server/share/resize.h"
#include "cpu/server/test/fake_driver.h"

enum { LIMIT_MS = 10 };

static struct flyt_session session;
static struct flyt_stream stream;
static struct flyt_resize resize;

static int begin(void **state)
{
    session.driver = flyt_fake_driver();
    session.is_mps = true;
    session.device_count = 1;
    session.devices[0].session = &session;
    session.devices[0].resize = &resize;
    session.devices[0].streams_first = &stream;
    return (int)session.driver->cuGreenCtxStreamCreate(&stream.cu_stream, NULL, CU_STREAM_NON_BLOCKING, 0);
}

static void nothing_runs(void **state)
{
    assert_false(flyt_linger_wait(&session, LIMIT_MS));
}

/* An error is no answer: only a context that has ended has no work any more. */
static void only_the_end_of_a_context_ends_its_work(void **state)
{
    static const struct {
        CUresult result;
        bool is_left;
    } rows[] = {
        {CUDA_ERROR_NOT_READY, true},
        {CUDA_ERROR_UNKNOWN, true},
        {CUDA_ERROR_MPS_RPC_FAILURE, true},
        {CUDA_ERROR_OUT_OF_MEMORY, true},
        {(CUresult)12345, true},
        {CUDA_ERROR_ILLEGAL_ADDRESS, false},
        {CUDA_ERROR_MPS_CONNECTION_FAILED, true},
        {CUDA_ERROR_CONTEXT_IS_DESTROYED, false},
        {CUDA_ERROR_MPS_CLIENT_TERMINATED, false},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        flyt_fake_fail(rows[i].result);
        assert_int_equal(flyt_linger_wait(&session, LIMIT_MS), rows[i].is_left);
    }
}

/* Nobody else is harmed by the end of a process that has its GPU for itself. */
static void without_mps_nobody_waits(void **state)
{
    flyt_fake_fail(CUDA_ERROR_NOT_READY);
    session.is_mps = false;
    assert_false(flyt_linger_wait(&session, LIMIT_MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_runs),
        cmocka_unit_test(only_the_end_of_a_context_ends_its_work),
        cmocka_unit_test(without_mps_nobody_waits),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
