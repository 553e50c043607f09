/*
 * flyt-server under a node manager: real server processes on the software GPU, a node manager that the test plays
 * (fake_manager.h), and programs that speak through a channel as the client library does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <cuda.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/test/fake_node.h"
#include "flyt_procedures.h"
#include "cpu/server/share/resize.h"
#include "rpc/base/id.h"

enum { MIB = 1 << 20, SERVERS = 8 };

struct fixture {
    struct fake_listener listener;
    struct fake_server server;
    struct test_client client;
    struct flyt_ledger *ledger;
};

/* ---- a program ---- */

static int alloc(struct test_client *client, uint64_t bytes, uint64_t *ret_address)
{
    flyt_memory_alloc_args args = {.bytes = bytes};
    flyt_memory_alloc_res res;
    assert_int_equal(flyt_channel_call(client->channel, FLYT_MEMORY_ALLOC, (xdrproc_t)xdr_flyt_memory_alloc_args, &args,
                                       (xdrproc_t)xdr_flyt_memory_alloc_res, &res),
                     FLYT_CHANNEL_OK);
    *ret_address = res.address;
    return res.result;
}

static void give_back(struct test_client *client, uint64_t address)
{
    flyt_memory_free_args args = {.address = address};
    assert_int_equal(
        flyt_channel_send(client->channel, FLYT_MEMORY_FREE, (xdrproc_t)xdr_flyt_memory_free_args, &args, NULL),
        FLYT_CHANNEL_OK);
}

static void set(struct test_client *client, uint64_t address, uint64_t bytes, unsigned value)
{
    flyt_memory_set_args args = {.stream_id = legacy, .element_bytes = 1, .value = value};
    flyt_stream_synchronize_args wait = {.stream_id = legacy};
    flyt_stream_synchronize_res res;
    args.dst = (flyt_box){address, bytes, 1, 1, bytes, bytes};
    assert_int_equal(
        flyt_channel_send(client->channel, FLYT_MEMORY_SET, (xdrproc_t)xdr_flyt_memory_set_args, &args, NULL),
        FLYT_CHANNEL_OK);
    assert_int_equal(flyt_channel_call(client->channel, FLYT_STREAM_SYNCHRONIZE,
                                       (xdrproc_t)xdr_flyt_stream_synchronize_args, &wait,
                                       (xdrproc_t)xdr_flyt_stream_synchronize_res, &res),
                     FLYT_CHANNEL_OK);
    assert_int_equal(res.result, CUDA_SUCCESS);
}

static void info(struct test_client *client, unsigned device, uint64_t *ret_free_bytes, uint64_t *ret_total_bytes)
{
    flyt_device_memory_info_args args = {.device = device};
    flyt_device_memory_info_res res;
    assert_int_equal(flyt_channel_call(client->channel, FLYT_DEVICE_MEMORY_INFO,
                                       (xdrproc_t)xdr_flyt_device_memory_info_args, &args,
                                       (xdrproc_t)xdr_flyt_device_memory_info_res, &res),
                     FLYT_CHANNEL_OK);
    assert_int_equal(res.result, CUDA_SUCCESS);
    *ret_free_bytes = res.free_bytes;
    *ret_total_bytes = res.total_bytes;
}

static uint64_t used(const struct fixture *self)
{
    struct flyt_ledger_state state;
    flyt_ledger_read(self->ledger, &state);
    return state.used_bytes;
}

/* ---- before and after ---- */

static int set_up(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    fake_listener_open(&self->listener);
    test_client_init(&self->client);
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *self = *state;
    fake_listener_close(&self->listener);
    test_client_fini(&self->client);
    flyt_ledger_close(self->ledger);
    free(self);
    return 0;
}

/* A server with a session of one GPU whose memory is limited. */
static void begin(struct fixture *self, uint64_t limit_bytes)
{
    fake_server_start(&self->server, fake_one_gpu);
    assert_true(self->server.is_ready);
    assert_int_equal(flyt_ledger_new(limit_bytes, &self->ledger), 0);
    fake_listener_grant(&self->listener, &self->server, self->ledger, limit_bytes);
}

static void finish(struct fixture *self)
{
    self->client.channel = flyt_channel_close(self->client.channel);
    fake_server_finish(&self->server);
}

/* ---- tests ---- */

static void a_session_has_the_slots_of_its_allocation(void **state)
{
    struct fixture *self = *state;
    struct flyt_ledger *second;
    uint64_t free_bytes, total_bytes;
    fake_server_start(&self->server, fake_two_gpus);
    assert_true(self->server.is_ready);
    assert_int_equal(self->server.ready.sm_count, 132);
    assert_int_equal(self->server.ready.group_size, 8);
    assert_int_equal(self->server.ready.group_count, 16);
    assert_int_equal(self->server.ready.group_sms[14], 8);
    assert_int_equal(self->server.ready.group_sms[15], 12);
    assert_int_equal(self->server.ready.memory_bytes, 256 * MIB);
    assert_int_equal(self->server.ready.device_count, 2);

    assert_int_equal(flyt_ledger_new(64 * MIB, &self->ledger), 0);
    assert_int_equal(flyt_ledger_new(32 * MIB, &second), 0);
    fake_listener_grant(&self->listener, &self->server, self->ledger, 64 * MIB);
    assert_int_equal(flyt_ledger_join(second, self->server.server_id), 0);
    self->server.ledgers[1] = second;
    self->listener.session.slot_count = self->listener.session.ledger_count = 2;
    self->listener.session.slots[1].device_index = 1;
    self->listener.session.slots[1].gpu_index = 1;
    self->listener.session.slots[1].sm_count = 132;
    for (unsigned i = 0; i < 16; i++)
        flyt_manager_link_add_group(self->listener.session.slots[1].groups, i);
    test_client_open(&self->client, self->listener.url);
    assert_int_equal(flyt_channel_info(self->client.channel)->device_count, 2);
    info(&self->client, 0, &free_bytes, &total_bytes);
    assert_int_equal(total_bytes, 64 * MIB);
    assert_int_equal(free_bytes, 64 * MIB);
    info(&self->client, 1, &free_bytes, &total_bytes);
    assert_int_equal(total_bytes, 32 * MIB);

    for (unsigned i = 0; i < 2; i++) {
        flyt_device_info_args args = {.device = i};
        flyt_device_info_res res;
        assert_int_equal(flyt_channel_call(self->client.channel, FLYT_DEVICE_INFO, (xdrproc_t)xdr_flyt_device_info_args,
                                           &args, (xdrproc_t)xdr_flyt_device_info_res, &res),
                         FLYT_CHANNEL_OK);
        assert_int_equal(res.result, CUDA_SUCCESS);
        assert_int_equal(res.total_bytes, (i ? 32 : 64) * MIB);
        assert_int_equal(res.attributes.attributes_val[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT], i ? 132 : 24);
        xdr_free((xdrproc_t)xdr_flyt_device_info_res, &res);
    }
    finish(self);
    flyt_ledger_close(second);
}

static void the_limit_holds(void **state)
{
    struct fixture *self = *state;
    uint64_t addresses[4], address, free_bytes, total_bytes;
    begin(self, 16 * MIB);
    test_client_open(&self->client, self->listener.url);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(alloc(&self->client, 4 * MIB, &addresses[i]), CUDA_SUCCESS);
    assert_int_equal(used(self), 16 * MIB);
    info(&self->client, 0, &free_bytes, &total_bytes);
    assert_int_equal(free_bytes, 0);
    assert_int_equal(alloc(&self->client, 1, &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(used(self), 16 * MIB);
    /* What is free again is free for another size, too: its extents go back first. */
    give_back(&self->client, addresses[1]);
    give_back(&self->client, addresses[3]);
    assert_int_equal(alloc(&self->client, 8 * MIB, &address), CUDA_SUCCESS);
    assert_int_equal(used(self), 16 * MIB);
    assert_int_equal(alloc(&self->client, 4 * MIB, &address), CUDA_ERROR_OUT_OF_MEMORY);
    struct flyt_ledger_state ledger;
    flyt_ledger_read(self->ledger, &ledger);
    assert_int_equal(ledger.refused_count, 2);
    assert_int_equal(ledger.peak_bytes, 16 * MIB);
    finish(self);
}

/* The node manager holds what it was given: memory counts as free only when it has let go. */
static void memory_waits_for_the_node_manager(void **state)
{
    struct fixture *self = *state;
    uint64_t address;
    begin(self, 8 * MIB);
    test_client_open(&self->client, self->listener.url);
    assert_int_equal(alloc(&self->client, 6 * MIB, &address), CUDA_SUCCESS);
    fake_server_wait(&self->server, &self->server.extents_told, 1);
    assert_int_equal(self->server.extents[0].bytes, 6 * MIB);
    assert_int_equal(self->server.extents[0].address, address);
    self->server.holds_credits = true;
    give_back(&self->client, address);
    /* Never answered: the server asks once more, then it takes it that its manager has no charge of it. */
    assert_int_equal(alloc(&self->client, 8 * MIB, &address), CUDA_SUCCESS);
    assert_int_equal(used(self), 8 * MIB);
    assert_int_equal(self->server.gone_count, 2);
    finish(self);
}

/* The node manager has credited it, and the server does not hear so: it asks again, and nothing is credited twice. */
static void a_lost_credit_is_asked_for_again(void **state)
{
    struct fixture *self = *state;
    uint64_t kept, freed, address;
    begin(self, 10 * MIB);
    test_client_open(&self->client, self->listener.url);
    assert_int_equal(alloc(&self->client, 2 * MIB, &kept), CUDA_SUCCESS);
    assert_int_equal(alloc(&self->client, 6 * MIB, &freed), CUDA_SUCCESS);
    fake_server_wait(&self->server, &self->server.extents_told, 2);
    self->server.swallows_credits = true;
    give_back(&self->client, freed);
    assert_int_equal(alloc(&self->client, 8 * MIB, &address), CUDA_SUCCESS);
    assert_int_equal(used(self), 10 * MIB);
    for (unsigned i = 0; self->server.gone_count < 2 && i < 600; i++)
        usleep(100000);
    assert_int_equal(self->server.gone_count, 2);
    assert_int_equal(alloc(&self->client, 2 * MIB, &address), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(used(self), 10 * MIB);
    finish(self);
}

static void a_limit_below_use_is_refused_or_sinks(void **state)
{
    struct fixture *self = *state;
    uint64_t kept, freed, address, used_bytes;
    struct flyt_manager_link_limit limit = {.memory_bytes = 8 * MIB, .revision = 5};
    begin(self, 32 * MIB);
    test_client_open(&self->client, self->listener.url);
    assert_int_equal(alloc(&self->client, 6 * MIB, &kept), CUDA_SUCCESS);
    assert_int_equal(alloc(&self->client, 10 * MIB, &freed), CUDA_SUCCESS);
    assert_int_equal(alloc(&self->client, 4 * MIB, &address), CUDA_SUCCESS);
    give_back(&self->client, address); /* stays cached until it is asked for */
    assert_int_equal(alloc(&self->client, 1, &address), CUDA_SUCCESS);
    fake_server_send(&self->server, FLYT_MANAGER_LINK_LIMIT, &limit, sizeof limit, NULL);
    fake_server_wait(&self->server, &self->server.limit_done_count, 1);
    assert_int_equal(self->server.limit_done.revision, 5);
    assert_int_equal(self->server.limit_done.outcome, 0);
    assert_int_equal(self->server.limit_done.used_bytes, 18 * MIB);
    assert_int_equal(flyt_ledger_set_limit(self->ledger, 8 * MIB, 5, false, &used_bytes), -EBUSY);
    assert_int_equal(used_bytes, 18 * MIB);

    limit.when_free = 1;
    limit.revision = 6;
    assert_int_equal(flyt_ledger_set_limit(self->ledger, 8 * MIB, 6, true, NULL), 0);
    fake_server_send(&self->server, FLYT_MANAGER_LINK_LIMIT, &limit, sizeof limit, NULL);
    fake_server_wait(&self->server, &self->server.limit_done_count, 2);
    assert_int_equal(alloc(&self->client, 2 * MIB, &address), CUDA_ERROR_OUT_OF_MEMORY);
    give_back(&self->client, freed);
    /* Nothing is asked of the server any more: it gives back by itself. */
    for (unsigned i = 0; used(self) > 8 * MIB && i < 600; i++)
        usleep(100000);
    assert_int_equal(used(self), 8 * MIB);
    limit.memory_bytes = 16 * MIB;
    assert_int_equal(flyt_ledger_set_limit(self->ledger, 16 * MIB, 7, false, NULL), 0);
    assert_int_equal(alloc(&self->client, 8 * MIB, &address), CUDA_SUCCESS);
    finish(self);
}

struct crowd_member {
    struct fake_server server;
    struct fake_listener listener;
    struct test_client client;
    unsigned count;
    pthread_t thread;
};

static void *take_all(void *user)
{
    struct crowd_member *self = user;
    flyt_memory_alloc_args args = {.bytes = 2 * MIB};
    flyt_memory_alloc_res res = {0};
    while (flyt_channel_call(self->client.channel, FLYT_MEMORY_ALLOC, (xdrproc_t)xdr_flyt_memory_alloc_args, &args,
                             (xdrproc_t)xdr_flyt_memory_alloc_res, &res) == FLYT_CHANNEL_OK &&
           res.result == CUDA_SUCCESS)
        self->count++;
    if (res.result != CUDA_ERROR_OUT_OF_MEMORY)
        self->count = 100000;
    return NULL;
}

static void many_servers_never_pass_the_limit(void **state)
{
    struct fixture *self = *state;
    struct crowd_member *crowd = calloc(SERVERS, sizeof *crowd);
    struct flyt_ledger_state ledger;
    unsigned count = 0;
    assert_non_null(crowd);
    assert_int_equal(flyt_ledger_new(100 * MIB, &self->ledger), 0);
    for (unsigned i = 0; i < SERVERS; i++) {
        fake_server_start(&crowd[i].server, fake_one_gpu);
        fake_listener_open(&crowd[i].listener);
        fake_listener_grant(&crowd[i].listener, &crowd[i].server, self->ledger, 100 * MIB);
        test_client_init(&crowd[i].client);
        test_client_open(&crowd[i].client, crowd[i].listener.url);
    }
    for (unsigned i = 0; i < SERVERS; i++)
        assert_int_equal(pthread_create(&crowd[i].thread, NULL, take_all, &crowd[i]), 0);
    for (unsigned i = 0; i < SERVERS; i++) {
        pthread_join(crowd[i].thread, NULL);
        count += crowd[i].count;
    }
    flyt_ledger_read(self->ledger, &ledger);
    assert_int_equal(count, 50);
    assert_int_equal(ledger.used_bytes, 100 * MIB);
    assert_int_equal(ledger.peak_bytes, 100 * MIB);
    for (unsigned i = 0; i < SERVERS; i++) {
        flyt_channel_close(crowd[i].client.channel);
        assert_int_equal(fake_server_end(&crowd[i].server), 0);
        fake_listener_close(&crowd[i].listener);
        test_client_fini(&crowd[i].client);
    }
    free(crowd);
}

static void a_killed_session_tells_its_program_why(void **state)
{
    struct fixture *self = *state;
    begin(self, 16 * MIB);
    test_client_open(&self->client, self->listener.url);
    fake_server_send(&self->server, FLYT_MANAGER_LINK_KILL, NULL, 0, "an operator has ended it");
    test_client_wait(&self->client, &self->client.lost_count, 1);
    assert_non_null(strstr(self->client.notices, "fatal 709 an operator has ended it; "));
    fake_server_wait_true(&self->server, &self->server.is_returned);
    assert_string_equal(self->server.sentence, "an operator has ended it");
    flyt_channel_close(self->client.channel);
    assert_int_equal(fake_server_end(&self->server), 0);
}

static void use_is_reported(void **state)
{
    struct fixture *self = *state;
    uint64_t address;
    begin(self, 16 * MIB);
    test_client_open(&self->client, self->listener.url);
    assert_int_equal(alloc(&self->client, 4 * MIB, &address), CUDA_SUCCESS);
    set(&self->client, address, 4 * MIB, 1);
    finish(self);
    assert_true(self->server.use.call_count >= 3);
    assert_int_equal(self->server.use.memory_bytes, 4 * MIB);
    assert_true(self->server.use.gpu_time_us > 0);
}

/* A new node manager at the old one's path: accepts the server and reads its REJOIN. */
static int accept_rejoin(struct fixture *self, int listen_fd, uint64_t extent_count)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    struct pollfd ready = {.fd = listen_fd, .events = POLLIN};
    struct flyt_ledger *ledger;
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;
    assert_int_equal(poll(&ready, 1, 60000), 1);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(flyt_manager_link_receive(fd, message, fds, &fd_count), 0);
    const struct flyt_manager_link_rejoin *rejoin = &message->rejoin;
    assert_int_equal(message->kind, FLYT_MANAGER_LINK_REJOIN);
    assert_int_equal(rejoin->session.session_id, self->listener.session.session_id);
    assert_int_equal(rejoin->session.server_id, self->listener.session.server_id);
    assert_memory_equal(rejoin->session.rejoin_secret, self->listener.session.rejoin_secret, 32);
    assert_memory_equal(rejoin->session.token, self->listener.session.token, FLYT_TOKEN_BYTES);
    assert_int_equal(rejoin->client_pid, getpid());
    assert_string_equal(rejoin->program, "node_test");
    assert_int_equal(strncmp(rejoin->client_address, "127.0.0.1:", 10), 0);
    assert_int_equal(rejoin->extent_count, extent_count);
    assert_int_equal(fd_count, 1);
    assert_int_equal(flyt_ledger_open(fds[0], &ledger), 0);
    assert_int_equal(flyt_ledger_used(ledger, self->server.server_id),
                     flyt_ledger_used(self->ledger, self->server.server_id));
    flyt_ledger_close(ledger);
    close(fds[0]);
    free(message);
    return fd;
}

static void a_session_outlives_the_node_manager(void **state)
{
    struct fixture *self = *state;
    struct flyt_manager_link_welcome welcome = {0};
    uint64_t first, second, third;
    char path[64];
    snprintf(path, sizeof path, "%s/link", getenv("FAKE_FOLDER"));
    begin(self, 16 * MIB);
    snprintf(self->listener.session.rejoin_path, sizeof self->listener.session.rejoin_path, "%s", path);
    test_client_open(&self->client, self->listener.url);
    assert_int_equal(alloc(&self->client, 4 * MIB, &first), CUDA_SUCCESS);
    fake_server_wait(&self->server, &self->server.extents_told, 1);
    fake_server_leave(&self->server);

    /* Alone, it serves on, within the limit. */
    assert_int_equal(alloc(&self->client, 6 * MIB, &second), CUDA_SUCCESS);
    set(&self->client, second, 6 * MIB, 2);
    assert_int_equal(alloc(&self->client, 8 * MIB, &third), CUDA_ERROR_OUT_OF_MEMORY);
    int listen_fd = flyt_manager_link_listen(path);
    assert_true(listen_fd >= 0);
    int fd = accept_rejoin(self, listen_fd, 1);
    /* One that is slow is asked once, and what it says in the end holds. */
    struct pollfd again = {.fd = listen_fd, .events = POLLIN};
    assert_int_equal(poll(&again, 1, 13000), 0);
    fake_server_listen(&self->server, fd);
    fake_server_send(&self->server, FLYT_MANAGER_LINK_WELCOME, &welcome, sizeof welcome, NULL);
    fake_server_wait(&self->server, &self->server.extents_told, 3); /* the first one again */
    assert_int_equal(self->server.extent_count, 2);
    assert_int_equal(self->server.extents[1].address, second);
    give_back(&self->client, first);
    give_back(&self->client, second);
    assert_int_equal(alloc(&self->client, 16 * MIB, &third), CUDA_SUCCESS);

    /* The next one has lost everything, and knows no such session. */
    fake_server_leave(&self->server);
    fake_server_listen(&self->server, accept_rejoin(self, listen_fd, 1));
    fake_server_send(&self->server, FLYT_MANAGER_LINK_GO, NULL, 0, "nobody knows it");
    test_client_wait(&self->client, &self->client.lost_count, 1);
    assert_non_null(strstr(self->client.notices, "fatal 709 nobody knows it; "));
    flyt_channel_close(self->client.channel);
    assert_int_equal(fake_server_end(&self->server), 0);
    close(listen_fd);
    unlink(path);
}

static void a_warm_server_ends_with_the_node_manager(void **state)
{
    struct fixture *self = *state;
    fake_server_start(&self->server, fake_one_gpu);
    fake_server_leave(&self->server);
    assert_int_equal(fake_server_end(&self->server), 0);
}

static void memory_outlives_its_server(void **state)
{
    struct fixture *self = *state;
    uint64_t address;
    begin(self, 16 * MIB);
    test_client_open(&self->client, self->listener.url);
    assert_int_equal(alloc(&self->client, 4 * MIB, &address), CUDA_SUCCESS);
    set(&self->client, address + 1000, 3 * MIB, 0xab);
    fake_server_wait(&self->server, &self->server.extents_told, 1);
    kill(self->server.pid, SIGKILL);
    test_client_wait(&self->client, &self->client.lost_count, 1);
    fake_server_wait_true(&self->server, &self->server.is_hung_up);
    unsigned char *memory = mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, self->server.extents[0].fd, 0);
    assert_true(memory != MAP_FAILED);
    for (unsigned i = 0; i < 4 * MIB; i++)
        if (memory[i] != (i >= 1000 && i < 1000 + 3 * MIB ? 0xab : 0))
            fail_msg("byte %u is %u", i, memory[i]);
    munmap(memory, 4 * MIB);
    flyt_channel_close(self->client.channel);
    int status = fake_server_end(&self->server);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(used(self), 4 * MIB); /* until the node manager reclaims it */
}

static void a_server_that_cannot_be_says_why(void **state)
{
    struct fixture *self = *state;
    static const char *const wrong[] = {"--soft", "1", "--gpu", "5", NULL};
    fake_server_start(&self->server, wrong);
    assert_true(self->server.is_failed);
    assert_non_null(strstr(self->server.sentence, "no GPU 5"));
    assert_int_equal(WEXITSTATUS(fake_server_end(&self->server)), 1);

    /* The program hears what is wrong with its session, in clear. */
    struct flyt_error err = {0};
    begin(self, 16 * MIB);
    self->listener.session.slots[0].gpu_index = 3;
    self->client.config.url = self->listener.url;
    assert_int_equal(flyt_channel_open(&self->client.config, &err, &self->client.channel), -ENODEV);
    assert_non_null(strstr(err.text, "no such GPU"));
    fake_server_wait_true(&self->server, &self->server.is_returned);
    assert_int_equal(fake_server_end(&self->server), 0);
}

/* The program hears a sentence with these words, and nothing is made for it. */
static void expect_refusal(struct fixture *self, const char *words)
{
    struct flyt_error err = {0};
    self->client.config.url = self->listener.url;
    assert_true(flyt_channel_open(&self->client.config, &err, &self->client.channel) < 0);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
    fake_server_wait_true(&self->server, &self->server.is_returned);
    assert_int_equal(fake_server_end(&self->server), 0);
    self->ledger = flyt_ledger_close(self->ledger);
}

/* SMs that are not those which the node means, or none at all, which would be all: never served. */
static void sms_that_are_not_the_nodes_are_refused(void **state)
{
    struct fixture *self = *state;
    begin(self, 16 * MIB);
    self->listener.session.slots[0].sm_count = 22;
    expect_refusal(self, "those of this allocation have 24 SMs there, and 22 as the node knows them");
    begin(self, 16 * MIB);
    memset(self->listener.session.slots[0].groups, 0, sizeof self->listener.session.slots[0].groups);
    expect_refusal(self, "has no SM groups");
    begin(self, 16 * MIB);
    self->listener.session.slots[0].sm_count = 0;
    expect_refusal(self, "has no SM groups");
    begin(self, 16 * MIB);
    flyt_manager_link_add_group(self->listener.session.slots[0].groups, 16);
    expect_refusal(self, "the driver's SM groups are not the node's");
    /* Of another group size than the server was started for: the slot's counts. */
    begin(self, 16 * MIB);
    self->listener.session.slots[0].flags = 2 << FLYT_MANAGER_LINK_GROUP_SIZE_SHIFT;
    self->listener.session.slots[0].sm_count = 6;
    test_client_open(&self->client, self->listener.url);
    finish(self);
}

static void without_green_contexts_there_is_no_server(void **state)
{
    struct fixture *self = *state;
    setenv("FLYT_SOFT_GREEN", "0", 1);
    fake_server_start(&self->server, fake_one_gpu);
    unsetenv("FLYT_SOFT_GREEN");
    assert_true(self->server.is_failed);
    assert_non_null(strstr(self->server.sentence, "no green contexts"));
    assert_int_equal(WEXITSTATUS(fake_server_end(&self->server)), 1);
}

/* A program's credentials, as a client manager would have given them. */
static struct flyt_channel_credentials credentials(const struct fixture *self)
{
    struct flyt_channel_credentials made = {.data = "ticket", .bytes = 6, .is_encrypted = true};
    memcpy(made.secret, self->listener.secret, sizeof made.secret);
    return made;
}

static void begin_encrypted(struct fixture *self)
{
    begin(self, 64 * MIB);
    memset(self->listener.secret, 9, sizeof self->listener.secret);
    self->listener.is_challenging = true;
    self->listener.session.is_encrypted = 1;
    self->client.config.url = self->listener.url;
}

static void an_encrypted_session_serves_as_any(void **state)
{
    struct fixture *self = *state;
    unsigned char *data = malloc(8 * MIB);
    uint64_t address;
    begin_encrypted(self);
    struct flyt_channel_credentials own = credentials(self);
    self->client.config.credentials = &own;
    test_client_open(&self->client, self->listener.url);
    assert_int_equal(alloc(&self->client, 8 * MIB, &address), CUDA_SUCCESS);
    set(&self->client, address, 8 * MIB, 0x11);
    for (unsigned i = 0; i < 8 * MIB; i++)
        data[i] = (unsigned char)(i * 2654435761u >> 11);
    /* Over data streams, each with a key of its own. */
    flyt_copy_in_transfer_args args = {.stream_id = legacy, .transfer_id = 1, .bytes = 8 * MIB};
    args.dst = (flyt_box){address, 8 * MIB, 1, 1, 8 * MIB, 8 * MIB};
    assert_int_equal(flyt_channel_send(self->client.channel, FLYT_COPY_IN_TRANSFER,
                                       (xdrproc_t)xdr_flyt_copy_in_transfer_args, &args, NULL),
                     FLYT_CHANNEL_OK);
    assert_int_equal(flyt_channel_send_data(self->client.channel, 1, data, 8 * MIB), FLYT_CHANNEL_OK);
    set(&self->client, address, 1, 0x22); /* waits for what came before */
    data[0] = 0x22;
    assert_true(atomic_load(&self->listener.stream_count) > 0);
    fake_server_wait(&self->server, &self->server.extents_told, 1);
    unsigned char *memory = mmap(NULL, 8 * MIB, PROT_READ, MAP_SHARED, self->server.extents[0].fd, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(memcmp(memory, data, 8 * MIB), 0);
    munmap(memory, 8 * MIB);
    fake_server_send(&self->server, FLYT_MANAGER_LINK_KILL, NULL, 0, "enough");
    test_client_wait(&self->client, &self->client.lost_count, 1);
    assert_non_null(strstr(self->client.notices, "fatal 709 enough; "));
    flyt_channel_close(self->client.channel);
    assert_int_equal(fake_server_end(&self->server), 0);
    free(data);
}

/* Who holds another secret is no end of the session; a listener that let him pass would not help him. */
static void another_secret_opens_nothing(void **state)
{
    struct fixture *self = *state;
    struct flyt_error err = {0};
    begin_encrypted(self);
    struct flyt_channel_credentials own = credentials(self);
    own.secret[5] ^= 1;
    self->client.config.credentials = &own;
    assert_int_equal(flyt_channel_open(&self->client.config, &err, &self->client.channel), -EACCES);
    assert_non_null(strstr(err.text, "keys differ"));
    fake_server_wait_true(&self->server, &self->server.is_returned);
    assert_int_equal(fake_server_end(&self->server), 0);
}

static void clear_refusals_are_heard_and_clear_welcomes_are_not(void **state)
{
    struct fixture *self = *state;
    struct flyt_error err = {0};
    begin_encrypted(self);
    struct flyt_channel_credentials own = credentials(self);
    self->client.config.credentials = &own;
    self->listener.session.slots[0].gpu_index = 3;
    assert_int_equal(flyt_channel_open(&self->client.config, &err, &self->client.channel), -ENODEV);
    assert_non_null(strstr(err.text, "no such GPU"));
    assert_int_equal(fake_server_end(&self->server), 0);

    flyt_ledger_close(self->ledger);
    begin_encrypted(self);
    self->listener.session.is_encrypted = 0;
    assert_int_equal(flyt_channel_open(&self->client.config, &err, &self->client.channel), -EPROTO);
    assert_non_null(strstr(err.text, "in clear"));
    assert_int_equal(fake_server_end(&self->server), 0);

    /* Without a challenge there is no key. */
    flyt_ledger_close(self->ledger);
    begin_encrypted(self);
    self->listener.is_challenging = false;
    self->listener.session.is_encrypted = 0;
    assert_int_equal(flyt_channel_open(&self->client.config, &err, &self->client.channel), -EPROTO);
    assert_int_equal(fake_server_end(&self->server), 0);
}

/* ---- other SMs ---- */

enum { RESIZES = 200, SOAK_RESIZES = 1000, WARM_UP = 50, STREAMS = 4, CELL_BYTES = 512, GROWTH_BYTES_MAX = MIB };

/* Of a run; more with FLYT_SOAK=1. */
static unsigned resizes = RESIZES;

static unsigned sms(struct test_client *client)
{
    flyt_device_info_args args = {.device = 0};
    flyt_device_info_res res;
    assert_int_equal(flyt_channel_call(client->channel, FLYT_DEVICE_INFO, (xdrproc_t)xdr_flyt_device_info_args, &args,
                                       (xdrproc_t)xdr_flyt_device_info_res, &res),
                     FLYT_CHANNEL_OK);
    assert_int_equal(res.result, CUDA_SUCCESS);
    unsigned count = (unsigned)res.attributes.attributes_val[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    xdr_free((xdrproc_t)xdr_flyt_device_info_res, &res);
    return count;
}

/* Groups from `first` on; the answers are counted, not waited for. */
static void order_groups(struct fixture *self, uint64_t revision, unsigned first, unsigned count)
{
    struct flyt_manager_link_sm sm = {.revision = revision, .sm_count = 8 * count};
    for (unsigned i = first; i < first + count; i++)
        flyt_manager_link_add_group(sm.groups, i);
    fake_server_send(&self->server, FLYT_MANAGER_LINK_SM, &sm, sizeof sm, NULL);
}

static bool is_vacated(struct fake_server *server, uint64_t revision)
{
    pthread_mutex_lock(&server->mutex);
    bool is = server->sm_done.revision == revision && server->sm_done.state == FLYT_MANAGER_LINK_VACATED;
    pthread_mutex_unlock(&server->mutex);
    return is;
}

static void await_vacated(struct fixture *self, uint64_t revision)
{
    for (unsigned i = 0; !is_vacated(&self->server, revision) && i < 60000; i++)
        usleep(1000);
    assert_true(is_vacated(&self->server, revision));
}

static void in_stream(struct test_client *client, uint64_t stream, uint64_t from, uint64_t to, unsigned value)
{
    flyt_memory_set_args set = {.stream_id = stream, .element_bytes = 1, .value = value};
    flyt_copy_within_args copy = {.stream_id = stream};
    set.dst = (flyt_box){from, CELL_BYTES, 1, 1, CELL_BYTES, CELL_BYTES};
    copy.src = set.dst;
    copy.dst = (flyt_box){to, CELL_BYTES, 1, 1, CELL_BYTES, CELL_BYTES};
    assert_int_equal(
        flyt_channel_send(client->channel, FLYT_MEMORY_SET, (xdrproc_t)xdr_flyt_memory_set_args, &set, NULL),
        FLYT_CHANNEL_OK);
    assert_int_equal(
        flyt_channel_send(client->channel, FLYT_COPY_WITHIN, (xdrproc_t)xdr_flyt_copy_within_args, &copy, NULL),
        FLYT_CHANNEL_OK);
}

static unsigned value_of(unsigned stream, unsigned round)
{
    return (stream * 71 + round * 13 + 5) & 0xff;
}

/* All that a stream has done, cell by cell: each was filled from what the stream set just before. */
static void check_cells(struct test_client *client, uint64_t stream, unsigned number, uint64_t address)
{
    for (unsigned round = 0; round < resizes; round++) {
        flyt_copy_out_args args = {.stream_id = stream};
        flyt_copy_out_res res = {0};
        args.src = (flyt_box){address + (uint64_t)round * CELL_BYTES, CELL_BYTES, 1, 1, CELL_BYTES, CELL_BYTES};
        assert_int_equal(flyt_channel_call(client->channel, FLYT_COPY_OUT, (xdrproc_t)xdr_flyt_copy_out_args, &args,
                                           (xdrproc_t)xdr_flyt_copy_out_res, &res),
                         FLYT_CHANNEL_OK);
        assert_int_equal(res.result, CUDA_SUCCESS);
        assert_int_equal(res.data.data_len, CELL_BYTES);
        for (unsigned i = 0; i < CELL_BYTES; i++)
            assert_int_equal((unsigned char)res.data.data_val[i], value_of(number, round));
        xdr_free((xdrproc_t)xdr_flyt_copy_out_res, &res);
    }
}

/* A number of the process's status file. */
static long status_of(pid_t pid, const char *name)
{
    char path[64], line[256];
    long value = -1;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name)))
            value = strtol(line + strlen(name) + 1, NULL, 10);
    fclose(file);
    assert_true(value >= 0);
    return value;
}

/* Streams with work go through hundreds of changes of their SMs, waited for or not; nothing is lost, overtaken or left
 * over. */
static void sms_change_under_a_program(void **state)
{
    static const unsigned sizes[] = {2, 8, 4}; /* 16, 64, 32 SMs */
    struct fixture *self = *state;
    struct test_client *client = &self->client;
    uint64_t streams[STREAMS + 1] = {0}, from[STREAMS + 1], to[STREAMS + 1];
    long rss_kib = 0, threads = 0;
    begin(self, 64 * MIB);
    test_client_open(client, self->listener.url);
    assert_int_equal(sms(client), 24);
    streams[STREAMS] = legacy;
    for (unsigned i = 0; i <= STREAMS; i++) {
        flyt_stream_create_args args = {.stream_id = flyt_id(FLYT_ID_STREAM, FLYT_ID_STREAM_FIRST + i),
                                        .flags = i % 2 ? CU_STREAM_NON_BLOCKING : 0};
        assert_int_equal(alloc(client, CELL_BYTES, &from[i]), CUDA_SUCCESS);
        assert_int_equal(alloc(client, (uint64_t)resizes * CELL_BYTES, &to[i]), CUDA_SUCCESS);
        if (i == STREAMS)
            break;
        streams[i] = args.stream_id;
        assert_int_equal(
            flyt_channel_send(client->channel, FLYT_STREAM_CREATE, (xdrproc_t)xdr_flyt_stream_create_args, &args, NULL),
            FLYT_CHANNEL_OK);
    }
    for (unsigned round = 0; round < resizes; round++) {
        unsigned size = sizes[round % 3];
        for (unsigned i = 0; i <= STREAMS; i++)
            in_stream(client, streams[i], from[i], to[i] + (uint64_t)round * CELL_BYTES, value_of(i, round));
        order_groups(self, round + 1, round % 7, size);
        if (round % 5 == 0) {
            await_vacated(self, round + 1);
            assert_int_equal(sms(client), 8 * size);
        }
        if (round == WARM_UP) {
            await_vacated(self, round + 1);
            rss_kib = status_of(self->server.pid, "RssAnon");
            threads = status_of(self->server.pid, "Threads");
        }
    }
    await_vacated(self, resizes);
    for (unsigned i = 0; i <= STREAMS; i++)
        check_cells(client, streams[i], i, to[i]);
/* Its own memory: the cells are in the software GPU's. */
#ifndef __SANITIZE_ADDRESS__ /* which keeps freed memory back */
    assert_true(status_of(self->server.pid, "RssAnon") - rss_kib < GROWTH_BYTES_MAX / 1024);
#else
    (void)rss_kib;
#endif
    /* The software GPU has as many threads as streams have ever had work at one time: those of the contexts that were
       left and not yet drained, and of the present one. A leak would be one for each resize. */
    assert_true(status_of(self->server.pid, "Threads") <= threads + (STREAMS + 1) * (FLYT_LEFT_CONTEXTS_MAX + 1));
    /* The same ones once more, and some that the GPU has not. */
    order_groups(self, resizes + 1, (resizes - 1) % 7, sizes[(resizes - 1) % 3]);
    await_vacated(self, resizes + 1);
    order_groups(self, resizes + 2, 15, 2);
    for (unsigned i = 0; self->server.sm_done.revision != resizes + 2 && i < 60000; i++)
        usleep(1000);
    assert_int_equal(self->server.sm_done.state, -EINVAL);
    assert_int_equal(sms(client), 8 * sizes[(resizes - 1) % 3]);
    /* And the last group, which has 12 SMs, as one of 8. */
    order_groups(self, resizes + 3, 15, 1);
    for (unsigned i = 0; self->server.sm_done.revision != resizes + 3 && i < 60000; i++)
        usleep(1000);
    assert_int_equal(self->server.sm_done.state, -EINVAL);
    assert_int_equal(sms(client), 8 * sizes[(resizes - 1) % 3]);
    finish(self);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_session_has_the_slots_of_its_allocation),
        TEST(the_limit_holds),
        TEST(memory_waits_for_the_node_manager),
        TEST(a_lost_credit_is_asked_for_again),
        TEST(a_limit_below_use_is_refused_or_sinks),
        TEST(many_servers_never_pass_the_limit),
        TEST(a_killed_session_tells_its_program_why),
        TEST(use_is_reported),
        TEST(a_session_outlives_the_node_manager),
        TEST(a_warm_server_ends_with_the_node_manager),
        TEST(memory_outlives_its_server),
        TEST(a_server_that_cannot_be_says_why),
        TEST(sms_that_are_not_the_nodes_are_refused),
        TEST(without_green_contexts_there_is_no_server),
        TEST(an_encrypted_session_serves_as_any),
        TEST(another_secret_opens_nothing),
        TEST(clear_refusals_are_heard_and_clear_welcomes_are_not),
        TEST(sms_change_under_a_program),
    };
    if (getenv("FLYT_SOAK"))
        resizes = SOAK_RESIZES;
    return cmocka_run_group_tests(tests, fake_node_begin_all, fake_node_end_all);
}
