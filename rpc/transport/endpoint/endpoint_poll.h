/* How endpoints wait whose readiness descriptors tell. For the endpoints here, and for who waits for none. */
#ifndef FLYT_TRANSPORT_ENDPOINT_POLL_H
#define FLYT_TRANSPORT_ENDPOINT_POLL_H

#include <stdint.h>

/* Of each thing that is waited for: the descriptor that tells of it, -1: that is not waited for. They may be the same.
 */
struct flyt_endpoint_signs {
    int in; /* it is readable, or at its end */
    int out;
    int ended;
    short out_event, ended_event; /* of poll(2), by which these two tell */
};

/* As flyt_endpoint_wait; NULL: nothing but wake_fd and the time. */
int flyt_endpoint_poll(const struct flyt_endpoint_signs *signs, int wake_fd, int64_t timeout_ns);

#endif
