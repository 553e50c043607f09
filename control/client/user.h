/*
 * Who of this VM may use its GPU. Users and groups are looked up where the machine looks them up, which may be a
 * directory somewhere in the network that does not answer: so never on the loop's thread.
 */
#ifndef FLYT_CLIENT_USER_H
#define FLYT_CLIENT_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "control/base/config.h"

/* Whether that needs no looking up: root may, and everybody where nobody is named. */
bool flyt_user_is_free(uid_t uid, const struct flyt_strings *users, const struct flyt_strings *groups);
/* Whether he is one of the users (by name or number) or a member of one of the groups. Blocks; any thread. */
bool flyt_user_may(uid_t uid, const struct flyt_strings *users, const struct flyt_strings *groups);
/* His name, or his number where he has none. Blocks; any thread. */
void flyt_user_print(uid_t uid, char *ret_name, size_t bytes);

#endif
