/*
 * How many there are of something whose end may come after that of who counts it, as that of a thread does which hangs
 * in a disk that does not answer. Its memory goes with the last user and the last of what is counted. Any thread.
 */
#ifndef FLYT_BASE_TALLY_H
#define FLYT_BASE_TALLY_H

#include <stdbool.h>

struct flyt_tally;

/* For one user. NULL: no memory. */
struct flyt_tally *flyt_tally_new(void);
/* One user more, or less; NULL is allowed. _ref returns the tally, _unref NULL. */
struct flyt_tally *flyt_tally_ref(struct flyt_tally *tally);
struct flyt_tally *flyt_tally_unref(struct flyt_tally *tally);
/* One more of what is counted, by a user; one less, by whoever it was. NULL is allowed: nothing is counted. */
void flyt_tally_add(struct flyt_tally *tally);
void flyt_tally_remove(struct flyt_tally *tally);
unsigned flyt_tally_count(const struct flyt_tally *tally);
/* Whether the caller is its only user, and nothing is counted: so it stays, where nobody else can become one. */
bool flyt_tally_is_alone(const struct flyt_tally *tally);

#endif
