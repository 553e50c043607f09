/*
 * When a migration that copies while its programs run will have copied all: from how fast it copies, how fast the
 * programs change what was copied, and the bounds at which it stops them. Numbers only, no clock: any thread.
 *
 * A round copies what has changed since the one before, so that each is shorter than the last one by the ratio of the
 * two rates, until one has copied no more than rest_bytes, or as many rounds as may be have been. Then the programs
 * stop, and what they have changed meanwhile is copied, too. Where they change more than is copied it ends by the
 * rounds.
 */
#ifndef FLYT_FLYTCTL_MOVE_ESTIMATE_H
#define FLYT_FLYTCTL_MOVE_ESTIMATE_H

/* What is told of a migration that copies (view "migrations"). Nothing is negative. */
struct flyt_move_figures {
    unsigned round, rounds_max;        /* rounds_max 0: the node's default, 10 */
    double memory_bytes, copied_bytes; /* of its programs; so far, in all rounds */
    double dirty_bytes, left_bytes;    /* what this round is to copy (but the first); still to be copied of it */
    double rest_bytes;                 /* 0: the node's default, 64 MiB */
    double bytes_per_s;                /* 0: not known yet */
    double elapsed_ms;                 /* since it began */
};

/* What was seen of its rounds. Begins as {0}. */
struct flyt_move_pace {
    unsigned round;              /* the last one that was seen; 0: none */
    double round_ms;             /* when that was seen first, of elapsed_ms */
    unsigned count;              /* rates below that are known: 0 to 2 */
    double dirty_bytes_per_s[2]; /* of the last two rounds */
};

enum flyt_move_end {
    FLYT_MOVE_UNKNOWN,   /* nothing can be said */
    FLYT_MOVE_AT_LEAST,  /* so long does this round take; how much is changed meanwhile is not known yet */
    FLYT_MOVE_ABOUT,     /* so little changes that it ends by itself */
    FLYT_MOVE_BY_ROUNDS, /* it ends because it has had its rounds */
};

struct flyt_move_estimate {
    enum flyt_move_end end;
    double ms;
};

/* To be called with each figures that are seen, in their order: it notes when rounds begin. */
void flyt_move_pace_note(struct flyt_move_pace *pace, const struct flyt_move_figures *figures);
/* Who has not seen a round begin judges by all rounds before this one. */
struct flyt_move_estimate flyt_move_estimate(const struct flyt_move_pace *pace,
                                             const struct flyt_move_figures *figures);

#endif
