#include "cpu/image/rules.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/base/id.h"

#define PAGE_BYTES ((uint64_t)FLYT_CHECKPOINT_PAGE_BYTES)

static int refuse(struct flyt_error *err, const char *why)
{
    return flyt_error_set(err, -EBADMSG, "%s", why);
}

static int no_memory(struct flyt_error *err)
{
    return flyt_error_set(err, -ENOMEM, "no memory for it");
}

void flyt_checkpoint_rules_init(struct flyt_checkpoint_rules *rules)
{
    *rules = (struct flyt_checkpoint_rules){.object_next = 0};
}

void flyt_checkpoint_rules_fini(struct flyt_checkpoint_rules *rules)
{
    flyt_page_map_fini(&rules->map);
    tdestroy(rules->module_images, free);
    rules->module_images = NULL;
}

static int take_head(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_head *head, struct flyt_error *err)
{
    if (flyt_checkpoint_id_is_none(head->id))
        return refuse(err, "it has no id");
    if (!memcmp(head->id, head->parent_id, sizeof head->id))
        return refuse(err, "it is its own parent");
    if (head->page_bytes != FLYT_CHECKPOINT_PAGE_BYTES)
        return flyt_error_set(err, -ENOTSUP, "its pages have %u bytes, this build's %d", head->page_bytes,
                              FLYT_CHECKPOINT_PAGE_BYTES);
    rules->has_parent = !flyt_checkpoint_id_is_none(head->parent_id);
    rules->has_hashes = head->page_hash != 0;
    return 0;
}

static int take_slot(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_slot *slot, struct flyt_error *err)
{
    struct flyt_checkpoint_totals *totals = &rules->totals;

    if (slot->slot >= FLYT_CHECKPOINT_SLOTS_MAX ||
        (totals->slot_count && slot->slot <= totals->slots[totals->slot_count - 1].slot))
        return flyt_error_set(err, -EBADMSG, "there is no slot %u, or it is not in order", slot->slot);
    if (slot->window_address != flyt_window_base(slot->slot))
        return flyt_error_set(err, -ENOTSUP, "the window of slot %u is at %#" PRIx64 ", this build's at %#" PRIx64,
                              slot->slot, (uint64_t)slot->window_address, flyt_window_base(slot->slot));
    totals->slots[totals->slot_count++] = *slot;
    return 0;
}

static int take_round(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_round *round, struct flyt_error *err)
{
    if (round->number != rules->totals.round_count + 1 || round->number > FLYT_CHECKPOINT_ROUNDS_MAX)
        return flyt_error_set(err, -EBADMSG, "round %u does not follow round %u", round->number,
                              rules->totals.round_count);
    rules->totals.round_count = round->number;
    flyt_page_map_begin_round(&rules->map);
    return 0;
}

static bool is_in_a_window(const struct flyt_checkpoint_totals *totals, uint64_t address, uint64_t bytes)
{
    for (uint32_t i = 0; i < totals->slot_count; i++) {
        uint64_t offset = address - totals->slots[i].window_address;
        if (address >= totals->slots[i].window_address && offset < FLYT_WINDOW_BYTES)
            return bytes <= FLYT_WINDOW_BYTES - offset;
    }
    return false;
}

static int take_extent(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_extent *extent,
                       struct flyt_error *err)
{
    if (!extent->bytes || extent->bytes % FLYT_CHECKPOINT_EXTENT_ALIGN ||
        extent->address % FLYT_CHECKPOINT_EXTENT_ALIGN ||
        !is_in_a_window(&rules->totals, extent->address, extent->bytes))
        return flyt_error_set(err, -EBADMSG, "an extent of %" PRIu64 " bytes at %#" PRIx64 " is in no slot's window",
                              (uint64_t)extent->bytes, (uint64_t)extent->address);
    int status = flyt_page_map_add(&rules->map, extent->address, extent->bytes);
    if (status == -ENOMEM)
        return no_memory(err);
    if (status)
        return flyt_error_set(err, -EBADMSG, "the extent at %#" PRIx64 " %s", (uint64_t)extent->address,
                              status == -EEXIST ? "overlaps another one" : "is one too many");
    rules->totals.extent_count++;
    rules->totals.extent_bytes += extent->bytes;
    return 0;
}

static int take_extent_gone(struct flyt_checkpoint_rules *rules, uint64_t address, struct flyt_error *err)
{
    uint64_t bytes;

    if (flyt_page_map_remove(&rules->map, address, &bytes))
        return flyt_error_set(err, -EBADMSG, "there was no extent at %#" PRIx64, address);
    rules->totals.extent_count--;
    rules->totals.extent_bytes -= bytes;
    rules->are_allocations_old = rules->totals.allocation_count > 0;
    return 0;
}

static int take_allocations(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_allocations *allocations,
                            struct flyt_error *err)
{
    struct flyt_checkpoint_totals *totals = &rules->totals;

    if (allocations->is_first) {
        totals->allocation_count = totals->allocation_bytes = rules->allocation_end = 0;
        rules->are_allocations_old = false;
    } else if (rules->are_allocations_old) {
        return refuse(err, "allocations follow those of extents that are gone");
    }
    for (u_int i = 0; i < allocations->ranges.ranges_len; i++) {
        const flyt_checkpoint_range *range = &allocations->ranges.ranges_val[i];
        if (!range->bytes || range->address < rules->allocation_end ||
            !flyt_page_map_covers(&rules->map, range->address, range->bytes))
            return flyt_error_set(err, -EBADMSG,
                                  "an allocation of %" PRIu64 " bytes at %#" PRIx64 " overlaps another one, or what is "
                                  "no extent",
                                  (uint64_t)range->bytes, (uint64_t)range->address);
        rules->allocation_end = range->address + range->bytes;
        totals->allocation_count++;
        totals->allocation_bytes += range->bytes;
    }
    return 0;
}

static int compare_hashes(const void *one, const void *other)
{
    return memcmp(one, other, FLYT_SHA256_BYTES);
}

bool flyt_checkpoint_rules_has_module_image(const struct flyt_checkpoint_rules *rules, const void *sha256)
{
    return tfind(sha256, &rules->module_images, compare_hashes) != NULL;
}

static int remember_module_image(struct flyt_checkpoint_rules *rules, const void *sha256, struct flyt_error *err)
{
    if (flyt_checkpoint_rules_has_module_image(rules, sha256))
        return refuse(err, "a module image comes twice");
    if (rules->totals.module_image_count == FLYT_CHECKPOINT_MODULES_MAX)
        return refuse(err, "a module image is one too many");
    void *copy = malloc(FLYT_SHA256_BYTES);
    if (!copy)
        return no_memory(err);
    memcpy(copy, sha256, FLYT_SHA256_BYTES);
    if (!tsearch(copy, &rules->module_images, compare_hashes)) {
        free(copy);
        return no_memory(err);
    }
    return 0;
}

/* Parts are never empty, but that of what is empty as a whole. */
static int take_part(struct flyt_checkpoint_part *part, uint64_t offset_bytes, uint64_t payload_bytes,
                     struct flyt_error *err)
{
    uint64_t left_bytes = part->total_bytes - part->next_bytes;

    if (offset_bytes != part->next_bytes || payload_bytes > left_bytes || (!payload_bytes && left_bytes))
        return flyt_error_set(err, -EBADMSG, "%" PRIu64 " bytes at %" PRIu64 " of %" PRIu64 " do not follow %" PRIu64,
                              payload_bytes, offset_bytes, part->total_bytes, part->next_bytes);
    part->next_bytes += payload_bytes;
    return 0;
}

static int take_module_image(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_module_image *image,
                             uint64_t payload_bytes, struct flyt_error *err)
{
    struct flyt_checkpoint_part *part = &rules->part;

    if (part->type) {
        if (image->total_bytes != part->total_bytes || memcmp(image->sha256, part->sha256, sizeof part->sha256))
            return refuse(err, "a module image begins before the one before it is whole");
        return take_part(part, image->offset_bytes, payload_bytes, err);
    }
    if (!image->total_bytes || image->total_bytes > FLYT_CHECKPOINT_MODULE_BYTES_MAX)
        return flyt_error_set(err, -EBADMSG, "a module image has %" PRIu64 " bytes", (uint64_t)image->total_bytes);
    int status = remember_module_image(rules, image->sha256, err);
    if (status)
        return status;
    *part = (struct flyt_checkpoint_part){.type = FLYT_CHECKPOINT_MODULE_IMAGE, .total_bytes = image->total_bytes};
    memcpy(part->sha256, image->sha256, sizeof part->sha256);
    flyt_sha256_init(&part->hash);
    rules->totals.module_image_count++;
    rules->totals.module_image_bytes += image->total_bytes;
    return take_part(part, image->offset_bytes, payload_bytes, err);
}

static int take_global(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_global *global,
                       uint64_t payload_bytes, struct flyt_error *err)
{
    struct flyt_checkpoint_part *part = &rules->part;
    unsigned char symbol[FLYT_SHA256_BYTES];

    flyt_sha256_of(global->symbol, strlen(global->symbol), symbol);
    if (part->type) {
        if (global->module_id != part->module_id || global->total_bytes != part->total_bytes ||
            global->address != part->address || memcmp(symbol, part->symbol, sizeof symbol))
            return refuse(err, "a global begins before the one before it is whole");
        return take_part(part, global->offset_bytes, payload_bytes, err);
    }
    if (global->total_bytes > FLYT_WINDOW_BYTES)
        return flyt_error_set(err, -EBADMSG, "a global has %" PRIu64 " bytes", (uint64_t)global->total_bytes);
    *part = (struct flyt_checkpoint_part){.type = FLYT_CHECKPOINT_GLOBAL,
                                          .total_bytes = global->total_bytes,
                                          .module_id = global->module_id,
                                          .address = global->address};
    memcpy(part->symbol, symbol, sizeof symbol);
    if (global->is_constant) {
        rules->totals.constant_count++;
        rules->totals.constant_bytes += global->total_bytes;
    } else {
        rules->totals.global_count++;
        rules->totals.global_bytes += global->total_bytes;
    }
    return take_part(part, global->offset_bytes, payload_bytes, err);
}

static int take_object(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_object *object,
                       struct flyt_error *err)
{
    if (object->number < rules->object_next || object->number == UINT64_MAX)
        return flyt_error_set(err, -EBADMSG, "object %" PRIu64 " comes after one of a higher number",
                              (uint64_t)object->number);
    rules->object_next = object->number + 1;
    rules->totals.object_counts[flyt_checkpoint_kind_name(object->kind) ? object->kind : 0]++;
    return 0;
}

static int take_object_gone(struct flyt_checkpoint_rules *rules, uint64_t number, struct flyt_error *err)
{
    if (number >= rules->object_next)
        return flyt_error_set(err, -EBADMSG, "object %" PRIu64 " goes before it came", number);
    rules->totals.object_gone_count++;
    return 0;
}

/* Whether count and payload fit the encoding. */
static bool is_sound(const flyt_checkpoint_pages *pages, uint64_t payload_bytes)
{
    uint64_t raw_bytes = pages->page_count * PAGE_BYTES;

    switch ((uint32_t)pages->encoding) {
    case FLYT_CHECKPOINT_RAW:
        return pages->page_count <= FLYT_CHECKPOINT_DATA_PAGES_MAX && payload_bytes == raw_bytes;
    case FLYT_CHECKPOINT_LZ4:
    case FLYT_CHECKPOINT_ZSTD:
        return pages->page_count <= FLYT_CHECKPOINT_DATA_PAGES_MAX && payload_bytes && payload_bytes < raw_bytes;
    case FLYT_CHECKPOINT_ZERO:
    case FLYT_CHECKPOINT_PARENT:
        return pages->page_count <= FLYT_CHECKPOINT_RUN_PAGES_MAX && !payload_bytes;
    default:
        return false;
    }
}

static int take_pages(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_pages *pages, uint64_t payload_bytes,
                      struct flyt_error *err)
{
    if (!pages->page_count || pages->address % PAGE_BYTES || !is_sound(pages, payload_bytes))
        return flyt_error_set(err, -EBADMSG,
                              "%u pages at %#" PRIx64 " in encoding %u with %" PRIu64 " bytes make no sense",
                              pages->page_count, (uint64_t)pages->address, (unsigned)pages->encoding, payload_bytes);
    if (pages->hashes.hashes_len &&
        (!rules->has_hashes || pages->hashes.hashes_len != pages->page_count * FLYT_CHECKPOINT_PAGE_HASH_BYTES))
        return flyt_error_set(err, -EBADMSG, "%u pages at %#" PRIx64 " have %u bytes of hashes", pages->page_count,
                              (uint64_t)pages->address, pages->hashes.hashes_len);
    if (pages->encoding == FLYT_CHECKPOINT_PARENT && !rules->has_parent)
        return flyt_error_set(err, -EBADMSG, "%u pages at %#" PRIx64 " are those of a parent, but it has none",
                              pages->page_count, (uint64_t)pages->address);
    int status =
        flyt_page_map_mark(&rules->map, pages->address, pages->page_count, pages->encoding != FLYT_CHECKPOINT_PARENT);
    if (status)
        return flyt_error_set(err, -EBADMSG, "of %u pages at %#" PRIx64 " some %s", pages->page_count,
                              (uint64_t)pages->address,
                              status == -EEXIST ? "come twice in one round" : "are in no extent");
    rules->totals.page_counts[pages->encoding] += pages->page_count;
    rules->totals.page_payload_bytes += payload_bytes;
    return 0;
}

static int take_hash_key(struct flyt_checkpoint_rules *rules, struct flyt_error *err)
{
    if (rules->totals.has_hash_key || !rules->has_hashes)
        return refuse(err, "its key of hashes comes twice, or without hashes");
    rules->totals.has_hash_key = true;
    return 0;
}

static int take_hashes(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_hashes *hashes,
                       uint64_t payload_bytes, struct flyt_error *err)
{
    if (!rules->totals.has_hash_key)
        return refuse(err, "it has hashes without their key");
    if (!hashes->page_count || hashes->page_count > FLYT_CHECKPOINT_HASHED_PAGES_MAX || hashes->address % PAGE_BYTES ||
        hashes->address < rules->hashed_end ||
        payload_bytes != (uint64_t)hashes->page_count * FLYT_CHECKPOINT_PAGE_HASH_BYTES ||
        !is_in_a_window(&rules->totals, hashes->address, hashes->page_count * PAGE_BYTES))
        return flyt_error_set(err, -EBADMSG,
                              "hashes of %u pages at %#" PRIx64 " with %" PRIu64 " bytes make no sense, or overlap",
                              hashes->page_count, (uint64_t)hashes->address, payload_bytes);
    rules->hashed_end = hashes->address + hashes->page_count * PAGE_BYTES;
    rules->totals.hashed_page_count += hashes->page_count;
    return 0;
}

/* ---- from node to node ---- */

static int take_streams(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_streams *streams,
                        struct flyt_error *err)
{
    if (rules->totals.has_streams || streams->stream_count > FLYT_CHECKPOINT_STREAMS_MAX)
        return flyt_error_set(err, -EBADMSG, "%u further connections, or told twice", streams->stream_count);
    if (!rules->has_hashes || rules->has_parent)
        return refuse(err, "it goes to another node without hashes, or builds on another image");
    rules->totals.has_streams = true;
    rules->totals.stream_count = streams->stream_count;
    return 0;
}

/* The number of pages, or 0: the runs make no sense. */
static uint32_t count_pages(const struct flyt_checkpoint_totals *totals, const flyt_checkpoint_elsewhere *batch)
{
    uint64_t page_count = 0;

    for (u_int i = 0; i < batch->runs.runs_len; i++) {
        const flyt_checkpoint_run *run = &batch->runs.runs_val[i];
        page_count += run->page_count;
        if (!run->page_count || page_count > FLYT_CHECKPOINT_BATCH_PAGES_MAX || run->address % PAGE_BYTES ||
            !is_in_a_window(totals, run->address, run->page_count * PAGE_BYTES) ||
            flyt_window_device(run->address) != flyt_window_device(batch->runs.runs_val[0].address))
            return 0;
    }
    return (uint32_t)page_count;
}

static int take_elsewhere(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_elsewhere *batch,
                          struct flyt_error *err)
{
    uint32_t page_count = count_pages(&rules->totals, batch);

    if (!batch->stream || batch->stream > rules->totals.stream_count || batch->number != rules->batch_number + 1)
        return flyt_error_set(err, -EBADMSG, "pages %" PRIu64 " of connection %u are not in order",
                              (uint64_t)batch->number, batch->stream);
    if (!page_count || batch->hashes.hashes_len != page_count * FLYT_CHECKPOINT_PAGE_HASH_BYTES)
        return flyt_error_set(err, -EBADMSG, "pages %" PRIu64 " of connection %u make no sense",
                              (uint64_t)batch->number, batch->stream);
    for (u_int i = 0; i < batch->runs.runs_len; i++) {
        const flyt_checkpoint_run *run = &batch->runs.runs_val[i];
        int status = flyt_page_map_mark(&rules->map, run->address, run->page_count, true);
        if (status)
            return flyt_error_set(err, -EBADMSG, "of %u pages at %#" PRIx64 " some %s", run->page_count,
                                  (uint64_t)run->address,
                                  status == -EEXIST ? "come twice in one round" : "are in no extent");
    }
    rules->batch_number = batch->number;
    rules->totals.elsewhere_page_count += page_count;
    return 0;
}

static int take_sequence(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_sequence *sequence,
                         struct flyt_error *err)
{
    uint64_t address, page_count;

    if (sequence->completed > sequence->executed || sequence->executed > sequence->received)
        return refuse(err, "more calls are completed than executed, or executed than received");
    if (rules->are_allocations_old)
        return refuse(err, "its allocations are those of extents that are gone");
    if (!rules->has_parent && flyt_page_map_next_missing(&rules->map, 0, &address, &page_count))
        return flyt_error_set(err, -EBADMSG, "%" PRIu64 " pages at %#" PRIx64 " are missing", page_count, address);
    rules->totals.sequence = *sequence;
    return 0;
}

static int take_stopped(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_stopped *stopped,
                        struct flyt_error *err)
{
    const flyt_checkpoint_sequence *sequence = &rules->totals.sequence;

    if (rules->totals.has_stopped || sequence->completed != sequence->received)
        return refuse(err, "its program has stopped twice, or before its calls were completed");
    rules->totals.has_stopped = true;
    rules->totals.error_count = stopped->error_count;
    return 0;
}

static int take_counts(struct flyt_checkpoint_rules *rules, struct flyt_error *err)
{
    if (rules->totals.has_counts || !rules->totals.has_stopped)
        return refuse(err, "what its program had is told twice, or before that it has stopped");
    rules->totals.has_counts = true;
    return 0;
}

static int take_settings(struct flyt_checkpoint_rules *rules, struct flyt_error *err)
{
    if (rules->totals.has_settings || !rules->totals.has_counts)
        return refuse(err, "what its program had set is told twice, or before what it had");
    rules->totals.has_settings = true;
    return 0;
}

static int take_tallies(struct flyt_checkpoint_rules *rules, const flyt_checkpoint_tallies *tallies,
                        struct flyt_error *err)
{
    bool is_known[256] = {false};
    if (rules->totals.has_tallies || !rules->totals.has_settings)
        return refuse(err, "its program's objects are told twice, or before what it had set");
    for (unsigned i = 0; i < FLYT_CHECKPOINT_TALLIES_MAX; i++) {
        unsigned kind = tallies->kinds[i].kind;
        if (kind > 255 || (kind && is_known[kind]))
            return refuse(err, "its program's objects are told twice, or make no sense");
        is_known[kind] = true;
    }
    rules->totals.has_tallies = true;
    return 0;
}

uint64_t flyt_checkpoint_rules_pages(const struct flyt_checkpoint_rules *rules)
{
    uint64_t page_count = rules->totals.elsewhere_page_count;

    for (unsigned i = 0; i < FLYT_CHECKPOINT_ENCODINGS; i++)
        page_count += rules->totals.page_counts[i];
    return page_count;
}

static int take_end(const struct flyt_checkpoint_rules *rules, const flyt_checkpoint_end *end, struct flyt_error *err)
{
    if (end->page_count != flyt_checkpoint_rules_pages(rules) || end->record_count != rules->totals.record_count)
        return refuse(err, "its totals do not fit what came");
    return 0;
}

/* Whether it may stand where it does. */
static int check_order(const struct flyt_checkpoint_rules *rules, uint32_t type, const struct flyt_record_type *row,
                       uint64_t payload_bytes, struct flyt_error *err)
{
    bool may_have_payload = type == FLYT_CHECKPOINT_MODULE_IMAGE || type == FLYT_CHECKPOINT_GLOBAL ||
                            type == FLYT_CHECKPOINT_PAGES || type == FLYT_CHECKPOINT_HASHES;

    if (rules->rank < row->after_min || rules->rank > row->after_max)
        return refuse(err, "it is not in order");
    if (rules->part.type && type != rules->part.type)
        return refuse(err, "it comes before what precedes it is whole");
    if (payload_bytes && !may_have_payload)
        return refuse(err, "it has bytes that it cannot have");
    return 0;
}

int flyt_checkpoint_rules_take(struct flyt_checkpoint_rules *rules, uint32_t type,
                               const union flyt_checkpoint_body *body, uint64_t payload_bytes, struct flyt_error *err)
{
    const struct flyt_record_type *row = flyt_record_type_find(type);
    int status = row ? check_order(rules, type, row, payload_bytes, err) : refuse(err, "its type is not known");

    if (status)
        return status;
    switch (type) {
    case FLYT_CHECKPOINT_HEAD:
        status = take_head(rules, &body->head, err);
        break;
    case FLYT_CHECKPOINT_SLOT:
        status = take_slot(rules, &body->slot, err);
        break;
    case FLYT_CHECKPOINT_ROUND:
        status = take_round(rules, &body->round, err);
        break;
    case FLYT_CHECKPOINT_EXTENT_GONE:
        status = take_extent_gone(rules, body->extent_gone.address, err);
        break;
    case FLYT_CHECKPOINT_EXTENT:
        status = take_extent(rules, &body->extent, err);
        break;
    case FLYT_CHECKPOINT_ALLOCATIONS:
        status = take_allocations(rules, &body->allocations, err);
        break;
    case FLYT_CHECKPOINT_MODULE_IMAGE:
        status = take_module_image(rules, &body->module_image, payload_bytes, err);
        break;
    case FLYT_CHECKPOINT_OBJECT:
        status = take_object(rules, &body->object, err);
        break;
    case FLYT_CHECKPOINT_OBJECT_GONE:
        status = take_object_gone(rules, body->object_gone.number, err);
        break;
    case FLYT_CHECKPOINT_GLOBAL:
        status = take_global(rules, &body->global, payload_bytes, err);
        break;
    case FLYT_CHECKPOINT_PAGES:
        status = take_pages(rules, &body->pages, payload_bytes, err);
        break;
    case FLYT_CHECKPOINT_SEQUENCE:
        status = take_sequence(rules, &body->sequence, err);
        break;
    case FLYT_CHECKPOINT_STOPPED:
        status = take_stopped(rules, &body->stopped, err);
        break;
    case FLYT_CHECKPOINT_COUNTS:
        status = take_counts(rules, err);
        break;
    case FLYT_CHECKPOINT_SETTINGS:
        status = take_settings(rules, err);
        break;
    case FLYT_CHECKPOINT_TALLIES:
        status = take_tallies(rules, &body->tallies, err);
        break;
    case FLYT_CHECKPOINT_HASH_KEY:
        status = take_hash_key(rules, err);
        break;
    case FLYT_CHECKPOINT_HASHES:
        status = take_hashes(rules, &body->hashes, payload_bytes, err);
        break;
    case FLYT_CHECKPOINT_STREAMS:
        status = take_streams(rules, &body->streams, err);
        break;
    case FLYT_CHECKPOINT_ELSEWHERE:
        status = take_elsewhere(rules, &body->elsewhere, err);
        break;
    case FLYT_CHECKPOINT_ALIVE:
        status = rules->totals.has_streams ? 0 : refuse(err, "nobody has asked whether it goes on");
        break;
    default:
        status = take_end(rules, &body->end, err);
    }
    if (!status) {
        rules->rank = row->rank ? row->rank : rules->rank;
        rules->totals.record_count++;
    }
    return status;
}

int flyt_checkpoint_rules_payload(struct flyt_checkpoint_rules *rules, const void *payload, uint64_t payload_bytes,
                                  struct flyt_error *err)
{
    struct flyt_checkpoint_part *part = &rules->part;
    unsigned char digest[FLYT_SHA256_BYTES];

    if (part->type == FLYT_CHECKPOINT_MODULE_IMAGE)
        flyt_sha256_add(&part->hash, payload, payload_bytes);
    if (part->type && part->next_bytes == part->total_bytes) {
        bool is_image = part->type == FLYT_CHECKPOINT_MODULE_IMAGE;
        part->type = 0;
        if (is_image) {
            flyt_sha256_end(&part->hash, digest);
            if (memcmp(digest, part->sha256, sizeof digest))
                return refuse(err, "the module image has another SHA-256 than it should");
        }
    }
    return 0;
}
