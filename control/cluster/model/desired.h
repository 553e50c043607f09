/*
 * What operators want for a VM: the documents of vm_required_resources and tenants, written by hand or by flytctl.
 * Reading one is a pure function; any thread.
 *
 * The watch finds what has changed between two readings of a collection. It keeps a hash of each document, so that a
 * reading of 10,000 unchanged documents costs one pass over them, on the thread that reads.
 */
#ifndef FLYT_CLUSTER_DESIRED_H
#define FLYT_CLUSTER_DESIRED_H

#include <cjson/cJSON.h>

#include "control/cluster/model/placement.h"
#include "control/cluster/model/quota.h"
#include "rpc/base/error.h"

/* Which SMs programs are told that their GPU has: those that it has when they ask, or those that it keeps. */
enum flyt_shown { FLYT_SHOWN_PRESENT, FLYT_SHOWN_MINIMUM };
enum flyt_sharing { FLYT_SHARING_EXCLUSIVE, FLYT_SHARING_TIME };

struct flyt_desired {
    char *vm_ip;
    char *name, *host_ip, *tenant; /* NULL where absent */
    unsigned sm_count;             /* compute_units, of each device */
    uint64_t memory_bytes;         /* of each device */
    unsigned device_count;
    unsigned session_count; /* 0: the configuration's default */
    int policy;             /* enum flyt_policy, -1: the configuration's */
    int isolation;          /* enum flyt_isolation, -1: the configuration's */
    int sharing;            /* enum flyt_sharing, -1: see flyt_vm_share */
    int minimum_share_pct;  /* of the time of SMs that are shared, -1: absent; */
    int maximum_share_pct;  /* likewise */
    unsigned window_ms;     /* 0: the configuration's */
    int priority;
    unsigned minimum_sms; /* that it has whatever happens, at most sm_count; 0: none */
    int shown;            /* enum flyt_shown */
    bool is_suspended;
    bool is_reserved;
    struct flyt_name_list include_types, exclude_types, include_gpus, exclude_gpus;
    struct flyt_name_list libraries; /* flyt_place_libraries_read takes each of them */
};

/*
 * Reads a document. 0 and *ret_desired (flyt_desired_free); or -EINVAL and a sentence that names the field and what is
 * wrong with its value. Numbers may be any of BSON's in extended JSON ({"$numberDecimal": "4.5"}).
 */
int flyt_desired_read(const cJSON *document, struct flyt_error *err, struct flyt_desired *ret_desired);
/* What programs are to be told (flyt_allocation.shown_sms). */
unsigned flyt_desired_shown(const struct flyt_desired *desired);
/* Of a VM without a document: everything absent. */
void flyt_desired_init(struct flyt_desired *desired);
/* Frees the fields and zeroes them. */
void flyt_desired_free(struct flyt_desired *desired);
/* The vm_ip of a document that may be wrong otherwise; NULL: it has none. */
const char *flyt_desired_vm_ip(const cJSON *document);
/* The document's _id as text (any BSON value: its JSON); malloc'ed, NULL: no memory. */
char *flyt_desired_id(const cJSON *document);

/* A tenant's document; its members are quotas, absent or 0: none. 0, or -EINVAL and *err. */
int flyt_quota_read(const cJSON *document, struct flyt_error *err, struct flyt_quota *ret_quota);

/* ---- changes ---- */

struct flyt_watch;

/* One document that was added or changed (document set) or has gone (NULL). */
struct flyt_change {
    char *id;
    cJSON *document;
};

struct flyt_changes {
    struct flyt_change *items;
    size_t count;
};

struct flyt_watch *flyt_watch_new(void);
struct flyt_watch *flyt_watch_free(struct flyt_watch *watch);
/* Compares all documents of a collection (an array) with the reading before; takes those that changed out of the
 * array. 0 and *ret_changes (flyt_changes_free), or -ENOMEM: then the next reading finds them again. */
int flyt_watch_compare(struct flyt_watch *watch, cJSON *documents, struct flyt_changes *ret_changes);
void flyt_changes_free(struct flyt_changes *changes);

#endif
