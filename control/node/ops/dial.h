/*
 * One connection to another node's listener, made without holding up the loop: its addresses are tried one after
 * another; then the handshake, whose credentials are proved in answer to the listener's challenge (rpc/base/ticket.h),
 * and the listener's word that it takes the connection. What follows on it is its owner's: nothing behind that answer
 * was read. A listener that does not challenge is not believed.
 *
 * The loop's thread. What has become of it is told from the loop, once, never from inside of a call.
 */
#ifndef FLYT_NODE_DIAL_H
#define FLYT_NODE_DIAL_H

#include <stdint.h>
#include <systemd/sd-event.h>

#include "control/node/ops/resolver.h"
#include "flyt.h"

enum {
    FLYT_NODE_DIAL_MS = 9000, /* for all of it; a listener keeps a connection for 10 s before its handshake */
    FLYT_NODE_DIAL_ANSWER_BYTES_MAX = 4096, /* of an answer: a sentence and a challenge */
};

struct flyt_node_dial;

/* 0: connected, flyt_node_dial_take. Else a negative errno and one sentence: -EACCES: the listener does not let it in;
 * -EBUSY: not now; -ECONNREFUSED, -EHOSTUNREACH …; -ETIMEDOUT; -EPROTO: it is no listener of ours. The dial may be
 * freed by it. */
typedef void (*flyt_node_dialed_fn)(void *user, int status, const char *sentence);

struct flyt_node_dial_config {
    struct flyt_node_resolver *resolver; /* whose addresses are known; outlives the dial */
    /* The first handshake, without a proof; read at once. */
    const flyt_handshake_args *args;
    const unsigned char *secret; /* FLYT_TICKET_KEY_BYTES; read at once */
    uint64_t timeout_ms;
    flyt_node_dialed_fn done;
    void *user;
};

/* Begins. 0, or a negative errno: nothing is told. */
int flyt_node_dial_new(sd_event *event, const struct flyt_node_dial_config *config, struct flyt_node_dial **ret_dial);
/* Closes what was not taken. NULL is allowed. Returns NULL. */
struct flyt_node_dial *flyt_node_dial_free(struct flyt_node_dial *dial);
/* After 0: the socket, which does not block, the caller's; and the key with which TLS begins where the session is
 * encrypted (FLYT_TICKET_KEY_BYTES). */
int flyt_node_dial_take(struct flyt_node_dial *dial, unsigned char *ret_key);

#endif
