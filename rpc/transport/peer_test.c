/* A peer that vanishes in the middle, and others that must not be taken for one. In a network of its own, whose
 * loopback interface can go down. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "rpc/transport/endpoint/listen.h"

/* Often enough that the kernel's own waiting (0.2 s until data is sent again) lies in between. */
enum { PAUSE_MS = 50, RETRIES_MAX = 1200 };

static bool has_network;

static bool set_loopback(bool is_up)
{
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool is_good = fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &request) == 0;

    if (is_good) {
        request.ifr_flags = (short)(is_up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
        is_good = ioctl(fd, SIOCSIFFLAGS, &request) == 0;
    }
    close(fd);
    return is_good;
}

static void need_network(void)
{
    if (!has_network)
        skip();
    assert_true(set_loopback(true));
}

struct pair {
    int near, far;
};

static void connect_pair(struct pair *pair)
{
    char text[FLYT_URL_TEXT_BYTES];
    struct flyt_error err;
    int listen_fd;

    assert_int_equal(flyt_listen("tcp://127.0.0.1:0", &err, &listen_fd, text), 0);
    assert_int_equal(flyt_connect(text, 2000, &err, &pair->near), 0);
    pair->far = accept(listen_fd, NULL, NULL);
    assert_true(pair->far >= 0);
    close(listen_fd);
}

static void close_pair(struct pair *pair)
{
    close(pair->near);
    close(pair->far);
}

static void fill(int fd)
{
    static const char bytes[65536];

    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
    assert_int_equal(errno, EAGAIN);
}

/* How many checks it takes until the peer counts as lost; 0: it never does. */
static int checks_until_lost(struct flyt_vigil *peer, int fd)
{
    for (int i = 1; i <= RETRIES_MAX; i++) {
        if (flyt_vigil_is_lost(peer, fd))
            return i;
        poll(NULL, 0, PAUSE_MS);
    }
    return 0;
}

static void test_unacknowledged_data(void **state)
{
    struct flyt_vigil peer = {0};
    struct pair pair;

    need_network();
    connect_pair(&pair);
    assert_int_equal(send(pair.near, "first", 5, 0), 5);
    assert_false(flyt_vigil_is_lost(&peer, pair.near));
    assert_true(set_loopback(false));
    assert_int_equal(send(pair.near, "second", 6, 0), 6);
    int checks = checks_until_lost(&peer, pair.near);
    assert_true(checks >= FLYT_PEER_CHECKS);
    close_pair(&pair);
}

static void test_comes_back_in_time(void **state)
{
    struct flyt_vigil peer = {0};
    struct pair pair;
    char bytes[8];

    need_network();
    connect_pair(&pair);
    assert_true(set_loopback(false));
    assert_int_equal(send(pair.near, "data", 4, 0), 4);
    while (peer.silent_checks < FLYT_PEER_CHECKS - 1) {
        assert_false(flyt_vigil_is_lost(&peer, pair.near));
        poll(NULL, 0, PAUSE_MS);
    }
    assert_true(set_loopback(true));
    assert_int_equal(recv(pair.far, bytes, sizeof bytes, 0), 4);
    poll(NULL, 0, PAUSE_MS);
    assert_false(flyt_vigil_is_lost(&peer, pair.near));
    assert_int_equal(peer.silent_checks, 0);
    close_pair(&pair);
}

/* It answers the probes of its window, though not each. */
static void test_lives_but_does_not_read(void **state)
{
    struct flyt_vigil peer = {0};
    struct pair pair;

    need_network();
    connect_pair(&pair);
    fill(pair.near);
    for (int i = 0; i < 100; i++) {
        assert_false(flyt_vigil_is_lost(&peer, pair.near));
        poll(NULL, 0, PAUSE_MS);
    }
    close_pair(&pair);
}

static void test_vanishes_with_a_closed_window(void **state)
{
    struct flyt_vigil peer = {0};
    struct pair pair;

    need_network();
    connect_pair(&pair);
    fill(pair.near);
    poll(NULL, 0, PAUSE_MS);
    assert_true(set_loopback(false));
    assert_true(checks_until_lost(&peer, pair.near) >= FLYT_PEER_CHECKS);
    close_pair(&pair);
}

static void test_owes_nothing(void **state)
{
    struct flyt_vigil peer = {0};
    struct pair pair;
    int sockets[2];

    need_network();
    connect_pair(&pair);
    assert_true(set_loopback(false));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    for (int i = 0; i < 3 * FLYT_PEER_CHECKS; i++) {
        assert_false(flyt_vigil_is_lost(&peer, pair.near)); /* keepalive's business */
        assert_false(flyt_vigil_is_lost(&peer, sockets[0]));
        poll(NULL, 0, PAUSE_MS / 10);
    }
    close(sockets[0]);
    close(sockets[1]);
    close_pair(&pair);
}

static int option(int fd, int name)
{
    int value = -1;
    socklen_t bytes = sizeof value;

    assert_int_equal(getsockopt(fd, IPPROTO_TCP, name, &value, &bytes), 0);
    return value;
}

/* The kernel misses an idle peer after the whole time, and asks so often that who was away for most of it is not. */
static void test_idle_peers_have_their_time(void **state)
{
    static const unsigned times_s[] = {1, 2, 3, 8, 12, 59, 60, 600, 86400};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    flyt_socket_tune(fd);
    assert_int_equal((option(fd, TCP_KEEPIDLE) + option(fd, TCP_KEEPINTVL) * option(fd, TCP_KEEPCNT)) * 1000,
                     FLYT_PEER_SILENT_MS);
    for (unsigned i = 0; i < sizeof times_s / sizeof times_s[0]; i++) {
        int silent_s = (int)times_s[i];
        flyt_socket_set_silence(fd, times_s[i]);
        int interval_s = option(fd, TCP_KEEPINTVL);
        int missed_s = option(fd, TCP_KEEPIDLE) + interval_s * option(fd, TCP_KEEPCNT);
        assert_true(missed_s > silent_s - interval_s && missed_s <= (silent_s > 1 ? silent_s : 2));
        assert_true(interval_s == 1 || interval_s * 12 <= silent_s);
    }
    close(fd);
}

int main(void)
{
    /* Where a user may have no network of his own, the tests are skipped by name. */
    has_network = unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unacknowledged_data),
        cmocka_unit_test(test_comes_back_in_time),
        cmocka_unit_test(test_lives_but_does_not_read),
        cmocka_unit_test(test_vanishes_with_a_closed_window),
        cmocka_unit_test(test_owes_nothing),
        cmocka_unit_test(test_idle_peers_have_their_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
