/* For tests of the channel: handlers that write down what they were called with. */
#ifndef FLYT_TRANSPORT_TEST_CLIENT_H
#define FLYT_TRANSPORT_TEST_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include "rpc/base/clock.h"
#include "rpc/transport/channel.h"

enum { TEST_WAIT_MS = 120000 }; /* for a loaded machine: what is waited for comes */

struct test_client {
    struct flyt_channel_config config; /* signatures and time-out may be set before opening */
    struct flyt_channel *channel;
    unsigned char *place; /* where chunks go, by offset; NULL: thrown away */
    size_t place_bytes;
    bool answers_host_functions;
    /* What makes a session's objects again, in place of one call of each kind; NULL. As flyt_channel_handlers.resume.
     */
    int (*resume)(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err);
    void *test;                     /* the test's */
    struct test_listener *listener; /* test_pair.h */
    _Atomic(uint64_t) chunk_bytes, host_functions, lost_count, resume_count;
    pthread_mutex_t mutex;
    char notices[1024]; /* what was called, in order */
    char lost_cause[512];
};

extern const struct flyt_channel_handlers test_client_handlers;

void test_client_init(struct test_client *client);
void test_client_fini(struct test_client *client);
/* Opens a channel; fails the test where that is not possible. */
void test_client_open(struct test_client *client, const char *url);
/* Waits until *number is `expected` or more; fails the test after a long while, or when it gets larger. */
void test_client_wait(struct test_client *client, _Atomic(uint64_t) *number, uint64_t expected);

/* Waits until the condition holds; fails the test after a long while. */
#define TEST_WAIT_UNTIL(condition)                                                                                     \
    do {                                                                                                               \
        const uint64_t end_ms_ = flyt_clock_ms() + TEST_WAIT_MS;                                                       \
        while (!(condition))                                                                                           \
            test_client_pause(end_ms_, #condition);                                                                    \
    } while (0)
/* Lets a moment pass; fails the test, which waits for `awaited`, where that is over. */
void test_client_pause(uint64_t end_ms, const char *awaited);

#endif
