/*
 * A listening socket on the loop: hands over each connection that comes. Without descriptors or memory it pauses, for
 * the socket would wake the loop for ever. Belongs to the loop's thread.
 */
#ifndef FLYT_CONTROL_ACCEPTOR_H
#define FLYT_CONTROL_ACCEPTOR_H

#include <stdbool.h>
#include <systemd/sd-event.h>

struct flyt_acceptor;

struct flyt_acceptor_config {
    sd_event *event;
    int listen_fd;             /* does not block; stays the caller's */
    const char *paused;        /* what is logged of a pause, once for each time; borrowed */
    unsigned accepts_per_turn; /* of the loop; 0: 64 */
    /* Whether there is room for one more; false: after a pause it is asked again. NULL: always. */
    bool (*has_room)(void *user);
    void (*accepted)(int fd, void *user); /* close-on-exec, does not block, the callee's; must not free the acceptor */
    void *user;
};

/* 0 or a negative errno. */
int flyt_acceptor_new(const struct flyt_acceptor_config *config, struct flyt_acceptor **ret_acceptor);
/* NULL is allowed. Returns NULL. */
struct flyt_acceptor *flyt_acceptor_free(struct flyt_acceptor *acceptor);

#endif
