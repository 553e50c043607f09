/* Tests of messages with a descriptor that are sent while too many are on their way (tell.h), as the kernel says. */
#include "cpu/server/core/tell.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/core/manager.h"

int __real_flyt_manager_link_send(int socket_fd, const struct flyt_manager_link_message *message, const int *fds,
                                  unsigned fd_count);
int __wrap_flyt_manager_link_send(int socket_fd, const struct flyt_manager_link_message *message, const int *fds,
                                  unsigned fd_count);

static unsigned refused_count, sent_count;
static int refusal;

int __wrap_flyt_manager_link_send(int socket_fd, const struct flyt_manager_link_message *message, const int *fds,
                                  unsigned fd_count)
{
    if (refused_count) {
        refused_count--;
        return refusal;
    }
    sent_count++;
    return __real_flyt_manager_link_send(socket_fd, message, fds, fd_count);
}

static struct flyt_manager_link_message message, heard;

static int tell(const int *ends, int fd, unsigned count, int how, uint64_t wait_ms)
{
    refused_count = count;
    refusal = how;
    sent_count = 0;
    message.kind = FLYT_MANAGER_LINK_MADE;
    message.data_bytes = 0;
    message.made = (struct flyt_manager_link_made){
        .outcome = fd < 0 ? -ENOMEM : 0, .extent = {.extent_id = 7, .bytes = 2 << 20, .address = 0x200000000000}};
    return flyt_tell(ends[0], &message, &fd, fd >= 0, wait_ms);
}

static void test_telling(void **state)
{
    int ends[2], pipe_ends[2], fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    struct stat sent, received;
    unsigned fd_count = 0;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(tell(ends, pipe_ends[0], 20, -ETOOMANYREFS, 600000), 0);
    assert_int_equal(sent_count, 1);
    assert_int_equal(flyt_manager_link_receive(ends[1], &heard, fds, &fd_count), 0);
    assert_int_equal(heard.made.extent.extent_id, 7);
    assert_int_equal(fd_count, 1);
    assert_int_equal(fstat(pipe_ends[0], &sent), 0);
    assert_int_equal(fstat(fds[0], &received), 0);
    assert_true(sent.st_ino == received.st_ino);
    close(fds[0]);
    /* Without one; and what else there is is not waited for. */
    assert_int_equal(tell(ends, -1, 0, 0, 600000), 0);
    assert_int_equal(flyt_manager_link_receive(ends[1], &heard, fds, &fd_count), 0);
    assert_int_equal(heard.made.outcome, -ENOMEM);
    assert_int_equal(tell(ends, pipe_ends[0], 1, -EAGAIN, 600000), -EAGAIN);
    assert_int_equal(tell(ends, pipe_ends[0], UINT32_MAX, -ETOOMANYREFS, 10), -ETOOMANYREFS);
    assert_int_equal(sent_count, 0);
    close(ends[1]);
    assert_int_equal(tell(ends, pipe_ends[0], 2, -ETOOMANYREFS, 600000), -EPIPE);
    close(ends[0]);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

/* A session's memory is told so, too: its link stays, and nothing of it is lost. */
static void test_telling_of_a_session(void **state)
{
    static struct flyt_manager manager;
    static const struct flyt_manager_link_session granted;
    const struct flyt_manager_link_extent extent = {.extent_id = 8, .bytes = 2 << 20, .address = 0x200000000000};
    int ends[2], pipe_ends[2], fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(pipe(pipe_ends), 0);
    assert_int_equal(flyt_manager_open(&manager, ends[0], &granted, NULL), 0);
    refused_count = 20;
    refusal = -ETOOMANYREFS;
    assert_true(flyt_manager_tell(&manager, FLYT_MANAGER_LINK_EXTENT, &extent, sizeof extent, NULL, pipe_ends, 1));
    assert_int_equal(flyt_manager_link_receive(ends[1], &heard, fds, &fd_count), 0);
    assert_int_equal(heard.extent.extent_id, 8);
    assert_int_equal(fd_count, 1);
    close(fds[0]);
    assert_true(flyt_manager_tell(&manager, FLYT_MANAGER_LINK_EXTENT_GONE, &extent, sizeof extent, NULL, NULL, 0));
    assert_int_equal(flyt_manager_link_receive(ends[1], &heard, fds, &fd_count), 0);
    assert_int_equal(fd_count, 0);
    /* What is not of that kind ends the link, as ever. */
    refused_count = 1;
    refusal = -EIO;
    assert_false(flyt_manager_tell(&manager, FLYT_MANAGER_LINK_EXTENT, &extent, sizeof extent, NULL, pipe_ends, 1));
    assert_int_equal(flyt_manager_link_receive(ends[1], &heard, fds, &fd_count), -EPIPE);
    close(ends[0]);
    close(ends[1]);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_telling), cmocka_unit_test(test_telling_of_a_session)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
