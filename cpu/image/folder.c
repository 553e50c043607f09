#include "cpu/image/folder.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/image/checksum.h"
#include "cpu/image/reader.h"
#include "rpc/base/descriptors.h"

/* XDR of flyt_checkpoint_end has always the same size. */
enum { END_BODY_BYTES = 8 + 8 + 8 + FLYT_CHECKPOINT_SHA256_BYTES, END_BYTES = FLYT_RECORD_HEAD_BYTES + END_BODY_BYTES };

static bool is_image_name(const char *name)
{
    unsigned digits = 0;

    while (digits < FLYT_CHECKPOINT_ID_TEXT_BYTES - 1 &&
           (isdigit((unsigned char)name[digits]) || (name[digits] >= 'a' && name[digits] <= 'f')))
        digits++;
    return digits == FLYT_CHECKPOINT_ID_TEXT_BYTES - 1 && !strcmp(name + digits, ".flyt");
}

static int read_head(int fd, struct flyt_checkpoint_entry *entry)
{
    struct flyt_checkpoint_reader *reader;
    struct flyt_checkpoint_record record;
    char name[FLYT_CHECKPOINT_NAME_BYTES];
    int status = flyt_checkpoint_reader_new(fd, entry->name, true, &reader, &entry->err);

    if (status)
        return status;
    status = flyt_checkpoint_next(reader, &record, &entry->err);
    if (status > 0) {
        const flyt_checkpoint_head *head = &record.body->head;
        memcpy(entry->id, head->id, sizeof entry->id);
        memcpy(entry->parent_id, head->parent_id, sizeof entry->parent_id);
        entry->has_parent = !flyt_checkpoint_id_is_none(head->parent_id);
        entry->created_ms = head->created_ms;
        entry->session_id = head->session_id;
        snprintf(entry->program, sizeof entry->program, "%s", head->program_name);
        flyt_checkpoint_file_name(head->id, name);
        if (strcmp(name, entry->name))
            flyt_error_set(&entry->err, -EBADMSG, "image %s: damaged: it is %s by its own account", entry->name, name);
    }
    flyt_checkpoint_reader_free(reader);
    return entry->err.code;
}

/* Whether the last bytes are an END record of a file of this size. */
static int check_end(int fd, struct flyt_checkpoint_entry *entry)
{
    unsigned char bytes[END_BYTES];
    struct flyt_record_head head;
    flyt_checkpoint_end end;
    XDR xdrs;
    ssize_t count = entry->bytes < END_BYTES ? 0 : pread(fd, bytes, END_BYTES, (off_t)(entry->bytes - END_BYTES));

    if (count != END_BYTES || !flyt_record_head_get(bytes, &head) || head.type != FLYT_CHECKPOINT_END ||
        head.body_bytes != END_BODY_BYTES ||
        flyt_checkpoint_checksum(0, bytes + FLYT_RECORD_HEAD_BYTES, END_BODY_BYTES) != head.body_checksum)
        return flyt_error_set(&entry->err, -ENODATA, "image %s: cut off, or something follows its end", entry->name);
    xdrmem_create(&xdrs, (char *)bytes + FLYT_RECORD_HEAD_BYTES, END_BODY_BYTES, XDR_DECODE);
    if (!xdr_flyt_checkpoint_end(&xdrs, &end) || end.stream_bytes != entry->bytes - END_BYTES)
        return flyt_error_set(&entry->err, -ENODATA, "image %s: cut off: its end is that of another one", entry->name);
    return 0;
}

static void read_entry(int folder_fd, struct flyt_checkpoint_entry *entry)
{
    flyt_auto_close int fd = openat(folder_fd, entry->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat about;

    if (fd < 0 || fstat(fd, &about)) {
        int code = errno;
        flyt_error_set(&entry->err, -code, "image %s: it cannot be opened: %s", entry->name, strerror(code));
        return;
    }
    if (!S_ISREG(about.st_mode)) {
        flyt_error_set(&entry->err, -EINVAL, "image %s: it is no file", entry->name);
        return;
    }
    entry->bytes = (uint64_t)about.st_size;
    if (!read_head(fd, entry))
        check_end(fd, entry);
}

static int compare_entries(const void *one, const void *other)
{
    const struct flyt_checkpoint_entry *first = one, *second = other;

    if (first->created_ms != second->created_ms)
        return first->created_ms < second->created_ms ? -1 : 1;
    return strcmp(first->name, second->name);
}

static struct flyt_checkpoint_entry *find(const struct flyt_checkpoint_folder *folder, const void *id)
{
    for (uint32_t i = 0; i < folder->entry_count; i++)
        if (!memcmp(folder->entries[i].id, id, FLYT_CHECKPOINT_ID_BYTES) &&
            !flyt_checkpoint_id_is_none(folder->entries[i].id))
            return &folder->entries[i];
    return NULL;
}

const struct flyt_checkpoint_entry *flyt_checkpoint_folder_find(const struct flyt_checkpoint_folder *folder,
                                                                const void *id)
{
    return find(folder, id);
}

/* Goes from the image to its oldest parent. Images that build on each other in a ring have none. */
static bool has_chain(const struct flyt_checkpoint_folder *folder, struct flyt_checkpoint_entry *entry)
{
    const struct flyt_checkpoint_entry *at = entry;

    for (uint32_t steps = 0; at->has_parent; steps++) {
        const struct flyt_checkpoint_entry *parent = at->parent;
        char name[FLYT_CHECKPOINT_NAME_BYTES];
        flyt_checkpoint_file_name(at->parent_id, name);
        if (!parent)
            flyt_error_set(&entry->err, -ENOENT, "image %s: its parent %s is not there", entry->name, name);
        else if (!parent->is_sound)
            flyt_error_set(&entry->err, parent->err.code, "image %s: its parent %s cannot be used", entry->name, name);
        else if (steps > folder->entry_count)
            flyt_error_set(&entry->err, -ELOOP, "image %s: it is among its own parents", entry->name);
        else {
            at = parent;
            continue;
        }
        return false;
    }
    return true;
}

static void link_entries(struct flyt_checkpoint_folder *folder)
{
    for (uint32_t i = 0; i < folder->entry_count; i++) {
        struct flyt_checkpoint_entry *entry = &folder->entries[i], *parent;
        entry->is_sound = !entry->err.code;
        parent = entry->has_parent ? find(folder, entry->parent_id) : NULL;
        entry->parent = parent;
        if (entry->is_sound && parent)
            parent->is_parent = true;
    }
    for (uint32_t i = 0; i < folder->entry_count; i++) {
        struct flyt_checkpoint_entry *entry = &folder->entries[i];
        entry->is_usable = entry->is_sound && has_chain(folder, entry);
    }
}

static int add_entry(struct flyt_checkpoint_folder *folder, uint32_t *capacity, int folder_fd, const char *name)
{
    if (folder->entry_count == FLYT_CHECKPOINT_CHAIN_MAX)
        return -EFBIG;
    if (folder->entry_count == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 16;
        struct flyt_checkpoint_entry *entries = realloc(folder->entries, *capacity * sizeof *entries);
        if (!entries)
            return -ENOMEM;
        folder->entries = entries;
    }
    struct flyt_checkpoint_entry *entry = &folder->entries[folder->entry_count++];
    *entry = (struct flyt_checkpoint_entry){.bytes = 0};
    memcpy(entry->name, name, sizeof entry->name); /* is_image_name: it is that long */
    read_entry(folder_fd, entry);
    return 0;
}

int flyt_checkpoint_folder_read(const char *path, struct flyt_checkpoint_folder *ret_folder, struct flyt_error *err)
{
    struct flyt_checkpoint_folder folder = {.entry_count = 0};
    DIR *listing = opendir(path);
    struct dirent *found;
    uint32_t capacity = 0;
    int status = 0;

    if (!listing) {
        int code = errno;
        return flyt_error_set(err, -code, "folder %.200s: it cannot be read: %s", path, strerror(code));
    }
    while (!status && (errno = 0, found = readdir(listing))) {
        if (is_image_name(found->d_name))
            status = add_entry(&folder, &capacity, dirfd(listing), found->d_name);
    }
    if (!status && errno)
        status = -errno;
    closedir(listing);
    if (status) {
        flyt_checkpoint_folder_fini(&folder);
        return flyt_error_set(err, status, "folder %.200s: %s", path,
                              status == -EFBIG ? "it has too many images" : strerror(-status));
    }
    if (folder.entry_count)
        qsort(folder.entries, folder.entry_count, sizeof *folder.entries, compare_entries);
    link_entries(&folder);
    *ret_folder = folder;
    return 0;
}

void flyt_checkpoint_folder_fini(struct flyt_checkpoint_folder *folder)
{
    free(folder->entries);
    *folder = (struct flyt_checkpoint_folder){.entry_count = 0};
}

const struct flyt_checkpoint_entry *flyt_checkpoint_folder_newest(const struct flyt_checkpoint_folder *folder)
{
    for (uint32_t i = folder->entry_count; i-- > 0;)
        if (folder->entries[i].is_usable && !folder->entries[i].is_parent)
            return &folder->entries[i];
    return NULL;
}
