/*
 * A session that goes on at this server, because the one before has ended or is to be left: the node manager has given
 * its memory (adopted_extents.h), and its client, on a connection of kind FLYT_CONNECTION_RESUME, makes its objects
 * again with the calls that made them, between session_resume_begin and session_resume_end.
 *
 * These calls are counted apart: replies, notices, errors and the progress page speak of them as of those of a new
 * session, from 1 on. session_resume_end waits until all of it is done, compares how many objects there are with what
 * the state has told that was brought here (counts.h, settings.h), and is answered when everything counts as
 * received, executed and complete up to the number that it names: its answer has that number, the page has it before
 * (which may be less than what stood there), and streams' credits begin at 0. The client sends nothing between that
 * call and its answer. Where the node manager has said so (RESUME's is_held) the answer is held back until all sessions
 * of the VM are as far: none of them may go on while one of them may still have to go back.
 *
 * Only the submission thread uses this.
 */
#ifndef FLYT_SERVER_RESUME_H
#define FLYT_SERVER_RESUME_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/core/resume_state.h"

struct flyt_call;
struct flyt_device;
struct flyt_fence;
struct flyt_session;

/* The highest number with which a session may go on: behind it there is room for all calls to come. */
#define FLYT_RESUME_SEQUENCE_MAX (UINT64_MAX / 2)

/* GO_ON has come, or whoever could send it has gone: one that is held goes on when it is whole. Whether it was held. */
bool flyt_resume_let_go(struct flyt_session *session);

#endif
