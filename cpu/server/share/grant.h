/*
 * What a session may have, as the node manager says it: its devices, which are the slots of its VM's allocation, with
 * their SMs and the ledgers of their memory; its token, its folder of images, its link.
 */
#ifndef FLYT_SERVER_GRANT_H
#define FLYT_SERVER_GRANT_H

#include "rpc/base/error.h"
#include "rpc/transport/manager_link.h"

struct flyt_session;

/* The session's id, and how logs write it. Part of flyt_grant_take, for what may go wrong before that. */
void flyt_grant_name(struct flyt_session *session, const struct flyt_manager_link_session *granted);

/*
 * Takes it over, for a session that was made with flyt_session_init (no slots in *granted: all devices are the
 * program's) or flyt_session_init_warm (session->manager is open), and makes the contexts of all its devices.
 * 0, or a negative errno with a sentence for the program in *err.
 */
int flyt_grant_take(struct flyt_session *session, const struct flyt_manager_link_session *granted,
                    struct flyt_error *err);

/*
 * Before the session is granted, for a server that was made with flyt_session_init_warm: makes ahead what takes time of
 * what flyt_grant_take will make for these slots (primary and green contexts), and opens the folder of module images
 * where one is named. 0, or a negative errno with a sentence.
 */
int flyt_grant_prepare(struct flyt_session *session, const struct flyt_manager_link_session *granted,
                       struct flyt_error *err);

#endif
