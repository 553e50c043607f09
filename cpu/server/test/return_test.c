/*
 * A program that leaves its server and comes back to it: a real server process on the software GPU, a node manager that
 * the test plays (fake_node.h), and a program that speaks the wire by itself (fake_program.h), or has the client's
 * channel.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/test/fake_node.h"

enum {
    MIB = 1 << 20,
    MOVE_ID = 31,
    AWAY_S = 7, /* longer than a server waits for work to end when its client has gone (watch.c) */
};

struct fixture {
    struct fake_node node;
    struct test_client client;  /* in place of its program that speaks by itself */
    uint64_t address, variable; /* of the program's memory: 4 MiB, and 4 bytes */
};

/* ---- a program ---- */

/* A library with a variable, whose address the program asks for. */
static void load_variable(struct fixture *self)
{
    static const char text[] = PTX ".visible .global .align 4 .u32 x = 1;\n.visible .entry b()\n{\nret;\n}\n";
    fake_program_store(&self->node.wire, text);
    fake_program_load(&self->node.wire, 1, text, 1);
    self->variable = fake_program_place_of(&self->node.wire, 1, "x");
}

static void check_memory(struct fixture *self)
{
    assert_int_equal(fake_program_byte_at(&self->node.wire, self->address), 0x31);
    assert_int_equal(fake_program_byte_at(&self->node.wire, self->address + 4 * MIB - 1), 0x32);
    assert_int_equal(fake_program_byte_at(&self->node.wire, self->variable + 3), 0x33);
}

/* ---- before and after ---- */

static int set_up_server(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    test_client_init(&self->client);
    fake_node_init(&self->node);
    fake_node_begin(&self->node, fake_one_gpu, 64 * MIB);
    fake_node_let_rejoin(&self->node);
    *state = self;
    return 0;
}

static int set_up(void **state)
{
    set_up_server(state);
    struct fixture *self = *state;
    fake_node_connect(&self->node);
    assert_int_equal(fake_program_alloc(&self->node.wire, 4 * MIB, &self->address), CUDA_SUCCESS);
    load_variable(self);
    fake_program_fill(&self->node.wire, self->address, 4 * MIB, 0x31);
    fake_program_fill(&self->node.wire, self->address + 4 * MIB - 1, 1, 0x32);
    fake_program_fill(&self->node.wire, self->variable, 4, 0x33);
    assert_int_equal(fake_program_barrier(&self->node.wire), CUDA_SUCCESS);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *self = *state;
    fake_node_fini(&self->node);
    test_client_fini(&self->client);
    free(self);
    return 0;
}

static void finish(struct fixture *self)
{
    fake_node_finish(&self->node, self->node.first);
}

/* ---- away and back ---- */

static void begin_move(struct fixture *self)
{
    const struct flyt_manager_link_move move = {
        .move_id = MOVE_ID, .kind = FLYT_MANAGER_LINK_MOVE_GIVE, .rounds_max = 1};
    fake_server_send(self->node.first, FLYT_MANAGER_LINK_MOVE, &move, sizeof move, NULL);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_READY);
}

/* Up to where it may leave. */
static uint64_t stop(struct fixture *self)
{
    struct stat file;
    fake_node_stop(&self->node, MOVE_ID);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_STOPPED);
    assert_int_equal(self->node.sequence, self->node.wire.progress.received + 1);
    assert_int_equal(self->node.first->stopped.extent_count, 1);
    assert_true(fstat(self->node.first->state_fd, &file) == 0 && file.st_size > 0);
    return self->node.stop_number;
}

static void leave(struct fixture *self)
{
    fake_node_leave(&self->node, MOVE_ID);
    self->node.listener.take_back_id = MOVE_ID;
}

static void come_back(struct fixture *self)
{
    flyt_session_is_whole_res whole;
    struct fake_wire *wire = &self->node.wire;
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_SESSION_IS_WHOLE, session_is_whole, &whole, .thread = 1), CUDA_SUCCESS);
    assert_int_equal(whole.is_whole, 1);
    assert_int_equal(fake_program_resume_end(wire, self->node.sequence), CUDA_SUCCESS);
    assert_int_equal(wire->progress.received, self->node.sequence);
    assert_int_equal(wire->progress.completed, self->node.sequence);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_OVER);
    assert_int_equal(fake_program_barrier(wire), CUDA_SUCCESS);
    assert_int_equal(wire->progress.received, self->node.sequence + 1);
}

/* Other groups, to which everything goes and from which everything has gone. */
static void change_groups(struct fixture *self, uint64_t revision, unsigned first)
{
    struct flyt_manager_link_sm sm = {.revision = revision, .sm_count = 16};
    unsigned done_count = self->node.first->sm_done_count;
    flyt_manager_link_add_group(sm.groups, first);
    flyt_manager_link_add_group(sm.groups, first + 1);
    fake_server_send(self->node.first, FLYT_MANAGER_LINK_SM, &sm, sizeof sm, NULL);
    fake_server_wait(self->node.first, &self->node.first->sm_done_count, done_count + 2);
    assert_int_equal(self->node.first->sm_done.revision, revision);
    assert_int_equal(self->node.first->sm_done.state, FLYT_MANAGER_LINK_VACATED);
}

/* ---- tests ---- */

static void it_comes_back_to_what_it_left(void **state)
{
    struct fixture *self = *state;
    begin_move(self);
    fake_server_wait(self->node.first, &self->node.first->library_count, 1);
    stop(self);
    leave(self);
    sleep(AWAY_S);
    assert_false(self->node.first->is_hung_up);
    come_back(self);
    check_memory(self);
    /* And once more; that time a connection fails before. */
    begin_move(self);
    stop(self);
    leave(self);
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    fake_wire_close(&self->node.wire);
    come_back(self);
    check_memory(self);
    finish(self);
}

static void it_goes_on_when_the_node_manager_ends(void **state)
{
    struct fixture *self = *state;
    begin_move(self);
    uint64_t number = stop(self);
    fake_server_leave(self->node.first);
    assert_int_equal(fake_node_await_go_on(&self->node), number);
    check_memory(self);
    fake_wire_close(&self->node.wire);
    assert_int_equal(fake_server_end(self->node.first), 0); /* nobody is there to hear of its end */
}

static void its_groups_change_when_it_has_stopped_and_when_it_is_away(void **state)
{
    struct fixture *self = *state;
    begin_move(self);
    change_groups(self, 11, 0);
    stop(self);
    change_groups(self, 12, 2);
    leave(self);
    change_groups(self, 13, 4);
    come_back(self);
    fake_program_fill(&self->node.wire, self->address + MIB, 64, 0x44);
    assert_int_equal(fake_program_byte_at(&self->node.wire, self->address + MIB + 63), 0x44);
    check_memory(self);
    change_groups(self, 14, 0);
    check_memory(self);
    finish(self);
}

/* A node manager that was restarted hears which move the program has left for. */
static void the_next_node_manager_finds_it(void **state)
{
    struct fixture *self = *state;
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    const struct flyt_manager_link_welcome welcome = {0};
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;
    assert_non_null(message);
    begin_move(self);
    stop(self);
    leave(self);
    fake_server_leave(self->node.first);
    int listen_fd = flyt_manager_link_listen(self->node.listener.session.rejoin_path);
    assert_true(listen_fd >= 0);
    struct pollfd ready = {.fd = listen_fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 60000), 1);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_int_equal(flyt_manager_link_receive(fd, message, fds, &fd_count), 0);
    assert_int_equal(message->kind, FLYT_MANAGER_LINK_REJOIN);
    assert_int_equal(message->rejoin.left_move_id, MOVE_ID);
    assert_int_equal(message->rejoin.session.session_id, self->node.listener.session.session_id);
    assert_int_equal(strncmp(message->rejoin.client_address, "127.0.0.1:", 10), 0);
    while (fd_count)
        close(fds[--fd_count]);
    fake_server_listen(self->node.first, fd);
    fake_server_send(self->node.first, FLYT_MANAGER_LINK_WELCOME, &welcome, sizeof welcome, NULL);
    come_back(self);
    check_memory(self);
    finish(self);
    close(listen_fd);
    free(message);
}

static void it_ends_by_order_while_nobody_is_there(void **state)
{
    struct fixture *self = *state;
    begin_move(self);
    stop(self);
    leave(self);
    fake_server_send(self->node.first, FLYT_MANAGER_LINK_KILL, NULL, 0, "it goes on elsewhere");
    fake_server_wait_true(self->node.first, &self->node.first->is_returned);
    assert_string_equal(self->node.first->sentence, "it goes on elsewhere");
    assert_int_equal(fake_server_end(self->node.first), 0);
}

/* ---- the client's channel ---- */

/* A copy of the whole over data streams, and a call behind it. */
static void copy_in(struct fixture *self, uint64_t transfer_id, const unsigned char *data)
{
    struct flyt_channel *channel = self->client.channel;
    flyt_copy_in_transfer_args args = {.stream_id = legacy, .transfer_id = transfer_id, .bytes = 8 * MIB};
    flyt_stream_synchronize_args wait = {.stream_id = legacy};
    flyt_stream_synchronize_res res;
    args.dst = fake_program_line(self->address, 8 * MIB);
    assert_int_equal(
        flyt_channel_send(channel, FLYT_COPY_IN_TRANSFER, (xdrproc_t)xdr_flyt_copy_in_transfer_args, &args, NULL),
        FLYT_CHANNEL_OK);
    assert_int_equal(flyt_channel_send_data(channel, transfer_id, data, 8 * MIB), FLYT_CHANNEL_OK);
    assert_int_equal(flyt_channel_call(channel, FLYT_STREAM_SYNCHRONIZE, (xdrproc_t)xdr_flyt_stream_synchronize_args,
                                       &wait, (xdrproc_t)xdr_flyt_stream_synchronize_res, &res),
                     FLYT_CHANNEL_OK);
    assert_int_equal(res.result, CUDA_SUCCESS);
}

/* What the node manager holds is what was copied. */
static void expect_copied(struct fixture *self, const unsigned char *data)
{
    unsigned char *memory = mmap(NULL, 8 * MIB, PROT_READ, MAP_SHARED, self->node.first->extents[0].fd, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(memcmp(memory, data, 8 * MIB), 0);
    munmap(memory, 8 * MIB);
}

static void fill_data(unsigned char *data, unsigned seed)
{
    for (unsigned i = 0; i < 8 * MIB; i++)
        data[i] = (unsigned char)((i + seed) * 2654435761u >> 11);
}

/* The channel stops, leaves and comes back by itself; the program notices nothing. */
static void go_away_and_back(struct fixture *self, unsigned times)
{
    unsigned stopped_count = self->node.first->stopped_count;
    begin_move(self);
    fake_server_send_move(self->node.first, FLYT_MANAGER_LINK_STOP, MOVE_ID, FAKE_NODE_LONG_US);
    fake_server_wait(self->node.first, &self->node.first->stopped_count, stopped_count + 1);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_STOPPED);
    assert_int_equal(self->node.first->stopped.outcome, 0);
    self->node.listener.take_back_id = MOVE_ID;
    fake_server_send_move(self->node.first, FLYT_MANAGER_LINK_LEAVE, MOVE_ID, 0);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_OVER);
    assert_int_equal(atomic_load(&self->client.resume_count), times);
}

static void an_encrypted_channel_comes_back(void **state)
{
    struct fixture *self = *state;
    struct flyt_channel_credentials own = {.data = "ticket", .bytes = 6, .is_encrypted = true};
    flyt_memory_alloc_args alloc = {.bytes = 8 * MIB};
    flyt_memory_alloc_res res = {0};
    unsigned char *data = malloc(8 * MIB);
    assert_non_null(data);
    memset(self->node.listener.secret, 9, sizeof self->node.listener.secret);
    memcpy(own.secret, self->node.listener.secret, sizeof own.secret);
    self->node.listener.is_challenging = true;
    self->node.listener.session.is_encrypted = 1;
    self->client.config.credentials = &own;
    test_client_open(&self->client, self->node.listener.url);
    assert_int_equal(flyt_channel_call(self->client.channel, FLYT_MEMORY_ALLOC, (xdrproc_t)xdr_flyt_memory_alloc_args,
                                       &alloc, (xdrproc_t)xdr_flyt_memory_alloc_res, &res),
                     FLYT_CHANNEL_OK);
    assert_int_equal(res.result, CUDA_SUCCESS);
    self->address = res.address;
    fake_server_wait(self->node.first, &self->node.first->extents_told, 1);
    for (unsigned i = 0; i < 3; i++) {
        unsigned stream_count = atomic_load(&self->node.listener.stream_count);
        fill_data(data, i);
        copy_in(self, 100 + i, data);
        assert_true(atomic_load(&self->node.listener.stream_count) > stream_count); /* anew each time */
        go_away_and_back(self, i + 1);
        expect_copied(self, data);
    }
    assert_int_equal(atomic_load(&self->client.lost_count), 0);
    flyt_channel_close(self->client.channel);
    fake_server_finish(self->node.first);
    free(data);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(it_comes_back_to_what_it_left),
        TEST(it_goes_on_when_the_node_manager_ends),
        TEST(its_groups_change_when_it_has_stopped_and_when_it_is_away),
        TEST(the_next_node_manager_finds_it),
        TEST(it_ends_by_order_while_nobody_is_there),
        cmocka_unit_test_setup_teardown(an_encrypted_channel_comes_back, set_up_server, tear_down),
    };
    return cmocka_run_group_tests(tests, fake_node_begin_all, fake_node_end_all);
}
