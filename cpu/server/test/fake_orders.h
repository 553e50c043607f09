/*
 * For tests: a session that has a node manager, of which the test is the other end: it orders SM groups and hears what
 * the session answers. To be included by one source file, which has cmocka's headers.
 */
#ifndef FLYT_SERVER_FAKE_ORDERS_H
#define FLYT_SERVER_FAKE_ORDERS_H

#include <errno.h>

#include "cpu/server/test/fake_client.h"

enum { GROUP_SIZE = 8, GROUPS = 8 };

struct managed {
    struct fixture *client;
    struct flyt_manager manager;
    int fd; /* the node manager's end of the link */
    struct flyt_manager_link_message message;
    uint64_t revision;
};

static inline int begin(void **state)
{
    struct managed *self = calloc(1, sizeof *self);
    struct flyt_manager_link_session granted = {.session_id = 1, .slot_count = 1, .group_size = GROUP_SIZE};
    int fds[2];
    assert_non_null(self);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    const struct timeval limit = {.tv_sec = 20};
    setsockopt(fds[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    self->fd = fds[0];
    self->client = make();
    assert_int_equal(flyt_manager_open(&self->manager, fds[1], &granted, NULL), 0);
    self->client->session.manager = &self->manager;
    self->client->session.clock_ns = flyt_fake_clock_ns;
    flyt_fake_be_exact();
    assert_int_equal(pthread_create(&self->client->thread, NULL, serve, self->client), 0);
    *state = self;
    return 0;
}

static inline int end(void **state)
{
    struct managed *self = *state;
    void *client = self->client;
    tear_down(&client);
    close(self->fd);
    close(flyt_manager_change_link(&self->manager, -1));
    free(self);
    return 0;
}

/* Orders these groups, a bit each. The order's revision. */
static inline uint64_t order(struct managed *self, unsigned groups)
{
    struct flyt_manager_link_message message = {.kind = FLYT_MANAGER_LINK_SM};
    unsigned sms = 0;
    for (unsigned i = 0; i < 8 * sizeof groups; i++) {
        if (!(groups >> i & 1))
            continue;
        flyt_manager_link_add_group(message.sm.groups, i);
        sms += GROUP_SIZE;
    }
    message.sm.revision = ++self->revision;
    message.sm.sm_count = sms;
    assert_int_equal(flyt_manager_leave_order(&self->manager, &message), 0);
    flyt_session_kick(&self->client->session);
    return self->revision;
}

/* The next answer to an order. */
static inline void expect(struct managed *self, uint64_t revision, int state)
{
    do
        hear(self->fd, &self->message);
    while (self->message.kind != FLYT_MANAGER_LINK_SM_DONE);
    assert_int_equal(self->message.sm_done.revision, revision);
    assert_int_equal(self->message.sm_done.state, state);
}

static inline void assert_nothing_heard(struct managed *self)
{
    ssize_t bytes;
    while ((bytes = recv(self->fd, &self->message, sizeof self->message, MSG_DONTWAIT)) > 0)
        assert_int_not_equal(self->message.kind, FLYT_MANAGER_LINK_SM_DONE);
    assert_int_equal(errno, EAGAIN);
}

static inline void expect_nothing(struct managed *self)
{
    /* Several rounds of the loop have passed. */
    for (unsigned i = 0; i < 5; i++)
        barrier(self->client);
    assert_nothing_heard(self);
}

static inline void resize(struct managed *self, unsigned groups)
{
    uint64_t revision = order(self, groups);
    expect(self, revision, FLYT_MANAGER_LINK_SWITCHED);
    expect(self, revision, FLYT_MANAGER_LINK_VACATED);
}

#endif
