/*
 * Which address belongs to what: device allocations, variables of modules, pinned host memory. Ranges do not overlap.
 * Device addresses lie in the window, which no host memory can enter. The server's driver chooses where variables lie:
 * their pages are reserved in this process while they are in the table, so that no pointer means both a variable and
 * memory of the program. A tree ordered by address, under a reader-writer lock of its own.
 */
#ifndef FLYT_CLIENT_RANGE_H
#define FLYT_CLIENT_RANGE_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

enum flyt_range_kind {
    FLYT_RANGE_ALLOCATION,
    FLYT_RANGE_MAPPED,   /* the program has mapped physical memory there (virtual.h) */
    FLYT_RANGE_IMPORTED, /* an allocation of another process's (cpu/client/ipc) */
    FLYT_RANGE_VARIABLE,
    FLYT_RANGE_HOST_ALLOC,
    FLYT_RANGE_HOST_REGISTERED
};

struct flyt_range {
    uint64_t base, bytes;
    enum flyt_range_kind kind;
    int device;
    uint64_t context_id; /* that made it; 0: none, of variables and what is mapped */
    uint64_t library_id; /* of variables, else 0 */
    uint64_t buffer_id;  /* set by insert: unique in the process */
    unsigned flags;      /* of host memory, as given */
    bool is_synchronous; /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS; not of variables */
    bool is_of_host;     /* of what is mapped: physical memory of the host, */
    bool is_reached;     /* and the server has it, too */
    bool is_managed;     /* of an allocation: the program has memory there, too; of host memory: it is managed memory */
    /* Of an allocation that begins with a page: what the server has begins so far below the base, and is so large. 0
     * bytes: as above. */
    uint64_t lead_bytes, served_bytes;
};

static inline bool flyt_range_is_host(const struct flyt_range *range)
{
    return range->kind == FLYT_RANGE_HOST_ALLOC || range->kind == FLYT_RANGE_HOST_REGISTERED;
}

/* Whether it is host memory to the program, too: managed memory is not. */
static inline bool flyt_range_is_pinned_host(const struct flyt_range *range)
{
    return flyt_range_is_host(range) && !range->is_managed;
}

/* Whether it is what cuMemAlloc makes, or a pool: of the latter there are no handles. */
static inline bool flyt_range_is_ipc_capable(const struct flyt_range *range)
{
    return range->kind == FLYT_RANGE_ALLOCATION && !range->is_managed;
}

/* Whether an address is none of a processor or a device: this library mints such for constants whose address the
 * program does not have. */
static inline bool flyt_range_is_minted(uint64_t address)
{
    return address >> 63;
}

/* Adds a copy, and reserves the pages of a variable. 0; -EEXIST: it overlaps another, or, of a variable, the process
 * has memory in its pages; -EINVAL: no bytes, or more than there are addresses; -ENOMEM: the system does not reserve
 * them. */
int flyt_range_insert(const struct flyt_range *range);
/* The range that holds the address. */
bool flyt_range_find(uint64_t address, struct flyt_range *ret_range);
/* Whether all of [address, address + bytes), which begins in the range, is in it; what is mapped goes on in the next
 * mapping. */
bool flyt_range_holds(const struct flyt_range *range, uint64_t address, uint64_t bytes);
/* Of memory of the host that is mapped at the address: whether the server has it. Until then flyt_range_holds says no.
 */
void flyt_range_set_reached(uint64_t address, bool is_reached);
/* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of the range that holds the address, which is no variable; false: there is none. */
bool flyt_range_set_synchronous(uint64_t address, bool is_on);
/* Whether the address is in a range that has it, or is mapped memory of the host, which the host looks at. One load
 * where there never was any. */
bool flyt_range_is_synchronous(uint64_t address);
/* Whether one host range holds all of [address, address + bytes). */
bool flyt_range_is_pinned(uint64_t address, uint64_t bytes);
/* Whether the process has memory at an address that is in no range: then it is the program's own, pageable memory. Else
 * it may be a variable of a module whose address only device code knows. Asks the kernel. */
bool flyt_range_is_foreign(uint64_t address);
/* Whether the address lies in a page that is reserved for variables. */
bool flyt_range_is_reserved(uint64_t address);
/* Removes the range of host memory, or what is mapped or imported, that begins at `base`; false: there is none of that
 * kind. ret_range may be NULL. */
bool flyt_range_remove(uint64_t base, enum flyt_range_kind kind, struct flyt_range *ret_range);
/* Removes the allocation that begins at `base` and sends its memory_free. CUDA_ERROR_INVALID_VALUE: there is none. What
 * sending returns. */
CUresult flyt_range_free(uint64_t base);
/* Frees the device memory of a context (is_on_server false: the server has done so already) and forgets it. Pinned host
 * memory stays: freeing it is the program's. */
void flyt_range_clear(uint64_t context_id, bool is_on_server);
/* Forgets the variables of a library (0: of all) on a device (-1: on all), and releases their pages. */
void flyt_range_forget_variables(uint64_t library_id, int device);

/*
 * Makes the allocations again (restore.h): those that there are, and those whose memory_free the server has not got, or
 * gets once more. What has left the table is kept for that until its memory_free is executed.
 */
struct flyt_restore;
int flyt_range_restore(struct flyt_restore *restore);

#endif
