/*
 * How descriptors of cuDNN's graph interface are made again at another server. What the program has finalized is its
 * list of attributes, with the descriptors that it names. Configurations of engines that heuristics have filled are
 * the numbers of the engine and of its knobs: heuristics could say something else there. What another attribute has
 * filled is filled by it again. The server keeps the same rules (cpu/server/library/cudnn_backend.c): what cannot be
 * made again stands against moving there, before it is asked for here.
 */
#include <stdlib.h>
#include <string.h>
#include "cpu/library/cudnn_backend.h"
#include "flyt_lib_cudnn.h"

static const char filled[] = "a descriptor that cuDNN has filled in a way that is not known again";

static void stay(const struct descriptor *self, const char *what)
{
    flyt_lib_stay((uint64_t)(uintptr_t)self->object, &flyt_lib_kind_cudnn_backend, what);
}

bool flyt_cudnn_list_named(const struct flyt_cudnn_list *list, uint64_t **ret_ids, size_t *ret_count)
{
    uint64_t *ids = malloc(list->bytes + 1);
    size_t at = 0, count = 0;
    void *elements;
    const struct flyt_cudnn_attribute *one;
    if (!ids)
        return false;
    while ((one = flyt_cudnn_list_next(list->data, list->bytes, &at, &elements)))
        for (int64_t i = 0; flyt_cudnn_is_object(one->type) && i < one->count; i++)
            if (((const uint64_t *)elements)[i])
                ids[count++] = ((const uint64_t *)elements)[i];
    *ret_ids = ids;
    *ret_count = count;
    return true;
}

/* Has an object made again by cudnnBackendFinalize of a list. */
static bool remake(const struct descriptor *self, const struct flyt_cudnn_list *list, const uint64_t *named,
                   size_t named_count)
{
    struct flyt_args_cudnnBackendFinalize sent;
    size_t at = flyt_lib_align(sizeof sent);
    unsigned char *arguments = calloc(1, at + list->bytes);
    if (!arguments)
        return false;
    memset(&sent, 0, sizeof sent);
    sent.type = self->type;
    sent.list_bytes = (uint32_t)list->bytes;
    memcpy(arguments, &sent, sizeof sent);
    memcpy(arguments + at, list->data, list->bytes);
    bool is_made = flyt_lib_remake((uint64_t)(uintptr_t)self->object, &flyt_lib_kind_cudnn_backend,
                                   &flyt_lib_row_cudnnBackendFinalize, arguments, at + list->bytes, named, named_count);
    free(arguments);
    return is_made;
}

/* ---- configurations that heuristics have filled ---- */

static bool remake_config(const struct descriptor *self, uint64_t graph_id, const struct flyt_cudnn_config *config)
{
    struct flyt_cudnn_list list = {0};
    void *graph =
        flyt_cudnn_list_add(&list, FLYT_CUDNN_AGAIN_GRAPH, FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, sizeof graph_id);
    if (graph)
        memcpy(graph, &graph_id, sizeof graph_id);
    void *to = graph ? flyt_cudnn_list_add(&list, FLYT_CUDNN_AGAIN_CONFIG, FLYT_CUDNN_TYPE_CHAR, sizeof *config,
                                           sizeof *config)
                     : NULL;
    if (to)
        memcpy(to, config, sizeof *config);
    bool is_made = to && remake(self, &list, &graph_id, 1);
    free(list.data);
    return is_made;
}

/* So many are asked for at once as a call's answer has room for. */
enum { CONFIGS_MAX = LIST_BYTES_MAX / sizeof(struct flyt_cudnn_config) };

static void note_configs(struct descriptor *self, void **descs, const uint64_t *ids, int64_t count)
{
    struct flyt_cudnn_config *configs = calloc(CONFIGS_MAX, sizeof *configs);
    for (int64_t i = 0, told; i < count; i += told) {
        int64_t ends = 0;
        told = count - i < CONFIGS_MAX ? count - i : CONFIGS_MAX;
        bool is_told = configs && self->graph &&
                       !flyt_cudnn_ask_into(self, FLYT_CUDNN_AGAIN_CONFIG, FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR, told,
                                            &ends, ids + i, configs, (size_t)told * sizeof *configs) &&
                       ends == told;
        for (int64_t k = 0; k < told; k++)
            if (!is_told || !remake_config(descs[i + k], (uint64_t)(uintptr_t)self->graph, &configs[k]))
                stay(descs[i + k], filled);
    }
    free(configs);
}

/* ---- what other attributes have filled ---- */

static bool fill_again(const struct descriptor *self, int name, const struct descriptor *other, uint64_t id)
{
    struct {
        struct flyt_args_cudnnBackendGetAttribute sent;
        uint64_t state FLYT_LIB_ALIGNED; /* a descriptor has no settings */
        uint64_t id FLYT_LIB_ALIGNED;
    } call;
    memset(&call, 0, sizeof call);
    call.sent.name = name;
    call.sent.type = FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR;
    call.sent.requested = 1;
    call.sent.ids_bytes = sizeof call.id;
    call.sent.count_bytes = sizeof(int64_t);
    call.id = id;
    return flyt_lib_make_further((uint64_t)(uintptr_t)other->object, &flyt_lib_kind_cudnn_backend,
                                 &flyt_lib_row_cudnnBackendGetAttribute, (uint64_t)(uintptr_t)self->object, &call,
                                 sizeof call);
}

void flyt_cudnn_note_filled(struct descriptor *self, int name, void **descs, const uint64_t *ids, int64_t requested,
                            int64_t count)
{
    bool are_results = self->type == FLYT_CUDNN_HEURISTICS && name == FLYT_CUDNN_HEURISTICS_RESULTS;
    if (are_results) {
        stay(self, "heuristics of cuDNN's that were asked, and could say something else elsewhere");
        note_configs(self, descs, ids, count < requested ? count : requested);
    }
    for (int64_t i = 0; i < requested; i++) {
        struct descriptor *other = descs[i];
        bool is_first = !other->is_filled;
        other->is_filled |= i < count;
        if (!is_first || (!are_results && (requested > 1 || !fill_again(self, name, other, ids[i]))))
            stay(other, filled);
    }
}

/* ---- the workspace of plans ---- */

void flyt_cudnn_note_workspace(struct descriptor *self, const void *bytes)
{
    size_t recipe_bytes, at = flyt_lib_align(sizeof(struct flyt_args_cudnnBackendFinalize));
    const unsigned char *recipe =
        flyt_lib_recipe((uint64_t)(uintptr_t)self->object, &flyt_lib_kind_cudnn_backend, &recipe_bytes);
    struct flyt_cudnn_list list = {0};
    if (self->has_workspace || self->is_filled || !recipe || recipe_bytes < at)
        return;
    list.data = malloc(recipe_bytes - at + 64);
    if (list.data) {
        list.bytes = recipe_bytes - at;
        list.capacity = list.bytes + 64;
        memcpy(list.data, recipe + at, list.bytes);
    }
    void *to = list.data ? flyt_cudnn_list_add(&list, FLYT_CUDNN_AGAIN_WORKSPACE, FLYT_CUDNN_TYPE_INT64, 1, 8) : NULL;
    if (to)
        memcpy(to, bytes, 8);
    self->has_workspace = to && remake(self, &list, NULL, 0);
    if (!self->has_workspace)
        stay(self, "a plan of cuDNN's whose workspace could not be noted");
    free(list.data);
}
