/*
 * The page-locked memory of a session that is moved within its node: the next server locks it ahead, while the program
 * runs (bulk/region.h). The submission thread.
 */
#ifndef FLYT_SERVER_LOCKS_H
#define FLYT_SERVER_LOCKS_H

struct flyt_region_lock;
struct flyt_session;

/* LOCKS_WANTED: says what is locked, of many pieces the first FLYT_MANAGER_LINK_PIECES_MAX. What is locked later, or is
 * being locked, its client asks for where it goes on. */
void flyt_locks_tell(struct flyt_session *session);
/* Of the observer: a piece that was told of in this move is to be unlocked there, too. */
void flyt_locks_gone(struct flyt_session *session, const struct flyt_region_lock *lock);

#endif
