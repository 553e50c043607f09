#include "cpu/image/packing.h"

#include <errno.h>
#include <lz4.h>
#include <stdlib.h>
#include <zstd.h>

/* Packed contents must be smaller by this part of them, or reading them again would cost more than it saves. */
enum { ZSTD_LEVEL = 1, GAIN_PART = 16 };

int flyt_packer_init(struct flyt_packer *packer, enum flyt_checkpoint_packing packing)
{
    *packer = (struct flyt_packer){.packing = packing};
    if (packing != FLYT_CHECKPOINT_PACK_NOT)
        packer->packed = malloc(FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX);
    if (packing == FLYT_CHECKPOINT_PACK_ZSTD)
        packer->zstd = ZSTD_createCCtx();
    bool is_whole = (packing == FLYT_CHECKPOINT_PACK_NOT || packer->packed) &&
                    (packing != FLYT_CHECKPOINT_PACK_ZSTD || packer->zstd);
    return is_whole ? 0 : -ENOMEM;
}

void flyt_packer_fini(struct flyt_packer *packer)
{
    ZSTD_freeCCtx(packer->zstd);
    free(packer->packed);
    *packer = (struct flyt_packer){.packed = NULL};
}

/* 0: it does not become smaller, or not by much. */
static uint32_t pack(struct flyt_packer *packer, const void *contents, uint32_t bytes)
{
    uint32_t most_bytes = bytes - bytes / GAIN_PART;

    if (packer->packing == FLYT_CHECKPOINT_PACK_NOT)
        return 0;
    if (packer->packing == FLYT_CHECKPOINT_PACK_LZ4) {
        int count = LZ4_compress_default(contents, (char *)packer->packed, (int)bytes, (int)most_bytes);
        return count > 0 ? (uint32_t)count : 0;
    }
    size_t count = ZSTD_compressCCtx(packer->zstd, packer->packed, most_bytes, contents, bytes, ZSTD_LEVEL);
    return ZSTD_isError(count) ? 0 : (uint32_t)count;
}

uint32_t flyt_packer_pack(struct flyt_packer *packer, const void *contents, uint32_t bytes,
                          flyt_checkpoint_encoding *ret_encoding, const void **ret_payload)
{
    uint32_t packed_bytes = pack(packer, contents, bytes);

    if (!packed_bytes) {
        *ret_encoding = FLYT_CHECKPOINT_RAW;
        *ret_payload = contents;
        return bytes;
    }
    *ret_encoding = packer->packing == FLYT_CHECKPOINT_PACK_LZ4 ? FLYT_CHECKPOINT_LZ4 : FLYT_CHECKPOINT_ZSTD;
    *ret_payload = packer->packed;
    return packed_bytes;
}

void flyt_unpacker_fini(struct flyt_unpacker *unpacker)
{
    ZSTD_freeDCtx(unpacker->zstd);
    unpacker->zstd = NULL;
}

int flyt_unpacker_unpack(struct flyt_unpacker *unpacker, flyt_checkpoint_encoding encoding, const void *payload,
                         uint32_t payload_bytes, void *place, size_t raw_bytes)
{
    if (encoding == FLYT_CHECKPOINT_LZ4)
        return LZ4_decompress_safe(payload, place, (int)payload_bytes, (int)raw_bytes) == (int)raw_bytes ? 0 : -EBADMSG;
    if (!unpacker->zstd && !(unpacker->zstd = ZSTD_createDCtx()))
        return -ENOMEM;
    return ZSTD_decompressDCtx(unpacker->zstd, place, raw_bytes, payload, payload_bytes) == raw_bytes ? 0 : -EBADMSG;
}
