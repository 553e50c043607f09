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
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/test/fake_prepare.h"
#include "cpu/server/move/common/state.h"
#include "rpc/base/clock.h"
#include "rpc/base/id.h"

enum { BIG_BYTES = 5 * MIB };

/* The software GPU puts variables here, one library behind the other, in the order of their loading. */
#define FIRST_VARIABLE   0x1f0000000000ull
#define DEVICE_VARIABLES (64ull << 30) /* those of the next device are so far behind */

static int set_up(void **state)
{
    fake_node_fixture_new(state, sizeof(struct fake_prepare));
    return 0;
}

/* ---- the image ---- */

static unsigned char big[BIG_BYTES];
static const uint32_t factors[4] = {10, 20, 30, 40}, counters[2] = {1234, 777};

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

/* Of both libraries; their addresses as given. */
static int make_image(uint64_t first_address, uint64_t second_address, uint64_t now_ns)
{
    const struct fake_variable variables[] = {
        {1, "counter", first_address, sizeof counters[0], &counters[0]},
        {1, "big", 0, sizeof big, big},
        {1, "factors", 0, sizeof factors, factors},
        {2, "counter", second_address, sizeof counters[1], &counters[1]},
    };
    int fd;
    struct flyt_checkpoint_writer *writer = fake_prepare_image(&fd);
    uint32_t last = 0xbeef;
    memcpy(big + sizeof big - sizeof last, &last, sizeof last);
    put_event(writer, 1, 3, true, now_ns - 5000000000);
    put_event(writer, 4, 1, true, now_ns - 4998750000);
    put_event(writer, 9, 2, false, 0);
    for (unsigned i = 0; i < sizeof variables / sizeof variables[0]; i++)
        fake_prepare_put(writer, &variables[i]);
    fake_prepare_end_image(writer);
    return fd;
}

/* ---- going on ---- */

static void hand_over(struct fake_prepare *self, const struct flyt_manager_link_resume *resume)
{
    fake_server_send(self->node.second, FLYT_MANAGER_LINK_RESUME, resume, sizeof *resume, NULL);
    fake_listener_grant_again(&self->node.listener, self->node.second, self->node.first);
}

/* The first server ends without its program, whose memory stays where the test needs it. */
static void leave_first(struct fake_prepare *self)
{
    fake_server_kill(self->node.first);
    fake_wire_close(&self->node.wire);
}

static void come_back(struct fake_prepare *self)
{
    struct fake_wire *wire = &self->node.wire;
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    assert_int_equal(fake_program_resume_begin(wire), CUDA_SUCCESS);
    fake_program_load(wire, 1, fake_first_text, 1);
    fake_program_load(wire, 2, fake_second_text, 1);
    assert_int_equal(fake_program_restore(wire, self->ranges, RANGES), CUDA_SUCCESS);
    fake_program_restore_events(wire, 4, 4);
    /* One that has gone on elsewhere meanwhile, or knows less, does not get what is here. */
    assert_int_equal(fake_program_resume_end(wire, SEQUENCE + 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake_program_resume_end(wire, SEQUENCE - 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake_program_resume_end(wire, SEQUENCE), CUDA_SUCCESS);
    assert_int_equal(wire->failed_result, 0);
}

/* Memory as it was, variables as the image has them. */
static void check_session(struct fake_prepare *self)
{
    struct fake_wire *wire = &self->node.wire;
    uint64_t address = self->ranges[1].address + MIB;
    assert_int_equal(fake_program_word_at(wire, self->ranges[0].address), 5);
    for (unsigned i = 0; i < RANGES; i++)
        assert_int_equal(fake_program_word_at(wire, self->ranges[i].address + self->ranges[i].bytes - 4),
                         0x10101010 + i * 0x1010101);
    for (unsigned i = 0; i < 3; i++) {
        fake_prepare_look(wire, 1, address);
        assert_int_equal(fake_program_word_at(wire, address), counters[0] + i);
        assert_int_equal(fake_program_word_at(wire, address + 4), 0xbeef);
        assert_int_equal(fake_program_word_at(wire, address + 8), factors[1]);
    }
    fake_prepare_look(wire, 2, address);
    assert_int_equal(fake_program_word_at(wire, address), counters[1]);
}

/* ---- tests ---- */

static void a_session_goes_on_in_memory_that_was_made(void **state)
{
    struct fake_prepare *self = *state;
    struct fake_wire *wire = &self->node.wire;
    fake_prepare_begin(self);
    assert_true(self->variables[0] == FIRST_VARIABLE && self->variables[1] > FIRST_VARIABLE);
    fake_prepare_start(self);
    fake_prepare_library(self->node.second, 1, fake_first_text);
    fake_prepare_library(self->node.second, 2, fake_second_text);
    fake_prepare_library(self->node.second, 7, fake_second_text); /* loaded and unloaded meanwhile */
    fake_prepare_library(self->node.second, 7, NULL);
    fake_prepare_library(self->node.second, 8, fake_second_text); /* that its program does not come back for */
    fake_prepare_library(self->node.second, 9, "not in the folder");
    const struct flyt_manager_link_extent other = {4000, 2 * MIB, flyt_window_base(0) + 512ull * MIB, 0, 0};
    fake_prepare_make(self->node.second, &other, 0);
    fake_prepare_make_all(self);
    fake_server_send(self->node.second, FLYT_MANAGER_LINK_UNMAKE, &other, sizeof other, NULL);
    fake_server_send(self->node.second, FLYT_MANAGER_LINK_UNMAKE, &other, sizeof other, NULL);
    uint64_t now_ns = flyt_clock_ns();
    fake_prepare_expect(self->node.second, make_image(self->variables[0], self->variables[1], now_ns), 0, NULL);
    leave_first(self);
    const struct flyt_manager_link_resume resume = fake_server_resume(self->node.first);
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
    fake_program_load(wire, 11, fake_second_text, 1);
    fake_prepare_look(wire, 11, self->ranges[1].address);
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
    struct fake_prepare *self = *state;
    fake_prepare_begin(self);
    fake_prepare_start(self);
    fake_prepare_library(self->node.second, 1, fake_first_text);
    fake_prepare_library(self->node.second, 2, fake_second_text);
    for (unsigned i = 0; i < self->node.first->extent_count; i++) {
        const struct flyt_manager_link_extent extent = fake_extent_told(&self->node.first->extents[i]);
        fake_server_give_one(self->node.second, &extent, self->node.first->extents[i].fd);
        if (i == 0) { /* it went, and came again under another id */
            struct flyt_manager_link_extent again = extent;
            fake_server_send(self->node.second, FLYT_MANAGER_LINK_UNMAKE, &extent, sizeof extent, NULL);
            self->node.first->extents[i].extent_id = again.extent_id = 5000;
            fake_server_give_one(self->node.second, &again, self->node.first->extents[i].fd);
        }
    }
    fake_prepare_expect(self->node.second, make_image(0, 0, flyt_clock_ns()), 0, NULL);
    leave_first(self);
    const struct flyt_manager_link_resume resume = fake_server_resume(self->node.first);
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
    struct fake_prepare *self = *state;
    int fd;
    fake_prepare_begin(self);
    void *memory[RANGES + 2];
    struct flyt_checkpoint_writer *writer = fake_prepare_image(&fd);
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
    fake_prepare_put(writer, &(struct fake_variable){1, "counter", self->variables[0], 4, &counters[0]});
    fake_prepare_put(writer, &(struct fake_variable){1, "big", 0, sizeof big, big});
    fake_prepare_put(writer, &(struct fake_variable){1, "factors", 0, sizeof factors, factors});
    fake_prepare_put(writer, &(struct fake_variable){2, "counter", 0, 4, &counters[1]});
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
    fake_prepare_end_image(writer);
    fake_prepare_start(self);
    fake_prepare_library(self->node.second, 1, fake_first_text);
    fake_prepare_library(self->node.second, 2, fake_second_text);
    self->node.second->keeps_made = true;
    fake_prepare_expect(self->node.second, fd, 0, NULL);
    assert_int_equal(self->node.second->extent_count, count);
    for (unsigned i = 0; i < count; i++)
        assert_true(self->node.second->extents[i].address == self->node.first->extents[i].address &&
                    self->node.second->extents[i].bytes == self->node.first->extents[i].bytes);
    leave_first(self);
    const struct flyt_manager_link_resume resume = {.extent_count = count, .last_extent_id = count, .is_made = 1};
    hand_over(self, &resume);
    come_back(self);
    check_session(self);
    fake_node_finish(&self->node, self->node.second);
    fake_server_forget(self->node.first);
}

/* The program stopped, went on at the first server, loaded something, and stopped again. */
static void the_state_comes_again(void **state)
{
    struct fake_prepare *self = *state;
    static const uint32_t other = 4;
    const struct fake_variable variable = {1, "counter", 0, sizeof other, &other};
    int fd;
    fake_prepare_begin(self);
    fake_prepare_start(self);
    fake_prepare_library(self->node.second, 1, fake_first_text);
    struct flyt_checkpoint_writer *writer = fake_prepare_image(&fd);
    put_event(writer, 1, 4, true, 5);
    fake_prepare_put(writer, &variable);
    fake_prepare_end_image(writer);
    fake_prepare_expect(self->node.second, fd, 0, NULL);
    fake_prepare_library(self->node.second, 2, fake_second_text);
    fake_prepare_make_all(self);
    fake_prepare_expect(self->node.second, make_image(self->variables[0], self->variables[1], flyt_clock_ns()), 0,
                        NULL);
    leave_first(self);
    const struct flyt_manager_link_resume resume = fake_server_resume(self->node.first);
    hand_over(self, &resume);
    come_back(self);
    check_session(self);
    fake_program_elapsed(&self->node.wire, 1, 4, CUDA_ERROR_INVALID_HANDLE); /* of the last state alone */
    fake_node_finish(&self->node, self->node.second);
    fake_server_forget(self->node.first);
}

static void variables_that_come_to_be_elsewhere(void **state)
{
    struct fake_prepare *self = *state;
    fake_prepare_begin(self);
    /* Loaded in another order, which changes where both are. */
    for (unsigned i = 0; i < 2; i++) {
        fake_prepare_start(self);
        fake_prepare_library(self->node.second, 2, fake_second_text);
        fake_prepare_library(self->node.second, 1, fake_first_text);
        fake_prepare_expect(self->node.second,
                            make_image(i ? 0 : self->variables[0], i ? self->variables[1] : 0, flyt_clock_ns()), -EXDEV,
                            "counter has come to be elsewhere");
        fake_prepare_refuse(self, "counter has come to be elsewhere");
    }
    /* Where the program has no address of them, that is as good. */
    fake_prepare_start(self);
    fake_prepare_library(self->node.second, 2, fake_second_text);
    fake_prepare_library(self->node.second, 1, fake_first_text);
    fake_prepare_make_all(self);
    fake_prepare_expect(self->node.second, make_image(0, 0, flyt_clock_ns()), 0, NULL);
    leave_first(self);
    const struct flyt_manager_link_resume resume = fake_server_resume(self->node.first);
    hand_over(self, &resume);
    come_back(self);
    check_session(self);
    for (unsigned i = 0; i < 2; i++)
        assert_true(fake_program_place_of(&self->node.wire, i + 1, "counter") != self->variables[i]);
    fake_node_finish(&self->node, self->node.second);
    fake_server_forget(self->node.first);
}

/* Answered as the state would be, whatever the image has beside libraries and variables, and of no use afterwards. */
static void is_tried(struct fake_prepare *self, int fd, int want, const char *words)
{
    const unsigned before = self->node.second->prepared_count;
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    assert_non_null(message);
    message->kind = FLYT_MANAGER_LINK_TRY;
    message->stop.move_id = 21;
    fake_server_post(self->node.second, message, fd);
    free(message);
    close(fd);
    assert_int_equal(fake_server_await_state(self->node.second, 21, before + 1), want);
    if (words)
        assert_non_null(strstr(self->node.second->prepared_sentence, words));
    assert_int_equal(self->node.second->made_count, 0);
}

static void images_that_are_tried(void **state)
{
    const uint64_t base = flyt_window_base(0);
    struct fake_prepare *self = *state;
    fake_prepare_begin(self);
    for (unsigned i = 0; i < 4; i++) {
        /* In the other order variables are elsewhere, which matters where the program may have their addresses. */
        const bool is_other = i % 2, is_known = i < 2;
        struct flyt_checkpoint_writer *writer;
        struct flyt_error err;
        int fd;
        fake_prepare_start(self);
        fake_prepare_library(self->node.second, is_other ? 2 : 1, is_other ? fake_second_text : fake_first_text);
        fake_prepare_library(self->node.second, is_other ? 1 : 2, is_other ? fake_first_text : fake_second_text);
        writer = fake_prepare_image(&fd);
        /* More than the GPU has: it is not made. */
        assert_int_equal(flyt_checkpoint_put_extent(writer, base, 4096ull * MIB, &err), 0);
        for (unsigned n = 0; n < 2; n++) {
            const struct fake_variable variable = {n + 1, "counter", is_known ? self->variables[n] : 0, 4,
                                                   &counters[n]};
            fake_prepare_put(writer, &variable);
        }
        for (unsigned n = 0; n < 2; n++)
            assert_int_equal(flyt_checkpoint_put_run(writer, base + n * 2048ull * MIB, FLYT_CHECKPOINT_RUN_PAGES_MAX,
                                                     FLYT_CHECKPOINT_ZERO, NULL, &err),
                             0);
        fake_prepare_end_image(writer);
        bool is_wrong = is_other && is_known;
        is_tried(self, fd, is_wrong ? -EXDEV : 0, is_wrong ? "counter has come to be elsewhere" : NULL);
        fake_prepare_refuse(self, is_wrong ? "counter has come to be elsewhere" : "its state has not come");
    }
    setenv("FLYT_FAULT", "prepare.trial:error", 1);
    fake_prepare_start(self);
    is_tried(self, make_image(0, 0, 1), -EIO, "a test wants that");
    unsetenv("FLYT_FAULT");
    fake_server_kill(self->node.second);
    /* Before PREPARE. */
    fake_server_start(self->node.second, fake_two_gpus);
    is_tried(self, make_image(0, 0, 1), -EPROTO, "was not prepared");
    fake_server_kill(self->node.second);
    fake_server_kill(self->node.first);
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
    struct fake_prepare *self = *state;
    fake_prepare_begin(self);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_prepare_start(self);
        fake_prepare_library(self->node.second, 1, fake_first_text);
        fake_prepare_library(self->node.second, 2, fake_second_text);
        int fd = make_image(0, 0, flyt_clock_ns());
        fake_prepare_expect(self->node.second, cases[i].damage(fd, (uint64_t)lseek(fd, 0, SEEK_END)), cases[i].want,
                            cases[i].want ? "state" : NULL);
        if (cases[i].want)
            fake_prepare_expect(self->node.second, make_image(0, 0, 1), cases[i].want,
                                "state");                                              /* it is of no use any more */
        fake_prepare_refuse(self, cases[i].want ? "state" : "its state has not come"); /* without RESUME */
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
    fake_prepare_put(writer, &(struct fake_variable){1, "nothing", 0, 4, counters});
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
    fake_prepare_put(writer, &(struct fake_variable){1, "nothing", 0, 4, counters});
}

static void put_longer_variable(struct flyt_checkpoint_writer *writer)
{
    fake_prepare_put(writer, &(struct fake_variable){1, "counter", 0, 8, counters});
}

static void put_variable_of_no_library(struct flyt_checkpoint_writer *writer)
{
    fake_prepare_put(writer, &(struct fake_variable){3, "counter", 0, 4, counters});
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
    struct fake_prepare *self = *state;
    fake_prepare_begin(self);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd;
        fake_prepare_start(self);
        fake_prepare_library(self->node.second, 1, fake_first_text);
        struct flyt_checkpoint_writer *writer = fake_prepare_image(&fd);
        cases[i].put(writer);
        fake_prepare_end_image(writer);
        fake_prepare_expect(self->node.second, fd, cases[i].want, cases[i].words);
        fake_prepare_refuse(self, cases[i].words);
    }
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

static void memory_that_cannot_be_made(void **state)
{
    const uint64_t base = flyt_window_base(0);
    /* Beside the first one there is what compares it. */
    const struct flyt_manager_link_extent small = {1, 120 * MIB, base, 0, 0},
                                          large = {2, 200 * MIB, base + 128 * MIB, 0, 0};
    const struct flyt_manager_link_extent wrong[] = {
        {3, 2 * MIB, base, 1, 0},                /* no such slot */
        {3, 2 * MIB, flyt_window_base(1), 0, 0}, /* not in its window */
        {3, 2 * MIB, 0x7f0000000000, 0, 0},      /* in none */
        {3, 2 * MIB + 4096, base, 0, 0},         /* no granules */
        {3, 0, base, 0, 0},
        {0, 2 * MIB, base, 0, 0}, /* no bytes, no id */
    };
    struct fake_prepare *self = *state;
    fake_prepare_begin(self);
    fake_server_start(self->node.second, fake_one_gpu);
    fake_prepare_make(self->node.second, &small, -EPROTO); /* before PREPARE */
    fake_node_prepare(&self->node, self->node.second);
    fake_prepare_make(self->node.second, &small, 0);
    fake_prepare_make(self->node.second, &small, -EEXIST);
    fake_prepare_make(self->node.second, &large, -ENOMEM);
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        fake_prepare_make(self->node.second, &wrong[i], -EPROTO);
    fake_prepare_make(self->node.second, &large, -ENOMEM); /* still */
    fake_server_send(self->node.second, FLYT_MANAGER_LINK_UNMAKE, &small, sizeof small, NULL);
    fake_prepare_make(self->node.second, &large, 0);
    fake_server_kill(self->node.second);
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

/* Which step does not come, or comes wrongly. */
static void steps_in_the_wrong_order(void **state)
{
    struct fake_prepare *self = *state;
    fake_prepare_begin(self);
    struct flyt_manager_link_resume resume = fake_server_resume(self->node.first);
    for (unsigned i = 0; i < 7; i++) {
        fake_prepare_start(self);
        fake_prepare_library(self->node.second, 1, fake_first_text);
        fake_prepare_library(self->node.second, 2, fake_second_text);
        fake_prepare_make_all(self);
        if (i != 3)
            fake_prepare_expect(self->node.second, make_image(0, 0, 1), 0, NULL);
        if (i == 4)
            fake_prepare_library(self->node.second, 2, NULL); /* the program runs again: what it had is of the past */
        struct flyt_manager_link_resume wrong = resume;
        wrong.extent_count += i == 0;
        wrong.extent_count -= i == 1;
        wrong.is_made = i != 2;
        wrong.last_extent_id -= i == 5;
        fake_server_send(self->node.second, FLYT_MANAGER_LINK_RESUME, &wrong, sizeof wrong, NULL);
        if (i == 6)
            fake_node_prepare(&self->node, self->node.second);
        static const char *const words[] = {"only 2 of the session's 3 pieces", "2 of the session's 1 pieces",
                                            "was not made, and has made some",  "its state has not come",
                                            "its state has not come",           "under an id that cannot be",
                                            "prepares a session twice"};
        fake_prepare_refuse(self, words[i]);
    }
    /* What was made, of a server where nothing was prepared. */
    fake_server_start(self->node.second, fake_one_gpu);
    fake_server_send(self->node.second, FLYT_MANAGER_LINK_RESUME, &resume, sizeof resume, NULL);
    fake_prepare_refuse(self, "was made, and has made none");
    fake_server_start(self->node.second, fake_one_gpu);
    fake_prepare_expect(self->node.second, make_image(0, 0, 1), -EPROTO, "was not prepared");
    fake_prepare_refuse(self, "was not prepared");
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

/* Two GPUs, and the session comes on the one that was not prepared; and a GPU that there is not. */
static void devices_that_are_others(void **state)
{
    struct fake_prepare *self = *state;
    fake_prepare_begin(self);
    struct flyt_manager_link_resume resume = {.is_made = 1};
    int fd;
    fake_server_start(self->node.second, fake_two_gpus);
    fake_node_prepare(&self->node, self->node.second);
    assert_int_equal(self->node.second->prepared.outcome, 0);
    struct flyt_checkpoint_writer *writer = fake_prepare_image(&fd);
    fake_prepare_end_image(writer);
    fake_prepare_expect(self->node.second, fd, 0, NULL);
    fake_server_send(self->node.second, FLYT_MANAGER_LINK_RESUME, &resume, sizeof resume, NULL);
    self->node.listener.session.slots[0].gpu_index = 1;
    fake_prepare_refuse(self, "was prepared on another GPU");
    fake_server_start(self->node.second, fake_two_gpus);
    self->node.listener.session.slots[0].gpu_index = 2;
    fake_node_prepare(&self->node, self->node.second);
    assert_int_equal(self->node.second->prepared.outcome, -ENODEV);
    assert_non_null(strstr(self->node.second->prepared_sentence, "no such GPU"));
    fake_prepare_refuse(self, "no such GPU");
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

/* A library has its variables on every device. */
static void variables_of_two_devices(void **state)
{
    struct fake_prepare *self = *state;
    fake_prepare_begin(self);
    self->node.listener.session.slot_count = 2;
    self->node.listener.session.slots[1] = self->node.listener.session.slots[0];
    self->node.listener.session.slots[1].gpu_index = self->node.listener.session.slots[1].device_index = 1;
    for (unsigned wrong = 0; wrong < 3; wrong++) {
        int fd;
        fake_server_start(self->node.second, fake_two_gpus);
        fake_node_prepare(&self->node, self->node.second);
        assert_int_equal(self->node.second->prepared.outcome, 0);
        fake_prepare_library(self->node.second, 1, fake_first_text);
        struct flyt_checkpoint_writer *writer = fake_prepare_image(&fd);
        for (unsigned device = 0; device < 2; device++) {
            flyt_checkpoint_global global = {
                .symbol = (char *)"counter", .total_bytes = 4, .address = FIRST_VARIABLE + device * DEVICE_VARIABLES};
            struct flyt_error err;
            if (wrong == device + 1)
                global.address = FIRST_VARIABLE + !device * DEVICE_VARIABLES;
            assert_true(flyt_state_module_id(fake_program_library(1), device, (uint64_t *)&global.module_id));
            assert_int_equal(flyt_checkpoint_put_global(writer, &global, counters, 4, &err), 0);
        }
        fake_prepare_end_image(writer);
        fake_prepare_expect(self->node.second, fd, wrong ? -EXDEV : 0,
                            wrong ? "counter has come to be elsewhere" : NULL);
        fake_server_kill(self->node.second);
    }
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

static void steps_that_a_test_lets_fail(void **state)
{
    struct fake_prepare *self = *state;
    fake_prepare_begin(self);
    setenv("FLYT_FAULT", "prepare.make:error:2,prepare.state:error:1", 1);
    fake_prepare_start(self);
    const struct flyt_manager_link_extent extents[] = {{1, 2 * MIB, flyt_window_base(0), 0, 0},
                                                       {2, 2 * MIB, flyt_window_base(0) + 2 * MIB, 0, 0}};
    fake_prepare_make(self->node.second, &extents[0], 0);
    fake_prepare_make(self->node.second, &extents[1], -EIO);
    fake_prepare_expect(self->node.second, make_image(0, 0, 1), -EIO, "a test wants that");
    fake_prepare_refuse(self, "a test wants that");
    /* A GPU that has no room to map it has no room for it; what was made is let go of. */
    setenv("FLYT_FAULT", "prepare.place:error:1", 1);
    fake_prepare_start(self);
    fake_prepare_make(self->node.second, &extents[0], -ENOMEM);
    fake_prepare_make(self->node.second, &extents[0], 0);
    fake_server_kill(self->node.second);
    setenv("FLYT_FAULT", "prepare.library:error", 1);
    fake_prepare_start(self);
    fake_prepare_library(self->node.second, 1, fake_first_text);
    fake_prepare_expect(self->node.second, make_image(0, 0, 1), -ENOENT, "counter is of a library that was not loaded");
    fake_prepare_refuse(self, "not loaded");
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
        TEST(variables_that_come_to_be_elsewhere),
        TEST(images_that_are_tried),
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
