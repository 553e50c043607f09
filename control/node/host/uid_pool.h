/*
 * Which users of server_uids processes have (process/uids.h).
 */
#ifndef FLYT_NODE_UID_POOL_H
#define FLYT_NODE_UID_POOL_H

#include <stdbool.h>
#include <sys/types.h>

struct flyt_node_uids {
    uid_t first, last; /* last 0: servers are the node manager's user */
    uid_t given; /* the last one; the next is looked for behind it, so that a number rests before it is used again */
    unsigned char *used; /* a bit for each: processes had it when they were looked at, or it was given since */
    bool is_looking;     /* a thread looks at the processes */
    bool has_looked;     /* and nobody was given one since: */
    int look_status;     /* 0, or a negative errno: what that has come to */
};

#endif
