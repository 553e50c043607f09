/*
 * Memory that one process writes and others read, in a memfd whose length nobody can change: who maps it for reading
 * never faults, whatever the writer does. Functions keep no state; any thread.
 */
#ifndef FLYT_BASE_SEALED_H
#define FLYT_BASE_SEALED_H

#include <stddef.h>

/*
 * The writer's side: `bytes` (whole pages) of zeros, mapped for writing until flyt_sealed_unmap, and a descriptor of
 * them to be sent, which the caller closes. From then on nobody can make it shorter or longer, nor (where the kernel
 * has that seal, Linux 5.1) map it for writing. `name`: as memfd_create(2) has it. 0, or a negative errno of
 * memfd_create(2), ftruncate(2), fcntl(2) or mmap(2).
 */
int flyt_sealed_new(const char *name, size_t bytes, void **ret_memory, int *ret_fd);

/*
 * The readers': maps what came as fd, which stays the caller's, for reading. 0; -EINVAL: no memfd, of another length
 * or without the seals; or a negative errno of fstat(2) or mmap(2).
 */
int flyt_sealed_map(int fd, size_t bytes, const void **ret_memory);

/* Of either. NULL is allowed. */
void flyt_sealed_unmap(const void *memory, size_t bytes);

#endif
