#include "rpc/base/fatbin.h"

#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { FATBIN_MAGIC = 0xBA55ED50, FATBIN_VERSION = 1, ENTRY_VERSION = 0x0101 };

/* A multiple of which every entry's size is, so that entries stay aligned. */
enum { ENTRY_ALIGN = 8 };

struct container_header {
    uint32_t magic;
    uint16_t version;
    uint16_t header_bytes;
    uint64_t body_bytes;
};
_Static_assert(sizeof(struct container_header) == 16, "layout of the container's header");

struct entry_header {
    uint16_t kind;
    uint16_t version;
    uint32_t header_bytes;
    uint64_t payload_bytes;
    uint32_t compressed_bytes;
    uint32_t options_offset;
    uint16_t code_minor;
    uint16_t code_major;
    uint32_t arch;
    uint32_t name_offset;
    uint32_t name_bytes;
    uint64_t flags;
    uint64_t hash;
    uint64_t image_bytes;
};
_Static_assert(sizeof(struct entry_header) == 64, "layout of an entry's header");
_Static_assert(offsetof(struct entry_header, flags) == 40, "layout of an entry's header");

_Static_assert(sizeof(struct flyt_fatbin_wrapper) == 24, "layout of the wrapper");

static uint32_t magic_of(const void *data)
{
    uint32_t magic;

    memcpy(&magic, data, sizeof(magic));
    return magic;
}

bool flyt_fatbin_is(const void *data)
{
    return magic_of(data) == FATBIN_MAGIC;
}

const void *flyt_fatbin_unwrap(const void *image)
{
    struct flyt_fatbin_wrapper wrapper;

    if (magic_of(image) != FLYT_FATBIN_WRAPPER_MAGIC)
        return image;
    memcpy(&wrapper, image, sizeof(wrapper));
    return wrapper.data;
}

const void *const *flyt_fatbin_units(const void *image)
{
    struct flyt_fatbin_wrapper wrapper;

    if (magic_of(image) != FLYT_FATBIN_WRAPPER_MAGIC)
        return NULL;
    memcpy(&wrapper, image, sizeof(wrapper));
    return wrapper.version == FLYT_FATBIN_WRAPPER_UNITS_VERSION ? wrapper.file_name_or_units : NULL;
}

int flyt_fatbin_init(const void *data, uint64_t data_bytes, struct flyt_fatbin *ret_fatbin)
{
    struct container_header header;

    if (data_bytes < sizeof(header.magic) || !flyt_fatbin_is(data))
        return -EINVAL;
    if (data_bytes < sizeof(header))
        return -EBADMSG;
    memcpy(&header, data, sizeof(header));
    if (header.version != FATBIN_VERSION || header.header_bytes < sizeof(header))
        return -EBADMSG;
    /* Written so that no sum of untrusted numbers can wrap. */
    if (header.header_bytes > data_bytes || header.body_bytes > data_bytes - header.header_bytes)
        return -EBADMSG;
    if (header.body_bytes > INT64_MAX)
        return -EBADMSG;
    *ret_fatbin = (struct flyt_fatbin){
        .data = data,
        .total_bytes = header.header_bytes + header.body_bytes,
        .next_offset = header.header_bytes,
    };
    return 0;
}

/* Whether the numbers of an entry's header agree with each other; `room_bytes` remain in the container. */
static bool entry_is_sound(const struct entry_header *header, uint64_t room_bytes)
{
    if (header->version != ENTRY_VERSION || header->header_bytes < sizeof(*header))
        return false;
    if (header->header_bytes > room_bytes || header->payload_bytes > room_bytes - header->header_bytes)
        return false;
    if (header->header_bytes % ENTRY_ALIGN || header->payload_bytes % ENTRY_ALIGN)
        return false;
    if (header->name_bytes && (header->name_offset < sizeof(*header) || header->name_offset > header->header_bytes ||
                               header->name_bytes > header->header_bytes - header->name_offset))
        return false;
    if (header->options_offset && header->options_offset > header->header_bytes - 2 * sizeof(uint32_t))
        return false;
    if (!header->compressed_bytes)
        return true;
    return header->compressed_bytes <= header->payload_bytes && header->image_bytes > 0 &&
           header->image_bytes <= FLYT_FATBIN_IMAGE_BYTES_MAX;
}

int flyt_fatbin_next(struct flyt_fatbin *fatbin, struct flyt_fatbin_entry *ret_entry)
{
    uint64_t room_bytes = fatbin->total_bytes - fatbin->next_offset;
    const uint8_t *at = fatbin->data + fatbin->next_offset;
    struct entry_header header;

    if (!room_bytes)
        return 0;
    if (room_bytes < sizeof(header))
        return -EBADMSG;
    memcpy(&header, at, sizeof(header));
    if (!entry_is_sound(&header, room_bytes))
        return -EBADMSG;
    *ret_entry = (struct flyt_fatbin_entry){
        .kind = header.kind,
        .is_compressed = header.compressed_bytes != 0,
        .arch = header.arch,
        .flags = header.flags,
        .payload = at + header.header_bytes,
        .payload_bytes = header.compressed_bytes ? header.compressed_bytes : header.payload_bytes,
        .image_bytes = header.compressed_bytes ? header.image_bytes : header.payload_bytes,
        .hash = header.hash,
    };
    fatbin->next_offset += header.header_bytes + header.payload_bytes;
    return 1;
}

/* Whether the device can run the image (machine code) or compile it (PTX). */
static bool entry_suits(const struct flyt_fatbin_entry *entry, const struct flyt_fatbin_device *device)
{
    uint32_t device_arch = (uint32_t)(10 * device->major + device->minor);
    bool is_same_major = entry->arch / 10 == (uint32_t)device->major;

    if (entry->kind != FLYT_FATBIN_PTX && !(entry->kind == FLYT_FATBIN_CUBIN && device->runs_cubin))
        return false;
    if (!(entry->flags & FLYT_FATBIN_FLAG_64BIT) || entry->arch > device_arch)
        return false;
    if (entry->flags & FLYT_FATBIN_FLAG_ARCH_SPECIFIC)
        return entry->arch == device_arch;
    if (entry->flags & FLYT_FATBIN_FLAG_FAMILY_SPECIFIC || entry->kind == FLYT_FATBIN_CUBIN)
        return is_same_major;
    return true;
}

/* Orders suitable images: the greater, the better. */
static uint64_t entry_rank(const struct flyt_fatbin_entry *entry, const struct flyt_fatbin_device *device)
{
    unsigned specific = entry->flags & FLYT_FATBIN_FLAG_ARCH_SPECIFIC     ? 2
                        : entry->flags & FLYT_FATBIN_FLAG_FAMILY_SPECIFIC ? 1
                                                                          : 0;

    if (device->prefers_portable)
        specific = 2 - specific;
    return ((uint64_t)(entry->kind == FLYT_FATBIN_CUBIN) << 40) + ((uint64_t)entry->arch << 2) + specific;
}

int flyt_fatbin_choose(const void *data, uint64_t data_bytes, const struct flyt_fatbin_device *device,
                       struct flyt_fatbin_entry *ret_entry)
{
    struct flyt_fatbin fatbin;
    struct flyt_fatbin_entry entry, best;
    bool has_best = false;
    int r = flyt_fatbin_init(data, data_bytes, &fatbin);

    if (r < 0)
        return r;
    while ((r = flyt_fatbin_next(&fatbin, &entry)) > 0) {
        if (!entry_suits(&entry, device))
            continue;
        if (has_best && entry_rank(&entry, device) <= entry_rank(&best, device))
            continue;
        best = entry;
        has_best = true;
    }
    if (r < 0)
        return r;
    if (!has_best)
        return -ENOENT;
    *ret_entry = best;
    return 0;
}

/* Fills `image` with exactly entry->image_bytes bytes. */
static int decompress_into(const struct flyt_fatbin_entry *entry, char *image)
{
    if (!entry->is_compressed) {
        memcpy(image, entry->payload, entry->image_bytes);
        return 0;
    }
    if (entry->flags & FLYT_FATBIN_FLAG_ZSTD) {
        size_t n = ZSTD_decompress(image, entry->image_bytes, entry->payload, entry->payload_bytes);

        return !ZSTD_isError(n) && n == entry->image_bytes ? 0 : -EBADMSG;
    }
    if (entry->flags & FLYT_FATBIN_FLAG_LZ4) {
        /* Both sizes fit an int: the image is bounded by FLYT_FATBIN_IMAGE_BYTES_MAX, the payload checked by the
         * caller. */
        int n = LZ4_decompress_safe(entry->payload, image, (int)entry->payload_bytes, (int)entry->image_bytes);

        return n >= 0 && (uint64_t)n == entry->image_bytes ? 0 : -EBADMSG;
    }
    return -ENOTSUP;
}

int flyt_fatbin_decompress(const struct flyt_fatbin_entry *entry, char **ret_image, size_t *ret_image_bytes)
{
    uint64_t image_bytes = entry->image_bytes;
    char *image;
    int r;

    if (image_bytes > FLYT_FATBIN_IMAGE_BYTES_MAX || entry->payload_bytes > FLYT_FATBIN_IMAGE_BYTES_MAX)
        return -EBADMSG;
    image = malloc(image_bytes + 1);
    if (!image)
        return -ENOMEM;
    r = decompress_into(entry, image);
    if (r < 0) {
        free(image);
        return r;
    }
    image[image_bytes] = 0;
    if (entry->kind == FLYT_FATBIN_PTX)
        while (image_bytes && !image[image_bytes - 1])
            image_bytes--;
    *ret_image = image;
    *ret_image_bytes = image_bytes;
    return 0;
}
