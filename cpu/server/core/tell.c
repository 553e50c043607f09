#include "cpu/server/core/tell.h"

#include <errno.h>
#include <poll.h>

#include "rpc/base/clock.h"

enum { AGAIN_MS = 2 };

int flyt_tell(int link_fd, const struct flyt_manager_link_message *message, const int *fds, unsigned fd_count,
              uint64_t wait_ms)
{
    const uint64_t deadline_ms = flyt_clock_ms() + wait_ms;
    int status = flyt_manager_link_send(link_fd, message, fds, fd_count);
    while (status == -ETOOMANYREFS && flyt_clock_left_ms(deadline_ms)) {
        poll(NULL, 0, AGAIN_MS);
        status = flyt_manager_link_send(link_fd, message, fds, fd_count);
    }
    return status;
}
