/*
 * A session whose program was told that it goes on elsewhere (LEAVE, rpc/transport/manager_link.h): what is here stays
 * as it is, without a connection, and the loop waits for orders only. TAKE_BACK brings a connection of the program
 * again; after the handshake session_is_whole is answered with 1, and session_resume_end, with the number that the
 * program was told, or which session_left_at says where its connection had ended before, ends it. When that connection
 * ends before, the session is left again.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_LEFT_H
#define FLYT_SERVER_LEFT_H

#include <stdbool.h>

#include "cpu/server/move/out/move.h"

/* LEAVE came: from now on the end of the connection, and of data streams, ends nothing. is_for_ever: the program is to
 * try to come back for as long as it takes, else for FLYT_MOVE_WAIT_MS. */
void flyt_left_begin(struct flyt_session *session, bool is_for_ever);
/* From flyt_move_advance. Returns whether time alone can change something. */
bool flyt_left_advance(struct flyt_session *session);
/* While it is leaving: reads what the program still sends, up to its end, and throws it away. Returns whether there was
 * something; at the end, session->is_ended. */
bool flyt_left_read_out(struct flyt_session *session);
/* The connection has ended: flyt_move_take_end for a session that has left, or is leaving. */
void flyt_left_take_end(struct flyt_session *session);
/* TAKE_BACK came; fd is taken over. A connection that was brought before is ended. */
void flyt_left_take_back(struct flyt_session *session, const struct flyt_move_order *order, int fd);
/* session_resume_end is about to be answered: it goes on here. */
void flyt_left_end(struct flyt_session *session);

#endif
