/*
 * What the families make again at another server goes through these: calls on its channel, the errors of which become
 * sentences. What is to be made, and the number S behind which, is in restore.h.
 */
#ifndef FLYT_CLIENT_RESTORE_CALL_H
#define FLYT_CLIENT_RESTORE_CALL_H

#include <stdbool.h>
#include <stdint.h>
#include "rpc/base/error.h"

struct flyt_channel;

/* Sent as the thread of calls that make things again, so that their errors are nobody else's. */
#define FLYT_RESTORE_THREAD UINT32_MAX

struct flyt_restore_waiting; /* calls above S that name one stream */
struct flyt_restore_made;    /* a one-way call and what it makes */

struct flyt_restore {
    struct flyt_channel *fresh;
    uint64_t sequence; /* S */
    struct flyt_error *err;
    /* restore_call.c's: */
    struct flyt_restore_waiting *waiting;
    unsigned waiting_count, waiting_capacity;
    struct flyt_restore_made *made;
    unsigned made_count, made_capacity;
    int walk_status;
};

/* After a call with a reply: 0, or the error, which is then also in restore->err: "WHAT cannot be made again: …". */
int flyt_restore_answered(struct flyt_restore *restore, int channel_status, int result, const char *what, ...)
    __attribute__((format(printf, 4, 5)));
/* After a one-way call, the error of which may come later: `kind` (a literal) and `id` say what it makes. Also 0 or the
 * error. */
int flyt_restore_sent(struct flyt_restore *restore, int channel_status, uint64_t sequence, const char *kind,
                      uint64_t id);
/* How many calls above S name the stream. */
uint64_t flyt_restore_waiting(const struct flyt_restore *restore, uint64_t stream_id);

/* ---- for restore.c and client.c ---- */

/* Before anything is made: no call has failed. */
void flyt_restore_begin(void);
/* Frees what the functions above have noted. */
void flyt_restore_end(struct flyt_restore *restore);
/* One more call above S names the stream; false: no memory, and restore->walk_status says so. */
bool flyt_restore_count_waiting(struct flyt_restore *restore, uint64_t stream_id);
/* All that was sent is executed when the barrier is answered, and what failed has been told before: 0, or the error,
 * which is then also in restore->err and names what could not be made. */
int flyt_restore_check_made(struct flyt_restore *restore);
/* The server's word that a one-way call of FLYT_RESTORE_THREAD failed. From the thread that reads `fresh`. */
void flyt_restore_call_error(uint64_t sequence, int result);

#endif
