/*
 * How far a session's calls have come, and how many have failed: read off its lists; nobody is asked.
 */
#ifndef FLYT_SERVER_PROGRESS_H
#define FLYT_SERVER_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "flyt.h"

struct flyt_progress_writer;
struct flyt_session;

/* How far the session's calls have come; asks nobody. */
flyt_progress flyt_session_progress(const struct flyt_session *session);

/* The lowest sequence number of an unexecuted job, or UINT64_MAX; held_only: of those that hold a stream. */
uint64_t flyt_jobs_unexecuted(const struct flyt_session *session, bool held_only);

/* The lowest sequence number of a deferred call, or UINT64_MAX. */
uint64_t flyt_defer_first_sequence(const struct flyt_session *session);

/* An error is handed to the connection: no number is published before the client can know of it. */
void flyt_page_count_error(struct flyt_progress_writer *page);

/* An error has been counted for the page, and is about to be told. */
void flyt_execution_count_error(struct flyt_session *session);

/* Of the client's last connection: what was handed to it. */
uint64_t flyt_execution_error_count(const struct flyt_session *session);

#endif
