#include "rpc/transport/test_listener.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "rpc/transport/greeter.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/endpoint/listen.h"

static void refuse(void *user, int fd, const void *record, size_t bytes)
{
    flyt_handshake_refuse(fd, 0, FLYT_HANDSHAKE_DENIED, "no credentials");
    close(fd);
}

static bool is_challenged(void *user, const flyt_handshake_args *args)
{
    return true;
}

static void let_in(void *user, int fd, const struct flyt_greeter_answer *answer, const void *record, size_t bytes)
{
    struct test_listener *listener = user;
    unsigned char proof[FLYT_TICKET_KEY_BYTES], key[FLYT_TICKET_KEY_BYTES];
    struct flyt_endpoint *plain, *endpoint;
    struct flyt_error err;

    flyt_ticket_proof(listener->credentials.secret, answer->challenge, answer->record_hash, proof);
    bool is_right = answer->args->proof.flyt_late_bytes_len == sizeof proof &&
                    !memcmp(proof, answer->args->proof.flyt_late_bytes_val, sizeof proof);
    flyt_ticket_channel_key(listener->credentials.secret, answer->challenge, answer->record_hash, key);
    if (!is_right) {
        flyt_handshake_refuse(fd, answer->xid, FLYT_HANDSHAKE_DENIED, "not proved");
        close(fd);
        return;
    }
    flyt_socket_tune(fd);
    if (flyt_endpoint_of_socket(fd, &plain) || flyt_endpoint_expect_encryption(plain, key, &err, &endpoint))
        fail();
    test_peer_take(listener->peer, endpoint, record, bytes);
}

static void *run_listener(void *user)
{
    struct test_listener *listener = user;

    while (!atomic_load(&listener->is_ending)) {
        struct pollfd ready = {.fd = flyt_greeter_fd(listener->greeter), .events = POLLIN};
        if (poll(&ready, 1, 20) > 0)
            flyt_greeter_process(listener->greeter);
    }
    return NULL;
}

void test_listener_open(struct test_listener *listener, struct test_peer *peer)
{
    struct flyt_greeter_config config = {
        .handshake = refuse, .is_challenged = is_challenged, .answer = let_in, .user = listener};
    struct flyt_error err;

    listener->peer = peer;
    listener->credentials = (struct flyt_channel_credentials){.data = "me", .bytes = 2, .is_encrypted = true};
    memset(listener->credentials.secret, 7, sizeof listener->credentials.secret);
    assert_int_equal(flyt_listen("tcp://127.0.0.1:0", &err, &listener->listen_fd, listener->url), 0);
    assert_int_equal(flyt_greeter_new(&config, &listener->greeter), 0);
    assert_int_equal(flyt_greeter_listen(listener->greeter, listener->listen_fd), 0);
    assert_int_equal(pthread_create(&listener->thread, NULL, run_listener, listener), 0);
}

void test_listener_shut(struct test_listener *listener)
{
    atomic_store(&listener->is_ending, true);
    pthread_join(listener->thread, NULL);
    flyt_greeter_free(listener->greeter);
    close(listener->listen_fd);
}

struct test_listener *test_listener_new(struct test_peer *peer)
{
    struct test_listener *listener = calloc(1, sizeof *listener);

    assert_non_null(listener);
    test_listener_open(listener, peer);
    return listener;
}

void test_listener_free(struct test_listener *listener)
{
    if (listener)
        test_listener_shut(listener);
    free(listener);
}
