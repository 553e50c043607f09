/*
 * What a server does that sends a session's image to another node, when the other side, which the test plays, answers
 * in every way that it should and should not, or not at all.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cpu/image/answer.h"
#include "cpu/image/reader.h"
#include "cpu/server/test/fake_session.h"
#include "cpu/server/move/out/sending.h"
#include "cpu/server/move/out/writing.h"
#include "rpc/base/descriptors.h"

enum { STREAMS = 2, WAIT_MS_MAX = 60000, SHORT_MS = 300 };

static int ends[1 + STREAMS]; /* the other side's */
static struct flyt_writing *writing;

static void open_with(unsigned silence_ms)
{
    static const struct flyt_page_key key = {"0123456789abcde"};
    const struct flyt_manager_link_streams streams = {.stream_count = STREAMS};
    struct flyt_device *device;
    struct flyt_error err = {0};
    int fds[1 + STREAMS];
    for (unsigned i = 0; i <= STREAMS; i++) {
        int pair[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        fds[i] = pair[0];
        ends[i] = pair[1];
    }
    const struct flyt_writing_goal goal = {.fd = fds[0], .streams = &streams, .stream_fds = fds + 1, .hash_key = &key};
    assert_ok(flyt_session_use_device(&self.session, 0, &device));
    assert_int_equal(flyt_writing_open(&self.session, &goal, &writing, &err), 0);
    assert_int_equal(writing->pieces_max, FLYT_WRITING_PIECES + STREAMS * FLYT_WRITING_PIECES_EACH);
    if (silence_ms)
        writing->sending->silence_ms = silence_ms;
}

static void open_all(void)
{
    open_with(0);
}

static void close_all(void)
{
    writing = flyt_writing_free(writing);
    for (unsigned i = 0; i <= STREAMS; i++)
        ends[i] = flyt_close(ends[i]);
}

/* What it comes to nothing with. */
static void expect_failure(int want, const char *words)
{
    struct flyt_error err = {0};
    for (unsigned i = 0; flyt_writing_advance(writing, &err) == 0 && i < WAIT_MS_MAX; i++)
        usleep(1000);
    if (err.code != want || !strstr(err.text, words))
        fail_msg("%d '%s', not %d '%s'", err.code, err.text, want, words);
    assert_false(flyt_writing_is_whole(writing));
    close_all();
}

static void say(const struct flyt_answer *answer)
{
    unsigned char bytes[FLYT_ANSWER_BYTES_MAX];
    size_t count = flyt_answer_put(answer, bytes);
    for (size_t i = 0; i < count; i++) /* one by one: answers come in any portions */
        assert_int_equal(send(ends[0], bytes + i, 1, MSG_NOSIGNAL), 1);
}

static void an_answer_that_says_no_is_the_reason(void **state)
{
    open_all();
    say(&(struct flyt_answer){.is_final = false});
    say(&(struct flyt_answer){.is_final = true, .status = -ENOMEM, .sentence = "no room for it"});
    expect_failure(-ENOMEM, "no room for it");
}

static void an_answer_before_the_end_is_none(void **state)
{
    open_all();
    say(&(struct flyt_answer){.is_final = true});
    expect_failure(-EBADMSG, "something else");
}

static void what_is_no_answer_is_said(void **state)
{
    open_all();
    char bytes[FLYT_ANSWER_BYTES_MAX] = "HTTP/1.1 400 Bad Request";
    assert_int_equal(send(ends[0], bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
    expect_failure(-EBADMSG, "no answer");
}

static void a_connection_that_ends_is_said(void **state)
{
    open_all();
    shutdown(ends[0], SHUT_WR);
    expect_failure(-EPIPE, "without an answer");
}

static void a_server_that_says_nothing_is_lost(void **state)
{
    open_with(SHORT_MS);
    expect_failure(-ETIMEDOUT, "nothing was heard");
}

/* Who is silent for a while, and says that it is there, is not. */
static void a_server_that_is_there_is_waited_for(void **state)
{
    struct flyt_error err = {0};
    open_with(WAIT_MS_MAX);
    for (unsigned i = 0; i < 5; i++) {
        say(&(struct flyt_answer){.is_final = false});
        assert_int_equal(flyt_writing_advance(writing, &err), 0);
    }
    shutdown(ends[0], SHUT_WR);
    expect_failure(-EPIPE, "without an answer");
}

/* It tells the other side, too, that it is there. */
static void it_says_that_it_is_there(void **state)
{
    struct flyt_checkpoint_reader *reader;
    struct flyt_checkpoint_record record = {.type = FLYT_CHECKPOINT_HEAD};
    struct flyt_error err;
    open_all();
    assert_int_equal(flyt_checkpoint_reader_new(ends[0], "test", false, &reader, &err), 0);
    while (record.type != FLYT_CHECKPOINT_ALIVE)
        assert_int_equal(flyt_checkpoint_next(reader, &record, &err), 1);
    assert_true(flyt_checkpoint_reader_totals(reader)->has_streams);
    assert_int_equal(flyt_checkpoint_reader_totals(reader)->slot_count, DEVICES);
    flyt_checkpoint_reader_free(reader);
    close_all();
}

/* It is time for one more, of which the memory is there soon. */
static void await_piece(void)
{
    const unsigned before = writing->piece_count;
    writing->made_ns -= FLYT_WRITING_PIECE_MS * 1000000ull;
    writing->free = NULL;
    for (unsigned i = 0; !flyt_writing_has_piece(writing, false) && i < WAIT_MS_MAX; i++)
        usleep(1000);
    assert_int_equal(writing->piece_count, before + 1);
    assert_non_null(writing->free);
}

/* Each takes the driver milliseconds: the program must not wait for all of them at once, nor while it is stopped. */
static void pieces_are_made_one_by_one(void **state)
{
    open_all();
    assert_int_equal(writing->piece_count, 1);
    assert_true(flyt_writing_has_piece(writing, false));
    assert_int_equal(writing->piece_count, 1); /* that one is free */
    struct flyt_writing_item *first = writing->free;
    writing->free = NULL;
    writing->made_ns = self.session.clock_ns(); /* just now */
    assert_false(flyt_writing_has_piece(writing, false));
    writing->made_ns -= FLYT_WRITING_PIECE_MS * 1000000ull;
    assert_false(flyt_writing_has_piece(writing, true));
    assert_int_equal(writing->piece_count, 1);
    while (writing->piece_count < writing->pieces_max)
        await_piece();
    writing->free = NULL;
    writing->made_ns -= FLYT_WRITING_PIECE_MS * 1000000ull;
    assert_false(flyt_writing_has_piece(writing, false)); /* no further */
    writing->free = first;
    close_all();
}

/* While pages are only looked at: no more of them than those pages could need, and in their time. */
static void pieces_are_made_ahead(void **state)
{
    open_all();
    writing->made_ns -= FLYT_WRITING_PIECE_MS * 1000000ull;
    flyt_writing_make_ahead(writing, FLYT_WRITING_PIECE_PAGES);
    assert_int_equal(writing->piece_count, 1);
    for (unsigned i = 0; writing->piece_count == 1 && i < WAIT_MS_MAX; i++) {
        flyt_writing_make_ahead(writing, FLYT_WRITING_PIECE_PAGES + 1);
        usleep(1000);
    }
    assert_int_equal(writing->piece_count, 2);
    writing->made_ns = self.session.clock_ns(); /* just now */
    flyt_writing_make_ahead(writing, UINT64_MAX / FLYT_PAGE_BYTES);
    assert_int_equal(writing->piece_count, 2);
    for (unsigned i = 0; writing->piece_count < writing->pieces_max && i < WAIT_MS_MAX; i++) {
        writing->made_ns -= FLYT_WRITING_PIECE_MS * 1000000ull;
        flyt_writing_make_ahead(writing, UINT64_MAX / FLYT_PAGE_BYTES);
        usleep(1000);
    }
    assert_int_equal(writing->piece_count, writing->pieces_max);
    flyt_writing_make_ahead(writing, UINT64_MAX / FLYT_PAGE_BYTES);
    assert_int_equal(writing->piece_count, writing->pieces_max);
    close_all();
}

/* Called off before anything has come, and while everything waits. */
static void it_is_called_off_at_any_time(void **state)
{
    for (unsigned i = 0; i < 20; i++) {
        open_all();
        usleep(i * 500);
        close_all();
    }
}

int main(void)
{
    setenv("FLYT_SOFT_DEVICES", "2", 1);
    setenv("FLYT_SOFT_MEMORY", "1G", 1);
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        CPU(an_answer_that_says_no_is_the_reason),
        CPU(an_answer_before_the_end_is_none),
        CPU(what_is_no_answer_is_said),
        CPU(a_connection_that_ends_is_said),
        CPU(a_server_that_says_nothing_is_lost),
        CPU(a_server_that_is_there_is_waited_for),
        CPU(it_says_that_it_is_there),
        CPU(pieces_are_made_one_by_one),
        CPU(pieces_are_made_ahead),
        CPU(it_is_called_off_at_any_time),
    };
    return cmocka_run_group_tests(tests, fake_session_begin, fake_session_end);
}
