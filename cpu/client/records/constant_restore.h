/*
 * Constants at another server: what the host has written there is written again.
 */
#ifndef FLYT_CLIENT_CONSTANT_RESTORE_H
#define FLYT_CLIENT_CONSTANT_RESTORE_H

#include <stdint.h>

struct flyt_restore;
struct flyt_variable;

/* Writes to the constant at a new server what it had at S (restore.h). `library_id`: the one on its device. The caller
 * holds the lock of variables. 0, or the error, which is then also in restore->err. */
int flyt_constant_restore_locked(struct flyt_restore *restore, uint64_t library_id,
                                 const struct flyt_variable *variable);

#endif
