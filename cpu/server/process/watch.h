/*
 * The thread beside a session's own: it watches the client's end, listens to whoever started the server (data streams,
 * orders), reports what the session uses, and looks for a node manager that was restarted.
 *
 * The submission thread sees the client's end, too, unless the driver keeps it waiting for a kernel that runs for ever:
 * then this thread ends the process.
 */
#ifndef FLYT_SERVER_WATCH_H
#define FLYT_SERVER_WATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/manager_link.h"

struct flyt_endpoint;
struct flyt_session;

struct flyt_watch {
    struct flyt_session *session;
    int link_fd;            /* -1: away */
    bool is_node;           /* the link leads to a node manager, not to a listener */
    unsigned client_lost_s; /* a client that owes an answer is lost after it (listen.h); 0: it may be silent for ever */

    /* Own. */
    uint64_t peer_check_ms, report_ms, rejoin_ms; /* when it is time; 0: never */
    uint64_t give_up_ms;                          /* the session was ended by order; 0: it was not */
    uint64_t gone_ms;                             /* the client has gone */
    uint64_t forsaken_ms;                         /* nobody can come back to a session that was left */
    struct flyt_endpoint *client;                 /* a duplicate of the client's endpoint; NULL: it is not watched */
    struct flyt_vigil vigil;
    bool has_client_ended;
    char client_address[FLYT_NAME_BYTES_MAX + 1]; /* as text */
    bool is_asking;                               /* REJOIN was sent, and has no answer */
    struct flyt_manager_link_message message;
};

/* Runs it (pthread_create's function); `watch` lives as long as the process. */
void *flyt_watch_run(void *watch);

/* The last words to a node manager: what was used, and the end with its reason. has_work: the process stays until it is
 * ended (linger.h). */
void flyt_watch_tell_end(struct flyt_watch *watch, bool has_work);

#endif
