#include "cpu/image/parts.h"

#include <errno.h>
#include <stdlib.h>

/* Room grows with what has come, not with what is said to come. */
static int make_room(struct flyt_checkpoint_parts *parts, uint64_t bytes, uint64_t total_bytes, struct flyt_error *err)
{
    if (bytes <= parts->room_bytes)
        return 0;
    uint64_t room_bytes = 2 * bytes < total_bytes ? 2 * bytes : total_bytes;
    unsigned char *image = realloc(parts->image, room_bytes);
    if (!image)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    parts->image = image;
    parts->room_bytes = room_bytes;
    return 0;
}

int flyt_checkpoint_parts_take(struct flyt_checkpoint_parts *parts, struct flyt_checkpoint_reader *reader,
                               const struct flyt_checkpoint_record *record, struct flyt_error *err)
{
    const flyt_checkpoint_module_image *part = &record->body->module_image;
    if (!part->offset_bytes)
        parts->image_bytes = 0;
    int status = make_room(parts, parts->image_bytes + record->place_bytes, part->total_bytes, err);
    if (!status)
        status = flyt_checkpoint_place(reader, parts->image + parts->image_bytes, err);
    if (status)
        return status;
    parts->image_bytes += record->place_bytes;
    return parts->image_bytes >= part->total_bytes;
}

void flyt_checkpoint_parts_fini(struct flyt_checkpoint_parts *parts)
{
    free(parts->image);
    *parts = (struct flyt_checkpoint_parts){0};
}
