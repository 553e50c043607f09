#include "control/node/test/fake_server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/node/test/fake_image.h"
#include "rpc/base/fault_point.h"

static void answer_prepared(struct fake *fake, const char *point, uint64_t move_id)
{
    bool has_failed = flyt_fault_point(point) == FLYT_FAULT_ERROR;

    fake->message.kind = FLYT_MANAGER_LINK_PREPARED;
    fake->message.prepared = (struct flyt_manager_link_prepared){
        .move_id = move_id, .outcome = has_failed ? -EXDEV : 0, .sequence = move_id ? fake->taken.sequence : 0};
    flyt_manager_link_say(&fake->message, has_failed ? "a variable has come to be elsewhere" : NULL);
    fake_put(fake);
}

void fake_target_make(struct fake *fake)
{
    const struct flyt_manager_link_extent extent = fake->message.extent;
    unsigned index = (unsigned)extent.extent_id % FAKE_EXTENTS_MAX;
    bool has_failed = flyt_fault_point("fake.make") == FLYT_FAULT_ERROR;

    if (!has_failed) {
        fake->extents[index].fd = memfd_create("extent", MFD_CLOEXEC);
        fake->extents[index].extent = extent;
    }
    fake->message.kind = FLYT_MANAGER_LINK_MADE;
    fake->message.data_bytes = 0;
    fake->message.made = (struct flyt_manager_link_made){.extent = extent, .outcome = has_failed ? -ENOMEM : 0};
    flyt_manager_link_send(fake->link_fd, &fake->message, &fake->extents[index].fd, !has_failed);
}

/* What an image has is made, and told unasked. */
static void load_image(struct fake *fake, int fd)
{
    static struct fake_image image;
    bool has_failed = flyt_fault_point("fake.make") == FLYT_FAULT_ERROR;

    if ((lseek(fd, 0, SEEK_SET) != 0 && errno != ESPIPE) || fake_image_read(fd, &image))
        _exit(1);
    close(fd);
    for (unsigned i = 0; i < image.count; i++) {
        unsigned index = (unsigned)image.extents[i].id % FAKE_EXTENTS_MAX;
        fake->extents[index].fd = memfd_create("extent", MFD_CLOEXEC);
        fake->extents[index].extent =
            (struct flyt_manager_link_extent){.extent_id = image.extents[i].id,
                                              .bytes = image.extents[i].bytes,
                                              .address = 0x200000000000 + (image.extents[i].id << 32)};
        fake_write_word(fake->extents[index].fd, image.extents[i].word);
        fake->message.kind = FLYT_MANAGER_LINK_MADE;
        fake->message.data_bytes = 0;
        fake->message.made =
            (struct flyt_manager_link_made){.extent = fake->extents[index].extent, .outcome = has_failed ? -ENOMEM : 0};
        flyt_manager_link_send(fake->link_fd, &fake->message, &fake->extents[index].fd, !has_failed);
    }
    fake->taken.sequence = fake->sequence = image.sequence;
    fake->taken.library_count = fake->library_count;
    fake->taken.has_state = true;
}

static void take_state(struct fake *fake, int fd)
{
    const uint64_t move_id = fake->message.stop.move_id;
    uint64_t state[2];
    struct stat info;

    if (!fstat(fd, &info) && (S_ISSOCK(info.st_mode) || info.st_size > (off_t)sizeof state)) { /* it is an image */
        load_image(fake, fd);
        answer_prepared(fake, "fake.state", move_id);
        return;
    }
    if (pread(fd, state, sizeof state, 0) != (ssize_t)sizeof state)
        _exit(1);
    close(fd);
    fake->taken.sequence = fake->sequence = state[0];
    fake->taken.library_count = state[1];
    fake->taken.has_state = true;
    answer_prepared(fake, "fake.state", fake->message.stop.move_id);
}

/* Another server may have read it before. */
static void try_image(int fd)
{
    static struct fake_image image;

    if (lseek(fd, 0, SEEK_SET) != 0 || (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY || fake_image_read(fd, &image))
        _exit(1);
    close(fd);
}

static void take_locks(struct fake *fake, int fd)
{
    const struct flyt_manager_link_locks locks = fake->message.locks;
    bool has_failed;

    if (locks.is_gone) {
        fake->locked_count -= locks.piece_count;
        return;
    }
    if (fd < 0 || !locks.has_memory)
        _exit(1);
    close(fd);
    has_failed = flyt_fault_point("fake.locks") == FLYT_FAULT_ERROR;
    fake->locked_count += locks.piece_count;
    fake->message.kind = FLYT_MANAGER_LINK_LOCKS_DONE;
    fake->message.data_bytes = 0;
    fake->message.locks_done =
        (struct flyt_manager_link_locks_done){.move_id = locks.move_id,
                                              .locked_count = has_failed ? 0 : locks.piece_count,
                                              .missed_count = has_failed ? locks.piece_count : 0};
    fake_put(fake);
}

bool fake_target_prepare(struct fake *fake, int fd)
{
    unsigned index = (unsigned)fake->message.extent.extent_id % FAKE_EXTENTS_MAX;

    switch (fake->message.kind) {
    case FLYT_MANAGER_LINK_PREPARE:
        fake->session = fake->message.session;
        answer_prepared(fake, "fake.prepare", 0);
        return true;
    case FLYT_MANAGER_LINK_LIBRARY:
        fake->libraries[fake->library_count++ % FAKE_LIBRARIES_MAX] = fake->message.library.library_id;
        return true;
    case FLYT_MANAGER_LINK_MAKE:
        fake_target_make(fake);
        return true;
    case FLYT_MANAGER_LINK_GIVE:
        fake->extents[index].extent = fake->message.extent;
        fake->extents[index].fd = fd;
        return true;
    case FLYT_MANAGER_LINK_UNMAKE:
        close(fake->extents[index].fd);
        fake->extents[index].fd = 0;
        return true;
    case FLYT_MANAGER_LINK_LOCKED_LEDGER:
        fake->locked_ledger_fd = fd;
        return true;
    case FLYT_MANAGER_LINK_LOCKS:
        take_locks(fake, fd);
        return true;
    case FLYT_MANAGER_LINK_STATE:
        take_state(fake, fd);
        return true;
    case FLYT_MANAGER_LINK_TRY:
        try_image(fd);
        answer_prepared(fake, "fake.try", fake->message.stop.move_id);
        return true;
    default:
        return false;
    }
}

/* It was told what it is to get: that is what it is given. */
void fake_target_compare(const struct fake *fake)
{
    const struct flyt_manager_link_session *told = &fake->session, *given = &fake->message.session;
    bool is_same = told->session_id == given->session_id && told->server_id == given->server_id &&
                   told->allocation_id == given->allocation_id && told->slot_count == given->slot_count &&
                   fake->taken.library_count == fake->library_count && fake->resume.is_made &&
                   fake->resume.extent_count == fake_count_extents(fake);

    for (unsigned i = 0; i < told->slot_count; i++)
        is_same &= !memcmp(told->slots[i].gpu_uuid, given->slots[i].gpu_uuid, sizeof told->slots[i].gpu_uuid) &&
                   !memcmp(told->slots[i].groups, given->slots[i].groups, sizeof told->slots[i].groups) &&
                   told->slots[i].memory_bytes == given->slots[i].memory_bytes;
    if (!is_same) {
        fprintf(stderr, "fake server: it was prepared for another session\n");
        _exit(1);
    }
}
