/*
 * The memory that an image has (load.h): what is made for its extents, told to the node manager, and kept as memory
 * that was made by order (given.h); mapped where the session will have it only as long as pages are written.
 *
 * Before there is a session.
 */
#ifndef FLYT_SERVER_LOAD_MEMORY_H
#define FLYT_SERVER_LOAD_MEMORY_H

#include <stdint.h>

#include "cpu/image/reader.h"
#include "cpu/server/given.h"
#include "rpc/transport/server_link.h"

struct flyt_session;

/* Where what is made goes. */
struct flyt_load_memory {
    struct flyt_session *session;
    struct flyt_given *given;
    struct flyt_server_link_message *message; /* that may be written to */
    int link_fd;
    struct flyt_server_link_extent *extents; /* that are mapped */
    size_t count, room;
};

/* An extent came: its memory is made, mapped and told (MADE). 0, or a negative errno with a sentence: -ENOMEM: the GPU
 * has no more; -EBADMSG: it is in no device's window; -EEXIST, -EPROTO: memory was made by order, too; -EIO. */
int flyt_load_memory_make(struct flyt_load_memory *memory, const flyt_checkpoint_extent *extent,
                          struct flyt_error *err);
/* Pages came, of extents that were made. piece: FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX. 0, or a negative errno with a
 * sentence: -ENOTSUP: they are those of a parent; what the reader says; -EIO. */
int flyt_load_memory_write(struct flyt_load_memory *memory, struct flyt_checkpoint_reader *reader,
                           const struct flyt_checkpoint_record *record, void *piece, struct flyt_error *err);
/* All has come, or nothing more does: unmaps everything. 0, or -EIO with a sentence. */
int flyt_load_memory_end(struct flyt_load_memory *memory, struct flyt_error *err);

#endif
