/* What is known of calls of NVIDIA's libraries that were awaited: which ones have succeeded, so that their like need
 * not be awaited; and the answers of calls that are asked once. Both by a digest of what makes two calls alike. */
#ifndef FLYT_CLIENT_LIBRARY_ANSWERS_H
#define FLYT_CLIENT_LIBRARY_ANSWERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flyt_lib_key {
    uint64_t words[2];
};

/* Goes on with `key`, which begins as all zero, over further bytes. */
void flyt_lib_key_add(struct flyt_lib_key *key, const void *data, size_t bytes);

/* Whether a call of this key has succeeded. Takes no lock; may say no of one that has. */
bool flyt_lib_has_succeeded(const struct flyt_lib_key *key);
void flyt_lib_note_success(const struct flyt_lib_key *key);

/* Copies what was kept under the key, which is `bytes` long; false: nothing was. */
bool flyt_lib_answer_find(const struct flyt_lib_key *key, void *ret_results, size_t bytes);
/* Keeps results; without memory nothing is kept. */
void flyt_lib_answer_keep(const struct flyt_lib_key *key, const void *results, size_t bytes);

/* The session goes to another server: its answers may be others. */
void flyt_lib_answers_forget(void);

#endif
