/* Encryption of a socket: what goes through, what does not, and how either end ends. */
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
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/clock.h"
#include "rpc/transport/secure.h"

enum { LONG_MS = 60000, BULK_BYTES = 40 << 20, PIECE_BYTES = 100000 };

static const unsigned char key[FLYT_SECURE_KEY_BYTES] = "a key that both of them know 123";

/* Two ends with what lies between them: [0] is the client's socket, [1] the server's. */
struct line {
    int sockets[2];
    struct flyt_secure *client, *server;
    int client_fd, server_fd; /* plain; -1: none */
};

/* What the client's connecting comes to. */
static int connect_both(struct line *line, const unsigned char *server_key, struct flyt_error *err)
{
    *line = (struct line){.client_fd = -1, .server_fd = -1};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line->sockets), 0);
    assert_int_equal(flyt_secure_accept(line->sockets[1], server_key, err, &line->server, &line->server_fd), 0);
    return flyt_secure_connect(line->sockets[0], key, flyt_clock_ms() + LONG_MS, -1, err, &line->client,
                               &line->client_fd);
}

static void end(struct line *line)
{
    close(line->client_fd);
    close(line->server_fd);
    if (!line->client)
        close(line->sockets[0]);
    flyt_secure_free(line->client);
    flyt_secure_free(line->server);
}

static unsigned char byte_at(size_t offset)
{
    return (unsigned char)(offset * 2654435761u >> 13);
}

struct flow {
    int fd;
    unsigned sum_errors;
    size_t bytes;
};

static void *write_bulk(void *user)
{
    struct flow *flow = user;
    unsigned char *piece = malloc(PIECE_BYTES);
    for (size_t done = 0; piece && done < BULK_BYTES;) {
        size_t bytes = BULK_BYTES - done < PIECE_BYTES ? BULK_BYTES - done : PIECE_BYTES;
        for (size_t i = 0; i < bytes; i++)
            piece[i] = byte_at(done + i);
        for (size_t sent = 0; sent < bytes;) {
            ssize_t step = send(flow->fd, piece + sent, bytes - sent, MSG_NOSIGNAL);
            if (step <= 0) {
                free(piece);
                return NULL;
            }
            sent += (size_t)step;
        }
        done += bytes;
    }
    free(piece);
    shutdown(flow->fd, SHUT_WR);
    return NULL;
}

static void *read_bulk(void *user)
{
    struct flow *flow = user;
    unsigned char *piece = malloc(PIECE_BYTES);
    ssize_t got;
    while (piece && (got = recv(flow->fd, piece, PIECE_BYTES, 0)) > 0) {
        for (ssize_t i = 0; i < got; i++)
            flow->sum_errors += piece[i] != byte_at(flow->bytes + (size_t)i);
        flow->bytes += (size_t)got;
    }
    free(piece);
    return NULL;
}

static void both_ways_at_once(void **state)
{
    struct line line;
    struct flyt_error err = {0};
    pthread_t threads[4];
    assert_int_equal(connect_both(&line, key, &err), 0);
    struct flow flows[4] = {
        {.fd = line.client_fd}, {.fd = line.server_fd}, {.fd = line.client_fd}, {.fd = line.server_fd}};
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < 2 ? write_bulk : read_bulk, &flows[i]), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 2; i < 4; i++) {
        assert_int_equal(flows[i].bytes, BULK_BYTES);
        assert_int_equal(flows[i].sum_errors, 0);
    }
    end(&line);
}

/* More than the plain socket holds lies decrypted, and inside OpenSSL, when the reader comes; all of it arrives. */
static void a_late_reader_gets_all(void **state)
{
    const struct timeval limit = {.tv_sec = 20};
    struct line line;
    struct flyt_error err = {0};
    int room = 0; /* as the kernel counts: more than there are bytes */
    socklen_t room_bytes = sizeof room;
    assert_int_equal(connect_both(&line, key, &err), 0);
    setsockopt(line.client_fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    getsockopt(line.client_fd, SOL_SOCKET, SO_SNDBUF, &room, &room_bytes);
    char *bytes = calloc(2, (size_t)room);
    for (size_t wanted = (size_t)room / 2; wanted < 2 * (size_t)room; wanted += 30000) {
        size_t sent = 0, read = 0;
        /* As much as goes without a reader. */
        for (unsigned tries = 0; sent < wanted && tries < 20;) {
            ssize_t step = send(line.server_fd, bytes, wanted - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            sent += step > 0 ? (size_t)step : 0;
            if (step <= 0 && ++tries)
                usleep(1000);
        }
        usleep(10000); /* until everything lies where it can get without a reader */
        while (read < sent) {
            ssize_t got = recv(line.client_fd, bytes, sent - read < PIECE_BYTES ? sent - read : PIECE_BYTES, 0);
            assert_true(got > 0);
            read += (size_t)got;
        }
    }
    free(bytes);
    end(&line);
}

static void nothing_goes_in_clear(void **state)
{
    static const char words[] = "a sentence that nobody on the way may read";
    struct line line;
    struct flyt_error err = {0};
    int way[2], far[2];
    char seen[65536], got[sizeof words];
    /* The server sits behind a second pair; the test carries bytes from one to the other and looks at them. */
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, way), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, far), 0);
    line = (struct line){.sockets = {way[0], far[0]}};
    assert_int_equal(flyt_secure_accept(far[0], key, &err, &line.server, &line.server_fd), 0);
    assert_int_equal(send(line.server_fd, words, sizeof words, 0), sizeof words);
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
                    _exit(3);
            }
        }
    }
    close(way[1]);
    close(far[1]);
    assert_int_equal(
        flyt_secure_connect(way[0], key, flyt_clock_ms() + LONG_MS, -1, &err, &line.client, &line.client_fd), 0);
    assert_int_equal(recv(line.client_fd, got, sizeof got, MSG_WAITALL), sizeof got);
    assert_string_equal(got, words);
    end(&line);
    int status;
    assert_int_equal(waitpid(carrier, &status, 0), carrier);
    assert_int_equal(status, 0);
}

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
    assert_int_equal(recv(line.server_fd, &byte, 1, 0), 0); /* the server's end is the end of the stream */
    end(&line);
}

/* A server that answers in clear: its words stay where they are. */
static void clear_answers_are_left_alone(void **state)
{
    static const unsigned char answer[] = {0x80, 0, 0, 4, 1, 2, 3, 4};
    struct flyt_error err = {0};
    struct flyt_secure *secure;
    unsigned char got[sizeof answer];
    int fds[2], plain_fd;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(send(fds[1], answer, sizeof answer, 0), sizeof answer);
    assert_int_equal(flyt_secure_connect(fds[0], key, flyt_clock_ms() + LONG_MS, -1, &err, &secure, &plain_fd),
                     -EPROTONOSUPPORT);
    assert_int_equal(recv(fds[0], got, sizeof got, 0), sizeof got);
    assert_memory_equal(got, answer, sizeof got);
    close(fds[0]);
    close(fds[1]);
}

static void an_end_during_the_handshake_is_told(void **state)
{
    static const unsigned char half[] = {0x16, 3, 3, 0, 80, 2};
    struct flyt_error err = {0};
    struct flyt_secure *secure;
    int fds[2], plain_fd;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
        if (i)
            assert_int_equal(send(fds[1], half, sizeof half, 0), sizeof half);
        shutdown(fds[1], SHUT_WR);
        int status = flyt_secure_connect(fds[0], key, flyt_clock_ms() + LONG_MS, -1, &err, &secure, &plain_fd);
        assert_true(status == -EPIPE || status == -EACCES);
        close(fds[0]);
        close(fds[1]);
    }
}

static void a_silent_server_is_given_up(void **state)
{
    struct flyt_error err = {0};
    struct flyt_secure *secure;
    int fds[2], cancel[2], plain_fd;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    assert_int_equal(pipe(cancel), 0);
    assert_int_equal(flyt_secure_connect(fds[0], key, flyt_clock_ms() + 50, -1, &err, &secure, &plain_fd), -ETIMEDOUT);
    assert_int_equal(write(cancel[1], "", 1), 1);
    assert_int_equal(flyt_secure_connect(fds[0], key, flyt_clock_ms() + LONG_MS, cancel[0], &err, &secure, &plain_fd),
                     -ECANCELED);
    close(fds[0]);
    close(fds[1]);
    close(cancel[0]);
    close(cancel[1]);
}

/* The socket is cut between two records: what came whole is delivered, then the stream ends. */
static void a_cut_socket_ends_the_stream(void **state)
{
    struct line line;
    struct flyt_error err = {0};
    char got[8];
    assert_int_equal(connect_both(&line, key, &err), 0);
    assert_int_equal(send(line.server_fd, "12345", 5, 0), 5);
    assert_int_equal(recv(line.client_fd, got, 5, MSG_WAITALL), 5);
    shutdown(flyt_secure_fd(line.server), SHUT_RDWR);
    assert_int_equal(recv(line.client_fd, got, sizeof got, 0), 0);
    /* The other direction ends a moment later. */
    ssize_t sent = 1;
    for (unsigned tries = 0; sent == 1 && tries < LONG_MS; tries++) {
        sent = send(line.client_fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        usleep(1000);
    }
    assert_int_equal(sent, -1);
    end(&line);
}

/* A byte that was changed on the way ends the connection, and nothing of its record is delivered. */
static void spoilt_bytes_are_not_delivered(void **state)
{
    static const unsigned char record[] = {0x17, 3, 3, 0, 24, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0,
                                           1,    2, 3, 4, 5,  6, 7, 8, 9, 0, 1, 2, 3, 4};
    struct line line;
    struct flyt_error err = {0};
    char got[8];
    assert_int_equal(connect_both(&line, key, &err), 0);
    assert_int_equal(send(flyt_secure_fd(line.server), record, sizeof record, 0), sizeof record);
    assert_int_equal(recv(line.client_fd, got, sizeof got, 0), 0);
    end(&line);
}

/* What was written before the plain socket was closed still goes out. */
static void last_words_are_sent(void **state)
{
    struct line line;
    struct flyt_error err = {0};
    size_t bytes = 0;
    char *piece = calloc(1, PIECE_BYTES);
    assert_int_equal(connect_both(&line, key, &err), 0);
    assert_int_equal(send(line.server_fd, piece, PIECE_BYTES, 0), PIECE_BYTES);
    shutdown(line.server_fd, SHUT_RDWR);
    flyt_secure_drain(line.server, LONG_MS);
    for (ssize_t got; (got = recv(line.client_fd, piece, PIECE_BYTES, 0)) > 0;)
        bytes += (size_t)got;
    assert_int_equal(bytes, PIECE_BYTES);
    free(piece);
    end(&line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ways_at_once),
        cmocka_unit_test(a_late_reader_gets_all),
        cmocka_unit_test(nothing_goes_in_clear),
        cmocka_unit_test(another_key_is_refused),
        cmocka_unit_test(clear_answers_are_left_alone),
        cmocka_unit_test(an_end_during_the_handshake_is_told),
        cmocka_unit_test(a_silent_server_is_given_up),
        cmocka_unit_test(a_cut_socket_ends_the_stream),
        cmocka_unit_test(spoilt_bytes_are_not_delivered),
        cmocka_unit_test(last_words_are_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
