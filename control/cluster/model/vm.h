/* VMs in the registry, with what their documents want and what they have. */
#ifndef FLYT_CLUSTER_MODEL_VM_H
#define FLYT_CLUSTER_MODEL_VM_H

#include <sys/queue.h>

#include "control/cluster/model/desired.h"
#include "control/cluster/model/share.h"

struct flyt_cluster;
struct flyt_cluster_allocation;
struct flyt_link;

/* A desired document. */
struct flyt_desired_document {
    const char *key; /* _id */
    char *vm_ip;     /* whose it is, also where it is malformed; NULL: nobody's */
    bool is_malformed;
    bool is_fresh; /* desired is to be taken over, which empties it */
    bool is_same;  /* as it was when it was taken over last */
    struct flyt_desired desired;
    cJSON *document;
    struct flyt_vm *vm; /* that vm_ip names, in whose list it is */
    LIST_ENTRY(flyt_desired_document) entry;
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
    LIST_HEAD(, flyt_desired_document) desired_documents;
    unsigned desired_count; /* documents that name it, malformed ones too */
    uint64_t doubled_poll;  /* the reading that found several documents */
    struct flyt_desired desired;
    struct flyt_cluster_allocation *allocation;
    struct flyt_link *link;
    unsigned program_count;
    uint64_t memory_told_ms; /* when it last said that it does not use what it shares with its host */
    /* Its allocation is made, or its node asked, for programs that wait; since then: */
    bool is_asked;
    uint64_t asked_write, asked_answers,
        asked_revision; /* numbers of the write, of answers before; at least this one */
    char *reason;       /* why it has not what it should have */
    STAILQ_HEAD(, flyt_vm_call) attaching;
    uint64_t reserve_ms; /* monotonic: when a reserved one that has no allocation is placed, or tried again */
    TAILQ_HEAD(, flyt_resize) resizes; /* the first is under way */
    bool wants_again;                  /* its document changed meanwhile */
};

struct flyt_vm *flyt_vm_get(struct flyt_cluster *cluster, const char *vm_ip); /* makes it; NULL: no memory */
/* vm_ip or a unique name. */
struct flyt_vm *flyt_vm_find(struct flyt_cluster *cluster, const char *name, struct flyt_error *err);
void flyt_vm_set_reason(struct flyt_vm *vm, const char *reason);
/* What placement is asked for a VM. */
void flyt_vm_request(const struct flyt_vm *vm, struct flyt_place_request *ret_request);
void flyt_vm_free(struct flyt_vm *vm);
/* The one document of a VM that counts, NULL: none or several. */
struct flyt_desired_document *flyt_desired_store_of(struct flyt_cluster *cluster, const char *vm_ip);

#endif
