/* Bytes through rings in shared memory: all of them, in order, however both ends sleep; an end that lies or dies. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rpc/base/shared.h"
#include "rpc/transport/endpoint/endpoint.h"
#include "rpc/transport/endpoint/rings.h"

enum { LONG_MS = 20000, SHORT_MS = 20, STREAM_BYTES = 24 * 1024 * 1024, PIECE_BYTES_MAX = 300 * 1024 };
#define NS(ms) ((ms)*INT64_C(1000000))

/* What both ends of a line are, and the rings' memory as the test itself sees it. */
struct line {
    struct flyt_endpoint *ends[2];
    struct flyt_rings seen;
};

static void open_line(struct line *line)
{
    struct flyt_rings rings[2];
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(flyt_rings_new(&rings[0]), 0);
    assert_int_equal(flyt_rings_map(rings[0].fd, &rings[1]), 0);
    assert_int_equal(flyt_rings_map(rings[0].fd, &line->seen), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(flyt_endpoint_of_socket(fds[i], &line->ends[i]), 0);
        assert_int_equal(flyt_endpoint_over_rings(line->ends[i], &rings[i], &line->ends[i]), 0);
    }
}

static void close_line(struct line *line)
{
    for (unsigned i = 0; i < 2; i++)
        line->ends[i] = flyt_endpoint_close(line->ends[i]);
    flyt_rings_close(&line->seen);
}

static ssize_t write_bytes(struct flyt_endpoint *endpoint, const void *bytes, size_t count, bool may_wait)
{
    const struct iovec part = {.iov_base = (void *)bytes, .iov_len = count};

    return flyt_endpoint_write(endpoint, &part, 1, may_wait);
}

static ssize_t read_bytes(struct flyt_endpoint *endpoint, void *place, size_t count, bool may_wait)
{
    const struct iovec part = {.iov_base = place, .iov_len = count};

    return flyt_endpoint_read(endpoint, &part, 1, may_wait);
}

static void fill_up(struct flyt_endpoint *endpoint)
{
    static const char zeros[4096];

    while (write_bytes(endpoint, zeros, sizeof zeros, false) > 0)
        continue;
}

static int bells_of(const struct flyt_endpoint *endpoint)
{
    int count = -1;

    assert_int_equal(ioctl(flyt_endpoint_fd(endpoint), FIONREAD, &count), 0);
    return count;
}

/* ---- bytes ---- */

struct mover {
    struct flyt_endpoint *endpoint;
    unsigned seed;
    bool has_failed;
};

/* The byte at a place of the stream, which neither end keeps. */
static unsigned char byte_at(uint64_t position)
{
    return (unsigned char)((position * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
}

/* Now many small pieces, now large ones, now nothing for a while, so that the other end goes to sleep. */
static size_t next_piece(struct mover *mover)
{
    int kind = rand_r(&mover->seed) % 64;

    if (!kind)
        usleep((useconds_t)(rand_r(&mover->seed) % 2000));
    return 1 + (size_t)rand_r(&mover->seed) % (kind < 8 ? PIECE_BYTES_MAX : 200);
}

static void *write_stream(void *argument)
{
    struct mover *mover = argument;
    unsigned char *piece = malloc(PIECE_BYTES_MAX);

    for (uint64_t done = 0; done < STREAM_BYTES && !mover->has_failed;) {
        size_t bytes = next_piece(mover);
        bytes = bytes < STREAM_BYTES - done ? bytes : STREAM_BYTES - done;
        for (size_t i = 0; i < bytes; i++)
            piece[i] = byte_at(done + i);
        for (size_t at = 0; at < bytes && !mover->has_failed;) {
            const struct iovec parts[] = {{piece + at, (bytes - at) / 2},
                                          {piece + at + (bytes - at) / 2, (bytes - at + 1) / 2}};
            ssize_t count = flyt_endpoint_write(mover->endpoint, parts, 2, true);
            mover->has_failed = count <= 0;
            at += count > 0 ? (size_t)count : 0;
        }
        done += bytes;
    }
    flyt_endpoint_shut(mover->endpoint, FLYT_ENDPOINT_WRITING);
    free(piece);
    return NULL;
}

static void *read_stream(void *argument)
{
    struct mover *mover = argument;
    unsigned char *piece = malloc(PIECE_BYTES_MAX);
    uint64_t done = 0;

    for (ssize_t count; (count = read_bytes(mover->endpoint, piece, next_piece(mover), true)) > 0;
         done += (uint64_t)count)
        for (ssize_t i = 0; i < count; i++)
            mover->has_failed |= piece[i] != byte_at(done + (uint64_t)i);
    mover->has_failed |= done != STREAM_BYTES;
    free(piece);
    return NULL;
}

static void test_streams_in_both_directions(void **state)
{
    struct mover movers[4];
    pthread_t threads[4];
    struct line line;

    open_line(&line);
    for (unsigned i = 0; i < 4; i++) {
        movers[i] = (struct mover){.endpoint = line.ends[i / 2], .seed = i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, i % 2 ? read_stream : write_stream, &movers[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_false(movers[i].has_failed);
    }
    close_line(&line);
}

/* A write is a copy: the socket carries a byte only where somebody sleeps. */
static void test_no_bell_where_nobody_sleeps(void **state)
{
    struct line line;
    char place[8];

    open_line(&line);
    for (unsigned i = 0; i < 1000; i++) {
        assert_int_equal(write_bytes(line.ends[0], "12345678", 8, false), 8);
        assert_int_equal(read_bytes(line.ends[1], place, 8, false), 8);
        assert_memory_equal(place, "12345678", 8);
    }
    assert_int_equal(read_bytes(line.ends[1], place, 8, false), -EAGAIN);
    assert_int_equal(flyt_endpoint_wait(line.ends[1], FLYT_ENDPOINT_IN, -1, NS(SHORT_MS)), 0);
    assert_int_equal(write_bytes(line.ends[0], "x", 1, false), 1);
    assert_int_equal(bells_of(line.ends[1]), 0);
    close_line(&line);
}

/* ---- waiting ---- */

struct sleeper {
    struct flyt_endpoint *endpoint;
    unsigned events;
    int found;
};

static void *sleep_for(void *argument)
{
    struct sleeper *sleeper = argument;

    sleeper->found = flyt_endpoint_wait(sleeper->endpoint, sleeper->events, -1, NS(LONG_MS));
    return NULL;
}

/* One for bytes and one for room, at one end: what the one is woken for does not leave the other one asleep. */
static void test_two_who_sleep(void **state)
{
    static const unsigned firsts[] = {FLYT_ENDPOINT_IN, FLYT_ENDPOINT_OUT};
    char place[FLYT_RING_BYTES];

    for (unsigned round = 0; round < 40; round++) {
        const unsigned first = firsts[round % 2];
        struct line line;
        open_line(&line);
        fill_up(line.ends[0]);
        struct sleeper sleepers[] = {{line.ends[0], FLYT_ENDPOINT_IN, 0}, {line.ends[0], FLYT_ENDPOINT_OUT, 0}};
        pthread_t threads[2];
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, sleep_for, &sleepers[i]), 0);
        usleep(round % 4 * 1000);
        for (unsigned i = 0; i < 2; i++) {
            if ((i == 0) == (first == FLYT_ENDPOINT_IN))
                assert_int_equal(write_bytes(line.ends[1], "x", 1, false), 1);
            else
                assert_true(read_bytes(line.ends[1], place, sizeof place, false) > 0);
        }
        for (unsigned i = 0; i < 2; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(sleepers[i].found, (int)sleepers[i].events);
        }
        close_line(&line);
    }
}

static void test_writing_is_limited(void **state)
{
    struct line line;

    open_line(&line);
    fill_up(line.ends[0]);
    flyt_endpoint_limit_writing(line.ends[0], SHORT_MS);
    assert_int_equal(write_bytes(line.ends[0], "x", 1, true), -EAGAIN);
    close_line(&line);
}

/* ---- ends ---- */

static void test_half_an_end(void **state)
{
    struct line line;
    char byte;

    open_line(&line);
    assert_int_equal(write_bytes(line.ends[0], "a", 1, false), 1);
    flyt_endpoint_shut(line.ends[0], FLYT_ENDPOINT_WRITING);
    assert_int_equal(read_bytes(line.ends[1], &byte, 1, true), 1);
    assert_int_equal(read_bytes(line.ends[1], &byte, 1, true), -EPIPE);
    /* The other direction goes on, also where its writer has to sleep. */
    fill_up(line.ends[1]);
    assert_int_equal(flyt_endpoint_wait(line.ends[1], FLYT_ENDPOINT_OUT, -1, NS(SHORT_MS)), 0);
    assert_int_equal(read_bytes(line.ends[0], &byte, 1, true), 1);
    assert_int_equal(write_bytes(line.ends[1], "b", 1, true), 1);
    line.ends[0] = flyt_endpoint_close(line.ends[0]);
    assert_int_equal(write_bytes(line.ends[1], "c", 1, true), -EPIPE);
    close_line(&line);
}

/* It is in a process of its own, which is killed: what it has written is still read, and nobody waits for it. */
static void test_killed_end(void **state)
{
    for (unsigned is_full = 0; is_full < 2; is_full++) {
        struct line line;
        char place[3];
        open_line(&line);
        if (is_full)
            fill_up(line.ends[1]);
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            close(flyt_endpoint_fd(line.ends[1]));
            write_bytes(line.ends[0], "abc", 3, true);
            for (;;)
                pause();
        }
        close(flyt_endpoint_fd(line.ends[0]));
        assert_int_equal(flyt_endpoint_wait(line.ends[1], FLYT_ENDPOINT_IN, -1, NS(LONG_MS)), FLYT_ENDPOINT_IN);
        struct sleeper sleeper = {line.ends[1], is_full ? FLYT_ENDPOINT_OUT : FLYT_ENDPOINT_ENDED, 0};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, sleep_for, &sleeper), 0);
        usleep(2000);
        assert_int_equal(kill(child, SIGKILL), 0);
        pthread_join(thread, NULL);
        assert_int_equal(sleeper.found, (int)sleeper.events);
        assert_int_equal(read_bytes(line.ends[1], place, 3, true), 3);
        assert_memory_equal(place, "abc", 3);
        assert_int_equal(read_bytes(line.ends[1], place, 3, true), -EPIPE);
        assert_int_equal(write_bytes(line.ends[1], "x", 1, true), -EPIPE);
        assert_int_equal(waitpid(child, NULL, 0), child);
        close_line(&line);
    }
}

/* ---- lies ---- */

/* No position is believed that cannot be: more written than there is room for, more read than was written, and back. */
static void test_positions_that_cannot_be(void **state)
{
    static const uint64_t lies[] = {FLYT_RING_BYTES + 1, UINT64_MAX, UINT64_C(1) << 63, 99};
    static const char piece[8192];
    char place[4];

    for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct line line;
        open_line(&line);
        assert_int_equal(write_bytes(line.ends[0], place, 1, false), 1);
        assert_int_equal(read_bytes(line.ends[1], place, 1, false), 1);
        /* `seen` is mapped as the second end is: its `in` is what the first one writes. */
        atomic_store(&line.seen.in.ring->written, i == 3 ? 0 : 1 + lies[i]);
        assert_true(flyt_endpoint_wait(line.ends[1], FLYT_ENDPOINT_IN, -1, 0) >= 0);
        assert_int_equal(read_bytes(line.ends[1], place, 4, true), -EBADMSG);
        if (i < 3) { /* the last one will have been written */
            atomic_store(&line.seen.in.ring->read, lies[i]);
            fill_up(line.ends[0]);
            assert_int_equal(write_bytes(line.ends[0], piece, sizeof piece, true), -EBADMSG);
        }
        close_line(&line);
    }
}

struct scribbler {
    struct line *line;
    atomic_bool is_over;
};

static void *scribble(void *argument)
{
    struct scribbler *self = argument;
    struct flyt_rings *seen = &self->line->seen;
    volatile unsigned char *memory = (void *)seen->memory;
    const size_t bytes = (size_t)(seen->out.bytes - (unsigned char *)memory) + FLYT_RING_BYTES;
    unsigned seed = 7;

    while (!self->is_over) {
        size_t at = (size_t)rand_r(&seed) % (rand_r(&seed) % 2 ? 4096 : bytes);
        memory[at] = (unsigned char)rand_r(&seed);
    }
    return NULL;
}

/* Somebody writes over all of it while an end reads and writes: it gets rubbish, or an error, and nothing else. */
static void test_scribbled_memory(void **state)
{
    struct line line;
    pthread_t thread;
    char place[5000];
    unsigned errors = 0;

    open_line(&line);
    struct scribbler scribbler = {.line = &line};
    assert_int_equal(pthread_create(&thread, NULL, scribble, &scribbler), 0);
    for (unsigned i = 0; i < 20000; i++) {
        errors += read_bytes(line.ends[1], place, 1 + i % sizeof place, false) == -EBADMSG;
        errors += write_bytes(line.ends[1], place, 1 + i % sizeof place, false) == -EBADMSG;
        flyt_endpoint_wait(line.ends[1], FLYT_ENDPOINT_IN | FLYT_ENDPOINT_OUT, -1, 1000);
    }
    scribbler.is_over = true;
    pthread_join(thread, NULL);
    assert_true(errors > 0);
    close_line(&line);
}

/* Memory that can be cut short would end who maps it: only what is sealed, and whole, is taken. */
static void test_memory_that_is_refused(void **state)
{
    struct flyt_rings rings, taken;
    struct flyt_shared head;

    assert_int_equal(flyt_rings_new(&rings), 0);
    const off_t bytes = lseek(rings.fd, 0, SEEK_END);
    assert_int_not_equal(ftruncate(rings.fd, 4096), 0);
    memcpy(&head, rings.memory, sizeof head);
    for (unsigned is_short = 0; is_short < 2; is_short++) {
        int fd = memfd_create("flyt-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_int_equal(pwrite(fd, &head, sizeof head, 0), sizeof head);
        assert_int_equal(ftruncate(fd, is_short ? 4096 : bytes), 0);
        if (is_short)
            assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
        assert_int_equal(flyt_rings_map(fd, &taken), -EBADMSG);
        close(fd);
    }
    rings.memory->version++;
    assert_int_equal(flyt_rings_map(rings.fd, &taken), -EPROTO);
    flyt_rings_close(&rings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_in_both_directions),
        cmocka_unit_test(test_no_bell_where_nobody_sleeps),
        cmocka_unit_test(test_two_who_sleep),
        cmocka_unit_test(test_writing_is_limited),
        cmocka_unit_test(test_half_an_end),
        cmocka_unit_test(test_killed_end),
        cmocka_unit_test(test_positions_that_cannot_be),
        cmocka_unit_test(test_scribbled_memory),
        cmocka_unit_test(test_memory_that_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
