/*
 * A session moves from one server to another while its program runs: two real server processes on one software GPU, a
 * node manager that the test plays (fake_node.h), which hands on what they say, and a program that makes its objects
 * again by hand (fake_program.h). The memory itself goes from one to the other, or is copied while the program runs;
 * the state goes through an image.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/test/fake_node.h"
#include "rpc/base/id.h"

enum { MIB = 1 << 20, RANGES = FAKE_WORK_RANGES, LAPS = 2 };

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

struct fixture {
    struct fake_node node;
    struct fake_work work;
    bool is_held;
    bool is_mirrored; /* memory is copied: the second server's own, for each extent of the first one */
    int mirror_fds[FAKE_EXTENTS_MAX];
    unsigned mirror_count;
    bool is_reversed; /* libraries are loaded the other way round at first */
};

static int set_up(void **state)
{
    struct fixture *self = fake_node_fixture_new(state, sizeof *self);
    self->work = (struct fake_work){.wire = &self->node.wire, .first_text = first_text};
    return 0;
}

/* A program in the midst of its work. */
static void begin(struct fixture *self)
{
    fake_node_begin(&self->node, fake_one_gpu, 128 * MIB);
    fake_node_let_rejoin(&self->node);
    fake_node_connect(&self->node);
    fake_work_begin(&self->work, 4 * MIB, self->is_reversed);
}

/* ---- the node manager's part ---- */

/* Has the second server make memory for what the first one has, and the first one copy to it. */
static void mirror_all(struct fixture *self)
{
    struct fake_server *from = self->node.first, *to = self->node.second;
    for (; self->mirror_count < from->extent_count; self->mirror_count++) {
        const struct flyt_manager_link_extent extent = fake_extent_told(&from->extents[self->mirror_count]);
        struct flyt_manager_link_message *message = calloc(1, sizeof *message);
        assert_non_null(message);
        fake_server_make(to, &extent);
        assert_int_equal(to->made.outcome, 0);
        assert_true(to->made_fd >= 0 && to->made.extent.extent_id == extent.extent_id);
        message->kind = FLYT_MANAGER_LINK_MIRROR;
        message->extent = extent;
        fake_server_post(from, message, to->made_fd);
        free(message);
        self->mirror_fds[self->mirror_count] = to->made_fd;
        to->made_fd = -1;
    }
}

static void begin_move(struct fixture *self, uint64_t move_id)
{
    const struct flyt_manager_link_move move = {.move_id = move_id,
                                                .kind = self->is_mirrored ? FLYT_MANAGER_LINK_MOVE_MIRROR
                                                                          : FLYT_MANAGER_LINK_MOVE_GIVE,
                                                .rounds_max = self->is_mirrored ? 6 : 1,
                                                .rest_bytes = MIB};
    struct fake_server *to = self->node.second;
    fake_server_start(to, fake_one_gpu);
    assert_true(to->is_ready);
    fake_node_prepare(&self->node, to);
    assert_int_equal(to->prepared.outcome, 0);
    self->node.first->forward = to;
    fake_server_send(self->node.first, FLYT_MANAGER_LINK_MOVE, &move, sizeof move, NULL);
    if (self->is_mirrored)
        mirror_all(self);
    fake_server_wait_phase(self->node.first, move_id, FLYT_MANAGER_LINK_MOVE_READY);
}

/* How the other server takes it. */
static int32_t send_state(struct fixture *self, uint64_t move_id)
{
    struct fake_server *from = self->node.first, *to = self->node.second;
    unsigned before = to->prepared_count;
    assert_true(from->state_fd >= 0);
    fake_server_post_state(to, move_id, from->state_fd);
    int32_t outcome = fake_server_await_state(to, move_id, before + 1);
    assert_true(to->prepared.sequence == (outcome ? 0 : self->node.sequence));
    return outcome;
}

static void give_all(struct fixture *self)
{
    struct fake_server *from = self->node.first, *to = self->node.second;
    assert_int_equal(from->stopped.extent_count, from->extent_count);
    for (unsigned i = 0; i < from->extent_count; i++) {
        const struct flyt_manager_link_extent extent = fake_extent_told(&from->extents[i]);
        fake_server_give_one(to, &extent, from->extents[i].fd);
    }
}

/* The program leaves, its first server ends, the second one waits for it. */
static void leave(struct fixture *self, uint64_t move_id)
{
    struct fake_server *from = self->node.first, *to = self->node.second;
    const struct flyt_manager_link_resume resume = {.extent_count = from->stopped.extent_count,
                                                    .last_extent_id = from->stopped.last_extent_id,
                                                    .is_made = 1,
                                                    .is_held = self->is_held};
    fake_node_leave(&self->node, move_id);
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
    fake_server_send(to, FLYT_MANAGER_LINK_RESUME, &resume, sizeof resume, NULL);
    fake_listener_grant_again(&self->node.listener, to, from);
    fake_node_next(&self->node);
}

static void come_back(struct fixture *self)
{
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    fake_work_go_on(&self->work, 3, self->node.sequence); /* one was never recorded */
}

static void finish(struct fixture *self)
{
    fake_node_finish(&self->node, self->node.first);
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
    struct fake_wire *wire = &self->node.wire;
    begin(self);
    uint32_t counter = 15, second = 100, target = 77, third = 100;
    const uint64_t words = self->work.ranges[1].address + 4096;
    fake_program_launch(wire, 1, 1, words); /* the program's memory has a variable's address */
    for (unsigned lap = 0; lap < LAPS; lap++) {
        const uint64_t move_id = 50 + lap;
        begin_move(self, move_id);
        /* It goes on meanwhile: with a new library, one that goes again, and memory. */
        if (!lap)
            fake_work_allocate(&self->work, 2, 8 * MIB);
        fake_work_load(&self->work, 3);
        third = 100;
        fake_program_launch(wire, 3, 0, words + 256);
        third++;
        assert_int_equal(fake_program_word_at(wire, words + 256), third);
        if (lap) {
            fake_work_unload(&self->work, 3);
            fake_work_load(&self->work, 3);
            third = 100;
        }
        fake_program_launch(wire, 1, 0, 1000);
        counter += 1000;
        fake_program_launch(wire, 2, 0, words + 300);
        second++;
        fake_program_record(wire, 3);
        const float before_ms = fake_program_elapsed(wire, 1, 2, CUDA_SUCCESS),
                    until_ms = fake_program_elapsed(wire, 2, 3, CUDA_SUCCESS);
        if (!lap)
            fake_server_wait(self->node.first, &self->node.first->extents_told, RANGES);
        fake_node_stop(&self->node, move_id);
        give_all(self);
        assert_int_equal(send_state(self, move_id), 0);
        leave(self, move_id);
        come_back(self);

        fake_program_launch(wire, 1, 2, words);
        target++;
        assert_int_equal(fake_program_word_at(wire, words + 8), target);
        assert_int_equal(fake_program_word_at(wire, words + 12), target);
        assert_int_equal(fake_program_word_at(wire, words + 16), counter);
        assert_int_equal(fake_program_word_at(wire, words + 20), counter);
        assert_int_equal(fake_program_word_at(wire, words + 24), 3);
        fake_program_launch(wire, 2, 0, words + 300);
        second++;
        assert_int_equal(fake_program_word_at(wire, words + 300), second);
        fake_program_launch(wire, 3, 0, words + 256);
        third++;
        assert_int_equal(fake_program_word_at(wire, words + 256), third);
        fake_work_check_ends(&self->work);
        /* What was between two events stays so. */
        assert_close(fake_program_elapsed(wire, 1, 2, CUDA_SUCCESS), before_ms);
        assert_close(fake_program_elapsed(wire, 2, 3, CUDA_SUCCESS), until_ms);
        fake_program_elapsed(wire, 1, 4, CUDA_ERROR_INVALID_HANDLE);
        fake_work_unload(&self->work, 3);
        if (!lap)
            assert_true(self->node.first->prepared_count == 2);
    }
    fake_program_record(wire, 4);
    fake_program_elapsed(wire, 1, 4, CUDA_SUCCESS);
    finish(self);
}

/* The program goes on at its server after all, does more, and moves then. */
static void a_move_that_is_called_off_and_made_again(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    begin(self);
    const uint64_t words = self->work.ranges[1].address + 4096;
    fake_program_launch(wire, 1, 1, words);
    begin_move(self, 60);
    fake_node_stop(&self->node, 60);
    assert_int_equal(send_state(self, 60), 0);
    fake_node_go_on(&self->node, 60);
    fake_program_launch(wire, 1, 0, 7);
    fake_work_load(&self->work, 3);
    fake_program_launch(wire, 3, 0, words + 256);
    assert_int_equal(fake_program_word_at(wire, words + 256), 101);
    fake_server_kill(self->node.second);
    begin_move(self, 61);
    fake_work_allocate(&self->work, 2, 8 * MIB);
    fake_server_wait(self->node.first, &self->node.first->extents_told, RANGES);
    fake_node_stop(&self->node, 61);
    give_all(self);
    assert_int_equal(send_state(self, 61), 0);
    leave(self, 61);
    come_back(self);
    fake_program_launch(wire, 1, 2, words);
    assert_int_equal(fake_program_word_at(wire, words + 8), 78);
    assert_int_equal(fake_program_word_at(wire, words + 16), 5 + 10 + 7);
    fake_program_launch(wire, 3, 0, words + 256);
    assert_int_equal(fake_program_word_at(wire, words + 256), 102);
    finish(self);
}

/* The second server's memory is its own: what is in it was copied there. */
static void memory_is_copied_while_it_is_written(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    begin(self);
    self->is_mirrored = true;
    const uint64_t words = self->work.ranges[1].address + 4096;
    uint32_t second = 100;
    for (unsigned lap = 0; lap < LAPS; lap++) {
        const uint64_t move_id = 70 + lap;
        begin_move(self, move_id);
        if (!lap) {
            fake_work_allocate(&self->work, 2, 8 * MIB);
            fake_server_wait(self->node.first, &self->node.first->extents_told, RANGES);
            mirror_all(self);
        }
        for (unsigned i = 0; i < 20; i++) {
            fake_program_fill(wire, self->work.ranges[i % RANGES].address, 500, 0x40 + i + lap);
            fake_program_launch(wire, 2, 0, words + 300);
            second++;
        }
        fake_server_wait_phase(self->node.first, move_id, FLYT_MANAGER_LINK_MOVE_READY);
        for (unsigned i = 0; i < RANGES; i++)
            fake_program_fill(wire, self->work.ranges[i].address, 500, 0x61 + i + lap);
        fake_program_launch(wire, 2, 0, words + 300);
        second++;
        fake_node_stop(&self->node, move_id);
        assert_int_equal(send_state(self, move_id), 0);
        leave(self, move_id);
        come_back(self);
        for (unsigned i = 0; i < RANGES; i++) {
            assert_int_equal(fake_program_word_at(wire, self->work.ranges[i].address + 496),
                             0x01010101 * (0x61 + i + lap));
        }
        fake_work_check_ends(&self->work);
        assert_int_equal(fake_program_word_at(wire, words + 300), second);
    }
    finish(self);
}

static void flip_bit(int fd, uint64_t at)
{
    unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(at / 4096 * 4096));
    assert_true(page != MAP_FAILED);
    page[at % 4096] ^= 0x10;
    munmap(page, 4096);
}

/* The extent that has the address, by its place. */
static unsigned extent_at(const struct fake_server *server, uint64_t address)
{
    for (unsigned i = 0; i < server->extent_count; i++)
        if (address - server->extents[i].address < server->extents[i].bytes)
            return i;
    fail_msg("no extent has the address");
    return 0;
}

/* The second server has told why not: the program goes on, as it was, and writes something more. */
static void go_on_where_it_was(struct fixture *self, uint64_t move_id, const char *words)
{
    struct fake_wire *wire = &self->node.wire;
    if (!strstr(self->node.second->prepared_sentence, words))
        fail_msg("'%s', not '%s'", self->node.second->prepared_sentence, words);
    fake_node_go_on(&self->node, move_id);
    fake_server_kill(self->node.second);
    for (; self->mirror_count; self->mirror_count--)
        close(self->mirror_fds[self->mirror_count - 1]);
    fake_work_check_ends(&self->work);
    fake_program_fill(wire, self->work.ranges[0].address, 500, (int)(move_id & 0x7f));
    assert_int_equal(fake_program_word_at(wire, self->work.ranges[0].address + 496),
                     0x01010101 * (uint32_t)(move_id & 0x7f));
}

static void begin_with_all_memory(struct fixture *self)
{
    begin(self);
    fake_work_allocate(&self->work, 2, 8 * MIB);
    fake_server_wait(self->node.first, &self->node.first->extents_told, RANGES);
}

static void copy_and_stop(struct fixture *self, uint64_t move_id)
{
    self->is_mirrored = true;
    begin_move(self, move_id);
    fake_node_stop(&self->node, move_id);
}

/* One bit of what was copied, of what was copied long ago, or of what the program has never written, is another one
 * when it has arrived. */
static void memory_that_arrives_damaged(void **state)
{
    struct fixture *self = *state;
    begin_with_all_memory(self);
    uint64_t move_id = 90;
    for (unsigned i = 0; i < 4; i++, move_id++) {
        copy_and_stop(self, move_id);
        const struct fake_server *from = self->node.first;
        unsigned place = extent_at(from, self->work.ranges[i % 2].address);
        uint64_t at = self->work.ranges[i % 2].address - from->extents[place].address;
        if (i >= 2) /* the last byte of an extent: of one that is nearly empty, too */
            at = from->extents[place].bytes - 1;
        flip_bit(self->mirror_fds[place], at);
        assert_int_equal(send_state(self, move_id), -EIO);
        go_on_where_it_was(self, move_id, " 1 are not what was copied");
    }
    copy_and_stop(self, move_id);
    assert_int_equal(send_state(self, move_id), 0);
    leave(self, move_id);
    come_back(self);
    fake_work_check_ends(&self->work);
    assert_int_equal(fake_program_word_at(&self->node.wire, self->work.ranges[0].address),
                     0x01010101 * (uint32_t)((move_id - 1) & 0x7f));
    finish(self);
}

static void what_arrives_differs_where_a_test_wants_it(void **state)
{
    struct fixture *self = *state;
    begin_with_all_memory(self);
    setenv("FLYT_FAULT", "prepare.arrived:error", 1);
    copy_and_stop(self, 95);
    assert_int_equal(send_state(self, 95), -EIO);
    go_on_where_it_was(self, 95, "what arrived differs");
    setenv("FLYT_FAULT", "prepare.variable:error:3", 1);
    copy_and_stop(self, 96);
    assert_int_equal(send_state(self, 96), -EIO);
    go_on_where_it_was(self, 96, "what arrived differs: the variable");
    unsetenv("FLYT_FAULT");
    copy_and_stop(self, 97);
    assert_int_equal(send_state(self, 97), 0);
    leave(self, 97);
    come_back(self);
    fake_work_check_ends(&self->work);
    finish(self);
}

/* It stopped, went on where it was, and stops again: the same server compares again. */
static void what_has_arrived_is_compared_again(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    begin_with_all_memory(self);
    copy_and_stop(self, 98);
    assert_int_equal(send_state(self, 98), 0);
    const int old_fd = dup(self->node.first->state_fd);
    assert_true(old_fd >= 0);
    /* What was there then is not what is there now. */
    flip_bit(self->mirror_fds[0], 5);
    unsigned before = self->node.second->prepared_count;
    fake_server_post_state(self->node.second, 98, old_fd);
    assert_int_equal(fake_server_await_state(self->node.second, 98, before + 1), -EIO);
    close(old_fd);
    go_on_where_it_was(self, 98, "what arrived differs");
    fake_program_launch(wire, 1, 0, 7);
    finish(self);
}

static void create_event(struct fixture *self, unsigned number, unsigned flags)
{
    FAKE_WIRE_SEND(&self->node.wire, FLYT_EVENT_CREATE, event_create, .event_id = fake_program_event(number),
                   .flags = flags);
}

static void expect_end(struct fixture *self, int want)
{
    assert_int_equal(fake_program_resume_end(&self->node.wire, self->node.sequence), want);
}

static void move_to_second(struct fixture *self, uint64_t move_id)
{
    begin_move(self, move_id);
    fake_node_stop(&self->node, move_id);
    give_all(self);
    assert_int_equal(send_state(self, move_id), 0);
    leave(self, move_id);
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    assert_int_equal(fake_program_resume_begin(&self->node.wire), CUDA_SUCCESS);
}

/* The session goes on when all are there, and no more. */
static void objects_that_are_not_made_again(void **state)
{
    enum { MORE = 9, ALL = 4 };
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    begin_with_all_memory(self);
    move_to_second(self, 100);
    expect_end(self, CUDA_ERROR_INVALID_VALUE);
    fake_work_load(&self->work, 1);
    expect_end(self, CUDA_ERROR_INVALID_VALUE);
    fake_work_load(&self->work, 2);
    assert_int_equal(fake_program_restore(wire, self->work.ranges, RANGES), CUDA_SUCCESS);
    expect_end(self, CUDA_ERROR_INVALID_VALUE); /* events */
    fake_program_restore_events(wire, ALL - 1, ALL - 1);
    expect_end(self, CUDA_ERROR_INVALID_VALUE);
    create_event(self, ALL, 0);
    create_event(self, MORE, 0);
    expect_end(self, CUDA_ERROR_INVALID_VALUE); /* one too many */
    FAKE_WIRE_SEND(wire, FLYT_EVENT_DESTROY, event_destroy, .event_id = fake_program_event(MORE));
    FAKE_WIRE_SEND(wire, FLYT_STREAM_CREATE, stream_create, .stream_id = flyt_id(FLYT_ID_STREAM, 20));
    expect_end(self, CUDA_ERROR_INVALID_VALUE);
    FAKE_WIRE_SEND(wire, FLYT_STREAM_DESTROY, stream_destroy, .stream_id = flyt_id(FLYT_ID_STREAM, 20));
    expect_end(self, CUDA_SUCCESS);
    assert_int_equal(wire->failed_result, 0);
    fake_work_check_ends(&self->work);
    /* Memory, and what has come since; one event could not be made, of which its program does not know. */
    create_event(self, MORE, 1u << 20);
    fake_work_load(&self->work, 3);
    assert_int_equal(wire->failed_result, CUDA_ERROR_INVALID_VALUE);
    wire->failed_result = 0;
    move_to_second(self, 101);
    for (unsigned i = 1; i <= 3; i++)
        fake_work_load(&self->work, i);
    fake_program_restore_events(wire, ALL, ALL - 1);
    assert_int_equal(fake_program_restore(wire, self->work.ranges, RANGES - 1), CUDA_SUCCESS);
    expect_end(self, CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake_program_restore(wire, self->work.ranges + RANGES - 1, 1), CUDA_SUCCESS);
    create_event(self, MORE, 0);
    create_event(self, MORE + 1, 0);
    expect_end(self, CUDA_ERROR_INVALID_VALUE);
    FAKE_WIRE_SEND(wire, FLYT_EVENT_DESTROY, event_destroy, .event_id = fake_program_event(MORE + 1));
    expect_end(self, CUDA_SUCCESS);
    assert_int_equal(wire->failed_result, 0);
    fake_work_check_ends(&self->work);
    finish(self);
}

static void objects_are_counted_wrongly_where_a_test_wants_it(void **state)
{
    struct fixture *self = *state;
    begin_with_all_memory(self);
    setenv("FLYT_FAULT", "prepare.counts:error:1", 1);
    move_to_second(self, 102);
    unsetenv("FLYT_FAULT");
    fake_work_load(&self->work, 1);
    fake_work_load(&self->work, 2);
    assert_int_equal(fake_program_restore(&self->node.wire, self->work.ranges, RANGES), CUDA_SUCCESS);
    fake_program_restore_events(&self->node.wire, 4, 3);
    expect_end(self, CUDA_ERROR_INVALID_VALUE);
    expect_end(self, CUDA_SUCCESS);
    fake_work_check_ends(&self->work);
    finish(self);
}

/* ---- others of its VM ---- */

/* It could go on, says so, and does when it is told to. */
static void it_waits_for_the_others(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    flyt_session_resume_end_res res;
    begin_with_all_memory(self);
    self->is_held = true;
    for (unsigned i = 0; i < 2; i++) {
        move_to_second(self, 104 + i);
        struct fake_server *server = self->node.first; /* by now */
        const unsigned before = server->whole_count;
        expect_end(self, CUDA_ERROR_INVALID_VALUE); /* what is not whole does not wait */
        fake_work_load(&self->work, 1);
        fake_work_load(&self->work, 2);
        assert_int_equal(fake_program_restore(wire, self->work.ranges, RANGES), CUDA_SUCCESS);
        fake_program_restore_events(wire, 4, 3);
        assert_int_equal(server->whole_count, before);
        FAKE_WIRE_SEND(wire, FLYT_SESSION_RESUME_END, session_resume_end, .sequence = self->node.sequence);
        fake_server_wait(server, &server->whole_count, before + 1);
        if (i)
            fake_server_leave(server); /* then nobody is there to say so */
        else
            fake_server_send_move(server, FLYT_MANAGER_LINK_GO_ON, 104, 0);
        assert_int_equal(fake_wire_await_result(wire, (xdrproc_t)xdr_flyt_session_resume_end_res, &res), CUDA_SUCCESS);
        fake_work_check_ends(&self->work);
    }
    fake_server_kill(self->node.first); /* before its program leaves: then it would end by itself */
    fake_wire_close(wire);
}

/* ---- what it had set ---- */

/* An attribute and a cache preference of a kernel, a limit and a cache preference of the device: as they are compared.
 */
static void set_again(struct fixture *self, unsigned which, uint64_t more)
{
    struct fake_wire *wire = &self->node.wire;
    const uint64_t kernel_id = flyt_kernel_id(flyt_id(FLYT_ID_LIBRARY, 1), 0);
    flyt_device_limit_set_res limit;
    flyt_kernel_attribute_set_res attribute;
    if (which == 2)
        assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_DEVICE_LIMIT_SET, device_limit_set, &limit, .thread = 1,
                                        .limit = CU_LIMIT_MAX_L2_FETCH_GRANULARITY, .value = 32 + 32 * more),
                         CUDA_SUCCESS);
    else if (which == 3)
        FAKE_WIRE_SEND(wire, FLYT_DEVICE_CACHE_CONFIG_SET, device_cache_config_set,
                       .cache_config = (u_int)(CU_FUNC_CACHE_PREFER_SHARED + more));
    else if (which == 0)
        assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_KERNEL_ATTRIBUTE_SET, kernel_attribute_set, &attribute, .thread = 1,
                                        .kernel_id = kernel_id,
                                        .attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                        .value = (int)(8192 + 1024 * more)),
                         CUDA_SUCCESS);
    else
        FAKE_WIRE_SEND(wire, FLYT_KERNEL_CACHE_CONFIG_SET, kernel_cache_config_set, .kernel_id = kernel_id,
                       .cache_config = (u_int)(CU_FUNC_CACHE_PREFER_SHARED + more));
}

/* The objects are all there; each setting that is missing, or has another value, is found. */
static void settings_that_are_not_made_again(void **state)
{
    enum { SETTINGS = 4 };
    struct fixture *self = *state;
    begin_with_all_memory(self);
    for (unsigned i = 0; i < SETTINGS; i++) {
        set_again(self, i, 1); /* the last value counts */
        set_again(self, i, 0);
    }
    move_to_second(self, 103);
    fake_work_load(&self->work, 1);
    fake_work_load(&self->work, 2);
    assert_int_equal(fake_program_restore(&self->node.wire, self->work.ranges, RANGES), CUDA_SUCCESS);
    fake_program_restore_events(&self->node.wire, 4, 3);
    for (unsigned i = 0; i < SETTINGS; i++) {
        expect_end(self, CUDA_ERROR_INVALID_VALUE);
        set_again(self, i, 1);
        expect_end(self, CUDA_ERROR_INVALID_VALUE);
        set_again(self, i, 0);
    }
    expect_end(self, CUDA_SUCCESS);
    assert_int_equal(self->node.wire.failed_result, 0);
    fake_work_check_ends(&self->work);
    finish(self);
}

/* It had named it before it moved; where it is to go next the variable would be elsewhere. */
static void an_address_that_is_remembered(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    self->is_reversed = true;
    begin(self);
    fake_program_fill(wire, fake_program_place_of(wire, 1, "counter"), 4, 0);
    begin_move(self, 80);
    fake_server_wait(self->node.first, &self->node.first->extents_told, 2);
    fake_node_stop(&self->node, 80);
    give_all(self);
    assert_int_equal(send_state(self, 80), 0);
    leave(self, 80);
    come_back(self);
    const uint64_t words = self->work.ranges[1].address + 4096;
    fake_program_launch(wire, 1, 1, words);
    fake_program_launch(wire, 1, 0, 3);
    fake_program_launch(wire, 1, 2, words);
    assert_int_equal(fake_program_word_at(wire, words + 16), 3);
    /* Where it was loaded first there is nothing any more. */
    fake_work_unload(&self->work, 2);
    begin_move(self, 81);
    fake_node_stop(&self->node, 81);
    assert_int_equal(send_state(self, 81), -EXDEV);
    assert_non_null(strstr(self->node.second->prepared_sentence, "counter has come to be elsewhere"));
    fake_node_go_on(&self->node, 81);
    fake_server_kill(self->node.second);
    fake_program_launch(wire, 1, 0, 4);
    fake_program_launch(wire, 1, 2, words);
    assert_int_equal(fake_program_word_at(wire, words + 16), 7);
    finish(self);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, fake_node_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_program_notices_nothing),
        TEST(a_move_that_is_called_off_and_made_again),
        TEST(memory_is_copied_while_it_is_written),
        TEST(memory_that_arrives_damaged),
        TEST(what_arrives_differs_where_a_test_wants_it),
        TEST(what_has_arrived_is_compared_again),
        TEST(objects_that_are_not_made_again),
        TEST(objects_are_counted_wrongly_where_a_test_wants_it),
        TEST(settings_that_are_not_made_again),
        TEST(it_waits_for_the_others),
        TEST(an_address_that_is_remembered),
    };
    return cmocka_run_group_tests(tests, fake_node_begin_all, fake_node_end_all);
}
