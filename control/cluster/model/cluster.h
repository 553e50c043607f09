/*
 * The registry in memory. It is built from the store at start and from what nodes report, and belongs to the loop's
 * thread. What must outlive the process is in the store before anybody is told of it (io/store_writer.h); groups,
 * memory and client slots are charged as soon as they are chosen, so that two decisions never choose the same.
 */
#ifndef FLYT_CLUSTER_MODEL_CLUSTER_H
#define FLYT_CLUSTER_MODEL_CLUSTER_H

#include <cjson/cJSON.h>
#include <sys/queue.h>

#include "control/base/daemon.h"
#include "control/base/metrics.h"
#include "control/base/peer.h"
#include "control/base/tls.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/events.h"
#include "control/cluster/model/link.h"
#include "control/cluster/model/placement.h"
#include "control/cluster/model/settings.h"
#include "control/cluster/model/table.h"

struct flyt_cluster_metrics;
struct flyt_change;
struct flyt_door;
struct flyt_cluster_allocation;
struct flyt_store_writer;
struct flyt_lead;
struct flyt_metrics_server;
struct flyt_checkpoint_op;
struct flyt_watch;
struct flyt_worker;

/* What lower folders tell upper ones, who have it installed before anything runs (api/serve.c). */
struct flyt_cluster_ops {
    /* io/link.c: a connection has ended; the link is freed then. */
    void (*link_ended)(struct flyt_link *link, const char *cause);
    /* io/executor.c: something is known of an allocation that was not: a write has ended, an order has its answer, or
     * whatever flyt_allocation_look_soon was called for. The allocation may go. */
    void (*allocation_observed)(struct flyt_cluster_allocation *allocation);
    /* io/leader.c: each document with which leading begins, 0 or a negative errno; all were loaded; this manager leads;
     * it does not any more, and everything in memory but connections is forgotten. */
    int (*load)(struct flyt_cluster *cluster, const char *collection, const cJSON *document);
    void (*loaded)(struct flyt_cluster *cluster);
    void (*leads)(struct flyt_cluster *cluster);
    void (*forget)(struct flyt_cluster *cluster);
    /* reconcile/desired_store.c: the members' documents are read with the desired ones. */
    void (*member_changed)(struct flyt_cluster *cluster, const struct flyt_change *change);
};

struct flyt_cluster {
    enum flyt_user_kind user_kind;
    struct flyt_daemon *daemon;
    sd_event *event;
    const struct flyt_cluster_ops *ops;
    const struct flyt_cluster_settings *settings;
    struct flyt_store_writer *store_writer;
    bool is_shared_store, is_loaded, is_leader, is_polling, polls_again;
    bool is_store_available;
    uint64_t epoch;
    uint64_t started_ms; /* monotonic */
    struct flyt_tls *tls;
    char listen_url[FLYT_URL_BYTES_MAX + 1]; /* with the port that the kernel chose; empty: none */
    int tcp_fd, unix_fd;
    struct flyt_door *tcp_door, *unix_door;
    TAILQ_HEAD(, flyt_link) links;
    struct flyt_table nodes, gpus, vms, allocations, tenants, desired_documents, members, tokens;
    struct flyt_place_node **place_nodes; /* parallel to nodes.items */
    size_t place_room;
    struct flyt_watch *desired_watch, *tenant_watch, *member_watch; /* used on the store's thread */
    struct flyt_event_log events;
    sd_event_source *tick_timer, *poll_timer;
    struct flyt_allocation_list unseen; /* allocations to be looked at soon (io/executor.h) */
    sd_event_source *look_timer;
    sd_event_source *try_timer; /* reconcile/vm.c; NULL: nothing is to be tried soon */
    uint64_t poll_count;
    uint64_t read_epoch; /* with which the desired documents were last read; 0: never */
    struct flyt_metrics *metrics;
    struct flyt_metrics_server *metrics_server;
    struct flyt_cluster_metrics *measures;
    struct flyt_worker *backup_reader;
    unsigned backup_count;  /* copies of the store that are being made or fetched */
    struct flyt_lead *lead; /* io/leader.c */
    cJSON *migrations;      /* that are over, as they are shown; the last is the latest. NULL: none */
    struct flyt_checkpoint_op *checkpoint_ops; /* checkpoints and restores under way, the last one first */
    cJSON *checkpoint_ops_over;                /* as migrations */
    unsigned refusals;                         /* told in events since refusals_since_ms */
    uint64_t refusals_since_ms;
};

#endif
