/*
 * What makes a sequence of records an image: order, numbers, bounds, which pages there must be. Reader and writer ask
 * the same rules of each record, so that nothing is written that would not be read. One thread at a time.
 *
 * Memory is bounded whatever the image says: a page map (page_map.h), and the hashes of FLYT_CHECKPOINT_MODULES_MAX
 * module images.
 */
#ifndef FLYT_IMAGE_RULES_H
#define FLYT_IMAGE_RULES_H

#include "cpu/image/layout.h"
#include "cpu/image/page_map.h"
#include "rpc/base/error.h"
#include "rpc/base/sha256.h"

/* What was seen so far. Bytes are without heads and bodies. */
struct flyt_checkpoint_totals {
    uint64_t record_count;  /* all, unknown optional ones included */
    uint64_t skipped_count; /* those */
    uint32_t round_count;
    uint32_t slot_count;
    flyt_checkpoint_slot slots[FLYT_CHECKPOINT_SLOTS_MAX];
    uint64_t extent_count, extent_bytes;         /* that are there now */
    uint64_t allocation_count, allocation_bytes; /* likewise */
    uint64_t module_image_count, module_image_bytes;
    uint64_t object_counts[FLYT_CHECKPOINT_KINDS]; /* by kind; [0]: of kinds without a name */
    uint64_t object_gone_count;
    uint64_t global_count, global_bytes, constant_count, constant_bytes;
    uint64_t page_counts[FLYT_CHECKPOINT_ENCODINGS]; /* in records of that encoding, of all rounds */
    uint64_t page_payload_bytes;
    uint64_t elsewhere_page_count; /* whose contents came over other connections */
    bool has_hash_key;
    uint64_t hashed_page_count; /* of which there are hashes alone */
    bool has_streams;           /* it was written for one reader, who answers */
    uint32_t stream_count;
    flyt_checkpoint_sequence sequence;
    bool has_stopped; /* and errors until then: */
    uint64_t error_count;
    bool has_counts;   /* of what the program had */
    bool has_settings; /* what it had set */
    bool has_tallies;  /* how many objects of each kind it had */
};

/* A module image or a global that comes in parts. */
struct flyt_checkpoint_part {
    uint32_t type; /* 0: none is open */
    uint64_t total_bytes, next_bytes;
    uint64_t module_id;
    uint64_t address;
    unsigned char symbol[FLYT_SHA256_BYTES]; /* its hash */
    unsigned char sha256[FLYT_SHA256_BYTES];
    struct flyt_sha256 hash;
};

/* All zero but what init sets. */
struct flyt_checkpoint_rules {
    unsigned rank; /* of the record before; 0: none */
    bool has_parent, has_hashes;
    bool are_allocations_old; /* an extent went away since they were told */
    uint64_t allocation_end;
    uint64_t object_next;  /* the least number that a new object may have */
    uint64_t batch_number; /* of the last pages that are elsewhere */
    uint64_t hashed_end;   /* where the last pages end of which there are hashes alone */
    struct flyt_checkpoint_part part;
    void *module_images; /* their hashes (tsearch(3)) */
    struct flyt_page_map map;
    struct flyt_checkpoint_totals totals;
};

void flyt_checkpoint_rules_init(struct flyt_checkpoint_rules *rules);
void flyt_checkpoint_rules_fini(struct flyt_checkpoint_rules *rules);

/*
 * Whether the record may come now. 0; -EBADMSG: it may not; -ENOTSUP: this build cannot use such an image; -ENOMEM;
 * err says why in a clause ("its pages overlap …"). After a failure the rules are good for nothing but fini.
 */
int flyt_checkpoint_rules_take(struct flyt_checkpoint_rules *rules, uint32_t type,
                               const union flyt_checkpoint_body *body, uint64_t payload_bytes, struct flyt_error *err);
/* The payload of the record that was taken last, whole. Same results. */
int flyt_checkpoint_rules_payload(struct flyt_checkpoint_rules *rules, const void *payload, uint64_t payload_bytes,
                                  struct flyt_error *err);
/* How many pages came so far, of all rounds. */
uint64_t flyt_checkpoint_rules_pages(const struct flyt_checkpoint_rules *rules);
/* Whether this module image (FLYT_SHA256_BYTES) came already. */
bool flyt_checkpoint_rules_has_module_image(const struct flyt_checkpoint_rules *rules, const void *sha256);

#endif
