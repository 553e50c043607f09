/*
 * One node manager: what all its parts share. Everything belongs to the loop's thread but what nvml.h and mps.h do on
 * threads of their own.
 *
 *   listener ──► allocation ──► pool ──► server (a process, its session, its extents)
 *    ▲                ▲                     │
 *   programs        manager (cluster) ◄── report
 *
 * It works without `daemon` (no descriptor store) and without hooks: so do its tests.
 */
#ifndef FLYT_NODE_NODE_H
#define FLYT_NODE_NODE_H

#include <systemd/sd-event.h>

#include "control/base/daemon.h"
#include "control/node/gpu/gpu.h"
#include "control/node/gpu/gpu_account.h"
#include "control/node/host/cgroup.h"
#include "control/node/host/uid_pool.h"
#include "control/node/model/events.h"
#include "control/node/state/settings.h"
#include "control/node/state/state.h"

struct flyt_node_allocation;
struct flyt_node_session_ops;
struct flyt_node_ops;
struct flyt_node_attach;
struct flyt_node_server;
struct flyt_node_waiting;
struct flyt_node_mps;
struct flyt_node_metrics;
struct flyt_node_tombstones;
struct flyt_worker;
struct flyt_node_writer;
struct flyt_node_images;

enum {
    FLYT_NODE_STOP_MS = 5000,    /* at its end: warm servers that were killed are waited for, all together */
    FLYT_NODE_WAITING_MAX = 256, /* programs for whom no server is warm yet; further ones are refused */
    FLYT_NODE_WAIT_MS = 9000, /* each waits so long at most: a program gives up by itself after 10 s, without a cause */
    /* One for whom there is no place is held at the listener: that an earlier one has ended may be on its way to us. */
    FLYT_NODE_HOLD_MS =
        2000,                /* so long (node->attach->hold_ms), or FLYT_NODE_WAIT_MS where a session is known to end */
    FLYT_NODE_HELD_MAX = 16, /* of one allocation; and FLYT_NODE_WAITING_MAX of all: further ones are refused at once */
    FLYT_NODE_START_MS = 60000, /* a server that is not ready by then hangs in the driver */
};

/* Who is told of what happens. */
struct flyt_node_hooks {
    void *user;
    /* Something that a person may want to know. `object` names what it is about. */
    void (*event)(void *user, const char *kind, const char *object, const char *text);
    /* What a heartbeat tells has changed in a way that somebody waits for. */
    void (*changed)(void *user);
};

/* The greatest of what happened at one GPU when servers start: after a failure the next waits. */
struct flyt_node_starts {
    unsigned starting, warm, serving; /* servers of this GPU in these states */
    unsigned failures;                /* in a row */
    uint64_t after_ms;                /* not before */
    bool lacks_user;                  /* the last one could not start for that: processes have all of server_uids */
};

/* A fault that MPS's clients share (fault.h). */
enum { FLYT_NODE_FAULT_NAME_BYTES = 160 };

struct flyt_node_fault {
    struct flyt_node *node;
    struct flyt_node_gpu *gpu;
    sd_event_source *timer; /* until it is judged, then until those that were hit are ended; NULL: there is none */
    bool is_judged;
    uint64_t reported_ms; /* when the first server told of it */
    /* Of the last server with a session there that ended by a signal: "program a of VM 10.0.0.1, ended by signal 9". */
    char killed[FLYT_NODE_FAULT_NAME_BYTES];
    uint64_t killed_ms; /* when; 0: there was none */
};

/* Why a session was ended by what its GPU's account shows of it. */
enum flyt_node_watched {
    FLYT_NODE_WATCHED_OUT_OF_TIME_SLICE,
    FLYT_NODE_WATCHED_TIME_SLICE_KEPT,
    FLYT_NODE_WATCHED_OVER_MEMORY,
    FLYT_NODE_WATCHED_COUNT,
};

/* An allocation goes, and is in no list any more: what belongs to it goes with it; for good where is_final, else the
 * node manager ends. */
typedef void flyt_node_allocation_end_fn(struct flyt_node_allocation *allocation, bool is_final);

struct flyt_node {
    sd_event *event;
    struct flyt_node_events events; /* what has happened (events.h) */
    struct flyt_daemon *daemon;     /* NULL: no descriptor store */
    const struct flyt_node_settings *settings;
    struct flyt_node_hooks hooks;
    /* A migration is done, for what is counted as that happens (report.h); NULL: nobody looks. */
    void (*observe)(struct flyt_node_metrics *metrics, const flyt_migration_use *use);
    struct flyt_node_metrics *metrics;
    struct flyt_node_mps *mps; /* NULL: no MPS */
    struct flyt_node_gpu_account account;
    struct flyt_node_cgroups cgroups;
    struct flyt_node_uids uids;
    char name[FLYT_NAME_BYTES_MAX + 1];
    uint64_t started_ms;
    unsigned client_lost_s;

    struct flyt_node_state state;    /* without its allocations */
    struct flyt_node_writer *writer; /* of the state file (writer.h); NULL: nothing is written any more */
    bool is_unsaved;                 /* the state file lacks something: tried again soon (writer.h) */
    uint64_t epoch_written;          /* what the file on the disk has: the state's may be ahead (writer.h) */
    uint64_t epoch_refused;          /* the last one that was too low: told once */
    struct flyt_node_gpus gpus;
    char driver_version[FLYT_NODE_DRIVER_BYTES];   /* as NVML says; "": not known */
    unsigned cuda_version;                         /* likewise; 0 */
    struct flyt_node_starts starts[FLYT_GPUS_MAX]; /* by GPU */
    struct flyt_node_vm_devices *vm_devices;       /* whose files are made and removed (vm_device.h); NULL: none yet */
    struct flyt_node_libraries *libraries;         /* of NVIDIA's, that there are (libraries.h) */
    struct flyt_node_allocation *allocations;
    struct flyt_node_ops *ops;                           /* what operations have of the node (ops/ops.h) */
    struct flyt_node_attach *attach;                     /* where programs come in (attach/attach.h) */
    const struct flyt_node_session_ops *session_ops;     /* what operations know of sessions (server.h) */
    flyt_node_allocation_end_fn *const *allocation_ends; /* who else goes with one, in that order; NULL ends it */
    unsigned allocation_count;
    struct flyt_node_server *servers;
    unsigned server_count, starting_count;
    struct flyt_node_session *sessions; /* all of them (session.h) */
    unsigned session_count, away_count; /* away: that wait for their client, or end, without a server */
    struct flyt_node_tombstones *ended; /* why the last sessions have ended (tombstones.h); NULL: none has */
    struct flyt_node_waiting *waiting_first, *waiting_last;
    unsigned waiting_count; /* with a place: for a server */
    unsigned held_count;    /* besides: for a place */
    uint64_t stop_ms;       /* at the end: processes that were killed are waited for until then */

    char link_path[FLYT_MANAGER_LINK_PATH_BYTES];
    sd_event_source *reattach_timer;
    struct flyt_node_images *images; /* folders that are removed (images.h) */
    struct flyt_worker *spawner;     /* starts server processes (spawn.h); NULL: none was started yet */
    bool is_reattaching;             /* servers of before the restart may still come */

    struct flyt_node_fault faults[FLYT_GPUS_MAX]; /* by GPU */

    /* Since the start, for metrics. */
    uint64_t sessions_started, sessions_refused, sessions_resumed, sessions_moved;
    uint64_t migrations_ended, migrations_done;
    uint64_t receives_ended, receives_done;
    uint64_t time_slices_overdue; /* times that a server has worked on beyond its time slice */
    uint64_t watched[FLYT_NODE_WATCHED_COUNT];
};

/* Writes the state file, and waits for the disk: at the start only. Else writer.h. 0, or a negative errno, which is
 * logged. */
int flyt_node_save(struct flyt_node *node);
/*
 * An epoch was seen, in an order: where it is higher than any before, lower ones are refused from now on, and it is
 * written soon, again and again where it cannot be (writer.h). No order of it is carried out before that. 0; -EAGAIN:
 * it is not written yet, who asks repeats it; -ESTALE: it is lower than the highest, which is logged and told; -EINVAL:
 * no leader can have it. Waits for no disk.
 */
int flyt_node_see_epoch(struct flyt_node *node, uint64_t epoch);
/* Hooks, with a printf-like text. */
void flyt_node_tell(struct flyt_node *node, const char *kind, const char *object, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void flyt_node_changed(struct flyt_node *node);

/* The descriptor store; nothing happens without it. Names: letters, digits, '-'. */
void flyt_node_keep(struct flyt_node *node, const char *name, int fd);
void flyt_node_forget(struct flyt_node *node, const char *name);
/* Whether who gives orders with this epoch leads; else *ret_outcome says why not. */
bool flyt_node_is_led(struct flyt_node *node, uint64_t epoch, flyt_outcome *ret_outcome);
/* NULL: there is none. */
struct flyt_node_checkpointed *flyt_node_checkpointed_find(const struct flyt_node *node, uint64_t session_id);

#endif
