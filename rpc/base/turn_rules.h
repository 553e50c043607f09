/*
 * Who works on a set of SMs, and for how long, where several tenants (slots of allocations) share it in time: the rules
 * alone, over plain numbers and a given time, so that a test can play hours of them. How it is shared between processes
 * is in turns.h.
 *
 * One tenant at a time has the token; its servers, the processes that serve its VM, all work while it does. The time
 * from the first one's start until the last one's work has left the GPU is its GPU time. While nobody else waits, time
 * in which none of its servers had work does not count; while somebody does, it kept the others off and counts.
 *
 * Who is next, of those that wait:
 *  1. who is owed: what fills at the tenant's minimum while it waits or works, to at most the minimum of one window,
 *     and is emptied by its GPU time, below zero where its kernels ran longer than that. By priority, then by what is
 *     owed in relation to the minimum.
 *  2. the others: by priority, then by the least GPU time in relation to the weight, which is the minimum and an equal
 *     part of what no minimum takes. Who comes back after a pause brings no credit of it.
 * Nobody beyond his maximum, what fills at that at all times, to at most that of one window; what kernels took beyond
 * it is waited for.
 *
 * A grant is a tenth of the shorter of the windows that are waiting, 2 to 20 ms, and no longer than what remains of the
 * maximum. At its end it is renewed, without a pause, unless another is next; and it ends after 2 ms where one comes
 * (back) who is next: who is without work for a moment does not lose his turn to a whole grant of another. Work that
 * was given to the GPU before is waited for: nothing takes a kernel off it.
 */
#ifndef FLYT_BASE_TURN_RULES_H
#define FLYT_BASE_TURN_RULES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    FLYT_TURN_TENANTS_MAX = 64,
    FLYT_TURN_SERVERS_MAX = 128,
    FLYT_TURN_WINDOW_MIN_MS = 10,
    FLYT_TURN_WINDOW_MAX_MS = 10000,
    FLYT_TURN_TAKE_MS = 20,   /* a grant that nobody begins to use by then goes to the next */
    FLYT_TURN_LOST_MS = 1000, /* a server that has not been seen for so long after the end of its grant has stopped */
};

/* What is configured of a tenant. */
struct flyt_turn_share {
    uint32_t minimum_pct; /* 0 to 100; 0: none */
    uint32_t maximum_pct; /* 0 and 100: all that nobody else wants; else at least the minimum */
    uint32_t window_ms;   /* FLYT_TURN_WINDOW_MIN_MS to _MAX_MS */
    int32_t priority;     /* greater is sooner */
};

/* All zero: free. */
struct flyt_turn_tenant {
    uint64_t tenant_id;
    struct flyt_turn_share share;
    int64_t owed_ns;
    int64_t left_ns;     /* of the maximum; of no meaning where there is none */
    uint64_t virtual_ns; /* GPU time by weight */
    uint64_t revision;   /* of the share */
    _Atomic(uint64_t) used_ns;
    _Atomic(uint64_t) waited_ns;
    _Atomic(uint64_t) overused_ns; /* of used_ns: after the end of a grant */
    _Atomic(uint64_t) grant_count;
    uint64_t reserved[4];
};

enum flyt_turn_state {
    FLYT_TURN_IDLE = 0,  /* nothing on the GPU, wants nothing */
    FLYT_TURN_WAITS = 1, /* nothing on the GPU, has something for it */
    FLYT_TURN_RUNS = 2,  /* has or may have something on the GPU */
};

/* All zero: free. */
struct flyt_turn_server {
    uint64_t server_id;
    uint32_t tenant;           /* its place among the tenants */
    uint32_t state;            /* enum flyt_turn_state */
    _Atomic(uint64_t) idle;    /* for how long it had no work while it ran; see flyt_turn_set_idle */
    uint64_t idle_settled_ns;  /* of that: counted already */
    _Atomic(uint64_t) seen_ns; /* when it last looked, while it runs */
    _Atomic(uint32_t) wake;    /* another number: it is to ask again; a futex */
    uint32_t is_missing;       /* 1: did not take what it was granted, or has stopped; until it asks again */
    uint64_t reserved[2];
};

struct flyt_turn_table {
    int32_t holder;       /* place of the tenant that has the token; -1: nobody */
    uint32_t is_taken;    /* one of its servers has begun */
    uint32_t is_recalled; /* its end was not renewed */
    uint32_t is_owed;     /* it was next by rule 1 */
    uint64_t granted_ns;
    _Atomic(uint64_t) until_ns;  /* may come nearer, after which its servers look */
    uint64_t settled_ns;         /* up to then everything is counted */
    uint64_t virtual_ns;         /* of who was granted last */
    _Atomic(uint32_t) is_wanted; /* somebody waits that has not got the token */
    uint32_t reserved;
    struct flyt_turn_tenant tenants[FLYT_TURN_TENANTS_MAX];
    struct flyt_turn_server servers[FLYT_TURN_SERVERS_MAX];
};

struct flyt_turn_answer {
    bool is_granted;   /* it may give work to the GPU */
    uint64_t until_ns; /* then, or where the table says so before, it has to ask again, before it gives more */
    uint64_t again_ns; /* not granted: when to ask again though nobody has woken it; UINT64_MAX: then only */
    uint64_t woken[FLYT_TURN_SERVERS_MAX / 64]; /* bit i: server i's `wake` has changed; not of who has asked */
    uint32_t asker;                             /* its place; FLYT_TURN_SERVERS_MAX: none */
};

void flyt_turn_table_init(struct flyt_turn_table *table, uint64_t now_ns);

/* Whether a share can be: -EINVAL. */
int flyt_turn_share_check(const struct flyt_turn_share *share);
/* Makes the tenant, or changes what it may have from now on: its waiting servers are woken. 0; -EINVAL; -ENOSPC;
 * -ESTALE: the revision is lower. */
int flyt_turn_table_set(struct flyt_turn_table *table, uint64_t tenant_id, const struct flyt_turn_share *share,
                        uint64_t revision, uint64_t now_ns, struct flyt_turn_answer *ret_answer);
/* Takes the tenant and its servers out. What it held goes to the next. */
void flyt_turn_table_remove(struct flyt_turn_table *table, uint64_t tenant_id, uint64_t now_ns,
                            struct flyt_turn_answer *ret_answer);
/* A server of the tenant. Its place, or -ENOENT: no such tenant; -ENOSPC. One that is there keeps its place. */
int flyt_turn_table_join(struct flyt_turn_table *table, uint64_t tenant_id, uint64_t server_id);
/* The server is gone, with what it had on the GPU. */
void flyt_turn_table_leave(struct flyt_turn_table *table, uint64_t server_id, uint64_t now_ns,
                           struct flyt_turn_answer *ret_answer);

/*
 * A server says how it is, and gets to know whether it may work. WAITS: wants to; granted, it counts as running from
 * then on. RUNS: goes on; where that is not granted it gives nothing more to the GPU, and says WAITS or IDLE when
 * its work is done. -ENOENT: it is not there any more.
 */
int flyt_turn_table_tell(struct flyt_turn_table *table, unsigned place, uint64_t server_id, enum flyt_turn_state state,
                         uint64_t now_ns, struct flyt_turn_answer *ret_answer);

/* The server alone: has it work? Changes nothing where that is known. */
void flyt_turn_set_idle(struct flyt_turn_server *server, bool is_idle, uint64_t now_ns);

#endif
