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
#include "cpu/server/test/fake_image.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/id.h"

enum { MIB = 1 << 20, RANGES = FAKE_WORK_RANGES, LIBRARIES = 3, MOVE_ID = FAKE_IMAGE_MOVE_ID };

#define SHORT_US 1000000ull

/* ---- the node manager's part ---- */

static void send_move(struct fake_image *self, uint64_t move_id, int fd, uint32_t packing)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    assert_non_null(message);
    assert_true(fd >= 0);
    message->kind = FLYT_MANAGER_LINK_MOVE;
    message->move = (struct flyt_manager_link_move){.move_id = move_id,
                                                    .kind = FLYT_MANAGER_LINK_MOVE_WRITE,
                                                    .rounds_max = 5,
                                                    .slowdown_pct = 50,
                                                    .packing = packing};
    fake_server_post(self->node.first, message, fd);
    free(message);
}

static int new_file(const struct fake_image *self)
{
    return open(self->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

/* Whether the move has been refused because an earlier one, which is told to be over, is still being cleared away. */
static bool is_too_early(struct fake_server *server, uint64_t move_id)
{
    bool is_known = false, is_early = false;
    while (!is_known) {
        usleep(1000);
        pthread_mutex_lock(&server->mutex);
        is_known = server->move_state.move_id == move_id && server->move_state.phase;
        is_early = server->move_state.outcome == -EBUSY; /* REFUSED at once, or OVER */
        pthread_mutex_unlock(&server->mutex);
    }
    return is_early;
}

static void send_until_taken(struct fake_image *self, uint64_t *move_id, int fd, uint32_t packing)
{
    do
        send_move(self, ++*move_id, fd, packing);
    while (is_too_early(self->node.first, *move_id));
}

/* To a file, up to where it is to stop. */
static void begin_next_move(struct fake_image *self, uint64_t *move_id, uint32_t packing)
{
    flyt_auto_close int fd = new_file(self);
    send_until_taken(self, move_id, fd, packing);
    fake_server_wait_phase(self->node.first, *move_id, FLYT_MANAGER_LINK_MOVE_READY);
}

/* ---- tests ---- */

static void verify_file(const struct fake_image *self)
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

static void run_tool(const struct fake_image *self, const char *verb, const char *words_)
{
    char own[4096], command[8192], line[1024];
    bool is_said = false;
    ssize_t bytes = readlink("/proc/self/exe", own, sizeof own - 1);
    assert_true(bytes > 0);
    own[bytes] = 0;
    *strstr(own, "/cpu/server/") = 0; /* the build's folder */
    snprintf(command, sizeof command, "%s/bin/flytctl image %s %s", own, verb, self->path);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    while (fgets(line, sizeof line, output))
        is_said |= strstr(line, words_) != NULL;
    assert_int_equal(pclose(output), 0);
    assert_true(is_said);
}

static void move_by_file(struct fake_image *self, uint32_t packing)
{
    fake_image_begin(self);
    fake_program_launch(&self->node.wire, 1, 1,
                        fake_image_words(self)); /* the program's memory has a variable's address */
    const float before_ms = fake_program_elapsed(&self->node.wire, 1, 2, CUDA_SUCCESS);
    flyt_auto_close int written = new_file(self);
    send_move(self, MOVE_ID, written, packing);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_READY);
    fake_image_work_and_stop(self);
    verify_file(self);
    run_tool(self, "verify", "sound");
    run_tool(self, "show", "pages");
    fake_image_prepare(self);
    flyt_auto_close int fd = open(self->path, O_RDONLY | O_CLOEXEC);
    fake_server_post_state(self->node.second, MOVE_ID, fd);
    if (fake_server_await_state(self->node.second, MOVE_ID, 2) != 0)
        fail_msg("the image is not taken: %s", self->node.second->prepared_sentence);
    assert_int_equal(self->node.second->prepared.sequence, self->node.sequence);
    fake_image_compare(self);
    fake_image_leave(self);
    fake_image_come_back(self);
    fake_image_check(self, before_ms);
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
    struct fake_image *self = *state;
    int fds[2];
    fake_image_begin(self);
    fake_program_launch(&self->node.wire, 1, 1, fake_image_words(self));
    const float before_ms = fake_program_elapsed(&self->node.wire, 1, 2, CUDA_SUCCESS);
    fake_image_prepare(self);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    fake_server_post_state(self->node.second, MOVE_ID, fds[0]);
    send_move(self, MOVE_ID, fds[1], 0);
    close(fds[0]);
    close(fds[1]);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_READY);
    fake_image_work_and_stop(self);
    if (fake_server_await_state(self->node.second, MOVE_ID, 2) != 0)
        fail_msg("the image is not taken: %s", self->node.second->prepared_sentence);
    fake_image_compare(self);
    fake_image_leave(self);
    fake_image_come_back(self);
    fake_image_check(self, before_ms);
    fake_node_finish(&self->node, self->node.second);
}

/* A checkpoint: the program goes on where it was, and the next one has what it did. */
static void a_program_is_written_and_goes_on(void **state)
{
    struct fake_image *self = *state;
    struct flyt_checkpoint_summary summary;
    struct flyt_error err = {0};
    uint64_t move_id = MOVE_ID;
    fake_image_begin(self);
    for (uint32_t packing = 0; packing < 2; packing++) {
        begin_next_move(self, &move_id, packing);
        fake_image_stop(self, move_id);
        fake_node_go_on(&self->node, move_id);
        fake_server_wait_phase(self->node.first, move_id, FLYT_MANAGER_LINK_MOVE_OVER);
        assert_int_equal(flyt_checkpoint_verify(self->path, true, &summary, &err), 0);
        assert_int_equal(summary.totals.sequence.received, self->node.sequence);
        flyt_checkpoint_summary_fini(&summary);
        fake_image_work(self);
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
    struct fake_image *self = *state;
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
    fake_image_begin(self);
    fake_image_prepare(self);
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
    struct fake_image *self = *state;
    int fds[2];
    fake_image_begin(self);
    fake_image_prepare(self);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    fake_server_post_state(self->node.second, MOVE_ID, fds[0]);
    send_move(self, MOVE_ID, fds[1], 0);
    close(fds[0]);
    close(fds[1]);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_READY);
    fake_server_send_move(self->node.first, FLYT_MANAGER_LINK_GO_ON, MOVE_ID, 0);
    assert_int_equal(fake_server_await_state(self->node.second, MOVE_ID, 2), -ENODATA);
    assert_int_equal(self->node.second->made_count, 0);
    assert_non_null(strstr(self->node.second->prepared_sentence, "session's state"));
    fake_server_kill(self->node.second);
    fake_image_work(self);
    fake_node_finish(&self->node, self->node.first);
}

/* A disk that is full, a peer that dies, one that reads nothing: the program goes on, each time. */
static void what_cannot_be_written_hinders_no_program(void **state)
{
    struct fake_image *self = *state;
    uint64_t move_id = MOVE_ID;
    int fds[2];
    fake_image_begin(self);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    send_move(self, ++move_id, full, 0);
    close(full);
    fake_server_wait_phase(self->node.first, move_id, FLYT_MANAGER_LINK_MOVE_OVER);
    assert_int_equal(self->node.first->move_state.outcome, -ENOSPC);
    fake_image_work(self);

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    send_until_taken(self, &move_id, fds[1], 0);
    close(fds[1]);
    fake_server_wait_phase(self->node.first, move_id, FLYT_MANAGER_LINK_MOVE_COPYING);
    fake_image_work(self);
    close(fds[0]);
    fake_server_wait_phase(self->node.first, move_id, FLYT_MANAGER_LINK_MOVE_OVER);
    assert_int_equal(self->node.first->move_state.outcome, -EPIPE);
    fake_image_work(self);

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    send_until_taken(self, &move_id, fds[1], 0);
    close(fds[1]);
    fake_server_wait_phase(self->node.first, move_id, FLYT_MANAGER_LINK_MOVE_COPYING);
    assert_int_equal(fake_node_try_stop(&self->node, move_id, SHORT_US), -ETIMEDOUT);
    assert_true(*self->node.first->sentence);
    fake_node_await_go_on(&self->node);
    fake_server_wait_phase(self->node.first, move_id, FLYT_MANAGER_LINK_MOVE_OVER);
    *self->node.first->sentence = 0;
    close(fds[0]);
    fake_image_work(self);

    begin_next_move(self, &move_id, 0);
    fake_image_stop(self, move_id);
    fake_node_go_on(&self->node, move_id);
    fake_image_work(self);
    fake_node_finish(&self->node, self->node.first);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_image_set_up, fake_image_tear_down)
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
