/* The records of an encrypted connection: all of it arrives, however the sockets take and give it, or none of
 * a record. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/clock.h"
#include "rpc/transport/endpoint/test_secure.h"

enum { LONG_MS = 60000, BULK_BYTES = 20 << 20, SMALL_BYTES = 4096, RECORD_BYTES = 16384, WIRE_BYTES = 1 << 18 };

static const unsigned char key[FLYT_SECURE_KEY_BYTES] = "a key that both of them know 123";

/* The sender is [0]. */
struct line {
    int sockets[2];
    struct flyt_secure *ends[2];
    struct flyt_error server_err;
};

static void *begin_server(void *user)
{
    struct line *line = user;
    test_secure_begin(line->ends[1], flyt_clock_ms() + LONG_MS, -1, &line->server_err);
    return NULL;
}

/* What the sender's handshake comes to. */
static int connect_both(struct line *line, const unsigned char *server_key, struct flyt_error *err)
{
    pthread_t thread;
    *line = (struct line){.sockets = {-1, -1}};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, line->sockets), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(test_secure_new(line->sockets[i], i, i ? server_key : key, err, &line->ends[i]), 0);
    assert_int_equal(pthread_create(&thread, NULL, begin_server, line), 0);
    int status = test_secure_begin(line->ends[0], flyt_clock_ms() + LONG_MS, -1, err);
    if (status)
        shutdown(line->sockets[0], SHUT_RDWR);
    pthread_join(thread, NULL);
    return status;
}

static void connect_well(struct line *line)
{
    struct flyt_error err = {0};
    assert_int_equal(connect_both(line, key, &err), 0);
    assert_int_equal(line->server_err.code, 0);
}

static void end(struct line *line)
{
    test_secure_free(line->ends[0]);
    test_secure_free(line->ends[1]);
}

static unsigned char byte_at(size_t offset)
{
    return (unsigned char)(offset * 2654435761u >> 13);
}

static void wait_for(int fd, short events)
{
    struct pollfd ready = {.fd = fd, .events = events};
    poll(&ready, 1, -1);
}

/* ---- much of it ---- */

struct flow {
    struct line *line;
    unsigned waits; /* that the socket took no more */
    int status;
};

static int flush_all(struct flow *flow)
{
    int status;
    while ((status = flyt_secure_flush(flow->line->ends[0])) == -EAGAIN) {
        flow->waits++;
        wait_for(flow->line->sockets[0], POLLOUT);
    }
    return status;
}

static void *send_bulk(void *user)
{
    struct flow *flow = user;
    unsigned char *bytes = malloc(BULK_BYTES);
    for (size_t i = 0; bytes && i < BULK_BYTES; i++)
        bytes[i] = byte_at(i);
    for (size_t done = 0; bytes && done < BULK_BYTES && !flow->status;) {
        ssize_t taken = test_secure_seal(flow->line->ends[0], bytes + done, BULK_BYTES - done);
        done += taken > 0 ? (size_t)taken : 0;
        flow->status = taken < 0 ? (int)taken : taken ? 0 : flush_all(flow);
    }
    if (!flow->status)
        flow->status = flush_all(flow);
    free(bytes);
    return NULL;
}

/* Sockets that take little, and a reader that reads in odd portions and stops in between. */
static void all_arrives_at_a_slow_reader(void **state)
{
    struct line line;
    struct flow flow = {.line = &line};
    const int room = SMALL_BYTES;
    unsigned char portion[7001];
    unsigned wrong_count = 0, reads = 0;
    pthread_t thread;
    connect_well(&line);
    setsockopt(line.sockets[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    assert_int_equal(pthread_create(&thread, NULL, send_bulk, &flow), 0);
    for (size_t done = 0; done < BULK_BYTES;) {
        int got = flyt_secure_unseal(line.ends[1], portion, 1 + ++reads * 997 % sizeof portion);
        if (got == -EAGAIN) {
            wait_for(line.sockets[1], POLLIN);
            continue;
        }
        assert_true(got > 0);
        for (int i = 0; i < got; i++)
            wrong_count += portion[i] != byte_at(done + (size_t)i);
        done += (size_t)got;
        if (reads % 500 == 0)
            usleep(1000);
    }
    pthread_join(thread, NULL);
    assert_int_equal(flow.status, 0);
    assert_true(flow.waits > 0);
    assert_int_equal(wrong_count, 0);
    assert_int_equal(flyt_secure_unseal(line.ends[1], portion, 1), -EAGAIN);
    assert_false(flyt_secure_has_part(line.ends[1]));
    end(&line);
}

/* ---- damage: the test has what goes over the wire ---- */

struct wire {
    struct line line;
    int fd;       /* to the server */
    int tunnel;   /* from the sender */
    size_t bytes; /* of both records */
    unsigned char records[WIRE_BYTES];
};

/* Two records, which the server has not got. */
static void take_records(struct wire *wire)
{
    static unsigned char plain[2 * RECORD_BYTES];
    int tunnel[2];
    connect_well(&wire->line);
    for (size_t i = 0; i < sizeof plain; i++)
        plain[i] = byte_at(i);
    wire->fd = dup(wire->line.sockets[0]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, tunnel), 0);
    assert_int_equal(dup2(tunnel[0], wire->line.sockets[0]), wire->line.sockets[0]);
    close(tunnel[0]);
    wire->tunnel = tunnel[1];
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(test_secure_seal(wire->line.ends[0], plain + i * RECORD_BYTES, RECORD_BYTES), RECORD_BYTES);
    assert_int_equal(flyt_secure_flush(wire->line.ends[0]), 0);
    ssize_t got = recv(wire->tunnel, wire->records, sizeof wire->records, 0);
    assert_true(got > 2 * RECORD_BYTES);
    wire->bytes = (size_t)got;
    for (size_t i = 0; i + 64 <= wire->bytes; i++)
        assert_memory_not_equal(wire->records + i, plain, 64);
}

static void deliver(struct wire *wire, size_t from, size_t to)
{
    assert_int_equal(send(wire->fd, wire->records + from, to - from, MSG_NOSIGNAL), (ssize_t)(to - from));
}

/* The record's bytes, or what is instead. */
static int read_record(struct wire *wire, size_t offset)
{
    unsigned char bytes[RECORD_BYTES];
    size_t done = 0;
    while (done < sizeof bytes) {
        int got = flyt_secure_unseal(wire->line.ends[1], bytes + done, sizeof bytes - done);
        if (got <= 0) {
            assert_int_equal(done, 0);
            return got;
        }
        done += (size_t)got;
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], byte_at(offset + i));
    return RECORD_BYTES;
}

static void close_wire(struct wire *wire)
{
    close(wire->fd);
    close(wire->tunnel);
    end(&wire->line);
}

static void nothing_of_a_record_that_is_cut_is_given(void **state)
{
    static struct wire wire;
    for (size_t part = 1; part <= RECORD_BYTES; part += 4093) {
        wire = (struct wire){.fd = -1};
        take_records(&wire);
        deliver(&wire, 0, wire.bytes / 2 + part);
        assert_true(flyt_secure_has_part(wire.line.ends[1]));
        assert_int_equal(read_record(&wire, 0), RECORD_BYTES);
        assert_int_equal(read_record(&wire, RECORD_BYTES), -EAGAIN);
        assert_true(flyt_secure_has_part(wire.line.ends[1]));
        shutdown(wire.fd, SHUT_WR);
        assert_int_equal(read_record(&wire, RECORD_BYTES), 0);
        close_wire(&wire);
    }
}

static void a_record_may_come_in_parts(void **state)
{
    static struct wire wire;
    wire = (struct wire){.fd = -1};
    take_records(&wire);
    for (size_t done = 0; done < wire.bytes / 2; done += 1000) {
        assert_int_equal(read_record(&wire, 0), -EAGAIN);
        deliver(&wire, done, done + 1000 < wire.bytes / 2 ? done + 1000 : wire.bytes / 2);
    }
    assert_int_equal(read_record(&wire, 0), RECORD_BYTES);
    assert_int_equal(read_record(&wire, RECORD_BYTES), -EAGAIN);
    assert_false(flyt_secure_has_part(wire.line.ends[1]));
    close_wire(&wire);
}

static void nothing_of_a_record_that_is_damaged_is_given(void **state)
{
    static struct wire wire;
    for (size_t at = 5; at < RECORD_BYTES; at += 4093) {
        wire = (struct wire){.fd = -1};
        take_records(&wire);
        wire.records[wire.bytes / 2 + at] ^= 1;
        deliver(&wire, 0, wire.bytes);
        assert_int_equal(read_record(&wire, 0), RECORD_BYTES);
        assert_int_equal(read_record(&wire, RECORD_BYTES), -EBADMSG);
        close_wire(&wire);
    }
}

/* Neither a second time, nor in another order. */
static void a_record_is_taken_in_its_place_only(void **state)
{
    static struct wire wire;
    for (unsigned is_again = 0; is_again < 2; is_again++) {
        wire = (struct wire){.fd = -1};
        take_records(&wire);
        if (is_again) {
            deliver(&wire, 0, wire.bytes / 2);
            assert_int_equal(read_record(&wire, 0), RECORD_BYTES);
        }
        deliver(&wire, is_again ? 0 : wire.bytes / 2, is_again ? wire.bytes / 2 : wire.bytes);
        assert_int_equal(read_record(&wire, 0), -EBADMSG);
        close_wire(&wire);
    }
}

static void who_reads_no_more_is_told(void **state)
{
    struct line line;
    int status = 0;
    connect_well(&line);
    line.ends[1] = test_secure_free(line.ends[1]);
    assert_int_equal(test_secure_seal(line.ends[0], key, sizeof key), sizeof key);
    status = flyt_secure_flush(line.ends[0]);
    assert_true(status == -EPIPE || status == -ECONNRESET);
    end(&line);
}

/* ---- the handshake ---- */

static void another_key_is_refused(void **state)
{
    unsigned char other[FLYT_SECURE_KEY_BYTES];
    struct line line;
    struct flyt_error err = {0};
    memcpy(other, key, sizeof other);
    other[31] ^= 1;
    assert_int_equal(connect_both(&line, other, &err), -EACCES);
    assert_non_null(strstr(err.text, "keys differ"));
    assert_true(line.server_err.code < 0);
    end(&line);
}

static void who_says_nothing_is_given_up(void **state)
{
    struct flyt_error err = {0};
    for (unsigned i = 0; i < 4; i++) {
        bool is_server = i & 1, is_cancelled = i & 2;
        struct flyt_secure *secure;
        int fds[2], cancel[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
        assert_int_equal(pipe(cancel), 0);
        if (is_cancelled)
            assert_int_equal(write(cancel[1], "", 1), 1);
        assert_int_equal(test_secure_new(fds[0], is_server, key, &err, &secure), 0);
        assert_int_equal(test_secure_begin(secure, flyt_clock_ms() + (is_cancelled ? LONG_MS : 50), cancel[0], &err),
                         is_cancelled ? -ECANCELED : -ETIMEDOUT);
        test_secure_free(secure);
        close(fds[1]);
        close(cancel[0]);
        close(cancel[1]);
    }
}

/* Its bytes may lie there when all else has come. */
static void a_handshake_is_nothing_that_was_sent(void **state)
{
    static const unsigned char half[] = {0x16, 3, 3, 0, 80, 2};
    struct flyt_error err = {0};
    struct flyt_secure *secure;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(test_secure_new(fds[0], true, key, &err, &secure), 0);
    assert_int_equal(send(fds[1], half, sizeof half, 0), sizeof half);
    assert_false(flyt_secure_has_part(secure));
    assert_int_equal(test_secure_begin(secure, flyt_clock_ms() + 50, -1, &err), -ETIMEDOUT);
    assert_false(flyt_secure_has_part(secure));
    test_secure_free(secure);
    close(fds[1]);
}

static void what_is_clear_is_refused(void **state)
{
    static const char words[] = "FlyF, a frame in clear";
    struct flyt_error err = {0};
    struct flyt_secure *secure;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(test_secure_new(fds[0], true, key, &err, &secure), 0);
    assert_int_equal(send(fds[1], words, sizeof words, 0), sizeof words);
    assert_int_equal(test_secure_begin(secure, flyt_clock_ms() + LONG_MS, -1, &err), -EPROTONOSUPPORT);
    test_secure_free(secure);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_arrives_at_a_slow_reader),
        cmocka_unit_test(nothing_of_a_record_that_is_cut_is_given),
        cmocka_unit_test(a_record_may_come_in_parts),
        cmocka_unit_test(nothing_of_a_record_that_is_damaged_is_given),
        cmocka_unit_test(a_record_is_taken_in_its_place_only),
        cmocka_unit_test(who_reads_no_more_is_told),
        cmocka_unit_test(another_key_is_refused),
        cmocka_unit_test(who_says_nothing_is_given_up),
        cmocka_unit_test(a_handshake_is_nothing_that_was_sent),
        cmocka_unit_test(what_is_clear_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
