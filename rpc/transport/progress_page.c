#include "rpc/transport/progress_page.h"

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

int flyt_progress_page_new(struct flyt_progress_page **ret_page, int *ret_fd)
{
    flyt_auto_close int fd = memfd_create("flyt-progress", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, FLYT_PROGRESS_PAGE_BYTES))
        return -errno;
    struct flyt_progress_page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return -errno;
    int status = seal(fd);
    if (status) {
        flyt_progress_page_unmap(page);
        return status;
    }
    page->magic = FLYT_PROGRESS_PAGE_MAGIC;
    *ret_page = page;
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int flyt_progress_page_map(int fd, const struct flyt_progress_page **ret_page)
{
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS); /* fails where it is no memfd */

    if (fstat(fd, &file))
        return -errno;
    if (seals < 0 || (seals & SEALS_NEEDED) != SEALS_NEEDED || file.st_size != FLYT_PROGRESS_PAGE_BYTES)
        return -EINVAL;
    const struct flyt_progress_page *page = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return -errno;
    if (page->magic != FLYT_PROGRESS_PAGE_MAGIC) {
        flyt_progress_page_unmap(page);
        return -EPROTO;
    }
    *ret_page = page;
    return 0;
}

int flyt_progress_page_replace(const struct flyt_progress_page *place, const struct flyt_progress_page *page)
{
    void *moved = mremap((void *)page, sizeof *page, sizeof *page, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)place);

    return moved == MAP_FAILED ? -errno : 0;
}

void flyt_progress_page_unmap(const struct flyt_progress_page *page)
{
    if (page)
        munmap((void *)page, sizeof *page);
}
