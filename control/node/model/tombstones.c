#include "control/node/model/tombstones.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/model/allocation.h"
#include "control/node/model/node.h"
#include "control/node/model/server.h"
#include "rpc/base/ticket.h"

enum { REASON_BYTES = 320 }; /* with what is said before it, what a client shows of an answer */

struct ended {
    uint64_t session_id, allocation_id;
    unsigned char token[FLYT_TOKEN_BYTES];
    char reason[REASON_BYTES];
};

/* A ring. */
struct flyt_node_tombstones {
    unsigned count, next;
    struct ended all[FLYT_NODE_TOMBSTONES_MAX];
};

void flyt_node_tombstones_add(struct flyt_node *node, const struct flyt_node_session *session, const char *reason)
{
    struct flyt_node_tombstones *self = node->ended;

    if (!self && !(self = node->ended = calloc(1, sizeof *self)))
        return;
    struct ended *ended = &self->all[self->next];
    ended->session_id = session->id;
    ended->allocation_id = session->allocation->now.id;
    memcpy(ended->token, session->token, sizeof ended->token);
    snprintf(ended->reason, sizeof ended->reason, "%s", reason);
    self->next = (self->next + 1) % FLYT_NODE_TOMBSTONES_MAX;
    self->count += self->count < FLYT_NODE_TOMBSTONES_MAX;
}

/* The last one but `age`: an id may have come again, from an image. */
static const struct ended *at_age(const struct flyt_node_tombstones *self, unsigned age)
{
    return &self->all[(self->next + FLYT_NODE_TOMBSTONES_MAX - 1 - age) % FLYT_NODE_TOMBSTONES_MAX];
}

static int tell(const struct ended *ended, struct flyt_error *err)
{
    return flyt_error_set(err, -ENOENT, "the session has ended%s%s", *ended->reason ? ": " : "", ended->reason);
}

int flyt_node_tombstones_tell(const struct flyt_node *node, uint64_t session_id, struct flyt_error *err)
{
    const struct flyt_node_tombstones *self = node->ended;

    for (unsigned age = 0; self && age < self->count; age++)
        if (at_age(self, age)->session_id == session_id)
            return tell(at_age(self, age), err);
    return flyt_error_set(err, -ENOENT, "the session was ended");
}

int flyt_node_tombstones_tell_token(const struct flyt_node *node, uint64_t allocation_id, const void *token,
                                    size_t bytes, struct flyt_error *err)
{
    const struct flyt_node_tombstones *self = node->ended;

    for (unsigned age = 0; self && age < self->count; age++) {
        const struct ended *ended = at_age(self, age);
        if (ended->allocation_id == allocation_id && bytes == sizeof ended->token &&
            flyt_equal_in_constant_time(ended->token, token, bytes))
            return tell(ended, err);
    }
    return flyt_error_set(err, -ENOENT, "the session is not there (any more)");
}

void flyt_node_tombstones_fini(struct flyt_node *node)
{
    if (node->ended)
        explicit_bzero(node->ended, sizeof *node->ended);
    free(node->ended);
    node->ended = NULL;
}
