/* How a region comes to its server: with descriptors and without, and sides that end or say nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/region.h"
#include "rpc/transport/region_offer.h"

struct ends {
    struct flyt_endpoint *client, *server;
    unsigned answer;
    bool came, is_same;
};

static void open_ends(struct ends *ends)
{
    int fds[2];
    *ends = (struct ends){.answer = FLYT_REGION_IS_SEEN};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(flyt_endpoint_of_socket(fds[0], &ends->client), 0);
    assert_int_equal(flyt_endpoint_of_socket(fds[1], &ends->server), 0);
}

static void close_ends(struct ends *ends)
{
    flyt_endpoint_close(ends->client);
    flyt_endpoint_close(ends->server);
}

static void *serve(void *argument)
{
    struct ends *ends = argument;
    struct flyt_region region = {0};
    int fd = -2;
    if (flyt_region_await(ends->server, &fd))
        return NULL;
    ends->came = fd >= 0;
    ends->is_same = fd >= 0 && !flyt_region_map(fd, &region) && region.base[4096] == 77;
    flyt_region_unmap(&region);
    flyt_close(fd);
    return flyt_region_answer(ends->server, ends->answer) ? NULL : ends;
}

static int offer(struct ends *ends, int fd, unsigned *ret_use)
{
    pthread_t thread;
    void *served;
    assert_int_equal(pthread_create(&thread, NULL, serve, ends), 0);
    int status = flyt_region_offer(ends->client, fd, flyt_clock_ms() + 60000, -1, ret_use);
    pthread_join(thread, &served);
    assert_ptr_equal(served, ends);
    return status;
}

static void the_server_has_what_was_offered(void **state)
{
    struct flyt_region region;
    struct ends ends;
    unsigned use = 0;
    int fd;
    assert_int_equal(flyt_region_new(&region, &fd), 0);
    region.base[4096] = 77;
    open_ends(&ends);
    ends.answer = FLYT_REGION_IS_SEEN | FLYT_REGION_IS_MAPPED | 64;
    assert_int_equal(offer(&ends, fd, &use), 0);
    assert_true(ends.came && ends.is_same);
    assert_int_equal(use, FLYT_REGION_IS_SEEN | FLYT_REGION_IS_MAPPED | 64);
    close_ends(&ends);
    flyt_region_unmap(&region);
    close(fd);
}

static void a_client_may_have_none(void **state)
{
    struct ends ends;
    unsigned use = 9;
    open_ends(&ends);
    ends.answer = 0;
    assert_int_equal(offer(&ends, -1, &use), 0);
    assert_false(ends.came);
    assert_int_equal(use, 0);
    close_ends(&ends);
}

static void whoever_goes_away_is_not_waited_for(void **state)
{
    struct ends ends;
    unsigned use;
    int fd;
    open_ends(&ends);
    flyt_endpoint_shut(ends.client, FLYT_ENDPOINT_BOTH);
    assert_int_equal(flyt_region_await(ends.server, &fd), -EPIPE);
    close_ends(&ends);
    open_ends(&ends);
    flyt_endpoint_shut(ends.server, FLYT_ENDPOINT_BOTH);
    assert_int_equal(flyt_region_offer(ends.client, -1, flyt_clock_ms() + 60000, -1, &use), -EPIPE);
    close_ends(&ends);
}

static void a_client_waits_as_long_as_it_has(void **state)
{
    struct ends ends;
    unsigned use;
    int cancel_fd = eventfd(1, EFD_CLOEXEC);
    open_ends(&ends);
    assert_int_equal(flyt_region_offer(ends.client, -1, flyt_clock_ms(), -1, &use), -ETIMEDOUT);
    assert_int_equal(flyt_region_offer(ends.client, -1, flyt_clock_ms() + 60000, cancel_fd, &use), -ECANCELED);
    close_ends(&ends);
    close(cancel_fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_server_has_what_was_offered),
        cmocka_unit_test(a_client_may_have_none),
        cmocka_unit_test(whoever_goes_away_is_not_waited_for),
        cmocka_unit_test(a_client_waits_as_long_as_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
