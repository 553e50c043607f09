/* Edits of documents that others write too: operators' tools, and people by hand. */
#ifndef FLYT_CLUSTER_IO_EDIT_H
#define FLYT_CLUSTER_IO_EDIT_H

#include "control/base/peer.h"
#include "control/cluster/io/store_writer.h"
#include "rpc/base/error.h"

/* One of a document. It is the store writer's from flyt_edit_begin until `done`. */
struct flyt_edit {
    const char *operation, *collection; /* borrowed; the first for metrics */
    char id[2 * FLYT_NAME_BYTES_MAX];
    /* As flyt_store_edit has it, on the store's thread; it runs again where somebody else wrote meanwhile. */
    int (*edit)(cJSON **document, void *user, struct flyt_error *err);
    void (*done)(void *user, int is_cancelled); /* as flyt_store_writer_do has it */
    void *user;
    enum flyt_store_result result; /* in `done`, where it was not cancelled */
    int status;                    /* what `edit` returned */
    struct flyt_error err;         /* why, of either */
};

/* 0 or a negative errno: then nothing is told. */
int flyt_edit_begin(struct flyt_store_writer *store_writer, struct flyt_edit *edit);
/* In `done`: the document is as `edit` has left it. */
bool flyt_edit_is_done(const struct flyt_edit *edit);
/* In `done`: what who asked is told; ret_text: why, "" with OK, borrowed from *edit. */
flyt_status flyt_edit_outcome(struct flyt_edit *edit, const char **ret_text);

#endif
