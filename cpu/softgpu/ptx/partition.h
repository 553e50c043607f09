/*
 * A partition of a device's SMs: where the blocks of its launches are placed, how fast they may run, and what they have
 * used. Each context of the driver has one. Partitions may overlap: then their launches share the SMs' room.
 *
 * Each SM has a room of FLYT_PTX_SM_ROOM; a block takes the part of it that its launch's blocks_per_sm says. Speed is
 * limited per partition, in thread-instructions: what a partition has executed must be paid for by time that has passed
 * while it had something to run. Idle time earns nothing; time that its launches lost because the workers came late is
 * made up for, up to 10 ms. The rates of overlapping partitions are not shared.
 *
 * A partition is embedded in nothing and lives until flyt_ptx_partition_free, with no launch of it in flight. Functions
 * marked _locked are the pool's own, under its mutex; so is all that is marked below.
 */
#ifndef FLYT_SOFTGPU_PTX_PARTITION_H
#define FLYT_SOFTGPU_PTX_PARTITION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { FLYT_PTX_SM_ROOM = 1 << 30 };

struct flyt_ptx_pool;

/* What the launches of a partition have used so far. */
struct flyt_ptx_usage {
    uint64_t launches;            /* that were begun */
    uint64_t blocks;              /* that have ended */
    uint64_t thread_instructions; /* those of blocks that still run included, as of their last slice */
    uint64_t busy_ns;             /* time with at least one launch in flight */
};

struct flyt_ptx_partition {
    uint32_t *loads;           /* of the device's SMs, by number; the partitions of a device share them; locked */
    uint64_t rate;             /* thread-instructions per second of the whole partition; 0: unlimited */
    _Atomic uint64_t executed; /* thread-instructions */
    /* Below: locked. */
    uint64_t paid_ns; /* CLOCK_MONOTONIC: the time up to which its rate is used up */
    uint64_t busy_since_ns, busy_ns;
    uint64_t launches, blocks;
    unsigned in_flight; /* launches */
    unsigned sm_count;
    uint16_t sms[]; /* their numbers in the device, by number in the partition */
};

/*
 * A partition of `sm_count` > 0 SMs of the device whose `loads` are given, one element for each of its SMs, all zero
 * at first; borrowed. sms: their numbers, copied. sm_rate: thread-instructions per second and SM, at most 10^12; 0:
 * unlimited. NULL: out of memory.
 */
struct flyt_ptx_partition *flyt_ptx_partition_new(uint32_t *loads, const uint16_t *sms, unsigned sm_count,
                                                  uint64_t sm_rate);
/* NULL is allowed. Returns NULL. */
struct flyt_ptx_partition *flyt_ptx_partition_free(struct flyt_ptx_partition *partition);
/* From any thread, also while launches run. */
void flyt_ptx_partition_read(struct flyt_ptx_pool *pool, const struct flyt_ptx_partition *partition,
                             struct flyt_ptx_usage *ret_usage);

/* ---- for the pool ---- */

/* CLOCK_MONOTONIC. */
uint64_t flyt_ptx_now_ns(void);

/* A launch comes or goes. */
void flyt_ptx_partition_begin_locked(struct flyt_ptx_partition *partition);
void flyt_ptx_partition_end_locked(struct flyt_ptx_partition *partition);

/* The next SM, from *sm on in turn, that has room for `load`: *sm, a number in the partition. False: none has. */
bool flyt_ptx_partition_find_locked(const struct flyt_ptx_partition *partition, uint32_t load, unsigned *sm);
/* Takes `load` on an SM / gives it back. */
void flyt_ptx_partition_place_locked(struct flyt_ptx_partition *partition, unsigned sm, uint32_t load);
void flyt_ptx_partition_remove_locked(struct flyt_ptx_partition *partition, unsigned sm, uint32_t load);
/* Takes `load` for each of `count` blocks, or none; ret_sms: `count` elements. False: not all have room now. */
bool flyt_ptx_partition_place_all_locked(struct flyt_ptx_partition *partition, uint32_t load, uint64_t count,
                                         uint16_t *ret_sms);

/* Whether the partition may execute now; what it executes is then told with …settle. */
bool flyt_ptx_partition_is_due(const struct flyt_ptx_partition *partition, uint64_t now_ns);
/*
 * Of a limited partition: reserves a slice of about a millisecond. False: not due. *ret_slice in thread-instructions,
 * not 0.
 */
bool flyt_ptx_partition_take_locked(struct flyt_ptx_partition *partition, uint64_t now_ns, uint64_t *ret_slice);
/* Charges what was executed of the reserved slice, more or less. */
void flyt_ptx_partition_settle_locked(struct flyt_ptx_partition *partition, uint64_t executed);

#endif
