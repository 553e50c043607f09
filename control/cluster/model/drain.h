/* What is next for who waits until nothing runs on SMs that were taken away. Pure functions; any thread. */
#ifndef FLYT_CLUSTER_MODEL_DRAIN_H
#define FLYT_CLUSTER_MODEL_DRAIN_H

struct flyt_cluster_allocation;

enum flyt_drain_state {
    FLYT_DRAIN_WAITING,
    FLYT_DRAIN_ASKING, /* the node, which programs are there still; it ends them where that is wished */
    FLYT_DRAIN_ENDING, /* they are to go */
    FLYT_DRAIN_OVER,
};

enum flyt_drain_seen {
    FLYT_DRAIN_IS_EMPTY = 1 << 0,    /* nothing runs there */
    FLYT_DRAIN_IS_LATE = 1 << 1,     /* the time of its state is over */
    FLYT_DRAIN_IS_ANSWERED = 1 << 2, /* by the node, or it cannot be asked */
    FLYT_DRAIN_IS_REFUSED = 1 << 3,  /* the node cannot say */
    FLYT_DRAIN_KILLS = 1 << 4,
};

/* What begins with SAY answers who waits. */
enum flyt_drain_step {
    FLYT_DRAIN_WAIT,
    FLYT_DRAIN_ASK,
    FLYT_DRAIN_TELL_KILLED,
    FLYT_DRAIN_SAY_DONE,
    FLYT_DRAIN_SAY_PROGRAMS, /* that are there still */
    FLYT_DRAIN_SAY_UNKNOWN,
};

/* seen: of enum flyt_drain_seen. *ret_state: where it is then. */
enum flyt_drain_step flyt_drain_next(enum flyt_drain_state state, unsigned seen, enum flyt_drain_state *ret_state);
/* SMs that were taken away and that the node has not said to be free. */
unsigned flyt_allocation_draining(const struct flyt_cluster_allocation *allocation);

#endif
