#include "control/node/state/uid_range.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#include "control/node/state/state.h"

/* The machine's own list of users: what a directory service has elsewhere is too much to ask for. */
static bool has_account(const struct flyt_range *range, char *ret_name, size_t bytes, uid_t *ret_uid)
{
    FILE *file = fopen("/etc/passwd", "re");
    const struct passwd *user;
    bool is_found = false;

    while (file && !is_found && (user = fgetpwent(file)))
        if (user->pw_uid >= range->first && user->pw_uid <= range->last) {
            snprintf(ret_name, bytes, "%s", user->pw_name);
            *ret_uid = user->pw_uid;
            is_found = true;
        }
    if (file)
        fclose(file);
    return is_found;
}

int flyt_node_uid_range_check_count(const struct flyt_node_settings *settings, uint64_t gpu_count,
                                    struct flyt_error *err)
{
    const struct flyt_range *range = &settings->server_uids;
    uint64_t count = range->last - range->first + 1, servers = settings->client_slots * gpu_count;

    if (servers > FLYT_NODE_SERVERS_MAX)
        servers = FLYT_NODE_SERVERS_MAX;
    if (count >= servers)
        return 0;
    return flyt_error_set(
        err, -EINVAL,
        "%sserver_uids has %llu users, fewer than the %llu servers that there can be (client_slots for "
        "each GPU)",
        range->where ? range->where : "", (unsigned long long)count, (unsigned long long)servers);
}

int flyt_node_uid_range_check(const struct flyt_node_settings *settings, struct flyt_error *err)
{
    const struct flyt_range *range = &settings->server_uids;
    const char *where = range->where ? range->where : "";
    char name[64];
    uid_t uid;

    if (!range->last)
        return 0;
    if (range->last - range->first >= FLYT_NODE_UIDS_MAX)
        return flyt_error_set(err, -EINVAL, "%sserver_uids has more than %d users", where, FLYT_NODE_UIDS_MAX);
    if (geteuid() >= range->first && geteuid() <= range->last)
        return flyt_error_set(err, -EINVAL, "%sserver_uids has %u, the node manager's own user", where, geteuid());
    /* 65535 is what 16 bits make of "no user". */
    if (range->first <= UINT16_MAX && range->last >= UINT16_MAX)
        return flyt_error_set(err, -EINVAL, "%sserver_uids has %d, which is no user", where, UINT16_MAX);
    if (has_account(range, name, sizeof name, &uid))
        return flyt_error_set(err, -EINVAL, "%sserver_uids has %u, the user %s of this machine", where, uid, name);
    if (settings->server[0] != '/')
        return flyt_error_set(err, -EINVAL, "%sserver_uids needs a path from the root in `server`", where);
    return flyt_node_uid_range_check_count(settings, settings->software_gpus ? settings->software_gpus : 1, err);
}
