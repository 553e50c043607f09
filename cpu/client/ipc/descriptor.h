/*
 * Descriptors that programs pass on: a memfd that nobody can change any more.
 */
#ifndef FLYT_CLIENT_IPC_DESCRIPTOR_H
#define FLYT_CLIENT_IPC_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

#include "cpu/client/ipc/token.h"

enum { FLYT_DESCRIPTOR_MAGIC_BYTES = 16 };

struct flyt_descriptor_content {
    char magic[FLYT_DESCRIPTOR_MAGIC_BYTES]; /* of what it is */
    unsigned char token[FLYT_TOKEN_OF_MEMORY_BYTES];
    uint64_t number; /* bytes of memory; the server's number of a pool's device */
};
_Static_assert(sizeof(struct flyt_descriptor_content) == 56, "descriptor layout");

/* Enters. CUDA_ERROR_NOT_SUPPORTED: handles of this type, or all, cannot be made here. */
CUresult flyt_descriptor_check_type(CUmemAllocationHandleType type);
/* CUDA_ERROR_OPERATING_SYSTEM: none can be made. */
CUresult flyt_descriptor_write(const struct flyt_descriptor_content *content, int *ret_fd);
/* Whether it is one of these, with that magic. */
bool flyt_descriptor_read(int fd, const char *magic, struct flyt_descriptor_content *ret_content);

#endif
