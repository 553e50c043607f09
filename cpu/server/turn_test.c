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

#include "cpu/server/fake_client.h"
#include "rpc/base/clock.h"

enum { ALLOCATION = 7, SERVER = 70, OTHER = 8, OTHER_SERVER = 80, WINDOW_MS = 100 };

struct shared {
    struct fixture *client;
    struct flyt_manager manager;
    int fd; /* the node manager's end of the link */
    struct flyt_server_link_message message;
    struct flyt_turns *turns; /* NULL: the device is not shared in time */
    unsigned other_place;
    uint64_t revision;
};

static struct flyt_turns *make_turns(unsigned *ret_other_place)
{
    const struct flyt_turn_share half = {.minimum_pct = 50, .maximum_pct = 100, .window_ms = WINDOW_MS};
    struct flyt_turns *turns;
    assert_int_equal(flyt_turns_new(&turns), 0);
    assert_int_equal(flyt_turns_set(turns, flyt_server_link_tenant(ALLOCATION, 0), &half, 1), 0);
    assert_int_equal(flyt_turns_set(turns, OTHER, &half, 1), 0);
    int place = flyt_turns_join(turns, OTHER, OTHER_SERVER);
    assert_true(place >= 0);
    *ret_other_place = (unsigned)place;
    return turns;
}

static int begin(void **state, bool is_shared)
{
    struct shared *self = calloc(1, sizeof *self);
    struct flyt_server_link_session granted = {
        .session_id = 1, .server_id = SERVER, .allocation_id = ALLOCATION, .slot_count = 1, .group_size = 8};
    int fds[2], turns_fd = -1;
    assert_non_null(self);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    const struct timeval limit = {.tv_sec = 20};
    setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    self->fd = fds[0];
    self->client = make();
    if (is_shared) {
        self->turns = make_turns(&self->other_place);
        turns_fd = flyt_turns_fd(self->turns);
        granted.slots[0].flags = FLYT_SERVER_LINK_HAS_TURNS;
    }
    assert_int_equal(flyt_manager_open(&self->manager, fds[1], &granted, &turns_fd), 0);
    struct flyt_session *session = &self->client->session;
    session->manager = &self->manager;
    assert_int_equal(flyt_turn_open(&session->devices[0], &granted, 0, self->manager.turns[0]), 0);
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
    flyt_turns_close(self->turns);
    free(self);
    return 0;
}

/* ---- the other VM ---- */

static bool tell(struct shared *self, enum flyt_turn_state state)
{
    struct flyt_turn_answer answer;
    assert_int_equal(flyt_turns_tell(self->turns, self->other_place, OTHER_SERVER, state, &answer), 0);
    return answer.is_granted;
}

/* Has the token when this returns, however long the session wants to keep it. */
static void take_token(struct shared *self)
{
    const uint64_t until_ns = flyt_clock_ns() + 20000000000ull;
    for (;;) {
        uint32_t wakes = flyt_turns_wakes(self->turns, self->other_place);
        if (tell(self, FLYT_TURN_WAITS))
            return;
        assert_true(flyt_clock_ns() < until_ns);
        flyt_turns_wait(self->turns, self->other_place, wakes, 1000000000);
    }
}

/* Looks after its work, for longer than its grant: what it has on the GPU takes so long. */
static void keep_token(struct shared *self)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    for (unsigned i = 0; i < 10; i++) {
        nanosleep(&pause, NULL);
        flyt_turns_be_seen(self->turns, self->other_place, flyt_clock_ns());
        tell(self, FLYT_TURN_RUNS);
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
    const uint64_t until_ns = flyt_clock_ns() + 20000000000ull;
    const struct timespec pause = {.tv_nsec = 1000000};
    while (count_in_log(word) < count) {
        assert_true(flyt_clock_ns() < until_ns);
        nanosleep(&pause, NULL);
    }
    assert_int_equal(count_in_log(word), count);
}

static uint64_t order(struct shared *self, bool is_suspended, int priority, int turns_fd)
{
    struct flyt_server_link_message message = {.kind = FLYT_SERVER_LINK_SHARE};
    message.share = (struct flyt_server_link_share){
        .revision = ++self->revision, .is_suspended = is_suspended, .priority = priority, .has_turns = turns_fd >= 0};
    assert_int_equal(flyt_manager_leave_order_with(&self->manager, &message,
                                                   turns_fd >= 0 ? fcntl(turns_fd, F_DUPFD_CLOEXEC, 0) : -1),
                     0);
    flyt_session_kick(&self->client->session);
    return self->revision;
}

static void expect(struct shared *self, uint64_t revision)
{
    do
        hear(self->fd, &self->message);
    while (self->message.kind != FLYT_SERVER_LINK_SHARE_DONE);
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
    tell(self, FLYT_TURN_IDLE);
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
    assert_false(tell(self, FLYT_TURN_WAITS));
    /* Beyond the end of its grant, it gives nothing more to the GPU, in no stream. */
    const struct timespec pause = {.tv_nsec = 60000000};
    nanosleep(&pause, NULL);
    set(client, stream_id(1), address);
    set(client, stream_id(1), address);
    await_rounds(self);
    assert_int_equal(count_in_log("memset:2"), 0);
    assert_false(tell(self, FLYT_TURN_WAITS));
    flyt_fake_release(1);
    take_token(self);
    assert_int_equal(count_in_log("memset:2"), 0);
    tell(self, FLYT_TURN_IDLE);
    await_log("memset:2", 2);
    /* And again, for it has nothing to do. */
    take_token(self);
    struct flyt_turns_state its;
    assert_int_equal(flyt_turns_read(self->turns, flyt_server_link_tenant(ALLOCATION, 0), &its), 0);
    assert_true(its.used_ns > 0 && its.grant_count >= 2 && !its.is_holder);
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
    tell(self, FLYT_TURN_IDLE);
    await_log("in:1", 3);
    assert_int_equal(synchronize(client, stream_id(0)), CUDA_SUCCESS);
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
        tell(self, FLYT_TURN_IDLE);
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
    unsigned place;
    struct flyt_turns *turns = make_turns(&place);
    expect(self, order(self, false, 0, flyt_turns_fd(turns)));
    await_log("memset:1", 1); /* nobody has that one */
    assert_false(flyt_turns_has(self->turns, SERVER));
    assert_true(flyt_turns_has(turns, SERVER));
    flyt_turns_close(self->turns);
    self->turns = turns;
    self->other_place = place;
    take_token(self);
    set(self->client, stream_id(0), address);
    await_rounds(self);
    assert_int_equal(count_in_log("memset:1"), 1);
    tell(self, FLYT_TURN_IDLE);
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
    uint64_t revision = order(self, true, 0, -1);
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
    expect(self, order(self, false, 0, -1));
    expect_everything();
}

/* One that is suspended has no turn, though nobody else wants it; others have it at once. */
static void suspended_with_a_token(void **state)
{
    struct shared *self = *state;
    uint64_t address = prepare(self);
    set(self->client, stream_id(0), address);
    await_log("memset:1", 1);
    expect(self, order(self, true, 0, -1));
    take_token(self);
    tell(self, FLYT_TURN_IDLE);
    set(self->client, stream_id(0), address);
    await_rounds(self);
    assert_int_equal(count_in_log("memset:1"), 1);
    expect(self, order(self, false, 0, -1));
    await_log("memset:1", 2);
}

/* The VM's priority raises the program's, within the GPU's range (0 to -5), for the streams that are there, too. */
static void priority_moves_streams(void **state)
{
    struct shared *self = *state;
    struct fixture *client = self->client;
    SEND(client, FLYT_STREAM_CREATE, stream_create, .stream_id = stream_id(0), .flags = CU_STREAM_NON_BLOCKING,
         .priority = -4);
    await_rounds(self);
    flyt_fake_log_clear();
    expect(self, order(self, false, 2, -1));
    await_log("stream:2@1,-5", 1); /* -6 there is not */
    await_log("stream:3@1,-2", 1); /* the legacy stream */
    create(client, 1, CU_STREAM_NON_BLOCKING);
    await_log("stream:4@1,-2", 1);
    expect(self, order(self, false, -3, -1));
    await_log("@1,-1", 1);
    await_log("@1,0", 2);
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
    uint64_t revision = order(self, true, 0, -1);
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
        SHARED(a_large_copy_stops_in_the_middle),
        SHARED(many_turns_lose_nothing),
        SHARED(another_token_takes_the_first_ones_place),
        ALONE(suspend_and_resume),
        SHARED(suspended_with_a_token),
        ALONE(priority_moves_streams),
        ALONE(a_lost_context_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
