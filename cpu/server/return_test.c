/*
 * A program that leaves its server and comes back to it: a real server process on the software GPU, a node manager that
 * the test plays (fake_manager.h), and a program that speaks the wire by itself (fake_wire.h), or has the client's
 * channel.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/fake_manager.h"
#include "cpu/server/fake_wire.h"
#include "flyt_procedures.h"
#include "rpc/base/id.h"
#include "rpc/base/sha256.h"

enum {
    MIB = 1 << 20,
    MOVE_ID = 31,
    LONG_US = 60 * 1000 * 1000, /* a loaded machine's patience: STOP never takes so long here */
    AWAY_S = 7,                 /* longer than a server waits for work to end when its client has gone (watch.c) */
};

#define PTX ".version 8.0\n.target sm_75\n.address_size 64\n"

static const char *const one_gpu[] = {"--soft", "1", "--soft-memory", "256M", NULL};
static const uint64_t legacy = (uint64_t)FLYT_ID_STREAM << 56 | 1;

struct fixture {
    struct fake_door door;
    struct fake_server server;
    struct fake_wire wire;
    struct test_client client; /* in its place */
    struct flyt_ledger *ledger;
    uint64_t address, variable; /* of the program's memory: 4 MiB, and 4 bytes */
    uint64_t sequence;          /* it goes on behind this call */
};

/* ---- a program ---- */

static flyt_box line(uint64_t address, uint64_t bytes)
{
    return (flyt_box){address, bytes, 1, 1, bytes, bytes};
}

static void fill(struct fake_wire *wire, uint64_t stream, uint64_t address, uint64_t bytes, unsigned value)
{
    FAKE_WIRE_SEND(wire, FLYT_MEMORY_SET, memory_set, .stream_id = stream, .dst = line(address, bytes),
                   .element_bytes = 1, .value = value);
}

static unsigned byte_at(struct fake_wire *wire, uint64_t address)
{
    flyt_copy_out_res res = {0};
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_COPY_OUT, copy_out, &res, .stream_id = legacy, .src = line(address, 1)),
                     CUDA_SUCCESS);
    assert_int_equal(res.data.data_len, 1);
    unsigned value = (unsigned char)res.data.data_val[0];
    xdr_free((xdrproc_t)xdr_flyt_copy_out_res, &res);
    return value;
}

static int barrier(struct fake_wire *wire)
{
    flyt_session_barrier_res res;
    return FAKE_WIRE_CALL(wire, FLYT_SESSION_BARRIER, session_barrier, &res, .thread = 1);
}

/* A library with a variable, whose address the program asks for. */
static void load_variable(struct fixture *self)
{
    static char text[] = PTX ".visible .global .align 4 .u32 x = 1;\n.visible .entry b()\n{\nret;\n}\n", name[] = "x";
    struct fake_wire *wire = &self->wire;
    flyt_image_store_args store = {.transfer_id = 100, .bytes = strlen(text)};
    flyt_library_load_args args = {.library_id = flyt_id(FLYT_ID_LIBRARY, 1)};
    flyt_chunk chunk = {.transfer_id = 100, .data = {.data_len = (u_int)strlen(text), .data_val = text}};
    flyt_image_store_res stored;
    flyt_library_load_res loaded = {0};
    flyt_library_global_res found;
    flyt_sha256_of(text, strlen(text), (unsigned char *)store.image_hash);
    memcpy(args.image_hash, store.image_hash, sizeof args.image_hash);
    fake_wire_send(wire, FLYT_CHUNK, (xdrproc_t)xdr_flyt_chunk, &chunk);
    assert_int_equal(fake_wire_call(wire, FLYT_IMAGE_STORE, (xdrproc_t)xdr_flyt_image_store_args, &store,
                                    (xdrproc_t)xdr_flyt_image_store_res, &stored),
                     CUDA_SUCCESS);
    assert_int_equal(fake_wire_call(wire, FLYT_LIBRARY_LOAD, (xdrproc_t)xdr_flyt_library_load_args, &args,
                                    (xdrproc_t)xdr_flyt_library_load_res, &loaded),
                     CUDA_SUCCESS);
    xdr_free((xdrproc_t)xdr_flyt_library_load_res, &loaded);
    assert_int_equal(
        FAKE_WIRE_CALL(wire, FLYT_LIBRARY_GLOBAL, library_global, &found, .library_id = args.library_id, .name = name),
        CUDA_SUCCESS);
    self->variable = found.address;
}

static void check_memory(struct fixture *self)
{
    assert_int_equal(byte_at(&self->wire, self->address), 0x31);
    assert_int_equal(byte_at(&self->wire, self->address + 4 * MIB - 1), 0x32);
    assert_int_equal(byte_at(&self->wire, self->variable + 3), 0x33);
}

/* ---- before and after ---- */

static int set_up_server(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    test_client_init(&self->client);
    fake_door_open(&self->door);
    fake_server_start(&self->server, one_gpu);
    assert_true(self->server.is_ready);
    assert_int_equal(flyt_ledger_new(64 * MIB, &self->ledger), 0);
    fake_door_grant(&self->door, &self->server, self->ledger, 64 * MIB);
    snprintf(self->door.session.rejoin_path, sizeof self->door.session.rejoin_path, "%s/link", getenv("FAKE_IMAGES"));
    *state = self;
    return 0;
}

static int set_up(void **state)
{
    set_up_server(state);
    struct fixture *self = *state;
    flyt_memory_alloc_res res = {0};
    assert_int_equal(fake_wire_open(&self->wire, self->door.url, FLYT_CONNECTION_SESSION, NULL), FLYT_HANDSHAKE_OK);
    assert_int_equal(FAKE_WIRE_CALL(&self->wire, FLYT_MEMORY_ALLOC, memory_alloc, &res, .bytes = 4 * MIB),
                     CUDA_SUCCESS);
    self->address = res.address;
    load_variable(self);
    fill(&self->wire, legacy, self->address, 4 * MIB, 0x31);
    fill(&self->wire, legacy, self->address + 4 * MIB - 1, 1, 0x32);
    fill(&self->wire, legacy, self->variable, 4, 0x33);
    assert_int_equal(barrier(&self->wire), CUDA_SUCCESS);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *self = *state;
    fake_door_close(&self->door);
    flyt_ledger_close(self->ledger);
    test_client_fini(&self->client);
    free(self);
    return 0;
}

/* The program ends as it should, and the process with it. */
static void finish(struct fixture *self)
{
    fake_wire_close(&self->wire);
    fake_server_wait_true(&self->server, &self->server.is_returned);
    assert_string_equal(self->server.sentence, "");
    assert_int_equal(fake_server_end(&self->server), 0);
}

/* ---- away and back ---- */

static void begin_move(struct fixture *self)
{
    const struct flyt_server_link_move move = {.move_id = MOVE_ID, .kind = FLYT_SERVER_LINK_MOVE_GIVE, .rounds_max = 1};
    fake_server_send(&self->server, FLYT_SERVER_LINK_MOVE, &move, sizeof move, NULL);
    fake_server_wait_phase(&self->server, MOVE_ID, FLYT_SERVER_LINK_MOVE_READY);
}

/* Up to where it may leave. */
static uint64_t stop(struct fixture *self)
{
    flyt_back_stop back;
    struct stat file;
    unsigned stopped_count = self->server.stopped_count;
    fake_server_send_move(&self->server, FLYT_SERVER_LINK_STOP, MOVE_ID, LONG_US);
    fake_wire_await_back(&self->wire, FLYT_BACK_STOP, (xdrproc_t)xdr_flyt_back_stop, &back);
    FAKE_WIRE_SEND(&self->wire, FLYT_SESSION_STOPPED, session_stopped, .number = back.number);
    fake_server_wait(&self->server, &self->server.stopped_count, stopped_count + 1);
    fake_server_wait_phase(&self->server, MOVE_ID, FLYT_SERVER_LINK_MOVE_STOPPED);
    if (self->server.stopped.outcome)
        fail_msg("it has not stopped: %s", self->server.sentence);
    self->sequence = self->server.stopped.sequence;
    assert_int_equal(self->sequence, self->wire.progress.received + 1);
    assert_int_equal(self->server.stopped.extent_count, 1);
    assert_true(fstat(self->server.state_fd, &file) == 0 && file.st_size > 0);
    return back.number;
}

static void leave(struct fixture *self)
{
    flyt_back_moved moved;
    unsigned left_count = self->server.left_count;
    fake_server_send_move(&self->server, FLYT_SERVER_LINK_LEAVE, MOVE_ID, 0);
    fake_wire_await_back(&self->wire, FLYT_BACK_MOVED, (xdrproc_t)xdr_flyt_back_moved, &moved);
    assert_int_equal(moved.sequence, self->sequence);
    fake_wire_close(&self->wire);
    fake_server_wait(&self->server, &self->server.left_count, left_count + 1);
    self->door.take_back_id = MOVE_ID;
}

static void come_back(struct fixture *self)
{
    flyt_session_is_whole_res whole;
    flyt_session_resume_end_res res;
    struct fake_wire *wire = &self->wire;
    assert_int_equal(fake_wire_open(wire, self->door.url, FLYT_CONNECTION_RESUME, self->door.session.token),
                     FLYT_HANDSHAKE_OK);
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_SESSION_IS_WHOLE, session_is_whole, &whole, .thread = 1), CUDA_SUCCESS);
    assert_int_equal(whole.is_whole, 1);
    assert_int_equal(
        FAKE_WIRE_CALL(wire, FLYT_SESSION_RESUME_END, session_resume_end, &res, .sequence = self->sequence),
        CUDA_SUCCESS);
    assert_int_equal(wire->progress.received, self->sequence);
    assert_int_equal(wire->progress.completed, self->sequence);
    fake_server_wait_phase(&self->server, MOVE_ID, FLYT_SERVER_LINK_MOVE_OVER);
    assert_int_equal(barrier(wire), CUDA_SUCCESS);
    assert_int_equal(wire->progress.received, self->sequence + 1);
}

/* Other groups, to which everything goes and from which everything has gone. */
static void change_groups(struct fixture *self, uint64_t revision, unsigned first)
{
    struct flyt_server_link_sm sm = {.revision = revision, .sm_count = 16};
    unsigned done_count = self->server.sm_done_count;
    flyt_server_link_add_group(sm.groups, first);
    flyt_server_link_add_group(sm.groups, first + 1);
    fake_server_send(&self->server, FLYT_SERVER_LINK_SM, &sm, sizeof sm, NULL);
    fake_server_wait(&self->server, &self->server.sm_done_count, done_count + 2);
    assert_int_equal(self->server.sm_done.revision, revision);
    assert_int_equal(self->server.sm_done.state, FLYT_SERVER_LINK_VACATED);
}

/* ---- tests ---- */

static void it_comes_back_to_what_it_left(void **state)
{
    struct fixture *self = *state;
    begin_move(self);
    fake_server_wait(&self->server, &self->server.library_count, 1);
    stop(self);
    leave(self);
    sleep(AWAY_S);
    assert_false(self->server.is_hung_up);
    come_back(self);
    check_memory(self);
    /* And once more; that time a connection fails before. */
    begin_move(self);
    stop(self);
    leave(self);
    assert_int_equal(fake_wire_open(&self->wire, self->door.url, FLYT_CONNECTION_RESUME, self->door.session.token),
                     FLYT_HANDSHAKE_OK);
    fake_wire_close(&self->wire);
    come_back(self);
    check_memory(self);
    finish(self);
}

static void it_goes_on_when_the_node_manager_ends(void **state)
{
    struct fixture *self = *state;
    flyt_back_stop back;
    begin_move(self);
    uint64_t number = stop(self);
    fake_server_leave(&self->server);
    fake_wire_await_back(&self->wire, FLYT_BACK_GO_ON, (xdrproc_t)xdr_flyt_back_stop, &back);
    assert_int_equal(back.number, number);
    check_memory(self);
    fake_wire_close(&self->wire);
    assert_int_equal(fake_server_end(&self->server), 0); /* nobody is there to hear of its end */
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
    fill(&self->wire, legacy, self->address + MIB, 64, 0x44);
    assert_int_equal(byte_at(&self->wire, self->address + MIB + 63), 0x44);
    check_memory(self);
    change_groups(self, 14, 0);
    check_memory(self);
    finish(self);
}

/* A node manager that was restarted hears which move the program has left for. */
static void the_next_node_manager_finds_it(void **state)
{
    struct fixture *self = *state;
    struct flyt_server_link_message *message = calloc(1, sizeof *message);
    const struct flyt_server_link_welcome welcome = {0};
    int fds[FLYT_SERVER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;
    assert_non_null(message);
    begin_move(self);
    stop(self);
    leave(self);
    fake_server_leave(&self->server);
    int listen_fd = flyt_server_link_listen(self->door.session.rejoin_path);
    assert_true(listen_fd >= 0);
    struct pollfd ready = {.fd = listen_fd, .events = POLLIN};
    assert_int_equal(poll(&ready, 1, 60000), 1);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_int_equal(flyt_server_link_receive(fd, message, fds, &fd_count), 0);
    assert_int_equal(message->kind, FLYT_SERVER_LINK_REJOIN);
    assert_int_equal(message->rejoin.left_move_id, MOVE_ID);
    assert_int_equal(message->rejoin.session.session_id, self->door.session.session_id);
    assert_int_equal(strncmp(message->rejoin.client_address, "127.0.0.1:", 10), 0);
    while (fd_count)
        close(fds[--fd_count]);
    fake_server_listen(&self->server, fd);
    fake_server_send(&self->server, FLYT_SERVER_LINK_WELCOME, &welcome, sizeof welcome, NULL);
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
    fake_server_send(&self->server, FLYT_SERVER_LINK_KILL, NULL, 0, "it goes on elsewhere");
    fake_server_wait_true(&self->server, &self->server.is_returned);
    assert_string_equal(self->server.sentence, "it goes on elsewhere");
    assert_int_equal(fake_server_end(&self->server), 0);
}

/* ---- the client's channel ---- */

/* A copy of the whole over data streams, and a call behind it. */
static void copy_in(struct fixture *self, uint64_t transfer_id, const unsigned char *data)
{
    struct flyt_channel *channel = self->client.channel;
    flyt_copy_in_transfer_args args = {.stream_id = legacy, .transfer_id = transfer_id, .bytes = 8 * MIB};
    flyt_stream_synchronize_args wait = {.stream_id = legacy};
    flyt_stream_synchronize_res res;
    args.dst = line(self->address, 8 * MIB);
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
    unsigned char *memory = mmap(NULL, 8 * MIB, PROT_READ, MAP_SHARED, self->server.extents[0].fd, 0);
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
    unsigned stopped_count = self->server.stopped_count;
    begin_move(self);
    fake_server_send_move(&self->server, FLYT_SERVER_LINK_STOP, MOVE_ID, LONG_US);
    fake_server_wait(&self->server, &self->server.stopped_count, stopped_count + 1);
    fake_server_wait_phase(&self->server, MOVE_ID, FLYT_SERVER_LINK_MOVE_STOPPED);
    assert_int_equal(self->server.stopped.outcome, 0);
    self->door.take_back_id = MOVE_ID;
    fake_server_send_move(&self->server, FLYT_SERVER_LINK_LEAVE, MOVE_ID, 0);
    fake_server_wait_phase(&self->server, MOVE_ID, FLYT_SERVER_LINK_MOVE_OVER);
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
    memset(self->door.secret, 9, sizeof self->door.secret);
    memcpy(own.secret, self->door.secret, sizeof own.secret);
    self->door.is_challenging = true;
    self->door.session.is_encrypted = 1;
    self->client.config.credentials = &own;
    test_client_open(&self->client, self->door.url);
    assert_int_equal(flyt_channel_call(self->client.channel, FLYT_MEMORY_ALLOC, (xdrproc_t)xdr_flyt_memory_alloc_args,
                                       &alloc, (xdrproc_t)xdr_flyt_memory_alloc_res, &res),
                     FLYT_CHANNEL_OK);
    assert_int_equal(res.result, CUDA_SUCCESS);
    self->address = res.address;
    fake_server_wait(&self->server, &self->server.extents_told, 1);
    for (unsigned i = 0; i < 3; i++) {
        unsigned stream_count = atomic_load(&self->door.stream_count);
        fill_data(data, i);
        copy_in(self, 100 + i, data);
        assert_true(atomic_load(&self->door.stream_count) > stream_count); /* anew each time */
        go_away_and_back(self, i + 1);
        expect_copied(self, data);
    }
    assert_int_equal(atomic_load(&self->client.lost_count), 0);
    flyt_channel_close(self->client.channel);
    fake_server_wait_true(&self->server, &self->server.is_returned);
    assert_string_equal(self->server.sentence, "");
    assert_int_equal(fake_server_end(&self->server), 0);
    free(data);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    return remove(path);
}

int main(void)
{
    char folder[] = "/var/tmp/flyt-return-test-XXXXXX";
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(it_comes_back_to_what_it_left),
        TEST(it_goes_on_when_the_node_manager_ends),
        TEST(its_groups_change_when_it_has_stopped_and_when_it_is_away),
        TEST(the_next_node_manager_finds_it),
        TEST(it_ends_by_order_while_nobody_is_there),
        cmocka_unit_test_setup_teardown(an_encrypted_channel_comes_back, set_up_server, tear_down),
    };
    if (!mkdtemp(folder))
        return 1;
    setenv("FAKE_IMAGES", folder, 1);
    setenv("FLYT_LOG", "warn", 0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS); /* with the images in it */
    return failed;
}
