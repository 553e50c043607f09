#include "control/client/user.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUPS_MAX = 1024, RECORD_BYTES = 1 << 16, RECORD_BYTES_MAX = 16 << 20 };

static bool is_in(const struct flyt_strings *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->items[i], name) == 0)
            return true;
    return false;
}

/* A group's record is as long as its list of members. */
static bool find_group(const char *name, gid_t *ret_gid)
{
    struct group record, *found = NULL;
    bool is_found = false;
    for (size_t bytes = RECORD_BYTES; bytes <= RECORD_BYTES_MAX; bytes *= 4) {
        char *text = malloc(bytes);
        int status = text ? getgrnam_r(name, &record, text, bytes, &found) : ENOMEM;
        if (!status && found) {
            *ret_gid = found->gr_gid;
            is_found = true;
        }
        free(text);
        if (status != ERANGE)
            break;
    }
    return is_found;
}

static bool has_group(const struct flyt_strings *names, const struct passwd *user)
{
    gid_t *groups = calloc(GROUPS_MAX, sizeof *groups), wanted;
    int count = GROUPS_MAX;
    bool is_member = false;
    if (groups && getgrouplist(user->pw_name, user->pw_gid, groups, &count) < 0)
        count = GROUPS_MAX; /* the first ones are there */
    for (size_t i = 0; groups && i < names->count && !is_member; i++) {
        if (!find_group(names->items[i], &wanted))
            continue;
        for (int j = 0; j < count; j++)
            is_member |= groups[j] == wanted;
    }
    free(groups);
    return is_member;
}

bool flyt_user_is_free(uid_t uid, const struct flyt_strings *users, const struct flyt_strings *groups)
{
    return uid == 0 || (!users->count && !groups->count);
}

bool flyt_user_may(uid_t uid, const struct flyt_strings *users, const struct flyt_strings *groups)
{
    struct passwd record, *user = NULL;
    char number[16];
    snprintf(number, sizeof number, "%u", (unsigned)uid);
    if (flyt_user_is_free(uid, users, groups) || is_in(users, number))
        return true;
    char *text = malloc(RECORD_BYTES);
    bool may = text && getpwuid_r(uid, &record, text, RECORD_BYTES, &user) == 0 && user &&
               (is_in(users, user->pw_name) || has_group(groups, user));
    free(text);
    return may;
}

void flyt_user_print(uid_t uid, char *ret_name, size_t bytes)
{
    struct passwd record, *user = NULL;
    char *text = malloc(RECORD_BYTES);
    snprintf(ret_name, bytes, "%u", (unsigned)uid);
    if (text && getpwuid_r(uid, &record, text, RECORD_BYTES, &user) == 0 && user)
        snprintf(ret_name, bytes, "%s", user->pw_name);
    free(text);
}
