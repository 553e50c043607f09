/* What operators say about VMs: edits of their documents. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/name.h"
#include "control/base/peer.h"
#include "control/cluster/api/vm.h"
#include "control/cluster/io/edit.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/quota.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/tenant.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/allocation.h"
#include "control/cluster/reconcile/vm_device.h"
#include "control/cluster/reconcile/desired_store.h"
#include "control/store/store.h"
#include "control/store/store_ops.h"
#include "rpc/base/error.h"

struct vm_edit {
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    flyt_vm_set_args *args; /* the call's; NULL: remove */
    struct flyt_edit edit;
    char vm_ip[FLYT_NAME_BYTES_MAX + 1];
    char who[FLYT_NAME_BYTES_MAX + 1];
    bool kill, was_there;
    cJSON *before, *after; /* go into the event */
    cJSON *written;
};

static void put_item(cJSON *document, const char *name, cJSON *item)
{
    cJSON_DeleteItemFromObjectCaseSensitive(document, name);
    if (item)
        cJSON_AddItemToObject(document, name, item);
}

static void put_text(cJSON *document, const char *name, const flyt_set_text *text)
{
    if (text->is_set)
        put_item(document, name, *text->value ? cJSON_CreateString(text->value) : NULL);
}

static void put_number(cJSON *document, const char *name, const flyt_set_number *number, double unit)
{
    if (number->is_set)
        put_item(document, name, cJSON_CreateNumber((double)number->value / unit));
}

static void put_names(cJSON *document, const char *name, const flyt_set_names *names)
{
    if (names->is_set)
        put_item(document, name,
                 names->names.names_len
                     ? cJSON_CreateStringArray((const char *const *)names->names.names_val, (int)names->names.names_len)
                     : NULL);
}

static void put_all(cJSON *document, const flyt_vm_set_args *args)
{
    put_text(document, "name", &args->name);
    put_text(document, "tenant", &args->tenant);
    put_text(document, "host_ip", &args->host_ip);
    put_number(document, "compute_units", &args->compute_units, 1);
    put_number(document, "memory", &args->memory_bytes, 1073741824.0);
    put_number(document, "devices", &args->device_count, 1);
    put_number(document, "sessions", &args->sessions_max, 1);
    if (args->priority.is_set) /* a negative number comes as its two's complement */
        put_item(document, "priority", cJSON_CreateNumber((double)(int64_t)args->priority.value));
    put_number(document, "minimum_share", &args->minimum_share_pct, 1);
    put_number(document, "maximum_share", &args->maximum_share_pct, 1);
    put_number(document, "window_ms", &args->window_ms, 1);
    put_text(document, "sharing", &args->sharing);
    put_number(document, "minimum_sms", &args->minimum_sms, 1);
    put_text(document, "shown_sms", &args->shown_sms);
    put_text(document, "policy", &args->policy);
    put_text(document, "isolation", &args->isolation);
    put_names(document, "include_types", &args->include_types);
    put_names(document, "exclude_types", &args->exclude_types);
    put_names(document, "include_gpus", &args->include_gpus);
    put_names(document, "exclude_gpus", &args->exclude_gpus);
    put_names(document, "libraries", &args->libraries);
    if (args->is_reserved.is_set)
        put_item(document, "reserved", cJSON_CreateBool(args->is_reserved.value != 0));
}

static int edit_document(cJSON **document, void *user, struct flyt_error *err)
{
    struct vm_edit *edit = user;
    struct flyt_desired desired;

    /* After a write whose outcome was unknown: what is there may be our own. */
    if (*document && edit->after && edit->args && !edit->args->must_exist) {
        cJSON_DeleteItemFromObjectCaseSensitive(*document, "_id");
        cJSON_DeleteItemFromObjectCaseSensitive(*document, "revision");
        if (cJSON_Compare(*document, edit->after, true))
            return 0;
    }
    cJSON_Delete(edit->before);
    cJSON_Delete(edit->after);
    edit->before = *document ? cJSON_Duplicate(*document, true) : NULL;
    edit->after = NULL;
    edit->was_there = *document != NULL;
    if (!edit->args) {
        cJSON_Delete(*document);
        *document = NULL;
        return 0;
    }
    if (*document && !edit->args->must_exist)
        return flyt_error_set(err, -EEXIST, "VM %s is there already", edit->vm_ip);
    if (!*document && edit->args->must_exist)
        return flyt_error_set(err, -ENOENT, "there is no VM %s", edit->vm_ip);
    if (!*document && (*document = cJSON_CreateObject()))
        cJSON_AddStringToObject(*document, "vm_ip", edit->vm_ip);
    if (!*document)
        return flyt_error_set(err, -ENOMEM, "no memory");
    put_all(*document, edit->args);
    int status = flyt_desired_read(*document, err, &desired);
    if (status)
        return status;
    flyt_desired_free(&desired);
    edit->after = cJSON_Duplicate(*document, true);
    cJSON_Delete(edit->written);
    edit->written = cJSON_Duplicate(*document, true);
    return edit->after && edit->written ? 0 : flyt_error_set(err, -ENOMEM, "no memory");
}

static void edit_done(void *user, int is_cancelled)
{
    struct vm_edit *edit = user;
    struct flyt_cluster *cluster = edit->cluster;

    if (!is_cancelled) {
        bool is_done = flyt_edit_is_done(&edit->edit);
        const char *text;
        flyt_status status = flyt_edit_outcome(&edit->edit, &text);
        if (is_done)
            flyt_event_add(cluster,
                           !edit->args       ? "vm.removed"
                           : edit->was_there ? "vm.set"
                                             : "vm.added",
                           edit->who, edit->vm_ip, edit->before, edit->after, "VM %s %s", edit->vm_ip,
                           !edit->args       ? "removed"
                           : edit->was_there ? "changed"
                                             : "added");
        if (is_done)
            flyt_desired_store_written(cluster, edit->edit.id, edit->args ? edit->written : NULL);
        if (is_done)
            edit->before = edit->after = NULL;
        if (is_done && !edit->args)
            flyt_vm_device_forget(cluster, edit->vm_ip);
        struct flyt_vm *vm = flyt_table_find(&cluster->vms, edit->vm_ip);
        if (is_done && edit->kill && vm && vm->allocation) {
            flyt_allocation_end(vm->allocation, edit->who, "its VM was removed with its programs");
            flyt_vm_tell(vm, "an operator removed the VM");
        }
        flyt_call_outcome(edit->call, status, "%s", text);
    }
    cJSON_Delete(edit->before);
    cJSON_Delete(edit->after);
    cJSON_Delete(edit->written);
    free(edit);
}

static void start_edit(struct flyt_call *call, struct flyt_cluster *cluster, const char *vm_ip, const char *id,
                       flyt_vm_set_args *args, bool kill)
{
    struct vm_edit *edit = calloc(1, sizeof *edit);

    if (!edit) {
        flyt_call_fail(call);
        return;
    }
    edit->call = call;
    edit->cluster = cluster;
    edit->args = args;
    edit->kill = kill;
    edit->edit = (struct flyt_edit){.operation = "vm",
                                    .collection = "vm_required_resources",
                                    .edit = edit_document,
                                    .done = edit_done,
                                    .user = edit};
    snprintf(edit->edit.id, sizeof edit->edit.id, "%s", id);
    snprintf(edit->vm_ip, sizeof edit->vm_ip, "%s", vm_ip);
    flyt_call_who(call, edit->who);
    if (!flyt_edit_begin(cluster->store_writer, &edit->edit))
        return;
    flyt_call_outcome(call, FLYT_STATUS_UNAVAILABLE, "too much work waits for the store");
    free(edit);
}

/* How many VMs a tenant has documents for. */
static uint64_t count_vms(const struct flyt_cluster *cluster, const char *tenant)
{
    uint64_t count = 0;

    for (size_t i = 0; i < cluster->vms.count; i++) {
        const struct flyt_vm *vm = cluster->vms.items[i];
        const char *name = vm->desired.tenant ? vm->desired.tenant : cluster->settings->tenant;
        count += vm->has_desired && !strcmp(name, tenant);
    }
    return count;
}

void flyt_serve_vm_set(struct flyt_call *call, void *data)
{
    flyt_vm_set_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_error err = {0};
    char reason[512];

    if (!flyt_lead_may(cluster, call))
        return;
    if (args->must_exist) {
        struct flyt_vm *vm = flyt_vm_find(cluster, args->vm, &err);
        struct flyt_desired_document *desired = vm ? flyt_desired_store_of(cluster, vm->key) : NULL;
        if (vm && !desired)
            flyt_error_set(&err, vm->desired_count ? -EINVAL : -ENOENT, "VM %s has %s", vm->key,
                           vm->desired_count ? "several documents: remove all but one by hand" : "no document");
        if (!desired) {
            flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
            return;
        }
        start_edit(call, cluster, vm->key, desired->key, args, false);
        return;
    }
    struct flyt_vm *known = flyt_table_find(&cluster->vms, args->vm);
    const char *tenant_name =
        args->tenant.is_set && *args->tenant.value ? args->tenant.value : cluster->settings->tenant;
    struct flyt_tenant *tenant = flyt_tenant_get(cluster, tenant_name);
    if (!flyt_is_address(args->vm)) {
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "%s is not an IP address: a VM is added by its vm_ip", args->vm);
    } else if (known && known->desired_count) {
        flyt_call_outcome(call, FLYT_STATUS_EXISTS, "VM %s is there already", args->vm);
    } else if (tenant && !flyt_quota_allows(tenant_name, &tenant->quota,
                                            &(struct flyt_quota){.vm_count = count_vms(cluster, tenant_name)},
                                            &(struct flyt_quota){.vm_count = 1}, reason, sizeof reason)) {
        flyt_measure_limit(cluster, "quota");
        flyt_call_outcome(call, FLYT_STATUS_QUOTA, "%s", reason);
    } else {
        start_edit(call, cluster, args->vm, args->vm, args, false);
    }
}

void flyt_serve_vm_remove(struct flyt_call *call, void *data)
{
    const flyt_vm_remove_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_error err = {0};
    char who[FLYT_NAME_BYTES_MAX + 1];

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_vm *vm = flyt_vm_find(cluster, args->vm, &err);
    struct flyt_desired_document *desired = vm ? flyt_desired_store_of(cluster, vm->key) : NULL;
    if (!vm) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
    } else if (desired) {
        start_edit(call, cluster, vm->key, desired->key, NULL, args->kill);
    } else if (vm->desired_count) {
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT, "VM %s has several documents: remove all but one by hand",
                          vm->key);
    } else if (vm->allocation && args->kill) {
        flyt_allocation_end(vm->allocation, flyt_call_who(call, who), "its VM was removed with its programs");
        flyt_vm_tell(vm, "an operator removed the VM");
        flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
    } else {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "VM %s has no document", vm->key);
    }
}
