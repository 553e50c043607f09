/*
 * A message that brings the node manager descriptors, from a server that may wait for it: as long as too many
 * descriptors are on their way that nobody has received yet (ETOOMANYREFS, unix(7): all of the user's processes count),
 * it is sent again. It would be lost else, and the link with it. Any thread.
 */
#ifndef FLYT_SERVER_TELL_H
#define FLYT_SERVER_TELL_H

#include <stdint.h>

#include "rpc/transport/manager_link.h"

enum {
    FLYT_TELL_MS = 10000
}; /* so long at most: a node manager that receives nothing for so long has other troubles */

/* Descriptors stay the caller's. As flyt_manager_link_send; -ETOOMANYREFS after wait_ms. */
int flyt_tell(int link_fd, const struct flyt_manager_link_message *message, const int *fds, unsigned fd_count,
              uint64_t wait_ms);

#endif
