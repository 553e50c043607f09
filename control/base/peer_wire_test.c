/* What a peer makes of bytes that nobody of ours would send, of those who do not read, and of too many. */
#include "control/base/test_door.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "rpc/transport/message.h"
#include "rpc/transport/xdr_buffer.h"

struct fixture {
    sd_event *event;
    struct test_door door;
    unsigned char record[1024]; /* a good call of TEST_ECHO, with its mark */
    size_t record_bytes;
};

enum { XID = 0x11223344, HEAD_WORDS = 9 };

/* A call's record with its mark, encoded by the routines of the transport. */
static size_t encode_call(unsigned char *data, size_t room, uint32_t procedure, xdrproc_t xdr, const void *args)
{
    struct flyt_bytes bytes = {.bytes_max = room};
    XDR xdrs;

    assert_true(flyt_bytes_reserve(&bytes, 4));
    bytes.used = 4;
    flyt_xdr_encode_init(&xdrs, &bytes);
    assert_true(flyt_call_head_put(&xdrs, XID, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, procedure));
    assert_true(xdr(&xdrs, args));
    uint32_t mark = htonl(0x80000000u | (uint32_t)(bytes.used - 4));
    memcpy(bytes.data, &mark, 4);
    memcpy(data, bytes.data, bytes.used);
    size_t used = bytes.used;
    flyt_bytes_fini(&bytes);
    return used;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    const flyt_event event = {.sequence = 42,
                              .kind = (char *)"kind",
                              .who = (char *)"who",
                              .object = (char *)"an object",
                              .text = (char *)"text",
                              .before = (char *)"{}",
                              .after = (char *)""};

    if (!f || sd_event_new(&f->event) < 0)
        return -1;
    test_door_init(&f->door, f->event, &test_program);
    f->record_bytes = encode_call(f->record, sizeof f->record, TEST_ECHO, (xdrproc_t)xdr_flyt_event, &event);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    test_door_close(&f->door);
    while (f->door.side.kept_count) /* a wrong bit makes a call of TEST_KEEP too */
        test_answer(&f->door.side);
    sd_event_unref(f->event);
    free(f);
    return 0;
}

static void open_door(struct fixture *f)
{
    test_door_open(&f->door, "tcp://127.0.0.1:0", NULL);
}

/* The answer to the good call: head, then what it said. */
static void expect_echo(struct fixture *f, int fd)
{
    unsigned char reply[1024];
    size_t args_at = 4 + FLYT_CALL_HEAD_BYTES, args_bytes = f->record_bytes - args_at;
    size_t bytes = 4 + FLYT_REPLY_HEAD_BYTES + args_bytes;

    assert_int_equal(test_raw_read(f->event, fd, reply, bytes), bytes);
    assert_memory_equal(reply + 4 + FLYT_REPLY_HEAD_BYTES, f->record + args_at, args_bytes);
}

static void expect_end(struct fixture *f, int fd)
{
    unsigned char data[64];

    assert_int_equal(test_raw_read(f->event, fd, data, sizeof data), 0);
    close(fd);
}

/* ---- how records come ---- */

static void test_byte_by_byte(void **state)
{
    struct fixture *f = *state;

    open_door(f);
    int fd = test_raw_connect(f->door.url);
    for (size_t i = 0; i < f->record_bytes; i++) {
        assert_int_equal(test_raw_write(f->event, fd, f->record + i, 1), 1);
        test_run_idle(f->event);
        assert_int_equal(f->door.side.served_count, i + 1 == f->record_bytes);
    }
    expect_echo(f, fd);
    close(fd);
}

static void test_several_fragments(void **state)
{
    struct fixture *f = *state;
    unsigned char data[4096];

    open_door(f);
    int fd = test_raw_connect(f->door.url);
    for (size_t piece = 1; piece <= 60; piece++) {
        size_t bytes = 0;
        for (size_t at = 4; at < f->record_bytes; at += piece) {
            size_t part = f->record_bytes - at < piece ? f->record_bytes - at : piece;
            uint32_t mark = htonl((uint32_t)part | (at + part == f->record_bytes ? 0x80000000u : 0));
            memcpy(data + bytes, &mark, 4);
            memcpy(data + bytes + 4, f->record + at, part);
            bytes += 4 + part;
        }
        assert_int_equal(test_raw_write(f->event, fd, data, bytes), bytes);
        expect_echo(f, fd);
        assert_int_equal(f->door.side.served_count, piece);
    }
    close(fd);
}

static void test_stream_cut_at_every_byte(void **state)
{
    struct fixture *f = *state;

    open_door(f);
    for (size_t cut = 0; cut < f->record_bytes; cut++) {
        int fd = test_raw_connect(f->door.url);
        assert_int_equal(test_raw_write(f->event, fd, f->record, cut), cut);
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        expect_end(f, fd);
    }
    assert_int_equal(f->door.side.served_count, 0);
    assert_int_equal(f->door.side.ended_count, f->record_bytes);
}

/* The record says that it ends earlier: its head is none, or its arguments are garbage; the connection ends. */
static void test_record_cut_at_every_word(void **state)
{
    static const unsigned char garbage[] = {0x80, 0, 0, 0x18, 0x11, 0x22, 0x33, 0x44, 0, 0, 0, 1, 0, 0,
                                            0,    0, 0, 0,    0,    0,    0,    0,    0, 0, 0, 0, 0, 4};
    struct fixture *f = *state;
    unsigned char data[1024], reply[64];

    open_door(f);
    for (size_t cut = 0; cut + 4 < f->record_bytes; cut++) {
        uint32_t mark = htonl(0x80000000u | (uint32_t)cut);
        int fd = test_raw_connect(f->door.url);
        memcpy(data, f->record, f->record_bytes);
        memcpy(data, &mark, 4);
        assert_int_equal(test_raw_write(f->event, fd, data, 4 + cut), 4 + cut);
        size_t bytes = test_raw_read(f->event, fd, reply, sizeof reply);
        if (cut % 4 || cut < FLYT_CALL_HEAD_BYTES) {
            assert_int_equal(bytes, 0);
        } else {
            assert_int_equal(bytes, sizeof garbage);
            assert_memory_equal(reply, garbage, sizeof garbage);
        }
        close(fd);
    }
    assert_int_equal(f->door.side.served_count, 0);
}

static void test_words_behind_the_arguments(void **state)
{
    struct fixture *f = *state;
    unsigned char reply[64];

    open_door(f);
    int fd = test_raw_connect(f->door.url);
    f->record[3] = (unsigned char)(f->record[3] + 4);
    memset(f->record + f->record_bytes, 0, 4);
    test_raw_write(f->event, fd, f->record, f->record_bytes + 4);
    assert_int_equal(test_raw_read(f->event, fd, reply, sizeof reply), 28);
    assert_int_equal(reply[27], GARBAGE_ARGS);
    assert_int_equal(f->door.side.served_count, 0);
    close(fd);
}

static void test_every_bit_wrong(void **state)
{
    struct fixture *f = *state;
    unsigned char data[1024];

    open_door(f);
    for (size_t bit = 0; bit < 8 * f->record_bytes; bit++) {
        int fd = test_raw_connect(f->door.url);
        memcpy(data, f->record, f->record_bytes);
        data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        test_raw_write(f->event, fd, data, f->record_bytes);
        shutdown(fd, SHUT_WR);
        test_raw_read(f->event, fd, data, sizeof data);
        close(fd);
    }
    test_run_until(f->event, f->door.side.ended_count == 8 * f->record_bytes);
    int fd = test_raw_connect(f->door.url);
    test_raw_write(f->event, fd, f->record, f->record_bytes);
    expect_echo(f, fd);
    close(fd);
}

static void test_random_bytes(void **state)
{
    struct fixture *f = *state;
    unsigned char data[512];

    open_door(f);
    srandom(1);
    for (unsigned i = 0; i < 300; i++) {
        int fd = test_raw_connect(f->door.url);
        for (size_t at = 0; at < sizeof data; at++)
            data[at] = (unsigned char)random();
        memcpy(data, "\x80\0\1\xfc", i % 2 ? 4 : 0); /* every other one as a record of its own */
        test_raw_write(f->event, fd, data, sizeof data);
        shutdown(fd, SHUT_WR);
        test_raw_read(f->event, fd, data, sizeof data);
        close(fd);
    }
    assert_int_equal(f->door.side.served_count, 0);
}

/* ---- answers without a result, RFC 5531 section 9 ---- */

static void expect_words(struct fixture *f, const uint32_t *call, const uint32_t *reply, unsigned count)
{
    unsigned char data[256];
    uint32_t words[32];
    int fd = test_raw_connect(f->door.url);
    size_t bytes = test_raw_call(data, XID, call, HEAD_WORDS);

    assert_int_equal(test_raw_write(f->event, fd, data, bytes), bytes);
    assert_int_equal(test_raw_read(f->event, fd, words, 8 + 4 * count), 8 + 4 * count);
    assert_int_equal(ntohl(words[0]), 0x80000000u | (4 + 4 * count));
    assert_int_equal(ntohl(words[1]), XID);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(ntohl(words[2 + i]), reply[i]);
    close(fd);
}

#define CALLED(...)                                                                                                    \
    (const uint32_t[HEAD_WORDS])                                                                                       \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define EXPECT(call, ...)                                                                                              \
    do {                                                                                                               \
        const uint32_t reply[] = {__VA_ARGS__};                                                                        \
        expect_words(f, call, reply, sizeof reply / sizeof reply[0]);                                                  \
    } while (0)

static void test_answers_of_the_rpc_layer(void **state)
{
    struct fixture *f = *state;
    const uint32_t program = FLYT_CONTROL_PROGRAM, version = FLYT_CONTROL_VERSION;

    open_door(f);
    EXPECT(CALLED(CALL, 2, program, version, 0), REPLY, MSG_ACCEPTED, 0, 0, SUCCESS);
    EXPECT(CALLED(CALL, 3, program, version, 0), REPLY, MSG_DENIED, RPC_MISMATCH, 2, 2);
    EXPECT(CALLED(CALL, 2, program + 1, version, 0), REPLY, MSG_ACCEPTED, 0, 0, PROG_UNAVAIL);
    EXPECT(CALLED(CALL, 2, program, version + 1, 0), REPLY, MSG_ACCEPTED, 0, 0, PROG_MISMATCH, version, version);
    EXPECT(CALLED(CALL, 2, program, version, 99), REPLY, MSG_ACCEPTED, 0, 0, PROC_UNAVAIL);
    EXPECT(CALLED(CALL, 2, program, version, TEST_FAIL), REPLY, MSG_ACCEPTED, 0, 0, SYSTEM_ERR);
    EXPECT(CALLED(CALL, 2, program, version, TEST_WRONG), REPLY, MSG_ACCEPTED, 0, 0, SYSTEM_ERR);
    EXPECT(CALLED(CALL, 2, program, version, TEST_NODE), REPLY, MSG_DENIED, AUTH_ERROR, AUTH_TOOWEAK);
    EXPECT(CALLED(CALL, 2, program, version, 0, 7), REPLY, MSG_DENIED, AUTH_ERROR, AUTH_BADCRED); /* no TLS here */
    EXPECT(CALLED(CALL, 2, program, version, TEST_FAIL, 7), REPLY, MSG_DENIED, AUTH_ERROR, AUTH_BADCRED);
    assert_int_equal(f->door.side.served_count, 2);
}

static void test_bad_result_ends_the_connection(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes outcomes = {0};
    uint32_t head[11];

    open_door(f);
    int fd = test_raw_connect(f->door.url);
    test_run_until(f->event, f->door.side.peer);
    assert_int_equal(test_call(f->door.side.peer, TEST_ECHO, 1, 0, &outcomes), 0);
    assert_int_equal(test_raw_read(f->event, fd, head, sizeof head), sizeof head);
    const uint32_t reply[] = {htonl(0x80000000u | 28), head[1], htonl(REPLY), 0, 0, 0, 0, htonl(1)};
    assert_int_equal(test_raw_write(f->event, fd, reply, sizeof reply), sizeof reply);
    test_run_until(f->event, f->door.side.ended_count);
    assert_int_equal(outcomes.done_count, 1);
    assert_int_equal(outcomes.last_status, -EBADMSG);
    assert_int_equal(f->door.side.cause.code, -EBADMSG);
    close(fd);
}

static void test_reply_that_nobody_waits_for(void **state)
{
    struct fixture *f = *state;
    static const uint32_t reply[] = {0x18000080, 1, 0x01000000, 0, 0, 0, 0};

    open_door(f);
    int fd = test_raw_connect(f->door.url);
    test_raw_write(f->event, fd, reply, sizeof reply);
    test_raw_write(f->event, fd, f->record, f->record_bytes);
    expect_echo(f, fd);
    close(fd);
}

/* ---- bounds ---- */

static void test_record_bound_depends_on_identity(void **state)
{
    struct fixture *f = *state;
    static unsigned char record[4 + FLYT_CONTROL_HELLO_BYTES_MAX + 4];
    uint32_t mark = htonl(0x80000000u | (FLYT_CONTROL_HELLO_BYTES_MAX + 4));
    unsigned char reply[28];

    open_door(f);
    memcpy(record, f->record, f->record_bytes);
    memcpy(record, &mark, 4);
    int fd = test_raw_connect(f->door.url);
    test_raw_write(f->event, fd, record, 4); /* the mark alone is enough */
    expect_end(f, fd);
    assert_int_equal(f->door.side.cause.code, -EMSGSIZE);

    f->door.side.peer = NULL;
    fd = test_raw_connect(f->door.url);
    test_run_until(f->event, f->door.side.peer);
    flyt_peer_set_identity(f->door.side.peer, FLYT_ROLE_NODE, "n1");
    assert_int_equal(test_raw_write(f->event, fd, record, sizeof record), sizeof record);
    assert_int_equal(test_raw_read(f->event, fd, reply, sizeof reply), sizeof reply);
    assert_int_equal(reply[27], GARBAGE_ARGS); /* read to its end, and found to be too long for its type */
    close(fd);

    f->door.side.peer = NULL;
    fd = test_raw_connect(f->door.url);
    test_run_until(f->event, f->door.side.peer);
    flyt_peer_set_identity(f->door.side.peer, FLYT_ROLE_NODE, "n1");
    mark = htonl(0x80000000u | (FLYT_CONTROL_RECORD_BYTES_MAX + 4));
    test_raw_write(f->event, fd, &mark, 4);
    expect_end(f, fd);
    assert_int_equal(f->door.side.cause.code, -EMSGSIZE);
}

/* Calls of who ignores that no more than so many are served at once: not one more is, until one was answered. */
static void test_more_calls_than_are_served(void **state)
{
    enum { COUNT = FLYT_PEER_SERVING_MAX + 20 };
    struct fixture *f = *state;
    flyt_event event = {0};
    unsigned char call[256];
    size_t bytes = encode_call(call, sizeof call, TEST_KEEP, (xdrproc_t)xdr_flyt_event, &event);

    open_door(f);
    int fd = test_raw_connect(f->door.url);
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(test_raw_write(f->event, fd, call, bytes), bytes);
    test_run_until(f->event, f->door.side.kept_count == FLYT_PEER_SERVING_MAX);
    test_run_idle(f->event);
    assert_int_equal(f->door.side.served_count, FLYT_PEER_SERVING_MAX);
    test_answer(&f->door.side);
    test_run_until(f->event, f->door.side.served_count == FLYT_PEER_SERVING_MAX + 1);
    test_run_idle(f->event);
    assert_int_equal(f->door.side.served_count, FLYT_PEER_SERVING_MAX + 1);
    close(fd); /* noticed although nothing is read: it is closed entirely */
    while (f->door.side.kept_count)
        test_answer(&f->door.side);
    test_run_until(f->event, f->door.side.ended_count);
    while (f->door.side.kept_count) /* served of what had come before the end */
        test_answer(&f->door.side);
}

static size_t big_call(unsigned char *data, size_t room, uint32_t bytes)
{
    flyt_view_args args = {.view = (char *)"v", .wait_ms = bytes};

    return encode_call(data, room, TEST_BIG, (xdrproc_t)xdr_flyt_view_args, &args);
}

static void test_slow_reader_gets_everything(void **state)
{
    enum { COUNT = 3, STEP = 9973, ANSWER = 4 + FLYT_REPLY_HEAD_BYTES + 8 + 8 + 4 + 1000000 };
    struct fixture *f = *state;
    unsigned char call[256];
    size_t bytes = big_call(call, sizeof call, 1000000);
    unsigned char *answers = malloc(COUNT * ANSWER);
    size_t done = 0;

    assert_non_null(answers);
    open_door(f);
    int fd = test_raw_connect(f->door.url);
    for (unsigned i = 0; i < COUNT; i++)
        test_raw_write(f->event, fd, call, bytes);
    while (done < COUNT * ANSWER) {
        size_t part = COUNT * ANSWER - done < STEP ? COUNT * ANSWER - done : STEP;
        assert_int_equal(test_raw_read(f->event, fd, answers + done, part), part);
        done += part;
        sd_event_run(f->event, 0);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        for (unsigned at = 0; at < 1000000; at++) {
            if (answers[i * ANSWER + ANSWER - 1000000 + at] != (unsigned char)(at * 31 + (at >> 12)))
                fail_msg("answer %u: byte %u is another", i, at);
        }
    }
    free(answers);
    close(fd);
}

static void test_who_reads_nothing_is_closed(void **state)
{
    struct fixture *f = *state;
    unsigned char call[256];
    size_t bytes = big_call(call, sizeof call, FLYT_VIEW_BYTES_MAX);

    f->door.config.peer.stall_ms = 2000; /* all calls are written by then */
    open_door(f);
    int fd = test_raw_connect(f->door.url);
    for (unsigned i = 0; i < 4; i++)
        test_raw_write(f->event, fd, call, bytes);
    test_run_until(f->event, f->door.side.ended_count);
    assert_int_equal(f->door.side.cause.code, -ETIMEDOUT);
    close(fd);
}

static void test_unsent_answers_are_bounded(void **state)
{
    enum { COUNT = FLYT_PEER_OUTPUT_BYTES_MAX / FLYT_VIEW_BYTES_MAX + 8 };
    struct fixture *f = *state;
    unsigned char call[256];
    size_t bytes = big_call(call, sizeof call, FLYT_VIEW_BYTES_MAX);

    open_door(f);
    int fd = test_raw_connect(f->door.url);
    for (unsigned i = 0; i < COUNT; i++)
        test_raw_write(f->event, fd, call, bytes);
    test_run_until(f->event, f->door.side.ended_count);
    assert_int_equal(f->door.side.cause.code, -ENOBUFS);
    close(fd);
}

static void test_unsent_calls_are_bounded(void **state)
{
    struct fixture *f = *state;
    static char text[FLYT_TEXT_BYTES_MAX + 1];
    flyt_event event = {.text = text, .before = text, .after = text};
    unsigned count = 0;
    int status;

    memset(text, 'x', sizeof text - 1);
    open_door(f);
    int fd = test_raw_connect(f->door.url);
    test_run_until(f->event, f->door.side.peer);
    do {
        status = flyt_peer_call(f->door.side.peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_NOTE,
                                (xdrproc_t)xdr_flyt_event, &event, NULL, 0, 0, NULL, NULL);
    } while (!status && count++ < 100000);
    assert_int_equal(status, -ENOBUFS);
    assert_in_range(count, 5000, FLYT_PEER_OUTPUT_BYTES_MAX / (3 * FLYT_TEXT_BYTES_MAX) + 1);
    assert_int_equal(f->door.side.ended_count, 0);
    close(fd);
    test_run_until(f->event, f->door.side.ended_count);
}

/* ---- doors ---- */

static void test_anonymous_connections_are_few(void **state)
{
    struct fixture *f = *state;
    int fds[3];

    f->door.config.anonymous_max = 2;
    open_door(f);
    for (unsigned i = 0; i < 2; i++) {
        fds[i] = test_raw_connect(f->door.url);
        test_run_until(f->event, f->door.side.ready_count == i + 1);
    }
    fds[2] = test_raw_connect(f->door.url);
    expect_end(f, fds[0]); /* the oldest goes */
    test_run_until(f->event, f->door.side.ready_count == 3);
    flyt_peer_set_identity(f->door.side.peer, FLYT_ROLE_NODE, "n1"); /* makes room */
    flyt_peer_set_identity(f->door.side.peer, FLYT_ROLE_NODE, "n1"); /* once */
    fds[0] = test_raw_connect(f->door.url);
    test_run_until(f->event, f->door.side.ready_count == 4);
    assert_int_equal(f->door.side.ended_count, 1);
    int last = test_raw_connect(f->door.url);
    expect_end(f, fds[1]);
    test_run_until(f->event, f->door.side.ready_count == 5);
    assert_int_equal(f->door.side.ended_count, 2);
    close(fds[0]);
    test_run_until(f->event, f->door.side.ended_count == 3);
    close(fds[2]);
    close(last);
}

static void say_who(struct flyt_peer *peer, void *unused)
{
    flyt_peer_set_identity(peer, FLYT_ROLE_NODE, "n1");
}

/* A hundred come before any has a turn: none is closed, as each says in its turn who it is. */
static void test_many_that_come_at_once_are_let_in(void **state)
{
    struct fixture *f = *state;
    int fds[100];

    f->door.config.anonymous_max = 8;
    open_door(f);
    for (unsigned i = 0; i < 100; i++)
        fds[i] = test_raw_connect(f->door.url);
    for (unsigned ready_count = 0; ready_count < 100; ready_count = f->door.side.ready_count) {
        test_run_until(f->event, f->door.side.ready_count > ready_count);
        flyt_door_each(f->door.door, say_who, NULL);
    }
    assert_int_equal(f->door.side.ended_count, 0);
    for (unsigned i = 0; i < 100; i++)
        close(fds[i]);
    test_run_until(f->event, f->door.side.ended_count == 100);
}

static void test_anonymous_connections_are_short(void **state)
{
    struct fixture *f = *state;

    f->door.config.anonymous_ms = 2000; /* one has an identity by then */
    open_door(f);
    int known = test_raw_connect(f->door.url);
    test_run_until(f->event, f->door.side.peer);
    flyt_peer_set_identity(f->door.side.peer, FLYT_ROLE_NODE, "n1");
    expect_end(f, test_raw_connect(f->door.url));
    assert_int_equal(f->door.side.ended_count, 1);
    assert_int_equal(f->door.side.cause.code, -ETIMEDOUT);
    test_raw_write(f->event, known, f->record, f->record_bytes);
    expect_echo(f, known);
    close(known);
}

static void test_connections_of_one_address_are_bounded(void **state)
{
    struct fixture *f = *state;
    int fds[2];

    f->door.config.per_address_max = 2;
    open_door(f);
    for (unsigned i = 0; i < 2; i++) {
        fds[i] = test_raw_connect(f->door.url);
        test_run_until(f->event, f->door.side.ready_count == i + 1);
    }
    expect_end(f, test_raw_connect(f->door.url));
    close(fds[0]);
    test_run_until(f->event, f->door.side.ended_count);
    fds[0] = test_raw_connect(f->door.url);
    test_run_until(f->event, f->door.side.ready_count == 3);
    close(fds[0]);
    close(fds[1]);
}

/* A connection of this identity, as HELLO in clear says. */
static int connect_as(struct fixture *f, const char *name)
{
    unsigned before = f->door.side.ready_count;
    int fd = test_raw_connect(f->door.url);

    test_run_until(f->event, f->door.side.ready_count == before + 1);
    flyt_peer_set_identity(f->door.side.peer, FLYT_ROLE_VM, name);
    return fd;
}

static void test_connections_of_one_identity_are_bounded(void **state)
{
    struct fixture *f = *state;
    int fds[2];

    f->door.config.per_identity_max = 2;
    open_door(f);
    for (unsigned i = 0; i < 2; i++)
        fds[i] = connect_as(f, "10.0.0.1");
    expect_end(f, connect_as(f, "10.0.0.1"));
    assert_int_equal(f->door.side.cause.code, -EUSERS);
    int other = connect_as(f, "10.0.0.2"); /* another one has its own places */
    test_raw_write(f->event, other, f->record, f->record_bytes);
    expect_echo(f, other);
    close(fds[0]);
    test_run_until(f->event, f->door.side.ended_count == 2);
    fds[0] = connect_as(f, "10.0.0.1"); /* there is room again */
    test_raw_write(f->event, fds[0], f->record, f->record_bytes);
    expect_echo(f, fds[0]);
    close(fds[0]);
    close(fds[1]);
    close(other);
}

/* Answers that are not read and records that are not complete: of all connections of an identity together. */
static void test_what_one_identity_holds_is_bounded(void **state)
{
    enum { PART = 1 << 20, COUNT = 4 };
    struct fixture *f = *state;
    unsigned char call[256], mark[4] = {0x00, 0x3f, 0xff, 0xfc};
    static unsigned char part[PART];
    size_t bytes = big_call(call, sizeof call, FLYT_VIEW_BYTES_MAX);
    int fds[COUNT];

    f->door.config.identity_bytes_max = 3 * FLYT_VIEW_BYTES_MAX;
    open_door(f);
    int other = connect_as(f, "10.0.0.2");
    for (unsigned i = 0; i < COUNT; i++)
        fds[i] = connect_as(f, "10.0.0.1");
    for (unsigned i = 0; i < 8 * COUNT && !f->door.side.ended_count; i++) /* the kernel keeps some, too */
        test_raw_write(f->event, fds[i % COUNT], call, bytes);
    test_run_until(f->event, f->door.side.ended_count);
    assert_int_equal(f->door.side.cause.code, -ENOBUFS);
    for (unsigned i = 0; i < COUNT; i++)
        close(fds[i]);
    test_run_until(f->event, f->door.side.ended_count == COUNT);
    /* Of fragments that are never the last. */
    for (unsigned i = 0; i < COUNT; i++)
        fds[i] = connect_as(f, "10.0.0.1");
    for (unsigned i = 0; i < 4 * COUNT && f->door.side.ended_count == COUNT; i++) {
        if (i < COUNT)
            test_raw_write(f->event, fds[i], mark, sizeof mark);
        test_raw_write(f->event, fds[i % COUNT], part, sizeof part - 4);
    }
    test_run_until(f->event, f->door.side.ended_count == COUNT + 1);
    assert_int_equal(f->door.side.cause.code, -ENOBUFS);
    test_raw_write(f->event, other, f->record, f->record_bytes);
    expect_echo(f, other);
    for (unsigned i = 0; i < COUNT; i++)
        close(fds[i]);
    close(other);
}

static void test_all_connections_are_bounded(void **state)
{
    struct fixture *f = *state;

    f->door.config.peers_max = 1;
    open_door(f);
    int fd = test_raw_connect(f->door.url);
    test_run_until(f->event, f->door.side.ready_count == 1);
    expect_end(f, test_raw_connect(f->door.url));
    close(fd);
}

static void test_door_without_descriptors_waits(void **state)
{
    enum { SPARE = 40 };
    struct fixture *f = *state;
    struct rlimit before, tight;
    int spare[2 * SPARE];
    unsigned count = 0;

    open_door(f);
    int fd = test_raw_connect(f->door.url); /* the kernel accepts it until we do */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = (struct rlimit){.rlim_cur = (rlim_t)fd + SPARE, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    while (count < 2 * SPARE && (spare[count] = dup(fd)) >= 0)
        count++;
    assert_int_equal(errno, EMFILE);
    test_run_idle(f->event); /* which ends: nobody is woken for ever */
    assert_int_equal(f->door.side.ready_count, 0);
    while (count)
        close(spare[--count]);
    test_run_until(f->event, f->door.side.ready_count == 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    test_raw_write(f->event, fd, f->record, f->record_bytes);
    expect_echo(f, fd);
    close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_byte_by_byte),
        TEST(test_several_fragments),
        TEST(test_stream_cut_at_every_byte),
        TEST(test_record_cut_at_every_word),
        TEST(test_words_behind_the_arguments),
        TEST(test_every_bit_wrong),
        TEST(test_random_bytes),
        TEST(test_answers_of_the_rpc_layer),
        TEST(test_bad_result_ends_the_connection),
        TEST(test_reply_that_nobody_waits_for),
        TEST(test_record_bound_depends_on_identity),
        TEST(test_more_calls_than_are_served),
        TEST(test_slow_reader_gets_everything),
        TEST(test_who_reads_nothing_is_closed),
        TEST(test_unsent_answers_are_bounded),
        TEST(test_unsent_calls_are_bounded),
        TEST(test_anonymous_connections_are_few),
        TEST(test_many_that_come_at_once_are_let_in),
        TEST(test_anonymous_connections_are_short),
        TEST(test_connections_of_one_address_are_bounded),
        TEST(test_connections_of_one_identity_are_bounded),
        TEST(test_what_one_identity_holds_is_bounded),
        TEST(test_all_connections_are_bounded),
        TEST(test_door_without_descriptors_waits),
    };

    return cmocka_run_group_tests_name("peer wire", tests, NULL, NULL);
}
