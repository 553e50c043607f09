/*
 * What a session uses, and whether it is replaceable, told to the node manager (USE, rpc/transport/manager_link.h):
 * once a second by the watching thread, and at once by the submission thread where the latter changes.
 */
#ifndef FLYT_SERVER_REPORT_H
#define FLYT_SERVER_REPORT_H

struct flyt_session;

/* Tells it, unless it is what was told last. Nothing without a node manager. Any thread; blocks as flyt_manager_tell.
 */
void flyt_report_send(struct flyt_session *session);
/* The node manager is another one: it was told nothing. */
void flyt_report_forget(struct flyt_session *session);

#endif
