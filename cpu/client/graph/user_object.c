/* User objects: what the program has freed when neither it nor a graph needs it any more. */
#include <stdlib.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/graph/graph_record.h"

/* The handle is its address; all that there are stand in one list. */
struct user_object {
    struct user_object *next;
    void *user;
    CUhostFn destroy;
    uint64_t count;
};

/* What a graph keeps of one. */
struct flyt_user_hold {
    struct flyt_user_hold *next;
    struct user_object *object;
    uint64_t count;
};

/* Under flyt_captures.mutex: those that there are, and those that the program is to free. */
static struct user_object *objects, *released;

static struct user_object *find_locked(CUuserObject handle)
{
    struct user_object *one = objects;
    while (one && (CUuserObject)(void *)one != handle)
        one = one->next;
    return one;
}

static void release_locked(struct user_object *object, uint64_t count)
{
    struct user_object **link = &objects;
    object->count -= count;
    if (object->count)
        return;
    while (*link != object)
        link = &(*link)->next;
    *link = object->next;
    object->next = released;
    released = object;
}

void flyt_user_objects_settle(void)
{
    pthread_mutex_lock(&flyt_captures.mutex);
    struct user_object *list = released;
    released = NULL;
    pthread_mutex_unlock(&flyt_captures.mutex);
    while (list) {
        struct user_object *object = list;
        list = object->next;
        object->destroy(object->user);
        free(object);
    }
}

CUresult flyt_user_object_create(CUuserObject *ret_object, void *user, CUhostFn destroy, unsigned count, unsigned flags)
{
    CUresult result = flyt_client_enter();
    if (!result &&
        (!ret_object || !destroy || !count || count > INT32_MAX || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC))
        result = CUDA_ERROR_INVALID_VALUE;
    struct user_object *object = result ? NULL : calloc(1, sizeof *object);
    if (!object)
        return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&flyt_captures.mutex);
    *object = (struct user_object){.next = objects, .user = user, .destroy = destroy, .count = count};
    objects = object;
    pthread_mutex_unlock(&flyt_captures.mutex);
    *ret_object = (CUuserObject)(void *)object;
    return CUDA_SUCCESS;
}

CUresult flyt_user_object_retain(CUuserObject handle, unsigned count)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct user_object *object = find_locked(handle);
    if (!result && (!object || !count || count > INT32_MAX))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        object->count += count;
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

CUresult flyt_user_object_release(CUuserObject handle, unsigned count)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct user_object *object = find_locked(handle);
    if (!result && (!object || !count || count > object->count))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        release_locked(object, count);
    pthread_mutex_unlock(&flyt_captures.mutex);
    flyt_user_objects_settle();
    return result;
}

static struct flyt_user_hold *hold_of(const struct flyt_graph *graph, const struct user_object *object)
{
    struct flyt_user_hold *hold = graph ? graph->holds : NULL;
    while (hold && hold->object != object)
        hold = hold->next;
    return hold;
}

static bool keep_locked(struct flyt_graph *graph, struct user_object *object, uint64_t count)
{
    struct flyt_user_hold *hold = hold_of(graph, object);
    if (!hold) {
        hold = calloc(1, sizeof *hold);
        if (!hold)
            return false;
        *hold = (struct flyt_user_hold){.next = graph->holds, .object = object};
        graph->holds = hold;
    }
    hold->count += count;
    return true;
}

CUresult flyt_graph_retain(CUgraph graph_handle, CUuserObject handle, unsigned count, unsigned flags)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_graph *graph = flyt_graph_find_locked(graph_handle);
    struct user_object *object = find_locked(handle);
    if (!result && (!graph || !object || !count || flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && flags && count > object->count) /* the program gives away what it has */
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = keep_locked(graph, object, count) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result && !flags)
        object->count += count;
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

CUresult flyt_graph_release(CUgraph graph_handle, CUuserObject handle, unsigned count)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_graph *graph = flyt_graph_find_locked(graph_handle);
    struct user_object *object = find_locked(handle);
    struct flyt_user_hold *hold = object ? hold_of(graph, object) : NULL;
    if (!result && (!hold || !count || count > hold->count))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result) {
        hold->count -= count;
        if (!hold->count) {
            struct flyt_user_hold **link = &graph->holds;
            while (*link != hold)
                link = &(*link)->next;
            *link = hold->next;
            free(hold);
        }
        release_locked(object, count);
    }
    pthread_mutex_unlock(&flyt_captures.mutex);
    flyt_user_objects_settle();
    return result;
}

bool flyt_user_holds_copy_locked(struct flyt_graph *to, const struct flyt_graph *from)
{
    for (const struct flyt_user_hold *hold = from->holds; hold; hold = hold->next) {
        if (!keep_locked(to, hold->object, hold->count))
            return false;
        hold->object->count += hold->count;
    }
    return true;
}

void flyt_user_holds_free_locked(struct flyt_graph *graph)
{
    while (graph->holds) {
        struct flyt_user_hold *hold = graph->holds;
        graph->holds = hold->next;
        release_locked(hold->object, hold->count);
        free(hold);
    }
}
