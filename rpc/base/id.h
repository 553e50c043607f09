/*
 * Ids of a session's objects. The client mints them; the server looks them up by session and type. An id is what the
 * program holds as its CUDA handle (CUstream, cudaEvent_t, CUfunction …), so it fits a pointer and is never 0, 1 or 2.
 *
 * Layout, from the top: 8 bits type, 56 bits number. Kernels are numbered by rule, without asking the server:
 * 36 bits number of their library, 20 bits place among its kernels as the server told them.
 */
#ifndef FLYT_BASE_ID_H
#define FLYT_BASE_ID_H

#include <stdbool.h>
#include <stdint.h>
#include "flyt_ids.h" /* enum flyt_id_type, of the tables' kinds of objects */

enum { FLYT_ID_KERNEL_INDEX_BITS = 20 };

#define FLYT_ID_NUMBER_MASK ((1ull << 56) - 1)

static inline uint64_t flyt_id(enum flyt_id_type type, uint64_t number)
{
    return (uint64_t)type << 56 | number;
}

static inline unsigned flyt_id_type(uint64_t id)
{
    return (unsigned)(id >> 56);
}

static inline uint64_t flyt_id_number(uint64_t id)
{
    return id & FLYT_ID_NUMBER_MASK;
}

/* The legacy default stream of device 0–14. Numbers of other streams start at FLYT_ID_STREAM_FIRST. */
static inline uint64_t flyt_legacy_stream_id(unsigned device)
{
    return flyt_id(FLYT_ID_STREAM, device + 1);
}

static inline uint64_t flyt_kernel_id(uint64_t library_id, uint32_t index)
{
    return flyt_id(FLYT_ID_KERNEL, flyt_id_number(library_id) << FLYT_ID_KERNEL_INDEX_BITS | index);
}

static inline uint64_t flyt_kernel_library_number(uint64_t kernel_id)
{
    return flyt_id_number(kernel_id) >> FLYT_ID_KERNEL_INDEX_BITS;
}

static inline uint64_t flyt_kernel_library_id(uint64_t kernel_id)
{
    return flyt_id(FLYT_ID_LIBRARY, flyt_kernel_library_number(kernel_id));
}

static inline uint32_t flyt_kernel_index(uint64_t kernel_id)
{
    return (uint32_t)(kernel_id & ((1u << FLYT_ID_KERNEL_INDEX_BITS) - 1));
}

/* Device memory: one window of 1 TiB per device, at the same place in the program and in its server. */
#define FLYT_WINDOW_BASE    0x200000000000ull
#define FLYT_WINDOW_BYTES   (1ull << 40)
#define FLYT_WINDOW_DEVICES 15

static inline uint64_t flyt_window_base(unsigned device)
{
    return FLYT_WINDOW_BASE + device * FLYT_WINDOW_BYTES;
}

/* Behind the devices' windows: host memory that a program and its server share (region.h), at the same place in both.
 */
#define FLYT_REGION_BASE (FLYT_WINDOW_BASE + FLYT_WINDOW_DEVICES * FLYT_WINDOW_BYTES)

/* Where a server asks for another window of the same size for each device: mirrors of its memory
 * (cpu/server/move/common/mirror.h).
 */
#define FLYT_MIRROR_BASE 0x300000000000ull

static inline uint64_t flyt_mirror_base(unsigned device)
{
    return FLYT_MIRROR_BASE + device * FLYT_WINDOW_BYTES;
}

/* The device whose window holds the address, or -1. */
static inline int flyt_window_device(uint64_t address)
{
    uint64_t offset = address - FLYT_WINDOW_BASE;
    return offset < FLYT_WINDOW_DEVICES * FLYT_WINDOW_BYTES ? (int)(offset / FLYT_WINDOW_BYTES) : -1;
}

/* Addresses that a program reserves to map memory there (cuMemAddressReserve): of no device, at the same place in the
 * program and in its server, as those are. */
#define FLYT_VIRTUAL_BASE  0x400000000000ull
#define FLYT_VIRTUAL_BYTES (8ull << 40)

/* Whether the range, of at least a byte, lies in it. */
static inline bool flyt_virtual_has(uint64_t address, uint64_t bytes)
{
    uint64_t offset = address - FLYT_VIRTUAL_BASE;
    return offset < FLYT_VIRTUAL_BYTES && bytes <= FLYT_VIRTUAL_BYTES - offset;
}

/* Whether the address is device memory's, whatever lies there: never that of a process's own memory. */
static inline bool flyt_is_device_address(uint64_t address)
{
    return flyt_window_device(address) >= 0 || flyt_virtual_has(address, 1);
}

#endif
