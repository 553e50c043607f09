#include "rpc/base/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rpc/base/descriptors.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* Linux 5.1 */
#endif

enum { SEALS_NEEDED = F_SEAL_SHRINK | F_SEAL_GROW };

/* The seals that every kernel has are needed; against a second writer, who could only deceive himself, what there is.
 * The mapping that exists already stays writable. */
static int seal(int fd)
{
    if (fcntl(fd, F_ADD_SEALS, SEALS_NEEDED))
        return -errno;
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) && errno != EINVAL)
        return -errno;
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) ? -errno : 0;
}

int flyt_sealed_new(const char *name, size_t bytes, void **ret_memory, int *ret_fd)
{
    flyt_auto_close int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, (off_t)bytes))
        return -errno;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    int status = seal(fd);
    if (status) {
        flyt_sealed_unmap(memory, bytes);
        return status;
    }
    *ret_memory = memory;
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int flyt_sealed_map(int fd, size_t bytes, const void **ret_memory)
{
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS); /* fails where it is no memfd */

    if (fstat(fd, &file))
        return -errno;
    if (seals < 0 || (seals & SEALS_NEEDED) != SEALS_NEEDED || file.st_size != (off_t)bytes)
        return -EINVAL;
    const void *memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    *ret_memory = memory;
    return 0;
}

void flyt_sealed_unmap(const void *memory, size_t bytes)
{
    if (memory)
        munmap((void *)memory, bytes);
}
