/* Images through pipes: byte by byte, to a reader that lags or goes, and a writer that is called off while it waits. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu/image/test_image.h"
#include "rpc/base/id.h"

enum { PAGE = FLYT_CHECKPOINT_PAGE_BYTES };

#define WINDOW   flyt_window_base(0)
#define DO(call) assert_int_equal((call), 0)

struct pouring {
    int fd;
    struct test_bytes bytes;
    bool is_slow;
};

static void *pour(void *argument)
{
    struct pouring *pouring = argument;
    size_t step = pouring->is_slow ? 1 : pouring->bytes.bytes;

    for (size_t at = 0; at < pouring->bytes.bytes;) {
        size_t left = pouring->bytes.bytes - at;
        ssize_t count = write(pouring->fd, pouring->bytes.data + at, left < step ? left : step);
        if (count <= 0)
            break;
        at += (size_t)count;
    }
    close(pouring->fd);
    return NULL;
}

/* Byte by byte, and behind the image something that the reader leaves where it is. */
static void a_pipe_may_drip(void **state)
{
    struct test_bytes image = test_sample(FLYT_CHECKPOINT_PACK_ZSTD);
    struct pouring pouring = {.is_slow = true};
    struct flyt_checkpoint_reader *reader;
    struct flyt_checkpoint_record record;
    struct flyt_error err;
    char behind[8] = "";
    pthread_t thread;
    int ends[2], status;

    pouring.bytes.bytes = image.bytes + 4;
    pouring.bytes.data = malloc(pouring.bytes.bytes);
    memcpy(pouring.bytes.data, image.data, image.bytes);
    memcpy(pouring.bytes.data + image.bytes, "more", 4);
    DO(pipe2(ends, O_CLOEXEC));
    pouring.fd = ends[1];
    DO(pthread_create(&thread, NULL, pour, &pouring));
    DO(flyt_checkpoint_reader_new(ends[0], "pipe", false, &reader, &err));
    while ((status = flyt_checkpoint_next(reader, &record, &err)) > 0)
        continue;
    DO(status);
    assert_int_equal(flyt_checkpoint_reader_bytes(reader), image.bytes);
    flyt_checkpoint_reader_free(reader);
    DO(pthread_join(thread, NULL));
    assert_int_equal(read(ends[0], behind, sizeof behind), 4);
    assert_string_equal(behind, "more");
    close(ends[0]);
    free(pouring.bytes.data);
    free(image.data);
}

/* The writer into a pipe that takes little at a time: short writes are gone on with; and one whose reader has gone. */
static void writing_waits_and_ends_with_the_reader(void **state)
{
    struct test_bytes image = test_sample(FLYT_CHECKPOINT_PACK_NOT);
    flyt_checkpoint_head head = test_head(7, 0);
    struct flyt_checkpoint_writer *writer;
    struct flyt_error err;
    int ends[2];

    DO(pipe2(ends, O_CLOEXEC));
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        close(ends[0]);
        int failed = flyt_checkpoint_writer_new(ends[1], "pipe", &head, FLYT_CHECKPOINT_PACK_NOT, &writer, &err);
        if (!failed)
            test_put_sample(writer);
        _exit(failed ? 1 : 0);
    }
    close(ends[1]);
    unsigned char *got = malloc(image.bytes + 1);
    size_t bytes = 0;
    for (ssize_t count = 1; count > 0; bytes += (size_t)count) {
        count = read(ends[0], got + bytes, image.bytes + 1 - bytes < 1000 ? image.bytes + 1 - bytes : 1000);
        assert_true(count >= 0);
    }
    assert_int_equal(bytes, image.bytes);
    assert_memory_equal(got, image.data, bytes);
    close(ends[0]);
    int child_status = -1;
    assert_int_equal(waitpid(child, &child_status, 0), child);
    assert_int_equal(child_status, 0);

    DO(pipe2(ends, O_CLOEXEC));
    close(ends[0]);
    assert_int_equal(flyt_checkpoint_writer_new(ends[1], "pipe", &head, FLYT_CHECKPOINT_PACK_NOT, &writer, &err),
                     -EPIPE);
    close(ends[1]);
    free(got);
    free(image.data);
}

static void *put_sample_pages(void *argument)
{
    static unsigned char pages[64 * PAGE];
    struct flyt_checkpoint_writer *writer = argument;
    struct flyt_error err;
    DO(flyt_checkpoint_put_slot(writer, 0, 0, &err));
    DO(flyt_checkpoint_put_round(writer, &err));
    DO(flyt_checkpoint_put_extent(writer, WINDOW, 2 * FLYT_CHECKPOINT_EXTENT_ALIGN, &err));
    memset(pages, 1, sizeof pages);
    int status = flyt_checkpoint_put_pages(writer, WINDOW, 64, pages, NULL, &err);
    if (status)
        assert_non_null(strstr(err.text, "cannot be written"));
    return (void *)(intptr_t)status;
}

/* Into a pipe that takes no more, and whose other end is read sooner or later, or never. */
static void a_writer_that_waits_can_be_called_off(void **state)
{
    for (unsigned i = 0; i < 2; i++) {
        struct flyt_checkpoint_writer *writer;
        const flyt_checkpoint_head head = test_head(1, 0);
        struct flyt_error err;
        int fds[2], cancel[2];
        pthread_t thread;
        void *status;
        DO(pipe2(fds, O_CLOEXEC | O_NONBLOCK));
        DO(pipe2(cancel, O_CLOEXEC));
        DO(flyt_checkpoint_writer_new_cancellable(fds[1], cancel[0], "x", &head, FLYT_CHECKPOINT_PACK_NOT, &writer,
                                                  &err));
        DO(pthread_create(&thread, NULL, put_sample_pages, writer));
        if (i) {
            assert_int_equal(write(cancel[1], "", 1), 1);
        } else {
            static unsigned char bytes[PAGE];
            uint64_t left = 64ull * PAGE;
            fcntl(fds[0], F_SETFL, 0);
            while (left) {
                ssize_t count = read(fds[0], bytes, left < sizeof bytes ? left : sizeof bytes);
                assert_true(count > 0);
                left -= (uint64_t)count;
            }
        }
        DO(pthread_join(thread, &status));
        assert_int_equal((intptr_t)status, i ? -ECANCELED : 0);
        if (i)
            assert_int_equal(flyt_checkpoint_put_end(writer, &err), -ECANCELED);
        flyt_checkpoint_writer_free(writer);
        for (unsigned k = 0; k < 2; k++) {
            close(fds[k]);
            close(cancel[k]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pipe_may_drip),
        cmocka_unit_test(writing_waits_and_ends_with_the_reader),
        cmocka_unit_test(a_writer_that_waits_can_be_called_off),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
