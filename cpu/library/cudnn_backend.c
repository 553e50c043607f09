/*
 * cuDNN's graph interface. A descriptor is a list of attributes until it is finalized; then the whole list goes to the
 * server, which makes the real one of it. A variant pack never does: it travels with the call that executes a plan, so
 * that a step of a program waits for nothing.
 *
 * A tensor by value has its data in the program's memory: descriptors note which tensors below them are so, and the
 * bytes travel with the call.
 */
#include <stdlib.h>
#include <string.h>
#include "cpu/library/cudnn_backend.h"
#include "flyt_lib_cudnn.h"

enum { MAGIC = 0x63444e42 };

static struct descriptor *valid(void *desc)
{
    struct descriptor *self = desc;
    return self && self->magic == MAGIC ? self : NULL;
}

static const struct attribute *find(const struct descriptor *self, int name)
{
    for (size_t i = 0; i < self->attribute_count; i++)
        if (self->attributes[i].name == name)
            return &self->attributes[i];
    return NULL;
}

/* ---- tensors by value ---- */

static bool add_value(struct descriptor *self, struct by_value value)
{
    for (size_t i = 0; i < self->value_count; i++)
        if (self->values[i].tensor_id == value.tensor_id)
            return true;
    struct by_value *more = realloc(self->values, (self->value_count + 1) * sizeof *more);
    if (!more)
        return false;
    self->values = more;
    more[self->value_count++] = value;
    return true;
}

static bool add_values_of(struct descriptor *self, const struct descriptor *other)
{
    bool is_added = true;
    for (size_t i = 0; i < other->value_count && is_added; i++)
        is_added = add_value(self, other->values[i]);
    return is_added;
}

/* Bytes of an element of a cudnnDataType_t. */
static size_t data_bytes(int type)
{
    static const unsigned char bytes[] = {4, 8, 2, 1, 4, 4, 1, 4, 32, 2, 8, 1, 1, 1, 4, 1, 1, 1, 1, 4, 8, 16};
    return type >= 0 && (size_t)type < sizeof bytes ? bytes[type] : 8;
}

static bool note_tensor(struct descriptor *self)
{
    const struct attribute *flag = find(self, FLYT_CUDNN_TENSOR_IS_BY_VALUE),
                           *id = find(self, FLYT_CUDNN_TENSOR_UNIQUE_ID),
                           *type = find(self, FLYT_CUDNN_TENSOR_DATA_TYPE),
                           *dims = find(self, FLYT_CUDNN_TENSOR_DIMENSIONS);
    if (!flag || !flag->bytes || !*(const bool *)flag->elements || !id || id->bytes < 8 || !type || type->bytes < 4)
        return true;
    struct by_value value = {.bytes = data_bytes(*(const int *)type->elements)};
    memcpy(&value.tensor_id, id->elements, sizeof value.tensor_id);
    for (int64_t i = 0; dims && i < dims->count; i++)
        value.bytes *= (size_t)((const int64_t *)dims->elements)[i];
    return add_value(self, value);
}

static bool note_values(struct descriptor *self)
{
    bool is_noted = self->type != FLYT_CUDNN_TENSOR || note_tensor(self);
    for (size_t i = 0; i < self->attribute_count && is_noted; i++) {
        const struct attribute *one = &self->attributes[i];
        for (int64_t k = 0; one->type == FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR && k < one->count && is_noted; k++) {
            const struct descriptor *other = valid(((void **)one->elements)[k]);
            is_noted = !other || add_values_of(self, other);
        }
    }
    return is_noted;
}

/* ---- lists ---- */

void *flyt_cudnn_list_add(struct flyt_cudnn_list *list, int name, int type, int64_t count, size_t bytes)
{
    size_t whole = sizeof(struct flyt_cudnn_attribute) + flyt_lib_align(bytes);
    if (whole > LIST_BYTES_MAX - list->bytes)
        return NULL;
    if (list->bytes + whole > list->capacity) {
        size_t capacity = 2 * (list->bytes + whole);
        unsigned char *data = realloc(list->data, capacity);
        if (!data)
            return NULL;
        list->data = data;
        list->capacity = capacity;
    }
    struct flyt_cudnn_attribute *one = (void *)(list->data + list->bytes);
    memset(one, 0, whole);
    *one = (struct flyt_cudnn_attribute){.name = name, .type = type, .count = count, .bytes = (uint32_t)bytes};
    list->bytes += whole;
    return one + 1;
}

/* Handles and descriptors become ids. */
static int put_objects(const struct attribute *one, uint64_t *ids)
{
    for (int64_t i = 0; i < one->count; i++) {
        void *element = ((void **)one->elements)[i];
        const struct descriptor *other = one->type == FLYT_CUDNN_TYPE_HANDLE ? NULL : valid(element);
        if (element && one->type != FLYT_CUDNN_TYPE_HANDLE && (!other || !other->object))
            return other ? NOT_FINALIZED : INVALID;
        ids[i] = (uint64_t)(uintptr_t)(other ? other->object : element);
    }
    return SUCCESS;
}

static int put_list(const struct descriptor *self, struct flyt_cudnn_list *list)
{
    int status = SUCCESS;
    for (size_t i = 0; i < self->attribute_count && !status; i++) {
        const struct attribute *one = &self->attributes[i];
        void *to = flyt_cudnn_list_add(list, one->name, one->type, one->count, one->bytes);
        if (!to)
            status = NO_MEMORY;
        else if (flyt_cudnn_is_object(one->type))
            status = put_objects(one, to);
        else if (one->bytes)
            memcpy(to, one->elements, one->bytes);
    }
    return status;
}

/* ---- life ---- */

FLYT_LIB_ENTRY int cudnnBackendCreateDescriptor(int type, void **ret_desc)
{
    if (!ret_desc)
        return IS_NULL;
    struct descriptor *self = calloc(1, sizeof *self);
    if (!self)
        return NO_MEMORY;
    self->magic = MAGIC;
    self->type = type;
    *ret_desc = self;
    return SUCCESS;
}

FLYT_LIB_ENTRY int cudnnBackendDestroyDescriptor(void *desc)
{
    struct descriptor *self = valid(desc);
    if (!self)
        return desc ? INVALID : SUCCESS;
    if (self->object)
        flyt_lib_forget(&flyt_lib_row_cudnnBackendDestroyDescriptor, (uint64_t)(uintptr_t)self->object,
                        &flyt_lib_kind_cudnn_backend);
    for (size_t i = 0; i < self->attribute_count; i++)
        free(self->attributes[i].elements);
    free(self->attributes);
    free(self->values);
    self->magic = 0;
    free(self);
    return SUCCESS;
}

FLYT_LIB_ENTRY int cudnnBackendSetAttribute(void *desc, int name, int type, int64_t count, const void *elements)
{
    struct descriptor *self = valid(desc);
    size_t element = flyt_cudnn_element_bytes(type);
    if (!self || self->is_final || count < 0 || count > LIST_BYTES_MAX || !element)
        return INVALID;
    if (count && !elements)
        return IS_NULL;
    if (self->type == FLYT_CUDNN_EXECUTION_PLAN && name == FLYT_CUDNN_PLAN_JSON)
        return flyt_lib_refuse(&flyt_lib_cudnn, "cudnnBackendSetAttribute of a plan's text");
    struct attribute one = {.name = name, .type = type, .count = count, .bytes = (size_t)count * element};
    one.elements = malloc(one.bytes + 1);
    if (!one.elements)
        return NO_MEMORY;
    if (one.bytes)
        memcpy(one.elements, elements, one.bytes);
    struct attribute *place = (struct attribute *)(uintptr_t)find(self, name);
    if (place) {
        free(place->elements);
    } else {
        struct attribute *more = realloc(self->attributes, (self->attribute_count + 1) * sizeof *more);
        if (!more) {
            free(one.elements);
            return NO_MEMORY;
        }
        self->attributes = more;
        place = &more[self->attribute_count++];
    }
    *place = one;
    return SUCCESS;
}

/* What the results of heuristics will be configurations for: the program may end its own descriptor of it. */
static void note_graph(struct descriptor *self)
{
    const struct attribute *graph =
        self->type == FLYT_CUDNN_HEURISTICS ? find(self, FLYT_CUDNN_HEURISTICS_GRAPH) : NULL;
    const struct descriptor *other = graph && graph->count == 1 ? valid(*(void **)graph->elements) : NULL;
    /* What else they were told is in no configuration that is made again. */
    if (other && self->attribute_count == 2 && find(self, FLYT_CUDNN_HEURISTICS_MODE))
        self->graph = other->object;
}

FLYT_LIB_ENTRY int cudnnBackendFinalize(void *desc)
{
    struct descriptor *self = valid(desc);
    if (!self)
        return INVALID;
    if (self->is_final || self->type == FLYT_CUDNN_VARIANT_PACK) {
        self->is_final = true;
        return SUCCESS;
    }
    struct flyt_cudnn_list list = {0};
    uint64_t *named = NULL;
    size_t named_count = 0;
    int status = put_list(self, &list);
    if (!status && !flyt_cudnn_list_named(&list, &named, &named_count))
        status = NO_MEMORY;
    if (!status) {
        struct flyt_args_cudnnBackendFinalize sent;
        memset(&sent, 0, sizeof sent);
        struct flyt_lib_call call = {.row = &flyt_lib_row_cudnnBackendFinalize, .arguments = &sent};
        flyt_lib_begin(&call);
        flyt_lib_new(&call, &self->object, &flyt_lib_kind_cudnn_backend);
        call.named = named;
        call.named_count = named_count;
        sent.type = self->type;
        sent.list_bytes = flyt_lib_in(&call, list.data, list.bytes, !list.bytes);
        status = flyt_lib_finish(&call);
    }
    free(list.data);
    free(named);
    if (!status && !note_values(self))
        status = NO_MEMORY;
    if (!status)
        note_graph(self);
    self->is_final = !status;
    return status;
}

/* ---- attributes that are asked for ---- */

static int get_from_list(const struct attribute *one, int type, int64_t requested, int64_t *ret_count, void *elements)
{
    if (one->type != type)
        return INVALID;
    if (ret_count)
        *ret_count = one->count;
    size_t bytes = (size_t)(requested < one->count ? requested : one->count) * flyt_cudnn_element_bytes(type);
    if (bytes && elements)
        memcpy(elements, one->elements, bytes);
    return SUCCESS;
}

/* An empty descriptor on the server, for an attribute that fills it. */
static int make_empty(struct descriptor *self)
{
    if (self->object)
        return SUCCESS;
    struct flyt_args_cudnnBackendCreateDescriptor sent;
    memset(&sent, 0, sizeof sent);
    struct flyt_lib_call call = {.row = &flyt_lib_row_cudnnBackendCreateDescriptor, .arguments = &sent};
    flyt_lib_begin(&call);
    flyt_lib_new(&call, &self->object, &flyt_lib_kind_cudnn_backend);
    sent.type = self->type;
    return flyt_lib_finish(&call);
}

int flyt_cudnn_ask_into(struct descriptor *self, int name, int type, int64_t requested, int64_t *ret_count,
                        const uint64_t *ids, void *answer, size_t bytes)
{
    struct flyt_args_cudnnBackendGetAttribute sent;
    memset(&sent, 0, sizeof sent);
    struct flyt_lib_call call = {.row = &flyt_lib_row_cudnnBackendGetAttribute, .arguments = &sent};
    flyt_lib_begin(&call);
    flyt_lib_object(&call, (uint64_t)(uintptr_t)self->object, &flyt_lib_kind_cudnn_backend);
    sent.name = name;
    sent.type = type;
    sent.requested = requested;
    sent.ids_bytes = flyt_lib_in(&call, ids, ids ? (size_t)requested * sizeof *ids : 0, true);
    sent.count_bytes = flyt_lib_out(&call, ret_count, sizeof *ret_count, false);
    sent.elements_bytes = flyt_lib_out(&call, answer, bytes, true);
    return flyt_lib_finish(&call);
}

/* `elements` has room for *ret_count elements alone, which may be less than what is requested. */
static int ask(struct descriptor *self, int name, int type, int64_t requested, int64_t *ret_count, const uint64_t *ids,
               void *elements)
{
    size_t element = flyt_cudnn_element_bytes(type), bytes = (size_t)requested * element;
    void *answer = ids || !bytes ? NULL : malloc(bytes);
    if (!ids && bytes && !answer)
        return NO_MEMORY;
    int status = flyt_cudnn_ask_into(self, name, type, requested, ret_count, ids, answer, answer ? bytes : 0);
    if (!status && answer && *ret_count > 0)
        memcpy(elements, answer, (size_t)(*ret_count < requested ? *ret_count : requested) * element);
    free(answer);
    return status;
}

/* The attribute's descriptors go into those that the program has made, which may be as many as there are, and fewer
 * than it requests. */
static int ask_descriptors(struct descriptor *self, int name, int64_t requested, int64_t *ret_count, void **descs)
{
    int status =
        requested > 1 ? ask(self, name, FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, ret_count, NULL, NULL) : SUCCESS;
    if (!status && requested > 1 && *ret_count < requested)
        requested = *ret_count;
    uint64_t *ids = calloc((size_t)requested + 1, sizeof *ids);
    if (!ids)
        return NO_MEMORY;
    for (int64_t i = 0; i < requested && !status; i++) {
        struct descriptor *other = valid(descs[i]);
        status = other ? make_empty(other) : INVALID;
        if (!status)
            ids[i] = (uint64_t)(uintptr_t)other->object;
    }
    if (!status)
        status = ask(self, name, FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR, requested, ret_count, ids, NULL);
    if (!status)
        flyt_cudnn_note_filled(self, name, descs, ids, requested, *ret_count);
    for (int64_t i = 0; !status && i < requested && i < *ret_count; i++) {
        struct descriptor *other = descs[i];
        other->is_final = true;
        if (!add_values_of(other, self))
            status = NO_MEMORY;
    }
    free(ids);
    return status;
}

FLYT_LIB_ENTRY int cudnnBackendGetAttribute(void *desc, int name, int type, int64_t requested, int64_t *ret_count,
                                            void *elements)
{
    struct descriptor *self = valid(desc);
    if (!self || requested < 0 || !flyt_cudnn_element_bytes(type) ||
        (size_t)requested > LIST_BYTES_MAX / flyt_cudnn_element_bytes(type))
        return INVALID;
    const struct attribute *one = find(self, name);
    bool is_descriptor = type == FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR;
    if (one && (!self->is_final || !is_descriptor || !requested))
        return get_from_list(one, type, requested, ret_count, elements);
    if (!self->is_final || !self->object)
        return NOT_FINALIZED;
    int64_t count = 0;
    int status = is_descriptor && requested && elements
                     ? ask_descriptors(self, name, requested, &count, elements)
                     : ask(self, name, type, elements ? requested : 0, &count, NULL, elements);
    if (!status && ret_count)
        *ret_count = count;
    if (!status && count == 1 && elements && self->type == FLYT_CUDNN_EXECUTION_PLAN &&
        name == FLYT_CUDNN_PLAN_WORKSPACE && type == FLYT_CUDNN_TYPE_INT64)
        flyt_cudnn_note_workspace(self, elements);
    return status;
}

/* ---- executing ---- */

/* The data pointers of the list, which has them; its memory may move with the next attribute. */
static uint64_t *pointers_of(const struct flyt_cudnn_list *list)
{
    size_t at = 0;
    void *elements;
    const struct flyt_cudnn_attribute *one;
    while ((one = flyt_cudnn_list_next(list->data, list->bytes, &at, &elements)))
        if (one->name == FLYT_CUDNN_PACK_DATA_POINTERS)
            return elements;
    return NULL;
}

/* The bytes of the tensors by value that the pack has, in the place of addresses. */
static int put_values(const struct descriptor *plan, const struct descriptor *pack, struct flyt_cudnn_list *list)
{
    const struct attribute *ids = find(pack, FLYT_CUDNN_PACK_UNIQUE_IDS),
                           *pointers = find(pack, FLYT_CUDNN_PACK_DATA_POINTERS);
    if (!ids || !pointers || !plan->value_count)
        return SUCCESS;
    for (int64_t i = 0; i < ids->count && i < pointers->count; i++)
        for (size_t k = 0; k < plan->value_count; k++) {
            if (((const int64_t *)ids->elements)[i] != plan->values[k].tensor_id)
                continue;
            const void *from = ((void **)pointers->elements)[i];
            void *to = flyt_cudnn_list_add(list, FLYT_CUDNN_PACK_VALUE, 0, i, plan->values[k].bytes);
            if (!to || !from)
                return to ? IS_NULL : NO_MEMORY;
            memcpy(to, from, plan->values[k].bytes);
            pointers_of(list)[i] = 0;
        }
    return SUCCESS;
}

FLYT_LIB_ENTRY int cudnnBackendExecute(void *handle, void *plan_desc, void *pack_desc)
{
    const struct descriptor *plan = valid(plan_desc), *pack = valid(pack_desc);
    if (!plan || !pack || pack->type != FLYT_CUDNN_VARIANT_PACK)
        return INVALID;
    if (!plan->is_final || !plan->object || !pack->is_final)
        return NOT_FINALIZED;
    struct flyt_cudnn_list list = {0};
    int status = put_list(pack, &list);
    if (!status)
        status = put_values(plan, pack, &list);
    if (!status) {
        struct flyt_args_cudnnBackendExecute sent;
        memset(&sent, 0, sizeof sent);
        struct flyt_lib_call call = {.row = &flyt_lib_row_cudnnBackendExecute, .arguments = &sent};
        flyt_lib_begin(&call);
        flyt_lib_object(&call, (uint64_t)(uintptr_t)handle, &flyt_lib_kind_cudnn_cudnn);
        flyt_lib_object(&call, (uint64_t)(uintptr_t)plan->object, &flyt_lib_kind_cudnn_backend);
        sent.list_bytes = flyt_lib_in_aside(&call, list.data, list.bytes);
        status = flyt_lib_finish(&call);
    }
    free(list.data);
    return status;
}
