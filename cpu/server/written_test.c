/*
 * A session moves from one server to another through an image: two real server processes on software GPUs, a node
 * manager that the test plays (fake_node.h), and a program that makes its objects again by hand (fake_program.h).
 * The first server writes while the program works; the second one makes everything from what was written: into a file,
 * or straight through a pipe.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/image/verify.h"
#include "cpu/image/writer.h"
#include "cpu/server/fake_node.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/id.h"

enum { MIB = 1 << 20, RANGES = FAKE_WORK_RANGES, LIBRARIES = 3, MOVE_ID = 31 };

#define SHORT_US 1000000ull

static const char *const large_gpu[] = {"--soft", "1", "--soft-memory", "512M", NULL};

/* add: counter += the argument; keep: *p = &target; use: *(*p) += 1, p[2] = that, p[3] = counter. */
static const char first_text[] =
    PTX ".visible .global .align 4 .u32 counter = 5;\n.global .align 8 .u32 target = 77;\n"
        ".visible .entry add(.param .u64 by_)\n{\n.reg .b32 r, s;\n.reg .b64 p;\nld.param.u64 p, [by_];\n"
        "cvt.u32.u64 s, p;\nld.global.u32 r, [counter];\nadd.u32 r, r, s;\nst.global.u32 [counter], r;\nret;\n}\n"
        ".visible .entry keep(.param .u64 p_)\n{\n.reg .b64 p, q;\nld.param.u64 p, [p_];\nmov.u64 q, target;\n"
        "st.global.u64 [p], q;\nret;\n}\n"
        ".visible .entry use(.param .u64 p_)\n{\n.reg .b32 r;\n.reg .b64 p, q;\nld.param.u64 p, [p_];\n"
        "ld.global.u64 q, [p];\nld.global.u32 r, [q];\nadd.u32 r, r, 1;\nst.global.u32 [q], r;\n"
        "st.global.u32 [p + 8], r;\nld.global.u32 r, [counter];\nst.global.u32 [p + 12], r;\nret;\n}\n";

struct fixture {
    struct fake_node node;
    struct fake_work work;
    char path[256];
};

static int set_up(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    fake_node_init(&self->node);
    self->work = (struct fake_work){.wire = &self->node.wire, .first_text = first_text};
    snprintf(self->path, sizeof self->path, "%s/image", getenv("FAKE_FOLDER"));
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *self = *state;
    fake_node_fini(&self->node);
    free(self);
    return 0;
}

/* ---- the program ---- */

static void begin(struct fixture *self)
{
    fake_node_begin(&self->node, large_gpu, 256 * MIB);
    fake_node_connect(&self->node);
    fake_work_begin(&self->work, 24 * MIB, false);
}

static uint64_t words(const struct fixture *self)
{
    return self->work.ranges[1].address + 4096;
}

/* It works as ever. */
static void work(struct fixture *self)
{
    fake_program_fill(&self->node.wire, self->work.ranges[1].address + 8 * MIB, 1000, 0x66);
    assert_int_equal(fake_program_word_at(&self->node.wire, self->work.ranges[1].address + 8 * MIB), 0x66666666);
}

/* ---- the node manager's part ---- */

static void send_move(struct fixture *self, uint64_t move_id, int fd, uint32_t packing)
{
    struct flyt_server_link_message *message = calloc(1, sizeof *message);
    assert_non_null(message);
    assert_true(fd >= 0);
    message->kind = FLYT_SERVER_LINK_MOVE;
    message->move = (struct flyt_server_link_move){.move_id = move_id,
                                                   .kind = FLYT_SERVER_LINK_MOVE_WRITE,
                                                   .rounds_max = 5,
                                                   .slowdown_pct = 50,
                                                   .packing = packing};
    fake_server_post(self->node.first, message, fd);
    free(message);
}

static int new_file(const struct fixture *self)
{
    return open(self->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static void begin_move(struct fixture *self, uint64_t move_id, uint32_t packing)
{
    flyt_auto_close int fd = new_file(self);
    send_move(self, move_id, fd, packing);
    fake_server_wait_phase(self->node.first, move_id, FLYT_SERVER_LINK_MOVE_READY);
}

static void stop_well(struct fixture *self, uint64_t move_id)
{
    fake_node_stop(&self->node, move_id);
    assert_true(self->node.first->stopped.has_state);
    assert_true(self->node.first->state_fd >= 0);
    assert_int_equal(lseek(self->node.first->state_fd, 0, SEEK_END), 0); /* everything is in the image */
}

/* ---- the second server ---- */

static void prepare(struct fixture *self)
{
    fake_server_start(self->node.second, large_gpu);
    assert_true(self->node.second->is_ready);
    self->node.second->keeps_made = true;
    fake_node_prepare(&self->node, self->node.second);
    assert_int_equal(self->node.second->prepared.outcome, 0);
}

/* What the second server has made is what the first one had, byte by byte. */
static void compare_memory(const struct fixture *self)
{
    assert_int_equal(self->node.second->extent_count, self->node.first->extent_count);
    assert_int_equal(self->node.second->made_count, self->node.first->extent_count);
    for (unsigned i = 0; i < self->node.first->extent_count; i++) {
        const struct fake_extent *had = &self->node.first->extents[i], *has = NULL;
        for (unsigned k = 0; k < self->node.second->extent_count && !has; k++)
            has = self->node.second->extents[k].address == had->address ? &self->node.second->extents[k] : NULL;
        assert_non_null(has);
        assert_int_equal(has->bytes, had->bytes);
        void *before = mmap(NULL, had->bytes, PROT_READ, MAP_SHARED, had->fd, 0);
        void *after = mmap(NULL, has->bytes, PROT_READ, MAP_SHARED, has->fd, 0);
        assert_true(before != MAP_FAILED && after != MAP_FAILED);
        assert_int_equal(memcmp(before, after, had->bytes), 0);
        munmap(before, had->bytes);
        munmap(after, has->bytes);
    }
}

/* The program leaves the first server, which ends; the second one waits for it. */
static void leave(struct fixture *self)
{
    const struct flyt_server_link_resume resume = fake_server_resume(self->node.second);
    fake_node_leave(&self->node, MOVE_ID);
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
    fake_server_send(self->node.second, FLYT_SERVER_LINK_RESUME, &resume, sizeof resume, NULL);
    fake_door_grant_again(&self->node.door, self->node.second, self->node.first);
}

static void come_back(struct fixture *self)
{
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    fake_work_go_on(&self->work, 2, self->node.sequence); /* the others were never recorded */
}

/* ---- tests ---- */

/* The program works while it is written, and stops with everything in the image. */
static void work_and_stop(struct fixture *self)
{
    struct fake_wire *wire = &self->node.wire;
    fake_work_allocate(&self->work, 2, 8 * MIB);
    fake_work_load(&self->work, 3);
    fake_program_launch(wire, 3, 0, words(self) + 256);
    fake_work_unload(&self->work, 3);
    fake_work_load(&self->work, 3);
    fake_program_launch(wire, 3, 0, words(self) + 256);
    fake_program_launch(wire, 1, 0, 1000);
    fake_program_launch(wire, 2, 0, words(self) + 300);
    fake_server_wait(self->node.first, &self->node.first->extents_told, RANGES);
    stop_well(self, MOVE_ID);
}

static void check_program(struct fixture *self, float before_ms)
{
    struct fake_wire *wire = &self->node.wire;
    fake_program_launch(wire, 1, 2, words(self));
    assert_int_equal(fake_program_word_at(wire, words(self) + 8), 78);
    assert_int_equal(fake_program_word_at(wire, words(self) + 12), 5 + 10 + 1000);
    fake_program_launch(wire, 2, 0, words(self) + 300);
    assert_int_equal(fake_program_word_at(wire, words(self) + 300), 102);
    fake_program_launch(wire, 3, 0, words(self) + 256);
    assert_int_equal(fake_program_word_at(wire, words(self) + 256), 102);
    fake_work_check_ends(&self->work);
    assert_float_equal(fake_program_elapsed(wire, 1, 2, CUDA_SUCCESS), before_ms, 0.001 + (double)before_ms * 1e-6);
    work(self);
}

static void verify_file(const struct fixture *self)
{
    struct flyt_checkpoint_summary summary;
    struct flyt_error err = {0};
    assert_int_equal(flyt_checkpoint_verify(self->path, true, &summary, &err), 0);
    assert_int_equal(summary.totals.object_counts[FLYT_CHECKPOINT_MODULE],
                     LIBRARIES + (summary.totals.object_gone_count != 0));
    assert_int_equal(summary.totals.module_image_count, 2);
    assert_int_equal(summary.totals.object_counts[FLYT_CHECKPOINT_EVENT], 2);
    assert_int_equal(summary.totals.allocation_count, RANGES);
    assert_int_equal(summary.totals.extent_count, self->node.first->extent_count);
    assert_int_equal(summary.totals.global_count, 4);
    assert_int_equal(summary.totals.sequence.completed, self->node.sequence);
    flyt_checkpoint_summary_fini(&summary);
}

static void run_tool(const struct fixture *self, const char *verb, const char *words_)
{
    char own[4096], command[8192], line[1024];
    bool is_said = false;
    ssize_t bytes = readlink("/proc/self/exe", own, sizeof own - 1);
    assert_true(bytes > 0);
    own[bytes] = 0;
    *strrchr(own, '/') = 0; /* build/cpu/server */
    snprintf(command, sizeof command, "%s/../../bin/flytctl image %s %s", own, verb, self->path);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    while (fgets(line, sizeof line, output))
        is_said |= strstr(line, words_) != NULL;
    assert_int_equal(pclose(output), 0);
    assert_true(is_said);
}

static void move_by_file(struct fixture *self, uint32_t packing)
{
    begin(self);
    fake_program_launch(&self->node.wire, 1, 1, words(self)); /* the program's memory has a variable's address */
    const float before_ms = fake_program_elapsed(&self->node.wire, 1, 2, CUDA_SUCCESS);
    begin_move(self, MOVE_ID, packing);
    work_and_stop(self);
    verify_file(self);
    run_tool(self, "verify", "sound");
    run_tool(self, "show", "pages");
    prepare(self);
    flyt_auto_close int fd = open(self->path, O_RDONLY | O_CLOEXEC);
    fake_server_post_state(self->node.second, MOVE_ID, fd);
    if (fake_server_await_state(self->node.second, MOVE_ID, 2) != 0)
        fail_msg("the image is not taken: %s", self->node.second->prepared_sentence);
    assert_int_equal(self->node.second->prepared.sequence, self->node.sequence);
    compare_memory(self);
    leave(self);
    come_back(self);
    check_program(self, before_ms);
    fake_node_finish(&self->node, self->node.second);
}

static void a_program_goes_on_from_a_file(void **state)
{
    move_by_file(*state, 0);
}

static void a_program_goes_on_from_a_packed_file(void **state)
{
    move_by_file(*state, 2);
}

/* The second server reads while the first one writes. */
static void a_program_goes_on_from_a_stream(void **state)
{
    struct fixture *self = *state;
    int fds[2];
    begin(self);
    fake_program_launch(&self->node.wire, 1, 1, words(self));
    const float before_ms = fake_program_elapsed(&self->node.wire, 1, 2, CUDA_SUCCESS);
    prepare(self);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    fake_server_post_state(self->node.second, MOVE_ID, fds[0]);
    send_move(self, MOVE_ID, fds[1], 0);
    close(fds[0]);
    close(fds[1]);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_SERVER_LINK_MOVE_READY);
    work_and_stop(self);
    if (fake_server_await_state(self->node.second, MOVE_ID, 2) != 0)
        fail_msg("the image is not taken: %s", self->node.second->prepared_sentence);
    compare_memory(self);
    leave(self);
    come_back(self);
    check_program(self, before_ms);
    fake_node_finish(&self->node, self->node.second);
}

/* A checkpoint: the program goes on where it was, and the next one has what it did. */
static void a_program_is_written_and_goes_on(void **state)
{
    struct fixture *self = *state;
    struct flyt_checkpoint_summary summary;
    struct flyt_error err = {0};
    begin(self);
    for (uint64_t i = 0; i < 2; i++) {
        begin_move(self, MOVE_ID + i, i ? 1 : 0);
        stop_well(self, MOVE_ID + i);
        fake_node_go_on(&self->node, MOVE_ID + i);
        fake_server_wait_phase(self->node.first, MOVE_ID + i, FLYT_SERVER_LINK_MOVE_OVER);
        assert_int_equal(flyt_checkpoint_verify(self->path, true, &summary, &err), 0);
        assert_int_equal(summary.totals.sequence.received, self->node.sequence);
        flyt_checkpoint_summary_fini(&summary);
        work(self);
    }
    fake_node_finish(&self->node, self->node.first);
}

/* What an image with rounds takes back is not there, and what comes later in its place is. */
static void what_an_image_takes_back_is_gone(void **state)
{
    enum { PAGES = 4 * MIB / FLYT_CHECKPOINT_PAGE_BYTES };
    const uint64_t place = flyt_window_base(0) + 64 * MIB, other = place + 48 * MIB;
    const flyt_checkpoint_head head = {.build = (char *)"test",
                                       .program_name = (char *)"",
                                       .vm = (char *)"",
                                       .gpu_type = (char *)"",
                                       .id = "0123456789abcde"};
    const flyt_checkpoint_sequence sequence = {7, 7, 7};
    struct fixture *self = *state;
    struct flyt_checkpoint_writer *writer;
    struct flyt_error err;
    flyt_auto_close int fd = new_file(self);
    unsigned char *pages = malloc(4 * MIB);
    assert_non_null(pages);
    assert_int_equal(flyt_checkpoint_writer_new(fd, "image", &head, FLYT_CHECKPOINT_PACK_NOT, &writer, &err), 0);
    assert_int_equal(flyt_checkpoint_put_slot(writer, 0, 0, &err), 0);
    assert_int_equal(flyt_checkpoint_put_round(writer, &err), 0);
    memset(pages, 0x5b, 4 * MIB);
    assert_int_equal(flyt_checkpoint_put_extent(writer, place, 2 * MIB, &err), 0);
    assert_int_equal(flyt_checkpoint_put_extent(writer, other, 2 * MIB, &err), 0);
    assert_int_equal(flyt_checkpoint_put_pages(writer, place, PAGES / 2, pages, NULL, &err), 0);
    assert_int_equal(flyt_checkpoint_put_pages(writer, other, PAGES / 2, pages, NULL, &err), 0);
    assert_int_equal(flyt_checkpoint_put_round(writer, &err), 0);
    assert_int_equal(flyt_checkpoint_put_extent_gone(writer, place, &err), 0);
    assert_int_equal(flyt_checkpoint_put_extent_gone(writer, other, &err), 0);
    assert_int_equal(flyt_checkpoint_put_extent(writer, place, 4 * MIB, &err), 0);
    assert_int_equal(flyt_checkpoint_put_extent(writer, place + 4 * MIB, 36 * MIB, &err), 0);
    memset(pages + FLYT_CHECKPOINT_PAGE_BYTES, 0, FLYT_CHECKPOINT_PAGE_BYTES);
    memset(pages + 2 * MIB, 0x3c, 2 * MIB);
    assert_int_equal(flyt_checkpoint_put_pages(writer, place, PAGES, pages, NULL, &err), 0);
    /* More than a record with contents has. */
    assert_int_equal(flyt_checkpoint_put_run(writer, place + 4 * MIB, 9 * PAGES, FLYT_CHECKPOINT_ZERO, NULL, &err), 0);
    assert_int_equal(flyt_checkpoint_put_round(writer, &err), 0);
    assert_int_equal(flyt_checkpoint_put_run(writer, place, 1, FLYT_CHECKPOINT_ZERO, NULL, &err), 0);
    assert_int_equal(flyt_checkpoint_put_sequence(writer, &sequence, &err), 0);
    assert_int_equal(flyt_checkpoint_put_end(writer, &err), 0);
    flyt_checkpoint_writer_free(writer);
    memset(pages, 0, FLYT_CHECKPOINT_PAGE_BYTES);
    begin(self);
    prepare(self);
    fake_server_post_state(self->node.second, MOVE_ID, fd);
    assert_int_equal(fake_server_await_state(self->node.second, MOVE_ID, 2), 0);
    assert_int_equal(self->node.second->prepared.sequence, 7);
    assert_int_equal(self->node.second->made_count, 2);
    assert_int_equal(self->node.second->extent_count, 2);
    for (unsigned i = 0; i < 2; i++) {
        const struct fake_extent *made = &self->node.second->extents[i];
        unsigned char *memory = mmap(NULL, made->bytes, PROT_READ, MAP_SHARED, made->fd, 0);
        assert_true(memory != MAP_FAILED);
        assert_true(made->address == place ? made->bytes == 4 * MIB : made->bytes == 36 * MIB);
        if (made->address == place)
            assert_int_equal(memcmp(memory, pages, 4 * MIB), 0);
        else
            assert_true(!memory[0] && !memcmp(memory, memory + 1, made->bytes - 1));
        munmap(memory, made->bytes);
        close(made->fd);
    }
    assert_true(self->node.second->extents[0].address != self->node.second->extents[1].address);
    self->node.second->extent_count = 0;
    free(pages);
    fake_server_kill(self->node.second);
    fake_node_finish(&self->node, self->node.first);
}

/* What is cut off is not taken, and the program goes on where it was. */
static void a_stream_that_is_cut_off_is_of_no_use(void **state)
{
    struct fixture *self = *state;
    int fds[2];
    begin(self);
    prepare(self);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    fake_server_post_state(self->node.second, MOVE_ID, fds[0]);
    send_move(self, MOVE_ID, fds[1], 0);
    close(fds[0]);
    close(fds[1]);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_SERVER_LINK_MOVE_READY);
    fake_server_send_move(self->node.first, FLYT_SERVER_LINK_GO_ON, MOVE_ID, 0);
    assert_int_equal(fake_server_await_state(self->node.second, MOVE_ID, 2), -ENODATA);
    assert_int_equal(self->node.second->made_count, 0);
    assert_non_null(strstr(self->node.second->prepared_sentence, "session's state"));
    fake_server_kill(self->node.second);
    work(self);
    fake_node_finish(&self->node, self->node.first);
}

/* A disk that is full, a peer that dies, one that reads nothing: the program goes on, each time. */
static void what_cannot_be_written_hinders_no_program(void **state)
{
    struct fixture *self = *state;
    uint64_t move_id = MOVE_ID;
    int fds[2];
    begin(self);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    send_move(self, ++move_id, full, 0);
    close(full);
    fake_server_wait_phase(self->node.first, move_id, FLYT_SERVER_LINK_MOVE_OVER);
    assert_int_equal(self->node.first->move_state.outcome, -ENOSPC);
    work(self);

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    send_move(self, ++move_id, fds[1], 0);
    close(fds[1]);
    fake_server_wait_phase(self->node.first, move_id, FLYT_SERVER_LINK_MOVE_COPYING);
    work(self);
    close(fds[0]);
    fake_server_wait_phase(self->node.first, move_id, FLYT_SERVER_LINK_MOVE_OVER);
    assert_int_equal(self->node.first->move_state.outcome, -EPIPE);
    work(self);

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    send_move(self, ++move_id, fds[1], 0);
    close(fds[1]);
    fake_server_wait_phase(self->node.first, move_id, FLYT_SERVER_LINK_MOVE_COPYING);
    assert_int_equal(fake_node_try_stop(&self->node, move_id, SHORT_US), -ETIMEDOUT);
    assert_true(*self->node.first->sentence);
    fake_node_await_go_on(&self->node);
    fake_server_wait_phase(self->node.first, move_id, FLYT_SERVER_LINK_MOVE_OVER);
    *self->node.first->sentence = 0;
    close(fds[0]);
    work(self);

    begin_move(self, ++move_id, 0);
    stop_well(self, move_id);
    fake_node_go_on(&self->node, move_id);
    work(self);
    fake_node_finish(&self->node, self->node.first);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_program_goes_on_from_a_file),
        TEST(a_program_goes_on_from_a_packed_file),
        TEST(a_program_goes_on_from_a_stream),
        TEST(a_program_is_written_and_goes_on),
        TEST(what_an_image_takes_back_is_gone),
        TEST(a_stream_that_is_cut_off_is_of_no_use),
        TEST(what_cannot_be_written_hinders_no_program),
    };
    return cmocka_run_group_tests(tests, fake_node_begin_all, fake_node_end_all);
}
