/*
 * What a node manager keeps over restarts, in STATE_DIR/state.json: the node's key and its number, the highest epoch,
 * the boot in which this was written, group sizes, all allocations, sessions that are in images (checkpointed.h),
 * images that are not to stay (image_uncommitted.h), sessions that an operator has ended (killed.h),
 * allocations whose programs have left for another node (departed.h), and those that are here for programs that arrive
 * (receive_record.h). Written whole, atomically (write, fsync, rename, fsync of the folder) before anybody is told of a
 * change.
 */
#ifndef FLYT_NODE_STATE_H
#define FLYT_NODE_STATE_H

/* What no leader can have given: the cluster's store holds numbers exactly up to there. */
#define FLYT_NODE_EPOCH_MAX    (1ull << 53)
#define FLYT_NODE_REVISION_MAX (1ull << 53)

#include <stdbool.h>
#include <stdint.h>

#include "control.h"
#include "rpc/base/error.h"
#include "rpc/base/ticket.h"

enum { FLYT_NODE_SERVERS_MAX = 4096 }; /* of one node */

struct flyt_node_receive_record;
struct flyt_node_checkpointed;
struct flyt_node_departed;
struct flyt_node_image_uncommitted;
struct flyt_node_killed;

struct flyt_node_group_size {
    char uuid[48];
    unsigned group_size;
};

struct flyt_node_state {
    unsigned char node_key[FLYT_TICKET_KEY_BYTES];
    uint32_t key_number;
    uint64_t epoch;
    char boot_id[64];
    struct flyt_node_group_size group_sizes[FLYT_GPUS_MAX];
    unsigned group_size_count;
    flyt_allocation *allocations; /* of flyt_node_state_read; the caller's */
    unsigned allocation_count;
    struct flyt_node_checkpointed *checkpointed;     /* the last one first */
    struct flyt_node_departed *left;                 /* likewise (departed.h) */
    struct flyt_node_image_uncommitted *uncommitted; /* likewise (image_uncommitted.h) */
    struct flyt_node_receive_record *receiving;      /* likewise (receive_record.h) */
    struct flyt_node_killed *killed;                 /* likewise (killed.h) */
    /* The writer's (writer.h). */
    char *ahead;      /* what was written ahead; NULL: nothing */
    bool is_sync_due; /* of a file that was put in its place the bytes are on the disk, and its name may not be */
};

/* Reads the file; where there is none, makes a key. ret_is_new tells which. boot_id is that of the file (empty: new).
 * 0, or a negative errno and *err: it is damaged, or cannot be read. */
int flyt_node_state_read(const char *folder, struct flyt_error *err, struct flyt_node_state *ret_state,
                         bool *ret_is_new);
/* The file's text; owned by the caller. `allocations`: pointers, so that their owner keeps them as he likes. NULL: no
 * memory. */
char *flyt_node_state_print(const struct flyt_node_state *state, const flyt_allocation *const *allocations,
                            unsigned count);
/* Any thread, one at a time. 0 or a negative errno and *err: the file is what it was. */
int flyt_node_state_write_text(const char *folder, const char *text, struct flyt_error *err);
int flyt_node_state_write(const char *folder, const struct flyt_node_state *state,
                          const flyt_allocation *const *allocations, unsigned count, struct flyt_error *err);
/*
 * For a moment that leaves no time to wait for a disk. _write_ahead writes a state that is about to be beside the file
 * (state.json.next), and waits; the last one that was written counts. Where the state is that one by then, _become puts
 * it in the file's place without waiting: after a sudden end of the machine the file is that, or what it was before.
 * Else it is flyt_node_state_write_text. _settle waits for the disk then, and drops what was written in vain. 0 or a
 * negative errno and *err: the file is what it was.
 */
int flyt_node_state_write_ahead(const char *folder, struct flyt_node_state *state, char *text /* is taken over */,
                                struct flyt_error *err);
int flyt_node_state_become(const char *folder, struct flyt_node_state *state, const char *text, struct flyt_error *err);
int flyt_node_state_settle(const char *folder, struct flyt_node_state *state, struct flyt_error *err);
void flyt_node_state_fini(struct flyt_node_state *state);
/* Its allocations only: they are somewhere else by now, or nobody's. */
void flyt_node_state_free_allocations(struct flyt_node_state *state);

/* A copy that owns all its parts, to be freed with xdr_free(xdr_flyt_allocation). 0 or -ENOMEM. */
int flyt_node_allocation_copy(const flyt_allocation *from, flyt_allocation *ret_copy);

#endif
