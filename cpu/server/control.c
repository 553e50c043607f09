#include "cpu/server/control.h"

#include <errno.h>

#include "rpc/base/descriptors.h"

int flyt_control_send(int control_fd, const struct flyt_control *message, int fd)
{
    return flyt_descriptors_send(control_fd, message, offsetof(struct flyt_control, data) + message->data_bytes, &fd,
                                 fd >= 0);
}

int flyt_control_receive(int control_fd, struct flyt_control *ret_message, int *ret_fd)
{
    int fd = -1;
    unsigned count = 0;
    int bytes = flyt_descriptors_receive(control_fd, ret_message, sizeof *ret_message, &fd, 1, &count);
    if (bytes == 0)
        return -EPIPE;
    if (bytes < 0)
        return bytes;
    if ((size_t)bytes < offsetof(struct flyt_control, data) ||
        (size_t)bytes != offsetof(struct flyt_control, data) + ret_message->data_bytes) {
        flyt_close(count ? fd : -1);
        return -EBADMSG;
    }
    *ret_fd = count ? fd : -1;
    return 0;
}
