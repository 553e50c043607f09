/*
 * For tests of what copies a session's memory: a session on two software GPUs, without a client. The test is its own
 * thread, its program, which allocates and writes by the driver's own streams, and its node manager, which has the
 * descriptors of all memory. Functions fail the running test where something is not as it should be.
 */
#ifndef FLYT_SERVER_FAKE_SESSION_H
#define FLYT_SERVER_FAKE_SESSION_H

#include <stdbool.h>
#include <unistd.h>

#include "cpu/server/test/fake_soft.h"
#include "cpu/server/core/session.h"
#include "rpc/base/page_hash.h"

enum {
    DEVICES = 2, /* of the session */
    EXTENTS_MAX = 512,
    BLOCKS_MAX = 24,
    PAGE = FLYT_PAGE_BYTES,
    GROUP_SIZE = 8,
    RETRIES_MAX = 1000 * 1000, /* rounds of a loop that pauses */
};

/* As the node manager knows it. */
struct fake_extent {
    struct flyt_manager_link_extent extent;
    int fd, other_fd; /* the session's memory; of the test for it, closed with it (-1: none) */
    bool is_there, is_delivered;
};

/* An allocation of the program. */
struct fake_block {
    struct flyt_device *device;
    uint64_t address, bytes;
};

struct fake_session {
    struct flyt_driver driver; /* the software GPU's; functions may be replaced */
    struct flyt_session session;
    struct flyt_manager manager;
    int fd; /* the node manager's end */
    CUstream writers[DEVICES];
    struct fake_extent extents[EXTENTS_MAX];
    unsigned extent_count;
    void (*take)(struct fake_extent *extent); /* the test's: an extent has been told; NULL */
    bool is_late;                             /* the test's, for that; false when a test begins */
    struct fake_block blocks[BLOCKS_MAX];
    unsigned block_count;
    uint64_t random, sequence, move_id;
    unsigned switched, vacated; /* what was told of SMs */
};

extern struct fake_session self; /* of the program: its tests have it one after the other */

/* The group's set-up and tear-down. */
int fake_session_begin(void **state);
int fake_session_end(void **state);
/* A test's set-up: pages are hashed by the kernel, or by the CPU that stands in for it; the driver is the GPU's. */
int fake_session_with_kernel(void **state);
int fake_session_with_cpu(void **state);
/* A test's tear-down: nothing is left for the next one. */
int fake_session_clean_up(void **state);

/* ---- the node manager ---- */

/* Takes what the server has said. */
void fake_session_listen(void);
/* How many extents there are. */
unsigned fake_session_count_extents(void);
/* How many the session itself has. */
unsigned fake_session_expected_extents(void);

/* ---- the program ---- */

struct fake_block *fake_session_allocate(unsigned device, uint64_t bytes);
/* Frees self.blocks[i], in whose place the last one comes. */
void fake_session_free(unsigned i);
/* Fills `count` words of 4 bytes, in the order of the device's writer; behind `at` bytes. */
void fake_session_set(const struct fake_block *block, uint64_t at, unsigned value, uint64_t count);
/* Fills a part of some block, so often, with one of few values, so that pages also become what they were. */
void fake_session_write_somewhere(unsigned times);
/* Waits until nothing of the session runs any more. */
void fake_session_stand_still(void);
uint64_t fake_session_random(void);

/* ---- the session's thread ---- */

/* Where copying has got to. */
struct flyt_manager_link_move_state fake_session_state(void);
/* One round of its loop. */
void fake_session_advance(void);
/* Ends the copying, and waits until it has let go of everything. */
void fake_session_end_copying(void);

/* Until the condition holds: what is waited for comes, however slow the machine is. */
#define ADVANCE_UNTIL(condition)                                                                                       \
    do {                                                                                                               \
        unsigned retries_ = RETRIES_MAX;                                                                               \
        while (!(condition) && retries_--) {                                                                           \
            fake_session_advance();                                                                                    \
            usleep(20);                                                                                                \
        }                                                                                                              \
        assert_true(condition);                                                                                        \
    } while (0)

/* Rows of a table of tests: with the CPU that stands in for the kernel that hashes pages; and with both. */
#define CPU(name)                                                                                                      \
    {                                                                                                                  \
        "CPU: " #name, name, fake_session_with_cpu, fake_session_clean_up, NULL                                        \
    }
#define TEST(name) {"kernel: " #name, name, fake_session_with_kernel, fake_session_clean_up, NULL}, CPU(name)

#endif
