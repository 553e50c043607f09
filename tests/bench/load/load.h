/*
 * A cluster in one process, for measurements and tests of the cluster manager: nodes without GPUs, VMs without
 * programs, a connection for each of them, one thread. Nodes carry out what they are ordered at once and look
 * after each order whether a GPU was given away twice; VMs attach, run a program for a while, and end it. struct load
 * is main's.
 *
 * sd-event asks the kernel for all that is ready before each single thing that it does, which with ten thousand
 * connections that end at one moment takes longer than what is measured. So the peers are spread over shards, each with
 * a loop of its own and few connections, which one thread runs in turn (shard.c). Whoever does something to a peer from
 * outside of its loop says so by load_shard_touch.
 */
#ifndef FLYT_BENCH_LOAD_H
#define FLYT_BENCH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "control/base/uplink.h"
#include "tests/system/programs/input_lines.h"

enum {
    LOAD_NODES_MAX = 65536,
    LOAD_VMS_MAX = 1 << 20,
    LOAD_GPUS_MAX = 16, /* of a node */
    LOAD_SHARD_PEERS = 64,
    LOAD_NAME_BYTES = 64,
    /* A GPU: what an H200 has. 15 groups of 8 SMs and one of 12. */
    LOAD_GROUPS = 16,
    LOAD_GROUP_SMS = 8,
    LOAD_LAST_GROUP_SMS = 12,
    LOAD_CLIENT_SLOTS = 47,
    LOAD_SESSIONS = 2, /* that a VM's document wants */
    LOAD_HEARTBEAT_MS = 2000,
    LOAD_ANSWER_MS = 30000,
    LOAD_RETRY_MS = 500, /* after "not available at this moment" */
};
#define LOAD_MEMORY_BYTES  (141ull << 30)
#define LOAD_RESERVE_BYTES (512ull << 20)

struct load;

/* An allocation as a node holds it. */
struct load_held {
    uint64_t id, revision;
    unsigned generation, sessions_max;
    flyt_allocation_state state;
    struct load_vm *vm; /* NULL: of nobody here */
    unsigned slot_count;
    struct load_slot {
        unsigned gpu, sm_count;
        uint32_t groups; /* bits */
        uint64_t memory_bytes;
    } slots[FLYT_SLOTS_MAX];
};

struct load_node {
    struct load *load;
    struct load_shard *shard;
    unsigned index;
    char name[LOAD_NAME_BYTES];
    struct flyt_uplink *uplink;
    sd_event_source *timer;
    struct load_held **held;
    unsigned held_count, held_room;
    uint64_t epoch, sequence, heartbeat_ms;
    unsigned char key[FLYT_KEY_BYTES];
    bool is_registered, is_registering;
};

struct load_vm {
    struct load *load;
    struct load_shard *shard;
    unsigned index;
    char ip[LOAD_NAME_BYTES];
    struct flyt_uplink *uplink;
    sd_event_source *timer; /* the end of its program, or asking again */
    uint64_t due_us;        /* when it was to ask */
    uint64_t allocation_id; /* of its running program */
    bool is_up, is_asking, is_called, is_running;
    bool stays; /* its program runs until the command `end` */
};

/* Numbers since the last `load` or `fill`. */
struct load_counts {
    uint64_t asked, granted, refused, again;
    uint64_t *took_us; /* of those granted */
    size_t took_count, took_room;
    char refusal[256]; /* the last one */
};

/* A loop with a few of the peers. */
struct load_shard {
    sd_event *event;
    struct load_shard *next_touched;
    bool is_touched;
};

struct load {
    sd_event *event; /* commands and pace: a shard too, the first one */
    struct load_shard *shards;
    unsigned shard_count;
    struct load_shard *touched;
    bool is_ending;
    struct flyt_strings managers;
    unsigned node_count, gpu_count, vm_count;
    uint64_t seed; /* of UUIDs, so that several of these may share a manager */
    struct load_node *nodes;
    struct load_vm *vms;
    unsigned nodes_up, vms_up; /* registered; HELLO answered by a leader */
    uint64_t down_us;          /* when the first one was missing; 0: all are there */
    uint64_t violation_count;
    struct load_counts counts;
    /* what is under way */
    sd_event_source *pace;
    unsigned next_vm, asking_count, fill_left, fill_at_once;
    uint64_t begin_us, end_us, period_ns, issued_count, hold_ms;
    bool is_loading, is_filling;
    struct input_lines input;
};

static inline uint64_t load_heartbeat_us(const struct load_node *node)
{
    return node->heartbeat_ms * 1000;
}

/* ---- shard.c ---- */

/* Makes the shards for this many peers. 0 or a negative errno. */
int load_shards_init(struct load *load, unsigned peer_count);
void load_shards_fini(struct load *load);
/* The one that a peer belongs to. */
struct load_shard *load_shard_of(struct load *load, unsigned peer);
/* Its loop has something to do that it cannot know of: a call was made, a timer was set. */
void load_shard_touch(struct load *load, struct load_shard *shard);
/* Runs all loops until load->is_ending. 0 or a negative errno. */
int load_shards_run(struct load *load);

/* ---- node.c ---- */

/* 0 or a negative errno. */
int load_node_init(struct load_node *node, struct load *load, unsigned index);
void load_node_fini(struct load_node *node);
/* "node-0007" of this load; NULL: none. */
struct load_node *load_node_find(struct load *load, const char *name);

/* ---- held.c ---- */

struct load_held *load_held_find(const struct load_node *node, uint64_t id);
/* Holds what the wire says. NULL: it names what this node does not have (a violation). */
struct load_held *load_held_take(struct load_node *node, const flyt_allocation *wire);
/* Forgets one; a violation where its program runs. */
void load_held_drop(struct load_node *node, struct load_held *held);
/* Counts what is taken of each GPU; more than it has, or the same group twice, is a violation. */
void load_held_check(struct load_node *node);
unsigned load_held_session_count(const struct load_held *held);
/* Writes a line and counts it. */
void load_violation(struct load *load, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- vm.c ---- */

/* 0 or a negative errno. */
int load_vm_init(struct load_vm *vm, struct load *load, unsigned index);
void load_vm_fini(struct load_vm *vm);
/* "10.64.0.7"; NULL: none of this load. */
struct load_vm *load_vm_find(struct load *load, const char *ip);
/* What the document of a VM wants. */
unsigned load_vm_sms(unsigned index);
uint64_t load_vm_memory_bytes(unsigned index);
void load_vm_ip(unsigned index, char ip[LOAD_NAME_BYTES]);
/* Asks for its grant; its program runs for load->hold_ms, or until load_vm_end. The VM must be idle. */
void load_vm_ask(struct load_vm *vm, uint64_t due_us, bool stays);
void load_vm_end(struct load_vm *vm);
static inline bool load_vm_is_idle(const struct load_vm *vm)
{
    return !vm->is_asking && !vm->is_running;
}

/* ---- documents.c ---- */

/* Writes the documents of `count` VMs into a store, those of tenants none. 0 or a negative errno and *err. */
int load_documents_write(const char *store, unsigned count, struct flyt_error *err);

/* ---- main.c ---- */

/* A node or a VM is there or has gone: counts are right already. */
void load_peers_changed(struct load *load);
/* A VM's question has ended. took_us counts from its due time. */
void load_answered(struct load *load, bool is_granted, uint64_t took_us, const char *refusal);

#endif
