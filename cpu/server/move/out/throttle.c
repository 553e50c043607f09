#include "cpu/server/move/out/throttle.h"

enum { PS_PER_NS = 1000 };

void flyt_throttle_init(struct flyt_throttle *throttle, unsigned share_pct)
{
    *throttle = (struct flyt_throttle){.share_pct = !share_pct        ? FLYT_THROTTLE_SHARE_PCT
                                                    : share_pct > 100 ? 100
                                                                      : share_pct};
}

void flyt_throttle_take(struct flyt_throttle *throttle, enum flyt_throttle_kind kind, uint64_t pages_count,
                        uint64_t took_ns, uint64_t now_ns)
{
    uint64_t *fastest_ps = &throttle->fastest_ps[kind];
    uint64_t page_ps = took_ns * PS_PER_NS / pages_count;
    if (!page_ps)
        page_ps = 1;
    if (!*fastest_ps || page_ps < *fastest_ps)
        *fastest_ps = page_ps;
    uint64_t most_ns = *fastest_ps * FLYT_THROTTLE_LONGEST * pages_count / PS_PER_NS;
    if (took_ns > most_ns)
        took_ns = most_ns;
    if (throttle->open_ns < now_ns)
        throttle->open_ns = now_ns;
    throttle->open_ns += took_ns * (100 - throttle->share_pct) / throttle->share_pct;
}
