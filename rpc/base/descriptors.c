#include "rpc/base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* Room for one control message, aligned as the macros of cmsg(3) need it. */
union control {
    char bytes[CMSG_SPACE(sizeof(int) * FLYT_DESCRIPTORS_MAX)];
    struct cmsghdr align;
};

int flyt_close(int fd)
{
    int saved_errno = errno;

    if (fd >= 0)
        close(fd);
    errno = saved_errno;
    return -1;
}

void flyt_descriptors_reserve(unsigned count)
{
    struct rlimit limit;
    int saved_errno = errno;
    int one = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (one >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        if (count > limit.rlim_cur)
            count = (unsigned)limit.rlim_cur;
        if (count)
            flyt_close(fcntl(one, F_DUPFD_CLOEXEC, (int)count - 1));
    }
    flyt_close(one);
    errno = saved_errno;
}

int flyt_descriptor_move_up(int fd)
{
    int saved_errno = errno;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, FLYT_DESCRIPTORS_HIGH);

    errno = saved_errno;
    if (high < 0)
        return fd;
    flyt_close(fd);
    return high;
}

static int send_rest(int socket_fd, const char *payload, size_t bytes)
{
    while (bytes) {
        ssize_t sent = send(socket_fd, payload, bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -errno;
        payload += sent;
        bytes -= (size_t)sent;
    }
    return 0;
}

int flyt_descriptors_send(int socket_fd, const void *payload, size_t bytes, const int *fds, unsigned fd_count)
{
    union control control;
    struct iovec part = {.iov_base = (void *)payload, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t sent;

    if (!bytes || fd_count > FLYT_DESCRIPTORS_MAX)
        return -EINVAL;
    if (fd_count) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(head), fds, sizeof(int) * fd_count);
    }
    do {
        sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return -errno;
    return send_rest(socket_fd, (const char *)payload + sent, bytes - (size_t)sent);
}

/* Collects the descriptors of a message into fds; closes those beyond fd_count_max. Returns how many there were. */
static unsigned take_descriptors(struct msghdr *message, int *fds, unsigned fd_count_max)
{
    unsigned count = 0;

    for (struct cmsghdr *head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++, count++) {
            int fd;
            memcpy(&fd, CMSG_DATA(head) + i * sizeof fd, sizeof fd);
            if (count < fd_count_max)
                fds[count] = fd;
            else
                flyt_close(fd);
        }
    }
    return count;
}

int flyt_descriptors_receive(int socket_fd, void *payload, size_t payload_bytes_max, int *ret_fds,
                             unsigned fd_count_max, unsigned *ret_fd_count)
{
    union control control;
    struct iovec part = {.iov_base = payload, .iov_len = payload_bytes_max};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    int fds[FLYT_DESCRIPTORS_MAX];
    ssize_t received;

    if (!payload_bytes_max || fd_count_max > FLYT_DESCRIPTORS_MAX)
        return -EINVAL;
    do {
        received = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received < 0)
        return -errno;
    unsigned count = take_descriptors(&message, fds, fd_count_max);
    if (received > 0 && count <= fd_count_max && !(message.msg_flags & MSG_CTRUNC)) {
        memcpy(ret_fds, fds, sizeof fds[0] * count);
        *ret_fd_count = count;
        return (int)received;
    }
    for (unsigned i = 0; i < count && i < fd_count_max; i++)
        flyt_close(fds[i]);
    return received > 0 ? -EMSGSIZE : 0;
}
