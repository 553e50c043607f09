#include "rpc/transport/progress_page.h"

#include <errno.h>
#include <sys/mman.h>

#include "rpc/base/sealed.h"

int flyt_progress_page_new(struct flyt_progress_page **ret_page, int *ret_fd)
{
    void *memory;

    int status = flyt_sealed_new("flyt-progress", FLYT_PROGRESS_PAGE_BYTES, &memory, ret_fd);
    if (status)
        return status;
    *ret_page = memory;
    (*ret_page)->magic = FLYT_PROGRESS_PAGE_MAGIC;
    return 0;
}

int flyt_progress_page_map(int fd, const struct flyt_progress_page **ret_page)
{
    const void *memory;

    int status = flyt_sealed_map(fd, FLYT_PROGRESS_PAGE_BYTES, &memory);
    if (status)
        return status;
    const struct flyt_progress_page *page = memory;
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
    flyt_sealed_unmap(page, FLYT_PROGRESS_PAGE_BYTES);
}
