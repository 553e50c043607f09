#include "rpc/transport/test_door.h"

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
#include "rpc/transport/listen.h"

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
    struct test_door *door = user;
    unsigned char proof[FLYT_TICKET_KEY_BYTES], key[FLYT_TICKET_KEY_BYTES];
    struct flyt_endpoint *plain, *endpoint;
    struct flyt_error err;

    flyt_ticket_proof(door->credentials.secret, answer->challenge, answer->record_hash, proof);
    bool is_right = answer->args->proof.flyt_late_bytes_len == sizeof proof &&
                    !memcmp(proof, answer->args->proof.flyt_late_bytes_val, sizeof proof);
    flyt_ticket_channel_key(door->credentials.secret, answer->challenge, answer->record_hash, key);
    if (!is_right) {
        flyt_handshake_refuse(fd, answer->xid, FLYT_HANDSHAKE_DENIED, "not proved");
        close(fd);
        return;
    }
    flyt_socket_tune(fd);
    if (flyt_endpoint_of_socket(fd, &plain) || flyt_endpoint_expect_encryption(plain, key, &err, &endpoint))
        fail();
    test_peer_take(door->peer, endpoint, record, bytes);
}

static void *run_door(void *user)
{
    struct test_door *door = user;

    while (!atomic_load(&door->is_ending)) {
        struct pollfd ready = {.fd = flyt_greeter_fd(door->greeter), .events = POLLIN};
        if (poll(&ready, 1, 20) > 0)
            flyt_greeter_process(door->greeter);
    }
    return NULL;
}

void test_door_open(struct test_door *door, struct test_peer *peer)
{
    struct flyt_greeter_config config = {
        .handshake = refuse, .is_challenged = is_challenged, .answer = let_in, .user = door};
    struct flyt_error err;

    door->peer = peer;
    door->credentials = (struct flyt_channel_credentials){.data = "me", .bytes = 2, .is_encrypted = true};
    memset(door->credentials.secret, 7, sizeof door->credentials.secret);
    assert_int_equal(flyt_listen("tcp://127.0.0.1:0", &err, &door->listen_fd, door->url), 0);
    assert_int_equal(flyt_greeter_new(&config, &door->greeter), 0);
    assert_int_equal(flyt_greeter_listen(door->greeter, door->listen_fd), 0);
    assert_int_equal(pthread_create(&door->thread, NULL, run_door, door), 0);
}

void test_door_shut(struct test_door *door)
{
    atomic_store(&door->is_ending, true);
    pthread_join(door->thread, NULL);
    flyt_greeter_free(door->greeter);
    close(door->listen_fd);
}

struct test_door *test_door_new(struct test_peer *peer)
{
    struct test_door *door = calloc(1, sizeof *door);

    assert_non_null(door);
    test_door_open(door, peer);
    return door;
}

void test_door_free(struct test_door *door)
{
    if (door)
        test_door_shut(door);
    free(door);
}
