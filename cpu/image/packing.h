/*
 * Packs the contents of pages, up to FLYT_CHECKPOINT_DATA_PAGES_MAX together, and unpacks them again, believing
 * nothing: as one LZ4 block or one zstd frame. One thread at a time for each of the structures.
 */
#ifndef FLYT_IMAGE_PACKING_H
#define FLYT_IMAGE_PACKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint.h"

/* What is tried; what does not become smaller by a sixteenth stays raw. */
enum flyt_checkpoint_packing { FLYT_CHECKPOINT_PACK_NOT, FLYT_CHECKPOINT_PACK_LZ4, FLYT_CHECKPOINT_PACK_ZSTD };

struct flyt_packer {
    enum flyt_checkpoint_packing packing;
    struct ZSTD_CCtx_s *zstd;
    unsigned char *packed; /* FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX where there is a packing */
};

/* 0 or -ENOMEM; it can be finished then, too. */
int flyt_packer_init(struct flyt_packer *packer, enum flyt_checkpoint_packing packing);
/* A zeroed one may be given. */
void flyt_packer_fini(struct flyt_packer *packer);
/* bytes: 1 to FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX. The payload's length; *ret_payload is the contents themselves (raw),
 * or the packer's until the next call. */
uint32_t flyt_packer_pack(struct flyt_packer *packer, const void *contents, uint32_t bytes,
                          flyt_checkpoint_encoding *ret_encoding, const void **ret_payload);

/* All zero to begin with. */
struct flyt_unpacker {
    struct ZSTD_DCtx_s *zstd; /* made when it is needed */
};

void flyt_unpacker_fini(struct flyt_unpacker *unpacker);
/* Unpacks a payload of encoding FLYT_CHECKPOINT_LZ4 or _ZSTD into exactly raw_bytes at `place`. 0; -EBADMSG: it does
 * not become that; -ENOMEM. On failure anything may be there. */
int flyt_unpacker_unpack(struct flyt_unpacker *unpacker, flyt_checkpoint_encoding encoding, const void *payload,
                         uint32_t payload_bytes, void *place, size_t raw_bytes);

#endif
