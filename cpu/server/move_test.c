/*
 * A session that is moved, on the side that it leaves: over a driver that does nothing, with a client and a node
 * manager that the test plays; and with what copies pages and saves state in the test's hands, so that each step lasts
 * as long as the test wants. Time stands where it limits something.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "cpu/server/copying.h"
#include "cpu/server/fake_client.h"
#include "cpu/server/save.h"
#include "rpc/base/fault_point.h"

enum { MIB = 1 << 20, SERVER_ID = 5, MOVE_ID = 77, TIMEOUT_US = 1000 * 1000, ROUNDS = 5, BAD_SLOT = 3 };

static _Atomic(uint64_t) now_ns;

static uint64_t standing_clock_ns(void)
{
    return atomic_load(&now_ns);
}

/* ---- the parts in the place of others: the linker puts these where move.c calls them ---- */

static struct {
    _Atomic(int) result; /* of the copying, as soon as it is to finish */
    _Atomic(int) rounds; /* of the copying, before: 0 or an error */
    _Atomic(bool) is_ready;
    _Atomic(int) begin_status, save_status;
    _Atomic(unsigned) begun, finished, ended, mirrors, gone_on, listed;
    _Atomic(uint64_t) saved_sequence;
    bool is_finishing;
} parts;

CUresult __wrap_flyt_copying_begin(struct flyt_session *session, const struct flyt_server_link_move *move,
                                   struct flyt_error *err);
void __wrap_flyt_copying_mirror(struct flyt_session *session, const struct flyt_server_link_extent *extent, int fd);
bool __wrap_flyt_copying_advance(struct flyt_session *session);
void __wrap_flyt_copying_state(const struct flyt_session *session, struct flyt_server_link_move_state *ret_state);
void __wrap_flyt_copying_finish(struct flyt_session *session);
void __wrap_flyt_copying_go_on(struct flyt_session *session);
int __wrap_flyt_copying_result(const struct flyt_session *session);
const char *__wrap_flyt_copying_sentence(const struct flyt_session *session);
uint64_t __wrap_flyt_copying_pages_last(const struct flyt_session *session);
void __wrap_flyt_copying_end(struct flyt_session *session);
void __wrap_flyt_save_libraries(struct flyt_session *session);
int __wrap_flyt_save_state(struct flyt_session *session, uint64_t sequence, struct flyt_error *err);

CUresult __wrap_flyt_copying_begin(struct flyt_session *session, const struct flyt_server_link_move *move,
                                   struct flyt_error *err)
{
    int status = atomic_load(&parts.begin_status);
    if (status)
        return flyt_error_set(err, status, "no room to copy"), CUDA_ERROR_OUT_OF_MEMORY;
    atomic_fetch_add(&parts.begun, 1);
    parts.is_finishing = false;
    return CUDA_SUCCESS;
}

void __wrap_flyt_copying_mirror(struct flyt_session *session, const struct flyt_server_link_extent *extent, int fd)
{
    assert_true(fd >= 0 && close(fd) == 0);
    atomic_fetch_add(&parts.mirrors, 1);
}

bool __wrap_flyt_copying_advance(struct flyt_session *session)
{
    return true;
}

void __wrap_flyt_copying_state(const struct flyt_session *session, struct flyt_server_link_move_state *ret_state)
{
    ret_state->phase = atomic_load(&parts.is_ready) ? FLYT_SERVER_LINK_MOVE_READY : FLYT_SERVER_LINK_MOVE_COPYING;
    ret_state->round = 1;
    ret_state->pages_count = 12;
}

void __wrap_flyt_copying_finish(struct flyt_session *session)
{
    parts.is_finishing = true;
    atomic_fetch_add(&parts.finished, 1);
}

void __wrap_flyt_copying_go_on(struct flyt_session *session)
{
    parts.is_finishing = false;
    atomic_fetch_add(&parts.gone_on, 1);
}

int __wrap_flyt_copying_result(const struct flyt_session *session)
{
    int rounds = atomic_load(&parts.rounds);
    return parts.is_finishing ? atomic_load(&parts.result) : rounds ? rounds : -EAGAIN;
}

const char *__wrap_flyt_copying_sentence(const struct flyt_session *session)
{
    return "the pages differ";
}

uint64_t __wrap_flyt_copying_pages_last(const struct flyt_session *session)
{
    return 4;
}

void __wrap_flyt_copying_end(struct flyt_session *session)
{
    atomic_fetch_add(&parts.ended, 1);
}

void __wrap_flyt_save_libraries(struct flyt_session *session)
{
    assert_int_equal(session->move.move_id, MOVE_ID);
    atomic_fetch_add(&parts.listed, 1);
}

int __wrap_flyt_save_state(struct flyt_session *session, uint64_t sequence, struct flyt_error *err)
{
    int status = atomic_load(&parts.save_status);
    if (status)
        return flyt_error_set(err, status, "a variable cannot be read");
    assert_null(session->busy_first);
    assert_null(session->park.first);
    assert_null(session->jobs.first);
    atomic_store(&parts.saved_sequence, sequence);
    return memfd_create("move_test", MFD_CLOEXEC);
}

/* ---- the session ---- */

static struct flyt_driver driver; /* the fake one, with descriptors of memory */

static CUresult export_memory(void *ret_handle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                              unsigned long long flags)
{
    int fd = memfd_create("move_test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    *(int *)ret_handle = fd;
    return CUDA_SUCCESS;
}

struct moved {
    struct fixture *client;
    struct flyt_manager manager;
    struct flyt_ledger *ledger;
    int fd; /* the node manager's end of the link */
    struct flyt_server_link_message message;
    struct flyt_server_link_message order;
    uint64_t extents, extents_gone, last_extent_id;
};

/* The call's record. */
static size_t encode_handshake(struct moved *self, unsigned char *record, size_t room_bytes, flyt_connection_kind kind,
                               const unsigned char *token, uint32_t without)
{
    flyt_handshake_args args = {.build = "test", .program_name = "move_test", .pid = 1, .kind = kind};
    flyt_signature *rows = calloc(flyt_signature_count, sizeof *rows);
    memcpy(args.base_hash, flyt_base_hash, sizeof args.base_hash);
    args.procedures.procedures_val = rows;
    for (unsigned i = 0; i < flyt_signature_count; i++)
        if (flyt_signatures[i].procedure != without)
            rows[args.procedures.procedures_len++] = flyt_signatures[i];
    args.token.token_val = (char *)token;
    args.token.token_len = token ? FLYT_TOKEN_BYTES : 0;
    size_t bytes = encode_call(self->client, (char *)record, room_bytes, FLYT_HANDSHAKE,
                               (xdrproc_t)xdr_flyt_handshake_args, &args);
    free(rows);
    return bytes;
}

static flyt_handshake_status await_handshake(struct moved *self)
{
    flyt_handshake_res res = {0};
    await_reply(self->client, self->client->xid--, (xdrproc_t)xdr_flyt_handshake_res, &res); /* it has no number */
    flyt_handshake_status status = res.status;
    xdr_free((xdrproc_t)xdr_flyt_handshake_res, &res);
    return status;
}

/* Of a client that lacks this row; 0: that has all. */
static void attach_without(struct moved *self, uint32_t without)
{
    unsigned char record[FLYT_SERVER_LINK_DATA_BYTES_MAX];
    size_t bytes = encode_handshake(self, record, sizeof record, FLYT_CONNECTION_SESSION, NULL, without);
    assert_int_equal(send(self->client->fd, record, bytes, MSG_NOSIGNAL), bytes);
    assert_int_equal(await_handshake(self), FLYT_HANDSHAKE_OK);
}

static void attach(struct moved *self)
{
    attach_without(self, 0);
}

static struct moved *prepare(void)
{
    struct moved *self = calloc(1, sizeof *self);
    const struct flyt_server_link_session granted = {
        .session_id = 1, .server_id = SERVER_ID, .slot_count = 1, .ledger_count = 1, .group_size = 8};
    int fds[2];
    assert_non_null(self);
    memset(&parts, 0, sizeof parts);
    atomic_store(&parts.result, -EAGAIN);
    atomic_store(&now_ns, 1000000000);
    assert_int_equal(flyt_fault_set(NULL), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    const struct timeval limit = {.tv_sec = 60};
    setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    self->fd = fds[0];
    assert_int_equal(flyt_ledger_new(256 * MIB, &self->ledger), 0);
    const int ledger_fd = flyt_ledger_fd(self->ledger);
    self->client = make();
    setsockopt(self->client->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(flyt_manager_open(&self->manager, fds[1], &granted, &ledger_fd), 0);
    struct flyt_session *session = &self->client->session;
    session->manager = &self->manager;
    session->devices[0].ledger = self->manager.ledgers[0];
    driver = *session->driver;
    driver.cuMemExportToShareableHandle = export_memory;
    session->driver = &driver;
    session->clock_ns = standing_clock_ns;
    session->is_scrubbing = false;
    memset(session->token, 0x3c, sizeof session->token);
    return self;
}

static void start(struct moved *self)
{
    assert_int_equal(pthread_create(&self->client->thread, NULL, serve, self->client), 0);
}

static int set_up_moved(void **state)
{
    struct moved *self = prepare();
    start(self);
    attach(self);
    *state = self;
    return 0;
}

static int set_up_unattached(void **state)
{
    struct moved *self = prepare();
    start(self);
    *state = self;
    return 0;
}

static int set_up_alone(void **state)
{
    *state = prepare();
    return 0;
}

static void leave_order(struct moved *self, uint32_t kind, int fd)
{
    self->order.kind = kind;
    assert_int_equal(flyt_manager_leave_order_with(&self->manager, &self->order, fd), 0);
    flyt_session_kick(&self->client->session);
    self->order.data_bytes = 0;
}

static int end(void **state)
{
    struct moved *self = *state;
    int main_fd, socket_fd;
    leave_order(self, FLYT_SERVER_LINK_KILL, -1); /* one that was left has no client whose end it sees */
    void *client = self->client;
    tear_down(&client);
    if (flyt_manager_take_client(&self->manager, &main_fd, &socket_fd)) {
        close(main_fd);
        close(socket_fd);
    }
    close(self->fd);
    close(flyt_manager_change_link(&self->manager, -1));
    flyt_ledger_close(self->manager.ledgers[0]);
    flyt_ledger_close(self->ledger);
    free(self);
    return flyt_fault_set(NULL);
}

/* ---- the node manager ---- */

/* The next message but those about memory and use. */
static void next(struct moved *self)
{
    int fds[FLYT_SERVER_LINK_DESCRIPTORS_MAX];
    unsigned count;
    for (;;) {
        assert_int_equal(flyt_server_link_receive(self->fd, &self->message, fds, &count), 0);
        while (count)
            close(fds[--count]);
        if (self->message.kind == FLYT_SERVER_LINK_EXTENT) {
            self->extents++;
            self->last_extent_id = self->message.extent.extent_id;
        } else if (self->message.kind == FLYT_SERVER_LINK_EXTENT_GONE) {
            self->extents_gone++;
        } else if (self->message.kind != FLYT_SERVER_LINK_USE) {
            return;
        }
    }
}

static void expect_state(struct moved *self, uint32_t phase, int outcome)
{
    next(self);
    assert_int_equal(self->message.kind, FLYT_SERVER_LINK_MOVE_STATE);
    assert_int_equal(self->message.move_state.phase, phase);
    assert_int_equal(self->message.move_state.outcome, outcome);
    if (phase != FLYT_SERVER_LINK_MOVE_REFUSED)
        assert_int_equal(self->message.move_state.move_id, MOVE_ID);
}

static const struct flyt_server_link_stopped *expect_stopped(struct moved *self, int outcome)
{
    do
        next(self);
    while (self->message.kind == FLYT_SERVER_LINK_MOVE_STATE &&
           self->message.move_state.phase == FLYT_SERVER_LINK_MOVE_LAST);
    assert_int_equal(self->message.kind, FLYT_SERVER_LINK_STOPPED);
    assert_int_equal(self->message.stopped.outcome, outcome);
    assert_int_equal(self->message.stopped.move_id, MOVE_ID);
    if (outcome)
        assert_true(self->message.data_bytes > 0);
    return &self->message.stopped;
}

static void expect_left(struct moved *self)
{
    next(self);
    assert_int_equal(self->message.kind, FLYT_SERVER_LINK_LEFT);
    assert_int_equal(self->message.stop.move_id, MOVE_ID);
}

/* The session's loop has gone round several times, and has said nothing else. */
static void expect_nothing(struct moved *self)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        self->order.limit = (struct flyt_server_link_limit){.slot = BAD_SLOT, .revision = i};
        leave_order(self, FLYT_SERVER_LINK_LIMIT, -1);
        next(self);
        assert_int_equal(self->message.kind, FLYT_SERVER_LINK_LIMIT_DONE);
        assert_int_equal(self->message.limit_done.revision, i);
        assert_int_equal(self->message.limit_done.outcome, -EINVAL);
    }
}

static void send_move(struct moved *self, uint64_t move_id, enum flyt_server_link_move_kind kind)
{
    self->order.move = (struct flyt_server_link_move){.move_id = move_id, .kind = kind, .rounds_max = 3};
    leave_order(self, FLYT_SERVER_LINK_MOVE, -1);
}

static void begin_move(struct moved *self, enum flyt_server_link_move_kind kind)
{
    send_move(self, MOVE_ID, kind);
    expect_state(self, FLYT_SERVER_LINK_MOVE_BEGUN, 0);
    expect_state(self,
                 kind == FLYT_SERVER_LINK_MOVE_MIRROR ? FLYT_SERVER_LINK_MOVE_COPYING : FLYT_SERVER_LINK_MOVE_READY, 0);
    assert_int_equal(atomic_load(&parts.begun), kind == FLYT_SERVER_LINK_MOVE_MIRROR);
}

static void order_of(struct moved *self, uint32_t kind, uint64_t move_id)
{
    self->order.stop = (struct flyt_server_link_stop){.move_id = move_id, .timeout_us = TIMEOUT_US};
    leave_order(self, kind, -1);
}

static void pass_time(struct moved *self, uint64_t us)
{
    atomic_fetch_add(&now_ns, us * 1000);
    flyt_session_kick(&self->client->session);
}

/* ---- the client ---- */

static uint64_t await_stop(struct moved *self)
{
    flyt_back_stop back;
    await_back(self->client, FLYT_BACK_STOP, (xdrproc_t)xdr_flyt_back_stop, &back);
    return back.number;
}

static void await_go_on(struct moved *self, uint64_t number)
{
    flyt_back_stop back;
    await_back(self->client, FLYT_BACK_GO_ON, (xdrproc_t)xdr_flyt_back_stop, &back);
    assert_int_equal(back.number, number);
}

static void stopped(struct moved *self, uint64_t number)
{
    SEND(self->client, FLYT_SESSION_STOPPED, session_stopped, .number = number);
}

/* Orders STOP, which the client answers. */
static uint64_t stop(struct moved *self)
{
    order_of(self, FLYT_SERVER_LINK_STOP, MOVE_ID);
    expect_state(self, FLYT_SERVER_LINK_MOVE_STOPPING, 0);
    uint64_t number = await_stop(self);
    stopped(self, number);
    return number;
}

/* With nothing under way, up to where it may leave. */
static uint64_t stop_wholly(struct moved *self)
{
    uint64_t number = stop(self);
    assert_int_equal(expect_stopped(self, 0)->sequence, self->client->xid);
    expect_state(self, FLYT_SERVER_LINK_MOVE_STOPPED, 0);
    return number;
}

/* The program works as ever. */
static void expect_work(struct moved *self, uint64_t address)
{
    set(self->client, legacy, address);
    assert_int_equal(synchronize(self->client, legacy), CUDA_SUCCESS);
    flyt_progress progress = barrier(self->client);
    assert_int_equal(progress.completed, self->client->xid);
}

static flyt_back_moved leave(struct moved *self)
{
    flyt_back_moved back;
    order_of(self, FLYT_SERVER_LINK_LEAVE, MOVE_ID);
    await_back(self->client, FLYT_BACK_MOVED, (xdrproc_t)xdr_flyt_back_moved, &back);
    return back;
}

static void leave_wholly(struct moved *self)
{
    assert_int_equal(leave(self).sequence, self->client->xid);
    shutdown(self->client->fd, SHUT_RDWR);
    expect_left(self);
}

/* TAKE_BACK with a connection of the client, whose handshake names this token. */
static flyt_handshake_status take_back_with(struct moved *self, const unsigned char *token, flyt_connection_kind kind)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const struct timeval limit = {.tv_sec = 60};
    setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    close(self->client->fd);
    self->client->fd = fds[0];
    self->client->xid = 0;
    self->order.data_bytes =
        (uint32_t)encode_handshake(self, self->order.data, FLYT_SERVER_LINK_DATA_BYTES_MAX, kind, token, 0);
    self->order.stop = (struct flyt_server_link_stop){.move_id = MOVE_ID};
    leave_order(self, FLYT_SERVER_LINK_TAKE_BACK, fds[1]);
    return await_handshake(self);
}

static void take_back(struct moved *self)
{
    assert_int_equal(take_back_with(self, self->client->session.token, FLYT_CONNECTION_RESUME), FLYT_HANDSHAKE_OK);
}

static bool is_whole(struct moved *self, int want)
{
    flyt_session_is_whole_res res;
    uint32_t xid = SEND(self->client, FLYT_SESSION_IS_WHOLE, session_is_whole, .thread = 1);
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_session_is_whole_res, &res);
    assert_int_equal(res.result, want);
    return res.is_whole;
}

static flyt_progress resume_end(struct moved *self, uint64_t sequence, int want)
{
    flyt_session_resume_end_res res;
    uint32_t xid = SEND(self->client, FLYT_SESSION_RESUME_END, session_resume_end, .sequence = sequence);
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_session_resume_end_res, &res);
    assert_int_equal(res.result, want);
    return res.progress;
}

/* The client's side of coming back behind that call. */
static void go_on_behind(struct moved *self, uint64_t sequence)
{
    assert_true(is_whole(self, CUDA_SUCCESS));
    flyt_progress progress = resume_end(self, sequence, CUDA_SUCCESS);
    assert_true(progress.received == sequence && progress.executed == sequence && progress.completed == sequence);
    self->client->xid = (uint32_t)sequence;
    expect_state(self, FLYT_SERVER_LINK_MOVE_OVER, 0);
}

static void await_end(struct moved *self)
{
    while (receive(self->client))
        ;
}

/* ---- what can be moved ---- */

static void expect_refused(struct moved *self, int outcome, const char *words)
{
    expect_state(self, FLYT_SERVER_LINK_MOVE_REFUSED, outcome);
    if (!strstr((const char *)self->message.data, words))
        fail_msg("refused with '%s', not '%s'", (const char *)self->message.data, words);
}

static void not_before_its_program_is_there(void **state)
{
    struct moved *self = *state;
    send_move(self, MOVE_ID, FLYT_SERVER_LINK_MOVE_GIVE);
    expect_refused(self, -EBUSY, "not there yet");
    attach(self);
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    assert_int_equal(atomic_load(&parts.listed), 1);
}

static void an_older_client_is_not_moved(void **state)
{
    struct moved *self = *state;
    attach_without(self, FLYT_SESSION_STOPPED);
    send_move(self, MOVE_ID, FLYT_SERVER_LINK_MOVE_GIVE);
    expect_refused(self, -ENOTSUP, "older than moving");
    expect_work(self, alloc(self->client, 64, CUDA_SUCCESS));
}

static void one_move_at_a_time(void **state)
{
    struct moved *self = *state;
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    send_move(self, MOVE_ID + 1, FLYT_SERVER_LINK_MOVE_GIVE);
    expect_refused(self, -EBUSY, "already");
    assert_int_equal(self->message.move_state.move_id, MOVE_ID + 1);
    /* What is said of the other is of none. */
    order_of(self, FLYT_SERVER_LINK_GO_ON, MOVE_ID + 1);
    order_of(self, FLYT_SERVER_LINK_STOP, MOVE_ID + 1);
    expect_nothing(self);
    stop_wholly(self);
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
    session->replaceable.is_begun = true;
    assert_null(flyt_replaceable_why_not_moved(session, &status));
    assert_int_equal(status, 0);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        session->replaceable.counts[cases[i].reason] = 1;
        const char *why = flyt_replaceable_why_not_moved(session, &status);
        assert_non_null(why);
        assert_non_null(strstr(why, cases[i].words));
        assert_int_equal(status, cases[i].outcome);
        session->replaceable.counts[cases[i].reason] = 0;
    }
    /* What a server's death would lose is copied. */
    session->replaceable.counts[FLYT_REASON_VARIABLES] = session->replaceable.counts[FLYT_REASON_CONSTANTS] = 1;
    session->replaceable.counts[FLYT_REASON_ADDRESS] = session->replaceable.counts[FLYT_REASON_ALONE] = 1;
    assert_null(flyt_replaceable_why_not_moved(session, &status));
    session->replaceable.counts[FLYT_REASON_HEAP] = 1;
    start(self);
    attach(self);
    send_move(self, MOVE_ID, FLYT_SERVER_LINK_MOVE_GIVE);
    expect_refused(self, -ENOTSUP, "memory in kernels");
}

static void nothing_is_written_and_no_room_is_said(void **state)
{
    struct moved *self = *state;
    int fd = memfd_create("move_test", MFD_CLOEXEC);
    self->order.move =
        (struct flyt_server_link_move){.move_id = MOVE_ID, .kind = FLYT_SERVER_LINK_MOVE_WRITE, .rounds_max = 1};
    leave_order(self, FLYT_SERVER_LINK_MOVE, fd);
    expect_refused(self, -ENOTSUP, "file");
    atomic_store(&parts.begin_status, -ENOMEM);
    send_move(self, MOVE_ID, FLYT_SERVER_LINK_MOVE_MIRROR);
    expect_refused(self, -ENOMEM, "no room");
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
}

static void the_node_manager_hears_that_it_can(void **state)
{
    struct moved *self = *state;
    int fds[FLYT_SERVER_LINK_DESCRIPTORS_MAX];
    unsigned count;
    flyt_report_forget(&self->client->session);
    flyt_report_send(&self->client->session);
    do
        assert_int_equal(flyt_server_link_receive(self->fd, &self->message, fds, &count), 0);
    while (self->message.kind != FLYT_SERVER_LINK_USE || !self->message.use.can_move);
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
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    set(self->client, stream_id(0), address);
    set(self->client, stream_id(1), address);
    stop(self);
    expect_nothing(self);
    flyt_fake_release(1);
    expect_nothing(self);
    flyt_fake_release(2);
    const struct flyt_server_link_stopped *told = expect_stopped(self, 0);
    assert_int_equal(told->sequence, self->client->xid);
    assert_int_equal(told->has_state, 1);
    assert_int_equal(told->extent_count, self->extents);
    assert_int_equal(told->last_extent_id, self->last_extent_id);
    assert_int_equal(atomic_load(&parts.saved_sequence), self->client->xid);
    expect_state(self, FLYT_SERVER_LINK_MOVE_STOPPED, 0);
}

/* A host function runs for a while; behind it a call is parked whose answer the program waits for. */
static void parked_calls_and_host_functions_come_to_their_end(void **state)
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
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    stop(self);
    expect_nothing(self);
    /* It is part of a call that had begun, and comes behind session_stopped. */
    SEND(self->client, FLYT_HOST_FUNCTION_DONE, host_function_done, .function_id = 7);
    await_reply(self->client, waits, (xdrproc_t)xdr_flyt_stream_synchronize_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(expect_stopped(self, 0)->sequence, self->client->xid);
    assert_log("memset:1");
    expect_state(self, FLYT_SERVER_LINK_MOVE_STOPPED, 0);
}

static void a_transfer_comes_to_its_end(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 4096, CUDA_SUCCESS);
    SEND(self->client, FLYT_COPY_IN_TRANSFER, copy_in_transfer, .stream_id = legacy, .dst = range(address, 1000),
         .transfer_id = 42, .bytes = 1000);
    send_chunk(self->client, 42, 0, 600);
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    stop(self);
    expect_nothing(self);
    send_chunk(self->client, 42, 600, 400);
    assert_int_equal(expect_stopped(self, 0)->sequence, self->client->xid);
    assert_log("in:0 in:0");
}

/* A notice that crossed the order to stop is answered behind session_stopped: that call counts. */
static void a_call_that_comes_all_the_same_counts(void **state)
{
    struct moved *self = *state;
    flyt_back_send_all all;
    begin_move(self, FLYT_SERVER_LINK_MOVE_MIRROR);
    self->order.limit = (struct flyt_server_link_limit){.revision = 9, .memory_bytes = 256 * MIB};
    leave_order(self, FLYT_SERVER_LINK_LIMIT, -1);
    await_back(self->client, FLYT_BACK_SEND_ALL, (xdrproc_t)xdr_flyt_back_send_all, &all);
    stop(self);
    SEND(self->client, FLYT_SESSION_ALL_SENT, session_all_sent, .number = all.number);
    do /* the answer about the limit comes as well, sooner or later */
        next(self);
    while (self->message.kind == FLYT_SERVER_LINK_LIMIT_DONE);
    assert_int_equal(self->message.kind, FLYT_SERVER_LINK_MOVE_STATE);
    assert_int_equal(self->message.move_state.phase, FLYT_SERVER_LINK_MOVE_LAST);
    /* Another one, while the last pages are copied: they are copied again. */
    SEND(self->client, FLYT_STREAM_CREATE, stream_create, .stream_id = stream_id(3));
    while (atomic_load(&parts.finished) < 2)
        usleep(1000);
    assert_int_equal(atomic_load(&parts.gone_on), 1);
    atomic_store(&parts.result, 0);
    do
        next(self);
    while (self->message.kind != FLYT_SERVER_LINK_STOPPED);
    assert_int_equal(self->message.stopped.outcome, 0);
    assert_int_equal(self->message.stopped.sequence, self->client->xid);
    assert_int_equal(self->message.stopped.pages_last, 4);
}

static void mirrors_are_handed_on(void **state)
{
    struct moved *self = *state;
    begin_move(self, FLYT_SERVER_LINK_MOVE_MIRROR);
    self->order.extent = (struct flyt_server_link_extent){.extent_id = 1, .bytes = 2 * MIB};
    leave_order(self, FLYT_SERVER_LINK_MIRROR, memfd_create("move_test", MFD_CLOEXEC));
    expect_nothing(self);
    assert_int_equal(atomic_load(&parts.mirrors), 1);
    atomic_store(&parts.is_ready, true);
    expect_state(self, FLYT_SERVER_LINK_MOVE_READY, 0);
    assert_int_equal(self->message.move_state.pages_count, 12);
    stop(self);
    expect_state(self, FLYT_SERVER_LINK_MOVE_LAST, 0);
    expect_nothing(self);
    atomic_store(&parts.result, 0);
    assert_int_equal(expect_stopped(self, 0)->pages_last, 4);
    expect_state(self, FLYT_SERVER_LINK_MOVE_STOPPED, 0);
    assert_int_equal(atomic_load(&parts.ended), 0); /* it may still go on */
}

/* ---- what fails ---- */

static void what_never_ends_is_given_up_and_goes_on(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    create(self->client, 0, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    set(self->client, stream_id(0), address);
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    uint64_t number = stop(self);
    pass_time(self, TIMEOUT_US - 1);
    expect_nothing(self);
    pass_time(self, 1);
    const struct flyt_server_link_stopped *told = expect_stopped(self, -ETIMEDOUT);
    assert_int_equal(told->has_state, 0);
    assert_non_null(strstr((const char *)self->message.data, "GPU"));
    expect_state(self, FLYT_SERVER_LINK_MOVE_OVER, -ETIMEDOUT);
    await_go_on(self, number);
    set(self->client, stream_id(0), address);
    flyt_fake_release(1);
    assert_int_equal(synchronize(self->client, stream_id(0)), CUDA_SUCCESS);
    /* Another try. */
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    assert_int_equal(stop_wholly(self), number + 1);
}

static void a_program_that_does_not_stop_goes_on(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    order_of(self, FLYT_SERVER_LINK_STOP, MOVE_ID);
    expect_state(self, FLYT_SERVER_LINK_MOVE_STOPPING, 0);
    uint64_t number = await_stop(self);
    set(self->client, legacy, address); /* it had begun */
    expect_nothing(self);
    pass_time(self, TIMEOUT_US);
    expect_stopped(self, -ETIMEDOUT);
    assert_non_null(strstr((const char *)self->message.data, "program has not stopped"));
    expect_state(self, FLYT_SERVER_LINK_MOVE_OVER, -ETIMEDOUT);
    await_go_on(self, number);
    stopped(self, number); /* late: it answers nothing */
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    order_of(self, FLYT_SERVER_LINK_STOP, MOVE_ID);
    expect_state(self, FLYT_SERVER_LINK_MOVE_STOPPING, 0);
    assert_int_equal(await_stop(self), number + 1);
    expect_nothing(self);
    stopped(self, number + 1);
    expect_stopped(self, 0);
}

static void pages_that_differ_end_it(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    begin_move(self, FLYT_SERVER_LINK_MOVE_MIRROR);
    atomic_store(&parts.rounds, -ENOTSUP);
    expect_state(self, FLYT_SERVER_LINK_MOVE_OVER, -ENOTSUP);
    assert_non_null(strstr((const char *)self->message.data, "differ"));
    atomic_store(&parts.rounds, 0);
    parts.begun = 0;
    begin_move(self, FLYT_SERVER_LINK_MOVE_MIRROR);
    uint64_t number = stop(self);
    expect_state(self, FLYT_SERVER_LINK_MOVE_LAST, 0);
    atomic_store(&parts.result, -EIO);
    expect_stopped(self, -EIO);
    expect_state(self, FLYT_SERVER_LINK_MOVE_OVER, -EIO);
    await_go_on(self, number);
    assert_int_equal(atomic_load(&parts.ended), 2);
    expect_work(self, address);
}

static void the_last_pages_have_their_time(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    begin_move(self, FLYT_SERVER_LINK_MOVE_MIRROR);
    uint64_t number = stop(self);
    expect_state(self, FLYT_SERVER_LINK_MOVE_LAST, 0);
    pass_time(self, TIMEOUT_US);
    expect_stopped(self, -ETIMEDOUT);
    expect_state(self, FLYT_SERVER_LINK_MOVE_OVER, -ETIMEDOUT);
    await_go_on(self, number);
    expect_work(self, address);
}

static void what_cannot_be_saved_ends_it(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    atomic_store(&parts.save_status, -ENOTSUP);
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    uint64_t number = stop(self);
    expect_stopped(self, -ENOTSUP);
    assert_non_null(strstr((const char *)self->message.data, "variable"));
    expect_state(self, FLYT_SERVER_LINK_MOVE_OVER, -ENOTSUP);
    await_go_on(self, number);
    expect_work(self, address);
}

static void a_program_that_goes_on_by_itself_is_not_moved(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    uint64_t number = stop_wholly(self);
    set(self->client, legacy, address);
    expect_state(self, FLYT_SERVER_LINK_MOVE_OVER, -EPROTO);
    await_go_on(self, number);
    expect_work(self, address);
}

static void a_fault_ends_it(void **state)
{
    struct moved *self = *state;
    flyt_back_fatal back = {0};
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    create(self->client, 0, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    set(self->client, stream_id(0), address);
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    uint64_t number = stop(self);
    expect_nothing(self);
    flyt_fake_fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    next(self);
    assert_int_equal(self->message.kind, FLYT_SERVER_LINK_STOPPED);
    assert_true(self->message.stopped.outcome < 0);
    next(self);
    assert_int_equal(self->message.move_state.phase, FLYT_SERVER_LINK_MOVE_OVER);
    await_back(self->client, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &back);
    assert_int_equal(back.result, CUDA_ERROR_ILLEGAL_ADDRESS);
    xdr_free((xdrproc_t)xdr_flyt_back_fatal, &back);
    await_go_on(self, number);
    assert_int_equal(synchronize(self->client, stream_id(0)), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void suspend(struct moved *self, bool is_suspended)
{
    self->order.share = (struct flyt_server_link_share){.revision = 3, .is_suspended = is_suspended};
    leave_order(self, FLYT_SERVER_LINK_SHARE, -1);
    next(self);
    assert_int_equal(self->message.kind, FLYT_SERVER_LINK_SHARE_DONE);
}

static void a_suspended_program_is_moved_unless_it_waits(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    suspend(self, true);
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    uint64_t number = stop_wholly(self);
    order_of(self, FLYT_SERVER_LINK_GO_ON, MOVE_ID);
    expect_state(self, FLYT_SERVER_LINK_MOVE_OVER, 0);
    await_go_on(self, number);
    set(self->client, legacy, address);
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    number = stop(self);
    expect_stopped(self, -EBUSY);
    assert_non_null(strstr((const char *)self->message.data, "suspended"));
    expect_state(self, FLYT_SERVER_LINK_MOVE_OVER, -EBUSY);
    await_go_on(self, number);
    suspend(self, false);
    expect_work(self, address);
}

/* Each way to be called off, in each phase: the program works as before. */
static void call_off(struct moved *self, uint32_t kind, unsigned phase)
{
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS), number = 0;
    atomic_store(&parts.result, -EAGAIN);
    parts.begun = 0;
    create(self->client, phase, CU_STREAM_NON_BLOCKING);
    set(self->client, stream_id(phase), address);
    assert_int_equal(synchronize(self->client, stream_id(phase)), CUDA_SUCCESS);
    begin_move(self, FLYT_SERVER_LINK_MOVE_MIRROR);
    if (phase == 1) { /* it has not answered */
        order_of(self, FLYT_SERVER_LINK_STOP, MOVE_ID);
        expect_state(self, FLYT_SERVER_LINK_MOVE_STOPPING, 0);
        number = await_stop(self);
    } else if (phase >= 2) {
        if (phase == 2) {
            flyt_fake_hold(phase + 1);
            set(self->client, stream_id(phase), address);
        }
        number = stop(self);
    }
    if (phase == 2)
        expect_nothing(self);
    if (phase >= 3)
        expect_state(self, FLYT_SERVER_LINK_MOVE_LAST, 0);
    if (phase == 4) {
        atomic_store(&parts.result, 0);
        expect_stopped(self, 0);
        expect_state(self, FLYT_SERVER_LINK_MOVE_STOPPED, 0);
    }
    unsigned ended = atomic_load(&parts.ended);
    order_of(self, kind, MOVE_ID);
    expect_state(self, FLYT_SERVER_LINK_MOVE_OVER, 0);
    if (phase)
        await_go_on(self, number);
    assert_int_equal(atomic_load(&parts.ended), ended + 1);
    set(self->client, stream_id(phase), address);
    if (phase == 2)
        flyt_fake_release(phase + 1);
    assert_int_equal(synchronize(self->client, stream_id(phase)), CUDA_SUCCESS);
    expect_nothing(self);
}

static void it_is_called_off_in_every_phase(void **state)
{
    for (unsigned phase = 0; phase < 5; phase++)
        call_off(*state, FLYT_SERVER_LINK_GO_ON, phase);
}

static void the_end_of_the_link_calls_it_off_in_every_phase(void **state)
{
    for (unsigned phase = 0; phase < 5; phase++)
        call_off(*state, FLYT_SERVER_LINK_REJOIN, phase); /* what the watching thread leaves */
}

static void it_fails_where_a_test_wants_it(void **state)
{
    static const char *const points[] = {"move.stop", "move.drain", "move.last", "move.state", "move.stopped"};
    struct moved *self = *state;
    char text[64];
    assert_int_equal(flyt_fault_set("move.begin:error"), 0);
    send_move(self, MOVE_ID, FLYT_SERVER_LINK_MOVE_GIVE);
    expect_refused(self, -EIO, "move.begin");
    assert_int_equal(flyt_fault_set(NULL), 0);
    for (unsigned i = 0; i < sizeof points / sizeof points[0]; i++) {
        begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
        snprintf(text, sizeof text, "%s:error", points[i]);
        assert_int_equal(flyt_fault_set(text), 0);
        order_of(self, FLYT_SERVER_LINK_STOP, MOVE_ID);
        if (i > 0)
            expect_state(self, FLYT_SERVER_LINK_MOVE_STOPPING, 0);
        uint64_t number = i > 0 ? await_stop(self) : 0;
        if (i > 0)
            stopped(self, number);
        expect_stopped(self, -EIO);
        assert_non_null(strstr((const char *)self->message.data, points[i]));
        expect_state(self, FLYT_SERVER_LINK_MOVE_OVER, -EIO);
        if (i > 0)
            await_go_on(self, number);
        barrier(self->client);
        assert_int_equal(flyt_fault_set(NULL), 0);
    }
}

/* ---- leaving ---- */

static void who_leaves_finds_everything_again(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 4 * MIB, CUDA_SUCCESS), used_bytes = flyt_fake_used_memory();
    create(self->client, 0, CU_STREAM_NON_BLOCKING);
    set(self->client, stream_id(0), address);
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    stop_wholly(self);
    const uint64_t sequence = self->client->xid;
    flyt_back_moved moved = leave(self);
    assert_int_equal(moved.sequence, sequence);
    assert_int_equal(moved.wait_ms, FLYT_MOVE_WAIT_MS);
    assert_int_equal(moved.flags, 0);
    assert_int_equal(atomic_load(&self->client->session.move.left_move_id), MOVE_ID);
    /* What comes behind that is nobody's. */
    SEND(self->client, FLYT_MEMORY_ALLOC, memory_alloc, .bytes = 64 * MIB);
    order_of(self, FLYT_SERVER_LINK_GO_ON, MOVE_ID); /* too late */
    expect_nothing(self);
    shutdown(self->client->fd, SHUT_WR);
    expect_left(self);
    await_end(self);
    assert_int_equal(flyt_fake_used_memory(), used_bytes);
    assert_true(atomic_load(&self->client->session.move.is_leaving));
    /* Orders are carried out meanwhile. */
    self->order.limit = (struct flyt_server_link_limit){.revision = 9, .memory_bytes = 256 * MIB};
    leave_order(self, FLYT_SERVER_LINK_LIMIT, -1);
    next(self);
    assert_int_equal(self->message.limit_done.revision, 9);
    assert_int_equal(self->message.limit_done.used_bytes, used_bytes);
    suspend(self, true);
    suspend(self, false);

    take_back(self);
    assert_true(is_whole(self, CUDA_SUCCESS));
    alloc(self->client, 64, CUDA_ERROR_NOT_PERMITTED);
    resume_end(self, sequence + 1, CUDA_ERROR_INVALID_VALUE);
    go_on_behind(self, sequence);
    assert_false(atomic_load(&self->client->session.move.is_leaving));
    assert_int_equal(atomic_load(&self->client->session.move.left_move_id), 0);
    /* Calls count on; stream and memory are there. */
    assert_int_equal(barrier(self->client).received, sequence + 1);
    set(self->client, stream_id(0), address);
    set(self->client, stream_id(0), address + 4 * MIB - 64);
    assert_int_equal(synchronize(self->client, stream_id(0)), CUDA_SUCCESS);
    assert_log("memset:1 memset:1 memset:1");
    assert_true(alloc(self->client, 4 * MIB, CUDA_SUCCESS) != address);
    expect_nothing(self);
    /* And it can be moved again. */
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    stop_wholly(self);
    leave_wholly(self);
}

static void who_fails_to_come_back_may_try_again(void **state)
{
    struct moved *self = *state;
    unsigned char other[FLYT_TOKEN_BYTES] = {1};
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    stop_wholly(self);
    const uint64_t sequence = self->client->xid;
    leave_wholly(self);
    /* Another session's client, a new one's, one that goes before the end, one that speaks too soon. */
    assert_int_equal(take_back_with(self, other, FLYT_CONNECTION_RESUME), FLYT_HANDSHAKE_NO_SESSION);
    await_end(self);
    assert_int_equal(take_back_with(self, self->client->session.token, FLYT_CONNECTION_SESSION),
                     FLYT_HANDSHAKE_NO_SESSION);
    await_end(self);
    take_back(self);
    assert_true(is_whole(self, CUDA_SUCCESS));
    shutdown(self->client->fd, SHUT_RDWR);
    take_back(self); /* whether that end was seen or not */
    assert_true(is_whole(self, CUDA_SUCCESS));
    assert_int_equal(flyt_fault_set("move.take_back:error:1"), 0);
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    self->order.stop = (struct flyt_server_link_stop){.move_id = MOVE_ID};
    self->order.data_bytes = 1;
    leave_order(self, FLYT_SERVER_LINK_TAKE_BACK, fds[1]);
    char byte;
    assert_int_equal(recv(fds[0], &byte, 1, 0), 0);
    close(fds[0]);
    take_back(self);
    go_on_behind(self, sequence);
    expect_work(self, address);
}

static void who_does_not_leave_is_shown_out(void **state)
{
    struct moved *self = *state;
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    stop_wholly(self);
    leave(self);
    expect_nothing(self);
    pass_time(self, FLYT_MOVE_LEAVE_MS * 1000);
    expect_left(self);
    await_end(self);
}

/* It has ended its connection in a way that the server has not seen when it is back already. */
static void who_is_back_before_its_end_is_seen_is_taken(void **state)
{
    struct moved *self = *state;
    uint64_t address = alloc(self->client, 64, CUDA_SUCCESS);
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    stop_wholly(self);
    const uint64_t sequence = self->client->xid;
    leave(self);
    int before_fd = dup(self->client->fd);
    take_back(self);
    expect_left(self);
    go_on_behind(self, sequence);
    expect_work(self, address);
    close(before_fd);
}

static void leaving_fails_where_a_test_wants_it(void **state)
{
    struct moved *self = *state;
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    stop_wholly(self);
    assert_int_equal(flyt_fault_set("move.leave:error"), 0);
    order_of(self, FLYT_SERVER_LINK_LEAVE, MOVE_ID);
    await_end(self); /* without a word */
    expect_left(self);
    const uint64_t sequence = self->client->xid;
    take_back(self);
    go_on_behind(self, sequence);
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    stop_wholly(self);
    assert_int_equal(flyt_fault_set("move.left:error"), 0);
    leave(self);
    shutdown(self->client->fd, SHUT_RDWR);
    expect_nothing(self);
}

static void a_session_that_was_left_ends_by_order(void **state)
{
    struct moved *self = *state;
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    stop_wholly(self);
    leave_wholly(self);
    take_back(self);
    leave_order(self, FLYT_SERVER_LINK_KILL, -1);
    await_end(self);
    /* The thread's end is waited for by whoever takes this down. */
}

static void a_program_that_ends_meanwhile_ends_the_session(void **state)
{
    struct moved *self = *state;
    begin_move(self, FLYT_SERVER_LINK_MOVE_GIVE);
    stop_wholly(self);
    shutdown(self->client->fd, SHUT_RDWR);
    pthread_join(self->client->thread, NULL);
    assert_int_equal(pthread_create(&self->client->thread, NULL, serve, self->client), 0); /* ends at once */
}

int main(void)
{
#define TEST(name)       cmocka_unit_test_setup_teardown(name, set_up_moved, end)
#define UNATTACHED(name) cmocka_unit_test_setup_teardown(name, set_up_unattached, end)
#define ALONE(name)      cmocka_unit_test_setup_teardown(name, set_up_alone, end)
    const struct CMUnitTest tests[] = {
        UNATTACHED(not_before_its_program_is_there),
        UNATTACHED(an_older_client_is_not_moved),
        TEST(one_move_at_a_time),
        ALONE(what_cannot_be_moved_is_refused_by_name),
        TEST(nothing_is_written_and_no_room_is_said),
        TEST(the_node_manager_hears_that_it_can),
        TEST(work_in_flight_comes_to_its_end),
        TEST(parked_calls_and_host_functions_come_to_their_end),
        TEST(a_transfer_comes_to_its_end),
        TEST(a_call_that_comes_all_the_same_counts),
        TEST(mirrors_are_handed_on),
        TEST(what_never_ends_is_given_up_and_goes_on),
        TEST(a_program_that_does_not_stop_goes_on),
        TEST(pages_that_differ_end_it),
        TEST(the_last_pages_have_their_time),
        TEST(what_cannot_be_saved_ends_it),
        TEST(a_program_that_goes_on_by_itself_is_not_moved),
        TEST(a_fault_ends_it),
        TEST(a_suspended_program_is_moved_unless_it_waits),
        TEST(it_is_called_off_in_every_phase),
        TEST(the_end_of_the_link_calls_it_off_in_every_phase),
        TEST(it_fails_where_a_test_wants_it),
        TEST(who_leaves_finds_everything_again),
        TEST(who_fails_to_come_back_may_try_again),
        TEST(who_does_not_leave_is_shown_out),
        TEST(who_is_back_before_its_end_is_seen_is_taken),
        TEST(leaving_fails_where_a_test_wants_it),
        TEST(a_session_that_was_left_ends_by_order),
        TEST(a_program_that_ends_meanwhile_ends_the_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
