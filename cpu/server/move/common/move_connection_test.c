/* Connections between two servers, in clear and encrypted: what is sent arrives, in whatever portions it is sent and
 * awaited, and every wait can be called off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/move/common/move_connection.h"

enum { BULK_BYTES = 24 << 20, FEW_BYTES = 100, SHORT_MS = 30, LONG_MS = 60000, HEAD_BYTES = 32, FRAME_BYTES = 1 << 20 };

static const unsigned char key[32] = "a key that both of them know 12";

struct line {
    struct flyt_move_connection sender, receiver;
    struct flyt_error err; /* of the receiver's beginning */
    int status;            /* of what is sent */
    int cancel_fd;
};

static void *begin_receiver(void *user)
{
    struct line *line = user;
    flyt_move_connection_begin(&line->receiver, -1, &line->err);
    return NULL;
}

static void connect_both(struct line *line, bool is_encrypted)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    struct flyt_error err = {0};
    pthread_t thread;
    *line = (struct line){.cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fds[2];
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&address, sizeof address), 0);
    fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    close(listener);
    assert_int_equal(flyt_move_connection_open_stream(&line->sender, fds[0], is_encrypted ? key : NULL, true, &err), 0);
    assert_int_equal(flyt_move_connection_open_stream(&line->receiver, fds[1], is_encrypted ? key : NULL, false, &err),
                     0);
    assert_int_equal(pthread_create(&thread, NULL, begin_receiver, line), 0);
    assert_int_equal(flyt_move_connection_begin(&line->sender, -1, &err), 0);
    pthread_join(thread, NULL);
    assert_int_equal(line->err.code, 0);
}

static void close_both(struct line *line)
{
    flyt_move_connection_close(&line->sender);
    flyt_move_connection_close(&line->receiver);
    close(line->cancel_fd);
}

static unsigned char byte_at(size_t offset)
{
    return (unsigned char)(offset * 2654435761u >> 13);
}

/* In parts of two sizes, as frames are. */
static void *send_bulk(void *user)
{
    struct line *line = user;
    unsigned char *bytes = malloc(BULK_BYTES);
    for (size_t i = 0; bytes && i < BULK_BYTES; i++)
        bytes[i] = byte_at(i);
    for (size_t done = 0; bytes && done < BULK_BYTES && !line->status;) {
        size_t rest = BULK_BYTES - done - HEAD_BYTES < FRAME_BYTES ? BULK_BYTES - done - HEAD_BYTES : FRAME_BYTES;
        struct iovec parts[] = {{bytes + done, HEAD_BYTES}, {bytes + done + HEAD_BYTES, rest}};
        line->status = flyt_move_connection_send(&line->sender, parts, 2, line->cancel_fd);
        done += HEAD_BYTES + rest;
    }
    free(bytes);
    return NULL;
}

/* Reads so many bytes, which begin there in all that is sent. How many are wrong. */
static unsigned read_bytes(struct line *line, size_t offset, size_t bytes)
{
    static unsigned char portion[FRAME_BYTES];
    unsigned wrong_count = 0;
    while (bytes) {
        int got = flyt_move_connection_read(&line->receiver, portion, bytes < sizeof portion ? bytes : sizeof portion);
        if (got == -EAGAIN) {
            assert_int_equal(flyt_move_connection_await_part(&line->receiver, bytes, line->cancel_fd, LONG_MS), 0);
            continue;
        }
        assert_true(got > 0);
        for (int i = 0; i < got; i++)
            wrong_count += portion[i] != byte_at(offset + (size_t)i);
        offset += (size_t)got;
        bytes -= (size_t)got;
    }
    return wrong_count;
}

static void all_arrives(bool is_encrypted)
{
    struct line line;
    pthread_t thread;
    connect_both(&line, is_encrypted);
    assert_int_equal(pthread_create(&thread, NULL, send_bulk, &line), 0);
    assert_int_equal(read_bytes(&line, 0, FEW_BYTES), 0);
    assert_int_equal(read_bytes(&line, FEW_BYTES, BULK_BYTES - FEW_BYTES), 0);
    pthread_join(thread, NULL);
    assert_int_equal(line.status, 0);
    assert_false(flyt_move_connection_has_more(&line.receiver));
    close_both(&line);
}

/* Fewer than are awaited are there to be read all the same, and the end is not waited for. */
static void little_is_not_lost(bool is_encrypted)
{
    struct line line;
    unsigned char bytes[FEW_BYTES], got[FEW_BYTES + 1];
    connect_both(&line, is_encrypted);
    assert_int_equal(flyt_move_connection_await_part(&line.receiver, FRAME_BYTES, line.cancel_fd, SHORT_MS),
                     -ETIMEDOUT);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = byte_at(i);
    struct iovec part = {bytes, sizeof bytes};
    assert_int_equal(flyt_move_connection_send(&line.sender, &part, 1, line.cancel_fd), 0);
    int status = flyt_move_connection_await_part(&line.receiver, FRAME_BYTES, line.cancel_fd, SHORT_MS);
    assert_true(status == 0 || status == -ETIMEDOUT);
    assert_int_equal(flyt_move_connection_await_part(&line.receiver, 1, line.cancel_fd, LONG_MS), 0);
    assert_true(flyt_move_connection_has_more(&line.receiver));
    assert_int_equal(flyt_move_connection_read(&line.receiver, got, sizeof got), FEW_BYTES);
    assert_memory_equal(got, bytes, FEW_BYTES);
    flyt_move_connection_close(&line.sender);
    assert_int_equal(flyt_move_connection_await_part(&line.receiver, FRAME_BYTES, line.cancel_fd, LONG_MS), 0);
    assert_int_equal(flyt_move_connection_read(&line.receiver, got, sizeof got), 0);
    close_both(&line);
}

/* Nobody reads; the one who sends waits until it is called off. So does the one who reads, when nobody sends. */
static void waits_are_called_off(bool is_encrypted)
{
    const uint64_t one = 1;
    struct line line;
    pthread_t thread;
    connect_both(&line, is_encrypted);
    const int room = 65536;
    setsockopt(line.sender.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(line.receiver.fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    assert_int_equal(pthread_create(&thread, NULL, send_bulk, &line), 0);
    assert_int_equal(write(line.cancel_fd, &one, sizeof one), sizeof one);
    pthread_join(thread, NULL);
    assert_int_equal(line.status, -ECANCELED);
    assert_int_equal(flyt_move_connection_await_part(&line.receiver, FRAME_BYTES, line.cancel_fd, LONG_MS), -ECANCELED);
    close_both(&line);
}

/* Its bytes are nothing that was sent, and who waits for the rest of them is called off. */
static void a_handshake_is_called_off(void **state)
{
    static const unsigned char half[] = {0x16, 3, 3, 0, 80, 2};
    for (unsigned is_sender = 0; is_sender < 2; is_sender++) {
        struct flyt_error err = {0};
        struct flyt_move_connection connection;
        int fds[2], cancel_fd = eventfd(1, EFD_CLOEXEC);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        assert_int_equal(flyt_move_connection_open_stream(&connection, fds[0], key, is_sender, &err), 0);
        assert_int_equal(send(fds[1], half, sizeof half, MSG_NOSIGNAL), sizeof half);
        assert_false(flyt_move_connection_has_more(&connection));
        assert_int_equal(flyt_move_connection_begin(&connection, cancel_fd, &err), -ECANCELED);
        assert_int_equal(err.code, -ECANCELED);
        assert_false(flyt_move_connection_has_more(&connection));
        flyt_move_connection_close(&connection);
        close(fds[1]);
        close(cancel_fd);
    }
}

static void in_clear(void **state)
{
    all_arrives(false);
    little_is_not_lost(false);
    waits_are_called_off(false);
}

static void encrypted(void **state)
{
    all_arrives(true);
    little_is_not_lost(true);
    waits_are_called_off(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_clear), cmocka_unit_test(encrypted),
                                       cmocka_unit_test(a_handshake_is_called_off)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
