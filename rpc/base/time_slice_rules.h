/*
 * Who works on a set of SMs, and for how long, where several tenants (slots of allocations) share it in time: the rules
 * alone, over plain numbers and a given time, so that a test can play hours of them. How it is shared between processes
 * is in time_slices.h, where one thread applies them.
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
 * (back) who is next: who is without work for a moment does not lose his time slice to a whole grant of another. Work
 * that was given to the GPU before is waited for: nothing takes a kernel off it. Its server says after
 * FLYT_TIME_SLICE_BESIDE_MS that others are to go on beside it; where it does not, they do after
 * FLYT_TIME_SLICE_OVERRUN_MS. What it has on the GPU is its tenant's time until its server says that it is done.
 */
#ifndef FLYT_BASE_TIME_SLICE_RULES_H
#define FLYT_BASE_TIME_SLICE_RULES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    FLYT_TIME_SLICE_TENANTS_MAX = 64,
    FLYT_TIME_SLICE_SERVERS_MAX = 128,
    FLYT_TIME_SLICE_WINDOW_MIN_MS = 10,
    FLYT_TIME_SLICE_WINDOW_MAX_MS = 10000,
    FLYT_TIME_SLICE_TAKE_MS = 20,      /* a grant that nobody begins to use by then goes to the next */
    FLYT_TIME_SLICE_OVERRUN_MS = 2000, /* so long after its end a server that has still work is waited for by others */
    FLYT_TIME_SLICE_LOST_MS =
        1000, /* a server that has not been seen for so long after the end of its grant has stopped */
    FLYT_TIME_SLICE_BESIDE_MS =
        1000, /* so long after its end a server says by itself that nobody is to wait for its work */
};

/* What is configured of a tenant. */
struct flyt_time_slice_share {
    uint32_t minimum_pct; /* 0 to 100; 0: none */
    uint32_t maximum_pct; /* 0 and 100: all that nobody else wants; else at least the minimum */
    uint32_t window_ms;   /* FLYT_TIME_SLICE_WINDOW_MIN_MS to _MAX_MS */
    int32_t priority;     /* greater is sooner */
};

/* All zero: free. */
struct flyt_time_slice_tenant {
    uint64_t tenant_id;
    struct flyt_time_slice_share share;
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

enum flyt_time_slice_state {
    FLYT_TIME_SLICE_IDLE = 0,  /* nothing on the GPU, wants nothing */
    FLYT_TIME_SLICE_WAITS = 1, /* nothing on the GPU, has something for it */
    FLYT_TIME_SLICE_RUNS = 2,  /* has or may have something on the GPU */
    /* Has something on the GPU, of a token that it has not any more or gives back herewith: nobody waits for it. */
    FLYT_TIME_SLICE_BESIDE = 3,
};

enum flyt_time_slice_missing {
    FLYT_TIME_SLICE_IS_LOST = 1, /* did not take what it was granted, or has stopped */
    FLYT_TIME_SLICE_IS_OVER = 2, /* has work on the GPU, it says, for which others wait no longer */
};

/* All zero: free. */
struct flyt_time_slice_server {
    uint64_t server_id;
    uint32_t tenant;           /* its place among the tenants */
    uint32_t state;            /* enum flyt_time_slice_state, but BESIDE: IDLE and IS_OVER */
    _Atomic(uint64_t) idle;    /* for how long it had no work while it ran; see flyt_time_slice_set_idle */
    uint64_t idle_settled_ns;  /* of that: counted already */
    _Atomic(uint64_t) seen_ns; /* when it last looked, while it runs */
    _Atomic(uint32_t) wake;    /* another number: it is to ask again; a futex */
    uint32_t is_missing;       /* enum flyt_time_slice_missing; until it says something */
    uint64_t over_ns;          /* IS_OVER: when its work was to be done */
    uint64_t reserved;
};

struct flyt_time_slice_table {
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
    uint64_t recalled_ns;
    struct flyt_time_slice_tenant tenants[FLYT_TIME_SLICE_TENANTS_MAX];
    struct flyt_time_slice_server servers[FLYT_TIME_SLICE_SERVERS_MAX];
};

struct flyt_time_slice_answer {
    bool is_granted;   /* it may give work to the GPU */
    uint64_t until_ns; /* then, or where the table says so before, it has to ask again, before it gives more */
    uint64_t again_ns; /* not granted: when to ask again though nobody has woken it; UINT64_MAX: then only */
    uint64_t woken[FLYT_TIME_SLICE_SERVERS_MAX / 64]; /* bit i: server i's `wake` has changed; not of who has asked */
    uint32_t asker;                                   /* its place; FLYT_TIME_SLICE_SERVERS_MAX: none */
};

void flyt_time_slice_table_init(struct flyt_time_slice_table *table, uint64_t now_ns);

/* Whether a share can be: -EINVAL. */
int flyt_time_slice_share_check(const struct flyt_time_slice_share *share);
/* Makes the tenant, or changes what it may have from now on: its waiting servers are woken. 0; -EINVAL; -ENOSPC;
 * -ESTALE: the revision is lower. */
int flyt_time_slice_table_set(struct flyt_time_slice_table *table, uint64_t tenant_id,
                              const struct flyt_time_slice_share *share, uint64_t revision, uint64_t now_ns,
                              struct flyt_time_slice_answer *ret_answer);
/* Takes the tenant and its servers out. What it held goes to the next. */
void flyt_time_slice_table_remove(struct flyt_time_slice_table *table, uint64_t tenant_id, uint64_t now_ns,
                                  struct flyt_time_slice_answer *ret_answer);
/* A server of the tenant. Its place, or -ENOENT: no such tenant; -ENOSPC. One that is there keeps its place. */
int flyt_time_slice_table_join(struct flyt_time_slice_table *table, uint64_t tenant_id, uint64_t server_id);
/* The server is gone, with what it had on the GPU. */
void flyt_time_slice_table_leave(struct flyt_time_slice_table *table, uint64_t server_id, uint64_t now_ns,
                                 struct flyt_time_slice_answer *ret_answer);

/*
 * A server says how it is, and gets to know whether it may work. WAITS: wants to; granted, it counts as running from
 * then on. RUNS: goes on; where that is not granted it gives nothing more to the GPU, and says WAITS or IDLE when
 * its work is done, or BESIDE where that takes long. -ENOENT: it is not there any more.
 */
int flyt_time_slice_table_tell(struct flyt_time_slice_table *table, unsigned place, uint64_t server_id,
                               enum flyt_time_slice_state state, uint64_t now_ns,
                               struct flyt_time_slice_answer *ret_answer);

/* A waiting server has begun to use what its tenant was granted. Whether it still is; else it has to stop at once. */
bool flyt_time_slice_table_take(struct flyt_time_slice_table *table, unsigned place, uint64_t now_ns,
                                struct flyt_time_slice_answer *ret_answer);
/* It has, or is taken to have, work on the GPU though nobody waits for it, whatever it says: its tenant pays for it
 * from now on, until it says that it is done. */
void flyt_time_slice_table_mark_over(struct flyt_time_slice_table *table, unsigned place, uint64_t now_ns,
                                     struct flyt_time_slice_answer *ret_answer);
/* So much GPU time of a server's that was not counted while it passed: its tenant's. */
void flyt_time_slice_table_charge(struct flyt_time_slice_table *table, unsigned place, uint64_t ns, uint64_t now_ns);
/* Looks what time alone has changed. To be called at ret_answer->again_ns of the call before, at the latest. */
void flyt_time_slice_table_look(struct flyt_time_slice_table *table, uint64_t now_ns,
                                struct flyt_time_slice_answer *ret_answer);

/* In thousandths, what a tenant would have of the time if all that have servers wanted theirs. */
unsigned flyt_time_slice_table_part(const struct flyt_time_slice_table *table, unsigned tenant);

/* The server alone: has it work? Changes nothing where that is known. */
void flyt_time_slice_set_idle(struct flyt_time_slice_server *server, bool is_idle, uint64_t now_ns);
/* The same with the word alone. */
void flyt_time_slice_set_idle_word(_Atomic(uint64_t) *word, bool is_idle, uint64_t now_ns);

#endif
