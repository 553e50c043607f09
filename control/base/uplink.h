/*
 * A daemon's connection to the cluster manager that leads: connects, says HELLO, follows where the leader has gone, and
 * tries again for ever. Node managers and client managers have one each. A manager that does not answer a null call in
 * time is left for another. Belongs to the loop's thread.
 *
 * It goes in rounds. In a round the managers are tried one after another without pauses, each once: the one that was
 * named as the leader first, the others in turn until one of them answers; after a round without a leader comes a
 * growing and jittered pause (FLYT_UPLINK_PAUSE_MIN_MS to _MAX_MS). The first manager that answers that it does not
 * lead is kept connected over the rounds: it says when there is a leader, which is tried then; mostly it is this one,
 * and the connection is there already. While one is kept the pauses begin with FLYT_UPLINK_KEPT_PAUSE_MS, and only each
 * FLYT_UPLINK_ASK_OTHERS-th round begins with another one, so that waiting daemons cost the managers little.
 *
 * What every caller must know: calls fail at once with -ENOTCONN while there is no leader, and end with -EPIPE when the
 * connection does; `up` is the moment to say everything anew.
 */
#ifndef FLYT_CONTROL_UPLINK_H
#define FLYT_CONTROL_UPLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/base/config.h"
#include "control/base/peer.h"

enum {
    FLYT_UPLINK_PAUSE_MIN_MS = 100,
    FLYT_UPLINK_PAUSE_MAX_MS = 3000,
    FLYT_UPLINK_PAUSE_LEFT_MS = 1000,
    FLYT_UPLINK_KEPT_PAUSE_MS = 2000,
    FLYT_UPLINK_ASK_OTHERS = 4,
    FLYT_UPLINK_CONNECT_MS = 5000,
    FLYT_UPLINK_PROBE_MS = 5000, /* so often it is asked whether it answers, and has so long for it */
};

struct flyt_uplink;

struct flyt_uplink_config {
    sd_event *event;
    const struct flyt_strings *managers; /* URLs, tried in turn; must outlive the uplink, may change between tries */
    struct flyt_tls *tls;                /* NULL: in clear (loopback, unix) */
    flyt_peer_kind kind;
    const char *name;                  /* as the certificate has it; copied */
    const struct flyt_program *orders; /* what the cluster manager may call */
    void *user;
    void (*up)(void *user, uint64_t epoch);
    void (*down)(void *user);
    /* As in struct flyt_peer_config; may be NULL. */
    void (*measured)(const char *procedure, bool is_served, uint64_t took_us, bool has_failed, void *user);
};

/* Begins to connect. 0 or a negative errno. */
int flyt_uplink_new(const struct flyt_uplink_config *config, struct flyt_uplink **ret_uplink);
/* NULL is allowed. Returns NULL. */
struct flyt_uplink *flyt_uplink_free(struct flyt_uplink *uplink);

/* In `serve` of an order: config.user; NULL where the connection has gone. */
void *flyt_uplink_user(const struct flyt_call *call);

bool flyt_uplink_is_up(const struct flyt_uplink *uplink);
/* The manager that it is connected to or tried last; and why there is no connection ("" while there is one). */
const char *flyt_uplink_address(const struct flyt_uplink *uplink);
const char *flyt_uplink_cause(const struct flyt_uplink *uplink);
uint64_t flyt_uplink_connect_count(const struct flyt_uplink *uplink);

/* A call of FLYT_CONTROL_PROGRAM; as flyt_peer_call, and -ENOTCONN. */
int flyt_uplink_call(struct flyt_uplink *uplink, uint32_t procedure, xdrproc_t xdr_args, const void *args,
                     xdrproc_t xdr_res, size_t result_bytes, uint64_t timeout_ms, flyt_call_done_fn done, void *user);

/*
 * An answer said NOT_LEADER, or an order FLYT_ORDER_LEADER came: leaves this manager for the first of these (copied;
 * count 0: whoever of the configured ones leads). Where that is this manager, or the one that is kept, its connection
 * stays and HELLO is said again. Inside `done` or `serve` is allowed, before the call is answered.
 */
void flyt_uplink_follow(struct flyt_uplink *uplink, char *const *leaders, size_t count);
/*
 * This manager is of no use, for this cause (copied; the caller has logged it): after a pause of about
 * FLYT_UPLINK_PAUSE_LEFT_MS the next of the configured ones is tried. Allowed where flyt_uplink_follow is.
 */
void flyt_uplink_leave(struct flyt_uplink *uplink, const char *cause);

#endif
