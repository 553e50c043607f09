/*
 * A session goes on at another server: everything that it has there is made again, under the ids and at the addresses
 * that it has, from the records of this library. Whatever the reason (the first server's end, a move), it is the same.
 *
 * S, the sequence number. The new server is to be as the old one was when all calls up to S were executed and complete
 * and none above S was executed. S is what flyt_channel_resume_after tells of the channel that the program uses. Calls
 * above S, which the channel keeps (flyt_channel_kept), are sent to the new server afterwards, as they are.
 * So what is made is what there was at S, neither more nor less:
 *
 *   made by a call above S     not made here: its call comes again
 *   ended by a call above S    made here, though the program has it no more: calls up to its end name it, and the call
 *                              that ends it must find it
 *
 * For that each record knows the numbers of the calls that make and that end its object, which the channel itself
 * writes where the record says, at the moment at which a call gets its number; and what was ended is forgotten only
 * when the call that ended it is executed (flyt_table_next_at in table.h, flyt_range_restore in range.h).
 *
 *   streams, events            one-way, as above
 *   allocations, libraries     made by calls with a reply, hence known to be there up to S once the reply is in the
 *                              books (answer.h); ended one-way, as above
 *   limits, peers, attributes  values are noted when the reply is there. Setting one again does no harm
 *   kernels, variables         go with their library; addresses that were told must be the same again
 *   constants                  what the host has written by their names is written again (constant.h)
 *   legacy default streams     are there from the start, as are contexts, which the server does not know
 *   pinned memory              is the program's
 *
 * Counts of a stream's calls (stream_record.h) go on: the new server counts from 0 those that it gets, which begin with
 * those above S, and not what it is told here.
 */
#ifndef FLYT_CLIENT_RESTORE_H
#define FLYT_CLIENT_RESTORE_H

#include "rpc/base/error.h"

struct flyt_channel;

/*
 * The handler `resume` of the channel. `fresh` is a connection to the new server after its session_resume_begin; its
 * handlers are those of the client. Makes calls on `fresh` only, and of the program's channel asks no more than
 * flyt_channel_resume_after and flyt_channel_kept; the program's threads stand still inside the channel, or will when
 * they enter it. 0, every call having been executed; or a negative errno and a sentence that names what cannot be made
 * again: -ECONNRESET (`fresh` is lost), -EBUSY (something has not finished), -ENOTSUP, -ENOMEM, -EIO (the server
 * refuses, or has it otherwise). What has been made then stays until the connection ends.
 *
 * It may be called again for the same S, with another connection, whatever it has returned: the records are only read,
 * but for the counts of a stream's calls, which each time are set to what they are with the new server. `fresh` NULL:
 * the session stays with the server that it was to leave, which has it as it was, after tries with others or none:
 * those counts become again what they were, and nothing else is looked at than whether anything is unfinished here.
 */
int flyt_restore(void *user, struct flyt_channel *fresh, struct flyt_error *err);

#endif
