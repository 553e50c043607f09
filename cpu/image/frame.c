#include "cpu/image/frame.h"

#include <endian.h>
#include <stddef.h>
#include <string.h>

#include "cpu/image/checksum.h"

void flyt_frame_put(const struct flyt_frame *frame, unsigned char *ret_bytes)
{
    struct flyt_frame_layout layout = {.mark = htobe32(FLYT_FRAME_MARK),
                                       .encoding = htobe32((uint32_t)frame->encoding),
                                       .number = htobe64(frame->number),
                                       .first_page = htobe32(frame->first_page),
                                       .page_count = htobe32(frame->page_count),
                                       .payload_bytes = htobe32(frame->payload_bytes)};

    layout.checksum = htobe32(flyt_checkpoint_checksum(0, &layout, offsetof(struct flyt_frame_layout, checksum)));
    memcpy(ret_bytes, &layout, sizeof layout);
}

static bool is_sound(const struct flyt_frame *frame)
{
    uint32_t raw_bytes = frame->page_count * FLYT_CHECKPOINT_PAGE_BYTES;

    if (!frame->number || !frame->page_count || frame->page_count > FLYT_CHECKPOINT_DATA_PAGES_MAX ||
        frame->first_page > FLYT_CHECKPOINT_BATCH_PAGES_MAX - frame->page_count)
        return false;
    if (frame->encoding == FLYT_CHECKPOINT_RAW)
        return frame->payload_bytes == raw_bytes;
    return (frame->encoding == FLYT_CHECKPOINT_LZ4 || frame->encoding == FLYT_CHECKPOINT_ZSTD) &&
           frame->payload_bytes && frame->payload_bytes < raw_bytes;
}

bool flyt_frame_get(const unsigned char *bytes, struct flyt_frame *ret_frame)
{
    struct flyt_frame_layout layout;

    memcpy(&layout, bytes, sizeof layout);
    if (be32toh(layout.mark) != FLYT_FRAME_MARK ||
        be32toh(layout.checksum) != flyt_checkpoint_checksum(0, bytes, offsetof(struct flyt_frame_layout, checksum)))
        return false;
    *ret_frame = (struct flyt_frame){.number = be64toh(layout.number),
                                     .first_page = be32toh(layout.first_page),
                                     .page_count = be32toh(layout.page_count),
                                     .encoding = (flyt_checkpoint_encoding)be32toh(layout.encoding),
                                     .payload_bytes = be32toh(layout.payload_bytes)};
    return is_sound(ret_frame);
}
