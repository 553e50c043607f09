/*
 * Orders about the memory limit under a running session, over a driver that does nothing: when the client is asked for
 * what it still has, and what the answer to the node manager waits for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "cpu/server/test/fake_client.h"
#include "cpu/server/manager/limit.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/cuda/reserve.h"

enum { MIB = 1 << 20, SERVER_ID = 5, LIBRARY_BYTES = 6 * MIB };

static const uint64_t library_id = (uint64_t)FLYT_ID_LIBRARY << 56 | 1;

/* The server's clock, where time is measured against FLYT_LIMIT_ANSWER_MS: it stands. */
static _Atomic(uint64_t) now_ns;

static uint64_t standing_clock_ns(void)
{
    return atomic_load(&now_ns);
}

/* The fake driver, with descriptors of memory. */
static struct flyt_driver driver;

static CUresult export_memory(void *ret_handle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                              unsigned long long flags)
{
    int fd = memfd_create("limit_test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    *(int *)ret_handle = fd;
    return CUDA_SUCCESS;
}

/* A driver takes its time to unload. */
static sem_t may_unload;

static CUresult unload_slowly(CUlibrary library)
{
    while (sem_wait(&may_unload))
        ;
    return CUDA_SUCCESS;
}

struct limited {
    struct fixture *client;
    struct flyt_manager manager;
    struct flyt_ledger *ledger;
    int fd; /* the node manager's end of the link */
    struct flyt_manager_link_message message;
};

/* The client's handshake: of this build, or of one that knows no FLYT_BACK_SEND_ALL. */
static void attach(struct fixture *client, bool is_older)
{
    flyt_handshake_args args = {.build = "test", .program_name = "limit_test", .pid = 1};
    flyt_signature *rows = calloc(flyt_signature_count, sizeof *rows);
    flyt_handshake_res res = {0};
    memcpy(args.base_hash, flyt_base_hash, sizeof args.base_hash);
    args.procedures.procedures_val = rows;
    for (unsigned i = 0; i < flyt_signature_count; i++)
        if (!is_older || flyt_signatures[i].procedure != FLYT_SESSION_ALL_SENT)
            rows[args.procedures.procedures_len++] = flyt_signatures[i];
    uint32_t xid = send_call(client, FLYT_HANDSHAKE, (xdrproc_t)xdr_flyt_handshake_args, &args);
    client->xid--; /* it has no number */
    await_reply(client, xid, (xdrproc_t)xdr_flyt_handshake_res, &res);
    assert_int_equal(res.status, FLYT_HANDSHAKE_OK);
    assert_int_equal(res.accepted.accepted_len, flyt_signature_count - is_older);
    xdr_free((xdrproc_t)xdr_flyt_handshake_res, &res);
    free(rows);
}

/* As if it had been loaded. */
static void add_library(struct flyt_session *session)
{
    struct flyt_library *library = calloc(1, sizeof *library);
    assert_non_null(library);
    assert_int_equal(sem_init(&may_unload, 0, 0), 0);
    library->object.id = library_id;
    library->session = session;
    library->cu_library = (CUlibrary)(uintptr_t)1;
    library->code.footprint_bytes = LIBRARY_BYTES;
    assert_int_equal(flyt_session_insert(session, &library->object, FLYT_ID_LIBRARY), CUDA_SUCCESS);
    assert_int_equal(flyt_reserve_library(&session->devices[0], library), CUDA_SUCCESS);
}

static struct limited *begin(bool is_older)
{
    struct limited *self = calloc(1, sizeof *self);
    const struct flyt_manager_link_session granted = {
        .session_id = 1, .server_id = SERVER_ID, .slot_count = 1, .ledger_count = 1};
    int fds[2];
    assert_non_null(self);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    const struct timeval limit = {.tv_sec = 60};
    setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    self->fd = fds[0];
    assert_int_equal(flyt_ledger_new(64 * MIB, &self->ledger), 0);
    const int ledger_fd = flyt_ledger_fd(self->ledger);
    self->client = make();
    assert_int_equal(flyt_manager_open(&self->manager, fds[1], &granted, &ledger_fd), 0);
    struct flyt_session *session = &self->client->session;
    session->manager = &self->manager;
    session->devices[0].ledger = self->manager.ledgers[0];
    driver = *session->driver;
    driver.cuMemExportToShareableHandle = export_memory;
    driver.cuLibraryUnload = unload_slowly;
    session->driver = &driver;
    session->clock_ns = standing_clock_ns;
    session->is_scrubbing = false;
    add_library(session);
    assert_int_equal(pthread_create(&self->client->thread, NULL, serve, self->client), 0);
    attach(self->client, is_older);
    return self;
}

static int set_up_newer(void **state)
{
    *state = begin(false);
    return 0;
}

static int set_up_older(void **state)
{
    *state = begin(true);
    return 0;
}

static int end(void **state)
{
    struct limited *self = *state;
    void *client = self->client;
    sem_post(&may_unload);
    tear_down(&client);
    close(self->fd);
    close(flyt_manager_change_link(&self->manager, -1));
    flyt_ledger_close(self->manager.ledgers[0]);
    flyt_ledger_close(self->ledger);
    free(self);
    return 0;
}

static void order(struct limited *self, uint64_t revision)
{
    struct flyt_manager_link_message message = {.kind = FLYT_MANAGER_LINK_LIMIT};
    message.limit = (struct flyt_manager_link_limit){.memory_bytes = 64 * MIB, .revision = revision};
    assert_int_equal(flyt_manager_leave_order(&self->manager, &message), 0);
    flyt_session_kick(&self->client->session);
}

/* Takes the memory that the server has let go of out of the ledger. Its server is told nothing, as if that took long:
 * what counts is that this message came. */
static void credit(struct limited *self)
{
    assert_int_equal(flyt_ledger_release(self->ledger, SERVER_ID, self->message.extent.bytes), 0);
}

/* The next message about the limit. False: there is none, and may_wait was not said. */
static bool next_answer(struct limited *self, bool may_wait)
{
    do {
        struct pollfd ready = {.fd = self->fd, .events = POLLIN};
        if (!may_wait && poll(&ready, 1, 0) == 0)
            return false;
        hear(self->fd, &self->message);
        if (self->message.kind == FLYT_MANAGER_LINK_EXTENT_GONE)
            credit(self);
    } while (self->message.kind != FLYT_MANAGER_LINK_LIMIT_DONE);
    return true;
}

static void expect(struct limited *self, uint64_t revision, uint64_t used_bytes)
{
    assert_true(next_answer(self, true));
    assert_int_equal(self->message.limit_done.revision, revision);
    assert_int_equal(self->message.limit_done.outcome, 0);
    assert_int_equal(self->message.limit_done.used_bytes, used_bytes);
    assert_int_equal(flyt_ledger_charged(self->ledger, SERVER_ID), used_bytes);
    assert_int_equal(flyt_fake_used_memory(), used_bytes);
}

/* Rounds of the loop pass, for longer than an older client would have been waited for. */
static void expect_nothing(struct limited *self)
{
    usleep(3 * FLYT_LIMIT_OLDER_QUIET_US);
    for (unsigned i = 0; i < 5; i++)
        barrier(self->client);
    assert_false(next_answer(self, false));
}

static uint64_t await_notice(struct limited *self)
{
    flyt_back_send_all back;
    await_back(self->client, FLYT_BACK_SEND_ALL, (xdrproc_t)xdr_flyt_back_send_all, &back);
    return back.number;
}

static void all_sent(struct limited *self, uint64_t number)
{
    SEND(self->client, FLYT_SESSION_ALL_SENT, session_all_sent, .number = number);
}

static void give_back(struct limited *self, uint64_t address)
{
    SEND(self->client, FLYT_MEMORY_FREE, memory_free, .address = address);
}

/* ---- tests ---- */

static void the_answer_waits_for_what_the_client_has(void **state)
{
    struct limited *self = *state;
    uint64_t first = alloc(self->client, 4 * MIB, CUDA_SUCCESS), second = alloc(self->client, 8 * MIB, CUDA_SUCCESS);
    alloc(self->client, 2 * MIB, CUDA_SUCCESS);
    order(self, 7);
    uint64_t number = await_notice(self);
    expect_nothing(self);
    give_back(self, first);
    give_back(self, second);
    expect_nothing(self);
    all_sent(self, number);
    expect(self, 7, 2 * MIB);
}

static void every_order_is_asked_for(void **state)
{
    struct limited *self = *state;
    uint64_t address = alloc(self->client, 4 * MIB, CUDA_SUCCESS);
    order(self, 7);
    uint64_t first = await_notice(self);
    order(self, 8);
    uint64_t second = await_notice(self);
    assert_int_equal(second, first + 1);
    /* What was freed between the two is found, too. */
    all_sent(self, first);
    expect_nothing(self);
    give_back(self, address);
    all_sent(self, second);
    expect(self, 8, 0);
    expect(self, 8, 0);
    assert_false(next_answer(self, false));
    order(self, 9);
    all_sent(self, await_notice(self));
    expect(self, 9, 0);
}

static void answers_to_nothing_do_no_harm(void **state)
{
    struct limited *self = *state;
    alloc(self->client, 4 * MIB, CUDA_SUCCESS);
    all_sent(self, 0);
    all_sent(self, 1);
    all_sent(self, UINT64_MAX);
    order(self, 7);
    uint64_t number = await_notice(self);
    all_sent(self, number + 1);
    all_sent(self, number - 1);
    expect_nothing(self);
    all_sent(self, number);
    expect(self, 7, 4 * MIB);
}

static void the_answer_waits_for_the_gpu(void **state)
{
    struct limited *self = *state;
    create(self->client, 0, CU_STREAM_NON_BLOCKING); /* driver stream 1 */
    uint64_t freed = alloc(self->client, 4 * MIB, CUDA_SUCCESS), later = alloc(self->client, 8 * MIB, CUDA_SUCCESS);
    flyt_fake_hold(1);
    set(self->client, stream_id(0), freed);
    order(self, 7);
    uint64_t number = await_notice(self);
    give_back(self, freed);
    all_sent(self, number);
    expect_nothing(self);
    flyt_fake_release(1);
    expect(self, 7, 8 * MIB);
    /* What is freed later than the answer is not waited for. */
    order(self, 8);
    number = await_notice(self);
    flyt_fake_hold(1);
    set(self->client, stream_id(0), later);
    all_sent(self, number);
    give_back(self, later);
    expect(self, 8, 8 * MIB);
    flyt_fake_release(1);
}

static void the_answer_waits_for_deferred_calls(void **state)
{
    struct limited *self = *state;
    flyt_back_host_function back;
    create(self->client, 0, CU_STREAM_NON_BLOCKING);
    uint64_t address = alloc(self->client, 4 * MIB, CUDA_SUCCESS);
    SEND(self->client, FLYT_HOST_FUNCTION_LAUNCH, host_function_launch, .stream_id = stream_id(0), .function_id = 9);
    await_back(self->client, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function, &back);
    set(self->client, stream_id(0), address);
    give_back(self, address); /* deferred behind the set, which is deferred behind the host function */
    order(self, 7);
    all_sent(self, await_notice(self));
    /* No barrier: it would wait, too. */
    usleep(3 * FLYT_LIMIT_OLDER_QUIET_US);
    assert_false(next_answer(self, false));
    SEND(self->client, FLYT_HOST_FUNCTION_DONE, host_function_done, .function_id = 9);
    expect(self, 7, 0);
}

static void the_answer_waits_for_the_driver(void **state)
{
    struct limited *self = *state;
    assert_int_equal(flyt_ledger_used(self->ledger, SERVER_ID), LIBRARY_BYTES);
    SEND(self->client, FLYT_LIBRARY_UNLOAD, library_unload, .library_id = library_id);
    order(self, 7);
    all_sent(self, await_notice(self));
    expect_nothing(self);
    sem_post(&may_unload);
    expect(self, 7, 0);
    assert_int_equal(flyt_ledger_used(self->ledger, SERVER_ID), 0);
}

static void a_client_that_says_nothing_is_waited_for_so_long(void **state)
{
    struct limited *self = *state;
    uint64_t address = alloc(self->client, 4 * MIB, CUDA_SUCCESS);
    order(self, 7);
    uint64_t number = await_notice(self);
    atomic_fetch_add(&now_ns, FLYT_LIMIT_ANSWER_MS * 1000000ull - 1);
    expect_nothing(self);
    atomic_fetch_add(&now_ns, 1);
    expect(self, 7, 4 * MIB);
    give_back(self, address);
    all_sent(self, number); /* late */
    order(self, 8);
    all_sent(self, await_notice(self));
    expect(self, 8, 0);
}

static void after_a_fault_nobody_is_asked(void **state)
{
    struct limited *self = *state;
    uint64_t address = alloc(self->client, 4 * MIB, CUDA_SUCCESS);
    flyt_back_fatal back = {0};
    create(self->client, 0, CU_STREAM_NON_BLOCKING);
    flyt_fake_hold(1);
    set(self->client, stream_id(0), address);
    SEND(self->client, FLYT_STREAM_SYNCHRONIZE, stream_synchronize, .stream_id = stream_id(0));
    flyt_fake_fail(CUDA_ERROR_ILLEGAL_ADDRESS);
    await_back(self->client, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &back);
    xdr_free((xdrproc_t)xdr_flyt_back_fatal, &back);
    order(self, 7);
    expect(self, 7, 4 * MIB);
}

/* No notice, which it would take for an error of the wire: the input must have been empty for a moment. */
static void an_older_client_is_not_asked(void **state)
{
    struct limited *self = *state;
    uint64_t address = alloc(self->client, 4 * MIB, CUDA_SUCCESS);
    give_back(self, address);
    order(self, 7);
    expect(self, 7, 0);
    barrier(self->client); /* fails at a notice other than of progress */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up_newer, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_answer_waits_for_what_the_client_has),
        TEST(every_order_is_asked_for),
        TEST(answers_to_nothing_do_no_harm),
        TEST(the_answer_waits_for_the_gpu),
        TEST(the_answer_waits_for_deferred_calls),
        TEST(the_answer_waits_for_the_driver),
        TEST(a_client_that_says_nothing_is_waited_for_so_long),
        TEST(after_a_fault_nobody_is_asked),
        cmocka_unit_test_setup_teardown(an_older_client_is_not_asked, set_up_older, end),
    };
    return cmocka_run_group_tests_name("limit", tests, NULL, NULL);
}
