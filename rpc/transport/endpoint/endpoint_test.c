/*
 * What the end of a stream looks like to who only waits for it, over every kind of endpoint in clear: a server watches
 * its client so, beside the thread that reads. TLS passes it on (secure_endpoint_test.c has the rest of that).
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/transport/endpoint/endpoint.h"
#include "rpc/transport/endpoint/rings.h"

enum { LONG_MS = 10000 };
#define LONG_NS (LONG_MS * INT64_C(1000000))

/* ---- both ends of a line of each kind ---- */

struct line {
    struct flyt_endpoint *ends[2];
};

static void of_sockets(struct line *line, const int *fds)
{
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(flyt_endpoint_of_socket(fds[i], &line->ends[i]), 0);
}

static void open_unix(struct line *line)
{
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    of_sockets(line, fds);
}

static void open_tcp(struct line *line)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fds[2];

    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &bytes), 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fds[0], (struct sockaddr *)&address, sizeof address), 0);
    fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fds[1] >= 0);
    close(listener);
    of_sockets(line, fds);
}

static void arrive(void *user, struct flyt_endpoint *endpoint)
{
    ((struct line *)user)->ends[1] = endpoint;
}

static void open_memory(struct line *line)
{
    const struct flyt_memory_listener listener = {arrive, line};

    assert_int_equal(flyt_endpoint_in_memory(&listener, &line->ends[0]), 0);
}

/* Over the sockets that the line has so far. */
static void put_rings(struct line *line)
{
    struct flyt_rings rings[2];

    assert_int_equal(flyt_rings_new(&rings[0]), 0);
    assert_int_equal(flyt_rings_map(rings[0].fd, &rings[1]), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(flyt_endpoint_over_rings(line->ends[i], &rings[i], &line->ends[i]), 0);
}

static void open_rings(struct line *line)
{
    open_unix(line);
    put_rings(line);
}

static void open_rings_over_tcp(struct line *line)
{
    open_tcp(line);
    put_rings(line);
}

typedef void (*open_fn)(struct line *line);
static const open_fn openers[] = {open_unix, open_tcp, open_memory, open_rings, open_rings_over_tcp};
enum { OPENERS = sizeof openers / sizeof *openers };

static void close_line(struct line *line)
{
    for (unsigned i = 0; i < 2; i++)
        line->ends[i] = flyt_endpoint_close(line->ends[i]);
}

static void write_byte(struct flyt_endpoint *endpoint)
{
    const struct iovec part = {.iov_base = (char[]){'x'}, .iov_len = 1};

    assert_int_equal(flyt_endpoint_write(endpoint, &part, 1, true), 1);
}

static ssize_t read_byte(struct flyt_endpoint *endpoint)
{
    char byte;
    const struct iovec part = {.iov_base = &byte, .iov_len = 1};

    return flyt_endpoint_read(endpoint, &part, 1, true);
}

/* ---- tests ---- */

/* What has come and nobody reads is no end; the end is seen though that is still to be read. */
static void test_end_is_seen_before_it_is_read(void **state)
{
    for (unsigned i = 0; i < OPENERS; i++) {
        struct line line;
        struct flyt_endpoint *watched;

        openers[i](&line);
        assert_int_equal(flyt_endpoint_duplicate(line.ends[1], &watched), 0);
        assert_int_equal(flyt_endpoint_wait(watched, FLYT_ENDPOINT_ENDED, -1, 0), 0);
        write_byte(line.ends[0]);
        assert_int_equal(flyt_endpoint_wait(line.ends[1], FLYT_ENDPOINT_IN, -1, LONG_NS), FLYT_ENDPOINT_IN);
        assert_int_equal(flyt_endpoint_wait(watched, FLYT_ENDPOINT_ENDED, -1, 0), 0);
        flyt_endpoint_shut(line.ends[0], FLYT_ENDPOINT_WRITING);
        assert_int_equal(flyt_endpoint_wait(watched, FLYT_ENDPOINT_ENDED, -1, LONG_NS), FLYT_ENDPOINT_ENDED);
        assert_int_equal(read_byte(line.ends[1]), 1);
        assert_int_equal(read_byte(line.ends[1]), -EPIPE);
        flyt_endpoint_close(watched);
        close_line(&line);
    }
}

/* It is seen though the thread that had the first has let go of it, and ends the line where it shuts. */
static void test_duplicate_outlives_the_first(void **state)
{
    for (unsigned i = 0; i < OPENERS; i++) {
        struct line line;
        struct flyt_endpoint *watched;

        openers[i](&line);
        assert_int_equal(flyt_endpoint_duplicate(line.ends[1], &watched), 0);
        line.ends[0] = flyt_endpoint_close(line.ends[0]);
        line.ends[1] = flyt_endpoint_close(line.ends[1]);
        assert_int_equal(flyt_endpoint_wait(watched, FLYT_ENDPOINT_ENDED, -1, LONG_NS), FLYT_ENDPOINT_ENDED);
        flyt_endpoint_close(watched);

        openers[i](&line);
        assert_int_equal(flyt_endpoint_duplicate(line.ends[1], &watched), 0);
        flyt_endpoint_close(watched); /* ends nothing */
        write_byte(line.ends[1]);
        assert_int_equal(read_byte(line.ends[0]), 1);
        assert_int_equal(flyt_endpoint_duplicate(line.ends[1], &watched), 0);
        flyt_endpoint_shut(watched, FLYT_ENDPOINT_BOTH);
        assert_int_equal(read_byte(line.ends[0]), -EPIPE);
        assert_int_equal(read_byte(line.ends[1]), -EPIPE);
        flyt_endpoint_close(watched);
        close_line(&line);
    }
}

/* Others may have something to say meanwhile. */
static void test_waiting_is_woken(void **state)
{
    for (unsigned i = 0; i < OPENERS; i++) {
        struct line line;
        int wake[2];

        openers[i](&line);
        assert_int_equal(pipe(wake), 0);
        assert_int_equal(write(wake[1], "x", 1), 1);
        assert_int_equal(flyt_endpoint_wait(line.ends[1], FLYT_ENDPOINT_ENDED, wake[0], LONG_NS), FLYT_ENDPOINT_WOKEN);
        flyt_endpoint_shut(line.ends[0], FLYT_ENDPOINT_BOTH);
        assert_int_equal(flyt_endpoint_wait(line.ends[1], FLYT_ENDPOINT_ENDED, wake[0], LONG_NS) & FLYT_ENDPOINT_WOKEN,
                         FLYT_ENDPOINT_WOKEN);
        close(wake[0]);
        close(wake[1]);
        close_line(&line);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_end_is_seen_before_it_is_read),
        cmocka_unit_test(test_duplicate_outlives_the_first),
        cmocka_unit_test(test_waiting_is_woken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
