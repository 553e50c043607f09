/*
 * For tests of the channel: a listener before a test peer, over TCP, that challenges who comes in, lets in who knows
 * its secret, and encrypts what comes after.
 */
#ifndef FLYT_TRANSPORT_TEST_LISTENER_H
#define FLYT_TRANSPORT_TEST_LISTENER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "rpc/base/url.h"
#include "rpc/transport/channel.h"
#include "rpc/transport/test_peer.h"

struct flyt_greeter;

/* Zero before test_listener_open. */
struct test_listener {
    struct flyt_channel_credentials credentials; /* with which it lets in */
    char url[FLYT_URL_TEXT_BYTES];
    struct flyt_greeter *greeter; /* NULL: it is not open */
    struct test_peer *peer;

    int listen_fd;
    pthread_t thread;
    _Atomic(bool) is_ending;
};

/* Opens it before a peer, which has been started. Fails the test where that is not possible. */
void test_listener_open(struct test_listener *listener, struct test_peer *peer);
/* When the channels are closed, and before the peer is stopped. */
void test_listener_shut(struct test_listener *listener);
/* Both, of one that it makes; NULL is allowed. */
struct test_listener *test_listener_new(struct test_peer *peer);
void test_listener_free(struct test_listener *listener);

#endif
