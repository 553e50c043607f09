/* VMs: what they get when their first program asks, and what operators say about them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/name.h"
#include "control/cluster/migration.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"

enum { TELL_MS = 10000, RESERVE_MS = 2000, TRY_MS = 20, MEMORY_TOLD_MS = 60000 };

struct flyt_vm *flyt_vm_get(struct flyt_cluster *cluster, const char *vm_ip)
{
    struct flyt_vm *vm = flyt_table_find(&cluster->vms, vm_ip);

    if (vm)
        return vm;
    vm = calloc(1, sizeof *vm);
    if (!vm)
        return NULL;
    vm->key = strdup(vm_ip);
    vm->cluster = cluster;
    flyt_desired_init(&vm->desired);
    LIST_INIT(&vm->wishes);
    STAILQ_INIT(&vm->attaching);
    TAILQ_INIT(&vm->resizes);
    if (!vm->key || flyt_table_add(&cluster->vms, vm)) {
        free((char *)vm->key);
        free(vm);
        return NULL;
    }
    return vm;
}

struct flyt_vm *flyt_vm_find(struct flyt_cluster *cluster, const char *name, struct flyt_error *err)
{
    struct flyt_vm *found = flyt_table_find(&cluster->vms, name);

    for (size_t i = 0; i < cluster->vms.count && !(found && !strcmp(found->key, name)); i++) {
        struct flyt_vm *vm = cluster->vms.items[i];
        if (!vm->desired.name || strcmp(vm->desired.name, name))
            continue;
        if (found) {
            flyt_error_set(err, -EINVAL, "%s is the name of several VMs, %s and %s among them", name, found->key,
                           vm->key);
            return NULL;
        }
        found = vm;
    }
    if (!found)
        flyt_error_set(err, -ENOENT, "there is no VM %s", name);
    return found;
}

void flyt_vm_set_reason(struct flyt_vm *vm, const char *reason)
{
    flyt_text_set(&vm->reason, reason);
}

void flyt_vm_free(struct flyt_vm *vm)
{
    flyt_desired_free(&vm->desired);
    free((char *)vm->key);
    free(vm->reason);
    free(vm);
}

void flyt_vm_request(const struct flyt_vm *vm, struct flyt_place_request *ret_request)
{
    const struct flyt_desired *desired = &vm->desired;
    const struct flyt_cluster_settings *settings = vm->cluster->settings;
    const struct flyt_share share = flyt_vm_share(vm);

    *ret_request = (struct flyt_place_request){
        .device_count = desired->device_count,
        .sm_count = desired->sm_count,
        .memory_bytes = desired->memory_bytes,
        .session_count = desired->session_count ? desired->session_count : (unsigned)settings->sessions,
        .isolation = (enum flyt_isolation)(desired->isolation >= 0 ? desired->isolation : settings->isolation),
        .is_timed = share.is_timed,
        .minimum_share_pct = share.minimum_pct,
        .policy = (enum flyt_policy)(desired->policy >= 0 ? desired->policy : settings->policy),
        .host_ip = desired->host_ip,
        .include_types = desired->include_types,
        .exclude_types = desired->exclude_types,
        .include_gpus = desired->include_gpus,
        .exclude_gpus = desired->exclude_gpus,
    };
    for (unsigned i = 0; i < desired->libraries.count; i++)
        flyt_place_libraries_read(&ret_request->libraries, desired->libraries.names[i]);
}

/* ---- grants ---- */

/* 1 and *ret_grant (flyt_held_wire_free of its allocation); 0: there is nothing to be used now. */
static unsigned make_grant(const struct flyt_vm *vm, flyt_grant *ret_grant)
{
    struct flyt_held *held = vm->held;
    struct flyt_node *node;
    flyt_grant grant = {0};

    if (!held || !held->is_granted || held->is_leaving || held->state != FLYT_ALLOCATION_ACTIVE)
        return 0;
    const struct flyt_part *parts = flyt_migration_parts_now(held, &node);
    if (!node->has_key || flyt_held_wire_parts(held, parts, &grant.allocation))
        return 0;
    struct flyt_credentials credentials = {
        .allocation_id = held->id, .generation = held->generation, .key_number = node->key_number};
    snprintf(credentials.vm_ip, sizeof credentials.vm_ip, "%s", vm->key);
    grant.node = (char *)node->key;
    grant.data_urls.data_urls_val = node->data_urls;
    grant.data_urls.data_urls_len = node->data_url_count;
    grant.key_number = node->key_number;
    flyt_ticket_key(node->node_key, &credentials, (unsigned char *)grant.ticket_key);
    *ret_grant = grant;
    return 1;
}

static void drop_grant(flyt_grant *grant)
{
    flyt_held_wire_free(&grant->allocation);
    explicit_bzero(grant->ticket_key, sizeof grant->ticket_key);
}

static void reply_grant(struct flyt_vm *vm, struct flyt_call *call, flyt_status status, const char *text)
{
    flyt_grant grant;
    flyt_attach_res res = {.outcome = {status, (char *)text}};
    unsigned count = status == FLYT_STATUS_OK ? make_grant(vm, &grant) : 0;

    res.grants.grants_len = count;
    res.grants.grants_val = &grant;
    flyt_call_reply(call, &res);
    if (count)
        drop_grant(&grant);
}

void flyt_vm_answer(struct flyt_vm *vm, flyt_status status, const char *text)
{
    struct flyt_vm_call *waiting;

    while ((waiting = STAILQ_FIRST(&vm->attaching))) {
        STAILQ_REMOVE_HEAD(&vm->attaching, entry);
        reply_grant(vm, waiting->call, status, text);
        flyt_measure_attach(vm->cluster, (flyt_clock_ns() - waiting->start_ns) / 1000, status != FLYT_STATUS_OK);
        free(waiting);
    }
}

static void told(void *user, int status, void *result)
{
    if (status)
        flyt_debug("a client manager did not take a change: %s", strerror(-status));
}

void flyt_vm_tell(struct flyt_vm *vm, const char *reason)
{
    flyt_grant grant;

    if (!vm->link)
        return;
    unsigned count = make_grant(vm, &grant);
    flyt_changed_args args = {
        .epoch = vm->cluster->epoch, .reason = (char *)reason, .grants = {.grants_len = count, .grants_val = &grant}};
    int status = flyt_peer_call(vm->link->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, FLYT_ORDER_CHANGED,
                                (xdrproc_t)xdr_flyt_changed_args, &args, (xdrproc_t)xdr_flyt_outcome,
                                sizeof(flyt_outcome), TELL_MS, told, NULL);
    if (status)
        told(NULL, status, NULL);
    if (count)
        drop_grant(&grant);
}

void flyt_vm_unlinked(struct flyt_vm *vm)
{
    vm->link = NULL;
    vm->program_count = 0;
}

/* ---- attach ---- */

/* The node was asked once more to hold what is recorded. */
static void ordered_again(void *user, int status, const flyt_outcome *outcome)
{
    struct flyt_vm *vm = user;
    char sentence[512];

    vm->is_placing = false;
    if (status && vm->held && flyt_node_is_awaited(vm->held->node))
        return;
    if (status || !vm->held) {
        snprintf(sentence, sizeof sentence, "the allocation is recorded, but its node did not answer: %s",
                 strerror(status ? -status : ECANCELED));
        flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, sentence);
    } else if (outcome->status != FLYT_STATUS_OK) {
        snprintf(sentence, sizeof sentence, "node %s refused: %.300s", vm->held->node->key, outcome->text);
        flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, sentence);
    } else {
        if (!vm->held->session_count)
            flyt_held_set_idle(vm->held, true);
        flyt_vm_answer(vm, FLYT_STATUS_OK, "");
    }
}

/* It is written that new programs are let in: now the node is to know. */
static void reopened(void *user, struct flyt_held *held, enum flyt_store_result result, const char *err)
{
    struct flyt_vm *vm = user;
    char sentence[512];

    if (held && held->vm == vm && result == FLYT_STORE_OK) {
        flyt_held_order(held, ordered_again, vm);
        return;
    }
    vm->is_placing = false;
    snprintf(sentence, sizeof sentence, "the allocation is blocked, and cannot be opened again: %.400s",
             *err ? err : "it was taken back");
    flyt_vm_answer(vm, FLYT_STATUS_UNAVAILABLE, sentence);
}

/* There is an allocation: is it of use now? Status and sentence, or that it has to be waited for. */
static bool use_held(struct flyt_vm *vm, flyt_status *status, char *sentence, size_t room)
{
    struct flyt_held *held = vm->held;

    *status = FLYT_STATUS_UNAVAILABLE;
    if (flyt_node_is_awaited(held->node))
        return false;
    if (!held->node->is_registered || !held->node->has_key) {
        uint64_t silent_ms = flyt_clock_ms() - held->node->last_heard_ms;
        snprintf(sentence, room, "node %s, which has the allocation %s, is not connected for %.0f s", held->node->key,
                 held->id_text, (double)silent_ms / 1000);
        return true;
    }
    if (held->is_blocked_idle) {
        held->is_blocked_idle = false;
        flyt_held_set_state(held, FLYT_ALLOCATION_ACTIVE);
    }
    if (held->state == FLYT_ALLOCATION_BLOCKED) {
        *status = FLYT_STATUS_DENIED;
        snprintf(sentence, room, "VM %s was removed: its programs go on, new ones are not let in", vm->key);
        return true;
    }
    flyt_held_set_idle(held, !held->session_count); /* a program is about to come */
    if (held->applied_revision && held->applied_revision >= held->open_revision) {
        *status = FLYT_STATUS_OK;
        *sentence = '\0';
        return true;
    }
    vm->is_placing = true;
    if (held->written_revision < held->open_revision) {
        flyt_held_write(held, reopened, vm);
        return false;
    }
    flyt_held_order(held, ordered_again, vm);
    return false;
}

static bool may_place(struct flyt_vm *vm, flyt_status *status, char *sentence, size_t room)
{
    if (!vm->has_desired) {
        *status = FLYT_STATUS_DENIED;
        if (vm->wish_count)
            snprintf(sentence, room, "VM %s: %s", vm->key, vm->reason ? vm->reason : "its document is of no use");
        else
            snprintf(sentence, room, "VM %s has no document in vm_required_resources; `flytctl vm add %s` makes one",
                     vm->key, vm->key);
        return false;
    }
    if (!vm->cluster->is_store_available) {
        *status = FLYT_STATUS_UNAVAILABLE;
        snprintf(sentence, room, "the store is not reachable: nothing new can be granted");
        return false;
    }
    return true;
}

static bool is_a_node_awaited(const struct flyt_cluster *cluster)
{
    bool is_awaited = false;

    for (size_t i = 0; i < cluster->nodes.count && !is_awaited; i++)
        is_awaited = flyt_node_is_awaited(cluster->nodes.items[i]);
    return is_awaited;
}

/* What there is for a VM: true, status and a sentence; false: it is not decided yet. */
static bool attach(struct flyt_vm *vm, flyt_status *status, char *sentence, size_t room)
{
    struct flyt_error err = {0};

    if (vm->is_placing)
        return false;
    if (vm->held)
        return use_held(vm, status, sentence, room);
    if (!flyt_lead_knows_wishes(vm->cluster))
        return false; /* it may have a document */
    if (!may_place(vm, status, sentence, room))
        return true;
    int code = flyt_held_place(vm, &err);
    if (!code || (code == -ENOSPC && is_a_node_awaited(vm->cluster)))
        return false;
    *status = code == -ENOSPC ? FLYT_STATUS_NO_CAPACITY : code == -EDQUOT ? FLYT_STATUS_QUOTA : FLYT_STATUS_UNAVAILABLE;
    snprintf(sentence, room, "%s", err.text);
    if (!vm->reason || strcmp(vm->reason, err.text))
        flyt_event_add(vm->cluster, "vm.refused", "manager", vm->key, NULL, NULL, "%s", err.text);
    flyt_vm_set_reason(vm, err.text);
    return true;
}

/* What is reserved is there without a program. */
static void reserve(struct flyt_vm *vm)
{
    flyt_status status = FLYT_STATUS_OK;
    char sentence[sizeof(struct flyt_error)] = "";

    if (!vm->has_desired || !vm->desired.is_reserved || vm->held || vm->is_placing || flyt_clock_ms() < vm->reserve_ms)
        return;
    vm->reserve_ms = flyt_clock_ms() + RESERVE_MS;
    if (attach(vm, &status, sentence, sizeof sentence))
        flyt_debug("vm %s: nothing can be reserved: %s", vm->key, sentence);
}

static void try_again(struct flyt_cluster *cluster)
{
    flyt_status status = FLYT_STATUS_OK;
    char sentence[sizeof(struct flyt_error)] = "";

    for (size_t i = 0; i < cluster->vms.count; i++) {
        struct flyt_vm *vm = cluster->vms.items[i];
        if (!STAILQ_EMPTY(&vm->attaching) && attach(vm, &status, sentence, sizeof sentence))
            flyt_vm_answer(vm, status, sentence);
        reserve(vm);
    }
}

static int on_try(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_cluster *cluster = user;

    cluster->try_timer = sd_event_source_disable_unref(source);
    if (cluster->is_leader)
        try_again(cluster);
    return 0;
}

/* Each of a thousand nodes that register at one moment would have all VMs looked at. */
void flyt_vm_try_soon(struct flyt_cluster *cluster)
{
    if (cluster->try_timer)
        return;
    int status = sd_event_add_time_relative(cluster->event, &cluster->try_timer, CLOCK_MONOTONIC, TRY_MS * 1000, 0,
                                            on_try, cluster);
    if (status < 0)
        flyt_debug("what VMs wait for is tried with the next tick: %s", strerror(-status));
}

void flyt_vm_tick(struct flyt_cluster *cluster)
{
    try_again(cluster);
    for (size_t i = cluster->vms.count; i-- > 0;) {
        struct flyt_vm *vm = cluster->vms.items[i];
        if (vm->has_desired || vm->wish_count || vm->held || vm->link || vm->is_placing ||
            !STAILQ_EMPTY(&vm->attaching) || !TAILQ_EMPTY(&vm->resizes))
            continue;
        flyt_table_remove(&cluster->vms, vm);
        flyt_vm_free(vm);
    }
}

void flyt_serve_vm_attach(struct flyt_call *call, void *data)
{
    const flyt_attach_args *args = data;
    struct flyt_link *link = flyt_call_link(call);
    struct flyt_vm *vm = link->vm;
    uint64_t start_ns = flyt_clock_ns();
    flyt_status status = FLYT_STATUS_OK;
    char sentence[sizeof(struct flyt_error)] = "";

    if (!flyt_lead_may(link->cluster, call))
        return;
    if (!vm) {
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "HELLO comes first");
        return;
    }
    if (!args->is_waiting && vm->held && !vm->held->node->has_key) {
        /* There is one, but this manager has not heard of its node since its own start. */
        snprintf(sentence, sizeof sentence, "node %s, which has the allocation %s, has not registered yet",
                 vm->held->node->key, vm->held->id_text);
        reply_grant(vm, call, FLYT_STATUS_UNAVAILABLE, sentence);
        return;
    }
    if (!args->is_waiting) {
        reply_grant(vm, call, FLYT_STATUS_OK, vm->reason ? vm->reason : "");
        return;
    }
    struct flyt_vm_call *waiting = calloc(1, sizeof *waiting);
    if (!waiting) {
        flyt_call_fail(call);
        return;
    }
    waiting->call = call;
    waiting->start_ns = start_ns;
    STAILQ_INSERT_TAIL(&vm->attaching, waiting, entry);
    if (attach(vm, &status, sentence, sizeof sentence))
        flyt_vm_answer(vm, status, sentence);
}

void flyt_serve_vm_report(struct flyt_call *call, void *data)
{
    const flyt_vm_report_args *args = data;
    struct flyt_link *link = flyt_call_link(call);

    if (link->vm)
        link->vm->program_count = args->program_count;
    flyt_call_outcome(call, link->vm ? FLYT_STATUS_OK : FLYT_STATUS_INVALID, "%s", link->vm ? "" : "HELLO comes first");
}

/* Whoever has the VM says what he likes: not too often. */
void flyt_serve_vm_memory(struct flyt_call *call, void *data)
{
    const flyt_vm_memory_args *args = data;
    struct flyt_link *link = flyt_call_link(call);
    struct flyt_vm *vm = link->vm;
    char who[FLYT_NAME_BYTES_MAX + 1];

    if (vm && (!vm->memory_told_ms || flyt_clock_ms() - vm->memory_told_ms > MEMORY_TOLD_MS)) {
        vm->memory_told_ms = flyt_clock_ms();
        flyt_event_add(link->cluster, "vm.memory_unused", flyt_call_who(call, who), vm->key, NULL, NULL, "%s",
                       args->why);
    }
    flyt_call_outcome(call, vm ? FLYT_STATUS_OK : FLYT_STATUS_INVALID, "%s", vm ? "" : "HELLO comes first");
}

/* ---- vm add, set, remove ---- */

struct vm_edit {
    struct flyt_call *call;
    struct flyt_cluster *cluster;
    flyt_vm_set_args *args; /* the call's; NULL: remove */
    char id[FLYT_NAME_BYTES_MAX * 2];
    char vm_ip[FLYT_NAME_BYTES_MAX + 1];
    char who[FLYT_NAME_BYTES_MAX + 1];
    bool kill, was_there;
    cJSON *before, *after; /* go into the event */
    cJSON *written;
    struct flyt_error err;
    enum flyt_store_result result;
    int status;
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

/* On the store's thread. It runs again where somebody else wrote meanwhile. */
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

static enum flyt_store_result run_edit(struct flyt_store *store, void *user, struct flyt_error *err)
{
    struct vm_edit *edit = user;

    edit->result =
        flyt_store_edit(store, "vm_required_resources", edit->id, edit_document, edit, &edit->err, &edit->status);
    *err = edit->err;
    return edit->result;
}

static void reply_edit(struct vm_edit *edit)
{
    if (edit->result == FLYT_STORE_UNKNOWN)
        flyt_call_outcome(edit->call, FLYT_STATUS_TIMEOUT, "whether it was written is not known: %s", edit->err.text);
    else if (edit->result == FLYT_STORE_CONFLICT)
        flyt_call_outcome(edit->call, FLYT_STATUS_CONFLICT, "others change the same document all the time");
    else if (edit->result != FLYT_STORE_OK && edit->result != FLYT_STORE_NOT_FOUND)
        flyt_call_outcome(edit->call, FLYT_STATUS_UNAVAILABLE, "the store did not take it: %s", edit->err.text);
    else if (edit->status)
        flyt_call_outcome(edit->call,
                          edit->status == -EEXIST   ? FLYT_STATUS_EXISTS
                          : edit->status == -ENOENT ? FLYT_STATUS_NOT_FOUND
                                                    : FLYT_STATUS_INVALID,
                          "%s", edit->err.text);
    else
        flyt_call_outcome(edit->call, FLYT_STATUS_OK, "%s", "");
}

static void edit_done(void *user, int is_cancelled)
{
    struct vm_edit *edit = user;
    struct flyt_cluster *cluster = edit->cluster;

    if (!is_cancelled) {
        bool is_done = edit->result == FLYT_STORE_OK && !edit->status;
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
            flyt_wish_written(cluster, edit->id, edit->args ? edit->written : NULL);
        if (is_done)
            edit->before = edit->after = NULL;
        if (is_done && !edit->args)
            flyt_vm_device_forget(cluster, edit->vm_ip);
        struct flyt_vm *vm = flyt_table_find(&cluster->vms, edit->vm_ip);
        if (is_done && edit->kill && vm && vm->held) {
            flyt_held_end(vm->held, edit->who, "its VM was removed with its programs");
            flyt_vm_tell(vm, "an operator removed the VM");
        }
        reply_edit(edit);
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
    snprintf(edit->id, sizeof edit->id, "%s", id);
    snprintf(edit->vm_ip, sizeof edit->vm_ip, "%s", vm_ip);
    flyt_call_who(call, edit->who);
    if (!flyt_keeper_do(cluster->keeper, "vm", run_edit, edit_done, edit))
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
        struct flyt_wish *wish = vm ? flyt_wish_of(cluster, vm->key) : NULL;
        if (vm && !wish)
            flyt_error_set(&err, vm->wish_count ? -EINVAL : -ENOENT, "VM %s has %s", vm->key,
                           vm->wish_count ? "several documents: remove all but one by hand" : "no document");
        if (!wish) {
            flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
            return;
        }
        start_edit(call, cluster, vm->key, wish->key, args, false);
        return;
    }
    struct flyt_vm *known = flyt_table_find(&cluster->vms, args->vm);
    const char *tenant_name =
        args->tenant.is_set && *args->tenant.value ? args->tenant.value : cluster->settings->tenant;
    struct flyt_tenant *tenant = flyt_tenant_get(cluster, tenant_name);
    if (!flyt_is_address(args->vm)) {
        flyt_call_outcome(call, FLYT_STATUS_INVALID, "%s is not an IP address: a VM is added by its vm_ip", args->vm);
    } else if (known && known->wish_count) {
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
    struct flyt_wish *wish = vm ? flyt_wish_of(cluster, vm->key) : NULL;
    if (!vm) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
    } else if (wish) {
        start_edit(call, cluster, vm->key, wish->key, NULL, args->kill);
    } else if (vm->wish_count) {
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT, "VM %s has several documents: remove all but one by hand",
                          vm->key);
    } else if (vm->held && args->kill) {
        flyt_held_end(vm->held, flyt_call_who(call, who), "its VM was removed with its programs");
        flyt_vm_tell(vm, "an operator removed the VM");
        flyt_call_outcome(call, FLYT_STATUS_OK, "%s", "");
    } else {
        flyt_call_outcome(call, FLYT_STATUS_NOT_FOUND, "VM %s has no document", vm->key);
    }
}
