/*
 * How a checkpoint image lies in a file or on a socket: 16 bytes that name it, then records. A record is a head of 40
 * bytes, a body (XDR, rpc/proto/checkpoint.x) and a payload (bytes as they are). Numbers are big-endian, as in XDR.
 * Pure functions, any thread.
 */
#ifndef FLYT_IMAGE_LAYOUT_H
#define FLYT_IMAGE_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint.h"

/* The first bytes of every image, of every format. */
struct flyt_preamble {
    unsigned char magic[8];
    uint32_t format;
    uint32_t checksum; /* of the bytes before */
};
_Static_assert(sizeof(struct flyt_preamble) == 16, "layout of the preamble");
_Static_assert(offsetof(struct flyt_preamble, checksum) == 12, "layout of the preamble");

struct flyt_record_layout {
    uint32_t mark;   /* FLYT_RECORD_MARK */
    uint32_t type;   /* enum flyt_checkpoint_type */
    uint64_t number; /* 0, 1, … */
    uint32_t flags;  /* FLYT_RECORD_OPTIONAL or 0 */
    uint32_t body_bytes;
    uint32_t payload_bytes;
    uint32_t body_checksum;
    uint32_t payload_checksum;
    uint32_t checksum; /* of the bytes before */
};
_Static_assert(sizeof(struct flyt_record_layout) == 40, "layout of a record's head");
_Static_assert(offsetof(struct flyt_record_layout, number) == 8, "layout of a record's head");
_Static_assert(offsetof(struct flyt_record_layout, checksum) == 36, "layout of a record's head");

enum {
    FLYT_PREAMBLE_BYTES = sizeof(struct flyt_preamble),
    FLYT_RECORD_HEAD_BYTES = sizeof(struct flyt_record_layout),
    FLYT_RECORD_MARK = 0x466c7952, /* "FlyR" */
    FLYT_RECORD_OPTIONAL = 1       /* who does not know the type passes over the record */
};

/* A record's head as numbers. */
struct flyt_record_head {
    uint32_t type, flags, body_bytes, payload_bytes, body_checksum, payload_checksum;
    uint64_t number;
};

/* Both write as many bytes as their names say. */
void flyt_preamble_put(uint32_t format, unsigned char *ret_bytes);
void flyt_record_head_put(const struct flyt_record_head *head, unsigned char *ret_bytes);
/* False: this is none, or a damaged one. */
bool flyt_preamble_get(const unsigned char *bytes, uint32_t *ret_format);
bool flyt_record_head_get(const unsigned char *bytes, struct flyt_record_head *ret_head);

/* What can stand in a record. */
union flyt_checkpoint_body {
    flyt_checkpoint_head head;
    flyt_checkpoint_slot slot;
    flyt_checkpoint_round round;
    flyt_checkpoint_extent_gone extent_gone;
    flyt_checkpoint_extent extent;
    flyt_checkpoint_allocations allocations;
    flyt_checkpoint_module_image module_image;
    flyt_checkpoint_object object;
    flyt_checkpoint_object_gone object_gone;
    flyt_checkpoint_global global;
    flyt_checkpoint_pages pages;
    flyt_checkpoint_sequence sequence;
    flyt_checkpoint_end end;
    flyt_checkpoint_hash_key hash_key;
    flyt_checkpoint_streams streams;
    flyt_checkpoint_elsewhere elsewhere;
    flyt_checkpoint_alive alive;
    flyt_checkpoint_stopped stopped;
    flyt_checkpoint_hashes hashes;
    flyt_checkpoint_counts counts;
    flyt_checkpoint_settings settings;
    flyt_checkpoint_tallies tallies;
};

/* One row for each type. */
struct flyt_record_type {
    const char *name;              /* "pages": what errors call it */
    xdrproc_t xdr;                 /* of its body */
    unsigned after_min, after_max; /* what may stand before it, by their ranks */
    unsigned rank;
};
/* NULL: no such type. */
const struct flyt_record_type *flyt_record_type_find(uint32_t type);

/* "raw", "zstd", …; NULL: none of that number. */
const char *flyt_checkpoint_encoding_name(uint32_t encoding);
/* "module", "stream", …; NULL likewise. */
const char *flyt_checkpoint_kind_name(uint32_t kind);
enum {
    FLYT_CHECKPOINT_ENCODINGS = FLYT_CHECKPOINT_PARENT + 1,
    FLYT_CHECKPOINT_KINDS = FLYT_CHECKPOINT_RESERVATION + 1
};

/* An id as 32 hexadecimal digits and a NUL. */
enum { FLYT_CHECKPOINT_ID_TEXT_BYTES = 2 * FLYT_CHECKPOINT_ID_BYTES + 1 };
void flyt_checkpoint_id_text(const void *id, char *ret_text);
bool flyt_checkpoint_id_is_none(const void *id);

#endif
