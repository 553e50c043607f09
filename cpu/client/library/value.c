/* Descriptors that live in the program's memory: our own layout, which only this library reads. */
#include <stdlib.h>
#include <string.h>
#include "cpu/client/library/library_call.h"

static bool is_value(const struct flyt_lib_value_kind *kind, const void *value)
{
    const struct flyt_lib_value_head *head = value;
    return head && head->magic == kind->magic;
}

void *flyt_lib_make(const struct flyt_lib_value_kind *kind, void *room, size_t bytes)
{
    if (room && bytes < kind->bytes)
        return NULL;
    struct flyt_lib_value_head *head = room ? room : malloc(kind->room);
    if (!head)
        return NULL;
    if (!room)
        memset(head, 0, kind->room);
    memcpy(head, kind->defaults, kind->bytes);
    head->magic = kind->magic;
    head->is_owned = !room;
    return head;
}

static struct flyt_lib_list *list_of(const struct flyt_lib_value_kind *kind, const void *value)
{
    return (struct flyt_lib_list *)((uintptr_t)value + kind->room - sizeof(struct flyt_lib_list));
}

void *flyt_lib_valid(const struct flyt_lib_value_kind *kind, const void *value)
{
    return is_value(kind, value) ? (void *)(uintptr_t)value : NULL;
}

bool flyt_lib_list_set(const struct flyt_lib_value_kind *kind, void *value, const void *data, size_t bytes)
{
    struct flyt_lib_list *list = list_of(kind, value);
    void *copy = malloc(bytes + 1);
    if (!copy)
        return false;
    if (bytes)
        memcpy(copy, data, bytes);
    free(list->data);
    *list = (struct flyt_lib_list){copy, bytes};
    return true;
}

int flyt_lib_unmake(const struct flyt_lib *library, const struct flyt_lib_value_kind *kind, void *value)
{
    struct flyt_lib_value_head *head = value;
    if (!value) /* as all the libraries have it */
        return library->success;
    if (!is_value(kind, value))
        return library->invalid;
    head->magic = 0;
    if (kind->has_list)
        free(list_of(kind, value)->data);
    if (head->is_owned)
        free(head);
    return library->success;
}

static const struct flyt_lib_attribute *find_attribute(const struct flyt_lib_value_kind *kind, int number)
{
    for (unsigned i = 0; i < kind->count; i++)
        if ((int)kind->attributes[i].number == number)
            return &kind->attributes[i];
    return NULL;
}

int flyt_lib_attribute_set(const struct flyt_lib *library, const struct flyt_lib_value_kind *kind, void *value,
                           int number, const void *from, size_t bytes)
{
    const struct flyt_lib_attribute *attribute = find_attribute(kind, number);
    if (!is_value(kind, value) || !attribute || !from || bytes != attribute->bytes)
        return library->invalid;
    memcpy((char *)value + attribute->at, from, bytes);
    return library->success;
}

int flyt_lib_attribute_get(const struct flyt_lib *library, const struct flyt_lib_value_kind *kind, const void *value,
                           int number, void *to, size_t bytes, void *ret_written)
{
    const struct flyt_lib_attribute *attribute = find_attribute(kind, number);
    size_t written = attribute ? attribute->bytes : 0;
    if (!is_value(kind, value) || !attribute || (bytes && bytes < written) || (!bytes && !ret_written) ||
        (bytes && !to))
        return library->invalid;
    if (bytes)
        memcpy(to, (const char *)value + attribute->at, written);
    if (ret_written)
        memcpy(ret_written, &written, sizeof written);
    return library->success;
}

void flyt_lib_value(struct flyt_lib_call *call, void *to, const void *value, const struct flyt_lib_value_kind *kind)
{
    if (!value) /* where a call allows that there is none, its magic is 0 */
        return;
    if (!is_value(kind, value)) {
        if (!call->status)
            call->status = call->row->library->invalid;
        return;
    }
    memcpy(to, value, kind->bytes);
    ((struct flyt_lib_value_head *)to)->is_owned = 0;
    if (kind->has_list)
        flyt_lib_in(call, list_of(kind, value)->data, list_of(kind, value)->bytes, true);
}

void flyt_lib_value_set(struct flyt_lib_call *call, void *to, void *value, const struct flyt_lib_value_kind *kind)
{
    const size_t head = sizeof(struct flyt_lib_value_head);
    flyt_lib_value(call, to, value, kind);
    if (is_value(kind, value)) /* whose descriptor it is, the client alone knows */
        flyt_lib_out(call, (char *)value + head, kind->bytes - head, false);
}
