#include "cpu/server/core/pace.h"

static void set_depth(struct flyt_pace *pace, uint64_t depth, unsigned depth_max)
{
    pace->depth = depth > depth_max ? depth_max : depth ? (unsigned)depth : 1;
    pace->mark_interval = pace->depth / FLYT_PACE_MARK_PART ? pace->depth / FLYT_PACE_MARK_PART : 1;
}

void flyt_pace_init(struct flyt_pace *pace, bool is_measured, unsigned depth_max)
{
    *pace = (struct flyt_pace){.is_measured = is_measured};
    set_depth(pace, is_measured ? FLYT_PACE_DEPTH_FIRST : depth_max, depth_max);
}

void flyt_pace_take(struct flyt_pace *pace, uint64_t before, uint64_t completed, uint64_t now_ns, unsigned depth_max)
{
    /* At least 1: 0 means that there is none. */
    uint64_t sample_ns = (now_ns - pace->since_ns) / (completed - before) + 1;
    bool has_waited = pace->waited > before;

    pace->since_ns = now_ns;
    if (!pace->operation_ns && has_waited)
        return;
    if (!pace->operation_ns || (sample_ns > pace->operation_ns && !has_waited))
        pace->operation_ns = sample_ns;
    else if (sample_ns < pace->operation_ns)
        pace->operation_ns -= (pace->operation_ns - sample_ns + 1) / 2;
    set_depth(pace, FLYT_PACE_GPU_NS / pace->operation_ns, depth_max);
}
