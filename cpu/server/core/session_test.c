/*
 * A session over a socket pair and a driver that does nothing: which calls wait for which, what the client is told, and
 * what is freed when. The test is the client; it speaks the wire's format by itself.
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
#include "cpu/server/cuda/memory.h"
#include "cpu/server/bulk/staging.h"
#include "cpu/server/core/submit.h"
#include "rpc/base/descriptors.h"

/* ---- tests ---- */

static void counts_progress(void **state)
{
    struct fixture *self = *state;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    set(self, stream_id(0), address);
    flyt_progress progress = barrier(self);
    assert_int_equal(progress.received, 4);
    assert_int_equal(progress.executed, 4);
    assert_int_equal(progress.completed, 2); /* the memset, number 3, is not done */
    assert_int_equal(query(self, stream_id(0)), CUDA_ERROR_NOT_READY);
    flyt_fake_release(1);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(barrier(self).completed, 7);
}

/* A stream that begins with a wait for the legacy stream has completed what came before, all the same. */
static void progress_never_goes_back(void **state)
{
    struct fixture *self = *state;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, 0);
    for (unsigned i = 0; i < 3; i++)
        set(self, stream_id(0), address);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    flyt_fake_hold(0);
    set(self, legacy, address);
    assert_int_equal(barrier(self).completed, 6);
    flyt_fake_hold(1);
    set(self, stream_id(0), address);
    assert_int_equal(barrier(self).completed, 6);
    flyt_fake_release(0);
    SEND(self, FLYT_MEMORY_FREE, memory_free, .address = address); /* looks at all streams */
    assert_int_equal(barrier(self).completed, 8);                  /* the blocking stream's memset is the ninth call */
}

static void legacy_stream_waits_where_there_is_work(void **state)
{
    struct fixture *self = *state;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, 0);                      /* driver stream 1 */
    create(self, 1, 0);                      /* 2 */
    create(self, 2, CU_STREAM_NON_BLOCKING); /* 3 */
    for (unsigned i = 1; i < 4; i++)
        flyt_fake_hold(i);
    set(self, stream_id(0), address);
    set(self, stream_id(2), address);
    flyt_fake_hold(0);
    set(self, legacy, address);
    set(self, legacy, address);
    set(self, stream_id(1), address);
    set(self, stream_id(1), address);
    set(self, stream_id(2), address);
    barrier(self);
    assert_log("memset:1 memset:3 wait:0<1 memset:0 memset:0 wait:2<0 memset:2 memset:2 memset:3");
}

static void finished_work_is_not_waited_for(void **state)
{
    struct fixture *self = *state;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, 0);
    set(self, stream_id(0), address);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    set(self, legacy, address);
    assert_int_equal(synchronize(self, legacy), CUDA_SUCCESS);
    set(self, stream_id(0), address);
    barrier(self);
    assert_log("memset:1 memset:0 memset:1");
}

static void host_function_holds_its_stream_only(void **state)
{
    struct fixture *self = *state;
    flyt_back_host_function back;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    create(self, 1, CU_STREAM_NON_BLOCKING);
    SEND(self, FLYT_HOST_FUNCTION_LAUNCH, host_function_launch, .stream_id = stream_id(0), .function_id = 77);
    set(self, stream_id(0), address);
    await_back(self, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function, &back);
    assert_int_equal(back.function_id, 77);
    set(self, stream_id(1), address);
    assert_int_equal(synchronize(self, stream_id(1)), CUDA_SUCCESS);
    assert_log("memset:2");
    assert_int_equal(query(self, stream_id(0)), CUDA_ERROR_NOT_READY);
    SEND(self, FLYT_HOST_FUNCTION_DONE, host_function_done, .function_id = 77);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    assert_log("memset:2 memset:1");
}

static void host_function_holds_by_legacy_rules(void **state)
{
    struct fixture *self = *state;
    flyt_back_host_function back;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, 0);
    create(self, 1, 0);
    create(self, 2, CU_STREAM_NON_BLOCKING);
    SEND(self, FLYT_HOST_FUNCTION_LAUNCH, host_function_launch, .stream_id = stream_id(0), .function_id = 5);
    set(self, legacy, address);
    set(self, stream_id(1), address);
    set(self, stream_id(2), address);
    await_back(self, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function, &back);
    assert_int_equal(synchronize(self, stream_id(2)), CUDA_SUCCESS);
    assert_log("memset:3");
    SEND(self, FLYT_HOST_FUNCTION_DONE, host_function_done, .function_id = 5);
    barrier(self);
    /* The legacy stream's work comes before that of the other blocking stream, which was issued later. */
    char log[256];
    flyt_fake_log(log, sizeof log);
    assert_non_null(strstr(log, "memset:0"));
    assert_true(strstr(log, "memset:0") < strstr(log, "memset:2"));
}

static void events_carry_the_order_of_deferred_calls(void **state)
{
    struct fixture *self = *state;
    flyt_back_host_function back;
    flyt_event_query_res res;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    create(self, 1, CU_STREAM_NON_BLOCKING);
    SEND(self, FLYT_EVENT_CREATE, event_create, .event_id = event_id(1), .flags = CU_EVENT_DISABLE_TIMING);
    SEND(self, FLYT_HOST_FUNCTION_LAUNCH, host_function_launch, .stream_id = stream_id(0), .function_id = 1);
    SEND(self, FLYT_EVENT_RECORD, event_record, .event_id = event_id(1), .stream_id = stream_id(0));
    SEND(self, FLYT_STREAM_WAIT_EVENT, stream_wait_event, .stream_id = stream_id(1), .event_id = event_id(1));
    set(self, stream_id(1), address);
    await_back(self, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function, &back);
    uint32_t xid = SEND(self, FLYT_EVENT_QUERY, event_query, .event_id = event_id(1));
    await_reply(self, xid, (xdrproc_t)xdr_flyt_event_query_res, &res);
    assert_int_equal(res.result, CUDA_ERROR_NOT_READY);
    assert_log("");
    assert_int_equal(res.progress.executed, 4); /* the host function, number 5, has not run */
    SEND(self, FLYT_HOST_FUNCTION_DONE, host_function_done, .function_id = 1);
    assert_int_equal(synchronize(self, stream_id(1)), CUDA_SUCCESS);
    assert_log("wait:2<1 memset:2");
}

/* A client that reads nothing while it sends: notices must not fill what replies need. */
static void notices_wait_for_the_reader(void **state)
{
    struct fixture *self = *state;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < 2000; i++) {
        set(self, stream_id(0), address);
        if (i % 16 == 0)
            usleep(200); /* the server's queue runs empty */
    }
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    flyt_progress progress = barrier(self);
    assert_int_equal(progress.completed, progress.received);
}

static int query_event(struct fixture *self, unsigned number)
{
    flyt_event_query_res res;
    uint32_t xid = SEND(self, FLYT_EVENT_QUERY, event_query, .event_id = event_id(number));
    await_reply(self, xid, (xdrproc_t)xdr_flyt_event_query_res, &res);
    return res.result;
}

/* What has been recorded is asked for, recorded again, and waited for, although a call waits that waits for it. */
static void an_event_is_not_held_by_who_waits_for_it(void **state)
{
    struct fixture *self = *state;
    flyt_back_host_function back;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    for (unsigned i = 0; i < 3; i++)
        create(self, i, CU_STREAM_NON_BLOCKING);
    SEND(self, FLYT_EVENT_CREATE, event_create, .event_id = event_id(1), .flags = CU_EVENT_DISABLE_TIMING);
    SEND(self, FLYT_HOST_FUNCTION_LAUNCH, host_function_launch, .stream_id = stream_id(1), .function_id = 1);
    await_back(self, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function, &back);
    SEND(self, FLYT_EVENT_RECORD, event_record, .event_id = event_id(1), .stream_id = stream_id(0));
    SEND(self, FLYT_STREAM_WAIT_EVENT, stream_wait_event, .stream_id = stream_id(1), .event_id = event_id(1));
    assert_int_equal(query_event(self, 1), CUDA_SUCCESS);
    SEND(self, FLYT_EVENT_RECORD, event_record, .event_id = event_id(1), .stream_id = stream_id(2));
    set(self, stream_id(2), address);
    assert_int_equal(synchronize(self, stream_id(2)), CUDA_SUCCESS);
    assert_log("memset:3");
    SEND(self, FLYT_HOST_FUNCTION_DONE, host_function_done, .function_id = 1);
    assert_int_equal(synchronize(self, stream_id(1)), CUDA_SUCCESS);
}

/* A record that waits is what later waits mean, even if another stream records the event in between. */
static void waits_mean_the_record_before_them(void **state)
{
    struct fixture *self = *state;
    flyt_back_host_function back;
    flyt_event_synchronize_res res;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    for (unsigned i = 0; i < 3; i++)
        create(self, i, CU_STREAM_NON_BLOCKING);
    SEND(self, FLYT_EVENT_CREATE, event_create, .event_id = event_id(1), .flags = CU_EVENT_DISABLE_TIMING);
    SEND(self, FLYT_HOST_FUNCTION_LAUNCH, host_function_launch, .stream_id = stream_id(0), .function_id = 1);
    await_back(self, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function, &back);
    SEND(self, FLYT_EVENT_RECORD, event_record, .event_id = event_id(1), .stream_id = stream_id(0));
    SEND(self, FLYT_STREAM_WAIT_EVENT, stream_wait_event, .stream_id = stream_id(1), .event_id = event_id(1));
    uint32_t xid = SEND(self, FLYT_EVENT_SYNCHRONIZE, event_synchronize, .event_id = event_id(1));
    assert_int_equal(query_event(self, 1), CUDA_ERROR_NOT_READY);
    SEND(self, FLYT_EVENT_RECORD, event_record, .event_id = event_id(1), .stream_id = stream_id(2));
    assert_int_equal(query_event(self, 1), CUDA_SUCCESS);
    SEND(self, FLYT_EVENT_DESTROY, event_destroy, .event_id = event_id(1));
    set(self, stream_id(1), address);
    assert_int_equal(query(self, stream_id(1)), CUDA_ERROR_NOT_READY);
    assert_log("");
    SEND(self, FLYT_HOST_FUNCTION_DONE, host_function_done, .function_id = 1);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_event_synchronize_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(synchronize(self, stream_id(1)), CUDA_SUCCESS);
    assert_log("wait:2<1 memset:2");
}

/* Calls that come without a pause: the client hears of the progress before the last of them. */
static void progress_is_told_while_calls_keep_coming(void **state)
{
    enum { CALLS = 12000, BYTES_MAX = 100 * CALLS };
    struct fixture *self = *state;
    char *records = malloc(BYTES_MAX);
    flyt_progress progress = {0};
    uint64_t told = 0;
    size_t bytes = 0;
    for (unsigned i = 0; i < CALLS; i++) {
        flyt_event_create_args create_args = {.event_id = event_id(1)};
        flyt_event_destroy_args destroy_args = {.event_id = event_id(1)};
        bytes += i % 2 ? encode_call(self, records + bytes, BYTES_MAX - bytes, FLYT_EVENT_DESTROY,
                                     (xdrproc_t)xdr_flyt_event_destroy_args, &destroy_args)
                       : encode_call(self, records + bytes, BYTES_MAX - bytes, FLYT_EVENT_CREATE,
                                     (xdrproc_t)xdr_flyt_event_create_args, &create_args);
    }
    assert_int_equal(send(self->fd, records, bytes, MSG_NOSIGNAL), bytes);
    while (progress.received < self->xid) {
        await_back(self, FLYT_BACK_PROGRESS, (xdrproc_t)xdr_flyt_progress, &progress);
        assert_in_range(progress.received - told, 1, FLYT_PROGRESS_CALLS + 64); /* 64: a round of the loop */
        assert_int_equal(progress.executed, progress.received);
        told = progress.received;
    }
    assert_int_equal(told, self->xid);
    free(records);
}

static void a_full_stream_stops_no_other(void **state)
{
    struct fixture *self = *state;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    create(self, 1, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    for (unsigned i = 0; i < FLYT_STREAM_DEPTH_MAX + 100; i++)
        set(self, stream_id(0), address);
    set(self, stream_id(1), address);
    assert_int_equal(synchronize(self, stream_id(1)), CUDA_SUCCESS);
    assert_int_equal(count_in_log("memset:1"), FLYT_STREAM_DEPTH_MAX);
    flyt_fake_release(1);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
}

static void freed_memory_waits_for_work(void **state)
{
    struct fixture *self = *state;
    const uint64_t big = 64ull << 20;
    flyt_fake_set_memory(big);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    uint64_t address = alloc(self, big, CUDA_SUCCESS);
    alloc(self, big, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(flyt_fake_used_memory(), big);
    flyt_fake_hold(1);
    set(self, stream_id(0), address);
    SEND(self, FLYT_MEMORY_FREE, memory_free, .address = address);
    /* The reply comes when the work is done that may use the freed memory. */
    uint32_t xid = SEND(self, FLYT_MEMORY_ALLOC, memory_alloc, .bytes = big);
    assert_int_equal(query(self, stream_id(0)), CUDA_ERROR_NOT_READY);
    flyt_fake_release(1);
    flyt_memory_alloc_res res;
    await_reply(self, xid, (xdrproc_t)xdr_flyt_memory_alloc_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(flyt_fake_used_memory(), big);
    alloc(self, 0, CUDA_ERROR_INVALID_VALUE);
    alloc(self, UINT64_MAX, CUDA_ERROR_OUT_OF_MEMORY);
}

static void an_allocation_waits_for_a_free_that_waits(void **state)
{
    struct fixture *self = *state;
    const uint64_t big = 64ull << 20;
    flyt_back_host_function back;
    flyt_memory_alloc_res res;
    flyt_fake_set_memory(big);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    uint64_t address = alloc(self, big, CUDA_SUCCESS);
    SEND(self, FLYT_HOST_FUNCTION_LAUNCH, host_function_launch, .stream_id = stream_id(0), .function_id = 3);
    await_back(self, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function, &back);
    SEND(self, FLYT_MEMORY_FREE, memory_free, .address = address);
    uint32_t xid = SEND(self, FLYT_MEMORY_ALLOC, memory_alloc, .bytes = big);
    assert_int_equal(query(self, stream_id(0)), CUDA_ERROR_NOT_READY);
    SEND(self, FLYT_HOST_FUNCTION_DONE, host_function_done, .function_id = 3);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_memory_alloc_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
}

static void many_allocations_take_few_extents(void **state)
{
    struct fixture *self = *state;
    flyt_fake_set_memory(16ull << 30);
    for (unsigned i = 0; i < FLYT_EXTENTS_MAX + 100; i++)
        alloc(self, 2 << 20, CUDA_SUCCESS);
}

static void the_last_memory_is_given_out(void **state)
{
    struct fixture *self = *state;
    flyt_fake_set_memory(10 << 20);
    for (unsigned i = 0; i < 10; i++)
        alloc(self, 1 << 20, CUDA_SUCCESS);
    alloc(self, 1, CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(flyt_fake_used_memory(), 10 << 20);
}

static void one_way_errors_name_their_thread(void **state)
{
    struct fixture *self = *state;
    flyt_back_call_error back;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    SEND(self, FLYT_MEMORY_FREE, memory_free, .thread = 9, .address = address + 512);
    await_back(self, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &back);
    assert_int_equal(back.sequence, 2);
    assert_int_equal(back.thread, 9);
    assert_int_equal(back.result, CUDA_ERROR_INVALID_VALUE);
    SEND(self, FLYT_STREAM_DESTROY, stream_destroy, .stream_id = 12345);
    await_back(self, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &back);
    assert_int_equal(back.result, CUDA_ERROR_INVALID_HANDLE);
    /* A range that leaves its allocation. */
    SEND(self, FLYT_MEMORY_SET, memory_set, .stream_id = legacy, .dst = range(address, 1 << 20), .element_bytes = 1);
    await_back(self, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &back);
    assert_int_equal(back.result, CUDA_ERROR_INVALID_VALUE);
    /* An address of the server's own memory. */
    SEND(self, FLYT_MEMORY_SET, memory_set, .stream_id = legacy, .dst = range((uint64_t)(uintptr_t)self, 64),
         .element_bytes = 1);
    await_back(self, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &back);
    assert_int_equal(back.result, CUDA_ERROR_INVALID_VALUE);
}

static void a_fault_is_for_ever(void **state)
{
    struct fixture *self = *state;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    set(self, stream_id(0), address);
    /* What was noted before is not its cause. */
    strcpy(self->session.end_reason, "its program cannot go on at the new server");
    uint32_t xid = SEND(self, FLYT_STREAM_SYNCHRONIZE, stream_synchronize, .stream_id = stream_id(0));
    flyt_fake_fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    flyt_back_fatal back = {0};
    await_back(self, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &back);
    assert_int_equal(back.result, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_non_null(strstr(back.cause, "illegal address"));
    xdr_free((xdrproc_t)xdr_flyt_back_fatal, &back);
    flyt_stream_synchronize_res res;
    await_reply(self, xid, (xdrproc_t)xdr_flyt_stream_synchronize_res, &res);
    assert_int_equal(res.result, CUDA_ERROR_ILLEGAL_ADDRESS);
    alloc(self, 64, CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void small_copies_travel_in_the_reply(void **state)
{
    struct fixture *self = *state;
    flyt_copy_out_res res = {0};
    uint64_t address = alloc(self, 4096, CUDA_SUCCESS);
    uint32_t xid = SEND(self, FLYT_COPY_OUT, copy_out, .stream_id = legacy, .src = range(address, 100));
    await_reply(self, xid, (xdrproc_t)xdr_flyt_copy_out_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(res.data.data_len, 100);
    assert_int_equal(res.data.data_val[99], 0x5a);
    xdr_free((xdrproc_t)xdr_flyt_copy_out_res, &res);
}

static void chunks_may_come_before_their_call(void **state)
{
    struct fixture *self = *state;
    uint64_t address = alloc(self, 4096, CUDA_SUCCESS);
    send_chunk(self, 42, 0, 600);
    SEND(self, FLYT_COPY_IN_TRANSFER, copy_in_transfer, .stream_id = legacy, .dst = range(address, 1000),
         .transfer_id = 42, .bytes = 1000);
    create(self, 0, 0);
    assert_int_equal(query(self, legacy), CUDA_ERROR_NOT_READY);
    send_chunk(self, 42, 600, 400);
    barrier(self);
    assert_int_equal(synchronize(self, legacy), CUDA_SUCCESS);
    assert_log("in:0 in:0");
}

static void a_copy_of_pieces_is_complete_with_the_last(void **state)
{
    struct fixture *self = *state;
    flyt_progress progress;
    uint64_t address = alloc(self, 4096, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    create(self, 1, CU_STREAM_NON_BLOCKING);
    uint32_t copy = SEND(self, FLYT_COPY_IN_TRANSFER, copy_in_transfer, .stream_id = stream_id(0),
                         .dst = range(address, 1000), .transfer_id = 42, .bytes = 1000);
    send_chunk(self, 42, 0, 600);
    while (count_in_log("in:1") < 1)
        assert_int_equal(query(self, stream_id(0)), CUDA_ERROR_NOT_READY);
    usleep(1000); /* its marker may be looked at before the next piece comes, or after */
    flyt_fake_hold(1);
    send_chunk(self, 42, 600, 400);
    while (count_in_log("in:1") < 2)
        assert_int_equal(query(self, stream_id(0)), CUDA_ERROR_NOT_READY);
    set(self, stream_id(1), address); /* is followed by a notice, for which all streams are looked at */
    do
        await_back(self, FLYT_BACK_PROGRESS, (xdrproc_t)xdr_flyt_progress, &progress);
    while (progress.received < self->xid);
    assert_int_equal(progress.completed, copy - 1);
    flyt_fake_release(1);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    assert_true(barrier(self).completed >= copy);
}

/* The copy of a stream that the GPU keeps busy takes neither the buffers that others need, nor, with ordinary memory,
 * the thread. */
static void a_copy_to_a_busy_stream_stops_no_other(void **state)
{
    struct fixture *self = *state;
    const unsigned chunks = FLYT_STAGING_LARGE_MAX + 4;
    uint64_t address = alloc(self, 1 << 20, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    create(self, 1, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    set(self, stream_id(0), address);
    SEND(self, FLYT_COPY_IN_TRANSFER, copy_in_transfer, .stream_id = stream_id(0), .dst = range(address, chunks * 100),
         .transfer_id = 1, .bytes = chunks * 100);
    for (unsigned i = 0; i < chunks; i++)
        send_chunk(self, 1, i * 100, 100);
    SEND(self, FLYT_COPY_IN_TRANSFER, copy_in_transfer, .stream_id = stream_id(1), .dst = range(address, 100),
         .transfer_id = 2, .bytes = 100);
    send_chunk(self, 2, 0, 100);
    assert_int_equal(synchronize(self, stream_id(1)), CUDA_SUCCESS);
    assert_int_equal(count_in_log("in:2"), 1);
    assert_int_equal(count_in_log("pageable:1"), 0);
    flyt_fake_release(1);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(count_in_log("in:1") + count_in_log("pageable:1"), chunks);
}

static void a_copy_from_a_busy_stream_stops_no_other(void **state)
{
    struct fixture *self = *state;
    const uint64_t big = (uint64_t)FLYT_CHUNK_BYTES_MAX * (FLYT_STAGING_LARGE_MAX + 1);
    uint64_t address = alloc(self, big, CUDA_SUCCESS);
    flyt_chunk chunk = {0};
    create(self, 0, CU_STREAM_NON_BLOCKING);
    create(self, 1, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    set(self, stream_id(0), address);
    SEND(self, FLYT_COPY_OUT_TRANSFER, copy_out_transfer, .stream_id = stream_id(0), .src = range(address, big),
         .transfer_id = 1, .bytes = big);
    SEND(self, FLYT_COPY_OUT_TRANSFER, copy_out_transfer, .stream_id = stream_id(1), .src = range(address, 100000),
         .transfer_id = 2, .bytes = 100000);
    await_back(self, FLYT_BACK_CHUNK, (xdrproc_t)xdr_flyt_chunk, &chunk);
    assert_int_equal(chunk.transfer_id, 2);
    assert_int_equal(chunk.data.data_len, 100000);
    xdr_free((xdrproc_t)xdr_flyt_chunk, &chunk);
}

static void without_page_locked_memory_copies_fail(void **state)
{
    struct fixture *self = *state;
    flyt_copy_out_res res = {0};
    flyt_back_transfer_failed failed;
    uint64_t address = alloc(self, 1 << 20, CUDA_SUCCESS);
    flyt_fake_fail_host_memory(CUDA_ERROR_OUT_OF_MEMORY);
    uint32_t xid = SEND(self, FLYT_COPY_OUT, copy_out, .stream_id = legacy, .src = range(address, 100));
    await_reply(self, xid, (xdrproc_t)xdr_flyt_copy_out_res, &res);
    assert_int_equal(res.result, CUDA_ERROR_OUT_OF_MEMORY);
    SEND(self, FLYT_COPY_OUT_TRANSFER, copy_out_transfer, .stream_id = legacy, .src = range(address, 100000),
         .transfer_id = 2, .bytes = 100000);
    await_back(self, FLYT_BACK_TRANSFER_FAILED, (xdrproc_t)xdr_flyt_back_transfer_failed, &failed);
    assert_int_equal(failed.result, CUDA_ERROR_OUT_OF_MEMORY);
}

/* Whatever its context was lost by is what the program hears. */
static void a_copy_behind_a_fault_fails_with_it(void **state)
{
    struct fixture *self = *state;
    flyt_copy_out_res res = {0};
    uint64_t address = alloc(self, 1 << 20, CUDA_SUCCESS);
    flyt_back_fatal back = {0};
    flyt_fake_fail_host_memory(CUDA_ERROR_ILLEGAL_ADDRESS);
    uint32_t xid = SEND(self, FLYT_COPY_OUT, copy_out, .stream_id = legacy, .src = range(address, 100));
    await_back(self, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &back);
    assert_int_equal(back.result, CUDA_ERROR_ILLEGAL_ADDRESS);
    xdr_free((xdrproc_t)xdr_flyt_back_fatal, &back);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_copy_out_res, &res);
    assert_int_equal(res.result, CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void a_bad_message_ends_the_session(void **state)
{
    struct fixture *self = *state;
    const uint32_t garbage[] = {htonl(0x80000008), htonl(1), htonl(0)};
    alloc(self, 64, CUDA_SUCCESS);
    assert_int_equal(send(self->fd, garbage, sizeof garbage, 0), sizeof garbage);
    while (receive(self))
        ;
}

/* ---- the progress page ---- */

/* Makes the handshake as a client on the same host does, and maps the page that comes with the answer. */
static const struct flyt_progress_page *open_page(struct fixture *self)
{
    flyt_handshake_args args = {.build = "test", .program_name = "session_test", .pid = 1};
    const struct flyt_progress_page *page;
    flyt_handshake_res res = {0};
    unsigned fd_count = 0;
    uint32_t mark;
    int fd;
    if (self->session.resume.state == FLYT_RESUME_AWAITED) {
        args.kind = FLYT_CONNECTION_RESUME;
        args.token.token_val = (char *)self->session.token;
        args.token.token_len = sizeof self->session.token;
    }
    memcpy(args.base_hash, flyt_base_hash, sizeof args.base_hash);
    uint32_t xid = send_call(self, FLYT_HANDSHAKE, (xdrproc_t)xdr_flyt_handshake_args, &args);
    self->xid--; /* it has no number */
    assert_int_equal(flyt_descriptors_receive(self->fd, &mark, sizeof mark, &fd, 1, &fd_count), sizeof mark);
    assert_int_equal(fd_count, 1);
    self->message_bytes = ntohl(mark) & 0x7fffffff;
    assert_int_equal(recv(self->fd, self->message, self->message_bytes, MSG_WAITALL), self->message_bytes);
    assert_int_equal(get(self, 0), xid);
    XDR xdrs;
    xdrmem_create(&xdrs, self->message + REPLY_HEAD_BYTES, (u_int)(self->message_bytes - REPLY_HEAD_BYTES), XDR_DECODE);
    assert_true(xdr_flyt_handshake_res(&xdrs, &res));
    assert_int_equal(res.status, FLYT_HANDSHAKE_OK);
    assert_int_equal(res.features, FLYT_FEATURE_PROGRESS_PAGE);
    xdr_free((xdrproc_t)xdr_flyt_handshake_res, &res);
    assert_int_equal(flyt_progress_page_map(fd, &page), 0);
    close(fd);
    return page;
}

/* Waits until the server has published this much, while the client says nothing. */
static void await_number(const _Atomic(uint64_t) *place, uint64_t sequence)
{
    for (unsigned i = 0; atomic_load(place) < sequence; i++) {
        assert_true(i < 20000);
        usleep(1000);
    }
}

static const _Atomic(uint64_t) *place_of(const struct flyt_progress_page *page, uint64_t stream)
{
    return &page->streams[flyt_id_number(stream)];
}

static void the_page_tells_what_is_complete(void **state)
{
    struct fixture *self = *state;
    const struct flyt_progress_page *page = open_page(self);
    const _Atomic(uint64_t) *place = place_of(page, stream_id(0)), *other = place_of(page, stream_id(1));
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, 0);                      /* driver stream 1 */
    create(self, 1, CU_STREAM_NON_BLOCKING); /* 2 */
    SEND(self, FLYT_EVENT_CREATE, event_create, .event_id = event_id(1), .flags = CU_EVENT_DISABLE_TIMING);
    set(self, stream_id(0), address);
    uint32_t record = SEND(self, FLYT_EVENT_RECORD, event_record, .event_id = event_id(1), .stream_id = stream_id(0));
    await_number(place, record);
    await_number(&page->completed, record);
    flyt_fake_hold(1);
    set(self, stream_id(0), address);
    set(self, stream_id(1), address);
    await_number(other, self->xid); /* whatever the first stream still does */
    uint32_t last = self->xid;
    await_number(&page->executed, last);
    assert_int_equal(atomic_load(place), last - 2);
    assert_int_equal(atomic_load(&page->completed), last - 2);
    assert_in_range(atomic_load(&page->blocking[0]), 1, last - 2);
    flyt_fake_release(1);
    await_number(place, last);
    await_number(&page->blocking[0], last);
    await_number(&page->completed, last);
    flyt_progress_page_unmap(page);
}

static void the_page_waits_for_host_functions(void **state)
{
    struct fixture *self = *state;
    const struct flyt_progress_page *page = open_page(self);
    const _Atomic(uint64_t) *place = place_of(page, stream_id(0));
    flyt_back_host_function back;
    create(self, 0, 0);
    create(self, 1, CU_STREAM_NON_BLOCKING);
    uint32_t launch =
        SEND(self, FLYT_HOST_FUNCTION_LAUNCH, host_function_launch, .stream_id = stream_id(0), .function_id = 9);
    await_back(self, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function, &back);
    assert_int_equal(query(self, stream_id(1)), CUDA_SUCCESS);
    await_number(place_of(page, stream_id(1)), launch + 1); /* a whole round has been published since */
    assert_true(atomic_load(place) < launch);
    assert_true(atomic_load(&page->blocking[0]) < launch);
    SEND(self, FLYT_HOST_FUNCTION_DONE, host_function_done, .function_id = 9);
    await_number(place, launch);
    await_number(&page->blocking[0], launch);
    flyt_progress_page_unmap(page);
}

/* An event of the old stream must not look complete because the new one has nothing to do. */
static void a_number_that_is_used_again_waits_for_the_old_stream(void **state)
{
    struct fixture *self = *state;
    const struct flyt_progress_page *page = open_page(self);
    const _Atomic(uint64_t) *place = place_of(page, stream_id(0)), *other = place_of(page, stream_id(1));
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    create(self, 1, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    set(self, stream_id(0), address);
    uint32_t last = self->xid;
    SEND(self, FLYT_STREAM_DESTROY, stream_destroy, .stream_id = stream_id(0));
    create(self, 0, CU_STREAM_NON_BLOCKING);
    set(self, stream_id(0), address);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    await_number(other, self->xid);
    assert_int_equal(atomic_load(place), last - 1);
    flyt_fake_release(1);
    await_number(place, self->xid);
    flyt_progress_page_unmap(page);
}

static void errors_are_on_the_page_before_what_follows(void **state)
{
    struct fixture *self = *state;
    const struct flyt_progress_page *page = open_page(self);
    const _Atomic(uint64_t) *place = place_of(page, stream_id(0));
    flyt_back_fatal fatal = {0};
    flyt_back_call_error back;
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    create(self, 0, CU_STREAM_NON_BLOCKING);
    await_number(place, self->xid);
    assert_int_equal(atomic_load(&page->error_count), 0);
    set(self, stream_id(0), 0x1000);
    await_number(place, self->xid);
    assert_int_equal(atomic_load(&page->error_count), 1);
    await_back(self, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &back);
    /* After a fault nothing is published: the polled end of the work is none. The client hears of it unasked. */
    flyt_fake_hold(1);
    set(self, stream_id(0), address);
    barrier(self);
    flyt_fake_fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    await_back(self, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &fatal);
    xdr_free((xdrproc_t)xdr_flyt_back_fatal, &fatal);
    alloc(self, 64, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(atomic_load(&page->error_count), 2);
    assert_in_range(atomic_load(place), 1, self->xid - 3);
    flyt_progress_page_unmap(page);
}

/* ---- a session that goes on ---- */

static int set_up_resumed(void **state)
{
    struct fixture *self = make();
    self->session.resume.state = FLYT_RESUME_AWAITED;
    *state = self;
    return 0;
}

/* Its client begins to make its objects again: what the session has is a stream with work that is not done. Returns
 * the page. */
static const struct flyt_progress_page *begin_again(struct fixture *self)
{
    flyt_session_resume_begin_res res;
    assert_int_equal(pthread_create(&self->thread, NULL, serve, self), 0);
    const struct flyt_progress_page *page = open_page(self);
    uint32_t xid = SEND(self, FLYT_SESSION_RESUME_BEGIN, session_resume_begin, .thread = 1);
    await_reply(self, xid, (xdrproc_t)xdr_flyt_session_resume_begin_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(res.progress.received, 1);
    create(self, 0, 0); /* driver stream 1 */
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    flyt_fake_hold(1);
    set(self, stream_id(0), address);
    return page;
}

static void a_session_goes_on_behind_its_last_call(void **state)
{
    enum { LAST = 3 };
    struct fixture *self = *state;
    const struct flyt_progress_page *page = begin_again(self);
    const _Atomic(uint64_t) *place = place_of(page, stream_id(0));
    flyt_session_resume_end_res res;
    flyt_back_credit credit;
    uint32_t end = SEND(self, FLYT_SESSION_RESUME_END, session_resume_end, .sequence = LAST);
    await_number(&page->received, end); /* numbers of their own until then */
    assert_true(atomic_load(&page->completed) < end);
    flyt_fake_release(1);
    await_reply(self, end, (xdrproc_t)xdr_flyt_session_resume_end_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(res.progress.received, LAST);
    assert_int_equal(res.progress.executed, LAST);
    assert_int_equal(res.progress.completed, LAST);
    assert_int_equal(atomic_load(&page->received), LAST);
    assert_int_equal(atomic_load(&page->executed), LAST);
    assert_int_equal(atomic_load(&page->completed), LAST);
    assert_int_equal(atomic_load(&page->blocking[0]), LAST);
    assert_int_equal(atomic_load(place), LAST);
    assert_int_equal(atomic_load(place_of(page, legacy)), LAST);
    assert_int_equal(atomic_load(place_of(page, stream_id(1))), 0);

    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    flyt_fake_hold(1);
    set(self, stream_id(0), address); /* LAST + 2 */
    flyt_progress progress = barrier(self);
    assert_int_equal(progress.received, LAST + 3);
    assert_int_equal(progress.executed, LAST + 3);
    assert_int_equal(progress.completed, LAST + 1);
    assert_int_equal(atomic_load(place), LAST + 1);
    flyt_fake_release(1);
    await_number(&page->completed, LAST + 3);
    /* The stream's calls count from there, too: one is done. */
    for (unsigned i = 1; i < FLYT_STREAM_CREDIT_CALLS / 4; i++)
        set(self, stream_id(0), address);
    do
        assert_true(receive(self) && get(self, 4) == 0);
    while (get(self, 20) == FLYT_BACK_PROGRESS);
    assert_int_equal(get(self, 20), FLYT_BACK_CREDIT);
    XDR xdrs;
    xdrmem_create(&xdrs, self->message + CALL_HEAD_BYTES, (u_int)(self->message_bytes - CALL_HEAD_BYTES), XDR_DECODE);
    assert_true(xdr_flyt_back_credit(&xdrs, &credit));
    assert_int_equal(credit.executed_calls, FLYT_STREAM_CREDIT_CALLS / 4);
    flyt_progress_page_unmap(page);
}

static CUresult write_byte(void *user, struct flyt_stream *stream)
{
    return stream->device->session->driver->cuMemcpyHtoDAsync(1 << 20, user, 1, stream->cu_stream);
}

/* The end is waited for of what constants were given back. */
static void a_session_goes_on_behind_what_its_constants_are_written(void **state)
{
    enum { LAST = 3, WAIT_US = 100000 };
    struct fixture *self = *state;
    const struct flyt_progress_page *page = begin_again(self);
    flyt_session_resume_end_res res;
    char byte = 1;
    flyt_fake_release(1);
    barrier(self);
    flyt_fake_hold(0);
    struct flyt_device *device = &self->session.devices[0];
    CUresult written = flyt_stream_submit(device->legacy, 1, FLYT_SUBMIT_ADDED, device, write_byte, &byte);
    assert_int_equal(written, CUDA_SUCCESS);
    uint32_t end = SEND(self, FLYT_SESSION_RESUME_END, session_resume_end, .sequence = LAST);
    await_number(&page->received, end);
    usleep(WAIT_US); /* it is not answered, however long this takes */
    assert_int_equal(atomic_load(&page->received), end);
    flyt_fake_release(0);
    await_reply(self, end, (xdrproc_t)xdr_flyt_session_resume_end_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(atomic_load(&page->received), LAST);
    flyt_progress_page_unmap(page);
}

/* Nobody could say which number it has. */
static void a_call_before_a_session_has_gone_on_ends_it(void **state)
{
    struct fixture *self = *state;
    const struct flyt_progress_page *page = begin_again(self);
    SEND(self, FLYT_SESSION_RESUME_END, session_resume_end, .sequence = 10);
    create(self, 1, 0);
    while (receive(self))
        assert_int_equal(get(self, 4), 0); /* notices, and no answer */
    flyt_progress_page_unmap(page);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(counts_progress),
        TEST(progress_never_goes_back),
        TEST(legacy_stream_waits_where_there_is_work),
        TEST(finished_work_is_not_waited_for),
        TEST(host_function_holds_its_stream_only),
        TEST(host_function_holds_by_legacy_rules),
        TEST(events_carry_the_order_of_deferred_calls),
        TEST(notices_wait_for_the_reader),
        TEST(an_event_is_not_held_by_who_waits_for_it),
        TEST(waits_mean_the_record_before_them),
        TEST(progress_is_told_while_calls_keep_coming),
        TEST(a_full_stream_stops_no_other),
        TEST(freed_memory_waits_for_work),
        TEST(an_allocation_waits_for_a_free_that_waits),
        TEST(many_allocations_take_few_extents),
        TEST(the_last_memory_is_given_out),
        TEST(one_way_errors_name_their_thread),
        TEST(a_fault_is_for_ever),
        TEST(small_copies_travel_in_the_reply),
        TEST(chunks_may_come_before_their_call),
        TEST(a_copy_of_pieces_is_complete_with_the_last),
        TEST(a_copy_to_a_busy_stream_stops_no_other),
        TEST(a_copy_from_a_busy_stream_stops_no_other),
        TEST(without_page_locked_memory_copies_fail),
        TEST(a_copy_behind_a_fault_fails_with_it),
        TEST(a_bad_message_ends_the_session),
        TEST(the_page_tells_what_is_complete),
        TEST(the_page_waits_for_host_functions),
        TEST(a_number_that_is_used_again_waits_for_the_old_stream),
        TEST(errors_are_on_the_page_before_what_follows),
        cmocka_unit_test_setup_teardown(a_session_goes_on_behind_its_last_call, set_up_resumed, tear_down),
        cmocka_unit_test_setup_teardown(a_session_goes_on_behind_what_its_constants_are_written, set_up_resumed,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_call_before_a_session_has_gone_on_ends_it, set_up_resumed, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
