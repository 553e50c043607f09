/*
 * A CUDA driver for tests: does nothing, writes down what it is asked to do, and lets the test say when the GPU has
 * done it. Streams are numbered in the order in which they are created (the legacy default stream is 0). An event is
 * reached when its stream has done everything that was submitted before the event was recorded.
 */
#ifndef FLYT_SERVER_FAKE_DRIVER_H
#define FLYT_SERVER_FAKE_DRIVER_H

#include <stdint.h>

#include "cpu/server/core/driver.h"

/* The table. One fake per process; any thread. */
const struct flyt_driver *flyt_fake_driver(void);

/* From now on the stream's new work is not done until it is released. */
void flyt_fake_hold(unsigned stream);
void flyt_fake_release(unsigned stream);
/* A node of what captures record. */
struct flyt_fake_node {
    CUgraphNodeType type;
    CUDA_MEMCPY3D copy;
    const struct flyt_fake_node *child; /* the one node of its graph */
};
/* From now on captures record this node, which stays; NULL: none. */
void flyt_fake_capture(const struct flyt_fake_node *node);
/* Of what a held stream has, so many operations more are done, each after each_ns of flyt_fake_clock_ns, which nothing
 * else moves. */
void flyt_fake_step(unsigned stream, unsigned operations, uint64_t each_ns);
uint64_t flyt_fake_clock_ns(void);

/* Every later question about the GPU's progress gives this code. */
void flyt_fake_fail(CUresult result);

/* How much physical memory there is, and how much of it is created. */
void flyt_fake_set_memory(uint64_t bytes);
uint64_t flyt_fake_used_memory(void);

/* From now on page-locked memory cannot be had, for this reason. */
void flyt_fake_fail_host_memory(CUresult result);
/* From now on edges of graphs with data are not supported. */
void flyt_fake_refuse_edge_data(void);

/*
 * From now on a stream that waits for an event has done nothing of what follows before the event is reached, and the
 * log tells more: "green:2=16" (the second context, of 16 SMs), "stream:5@2,-1" (stream 5 in context 2, priority -1),
 * "attribute:5,8,-1" (of stream 5 number 8 is set, the value begins with a word of -1),
 * "record:5", "gone:5" (a stream), "sync" (somebody waits in the driver). There is a GPU of 64
 * SMs.
 */
void flyt_fake_be_exact(void);
/* No more than so many streams are made from the beginning on. */
void flyt_fake_limit_streams(unsigned count);
/* How many streams there are. */
unsigned flyt_fake_stream_count(void);

/* What was submitted so far, one word per operation: "memset:2 wait:3<1 launch:3" (wait: stream 3 waits for an event
 * of stream 1; "in" becomes "pageable" for data in memory that is not page-locked; "made:set@1,empty@0<1," a graph was
 * instantiated whose first node is of context 1 and whose second comes after that, "[1>2:1.0]" by an edge of that port
 * and type, "graph:2" launched, "unmade" it is
 * destroyed). `text` has `bytes` of room. */
void flyt_fake_log(char *text, unsigned bytes);
void flyt_fake_log_clear(void);

#endif
