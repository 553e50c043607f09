/*
 * The registry in memory: nodes, GPUs, VMs, allocations, tenants, members, events. It is built from the store at start
 * and from what nodes report, and belongs to the loop's thread. What must outlive the process is in the store before
 * anybody is told of it (keep.h); groups, memory and client slots are charged as soon as they are chosen, so that two
 * decisions never choose the same.
 *
 * Files by family, each with the functions below its heading: node.c, gpu.c, vm.c, allocation.c (its documents in
 * allocation_document.c), adopt.c, resize.c, migration.h, saving.h, session.c, event.c, view.c, member.c, leader.c,
 * serve.c, backup.c.
 */
#ifndef FLYT_CLUSTER_CLUSTER_H
#define FLYT_CLUSTER_CLUSTER_H

#include <cjson/cJSON.h>
#include <sys/queue.h>

#include "control/base/daemon.h"
#include "control/base/metrics.h"
#include "control/base/peer.h"
#include "control/base/tls.h"
#include "control/cluster/desired.h"
#include "control/cluster/keep.h"
#include "control/cluster/settings.h"
#include "control/cluster/table.h"

/* Bounds of what a node's word can raise: a document's numbers are exact up to 2^53, and the next ones must have room.
 */
#define FLYT_REVISION_MAX   (1ull << 52)
#define FLYT_GENERATION_MAX (1u << 31)

struct flyt_cluster;
struct flyt_node;
struct flyt_vm;
struct flyt_held;
struct flyt_resize;
struct flyt_backup;
struct flyt_migration;
struct flyt_saving;

/* What the pointer of a connection's user says first: the cluster itself before `ready`, a link afterwards. */
enum flyt_user_kind { FLYT_USER_CLUSTER, FLYT_USER_LINK };

/* A connection that said HELLO, or has not yet. */
struct flyt_link {
    enum flyt_user_kind user_kind;
    struct flyt_cluster *cluster;
    struct flyt_peer *peer;
    enum flyt_peer_kind kind; /* 0: no HELLO yet */
    bool is_clear;            /* HELLO is believed */
    char name[FLYT_NAME_BYTES_MAX + 1];
    char build[FLYT_NAME_BYTES_MAX + 1];
    char address[FLYT_NAME_BYTES_MAX + 1];
    unsigned char instance[FLYT_INSTANCE_BYTES];
    uint64_t silent_since_ms; /* monotonic: without a HELLO */
    struct flyt_node *node;   /* the one that it is, or NULL */
    struct flyt_vm *vm;
    struct flyt_backup *backup; /* that it fetches, or NULL */
    TAILQ_ENTRY(flyt_link) entry;
};

struct flyt_tenant {
    const char *key; /* name */
    struct flyt_quota quota;
    bool has_document;
    struct flyt_quota used; /* by its allocations; vm_count: VMs that have one */
};

/* A GPU. What it has to give is in its node's array (flyt_gpu_capacity). */
struct flyt_card {
    const char *key; /* UUID */
    char *type;
    struct flyt_node *node;
    unsigned place; /* in the node's arrays */
    unsigned group_size, compute_major, compute_minor;
    enum flyt_health health;
    char *health_text;
    bool is_reported;        /* by the node's last registration */
    char *claimant;          /* another node that has reported it; NULL: none */
    uint64_t claim_told_ms;  /* monotonic */
    struct flyt_gpu_use use; /* of the last heartbeat; its strings are not kept */
    struct flyt_kept *kept;
    struct flyt_held **held; /* allocations with a part here */
    unsigned held_count, held_room;
};

/* The GPU time of each session in a report. */
struct flyt_times {
    struct {
        uint64_t id, gpu_time_us;
    } * items;
    unsigned count;
    uint64_t ms; /* monotonic: when it came; 0: there is none */
};

struct flyt_node {
    const char *key; /* name */
    struct flyt_cluster *cluster;
    struct flyt_place_node place;
    bool is_fenced, is_known_lost;
    bool is_registered; /* on the link that it has */
    char *boot_id, *host_ip, *build;
    char *data_urls[FLYT_URLS_MAX];
    unsigned data_url_count;
    unsigned char node_key[FLYT_KEY_BYTES]; /* never leaves the memory */
    unsigned key_number;
    unsigned server_uid, server_uid_last; /* of its server processes, as it has registered: a range, or one */
    bool has_key;
    uint64_t last_seen_ms;  /* wall */
    uint64_t last_heard_ms; /* monotonic; of the start where the store knows the node only */
    struct flyt_link *link;
    struct flyt_card **cards; /* parallel to place.gpus */
    struct flyt_session_use *sessions;
    unsigned session_count;
    uint64_t sessions_ms;         /* monotonic: when they came */
    struct flyt_times earlier[2]; /* of reports before, the older one first: what use is compared with */
    char *driver_version;         /* NULL: not known */
    unsigned cuda_version;        /* 0: not known */
    flyt_needs_args needs;        /* of its sessions; owned */
    flyt_libraries_args opened;   /* by its sessions; owned. Its own libraries are in `place`. */
    uint64_t doubted_epoch;       /* that it claims, and nobody believes; told once */
    unsigned shown_held_count;    /* for view.c, while it shows a page of nodes */
    struct flyt_kept *kept;
};

/* What an allocation has of one GPU. */
struct flyt_part {
    struct flyt_card *card;
    unsigned device_index;
    unsigned wanted_sms; /* what was asked for; sm_count is whole groups */
    unsigned sm_count;
    struct flyt_groupset groups;
    struct flyt_groupset leaving; /* taken away, but programs may still run there: charged */
    uint64_t memory_bytes;
    uint64_t leaving_bytes; /* above memory_bytes, not given back yet: charged */
    uint64_t revision;      /* of the entry that it was read from */
};

/* How an allocation shares SMs in time. */
struct flyt_share {
    bool is_timed;                     /* false: its SMs are its own (of a strict GPU: as a part of the time) */
    unsigned minimum_pct, maximum_pct; /* maximum 0: no bound */
    unsigned window_ms;
};

struct flyt_order_waiter;

/* An allocation. */
struct flyt_held {
    const char *key; /* id_text */
    char id_text[17];
    uint64_t id;
    struct flyt_cluster *cluster;
    char *vm_ip, *tenant;
    struct flyt_vm *vm; /* NULL: the VM is not known (an orphan's) */
    struct flyt_node *node;
    enum flyt_allocation_state state;
    enum flyt_isolation isolation;
    uint64_t revision;
    unsigned generation, sessions_max;
    int priority;
    struct flyt_share share;
    unsigned shown_sms; /* that programs which begin are told; 0: those that there are */
    bool is_suspended;
    bool is_reserved, when_free;
    bool is_encrypted;    /* as the setting was when it was granted */
    bool is_granted;      /* written to all its GPUs; else it is being made */
    bool is_leaving;      /* being taken away */
    bool is_blocked_idle; /* blocked to be taken away, if no program comes before the node knows */
    uint64_t written_revision;
    uint64_t mend_ms;       /* monotonic: not mended again before */
    uint64_t open_revision; /* by which new programs are let in (again) */
    uint64_t created_ms;
    uint64_t idle_since_ms; /* wall; 0: it has sessions */
    uint64_t idle_clock_ms; /* the same, monotonic, as far as this process knows */
    uint64_t lingered_ms;   /* before that */
    /* what the node says */
    uint64_t applied_revision;
    unsigned session_count;
    unsigned use_count;
    struct flyt_slot_use uses[FLYT_SLOTS_MAX];
    enum flyt_status use_status;
    char *use_text;
    bool is_ordering;
    bool is_order_due;         /* as soon as what it is now is written */
    uint64_t doubted_revision; /* that its node claims, and nobody believes; told once */
    STAILQ_HEAD(, flyt_order_waiter) order_waiters;
    struct flyt_resize *resize;       /* under way */
    struct flyt_migration *migration; /* likewise */
    uint64_t grow_ms;                 /* monotonic: a part that has less than it wants is not tried to grow before */
    TAILQ_HEAD(, flyt_drain) drains;  /* who waits until nothing runs on what was taken away */
    unsigned part_count;
    struct flyt_part parts[];
};

/* A desired document. */
struct flyt_wish {
    const char *key; /* _id */
    char *vm_ip;     /* whose it is, also where it is malformed; NULL: nobody's */
    bool is_malformed;
    bool is_fresh; /* desired is to be taken over, which empties it */
    bool is_same;  /* as it was when it was taken over last */
    struct flyt_desired desired;
    cJSON *document;
    struct flyt_vm *vm; /* that vm_ip names, in whose list it is */
    LIST_ENTRY(flyt_wish) entry;
    unsigned put_back_count; /* resizes that are putting it back: what was read of it before is not what it says */
};

struct flyt_vm_call {
    struct flyt_call *call;
    uint64_t start_ns;
    STAILQ_ENTRY(flyt_vm_call) entry;
};

struct flyt_vm {
    const char *key; /* vm_ip */
    struct flyt_cluster *cluster;
    bool has_desired; /* an accepted document */
    bool is_deleted;  /* it had one */
    LIST_HEAD(, flyt_wish) wishes;
    unsigned wish_count;   /* documents that name it, malformed ones too */
    uint64_t doubled_poll; /* the reading that found several documents */
    struct flyt_desired desired;
    struct flyt_held *held;
    struct flyt_link *link;
    unsigned program_count;
    uint64_t memory_told_ms; /* when it last said that it does not use what it shares with its host */
    bool is_placing;
    char *reason; /* why it has not what it should have */
    STAILQ_HEAD(, flyt_vm_call) attaching;
    uint64_t reserve_ms; /* monotonic: when a reserved one that has no allocation is placed, or tried again */
    TAILQ_HEAD(, flyt_resize) resizes; /* the first is under way */
    bool wants_again;                  /* its document changed meanwhile */
};

struct flyt_member {
    const char *key; /* "node:NAME" */
    char *serial;
    uint64_t enrolled_ms;
    struct flyt_kept *kept;
};

struct flyt_token {
    const char *key; /* SHA-256 of the secret */
    enum flyt_peer_kind kind;
    char *name;
    uint64_t expires_ms;
    struct flyt_kept *kept;
};

/* Events in memory: a ring of the last ones. */
struct flyt_event_log {
    struct flyt_event *items;
    size_t room, count, first;
    uint64_t next_sequence;
    uint64_t saved_next;    /* the first that the store does not have */
    uint64_t stored_first;  /* the oldest that it has */
    uint64_t json_failures; /* flyt_json_failures() when the last one was added */
    bool is_saving;
    struct flyt_event_waiter *waiting;
    unsigned waiting_count;
};

struct flyt_cluster {
    enum flyt_user_kind user_kind;
    struct flyt_daemon *daemon;
    sd_event *event;
    const struct flyt_cluster_settings *settings;
    struct flyt_keeper *keeper;
    bool is_shared_store, is_loaded, is_leader, is_polling, polls_again;
    bool is_store_available;
    uint64_t epoch;
    uint64_t started_ms; /* monotonic */
    struct flyt_tls *tls;
    char listen_url[FLYT_URL_BYTES_MAX + 1]; /* with the port that the kernel chose; empty: none */
    int tcp_fd, unix_fd;
    struct flyt_door *tcp_door, *unix_door;
    TAILQ_HEAD(, flyt_link) links;
    struct flyt_table nodes, cards, vms, held, tenants, wishes, members, tokens;
    struct flyt_place_node **place_nodes; /* parallel to nodes.items */
    size_t place_room;
    struct flyt_watch *wish_watch, *tenant_watch, *member_watch; /* used on the store's thread */
    struct flyt_event_log events;
    sd_event_source *tick_timer, *poll_timer;
    sd_event_source *try_timer; /* vm.c; NULL: nothing is to be tried soon */
    uint64_t poll_count;
    uint64_t read_epoch; /* with which the desired documents were last read; 0: never */
    struct flyt_metrics *metrics;
    struct flyt_metrics_server *metrics_server;
    struct flyt_cluster_metrics *measures;
    struct flyt_worker *backup_reader;
    unsigned backup_count;       /* copies of the store that are being made or fetched */
    struct flyt_lead *lead;      /* leader.c */
    cJSON *migrations;           /* that are over, as they are shown; the last is the latest. NULL: none */
    struct flyt_saving *savings; /* checkpoints and restores under way, the last one first */
    cJSON *savings_over;         /* as migrations */
    unsigned refusals;           /* told in events since refusals_since_ms */
    uint64_t refusals_since_ms;
};

/* ---- common ---- */

uint64_t flyt_wall_ms(void);
/* Replies with an outcome alone: for procedures whose result is a flyt_outcome or begins with one. */
void flyt_call_outcome(struct flyt_call *call, flyt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Sets *err to the sentence, with -EINVAL, and returns the status: for what checks an order before anything is done. */
flyt_status flyt_refuse(struct flyt_error *err, flyt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "operator:alice": who makes a call. `who` has room for FLYT_NAME_BYTES_MAX + 1 bytes. */
const char *flyt_call_who(const struct flyt_call *call, char *who);
/* Replaces *text by a copy (NULL is allowed). 0 or -ENOMEM: then *text stays. */
int flyt_text_set(char **text, const char *value);

/* ---- gpu.c ---- */

struct flyt_capacity *flyt_gpu_capacity(const struct flyt_card *card);
/* Counts anew what is taken of it. */
void flyt_gpu_count(struct flyt_card *card);
/* From the store's document. 0 or a negative errno. */
int flyt_gpu_load(struct flyt_cluster *cluster, const cJSON *document);
/* From a node's report; writes the document where something in it has changed. -EEXIST: it is another node's, and stays
 * that one's until an operator says otherwise (adopt.c); an event has told so. */
int flyt_gpu_report(struct flyt_node *node, const struct flyt_gpu *report);
/* node:index, UUID or its unique beginning; NULL and *err: none or several. */
struct flyt_card *flyt_gpu_find(struct flyt_cluster *cluster, const char *name, struct flyt_error *err);
int flyt_gpu_attach(struct flyt_card *card, struct flyt_held *held);
void flyt_gpu_detach(struct flyt_card *card, struct flyt_held *held);
void flyt_gpu_set_health(struct flyt_card *card, enum flyt_health health, const char *text);
void flyt_gpu_free(struct flyt_card *card);
/* Whether another node than its own has reported it. */
bool flyt_gpu_is_claimed_by(const struct flyt_card *card, const struct flyt_node *node);
void flyt_serve_gpu_set(struct flyt_call *call, void *args);
void flyt_serve_schedule(struct flyt_call *call, void *args);

/* ---- node.c ---- */

struct flyt_node *flyt_node_get(struct flyt_cluster *cluster, const char *name); /* makes it; NULL: no memory */
int flyt_node_load(struct flyt_cluster *cluster, const cJSON *document);
bool flyt_node_is_up(const struct flyt_node *node);
/* Whether it is away for so short that it is about to come back: it, or this manager, was restarted. */
bool flyt_node_is_awaited(const struct flyt_node *node);
int flyt_node_add_card(struct flyt_node *node, struct flyt_card *card);
void flyt_node_remove_card(struct flyt_node *node, struct flyt_card *card);
/* Its connection has ended. */
void flyt_node_unlinked(struct flyt_node *node, const char *cause);
/* Looks which are lost; every second. */
void flyt_node_tick(struct flyt_cluster *cluster);
void flyt_node_free(struct flyt_node *node);
void flyt_serve_node_register(struct flyt_call *call, void *args);
void flyt_serve_node_heartbeat(struct flyt_call *call, void *args);
void flyt_serve_node_needs(struct flyt_call *call, void *args);
void flyt_serve_node_driver(struct flyt_call *call, void *args);
void flyt_serve_node_libraries(struct flyt_call *call, void *args);
void flyt_serve_node_fence(struct flyt_call *call, void *args);

/* ---- adopt.c ---- */

void flyt_serve_node_adopt(struct flyt_call *call, void *args);

/* ---- allocation_document.c ---- */

/* "active", "blocked", "ending", "orphan"; "" for none of them (0). */
const char *flyt_held_state_name(enum flyt_allocation_state state);
/* From one GPU's document: an entry of `allocations`. */
int flyt_held_load(struct flyt_card *card, const cJSON *entry);
/* After all GPUs were loaded: takes back what is not complete. */
void flyt_held_loaded(struct flyt_cluster *cluster);
cJSON *flyt_held_entry(const struct flyt_held *held, const struct flyt_card *card);
/* Reads a part of an entry: all but its card. */
void flyt_held_read_part(const cJSON *entry, unsigned slot, struct flyt_part *ret_part);
/* The allocation of an entry; it is made where it is the first. *ret_slot: which of its parts. NULL: the entry is wrong
 * (-EINVAL), or no memory (-ENOMEM). */
struct flyt_held *flyt_held_of_entry(struct flyt_cluster *cluster, const cJSON *entry, unsigned *ret_slot,
                                     int *ret_status);
/* Of these parts of it; what they are on this GPU. NULL: nothing, or no memory. */
cJSON *flyt_held_part_entry(const struct flyt_held *held, const struct flyt_part *parts, const struct flyt_card *card,
                            uint64_t revision);
/* Writes it into all its GPUs' documents; done is told once, the worst result. */
void flyt_held_write(struct flyt_held *held,
                     void (*done)(void *user, struct flyt_held *held, enum flyt_store_result result, const char *err),
                     void *user);

/* ---- allocation.c ---- */

struct flyt_held *flyt_held_find(struct flyt_cluster *cluster, uint64_t id);
/* An active one without parts, in the table of the cluster; texts are copied, parts are 1 to FLYT_SLOTS_MAX. NULL: no
 * memory, or the id is there. */
struct flyt_held *flyt_held_new(struct flyt_cluster *cluster, uint64_t id, const char *vm_ip, const char *tenant,
                                unsigned part_count);
/* Which GPUs a VM would get now; nothing is taken. 0; -ENOSPC, -EDQUOT (its tenant's quota) or -ENOMEM, *err says why.
 */
int flyt_held_choose(const struct flyt_vm *vm, struct flyt_placement *ret_placement, struct flyt_error *err);
/* Places a VM and writes the allocation; then done. *err says why not at once. */
int flyt_held_place(struct flyt_vm *vm, struct flyt_error *err);
/* ---- share.c ---- */

/* The minimum of its GPU's time that a part is promised. */
unsigned flyt_share_minimum(enum flyt_isolation isolation, const struct flyt_share *share,
                            const struct flyt_part *part);
/* What flyt_share_fill has made of it. */
struct flyt_share flyt_share_of(enum flyt_isolation isolation, const flyt_slot *slot, const struct flyt_part *part);
/* Share and priority of a slot, as they go to the node. */
void flyt_share_fill(const struct flyt_held *held, const struct flyt_part *part, flyt_slot *slot);
/* Whether the part's GPU can promise what this share is, in place of before_pct; else *err. */
bool flyt_share_fits(const struct flyt_held *held, unsigned before_pct, const struct flyt_share *share,
                     const struct flyt_part *part, struct flyt_error *err);
/* Adds how the allocation shares, its priority, and whether it is suspended. */
void flyt_share_add_json(const struct flyt_held *held, cJSON *object);
/* Whether the node says that nothing of its programs is on its GPUs: as long as it is suspended. */
bool flyt_share_is_still(const struct flyt_held *held);

/* What goes to a node. flyt_held_wire_free frees. */
int flyt_held_wire(const struct flyt_held *held, flyt_allocation *ret_wire);
/* The same with other parts. */
int flyt_held_wire_parts(const struct flyt_held *held, const struct flyt_part *parts, flyt_allocation *ret_wire);
void flyt_held_wire_free(flyt_allocation *wire);
/* Orders the node to hold what there is now. done (may be NULL): status 0 and the node's outcome, or a negative errno
 * where the node cannot be asked; called once, also when the allocation goes (-ECANCELED). */
typedef void (*flyt_order_done_fn)(void *user, int status, const flyt_outcome *outcome);
void flyt_held_order(struct flyt_held *held, flyt_order_done_fn done, void *user);
/* Whether the store has what it is now. What was not written is not ordered: flyt_held_order waits for the write. */
bool flyt_held_is_written(const struct flyt_held *held);
/* A write has ended: orders what waited for it. */
void flyt_held_written(struct flyt_held *held);
/* Its node has it at a revision or generation that is not below its own: it goes on above that, and true, where that is
 * one that a manager can have given (an older store was restored); it is to be written then. */
bool flyt_held_outgrow(struct flyt_held *held, uint64_t revision, unsigned generation);
/* A node's word on it. */
void flyt_held_used(struct flyt_held *held, const flyt_allocation_use *use);
/* Takes it away: its sessions end on the node, then the store forgets it. */
void flyt_held_end(struct flyt_held *held, const char *who, const char *why);
/* An allocation that the store does not know; charged. NULL: no memory, or nothing of it is on this node. */
struct flyt_held *flyt_held_orphan(struct flyt_node *node, const flyt_allocation *wire);
void flyt_held_set_state(struct flyt_held *held, enum flyt_allocation_state state);
/* Charges its tenant (or takes the charge back). Around every change of parts. */
void flyt_held_charge(struct flyt_held *held, bool is_taken);
/* Idle ones; every second. */
void flyt_held_tick(struct flyt_cluster *cluster);
/* Forgets it at once, here and in the store. */
void flyt_held_drop(struct flyt_held *held);
void flyt_held_free(struct flyt_held *held);
/* It has no sessions, from now on; or has some. */
void flyt_held_set_idle(struct flyt_held *held, bool is_idle);
cJSON *flyt_held_json(const struct flyt_held *held);
void flyt_serve_allocation(struct flyt_call *call, void *args);

/* ---- vm.c ---- */

struct flyt_vm *flyt_vm_get(struct flyt_cluster *cluster, const char *vm_ip); /* makes it; NULL: no memory */
/* vm_ip or a unique name. */
struct flyt_vm *flyt_vm_find(struct flyt_cluster *cluster, const char *name, struct flyt_error *err);
void flyt_vm_set_reason(struct flyt_vm *vm, const char *reason);
/* What placement is asked for a VM. */
void flyt_vm_request(const struct flyt_vm *vm, struct flyt_place_request *ret_request);
/* As its document and the configuration say. Who names a minimum or a maximum shares SMs, unless he says that he does
 * not. */
struct flyt_share flyt_vm_share(const struct flyt_vm *vm);
/* Answers who waits for a grant. status OK: the grant. */
void flyt_vm_answer(struct flyt_vm *vm, flyt_status status, const char *text);
/* Tells the client manager what its VM has now. */
void flyt_vm_tell(struct flyt_vm *vm, const char *reason);
void flyt_vm_unlinked(struct flyt_vm *vm);
/* Soon tries again to give what VMs wait for: a node has registered. */
void flyt_vm_try_soon(struct flyt_cluster *cluster);
/* Tries it now, and frees those that nothing holds any more; every second. */
void flyt_vm_tick(struct flyt_cluster *cluster);
void flyt_vm_free(struct flyt_vm *vm);
void flyt_serve_vm_attach(struct flyt_call *call, void *args);
void flyt_serve_vm_report(struct flyt_call *call, void *args);
void flyt_serve_vm_memory(struct flyt_call *call, void *args);
void flyt_serve_vm_set(struct flyt_call *call, void *args);
void flyt_serve_vm_remove(struct flyt_call *call, void *args);

/* ---- vm_device.c ---- */

void flyt_serve_vm_device(struct flyt_call *call, void *args);
/* A VM was removed: the nodes that are connected are told to keep no memory of it. What they answer is only logged. */
void flyt_vm_device_forget(struct flyt_cluster *cluster, const char *vm_ip);

/* ---- usage.c ---- */

/* What the VM that asks has and uses. Places nothing. */
void flyt_serve_vm_usage(struct flyt_call *call, void *args);

/* ---- wish.c ---- */

/* Changed documents of vm_required_resources, all that one reading found, and of tenants. */
void flyt_wishes_changed(struct flyt_cluster *cluster, const struct flyt_change *changes, size_t change_count);
void flyt_tenant_changed(struct flyt_cluster *cluster, const struct flyt_change *change);
struct flyt_tenant *flyt_tenant_get(struct flyt_cluster *cluster, const char *name);
/* What this manager has written itself: taken over at once. document NULL: deleted. */
void flyt_wish_written(struct flyt_cluster *cluster, const char *id, const cJSON *document);
/* Reads the desired documents now; again where a reading is under way. */
void flyt_wish_poll(struct flyt_cluster *cluster);
void flyt_wish_free(struct flyt_wish *wish);
/* The one document of a VM that counts, NULL: none or several. */
struct flyt_wish *flyt_wish_of(struct flyt_cluster *cluster, const char *vm_ip);
void flyt_serve_tenant_set(struct flyt_call *call, void *args);

/* ---- resize.c ---- */

/* A VM's document wants other SMs or memory than are granted. */
void flyt_resize_wanted(struct flyt_vm *vm);
void flyt_resize_used(struct flyt_held *held);
/* Gives VMs that have fewer SMs than they want what has become free; every second. */
void flyt_resize_tick(struct flyt_cluster *cluster);
/* The VM gets another size on another GPU: its document first, then it moves. The call is answered then. */
flyt_status flyt_resize_migrate(struct flyt_vm *vm, const flyt_migrate_args *args, struct flyt_call *call,
                                struct flyt_error *err);
/* That has ended: OK, or the document is put back. */
void flyt_resize_migrated(struct flyt_held *held, flyt_status status, const char *text);
/* The allocation goes: what is under way fails. */
void flyt_resize_cancel(struct flyt_vm *vm, const char *why);
void flyt_serve_resize(struct flyt_call *call, void *args);

/* ---- drain.c ---- */

/* SMs that were taken away and that the node has not said to be free. */
unsigned flyt_held_draining(const struct flyt_held *held);
/* A node's word on it has come. */
void flyt_drain_look(struct flyt_held *held);
/* It goes: so does everything that runs on it. */
void flyt_drain_end(struct flyt_held *held);
void flyt_serve_drain(struct flyt_call *call, void *args);

/* ---- session.c ---- */

/* The SMs that the session's launches have needed of a slot; 0: none in particular. */
unsigned flyt_session_needed(const struct flyt_node *node, uint64_t session_id, unsigned slot);
/* Adds what the sessions of an allocation have opened of NVIDIA's libraries, in the versions of the node where they
 * are. */
void flyt_session_opened(const struct flyt_held *held, struct flyt_place_libraries *libraries);
/* Whether no running program's launches have needed more SMs than it is to have in place of those before; else *err. */
bool flyt_session_needs_fit(const struct flyt_held *held, const struct flyt_part *before, const struct flyt_part *after,
                            struct flyt_error *err);
void flyt_serve_session_kill(struct flyt_call *call, void *args);
struct flyt_session_use *flyt_session_find(struct flyt_cluster *cluster, uint64_t id, struct flyt_node **ret_node);
/* Whether it is in an image and nowhere else. */
bool flyt_session_is_checkpointed(const struct flyt_session_use *session);

/* ---- migration.h has the others ---- */

void flyt_serve_migrate(struct flyt_call *call, void *args);
void flyt_serve_migrate_cancel(struct flyt_call *call, void *args);
void flyt_serve_node_migration(struct flyt_call *call, void *args);

/* ---- saving.h has the others ---- */

void flyt_serve_checkpoint(struct flyt_call *call, void *args);
void flyt_serve_restore(struct flyt_call *call, void *args);

/* ---- event.c ---- */

/* Something that a person may want to know later. before and after: JSON objects, which are taken over, or NULL. */
void flyt_event_add(struct flyt_cluster *cluster, const char *kind, const char *who, const char *object, cJSON *before,
                    cJSON *after, const char *format, ...) __attribute__((format(printf, 7, 8)));
int flyt_event_load(struct flyt_cluster *cluster, const cJSON *document);
void flyt_event_fini(struct flyt_cluster *cluster);
void flyt_event_save(struct flyt_cluster *cluster);
/* At the end: gives the store's thread all that the store does not have. */
void flyt_event_save_all(struct flyt_cluster *cluster);
/* Answers FLYT_VIEW of events, now or when there are new ones. */
void flyt_event_view(struct flyt_cluster *cluster, struct flyt_call *call, const flyt_view_args *args);
void flyt_event_tick(struct flyt_cluster *cluster);
void flyt_serve_node_event(struct flyt_call *call, void *args);

/* ---- view.c, explain.c ---- */

void flyt_serve_view(struct flyt_call *call, void *args);
/* An array of sentences' objects, NULL: no memory. */
cJSON *flyt_explain(struct flyt_vm *vm);
cJSON *flyt_view_session(const struct flyt_node *node, const struct flyt_session_use *session);
cJSON *flyt_view_held(const struct flyt_held *held, const struct flyt_part *part);
/* Replies with an array, which is freed. */
void flyt_view_reply(struct flyt_call *call, flyt_status status, const char *text, cJSON *array, uint64_t next);

/* ---- member.c ---- */

bool flyt_member_admit(struct flyt_identity *identity, void *cluster);
/* The records have just been read: closes the connections from before that they do not admit. */
void flyt_member_recheck(struct flyt_cluster *cluster);
/* The store was read: a VM with an allocation, whose record was removed while no manager looked, is revoked now. */
void flyt_member_expel_removed(struct flyt_cluster *cluster);
int flyt_member_load(struct flyt_cluster *cluster, const cJSON *document);
int flyt_token_load(struct flyt_cluster *cluster, const cJSON *document);
void flyt_member_changed(struct flyt_cluster *cluster, const struct flyt_change *change);
void flyt_member_free(struct flyt_member *member);
void flyt_token_free(struct flyt_token *token);
const char *flyt_kind_name(enum flyt_peer_kind kind);
void flyt_serve_enrol(struct flyt_call *call, void *args);
void flyt_serve_join_token(struct flyt_call *call, void *args);
void flyt_serve_revoke(struct flyt_call *call, void *args);
void flyt_serve_admit(struct flyt_call *call, void *args);

/* ---- leader.c ---- */

/* Loads the store and begins to decide, when it may; calls ready once. */
int flyt_lead_start(struct flyt_cluster *cluster, struct flyt_error *err);
/* Leads no more and takes the lease no more. */
void flyt_lead_stop(struct flyt_cluster *cluster);
/* After that, when all that was to be written is: gives the lease to who wants it, waiting up to so long. Then the
 * keeper goes, then flyt_lead_free. */
bool flyt_lead_release(struct flyt_cluster *cluster, uint64_t timeout_ms);
void flyt_lead_free(struct flyt_cluster *cluster);
/* A copy of a GPU's document with this epoch. NULL: no memory for all of it. Any thread. */
cJSON *flyt_lead_raised(const cJSON *document, uint64_t epoch);
/* A higher epoch is in the store: somebody else leads. */
void flyt_lead_lost(struct flyt_cluster *cluster, uint64_t epoch, const char *why);
/* A node says that it has seen a higher epoch. Whether another one leads is looked up in the store; where this one
 * does, it goes above that epoch, or does not believe it (claims.h): then an event says so, once for each node and
 * epoch. */
void flyt_lead_claimed(struct flyt_cluster *cluster, struct flyt_node *node, uint64_t epoch);
/* Whether operators' documents were read since this manager leads: until then nobody lacks one. */
bool flyt_lead_knows_wishes(const struct flyt_cluster *cluster);
/* Whether decisions may be made and changed now; else replies. People wait until their documents are known. */
bool flyt_lead_may(struct flyt_cluster *cluster, struct flyt_call *call);
/* Replies who is to be asked instead, or that it takes a moment. */
void flyt_lead_refuse(const struct flyt_cluster *cluster, struct flyt_call *call);
/* The address of another manager that leads, as far as the lease says; NULL: this one, or nobody that is known. */
const char *flyt_lead_elsewhere(const struct flyt_cluster *cluster);
/* The epoch of who leads, this or another manager; 0: that is not known. */
uint64_t flyt_lead_known_epoch(const struct flyt_cluster *cluster);
/* The leaders' addresses, at most FLYT_MANAGERS_MAX; borrowed. */
unsigned flyt_lead_addresses(const struct flyt_cluster *cluster, flyt_url_text *ret_urls);

/* ---- serve.c ---- */

extern const struct flyt_program flyt_cluster_program;
void flyt_link_ready(struct flyt_peer *peer, void *user);
void flyt_link_ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user);
/* Enters what said HELLO into the registry; nothing happens where this manager does not lead. */
void flyt_link_enter(struct flyt_link *link);
struct flyt_link *flyt_call_link(const struct flyt_call *call);
struct flyt_cluster *flyt_call_cluster(const struct flyt_call *call);
/* Closes connections that have not said HELLO for 10 s; every second. */
void flyt_links_tick(struct flyt_cluster *cluster);
/* Closes a connection from this side; the link is freed. */
void flyt_link_close(struct flyt_link *link, const char *why);
/* Its connection has ended or is closed: frees what it has. Returns NULL. */
struct flyt_link *flyt_link_free(struct flyt_link *link);
/* Everything in memory but connections is forgotten. */
void flyt_cluster_forget(struct flyt_cluster *cluster);

/* ---- backup.c ---- */

/* Removes what a killed manager of this name has left of a copy that it made. 0, or a negative errno and *err. */
int flyt_backup_start(struct flyt_cluster *cluster, struct flyt_error *err);
/* Waits for a chunk that is being read. Every connection and the keeper have ended before. */
void flyt_backup_stop(struct flyt_cluster *cluster);
/* A connection ends, and with it the copy that it fetches, if there is one. */
void flyt_backup_end(struct flyt_link *link);
void flyt_serve_backup(struct flyt_call *call, void *args);

/* ---- measure.c ---- */

int flyt_measure_start(struct flyt_cluster *cluster, struct flyt_error *err);
void flyt_measure_stop(struct flyt_cluster *cluster);
void flyt_measure_call(const char *procedure, bool is_served, uint64_t took_us, bool has_failed, void *user);
void flyt_measure_store(const char *operation, bool has_failed, uint64_t took_us, void *user);
void flyt_measure_attach(struct flyt_cluster *cluster, uint64_t took_us, bool has_failed);
void flyt_measure_placement(struct flyt_cluster *cluster, uint64_t took_ns);
void flyt_measure_limit(struct flyt_cluster *cluster, const char *limit);
void flyt_measure_heartbeat(struct flyt_cluster *cluster, const char *node);
/* One that is over; its phase says how. What it took is measured where it was done, and that is known. */
void flyt_measure_migration(struct flyt_cluster *cluster, const struct flyt_migration *migration);
void flyt_measure_saving(struct flyt_cluster *cluster, const struct flyt_saving *saving);

#endif
