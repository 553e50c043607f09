/* Tests of connections to another node's listener (dial.h), with listeners of which some do not behave. */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/ops/dial.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/ticket.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/greeter.h"
#include "rpc/transport/handshake.h"

enum { WAIT_MS = 60000, DIALS = 48, LONG_MS = 600000, SHORT_MS = 50 };

static const unsigned char secret[FLYT_TICKET_KEY_BYTES] = "a secret of the migration's own";

/* What the listener does when a handshake has come. */
enum manner { TAKES, REFUSES, IS_BUSY, IS_SILENT, CUTS, CUTS_AN_ANSWER, TALKS_NONSENSE, TALKS_WITHOUT_END, TRUSTS };

struct outcome {
    struct flyt_node_dial *dial;
    bool is_told;
    int status;
    char sentence[512];
};

struct listener {
    sd_event *event;
    struct flyt_greeter *greeter;
    enum manner manner;
    int listen_fd;
    char url[FLYT_URL_TEXT_BYTES];
    int fds[DIALS]; /* that it has taken */
    unsigned char keys[DIALS][FLYT_TICKET_KEY_BYTES];
    unsigned count;
    unsigned came; /* first handshakes */
};

static void answer_ok(int fd, uint32_t xid, const char *behind)
{
    flyt_handshake_res res = {.message = (char *)"", .build = (char *)"listener"};
    unsigned char whole[512];
    void *record;
    size_t bytes;

    assert_int_equal(flyt_handshake_encode_reply(xid, &res, &record, &bytes), 0);
    memcpy(whole, record, bytes);
    memcpy(whole + bytes, behind, strlen(behind));
    bytes += strlen(behind);
    assert_int_equal(send(fd, whole, bytes, MSG_NOSIGNAL), bytes);
    free(record);
}

static void keep(struct listener *listener, int fd)
{
    assert_true(listener->count < DIALS);
    listener->fds[listener->count++] = fd;
}

/* A handshake that is not challenged. */
static void on_stranger(void *user, int fd, const void *record, size_t bytes)
{
    static const unsigned char nonsense[] = {0x80, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8}, endless[] = {0x80, 1, 0, 0};
    struct listener *listener = user;
    flyt_handshake_args args;
    uint32_t xid;

    listener->came++;
    assert_int_equal(flyt_handshake_decode(record, bytes, &xid, &args), 0);
    xdr_free((xdrproc_t)xdr_flyt_handshake_args, &args);
    if (listener->manner == TRUSTS)
        answer_ok(fd, xid, "");
    else if (listener->manner == TALKS_NONSENSE)
        assert_int_equal(send(fd, nonsense, sizeof nonsense, MSG_NOSIGNAL), sizeof nonsense);
    else if (listener->manner == TALKS_WITHOUT_END)
        assert_int_equal(send(fd, endless, sizeof endless, MSG_NOSIGNAL), sizeof endless);
    else if (listener->manner == CUTS_AN_ANSWER)
        assert_int_equal(send(fd, nonsense, 7, MSG_NOSIGNAL), 7);
    if (listener->manner == CUTS || listener->manner == CUTS_AN_ANSWER)
        close(fd);
    else
        keep(listener, fd);
}

static bool is_challenged(void *user, const flyt_handshake_args *args)
{
    const struct listener *listener = user;

    return listener->manner <= IS_BUSY;
}

static void on_answer(void *user, int fd, const struct flyt_greeter_answer *answer, const void *record, size_t bytes)
{
    unsigned char proof[FLYT_TICKET_KEY_BYTES];
    struct listener *listener = user;

    listener->came++;
    flyt_ticket_proof(secret, answer->challenge, answer->record_hash, proof);
    bool is_proved = answer->args->proof.flyt_late_bytes_len == sizeof proof &&
                     !memcmp(answer->args->proof.flyt_late_bytes_val, proof, sizeof proof);
    assert_int_equal(answer->args->kind, FLYT_CONNECTION_MIGRATE);
    assert_string_equal(answer->args->program_name, "a program");
    assert_int_equal(answer->args->pid, 4711);
    assert_int_equal(answer->args->token.token_len, FLYT_TOKEN_BYTES);
    assert_memory_equal(answer->args->credentials.credentials_val, "me", 2);
    if (!is_proved || listener->manner == REFUSES) {
        flyt_handshake_refuse(fd, answer->xid, FLYT_HANDSHAKE_DENIED, "no such migration is awaited");
        close(fd);
    } else if (listener->manner == IS_BUSY) {
        flyt_handshake_refuse(fd, answer->xid, FLYT_HANDSHAKE_BUSY, "it has no room");
        close(fd);
    } else {
        flyt_ticket_channel_key(secret, answer->challenge, answer->record_hash, listener->keys[listener->count]);
        keep(listener, fd);
        answer_ok(fd, answer->xid, "behind");
    }
}

static int on_greeter(sd_event_source *source, int fd, uint32_t events, void *user)
{
    assert_int_equal(flyt_greeter_process(((struct listener *)user)->greeter), 0);
    return 0;
}

static void open_listener(struct listener *listener, sd_event *event, enum manner manner, const char *url)
{
    const struct flyt_greeter_config config = {
        .handshake = on_stranger, .is_challenged = is_challenged, .answer = on_answer, .user = listener};
    struct flyt_error err;

    *listener = (struct listener){.event = event, .manner = manner};
    assert_int_equal(flyt_listen(url, &err, &listener->listen_fd, listener->url), 0);
    assert_int_equal(flyt_greeter_new(&config, &listener->greeter), 0);
    assert_int_equal(flyt_greeter_listen(listener->greeter, listener->listen_fd), 0);
    assert_true(sd_event_add_io(event, NULL, flyt_greeter_fd(listener->greeter), EPOLLIN, on_greeter, listener) >= 0);
}

static void close_listener(struct listener *listener)
{
    for (unsigned i = 0; i < listener->count; i++)
        close(listener->fds[i]);
    flyt_greeter_free(listener->greeter);
    close(listener->listen_fd);
}

static void run(sd_event *event)
{
    assert_true(sd_event_run(event, 20000) >= 0);
}

static void on_dialed(void *user, int status, const char *sentence)
{
    struct outcome *outcome = user;

    assert_false(outcome->is_told);
    outcome->is_told = true;
    outcome->status = status;
    snprintf(outcome->sentence, sizeof outcome->sentence, "%s", sentence);
}

static struct flyt_node_resolver *find_way(sd_event *event, char *const *urls, unsigned count)
{
    struct flyt_node_resolver *resolver;
    struct flyt_error err = {0};
    int status;

    if (flyt_node_resolver_new(urls, count, &resolver, &err))
        fail_msg("%s", err.text);
    for (uint64_t until_ms = flyt_clock_ms() + WAIT_MS;
         (status = flyt_node_resolver_look(resolver, &err)) == -EAGAIN && flyt_clock_ms() < until_ms;)
        run(event);
    if (status)
        fail_msg("%s", err.text);
    return resolver;
}

static void begin(sd_event *event, struct flyt_node_resolver *resolver, uint64_t timeout_ms, bool is_forged,
                  struct outcome *outcome)
{
    unsigned char its_secret[FLYT_TICKET_KEY_BYTES];
    char token[FLYT_TOKEN_BYTES] = "its token";
    const flyt_handshake_args args = {.build = (char *)"b",
                                      .program_name = (char *)"a program",
                                      .pid = 4711,
                                      .kind = FLYT_CONNECTION_MIGRATE,
                                      .token = {sizeof token, token},
                                      .credentials = {2, (char *)"me"}};

    memcpy(its_secret, secret, sizeof its_secret);
    its_secret[3] ^= is_forged;
    *outcome = (struct outcome){.status = 1};
    const struct flyt_node_dial_config config = {.resolver = resolver,
                                                 .args = &args,
                                                 .secret = its_secret,
                                                 .timeout_ms = timeout_ms,
                                                 .done = on_dialed,
                                                 .user = outcome};
    assert_int_equal(flyt_node_dial_new(event, &config, &outcome->dial), 0);
    memset(token, 0, sizeof token); /* all was copied */
    memset(its_secret, 0, sizeof its_secret);
    assert_false(outcome->is_told);
}

static void until_told(sd_event *event, const struct outcome *outcome)
{
    for (uint64_t until_ms = flyt_clock_ms() + WAIT_MS; !outcome->is_told && flyt_clock_ms() < until_ms;)
        run(event);
    if (!outcome->is_told)
        fail_msg("nothing has become of it");
}

/* The listener has this one's connection, with the same key, and what it said behind its answer is still to be read. */
static void is_connected(sd_event *event, struct listener *listener, struct outcome *outcome)
{
    unsigned char key[FLYT_TICKET_KEY_BYTES];
    char text[16] = "";
    bool is_found = false;

    until_told(event, outcome);
    if (outcome->status)
        fail_msg("%s", outcome->sentence);
    int fd = flyt_node_dial_take(outcome->dial, key);
    outcome->dial = flyt_node_dial_free(outcome->dial);
    for (unsigned i = 0; i < listener->count; i++)
        is_found |= !memcmp(listener->keys[i], key, sizeof key);
    assert_true(is_found);
    assert_int_equal(recv(fd, text, sizeof text, 0), 6);
    assert_string_equal(text, "behind");
    close(fd);
}

/* A listener, and the way to it that is dialed. */
struct scene {
    sd_event *event;
    struct listener listener;
    struct flyt_node_resolver *resolver;
};

static void open_listener_at(struct scene *scene, enum manner manner, const char *url)
{
    *scene = (struct scene){0};
    assert_true(sd_event_new(&scene->event) >= 0);
    open_listener(&scene->listener, scene->event, manner, url);
}

static void open_scene(struct scene *scene, enum manner manner)
{
    open_listener_at(scene, manner, "tcp://127.0.0.1:0");
    char *urls[] = {scene->listener.url};
    scene->resolver = find_way(scene->event, urls, 1);
}

/* Without its listener: that is closed. */
static void leave_scene(struct scene *scene)
{
    flyt_node_resolver_free(scene->resolver);
    sd_event_unref(scene->event);
}

static void close_scene(struct scene *scene)
{
    close_listener(&scene->listener);
    leave_scene(scene);
}

/* Dials, and is let in. */
static void connects(struct scene *scene)
{
    struct outcome outcome;

    begin(scene->event, scene->resolver, LONG_MS, false, &outcome);
    is_connected(scene->event, &scene->listener, &outcome);
}

static void fails(enum manner manner, uint64_t timeout_ms, bool is_forged, int status, const char *words)
{
    struct outcome outcome;
    struct scene scene;

    open_scene(&scene, manner);
    begin(scene.event, scene.resolver, timeout_ms, is_forged, &outcome);
    until_told(scene.event, &outcome);
    if (outcome.status != status || !strstr(outcome.sentence, words) || !strstr(outcome.sentence, scene.listener.url))
        fail_msg("%d, not %d: %s", outcome.status, status, outcome.sentence);
    assert_true(manner == IS_SILENT || scene.listener.came == 1);
    flyt_node_dial_free(outcome.dial);
    close_scene(&scene);
}

static void test_it_is_taken(void **state)
{
    struct scene scene;

    open_scene(&scene, TAKES);
    connects(&scene);
    close_scene(&scene);
}

static void test_many_at_once(void **state)
{
    struct outcome outcomes[DIALS];
    struct scene scene;

    open_scene(&scene, TAKES);
    for (unsigned i = 0; i < DIALS; i++)
        begin(scene.event, scene.resolver, LONG_MS, false, &outcomes[i]);
    for (unsigned i = 0; i < DIALS; i++)
        is_connected(scene.event, &scene.listener, &outcomes[i]);
    assert_int_equal(scene.listener.count, DIALS);
    close_scene(&scene);
}

static void test_another_address(void **state)
{
    char nobody[FLYT_URL_TEXT_BYTES];
    struct flyt_error err;
    struct scene scene;
    int fd;

    open_listener_at(&scene, TAKES, "tcp://127.0.0.1:0");
    assert_int_equal(flyt_listen("tcp://127.0.0.1:0", &err, &fd, nobody), 0);
    close(fd);
    /* A unix socket is this machine's: it is not tried where there is another one; vsock is its guests'. */
    char *urls[] = {(char *)"unix:///nowhere/at/all", (char *)"vsock://2:1", nobody, (char *)"nonsense",
                    scene.listener.url};
    scene.resolver = find_way(scene.event, urls, 5);
    assert_int_equal(flyt_node_resolver_count(scene.resolver), 2);
    connects(&scene);
    assert_int_equal(flyt_node_resolver_first(scene.resolver), 1); /* where the next one begins */
    connects(&scene);
    close_scene(&scene);
}

static void test_a_unix_socket(void **state)
{
    char folder[] = "/tmp/dial-test-XXXXXX", url[64];
    struct scene scene;

    assert_non_null(mkdtemp(folder));
    snprintf(url, sizeof url, "unix://%s/listener", folder);
    open_listener_at(&scene, TAKES, url);
    char *urls[] = {url};
    scene.resolver = find_way(scene.event, urls, 1);
    connects(&scene);
    close_scene(&scene);
    flyt_unlisten(url);
    assert_int_equal(rmdir(folder), 0);
}

static void test_a_name(void **state)
{
    struct flyt_url url;
    struct scene scene;
    char text[FLYT_URL_TEXT_BYTES];

    open_listener_at(&scene, TAKES, "tcp://127.0.0.1:0");
    assert_int_equal(flyt_url_parse(scene.listener.url, NULL, &url), 0);
    snprintf(url.host, sizeof url.host, "localhost");
    flyt_url_print(&url, text);
    char *urls[] = {text};
    scene.resolver = find_way(scene.event, urls, 1);
    connects(&scene);
    close_scene(&scene);
}

static void test_no_way(void **state)
{
    char *urls[] = {(char *)"nonsense", (char *)"tcp://:1", (char *)"vsock://2:1", (char *)"vsock://:1"};
    struct flyt_node_resolver *resolver = NULL;
    struct flyt_error err = {0};

    assert_int_equal(flyt_node_resolver_new(urls, 4, &resolver, &err), -EINVAL);
    assert_non_null(strstr(err.text, "no address"));
    assert_int_equal(flyt_node_resolver_new(urls, 0, &resolver, &err), -EINVAL);
    assert_null(resolver);
}

static void test_nobody_is_there(void **state)
{
    struct outcome outcome;
    struct scene scene;

    open_listener_at(&scene, TAKES, "tcp://127.0.0.1:0");
    char *urls[] = {scene.listener.url, scene.listener.url};
    scene.resolver = find_way(scene.event, urls, 2);
    close_listener(&scene.listener);
    begin(scene.event, scene.resolver, LONG_MS, false, &outcome);
    until_told(scene.event, &outcome);
    assert_int_equal(outcome.status, -ECONNREFUSED);
    assert_non_null(strstr(outcome.sentence, strerror(ECONNREFUSED)));
    flyt_node_dial_free(outcome.dial);
    leave_scene(&scene);
}

static void test_it_is_given_up(void **state)
{
    struct outcome outcome;
    struct scene scene;

    open_scene(&scene, IS_SILENT);
    begin(scene.event, scene.resolver, LONG_MS, false, &outcome);
    flyt_node_dial_free(outcome.dial); /* before it has begun */
    begin(scene.event, scene.resolver, LONG_MS, false, &outcome);
    for (uint64_t until_ms = flyt_clock_ms() + WAIT_MS; !scene.listener.came && flyt_clock_ms() < until_ms;)
        run(scene.event);
    assert_int_equal(scene.listener.came, 1);
    flyt_node_dial_free(outcome.dial);
    assert_false(outcome.is_told);
    close_scene(&scene);
}

static void test_a_wrong_proof(void **state)
{
    fails(TAKES, LONG_MS, true, -EACCES, "no such migration is awaited");
}

static void test_refused(void **state)
{
    fails(REFUSES, LONG_MS, false, -EACCES, "no such migration is awaited");
}

static void test_busy(void **state)
{
    fails(IS_BUSY, LONG_MS, false, -EBUSY, "it has no room");
}

static void test_no_answer(void **state)
{
    fails(IS_SILENT, SHORT_MS, false, -ETIMEDOUT, "in time");
}

static void test_cut(void **state)
{
    fails(CUTS, LONG_MS, false, -EPIPE, "closed the connection");
}

static void test_cut_in_an_answer(void **state)
{
    fails(CUTS_AN_ANSWER, LONG_MS, false, -EPIPE, "closed the connection");
}

static void test_nonsense(void **state)
{
    fails(TALKS_NONSENSE, LONG_MS, false, -EPROTO, "not that of a node");
}

static void test_an_answer_without_end(void **state)
{
    fails(TALKS_WITHOUT_END, LONG_MS, false, -EPROTO, "not that of a node");
}

static void test_a_listener_that_trusts(void **state)
{
    fails(TRUSTS, LONG_MS, false, -EPROTO, "does not ask for a proof");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_taken),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_another_address),
        cmocka_unit_test(test_a_unix_socket),
        cmocka_unit_test(test_a_name),
        cmocka_unit_test(test_no_way),
        cmocka_unit_test(test_nobody_is_there),
        cmocka_unit_test(test_it_is_given_up),
        cmocka_unit_test(test_a_wrong_proof),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_busy),
        cmocka_unit_test(test_no_answer),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_cut_in_an_answer),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_an_answer_without_end),
        cmocka_unit_test(test_a_listener_that_trusts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
