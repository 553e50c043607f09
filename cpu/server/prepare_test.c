/*
 * A warm server is prepared for a session that is moved to it: real server processes on the software GPU, a node
 * manager and a program that the test plays (fake_node.h, fake_program.h), and an image of the session's state that the
 * test has written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/image/writer.h"
#include "cpu/server/fake_node.h"
#include "cpu/server/state.h"
#include "rpc/base/clock.h"
#include "rpc/base/id.h"
#include "rpc/base/page_hash.h"

enum { KIB = 1 << 10, MIB = 1 << 20, RANGES = 2, SEQUENCE = 70000, BIG_BYTES = 5 * MIB, MOVE_ID = 9 };

/* The software GPU puts variables here, one library behind the other, in the order of their loading. */
#define FIRST_VARIABLE   0x1f0000000000ull
#define DEVICE_VARIABLES (64ull << 30) /* those of the next device are so far behind */

/* look: p[0] = counter++, p[1] = big at its end, p[2] = factors[1]. */
static const char first_text[] =
    PTX ".visible .global .align 256 .u32 counter = 5;\n.global .align 4 .b8 big[5242880];\n"
        ".const .align 4 .u32 factors[4] = {1, 2, 3, 4};\n"
        ".visible .entry look(.param .u64 p_)\n{\n.reg .b32 r;\n.reg .b64 p, q;\nld.param.u64 p, [p_];\n"
        "ld.global.u32 r, [counter];\nst.global.u32 [p], r;\nadd.u32 r, r, 1;\nst.global.u32 [counter], r;\n"
        "mov.u64 q, big;\nadd.u64 q, q, 5242876;\nld.global.u32 r, [q];\nst.global.u32 [p + 4], r;\n"
        "ld.const.u32 r, [factors + 4];\nst.global.u32 [p + 8], r;\nret;\n}\n";
static const char second_text[] =
    PTX ".visible .global .align 256 .u32 counter = 100;\n"
        ".visible .entry look(.param .u64 p_)\n{\n.reg .b32 r;\n.reg .b64 p;\nld.param.u64 p, [p_];\n"
        "ld.global.u32 r, [counter];\nst.global.u32 [p], r;\nret;\n}\n";

/* What the image has of a variable. */
struct variable {
    unsigned library;
    const char *symbol;
    uint64_t address, bytes;
    const void *contents;
};

struct fixture {
    struct fake_node node;
    struct fake_range ranges[RANGES];
    uint64_t variables[2]; /* where the first one of each library is, in the first server */
};

/* Has the library's kernel write what it sees to the address. */
static void look(struct fake_wire *wire, unsigned number, uint64_t address)
{
    fake_program_launch(wire, number, 0, address);
}

/* ---- before and after ---- */

static int set_up(void **state)
{
    fake_node_fixture_new(state, sizeof(struct fixture));
    return 0;
}

/* A program with memory and two libraries at the first server. */
static void begin(struct fixture *self)
{
    static const uint64_t sizes[RANGES] = {1000, 4 * MIB};
    struct fake_wire *wire = &self->node.wire;
    fake_node_begin(&self->node, fake_one_gpu, 128 * MIB);
    fake_node_connect(&self->node);
    for (unsigned i = 0; i < RANGES; i++) {
        self->ranges[i].bytes = sizes[i];
        assert_int_equal(fake_program_alloc(wire, sizes[i], &self->ranges[i].address), CUDA_SUCCESS);
        fake_program_fill(wire, self->ranges[i].address, sizes[i], 0x10 + i);
    }
    fake_program_store(wire, first_text);
    fake_program_store(wire, second_text);
    fake_program_load(wire, 1, first_text, 1);
    fake_program_load(wire, 2, second_text, 1);
    for (unsigned i = 0; i < 2; i++)
        self->variables[i] = fake_program_place_of(wire, i + 1, "counter");
    look(wire, 1, self->ranges[0].address);
    assert_int_equal(fake_program_word_at(wire, self->ranges[0].address), 5);
    fake_server_wait(self->node.first, &self->node.first->extents_told, RANGES);
}

static void prepare(struct fixture *self)
{
    fake_server_start(self->node.second, fake_one_gpu);
    assert_true(self->node.second->is_ready);
    fake_node_prepare(&self->node, self->node.second);
    assert_int_equal(self->node.second->prepared.outcome, 0);
    assert_true(!self->node.second->prepared.move_id && !self->node.second->prepared.sequence);
}

static void send_library(struct fake_server *server, unsigned number, const char *text)
{
    struct flyt_server_link_message *message = calloc(1, sizeof *message);
    assert_non_null(message);
    message->kind = FLYT_SERVER_LINK_LIBRARY;
    message->library.library_id = fake_program_library(number);
    message->library.has_ended = !text;
    if (text) {
        flyt_library_load_args args = fake_program_arguments(number, text);
        XDR xdrs;
        xdrmem_create(&xdrs, (char *)message->data, sizeof message->data, XDR_ENCODE);
        assert_true(xdr_flyt_library_load_args(&xdrs, &args));
        message->data_bytes = xdr_getpos(&xdrs);
    }
    fake_server_post(server, message, -1);
    free(message);
}

static void make(struct fake_server *server, const struct flyt_server_link_extent *extent, int want)
{
    fake_server_make(server, extent);
    assert_int_equal(server->made.outcome, want);
    assert_memory_equal(&server->made.extent, extent, sizeof *extent);
    assert_int_equal(server->made_fd >= 0, !want);
}

static void copy_memory(int from_fd, int to_fd, uint64_t bytes)
{
    void *from = mmap(NULL, bytes, PROT_READ, MAP_SHARED, from_fd, 0);
    void *to = mmap(NULL, bytes, PROT_WRITE, MAP_SHARED, to_fd, 0);
    assert_true(from != MAP_FAILED && to != MAP_FAILED);
    memcpy(to, from, bytes);
    munmap(from, bytes);
    munmap(to, bytes);
}

/* Memory for all extents, with what is in them; the second server's from then on. */
static void make_all(struct fixture *self)
{
    for (unsigned i = 0; i < self->node.first->extent_count; i++) {
        const struct fake_extent *held = &self->node.first->extents[i];
        const struct flyt_server_link_extent extent = fake_extent_told(held);
        make(self->node.second, &extent, 0);
        copy_memory(held->fd, self->node.second->made_fd, held->bytes);
        self->node.second->extents[i] = *held;
        self->node.second->extents[i].fd = self->node.second->made_fd;
        self->node.second->made_fd = -1;
    }
    self->node.second->extent_count = self->node.first->extent_count;
}

/* ---- the image ---- */

static unsigned char big[BIG_BYTES];
static const uint32_t factors[4] = {10, 20, 30, 40}, counters[2] = {1234, 777};

/* key: of hashes; NULL: there are none. */
static struct flyt_checkpoint_writer *begin_image_with(const struct flyt_page_key *key, int *ret_fd)
{
    struct flyt_checkpoint_writer *writer;
    struct flyt_error err;
    flyt_checkpoint_head head = {.build = (char *)"test",
                                 .program_name = (char *)"",
                                 .vm = (char *)"",
                                 .gpu_type = (char *)"",
                                 .page_hash = key ? FLYT_PAGE_HASH_VERSION : 0,
                                 .id = "0123456789abcde"};
    *ret_fd = memfd_create("prepare_test", MFD_CLOEXEC);
    assert_true(*ret_fd >= 0);
    assert_int_equal(flyt_checkpoint_writer_new(*ret_fd, "image", &head, FLYT_CHECKPOINT_PACK_NOT, &writer, &err), 0);
    assert_int_equal(flyt_checkpoint_put_slot(writer, 0, 0, &err), 0);
    if (key)
        assert_int_equal(flyt_checkpoint_put_hash_key(writer, key, &err), 0);
    assert_int_equal(flyt_checkpoint_put_round(writer, &err), 0);
    return writer;
}

static struct flyt_checkpoint_writer *begin_image(int *ret_fd)
{
    return begin_image_with(NULL, ret_fd);
}

static void put_event(struct flyt_checkpoint_writer *writer, uint64_t number, unsigned id, bool has_time,
                      uint64_t time_ns)
{
    const struct flyt_state_event state = {
        .event_id = fake_program_event(id), .has_time = has_time, .time_ns = time_ns};
    unsigned char bytes[FLYT_STATE_EVENT_BYTES];
    struct flyt_error err;
    flyt_state_event_put(&state, bytes);
    const flyt_checkpoint_object object = {.number = number,
                                           .kind = FLYT_CHECKPOINT_EVENT,
                                           .value = {.value_len = sizeof bytes, .value_val = (char *)bytes}};
    assert_int_equal(flyt_checkpoint_put_object(writer, &object, &err), 0);
}

static void put_variable(struct flyt_checkpoint_writer *writer, const struct variable *variable)
{
    struct flyt_error err;
    uint64_t done = 0;
    while (done < variable->bytes) {
        uint64_t bytes = variable->bytes - done < 4 * MIB ? variable->bytes - done : 4 * MIB;
        flyt_checkpoint_global global = {.symbol = (char *)variable->symbol,
                                         .address = variable->address,
                                         .total_bytes = variable->bytes,
                                         .offset_bytes = done};
        assert_true(flyt_state_module_id(fake_program_library(variable->library), 0, (uint64_t *)&global.module_id));
        assert_int_equal(
            flyt_checkpoint_put_global(writer, &global, (const char *)variable->contents + done, bytes, &err), 0);
        done += bytes;
    }
}

static void end_image(struct flyt_checkpoint_writer *writer)
{
    const flyt_checkpoint_sequence sequence = {SEQUENCE, SEQUENCE, SEQUENCE};
    struct flyt_error err;
    assert_int_equal(flyt_checkpoint_put_sequence(writer, &sequence, &err), 0);
    assert_int_equal(flyt_checkpoint_put_end(writer, &err), 0);
    flyt_checkpoint_writer_free(writer);
}

/* Of both libraries; their addresses as given. */
static int make_image(uint64_t first_address, uint64_t second_address, uint64_t now_ns)
{
    const struct variable variables[] = {
        {1, "counter", first_address, sizeof counters[0], &counters[0]},
        {1, "big", 0, sizeof big, big},
        {1, "factors", 0, sizeof factors, factors},
        {2, "counter", second_address, sizeof counters[1], &counters[1]},
    };
    int fd;
    struct flyt_checkpoint_writer *writer = begin_image(&fd);
    uint32_t last = 0xbeef;
    memcpy(big + sizeof big - sizeof last, &last, sizeof last);
    put_event(writer, 1, 3, true, now_ns - 5000000000);
    put_event(writer, 4, 1, true, now_ns - 4998750000);
    put_event(writer, 9, 2, false, 0);
    for (unsigned i = 0; i < sizeof variables / sizeof variables[0]; i++)
        put_variable(writer, &variables[i]);
    end_image(writer);
    return fd;
}

/* Closes fd. */
static void send_state(struct fake_server *server, int fd)
{
    unsigned before = server->prepared_count;
    fake_server_post_state(server, MOVE_ID, fd);
    close(fd);
    fake_server_await_state(server, MOVE_ID, before + 1);
}

static void expect_state(struct fake_server *server, int fd, int want, const char *words)
{
    send_state(server, fd);
    if (server->prepared.outcome != want || (words && !strstr(server->prepared_sentence, words)))
        fail_msg("%d '%s', not %d '%s'", server->prepared.outcome, server->prepared_sentence, want, words);
    assert_true(server->prepared.sequence == (want ? 0 : SEQUENCE));
}

/* ---- hashes ---- */

static int compare_addresses(const void *left, const void *right)
{
    uint64_t a = ((const struct fake_extent *)left)->address, b = ((const struct fake_extent *)right)->address;
    return a < b ? -1 : a > b;
}

/* Which page of an extent is told with another hash than it has; -1: none. */
static void put_hashes_of(struct flyt_checkpoint_writer *writer, const struct flyt_page_hash_keys *keys,
                          const struct fake_extent *held, int64_t wrong)
{
    const uint64_t pages_count = held->bytes / FLYT_PAGE_BYTES;
    struct flyt_page_hash *hashes = calloc(pages_count, sizeof *hashes);
    const unsigned char *memory = mmap(NULL, held->bytes, PROT_READ, MAP_SHARED, held->fd, 0);
    struct flyt_error err;
    assert_true(hashes && memory != MAP_FAILED);
    for (uint64_t page = 0; page < pages_count; page++)
        flyt_page_hash(keys, memory + page * FLYT_PAGE_BYTES, &hashes[page], NULL);
    if (wrong >= 0)
        hashes[(uint64_t)wrong % pages_count].words[wrong & 1] ^= 1;
    assert_int_equal(flyt_checkpoint_put_hashes(writer, held->address, pages_count, hashes, &err), 0);
    munmap((void *)memory, held->bytes);
    free(hashes);
}

/* The hashes of an extent of which all pages are zero, one by one; `wrong`: of a page that is told to be another. */
static void put_zeros_one_by_one(struct flyt_checkpoint_writer *writer, const struct flyt_page_hash_keys *keys,
                                 const struct flyt_server_link_extent *extent, int64_t wrong)
{
    static const unsigned char page[FLYT_PAGE_BYTES];
    struct flyt_page_hash right, other;
    struct flyt_error err;
    flyt_page_hash(keys, page, &right, NULL);
    other = right;
    other.words[1] ^= 1;
    for (uint64_t i = 0; i < extent->bytes / FLYT_PAGE_BYTES; i++)
        assert_int_equal(flyt_checkpoint_put_hashes(writer, extent->address + i * FLYT_PAGE_BYTES, 1,
                                                    (int64_t)i == wrong ? &other : &right, &err),
                         0);
}

/* ---- going on ---- */

static void hand_over(struct fixture *self, const struct flyt_server_link_resume *resume)
{
    fake_server_send(self->node.second, FLYT_SERVER_LINK_RESUME, resume, sizeof *resume, NULL);
    fake_door_grant_again(&self->node.door, self->node.second, self->node.first);
}

/* The first server ends without its program, whose memory stays where the test needs it. */
static void leave_first(struct fixture *self)
{
    fake_server_kill(self->node.first);
    fake_wire_close(&self->node.wire);
}

static void come_back(struct fixture *self)
{
    struct fake_wire *wire = &self->node.wire;
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    assert_int_equal(fake_program_resume_begin(wire), CUDA_SUCCESS);
    fake_program_load(wire, 1, first_text, 1);
    fake_program_load(wire, 2, second_text, 1);
    assert_int_equal(fake_program_restore(wire, self->ranges, RANGES), CUDA_SUCCESS);
    fake_program_restore_events(wire, 4, 4);
    /* One that has gone on elsewhere meanwhile, or knows less, does not get what is here. */
    assert_int_equal(fake_program_resume_end(wire, SEQUENCE + 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake_program_resume_end(wire, SEQUENCE - 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake_program_resume_end(wire, SEQUENCE), CUDA_SUCCESS);
    assert_int_equal(wire->failed_result, 0);
}

/* Memory as it was, variables as the image has them. */
static void check_session(struct fixture *self)
{
    struct fake_wire *wire = &self->node.wire;
    uint64_t address = self->ranges[1].address + MIB;
    assert_int_equal(fake_program_word_at(wire, self->ranges[0].address), 5);
    for (unsigned i = 0; i < RANGES; i++)
        assert_int_equal(fake_program_word_at(wire, self->ranges[i].address + self->ranges[i].bytes - 4),
                         0x10101010 + i * 0x1010101);
    for (unsigned i = 0; i < 3; i++) {
        look(wire, 1, address);
        assert_int_equal(fake_program_word_at(wire, address), counters[0] + i);
        assert_int_equal(fake_program_word_at(wire, address + 4), 0xbeef);
        assert_int_equal(fake_program_word_at(wire, address + 8), factors[1]);
    }
    look(wire, 2, address);
    assert_int_equal(fake_program_word_at(wire, address), counters[1]);
}

/* The second server is of no use, and says why to the program, too. */
static void expect_refusal(struct fixture *self, const char *words)
{
    fake_node_hand_to_second(&self->node);
    fake_node_expect_refusal(&self->node, self->node.second, FLYT_CONNECTION_RESUME, self->node.door.session.token,
                             FLYT_HANDSHAKE_NO_DEVICE, words);
}

/* ---- tests ---- */

static void a_session_goes_on_in_memory_that_was_made(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    begin(self);
    assert_true(self->variables[0] == FIRST_VARIABLE && self->variables[1] > FIRST_VARIABLE);
    prepare(self);
    send_library(self->node.second, 1, first_text);
    send_library(self->node.second, 2, second_text);
    send_library(self->node.second, 7, second_text); /* loaded and unloaded meanwhile */
    send_library(self->node.second, 7, NULL);
    send_library(self->node.second, 8, second_text); /* that its program does not come back for */
    send_library(self->node.second, 9, "not in the folder");
    const struct flyt_server_link_extent other = {4000, 2 * MIB, flyt_window_base(0) + 512ull * MIB, 0, 0};
    make(self->node.second, &other, 0);
    make_all(self);
    fake_server_send(self->node.second, FLYT_SERVER_LINK_UNMAKE, &other, sizeof other, NULL);
    fake_server_send(self->node.second, FLYT_SERVER_LINK_UNMAKE, &other, sizeof other, NULL);
    uint64_t now_ns = flyt_clock_ns();
    expect_state(self->node.second, make_image(self->variables[0], self->variables[1], now_ns), 0, NULL);
    leave_first(self);
    const struct flyt_server_link_resume resume = fake_server_resume(self->node.first);
    hand_over(self, &resume);
    come_back(self);
    check_session(self);
    for (unsigned i = 0; i < 2; i++)
        assert_true(fake_program_place_of(wire, i + 1, "counter") == self->variables[i]);
    /* The image knew what the program does not. */
    assert_float_equal(fake_program_elapsed(wire, 3, 1, CUDA_SUCCESS), 1.25, 0.0001);
    fake_program_elapsed(wire, 1, 2, CUDA_ERROR_INVALID_HANDLE);
    fake_program_elapsed(wire, 1, 4, CUDA_ERROR_INVALID_HANDLE);
    /* It is a session like any. */
    fake_program_load(wire, 11, second_text, 1);
    look(wire, 11, self->ranges[1].address);
    assert_int_equal(fake_program_word_at(wire, self->ranges[1].address), 100);
    uint64_t address;
    assert_int_equal(fake_program_alloc(wire, 8 * MIB, &address), CUDA_SUCCESS);
    fake_program_fill(wire, address, 8 * MIB, 7);
    assert_int_equal(fake_program_word_at(wire, address + 8 * MIB - 4), 0x07070707);
    fake_node_finish(&self->node, self->node.second);
    fake_server_forget(self->node.first);
}

/* On the same GPU the memory itself comes, before the session is handed over. */
static void a_session_goes_on_in_memory_that_was_given(void **state)
{
    struct fixture *self = *state;
    begin(self);
    prepare(self);
    send_library(self->node.second, 1, first_text);
    send_library(self->node.second, 2, second_text);
    for (unsigned i = 0; i < self->node.first->extent_count; i++) {
        const struct flyt_server_link_extent extent = fake_extent_told(&self->node.first->extents[i]);
        fake_server_give_one(self->node.second, &extent, self->node.first->extents[i].fd);
        if (i == 0) { /* it went, and came again under another id */
            struct flyt_server_link_extent again = extent;
            fake_server_send(self->node.second, FLYT_SERVER_LINK_UNMAKE, &extent, sizeof extent, NULL);
            self->node.first->extents[i].extent_id = again.extent_id = 5000;
            fake_server_give_one(self->node.second, &again, self->node.first->extents[i].fd);
        }
    }
    expect_state(self->node.second, make_image(0, 0, flyt_clock_ns()), 0, NULL);
    leave_first(self);
    const struct flyt_server_link_resume resume = fake_server_resume(self->node.first);
    memcpy(self->node.second->extents, self->node.first->extents, sizeof self->node.second->extents);
    self->node.second->extent_count = self->node.first->extent_count;
    hand_over(self, &resume);
    come_back(self);
    check_session(self);
    fake_node_finish(&self->node, self->node.second);
}

/* All of it is in the image: memory that nobody has asked for is made and told. */
static void a_session_goes_on_from_an_image_with_its_memory(void **state)
{
    struct fixture *self = *state;
    int fd;
    begin(self);
    void *memory[RANGES + 2];
    struct flyt_checkpoint_writer *writer = begin_image(&fd);
    const unsigned count = self->node.first->extent_count;
    assert_true(count <= RANGES + 1);
    struct flyt_error err;
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(flyt_checkpoint_put_extent(writer, self->node.first->extents[i].address,
                                                    self->node.first->extents[i].bytes, &err),
                         0);
    const uint32_t last = 0xbeef;
    memcpy(big + sizeof big - sizeof last, &last, sizeof last);
    put_event(writer, 1, 3, true, 7);
    put_variable(writer, &(struct variable){1, "counter", self->variables[0], 4, &counters[0]});
    put_variable(writer, &(struct variable){1, "big", 0, sizeof big, big});
    put_variable(writer, &(struct variable){1, "factors", 0, sizeof factors, factors});
    put_variable(writer, &(struct variable){2, "counter", 0, 4, &counters[1]});
    for (unsigned i = 0; i < count; i++) {
        const struct fake_extent *held = &self->node.first->extents[i];
        memory[i] = mmap(NULL, held->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, held->fd, 0);
        assert_true(memory[i] != MAP_FAILED);
        assert_int_equal(flyt_checkpoint_put_pages(writer, held->address, held->bytes / FLYT_CHECKPOINT_PAGE_BYTES,
                                                   memory[i], NULL, &err),
                         0);
        memset(memory[i], 0xdd, held->bytes); /* it can only be from the image */
        munmap(memory[i], held->bytes);
    }
    end_image(writer);
    prepare(self);
    send_library(self->node.second, 1, first_text);
    send_library(self->node.second, 2, second_text);
    self->node.second->keeps_made = true;
    expect_state(self->node.second, fd, 0, NULL);
    assert_int_equal(self->node.second->extent_count, count);
    for (unsigned i = 0; i < count; i++)
        assert_true(self->node.second->extents[i].address == self->node.first->extents[i].address &&
                    self->node.second->extents[i].bytes == self->node.first->extents[i].bytes);
    leave_first(self);
    const struct flyt_server_link_resume resume = {.extent_count = count, .last_extent_id = count, .is_made = 1};
    hand_over(self, &resume);
    come_back(self);
    check_session(self);
    fake_node_finish(&self->node, self->node.second);
    fake_server_forget(self->node.first);
}

/* The program stopped, went on at the first server, loaded something, and stopped again. */
static void the_state_comes_again(void **state)
{
    struct fixture *self = *state;
    static const uint32_t other = 4;
    const struct variable variable = {1, "counter", 0, sizeof other, &other};
    int fd;
    begin(self);
    prepare(self);
    send_library(self->node.second, 1, first_text);
    struct flyt_checkpoint_writer *writer = begin_image(&fd);
    put_event(writer, 1, 4, true, 5);
    put_variable(writer, &variable);
    end_image(writer);
    expect_state(self->node.second, fd, 0, NULL);
    send_library(self->node.second, 2, second_text);
    make_all(self);
    expect_state(self->node.second, make_image(self->variables[0], self->variables[1], flyt_clock_ns()), 0, NULL);
    leave_first(self);
    const struct flyt_server_link_resume resume = fake_server_resume(self->node.first);
    hand_over(self, &resume);
    come_back(self);
    check_session(self);
    fake_program_elapsed(&self->node.wire, 1, 4, CUDA_ERROR_INVALID_HANDLE); /* of the last state alone */
    fake_node_finish(&self->node, self->node.second);
    fake_server_forget(self->node.first);
}

/* What is in memory that was made here is what the image says, to the bit and to the page. */
static void hashes_tell_what_is_to_be_in_memory(void **state)
{
    enum { RIGHT, WRONG_FIRST, WRONG_LAST, ONE_TOO_FEW, NONE, ONE_TOO_MANY, CASES };
    static const struct {
        int want;
        const char *words;
    } cases[CASES] = {
        [RIGHT] = {0, NULL},
        [WRONG_FIRST] = {-EIO, "1 are not what was copied"},
        [WRONG_LAST] = {-EIO, "1 are not what was copied"},
        [ONE_TOO_FEW] = {-EIO, "pages of memory are here"},
        [NONE] = {-EIO, "pages of memory are here, and 0 were compared"}, /* though there is a key */
        [ONE_TOO_MANY] = {-EBADMSG, "memory that was not made here"},
    };
    const struct flyt_page_key key = {"fedcba987654321"};
    struct flyt_page_hash_keys *keys = calloc(1, sizeof *keys);
    struct fixture *self = *state;
    begin(self);
    assert_non_null(keys);
    flyt_page_hash_prepare(&key, keys);
    struct fake_server *first = self->node.first;
    const unsigned count = first->extent_count;
    assert_true(count >= 2);
    qsort(first->extents, count, sizeof first->extents[0], compare_addresses);
    uint64_t pages_count = 0;
    char all[64];
    for (unsigned i = 0; i < count; i++)
        pages_count += first->extents[i].bytes / FLYT_PAGE_BYTES;
    snprintf(all, sizeof all, "of %llu pages of memory", (unsigned long long)pages_count);
    for (unsigned i = 0; i < CASES; i++) {
        int fd;
        prepare(self);
        make_all(self);
        struct flyt_checkpoint_writer *writer = begin_image_with(&key, &fd);
        for (unsigned n = 0; n < count - (i == ONE_TOO_FEW) && i != NONE; n++)
            put_hashes_of(writer, keys, &first->extents[n],
                          i == WRONG_FIRST && !n              ? 0
                          : i == WRONG_LAST && n == count - 1 ? INT32_MAX
                                                              : -1);
        if (i == ONE_TOO_MANY) {
            const struct flyt_page_hash hash = {0};
            struct flyt_error err;
            const struct fake_extent *last = &first->extents[count - 1];
            assert_int_equal(flyt_checkpoint_put_hashes(writer, last->address + last->bytes, 1, &hash, &err), 0);
        }
        end_image(writer);
        expect_state(self->node.second, fd, cases[i].want, cases[i].words);
        if (i == WRONG_FIRST || i == WRONG_LAST) /* all extents in one launch */
            assert_non_null(strstr(self->node.second->prepared_sentence, all));
        if (cases[i].want)
            expect_refusal(self, cases[i].words);
        else
            fake_server_kill(self->node.second);
    }
    free(keys);
    fake_server_kill(first);
    fake_server_forget(first);
}

/* More pieces than two launches take: what is told of all of them is compared, in three. */
static void hashes_of_many_pieces(void **state)
{
    enum { FIRST = 2048, SECOND = 2048, LAST = 512 }; /* pages of each launch */
    static const char *const gpu[] = {"--soft", "1", "--soft-memory", "512M", NULL};
    static const struct {
        int64_t wrong;
        int want;
        const char *words;
    } cases[] = {
        {-1, 0, NULL},
        {7, -EIO, "of 2048 pages of memory 1 are not what was copied"},
        {FIRST, -EIO, "of 2048 pages of memory 1 are not what was copied"},
        {FIRST + SECOND + LAST - 1, -EIO, "of 512 pages of memory 1 are not what was copied"},
    };
    const struct flyt_server_link_extent extent = {1, (uint64_t)(FIRST + SECOND + LAST) * FLYT_PAGE_BYTES,
                                                   flyt_window_base(0), 0, 0};
    const struct flyt_page_key key = {"fedcba987654321"};
    struct flyt_page_hash_keys *keys = calloc(1, sizeof *keys);
    struct fixture *self = *state;
    begin(self);
    assert_non_null(keys);
    flyt_page_hash_prepare(&key, keys);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd;
        fake_server_start(self->node.second, gpu);
        fake_node_prepare(&self->node, self->node.second);
        make(self->node.second, &extent, 0);
        struct flyt_checkpoint_writer *writer = begin_image_with(&key, &fd);
        put_zeros_one_by_one(writer, keys, &extent, cases[i].wrong);
        end_image(writer);
        expect_state(self->node.second, fd, cases[i].want, cases[i].words);
        fake_server_kill(self->node.second);
    }
    free(keys);
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

/* What hashes takes long to make: it is there before anything can be copied here, and so before the program stops. */
static void what_hashes_is_made_before_memory_is_told(void **state)
{
    const struct flyt_page_key key = {"fedcba987654321"};
    struct flyt_page_hash_keys *keys = calloc(1, sizeof *keys);
    struct fixture *self = *state;
    int fd;
    begin(self);
    assert_non_null(keys);
    flyt_page_hash_prepare(&key, keys);
    const struct flyt_server_link_extent extent = fake_extent_told(&self->node.first->extents[0]);
    setenv("FLYT_FAULT", "prepare.looker:kill", 1);
    prepare(self);
    const unsigned before = self->node.second->made_count;
    fake_server_send(self->node.second, FLYT_SERVER_LINK_MAKE, &extent, sizeof extent, NULL);
    fake_server_wait_true(self->node.second, &self->node.second->is_hung_up);
    assert_int_equal(self->node.second->made_count, before);
    fake_server_kill(self->node.second);
    /* Where it cannot be made then, it is when it is needed. */
    setenv("FLYT_FAULT", "prepare.looker:error:1", 1);
    prepare(self);
    unsetenv("FLYT_FAULT");
    make(self->node.second, &extent, 0);
    copy_memory(self->node.first->extents[0].fd, self->node.second->made_fd, extent.bytes);
    struct flyt_checkpoint_writer *writer = begin_image_with(&key, &fd);
    put_hashes_of(writer, keys, &self->node.first->extents[0], -1);
    end_image(writer);
    expect_state(self->node.second, fd, 0, NULL);
    fake_server_kill(self->node.second);
    free(keys);
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

enum { SMALL = 600, ARRAYS = 20, ARRAY_BYTES = 32768 };

/* A library with many small variables and some arrays. */
static char *many_text(void)
{
    enum { ROOM = 128 * KIB };
    char *text = malloc(ROOM);
    assert_non_null(text);
    int used = snprintf(text, ROOM, "%s", PTX);
    for (unsigned i = 0; i < SMALL; i++)
        used += snprintf(text + used, (size_t)(ROOM - used), ".visible .global .align 4 .u32 small%u = 9;\n", i);
    for (unsigned i = 0; i < ARRAYS; i++)
        used += snprintf(text + used, (size_t)(ROOM - used), ".visible .global .align 4 .b8 array%u[%d];\n", i,
                         ARRAY_BYTES);
    used += snprintf(text + used, (size_t)(ROOM - used), ".visible .entry nothing()\n{\nret;\n}\n");
    assert_in_range(used, 1, ROOM - 1);
    return text;
}

static int many_image(void)
{
    static unsigned char array[ARRAY_BYTES];
    int fd;
    struct flyt_checkpoint_writer *writer = begin_image(&fd);
    char name[32];
    for (unsigned i = 0; i < SMALL; i++) {
        const uint32_t value = 0x1000 + i;
        snprintf(name, sizeof name, "small%u", i);
        put_variable(writer, &(struct variable){1, name, 0, sizeof value, &value});
    }
    for (unsigned i = 0; i < ARRAYS; i++) {
        memset(array, (int)i + 1, sizeof array);
        snprintf(name, sizeof name, "array%u", i);
        put_variable(writer, &(struct variable){1, name, 0, sizeof array, array});
    }
    end_image(writer);
    return fd;
}

/* They wait for each other, as many as there is room for: each is compared, and the one that differs is named. */
static void many_variables(void **state)
{
    static const unsigned wrong[] = {0, 1, 256, 257, 600, 615, 616, 617, 620}; /* which one; 0: none */
    struct fixture *self = *state;
    char *text = many_text();
    begin(self);
    fake_program_store(&self->node.wire, text);
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char fault[64], words[64];
        const unsigned n = wrong[i] - 1;
        snprintf(fault, sizeof fault, "prepare.variable:error:%u", wrong[i]);
        snprintf(words, sizeof words, "the variable %s%u is not what was written", n < SMALL ? "small" : "array",
                 n < SMALL ? n : n - SMALL);
        if (wrong[i])
            setenv("FLYT_FAULT", fault, 1);
        prepare(self);
        unsetenv("FLYT_FAULT");
        send_library(self->node.second, 1, text);
        expect_state(self->node.second, many_image(), wrong[i] ? -EIO : 0, wrong[i] ? words : NULL);
        fake_server_kill(self->node.second);
    }
    free(text);
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

static void variables_that_come_to_be_elsewhere(void **state)
{
    struct fixture *self = *state;
    begin(self);
    /* Loaded in another order, which changes where both are. */
    for (unsigned i = 0; i < 2; i++) {
        prepare(self);
        send_library(self->node.second, 2, second_text);
        send_library(self->node.second, 1, first_text);
        expect_state(self->node.second,
                     make_image(i ? 0 : self->variables[0], i ? self->variables[1] : 0, flyt_clock_ns()), -EXDEV,
                     "counter has come to be elsewhere");
        expect_refusal(self, "counter has come to be elsewhere");
    }
    /* Where the program has no address of them, that is as good. */
    prepare(self);
    send_library(self->node.second, 2, second_text);
    send_library(self->node.second, 1, first_text);
    make_all(self);
    expect_state(self->node.second, make_image(0, 0, flyt_clock_ns()), 0, NULL);
    leave_first(self);
    const struct flyt_server_link_resume resume = fake_server_resume(self->node.first);
    hand_over(self, &resume);
    come_back(self);
    check_session(self);
    for (unsigned i = 0; i < 2; i++)
        assert_true(fake_program_place_of(&self->node.wire, i + 1, "counter") != self->variables[i]);
    fake_node_finish(&self->node, self->node.second);
    fake_server_forget(self->node.first);
}

static int damage_nothing(int fd, uint64_t bytes)
{
    return fd;
}

static int cut_half(int fd, uint64_t bytes)
{
    assert_int_equal(ftruncate(fd, (off_t)bytes / 2), 0);
    return fd;
}

static int cut_the_last_byte(int fd, uint64_t bytes)
{
    assert_int_equal(ftruncate(fd, (off_t)bytes - 1), 0);
    return fd;
}

static int cut_all(int fd, uint64_t bytes)
{
    assert_int_equal(ftruncate(fd, 0), 0);
    return fd;
}

static int add_a_byte(int fd, uint64_t bytes)
{
    assert_int_equal(pwrite(fd, "x", 1, (off_t)bytes), 1);
    return fd;
}

static int flip(int fd, uint64_t at)
{
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)at), 1);
    return fd;
}

static int flip_in_the_middle(int fd, uint64_t bytes)
{
    return flip(fd, bytes / 2);
}

static int flip_at_the_end(int fd, uint64_t bytes)
{
    return flip(fd, bytes - 3);
}

static int give_a_pipe(int fd, uint64_t bytes)
{
    int fds[2];
    char data[4096];
    ssize_t count = pread(fd, data, sizeof data, 0);
    assert_int_equal(pipe(fds), 0);
    assert_true(count > 0 && write(fds[1], data, (size_t)count) == count);
    close(fds[1]);
    close(fd);
    return fds[0];
}

static void images_that_are_damaged(void **state)
{
    static const struct {
        int (*damage)(int fd, uint64_t bytes);
        int want;
    } cases[] = {
        {damage_nothing, 0},    {cut_half, -ENODATA},           {cut_the_last_byte, -ENODATA}, {cut_all, -ENODATA},
        {add_a_byte, -EBADMSG}, {flip_in_the_middle, -EBADMSG}, {flip_at_the_end, -EBADMSG},   {give_a_pipe, -ENODATA},
    };
    struct fixture *self = *state;
    begin(self);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        prepare(self);
        send_library(self->node.second, 1, first_text);
        send_library(self->node.second, 2, second_text);
        int fd = make_image(0, 0, flyt_clock_ns());
        expect_state(self->node.second, cases[i].damage(fd, (uint64_t)lseek(fd, 0, SEEK_END)), cases[i].want,
                     cases[i].want ? "state" : NULL);
        if (cases[i].want)
            expect_state(self->node.second, make_image(0, 0, 1), cases[i].want, "state"); /* it is of no use any more */
        expect_refusal(self, cases[i].want ? "state" : "its state has not come");         /* without RESUME */
    }
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

static void put_other_object(struct flyt_checkpoint_writer *writer)
{
    const flyt_checkpoint_object object = {.number = 1, .kind = FLYT_CHECKPOINT_GRAPH};
    struct flyt_error err;
    assert_int_equal(flyt_checkpoint_put_object(writer, &object, &err), 0);
}

static void put_empty_event(struct flyt_checkpoint_writer *writer)
{
    const flyt_checkpoint_object object = {.number = 1, .kind = FLYT_CHECKPOINT_EVENT};
    struct flyt_error err;
    assert_int_equal(flyt_checkpoint_put_object(writer, &object, &err), 0);
}

static void put_event_twice(struct flyt_checkpoint_writer *writer)
{
    put_event(writer, 1, 5, true, 1);
    put_event(writer, 2, 5, true, 2);
}

static void put_empty_extent(struct flyt_checkpoint_writer *writer, uint64_t address, uint64_t bytes)
{
    struct flyt_error err;
    assert_int_equal(flyt_checkpoint_put_extent(writer, address, bytes, &err), 0);
    assert_int_equal(
        flyt_checkpoint_put_run(writer, address, bytes / FLYT_CHECKPOINT_PAGE_BYTES, FLYT_CHECKPOINT_ZERO, NULL, &err),
        0);
}

static void put_too_much_memory(struct flyt_checkpoint_writer *writer)
{
    put_empty_extent(writer, flyt_window_base(0), 512 * MIB);
}

/* What was made before it turns out is let go of. */
static void put_memory_and_no_variable(struct flyt_checkpoint_writer *writer)
{
    struct flyt_error err;
    assert_int_equal(flyt_checkpoint_put_extent(writer, flyt_window_base(0), 32 * MIB, &err), 0);
    put_variable(writer, &(struct variable){1, "nothing", 0, 4, counters});
    assert_int_equal(flyt_checkpoint_put_run(writer, flyt_window_base(0), 32 * MIB / FLYT_CHECKPOINT_PAGE_BYTES,
                                             FLYT_CHECKPOINT_ZERO, NULL, &err),
                     0);
}

static void put_a_bad_module(struct flyt_checkpoint_writer *writer)
{
    const flyt_checkpoint_object object = {
        .number = 1, .kind = FLYT_CHECKPOINT_MODULE, .value = {.value_len = 5, .value_val = (char *)"junk"}};
    struct flyt_error err;
    assert_int_equal(flyt_checkpoint_put_object(writer, &object, &err), 0);
}

static void put_an_event_gone(struct flyt_checkpoint_writer *writer)
{
    struct flyt_error err;
    put_event(writer, 1, 5, true, 1);
    assert_int_equal(flyt_checkpoint_put_object_gone(writer, 1, &err), 0);
}

static void put_unknown_variable(struct flyt_checkpoint_writer *writer)
{
    put_variable(writer, &(struct variable){1, "nothing", 0, 4, counters});
}

static void put_longer_variable(struct flyt_checkpoint_writer *writer)
{
    put_variable(writer, &(struct variable){1, "counter", 0, 8, counters});
}

static void put_variable_of_no_library(struct flyt_checkpoint_writer *writer)
{
    put_variable(writer, &(struct variable){3, "counter", 0, 4, counters});
}

static void put_variable_of_another_device(struct flyt_checkpoint_writer *writer)
{
    flyt_checkpoint_global global = {.symbol = (char *)"counter", .total_bytes = 4};
    struct flyt_error err;
    assert_true(flyt_state_module_id(fake_program_library(1), 1, (uint64_t *)&global.module_id));
    assert_int_equal(flyt_checkpoint_put_global(writer, &global, counters, 4, &err), 0);
}

static void images_that_cannot_be_made(void **state)
{
    static const struct {
        void (*put)(struct flyt_checkpoint_writer *writer);
        int want;
        const char *words;
    } cases[] = {
        {put_other_object, -ENOTSUP, "an object of kind 8"},
        {put_empty_event, -EBADMSG, "an event that makes no sense"},
        {put_event_twice, -EBADMSG, "an event twice"},
        {put_too_much_memory, -ENOMEM, "cannot be made, bytes=536870912"},
        {put_memory_and_no_variable, -EXDEV, "no variable nothing here"},
        {put_a_bad_module, -EBADMSG, "a library that makes no sense"},
        {put_an_event_gone, -ENOTSUP, "an object that is no library"},
        {put_unknown_variable, -EXDEV, "no variable nothing here"},
        {put_longer_variable, -EXDEV, "counter has 4 bytes here, and had 8"},
        {put_variable_of_no_library, -ENOENT, "counter is of a library that was not loaded"},
        {put_variable_of_another_device, -EBADMSG, "on device 1"},
    };
    struct fixture *self = *state;
    begin(self);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd;
        prepare(self);
        send_library(self->node.second, 1, first_text);
        struct flyt_checkpoint_writer *writer = begin_image(&fd);
        cases[i].put(writer);
        end_image(writer);
        expect_state(self->node.second, fd, cases[i].want, cases[i].words);
        expect_refusal(self, cases[i].words);
    }
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

static void memory_that_cannot_be_made(void **state)
{
    const uint64_t base = flyt_window_base(0);
    /* Beside the first one there is what compares it. */
    const struct flyt_server_link_extent small = {1, 120 * MIB, base, 0, 0},
                                         large = {2, 200 * MIB, base + 128 * MIB, 0, 0};
    const struct flyt_server_link_extent wrong[] = {
        {3, 2 * MIB, base, 1, 0},                /* no such slot */
        {3, 2 * MIB, flyt_window_base(1), 0, 0}, /* not in its window */
        {3, 2 * MIB, 0x7f0000000000, 0, 0},      /* in none */
        {3, 2 * MIB + 4096, base, 0, 0},         /* no granules */
        {3, 0, base, 0, 0},
        {0, 2 * MIB, base, 0, 0}, /* no bytes, no id */
    };
    struct fixture *self = *state;
    begin(self);
    fake_server_start(self->node.second, fake_one_gpu);
    make(self->node.second, &small, -EPROTO); /* before PREPARE */
    fake_node_prepare(&self->node, self->node.second);
    make(self->node.second, &small, 0);
    make(self->node.second, &small, -EEXIST);
    make(self->node.second, &large, -ENOMEM);
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        make(self->node.second, &wrong[i], -EPROTO);
    make(self->node.second, &large, -ENOMEM); /* still */
    fake_server_send(self->node.second, FLYT_SERVER_LINK_UNMAKE, &small, sizeof small, NULL);
    make(self->node.second, &large, 0);
    fake_server_kill(self->node.second);
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

/* Which step does not come, or comes wrongly. */
static void steps_in_the_wrong_order(void **state)
{
    struct fixture *self = *state;
    begin(self);
    struct flyt_server_link_resume resume = fake_server_resume(self->node.first);
    for (unsigned i = 0; i < 7; i++) {
        prepare(self);
        send_library(self->node.second, 1, first_text);
        send_library(self->node.second, 2, second_text);
        make_all(self);
        if (i != 3)
            expect_state(self->node.second, make_image(0, 0, 1), 0, NULL);
        if (i == 4)
            send_library(self->node.second, 2, NULL); /* the program runs again: what it had is of the past */
        struct flyt_server_link_resume wrong = resume;
        wrong.extent_count += i == 0;
        wrong.extent_count -= i == 1;
        wrong.is_made = i != 2;
        wrong.last_extent_id -= i == 5;
        fake_server_send(self->node.second, FLYT_SERVER_LINK_RESUME, &wrong, sizeof wrong, NULL);
        if (i == 6)
            fake_node_prepare(&self->node, self->node.second);
        static const char *const words[] = {"only 2 of the session's 3 pieces", "2 of the session's 1 pieces",
                                            "was not made, and has made some",  "its state has not come",
                                            "its state has not come",           "under an id that cannot be",
                                            "prepares a session twice"};
        expect_refusal(self, words[i]);
    }
    /* What was made, of a server where nothing was prepared. */
    fake_server_start(self->node.second, fake_one_gpu);
    fake_server_send(self->node.second, FLYT_SERVER_LINK_RESUME, &resume, sizeof resume, NULL);
    expect_refusal(self, "was made, and has made none");
    fake_server_start(self->node.second, fake_one_gpu);
    expect_state(self->node.second, make_image(0, 0, 1), -EPROTO, "was not prepared");
    expect_refusal(self, "was not prepared");
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

/* Two GPUs, and the session comes on the one that was not prepared; and a GPU that there is not. */
static void devices_that_are_others(void **state)
{
    struct fixture *self = *state;
    begin(self);
    struct flyt_server_link_resume resume = {.is_made = 1};
    int fd;
    fake_server_start(self->node.second, fake_two_gpus);
    fake_node_prepare(&self->node, self->node.second);
    assert_int_equal(self->node.second->prepared.outcome, 0);
    struct flyt_checkpoint_writer *writer = begin_image(&fd);
    end_image(writer);
    expect_state(self->node.second, fd, 0, NULL);
    fake_server_send(self->node.second, FLYT_SERVER_LINK_RESUME, &resume, sizeof resume, NULL);
    self->node.door.session.slots[0].gpu_index = 1;
    expect_refusal(self, "was prepared on another GPU");
    fake_server_start(self->node.second, fake_two_gpus);
    self->node.door.session.slots[0].gpu_index = 2;
    fake_node_prepare(&self->node, self->node.second);
    assert_int_equal(self->node.second->prepared.outcome, -ENODEV);
    assert_non_null(strstr(self->node.second->prepared_sentence, "no such GPU"));
    expect_refusal(self, "no such GPU");
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

/* A library has its variables on every device. */
static void variables_of_two_devices(void **state)
{
    struct fixture *self = *state;
    begin(self);
    self->node.door.session.slot_count = 2;
    self->node.door.session.slots[1] = self->node.door.session.slots[0];
    self->node.door.session.slots[1].gpu_index = self->node.door.session.slots[1].device_index = 1;
    for (unsigned wrong = 0; wrong < 3; wrong++) {
        int fd;
        fake_server_start(self->node.second, fake_two_gpus);
        fake_node_prepare(&self->node, self->node.second);
        assert_int_equal(self->node.second->prepared.outcome, 0);
        send_library(self->node.second, 1, first_text);
        struct flyt_checkpoint_writer *writer = begin_image(&fd);
        for (unsigned device = 0; device < 2; device++) {
            flyt_checkpoint_global global = {
                .symbol = (char *)"counter", .total_bytes = 4, .address = FIRST_VARIABLE + device * DEVICE_VARIABLES};
            struct flyt_error err;
            if (wrong == device + 1)
                global.address = FIRST_VARIABLE + !device * DEVICE_VARIABLES;
            assert_true(flyt_state_module_id(fake_program_library(1), device, (uint64_t *)&global.module_id));
            assert_int_equal(flyt_checkpoint_put_global(writer, &global, counters, 4, &err), 0);
        }
        end_image(writer);
        expect_state(self->node.second, fd, wrong ? -EXDEV : 0, wrong ? "counter has come to be elsewhere" : NULL);
        fake_server_kill(self->node.second);
    }
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

static void steps_that_a_test_lets_fail(void **state)
{
    struct fixture *self = *state;
    begin(self);
    setenv("FLYT_FAULT", "prepare.make:error:2,prepare.state:error:1", 1);
    prepare(self);
    const struct flyt_server_link_extent extents[] = {{1, 2 * MIB, flyt_window_base(0), 0, 0},
                                                      {2, 2 * MIB, flyt_window_base(0) + 2 * MIB, 0, 0}};
    make(self->node.second, &extents[0], 0);
    make(self->node.second, &extents[1], -EIO);
    expect_state(self->node.second, make_image(0, 0, 1), -EIO, "a test wants that");
    expect_refusal(self, "a test wants that");
    /* A GPU that has no room to map it has no room for it; what was made is let go of. */
    setenv("FLYT_FAULT", "prepare.place:error:1", 1);
    prepare(self);
    make(self->node.second, &extents[0], -ENOMEM);
    make(self->node.second, &extents[0], 0);
    fake_server_kill(self->node.second);
    setenv("FLYT_FAULT", "prepare.library:error", 1);
    prepare(self);
    send_library(self->node.second, 1, first_text);
    expect_state(self->node.second, make_image(0, 0, 1), -ENOENT, "counter is of a library that was not loaded");
    expect_refusal(self, "not loaded");
    unsetenv("FLYT_FAULT");
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, fake_node_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_session_goes_on_in_memory_that_was_made),
        TEST(a_session_goes_on_in_memory_that_was_given),
        TEST(a_session_goes_on_from_an_image_with_its_memory),
        TEST(the_state_comes_again),
        TEST(hashes_tell_what_is_to_be_in_memory),
        TEST(hashes_of_many_pieces),
        TEST(what_hashes_is_made_before_memory_is_told),
        TEST(many_variables),
        TEST(variables_that_come_to_be_elsewhere),
        TEST(images_that_are_damaged),
        TEST(images_that_cannot_be_made),
        TEST(memory_that_cannot_be_made),
        TEST(steps_in_the_wrong_order),
        TEST(devices_that_are_others),
        TEST(variables_of_two_devices),
        TEST(steps_that_a_test_lets_fail),
    };
    return cmocka_run_group_tests(tests, fake_node_begin_all, fake_node_end_all);
}
