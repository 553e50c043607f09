#include "cpu/client/managed/track.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "rpc/base/descriptors.h"

/* From <linux/userfaultfd.h> and <linux/fs.h> of Linux 6.7: the headers of older systems lack them. */
#ifndef UFFD_FEATURE_WP_ASYNC
#define UFFD_FEATURE_WP_ASYNC (1 << 15)
#endif
struct scan {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
struct region {
    uint64_t start, end, categories;
};
enum { SCAN_PROTECTS = 1, SCAN_NEEDS_ASYNC = 2, PAGE_WAS_WRITTEN = 2 };
#define SCAN _IOWR('f', 16, struct scan)
_Static_assert(sizeof(struct scan) == 96 && sizeof(struct region) == 24, "the kernel reads these layouts");

/* For as long as the process lives; -1: there is none. */
static int fault_fd = -1, pagemap_fd = -1;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

/* Also without privileges: faults of system calls are the kernel's own to resolve, too. */
static void open_both(void)
{
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_WP_ASYNC};
    fault_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    if (fault_fd < 0)
        return;
    pagemap_fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (pagemap_fd < 0 || ioctl(fault_fd, UFFDIO_API, &api)) {
        fault_fd = flyt_close(fault_fd);
        pagemap_fd = flyt_close(pagemap_fd);
    }
}

/* Pages that were written, from `start` on: one run, protected again. */
static long scan(uint64_t start, uint64_t end, struct region *ret_region)
{
    struct scan arg = {.size = sizeof arg,
                       .flags = SCAN_PROTECTS | SCAN_NEEDS_ASYNC,
                       .start = start,
                       .end = end,
                       .vec = (uint64_t)(uintptr_t)ret_region,
                       .vec_len = 1,
                       .category_mask = PAGE_WAS_WRITTEN,
                       .return_mask = PAGE_WAS_WRITTEN};
    long count = ioctl(pagemap_fd, SCAN, &arg);
    return count < 0 ? -errno : count;
}

bool flyt_managed_track(uint64_t base, uint64_t bytes)
{
    struct uffdio_register whole = {.range = {.start = base, .len = bytes}, .mode = UFFDIO_REGISTER_MODE_WP};
    struct region region;
    pthread_once(&opened, open_both);
    /* The kernel knows the one and not the other where it is older than 6.7. */
    return fault_fd >= 0 && !ioctl(fault_fd, UFFDIO_REGISTER, &whole) && scan(base, base + bytes, &region) >= 0;
}

int flyt_managed_track_next(uint64_t *at, uint64_t end, uint64_t *ret_begin, uint64_t *ret_end)
{
    struct region region;
    long count = *at < end ? scan(*at, end, &region) : 0;
    if (count <= 0)
        return (int)count;
    if (region.start < *at || region.end > end || region.start >= region.end)
        return -EINVAL;
    *ret_begin = region.start;
    *at = *ret_end = region.end;
    return 1;
}
