/* For tests of the channel: a peer in the test's process and a client with a channel to it, both of which exist. */
#ifndef FLYT_TRANSPORT_TEST_PAIR_H
#define FLYT_TRANSPORT_TEST_PAIR_H

#include <string.h>
#include "rpc/transport/test_client.h"
#include "rpc/transport/test_listener.h"
#include "rpc/transport/test_peer.h"

/* Starts the peer as test_peer_start_on does, "tls" behind a listener, and opens the channel. Fails the test where that
 * is not possible. */
static inline void test_pair_open(struct test_peer *peer, struct test_client *client, const char *scheme)
{
    test_peer_start_on(peer, scheme);
    if (!strcmp(scheme, "tls")) {
        client->listener = test_listener_new(peer);
        client->config.credentials = &client->listener->credentials;
    }
    client->config.dial = peer->dial;
    client->config.dial_user = peer;
    test_client_open(client, client->listener ? client->listener->url : peer->url);
}

/* Closes the channel, where the test has not, and ends both. */
static inline void test_pair_close(struct test_peer *peer, struct test_client *client)
{
    flyt_channel_close(client->channel);
    test_listener_free(client->listener);
    test_peer_stop(peer);
    test_client_fini(client);
}

#endif
