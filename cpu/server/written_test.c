/*
 * A session moves from one server to another through an image: two real server processes on software GPUs, a node
 * manager that the test plays (fake_manager.h), and a program that makes its objects again by hand (fake_program.h).
 * The first server writes while the program works; the second one makes everything from what was written: into a file,
 * or straight through a pipe.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/image/verify.h"
#include "cpu/image/writer.h"
#include "cpu/server/fake_manager.h"
#include "cpu/server/fake_program.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/id.h"
#include "rpc/transport/handshake.h"

enum { MIB = 1 << 20, RANGES = 3, LIBRARIES = 3, MOVE_ID = 31 };

#define LONG_US  600000000ull
#define SHORT_US 1000000ull

static const char *const one_gpu[] = {"--soft", "1", "--soft-memory", "512M", NULL};

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
static const char second_text[] =
    PTX ".visible .global .align 4 .u32 counter = 100;\n"
        ".visible .entry step(.param .u64 p_)\n{\n.reg .b32 r;\n.reg .b64 p;\nld.param.u64 p, [p_];\n"
        "ld.global.u32 r, [counter];\nadd.u32 r, r, 1;\nst.global.u32 [counter], r;\nst.global.u32 [p], r;\nret;\n}\n";

struct fixture {
    struct fake_door door;
    struct fake_server servers[2], *first, *second;
    struct fake_wire wire;
    struct flyt_ledger *ledger;
    uint64_t addresses[RANGES], sizes[RANGES], sequence;
    bool is_loaded[LIBRARIES + 1];
    char path[256];
};

static int set_up(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    fake_door_open(&self->door);
    self->wire.fd = -1;
    self->first = &self->servers[0];
    self->second = &self->servers[1];
    snprintf(self->path, sizeof self->path, "%s/image", getenv("FAKE_FOLDER"));
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

/* ---- the program ---- */

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

static void begin(struct fixture *self)
{
    fake_server_start(self->first, one_gpu);
    assert_true(self->first->is_ready);
    assert_int_equal(flyt_ledger_new(256 * MIB, &self->ledger), 0);
    fake_door_grant(&self->door, self->first, self->ledger, 256 * MIB);
    assert_int_equal(fake_wire_open(&self->wire, self->door.url, FLYT_CONNECTION_SESSION, NULL), FLYT_HANDSHAKE_OK);
    store(&self->wire, first_text);
    store(&self->wire, second_text);
    load_numbered(self, 1);
    load_numbered(self, 2);
    allocate(self, 0, 1000);
    allocate(self, 1, 24 * MIB);
    for (unsigned i = 1; i <= 4; i++)
        FAKE_WIRE_SEND(&self->wire, FLYT_EVENT_CREATE, event_create, .event_id = event(i));
    record(self, 1);
    launch(&self->wire, 1, 0, 10);
    record(self, 2);
}

static uint64_t words(const struct fixture *self)
{
    return self->addresses[1] + 4096;
}

/* It works as ever. */
static void work(struct fixture *self)
{
    fill(&self->wire, self->addresses[1] + 8 * MIB, 1000, 0x66);
    assert_int_equal(word_at(&self->wire, self->addresses[1] + 8 * MIB), 0x66666666);
}

static void finish(struct fixture *self, struct fake_server *server)
{
    struct flyt_ledger_state ledger;
    uint64_t bytes;
    fake_wire_close(&self->wire);
    fake_server_wait_true(server, &server->is_returned);
    assert_string_equal(server->sentence, "");
    assert_int_equal(fake_server_end(server), 0);
    assert_int_equal(flyt_ledger_reclaim(self->ledger, server->server_id, &bytes), 0);
    flyt_ledger_read(self->ledger, &ledger);
    assert_int_equal(ledger.used_bytes, 0);
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
    fake_server_post(self->first, message, fd);
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
    fake_server_wait_phase(self->first, move_id, FLYT_SERVER_LINK_MOVE_READY);
}

/* The program stops. What the server says then. */
static int stop(struct fixture *self, uint64_t move_id, uint64_t timeout_us)
{
    flyt_back_stop back;
    unsigned before = self->first->stopped_count;
    fake_server_send_move(self->first, FLYT_SERVER_LINK_STOP, move_id, timeout_us);
    fake_wire_await_back(&self->wire, FLYT_BACK_STOP, (xdrproc_t)xdr_flyt_back_stop, &back);
    FAKE_WIRE_SEND(&self->wire, FLYT_SESSION_STOPPED, session_stopped, .number = back.number);
    fake_server_wait(self->first, &self->first->stopped_count, before + 1);
    self->sequence = self->first->stopped.sequence;
    return self->first->stopped.outcome;
}

static void stop_well(struct fixture *self, uint64_t move_id)
{
    if (stop(self, move_id, LONG_US) != 0)
        fail_msg("it has not stopped: %s", self->first->sentence);
    assert_true(self->first->stopped.has_state);
    assert_true(self->first->state_fd >= 0);
    assert_int_equal(lseek(self->first->state_fd, 0, SEEK_END), 0); /* everything is in the image */
}

static void await_go_on(struct fixture *self)
{
    flyt_back_stop back;
    fake_wire_await_back(&self->wire, FLYT_BACK_GO_ON, (xdrproc_t)xdr_flyt_back_stop, &back);
}

/* ---- the second server ---- */

static void prepare(struct fixture *self)
{
    struct flyt_server_link_session session = self->door.session;
    fake_server_start(self->second, one_gpu);
    assert_true(self->second->is_ready);
    self->second->keeps_made = true;
    session.ledger_count = 0;
    fake_server_send(self->second, FLYT_SERVER_LINK_PREPARE, &session, sizeof session, NULL);
    fake_server_wait(self->second, &self->second->prepared_count, 1);
    assert_int_equal(self->second->prepared.outcome, 0);
}

static void post_state(struct fixture *self, int fd)
{
    struct flyt_server_link_message *message = calloc(1, sizeof *message);
    assert_non_null(message);
    message->kind = FLYT_SERVER_LINK_STATE;
    message->stop.move_id = MOVE_ID;
    fake_server_post(self->second, message, fd);
    free(message);
}

static int await_state(struct fixture *self)
{
    fake_server_wait(self->second, &self->second->prepared_count, 2);
    assert_true(self->second->prepared.move_id == MOVE_ID);
    return self->second->prepared.outcome;
}

/* What the second server has made is what the first one had, byte by byte. */
static void compare_memory(const struct fixture *self)
{
    assert_int_equal(self->second->extent_count, self->first->extent_count);
    assert_int_equal(self->second->made_count, self->first->extent_count);
    for (unsigned i = 0; i < self->first->extent_count; i++) {
        const struct fake_extent *had = &self->first->extents[i], *has = NULL;
        for (unsigned k = 0; k < self->second->extent_count && !has; k++)
            has = self->second->extents[k].address == had->address ? &self->second->extents[k] : NULL;
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
    flyt_back_moved moved;
    struct flyt_server_link_resume resume = {.extent_count = self->second->extent_count, .is_made = 1};
    for (unsigned i = 0; i < self->second->extent_count; i++)
        if (self->second->extents[i].extent_id > resume.last_extent_id)
            resume.last_extent_id = self->second->extents[i].extent_id;
    fake_server_send_move(self->first, FLYT_SERVER_LINK_LEAVE, MOVE_ID, 0);
    fake_wire_await_back(&self->wire, FLYT_BACK_MOVED, (xdrproc_t)xdr_flyt_back_moved, &moved);
    assert_int_equal(moved.sequence, self->sequence);
    fake_wire_close(&self->wire);
    fake_server_wait(self->first, &self->first->left_count, 1);
    fake_server_kill(self->first);
    for (unsigned i = 0; i < self->first->extent_count; i++)
        close(self->first->extents[i].fd);
    self->first->extent_count = 0;
    fake_server_send(self->second, FLYT_SERVER_LINK_RESUME, &resume, sizeof resume, NULL);
    fake_door_grant_again(&self->door, self->second, self->first);
}

static void come_back(struct fixture *self)
{
    struct fake_wire *wire = &self->wire;
    flyt_session_resume_begin_res begun;
    flyt_session_resume_end_res ended;
    flyt_memory_restore_res restored;
    assert_int_equal(fake_wire_open(wire, self->door.url, FLYT_CONNECTION_RESUME, self->door.session.token),
                     FLYT_HANDSHAKE_OK);
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_SESSION_RESUME_BEGIN, session_resume_begin, &begun, .thread = 1),
                     CUDA_SUCCESS);
    for (unsigned i = 1; i <= LIBRARIES; i++)
        if (self->is_loaded[i])
            load_numbered(self, i);
    assert_int_equal(
        FAKE_WIRE_CALL(wire, FLYT_MEMORY_RESTORE, memory_restore, &restored,
                       .addresses = {.addresses_len = RANGES, .addresses_val = (u_quad_t *)self->addresses},
                       .sizes = {.sizes_len = RANGES, .sizes_val = (u_quad_t *)self->sizes}),
        CUDA_SUCCESS);
    for (unsigned i = 1; i <= 4; i++) {
        FAKE_WIRE_SEND(wire, FLYT_EVENT_CREATE, event_create, .event_id = event(i));
        if (i < 3) /* the others were never recorded */
            FAKE_WIRE_SEND(wire, FLYT_EVENT_RESTORE, event_restore, .event_id = event(i));
    }
    assert_int_equal(
        FAKE_WIRE_CALL(wire, FLYT_SESSION_RESUME_END, session_resume_end, &ended, .sequence = self->sequence),
        CUDA_SUCCESS);
    assert_int_equal(wire->failed_result, 0);
}

/* ---- tests ---- */

/* The program works while it is written, and stops with everything in the image. */
static void work_and_stop(struct fixture *self)
{
    struct fake_wire *wire = &self->wire;
    allocate(self, 2, 8 * MIB);
    load_numbered(self, 3);
    launch(wire, 3, 0, words(self) + 256);
    unload(self, 3);
    load_numbered(self, 3);
    launch(wire, 3, 0, words(self) + 256);
    launch(wire, 1, 0, 1000);
    launch(wire, 2, 0, words(self) + 300);
    fake_server_wait(self->first, &self->first->extents_told, RANGES);
    stop_well(self, MOVE_ID);
}

static void check_program(struct fixture *self, float before_ms)
{
    struct fake_wire *wire = &self->wire;
    launch(wire, 1, 2, words(self));
    assert_int_equal(word_at(wire, words(self) + 8), 78);
    assert_int_equal(word_at(wire, words(self) + 12), 5 + 10 + 1000);
    launch(wire, 2, 0, words(self) + 300);
    assert_int_equal(word_at(wire, words(self) + 300), 102);
    launch(wire, 3, 0, words(self) + 256);
    assert_int_equal(word_at(wire, words(self) + 256), 102);
    for (unsigned i = 0; i < RANGES; i++)
        assert_int_equal(word_at(wire, self->addresses[i] + self->sizes[i] - 4), 0x01010101 * (0x21 + i));
    assert_float_equal(elapsed(wire, 1, 2, CUDA_SUCCESS), before_ms, 0.001 + (double)before_ms * 1e-6);
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
    assert_int_equal(summary.totals.extent_count, self->first->extent_count);
    assert_int_equal(summary.totals.global_count, 4);
    assert_int_equal(summary.totals.sequence.completed, self->sequence);
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
    launch(&self->wire, 1, 1, words(self)); /* the program's memory has a variable's address */
    const float before_ms = elapsed(&self->wire, 1, 2, CUDA_SUCCESS);
    begin_move(self, MOVE_ID, packing);
    work_and_stop(self);
    verify_file(self);
    run_tool(self, "verify", "sound");
    run_tool(self, "show", "pages");
    prepare(self);
    flyt_auto_close int fd = open(self->path, O_RDONLY | O_CLOEXEC);
    post_state(self, fd);
    if (await_state(self) != 0)
        fail_msg("the image is not taken: %s", self->second->prepared_sentence);
    assert_int_equal(self->second->prepared.sequence, self->sequence);
    compare_memory(self);
    leave(self);
    come_back(self);
    check_program(self, before_ms);
    finish(self, self->second);
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
    launch(&self->wire, 1, 1, words(self));
    const float before_ms = elapsed(&self->wire, 1, 2, CUDA_SUCCESS);
    prepare(self);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    post_state(self, fds[0]);
    send_move(self, MOVE_ID, fds[1], 0);
    close(fds[0]);
    close(fds[1]);
    fake_server_wait_phase(self->first, MOVE_ID, FLYT_SERVER_LINK_MOVE_READY);
    work_and_stop(self);
    if (await_state(self) != 0)
        fail_msg("the image is not taken: %s", self->second->prepared_sentence);
    compare_memory(self);
    leave(self);
    come_back(self);
    check_program(self, before_ms);
    finish(self, self->second);
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
        fake_server_send_move(self->first, FLYT_SERVER_LINK_GO_ON, MOVE_ID + i, 0);
        await_go_on(self);
        fake_server_wait_phase(self->first, MOVE_ID + i, FLYT_SERVER_LINK_MOVE_OVER);
        assert_int_equal(flyt_checkpoint_verify(self->path, true, &summary, &err), 0);
        assert_int_equal(summary.totals.sequence.received, self->sequence);
        flyt_checkpoint_summary_fini(&summary);
        work(self);
    }
    finish(self, self->first);
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
    post_state(self, fd);
    assert_int_equal(await_state(self), 0);
    assert_int_equal(self->second->prepared.sequence, 7);
    assert_int_equal(self->second->made_count, 2);
    assert_int_equal(self->second->extent_count, 2);
    for (unsigned i = 0; i < 2; i++) {
        const struct fake_extent *made = &self->second->extents[i];
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
    assert_true(self->second->extents[0].address != self->second->extents[1].address);
    self->second->extent_count = 0;
    free(pages);
    fake_server_kill(self->second);
    finish(self, self->first);
}

/* What is cut off is not taken, and the program goes on where it was. */
static void a_stream_that_is_cut_off_is_of_no_use(void **state)
{
    struct fixture *self = *state;
    int fds[2];
    begin(self);
    prepare(self);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    post_state(self, fds[0]);
    send_move(self, MOVE_ID, fds[1], 0);
    close(fds[0]);
    close(fds[1]);
    fake_server_wait_phase(self->first, MOVE_ID, FLYT_SERVER_LINK_MOVE_READY);
    fake_server_send_move(self->first, FLYT_SERVER_LINK_GO_ON, MOVE_ID, 0);
    assert_int_equal(await_state(self), -ENODATA);
    assert_int_equal(self->second->made_count, 0);
    assert_non_null(strstr(self->second->prepared_sentence, "session's state"));
    fake_server_kill(self->second);
    work(self);
    finish(self, self->first);
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
    fake_server_wait_phase(self->first, move_id, FLYT_SERVER_LINK_MOVE_OVER);
    assert_int_equal(self->first->move_state.outcome, -ENOSPC);
    work(self);

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    send_move(self, ++move_id, fds[1], 0);
    close(fds[1]);
    fake_server_wait_phase(self->first, move_id, FLYT_SERVER_LINK_MOVE_COPYING);
    work(self);
    close(fds[0]);
    fake_server_wait_phase(self->first, move_id, FLYT_SERVER_LINK_MOVE_OVER);
    assert_int_equal(self->first->move_state.outcome, -EPIPE);
    work(self);

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    send_move(self, ++move_id, fds[1], 0);
    close(fds[1]);
    fake_server_wait_phase(self->first, move_id, FLYT_SERVER_LINK_MOVE_COPYING);
    assert_int_equal(stop(self, move_id, SHORT_US), -ETIMEDOUT);
    assert_true(*self->first->sentence);
    await_go_on(self);
    fake_server_wait_phase(self->first, move_id, FLYT_SERVER_LINK_MOVE_OVER);
    *self->first->sentence = 0;
    close(fds[0]);
    work(self);

    begin_move(self, ++move_id, 0);
    stop_well(self, move_id);
    fake_server_send_move(self->first, FLYT_SERVER_LINK_GO_ON, move_id, 0);
    await_go_on(self);
    work(self);
    finish(self, self->first);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    return remove(path);
}

int main(void)
{
    char folder[] = "/var/tmp/flyt-written-test-XXXXXX", images[64];
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
    if (!mkdtemp(folder))
        return 1;
    snprintf(images, sizeof images, "%s/images", folder);
    if (mkdir(images, 0700) != 0)
        return 1;
    setenv("FAKE_FOLDER", folder, 1);
    setenv("FAKE_IMAGES", images, 1);
    setenv("FLYT_LOG", "warn", 0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS); /* with the images in it */
    return failed;
}
