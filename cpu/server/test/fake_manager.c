#include "cpu/server/test/fake_manager.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/endpoint/listen.h"

enum { WAIT_S = 60, ARGUMENTS_MAX = 24 };

/* ---- a server ---- */

static void take_extent(struct fake_server *server, const struct flyt_manager_link_extent *extent, int fd)
{
    unsigned i = 0;
    while (i < server->extent_count && server->extents[i].extent_id != extent->extent_id)
        i++;
    server->extents_told++;
    if (i < server->extent_count || i == FAKE_EXTENTS_MAX) {
        flyt_close(fd); /* after a restart it may be there already */
        return;
    }
    server->extents[server->extent_count++] =
        (struct fake_extent){extent->extent_id, extent->bytes, extent->address, extent->slot, fd};
}

/* Lets go of the memory, then credits it, then says so. */
static void drop_extent(struct fake_server *server, struct flyt_manager_link_message *message)
{
    struct flyt_manager_link_extent *extent = &message->extent;
    unsigned i = 0;
    server->gone_count++;
    if (server->holds_credits)
        return;
    bool is_swallowed = server->swallows_credits;
    while (i < server->extent_count && server->extents[i].extent_id != extent->extent_id)
        i++;
    if (i == server->extent_count) {
        extent->bytes = 0;
    } else {
        extent->bytes = server->extents[i].bytes;
        close(server->extents[i].fd);
        if (server->ledgers[server->extents[i].slot]) /* else it has not been charged yet */
            flyt_ledger_release(server->ledgers[server->extents[i].slot], server->server_id, extent->bytes);
        server->extents[i] = server->extents[--server->extent_count];
    }
    message->kind = FLYT_MANAGER_LINK_EXTENT_CREDITED;
    message->data_bytes = 0;
    server->swallows_credits = false;
    if (!is_swallowed)
        flyt_manager_link_send(server->link_fd, message, NULL, 0);
}

static void take_locked(struct fake_server *server, struct flyt_manager_link_message *message, int fd)
{
    switch (message->kind) {
    case FLYT_MANAGER_LINK_READY:
        server->is_ready = true;
        server->ready = message->ready;
        break;
    case FLYT_MANAGER_LINK_FAILED:
        server->is_failed = true;
        snprintf(server->sentence, sizeof server->sentence, "%.1023s", message->data);
        break;
    case FLYT_MANAGER_LINK_RETURN:
        server->is_returned = true;
        snprintf(server->sentence, sizeof server->sentence, "%.1023s", message->data);
        break;
    case FLYT_MANAGER_LINK_EXTENT:
        take_extent(server, &message->extent, fd);
        break;
    case FLYT_MANAGER_LINK_EXTENT_GONE:
        drop_extent(server, message);
        break;
    case FLYT_MANAGER_LINK_USE:
        server->use = message->use;
        snprintf(server->why_not_replaceable, sizeof server->why_not_replaceable, "%.255s", message->data);
        server->use_count++;
        server->whole_count += message->use.is_coming == FLYT_MANAGER_LINK_IS_WHOLE;
        break;
    case FLYT_MANAGER_LINK_LIMIT_DONE:
        server->limit_done = message->limit_done;
        server->limit_done_count++;
        break;
    case FLYT_MANAGER_LINK_SM_DONE:
        server->sm_done = message->sm_done;
        server->sm_done_count++;
        break;
    case FLYT_MANAGER_LINK_MADE:
        flyt_close(server->made_fd);
        server->made_fd = -1;
        if (server->keeps_made && fd >= 0)
            take_extent(server, &message->made.extent, fd);
        else
            server->made_fd = fd;
        server->made = message->made;
        server->made_count++;
        break;
    case FLYT_MANAGER_LINK_PREPARED:
        server->prepared = message->prepared;
        snprintf(server->prepared_sentence, sizeof server->prepared_sentence, "%.511s", message->data);
        server->prepared_count++;
        break;
    case FLYT_MANAGER_LINK_LIBRARY:
        if (server->forward)
            flyt_manager_link_send(server->forward->link_fd, message, NULL, 0);
        server->library_count++;
        break;
    case FLYT_MANAGER_LINK_MOVE_STATE:
        server->move_state = message->move_state;
        snprintf(server->move_sentence, sizeof server->move_sentence, "%.1023s", message->data);
        server->move_state_count++;
        break;
    case FLYT_MANAGER_LINK_STOPPED:
        server->stopped = message->stopped;
        server->stopped_count++;
        flyt_close(server->state_fd);
        server->state_fd = fd;
        snprintf(server->sentence, sizeof server->sentence, "%.1023s", message->data);
        break;
    case FLYT_MANAGER_LINK_LEFT:
        server->left_count++;
        break;
    case FLYT_MANAGER_LINK_RECORD:
        flyt_call_record_unmap(server->record);
        server->record = NULL;
        flyt_call_record_map(fd, &server->record);
        flyt_close(fd);
        break;
    default:
        break;
    }
}

static void *listen_to(void *user)
{
    struct fake_server *server = user;
    struct flyt_manager_link_message *message = malloc(sizeof *message);
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count;
    while (message && flyt_manager_link_receive(server->link_fd, message, fds, &fd_count) == 0) {
        pthread_mutex_lock(&server->mutex);
        take_locked(server, message, fd_count ? fds[0] : -1);
        pthread_cond_broadcast(&server->changed);
        pthread_mutex_unlock(&server->mutex);
    }
    free(message);
    pthread_mutex_lock(&server->mutex);
    server->is_hung_up = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
    return NULL;
}

void fake_server_listen(struct fake_server *server, int link_fd)
{
    server->link_fd = link_fd;
    server->is_hung_up = false;
    assert_int_equal(pthread_create(&server->thread, NULL, listen_to, server), 0);
    server->has_thread = true;
}

static void run_server(const char *const *arguments, int link_fd)
{
    char self[4096], path[4200];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    if (bytes < 0)
        _exit(126);
    self[bytes] = 0;
    *strstr(self, "/cpu/server/") = 0; /* the build's folder */
    snprintf(path, sizeof path, "%s/bin/flyt-server", self);
    const char *argv[ARGUMENTS_MAX] = {path, "--serve", getenv("FAKE_IMAGES"), "--gpu", "0", "--group-size", "8"};
    unsigned count = 7;
    while (*arguments && count < ARGUMENTS_MAX - 1)
        argv[count++] = *arguments++;
    if (dup2(link_fd, FLYT_MANAGER_LINK_FD) < 0)
        _exit(126);
    if (link_fd == FLYT_MANAGER_LINK_FD)
        fcntl(link_fd, F_SETFD, 0);
    execv(path, (char *const *)argv);
    _exit(126);
}

void fake_server_start(struct fake_server *server, const char *const *arguments)
{
    int fds[2];
    *server = (struct fake_server){.pid = -1, .made_fd = -1, .state_fd = -1};
    pthread_mutex_init(&server->mutex, NULL);
    pthread_cond_init(&server->changed, NULL);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    server->pid = fork();
    assert_true(server->pid >= 0);
    if (server->pid == 0)
        run_server(arguments, fds[1]);
    close(fds[1]);
    fake_server_listen(server, fds[0]);
    pthread_mutex_lock(&server->mutex);
    while (!server->is_ready && !server->is_failed && !server->is_hung_up)
        pthread_cond_wait(&server->changed, &server->mutex);
    pthread_mutex_unlock(&server->mutex);
}

void fake_server_leave(struct fake_server *server)
{
    shutdown(server->link_fd, SHUT_RDWR);
    if (server->has_thread)
        pthread_join(server->thread, NULL);
    server->has_thread = false;
    server->link_fd = flyt_close(server->link_fd);
}

/* Waits until the process has ended. Its wait status. */
static int reap(struct fake_server *server)
{
    int status = -1;
    assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
    server->pid = -1;
    return status;
}

int fake_server_end(struct fake_server *server)
{
    int status = reap(server);
    fake_server_leave(server);
    for (unsigned i = 0; i < server->extent_count; i++)
        close(server->extents[i].fd);
    server->made_fd = flyt_close(server->made_fd);
    server->state_fd = flyt_close(server->state_fd);
    flyt_call_record_unmap(server->record);
    server->record = NULL;
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->mutex);
    return status;
}

void fake_server_send(struct fake_server *server, enum flyt_manager_link_kind kind, const void *part, size_t part_bytes,
                      const char *sentence)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    assert_non_null(message);
    message->kind = kind;
    if (part)
        memcpy(&message->ready, part, part_bytes);
    flyt_manager_link_say(message, sentence);
    assert_int_equal(flyt_manager_link_send(server->link_fd, message, NULL, 0), 0);
    free(message);
}

void fake_server_post(struct fake_server *server, const struct flyt_manager_link_message *message, int fd)
{
    assert_int_equal(flyt_manager_link_send(server->link_fd, message, &fd, fd >= 0), 0);
}

void fake_server_post_all(struct fake_server *server, const struct flyt_manager_link_message *message, const int *fds,
                          unsigned fd_count)
{
    assert_int_equal(flyt_manager_link_send(server->link_fd, message, fds, fd_count), 0);
}

void fake_server_kill(struct fake_server *server)
{
    assert_int_equal(kill(server->pid, SIGKILL), 0);
    int status = reap(server);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    fake_server_wait_true(server, &server->is_hung_up);
    fake_server_leave(server);
}

void fake_server_abandon(struct fake_server *server)
{
    if (server->pid > 0) {
        kill(server->pid, SIGKILL);
        reap(server);
    }
    if (server->has_thread)
        fake_server_leave(server);
}

void fake_server_give_one(struct fake_server *server, const struct flyt_manager_link_extent *extent, int fd)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    assert_non_null(message);
    message->kind = FLYT_MANAGER_LINK_GIVE;
    message->extent = *extent;
    assert_int_equal(flyt_manager_link_send(server->link_fd, message, &fd, 1), 0);
    free(message);
}

static struct flyt_manager_link_resume describe(const struct fake_server *before)
{
    struct flyt_manager_link_resume resume = {.extent_count = before->extent_count};
    for (unsigned i = 0; i < before->extent_count; i++)
        if (before->extents[i].extent_id > resume.last_extent_id)
            resume.last_extent_id = before->extents[i].extent_id;
    return resume;
}

static void give_extents(struct fake_server *server, const struct fake_server *before)
{
    for (unsigned i = 0; i < before->extent_count; i++) {
        const struct fake_extent *held = &before->extents[i];
        const struct flyt_manager_link_extent extent = {held->extent_id, held->bytes, held->address, held->slot, 0};
        fake_server_give_one(server, &extent, held->fd);
    }
}

void fake_server_give_ahead(struct fake_server *server, struct fake_server *before)
{
    pthread_mutex_lock(&before->mutex);
    struct flyt_manager_link_resume resume = describe(before);
    resume.is_ahead = 1;
    fake_server_send(server, FLYT_MANAGER_LINK_RESUME, &resume, sizeof resume, NULL);
    give_extents(server, before);
    pthread_mutex_unlock(&before->mutex);
    server->is_given_ahead = true;
}

void fake_server_give(struct fake_server *server, struct fake_server *before)
{
    struct flyt_manager_link_resume resume = describe(before);
    if (before->record) {
        const struct flyt_call_state left_at = flyt_call_record_read(before->record);
        resume.has_record = 1;
        resume.begun = left_at.begun;
        resume.executed = left_at.executed;
        resume.completed = left_at.completed;
        resume.error_count = left_at.error_count;
    }
    fake_server_send(server, FLYT_MANAGER_LINK_RESUME, &resume, sizeof resume, NULL);
    if (!server->is_given_ahead)
        give_extents(server, before);
    pthread_mutex_lock(&server->mutex);
    memcpy(server->extents, before->extents, sizeof server->extents);
    server->extent_count = before->extent_count;
    pthread_mutex_unlock(&server->mutex);
    before->extent_count = 0;
}

static bool wait_locked(struct fake_server *server)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    return pthread_cond_timedwait(&server->changed, &server->mutex, &until) == 0;
}

void fake_server_wait(struct fake_server *server, const unsigned *number, unsigned expected)
{
    bool is_there = true;
    pthread_mutex_lock(&server->mutex);
    while (*number < expected && is_there)
        is_there = wait_locked(server);
    pthread_mutex_unlock(&server->mutex);
    assert_true(is_there);
}

void fake_server_wait_true(struct fake_server *server, const bool *what)
{
    bool is_there = true;
    pthread_mutex_lock(&server->mutex);
    while (!*what && is_there)
        is_there = wait_locked(server);
    pthread_mutex_unlock(&server->mutex);
    assert_true(is_there);
}

void fake_server_send_move(struct fake_server *server, enum flyt_manager_link_kind kind, uint64_t move_id,
                           uint64_t timeout_us)
{
    const struct flyt_manager_link_stop stop = {.move_id = move_id, .timeout_us = timeout_us};
    fake_server_send(server, kind, &stop, sizeof stop, NULL);
}

void fake_server_wait_phase(struct fake_server *server, uint64_t move_id, uint32_t phase)
{
    bool is_there = true;
    pthread_mutex_lock(&server->mutex);
    while ((server->move_state.phase != phase || server->move_state.move_id != move_id) && is_there)
        is_there = wait_locked(server);
    pthread_mutex_unlock(&server->mutex);
    assert_true(is_there);
}

void fake_server_finish(struct fake_server *server)
{
    fake_server_wait_true(server, &server->is_returned);
    assert_string_equal(server->sentence, "");
    assert_int_equal(fake_server_end(server), 0);
}

void fake_server_forget(struct fake_server *server)
{
    for (unsigned i = 0; i < server->extent_count; i++)
        close(server->extents[i].fd);
    server->extent_count = 0;
    flyt_call_record_unmap(server->record);
    server->record = NULL;
}

struct flyt_manager_link_resume fake_server_resume(const struct fake_server *server)
{
    struct flyt_manager_link_resume resume = {.extent_count = server->extent_count, .is_made = 1};
    for (unsigned i = 0; i < server->extent_count; i++)
        if (server->extents[i].extent_id > resume.last_extent_id)
            resume.last_extent_id = server->extents[i].extent_id;
    return resume;
}

struct flyt_manager_link_extent fake_extent_told(const struct fake_extent *extent)
{
    return (struct flyt_manager_link_extent){extent->extent_id, extent->bytes, extent->address, extent->slot, 0};
}

void fake_server_make(struct fake_server *server, const struct flyt_manager_link_extent *extent)
{
    unsigned before = server->made_count;
    fake_server_send(server, FLYT_MANAGER_LINK_MAKE, extent, sizeof *extent, NULL);
    fake_server_wait(server, &server->made_count, before + 1);
}

void fake_server_post_state(struct fake_server *server, uint64_t move_id, int fd)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    assert_non_null(message);
    message->kind = FLYT_MANAGER_LINK_STATE;
    message->stop.move_id = move_id;
    fake_server_post(server, message, fd);
    free(message);
}

int32_t fake_server_await_state(struct fake_server *server, uint64_t move_id, unsigned count)
{
    fake_server_wait(server, &server->prepared_count, count);
    assert_true(server->prepared.move_id == move_id);
    return server->prepared.outcome;
}

/* ---- the listener ---- */

static void hand_over(struct fake_listener *listener, int fd, const flyt_handshake_args *args, const unsigned char *key,
                      const void *record, size_t bytes)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    struct fake_server *server = listener->server;
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX] = {fd};
    unsigned fd_count = 1;
    message->kind = FLYT_MANAGER_LINK_DATA;
    if (args->kind != FLYT_CONNECTION_DATA && listener->take_back_id) {
        message->kind = FLYT_MANAGER_LINK_TAKE_BACK;
        message->stop.move_id = listener->take_back_id;
        memcpy(message->stop.channel_key, key, FLYT_KEY_BYTES);
    } else if (args->kind != FLYT_CONNECTION_DATA) {
        message->kind = FLYT_MANAGER_LINK_SESSION;
        message->session = listener->session;
        memcpy(message->session.channel_key, key, FLYT_KEY_BYTES);
        for (unsigned i = 0; i < listener->session.ledger_count; i++)
            fds[fd_count++] = flyt_ledger_fd(server->ledgers[i]);
    } else {
        memcpy(message->stream.channel_key, key, FLYT_KEY_BYTES);
        atomic_fetch_add(&listener->stream_count, 1);
    }
    message->data_bytes = (uint32_t)bytes;
    memcpy(message->data, record, bytes);
    flyt_manager_link_send(server->link_fd, message, fds, fd_count);
    free(message);
    close(fd);
}

static void take_plain(void *user, int fd, const void *record, size_t bytes)
{
    static const unsigned char no_key[FLYT_KEY_BYTES];
    flyt_handshake_args args = {0};
    uint32_t xid;
    if (flyt_handshake_decode(record, bytes, &xid, &args) != 0) {
        close(fd);
        return;
    }
    hand_over(user, fd, &args, no_key, record, bytes);
    xdr_free((xdrproc_t)xdr_flyt_handshake_args, &args);
}

static bool is_challenged(void *user, const flyt_handshake_args *args)
{
    return ((struct fake_listener *)user)->is_challenging;
}

static void take_answer(void *user, int fd, const struct flyt_greeter_answer *answer, const void *record, size_t bytes)
{
    struct fake_listener *listener = user;
    unsigned char key[FLYT_KEY_BYTES];
    flyt_ticket_channel_key(listener->secret, answer->challenge, answer->record_hash, key);
    hand_over(listener, fd, answer->args, key, record, bytes);
}

static void *run_listener(void *user)
{
    struct fake_listener *listener = user;
    while (!atomic_load(&listener->is_ending)) {
        struct pollfd ready = {.fd = flyt_greeter_fd(listener->greeter), .events = POLLIN};
        if (poll(&ready, 1, 20) > 0)
            flyt_greeter_process(listener->greeter);
    }
    return NULL;
}

void fake_listener_open(struct fake_listener *listener)
{
    const struct flyt_greeter_config config = {
        .handshake = take_plain, .is_challenged = is_challenged, .answer = take_answer, .user = listener};
    struct flyt_error err;
    assert_int_equal(flyt_listen("tcp://127.0.0.1:0", &err, &listener->listen_fd, listener->url), 0);
    assert_int_equal(flyt_greeter_new(&config, &listener->greeter), 0);
    assert_int_equal(flyt_greeter_listen(listener->greeter, listener->listen_fd), 0);
    assert_int_equal(pthread_create(&listener->thread, NULL, run_listener, listener), 0);
}

void fake_listener_close(struct fake_listener *listener)
{
    atomic_store(&listener->is_ending, true);
    pthread_join(listener->thread, NULL);
    flyt_greeter_free(listener->greeter);
    close(listener->listen_fd);
}

void fake_listener_grant_again(struct fake_listener *listener, struct fake_server *server, struct fake_server *before)
{
    uint64_t bytes = 0;
    listener->server = server;
    server->server_id = before->server_id + 1000;
    server->ledgers[0] = before->ledgers[0];
    listener->session.server_id = server->server_id;
    for (unsigned i = 0; i < server->extent_count; i++)
        bytes += server->extents[i].bytes;
    assert_int_equal(flyt_ledger_reclaim(server->ledgers[0], before->server_id, NULL), 0);
    assert_int_equal(flyt_ledger_join(server->ledgers[0], server->server_id), 0);
    assert_int_equal(flyt_ledger_charge(server->ledgers[0], server->server_id, bytes), 0);
}

void fake_listener_grant(struct fake_listener *listener, struct fake_server *server, struct flyt_ledger *ledger,
                         uint64_t limit_bytes)
{
    static uint64_t last_id = 40;
    listener->server = server;
    server->server_id = ++last_id;
    server->ledgers[0] = ledger;
    listener->session = (struct flyt_manager_link_session){.session_id = last_id + 1000,
                                                           .server_id = last_id,
                                                           .allocation_id = 7,
                                                           .slot_count = 1,
                                                           .ledger_count = 1,
                                                           .group_size = 8,
                                                           .client_lost_s = 60,
                                                           .slots = {{.memory_bytes = limit_bytes, .sm_count = 24}}};
    memset(listener->session.rejoin_secret, 0x5a, sizeof listener->session.rejoin_secret);
    memset(listener->session.token, (int)last_id, sizeof listener->session.token);
    for (unsigned i = 0; i < 3; i++)
        flyt_manager_link_add_group(listener->session.slots[0].groups, 2 * i + 1);
    assert_int_equal(flyt_ledger_join(ledger, server->server_id), 0);
}
