#include "cpu/client/core/visible.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/client/core/instance.h"
#include "rpc/base/log.h"

unsigned flyt_wire_device(unsigned device)
{
    return device < flyt_client.visible.count ? flyt_client.visible.devices[device] : FLYT_DEVICES_MAX;
}

int flyt_seen_device(unsigned wire_device)
{
    for (unsigned i = 0; i < flyt_client.visible.count; i++)
        if (flyt_client.visible.devices[i] == wire_device)
            return (int)i;
    return -1;
}

bool flyt_visible_needs_devices(const char *visible, const char *order)
{
    return (visible && strstr(visible, "GPU-")) ||
           (order && (!strcmp(order, "PCI_BUS_ID") || !strcmp(order, "FASTEST_FIRST")));
}

/* ---- their order ---- */

static bool is_before_on_pci(const struct flyt_visible_device *one, const struct flyt_visible_device *other)
{
    if (one->domain != other->domain)
        return one->domain < other->domain;
    return one->bus != other->bus ? one->bus < other->bus : one->device < other->device;
}

/* Moves an entry to a place before it. */
static void move_up(struct flyt_visible *all, unsigned from, unsigned to)
{
    unsigned char moved = all->devices[from];

    memmove(all->devices + to + 1, all->devices + to, from - to);
    all->devices[to] = moved;
}

static void sort_by_pci(struct flyt_visible *all, const struct flyt_visible_device *devices)
{
    for (unsigned i = 1; i < all->count; i++) {
        unsigned to = i;
        while (to && is_before_on_pci(&devices[all->devices[i]], &devices[all->devices[to - 1]]))
            to--;
        move_up(all, i, to);
    }
}

/* CUDA leaves the order of the others open. */
static void put_fastest_first(struct flyt_visible *all, const struct flyt_visible_device *devices)
{
    unsigned fastest = 0;

    for (unsigned i = 1; i < all->count; i++)
        if (devices[i].speed > devices[fastest].speed)
            fastest = i;
    move_up(all, fastest, 0);
}

static struct flyt_visible all_devices(const char *order, const struct flyt_visible_device *devices, unsigned count)
{
    struct flyt_visible all = {.count = count};

    for (unsigned i = 0; i < count; i++)
        all.devices[i] = (unsigned char)i;
    if (count && order && !strcmp(order, "PCI_BUS_ID"))
        sort_by_pci(&all, devices);
    else if (count && order && !strcmp(order, "FASTEST_FIRST"))
        put_fastest_first(&all, devices);
    return all;
}

/* ---- those that are named ---- */

/* The device that alone has this beginning; -1: none, or several. */
static int find_uuid(const char *text, size_t bytes, const struct flyt_visible_device *devices, unsigned count)
{
    int found = -1;

    for (unsigned i = 0; i < count; i++) {
        if (strncasecmp(text, devices[i].uuid_text, bytes) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = (int)i;
    }
    return found;
}

/* The server's device that the entry at `text` names; -1: it names none. *ret_end: behind it. */
static int find_entry(const char *text, const struct flyt_visible *all, const struct flyt_visible_device *devices,
                      const char **ret_end)
{
    char *end;

    *ret_end = text + strcspn(text, ",");
    if (!strncmp(text, "GPU-", 4))
        return find_uuid(text, (size_t)(*ret_end - text), devices, all->count);
    if (!strncmp(text, "MIG-", 4)) {
        flyt_warn(
            "CUDA_VISIBLE_DEVICES=%.100s: there are no parts of GPUs by MIG here; no device from there on is visible",
            text);
        return -1;
    }
    long number = strtol(text, &end, 10);
    if (end == text || number < 0 || number >= (long)all->count)
        return -1;
    *ret_end = end;
    return all->devices[number];
}

struct flyt_visible flyt_visible_choose(const char *visible, const char *order,
                                        const struct flyt_visible_device *devices, unsigned count)
{
    const struct flyt_visible all = all_devices(order, devices, count);
    struct flyt_visible seen = {.count = 0};
    bool is_taken[FLYT_DEVICES_MAX] = {false};

    if (!visible)
        return all;
    for (const char *at = visible, *end;; at = end + 1) {
        int device = find_entry(at, &all, devices, &end);
        if (device < 0)
            return seen;
        if (is_taken[device])
            return (struct flyt_visible){.count = 0};
        is_taken[device] = true;
        seen.devices[seen.count++] = (unsigned char)device;
        if (*end != ',')
            return seen;
    }
}
