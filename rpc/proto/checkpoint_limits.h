/*
 * Every bound of a checkpoint image in one place, for rpcgen's input and C alike: plain #defines only. Reader and
 * writer refuse what is larger.
 */
#ifndef FLYT_PROTO_CHECKPOINT_LIMITS_H
#define FLYT_PROTO_CHECKPOINT_LIMITS_H

#define FLYT_CHECKPOINT_FORMAT 1 /* a reader refuses a greater one */

/* A record: what XDR encodes of it, and the bytes that follow as they are. */
#define FLYT_CHECKPOINT_BODY_BYTES_MAX    (1048576 + 131072)
#define FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX 4194304

#define FLYT_CHECKPOINT_ID_BYTES         16
#define FLYT_CHECKPOINT_SHA256_BYTES     32
#define FLYT_CHECKPOINT_TEXT_BYTES_MAX   1024
#define FLYT_CHECKPOINT_SYMBOL_BYTES_MAX 65536
#define FLYT_CHECKPOINT_OBJECT_BYTES_MAX 1048576
#define FLYT_CHECKPOINT_TALLIES_MAX      32    /* kinds of objects */
#define FLYT_CHECKPOINT_RANGES_MAX       65536 /* of one record */
#define FLYT_CHECKPOINT_SLOTS_MAX        15
#define FLYT_CHECKPOINT_EXTENTS_MAX      61440 /* 4,096 of each slot */
#define FLYT_CHECKPOINT_ROUNDS_MAX       1000
#define FLYT_CHECKPOINT_MODULES_MAX      65536      /* module images */
#define FLYT_CHECKPOINT_MODULE_BYTES_MAX 2147483647 /* one of them */

#define FLYT_CHECKPOINT_PAGE_BYTES       65536
#define FLYT_CHECKPOINT_PAGE_HASH_BYTES  16
#define FLYT_CHECKPOINT_EXTENT_ALIGN     2097152
#define FLYT_CHECKPOINT_DATA_PAGES_MAX   64    /* of one record with contents: the payload's bound */
#define FLYT_CHECKPOINT_RUN_PAGES_MAX    32768 /* of one record without */
#define FLYT_CHECKPOINT_HASHES_BYTES_MAX 524288
#define FLYT_CHECKPOINT_HASHED_PAGES_MAX                                                                               \
    262144 /* of one record that has nothing but their hashes: the payload's bound */

/* From node to node. */
#define FLYT_CHECKPOINT_STREAMS_MAX            8
#define FLYT_CHECKPOINT_HASH_KEY_BYTES         16
#define FLYT_CHECKPOINT_BATCH_PAGES_MAX        256 /* of one record whose contents are elsewhere */
#define FLYT_CHECKPOINT_BATCH_HASHES_BYTES_MAX 4096

#define FLYT_CHECKPOINT_CHAIN_MAX 4096 /* images that build on each other; files in a folder */

#endif
