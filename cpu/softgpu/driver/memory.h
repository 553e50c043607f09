/*
 * Addresses and memory of the software GPU.
 *
 * A device address is an address of this process. Everything that device code may touch lies in one span of 36 TiB,
 * which no other mapping of a process comes near, in granules of 2 MiB; a device's access table has one byte for each
 * (committed as it is touched), which the PTX engine checks at every access:
 *
 *   0x1c0000000000  cuMemAlloc, 64 GiB for each device
 *   0x1d0000000000  reservations (cuMemAddressReserve) whose address the driver chooses
 *   0x1e0000000000  page-locked host memory
 *   0x1f0000000000  modules' variables (32 GiB for each device) and the heap of device malloc (32 GiB)
 *   0x200000000000  32 TiB for reservations at addresses that the caller names
 *
 * Memory that has been mapped once stays backed by something until its reservation ends and no work is in flight: work
 * that still uses an unmapped address reads and writes pages that nobody else sees, and never crashes the process.
 */
#ifndef FLYT_SOFTGPU_DRIVER_MEMORY_H
#define FLYT_SOFTGPU_DRIVER_MEMORY_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/softgpu/driver/handle.h"
#include "cpu/softgpu/driver/ranges.h"
#include "cpu/softgpu/ptx/ptx.h"

#define FLYT_SOFT_TIB           ((uint64_t)1 << 40)
#define FLYT_SOFT_GIB           ((uint64_t)1 << 30)
#define FLYT_SOFT_GRANULE_SHIFT 21
#define FLYT_SOFT_GRANULE_BYTES ((uint64_t)1 << FLYT_SOFT_GRANULE_SHIFT)

#define FLYT_SOFT_SPAN_BASE     ((uint64_t)0x1c0000000000)
#define FLYT_SOFT_SPAN_BYTES    (44 * FLYT_SOFT_TIB)
#define FLYT_SOFT_ALLOC_BASE    ((uint64_t)0x1c0000000000)
#define FLYT_SOFT_ALLOC_BYTES   (64 * FLYT_SOFT_GIB) /* for each device */
#define FLYT_SOFT_CHOSEN_BASE   ((uint64_t)0x1d0000000000)
#define FLYT_SOFT_CHOSEN_BYTES  FLYT_SOFT_TIB
#define FLYT_SOFT_HOST_BASE     ((uint64_t)0x1e0000000000)
#define FLYT_SOFT_HOST_BYTES    FLYT_SOFT_TIB
#define FLYT_SOFT_OWN_BASE      ((uint64_t)0x1f0000000000)
#define FLYT_SOFT_OWN_BYTES     (64 * FLYT_SOFT_GIB) /* for each device in use: variables, then the heap */
#define FLYT_SOFT_GLOBALS_BYTES (32 * FLYT_SOFT_GIB)
#define FLYT_SOFT_FIXED_BASE    ((uint64_t)0x200000000000)
#define FLYT_SOFT_FIXED_BYTES   (40 * FLYT_SOFT_TIB)

enum { FLYT_SOFT_ALLOC_ALIGN = 512, FLYT_SOFT_HEAP_ALIGN = 16 };

/* Values of an access table's byte, as the PTX engine reads them. */
enum { FLYT_SOFT_ACCESS_NONE = 0, FLYT_SOFT_ACCESS_READ = 1, FLYT_SOFT_ACCESS_READ_WRITE = 3 };

struct flyt_soft_device;

/* Memory that the driver hands out in small pieces. Committed, accounted and accessible in whole granules. */
struct flyt_soft_pool {
    pthread_mutex_t mutex;
    struct flyt_soft_device *device; /* NULL: host memory, accessible to all devices, not accounted */
    struct flyt_soft_ranges ranges;
};

/* One device's view of the address span. */
struct flyt_soft_map {
    _Atomic uint8_t *access;    /* one byte per granule of the span */
    struct flyt_ptx_memory ptx; /* the same for the PTX engine */
    uint64_t total_bytes;
    _Atomic uint64_t used_bytes;
    struct flyt_soft_pool alloc;   /* cuMemAlloc */
    bool is_open;                  /* globals and heap have their places */
    struct flyt_soft_pool globals; /* modules' variables and the driver's own */
    struct flyt_soft_pool heap;    /* device malloc */
    _Atomic uint64_t heap_used_bytes;
};

/* What lies where, for the whole process. Under the driver's mutex, but for the pool. */
struct flyt_soft_space {
    struct flyt_soft_ranges chosen; /* reservations; owner: NULL, or `leaving` of one that has ended */
    struct flyt_soft_ranges fixed;
    struct flyt_soft_leaving *leaving;  /* ended reservations that work in flight may still use */
    struct flyt_soft_ranges mappings;   /* owner: struct flyt_soft_extent */
    struct flyt_soft_ranges registered; /* host memory registered by its owner; owner: flags */
    struct flyt_soft_pool host;         /* owner: flags */
};

/* Physical memory: a memfd, so that it outlives this process in the hands of whoever holds a descriptor. */
struct flyt_soft_extent {
    enum flyt_soft_kind kind;
    unsigned handle_refs;   /* handles given out */
    unsigned mapping_count; /* under the driver's mutex, as all of this */
    uint64_t bytes;
    uint64_t id;
    int fd;
    struct flyt_soft_device *device;
    CUmemAllocationHandleType handle_types;
    bool is_decompressible; /* made with CU_MEM_CREATE_USAGE_HW_DECOMPRESS */
};

/* 0 or -ENOMEM. total_bytes: the device's memory, a multiple of a granule. */
int flyt_soft_map_init(struct flyt_soft_device *device, uint64_t total_bytes);
/*
 * The device is to have a context: places for variables and the heap, once. They follow each other in the order in
 * which the process comes to use devices, not in that of the devices: a process that uses one alone has the same places
 * on whichever it is, as with NVIDIA's driver, so that a session's variables keep their addresses where it moves. 0 or
 * -ENOMEM. Any thread.
 */
int flyt_soft_map_open(struct flyt_soft_device *device);
int flyt_soft_space_init(struct flyt_soft_space *space);

/* Takes `bytes` of the device's memory. False: not that much left. */
bool flyt_soft_map_charge(struct flyt_soft_map *map, uint64_t bytes);
void flyt_soft_map_uncharge(struct flyt_soft_map *map, uint64_t bytes);

/* Sets what a device may do with the granules of [start, start + bytes), both multiples of a granule. */
void flyt_soft_map_allow(struct flyt_soft_map *map, uint64_t start, uint64_t bytes, uint8_t access);
/* The access of one address; NONE outside of the span. */
uint8_t flyt_soft_map_access(const struct flyt_soft_map *map, uint64_t address);

/*
 * Memory from a pool: bytes > 0, align a power of two. The contents are undefined, zero where never used.
 * CUDA_SUCCESS and *ret_address; CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult flyt_soft_pool_alloc(struct flyt_soft_pool *pool, uint64_t bytes, uint64_t align, void *owner,
                              uint64_t *ret_address);
/* CUDA_ERROR_INVALID_VALUE: not the start of a piece of this pool. */
CUresult flyt_soft_pool_free(struct flyt_soft_pool *pool, uint64_t address);
/* The piece that contains an address. False: none. */
bool flyt_soft_pool_find(struct flyt_soft_pool *pool, uint64_t address, struct flyt_soft_range *ret_range);

/*
 * Whether a copy may touch [address, address + bytes): memory of any device, or page-locked host memory, that is
 * mapped, and accessible to at least one device.
 */
bool flyt_soft_is_device_memory(uint64_t address, uint64_t bytes);
/* Whether the addresses lie in the span at all, accessible or not. */
bool flyt_soft_is_in_span(uint64_t address);
/* Whether it is page-locked memory of the host: allocated or registered. */
bool flyt_soft_is_pinned(uint64_t address);

/* Whether the address is in memory of the device that was made for decompression. */
bool flyt_soft_is_decompressible(const struct flyt_soft_device *device, uint64_t address);

/* The device whose pool window contains the address; NULL: none. */
struct flyt_soft_device *flyt_soft_alloc_device(uint64_t address);

/* The heap behind device malloc, as struct flyt_ptx_launch asks for it. user: the struct flyt_soft_device. */
uint64_t flyt_soft_heap_alloc(void *user, uint64_t bytes);
void flyt_soft_heap_free(void *user, uint64_t address);

#endif
