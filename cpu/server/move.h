/*
 * A session that is moved while its program runs, on the side of the server that it leaves (MOVE and what follows it in
 * rpc/transport/server_link.h). The program is told to stop at a call (FLYT_BACK_STOP) and answers with
 * session_stopped, behind which it sends nothing until it is told to go on.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_MOVE_H
#define FLYT_SERVER_MOVE_H

#include <stdbool.h>
#include <stdint.h>

/* All zero: the session is not moved. */
struct flyt_move {
    uint64_t asked;    /* number of the last STOP; they count from 1 */
    uint64_t answered; /* number of the last session_stopped */
    uint64_t sequence; /* of that call */
    bool is_whole;     /* the client left, and may come back to what is here */
};

#endif
