#include "cpu/server/test/fake_move.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#include "cpu/server/move/out/move.h"
#include "cpu/server/manager/orders.h"
#include "rpc/base/fault_point.h"

enum { SERVER_ID = 5, ROUNDS = 5, BAD_SLOT = 3 };

static _Atomic(uint64_t) now_ns;

static uint64_t standing_clock_ns(void)
{
    return atomic_load(&now_ns);
}

/* ---- the parts in the place of others: the linker puts these where move.c calls them ---- */

struct fake_move_parts fake_move_parts;

CUresult __wrap_flyt_copying_begin(struct flyt_session *session, const struct flyt_manager_link_move *move,
                                   struct flyt_error *err);
CUresult __wrap_flyt_copying_begin_image(struct flyt_session *session, const struct flyt_manager_link_move *move,
                                         int fd, int parent_fd, struct flyt_error *err);
void __wrap_flyt_copying_put_state(struct flyt_session *session, int state_fd);
void __wrap_flyt_copying_mirror(struct flyt_session *session, const struct flyt_manager_link_extent *extent, int fd);
bool __wrap_flyt_copying_advance(struct flyt_session *session);
void __wrap_flyt_copying_state(const struct flyt_session *session, struct flyt_manager_link_move_state *ret_state);
void __wrap_flyt_copying_finish(struct flyt_session *session);
void __wrap_flyt_copying_go_on(struct flyt_session *session);
int __wrap_flyt_copying_result(const struct flyt_session *session);
const char *__wrap_flyt_copying_sentence(const struct flyt_session *session);
uint64_t __wrap_flyt_copying_pages_last(const struct flyt_session *session);
void __wrap_flyt_copying_end(struct flyt_session *session);
void __wrap_flyt_save_libraries(struct flyt_session *session);
int __wrap_flyt_save_state(struct flyt_session *session, uint64_t sequence, struct flyt_error *err);

CUresult __wrap_flyt_copying_begin(struct flyt_session *session, const struct flyt_manager_link_move *move,
                                   struct flyt_error *err)
{
    int status = atomic_load(&fake_move_parts.begin_status);
    if (status)
        return flyt_error_set(err, status, "no room to copy"), CUDA_ERROR_OUT_OF_MEMORY;
    atomic_fetch_add(&fake_move_parts.begun, 1);
    fake_move_parts.is_finishing = fake_move_parts.is_put = false;
    return CUDA_SUCCESS;
}

CUresult __wrap_flyt_copying_begin_image(struct flyt_session *session, const struct flyt_manager_link_move *move,
                                         int fd, int parent_fd, struct flyt_error *err)
{
    assert_int_equal(move->kind, FLYT_MANAGER_LINK_MOVE_WRITE);
    assert_true(fd >= 0 && close(fd) == 0);
    CUresult result = __wrap_flyt_copying_begin(session, move, err);
    atomic_fetch_add(&fake_move_parts.images, result == CUDA_SUCCESS);
    return result;
}

void __wrap_flyt_copying_put_state(struct flyt_session *session, int state_fd)
{
    assert_true(fake_move_parts.is_finishing && state_fd >= 0 && close(state_fd) == 0);
    fake_move_parts.is_put = true;
    atomic_fetch_add(&fake_move_parts.put, 1);
}

void __wrap_flyt_copying_mirror(struct flyt_session *session, const struct flyt_manager_link_extent *extent, int fd)
{
    assert_true(fd >= 0 && close(fd) == 0);
    atomic_fetch_add(&fake_move_parts.mirrors, 1);
}

bool __wrap_flyt_copying_advance(struct flyt_session *session)
{
    return true;
}

void __wrap_flyt_copying_state(const struct flyt_session *session, struct flyt_manager_link_move_state *ret_state)
{
    ret_state->phase =
        atomic_load(&fake_move_parts.is_ready) ? FLYT_MANAGER_LINK_MOVE_READY : FLYT_MANAGER_LINK_MOVE_COPYING;
    ret_state->round = 1;
    ret_state->pages_count = 12;
}

void __wrap_flyt_copying_finish(struct flyt_session *session)
{
    fake_move_parts.is_finishing = true;
    atomic_fetch_add(&fake_move_parts.finished, 1);
}

void __wrap_flyt_copying_go_on(struct flyt_session *session)
{
    fake_move_parts.is_finishing = false;
    atomic_fetch_add(&fake_move_parts.gone_on, 1);
}

int __wrap_flyt_copying_result(const struct flyt_session *session)
{
    int rounds = atomic_load(&fake_move_parts.rounds);
    if (fake_move_parts.is_put)
        return atomic_load(&fake_move_parts.put_result);
    return fake_move_parts.is_finishing ? atomic_load(&fake_move_parts.result) : rounds ? rounds : -EAGAIN;
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
    atomic_fetch_add(&fake_move_parts.ended, 1);
}

void __wrap_flyt_save_libraries(struct flyt_session *session)
{
    assert_int_equal(session->move->move_id, MOVE_ID);
    atomic_fetch_add(&fake_move_parts.listed, 1);
}

int __wrap_flyt_save_state(struct flyt_session *session, uint64_t sequence, struct flyt_error *err)
{
    int status = atomic_load(&fake_move_parts.save_status);
    if (status)
        return flyt_error_set(err, status, "a variable cannot be read");
    assert_null(session->busy_first);
    assert_null(session->defer.first);
    assert_null(session->jobs.first);
    atomic_store(&fake_move_parts.saved_sequence, sequence);
    return memfd_create("move_test", MFD_CLOEXEC);
}

/* ---- the session ---- */

struct flyt_driver fake_move_driver;

static CUresult export_memory(void *ret_handle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                              unsigned long long flags)
{
    int fd = memfd_create("move_test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    *(int *)ret_handle = fd;
    return CUDA_SUCCESS;
}

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

void fake_move_attach_without(struct moved *self, uint32_t without)
{
    unsigned char record[FLYT_MANAGER_LINK_DATA_BYTES_MAX];
    size_t bytes = encode_handshake(self, record, sizeof record, FLYT_CONNECTION_SESSION, NULL, without);
    assert_int_equal(send(self->client->fd, record, bytes, MSG_NOSIGNAL), bytes);
    assert_int_equal(await_handshake(self), FLYT_HANDSHAKE_OK);
}

void fake_move_attach(struct moved *self)
{
    fake_move_attach_without(self, 0);
}

static struct moved *prepare(void)
{
    struct moved *self = calloc(1, sizeof *self);
    const struct flyt_manager_link_session granted = {
        .session_id = 1, .server_id = SERVER_ID, .slot_count = 1, .ledger_count = 1, .group_size = 8};
    int fds[2];
    assert_non_null(self);
    memset(&fake_move_parts, 0, sizeof fake_move_parts);
    atomic_store(&fake_move_parts.result, -EAGAIN);
    atomic_store(&fake_move_parts.put_result, -EAGAIN);
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
    fake_move_driver = *session->driver;
    fake_move_driver.cuMemExportToShareableHandle = export_memory;
    session->driver = &fake_move_driver;
    session->clock_ns = standing_clock_ns;
    session->is_scrubbing = false;
    memset(session->token, 0x3c, sizeof session->token);
    return self;
}

void fake_move_start(struct moved *self)
{
    assert_int_equal(pthread_create(&self->client->thread, NULL, serve, self->client), 0);
}

int fake_move_set_up(void **state)
{
    struct moved *self = prepare();
    fake_move_start(self);
    fake_move_attach(self);
    *state = self;
    return 0;
}

int fake_move_set_up_unattached(void **state)
{
    struct moved *self = prepare();
    fake_move_start(self);
    *state = self;
    return 0;
}

int fake_move_set_up_alone(void **state)
{
    *state = prepare();
    return 0;
}

void fake_move_order(struct moved *self, uint32_t kind, int fd)
{
    self->order.kind = kind;
    assert_int_equal(flyt_manager_leave_order_with(&self->manager, &self->order, fd), 0);
    flyt_session_kick(&self->client->session);
    self->order.data_bytes = 0;
}

int fake_move_tear_down(void **state)
{
    struct moved *self = *state;
    struct flyt_endpoint *client;
    fake_move_order(self, FLYT_MANAGER_LINK_KILL, -1); /* one that was left has no client whose end it sees */
    close(self->client->fd);
    pthread_join(self->client->thread, NULL);
    flyt_orders_take(&self->client->session); /* that order, where the session had ended already */
    flyt_session_fini(&self->client->session);
    free(self->client);
    if (flyt_manager_take_client(&self->manager, &client))
        flyt_endpoint_close(client);
    close(self->fd);
    close(flyt_manager_change_link(&self->manager, -1));
    flyt_ledger_close(self->manager.ledgers[0]);
    flyt_ledger_close(self->ledger);
    free(self);
    return flyt_fault_set(NULL);
}

/* ---- the node manager ---- */

void fake_move_next(struct moved *self)
{
    for (;;) {
        hear(self->fd, &self->message);
        if (self->message.kind == FLYT_MANAGER_LINK_EXTENT) {
            self->extents++;
            self->last_extent_id = self->message.extent.extent_id;
        } else if (self->message.kind == FLYT_MANAGER_LINK_EXTENT_GONE) {
            self->extents_gone++;
        } else if (self->message.kind != FLYT_MANAGER_LINK_USE) {
            return;
        }
    }
}

void fake_move_expect_state(struct moved *self, uint32_t phase, int outcome)
{
    fake_move_next(self);
    assert_int_equal(self->message.kind, FLYT_MANAGER_LINK_MOVE_STATE);
    assert_int_equal(self->message.move_state.phase, phase);
    assert_int_equal(self->message.move_state.outcome, outcome);
    if (phase != FLYT_MANAGER_LINK_MOVE_REFUSED)
        assert_int_equal(self->message.move_state.move_id, MOVE_ID);
}

const struct flyt_manager_link_stopped *fake_move_expect_stopped(struct moved *self, int outcome)
{
    do
        fake_move_next(self);
    while (self->message.kind == FLYT_MANAGER_LINK_MOVE_STATE &&
           self->message.move_state.phase == FLYT_MANAGER_LINK_MOVE_LAST);
    assert_int_equal(self->message.kind, FLYT_MANAGER_LINK_STOPPED);
    assert_int_equal(self->message.stopped.outcome, outcome);
    assert_int_equal(self->message.stopped.move_id, MOVE_ID);
    if (outcome)
        assert_true(self->message.data_bytes > 0);
    return &self->message.stopped;
}

void fake_move_expect_left(struct moved *self)
{
    fake_move_next(self);
    assert_int_equal(self->message.kind, FLYT_MANAGER_LINK_LEFT);
    assert_int_equal(self->message.stop.move_id, MOVE_ID);
}

void fake_move_expect_nothing(struct moved *self)
{
    for (unsigned i = 0; i < ROUNDS; i++) {
        self->order.limit = (struct flyt_manager_link_limit){.slot = BAD_SLOT, .revision = i};
        fake_move_order(self, FLYT_MANAGER_LINK_LIMIT, -1);
        fake_move_next(self);
        assert_int_equal(self->message.kind, FLYT_MANAGER_LINK_LIMIT_DONE);
        assert_int_equal(self->message.limit_done.revision, i);
        assert_int_equal(self->message.limit_done.outcome, -EINVAL);
    }
}

void fake_move_send(struct moved *self, uint64_t move_id, enum flyt_manager_link_move_kind kind)
{
    int fd = kind == FLYT_MANAGER_LINK_MOVE_WRITE ? memfd_create("move_test", MFD_CLOEXEC) : -1;
    self->order.move = (struct flyt_manager_link_move){
        .move_id = move_id, .kind = kind, .rounds_max = 3, .with_sharers = self->with_sharers};
    fake_move_order(self, FLYT_MANAGER_LINK_MOVE, fd);
}

void fake_move_begin(struct moved *self, enum flyt_manager_link_move_kind kind)
{
    fake_move_send(self, MOVE_ID, kind);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_BEGUN, 0);
    fake_move_expect_state(
        self, kind == FLYT_MANAGER_LINK_MOVE_GIVE ? FLYT_MANAGER_LINK_MOVE_READY : FLYT_MANAGER_LINK_MOVE_COPYING, 0);
    assert_int_equal(atomic_load(&fake_move_parts.begun), kind != FLYT_MANAGER_LINK_MOVE_GIVE);
    assert_int_equal(atomic_load(&fake_move_parts.images), kind == FLYT_MANAGER_LINK_MOVE_WRITE);
}

void fake_move_order_of(struct moved *self, uint32_t kind, uint64_t move_id)
{
    self->order.stop = (struct flyt_manager_link_stop){.move_id = move_id, .timeout_us = TIMEOUT_US};
    fake_move_order(self, kind, -1);
}

void fake_move_pass_time(struct moved *self, uint64_t us)
{
    atomic_fetch_add(&now_ns, us * 1000);
    flyt_session_kick(&self->client->session);
}

void fake_move_suspend(struct moved *self, bool is_suspended)
{
    self->order.share = (struct flyt_manager_link_share){.revision = 3, .is_suspended = is_suspended};
    fake_move_order(self, FLYT_MANAGER_LINK_SHARE, -1);
    fake_move_next(self);
    assert_int_equal(self->message.kind, FLYT_MANAGER_LINK_SHARE_DONE);
}

/* ---- the client ---- */

uint64_t fake_move_await_stop(struct moved *self)
{
    flyt_back_stop back;
    await_back(self->client, FLYT_BACK_STOP, (xdrproc_t)xdr_flyt_back_stop, &back);
    return back.number;
}

void fake_move_await_go_on(struct moved *self, uint64_t number)
{
    flyt_back_stop back;
    await_back(self->client, FLYT_BACK_GO_ON, (xdrproc_t)xdr_flyt_back_stop, &back);
    assert_int_equal(back.number, number);
}

void fake_move_answer_stop(struct moved *self, uint64_t number)
{
    SEND(self->client, FLYT_SESSION_STOPPED, session_stopped, .number = number);
}

uint64_t fake_move_stop(struct moved *self)
{
    fake_move_order_of(self, FLYT_MANAGER_LINK_STOP, MOVE_ID);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPING, 0);
    uint64_t number = fake_move_await_stop(self);
    fake_move_answer_stop(self, number);
    return number;
}

uint64_t fake_move_stop_wholly(struct moved *self)
{
    uint64_t number = fake_move_stop(self);
    assert_int_equal(fake_move_expect_stopped(self, 0)->sequence, self->client->xid);
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_STOPPED, 0);
    return number;
}

void fake_move_expect_work(struct moved *self, uint64_t address)
{
    set(self->client, legacy, address);
    assert_int_equal(synchronize(self->client, legacy), CUDA_SUCCESS);
    flyt_progress progress = barrier(self->client);
    assert_int_equal(progress.completed, self->client->xid);
}

flyt_back_moved fake_move_leave(struct moved *self)
{
    flyt_back_moved back;
    fake_move_order_of(self, FLYT_MANAGER_LINK_LEAVE, MOVE_ID);
    await_back(self->client, FLYT_BACK_MOVED, (xdrproc_t)xdr_flyt_back_moved, &back);
    return back;
}

void fake_move_leave_wholly(struct moved *self)
{
    assert_int_equal(fake_move_leave(self).sequence, self->client->xid);
    shutdown(self->client->fd, SHUT_RDWR);
    fake_move_expect_left(self);
}

flyt_handshake_status fake_move_take_back_with(struct moved *self, const unsigned char *token,
                                               flyt_connection_kind kind)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const struct timeval limit = {.tv_sec = 60};
    setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    close(self->client->fd);
    self->client->fd = fds[0];
    self->client->xid = 0;
    self->order.data_bytes =
        (uint32_t)encode_handshake(self, self->order.data, FLYT_MANAGER_LINK_DATA_BYTES_MAX, kind, token, 0);
    self->order.stop = (struct flyt_manager_link_stop){.move_id = MOVE_ID};
    fake_move_order(self, FLYT_MANAGER_LINK_TAKE_BACK, fds[1]);
    return await_handshake(self);
}

void fake_move_take_back(struct moved *self)
{
    assert_int_equal(fake_move_take_back_with(self, self->client->session.token, FLYT_CONNECTION_RESUME),
                     FLYT_HANDSHAKE_OK);
}

bool fake_move_is_whole(struct moved *self, int want)
{
    flyt_session_is_whole_res res;
    uint32_t xid = SEND(self->client, FLYT_SESSION_IS_WHOLE, session_is_whole, .thread = 1);
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_session_is_whole_res, &res);
    assert_int_equal(res.result, want);
    return res.is_whole;
}

flyt_progress fake_move_resume_end(struct moved *self, uint64_t sequence, int want)
{
    flyt_session_resume_end_res res;
    uint32_t xid = SEND(self->client, FLYT_SESSION_RESUME_END, session_resume_end, .sequence = sequence);
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_session_resume_end_res, &res);
    assert_int_equal(res.result, want);
    return res.progress;
}

void fake_move_go_on_behind(struct moved *self, uint64_t sequence)
{
    assert_true(fake_move_is_whole(self, CUDA_SUCCESS));
    flyt_progress progress = fake_move_resume_end(self, sequence, CUDA_SUCCESS);
    assert_true(progress.received == sequence && progress.executed == sequence && progress.completed == sequence);
    self->client->xid = (uint32_t)sequence;
    fake_move_expect_state(self, FLYT_MANAGER_LINK_MOVE_OVER, 0);
}

void fake_move_await_end(struct moved *self)
{
    while (receive(self->client))
        ;
}
