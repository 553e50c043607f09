/*
 * A session moves to a server of another node: two real server processes on software GPUs, whose node managers the test
 * plays (fake_node.h), with connections over loopback between them, encrypted or not, through which the test can cut
 * off, damage and hold back what goes from one to the other. Whatever happens there, the program goes on: where it was,
 * or with everything at the other server.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
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

#include "cpu/image/answer.h"
#include "cpu/image/frame.h"
#include "cpu/image/writer.h"
#include "cpu/server/test/fake_image.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/id.h"
#include "rpc/base/page_hash.h"

enum { MIB = 1 << 20, MOVE_ID = FAKE_IMAGE_MOVE_ID, STREAMS = 3, CONNECTIONS_MAX = 1 + FLYT_MIGRATION_STREAMS_MAX };

#define SHORT_US 1000000ull

/* ---- connections, with the test between ---- */

enum damage { DAMAGE_NONE, DAMAGE_CUT, DAMAGE_FLIP, DAMAGE_HOLD };

struct between {
    int source_fd, target_fd; /* the ends that the test has */
    enum damage damage;
    size_t at_bytes; /* of what goes to the target */
    pthread_t thread;
};

struct link {
    unsigned count; /* connections */
    int sources[CONNECTIONS_MAX], targets[CONNECTIONS_MAX];
    struct between between[CONNECTIONS_MAX];
    struct flyt_manager_link_streams streams;
    struct flyt_manager_link_awaited awaited;
};

static void make_tcp_pair(int *ret_fds)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    flyt_auto_close int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    ret_fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(ret_fds[0], (struct sockaddr *)&address, sizeof address), 0);
    ret_fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(ret_fds[1] >= 0);
}

static bool pass(int fd, const unsigned char *bytes, size_t count)
{
    while (count) {
        ssize_t sent = send(fd, bytes, count, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        bytes += sent;
        count -= (size_t)sent;
    }
    return true;
}

/* What goes to the target, with its damage. False: that is the end. */
static bool pass_on(struct between *self, size_t *done_bytes)
{
    static __thread unsigned char bytes[65536];
    ssize_t count = recv(self->source_fd, bytes, sizeof bytes, 0);
    if (count <= 0)
        return false;
    size_t end = *done_bytes + (size_t)count;
    bool is_hit = self->damage != DAMAGE_NONE && self->at_bytes >= *done_bytes && self->at_bytes < end;
    size_t at = self->at_bytes - *done_bytes;
    *done_bytes = end;
    if (is_hit && self->damage == DAMAGE_FLIP)
        bytes[at] ^= 0x10;
    if (is_hit && self->damage != DAMAGE_FLIP)
        count = (ssize_t)at;
    bool goes_on = pass(self->target_fd, bytes, (size_t)count);
    if (is_hit && self->damage == DAMAGE_HOLD) /* until one of them has had enough */
        for (struct pollfd end_of = {.fd = self->target_fd, .events = POLLRDHUP}; !(end_of.revents & POLLRDHUP);)
            poll(&end_of, 1, -1);
    return goes_on && !(is_hit && self->damage != DAMAGE_FLIP);
}

static void *run_between(void *user)
{
    struct between *self = user;
    unsigned char back[4096];
    size_t done_bytes = 0;
    bool has_end = false;
    while (!has_end) {
        struct pollfd polls[] = {{.fd = self->source_fd, .events = POLLIN}, {.fd = self->target_fd, .events = POLLIN}};
        poll(polls, 2, -1);
        if (polls[1].revents) {
            ssize_t count = recv(self->target_fd, back, sizeof back, 0);
            has_end = count <= 0 || !pass(self->source_fd, back, (size_t)count);
        }
        if (polls[0].revents && !has_end)
            has_end = !pass_on(self, &done_bytes);
    }
    shutdown(self->source_fd, SHUT_WR);
    shutdown(self->target_fd, SHUT_RDWR);
    /* Until the first server has closed it, too: then it is ready for another move. */
    while (recv(self->source_fd, back, sizeof back, 0) > 0)
        continue;
    return NULL;
}

static void make_unix_pair(int *ret_fds)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_fds), 0);
}

static void open_link_of(struct link *link, unsigned stream_count, bool is_encrypted, void (*make_pair)(int *ret_fds))
{
    *link = (struct link){.count = 1 + stream_count};
    link->streams.stream_count = stream_count;
    link->streams.is_encrypted = is_encrypted;
    for (unsigned i = 0; i < link->count; i++) {
        int here[2], there[2];
        memset(link->streams.keys[i], is_encrypted ? (int)(0x20 + i) : 0, FLYT_KEY_BYTES);
        make_pair(here);
        make_pair(there);
        link->sources[i] = here[0];
        link->targets[i] = there[1];
        link->between[i] = (struct between){.source_fd = here[1], .target_fd = there[0]};
    }
}

static void open_link(struct link *link, unsigned stream_count, bool is_encrypted)
{
    open_link_of(link, stream_count, is_encrypted, make_tcp_pair);
}

static void start_link(struct link *link)
{
    for (unsigned i = 0; i < link->count; i++)
        assert_int_equal(pthread_create(&link->between[i].thread, NULL, run_between, &link->between[i]), 0);
}

/* Both servers have let go of it. */
static void close_link(struct link *link)
{
    for (unsigned i = 0; i < link->count; i++) {
        pthread_join(link->between[i].thread, NULL);
        close(link->between[i].source_fd);
        close(link->between[i].target_fd);
    }
}

/* ---- the node managers' parts ---- */

static void post_receive(struct fake_image *self, const struct link *link, uint64_t move_id)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    assert_non_null(message);
    message->kind = FLYT_MANAGER_LINK_RECEIVE;
    message->receive = (struct flyt_manager_link_receive){move_id, link->streams, link->awaited};
    fake_server_post_all(self->node.second, message, link->targets, link->count);
    free(message);
    for (unsigned i = 0; i < link->count; i++)
        close(link->targets[i]);
}

static void post_send(struct fake_image *self, const struct link *link, uint64_t move_id, uint32_t packing)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    assert_non_null(message);
    message->kind = FLYT_MANAGER_LINK_MOVE;
    message->move = (struct flyt_manager_link_move){.move_id = move_id,
                                                    .kind = FLYT_MANAGER_LINK_MOVE_SEND,
                                                    .rounds_max = 5,
                                                    .slowdown_pct = 50,
                                                    .packing = packing,
                                                    .streams = link->streams};
    fake_server_post_all(self->node.first, message, link->sources, link->count);
    free(message);
    for (unsigned i = 0; i < link->count; i++)
        close(link->sources[i]);
}

/* Both begin. */
static void begin_link(struct fake_image *self, struct link *link, uint64_t move_id, uint32_t packing)
{
    start_link(link);
    fake_image_prepare(self);
    post_receive(self, link, move_id);
    post_send(self, link, move_id, packing);
}

/* The second server says what has become of it. */
static int await_received(struct fake_image *self, uint64_t move_id)
{
    return fake_server_await_state(self->node.second, move_id, 2);
}

/* Nothing came of it: the second server says why, the first one that its program goes on. */
static void expect_failure(struct fake_image *self, struct link *link, uint64_t move_id, const char *words)
{
    int outcome = await_received(self, move_id);
    assert_true(outcome < 0);
    assert_true(*self->node.second->prepared_sentence);
    if (words && !strstr(self->node.second->prepared_sentence, words))
        fail_msg("not \"%s\": %s", words, self->node.second->prepared_sentence);
    fake_server_wait_phase(self->node.first, move_id, FLYT_MANAGER_LINK_MOVE_OVER);
    assert_true(self->node.first->move_state.outcome < 0);
    fake_image_work(self);
    fake_server_kill(self->node.second);
    fake_server_forget(self->node.second);
    close_link(link);
}

/* ---- it goes on there ---- */

static void go_on_at(struct fake_image *self, struct link *link, uint32_t packing, bool is_near)
{
    fake_image_begin(self);
    fake_program_launch(&self->node.wire, 1, 1, fake_image_words(self)); /* memory has a variable's address */
    const float before_ms = fake_program_elapsed(&self->node.wire, 1, 2, CUDA_SUCCESS);
    begin_link(self, link, MOVE_ID, packing);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_READY);
    fake_image_work_and_stop(self);
    assert_true(self->node.first->move_state.copied_bytes >= 24 * MIB);
    if (await_received(self, MOVE_ID) != 0)
        fail_msg("it is not received: %s", self->node.second->prepared_sentence);
    assert_int_equal(self->node.second->prepared.sequence, self->node.sequence);
    fake_image_compare(self);
    self->node.leave_timeout_us = is_near ? 0 : FLYT_MANAGER_LINK_FOR_EVER;
    fake_image_leave(self);
    assert_int_equal(self->node.moved_flags, is_near ? 0 : FLYT_MOVED_ASK_AGAIN);
    fake_image_come_back(self);
    fake_image_check(self, before_ms);
    fake_node_finish(&self->node, self->node.second);
    close_link(link);
}

static void go_on_there(struct fake_image *self, unsigned stream_count, uint32_t packing, bool is_encrypted)
{
    struct link link;
    open_link(&link, stream_count, is_encrypted);
    go_on_at(self, &link, packing, false);
}

/* It is not told to ask where that is. */
static void a_program_goes_on_at_another_server_of_its_node(void **state)
{
    struct link link;
    open_link_of(&link, STREAMS, false, make_unix_pair);
    go_on_at(*state, &link, FLYT_CHECKPOINT_PACK_NOT, true);
}

static void a_program_goes_on_at_another_node(void **state)
{
    go_on_there(*state, 0, FLYT_CHECKPOINT_PACK_NOT, false);
}

static void a_program_goes_on_over_several_connections(void **state)
{
    go_on_there(*state, STREAMS, FLYT_CHECKPOINT_PACK_NOT, false);
}

static void a_program_goes_on_over_encrypted_connections(void **state)
{
    go_on_there(*state, STREAMS, FLYT_CHECKPOINT_PACK_NOT, true);
}

static void a_program_goes_on_packed(void **state)
{
    go_on_there(*state, FLYT_MIGRATION_STREAMS_MAX, FLYT_CHECKPOINT_PACK_LZ4, false);
}

static void a_program_goes_on_packed_and_encrypted(void **state)
{
    go_on_there(*state, 1, FLYT_CHECKPOINT_PACK_ZSTD, true);
}

/* The machine of one of the servers was started long before that of the other: times of events mean the same. */
static void times_are_right_on_another_machine(void **state)
{
    static const char ahead_s[] = "1000000";
    struct fake_image *self = *state;
    char own[4096], library[4200], options[1024];
    char *sanitizer = getenv("ASAN_OPTIONS") ? strdup(getenv("ASAN_OPTIONS")) : NULL;
    ssize_t bytes = readlink("/proc/self/exe", own, sizeof own - 1);
    assert_true(bytes > 0);
    own[bytes] = 0;
    *strrchr(own, '/') = 0;
    snprintf(library, sizeof library, "%s/fake_clock.so", own);
    assert_int_equal(access(library, R_OK), 0);
    /* A sanitizer wants to be the first library otherwise. */
    snprintf(options, sizeof options, "%s:verify_asan_link_order=0", sanitizer ? sanitizer : "");
    setenv("ASAN_OPTIONS", options, 1);
    for (unsigned i = 0; i < 2; i++) {
        struct link link;
        float ms;
        setenv("LD_PRELOAD", library, 1);
        setenv("FAKE_CLOCK_S", i ? "0" : ahead_s, 1);
        fake_image_begin(self);
        const float before_ms = fake_program_elapsed(&self->node.wire, 1, 2, CUDA_SUCCESS);
        open_link(&link, 1, false);
        setenv("FAKE_CLOCK_S", i ? ahead_s : "0", 1);
        begin_link(self, &link, MOVE_ID, FLYT_CHECKPOINT_PACK_NOT);
        unsetenv("LD_PRELOAD");
        fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_READY);
        fake_image_stop(self, MOVE_ID);
        assert_int_equal(await_received(self, MOVE_ID), 0);
        fake_image_leave(self);
        fake_image_come_back(self);
        assert_float_equal(fake_program_elapsed(&self->node.wire, 1, 2, CUDA_SUCCESS), before_ms, 0.001);
        fake_program_record(&self->node.wire, 3);
        ms = fake_program_elapsed(&self->node.wire, 1, 3, CUDA_SUCCESS);
        if (ms < before_ms || ms > 1e8f) /* what is wrong is off by 1e9 */
            fail_msg("it has taken %g ms, and then %g", (double)before_ms, (double)ms);
        fake_node_finish(&self->node, self->node.second);
        close_link(&link);
        fake_image_tear_down(state);
        fake_image_set_up(state);
        self = *state;
    }
    if (sanitizer)
        setenv("ASAN_OPTIONS", sanitizer, 1);
    else
        unsetenv("ASAN_OPTIONS");
    free(sanitizer);
}

/* ---- it goes on where it is ---- */

struct trouble {
    unsigned connection;
    enum damage damage;
    size_t at_bytes;
    const char *words;
};

static void expect_trouble(struct fake_image *self, const struct trouble *trouble, uint64_t move_id, bool is_encrypted)
{
    struct link link;
    open_link(&link, 1, is_encrypted);
    link.between[trouble->connection].damage = trouble->damage;
    link.between[trouble->connection].at_bytes = trouble->at_bytes;
    begin_link(self, &link, move_id, FLYT_CHECKPOINT_PACK_NOT);
    expect_failure(self, &link, move_id, trouble->words);
}

/* Cut off or damaged anywhere, nothing is taken; and then it goes on there all the same. */
static void what_is_cut_off_or_damaged_is_not_taken(void **state)
{
    static const struct trouble troubles[] = {
        {0, DAMAGE_CUT, 0, NULL},
        {0, DAMAGE_CUT, 15, NULL},
        {0, DAMAGE_CUT, 16 + 39, NULL},
        {0, DAMAGE_CUT, 1000, NULL},
        {0, DAMAGE_CUT, 3000, NULL},
        {0, DAMAGE_FLIP, 3, "damaged"},
        {0, DAMAGE_FLIP, 100, "damaged"},
        {1, DAMAGE_CUT, 0, NULL},
        {1, DAMAGE_CUT, 31, NULL},
        {1, DAMAGE_CUT, 32, NULL},
        {1, DAMAGE_CUT, MIB, NULL},
        {1, DAMAGE_FLIP, 2, "no contents"},
        {1, DAMAGE_FLIP, 20, "no contents"},
        {1, DAMAGE_FLIP, 32, "not what was sent"},
        {1, DAMAGE_FLIP, MIB, "not what was sent"},
    };
    struct fake_image *self = *state;
    fake_image_begin(self);
    for (unsigned i = 0; i < sizeof troubles / sizeof troubles[0]; i++)
        expect_trouble(self, &troubles[i], MOVE_ID + i, false);
    fake_node_finish(&self->node, self->node.first);
}

/* In the handshake, in a record, and behind one. */
static void nor_what_is_encrypted(void **state)
{
    static const struct trouble troubles[] = {
        {1, DAMAGE_CUT, 0, NULL},
        {1, DAMAGE_CUT, 100, NULL},
        {1, DAMAGE_CUT, 4096, NULL},
        {1, DAMAGE_CUT, MIB, NULL},
        {1, DAMAGE_CUT, MIB + 16384 + 22, NULL},
        {1, DAMAGE_FLIP, 100, NULL},
        {1, DAMAGE_FLIP, 4096, "damaged on the way"},
        {1, DAMAGE_FLIP, MIB, "damaged on the way"},
    };
    struct fake_image *self = *state;
    fake_image_begin(self);
    for (unsigned i = 0; i < sizeof troubles / sizeof troubles[0]; i++)
        expect_trouble(self, &troubles[i], MOVE_ID + i, true);
    fake_node_finish(&self->node, self->node.first);
}

/* What the second server has found is told to the first one's node manager, too. */
static void the_reason_is_told_on_both_sides(void **state)
{
    struct fake_image *self = *state;
    struct link link;
    fake_image_begin(self);
    open_link(&link, 1, false);
    link.between[1].damage = DAMAGE_FLIP;
    link.between[1].at_bytes = 4096;
    begin_link(self, &link, MOVE_ID, FLYT_CHECKPOINT_PACK_NOT);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_OVER);
    assert_int_equal(self->node.first->move_state.outcome, -EIO);
    if (!strstr(self->node.first->move_sentence, "not what was sent"))
        fail_msg("not said: %s", self->node.first->move_sentence);
    expect_failure(self, &link, MOVE_ID, "not what was sent");
    fake_node_finish(&self->node, self->node.first);
}

/* A library that cannot be loaded there is refused by the name of its kernel, before anything stops. */
static void a_library_that_cannot_be_loaded_is_named(void **state)
{
    struct fake_image *self = *state;
    struct link link;
    fake_image_begin(self);
    open_link(&link, 1, false);
    start_link(&link);
    setenv("FLYT_FAULT", "prepare.library:error", 1);
    fake_image_prepare(self);
    unsetenv("FLYT_FAULT");
    post_receive(self, &link, MOVE_ID);
    post_send(self, &link, MOVE_ID, FLYT_CHECKPOINT_PACK_NOT);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_OVER);
    assert_int_equal(self->node.first->move_state.outcome, -ENOTSUP);
    assert_non_null(strstr(self->node.first->move_sentence, "kernel add"));
    expect_failure(self, &link, MOVE_ID, "kernel add");
    fake_node_finish(&self->node, self->node.first);
}

/* Each named step that fails, on either side. */
static void every_step_may_fail(void **state)
{
    static const char *const points[] = {"receiving.begin:error", "receiving.frame:error:2", "receiving.compare:error",
                                         "prepare.make:error"};
    struct fake_image *self = *state;
    fake_image_begin(self);
    for (unsigned i = 0; i < sizeof points / sizeof points[0]; i++) {
        struct link link;
        open_link(&link, 1, false);
        start_link(&link);
        setenv("FLYT_FAULT", points[i], 1);
        fake_image_prepare(self);
        unsetenv("FLYT_FAULT");
        post_receive(self, &link, MOVE_ID + i);
        post_send(self, &link, MOVE_ID + i, FLYT_CHECKPOINT_PACK_NOT);
        expect_failure(self, &link, MOVE_ID + i, NULL);
    }
    fake_node_finish(&self->node, self->node.first);
}

/* All is there, and the second server says no all the same: the program, which stands still, goes on. */
static void the_last_word_is_the_second_servers(void **state)
{
    struct fake_image *self = *state;
    struct link link;
    fake_image_begin(self);
    open_link(&link, 1, false);
    start_link(&link);
    setenv("FLYT_FAULT", "receiving.answer:error", 1);
    fake_image_prepare(self);
    unsetenv("FLYT_FAULT");
    post_receive(self, &link, MOVE_ID);
    post_send(self, &link, MOVE_ID, FLYT_CHECKPOINT_PACK_NOT);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_READY);
    assert_int_equal(fake_node_try_stop(&self->node, MOVE_ID, FAKE_NODE_LONG_US), -EIO);
    assert_non_null(strstr(self->node.first->sentence, "a test wants it so"));
    fake_node_await_go_on(&self->node);
    expect_failure(self, &link, MOVE_ID, "a test wants it so");
    *self->node.first->sentence = 0;
    fake_node_finish(&self->node, self->node.first);
}

/* The first server's own steps, which are tried at its start. */
static void a_sender_that_fails_keeps_its_program(void **state)
{
    struct fake_image *self = *state;
    struct link link;
    setenv("FLYT_FAULT", "sending.frame:error:3", 1);
    fake_image_begin(self);
    unsetenv("FLYT_FAULT");
    open_link(&link, 1, false);
    begin_link(self, &link, MOVE_ID, FLYT_CHECKPOINT_PACK_NOT);
    expect_failure(self, &link, MOVE_ID, NULL);
    open_link(&link, 1, false);
    begin_link(self, &link, MOVE_ID + 1, FLYT_CHECKPOINT_PACK_NOT);
    fake_server_wait_phase(self->node.first, MOVE_ID + 1, FLYT_MANAGER_LINK_MOVE_READY);
    fake_server_send_move(self->node.first, FLYT_MANAGER_LINK_GO_ON, MOVE_ID + 1, 0);
    assert_true(await_received(self, MOVE_ID + 1) < 0);
    fake_image_work(self);
    fake_server_kill(self->node.second);
    fake_server_forget(self->node.second);
    close_link(&link);
    fake_node_finish(&self->node, self->node.first);
}

/* All is there and the other server says so, and the first one does not take its word. */
static void a_word_that_is_not_taken_keeps_its_program(void **state)
{
    struct fake_image *self = *state;
    struct link link;
    setenv("FLYT_FAULT", "sending.answer:error", 1);
    fake_image_begin(self);
    unsetenv("FLYT_FAULT");
    open_link(&link, 1, false);
    begin_link(self, &link, MOVE_ID, FLYT_CHECKPOINT_PACK_NOT);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_READY);
    assert_int_equal(fake_node_try_stop(&self->node, MOVE_ID, FAKE_NODE_LONG_US), -EIO);
    assert_non_null(strstr(self->node.first->sentence, "answer is not taken"));
    fake_node_await_go_on(&self->node);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_OVER);
    assert_true(self->node.first->move_state.outcome < 0);
    fake_image_work(self);
    fake_server_kill(self->node.second);
    fake_server_forget(self->node.second);
    close_link(&link);
    *self->node.first->sentence = 0;
    fake_node_finish(&self->node, self->node.first);
}

/* Keys that differ. */
static void a_server_without_the_key_gets_nothing(void **state)
{
    struct fake_image *self = *state;
    fake_image_begin(self);
    for (unsigned i = 0; i < 2; i++) {
        struct link link;
        open_link(&link, 1, true);
        start_link(&link);
        fake_image_prepare(self);
        post_receive(self, &link, MOVE_ID + i);
        link.streams.keys[i][0] ^= 1;
        post_send(self, &link, MOVE_ID + i, FLYT_CHECKPOINT_PACK_NOT);
        expect_failure(self, &link, MOVE_ID + i, NULL);
    }
    fake_node_finish(&self->node, self->node.first);
}

/* A server that stands still holds up nothing but the move. */
static void a_server_that_stands_still_hinders_no_program(void **state)
{
    struct fake_image *self = *state;
    struct link link;
    fake_image_begin(self);
    open_link(&link, 1, false);
    link.between[1].damage = DAMAGE_HOLD;
    link.between[1].at_bytes = 5000;
    begin_link(self, &link, MOVE_ID, FLYT_CHECKPOINT_PACK_NOT);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_COPYING);
    fake_image_work(self);
    assert_int_equal(fake_node_try_stop(&self->node, MOVE_ID, SHORT_US), -ETIMEDOUT);
    assert_true(*self->node.first->sentence);
    fake_node_await_go_on(&self->node);
    expect_failure(self, &link, MOVE_ID, NULL);
    *self->node.first->sentence = 0;

    /* Nor does one that is stopped, and then killed. */
    open_link(&link, STREAMS, false);
    begin_link(self, &link, MOVE_ID + 1, FLYT_CHECKPOINT_PACK_NOT);
    kill(self->node.second->pid, SIGSTOP);
    fake_image_work(self);
    fake_server_kill(self->node.second);
    fake_server_forget(self->node.second);
    fake_server_wait_phase(self->node.first, MOVE_ID + 1, FLYT_MANAGER_LINK_MOVE_OVER);
    assert_int_equal(self->node.first->move_state.outcome, -EPIPE);
    close_link(&link);
    fake_image_work(self);
    fake_node_finish(&self->node, self->node.first);
}

/* The second server ends with its node manager, while it receives, too. */
static void a_server_without_a_node_manager_ends(void **state)
{
    struct fake_image *self = *state;
    struct link link;
    fake_image_begin(self);
    open_link(&link, 1, false);
    begin_link(self, &link, MOVE_ID, FLYT_CHECKPOINT_PACK_NOT);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_READY);
    fake_server_leave(self->node.second);
    assert_int_equal(fake_server_end(self->node.second), 0);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_OVER);
    assert_true(self->node.first->move_state.outcome < 0);
    close_link(&link);
    fake_image_work(self);
    fake_node_finish(&self->node, self->node.first);
}

/* After everything was there: the move is called off, and made again. */
static void a_move_is_called_off_and_made_again(void **state)
{
    struct fake_image *self = *state;
    struct link link;
    fake_image_begin(self);
    open_link(&link, STREAMS, false);
    begin_link(self, &link, MOVE_ID + 1, FLYT_CHECKPOINT_PACK_NOT);
    fake_server_wait_phase(self->node.first, MOVE_ID + 1, FLYT_MANAGER_LINK_MOVE_READY);
    fake_node_stop(&self->node, MOVE_ID + 1);
    assert_int_equal(await_received(self, MOVE_ID + 1), 0);
    fake_node_go_on(&self->node, MOVE_ID + 1);
    fake_server_wait_phase(self->node.first, MOVE_ID + 1, FLYT_MANAGER_LINK_MOVE_OVER);
    fake_image_work(self);
    fake_server_kill(self->node.second);
    fake_server_forget(self->node.second);
    close_link(&link);

    fake_program_launch(&self->node.wire, 1, 1, fake_image_words(self));
    const float before_ms = fake_program_elapsed(&self->node.wire, 1, 2, CUDA_SUCCESS);
    open_link(&link, STREAMS, false);
    begin_link(self, &link, MOVE_ID, FLYT_CHECKPOINT_PACK_NOT);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_READY);
    fake_image_work_and_stop(self);
    assert_int_equal(await_received(self, MOVE_ID), 0);
    fake_image_compare(self);
    fake_image_leave(self);
    fake_image_come_back(self);
    fake_image_check(self, before_ms);
    fake_node_finish(&self->node, self->node.second);
    close_link(&link);
}

/* ---- the test is the sender: what comes and goes, and what no server sends ---- */

struct sender {
    struct link link;
    struct flyt_checkpoint_writer *writer;
    struct flyt_page_hash_keys keys;
    unsigned char pages[STREAMS][FLYT_PAGE_BYTES], hashes[STREAMS][FLYT_CHECKPOINT_PAGE_HASH_BYTES];
};

#define DO(call) assert_int_equal((call), 0)

static const struct flyt_page_key hash_key = {"fedcba987654321"};

/* Up to where the first round begins, with two extents and three pages of contents to be had. */
static struct sender *begin_sender(struct fake_image *self, unsigned told_streams)
{
    const flyt_checkpoint_head head = {.build = (char *)"test",
                                       .program_name = (char *)"",
                                       .vm = (char *)"",
                                       .gpu_type = (char *)"",
                                       .page_hash = FLYT_PAGE_HASH_VERSION,
                                       .id = "0123456789abcde"};
    struct sender *sender = calloc(1, sizeof *sender);
    struct flyt_error err;
    assert_non_null(sender);
    flyt_page_hash_prepare(&hash_key, &sender->keys);
    for (unsigned i = 0; i < STREAMS; i++) {
        struct flyt_page_hash hash;
        memset(sender->pages[i], (int)(0x31 + i), FLYT_PAGE_BYTES);
        flyt_page_hash(&sender->keys, sender->pages[i], &hash, NULL);
        memcpy(sender->hashes[i], &hash, sizeof hash);
    }
    open_link(&sender->link, 1, false);
    start_link(&sender->link);
    fake_image_prepare(self);
    post_receive(self, &sender->link, MOVE_ID);
    DO(flyt_checkpoint_writer_new(sender->link.sources[0], "image", &head, FLYT_CHECKPOINT_PACK_NOT, &sender->writer,
                                  &err));
    DO(flyt_checkpoint_put_slot(sender->writer, 0, 0, &err));
    DO(flyt_checkpoint_put_streams(sender->writer, told_streams, hash_key.bytes, &err));
    return sender;
}

/* A frame of one page. */
static void send_page(struct sender *sender, uint64_t number, unsigned first_page, unsigned page)
{
    const struct flyt_frame frame = {.number = number,
                                     .first_page = first_page,
                                     .page_count = 1,
                                     .encoding = FLYT_CHECKPOINT_RAW,
                                     .payload_bytes = FLYT_PAGE_BYTES};
    unsigned char head[FLYT_FRAME_HEAD_BYTES];
    flyt_frame_put(&frame, head);
    assert_true(pass(sender->link.sources[1], head, sizeof head));
    pass(sender->link.sources[1], sender->pages[page], FLYT_PAGE_BYTES); /* it may have been refused by now */
}

static void end_image(struct sender *sender)
{
    const flyt_checkpoint_sequence sequence = {7, 7, 7};
    struct flyt_error err;
    DO(flyt_checkpoint_put_sequence(sender->writer, &sequence, &err));
    DO(flyt_checkpoint_put_end(sender->writer, &err));
}

/* What the second server has answered, last. */
static void take_last_answer(struct sender *sender, struct flyt_answer *ret_answer)
{
    unsigned char bytes[4 * FLYT_ANSWER_BYTES_MAX];
    size_t count = 0;
    int taken = 0;
    *ret_answer = (struct flyt_answer){.is_final = false};
    while (!ret_answer->is_final) {
        ssize_t got = taken > 0 ? 0 : recv(sender->link.sources[0], bytes + count, sizeof bytes - count, 0);
        assert_true(got > 0 || taken > 0);
        count += (size_t)got;
        taken = flyt_answer_get(bytes, count, ret_answer);
        assert_true(taken >= 0);
        count -= (size_t)taken;
        memmove(bytes, bytes + taken, count);
    }
}

static void end_sender(struct fake_image *self, struct sender *sender)
{
    flyt_checkpoint_writer_free(sender->writer);
    for (unsigned i = 0; i < sender->link.count; i++)
        close(sender->link.sources[i]);
    fake_server_kill(self->node.second);
    fake_server_forget(self->node.second);
    close_link(&sender->link);
    free(sender);
}

/* Rounds override each other, extents come and go, and the node manager hears of each. */
static void what_comes_and_goes_is_told(void **state)
{
    const uint64_t base = flyt_window_base(0), other = base + 16 * MIB;
    const flyt_checkpoint_run run = {base, 2}, again = {base + FLYT_PAGE_BYTES, 1};
    const uint32_t rest = 2 * MIB / FLYT_PAGE_BYTES - 2;
    struct fake_image *self = *state;
    struct flyt_answer answer;
    struct flyt_error err;
    uint64_t number;
    fake_image_begin(self);
    struct sender *sender = begin_sender(self, 1);
    DO(flyt_checkpoint_put_round(sender->writer, &err));
    DO(flyt_checkpoint_put_extent(sender->writer, base, 2 * MIB, &err));
    DO(flyt_checkpoint_put_extent(sender->writer, other, 2 * MIB, &err));
    DO(flyt_checkpoint_put_elsewhere(sender->writer, 1, &run, 1, sender->hashes, &number, &err));
    DO(flyt_checkpoint_put_run(sender->writer, base + 2 * FLYT_PAGE_BYTES, rest, FLYT_CHECKPOINT_ZERO, NULL, &err));
    DO(flyt_checkpoint_put_run(sender->writer, other, rest + 2, FLYT_CHECKPOINT_ZERO, NULL, &err));
    fake_server_wait(self->node.second, &self->node.second->made_count, 2);
    DO(flyt_checkpoint_put_round(sender->writer, &err));
    DO(flyt_checkpoint_put_extent_gone(sender->writer, other, &err));
    DO(flyt_checkpoint_put_elsewhere(sender->writer, 1, &again, 1, sender->hashes[2], &number, &err));
    assert_int_equal(number, 2);
    assert_int_equal(self->node.second->extent_count, 2); /* the first round is not in its place */
    send_page(sender, 1, 0, 0);
    send_page(sender, 1, 1, 1);
    send_page(sender, 2, 0, 2);
    end_image(sender);
    take_last_answer(sender, &answer);
    if (answer.status)
        fail_msg("it is not received: %s", answer.sentence);
    assert_int_equal(answer.sequence, 7);
    assert_int_equal(answer.extent_count, 1);
    assert_int_equal(answer.page_count, 2 * (rest + 2) + 1);
    shutdown(sender->link.sources[0], SHUT_WR);
    assert_int_equal(await_received(self, MOVE_ID), 0);
    assert_int_equal(self->node.second->made_count, 2);
    assert_int_equal(self->node.second->extent_count, 1);
    const struct fake_extent *made = &self->node.second->extents[0];
    assert_true(made->address == base && made->bytes == 2 * MIB);
    unsigned char *memory = mmap(NULL, made->bytes, PROT_READ, MAP_SHARED, made->fd, 0);
    assert_true(memory != MAP_FAILED);
    assert_memory_equal(memory, sender->pages[0], FLYT_PAGE_BYTES);
    assert_memory_equal(memory + FLYT_PAGE_BYTES, sender->pages[2], FLYT_PAGE_BYTES);
    for (size_t i = 2 * FLYT_PAGE_BYTES; i < made->bytes; i++)
        assert_int_equal(memory[i], 0);
    munmap(memory, made->bytes);
    end_sender(self, sender);
    fake_node_finish(&self->node, self->node.first);
}

enum wrong { STREAMS_DIFFER, OTHER_NUMBER, OTHER_PAGE, NO_HASHES, WRONG_HASH, TOO_MANY, TOO_MUCH, WRONG_KINDS };

/* Whether it is refused, with these words. */
static bool send_wrongly(struct fake_image *self, enum wrong wrong, const char *words)
{
    const uint64_t base = flyt_window_base(0);
    const flyt_checkpoint_run run = {base, 1};
    struct flyt_answer answer;
    struct flyt_error err;
    uint64_t number = 0;
    struct sender *sender = begin_sender(self, wrong == STREAMS_DIFFER ? 2 : 1);
    if (wrong != STREAMS_DIFFER) {
        DO(flyt_checkpoint_put_round(sender->writer, &err));
        DO(flyt_checkpoint_put_extent(sender->writer, base, 2 * MIB, &err));
    }
    if (wrong == NO_HASHES || wrong == WRONG_HASH) {
        DO(flyt_checkpoint_put_pages(sender->writer, base, 1, sender->pages[0],
                                     wrong == NO_HASHES ? NULL : sender->hashes[1], &err));
        DO(flyt_checkpoint_put_round(sender->writer, &err)); /* where all of it is compared */
    } else if (wrong != STREAMS_DIFFER) {
        DO(flyt_checkpoint_put_elsewhere(sender->writer, 1, &run, 1, sender->hashes[0], &number, &err));
        send_page(sender, wrong == OTHER_NUMBER ? 2 : 1, wrong == OTHER_PAGE, 0);
    }
    if (wrong == TOO_MANY)
        send_page(sender, 2, 0, 0);
    if (wrong == TOO_MUCH)
        assert_true(pass(sender->link.sources[1], sender->pages[0], 3));
    if (wrong == TOO_MANY || wrong == TOO_MUCH) {
        DO(flyt_checkpoint_put_run(sender->writer, base + FLYT_PAGE_BYTES, 2 * MIB / FLYT_PAGE_BYTES - 1,
                                   FLYT_CHECKPOINT_ZERO, NULL, &err));
        end_image(sender);
    }
    take_last_answer(sender, &answer);
    if (answer.status && !strstr(answer.sentence, words))
        fail_msg("not '%s': '%s'", words, answer.sentence);
    shutdown(sender->link.sources[0], SHUT_WR);
    assert_int_equal(await_received(self, MOVE_ID), answer.status);
    end_sender(self, sender);
    return answer.status < 0;
}

static void what_no_server_sends_is_refused(void **state)
{
    static const char *const words[WRONG_KINDS] = {
        [STREAMS_DIFFER] = "connections", [OTHER_NUMBER] = "other pages",     [OTHER_PAGE] = "other pages",
        [NO_HASHES] = "without hashes",   [WRONG_HASH] = "not what was sent", [TOO_MANY] = "more has come",
        [TOO_MUCH] = "more has come",
    };
    enum { TRIES = 20 };
    struct fake_image *self = *state;
    fake_image_begin(self);
    for (unsigned wrong = 0; wrong < WRONG_KINDS; wrong++) {
        /* What comes after all that was told may come too late to be seen: it does no harm then. */
        unsigned tries = wrong == TOO_MANY || wrong == TOO_MUCH ? TRIES : 1;
        bool is_refused = false;
        while (tries-- && !is_refused)
            is_refused = send_wrongly(self, (enum wrong)wrong, words[wrong]);
        assert_true(is_refused);
    }
    fake_node_finish(&self->node, self->node.first);
}

/* ---- the node manager's end ---- */

/* A program has arrived at a server that is to outlive its node manager. */
static void arrive_to_stay(struct fake_image *self, struct link *link)
{
    fake_image_begin(self);
    fake_node_let_rejoin(&self->node);
    link->awaited = (struct flyt_manager_link_awaited){
        .started_ms = 4711, .client_pid = 99, .program = "its program", .client_address = "10.0.0.1:999"};
    memset(link->awaited.token, 0x31, sizeof link->awaited.token);
    memset(link->awaited.rejoin_secret, 0x32, sizeof link->awaited.rejoin_secret);
    begin_link(self, link, MOVE_ID, FLYT_CHECKPOINT_PACK_NOT);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_READY);
    fake_image_work_and_stop(self);
    assert_int_equal(await_received(self, MOVE_ID), 0);
}

/* The next node manager: the server comes, and says all that its client or SESSION would have told. */
static void take_rejoin(struct fake_image *self, const struct link *link, int listen_fd)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    const struct flyt_manager_link_session *session = &message->rejoin.session;
    const struct flyt_manager_link_rejoin *rejoin = &message->rejoin;
    struct pollfd ready = {.fd = listen_fd, .events = POLLIN};
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;
    assert_int_equal(poll(&ready, 1, 60000), 1);
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_int_equal(flyt_manager_link_receive(fd, message, fds, &fd_count), 0);
    assert_int_equal(message->kind, FLYT_MANAGER_LINK_REJOIN);
    assert_true(rejoin->received_move_id == MOVE_ID && !rejoin->left_move_id && !fd_count);
    assert_true(rejoin->started_ms == 4711 && rejoin->client_pid == 99 && !session->ledger_count);
    assert_string_equal(rejoin->program, link->awaited.program);
    assert_string_equal(rejoin->client_address, link->awaited.client_address);
    assert_int_equal(rejoin->extent_count, self->node.first->extent_count);
    assert_memory_equal(session->token, link->awaited.token, sizeof session->token);
    assert_memory_equal(session->rejoin_secret, link->awaited.rejoin_secret, sizeof session->rejoin_secret);
    assert_int_equal(session->session_id, self->node.listener.session.session_id);
    assert_int_equal(session->server_id, self->node.listener.session.server_id);
    free(message);
    fake_server_listen(self->node.second, fd);
}

/* Twice, and the second time its client was about to come: everything is as it was. */
static void a_session_that_arrived_outlives_the_node_manager(void **state)
{
    struct fake_image *self = *state;
    struct fake_server *server = self->node.second;
    struct link link;
    open_link(&link, STREAMS, false);
    arrive_to_stay(self, &link);
    const struct flyt_manager_link_prepared before = server->prepared;
    const struct flyt_manager_link_resume resume = fake_server_resume(server);
    int listen_fd = flyt_manager_link_listen(self->node.listener.session.rejoin_path);
    for (unsigned i = 0; i < 2; i++) {
        const struct flyt_manager_link_welcome welcome = {.send_extents = !i};
        if (i)
            fake_server_send(server, FLYT_MANAGER_LINK_RESUME, &resume, sizeof resume, NULL);
        fake_server_leave(server);
        server->prepared = (struct flyt_manager_link_prepared){0};
        if (!i) {
            fake_server_forget(server);
            server->made_count = 0;
        }
        take_rejoin(self, &link, listen_fd);
        fake_server_send(server, FLYT_MANAGER_LINK_WELCOME, &welcome, sizeof welcome, NULL);
        assert_int_equal(fake_server_await_state(server, MOVE_ID, 3 + i), 0);
        assert_memory_equal(&server->prepared, &before, sizeof before);
    }
    close(listen_fd);
    unlink(self->node.listener.session.rejoin_path);
    *self->node.listener.session.rejoin_path = 0;
    fake_image_compare(self);
    fake_image_leave(self);
    fake_image_come_back(self);
    fake_image_work(self);
    fake_node_finish(&self->node, server);
    close_link(&link);
}

/* The next one does not want it. */
static void a_session_that_arrived_in_vain_ends(void **state)
{
    struct fake_image *self = *state;
    struct link link;
    open_link(&link, 1, false);
    arrive_to_stay(self, &link);
    int listen_fd = flyt_manager_link_listen(self->node.listener.session.rejoin_path);
    fake_server_leave(self->node.second);
    take_rejoin(self, &link, listen_fd);
    fake_server_send(self->node.second, FLYT_MANAGER_LINK_GO, NULL, 0, "nobody knows it");
    assert_int_equal(fake_server_end(self->node.second), 0);
    close(listen_fd);
    unlink(self->node.listener.session.rejoin_path);
    fake_node_go_on(&self->node, MOVE_ID);
    fake_image_work(self);
    fake_node_finish(&self->node, self->node.first);
    close_link(&link);
}

/* What was not prepared is not received, and both sides hear it. */
static void what_is_not_prepared_is_not_received(void **state)
{
    struct fake_image *self = *state;
    struct link link;
    fake_image_begin(self);
    open_link(&link, 1, false);
    start_link(&link);
    fake_server_start(self->node.second, fake_one_gpu);
    assert_true(self->node.second->is_ready);
    post_receive(self, &link, MOVE_ID);
    post_send(self, &link, MOVE_ID, FLYT_CHECKPOINT_PACK_NOT);
    fake_server_wait(self->node.second, &self->node.second->prepared_count, 1);
    assert_int_equal(self->node.second->prepared.outcome, -EPROTO);
    fake_server_wait_phase(self->node.first, MOVE_ID, FLYT_MANAGER_LINK_MOVE_OVER);
    assert_int_equal(self->node.first->move_state.outcome, -EPROTO);
    fake_server_kill(self->node.second);
    close_link(&link);
    fake_image_work(self);
    fake_node_finish(&self->node, self->node.first);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, fake_image_set_up, fake_image_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_program_goes_on_at_another_server_of_its_node),
        TEST(a_program_goes_on_at_another_node),
        TEST(a_program_goes_on_over_several_connections),
        TEST(a_program_goes_on_over_encrypted_connections),
        TEST(a_program_goes_on_packed),
        TEST(a_program_goes_on_packed_and_encrypted),
        TEST(times_are_right_on_another_machine),
        TEST(what_is_cut_off_or_damaged_is_not_taken),
        TEST(nor_what_is_encrypted),
        TEST(the_reason_is_told_on_both_sides),
        TEST(a_library_that_cannot_be_loaded_is_named),
        TEST(every_step_may_fail),
        TEST(the_last_word_is_the_second_servers),
        TEST(a_sender_that_fails_keeps_its_program),
        TEST(a_word_that_is_not_taken_keeps_its_program),
        TEST(a_server_without_the_key_gets_nothing),
        TEST(a_server_that_stands_still_hinders_no_program),
        TEST(a_server_without_a_node_manager_ends),
        TEST(a_move_is_called_off_and_made_again),
        TEST(what_comes_and_goes_is_told),
        TEST(what_no_server_sends_is_refused),
        TEST(what_is_not_prepared_is_not_received),
        TEST(a_session_that_arrived_outlives_the_node_manager),
        TEST(a_session_that_arrived_in_vain_ends),
    };
    return cmocka_run_group_tests(tests, fake_node_begin_all, fake_node_end_all);
}
