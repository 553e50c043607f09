#include "control/node/test/test_far.h"

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

#include "control/node/ops/send.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/greeter.h"
#include "rpc/transport/handshake.h"

static const unsigned char secret[FLYT_MIGRATION_SECRET_BYTES] = "what both nodes have been told";

/* ---- the listener ---- */

static void on_stranger(void *user, int fd, const void *record, size_t bytes)
{
    close(fd);
}

static bool is_challenged(void *user, const flyt_handshake_args *args)
{
    return true;
}

static void refuse(struct test_far *far, int fd, uint32_t xid, flyt_handshake_status status, const char *sentence)
{
    far->refused_count++;
    flyt_handshake_refuse(fd, xid, status, sentence);
    close(fd);
}

static void take(struct test_far *far, int fd, const struct flyt_greeter_answer *answer)
{
    struct test_far_connection *connection = &far->connections[far->count++];
    flyt_handshake_res res = {.message = (char *)"", .build = (char *)"far"};
    const flyt_handshake_args *args = answer->args;
    void *record;
    size_t bytes;

    assert_true(far->count <= TEST_FAR_MAX);
    connection->fd = fd;
    connection->pid = args->pid;
    assert_int_equal(args->kind, FLYT_CONNECTION_MIGRATE);
    assert_int_equal(flyt_migrate_credentials_get(args->credentials.credentials_val, args->credentials.credentials_len,
                                                  &connection->credentials),
                     0);
    assert_int_equal(args->token.token_len, sizeof connection->token);
    memcpy(connection->token, args->token.token_val, sizeof connection->token);
    snprintf(connection->program, sizeof connection->program, "%s", args->program_name);
    flyt_ticket_channel_key(secret, answer->challenge, answer->record_hash, connection->key);
    assert_int_equal(flyt_handshake_encode_reply(answer->xid, &res, &record, &bytes), 0);
    assert_int_equal(send(fd, record, bytes, MSG_NOSIGNAL), bytes);
    free(record);
}

static void on_answer(void *user, int fd, const struct flyt_greeter_answer *answer, const void *record, size_t bytes)
{
    unsigned char proof[FLYT_TICKET_KEY_BYTES];
    struct test_far *far = user;

    flyt_ticket_proof(secret, answer->challenge, answer->record_hash, proof);
    if (far->refuses || answer->args->proof.flyt_late_bytes_len != sizeof proof ||
        memcmp(answer->args->proof.flyt_late_bytes_val, proof, sizeof proof) != 0) {
        refuse(far, fd, answer->xid, FLYT_HANDSHAKE_DENIED, "no such program is awaited");
    } else if (far->busy_count) {
        far->busy_count--;
        refuse(far, fd, answer->xid, FLYT_HANDSHAKE_BUSY, "the earlier one has not gone yet");
    } else {
        take(far, fd, answer);
    }
}

static int on_greeter(sd_event_source *source, int fd, uint32_t events, void *user)
{
    assert_int_equal(flyt_greeter_process(((struct test_far *)user)->greeter), 0);
    return 0;
}

void test_far_open(struct test_far *far, struct test_node *test)
{
    const struct flyt_greeter_config config = {
        .handshake = on_stranger, .is_challenged = is_challenged, .answer = on_answer, .user = far};
    struct flyt_error err;

    *far = (struct test_far){.test = test};
    assert_int_equal(flyt_listen("tcp://127.0.0.1:0", &err, &far->listen_fd, far->url), 0);
    assert_int_equal(flyt_greeter_new(&config, &far->greeter), 0);
    assert_int_equal(flyt_greeter_listen(far->greeter, far->listen_fd), 0);
    assert_true(sd_event_add_io(test->event, &far->source, flyt_greeter_fd(far->greeter), EPOLLIN, on_greeter, far) >=
                0);
}

void test_far_close(struct test_far *far)
{
    for (unsigned i = 0; i < far->count; i++)
        flyt_close(far->connections[i].fd);
    sd_event_source_disable_unref(far->source);
    flyt_greeter_free(far->greeter);
    close(far->listen_fd);
}

int test_far_set_up(void **state)
{
    struct test_far *far = calloc(1, sizeof *far);
    void *test;

    assert_non_null(far);
    test_node_set_up(&test);
    test_far_open(far, test);
    *state = far;
    return 0;
}

int test_far_tear_down(void **state)
{
    struct test_far *far = *state;
    void *test = far->test;

    test_far_close(far);
    free(far);
    return test_node_tear_down(&test);
}

/* ---- orders ---- */

flyt_order_send_args test_far_args(struct test_far *far, const struct test_far_wish *wish, char **ret_url)
{
    flyt_order_send_args args = {.epoch = 1,
                                 .migration_id = TEST_MIGRATION_ID,
                                 .allocation_id = test_one.id,
                                 .bounds = {.stop_ms = wish->stop_ms, .timeout_s = wish->timeout_s},
                                 .node = (char *)"far",
                                 .urls = {1, ret_url},
                                 .stream_count = wish->stream_count,
                                 .is_encrypted = wish->is_encrypted};

    *ret_url = far->url;
    memcpy(args.secret, secret, sizeof args.secret);
    args.secret[2] = (char)(args.secret[2] ^ wish->is_forged);
    return args;
}

flyt_status test_far_order(struct test_far *far, const struct test_far_wish *wish, struct flyt_error *ret_err)
{
    char *url;
    const flyt_order_send_args args = test_far_args(far, wish, &url);
    struct flyt_error err = {0};

    flyt_status status = flyt_node_send(&far->test->node, &args, &err);
    if (ret_err)
        *ret_err = err;
    return status;
}

void test_far_start(struct test_far *far)
{
    const struct test_far_wish wish = {.stop_ms = 60000};
    struct flyt_error err;

    if (test_far_order(far, &wish, &err) != FLYT_STATUS_OK)
        fail_msg("refused: %s", err.text);
}

/* ---- what comes ---- */

static struct test_far_connection *find(struct test_far *far, const struct test_program *program, unsigned stream)
{
    for (unsigned i = far->count; i > 0; i--) {
        struct test_far_connection *connection = &far->connections[i - 1];
        if (connection->fd >= 0 && connection->credentials.session_id == program->session_id &&
            connection->credentials.stream == stream)
            return connection;
    }
    return NULL;
}

struct awaited {
    struct test_far *far;
    const struct test_program *program;
    unsigned stream;
};

static bool has_come(struct test_node *test, void *user)
{
    const struct awaited *awaited = user;

    return find(awaited->far, awaited->program, awaited->stream);
}

struct test_far_connection *test_far_connection(struct test_far *far, const struct test_program *program,
                                                unsigned stream)
{
    struct awaited awaited = {far, program, stream};

    test_node_until(far->test, has_come, &awaited, "a connection to the other node");
    return find(far, program, stream);
}

const char *test_far_line(struct test_far *far, struct test_far_connection *connection)
{
    static char text[600];
    size_t used = 0;

    while (used < sizeof text - 1) {
        if (!test_node_readable(far->test, connection->fd))
            fail_msg("a server says nothing to the other node");
        if (recv(connection->fd, text + used, 1, 0) != 1)
            return "gone";
        if (text[used] == '\n')
            break;
        used++;
    }
    text[used] = 0;
    return text;
}

void test_far_say(struct test_far_connection *connection, const char *line)
{
    char whole[200];

    snprintf(whole, sizeof whole, "%s\n", line);
    assert_int_equal(send(connection->fd, whole, strlen(whole), MSG_NOSIGNAL), strlen(whole));
}

void test_far_take(struct test_far *far, const struct test_program *program)
{
    struct test_far_connection *connection = test_far_connection(far, program, 0);
    unsigned long long id, bytes, word;

    if (sscanf(test_far_line(far, connection), "make %llu %llu %llu", &id, &bytes, &word) != 3 || id != 1 ||
        word != 4711)
        fail_msg("not its image");
    test_contains(test_far_line(far, connection), "end ");
    test_far_say(connection, "0");
}

void test_far_take_all(struct test_far *far, const struct test_program *programs, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        test_far_take(far, &programs[i]);
    test_far_until(far, FLYT_MIGRATION_ARRIVED);
}

static bool has_phase(struct test_node *test, void *user)
{
    const struct flyt_node_migration *migration = test_migration_of(test);

    return migration->op.phase == *(const flyt_migration_phase *)user || flyt_node_operation_has_ended(&migration->op);
}

void test_far_until(struct test_far *far, flyt_migration_phase phase)
{
    test_node_until(far->test, has_phase, &phase, "the migration's phase");
    const struct flyt_node_migration *migration = test_migration_of(far->test);
    if (migration->op.phase != phase)
        fail_msg("phase %d, not %d: %s", migration->op.phase, phase, migration->op.text);
}
