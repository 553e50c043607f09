/* The client's side of a challenge: right and wrong secrets, none at all, against a listener that checks proofs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <errno.h>
#include "rpc/transport/channel.h"
#include "rpc/transport/greeter.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/test_client.h"

struct listener {
    struct flyt_greeter *greeter;
    char url[FLYT_URL_TEXT_BYTES];
    unsigned char secret[FLYT_TICKET_KEY_BYTES];
    char credentials[64]; /* as the last answer had them */
    size_t credentials_bytes;
    _Atomic(bool) is_ending, has_ended; /* the latter: the session that waited there */
};

static void take_plain(void *user, int fd, const void *record, size_t bytes)
{
    struct listener *listener = user;

    if (atomic_load(&listener->has_ended))
        flyt_handshake_refuse(fd, 0, FLYT_HANDSHAKE_NO_SESSION, "the session was ended");
    else
        flyt_handshake_refuse(fd, 0, FLYT_HANDSHAKE_DENIED, "no credentials");
    close(fd);
}

static bool has_credentials(void *user, const flyt_handshake_args *args)
{
    return args->credentials.credentials_len != 1; /* "-": handed over without a challenge */
}

static void take_answer(void *user, int fd, const struct flyt_greeter_answer *answer, const void *record, size_t bytes)
{
    struct listener *listener = user;
    unsigned char proof[FLYT_TICKET_KEY_BYTES];

    flyt_ticket_proof(listener->secret, answer->challenge, answer->record_hash, proof);
    bool is_right = answer->args->proof.flyt_late_bytes_len == sizeof proof &&
                    flyt_equal_in_constant_time(proof, answer->args->proof.flyt_late_bytes_val, sizeof proof);
    listener->credentials_bytes = answer->args->credentials.credentials_len;
    memcpy(listener->credentials, answer->args->credentials.credentials_val, listener->credentials_bytes);
    flyt_handshake_refuse(fd, answer->xid, FLYT_HANDSHAKE_BUSY, is_right ? "proved" : "not proved");
    close(fd);
}

static void *run(void *user)
{
    struct listener *listener = user;

    while (!atomic_load(&listener->is_ending)) {
        struct pollfd ready = {.fd = flyt_greeter_fd(listener->greeter), .events = POLLIN};
        if (poll(&ready, 1, 20) > 0)
            flyt_greeter_process(listener->greeter);
    }
    return NULL;
}

/* Opens a channel, which fails, and returns the sentence. */
static void open_and_fail(const struct listener *listener, const struct flyt_channel_credentials *credentials, int code,
                          const char *word)
{
    struct test_client client;
    struct flyt_error err = {0};
    struct flyt_channel *channel;

    test_client_init(&client);
    client.config.url = listener->url;
    client.config.credentials = credentials;
    assert_int_equal(flyt_channel_open(&client.config, &err, &channel), code);
    if (!strstr(err.text, word))
        fail_msg("not \"%s\": %s", word, err.text);
    test_client_fini(&client);
}

static void secrets_are_proved(void **state)
{
    struct listener listener = {.is_ending = false};
    struct flyt_greeter_config config = {
        .handshake = take_plain, .is_challenged = has_credentials, .answer = take_answer, .user = &listener};
    struct flyt_channel_credentials credentials = {.data = "me", .bytes = 2};
    struct flyt_error err;
    pthread_t thread;
    int listen_fd;

    memset(listener.secret, 7, sizeof listener.secret);
    memset(credentials.secret, 7, sizeof credentials.secret);
    assert_int_equal(flyt_listen("tcp://127.0.0.1:0", &err, &listen_fd, listener.url), 0);
    assert_int_equal(flyt_greeter_new(&config, &listener.greeter), 0);
    assert_int_equal(flyt_greeter_listen(listener.greeter, listen_fd), 0);
    assert_int_equal(pthread_create(&thread, NULL, run, &listener), 0);

    open_and_fail(&listener, &credentials, -EBUSY, ": proved");
    assert_int_equal(listener.credentials_bytes, 2);
    assert_memory_equal(listener.credentials, "me", 2);
    credentials.secret[31] ^= 1;
    open_and_fail(&listener, &credentials, -EBUSY, "not proved");
    open_and_fail(&listener, NULL, -EACCES, "it wants credentials");
    credentials.data = "-", credentials.bytes = 1;
    open_and_fail(&listener, &credentials, -EACCES, "no credentials");
    atomic_store(&listener.has_ended, true);
    open_and_fail(&listener, &credentials, -EACCES, "the session was ended");

    atomic_store(&listener.is_ending, true);
    pthread_join(thread, NULL);
    flyt_greeter_free(listener.greeter);
    close(listen_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(secrets_are_proved)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
