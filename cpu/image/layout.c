#include "cpu/image/layout.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "cpu/image/checksum.h"

/* As PNG's: a byte that is no ASCII, and line ends that a transfer as text would change. */
static const unsigned char magic[8] = {0x89, 'F', 'l', 'y', 't', '\r', '\n', 0x1a};

void flyt_preamble_put(uint32_t format, unsigned char *ret_bytes)
{
    struct flyt_preamble preamble = {.format = htobe32(format)};

    memcpy(preamble.magic, magic, sizeof magic);
    preamble.checksum = htobe32(flyt_checkpoint_checksum(0, &preamble, offsetof(struct flyt_preamble, checksum)));
    memcpy(ret_bytes, &preamble, sizeof preamble);
}

bool flyt_preamble_get(const unsigned char *bytes, uint32_t *ret_format)
{
    struct flyt_preamble preamble;

    memcpy(&preamble, bytes, sizeof preamble);
    if (memcmp(preamble.magic, magic, sizeof magic) ||
        be32toh(preamble.checksum) != flyt_checkpoint_checksum(0, bytes, offsetof(struct flyt_preamble, checksum)))
        return false;
    *ret_format = be32toh(preamble.format);
    return true;
}

void flyt_record_head_put(const struct flyt_record_head *head, unsigned char *ret_bytes)
{
    struct flyt_record_layout layout = {.mark = htobe32(FLYT_RECORD_MARK),
                                        .type = htobe32(head->type),
                                        .number = htobe64(head->number),
                                        .flags = htobe32(head->flags),
                                        .body_bytes = htobe32(head->body_bytes),
                                        .payload_bytes = htobe32(head->payload_bytes),
                                        .body_checksum = htobe32(head->body_checksum),
                                        .payload_checksum = htobe32(head->payload_checksum)};

    layout.checksum = htobe32(flyt_checkpoint_checksum(0, &layout, offsetof(struct flyt_record_layout, checksum)));
    memcpy(ret_bytes, &layout, sizeof layout);
}

bool flyt_record_head_get(const unsigned char *bytes, struct flyt_record_head *ret_head)
{
    struct flyt_record_layout layout;

    memcpy(&layout, bytes, sizeof layout);
    if (be32toh(layout.mark) != FLYT_RECORD_MARK ||
        be32toh(layout.checksum) != flyt_checkpoint_checksum(0, bytes, offsetof(struct flyt_record_layout, checksum)))
        return false;
    *ret_head = (struct flyt_record_head){.type = be32toh(layout.type),
                                          .number = be64toh(layout.number),
                                          .flags = be32toh(layout.flags),
                                          .body_bytes = be32toh(layout.body_bytes),
                                          .payload_bytes = be32toh(layout.payload_bytes),
                                          .body_checksum = be32toh(layout.body_checksum),
                                          .payload_checksum = be32toh(layout.payload_checksum)};
    return true;
}

/* Ranks: 1 head, 2 slots, 3 to 8 a round and what is in it, 9 sequence, 10 end. */
static const struct flyt_record_type types[] = {
    [FLYT_CHECKPOINT_HEAD] = {"head", (xdrproc_t)xdr_flyt_checkpoint_head, 0, 0, 1},
    [FLYT_CHECKPOINT_SLOT] = {"slot", (xdrproc_t)xdr_flyt_checkpoint_slot, 1, 2, 2},
    [FLYT_CHECKPOINT_ROUND] = {"round", (xdrproc_t)xdr_flyt_checkpoint_round, 1, 8, 3},
    [FLYT_CHECKPOINT_EXTENT_GONE] = {"extent gone", (xdrproc_t)xdr_flyt_checkpoint_extent_gone, 3, 4, 4},
    [FLYT_CHECKPOINT_EXTENT] = {"extent", (xdrproc_t)xdr_flyt_checkpoint_extent, 3, 4, 4},
    [FLYT_CHECKPOINT_ALLOCATIONS] = {"allocations", (xdrproc_t)xdr_flyt_checkpoint_allocations, 3, 5, 5},
    [FLYT_CHECKPOINT_MODULE_IMAGE] = {"module image", (xdrproc_t)xdr_flyt_checkpoint_module_image, 3, 6, 6},
    [FLYT_CHECKPOINT_OBJECT] = {"object", (xdrproc_t)xdr_flyt_checkpoint_object, 3, 6, 6},
    [FLYT_CHECKPOINT_OBJECT_GONE] = {"object gone", (xdrproc_t)xdr_flyt_checkpoint_object_gone, 3, 6, 6},
    [FLYT_CHECKPOINT_GLOBAL] = {"global", (xdrproc_t)xdr_flyt_checkpoint_global, 3, 7, 7},
    [FLYT_CHECKPOINT_PAGES] = {"pages", (xdrproc_t)xdr_flyt_checkpoint_pages, 3, 8, 8},
    [FLYT_CHECKPOINT_SEQUENCE] = {"sequence", (xdrproc_t)xdr_flyt_checkpoint_sequence, 3, 8, 9},
    [FLYT_CHECKPOINT_END] = {"end", (xdrproc_t)xdr_flyt_checkpoint_end, 9, 9, 10},
    [FLYT_CHECKPOINT_STOPPED] = {"stopped", (xdrproc_t)xdr_flyt_checkpoint_stopped, 9, 9, 9},
    [FLYT_CHECKPOINT_HASH_KEY] = {"hash key", (xdrproc_t)xdr_flyt_checkpoint_hash_key, 1, 2, 2},
    [FLYT_CHECKPOINT_HASHES] = {"hashes", (xdrproc_t)xdr_flyt_checkpoint_hashes, 3, 8, 8},
    [FLYT_CHECKPOINT_COUNTS] = {"counts", (xdrproc_t)xdr_flyt_checkpoint_counts, 9, 9, 9},
    [FLYT_CHECKPOINT_SETTINGS] = {"settings", (xdrproc_t)xdr_flyt_checkpoint_settings, 9, 9, 9},
    [FLYT_CHECKPOINT_TALLIES] = {"tallies", (xdrproc_t)xdr_flyt_checkpoint_tallies, 9, 9, 9},
    [FLYT_CHECKPOINT_STREAMS] = {"streams", (xdrproc_t)xdr_flyt_checkpoint_streams, 1, 2, 2},
    [FLYT_CHECKPOINT_ELSEWHERE] = {"pages elsewhere", (xdrproc_t)xdr_flyt_checkpoint_elsewhere, 3, 8, 8},
    [FLYT_CHECKPOINT_ALIVE] = {"alive", (xdrproc_t)xdr_flyt_checkpoint_alive, 1, 9, 0}, /* leaves the rank as it is */
};

const struct flyt_record_type *flyt_record_type_find(uint32_t type)
{
    return type < sizeof types / sizeof types[0] && types[type].name ? &types[type] : NULL;
}

const char *flyt_checkpoint_encoding_name(uint32_t encoding)
{
    static const char *const names[FLYT_CHECKPOINT_ENCODINGS] = {"raw", "zero", "lz4", "zstd", "parent"};

    return encoding < FLYT_CHECKPOINT_ENCODINGS ? names[encoding] : NULL;
}

const char *flyt_checkpoint_kind_name(uint32_t kind)
{
    static const char *const names[FLYT_CHECKPOINT_KINDS] = {
        [FLYT_CHECKPOINT_MODULE] = "module",
        [FLYT_CHECKPOINT_STREAM] = "stream",
        [FLYT_CHECKPOINT_EVENT] = "event",
        [FLYT_CHECKPOINT_HOST_MEMORY] = "host_memory",
        [FLYT_CHECKPOINT_DEVICE_LIMIT] = "device_limit",
        [FLYT_CHECKPOINT_KERNEL_ATTRIBUTE] = "kernel_attribute",
        [FLYT_CHECKPOINT_POOL] = "pool",
        [FLYT_CHECKPOINT_GRAPH] = "graph",
        [FLYT_CHECKPOINT_GRAPH_EXEC] = "graph_exec",
        [FLYT_CHECKPOINT_ARRAY] = "array",
        [FLYT_CHECKPOINT_TEXTURE] = "texture",
        [FLYT_CHECKPOINT_LIBRARY_HANDLE] = "library_handle",
        [FLYT_CHECKPOINT_CONTEXT] = "context",
        [FLYT_CHECKPOINT_RESERVATION] = "reservation",
    };

    return kind < FLYT_CHECKPOINT_KINDS ? names[kind] : NULL;
}

void flyt_checkpoint_id_text(const void *id, char *ret_text)
{
    const unsigned char *bytes = id;

    for (unsigned i = 0; i < FLYT_CHECKPOINT_ID_BYTES; i++)
        snprintf(ret_text + 2 * i, 3, "%02x", bytes[i]);
}

bool flyt_checkpoint_id_is_none(const void *id)
{
    static const unsigned char none[FLYT_CHECKPOINT_ID_BYTES];

    return !memcmp(id, none, sizeof none);
}
