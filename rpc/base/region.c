#include "rpc/base/region.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "rpc/base/claims.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/id.h"

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

enum { READ_AND_WRITE = PROT_READ | PROT_WRITE };

/* At its own place where that is free, else anywhere. */
static int map(int fd, int rights, struct flyt_region *ret_region)
{
    enum { KIND = MAP_SHARED | MAP_NORESERVE };
    void *base = MAP_FAILED;
    struct stat file;

    if (fstat(fd, &file))
        return -errno;
    const uint64_t bytes = file.st_size > 0 ? (uint64_t)file.st_size : 0;
    if (!bytes)
        return -EINVAL;
    if (bytes <= FLYT_WINDOW_BYTES) /* NOLINTNEXTLINE: a fixed place is the point */
        base = mmap((void *)(uintptr_t)FLYT_REGION_BASE, bytes, rights, KIND | MAP_FIXED_NOREPLACE, fd, 0);
    if (base == MAP_FAILED)
        base = mmap(NULL, bytes, rights, KIND, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    *ret_region = (struct flyt_region){
        .id = FLYT_REGION_ID, .base = base, .bytes = bytes, .file_device = file.st_dev, .file_number = file.st_ino};
    return 0;
}

int flyt_region_new(struct flyt_region *ret_region, int *ret_fd)
{
    const uint64_t host_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    const uint64_t bytes = host_bytes < FLYT_WINDOW_BYTES ? host_bytes : FLYT_WINDOW_BYTES;
    flyt_auto_close int fd = memfd_create("flyt-region", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL))
        return -errno;
    int status = map(fd, READ_AND_WRITE, ret_region);
    if (status)
        return status;
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int flyt_region_map(int fd, struct flyt_region *ret_region)
{
    struct statfs system;
    int seals = fcntl(fd, F_GET_SEALS); /* fails where it is no memfd */

    if (fstatfs(fd, &system))
        return -errno;
    /* Huge pages may be missing when they are touched, which is a signal. */
    if (seals < 0 || (seals & SEALS) != SEALS || system.f_type != TMPFS_MAGIC)
        return -EINVAL;
    return map(fd, READ_AND_WRITE, ret_region);
}

/* ---- a VM's ---- */

int flyt_region_of_vm(int fd, struct flyt_region *ret_region)
{
    const uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    struct flyt_region region;

    int status = map(fd, PROT_NONE, &region);
    if (status)
        return status;
    region.is_vm = true;
    status = flyt_claims_new(fd, page_bytes > FLYT_REGION_HEAD_BYTES ? page_bytes : FLYT_REGION_HEAD_BYTES,
                             region.bytes / page_bytes * page_bytes, &region.claims);
    if (status)
        flyt_region_unmap(&region);
    else
        *ret_region = region;
    return status;
}

int flyt_region_map_vm(int fd, struct flyt_region *ret_region)
{
    struct statfs system;

    if (fstatfs(fd, &system))
        return -errno;
    if (system.f_type != TMPFS_MAGIC && system.f_type != HUGETLBFS_MAGIC)
        return -EINVAL;
    int status = map(fd, READ_AND_WRITE, ret_region);
    if (status)
        return status;
    ret_region->is_vm = true;
    ret_region->claims_fd = fd;
    return 0;
}

int flyt_region_take(const struct flyt_region *region, uint64_t bytes, uint64_t *ret_offset_bytes)
{
    uint64_t offset_bytes;

    int status = flyt_claims_take(region->claims, bytes, &offset_bytes);
    if (status)
        return status;
    if (mprotect(region->base + offset_bytes, bytes, READ_AND_WRITE)) {
        status = -errno;
        flyt_claims_give(region->claims, offset_bytes);
        return status;
    }
    *ret_offset_bytes = offset_bytes;
    return 0;
}

/* First the pages, which may be another program's as soon as the claim has gone. */
void flyt_region_give(const struct flyt_region *region, uint64_t offset_bytes, uint64_t bytes)
{
    mprotect(region->base + offset_bytes, bytes, PROT_NONE);
    flyt_claims_give(region->claims, offset_bytes);
}

bool flyt_region_is_of(const struct flyt_region *region, int fd)
{
    struct stat file;

    return region->id && !fstat(fd, &file) && file.st_dev == region->file_device && file.st_ino == region->file_number;
}

bool flyt_region_is_at_home(const struct flyt_region *region)
{
    return region->id && (uint64_t)(uintptr_t)region->base == FLYT_REGION_BASE;
}

void flyt_region_unmap(struct flyt_region *region)
{
    if (region->id)
        munmap(region->base, region->bytes);
    flyt_claims_free(region->claims);
    *region = (struct flyt_region){0};
}

bool flyt_region_span_bytes(const struct flyt_region_span *span, uint64_t *ret_bytes)
{
    uint64_t rows, slices, slice, bytes;

    if (!span->width_bytes || !span->height || !span->depth ||
        (span->height > 1 && span->pitch_bytes < span->width_bytes) ||
        __builtin_mul_overflow(span->height - 1, span->pitch_bytes, &rows) ||
        __builtin_add_overflow(rows, span->width_bytes, &slice) || (span->depth > 1 && span->slice_bytes < slice) ||
        __builtin_mul_overflow(span->depth - 1, span->slice_bytes, &slices) ||
        __builtin_add_overflow(slices, slice, &bytes))
        return false;
    *ret_bytes = bytes;
    return true;
}

/* A mapping of no bytes is moved: what the kernel makes of it is a second one of the pages behind. A VM's pages are a
 * device's in its guest, of which it makes none. */
int flyt_region_map_again(const struct flyt_region *region, uint64_t offset_bytes, uint64_t bytes, uint64_t address)
{
    void *wanted = (void *)(uintptr_t)address; /* NOLINT: a fixed place is the point */
    const int fd = region->claims ? flyt_claims_fd(region->claims) : region->claims_fd;
    void *got = region->is_vm ? mmap(wanted, bytes, READ_AND_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)offset_bytes)
                              : mremap(region->base + offset_bytes, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, wanted);

    return got == MAP_FAILED ? -errno : 0;
}

int flyt_region_discard(const struct flyt_region *region, uint64_t offset_bytes, uint64_t bytes)
{
    return madvise(region->base + offset_bytes, bytes, MADV_REMOVE) ? -errno : 0;
}
