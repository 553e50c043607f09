/*
 * What of a session can be moved, how its program is stopped, and how it goes on where it is when anything fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "cpu/server/test/fake_move.h"
#include "cpu/server/move/out/replaceable.h"
#include "cpu/server/move/out/report.h"
#include "rpc/base/fault_point.h"

/* ---- what can be moved ---- */

static const struct flyt_manager_link_move alone;

static void expect_refused(struct moved *self, int outcome, const char *words)
{
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_REFUSED, outcome);
    if (!strstr((const char *)self->message.data, words))
        fail_msg("refused with '%s', not '%s'", (const char *)self->message.data, words);
}

static void not_before_its_program_is_there(void **state)
{
    struct moved *self = *state;
    fake_move_send(self, MOVE_ID, FLYT_MANAGER_LINK_MOVE_GIVE);
    expect_refused(self, -EBUSY, "not there yet");
    fake_move_attach(self);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    assert_int_equal(atomic_load(&fake_move_parts.listed), 1);
}

static void an_older_client_is_not_moved(void **state)
{
    struct moved *self = *state;
    fake_move_attach_without(self, FLYT_SESSION_STOPPED);
    fake_move_send(self, MOVE_ID, FLYT_MANAGER_LINK_MOVE_GIVE);
    expect_refused(self, -ENOTSUP, "older than moving");
    fake_move_expect_work(self, alloc(self->client, 64, CUDA_SUCCESS));
}

static void one_move_at_a_time(void **state)
{
    struct moved *self = *state;
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_send(self, MOVE_ID + 1, FLYT_MANAGER_LINK_MOVE_GIVE);
    expect_refused(self, -EBUSY, "already");
    assert_int_equal(self->message.move_state.move_id, MOVE_ID + 1);
    /* What is said of the other is of none. */
    fake_move_order_of(self, FLYT_MANAGER_LINK_GO_ON, MOVE_ID + 1);
    fake_move_order_of(self, FLYT_MANAGER_LINK_STOP, MOVE_ID + 1);
    fake_move_expect_nothing(self);
    fake_move_stop_wholly(self);
}

static void what_cannot_be_moved_is_refused_by_name(void **state)
{
    static const struct {
        enum flyt_replaceable_reason reason;
        int outcome;
        const char *words;
    } cases[] = {{FLYT_REASON_HEAP, -ENOTSUP, "memory in kernels"},
                 {FLYT_REASON_UNKNOWN, -ENOTSUP, "cannot be judged"},
                 {FLYT_REASON_FAULT, -ENOTSUP, "context is lost"},
                 {FLYT_REASON_RESUMING, -EBUSY, "about to go on"}};
    struct moved *self = *state;
    struct flyt_session *session = &self->client->session;
    int status;
    session->replaceable->is_begun = true;
    assert_null(flyt_replaceable_why_not_moved(session, &alone, &status));
    assert_int_equal(status, 0);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        session->replaceable->counts[cases[i].reason] = 1;
        const char *why = flyt_replaceable_why_not_moved(session, &alone, &status);
        assert_non_null(why);
        assert_non_null(strstr(why, cases[i].words));
        assert_int_equal(status, cases[i].outcome);
        session->replaceable->counts[cases[i].reason] = 0;
    }
    /* What a server's death would lose is copied. */
    session->replaceable->counts[FLYT_REASON_VARIABLES] = session->replaceable->counts[FLYT_REASON_CONSTANTS] = 1;
    session->replaceable->counts[FLYT_REASON_ADDRESS] = session->replaceable->counts[FLYT_REASON_ALONE] = 1;
    assert_null(flyt_replaceable_why_not_moved(session, &alone, &status));
    session->replaceable->counts[FLYT_REASON_HEAP] = 1;
    fake_move_start(self);
    fake_move_attach(self);
    fake_move_send(self, MOVE_ID, FLYT_MANAGER_LINK_MOVE_GIVE);
    expect_refused(self, -ENOTSUP, "memory in kernels");
}

static void expect_staying(const struct flyt_session *session, const char *words)
{
    int status;
    const char *why = flyt_replaceable_why_not_moved(session, &alone, &status);
    assert_int_equal(status, words ? -ENOTSUP : 0);
    assert_true(!words == !why && (!why || strstr(why, words)));
}

/* Objects of several names come and go; of more names than have room the sentence says no name. */
static void an_object_that_stays_is_named(void **state)
{
    static const char any[] = "an object of NVIDIA's libraries that cannot be made again";
    static char names[FLYT_STAYING_NAMES + 1][8];
    struct moved *self = *state;
    struct flyt_session *session = &self->client->session;
    session->replaceable->is_begun = true;
    expect_staying(session, NULL);
    flyt_replaceable_count_staying(session, "a plough", true);
    flyt_replaceable_count_staying(session, "a sail", true);
    flyt_replaceable_count_staying(session, "a plough", true);
    expect_staying(session, "cannot be made again: a plough");
    flyt_replaceable_count_staying(session, "a plough", false);
    expect_staying(session, ": a plough");
    flyt_replaceable_count_staying(session, "a plough", false);
    expect_staying(session, ": a sail");
    flyt_replaceable_count_staying(session, "a sail", false);
    expect_staying(session, NULL);
    for (unsigned i = 0; i <= FLYT_STAYING_NAMES; i++) {
        snprintf(names[i], sizeof names[i], "x%u", i);
        flyt_replaceable_count_staying(session, names[i], true);
    }
    for (unsigned i = 0; i < FLYT_STAYING_NAMES; i++)
        flyt_replaceable_count_staying(session, names[i], false);
    expect_staying(session, any);
    assert_string_equal(strstr(flyt_replaceable_why(session), any), any);
    flyt_replaceable_count_staying(session, names[FLYT_STAYING_NAMES], false);
    expect_staying(session, NULL);
}

static void where_there_is_no_room_that_is_said(void **state)
{
    struct moved *self = *state;
    atomic_store(&fake_move_parts.begin_status, -ENOMEM);
    fake_move_send(self, MOVE_ID, FLYT_MANAGER_LINK_MOVE_WRITE);
    expect_refused(self, -ENOMEM, "no room");
    fake_move_send(self, MOVE_ID, FLYT_MANAGER_LINK_MOVE_MIRROR);
    expect_refused(self, -ENOMEM, "no room");
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
}

static void the_node_manager_hears_that_it_can(void **state)
{
    struct moved *self = *state;
    flyt_report_forget(&self->client->session);
    flyt_report_send(&self->client->session);
    do
        hear(self->fd, &self->message);
    while (self->message.kind != FLYT_MANAGER_LINK_USE || !self->message.use.can_move);
    assert_int_equal(self->message.use.can_move, FLYT_MANAGER_LINK_CAN_MOVE_SEND);
}

/* ---- stopping ---- */

static void work_in_flight_comes_to_its_end(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 4 * MIB, CUDA_SUCCESS);
    create(self->client, 0, CU_STREAM_NON_BLOCKING);
    create(self->client, 1, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    flyt_fake_hold(2);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    set(self->client, stream_id(0), address);
    set(self->client, stream_id(1), address);
    fake_move_stop(self);
    fake_move_expect_nothing(self);
    flyt_fake_release(1);
    fake_move_expect_nothing(self);
    flyt_fake_release(2);
    const struct flyt_manager_link_stopped *told = fake_move_expect_stopped(self, 0);
    assert_int_equal(told->sequence, self->client->xid);
    assert_int_equal(told->has_state, 1);
    assert_int_equal(told->extent_count, self->extents);
    assert_int_equal(told->last_extent_id, self->last_extent_id);
    assert_int_equal(atomic_load(&fake_move_parts.saved_sequence), self->client->xid);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPED, 0);
}

/* A host function runs for a while; behind it a call is deferred whose answer the program waits for. */
static void deferred_calls_and_host_functions_come_to_their_end(void **state)
{
    struct moved *self = *state;
    flyt_back_host_function back;
    flyt_stream_synchronize_res res;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    create(self->client, 0, CU_STREAM_NON_BLOCKING);
    SEND(self->client, FLYT_HOST_FUNCTION_LAUNCH, host_function_launch, .stream_id = stream_id(0), .function_id = 7);
    set(self->client, stream_id(0), address);
    uint32_t waits = SEND(self->client, FLYT_STREAM_SYNCHRONIZE, stream_synchronize, .stream_id = stream_id(0));
    await_back(self->client, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function, &back);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop(self);
    fake_move_expect_nothing(self);
    /* It is part of a call that had begun, and comes behind session_stopped. */
    SEND(self->client, FLYT_HOST_FUNCTION_DONE, host_function_done, .function_id = 7);
    await_reply(self->client, waits, (xdrproc_t)xdr_flyt_stream_synchronize_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(fake_move_expect_stopped(self, 0)->sequence, self->client->xid);
    assert_log("memset:1");
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPED, 0);
}

static void a_transfer_comes_to_its_end(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 4096, CUDA_SUCCESS);
    SEND(self->client, FLYT_COPY_IN_TRANSFER, copy_in_transfer, .stream_id = legacy, .dst = range(address, 1000),
         .transfer_id = 42, .bytes = 1000);
    send_chunk(self->client, 42, 0, 600);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop(self);
    fake_move_expect_nothing(self);
    send_chunk(self->client, 42, 600, 400);
    assert_int_equal(fake_move_expect_stopped(self, 0)->sequence, self->client->xid);
    assert_log("in:0 in:0");
}

/* A notice that crossed the order to stop is answered behind session_stopped: that call counts. */
static void a_call_that_comes_all_the_same_counts(void **state)
{
    struct moved *self = *state;
    flyt_back_send_all all;
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_MIRROR);
    self->order.limit = (struct flyt_manager_link_limit){.revision = 9, .memory_bytes = 256 * MIB};
    fake_move_order(self, FLYT_MANAGER_LINK_LIMIT, -1);
    await_back(self->client, FLYT_BACK_SEND_ALL, (xdrproc_t)xdr_flyt_back_send_all, &all);
    fake_move_stop(self);
    SEND(self->client, FLYT_SESSION_ALL_SENT, session_all_sent, .number = all.number);
    do /* the answer about the limit comes as well, sooner or later */
        fake_move_next(self);
    while (self->message.kind == FLYT_MANAGER_LINK_LIMIT_DONE);
    assert_int_equal(self->message.kind, FLYT_MANAGER_LINK_MOVE_STATE);
    assert_int_equal(self->message.move_state.phase, FLYT_MANAGER_LINK_MOVE_LAST);
    /* Another one, while the last pages are copied: they are copied again. */
    SEND(self->client, FLYT_STREAM_CREATE, stream_create, .stream_id = stream_id(3));
    while (atomic_load(&fake_move_parts.finished) < 2)
        usleep(1000);
    assert_int_equal(atomic_load(&fake_move_parts.gone_on), 1);
    atomic_store(&fake_move_parts.result, 0);
    do
        fake_move_next(self);
    while (self->message.kind != FLYT_MANAGER_LINK_STOPPED);
    assert_int_equal(self->message.stopped.outcome, 0);
    assert_int_equal(self->message.stopped.sequence, self->client->xid);
    assert_int_equal(self->message.stopped.pages_last, 4);
}

/* Others may still write what it shares with them. */
static void one_that_shares_waits_for_the_others(void **state)
{
    struct moved *self = *state;
    struct flyt_session *session = &self->client->session;
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    session->replaceable->counts[FLYT_REASON_SHARED] = 1;
    fake_move_order_of(self, FLYT_MANAGER_LINK_GO_ON, MOVE_ID + 1); /* of none: the loop goes round */
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -ENOTSUP);
    fake_move_send(self, MOVE_ID + 2, FLYT_MANAGER_LINK_MOVE_GIVE);
    expect_refused(self, -ENOTSUP, "shares memory");
    self->with_sharers = 1;
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_MIRROR);
    fake_move_order_of(self, FLYT_MANAGER_LINK_LAST, MOVE_ID); /* too early: it has not drained */
    uint64_t number = fake_move_stop(self);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_DRAINED, 0);
    fake_move_order_of(self, FLYT_MANAGER_LINK_LAST, MOVE_ID + 1);
    fake_move_expect_nothing(self);
    /* A call that comes all the same: it has to drain once more, and says so. */
    SEND(self->client, FLYT_STREAM_CREATE, stream_create, .stream_id = stream_id(3));
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPING, 0);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_DRAINED, 0);
    assert_int_equal(atomic_load(&fake_move_parts.finished), 0);
    fake_move_order_of(self, FLYT_MANAGER_LINK_LAST, MOVE_ID);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_LAST, 0);
    assert_int_equal(atomic_load(&fake_move_parts.finished), 1);
    atomic_store(&fake_move_parts.result, 0);
    assert_int_equal(fake_move_expect_stopped(self, 0)->sequence, self->client->xid);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPED, 0);
    /* Where LAST does not come it goes on in time. */
    fake_move_order_of(self, FLYT_MANAGER_LINK_GO_ON, MOVE_ID);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, 0);
    fake_move_await_go_on(self, number);
    fake_move_send(self, MOVE_ID, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_BEGUN, 0);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_READY, 0);
    number = fake_move_stop(self);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_DRAINED, 0);
    fake_move_pass_time(self, TIMEOUT_US);
    fake_move_expect_stopped(self, -ETIMEDOUT);
    assert_non_null(strstr((const char *)self->message.data, "share memory"));
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -ETIMEDOUT);
    fake_move_await_go_on(self, number);
}

static void mirrors_are_handed_on(void **state)
{
    struct moved *self = *state;
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_MIRROR);
    self->order.extent = (struct flyt_manager_link_extent){.extent_id = 1, .bytes = 2 * MIB};
    fake_move_order(self, FLYT_MANAGER_LINK_MIRROR, memfd_create("move_test", MFD_CLOEXEC));
    fake_move_expect_nothing(self);
    assert_int_equal(atomic_load(&fake_move_parts.mirrors), 1);
    atomic_store(&fake_move_parts.is_ready, true);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_READY, 0);
    assert_int_equal(self->message.move_state.pages_count, 12);
    fake_move_stop(self);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_LAST, 0);
    fake_move_expect_nothing(self);
    atomic_store(&fake_move_parts.result, 0);
    assert_int_equal(fake_move_expect_stopped(self, 0)->pages_last, 4);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPED, 0);
    assert_int_equal(atomic_load(&fake_move_parts.ended), 0); /* it may still go on */
}

/* Up to where the state was given to its writer. */
static uint64_t write_up_to_the_state(struct moved *self)
{
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_WRITE);
    uint64_t number = fake_move_stop(self);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_LAST, 0);
    fake_move_expect_nothing(self);
    assert_int_equal(atomic_load(&fake_move_parts.put), 0);
    atomic_store(&fake_move_parts.result, 0);
    flyt_session_kick(&self->client->session);
    fake_move_expect_nothing(self);
    assert_int_equal(atomic_load(&fake_move_parts.put), 1);
    return number;
}

static void an_image_gets_the_state_behind_the_pages(void **state)
{
    struct moved *self = *state;
    uint64_t number = write_up_to_the_state(self);
    atomic_store(&fake_move_parts.put_result, 0);
    flyt_session_kick(&self->client->session);
    const struct flyt_manager_link_stopped *told = fake_move_expect_stopped(self, 0);
    assert_int_equal(told->has_state, 1);
    assert_int_equal(told->pages_last, 4);
    assert_int_equal(told->sequence, self->client->xid);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPED, 0);
    assert_int_equal(atomic_load(&fake_move_parts.put), 1);
    /* It was a checkpoint: the program goes on. */
    fake_move_order_of(self, FLYT_MANAGER_LINK_GO_ON, MOVE_ID);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, 0);
    fake_move_await_go_on(self, number);
    fake_move_expect_work(self, alloc(self->client, 64, CUDA_SUCCESS));
}

static void an_image_that_is_not_ended_in_time_is_given_up(void **state)
{
    struct moved *self = *state;
    uint64_t number = write_up_to_the_state(self);
    fake_move_pass_time(self, TIMEOUT_US);
    fake_move_expect_stopped(self, -ETIMEDOUT);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -ETIMEDOUT);
    fake_move_await_go_on(self, number);
    assert_int_equal(atomic_load(&fake_move_parts.ended), 1);
    fake_move_expect_work(self, alloc(self->client, 64, CUDA_SUCCESS));
}

static void an_image_that_cannot_be_ended_is_given_up(void **state)
{
    struct moved *self = *state;
    uint64_t number = write_up_to_the_state(self);
    atomic_store(&fake_move_parts.put_result, -ENOSPC);
    flyt_session_kick(&self->client->session);
    fake_move_expect_stopped(self, -ENOSPC);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -ENOSPC);
    fake_move_await_go_on(self, number);
    fake_move_expect_work(self, alloc(self->client, 64, CUDA_SUCCESS));
}

static void a_call_behind_the_state_of_an_image_ends_it(void **state)
{
    struct moved *self = *state;
    uint64_t number = write_up_to_the_state(self);
    SEND(self->client, FLYT_STREAM_CREATE, stream_create, .stream_id = stream_id(3));
    fake_move_expect_stopped(self, -EPROTO);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -EPROTO);
    fake_move_await_go_on(self, number);
}

/* ---- what fails ---- */

static void what_never_ends_is_given_up_and_goes_on(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    create(self->client, 0, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    set(self->client, stream_id(0), address);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    uint64_t number = fake_move_stop(self);
    fake_move_pass_time(self, TIMEOUT_US - 1);
    fake_move_expect_nothing(self);
    fake_move_pass_time(self, 1);
    const struct flyt_manager_link_stopped *told = fake_move_expect_stopped(self, -ETIMEDOUT);
    assert_int_equal(told->has_state, 0);
    assert_non_null(strstr((const char *)self->message.data, "GPU"));
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -ETIMEDOUT);
    fake_move_await_go_on(self, number);
    set(self->client, stream_id(0), address);
    flyt_fake_release(1);
    assert_int_equal(synchronize(self->client, stream_id(0)), CUDA_SUCCESS);
    /* Another try. */
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    assert_int_equal(fake_move_stop_wholly(self), number + 1);
}

/* A call that is many operations is one of those that a move waits for: all of it, or it goes on here. */
static void a_call_of_many_pieces_ends_first(void **state)
{
    enum { SLICES = 1000 };
    struct moved *self = *state;
    uint64_t address = alloc(self->client, SLICES * SLICE_BYTES, CUDA_SUCCESS);
    create(self->client, 0, CU_STREAM_NON_BLOCKING);
    flyt_fake_log_clear();
    flyt_fake_hold(1);
    set_slices(self->client, stream_id(0), address, SLICES);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    uint64_t number = fake_move_stop(self);
    fake_move_pass_time(self, TIMEOUT_US - 1);
    fake_move_expect_nothing(self);
    assert_true(count_in_log("memset:1") < SLICES);
    fake_move_pass_time(self, 1);
    fake_move_expect_stopped(self, -ETIMEDOUT);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -ETIMEDOUT);
    fake_move_await_go_on(self, number);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_stop(self);
    fake_move_expect_nothing(self);
    flyt_fake_release(1);
    fake_move_expect_stopped(self, 0);
    assert_int_equal(count_in_log("memset:1"), SLICES);
}

static void a_program_that_does_not_stop_goes_on(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_order_of(self, FLYT_MANAGER_LINK_STOP, MOVE_ID);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPING, 0);
    uint64_t number = fake_move_await_stop(self);
    set(self->client, legacy, address); /* it had begun */
    fake_move_expect_nothing(self);
    fake_move_pass_time(self, TIMEOUT_US);
    fake_move_expect_stopped(self, -ETIMEDOUT);
    assert_non_null(strstr((const char *)self->message.data, "program has not stopped"));
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -ETIMEDOUT);
    fake_move_await_go_on(self, number);
    fake_move_answer_stop(self, number); /* late: it answers nothing */
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    fake_move_order_of(self, FLYT_MANAGER_LINK_STOP, MOVE_ID);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPING, 0);
    assert_int_equal(fake_move_await_stop(self), number + 1);
    fake_move_expect_nothing(self);
    fake_move_answer_stop(self, number + 1);
    fake_move_expect_stopped(self, 0);
}

static void pages_that_differ_end_it(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_MIRROR);
    atomic_store(&fake_move_parts.rounds, -ENOTSUP);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -ENOTSUP);
    assert_non_null(strstr((const char *)self->message.data, "differ"));
    atomic_store(&fake_move_parts.rounds, 0);
    fake_move_parts.begun = 0;
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_MIRROR);
    uint64_t number = fake_move_stop(self);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_LAST, 0);
    atomic_store(&fake_move_parts.result, -EIO);
    fake_move_expect_stopped(self, -EIO);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -EIO);
    fake_move_await_go_on(self, number);
    assert_int_equal(atomic_load(&fake_move_parts.ended), 2);
    fake_move_expect_work(self, address);
}

static void the_last_pages_have_their_time(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_MIRROR);
    uint64_t number = fake_move_stop(self);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_LAST, 0);
    fake_move_pass_time(self, TIMEOUT_US);
    fake_move_expect_stopped(self, -ETIMEDOUT);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -ETIMEDOUT);
    fake_move_await_go_on(self, number);
    fake_move_expect_work(self, address);
}

static void what_cannot_be_saved_ends_it(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    atomic_store(&fake_move_parts.save_status, -ENOTSUP);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    uint64_t number = fake_move_stop(self);
    fake_move_expect_stopped(self, -ENOTSUP);
    assert_non_null(strstr((const char *)self->message.data, "variable"));
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -ENOTSUP);
    fake_move_await_go_on(self, number);
    fake_move_expect_work(self, address);
}

static void a_program_that_goes_on_by_itself_is_not_moved(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    uint64_t number = fake_move_stop_wholly(self);
    set(self->client, legacy, address);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -EPROTO);
    fake_move_await_go_on(self, number);
    fake_move_expect_work(self, address);
}

static struct {
    typeof(fake_move_driver.cuMemsetD8Async) set;
    _Atomic(bool) is_held, is_begun;
} held;

static CUresult set_when_let(CUdeviceptr address, unsigned char value, size_t count, CUstream stream)
{
    atomic_store(&held.is_begun, true);
    while (atomic_load(&held.is_held))
        usleep(1000);
    return held.set(address, value, count, stream);
}

/* The loop finds the order to leave right behind a call that it has read: what is executed here is not sent away. */
static void a_call_that_comes_with_the_order_to_leave_ends_it(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    atomic_store(&held.is_begun, false);
    atomic_store(&held.is_held, true);
    held.set = fake_move_driver.cuMemsetD8Async;
    fake_move_driver.cuMemsetD8Async = set_when_let;
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    uint64_t number = fake_move_stop_wholly(self);
    set(self->client, legacy, address);
    while (!atomic_load(&held.is_begun))
        usleep(1000);
    fake_move_order_of(self, FLYT_MANAGER_LINK_LEAVE, MOVE_ID);
    atomic_store(&held.is_held, false);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -EPROTO);
    fake_move_await_go_on(self, number);
    fake_move_expect_work(self, address);
    assert_log("memset:0 memset:0");
}

static void end_by(struct moved *self, CUresult code)
{
    flyt_back_fatal back = {0};
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    create(self->client, 0, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    set(self->client, stream_id(0), address);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    uint64_t number = fake_move_stop(self);
    fake_move_expect_nothing(self);
    flyt_fake_fail(code);
    fake_move_next(self);
    assert_int_equal(self->message.kind, FLYT_MANAGER_LINK_STOPPED);
    assert_true(self->message.stopped.outcome < 0);
    fake_move_next(self);
    assert_int_equal(self->message.move_state.phase, FLYT_MANAGER_LINK_MOVE_OVER);
    await_back(self->client, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &back);
    assert_int_equal(back.result, code);
    xdr_free((xdrproc_t)xdr_flyt_back_fatal, &back);
    fake_move_await_go_on(self, number);
    assert_int_equal(synchronize(self->client, stream_id(0)), code);
}

static void a_fault_ends_it(void **state)
{
    end_by(*state, CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* What has not drained for certain is not moved. */
static void an_unknown_error_ends_it(void **state)
{
    end_by(*state, CUDA_ERROR_UNKNOWN);
}

/* What the driver calls done may have faulted, until no dump can come of it. */
static void one_that_leaves_dumps_is_quiet_first(void **state)
{
    enum { ALMOST_US = 200000 };
    struct moved *self = *state;
    self->client->session.leaves_coredumps = true;
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    uint64_t number = fake_move_stop(self);
    fake_move_expect_nothing(self);
    fake_move_pass_time(self, ALMOST_US);
    fake_move_expect_nothing(self);
    fake_move_pass_time(self, ALMOST_US);
    fake_move_expect_stopped(self, 0);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPED, 0);
    fake_move_order_of(self, FLYT_MANAGER_LINK_GO_ON, MOVE_ID);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, 0);
    fake_move_await_go_on(self, number);
}

static void a_suspended_program_is_moved_unless_it_waits(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    fake_move_suspend(self, true);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    uint64_t number = fake_move_stop_wholly(self);
    fake_move_order_of(self, FLYT_MANAGER_LINK_GO_ON, MOVE_ID);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, 0);
    fake_move_await_go_on(self, number);
    set(self->client, legacy, address);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
    number = fake_move_stop(self);
    fake_move_expect_stopped(self, -EBUSY);
    assert_non_null(strstr((const char *)self->message.data, "suspended"));
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -EBUSY);
    fake_move_await_go_on(self, number);
    fake_move_suspend(self, false);
    fake_move_expect_work(self, address);
}

/* Each way to be called off, in each phase: the program works as before. */
static void call_off(struct moved *self, uint32_t kind, unsigned phase)
{
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS), number = 0;
    atomic_store(&fake_move_parts.result, -EAGAIN);
    fake_move_parts.begun = 0;
    create(self->client, phase, CU_STREAM_NON_BLOCKING);
    set(self->client, stream_id(phase), address);
    assert_int_equal(synchronize(self->client, stream_id(phase)), CUDA_SUCCESS);
    fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_MIRROR);
    if (phase == 1) { /* it has not answered */
        fake_move_order_of(self, FLYT_MANAGER_LINK_STOP, MOVE_ID);
        fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPING, 0);
        number = fake_move_await_stop(self);
    } else if (phase >= 2) {
        if (phase == 2) {
            flyt_fake_hold(phase + 1);
            set(self->client, stream_id(phase), address);
        }
        number = fake_move_stop(self);
    }
    if (phase == 2)
        fake_move_expect_nothing(self);
    if (phase >= 3)
        fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_LAST, 0);
    if (phase == 4) {
        atomic_store(&fake_move_parts.result, 0);
        fake_move_expect_stopped(self, 0);
        fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPED, 0);
    }
    unsigned ended = atomic_load(&fake_move_parts.ended);
    fake_move_order_of(self, kind, MOVE_ID);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, 0);
    if (phase)
        fake_move_await_go_on(self, number);
    assert_int_equal(atomic_load(&fake_move_parts.ended), ended + 1);
    set(self->client, stream_id(phase), address);
    if (phase == 2)
        flyt_fake_release(phase + 1);
    assert_int_equal(synchronize(self->client, stream_id(phase)), CUDA_SUCCESS);
    fake_move_expect_nothing(self);
}

static void it_is_called_off_in_every_phase(void **state)
{
    for (unsigned phase = 0; phase < 5; phase++)
        call_off(*state, FLYT_MANAGER_LINK_GO_ON, phase);
}

static void the_end_of_the_link_calls_it_off_in_every_phase(void **state)
{
    for (unsigned phase = 0; phase < 5; phase++)
        call_off(*state, FLYT_MANAGER_LINK_REJOIN, phase); /* what the watching thread leaves */
}

static void it_fails_where_a_test_wants_it(void **state)
{
    static const char *const points[] = {"move.stop", "move.drain", "move.last", "move.state", "move.stopped"};
    struct moved *self = *state;
    char text[64];
    assert_int_equal(flyt_fault_set("move.begin:error"), 0);
    fake_move_send(self, MOVE_ID, FLYT_MANAGER_LINK_MOVE_GIVE);
    expect_refused(self, -EIO, "move.begin");
    assert_int_equal(flyt_fault_set(NULL), 0);
    for (unsigned i = 0; i < sizeof points / sizeof points[0]; i++) {
        fake_move_begin(self, FLYT_MANAGER_LINK_MOVE_GIVE);
        snprintf(text, sizeof text, "%s:error", points[i]);
        assert_int_equal(flyt_fault_set(text), 0);
        fake_move_order_of(self, FLYT_MANAGER_LINK_STOP, MOVE_ID);
        if (i > 0)
            fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPING, 0);
        uint64_t number = i > 0 ? fake_move_await_stop(self) : 0;
        if (i > 0)
            fake_move_answer_stop(self, number);
        fake_move_expect_stopped(self, -EIO);
        assert_non_null(strstr((const char *)self->message.data, points[i]));
        fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, -EIO);
        if (i > 0)
            fake_move_await_go_on(self, number);
        barrier(self->client);
        assert_int_equal(flyt_fault_set(NULL), 0);
    }
}

int main(void)
{
#define TEST(name)       cmocka_unit_test_setup_teardown(name, fake_move_set_up, fake_move_tear_down)
#define UNATTACHED(name) cmocka_unit_test_setup_teardown(name, fake_move_set_up_unattached, fake_move_tear_down)
#define ALONE(name)      cmocka_unit_test_setup_teardown(name, fake_move_set_up_alone, fake_move_tear_down)
    const struct CMUnitTest tests[] = {
        UNATTACHED(not_before_its_program_is_there),
        UNATTACHED(an_older_client_is_not_moved),
        TEST(one_move_at_a_time),
        ALONE(what_cannot_be_moved_is_refused_by_name),
        ALONE(an_object_that_stays_is_named),
        TEST(where_there_is_no_room_that_is_said),
        TEST(the_node_manager_hears_that_it_can),
        TEST(work_in_flight_comes_to_its_end),
        TEST(deferred_calls_and_host_functions_come_to_their_end),
        TEST(a_transfer_comes_to_its_end),
        TEST(a_call_that_comes_all_the_same_counts),
        TEST(one_that_shares_waits_for_the_others),
        TEST(one_that_leaves_dumps_is_quiet_first),
        TEST(mirrors_are_handed_on),
        TEST(an_image_gets_the_state_behind_the_pages),
        TEST(an_image_that_is_not_ended_in_time_is_given_up),
        TEST(an_image_that_cannot_be_ended_is_given_up),
        TEST(a_call_behind_the_state_of_an_image_ends_it),
        TEST(what_never_ends_is_given_up_and_goes_on),
        TEST(a_call_of_many_pieces_ends_first),
        TEST(a_program_that_does_not_stop_goes_on),
        TEST(pages_that_differ_end_it),
        TEST(the_last_pages_have_their_time),
        TEST(what_cannot_be_saved_ends_it),
        TEST(a_program_that_goes_on_by_itself_is_not_moved),
        TEST(a_call_that_comes_with_the_order_to_leave_ends_it),
        TEST(a_fault_ends_it),
        TEST(an_unknown_error_ends_it),
        TEST(a_suspended_program_is_moved_unless_it_waits),
        TEST(it_is_called_off_in_every_phase),
        TEST(the_end_of_the_link_calls_it_off_in_every_phase),
        TEST(it_fails_where_a_test_wants_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
