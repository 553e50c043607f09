/*
 * How many objects of each kind a session has. The server that a moved session leaves counts them when nothing of it
 * runs any more, and its client has stopped (save.h); the one where it goes on counts again when the client has made
 * its objects, before it sends anything else (resume.h). Both are those of one call number, so that they are equal: an
 * object that is missing, or is there twice, is found before the program does anything with it.
 *
 * Which kinds there are say the rows (flyt_objects_rows). Two things are counted otherwise: what has a number that is
 * not of the client's making (default streams) not at all; and an object that could not be made, which its client may
 * have all the same where it was not asked for an answer, and which it makes again: so many more may be there.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_COUNTS_H
#define FLYT_SERVER_COUNTS_H

#include "checkpoint.h"
#include "rpc/base/error.h"

struct flyt_session;

void flyt_counts_take(struct flyt_session *session, flyt_checkpoint_counts *ret_counts,
                      flyt_checkpoint_tallies *ret_tallies);
/* The tallies of a server that told none. */
void flyt_counts_told(const flyt_checkpoint_counts *counts, flyt_checkpoint_tallies *ret_tallies);
/* Whether the session has what it had. 0, or -EIO with a sentence that names the first kind of which it has not. A kind
 * that the tallies lack is not compared. */
int flyt_counts_compare(struct flyt_session *session, const flyt_checkpoint_counts *had,
                        const flyt_checkpoint_tallies *had_tallies, struct flyt_error *err);

#endif
