/*
 * How much of a GPU's time is given to what a program did not ask for, while it runs: after a batch that took t there
 * is a pause of t * (100 - share) / share. A batch that had to wait for the program's kernels to leave an SM looks
 * longer than what it took away from them: it counts at most THROTTLE_LONGEST times as much per page as the fastest
 * batch of its kind.
 *
 * Plain structures and pure functions over the times that the caller gives.
 */
#ifndef FLYT_SERVER_THROTTLE_H
#define FLYT_SERVER_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    FLYT_THROTTLE_SHARE_PCT = 8, /* where none is asked for */
    FLYT_THROTTLE_LONGEST = 4,
};

/* Of a batch: what the GPU does, and what the submission thread does with its results. */
enum flyt_throttle_kind {
    FLYT_THROTTLE_LOOK,
    FLYT_THROTTLE_COPY,
    FLYT_THROTTLE_LOOK_RESULTS,
    FLYT_THROTTLE_COPY_RESULTS,
    FLYT_THROTTLE_KINDS
};

struct flyt_throttle {
    unsigned share_pct;                       /* 1 to 100 */
    uint64_t open_ns;                         /* from then on the next batch may begin */
    uint64_t fastest_ps[FLYT_THROTTLE_KINDS]; /* per page; 0: none yet */
};

/* share_pct 0: FLYT_THROTTLE_SHARE_PCT; above 100: 100, which is no pause ever. */
void flyt_throttle_init(struct flyt_throttle *throttle, unsigned share_pct);

/* A batch of pages_count pages (1 or more) took took_ns, and was seen to end at now_ns. The pause for it comes behind
 * any that is not over. */
void flyt_throttle_take(struct flyt_throttle *throttle, enum flyt_throttle_kind kind, uint64_t pages_count,
                        uint64_t took_ns, uint64_t now_ns);

/* Nobody is hindered: what was taken so far needs no pause any more. */
static inline void flyt_throttle_forgive(struct flyt_throttle *throttle)
{
    throttle->open_ns = 0;
}

static inline bool flyt_throttle_is_open(const struct flyt_throttle *throttle, uint64_t now_ns)
{
    return now_ns >= throttle->open_ns;
}

#endif
