/* Desired documents: read regularly, taken over where they changed; and tenants' quotas. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/cluster/io/event.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/quota.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/tenant.h"
#include "control/cluster/model/text.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/allocation.h"
#include "control/cluster/reconcile/resize.h"
#include "control/cluster/reconcile/vm.h"
#include "control/cluster/reconcile/desired_store.h"
#include "control/store/store.h"
#include "control/store/store_ops.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

enum { MEMBER_POLLS = 5 }; /* members are read each so many times: few are removed by hand */

/* Puts it into the list of the VM that it is about; NULL: of none. */
static void name_vm(struct flyt_desired_document *desired, struct flyt_vm *vm)
{
    if (desired->vm == vm)
        return;
    if (desired->vm) {
        LIST_REMOVE(desired, entry);
        desired->vm->desired_count--;
    }
    desired->vm = vm;
    if (!vm)
        return;
    LIST_INSERT_HEAD(&vm->desired_documents, desired, entry);
    vm->desired_count++;
}

void flyt_desired_store_free(struct flyt_desired_document *desired)
{
    flyt_desired_free(&desired->desired);
    name_vm(desired, NULL);
    cJSON_Delete(desired->document);
    free((char *)desired->key);
    free(desired->vm_ip);
    free(desired);
}

static bool same_text(const char *one, const char *other)
{
    return one == other || (one && other && !strcmp(one, other));
}

/* Whether what is granted has to be changed, or only what a later placement reads. is_same: it was applied before, and
 * is read again after the manager has written it itself; then the reason that holds against placing it holds on. */
static void apply(struct flyt_vm *vm, struct flyt_desired *desired, bool is_same)
{
    bool is_first = !vm->has_desired;
    struct flyt_cluster_allocation *allocation = vm->allocation;

    if (!is_first && !same_text(vm->desired.tenant, desired->tenant) && allocation)
        flyt_info("vm %s: its tenant changes with its next allocation", vm->key);
    flyt_desired_free(&vm->desired);
    vm->desired = *desired;
    memset(desired, 0, sizeof *desired);
    vm->has_desired = true;
    vm->is_deleted = false;
    if (!is_same || is_first || allocation)
        flyt_vm_set_reason(vm, NULL);
    if (!allocation)
        return;
    if (allocation->is_reserved != vm->desired.is_reserved && allocation->is_granted) {
        allocation->is_reserved = vm->desired.is_reserved;
        flyt_allocation_write(allocation);
    }
    if (allocation->state == FLYT_ALLOCATION_BLOCKED && !allocation->is_closing) {
        flyt_allocation_set_state(allocation, FLYT_ALLOCATION_ACTIVE);
        flyt_vm_tell(vm, "the VM has a document again");
    }
    flyt_resize_wanted(vm);
}

static void withdraw(struct flyt_vm *vm)
{
    if (!vm->has_desired && !vm->allocation)
        return;
    flyt_desired_free(&vm->desired);
    flyt_desired_init(&vm->desired);
    vm->has_desired = false;
    vm->is_deleted = true;
    flyt_vm_set_reason(vm, "its document was deleted");
    if (!vm->allocation)
        return;
    vm->allocation->is_closing = false;
    if (vm->allocation->state == FLYT_ALLOCATION_ACTIVE) {
        flyt_event_add(vm->cluster, "allocation.blocked", "manager", vm->allocation->id_text, NULL, NULL,
                       "VM %s has no document any more: running programs go on, new ones are not let in", vm->key);
        flyt_allocation_set_state(vm->allocation, FLYT_ALLOCATION_BLOCKED);
    }
    flyt_vm_tell(vm, "the VM's document was deleted");
}

/* Looks at all documents of a VM after one of them has changed. */
static void settle(struct flyt_cluster *cluster, const char *vm_ip, const struct flyt_desired_document *changed)
{
    struct flyt_vm *vm = flyt_table_find(&cluster->vms, vm_ip);
    struct flyt_desired_document *desired, *valid = NULL, *other = NULL;
    char sentence[700];

    if (!vm)
        return;
    unsigned count = vm->desired_count;
    LIST_FOREACH(desired, &vm->desired_documents, entry)
    {
        if (desired != changed)
            other = desired;
        if (!desired->is_malformed)
            valid = desired;
    }
    if (!count) {
        withdraw(vm);
    } else if (count > 1) {
        snprintf(sentence, sizeof sentence,
                 "documents %.255s and %.255s both have vm_ip %s: neither changes anything until one is removed",
                 changed ? changed->key : "?", other ? other->key : "?", vm_ip);
        /* Once for what one reading found, also where it found both changed. */
        if (vm->doubled_poll != cluster->poll_count)
            flyt_event_add(cluster, "document.doubled", "manager", vm_ip, NULL, NULL, "%s", sentence);
        vm->doubled_poll = cluster->poll_count;
        flyt_vm_set_reason(vm, sentence);
    } else if (valid) {
        /* The registry keeps the document's fields for this moment only: a copy would be of no use. */
        if (valid->is_fresh)
            apply(vm, &valid->desired, valid->is_same);
        valid->is_fresh = false;
    }
}

/* One of two was removed: the other one counts now, and must be read again. */
static void read_again(struct flyt_cluster *cluster, const char *vm_ip)
{
    struct flyt_desired_document *left = flyt_desired_store_of(cluster, vm_ip);

    if (left && !left->is_malformed && !left->is_fresh && left->document &&
        !flyt_desired_read(left->document, NULL, &left->desired)) {
        left->is_fresh = true;
        left->is_same = false;
    }
}

/* But for what the store and the manager keep in it. */
static bool same_content(const cJSON *one, const cJSON *other)
{
    static const char *const record[] = {"_id", "revision"};
    cJSON *copies[] = {cJSON_Duplicate(one, true), cJSON_Duplicate(other, true)};

    for (unsigned i = 0; i < sizeof record / sizeof record[0]; i++) {
        cJSON_DeleteItemFromObjectCaseSensitive(copies[0], record[i]);
        cJSON_DeleteItemFromObjectCaseSensitive(copies[1], record[i]);
    }
    bool is_same = cJSON_Compare(copies[0], copies[1], true);
    cJSON_Delete(copies[0]);
    cJSON_Delete(copies[1]);
    return is_same;
}

static int take_document(struct flyt_cluster *cluster, struct flyt_desired_document *desired, cJSON *document)
{
    struct flyt_error err = {0};
    const char *vm_ip = flyt_desired_vm_ip(document);
    struct flyt_desired now_desired;
    int status = flyt_desired_read(document, &err, &now_desired);

    desired->is_same =
        desired->document && !desired->is_malformed && !desired->is_fresh && same_content(desired->document, document);
    cJSON_Delete(desired->document);
    desired->document = document;
    desired->is_malformed = status != 0;
    if (status) {
        flyt_event_add(cluster, "document.malformed", "manager", desired->key, NULL, NULL,
                       "document %s of vm_required_resources changes nothing: %s", desired->key, err.text);
        if (vm_ip)
            flyt_text_set(&desired->vm_ip, vm_ip);
        name_vm(desired, desired->vm_ip ? flyt_vm_get(cluster, desired->vm_ip) : NULL);
        if (desired->vm)
            flyt_vm_set_reason(desired->vm, err.text);
        return status;
    }
    flyt_desired_free(&desired->desired);
    desired->desired = now_desired;
    desired->is_fresh = true;
    name_vm(desired, flyt_vm_get(cluster, now_desired.vm_ip));
    return flyt_text_set(&desired->vm_ip, now_desired.vm_ip);
}

/* A VM whose documents are to be looked at when all changes have been taken. */
struct touched {
    char *vm_ip;
    const struct flyt_desired_document *changed; /* NULL: one went, or is another VM's now */
};

static void touch(struct touched *touched, size_t *count, const char *vm_ip,
                  const struct flyt_desired_document *changed)
{
    char *copy = vm_ip ? strdup(vm_ip) : NULL;

    if (copy)
        touched[(*count)++] = (struct touched){copy, changed};
}

static struct flyt_desired_document *desired_new(struct flyt_cluster *cluster, const char *id)
{
    struct flyt_desired_document *desired = calloc(1, sizeof *desired);

    if (desired && (desired->key = strdup(id)) && !flyt_table_add(&cluster->desired_documents, desired))
        return desired;
    flyt_fail("document %s: no memory to take it over", id);
    if (desired)
        flyt_desired_store_free(desired);
    return NULL;
}

/* Touches two VMs at most. */
static void take_change(struct flyt_cluster *cluster, const struct flyt_change *change, struct touched *touched,
                        size_t *count)
{
    struct flyt_desired_document *desired = flyt_table_find(&cluster->desired_documents, change->id);
    char *old_ip = desired && desired->vm_ip ? strdup(desired->vm_ip) : NULL;

    if (!desired && change->document)
        desired = desired_new(cluster, change->id);
    if (desired && change->document) {
        take_document(cluster, desired, cJSON_Duplicate(change->document, true));
    } else if (desired) {
        flyt_table_remove(&cluster->desired_documents, desired);
        flyt_desired_store_free(desired);
        desired = NULL;
    }
    if (old_ip && (!desired || !desired->vm_ip || strcmp(old_ip, desired->vm_ip)))
        touch(touched, count, old_ip, NULL);
    if (desired)
        touch(touched, count, desired->vm_ip, desired);
    free(old_ip);
}

/* is_reading: what a reading of the store has found, which may be older than what is known here. */
static void take_all(struct flyt_cluster *cluster, const struct flyt_change *changes, size_t change_count,
                     bool is_reading)
{
    struct touched *touched = calloc(2 * change_count + 1, sizeof *touched);
    size_t count = 0;

    if (!touched) {
        flyt_fail("%zu documents: no memory to take them over", change_count);
        return;
    }
    /* All first: of two that one reading brings for a VM, neither may count for a moment. */
    for (size_t i = 0; i < change_count; i++) {
        const struct flyt_desired_document *desired = flyt_table_find(&cluster->desired_documents, changes[i].id);
        /* Read while a refused resize stood in the document: the next reading has what it says again. */
        if (!is_reading || !desired || !desired->put_back_count)
            take_change(cluster, &changes[i], touched, &count);
    }
    for (size_t i = 0; i < count; i++) {
        if (!touched[i].changed)
            read_again(cluster, touched[i].vm_ip);
        settle(cluster, touched[i].vm_ip, touched[i].changed);
        free(touched[i].vm_ip);
    }
    free(touched);
}

void flyt_desired_store_written(struct flyt_cluster *cluster, const char *id, const cJSON *document)
{
    struct flyt_change change = {.id = (char *)id, .document = (cJSON *)document};

    if (cluster->is_leader)
        take_all(cluster, &change, 1, false);
}

/* ---- tenants ---- */

void flyt_tenant_changed(struct flyt_cluster *cluster, const struct flyt_change *change)
{
    struct flyt_tenant *tenant = flyt_tenant_get(cluster, change->id);
    struct flyt_quota quota = cluster->settings->quota;
    struct flyt_error err = {0};

    if (!tenant)
        return;
    if (change->document && flyt_quota_read(change->document, &err, &quota)) {
        flyt_event_add(cluster, "document.malformed", "manager", change->id, NULL, NULL,
                       "document %s of tenants changes nothing: %s", change->id, err.text);
        return;
    }
    tenant->quota = quota;
    tenant->has_document = change->document != NULL;
}

/* ---- the regular reading ---- */

struct reading {
    struct flyt_cluster *cluster;
    uint64_t epoch;
    bool with_members;
    enum flyt_store_result result;
    int status;
    struct flyt_changes desired_documents, tenants, members;
};

static enum flyt_store_result read_one(struct flyt_store *store, const char *collection, struct flyt_watch *watch,
                                       struct flyt_changes *changes, int *status, struct flyt_error *err)
{
    cJSON *documents = NULL;
    enum flyt_store_result result = flyt_store_list(store, collection, NULL, 0, err, &documents);

    if (result == FLYT_STORE_OK)
        *status = flyt_watch_compare(watch, documents, changes);
    else if (result == FLYT_STORE_BROKEN)
        flyt_fail("store: %s cannot be read: %s", collection, err->text);
    cJSON_Delete(documents);
    return result;
}

static enum flyt_store_result run_reading(struct flyt_store *store, void *user, struct flyt_error *err)
{
    struct reading *reading = user;
    struct flyt_cluster *cluster = reading->cluster; /* its watches only: they belong to this thread */

    reading->result = read_one(store, "tenants", cluster->tenant_watch, &reading->tenants, &reading->status, err);
    if (reading->result == FLYT_STORE_OK)
        reading->result = read_one(store, "vm_required_resources", cluster->desired_watch, &reading->desired_documents,
                                   &reading->status, err);
    if (reading->result == FLYT_STORE_OK && reading->with_members)
        reading->result = read_one(store, "members", cluster->member_watch, &reading->members, &reading->status, err);
    return reading->result;
}

static void reading_done(void *user, int is_cancelled)
{
    struct reading *reading = user;
    struct flyt_cluster *cluster = reading->cluster;

    if (!is_cancelled) {
        cluster->is_polling = false;
        /* What was found must be taken over now: the watch has it behind it. Whoever stopped leading meanwhile builds
         * everything anew, with new watches. */
        if (cluster->is_leader && reading->epoch == cluster->epoch) {
            for (size_t i = 0; i < reading->tenants.count; i++)
                flyt_tenant_changed(cluster, &reading->tenants.items[i]);
            take_all(cluster, reading->desired_documents.items, reading->desired_documents.count, true);
            for (size_t i = 0; i < reading->members.count; i++)
                cluster->ops->member_changed(cluster, &reading->members.items[i]);
            if (reading->result == FLYT_STORE_OK && !reading->status && !flyt_lead_knows_desired(cluster)) {
                cluster->read_epoch = cluster->epoch;
                flyt_vm_try_soon(cluster);
            }
        }
        if (cluster->polls_again)
            flyt_desired_store_poll(cluster);
    }
    flyt_changes_free(&reading->desired_documents);
    flyt_changes_free(&reading->tenants);
    flyt_changes_free(&reading->members);
    free(reading);
}

void flyt_desired_store_poll(struct flyt_cluster *cluster)
{
    if (!cluster->is_leader)
        return;
    cluster->polls_again = cluster->is_polling;
    if (cluster->is_polling)
        return;
    struct reading *reading = calloc(1, sizeof *reading);
    if (!reading)
        return;
    reading->cluster = cluster;
    reading->epoch = cluster->epoch;
    reading->with_members = cluster->poll_count++ % MEMBER_POLLS == 0;
    cluster->is_polling = !flyt_store_writer_do(cluster->store_writer, "poll", run_reading, reading_done, reading);
    if (!cluster->is_polling)
        free(reading);
}
