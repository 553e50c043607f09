/*
 * Resizing what a VM has: recorded with a revision, checked against what there is, ordered to the node, answered when
 * the node has taken it and the running servers have switched to their new SMs. One at a time for each VM.
 *
 * A resize by FLYT_RESIZE begins with the VM's document, so that after a crash the next manager carries on with it; one
 * that an operator wrote by hand is there already. Groups that are taken away stay charged until the node says that
 * nothing runs there, memory until its limit holds. Who wants more SMs than are free, but not more than will be when
 * other VMs' programs have left theirs, has what there is and gets the others as they become free.
 */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/fields.h"
#include "control/base/peer.h"
#include "control/base/size.h"
#include "control/cluster/io/edit.h"
#include "control/cluster/io/event.h"
#include "control/cluster/io/executor.h"
#include "control/cluster/io/grant.h"
#include "control/cluster/io/store_writer.h"
#include "control/cluster/io/leader.h"
#include "control/cluster/io/link.h"
#include "control/cluster/io/measure.h"
#include "control/cluster/io/reply.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/migration.h"
#include "control/cluster/model/migration_rules.h"
#include "control/cluster/model/node.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/resize.h"
#include "control/cluster/model/checkpoint_op.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/table.h"
#include "control/cluster/model/vm.h"
#include "control/cluster/reconcile/migration.h"
#include "control/cluster/reconcile/resize.h"
#include "control/store/store.h"
#include "control/store/store_ops.h"
#include "rpc/base/clock.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

enum {
    TIMEOUT_MS = 30000,
    TIMEOUT_MAX_MS = 600000,
    GROW_MS = 1000,          /* how often what has become free is given to one VM at most */
    GROW_REFUSED_MS = 60000, /* after a refusal, by a quota */
};

struct flyt_resize {
    struct flyt_cluster *cluster;
    struct flyt_vm *vm;
    struct flyt_call *call; /* NULL: answered, or from a document */
    char who[FLYT_NAME_BYTES_MAX + 1];
    flyt_set_number sms, memory_bytes, minimum_pct, maximum_pct, window_ms, priority, suspended;
    bool when_free, force, is_from_document;
    enum flyt_resize_state state;
    bool is_late;  /* its time is over */
    bool migrates; /* the size is had on another GPU: */
    char *target;  /* this one, or any */
    flyt_migration_bounds bounds;
    unsigned stream_count, packing;
    flyt_status refusal; /* by the node */
    char refusal_text[512];
    uint64_t timeout_ms, revision;
    sd_event_source *timer;
    struct flyt_resize_size before;
    cJSON *document_before;
    struct flyt_edit edit;       /* of the document, */
    struct flyt_desired written; /* which it has left so */
    bool puts_back;
    bool is_editing;
    TAILQ_ENTRY(flyt_resize) entry;
};

/* What of a VM's document a resize may set. */
static const struct field {
    const char *name;
    size_t offset; /* of its flyt_set_number in struct flyt_resize */
    double unit;
    bool is_signed, is_bool;
} fields[] = {
    {.name = "compute_units", .offset = offsetof(struct flyt_resize, sms), .unit = 1},
    {.name = "memory", .offset = offsetof(struct flyt_resize, memory_bytes), .unit = 1073741824.0},
    {.name = "minimum_share", .offset = offsetof(struct flyt_resize, minimum_pct), .unit = 1},
    {.name = "maximum_share", .offset = offsetof(struct flyt_resize, maximum_pct), .unit = 1},
    {.name = "window_ms", .offset = offsetof(struct flyt_resize, window_ms), .unit = 1},
    {.name = "priority", .offset = offsetof(struct flyt_resize, priority), .unit = 1, .is_signed = true},
    {.name = "suspended", .offset = offsetof(struct flyt_resize, suspended), .unit = 1, .is_bool = true},
};

enum { FIELDS = sizeof fields / sizeof *fields };

static void begin(struct flyt_resize *resize);
static void look(struct flyt_resize *resize);

static void resize_free(struct flyt_resize *resize)
{
    sd_event_source_disable_unref(resize->timer);
    free(resize->target);
    cJSON_Delete(resize->document_before);
    flyt_desired_free(&resize->written);
    free(resize);
}

/* One that is over goes when the store's thread has it no more. */
static void let_go(struct flyt_resize *resize)
{
    if (resize->state == FLYT_RESIZE_OVER && !resize->is_editing)
        resize_free(resize);
}

static void leave(struct flyt_resize *resize)
{
    TAILQ_REMOVE(&resize->vm->resizes, resize, entry);
    resize->state = FLYT_RESIZE_OVER;
    resize->timer = sd_event_source_disable_unref(resize->timer);
    let_go(resize);
}

static void reply(struct flyt_resize *resize, flyt_status status, const char *text)
{
    struct flyt_cluster_allocation *allocation = resize->vm->allocation;
    flyt_allocation_use use = {0};
    static char empty[] = "";
    flyt_resize_res res = {.outcome = {status, (char *)text}, .revision = resize->revision};

    if (!resize->call)
        return;
    if (resize->migrates) {
        flyt_call_outcome(resize->call, status, "%s",
                          status == FLYT_STATUS_OK ? "the VM holds no allocation now: the next one has the new size"
                                                   : text);
        resize->call = NULL;
        return;
    }
    if (allocation && allocation->use_count) {
        use.id = allocation->id;
        use.revision = allocation->applied_revision;
        use.outcome = (flyt_outcome){allocation->use_status, allocation->use_text ? allocation->use_text : empty};
        use.session_count = allocation->session_count;
        use.slots.slots_len = allocation->use_count;
        use.slots.slots_val = allocation->uses;
        res.uses.uses_len = 1;
        res.uses.uses_val = &use;
    }
    flyt_call_reply(resize->call, &res);
    resize->call = NULL;
}

/* It has ended, in whatever way; the next one of the VM begins. */
static void finish(struct flyt_resize *resize, flyt_status status, const char *text)
{
    struct flyt_vm *vm = resize->vm;

    reply(resize, status, text);
    if (vm->allocation && vm->allocation->resize == resize)
        vm->allocation->resize = NULL;
    if (status != FLYT_STATUS_OK && status != FLYT_STATUS_TIMEOUT) {
        if (resize->is_from_document)
            flyt_vm_set_reason(vm, text);
        if (vm->allocation && resize->is_from_document)
            vm->allocation->grow_ms = flyt_clock_ms() + GROW_REFUSED_MS;
        flyt_event_add(resize->cluster, "vm.resize_refused", resize->who, vm->key, NULL, NULL, "%s", text);
    }
    leave(resize);
    if (TAILQ_FIRST(&vm->resizes)) {
        begin(TAILQ_FIRST(&vm->resizes));
    } else if (vm->wants_again) {
        vm->wants_again = false;
        flyt_resize_wanted(vm);
    }
}

/* ---- the VM's document ---- */

static const flyt_set_number *number_of(const struct flyt_resize *resize, unsigned field)
{
    return (const flyt_set_number *)((const char *)resize + fields[field].offset);
}

/* What a resize may set, of a document that was read. */
static void take_desired(struct flyt_desired *to, const struct flyt_desired *from)
{
    to->sm_count = from->sm_count;
    to->memory_bytes = from->memory_bytes;
    to->minimum_share_pct = from->minimum_share_pct;
    to->maximum_share_pct = from->maximum_share_pct;
    to->window_ms = from->window_ms;
    to->priority = from->priority;
    to->is_suspended = from->is_suspended;
    to->minimum_sms = from->minimum_sms;
    to->shown = from->shown;
}

static int edit_document(cJSON **document, void *user, struct flyt_error *err)
{
    struct flyt_resize *resize = user;

    if (!*document)
        return flyt_error_set(err, -ENOENT, "the VM's document has gone meanwhile");
    if (!resize->puts_back) {
        cJSON_Delete(resize->document_before);
        resize->document_before = cJSON_Duplicate(*document, true);
    }
    for (unsigned i = 0; i < FIELDS; i++) {
        const char *name = fields[i].name;
        const flyt_set_number *number = number_of(resize, i);
        if (!number->is_set)
            continue;
        const cJSON *old = resize->puts_back ? cJSON_GetObjectItemCaseSensitive(resize->document_before, name) : NULL;
        cJSON_DeleteItemFromObjectCaseSensitive(*document, name);
        if (resize->puts_back && old)
            cJSON_AddItemToObject(*document, name, cJSON_Duplicate(old, true));
        else if (!resize->puts_back && fields[i].is_bool)
            cJSON_AddBoolToObject(*document, name, number->value != 0);
        else if (!resize->puts_back)
            cJSON_AddNumberToObject(*document, name,
                                    fields[i].is_signed ? (double)(int64_t)number->value
                                                        : (double)number->value / fields[i].unit);
    }
    if (resize->puts_back)
        return 0;
    flyt_desired_free(&resize->written);
    return flyt_desired_read(*document, err, &resize->written);
}

static void put_back_done(void *user, int is_cancelled)
{
    struct flyt_resize *resize = user;
    struct flyt_desired_document *desired =
        is_cancelled ? NULL : flyt_table_find(&resize->cluster->desired_documents, resize->edit.id);

    resize->is_editing = false;
    if (desired && desired->put_back_count)
        desired->put_back_count--;
    if (!is_cancelled && resize->edit.result != FLYT_STORE_OK)
        flyt_warn("vm %s: its document could not be put back after a refused resize: %s", resize->edit.id,
                  resize->edit.err.text);
    if (is_cancelled)
        resize_free(resize);
    else
        let_go(resize);
}

/* The request in the document goes back to what it was; in memory at once, so that its next reading changes nothing. */
static void put_document_back(struct flyt_resize *resize)
{
    struct flyt_desired old;

    if (!resize->document_before || resize->is_from_document || resize->is_editing)
        return;
    if (!flyt_desired_read(resize->document_before, NULL, &old)) {
        take_desired(&resize->vm->desired, &old);
        flyt_desired_free(&old);
    }
    resize->puts_back = true;
    resize->edit.done = put_back_done;
    resize->is_editing = !flyt_edit_begin(resize->cluster->store_writer, &resize->edit);
    struct flyt_desired_document *desired = flyt_table_find(&resize->cluster->desired_documents, resize->edit.id);
    if (desired && resize->is_editing)
        desired->put_back_count++;
}

static void refuse(struct flyt_resize *resize, flyt_status status, const char *text)
{
    put_document_back(resize);
    finish(resize, status, text);
}

/* ---- what it makes of the allocation ---- */

/* For events. */
static cJSON *describe(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slot)
{
    cJSON *object = cJSON_CreateObject();

    cJSON_AddNumberToObject(object, "sms", slot->sm_count);
    cJSON_AddNumberToObject(object, "memory_bytes", (double)slot->memory_bytes);
    flyt_share_add_json(allocation, object);
    return object;
}

static void tell_recorded(const struct flyt_resize *resize, const struct flyt_cluster_allocation *allocation)
{
    const struct flyt_resize_size *before = &resize->before;
    struct flyt_cluster_allocation old = {.share = before->share,
                                          .isolation = allocation->isolation,
                                          .priority = before->priority,
                                          .is_suspended = before->is_suspended};
    cJSON *was = describe(&old, &before->slots[0]), *is = describe(allocation, &allocation->slots[0]);
    char size[FLYT_SIZE_TEXT_BYTES];

    if (allocation->is_suspended != before->is_suspended)
        flyt_event_add(resize->cluster, allocation->is_suspended ? "vm.suspended" : "vm.resumed", resize->who,
                       allocation->vm_ip, was, is, "VM %s is %s, revision %" PRIu64, allocation->vm_ip,
                       allocation->is_suspended ? "suspended" : "resumed", allocation->revision);
    else
        flyt_event_add(resize->cluster, "vm.resized", resize->who, allocation->vm_ip, was, is,
                       "VM %s: %u SMs and %s on each GPU, revision %" PRIu64, allocation->vm_ip,
                       allocation->slots[0].sm_count, flyt_size_text(allocation->slots[0].memory_bytes, size),
                       allocation->revision);
}

/* The store or the node did not take it: what was before gets a revision of its own, for some of the GPUs' documents,
 * or the node, may have the one that failed. */
static void put_back(struct flyt_resize *resize, struct flyt_cluster_allocation *allocation)
{
    flyt_resize_put_back(allocation, &resize->before);
    allocation->revision++;
    put_document_back(resize);
}

/* ---- how far it is ---- */

static struct flyt_resize_seen see(const struct flyt_resize *resize)
{
    const struct flyt_cluster_allocation *allocation = resize->vm->allocation;
    struct flyt_resize_seen seen = {.is_late = resize->is_late, .is_waited = resize->call != NULL};
    unsigned sms;

    if (resize->state == FLYT_RESIZE_MOVING) {
        seen.has_moved = !allocation->migration && allocation->moved_status == FLYT_STATUS_OK;
        seen.has_stayed = !allocation->migration && allocation->moved_status != FLYT_STATUS_OK;
    }
    if (resize->state < FLYT_RESIZE_WRITING)
        return seen;
    seen.is_written = allocation->written_revision >= resize->revision;
    seen.has_failed = allocation->failed_revision >= resize->revision;
    seen.is_answered = allocation->answered_revision >= resize->revision;
    seen.answer_error = allocation->answer_error;
    seen.is_refused = allocation->answer_status != FLYT_STATUS_OK;
    seen.is_applied = allocation->applied_revision >= resize->revision && allocation->use_status == FLYT_STATUS_OK &&
                      !allocation->is_ordering;
    seen.switch_state = flyt_resize_least_switched(allocation, &resize->before, &sms);
    seen.is_still = !allocation->is_suspended || resize->before.is_suspended || flyt_share_is_still(allocation);
    seen.is_short = flyt_resize_short_slot(allocation) != NULL;
    return seen;
}

static void say_short(struct flyt_resize *resize, const struct flyt_cluster_slot *slot)
{
    char reason[128], sentence[256];

    snprintf(reason, sizeof reason, "%u of %u SMs now, the others as other VMs' programs leave them", slot->sm_count,
             slot->wanted_sms);
    snprintf(sentence, sizeof sentence, "recorded at revision %" PRIu64 ": %s", resize->revision, reason);
    flyt_vm_set_reason(resize->vm, reason);
    finish(resize, FLYT_STATUS_TIMEOUT, sentence);
}

static void say_record(struct flyt_resize *resize, const struct flyt_cluster_allocation *allocation)
{
    char sentence[256];
    unsigned sms = 0;

    flyt_resize_least_switched(allocation, &resize->before, &sms);
    flyt_vm_set_reason(resize->vm, NULL);
    snprintf(sentence, sizeof sentence,
             "recorded at revision %" PRIu64 "; running programs keep their %u SMs until they start again",
             resize->revision, sms);
    finish(resize, FLYT_STATUS_TIMEOUT, sentence);
}

static void say_late(struct flyt_resize *resize)
{
    char sentence[256];

    snprintf(sentence, sizeof sentence,
             "recorded at revision %" PRIu64 ", not acknowledged by the node and its servers yet", resize->revision);
    if (resize->state == FLYT_RESIZE_OVER)
        finish(resize, FLYT_STATUS_TIMEOUT, sentence);
    else
        reply(resize, FLYT_STATUS_TIMEOUT, sentence);
}

/* The store is slow, so that it is not known what it has. */
static void say_unknown(struct flyt_resize *resize)
{
    char sentence[sizeof resize->refusal_text + 64];

    if (resize->state != FLYT_RESIZE_TAKING_BACK) {
        reply(resize, FLYT_STATUS_TIMEOUT, "whether it will be recorded is not known yet: the store is slow");
        return;
    }
    snprintf(sentence, sizeof sentence, "%s; whether that is recorded is not known yet: the store is slow",
             resize->refusal_text);
    reply(resize, FLYT_STATUS_TIMEOUT, sentence);
}

static void say_unreached(struct flyt_resize *resize, const struct flyt_cluster_allocation *allocation)
{
    char sentence[512];

    snprintf(sentence, sizeof sentence,
             "recorded at revision %" PRIu64 ", not acknowledged: node %s did not answer (%s); it takes hold when "
             "the node is back",
             resize->revision, allocation->node->key, strerror(-allocation->answer_error));
    finish(resize, FLYT_STATUS_TIMEOUT, sentence);
}

static void take_back(struct flyt_resize *resize, struct flyt_cluster_allocation *allocation)
{
    const char *why = allocation->answer_text ? allocation->answer_text : "";

    resize->refusal = allocation->answer_status;
    snprintf(resize->refusal_text, sizeof resize->refusal_text, "%.400s; revision %" PRIu64 " is taken back",
             *why ? why : "the node refused", resize->revision);
    put_back(resize, allocation);
    resize->revision = allocation->revision;
    flyt_allocation_write(allocation);
}

static void give_up(struct flyt_resize *resize, struct flyt_cluster_allocation *allocation)
{
    char sentence[512];

    snprintf(sentence, sizeof sentence, "the store did not take it: %.300s",
             allocation->failed_text ? allocation->failed_text : "");
    put_back(resize, allocation);
    flyt_allocation_write_and_order(allocation);
    finish(resize, FLYT_STATUS_UNAVAILABLE, sentence);
}

static void do_step(struct flyt_resize *resize, enum flyt_resize_step step)
{
    struct flyt_cluster_allocation *allocation = resize->vm->allocation;

    switch (step) {
    case FLYT_RESIZE_WAIT:
    case FLYT_RESIZE_LOOK:
        break;
    case FLYT_RESIZE_ORDER:
        tell_recorded(resize, allocation);
        flyt_allocation_order(allocation);
        break;
    case FLYT_RESIZE_PUT_BACK:
        give_up(resize, allocation);
        break;
    case FLYT_RESIZE_TAKE_BACK:
        take_back(resize, allocation);
        break;
    case FLYT_RESIZE_SAY_QUEUED:
        finish(resize, FLYT_STATUS_CONFLICT,
               "nothing was changed: a resize of the VM before this one waits for the store or the node");
        break;
    case FLYT_RESIZE_SAY_UNKNOWN:
        say_unknown(resize);
        break;
    case FLYT_RESIZE_SAY_UNREACHED:
        say_unreached(resize, allocation);
        break;
    case FLYT_RESIZE_SAY_LATE:
        say_late(resize);
        break;
    case FLYT_RESIZE_SAY_KEPT:
        flyt_vm_tell(resize->vm, "resized");
        say_record(resize, allocation);
        break;
    case FLYT_RESIZE_SAY_SHORT:
        flyt_vm_tell(resize->vm, "resized");
        say_short(resize, flyt_resize_short_slot(allocation));
        break;
    case FLYT_RESIZE_SAY_DONE:
        flyt_vm_tell(resize->vm, "resized");
        flyt_vm_set_reason(resize->vm, NULL);
        finish(resize, FLYT_STATUS_OK, "");
        break;
    case FLYT_RESIZE_SAY_MOVED:
        finish(resize, FLYT_STATUS_OK, "");
        break;
    case FLYT_RESIZE_SAY_STAYED:
        refuse(resize, allocation->moved_status, allocation->moved_text ? allocation->moved_text : "");
        break;
    case FLYT_RESIZE_SAY_REFUSED:
        flyt_allocation_order(allocation);
        finish(resize, resize->refusal, resize->refusal_text);
        break;
    }
}

static void look(struct flyt_resize *resize)
{
    enum flyt_resize_step step;

    do {
        const struct flyt_resize_seen seen = see(resize);
        enum flyt_resize_state next;
        step = flyt_resize_next(resize->state, &seen, &next);
        bool is_over = next == FLYT_RESIZE_OVER;
        resize->state = next;
        do_step(resize, step);
        if (is_over)
            return;
    } while (step != FLYT_RESIZE_WAIT);
}

static int on_timeout(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_resize *resize = user;

    resize->is_late = true;
    look(resize);
    return 0;
}

/* ---- the way of one ---- */

/* It moves to where there is room for it. The migration answers who asked, and ends the resize. */
static void migrate(struct flyt_resize *resize, struct flyt_cluster_allocation *allocation)
{
    const struct flyt_migration_desired desired = {.target = resize->target,
                                                   .bounds = resize->bounds,
                                                   .stream_count = resize->stream_count,
                                                   .packing = resize->packing,
                                                   .force = resize->force,
                                                   .sm_count = resize->sms.is_set ? (unsigned)resize->sms.value : 0,
                                                   .memory_bytes =
                                                       resize->memory_bytes.is_set ? resize->memory_bytes.value : 0,
                                                   .who = resize->who};
    struct flyt_cluster_slot others[FLYT_SLOTS_MAX];
    struct flyt_error err = {0};

    flyt_status status = flyt_migration_choose(allocation, &desired, others, &err);
    if (status != FLYT_STATUS_OK) {
        refuse(resize, status, err.text);
        return;
    }
    if (flyt_migration_start(allocation, &desired, others, resize->call)) {
        refuse(resize, FLYT_STATUS_UNAVAILABLE, "the cluster manager has no memory");
        return;
    }
    resize->call = NULL;
    resize->timer = sd_event_source_disable_unref(resize->timer);
}

static void change(struct flyt_resize *resize)
{
    struct flyt_cluster_allocation *allocation = resize->vm->allocation;
    const struct flyt_resize_want want = {.sms = resize->sms,
                                          .memory_bytes = resize->memory_bytes,
                                          .when_free = resize->when_free,
                                          .is_forced = resize->force};
    struct flyt_error err = {0};
    bool is_change;

    if (!allocation || !allocation->is_granted || allocation->is_leaving) {
        finish(resize, FLYT_STATUS_OK, "");
        return;
    }
    allocation->resize = resize;
    if (resize->migrates) {
        resize->state = FLYT_RESIZE_MOVING;
        migrate(resize, allocation);
        return;
    }
    flyt_resize_keep(allocation, &resize->before);
    flyt_status status = flyt_resize_change(allocation, &want, &resize->before, &is_change, &err);
    if (status == FLYT_STATUS_QUOTA)
        flyt_measure_limit(resize->cluster, "quota");
    if (status != FLYT_STATUS_OK) {
        refuse(resize, status, err.text);
        return;
    }
    resize->revision = allocation->revision;
    if (!is_change && resize->before.when_free == resize->when_free) {
        const struct flyt_cluster_slot *slot = flyt_resize_short_slot(allocation);
        if (slot)
            say_short(resize, slot);
        else
            finish(resize, FLYT_STATUS_OK, "");
        return;
    }
    resize->revision = ++allocation->revision;
    resize->state = FLYT_RESIZE_WRITING;
    flyt_allocation_write(allocation);
}

static void document_written(void *user, int is_cancelled)
{
    struct flyt_resize *resize = user;
    const char *text;
    flyt_status status;

    resize->is_editing = false;
    if (is_cancelled) {
        resize_free(resize);
        return;
    }
    if (resize->state == FLYT_RESIZE_OVER) {
        let_go(resize);
        return;
    }
    if (!flyt_edit_is_done(&resize->edit)) {
        status = flyt_edit_outcome(&resize->edit, &text);
        finish(resize, status, text);
        return;
    }
    take_desired(&resize->vm->desired, &resize->written);
    change(resize);
}

static void begin(struct flyt_resize *resize)
{
    struct flyt_desired_document *desired = flyt_desired_store_of(resize->cluster, resize->vm->key);

    if (resize->state != FLYT_RESIZE_QUEUED)
        return;
    resize->state = FLYT_RESIZE_EDITING;
    if (resize->is_from_document) {
        change(resize);
        return;
    }
    if (!desired) {
        finish(resize, FLYT_STATUS_CONFLICT, "the VM has no document, or several");
        return;
    }
    resize->edit = (struct flyt_edit){.operation = "resize",
                                      .collection = "vm_required_resources",
                                      .edit = edit_document,
                                      .done = document_written,
                                      .user = resize};
    snprintf(resize->edit.id, sizeof resize->edit.id, "%s", desired->key);
    resize->is_editing = !flyt_edit_begin(resize->cluster->store_writer, &resize->edit);
    if (!resize->is_editing)
        finish(resize, FLYT_STATUS_UNAVAILABLE, "too much work waits for the store");
}

static struct flyt_resize *resize_new(struct flyt_vm *vm, const char *who, uint64_t timeout_ms)
{
    struct flyt_resize *resize = calloc(1, sizeof *resize);

    if (!resize)
        return NULL;
    resize->cluster = vm->cluster;
    resize->vm = vm;
    resize->timeout_ms = timeout_ms ? (timeout_ms < TIMEOUT_MAX_MS ? timeout_ms : TIMEOUT_MAX_MS) : TIMEOUT_MS;
    snprintf(resize->who, sizeof resize->who, "%s", who);
    if (sd_event_add_time_relative(resize->cluster->event, &resize->timer, CLOCK_MONOTONIC, resize->timeout_ms * 1000,
                                   0, on_timeout, resize) < 0)
        resize->timer = NULL;
    TAILQ_INSERT_TAIL(&vm->resizes, resize, entry);
    return resize;
}

void flyt_resize_wanted(struct flyt_vm *vm)
{
    struct flyt_cluster_allocation *allocation = vm->allocation;

    if (!allocation || !allocation->is_granted || allocation->is_leaving || !flyt_resize_is_wanted(allocation, vm))
        return;
    if (!TAILQ_EMPTY(&vm->resizes) || allocation->migration || flyt_checkpoint_op_of(allocation)) {
        vm->wants_again = true; /* the one under way has written this document, or it is looked at afterwards */
        return;
    }
    struct flyt_resize *resize = resize_new(vm, "document", TIMEOUT_MS);
    if (!resize)
        return;
    resize->is_from_document = true;
    resize->sms = (flyt_set_number){true, vm->desired.sm_count};
    resize->memory_bytes = (flyt_set_number){true, vm->desired.memory_bytes};
    begin(resize);
}

static bool can_grow(const struct flyt_cluster_allocation *allocation, uint64_t now_ms)
{
    if (!allocation->vm || now_ms < allocation->grow_ms || allocation->migration || flyt_checkpoint_op_of(allocation))
        return false;
    for (unsigned i = 0; i < allocation->slot_count; i++)
        if (allocation->slots[i].gpu && flyt_slot_can_grow(allocation, &allocation->slots[i]))
            return true;
    return false;
}

/* What a VM's document has come to say meanwhile, or could not have yet. */
static void look_at_desired(struct flyt_cluster_allocation *allocation)
{
    struct flyt_vm *vm = allocation->vm;
    uint64_t now_ms = flyt_clock_ms();

    if (vm && vm->allocation == allocation && vm->wants_again && TAILQ_EMPTY(&vm->resizes) && !allocation->migration &&
        !flyt_checkpoint_op_of(allocation)) {
        vm->wants_again = false;
        flyt_resize_wanted(vm);
    } else if (can_grow(allocation, now_ms)) {
        allocation->grow_ms = now_ms + GROW_MS;
        flyt_resize_wanted(vm);
    }
}

void flyt_resize_look(struct flyt_cluster_allocation *allocation)
{
    if (allocation->resize)
        look(allocation->resize);
    else
        look_at_desired(allocation);
}

void flyt_resize_cancel(struct flyt_vm *vm, const char *why)
{
    struct flyt_resize *resize, *next;

    if (vm->allocation)
        vm->allocation->resize = NULL;
    for (resize = TAILQ_FIRST(&vm->resizes); resize; resize = next) {
        next = TAILQ_NEXT(resize, entry);
        reply(resize, FLYT_STATUS_CONFLICT, why);
        leave(resize);
    }
}

/* What the VM's document says of its SMs is above all. */
static bool keeps_minimum(const struct flyt_vm *vm, const flyt_set_number *sms, struct flyt_error *err)
{
    if (!sms->is_set || !vm->has_desired || sms->value >= vm->desired.minimum_sms)
        return true;
    flyt_error_set(err, -EBUSY,
                   "VM %s is to have %u SMs at least: `flytctl vm set %s --minimum-sms N` changes that first", vm->key,
                   vm->desired.minimum_sms, vm->key);
    return false;
}

static bool is_size(const flyt_set_number *sms, const flyt_set_number *memory_bytes)
{
    return !(sms->is_set && (!sms->value || sms->value > 1 << 20)) &&
           !(memory_bytes->is_set && (!memory_bytes->value || memory_bytes->value > FLYT_FIELD_NUMBER_MAX));
}

flyt_status flyt_resize_migrate(struct flyt_vm *vm, const flyt_migrate_args *args, struct flyt_call *call,
                                struct flyt_error *err)
{
    char who[FLYT_NAME_BYTES_MAX + 1];

    if (!is_size(&args->compute_units, &args->memory_bytes)) {
        flyt_error_set(err, -EINVAL, "a size is at least 1 SM and 1 byte");
        return FLYT_STATUS_INVALID;
    }
    if (!keeps_minimum(vm, &args->compute_units, err))
        return FLYT_STATUS_CONFLICT;
    struct flyt_resize *resize = resize_new(vm, flyt_call_who(call, who), TIMEOUT_MS);
    char *target = strdup(args->target);
    if (!resize || !target) {
        if (resize) {
            TAILQ_REMOVE(&vm->resizes, resize, entry);
            resize_free(resize);
        }
        free(target);
        flyt_error_set(err, -ENOMEM, "the cluster manager has no memory");
        return FLYT_STATUS_UNAVAILABLE;
    }
    resize->call = call;
    resize->migrates = true;
    resize->target = target;
    resize->bounds = args->bounds;
    resize->stream_count = args->stream_count;
    resize->packing = args->packing;
    resize->force = args->force;
    resize->sms = args->compute_units;
    resize->memory_bytes = args->memory_bytes;
    begin(resize);
    return FLYT_STATUS_OK;
}

void flyt_serve_resize(struct flyt_call *call, void *data)
{
    const flyt_resize_args *args = data;
    struct flyt_cluster *cluster = flyt_call_cluster(call);
    struct flyt_error err = {0};
    char who[FLYT_NAME_BYTES_MAX + 1];

    if (!flyt_lead_may(cluster, call))
        return;
    struct flyt_vm *vm = flyt_vm_find(cluster, args->vm, &err);
    bool names_share = args->minimum_share_pct.is_set || args->maximum_share_pct.is_set;
    if (!vm) {
        flyt_call_outcome(call, err.code == -EINVAL ? FLYT_STATUS_INVALID : FLYT_STATUS_NOT_FOUND, "%s", err.text);
        return;
    }
    if (!is_size(&args->compute_units, &args->memory_bytes) ||
        (!args->compute_units.is_set && !args->memory_bytes.is_set && !names_share && !args->window_ms.is_set &&
         !args->priority.is_set && !args->is_suspended.is_set)) {
        flyt_call_outcome(
            call, FLYT_STATUS_INVALID,
            "a resize names SMs (at least 1), memory (at least 1 byte), a share of the time or a priority");
        return;
    }
    if (!keeps_minimum(vm, &args->compute_units, &err)) {
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT, "%s", err.text);
        return;
    }
    if (vm->allocation && vm->allocation->migration) {
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT,
                          "VM %s moves to another GPU (migration %s, %s): try again when that is over", vm->key,
                          vm->allocation->migration->id_text,
                          flyt_migration_phase_name(vm->allocation->migration->use.phase));
        return;
    }
    if (vm->allocation && flyt_checkpoint_op_of(vm->allocation)) {
        flyt_call_outcome(call, FLYT_STATUS_CONFLICT, "VM %s is being checkpointed (%s): try again when that is over",
                          vm->key, flyt_checkpoint_op_of(vm->allocation)->id_text);
        return;
    }
    if (names_share && vm->allocation && vm->allocation->is_granted && !vm->allocation->share.is_timed) {
        flyt_call_outcome(
            call, FLYT_STATUS_CONFLICT,
            "VM %s has its SMs alone: a share of the time is for SMs that VMs share (vm set --sharing time "
            "takes hold with its next allocation)",
            vm->key);
        return;
    }
    struct flyt_resize *resize = resize_new(vm, flyt_call_who(call, who), args->timeout_ms);
    if (!resize) {
        flyt_call_fail(call);
        return;
    }
    resize->call = call;
    resize->sms = args->compute_units;
    resize->memory_bytes = args->memory_bytes;
    resize->minimum_pct = args->minimum_share_pct;
    resize->maximum_pct = args->maximum_share_pct;
    resize->window_ms = args->window_ms;
    resize->priority = args->priority;
    resize->suspended = args->is_suspended;
    resize->when_free = args->when_free;
    resize->force = args->force;
    if (TAILQ_FIRST(&vm->resizes) == resize)
        begin(resize);
}
