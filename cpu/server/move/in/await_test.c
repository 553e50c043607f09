/* A server that waits for the next node manager (await.h), which the test plays. Nothing of CUDA is called. */
#include "cpu/server/move/in/await.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/move/in/adopted_extents.h"
#include "cpu/server/move/in/prepare.h"
#include "cpu/server/core/session.h"
#include "rpc/base/descriptors.h"

enum { MOVE_ID = 7, SHORT_MS = 300, LONG_MS = 600000 };

struct fixture {
    struct flyt_session session;
    struct flyt_prepare prepare;
    struct flyt_adopted_extents adopted;
    struct flyt_manager_link_message message; /* the server's */
    char folder[64];
    int listen_fd;
    pthread_t thread;
    struct flyt_manager_link_message heard; /* the node manager's */
    uint32_t answer;                        /* its last one */
    bool is_slow;                           /* the first one answers, when the server would wait for one no longer */
};

static int set_up(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    struct flyt_prepare *prepare = self->session.prepare = &self->prepare;
    strcpy(self->folder, "/var/tmp/flyt-await_test-XXXXXX");
    assert_non_null(mkdtemp(self->folder));
    self->listen_fd = -1;
    *prepare = (struct flyt_prepare){.is_begun = true,
                                     .has_state = true,
                                     .has_stopped = true,
                                     .sequence = 17,
                                     .error_count = 3,
                                     .received_move_id = MOVE_ID,
                                     .granted = {.session_id = 5, .slot_count = 1},
                                     .awaited = {.client_pid = 99}};
    snprintf(prepare->granted.rejoin_path, sizeof prepare->granted.rejoin_path, "%s/link", self->folder);
    memset(prepare->awaited.rejoin_secret, 0x5a, sizeof prepare->awaited.rejoin_secret);
    self->adopted =
        (struct flyt_adopted_extents){.is_prepared = true, .is_resume = true, .resume = {.last_extent_id = 1}};
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *self = *state;
    flyt_close(self->listen_fd);
    unlink(self->session.prepare->granted.rejoin_path);
    assert_int_equal(rmdir(self->folder), 0);
    free(self);
    return 0;
}

static void only_what_was_received_and_is_told_how_waits(void **state)
{
    struct fixture *self = *state;
    struct flyt_prepare *prepare = self->session.prepare;
    const struct flyt_prepare whole = *prepare;
    assert_true(flyt_await_may(&self->session));
    prepare->has_state = false;
    assert_false(flyt_await_may(&self->session));
    *prepare = whole;
    prepare->received_move_id = 0;
    assert_false(flyt_await_may(&self->session));
    *prepare = whole;
    *prepare->granted.rejoin_path = 0;
    assert_false(flyt_await_may(&self->session));
    *prepare = whole;
    memset(prepare->awaited.rejoin_secret, 0, sizeof prepare->awaited.rejoin_secret);
    assert_false(flyt_await_may(&self->session));
}

static void it_does_not_wait_for_ever(void **state)
{
    struct fixture *self = *state;
    int link_fd = -1;
    assert_int_equal(flyt_await(&self->session, &self->adopted, &self->message, SHORT_MS, LONG_MS, &link_fd),
                     -ETIMEDOUT);
    /* There is one, which never answers. */
    self->listen_fd = flyt_manager_link_listen(self->session.prepare->granted.rejoin_path);
    assert_true(self->listen_fd >= 0);
    assert_int_equal(flyt_await(&self->session, &self->adopted, &self->message, LONG_MS, SHORT_MS, &link_fd),
                     -ETIMEDOUT);
    assert_int_equal(link_fd, -1);
}

/* One that comes. The descriptor; -1: what it says is not what it should. */
static int accept_one(struct fixture *self)
{
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;
    struct pollfd ready = {.fd = self->listen_fd, .events = POLLIN};
    int fd = poll(&ready, 1, -1) == 1 ? accept4(self->listen_fd, NULL, NULL, SOCK_CLOEXEC) : -1;
    const struct flyt_manager_link_rejoin *rejoin = &self->heard.rejoin;
    if (fd >= 0 && flyt_manager_link_receive(fd, &self->heard, fds, &fd_count) == 0 &&
        self->heard.kind == FLYT_MANAGER_LINK_REJOIN && rejoin->received_move_id == MOVE_ID &&
        rejoin->session.session_id == 5 && rejoin->client_pid == 99)
        return fd;
    flyt_close(fd);
    return -1;
}

/* The first one goes without a word, unless it is slow, the second one answers. What it hears last: 0: nothing. */
static void *play_node_managers(void *user)
{
    struct fixture *self = user;
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;
    if (!self->is_slow)
        flyt_close(accept_one(self));
    int fd = accept_one(self);
    if (self->is_slow)
        poll(NULL, 0, 2 * SHORT_MS);
    self->heard.kind = self->answer;
    flyt_manager_link_say(&self->heard, NULL);
    self->heard.welcome = (struct flyt_manager_link_welcome){.send_extents = 1};
    if (fd < 0 || flyt_manager_link_send(fd, &self->heard, NULL, 0) != 0 ||
        flyt_manager_link_receive(fd, &self->heard, fds, &fd_count) != 0)
        self->heard.kind = 0;
    flyt_close(fd);
    return NULL;
}

static void it_finds_the_next_one(void **state)
{
    struct fixture *self = *state;
    self->listen_fd = flyt_manager_link_listen(self->session.prepare->granted.rejoin_path);
    assert_true(self->listen_fd >= 0);
    for (unsigned i = 0; i < 3; i++) {
        static const uint32_t answers[] = {FLYT_MANAGER_LINK_WELCOME, FLYT_MANAGER_LINK_GO, FLYT_MANAGER_LINK_KILL};
        int link_fd = -1;
        self->answer = answers[i];
        assert_int_equal(pthread_create(&self->thread, NULL, play_node_managers, self), 0);
        int status = flyt_await(&self->session, &self->adopted, &self->message, LONG_MS, LONG_MS, &link_fd);
        assert_int_equal(pthread_join(self->thread, NULL), 0);
        assert_int_equal(status, i ? -ECANCELED : 0);
        assert_true((link_fd >= 0) == !i);
        assert_int_equal(self->heard.kind, i ? 0 : FLYT_MANAGER_LINK_PREPARED);
        if (!i) {
            const struct flyt_manager_link_prepared *prepared = &self->heard.prepared;
            assert_true(prepared->move_id == MOVE_ID && prepared->sequence == 17 && !prepared->outcome);
            assert_true(prepared->has_stopped == 1 && prepared->error_count == 3);
        }
        assert_false(self->adopted.is_resume); /* it comes once more */
        flyt_close(link_fd);
    }
}

/* One that waits for other servers before it answers is there: that is no time without one. */
static void it_hears_one_that_takes_long(void **state)
{
    struct fixture *self = *state;
    int link_fd = -1;
    self->listen_fd = flyt_manager_link_listen(self->session.prepare->granted.rejoin_path);
    assert_true(self->listen_fd >= 0);
    self->is_slow = true;
    self->answer = FLYT_MANAGER_LINK_WELCOME;
    assert_int_equal(pthread_create(&self->thread, NULL, play_node_managers, self), 0);
    int status = flyt_await(&self->session, &self->adopted, &self->message, SHORT_MS, LONG_MS, &link_fd);
    assert_int_equal(pthread_join(self->thread, NULL), 0);
    assert_int_equal(status, 0);
    assert_true(link_fd >= 0);
    assert_int_equal(self->heard.kind, FLYT_MANAGER_LINK_PREPARED);
    flyt_close(link_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(only_what_was_received_and_is_told_how_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_does_not_wait_for_ever, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_finds_the_next_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_hears_one_that_takes_long, set_up, tear_down),
    };
    setenv("FLYT_LOG", "error", 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
