/*
 * What the driver says when it is asked how far the GPU's work is, and is neither success nor "not ready": nothing of
 * that work counts as done, whatever the code.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/test/fake_client.h"

/* Of MPS, of the driver in general, one that cuda.h does not know, and one that is fatal by its name. */
static const CUresult codes[] = {CUDA_ERROR_MPS_CONNECTION_FAILED,
                                 CUDA_ERROR_MPS_RPC_FAILURE,
                                 CUDA_ERROR_MPS_SERVER_NOT_READY,
                                 CUDA_ERROR_MPS_CLIENT_TERMINATED,
                                 CUDA_ERROR_DEINITIALIZED,
                                 CUDA_ERROR_OUT_OF_MEMORY,
                                 CUDA_ERROR_UNKNOWN,
                                 (CUresult)12345,
                                 CUDA_ERROR_ILLEGAL_ADDRESS};

static void await_fatal(struct fixture *self, CUresult code)
{
    flyt_back_fatal back = {0};
    char number[16];
    await_back(self, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &back);
    assert_int_equal(back.result, code);
    snprintf(number, sizeof number, "%d", (int)code);
    assert_true(strstr(back.cause, number) || code == CUDA_ERROR_ILLEGAL_ADDRESS);
    xdr_free((xdrproc_t)xdr_flyt_back_fatal, &back);
}

static int query_event(struct fixture *self)
{
    flyt_event_query_res res;
    uint32_t xid = SEND(self, FLYT_EVENT_QUERY, event_query, .event_id = event_id(1));
    await_reply(self, xid, (xdrproc_t)xdr_flyt_event_query_res, &res);
    return res.result;
}

/* Work that is on the GPU, and an event behind it; another stream's work is done. Returns the call that gave the first
 * of it. */
static uint32_t give_work(struct fixture *self, uint64_t address)
{
    create(self, 0, CU_STREAM_NON_BLOCKING); /* driver stream 1 */
    create(self, 1, CU_STREAM_NON_BLOCKING); /* 2 */
    SEND(self, FLYT_EVENT_CREATE, event_create, .event_id = event_id(1), .flags = CU_EVENT_DISABLE_TIMING);
    set(self, stream_id(1), address);
    assert_int_equal(synchronize(self, stream_id(1)), CUDA_SUCCESS);
    flyt_fake_hold(1);
    set(self, stream_id(0), address);
    uint32_t work = self->xid;
    SEND(self, FLYT_EVENT_RECORD, event_record, .event_id = event_id(1), .stream_id = stream_id(0));
    assert_int_equal(query_event(self), CUDA_ERROR_NOT_READY);
    return work;
}

static void expect_nothing_done(struct fixture *self, uint32_t work, CUresult code)
{
    flyt_stream_query_res res;
    flyt_session_barrier_res barrier;
    for (unsigned i = 0; i < 2; i++) { /* the second stream's work is done, but the program hears of the fault alone */
        uint32_t xid = SEND(self, FLYT_STREAM_QUERY, stream_query, .stream_id = stream_id(i));
        await_reply(self, xid, (xdrproc_t)xdr_flyt_stream_query_res, &res);
        assert_int_equal(res.result, code);
        assert_in_range(res.progress.completed, 1, work - 1);
    }
    assert_int_equal(query_event(self), code);
    assert_int_equal(synchronize(self, stream_id(0)), code);
    assert_int_equal(synchronize(self, legacy), code);
    uint32_t xid = SEND(self, FLYT_SESSION_BARRIER, session_barrier, .thread = 1);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_session_barrier_res, &barrier);
    assert_int_equal(barrier.result, code);
    assert_in_range(barrier.progress.completed, 1, work - 1);
}

/* By what of the client asks first. */
enum first { STREAM_QUERY, EVENT_QUERY, STREAM_SYNCHRONIZE, FIRSTS };

static uint32_t ask(struct fixture *self, enum first first)
{
    switch (first) {
    case STREAM_QUERY:
        return SEND(self, FLYT_STREAM_QUERY, stream_query, .stream_id = stream_id(0));
    case EVENT_QUERY:
        return SEND(self, FLYT_EVENT_QUERY, event_query, .event_id = event_id(1));
    default:
        return SEND(self, FLYT_STREAM_SYNCHRONIZE, stream_synchronize, .stream_id = stream_id(0));
    }
}

static void no_error_is_a_completion(void **state)
{
    for (unsigned i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        for (enum first first = STREAM_QUERY; first < FIRSTS; first++) {
            void *made;
            assert_int_equal(set_up(&made), 0);
            struct fixture *self = made;
            uint32_t work = give_work(self, alloc(self, 64, CUDA_SUCCESS));
            flyt_stream_synchronize_res res; /* the replies to all three have its layout */
            flyt_fake_fail(codes[i]);
            uint32_t xid = ask(self, first);
            await_fatal(self, codes[i]);
            await_reply(self, xid, (xdrproc_t)xdr_flyt_stream_synchronize_res, &res);
            assert_int_equal(res.result, codes[i]);
            assert_in_range(res.progress.completed, 1, work - 1);
            flyt_fake_fail(CUDA_SUCCESS); /* what the driver says later changes nothing */
            flyt_fake_release(1);
            expect_nothing_done(self, work, codes[i]);
            assert_int_equal(tear_down(&made), 0);
        }
    }
}

/* There is room for one allocation of this size alone: the next one can only be given what was freed. */
static void memory_of_work_that_died_is_not_used_again(void **state)
{
    enum { BYTES = 64 << 20 };
    for (unsigned i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        void *made;
        assert_int_equal(set_up(&made), 0);
        struct fixture *self = made;
        flyt_fake_set_memory(BYTES + (BYTES >> 1));
        uint64_t address = alloc(self, BYTES, CUDA_SUCCESS);
        give_work(self, address);
        SEND(self, FLYT_MEMORY_FREE, memory_free, .address = address);
        barrier(self);
        flyt_fake_fail(codes[i]);
        flyt_memory_alloc_res res;
        uint32_t xid = SEND(self, FLYT_MEMORY_ALLOC, memory_alloc, .bytes = BYTES);
        await_fatal(self, codes[i]);
        await_reply(self, xid, (xdrproc_t)xdr_flyt_memory_alloc_res, &res);
        assert_int_equal(res.result, codes[i]);
        assert_int_equal(tear_down(&made), 0);
    }
}

/* Calls that wait at a full stream hear of it, too, and nobody waits for the rest of it for ever. */
static void calls_that_wait_hear_of_it(void **state)
{
    struct fixture *self = *state;
    flyt_back_call_error back;
    flyt_stream_synchronize_res res;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    for (unsigned i = 0; i < FLYT_STREAM_DEPTH_MAX + 1; i++)
        set(self, stream_id(0), address);
    uint32_t xid = SEND(self, FLYT_STREAM_SYNCHRONIZE, stream_synchronize, .stream_id = stream_id(0));
    uint32_t other = SEND(self, FLYT_STREAM_SYNCHRONIZE, stream_synchronize, .stream_id = legacy);
    await_reply(self, other, (xdrproc_t)xdr_flyt_stream_synchronize_res, &res);
    assert_int_equal(count_in_log("memset:1"), FLYT_STREAM_DEPTH_MAX);
    flyt_fake_fail(CUDA_ERROR_UNKNOWN);
    await_fatal(self, CUDA_ERROR_UNKNOWN);
    await_back(self, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &back);
    assert_int_equal(back.result, CUDA_ERROR_UNKNOWN);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_stream_synchronize_res, &res);
    assert_int_equal(res.result, CUDA_ERROR_UNKNOWN);
    assert_int_equal(count_in_log("memset:1"), FLYT_STREAM_DEPTH_MAX);
}

/* They say that the question was not to be asked, not that the work is lost, nor that it is done. */
static void codes_of_capture_end_nothing(void **state)
{
    for (CUresult code = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; code <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
         code++) {
        void *made;
        assert_int_equal(set_up(&made), 0);
        struct fixture *self = made;
        uint32_t work = give_work(self, alloc(self, 64, CUDA_SUCCESS));
        flyt_fake_fail(code);
        assert_int_equal(query(self, stream_id(0)), code);
        assert_int_equal(query_event(self), CUDA_ERROR_NOT_READY);
        assert_in_range(barrier(self).completed, 1, work - 1);
        flyt_fake_fail(CUDA_SUCCESS);
        assert_int_equal(query(self, stream_id(0)), CUDA_ERROR_NOT_READY);
        flyt_fake_release(1);
        assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
        flyt_progress progress = barrier(self);
        assert_int_equal(progress.completed, progress.received);
        assert_int_equal(tear_down(&made), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_error_is_a_completion),
        cmocka_unit_test(memory_of_work_that_died_is_not_used_again),
        cmocka_unit_test_setup_teardown(calls_that_wait_hear_of_it, set_up, tear_down),
        cmocka_unit_test(codes_of_capture_end_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
