/* TLS as an endpoint: what goes through, what does not, and how either end ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/clock.h"
#include "rpc/transport/endpoint/endpoint.h"
#include "rpc/transport/endpoint/secure.h"

enum { LONG_MS = 60000, BULK_BYTES = 40 << 20, PIECE_BYTES = 100000 };

static const unsigned char key[FLYT_SECURE_KEY_BYTES] = "a key that both of them know 123";

/* [0] is the client's end, [1] the server's. */
struct line {
    int sockets[2];
    struct flyt_endpoint *ends[2];
    pthread_t server;
};

static struct flyt_endpoint *of_socket(int fd)
{
    struct flyt_endpoint *endpoint;
    assert_int_equal(flyt_endpoint_of_socket(fd, &endpoint), 0);
    return endpoint;
}

/* The server's end makes its handshake in its first read or write. */
static void *begin_server(void *user)
{
    flyt_endpoint_write(((struct line *)user)->ends[1], NULL, 0, true);
    return NULL;
}

static void expect(struct line *line, int fd, const unsigned char *server_key)
{
    struct flyt_error err = {0};
    assert_int_equal(flyt_endpoint_expect_encryption(of_socket(fd), server_key, &err, &line->ends[1]), 0);
    assert_int_equal(pthread_create(&line->server, NULL, begin_server, line), 0);
}

/* What the client's connecting comes to. */
static int connect_both(struct line *line, const unsigned char *server_key, struct flyt_error *err)
{
    *line = (struct line){0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line->sockets), 0);
    expect(line, line->sockets[1], server_key);
    struct flyt_endpoint *plain = of_socket(line->sockets[0]);
    int status = flyt_endpoint_encrypt(plain, key, flyt_clock_ms() + LONG_MS, -1, err, &line->ends[0]);
    if (status)
        flyt_endpoint_close(plain);
    pthread_join(line->server, NULL);
    return status;
}

static void connect_well(struct line *line)
{
    struct flyt_error err = {0};
    assert_int_equal(connect_both(line, key, &err), 0);
}

static void end(struct line *line)
{
    for (unsigned i = 0; i < 2; i++)
        line->ends[i] = flyt_endpoint_close(line->ends[i]);
}

static ssize_t put(struct flyt_endpoint *endpoint, const void *bytes, size_t count, bool may_wait)
{
    const struct iovec part = {(void *)bytes, count};
    return flyt_endpoint_write(endpoint, &part, 1, may_wait);
}

static ssize_t get(struct flyt_endpoint *endpoint, void *place, size_t count, bool may_wait)
{
    const struct iovec part = {place, count};
    return flyt_endpoint_read(endpoint, &part, 1, may_wait);
}

static void get_all(struct flyt_endpoint *endpoint, void *place, size_t count)
{
    for (ssize_t got; count; count -= (size_t)got, place = (char *)place + got)
        assert_true((got = get(endpoint, place, count, true)) > 0);
}

static unsigned char byte_at(size_t offset)
{
    return (unsigned char)(offset * 2654435761u >> 13);
}

/* Nobody has read it: of a record a part is as much as all of it. */
static void what_has_come_is_told(void **state)
{
    unsigned char bytes[100] = {1}, got[sizeof bytes];
    struct line line;
    connect_well(&line);
    assert_false(flyt_endpoint_has_more(line.ends[1]));
    assert_int_equal(put(line.ends[0], bytes, sizeof bytes, true), sizeof bytes);
    assert_true(flyt_endpoint_has_more(line.ends[1]));
    assert_int_equal(get(line.ends[1], got, 60, true), 60);
    assert_true(flyt_endpoint_has_more(line.ends[1]));
    assert_int_equal(get(line.ends[1], got + 60, 40, true), 40);
    assert_memory_equal(got, bytes, sizeof bytes);
    assert_false(flyt_endpoint_has_more(line.ends[1]));
    end(&line);
}

/* ---- much of it ---- */

struct flow {
    struct flyt_endpoint *endpoint;
    unsigned wrong_count;
    size_t bytes;
};

static void *write_bulk(void *user)
{
    struct flow *flow = user;
    unsigned char *piece = malloc(PIECE_BYTES);
    while (piece && flow->bytes < BULK_BYTES) {
        size_t bytes = BULK_BYTES - flow->bytes < PIECE_BYTES ? BULK_BYTES - flow->bytes : PIECE_BYTES;
        for (size_t i = 0; i < bytes; i++)
            piece[i] = byte_at(flow->bytes + i);
        /* Two parts, as a record and its payload are. */
        const struct iovec parts[] = {{piece, 60}, {piece + 60, bytes - 60}};
        if (flyt_endpoint_write(flow->endpoint, parts, 2, true) != (ssize_t)bytes)
            break;
        flow->bytes += bytes;
    }
    free(piece);
    flyt_endpoint_shut(flow->endpoint, FLYT_ENDPOINT_WRITING);
    return NULL;
}

static void *read_bulk(void *user)
{
    struct flow *flow = user;
    unsigned char *piece = malloc(PIECE_BYTES);
    ssize_t got;
    while (piece && (got = get(flow->endpoint, piece, PIECE_BYTES, true)) > 0) {
        for (ssize_t i = 0; i < got; i++)
            flow->wrong_count += piece[i] != byte_at(flow->bytes + (size_t)i);
        flow->bytes += (size_t)got;
    }
    free(piece);
    return NULL;
}

static void both_ways_at_once(void **state)
{
    struct line line;
    pthread_t threads[4];
    struct flow flows[4];
    connect_well(&line);
    for (unsigned i = 0; i < 4; i++) {
        flows[i] = (struct flow){.endpoint = line.ends[i % 2]};
        assert_int_equal(pthread_create(&threads[i], NULL, i < 2 ? write_bulk : read_bulk, &flows[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 2; i < 4; i++) {
        assert_int_equal(flows[i].bytes, BULK_BYTES);
        assert_int_equal(flows[i].wrong_count, 0);
    }
    end(&line);
}

/* Who may not wait is taken from what there is room for; what has been taken goes out later. The reader, who waits
 * before each read for as little as it takes, finds all of it, also what OpenSSL has and the socket not. */
static void what_the_socket_refuses_goes_later(void **state)
{
    static unsigned char bytes[4 << 20], got[sizeof bytes];
    struct line line;
    size_t sent = 0, read = 0;
    unsigned refusals = 0;
    connect_well(&line);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = byte_at(i);
    while (sent < sizeof bytes || atomic_load(&line.ends[1]->has_pending)) {
        ssize_t step = flyt_endpoint_write(line.ends[1], &(struct iovec){bytes + sent, sizeof bytes - sent},
                                           sent < sizeof bytes, false);
        assert_true(step >= 0 || step == -EAGAIN);
        sent += step > 0 ? (size_t)step : 0;
        if (step != -EAGAIN)
            continue;
        assert_true(atomic_load(&line.ends[1]->has_pending));
        refusals++;
        assert_int_equal(flyt_endpoint_wait(line.ends[0], FLYT_ENDPOINT_IN, -1, LONG_MS * INT64_C(1000000)),
                         FLYT_ENDPOINT_IN);
        step = get(line.ends[0], got + read, sizeof got - read < 70001 ? sizeof got - read : 70001, false);
        assert_true(step > 0 || step == -EAGAIN);
        read += step > 0 ? (size_t)step : 0;
    }
    assert_true(refusals > 0);
    while (read < sizeof got) {
        assert_int_equal(flyt_endpoint_wait(line.ends[0], FLYT_ENDPOINT_IN, -1, LONG_MS * INT64_C(1000000)),
                         FLYT_ENDPOINT_IN);
        ssize_t step = get(line.ends[0], got + read, sizeof got - read < 777 ? sizeof got - read : 777, false);
        assert_true(step > 0 || step == -EAGAIN);
        read += step > 0 ? (size_t)step : 0;
    }
    assert_memory_equal(got, bytes, sizeof bytes);
    assert_int_equal(get(line.ends[0], got, 1, false), -EAGAIN);
    assert_int_equal(flyt_endpoint_wait(line.ends[0], FLYT_ENDPOINT_IN, -1, 0), 0);
    end(&line);
}

static void nothing_goes_in_clear(void **state)
{
    static const char words[] = "a sentence that nobody on the way may read";
    struct line line = {0};
    struct flyt_error err = {0};
    int way[2], far[2];
    char seen[65536], got[sizeof words];
    /* The server sits behind a second pair; a process carries bytes from one to the other and looks at them. */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, way), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, far), 0);
    pid_t carrier = fork();
    if (carrier == 0) {
        struct pollfd polls[] = {{.fd = way[1], .events = POLLIN}, {.fd = far[1], .events = POLLIN}};
        close(way[0]);
        close(far[0]);
        for (;;) {
            if (poll(polls, 2, -1) < 0)
                _exit(2);
            for (unsigned i = 0; i < 2; i++) {
                ssize_t bytes = polls[i].revents ? recv(polls[i].fd, seen, sizeof seen, 0) : 0;
                if (polls[i].revents && bytes <= 0)
                    _exit(0);
                if (bytes > 0 && memmem(seen, (size_t)bytes, "sentence", 8))
                    _exit(1);
                if (bytes > 0 && send(polls[!i].fd, seen, (size_t)bytes, MSG_NOSIGNAL) != bytes)
                    _exit(0); /* it has ended */
            }
        }
    }
    close(way[1]);
    close(far[1]);
    expect(&line, far[0], key);
    assert_int_equal(flyt_endpoint_encrypt(of_socket(way[0]), key, flyt_clock_ms() + LONG_MS, -1, &err, &line.ends[0]),
                     0);
    pthread_join(line.server, NULL);
    assert_int_equal(put(line.ends[1], words, sizeof words, true), sizeof words);
    get_all(line.ends[0], got, sizeof got);
    assert_string_equal(got, words);
    end(&line);
    int status;
    assert_int_equal(waitpid(carrier, &status, 0), carrier);
    assert_int_equal(status, 0);
}

/* ---- handshakes that fail ---- */

static void another_key_is_refused(void **state)
{
    unsigned char other[FLYT_SECURE_KEY_BYTES];
    struct line line;
    struct flyt_error err = {0};
    char byte;
    memcpy(other, key, sizeof other);
    other[31] ^= 1;
    assert_int_equal(connect_both(&line, other, &err), -EACCES);
    assert_non_null(strstr(err.text, "keys differ"));
    assert_int_equal(get(line.ends[1], &byte, 1, true), -EPIPE); /* the server's end is at the end of the stream */
    assert_int_equal(put(line.ends[1], "x", 1, true), -EPIPE);
    end(&line);
}

/* A server that answers in clear: its words stay where they are. */
static void clear_answers_are_left_alone(void **state)
{
    static const unsigned char answer[] = {0x80, 0, 0, 4, 1, 2, 3, 4};
    struct flyt_error err = {0};
    struct flyt_endpoint *secure;
    unsigned char got[sizeof answer];
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    struct flyt_endpoint *plain = of_socket(fds[0]);
    assert_int_equal(send(fds[1], answer, sizeof answer, 0), sizeof answer);
    assert_int_equal(flyt_endpoint_encrypt(plain, key, flyt_clock_ms() + LONG_MS, -1, &err, &secure), -EPROTONOSUPPORT);
    get_all(plain, got, sizeof got);
    assert_memory_equal(got, answer, sizeof got);
    flyt_endpoint_close(plain);
    close(fds[1]);
}

static void an_end_during_the_handshake_is_told(void **state)
{
    static const unsigned char half[] = {0x16, 3, 3, 0, 80, 2};
    struct flyt_error err = {0};
    struct flyt_endpoint *secure;
    int fds[2];
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        if (i)
            assert_int_equal(send(fds[1], half, sizeof half, 0), sizeof half);
        shutdown(fds[1], SHUT_WR);
        struct flyt_endpoint *plain = of_socket(fds[0]);
        int status = flyt_endpoint_encrypt(plain, key, flyt_clock_ms() + LONG_MS, -1, &err, &secure);
        assert_true(status == -EPIPE || status == -EACCES);
        flyt_endpoint_close(plain);
        close(fds[1]);
    }
}

static void a_silent_server_is_given_up(void **state)
{
    struct flyt_error err = {0};
    struct flyt_endpoint *secure;
    int fds[2], cancel[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(pipe(cancel), 0);
    struct flyt_endpoint *plain = of_socket(fds[0]);
    assert_int_equal(flyt_endpoint_encrypt(plain, key, flyt_clock_ms() + 50, -1, &err, &secure), -ETIMEDOUT);
    assert_int_equal(write(cancel[1], "", 1), 1);
    assert_int_equal(flyt_endpoint_encrypt(plain, key, flyt_clock_ms() + LONG_MS, cancel[0], &err, &secure),
                     -ECANCELED);
    flyt_endpoint_close(plain);
    close(fds[1]);
    close(cancel[0]);
    close(cancel[1]);
}

/* Who may not wait is not made to by the handshake, and it goes on bit by bit. */
static void a_handshake_waits_for_nobody_who_may_not(void **state)
{
    struct line line = {0};
    struct flyt_error err = {0};
    char byte;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, line.sockets), 0);
    assert_int_equal(flyt_endpoint_expect_encryption(of_socket(line.sockets[1]), key, &err, &line.ends[1]), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(get(line.ends[1], &byte, 1, false), -EAGAIN);
    assert_int_equal(put(line.ends[1], "x", 1, false), -EAGAIN);
    assert_int_equal(pthread_create(&line.server, NULL, begin_server, &line), 0);
    assert_int_equal(
        flyt_endpoint_encrypt(of_socket(line.sockets[0]), key, flyt_clock_ms() + LONG_MS, -1, &err, &line.ends[0]), 0);
    pthread_join(line.server, NULL);
    assert_int_equal(put(line.ends[1], "y", 1, true), 1);
    get_all(line.ends[0], &byte, 1);
    assert_int_equal(byte, 'y');
    end(&line);
}

/* ---- ends ---- */

/* The socket is cut between two records: what came whole is delivered, then the stream ends. */
static void a_cut_socket_ends_the_stream(void **state)
{
    struct line line;
    char got[8];
    connect_well(&line);
    assert_int_equal(put(line.ends[1], "12345", 5, true), 5);
    shutdown(line.sockets[1], SHUT_RDWR);
    get_all(line.ends[0], got, 5);
    assert_int_equal(get(line.ends[0], got, sizeof got, true), -EPIPE);
    while (put(line.ends[0], "x", 1, true) > 0) /* what is taken may find the end later */
        continue;
    end(&line);
}

/* What is no record of the other end ends the connection, and nothing of it is delivered. */
static void spoilt_bytes_are_not_delivered(void **state)
{
    static const unsigned char record[] = {0x17, 3, 3, 0, 24, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0,
                                           1,    2, 3, 4, 5,  6, 7, 8, 9, 0, 1, 2, 3, 4};
    struct line line;
    char got[8];
    connect_well(&line);
    assert_int_equal(send(line.sockets[1], record, sizeof record, 0), sizeof record);
    assert_int_equal(get(line.ends[0], got, sizeof got, true), -EBADMSG);
    end(&line);
}

/* What was written before an end still goes out, and the other way stays open. */
static void last_words_are_sent(void **state)
{
    static char piece[PIECE_BYTES], got[PIECE_BYTES];
    struct line line;
    connect_well(&line);
    assert_int_equal(put(line.ends[1], piece, sizeof piece, true), sizeof piece);
    flyt_endpoint_shut(line.ends[1], FLYT_ENDPOINT_WRITING);
    get_all(line.ends[0], got, sizeof got);
    assert_int_equal(get(line.ends[0], got, 1, true), -EPIPE);
    assert_int_equal(put(line.ends[0], "bye", 3, true), 3);
    get_all(line.ends[1], got, 3);
    assert_int_equal(put(line.ends[1], "x", 1, true), -EPIPE);
    end(&line);
}

static void *write_for_ever(void *user)
{
    static char piece[PIECE_BYTES];
    while (put(user, piece, sizeof piece, true) > 0)
        continue;
    return NULL;
}

static void *read_for_ever(void *user)
{
    char byte;
    while (get(user, &byte, 1, true) > 0)
        continue;
    return NULL;
}

/* Nobody reads, and nothing comes: an end lets go of both. */
static void an_end_lets_go_of_who_waits(void **state)
{
    struct line line;
    pthread_t threads[2];
    connect_well(&line);
    assert_int_equal(pthread_create(&threads[0], NULL, write_for_ever, line.ends[0]), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, read_for_ever, line.ends[0]), 0);
    struct pollfd room = {.fd = line.sockets[0], .events = POLLOUT};
    while (poll(&room, 1, 0) == 1)
        usleep(1000);
    flyt_endpoint_shut(line.ends[0], FLYT_ENDPOINT_BOTH);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    end(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_come_is_told),
        cmocka_unit_test(both_ways_at_once),
        cmocka_unit_test(what_the_socket_refuses_goes_later),
        cmocka_unit_test(nothing_goes_in_clear),
        cmocka_unit_test(another_key_is_refused),
        cmocka_unit_test(clear_answers_are_left_alone),
        cmocka_unit_test(an_end_during_the_handshake_is_told),
        cmocka_unit_test(a_silent_server_is_given_up),
        cmocka_unit_test(a_handshake_waits_for_nobody_who_may_not),
        cmocka_unit_test(a_cut_socket_ends_the_stream),
        cmocka_unit_test(spoilt_bytes_are_not_delivered),
        cmocka_unit_test(last_words_are_sent),
        cmocka_unit_test(an_end_lets_go_of_who_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
