/* Tests of descriptors.h: what becomes of one that is moved up. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/descriptors.h"

static void test_it_is_moved(void **state)
{
    int ends[2];
    char byte = 0;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    int first = ends[0], moved = flyt_descriptor_move_up(ends[0]);
    assert_true(moved >= FLYT_DESCRIPTORS_HIGH);
    assert_int_equal(fcntl(first, F_GETFD), -1);
    assert_int_equal(fcntl(moved, F_GETFD), FD_CLOEXEC);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(read(moved, &byte, 1), 1);
    assert_int_equal(byte, 'x');
    int second = flyt_descriptor_move_up(ends[1]);
    assert_true(second > moved);
    close(moved);
    assert_int_equal(read(second, &byte, 1), 0);
    close(second);
}

static void test_it_stays_where_the_limit_is_below(void **state)
{
    struct rlimit before, low;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    low = before;
    low.rlim_cur = FLYT_DESCRIPTORS_HIGH;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_int_equal(flyt_descriptor_move_up(fd), fd);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(fcntl(fd, F_GETFD) >= 0);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_moved),
        cmocka_unit_test(test_it_stays_where_the_limit_is_below),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
