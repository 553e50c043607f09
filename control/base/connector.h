/*
 * Connects to the first of some addresses that can be reached, without holding up the loop: they are tried one after
 * another, each with its share of the time that is left. The loop's thread.
 */
#ifndef FLYT_CONTROL_CONNECTOR_H
#define FLYT_CONTROL_CONNECTOR_H

#include <stdint.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>

struct flyt_connector;

struct flyt_connector_address {
    const struct sockaddr *address; /* not copied */
    socklen_t bytes;
};

struct flyt_connector_config {
    const struct flyt_connector_address *addresses; /* read at once; what they point to outlives the connector */
    unsigned count, first;                          /* at least one; which is the first, the others follow, around */
    uint64_t deadline_ms; /* rpc/base/clock.h; who sets one keeps it: the connector only divides what is left */
    /* 0: connected; fd, which does not block, is the callee's. Else the negative errno of the last one, and -1. number:
     * of the address. Told from the loop, once; the connector may be freed by it. */
    void (*done)(void *user, int status, int fd, unsigned number);
    void *user;
};

/* Begins. 0 or a negative errno: nothing is told. */
int flyt_connector_new(sd_event *event, const struct flyt_connector_config *config,
                       struct flyt_connector **ret_connector);
/* Gives up what is under way. NULL is allowed. Returns NULL. */
struct flyt_connector *flyt_connector_free(struct flyt_connector *connector);

#endif
