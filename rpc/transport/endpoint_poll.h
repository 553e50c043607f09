/* How endpoints wait whose readiness descriptors tell. For the endpoints here, and for who waits for none. */
#ifndef FLYT_TRANSPORT_ENDPOINT_POLL_H
#define FLYT_TRANSPORT_ENDPOINT_POLL_H

#include <stdint.h>

/*
 * As flyt_endpoint_wait. in_fd: it is readable, or at its end, where something can be read; out_fd: out_event of
 * poll(2) tells that something can be written; -1: that is not waited for. They may be the same.
 */
int flyt_endpoint_poll(int in_fd, int out_fd, short out_event, int wake_fd, int64_t timeout_ns);

#endif
