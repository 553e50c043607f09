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
 * A program in a VM shares no memory with its server but what QEMU maps for that (ivshmem-plain), which is one file
 * for all programs of the VM. That is the region of each of them. A program claims (claims.h) what it uses of it among
 * the programs of its guest, and its server does so among the servers of the host. Everybody else of that VM can write
 * to it all the same: neither process believes what is in it. Whose the file is may cut it, and who touches what is no
 * more gets SIGBUS.
 *
 * Functions keep no state; any thread.
 */
#ifndef FLYT_BASE_REGION_H
#define FLYT_BASE_REGION_H

#include <stdbool.h>
#include <stdint.h>

struct flyt_claims;

enum {
    FLYT_REGION_ID = 1,            /* of the one that there is */
    FLYT_REGION_HEAD_BYTES = 4096, /* of a VM's, which say what it is; the rest is to be claimed */
};

/* All zero: there is none. */
struct flyt_region {
    uint32_t id; /* 0: there is none */
    char *base;  /* in this process */
    uint64_t bytes;
    uint64_t file_device, file_number; /* of fstat(2): the same for no other file that there is */
    bool is_vm;                        /* it is a VM's: what is not claimed is not to be touched */
    /* Then: of the program; of the server, the descriptor with which it claims. */
    struct flyt_claims *claims;
    int claims_fd;
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
/* The program: the memory that its VM shares with its host; fd, which nobody else makes claims with, is taken over. 0
 * or a negative errno of fstat(2) or mmap(2), -EINVAL (empty) or -ENOMEM; fd stays the caller's then. */
int flyt_region_of_vm(int fd, struct flyt_region *ret_region);
/* The server: the same as its host has it. fd stays the caller's and outlives the region. 0; -EINVAL: no file in a
 * tmpfs or a hugetlbfs; or a negative errno as above. */
int flyt_region_map_vm(int fd, struct flyt_region *ret_region);
/* The program: claims whole pages of a VM's region, which may be touched from then on, and have anything in them. 0 and
 * where they are, or as flyt_claims_take. */
int flyt_region_take(const struct flyt_region *region, uint64_t bytes, uint64_t *ret_offset_bytes);
/* Gives back what was taken at once. */
void flyt_region_give(const struct flyt_region *region, uint64_t offset_bytes, uint64_t bytes);
/* Whether fd is that of the memory that is mapped there. */
bool flyt_region_is_of(const struct flyt_region *region, int fd);
/* Whether it is there, and at its own place. */
bool flyt_region_is_at_home(const struct flyt_region *region);
/* Unmaps either; there may be none. */
void flyt_region_unmap(struct flyt_region *region);

/* Bytes from the first to the last of a span that is not empty; false: rows or slices overlap, or the sum is more than
 * 64 bits. */
bool flyt_region_span_bytes(const struct flyt_region_span *span, uint64_t *ret_bytes);
/* Maps whole pages once more, for reading and writing, in place of whatever is at the address; the program has them
 * (flyt_region_take) where it is a VM's. 0 or a negative errno of mremap(2) or mmap(2). */
int flyt_region_map_again(const struct flyt_region *region, uint64_t offset_bytes, uint64_t bytes, uint64_t address);
/* Gives the memory of whole pages back to the system: they read as zeros then. 0 or a negative errno. */
int flyt_region_discard(const struct flyt_region *region, uint64_t offset_bytes, uint64_t bytes);

#endif
