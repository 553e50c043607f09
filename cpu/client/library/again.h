/*
 * What a library's own source (cpu/library) makes again at another server: objects that are several to one call, of
 * which object.h knows no more than their handles. And what holds a stop of the program until several threads have
 * made what they make together.
 */
#ifndef FLYT_CLIENT_LIBRARY_AGAIN_H
#define FLYT_CLIENT_LIBRARY_AGAIN_H

#include "cpu/client/library/library_call.h"

struct flyt_restore;

/* From now on the function is called where a session goes on at another server (records/restore.h), when what other
 * libraries have is made again. 0, or a negative errno that one of the functions below has returned. A function is
 * noted once. */
typedef int (*flyt_lib_again_fn)(struct flyt_restore *restore);
FLYT_API void flyt_lib_again_by(flyt_lib_again_fn again);

struct flyt_lib_again_bytes {
    const void *data;
    size_t bytes;
};
#define FLYT_LIB_AGAIN_OF(value) ((struct flyt_lib_again_bytes){&(value), sizeof(value)})

/* Makes a call of the row, which is aside, with the structure of its arguments and an array, or NULL. Gets the results
 * of so many bytes. `what` is the object's name for a sentence. */
FLYT_API int flyt_lib_again_call(struct flyt_restore *restore, const struct flyt_lib_row *row,
                                 const struct flyt_lib_again_bytes *arguments, const struct flyt_lib_again_bytes *array,
                                 void *results, size_t result_bytes, const char *what);
/* `what` cannot be made again; or there is no memory for that. */
FLYT_API int flyt_lib_again_refuse(struct flyt_restore *restore, const char *what);
FLYT_API int flyt_lib_again_lack(struct flyt_restore *restore, const char *what);
/* Calls in streams of the row that come again by themselves: `each` gets the arguments of each. */
typedef void (*flyt_lib_again_each_fn)(void *user, const void *arguments, size_t bytes);
FLYT_API int flyt_lib_again_kept(struct flyt_restore *restore, const struct flyt_lib_row *row,
                                 flyt_lib_again_each_fn each, void *user);

/* Whether calls can be made at all. In a forked child they cannot, and no lock of the parent's may be taken. */
FLYT_API bool flyt_lib_is_open(void);
/* flyt_channel_hold_begin, _end and _wait (rpc/transport/channel.h), of the program's channel. */
enum flyt_lib_hold { FLYT_LIB_HELD, FLYT_LIB_STOPPED, FLYT_LIB_LOST };
FLYT_API enum flyt_lib_hold flyt_lib_hold_begin(bool joins);
FLYT_API void flyt_lib_hold_end(void);
FLYT_API void flyt_lib_hold_wait(void);

/* For library_call.c. */
int flyt_lib_again_restore(struct flyt_restore *restore);

#endif
