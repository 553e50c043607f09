/*
 * Looks through device memory for addresses of variables: whether a program's memory has, in any aligned word of 8
 * bytes, an address inside a variable or right behind its end. A session whose memory has none of a variable may find
 * that somewhere else when it goes on at another server.
 *
 * One kernel (scan.ptx, which is in this program) at the speed of the memory; with the software GPU the CPU looks at
 * copies. Not found are addresses that are kept in host memory, in pieces, or encoded: who has asked the driver for
 * an address is known otherwise (replaceable.h).
 */
#ifndef FLYT_SERVER_SCAN_H
#define FLYT_SERVER_SCAN_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/core/driver.h"

enum { FLYT_SCAN_PLACES_MAX = 4096 }; /* of one pass through the memory; more take several */

/* A variable. */
struct flyt_scan_place {
    uint64_t address, bytes; /* not 0; 0 bytes count as one */
    bool is_referenced;      /* set where it is found; else left as it is */
};

/* Memory of the device whose context is current. */
struct flyt_scan_range {
    uint64_t address, bytes;
};

/*
 * Looks through the ranges, of the device, for addresses of the places, which may lie on other devices and overlap. In
 * the stream, of the current context; waits for it. sms_count: of that context. CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY,
 * or the driver's error: then nothing is known. One thread at a time.
 */
CUresult flyt_scan(const struct flyt_driver *driver, CUdevice cu_device, const struct flyt_scan_range *ranges,
                   uint32_t range_count, struct flyt_scan_place *places, uint32_t place_count, unsigned sms_count,
                   CUstream cu_stream);

#endif
