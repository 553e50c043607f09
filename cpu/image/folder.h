/*
 * A folder of images: which there are, which builds on which, and which one is the newest. A session's checkpoints go
 * into one folder; an incremental image and its parents must be in the same one. Reads heads and last records only:
 * whether what is between is sound, flyt_checkpoint_verify says (verify.h).
 */
#ifndef FLYT_IMAGE_FOLDER_H
#define FLYT_IMAGE_FOLDER_H

#include <sys/types.h>

#include "cpu/image/file.h"

struct flyt_checkpoint_entry {
    char name[FLYT_CHECKPOINT_NAME_BYTES];
    uint64_t bytes;
    unsigned char id[FLYT_CHECKPOINT_ID_BYTES], parent_id[FLYT_CHECKPOINT_ID_BYTES]; /* of its head */
    uint64_t created_ms;
    uint64_t session_id;
    char program[128];                          /* as much as fits */
    bool has_parent, is_parent;                 /* of another one here */
    const struct flyt_checkpoint_entry *parent; /* NULL: none, or it is not here */
    bool is_sound;                              /* head and last record are as they should be */
    bool is_usable;                             /* and so are those of all that it builds on */
    struct flyt_error err;                      /* why not; code 0: is usable */
};

struct flyt_checkpoint_folder {
    struct flyt_checkpoint_entry *entries; /* oldest first; those without a readable head before all */
    uint32_t entry_count;
};

/* Every file ID.flyt is an entry, damaged ones too. 0; -EFBIG: more than FLYT_CHECKPOINT_CHAIN_MAX; -ENOMEM; what
 * opendir(3) says. On success end it with fini. */
int flyt_checkpoint_folder_read(const char *path, struct flyt_checkpoint_folder *ret_folder, struct flyt_error *err);
void flyt_checkpoint_folder_fini(struct flyt_checkpoint_folder *folder);

/* The usable image that is nobody's parent; of several (another session's, or one restored from an older image) that
 * which was made last. NULL: there is none. Lives as long as the folder. */
const struct flyt_checkpoint_entry *flyt_checkpoint_folder_newest(const struct flyt_checkpoint_folder *folder);
/* NULL: it is not here. */
const struct flyt_checkpoint_entry *flyt_checkpoint_folder_find(const struct flyt_checkpoint_folder *folder,
                                                                const void *id);

#endif
