/* Allocations in the registry. */
#ifndef FLYT_CLUSTER_MODEL_ALLOCATION_H
#define FLYT_CLUSTER_MODEL_ALLOCATION_H

#include <sys/queue.h>

#include "control/cluster/model/slot.h"
#include "control/cluster/model/share.h"

struct flyt_adoption;
struct flyt_cluster;
struct flyt_migration;
struct flyt_node;
struct flyt_resize;
struct flyt_vm;

/* Bounds of what a node's word can raise: a document's numbers are exact up to 2^53, and the next ones must have room.
 */
#define FLYT_REVISION_MAX   (1ull << 52)
#define FLYT_GENERATION_MAX (1u << 31)

TAILQ_HEAD(flyt_allocation_list, flyt_cluster_allocation);

/* An allocation. */
struct flyt_cluster_allocation {
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
    bool is_encrypted; /* as the setting was when it was granted */
    bool is_granted;   /* written to all its GPUs; else it is being made */
    bool is_leaving;   /* being taken away */
    bool is_closing;   /* blocked to be taken away, if no program comes before the node knows */
    bool is_new;       /* granted by this manager, and its node has not taken it yet */
    bool is_gone;      /* its node has nothing of it any more */
    uint64_t written_revision;
    uint64_t write_asked, write_done, write_failed; /* numbers of the last one of each (flyt_allocation_write) */
    uint64_t failed_revision;                       /* the last one that the store did not take, or not for sure; why */
    char *failed_text;
    uint64_t answer_count;      /* of orders */
    uint64_t answered_revision; /* the last one of which an order has its answer: */
    int answer_error;           /* it had none, a negative errno */
    flyt_status answer_status;  /* else this, with its sentence */
    char *answer_text;
    uint64_t mend_ms;       /* monotonic: what failed is not tried again before */
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
    bool is_order_due;                /* as soon as what it is now is written */
    uint64_t doubted_revision;        /* that its node claims, and nobody believes; told once */
    struct flyt_adoption *adoption;   /* being written */
    struct flyt_resize *resize;       /* under way */
    struct flyt_migration *migration; /* likewise */
    flyt_status moved_status;         /* how the last one has ended, with its sentence */
    char *moved_text;
    bool is_unseen; /* in the cluster's list of those to be looked at */
    TAILQ_ENTRY(flyt_cluster_allocation) unseen_entry;
    uint64_t grow_ms;                /* monotonic: a part that has less than it wants is not tried to grow before */
    TAILQ_HEAD(, flyt_drain) drains; /* who waits until nothing runs on what was taken away */
    unsigned slot_count;
    struct flyt_cluster_slot slots[];
};

/* By state; "" for none of them (0), NULL behind the last. */
extern const char *const flyt_allocation_state_names[];
const char *flyt_allocation_state_name(enum flyt_allocation_state state);
struct flyt_cluster_allocation *flyt_allocation_find(struct flyt_cluster *cluster, uint64_t id);
/* An active one without parts, in the table of the cluster; texts are copied, parts are 1 to FLYT_SLOTS_MAX. NULL: no
 * memory, or the id is there. */
struct flyt_cluster_allocation *flyt_allocation_new(struct flyt_cluster *cluster, uint64_t id, const char *vm_ip,
                                                    const char *tenant, unsigned slot_count);
/* Whether one of its own parts is on the GPU. */
bool flyt_allocation_is_on(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_gpu *gpu);
/* Whether the store has what it is now. What was not written is not ordered: flyt_allocation_order waits for the write.
 */
bool flyt_allocation_is_written(const struct flyt_cluster_allocation *allocation);
/* Charges its tenant (or takes the charge back). Around every change of parts. */
void flyt_allocation_charge(struct flyt_cluster_allocation *allocation, bool is_taken);
/* Takes its node's word down. */
void flyt_allocation_note_use(struct flyt_cluster_allocation *allocation, const flyt_allocation_use *use);
/* Whether something that was taken away is in use no more, as far as its node has said; release: then it is free. */
bool flyt_allocation_has_emptied(struct flyt_cluster_allocation *allocation, bool release);
/* It has no sessions, from now on; or has some. */
void flyt_allocation_set_idle(struct flyt_cluster_allocation *allocation, bool is_idle);

#endif
