/*
 * What a session has by a server process: its entry in the ledgers, its memory, its place among the VM's devices. Where
 * the process has gone it is the session's own, until another server has it (session.h).
 */
#ifndef FLYT_NODE_MODEL_HOLDING_H
#define FLYT_NODE_MODEL_HOLDING_H

#include <stdbool.h>
#include <stdint.h>

#include "control/node/model/node.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/manager_link.h"

struct flyt_node_extent {
    struct flyt_node_extent *next;
    uint64_t extent_id, bytes;
    uint64_t address; /* as its server told it */
    unsigned slot;
    bool is_placed; /* false: its address is not known, because it was kept by an earlier version of this program */
    int fd;
};

struct flyt_node_extents {
    struct flyt_node_extent *first;
    unsigned count;
    uint64_t bytes;
    uint64_t last_id; /* the highest that any of them had, also of those that are gone */
    bool has_missed;  /* there is memory that could not be held */
};

/* Of an event that sessions share. */
struct flyt_node_event_page {
    unsigned ref_count;
    int fd;
};

struct flyt_node_shared {
    struct flyt_node_shared *next;
    struct flyt_manager_link_shared shared;
    bool is_event;
    struct flyt_node_event_page *page; /* of an event that is exported or imported; else NULL */
};

/* Of a server. */
struct flyt_node_brokerage {
    struct flyt_node_shared *exports;       /* of its session; also while that has no server */
    struct flyt_node_shared *imports;       /* what its process has of other sessions' */
    struct flyt_node_shared *events;        /* exported, as `exports` */
    struct flyt_node_shared *event_imports; /* as `imports` */
    struct flyt_node_shared *wanted;        /* IMPORT and EVENT_IMPORT that are not answered */
    unsigned export_count, import_count, event_count, event_import_count, wanted_count;
};

struct flyt_node_holding {
    uint64_t server_id; /* of its entries in the ledgers */
    /* Its devices, by slot: those of its allocation when it got it. */
    struct flyt_node_gpu *gpus[FLYT_SLOTS_MAX];
    bool has_use; /* the server has sent USE */
    struct flyt_manager_link_use use;
    char why_not[FLYT_NAME_BYTES_MAX + 1];
    struct flyt_node_extents extents;
    struct flyt_node_brokerage broker;
    bool has_vm_memory; /* it was given the memory that its VM shares with this machine, */
    int vm_memory_fd;   /* and its session's claims are in this open description of it; else -1 */
};

/* Closes what is not anything else's: the rest was handed over, or let go of. */
static inline void flyt_node_holding_fini(struct flyt_node_holding *has)
{
    has->vm_memory_fd = has->has_vm_memory ? flyt_close(has->vm_memory_fd) : -1;
    has->has_vm_memory = false;
}

static inline bool flyt_node_holding_uses(const struct flyt_node_holding *has, const struct flyt_node_gpu *gpu)
{
    bool uses = false;

    for (unsigned i = 0; i < FLYT_SLOTS_MAX; i++)
        uses |= gpu && has->gpus[i] == gpu;
    return uses;
}

#endif
