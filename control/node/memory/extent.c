#include "control/node/memory/extent.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum { NAME_BYTES = 96 };

/* All that is to be known of an extent after a restart stands in its name. Earlier versions did not write the address.
 */
static void name_of(uint64_t server_id, const struct flyt_node_extent *extent, char *name)
{
    int used = snprintf(name, NAME_BYTES, "extent-%016" PRIx64 "-%" PRIx64 "-%u-%" PRIx64, server_id, extent->extent_id,
                        extent->slot, extent->bytes);

    if (extent->is_placed)
        snprintf(name + used, NAME_BYTES - (size_t)used, "-%" PRIx64, extent->address);
}

static bool parse_name(const char *name, uint64_t *ret_server_id, struct flyt_node_extent *ret_extent)
{
    char again[NAME_BYTES];

    int count = sscanf(name, "extent-%" SCNx64 "-%" SCNx64 "-%u-%" SCNx64 "-%" SCNx64, ret_server_id,
                       &ret_extent->extent_id, &ret_extent->slot, &ret_extent->bytes, &ret_extent->address);
    if (count < 4)
        return false;
    ret_extent->is_placed = count == 5;
    name_of(*ret_server_id, ret_extent, again);
    return !strcmp(name, again) && ret_extent->slot < FLYT_SLOTS_MAX;
}

static struct flyt_node_extent **find(struct flyt_node_extents *extents, uint64_t extent_id)
{
    struct flyt_node_extent **link = &extents->first;

    while (*link && (*link)->extent_id != extent_id)
        link = &(*link)->next;
    return link;
}

static int insert(struct flyt_node_extents *extents, const struct flyt_node_extent *from)
{
    if (from->extent_id > extents->last_id)
        extents->last_id = from->extent_id;
    if (extents->count == FLYT_NODE_EXTENTS_MAX)
        return -ENOSPC;
    if (*find(extents, from->extent_id))
        return -EEXIST;
    struct flyt_node_extent *extent = malloc(sizeof *extent);
    if (!extent)
        return -ENOMEM;
    *extent = *from;
    extent->next = extents->first;
    extents->first = extent;
    extents->count++;
    extents->bytes += extent->bytes;
    return 0;
}

int flyt_node_extent_add(struct flyt_node *node, struct flyt_node_extents *extents, uint64_t server_id,
                         const struct flyt_manager_link_extent *from, int fd)
{
    const struct flyt_node_extent extent = {.extent_id = from->extent_id,
                                            .bytes = from->bytes,
                                            .address = from->address,
                                            .slot = from->slot,
                                            .is_placed = true,
                                            .fd = fd};
    char name[NAME_BYTES];

    int status = insert(extents, &extent);
    if (!status) {
        name_of(server_id, &extent, name);
        flyt_node_keep(node, name, fd);
        return 0;
    }
    flyt_close(fd);
    struct flyt_node_extent *held = status == -EEXIST ? *find(extents, extent.extent_id) : NULL;
    if (!held) {
        extents->has_missed = true;
    } else if (!held->is_placed) {
        name_of(server_id, held, name);
        flyt_node_forget(node, name);
        held->address = extent.address;
        held->is_placed = true;
        name_of(server_id, held, name);
        flyt_node_keep(node, name, held->fd);
    }
    return status;
}

static void let_go(struct flyt_node *node, struct flyt_node_extents *extents, uint64_t server_id,
                   struct flyt_node_extent **link)
{
    struct flyt_node_extent *extent = *link;
    char name[NAME_BYTES];

    name_of(server_id, extent, name);
    flyt_node_forget(node, name);
    flyt_close(extent->fd);
    extents->count--;
    extents->bytes -= extent->bytes;
    *link = extent->next;
    free(extent);
}

int flyt_node_extent_remove(struct flyt_node *node, struct flyt_node_extents *extents, uint64_t server_id,
                            uint64_t extent_id, unsigned *ret_slot, uint64_t *ret_bytes)
{
    struct flyt_node_extent **link = find(extents, extent_id);

    if (!*link)
        return -ENOENT;
    *ret_slot = (*link)->slot;
    *ret_bytes = (*link)->bytes;
    let_go(node, extents, server_id, link);
    return 0;
}

void flyt_node_extents_drop(struct flyt_node *node, struct flyt_node_extents *extents, uint64_t server_id)
{
    while (extents->first)
        let_go(node, extents, server_id, &extents->first);
}

void flyt_node_extents_move(struct flyt_node *node, struct flyt_node_extents *from, uint64_t server_id,
                            struct flyt_node_extents *to, uint64_t other_id)
{
    char name[NAME_BYTES];

    *to = *from;
    *from = (struct flyt_node_extents){0};
    /* In this order: the store takes a descriptor that it has under no second name. */
    for (const struct flyt_node_extent *extent = to->first; extent; extent = extent->next) {
        name_of(server_id, extent, name);
        flyt_node_forget(node, name);
        name_of(other_id, extent, name);
        flyt_node_keep(node, name, extent->fd);
    }
}

int flyt_node_extents_copy(const struct flyt_node_extents *from, struct flyt_node_extents *to)
{
    int status = 0;

    for (const struct flyt_node_extent *extent = from->first; extent && !status; extent = extent->next) {
        struct flyt_node_extent copy = *extent;
        copy.fd = fcntl(extent->fd, F_DUPFD_CLOEXEC, 0);
        status = copy.fd < 0 ? -errno : insert(to, &copy);
        if (status)
            flyt_close(copy.fd);
    }
    if (status) {
        flyt_node_extents_leave(to);
        return status;
    }
    to->last_id = from->last_id;
    to->has_missed = from->has_missed;
    return 0;
}

void flyt_node_extents_keep(struct flyt_node *node, const struct flyt_node_extents *extents, uint64_t server_id)
{
    char name[NAME_BYTES];

    for (const struct flyt_node_extent *extent = extents->first; extent; extent = extent->next) {
        name_of(server_id, extent, name);
        flyt_node_keep(node, name, extent->fd);
    }
}

uint64_t flyt_node_extents_of_slot(const struct flyt_node_extents *extents, unsigned slot)
{
    uint64_t bytes = 0;

    for (const struct flyt_node_extent *extent = extents->first; extent; extent = extent->next)
        bytes += extent->slot == slot ? extent->bytes : 0;
    return bytes;
}

bool flyt_node_extents_are_whole(const struct flyt_node_extents *extents)
{
    for (const struct flyt_node_extent *extent = extents->first; extent; extent = extent->next)
        if (!extent->is_placed)
            return false;
    return !extents->has_missed;
}

void flyt_node_extents_leave(struct flyt_node_extents *extents)
{
    struct flyt_node_extent *extent;

    while ((extent = extents->first)) {
        extents->first = extent->next;
        flyt_close(extent->fd);
        free(extent);
    }
    *extents = (struct flyt_node_extents){0};
}

/* ---- after a restart ---- */

/* Names are collected first: taking one changes what is being visited. */
struct names {
    char (*items)[NAME_BYTES];
    size_t count, room;
    uint64_t server_id; /* 0: of all */
};

static void collect(const char *name, void *user)
{
    struct names *names = user;
    struct flyt_node_extent extent;
    uint64_t server_id;

    if (!parse_name(name, &server_id, &extent) || (names->server_id && names->server_id != server_id))
        return;
    if (names->count == names->room) {
        size_t room = names->room ? 2 * names->room : 64;
        void *items = reallocarray(names->items, room, NAME_BYTES);
        if (!items)
            return;
        names->items = items;
        names->room = room;
    }
    strcpy(names->items[names->count++], name);
}

unsigned flyt_node_extents_restore(struct flyt_node *node, struct flyt_node_extents *extents, uint64_t server_id)
{
    struct names names = {.server_id = server_id};
    unsigned restored = 0;

    if (!node->daemon)
        return 0;
    flyt_daemon_each_passed(node->daemon, collect, &names);
    for (size_t i = 0; i < names.count; i++) {
        struct flyt_node_extent extent = {0};
        uint64_t its_server_id;
        parse_name(names.items[i], &its_server_id, &extent);
        extent.fd = flyt_daemon_take(node->daemon, names.items[i]);
        if (extent.fd >= 0 && !insert(extents, &extent))
            restored += extent.is_placed;
        else
            flyt_close(extent.fd);
    }
    free(names.items);
    return restored;
}

void flyt_node_extents_forget_passed(struct flyt_node *node)
{
    struct names names = {0};

    if (!node->daemon)
        return;
    flyt_daemon_each_passed(node->daemon, collect, &names);
    for (size_t i = 0; i < names.count; i++) {
        flyt_close(flyt_daemon_take(node->daemon, names.items[i]));
        flyt_daemon_forget(node->daemon, names.items[i]);
    }
    if (names.count)
        flyt_info("memory of servers that have not come back is let go of, extents=%zu", names.count);
    free(names.items);
}
