#include "rpc/base/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rpc/base/descriptors.h"

static int map(int fd, size_t bytes, struct flyt_shared **ret_shared)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED)
        return -errno;
    *ret_shared = memory;
    return 0;
}

int flyt_shared_new(const char *name, size_t bytes, int *ret_fd, struct flyt_shared **ret_shared)
{
    struct flyt_shared *shared = NULL;
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    /* Sealed, so that no holder can cut it short under the others' feet. */
    int status = ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
                     ? -errno
                     : map(fd, bytes, &shared);
    if (status) {
        flyt_close(fd);
        return status;
    }
    *ret_fd = fd;
    *ret_shared = shared;
    return 0;
}

/* What another build made may be of another length. */
static int check(int fd, size_t bytes, uint64_t magic, uint32_t version)
{
    struct flyt_shared head;
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &info) ||
        pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || head.magic != magic)
        return -EBADMSG;
    if (head.version != version)
        return -EPROTO;
    return info.st_size == (off_t)bytes ? 0 : -EBADMSG;
}

int flyt_shared_open(int fd, size_t bytes, uint64_t magic, uint32_t version, int *ret_fd,
                     struct flyt_shared **ret_shared)
{
    int status = check(fd, bytes, magic, version);

    if (status)
        return status;
    int own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own_fd < 0)
        return -errno;
    status = map(own_fd, bytes, ret_shared);
    if (status)
        flyt_close(own_fd);
    else
        *ret_fd = own_fd;
    return status;
}

void flyt_shared_close(int fd, struct flyt_shared *shared, size_t bytes)
{
    munmap(shared, bytes);
    flyt_close(fd);
}
