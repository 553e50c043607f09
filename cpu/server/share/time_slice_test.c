/*
 * The gate of a device that is shared in time, over a driver that does nothing: what passes and what waits, when the
 * token is given back, and suspended VMs. The test plays the VM that shares with the session's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <cmocka.h>

#include "cpu/server/test/fake_client.h"
#include "cpu/server/share/time_slice.h"
#include "rpc/base/clock.h"

enum { ALLOCATION = 7, SERVER = 70, OTHER = 8, OTHER_SERVER = 80, WINDOW_MS = 100 };

struct shared {
    struct fixture *client;
    struct flyt_manager manager;
    int fd; /* the node manager's end of the link */
    struct flyt_manager_link_message message;
    struct flyt_time_slices *time_slices; /* NULL: the device is not shared in time */
    struct flyt_time_slice_seat *other;   /* of the other VM */
    uint64_t revision;
};

static struct flyt_time_slices *make_time_slices(struct flyt_time_slice_seat **ret_other, int *ret_fds)
{
    const struct flyt_time_slice_share half = {.minimum_pct = 50, .maximum_pct = 100, .window_ms = WINDOW_MS};
    struct flyt_time_slices *time_slices;
    assert_int_equal(flyt_time_slices_new(&time_slices), 0);
    assert_int_equal(flyt_time_slices_set(time_slices, flyt_manager_link_tenant(ALLOCATION, 0), &half, 1), 0);
    assert_int_equal(flyt_time_slices_set(time_slices, OTHER, &half, 1), 0);
    assert_int_equal(flyt_time_slices_join(time_slices, OTHER, OTHER_SERVER, ret_fds), 0);
    assert_int_equal(flyt_time_slice_seat_open(ret_fds, ret_other), 0);
    assert_int_equal(flyt_time_slices_join(time_slices, flyt_manager_link_tenant(ALLOCATION, 0), SERVER, ret_fds), 0);
    return time_slices;
}

static int begin(void **state, bool is_shared)
{
    struct shared *self = calloc(1, sizeof *self);
    struct flyt_manager_link_session granted = {
        .session_id = 1, .server_id = SERVER, .allocation_id = ALLOCATION, .slot_count = 1, .group_size = 8};
    int fds[2], time_slices_fds[FLYT_TIME_SLICES_FDS];
    assert_non_null(self);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    const struct timeval limit = {.tv_sec = 20};
    setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    self->fd = fds[0];
    self->client = make();
    if (is_shared) {
        self->time_slices = make_time_slices(&self->other, time_slices_fds);
        granted.slots[0].flags = FLYT_MANAGER_LINK_HAS_TIME_SLICES;
    }
    assert_int_equal(flyt_manager_open(&self->manager, fds[1], &granted, time_slices_fds), 0);
    struct flyt_session *session = &self->client->session;
    session->manager = &self->manager;
    assert_int_equal(flyt_time_slice_open(&session->devices[0], &granted, 0, self->manager.seats[0]), 0);
    flyt_fake_be_exact();
    assert_int_equal(pthread_create(&self->client->thread, NULL, serve, self->client), 0);
    *state = self;
    return 0;
}

static int begin_shared(void **state)
{
    return begin(state, true);
}

static int begin_alone(void **state)
{
    return begin(state, false);
}

static int end(void **state)
{
    struct shared *self = *state;
    void *client = self->client;
    tear_down(&client);
    close(self->fd);
    close(flyt_manager_change_link(&self->manager, -1));
    flyt_time_slice_seat_close(self->other);
    flyt_time_slices_close(self->time_slices);
    free(self);
    return 0;
}

/* ---- the other VM ---- */

static bool tell(struct shared *self, enum flyt_time_slice_state state)
{
    uint64_t again_ns;
    return flyt_time_slice_seat_tell(self->other, state, flyt_clock_ns(), &again_ns);
}

/* Has the token when this returns, however long the session wants to keep it. */
static void take_token(struct shared *self)
{
    const uint64_t until_ns = flyt_clock_ns() + 60000000000ull;
    for (;;) {
        uint32_t wakes = flyt_time_slice_seat_wakes(self->other);
        if (tell(self, FLYT_TIME_SLICE_WAITS))
            return;
        assert_true(flyt_clock_ns() < until_ns);
        flyt_time_slice_seat_wait(self->other, wakes, 1000000000);
    }
}

/* Asks for the token until the session gives nothing more to the GPU. */
static void close_gate(struct shared *self)
{
    const uint64_t until_ns = flyt_clock_ns() + 60000000000ull;
    const struct timespec pause = {.tv_nsec = 1000000};
    while (!*(volatile bool *)&self->client->session.devices[0].time_slice_gate.is_closed) {
        tell(self, FLYT_TIME_SLICE_WAITS);
        assert_true(flyt_clock_ns() < until_ns);
        nanosleep(&pause, NULL);
    }
}

/* Looks after its work, for longer than its grant: what it has on the GPU takes so long. */
static void keep_token(struct shared *self)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    for (unsigned i = 0; i < 10; i++) {
        nanosleep(&pause, NULL);
        flyt_time_slice_seat_be_seen(self->other, flyt_clock_ns());
        tell(self, FLYT_TIME_SLICE_RUNS);
    }
}

/* ---- the session ---- */

/* The server has taken everything that was sent, and has looked at it several times. */
static void await_rounds(struct shared *self)
{
    for (unsigned i = 0; i < 5; i++)
        query(self->client, stream_id(9)); /* which there is not: answered at once */
}

static void await_log(const char *word, unsigned count)
{
    const uint64_t until_ns = flyt_clock_ns() + 60000000000ull;
    const struct timespec pause = {.tv_nsec = 1000000};
    while (count_in_log(word) < count) {
        assert_true(flyt_clock_ns() < until_ns);
        nanosleep(&pause, NULL);
    }
    assert_int_equal(count_in_log(word), count);
}

static uint64_t order(struct shared *self, bool is_suspended, int priority, const int *time_slices_fds)
{
    struct flyt_manager_link_message message = {.kind = FLYT_MANAGER_LINK_SHARE};
    message.share = (struct flyt_manager_link_share){.revision = ++self->revision,
                                                     .is_suspended = is_suspended,
                                                     .priority = priority,
                                                     .has_time_slices = time_slices_fds != NULL};
    int fds[FLYT_TIME_SLICES_FDS];
    for (unsigned i = 0; time_slices_fds && i < FLYT_TIME_SLICES_FDS; i++)
        fds[i] = fcntl(time_slices_fds[i], F_DUPFD_CLOEXEC, 0);
    assert_int_equal(
        flyt_manager_leave_order_with_all(&self->manager, &message, fds, time_slices_fds ? FLYT_TIME_SLICES_FDS : 0),
        0);
    flyt_session_kick(&self->client->session);
    return self->revision;
}

static void expect(struct shared *self, uint64_t revision)
{
    do
        hear(self->fd, &self->message);
    while (self->message.kind != FLYT_MANAGER_LINK_SHARE_DONE);
    assert_int_equal(self->message.share_done.revision, revision);
    assert_int_equal(self->message.share_done.outcome, 0);
}

static void expect_no_answer(struct shared *self)
{
    await_rounds(self);
    assert_int_equal(recv(self->fd, &self->message, sizeof self->message, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

/* Two streams: driver streams 1 and 2. */
static uint64_t prepare(struct shared *self)
{
    uint64_t address = alloc(self->client, 4096, CUDA_SUCCESS);
    create(self->client, 0, CU_STREAM_NON_BLOCKING);
    create(self->client, 1, CU_STREAM_NON_BLOCKING);
    await_rounds(self);
    return address;
}

/* One of each kind, each on a stream of its own; nothing of it reaches the GPU yet. */
static void send_everything(struct shared *self, uint64_t address)
{
    static char bytes[64];
    struct fixture *client = self->client;
    for (unsigned i = 2; i < 7; i++)
        create(client, i, CU_STREAM_NON_BLOCKING); /* driver streams 3 to 7 */
    set(client, stream_id(2), address);
    SEND(client, FLYT_COPY_IN, copy_in, .stream_id = stream_id(3), .dst = range(address, 64),
         .data = {.data_len = 64, .data_val = bytes});
    SEND(client, FLYT_COPY_WITHIN, copy_within, .stream_id = stream_id(4), .dst = range(address + 64, 64),
         .src = range(address, 64));
    SEND(client, FLYT_COPY_IN_TRANSFER, copy_in_transfer, .stream_id = stream_id(5), .dst = range(address, 1000),
         .transfer_id = 1, .bytes = 1000);
    send_chunk(client, 1, 0, 1000);
    SEND(client, FLYT_COPY_OUT_TRANSFER, copy_out_transfer, .stream_id = stream_id(6), .src = range(address, 1000),
         .transfer_id = 2, .bytes = 1000);
}

static void expect_everything(void)
{
    await_log("memset:3", 1);
    await_log("pageable:4", 1);
    await_log("within:5", 1);
    await_log("in:6", 1);
    await_log("out:7", 1);
}

static void expect_no_work(void)
{
    assert_int_equal(count_in_log("memset:") + count_in_log("in:") + count_in_log("pageable:") + count_in_log("out:"),
                     0);
}

/* ---- tests ---- */

static void everything_waits_for_the_token(void **state)
{
    struct shared *self = *state;
    uint64_t address = prepare(self);
    take_token(self);
    flyt_fake_log_clear();
    send_everything(self, address);
    await_rounds(self);
    keep_token(self);
    await_rounds(self);
    expect_no_work();
    tell(self, FLYT_TIME_SLICE_IDLE);
    expect_everything();
}

/* What is no work of the GPU does not wait for it: who only looks at events, or waits for a host function, goes on. */
static void events_and_host_functions_pass(void **state)
{
    struct shared *self = *state;
    struct fixture *client = self->client;
    flyt_back_host_function back;
    flyt_event_synchronize_res res;
    prepare(self);
    take_token(self);
    SEND(client, FLYT_EVENT_CREATE, event_create, .event_id = event_id(1));
    SEND(client, FLYT_EVENT_RECORD, event_record, .event_id = event_id(1), .stream_id = stream_id(0));
    SEND(client, FLYT_STREAM_WAIT_EVENT, stream_wait_event, .stream_id = stream_id(1), .event_id = event_id(1));
    uint32_t xid = SEND(client, FLYT_EVENT_SYNCHRONIZE, event_synchronize, .event_id = event_id(1));
    await_reply(client, xid, (xdrproc_t)xdr_flyt_event_synchronize_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(synchronize(client, stream_id(1)), CUDA_SUCCESS);
    SEND(client, FLYT_HOST_FUNCTION_LAUNCH, host_function_launch, .stream_id = stream_id(0), .function_id = 7);
    await_back(client, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function, &back);
    SEND(client, FLYT_HOST_FUNCTION_DONE, host_function_done, .function_id = 7);
    assert_int_equal(synchronize(client, stream_id(0)), CUDA_SUCCESS);
}

/* A session that has nothing to do loses the token without being asked; one that has keeps it until that is done. */
static void the_token_goes_when_the_work_is_done(void **state)
{
    struct shared *self = *state;
    struct fixture *client = self->client;
    uint64_t address = prepare(self);
    flyt_fake_hold(1);
    set(client, stream_id(0), address);
    await_log("memset:1", 1);
    assert_false(tell(self, FLYT_TIME_SLICE_WAITS));
    /* Beyond the end of its grant, it gives nothing more to the GPU, in no stream. */
    const struct timespec pause = {.tv_nsec = 60000000};
    nanosleep(&pause, NULL);
    set(client, stream_id(1), address);
    set(client, stream_id(1), address);
    await_rounds(self);
    assert_int_equal(count_in_log("memset:2"), 0);
    assert_false(tell(self, FLYT_TIME_SLICE_WAITS));
    flyt_fake_release(1);
    take_token(self);
    assert_int_equal(count_in_log("memset:2"), 0);
    tell(self, FLYT_TIME_SLICE_IDLE);
    await_log("memset:2", 2);
    /* And again, for it has nothing to do. */
    take_token(self);
    struct flyt_time_slices_state its;
    assert_int_equal(flyt_time_slices_read(self->time_slices, flyt_manager_link_tenant(ALLOCATION, 0), &its), 0);
    assert_true(its.used_ns > 0 && its.grant_count >= 2 && !its.is_holder);
}

static struct flyt_time_slices_server said(struct shared *self)
{
    struct flyt_time_slices_server all[FLYT_TIME_SLICE_SERVERS_MAX];
    unsigned count = flyt_time_slices_look(self->time_slices, all);
    while (count && all[count - 1].server_id != SERVER)
        count--;
    assert_true(count);
    return all[count - 1];
}

/* Work that takes long: the session says so itself, the other VM goes on beside it, and it begins again when that is
 * done and it is its time_slice. */
static void long_work_is_told(void **state)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct shared *self = *state;
    struct fixture *client = self->client;
    uint64_t address = prepare(self);
    flyt_fake_hold(1);
    set(client, stream_id(0), address);
    await_log("memset:1", 1);
    take_token(self); /* though nothing is released */
    set(client, stream_id(1), address);
    await_rounds(self);
    assert_int_equal(count_in_log("memset:2"), 0);
    assert_true(said(self).over_ns && !said(self).is_kept);
    tell(self, FLYT_TIME_SLICE_IDLE);
    await_rounds(self);
    assert_int_equal(count_in_log("memset:2"), 0);
    flyt_fake_release(1);
    await_log("memset:2", 1);
    while (said(self).over_ns)
        nanosleep(&pause, NULL);
}

/* The chunks of a large copy pass one by one: what has begun before the grant's end stops at it. */
static void a_large_copy_stops_in_the_middle(void **state)
{
    struct shared *self = *state;
    struct fixture *client = self->client;
    uint64_t address = prepare(self);
    SEND(client, FLYT_COPY_IN_TRANSFER, copy_in_transfer, .stream_id = stream_id(0), .dst = range(address, 3000),
         .transfer_id = 1, .bytes = 3000);
    send_chunk(client, 1, 0, 1000);
    await_log("in:1", 1);
    take_token(self);
    send_chunk(client, 1, 1000, 1000);
    send_chunk(client, 1, 2000, 1000);
    await_rounds(self);
    assert_int_equal(count_in_log("in:1"), 1);
    tell(self, FLYT_TIME_SLICE_IDLE);
    await_log("in:1", 3);
    assert_int_equal(synchronize(client, stream_id(0)), CUDA_SUCCESS);
}

/* A single call of many operations: those that its end finds outside of the GPU wait for the next grant. Under a node
 * manager the driver has FLYT_PACE_DEPTH_FIRST of them at first. */
static void a_call_of_many_pieces_stops_in_the_middle(void **state)
{
    enum { SLICES = 1000 };
    struct shared *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, SLICES * SLICE_BYTES, CUDA_SUCCESS);
    prepare(self);
    flyt_fake_log_clear();
    flyt_fake_hold(1);
    set_slices(client, stream_id(0), address, SLICES);
    await_log("memset:1", FLYT_PACE_DEPTH_FIRST);
    await_rounds(self);
    assert_int_equal(count_in_log("memset:1"), FLYT_PACE_DEPTH_FIRST);
    /* Another VM asks for the token, and has it when the GPU is done with these. */
    close_gate(self);
    flyt_fake_release(1);
    take_token(self);
    await_rounds(self);
    keep_token(self);
    await_rounds(self);
    assert_int_equal(count_in_log("memset:1"), FLYT_PACE_DEPTH_FIRST);
    assert_int_equal(query(client, stream_id(0)), CUDA_ERROR_NOT_READY);
    assert_int_equal(query(client, stream_id(1)), CUDA_SUCCESS);
    tell(self, FLYT_TIME_SLICE_IDLE);
    assert_int_equal(synchronize(client, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(count_in_log("memset:1"), SLICES);
}

static void many_turns_lose_nothing(void **state)
{
    enum { ROUNDS = 200, CALLS = 20 };
    struct shared *self = *state;
    uint64_t address = prepare(self);
    for (unsigned i = 0; i < ROUNDS; i++) {
        flyt_fake_log_clear();
        take_token(self);
        for (unsigned j = 0; j < CALLS; j++)
            set(self->client, stream_id(j % 2), address);
        if (i % 2)
            await_rounds(self);
        assert_int_equal(count_in_log("memset:"), 0);
        tell(self, FLYT_TIME_SLICE_IDLE);
        assert_int_equal(synchronize(self->client, stream_id(0)), CUDA_SUCCESS);
        assert_int_equal(synchronize(self->client, stream_id(1)), CUDA_SUCCESS);
        assert_int_equal(count_in_log("memset:1"), CALLS / 2);
        assert_int_equal(count_in_log("memset:2"), CALLS / 2);
    }
}

/* The node manager was restarted and has another token now. */
static void another_token_takes_the_first_ones_place(void **state)
{
    struct shared *self = *state;
    uint64_t address = prepare(self);
    take_token(self);
    set(self->client, stream_id(0), address);
    await_rounds(self);
    struct flyt_time_slice_seat *other;
    int fds[FLYT_TIME_SLICES_FDS];
    struct flyt_time_slices *time_slices = make_time_slices(&other, fds);
    expect(self, order(self, false, 0, fds));
    await_log("memset:1", 1); /* nobody has that one */
    flyt_time_slice_seat_close(self->other);
    flyt_time_slices_close(self->time_slices);
    self->time_slices = time_slices;
    self->other = other;
    take_token(self);
    set(self->client, stream_id(0), address);
    await_rounds(self);
    assert_int_equal(count_in_log("memset:1"), 1);
    tell(self, FLYT_TIME_SLICE_IDLE);
    await_log("memset:1", 2);
}

/* Acknowledged when the GPU has nothing of it any more; queries and memory go on; later everything does, in order. */
static void suspend_and_resume(void **state)
{
    struct shared *self = *state;
    struct fixture *client = self->client;
    uint64_t address = prepare(self);
    flyt_fake_hold(1);
    set(client, stream_id(0), address);
    await_log("memset:1", 1);
    uint64_t revision = order(self, true, 0, NULL);
    expect_no_answer(self);
    flyt_fake_release(1);
    expect(self, revision);
    flyt_fake_log_clear();
    send_everything(self, address);
    assert_int_equal(query(client, stream_id(2)), CUDA_ERROR_NOT_READY);
    assert_int_equal(query(client, stream_id(1)), CUDA_SUCCESS);
    alloc(client, 4096, CUDA_SUCCESS);
    await_rounds(self);
    expect_no_work();
    expect(self, order(self, false, 0, NULL));
    expect_everything();
}

static void suspend_in_the_middle_of_a_call(void **state)
{
    enum { SLICES = 1000 };
    struct shared *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, SLICES * SLICE_BYTES, CUDA_SUCCESS);
    prepare(self);
    flyt_fake_log_clear();
    flyt_fake_hold(1);
    set_slices(client, stream_id(0), address, SLICES);
    await_log("memset:1", FLYT_PACE_DEPTH_FIRST);
    uint64_t revision = order(self, true, 0, NULL);
    expect_no_answer(self);
    flyt_fake_release(1);
    expect(self, revision);
    await_rounds(self);
    assert_int_equal(count_in_log("memset:1"), FLYT_PACE_DEPTH_FIRST);
    assert_int_equal(query(client, stream_id(0)), CUDA_ERROR_NOT_READY);
    expect(self, order(self, false, 0, NULL));
    assert_int_equal(synchronize(client, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(count_in_log("memset:1"), SLICES);
}

/* One that is suspended has no time slice, though nobody else wants it; others have it at once. */
static void suspended_with_a_token(void **state)
{
    struct shared *self = *state;
    uint64_t address = prepare(self);
    set(self->client, stream_id(0), address);
    await_log("memset:1", 1);
    expect(self, order(self, true, 0, NULL));
    take_token(self);
    tell(self, FLYT_TIME_SLICE_IDLE);
    set(self->client, stream_id(0), address);
    await_rounds(self);
    assert_int_equal(count_in_log("memset:1"), 1);
    expect(self, order(self, false, 0, NULL));
    await_log("memset:1", 2);
}

/* A program has two levels of the GPU's six, by the class of its VM, for the streams that are there, too. */
static void priority_moves_streams(void **state)
{
    struct shared *self = *state;
    struct fixture *client = self->client;
    SEND(client, FLYT_STREAM_CREATE, stream_create, .stream_id = stream_id(0), .flags = CU_STREAM_NON_BLOCKING,
         .priority = -4);
    await_rounds(self);
    await_log("stream:1@1,-3", 1);
    flyt_fake_log_clear();
    expect(self, order(self, false, 2, NULL));
    await_log("stream:2@1,-5", 1);
    await_log("stream:3@1,-4", 1); /* the legacy stream */
    create(client, 1, CU_STREAM_NON_BLOCKING);
    await_log("stream:4@1,-4", 1);
    expect(self, order(self, false, -3, NULL));
    await_log("@1,-1", 1);
    await_log("@1,0", 2);
    flyt_fake_log_clear();
    expect(self, order(self, false, 0, NULL));
    await_log("@1,-3", 1);
    await_log("@1,-2", 2);
}

/* What waits at the gate of a context that is lost hears of that. */
static void a_lost_context_passes(void **state)
{
    struct shared *self = *state;
    struct fixture *client = self->client;
    flyt_back_fatal back = {0};
    uint64_t address = prepare(self);
    flyt_fake_hold(1);
    set(client, stream_id(0), address);
    await_log("memset:1", 1);
    uint64_t revision = order(self, true, 0, NULL);
    set(client, stream_id(1), address);
    flyt_fake_fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    expect(self, revision);
    await_back(client, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &back);
    assert_int_equal(back.result, CUDA_ERROR_ILLEGAL_ADDRESS);
    xdr_free((xdrproc_t)xdr_flyt_back_fatal, &back);
}

#define SHARED(function) cmocka_unit_test_setup_teardown(function, begin_shared, end)
#define ALONE(function)  cmocka_unit_test_setup_teardown(function, begin_alone, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHARED(everything_waits_for_the_token),
        SHARED(events_and_host_functions_pass),
        SHARED(the_token_goes_when_the_work_is_done),
        SHARED(long_work_is_told),
        SHARED(a_large_copy_stops_in_the_middle),
        SHARED(a_call_of_many_pieces_stops_in_the_middle),
        SHARED(many_turns_lose_nothing),
        SHARED(another_token_takes_the_first_ones_place),
        ALONE(suspend_and_resume),
        ALONE(suspend_in_the_middle_of_a_call),
        SHARED(suspended_with_a_token),
        ALONE(priority_moves_streams),
        ALONE(a_lost_context_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
