#include "control/flytctl/move_estimate.h"

enum {
    ROUNDS_DEFAULT = 10,
    REST_DEFAULT_BYTES = 64 << 20,
    ROUNDS_LOOKED_AT = 10000, /* no more are gone through: their sum has long come to its end */
};

static double least(double one, double other)
{
    return one < other ? one : other;
}

void flyt_move_pace_note(struct flyt_move_pace *pace, const struct flyt_move_figures *figures)
{
    if (figures->round == pace->round)
        return;
    double took_ms = figures->elapsed_ms - pace->round_ms;
    if (pace->round && figures->round > pace->round && took_ms > 0) {
        took_ms /= figures->round - pace->round; /* some were too short to be seen */
        pace->dirty_bytes_per_s[1] = pace->dirty_bytes_per_s[0];
        pace->dirty_bytes_per_s[0] = figures->dirty_bytes * 1000 / took_ms;
        pace->count += pace->count < 2;
    }
    pace->round = figures->round;
    pace->round_ms = figures->elapsed_ms;
}

/* How much of this round is copied. */
static double done_bytes(const struct flyt_move_figures *figures)
{
    double bytes = figures->dirty_bytes - figures->left_bytes;

    return bytes > 0 ? bytes : 0;
}

/* Negative: it is not known. */
static double dirty_bytes_per_s(const struct flyt_move_pace *pace, const struct flyt_move_figures *figures)
{
    if (pace->count)
        return (pace->dirty_bytes_per_s[0] + (pace->count > 1 ? pace->dirty_bytes_per_s[1] : 0)) / pace->count;
    double before_bytes = figures->copied_bytes - done_bytes(figures);
    if (figures->round < 2 || before_bytes <= 0)
        return -1;
    return figures->dirty_bytes * figures->bytes_per_s * (figures->round - 1) / before_bytes;
}

struct flyt_move_estimate flyt_move_estimate(const struct flyt_move_pace *pace, const struct flyt_move_figures *figures)
{
    const double per_s = figures->bytes_per_s, dirty_per_s = dirty_bytes_per_s(pace, figures);
    const double rest_bytes = figures->rest_bytes > 0 ? figures->rest_bytes : REST_DEFAULT_BYTES;
    const unsigned rounds_max = figures->rounds_max ? figures->rounds_max : ROUNDS_DEFAULT;
    double round_bytes = figures->round < 2 ? figures->memory_bytes : figures->dirty_bytes;

    if (!figures->round || per_s <= 0)
        return (struct flyt_move_estimate){.end = FLYT_MOVE_UNKNOWN};
    double seconds = figures->left_bytes / per_s;
    if (dirty_per_s < 0)
        return (struct flyt_move_estimate){.end = FLYT_MOVE_AT_LEAST, .ms = seconds * 1000};
    for (unsigned round = figures->round;
         round_bytes > rest_bytes && round < rounds_max && round < figures->round + ROUNDS_LOOKED_AT; round++) {
        round_bytes = least(dirty_per_s * round_bytes / per_s, figures->memory_bytes);
        seconds += round_bytes / per_s;
    }
    seconds += least(dirty_per_s * round_bytes / per_s, figures->memory_bytes) / per_s;
    return (struct flyt_move_estimate){.end = round_bytes > rest_bytes ? FLYT_MOVE_BY_ROUNDS : FLYT_MOVE_ABOUT,
                                       .ms = seconds * 1000};
}
