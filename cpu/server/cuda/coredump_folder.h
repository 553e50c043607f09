/*
 * Where a session's core dumps go: a folder that all sessions of its VM have, in which all files together may have so
 * many bytes. The driver opens a dump by the path that it is told, which leads through the folder's descriptor, and
 * writes it when a kernel faults, before it tells of the fault. A thread looks on (inotify): a dump that would go
 * beyond the bound is cut: its file is removed, and emptied as often as the driver still writes to it. A file counts as
 * what it takes of the disk, one without content, too.
 *
 * Nothing here knows CUDA, but that a dump has a file.
 */
#ifndef FLYT_SERVER_COREDUMP_FOLDER_H
#define FLYT_SERVER_COREDUMP_FOLDER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    FLYT_COREDUMPS_MAX = 17,
    FLYT_COREDUMP_UNWANTED = FLYT_COREDUMPS_MAX - 1, /* the number of what is removed as it comes */
    FLYT_COREDUMP_NAME_BYTES = 96,
    FLYT_COREDUMP_PATH_BYTES = FLYT_COREDUMP_NAME_BYTES + 32,
};

/* What has become of a dump: the thread tells, without a lock of its own. Of one that is not wanted only that it was
 * removed, without a name. */
enum flyt_coredump_state {
    FLYT_COREDUMP_NONE,
    FLYT_COREDUMP_BEGUN, /* it is being written */
    FLYT_COREDUMP_DONE,
    FLYT_COREDUMP_CUT, /* it was removed; `bytes` is how large it had become */
};
typedef void (*flyt_coredump_tell_fn)(void *user, const char *name, enum flyt_coredump_state state, uint64_t bytes);

struct flyt_coredump_folder;

/*
 * folder_fd, a folder that the process may write, is taken over where it succeeds. Files of the session are PREFIX.…,
 * which no other session's are. 0 or a negative errno.
 */
int flyt_coredump_folder_new(int folder_fd, uint64_t bytes_max, const char *prefix, flyt_coredump_tell_fn tell,
                             void *user, struct flyt_coredump_folder **ret_folder);
/* Ends the thread. NULL is allowed; returns it. */
struct flyt_coredump_folder *flyt_coredump_folder_free(struct flyt_coredump_folder *folder);

/* The path of dump `number` (below FLYT_COREDUMPS_MAX), of at most FLYT_COREDUMP_PATH_BYTES with its 0, for this
 * process alone. */
void flyt_coredump_folder_path(const struct flyt_coredump_folder *folder, unsigned number, char *ret_path);

/*
 * Waits until what has happened in the folder until now was told, and no dump is being written any more; at most so
 * long. True: so it is. Any thread but that one.
 */
bool flyt_coredump_folder_settle(struct flyt_coredump_folder *folder, unsigned timeout_ms);
/* The name of the first dump that there is or was, and what has become of it; NULL and FLYT_COREDUMP_NONE: there was
 * none. The name lives as long as the folder. */
const char *flyt_coredump_folder_made(struct flyt_coredump_folder *folder, enum flyt_coredump_state *ret_state);

#endif
