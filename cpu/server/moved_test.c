/*
 * A session moves from one server to another while its program runs: two real server processes on one software GPU, a
 * node manager that the test plays (fake_manager.h), which hands on what they say, and a program that makes its objects
 * again by hand (fake_program.h). The memory itself goes from one to the other, or is copied while the program runs;
 * the state goes through an image.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/fake_manager.h"
#include "cpu/server/fake_program.h"
#include "rpc/transport/handshake.h"

enum { MIB = 1 << 20, RANGES = 3, LIBRARIES = 3, SERVERS = 3, LAPS = SERVERS - 1 };

#define LONG_US 600000000ull

static const char *const one_gpu[] = {"--soft", "1", "--soft-memory", "256M", NULL};

/* add: counter += the argument, and a mark in big; keep: *p = &target, pointer = &target; use: **p += 1. */
static const char first_text[] =
    PTX ".visible .global .align 4 .u32 counter = 5;\n.global .align 4 .b8 big[6291456];\n"
        ".global .align 8 .u32 target = 77;\n.global .align 8 .u64 pointer;\n.const .align 4 .u32 factor = 3;\n"
        ".visible .entry add(.param .u64 by_)\n{\n.reg .b32 r, s;\n.reg .b64 p;\nld.param.u64 p, [by_];\n"
        "cvt.u32.u64 s, p;\nld.global.u32 r, [counter];\nadd.u32 r, r, s;\nst.global.u32 [counter], r;\n"
        "mov.u64 p, big;\nst.global.u32 [p + 6291452], r;\nret;\n}\n"
        ".visible .entry keep(.param .u64 p_)\n{\n.reg .b64 p, q;\nld.param.u64 p, [p_];\nmov.u64 q, target;\n"
        "st.global.u64 [p], q;\nst.global.u64 [pointer], q;\nret;\n}\n"
        ".visible .entry use(.param .u64 p_)\n{\n.reg .b32 r;\n.reg .b64 p, q;\nld.param.u64 p, [p_];\n"
        "ld.global.u64 q, [p];\nld.global.u32 r, [q];\nadd.u32 r, r, 1;\nst.global.u32 [q], r;\n"
        "st.global.u32 [p + 8], r;\nld.global.u64 q, [pointer];\nld.global.u32 r, [q];\nst.global.u32 [p + 12], r;\n"
        "ld.global.u32 r, [counter];\nst.global.u32 [p + 16], r;\nmov.u64 q, big;\nld.global.u32 r, [q + 6291452];\n"
        "st.global.u32 [p + 20], r;\nld.const.u32 r, [factor];\nst.global.u32 [p + 24], r;\nret;\n}\n";
static const char second_text[] =
    PTX ".visible .global .align 4 .u32 counter = 100;\n"
        ".visible .entry step(.param .u64 p_)\n{\n.reg .b32 r;\n.reg .b64 p;\nld.param.u64 p, [p_];\n"
        "ld.global.u32 r, [counter];\nadd.u32 r, r, 1;\nst.global.u32 [counter], r;\nst.global.u32 [p], r;\nret;\n}\n";

struct fixture {
    struct fake_door door;
    struct fake_server servers[SERVERS];
    unsigned now; /* which of them serves */
    struct fake_wire wire;
    struct flyt_ledger *ledger;
    uint64_t addresses[RANGES], sizes[RANGES], sequence;
    bool is_loaded[LIBRARIES + 1];
    bool is_mirrored; /* memory is copied: the second server's own, for each extent of the first one */
    int mirror_fds[FAKE_EXTENTS_MAX];
    unsigned mirror_count;
    bool is_reversed; /* libraries are loaded the other way round at first */
};

static struct fake_server *here(struct fixture *self)
{
    return &self->servers[self->now];
}

static struct fake_server *there(struct fixture *self)
{
    return &self->servers[self->now + 1];
}

static int set_up(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    fake_door_open(&self->door);
    self->wire.fd = -1;
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *self = *state;
    fake_door_close(&self->door);
    flyt_ledger_close(self->ledger);
    free(self);
    return 0;
}

static void load_numbered(struct fixture *self, unsigned number)
{
    load(&self->wire, number, number == 1 ? first_text : second_text, number == 1 ? 3 : 1);
    self->is_loaded[number] = true;
}

static void unload(struct fixture *self, unsigned number)
{
    flyt_session_barrier_res res;
    FAKE_WIRE_SEND(&self->wire, FLYT_LIBRARY_UNLOAD, library_unload, .library_id = library(number));
    assert_int_equal(FAKE_WIRE_CALL(&self->wire, FLYT_SESSION_BARRIER, session_barrier, &res, .thread = 1),
                     CUDA_SUCCESS);
    self->is_loaded[number] = false;
}

static void allocate(struct fixture *self, unsigned i, uint64_t bytes)
{
    self->sizes[i] = bytes;
    assert_int_equal(alloc(&self->wire, bytes, &self->addresses[i]), CUDA_SUCCESS);
    fill(&self->wire, self->addresses[i], bytes, 0x21 + i);
}

static void record(struct fixture *self, unsigned number)
{
    flyt_stream_synchronize_res res;
    FAKE_WIRE_SEND(&self->wire, FLYT_EVENT_RECORD, event_record, .event_id = event(number), .stream_id = legacy);
    assert_int_equal(
        FAKE_WIRE_CALL(&self->wire, FLYT_STREAM_SYNCHRONIZE, stream_synchronize, &res, .stream_id = legacy),
        CUDA_SUCCESS);
}

/* A program in the midst of its work. */
static void begin(struct fixture *self)
{
    struct fake_server *server = here(self);
    fake_server_start(server, one_gpu);
    assert_true(server->is_ready);
    assert_int_equal(flyt_ledger_new(128 * MIB, &self->ledger), 0);
    fake_door_grant(&self->door, server, self->ledger, 128 * MIB);
    snprintf(self->door.session.rejoin_path, sizeof self->door.session.rejoin_path, "%s/link", getenv("FAKE_IMAGES"));
    assert_int_equal(fake_wire_open(&self->wire, self->door.url, FLYT_CONNECTION_SESSION, NULL), FLYT_HANDSHAKE_OK);
    store(&self->wire, first_text);
    store(&self->wire, second_text);
    load_numbered(self, self->is_reversed ? 2 : 1);
    load_numbered(self, self->is_reversed ? 1 : 2);
    allocate(self, 0, 1000);
    allocate(self, 1, 4 * MIB);
    for (unsigned i = 1; i <= 4; i++)
        FAKE_WIRE_SEND(&self->wire, FLYT_EVENT_CREATE, event_create, .event_id = event(i));
    record(self, 1);
    launch(&self->wire, 1, 0, 10);
    record(self, 2);
}

/* ---- the node manager's part ---- */

/* Has the second server make memory for what the first one has, and the first one copy to it. */
static void mirror_all(struct fixture *self)
{
    struct fake_server *from = here(self), *to = there(self);
    for (; self->mirror_count < from->extent_count; self->mirror_count++) {
        const struct fake_extent *held = &from->extents[self->mirror_count];
        const struct flyt_server_link_extent extent = {held->extent_id, held->bytes, held->address, held->slot, 0};
        struct flyt_server_link_message *message = calloc(1, sizeof *message);
        unsigned made_count = to->made_count;
        assert_non_null(message);
        fake_server_send(to, FLYT_SERVER_LINK_MAKE, &extent, sizeof extent, NULL);
        fake_server_wait(to, &to->made_count, made_count + 1);
        assert_int_equal(to->made.outcome, 0);
        assert_true(to->made_fd >= 0 && to->made.extent.extent_id == extent.extent_id);
        message->kind = FLYT_SERVER_LINK_MIRROR;
        message->extent = extent;
        fake_server_post(from, message, to->made_fd);
        free(message);
        self->mirror_fds[self->mirror_count] = to->made_fd;
        to->made_fd = -1;
    }
}

static void begin_move(struct fixture *self, uint64_t move_id)
{
    const struct flyt_server_link_move move = {.move_id = move_id,
                                               .kind = self->is_mirrored ? FLYT_SERVER_LINK_MOVE_MIRROR
                                                                         : FLYT_SERVER_LINK_MOVE_GIVE,
                                               .rounds_max = self->is_mirrored ? 6 : 1,
                                               .rest_bytes = MIB};
    struct flyt_server_link_session session = self->door.session;
    struct fake_server *to = there(self);
    fake_server_start(to, one_gpu);
    assert_true(to->is_ready);
    session.ledger_count = 0;
    fake_server_send(to, FLYT_SERVER_LINK_PREPARE, &session, sizeof session, NULL);
    fake_server_wait(to, &to->prepared_count, 1);
    assert_int_equal(to->prepared.outcome, 0);
    here(self)->forward = to;
    fake_server_send(here(self), FLYT_SERVER_LINK_MOVE, &move, sizeof move, NULL);
    if (self->is_mirrored)
        mirror_all(self);
    fake_server_wait_phase(here(self), move_id, FLYT_SERVER_LINK_MOVE_READY);
}

static void stop(struct fixture *self, uint64_t move_id)
{
    struct fake_server *from = here(self);
    flyt_back_stop back;
    unsigned stopped_count = from->stopped_count;
    fake_server_send_move(from, FLYT_SERVER_LINK_STOP, move_id, LONG_US);
    fake_wire_await_back(&self->wire, FLYT_BACK_STOP, (xdrproc_t)xdr_flyt_back_stop, &back);
    FAKE_WIRE_SEND(&self->wire, FLYT_SESSION_STOPPED, session_stopped, .number = back.number);
    fake_server_wait(from, &from->stopped_count, stopped_count + 1);
    if (from->stopped.outcome)
        fail_msg("it has not stopped: %s", from->sentence);
    self->sequence = from->stopped.sequence;
}

/* How the other server takes it. */
static int32_t send_state(struct fixture *self, uint64_t move_id)
{
    struct fake_server *from = here(self), *to = there(self);
    struct flyt_server_link_message *message = calloc(1, sizeof *message);
    unsigned prepared_count = to->prepared_count;
    assert_non_null(message);
    message->kind = FLYT_SERVER_LINK_STATE;
    message->stop.move_id = move_id;
    assert_true(from->state_fd >= 0);
    fake_server_post(to, message, from->state_fd);
    free(message);
    fake_server_wait(to, &to->prepared_count, prepared_count + 1);
    assert_true(to->prepared.move_id == move_id);
    assert_true(to->prepared.sequence == (to->prepared.outcome ? 0 : self->sequence));
    return to->prepared.outcome;
}

static void give_all(struct fixture *self)
{
    struct fake_server *from = here(self), *to = there(self);
    assert_int_equal(from->stopped.extent_count, from->extent_count);
    for (unsigned i = 0; i < from->extent_count; i++) {
        const struct fake_extent *held = &from->extents[i];
        const struct flyt_server_link_extent extent = {held->extent_id, held->bytes, held->address, held->slot, 0};
        fake_server_give_one(to, &extent, held->fd);
    }
}

/* The program leaves, its first server ends, the second one waits for it. */
static void leave(struct fixture *self, uint64_t move_id)
{
    struct fake_server *from = here(self), *to = there(self);
    flyt_back_moved moved;
    const struct flyt_server_link_resume resume = {
        .extent_count = from->stopped.extent_count, .last_extent_id = from->stopped.last_extent_id, .is_made = 1};
    fake_server_send_move(from, FLYT_SERVER_LINK_LEAVE, move_id, 0);
    fake_wire_await_back(&self->wire, FLYT_BACK_MOVED, (xdrproc_t)xdr_flyt_back_moved, &moved);
    assert_int_equal(moved.sequence, self->sequence);
    fake_wire_close(&self->wire);
    fake_server_wait(from, &from->left_count, 1);
    fake_server_kill(from);
    memcpy(to->extents, from->extents, sizeof to->extents);
    to->extent_count = from->extent_count;
    for (unsigned i = 0; i < self->mirror_count; i++) {
        close(from->extents[i].fd);
        to->extents[i].fd = self->mirror_fds[i];
    }
    assert_true(!self->is_mirrored || self->mirror_count == to->extent_count);
    self->mirror_count = 0;
    from->extent_count = 0;
    fake_server_send(to, FLYT_SERVER_LINK_RESUME, &resume, sizeof resume, NULL);
    fake_door_grant_again(&self->door, to, from);
    self->now++;
}

/* ---- the client's ---- */

static void come_back(struct fixture *self)
{
    struct fake_wire *wire = &self->wire;
    flyt_session_resume_begin_res begun;
    flyt_session_resume_end_res ended;
    flyt_memory_restore_res restored;
    unsigned count = 0;
    while (count < RANGES && self->sizes[count])
        count++;
    assert_int_equal(fake_wire_open(wire, self->door.url, FLYT_CONNECTION_RESUME, self->door.session.token),
                     FLYT_HANDSHAKE_OK);
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_SESSION_RESUME_BEGIN, session_resume_begin, &begun, .thread = 1),
                     CUDA_SUCCESS);
    for (unsigned i = 1; i <= LIBRARIES; i++)
        if (self->is_loaded[i])
            load_numbered(self, i);
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_MEMORY_RESTORE, memory_restore, &restored,
                                    .addresses = {.addresses_len = count, .addresses_val = (u_quad_t *)self->addresses},
                                    .sizes = {.sizes_len = count, .sizes_val = (u_quad_t *)self->sizes}),
                     CUDA_SUCCESS);
    for (unsigned i = 1; i <= 4; i++) {
        FAKE_WIRE_SEND(wire, FLYT_EVENT_CREATE, event_create, .event_id = event(i));
        if (i < 4) /* one was never recorded */
            FAKE_WIRE_SEND(wire, FLYT_EVENT_RESTORE, event_restore, .event_id = event(i));
    }
    assert_int_equal(
        FAKE_WIRE_CALL(wire, FLYT_SESSION_RESUME_END, session_resume_end, &ended, .sequence = self->sequence),
        CUDA_SUCCESS);
    assert_int_equal(wire->failed_result, 0);
}

static void finish(struct fixture *self)
{
    struct flyt_ledger_state ledger;
    uint64_t bytes;
    struct fake_server *server = here(self);
    fake_wire_close(&self->wire);
    fake_server_wait_true(server, &server->is_returned);
    assert_string_equal(server->sentence, "");
    assert_int_equal(fake_server_end(server), 0);
    assert_int_equal(flyt_ledger_reclaim(self->ledger, server->server_id, &bytes), 0);
    flyt_ledger_read(self->ledger, &ledger);
    assert_int_equal(ledger.used_bytes, 0);
}

/* ---- tests ---- */

/* To what the 24 bits of an answer leave. */
static void assert_close(float ms, float want_ms)
{
    assert_float_equal(ms, want_ms, 0.001 + (double)want_ms * 1e-6);
}

static void a_program_notices_nothing(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->wire;
    begin(self);
    uint32_t counter = 15, second = 100, target = 77, third = 100;
    const uint64_t words = self->addresses[1] + 4096;
    launch(wire, 1, 1, words); /* the program's memory has a variable's address */
    for (unsigned lap = 0; lap < LAPS; lap++) {
        const uint64_t move_id = 50 + lap;
        begin_move(self, move_id);
        /* It goes on meanwhile: with a new library, one that goes again, and memory. */
        if (!lap)
            allocate(self, 2, 8 * MIB);
        load_numbered(self, 3);
        third = 100;
        launch(wire, 3, 0, words + 256);
        third++;
        assert_int_equal(word_at(wire, words + 256), third);
        if (lap) {
            unload(self, 3);
            load_numbered(self, 3);
            third = 100;
        }
        launch(wire, 1, 0, 1000);
        counter += 1000;
        launch(wire, 2, 0, words + 300);
        second++;
        record(self, 3);
        const float before_ms = elapsed(wire, 1, 2, CUDA_SUCCESS), until_ms = elapsed(wire, 2, 3, CUDA_SUCCESS);
        if (!lap)
            fake_server_wait(here(self), &here(self)->extents_told, RANGES);
        stop(self, move_id);
        give_all(self);
        assert_int_equal(send_state(self, move_id), 0);
        leave(self, move_id);
        come_back(self);

        launch(wire, 1, 2, words);
        target++;
        assert_int_equal(word_at(wire, words + 8), target);
        assert_int_equal(word_at(wire, words + 12), target);
        assert_int_equal(word_at(wire, words + 16), counter);
        assert_int_equal(word_at(wire, words + 20), counter);
        assert_int_equal(word_at(wire, words + 24), 3);
        launch(wire, 2, 0, words + 300);
        second++;
        assert_int_equal(word_at(wire, words + 300), second);
        launch(wire, 3, 0, words + 256);
        third++;
        assert_int_equal(word_at(wire, words + 256), third);
        for (unsigned i = 0; i < RANGES; i++)
            assert_int_equal(word_at(wire, self->addresses[i] + self->sizes[i] - 4), 0x01010101 * (0x21 + i));
        /* What was between two events stays so. */
        assert_close(elapsed(wire, 1, 2, CUDA_SUCCESS), before_ms);
        assert_close(elapsed(wire, 2, 3, CUDA_SUCCESS), until_ms);
        elapsed(wire, 1, 4, CUDA_ERROR_INVALID_HANDLE);
        unload(self, 3);
        if (!lap)
            assert_true(here(self)->prepared_count == 2);
    }
    record(self, 4);
    elapsed(wire, 1, 4, CUDA_SUCCESS);
    finish(self);
}

/* The program goes on at its server after all, does more, and moves then. */
static void a_move_that_is_called_off_and_made_again(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->wire;
    flyt_back_stop back;
    begin(self);
    const uint64_t words = self->addresses[1] + 4096;
    launch(wire, 1, 1, words);
    begin_move(self, 60);
    stop(self, 60);
    assert_int_equal(send_state(self, 60), 0);
    fake_server_send_move(here(self), FLYT_SERVER_LINK_GO_ON, 60, 0);
    fake_wire_await_back(wire, FLYT_BACK_GO_ON, (xdrproc_t)xdr_flyt_back_stop, &back);
    launch(wire, 1, 0, 7);
    load_numbered(self, 3);
    launch(wire, 3, 0, words + 256);
    assert_int_equal(word_at(wire, words + 256), 101);
    fake_server_kill(there(self));
    begin_move(self, 61);
    allocate(self, 2, 8 * MIB);
    fake_server_wait(here(self), &here(self)->extents_told, RANGES);
    stop(self, 61);
    give_all(self);
    assert_int_equal(send_state(self, 61), 0);
    leave(self, 61);
    come_back(self);
    launch(wire, 1, 2, words);
    assert_int_equal(word_at(wire, words + 8), 78);
    assert_int_equal(word_at(wire, words + 16), 5 + 10 + 7);
    launch(wire, 3, 0, words + 256);
    assert_int_equal(word_at(wire, words + 256), 102);
    finish(self);
}

/* The second server's memory is its own: what is in it was copied there. */
static void memory_is_copied_while_it_is_written(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->wire;
    begin(self);
    self->is_mirrored = true;
    const uint64_t words = self->addresses[1] + 4096;
    uint32_t second = 100;
    for (unsigned lap = 0; lap < LAPS; lap++) {
        const uint64_t move_id = 70 + lap;
        begin_move(self, move_id);
        if (!lap) {
            allocate(self, 2, 8 * MIB);
            fake_server_wait(here(self), &here(self)->extents_told, RANGES);
            mirror_all(self);
        }
        for (unsigned i = 0; i < 20; i++) {
            fill(wire, self->addresses[i % RANGES], 500, 0x40 + i + lap);
            launch(wire, 2, 0, words + 300);
            second++;
        }
        fake_server_wait_phase(here(self), move_id, FLYT_SERVER_LINK_MOVE_READY);
        for (unsigned i = 0; i < RANGES; i++)
            fill(wire, self->addresses[i], 500, 0x61 + i + lap);
        launch(wire, 2, 0, words + 300);
        second++;
        stop(self, move_id);
        assert_int_equal(send_state(self, move_id), 0);
        leave(self, move_id);
        come_back(self);
        for (unsigned i = 0; i < RANGES; i++) {
            assert_int_equal(word_at(wire, self->addresses[i] + 496), 0x01010101 * (0x61 + i + lap));
            assert_int_equal(word_at(wire, self->addresses[i] + self->sizes[i] - 4), 0x01010101 * (0x21 + i));
        }
        assert_int_equal(word_at(wire, words + 300), second);
    }
    finish(self);
}

/* It had named it before it moved; where it is to go next the variable would be elsewhere. */
static void an_address_that_is_remembered(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->wire;
    flyt_back_stop back;
    self->is_reversed = true;
    begin(self);
    fill(wire, place_of(wire, 1, "counter"), 4, 0);
    begin_move(self, 80);
    fake_server_wait(here(self), &here(self)->extents_told, 2);
    stop(self, 80);
    give_all(self);
    assert_int_equal(send_state(self, 80), 0);
    leave(self, 80);
    come_back(self);
    const uint64_t words = self->addresses[1] + 4096;
    launch(wire, 1, 1, words);
    launch(wire, 1, 0, 3);
    launch(wire, 1, 2, words);
    assert_int_equal(word_at(wire, words + 16), 3);
    /* Where it was loaded first there is nothing any more. */
    unload(self, 2);
    begin_move(self, 81);
    stop(self, 81);
    assert_int_equal(send_state(self, 81), -EXDEV);
    assert_non_null(strstr(there(self)->prepared_sentence, "counter has come to be elsewhere"));
    fake_server_send_move(here(self), FLYT_SERVER_LINK_GO_ON, 81, 0);
    fake_wire_await_back(wire, FLYT_BACK_GO_ON, (xdrproc_t)xdr_flyt_back_stop, &back);
    fake_server_kill(there(self));
    launch(wire, 1, 0, 4);
    launch(wire, 1, 2, words);
    assert_int_equal(word_at(wire, words + 16), 7);
    finish(self);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    return remove(path);
}

int main(void)
{
    char folder[] = "/var/tmp/flyt-moved-test-XXXXXX";
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_program_notices_nothing),
        TEST(a_move_that_is_called_off_and_made_again),
        TEST(memory_is_copied_while_it_is_written),
        TEST(an_address_that_is_remembered),
    };
    if (!mkdtemp(folder))
        return 1;
    setenv("FAKE_IMAGES", folder, 1);
    setenv("FLYT_LOG", "warn", 0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS); /* with the images in it */
    return failed;
}
