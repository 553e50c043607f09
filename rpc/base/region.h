/*
 * Regions: host memory that two processes of one host can name. A copy then names a place in the region, and no byte of
 * it travels.
 *
 * A program makes its region in a memfd whose length nobody can change, and sends the descriptor to the server of its
 * session, and to each one where that goes on. Both map it for reading and writing: what the other one writes there is
 * never believed. Where both have it at its own place (FLYT_REGION_BASE), an address of it means the same in both, and
 * to kernels. The file is as long as the host's memory, and at most a TiB, and takes memory where something was
 * written.
 *
 * Functions keep no state; any thread.
 */
#ifndef FLYT_BASE_REGION_H
#define FLYT_BASE_REGION_H

#include <stdbool.h>
#include <stdint.h>

enum { FLYT_REGION_ID = 1 /* of the one that there is */ };

/* All zero: there is none. */
struct flyt_region {
    uint32_t id; /* 0: there is none */
    char *base;  /* in this process */
    uint64_t bytes;
    uint64_t file_number; /* the memfd's inode: the same for no other one that there is */
};

/* A box of `height` rows of `width_bytes` in `depth` slices, in a region. */
struct flyt_region_span {
    uint64_t offset_bytes;
    uint64_t width_bytes, height, depth;
    uint64_t pitch_bytes, slice_bytes;
};

/* The program: a region, and a descriptor to be sent, which the caller closes. 0, or
 * a negative errno of memfd_create(2), ftruncate(2), fcntl(2) or mmap(2). */
int flyt_region_new(struct flyt_region *ret_region, int *ret_fd);
/* The server: maps what came as fd, which stays the caller's. 0; -EINVAL: no memfd of ordinary pages, an empty one, or
 * one without the seals; or a negative errno of fstat(2), fstatfs(2) or mmap(2). */
int flyt_region_map(int fd, struct flyt_region *ret_region);
/* Whether fd is that of the memory that is mapped there. */
bool flyt_region_is_of(const struct flyt_region *region, int fd);
/* Whether it is there, and at its own place. */
bool flyt_region_is_at_home(const struct flyt_region *region);
/* Unmaps either; there may be none. */
void flyt_region_unmap(struct flyt_region *region);

/* Bytes from the first to the last of a span that is not empty; false: rows or slices overlap, or the sum is more than
 * 64 bits. */
bool flyt_region_span_bytes(const struct flyt_region_span *span, uint64_t *ret_bytes);
/* Gives the memory of whole pages back to the system: they read as zeros then. 0 or a negative errno. */
int flyt_region_discard(const struct flyt_region *region, uint64_t offset_bytes, uint64_t bytes);

#endif
