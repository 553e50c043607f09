/*
 * What the servers that share SMs in time and who gives out the token have in common: a board for each set of SMs,
 * which one process writes and all servers read, and a page for each server, which that alone writes and nobody but the
 * giver reads. Of time_slices.c and time_slice_seat.c.
 */
#ifndef FLYT_BASE_TIME_SLICE_BOARD_H
#define FLYT_BASE_TIME_SLICE_BOARD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/base/shared.h"
#include "rpc/base/time_slice_rules.h"

#define FLYT_TIME_SLICE_BOARD_MAGIC 0x6472616f62747466ull /* "fttboard" */
#define FLYT_TIME_SLICE_PAGE_MAGIC  0x6567617074746c66ull /* "flttpage" */

enum {
    FLYT_TIME_SLICE_BOARD_VERSION = 1,
    FLYT_TIME_SLICE_BOARD_BYTES = 8192,
    FLYT_TIME_SLICE_PAGE_BYTES = 4096,
    FLYT_TIME_SLICE_BEAT_MS = 50,   /* the giver is seen on the board so often */
    FLYT_TIME_SLICE_AWAY_MS = 500,  /* one that has not been seen for so long is away: shares go by the clock */
    FLYT_TIME_SLICE_CYCLE_MS = 100, /* of that: in each cycle every tenant has its part, one after the other */
};

struct flyt_time_slice_place {
    _Atomic(uint64_t) offer; /* not 0: its server may work, from the moment on when it has said that it does */
    _Atomic(uint64_t) offered_ns;
    _Atomic(uint32_t) wake; /* another number: the offer is another one, or gone; a futex */
    uint32_t reserved[3];
};

struct flyt_time_slice_part {
    _Atomic(uint64_t) tenant_id;
    _Atomic(uint64_t) part; /* thousandths */
};

struct flyt_time_slice_board {
    struct flyt_shared head;
    _Atomic(uint64_t) seen_ns;
    _Atomic(uint32_t) is_wanted; /* somebody waits that has not got the token */
    uint32_t reserved[25];
    struct flyt_time_slice_place places[FLYT_TIME_SLICE_SERVERS_MAX];
    struct flyt_time_slice_part parts[FLYT_TIME_SLICE_TENANTS_MAX];
};
_Static_assert(offsetof(struct flyt_time_slice_board, places) == 128, "board layout");
_Static_assert(sizeof(struct flyt_time_slice_place) == 32 && sizeof(struct flyt_time_slice_part) == 16, "board layout");
_Static_assert(sizeof(struct flyt_time_slice_board) <= FLYT_TIME_SLICE_BOARD_BYTES, "board layout");

/* What a server says: its state (the lowest two bits), and the offer that it takes (RUNS) or another number each time.
 */
struct flyt_time_slice_page {
    struct flyt_shared head; /* count: its place */
    uint64_t tenant_id;
    _Atomic(uint64_t) word;
    _Atomic(uint64_t) idle;    /* as time_slice_rules.h */
    _Atomic(uint64_t) seen_ns; /* when it last looked, while it runs */
};
_Static_assert(sizeof(struct flyt_time_slice_page) <= FLYT_TIME_SLICE_PAGE_BYTES, "board layout");

enum { FLYT_TIME_SLICE_STATE_BITS = 2, FLYT_TIME_SLICE_STATE_MASK = 3 };

#endif
