/* Tests of the progress page: its seals, what the channel makes of it, and servers that send something else. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "flyt_client_calls.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/transport/channel_state.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/progress_page.h"
#include "rpc/transport/endpoint/rings.h"
#include "rpc/transport/test_pair.h"

enum { STREAM = 17, OTHER = 18 };

/* ---- the page ---- */

static void test_nobody_can_shorten_the_page(void **state)
{
    struct flyt_progress_page *page;
    const struct flyt_progress_page *seen;
    int fd;

    assert_int_equal(flyt_progress_page_new(&page, &fd), 0);
    assert_int_equal(flyt_progress_page_map(fd, &seen), 0);
    atomic_store(&page->streams[STREAM], 5);
    assert_int_equal(atomic_load(&seen->streams[STREAM]), 5);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(fd, 2L * FLYT_PROGRESS_PAGE_BYTES), -1);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    if (fcntl(fd, F_GET_SEALS) & 0x10) { /* F_SEAL_FUTURE_WRITE */
        void *writable = mmap(NULL, FLYT_PROGRESS_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_ptr_equal(writable, MAP_FAILED);
    }
    close(fd);
    flyt_progress_page_unmap(page); /* the reader's mapping lives on */
    assert_int_equal(atomic_load(&seen->streams[STREAM]), 5);
    flyt_progress_page_unmap(seen);
    flyt_progress_page_unmap(NULL);
}

/* A memfd that is nearly a page. */
static int make_odd(uint64_t magic, long bytes, int seals)
{
    int fd = memfd_create("odd", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, bytes), 0);
    if (bytes)
        assert_int_equal(pwrite(fd, &magic, sizeof magic, 0), sizeof magic);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

static const struct odd {
    uint64_t magic;
    long bytes;
    int seals, status;
} odds[] = {
    {FLYT_PROGRESS_PAGE_MAGIC, FLYT_PROGRESS_PAGE_BYTES, 0, -EINVAL},
    {FLYT_PROGRESS_PAGE_MAGIC, FLYT_PROGRESS_PAGE_BYTES, F_SEAL_GROW, -EINVAL},
    {FLYT_PROGRESS_PAGE_MAGIC, FLYT_PROGRESS_PAGE_BYTES - 1, SEALS, -EINVAL},
    {FLYT_PROGRESS_PAGE_MAGIC, 2L * FLYT_PROGRESS_PAGE_BYTES, SEALS, -EINVAL},
    {FLYT_PROGRESS_PAGE_MAGIC, 0, SEALS, -EINVAL},
    {FLYT_PROGRESS_PAGE_MAGIC + 1, FLYT_PROGRESS_PAGE_BYTES, SEALS, -EPROTO},
};

enum { ODD_COUNT = sizeof odds / sizeof odds[0] };

static void test_only_the_real_thing_is_mapped(void **state)
{
    const struct flyt_progress_page *page = NULL;

    for (unsigned i = 0; i < ODD_COUNT; i++) {
        int fd = make_odd(odds[i].magic, odds[i].bytes, odds[i].seals);
        assert_int_equal(flyt_progress_page_map(fd, &page), odds[i].status);
        close(fd);
    }
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    assert_int_equal(flyt_progress_page_map(fd, &page), -EINVAL);
    close(fd);
    assert_int_equal(flyt_progress_page_map(-1, &page), -EBADF);
    assert_null(page);
}

/* ---- the channel ---- */

struct pair {
    struct test_peer peer;
    struct test_client client;
    struct flyt_progress_page *page;
};

static void open_pair(struct pair *pair, const char *scheme, unsigned features, const int *fds, unsigned fd_count)
{
    memset(pair, 0, sizeof *pair);
    test_peer_init(&pair->peer);
    test_client_init(&pair->client);
    pair->peer.features = features;
    pair->peer.handshake_fds = fds;
    pair->peer.handshake_fd_count = fd_count;
    pair->peer.is_mute = true; /* no notice tells what the page should */
    test_pair_open(&pair->peer, &pair->client, scheme);
}

static void open_with_page(struct pair *pair)
{
    struct flyt_progress_page *page;
    int fd;

    assert_int_equal(flyt_progress_page_new(&page, &fd), 0);
    open_pair(pair, "unix", FLYT_FEATURE_PROGRESS_PAGE, &fd, 1);
    pair->page = page;
    close(fd);
}

static void close_pair(struct pair *pair)
{
    test_pair_close(&pair->peer, &pair->client);
    flyt_progress_page_unmap(pair->page);
}

static void call(struct pair *pair)
{
    flyt_session_barrier_args args = {.thread = 1};
    flyt_session_barrier_res res;

    assert_int_equal(flyt_call_session_barrier(pair->client.channel, &args, &res), FLYT_CHANNEL_OK);
}

static void test_the_page_answers(void **state)
{
    struct pair pair;

    open_with_page(&pair);
    struct flyt_channel *channel = pair.client.channel;
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 0), FLYT_CHANNEL_DONE); /* nothing was asked for */
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 7), FLYT_CHANNEL_PENDING);
    assert_int_equal(flyt_channel_blocking_known(channel, 2, 7), FLYT_CHANNEL_PENDING);
    atomic_store(&pair.page->streams[STREAM], 7);
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 7), FLYT_CHANNEL_DONE);
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 8), FLYT_CHANNEL_PENDING);
    assert_int_equal(flyt_channel_stream_known(channel, OTHER, 7), FLYT_CHANNEL_PENDING);
    atomic_store(&pair.page->blocking[2], 9);
    assert_int_equal(flyt_channel_blocking_known(channel, 2, 9), FLYT_CHANNEL_DONE);
    assert_int_equal(flyt_channel_blocking_known(channel, 1, 9), FLYT_CHANNEL_PENDING);
    assert_true(flyt_channel_legacy_is_done(channel, 2, STREAM, 7, 9));
    assert_false(flyt_channel_legacy_is_done(channel, 2, STREAM, 8, 9));
    assert_false(flyt_channel_legacy_is_done(channel, 2, STREAM, 7, 10));
    assert_false(flyt_channel_legacy_is_done(channel, 1, STREAM, 7, 9));
    /* Without a place there is what holds for all calls. */
    assert_int_equal(flyt_channel_stream_known(channel, FLYT_PROGRESS_STREAMS_MAX, 7), FLYT_CHANNEL_UNKNOWN);
    assert_int_equal(flyt_channel_blocking_known(channel, FLYT_PROGRESS_DEVICES_MAX, 7), FLYT_CHANNEL_UNKNOWN);
    atomic_store(&pair.page->received, 12);
    atomic_store(&pair.page->executed, 11);
    atomic_store(&pair.page->completed, 10);
    assert_int_equal(flyt_channel_stream_known(channel, FLYT_PROGRESS_STREAMS_MAX, 10), FLYT_CHANNEL_DONE);
    assert_int_equal(flyt_channel_stream_known(channel, OTHER, 10), FLYT_CHANNEL_DONE);
    flyt_progress progress = flyt_channel_progress(channel);
    assert_int_equal(progress.received, 12);
    assert_int_equal(progress.executed, 11);
    assert_int_equal(progress.completed, 10);
    assert_int_equal(flyt_channel_counts(channel).calls, 0);
    assert_int_equal(flyt_channel_counts(channel).page_answers, 16);
    close_pair(&pair);
}

static bool tell_error(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                       struct svc_req *req)
{
    flyt_back_call_error error = {.sequence = 1, .thread = 3, .result = 700};
    flyt_back_fatal fatal = {.result = 700, .cause = (char *)"test"};

    if (procedure == FLYT_SESSION_BARRIER) {
        flyt_connection_call_back(link->connection, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &error);
        flyt_connection_call_back(link->connection, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &fatal);
    }
    return true;
}

static void test_an_error_on_its_way_is_waited_for(void **state)
{
    struct pair pair;

    open_with_page(&pair);
    struct flyt_channel *channel = pair.client.channel;
    pair.peer.serve = tell_error;
    atomic_store(&pair.page->error_count, 2);
    atomic_store(&pair.page->streams[STREAM], 70);
    atomic_store(&pair.page->completed, 60);
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 70), FLYT_CHANNEL_UNKNOWN);
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 71), FLYT_CHANNEL_UNKNOWN);
    assert_false(flyt_channel_legacy_is_done(channel, 0, STREAM, 70, 0)); /* an error is on its way */
    assert_int_equal(flyt_channel_progress(channel).completed, 0);
    call(&pair); /* its answer comes behind both errors */
    assert_non_null(strstr(pair.client.notices, "700"));
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 70), FLYT_CHANNEL_DONE);
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 71), FLYT_CHANNEL_PENDING);
    assert_int_equal(flyt_channel_progress(channel).completed, 60);
    close_pair(&pair);
}

/* A reader stands before the page's first number while the session comes to another server. */
static struct {
    struct flyt_channel *channel;
    void *page;
    uint64_t after;
} arrival;

static void arrive(int signal_number)
{
    atomic_store(&arrival.channel->received, arrival.after);
    atomic_store(&arrival.channel->executed, arrival.after);
    atomic_store(&arrival.channel->completed, arrival.after);
    int protection = PROT_READ, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(arrival.page, FLYT_PROGRESS_PAGE_BYTES, protection, flags, -1, 0) != arrival.page)
        abort();
}

static void arrive_at_next_look(struct flyt_channel *channel, uint64_t after)
{
    arrival.channel = channel;
    arrival.page = (void *)atomic_load(&channel->page);
    arrival.after = after;
    assert_int_equal(mprotect(arrival.page, FLYT_PROGRESS_PAGE_BYTES, PROT_NONE), 0);
}

static void test_what_was_complete_stays_so_at_another_server(void **state)
{
    const struct sigaction arriving = {.sa_handler = arrive};
    struct sigaction before;
    struct pair pair;

    open_with_page(&pair);
    struct flyt_channel *channel = pair.client.channel;
    atomic_store(&pair.page->streams[STREAM], 7);
    atomic_store(&pair.page->completed, 6);
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 7), FLYT_CHANNEL_DONE);
    assert_int_equal(flyt_channel_progress(channel).completed, 6);
    assert_int_equal(sigaction(SIGSEGV, &arriving, &before), 0);
    arrive_at_next_look(channel, 7);
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 7), FLYT_CHANNEL_DONE);
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 8), FLYT_CHANNEL_PENDING);
    arrive_at_next_look(channel, 9);
    flyt_progress progress = flyt_channel_progress(channel);
    assert_int_equal(progress.received, 9);
    assert_int_equal(progress.executed, 9);
    assert_int_equal(progress.completed, 9);
    assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
    close_pair(&pair);
}

static void test_a_lost_connection_makes_the_page_worthless(void **state)
{
    struct pair pair;

    open_with_page(&pair);
    struct flyt_channel *channel = pair.client.channel;
    atomic_store(&pair.page->streams[STREAM], 7);
    atomic_store(&pair.page->completed, 7);
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 8), FLYT_CHANNEL_PENDING);
    flyt_log_set_fd(-1);
    test_peer_cut(&pair.peer);
    test_client_wait(&pair.client, &pair.client.lost_count, 1); /* it is noticed though nobody calls */
    flyt_log_set_fd(STDERR_FILENO);
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 7), FLYT_CHANNEL_UNKNOWN);
    assert_int_equal(flyt_channel_stream_known(channel, STREAM, 8), FLYT_CHANNEL_UNKNOWN);
    assert_int_equal(flyt_channel_progress(channel).completed, 0);
    close_pair(&pair);
}

static void test_a_forked_child_leaves_the_page_to_its_parent(void **state)
{
    struct pair pair;
    int status;

    open_with_page(&pair);
    pid_t child = fork();
    if (!child) {
        flyt_channel_abandon(pair.client.channel);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    atomic_store(&pair.page->streams[STREAM], 7);
    assert_int_equal(flyt_channel_stream_known(pair.client.channel, STREAM, 7), FLYT_CHANNEL_DONE);
    close_pair(&pair);
}

/* ---- servers that send something else ---- */

static unsigned count_descriptors(void)
{
    unsigned count = 0;
    DIR *folder = opendir("/proc/self/fd");

    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* Whatever came, calls work, the page answers nothing, and no descriptor is left. */
static void expect_no_page(const char *scheme, unsigned features, const int *fds, unsigned fd_count)
{
    struct pair pair;
    unsigned before = count_descriptors();

    open_pair(&pair, scheme, features, fds, fd_count);
    call(&pair);
    assert_int_equal(flyt_channel_stream_known(pair.client.channel, STREAM, 7), FLYT_CHANNEL_UNKNOWN);
    assert_int_equal(flyt_channel_counts(pair.client.channel).page_answers, 0);
    close_pair(&pair);
    assert_int_equal(count_descriptors(), before);
}

static void test_odd_servers_are_survived(void **state)
{
    struct flyt_progress_page *page;
    int fds[FLYT_DESCRIPTORS_MAX];

    assert_int_equal(flyt_progress_page_new(&page, &fds[0]), 0);
    for (unsigned i = 1; i < FLYT_DESCRIPTORS_MAX; i++)
        fds[i] = fds[0];
    expect_no_page("unix", FLYT_FEATURE_PROGRESS_PAGE, NULL, 0); /* announced, not sent */
    expect_no_page("unix", ~(unsigned)(FLYT_FEATURE_PROGRESS_PAGE | FLYT_FEATURE_RINGS | FLYT_FEATURE_REGION), fds,
                   1);                                          /* sent, not announced */
    expect_no_page("unix", FLYT_FEATURE_PROGRESS_PAGE, fds, 2); /* which one? */
    expect_no_page("unix", FLYT_FEATURE_PROGRESS_PAGE, fds, FLYT_DESCRIPTORS_MAX);
    expect_no_page("tcp", FLYT_FEATURE_PROGRESS_PAGE, NULL, 0);
    close(fds[0]);
    flyt_progress_page_unmap(page);
    for (unsigned i = 0; i < ODD_COUNT; i++) {
        int fd = make_odd(odds[i].magic, odds[i].bytes, odds[i].seals);
        expect_no_page("unix", FLYT_FEATURE_PROGRESS_PAGE, &fd, 1);
        close(fd);
    }
    int pipe_fds[2];
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    expect_no_page("unix", FLYT_FEATURE_PROGRESS_PAGE, pipe_fds, 1);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

/* A server that goes on through rings sends them, or there is no session: neither end would hear the other. */
static void expect_no_session(const int *fds, unsigned fd_count)
{
    struct pair pair;
    struct flyt_error err = {0};
    unsigned before = count_descriptors();

    memset(&pair, 0, sizeof pair);
    test_peer_init(&pair.peer);
    test_client_init(&pair.client);
    pair.peer.features = FLYT_FEATURE_RINGS;
    pair.peer.handshake_fds = fds;
    pair.peer.handshake_fd_count = fd_count;
    test_peer_start_on(&pair.peer, "unix");
    pair.client.config.url = pair.peer.url;
    assert_int_equal(flyt_channel_open(&pair.client.config, &err, &pair.client.channel), -EPROTO);
    assert_non_null(strstr(err.text, "the memory that it shares cannot be used"));
    assert_null(pair.client.channel);
    test_peer_stop(&pair.peer);
    test_client_fini(&pair.client);
    assert_int_equal(count_descriptors(), before);
}

static void test_rings_that_are_none(void **state)
{
    struct flyt_rings rings;
    int pipe_fds[2];

    assert_int_equal(flyt_rings_new(&rings), 0);
    expect_no_session(NULL, 0);
    expect_no_session((int[]){rings.fd, rings.fd}, 2); /* which one? */
    assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
    expect_no_session(pipe_fds, 1);
    for (unsigned i = 0; i < ODD_COUNT; i++) {
        int fd = make_odd(odds[i].magic, odds[i].bytes, odds[i].seals);
        expect_no_session(&fd, 1);
        close(fd);
    }
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    flyt_rings_close(&rings);
}

/* A descriptor in the middle of the connection is dropped by the kernel, and the bytes around it arrive. */
static bool send_stray(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                       struct svc_req *req)
{
    static const unsigned char notice[] = {0x80, 0, 0,    64, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0,
                                           0,    2, 0x20, 0,  0x0f, 0x18, 0, 0, 0, 1, 0, 0, 0, FLYT_BACK_PROGRESS};
    unsigned char record[4 + 64] = {0};
    int fd = STDIN_FILENO;

    memcpy(record, notice, sizeof notice);
    assert_int_equal(flyt_descriptors_send(flyt_endpoint_fd(flyt_connection_endpoint(link->connection)), record,
                                           sizeof record, &fd, 1),
                     0);
    return true;
}

static void test_later_descriptors_are_dropped(void **state)
{
    struct pair pair;
    unsigned before = count_descriptors();

    open_with_page(&pair);
    pair.peer.serve = send_stray;
    unsigned open_count = count_descriptors();
    for (int i = 0; i < 10; i++)
        call(&pair);
    assert_int_equal(count_descriptors(), open_count);
    close_pair(&pair);
    assert_int_equal(count_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_can_shorten_the_page),
        cmocka_unit_test(test_only_the_real_thing_is_mapped),
        cmocka_unit_test(test_the_page_answers),
        cmocka_unit_test(test_an_error_on_its_way_is_waited_for),
        cmocka_unit_test(test_what_was_complete_stays_so_at_another_server),
        cmocka_unit_test(test_a_lost_connection_makes_the_page_worthless),
        cmocka_unit_test(test_a_forked_child_leaves_the_page_to_its_parent),
        cmocka_unit_test(test_odd_servers_are_survived),
        cmocka_unit_test(test_rings_that_are_none),
        cmocka_unit_test(test_later_descriptors_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
