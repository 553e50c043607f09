/* Checkpoints and restores in the registry. */
#ifndef FLYT_CLUSTER_MODEL_CHECKPOINT_OP_H
#define FLYT_CLUSTER_MODEL_CHECKPOINT_OP_H

#include "control/base/peer.h"

struct flyt_cluster;
struct flyt_cluster_allocation;

enum { FLYT_CHECKPOINT_OPS_SHOWN = 100 /* that are over */ };

struct flyt_checkpoint_op {
    struct flyt_checkpoint_op *next; /* in cluster->savings */
    struct flyt_cluster *cluster;
    uint64_t id;
    char id_text[17];
    bool is_restore;
    struct flyt_call *call; /* of who asked for it, until it has begun; NULL: nobody waits */
    bool is_begun;          /* the node may know of it */
    bool is_asking;         /* the node: its order, or how far it is; what it answered last: */
    bool is_answered;
    int answer_error; /* a negative errno: nothing */
    flyt_status answer;
    uint64_t asked_ms; /* monotonic */
    char who[FLYT_NAME_BYTES_MAX + 1];
    char node[FLYT_NAME_BYTES_MAX + 1];
    char folder[FLYT_NAME_BYTES_MAX + 1];
    /* Of a checkpoint only. */
    char vm_ip[FLYT_NAME_BYTES_MAX + 1];
    uint64_t allocation_id, session_id; /* session_id 0: all of them */
    bool leaves_running, is_full;
    unsigned packing, stop_ms;
    unsigned timeout_s;
    uint64_t started_ms, ended_ms; /* wall; ended_ms 0: under way */
    flyt_saving_use use;           /* what the node said last; outcome.text is `reason` */
    char reason[512];
};

/* What is seen of one. */
enum flyt_checkpoint_op_seen {
    FLYT_SAVING_IS_BEGUN = 1 << 0, /* else it is being ordered */
    FLYT_SAVING_IS_ASKING = 1 << 1,
    FLYT_SAVING_IS_ANSWERED = 1 << 2, /* or it is known that there is no answer */
    FLYT_SAVING_IS_OLD = 1 << 3,      /* the node does not know such orders */
    FLYT_SAVING_IS_REFUSED = 1 << 4,
    FLYT_SAVING_IS_FORGOTTEN = 1 << 5, /* the node has no such one (any more) */
    FLYT_SAVING_IS_DONE = 1 << 6,
    FLYT_SAVING_HAS_FAILED = 1 << 7,
    FLYT_SAVING_IS_GIVEN_UP = 1 << 8, /* its node is */
    FLYT_SAVING_IS_DUE = 1 << 9,      /* it is time to ask again */
};

enum flyt_checkpoint_op_step {
    FLYT_SAVING_WAIT,
    FLYT_SAVING_REFUSE_OLD, /* nothing has begun: who asked is told */
    FLYT_SAVING_REFUSE,
    FLYT_SAVING_BEGIN, /* it has, or may have */
    FLYT_SAVING_ASK,
    FLYT_SAVING_END,
    FLYT_SAVING_FAIL,
    FLYT_SAVING_FAIL_OLD,
    FLYT_SAVING_FAIL_FORGOTTEN,
    FLYT_SAVING_FAIL_GIVEN_UP,
};

/* What is next; seen: of enum flyt_checkpoint_op_seen. Pure. */
enum flyt_checkpoint_op_step flyt_checkpoint_op_next(unsigned seen);
/* Under way, by id or of an allocation; NULL: none. */
struct flyt_checkpoint_op *flyt_checkpoint_op_find(struct flyt_cluster *cluster, uint64_t id);
struct flyt_checkpoint_op *flyt_checkpoint_op_of(const struct flyt_cluster_allocation *allocation);

#endif
