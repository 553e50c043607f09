/*
 * Which bytes of a transfer have come, as ranges that do not touch. Who sends takes the chunks of a transfer in rising
 * order, so that there are about as many ranges as chunks lie unread in connections that have fallen behind.
 */
#ifndef FLYT_SERVER_COVERAGE_H
#define FLYT_SERVER_COVERAGE_H

#include <stdint.h>

enum { FLYT_COVERAGE_RANGES_MAX = 1024 };

/* Zero: nothing has come. */
struct flyt_coverage {
    struct flyt_coverage_range {
        uint64_t begin, end;
    } * ranges; /* rising */
    unsigned count, capacity;
};

/* 0; -EINVAL: none at all, beyond 2^64, or some of these have come already; -ENOSPC: they would be too scattered;
 * -ENOMEM. Where it fails nothing is added. */
int flyt_coverage_add(struct flyt_coverage *coverage, uint64_t offset_bytes, uint64_t bytes);
/* Behind the last byte that has come; 0: none has. */
uint64_t flyt_coverage_end(const struct flyt_coverage *coverage);
void flyt_coverage_fini(struct flyt_coverage *coverage);

#endif
