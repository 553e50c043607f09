/*
 * The session's call record (rpc/transport/call_record.h): what the node manager can still read of it when this process
 * is dead. There is one where there is a node manager. It costs a launch two stores to memory that is nobody else's.
 *
 * The submission thread; telling the manager of it is the watching thread's, too.
 */
#ifndef FLYT_SERVER_EXECUTION_H
#define FLYT_SERVER_EXECUTION_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/transport/call_record.h"

struct flyt_call;
struct flyt_session;

/* All zero: no record. */
struct flyt_execution {
    struct flyt_call_record *record; /* NULL: there is none */
    int fd;
    uint64_t error_base;           /* errors that were told over other connections than the client's last */
    bool has_points;               /* tests want to end the process somewhere (fault_point.h) */
    bool has_before;               /* of a session that goes on: */
    struct flyt_call_state before; /* how far its dead server had come; or this one, when its program was to leave */
};

/* Makes the record of a session that has its manager, and tells that. Where it cannot be, the session does without. */
void flyt_execution_open(struct flyt_session *session);
/* Hands it to the node manager, once more after its restart. */
void flyt_execution_tell(struct flyt_session *session);
/* A client has come, with this connection. */
void flyt_execution_attach(struct flyt_session *session);

/* Nothing of the call has been done yet, nor has it been said that it could be. */
void flyt_execution_begin(const struct flyt_call *call);
/* A call's handler has done what it does now, and errors are counted. */
void flyt_execution_end(const struct flyt_call *call);
/* Writes what is known of all calls already, without asking the GPU. As flyt_progress_writer_write: before a reply, and
 * when something has come to its end. */
void flyt_execution_write(struct flyt_session *session);
/* The program, which has stopped behind this call, is told to leave, and may not hear it: should it come back, this is
 * what session_left_at says. Before the connection ends. */
void flyt_execution_leave(struct flyt_session *session, uint64_t sequence);
/* As flyt_progress_writer_renumber. */
void flyt_execution_renumber(struct flyt_session *session, uint64_t sequence);

#endif
