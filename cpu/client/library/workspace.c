/*
 * Workspaces that a library takes for a handle, from memory of the program's: so they count for the VM before they are
 * taken, and move with it. A handle has one for each stream, for calls in two streams may run at the same time.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/library/object.h"

/* As many streams of one handle have a workspace at a time. */
enum { WORKSPACES_MAX = 8 };
#define MIB ((uint64_t)1 << 20)

struct flyt_lib_workspace {
    struct flyt_lib_workspace *next; /* used longer ago */
    uint64_t stream_number;          /* 0: the legacy stream */
    uint64_t address, bytes;
};

/* Held while memory is allocated for one: others wait for that. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* What the program's environment says: KiB and how many of them, again and again, each behind a colon. 0: nothing. */
static uint64_t bytes_of_environment(void)
{
    const char *text = getenv("CUBLAS_WORKSPACE_CONFIG");
    uint64_t sum = 0, kib, count;
    int length;
    while (text && sscanf(text, ":%lu:%lu%n", &kib, &count, &length) == 2) {
        if (kib > MIB || count > MIB)
            return 0;
        sum += kib * count << 10;
        text += length;
    }
    return sum <= 1024 * MIB ? sum : 0;
}

/* What NVIDIA's manual of cublasSetWorkspace recommends. */
static uint64_t bytes_of_device(int device)
{
    const struct flyt_device_info *info;
    if (flyt_device_info(device, &info) != CUDA_SUCCESS)
        return 4 * MIB;
    int major = info->attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
    return major >= 12 ? 12 * MIB : major >= 9 ? 32 * MIB : 4 * MIB;
}

/* As much as is wanted, and of what is free a quarter at most: a library goes other ways with less, and the program
 * needs the rest. */
static uint64_t bytes_of(int device)
{
    uint64_t bytes = bytes_of_environment();
    size_t left = 0;
    if (!bytes)
        bytes = bytes_of_device(device);
    if (flyt_device_memory_info(&left, NULL) != CUDA_SUCCESS)
        return bytes;
    while (bytes > MIB && bytes > left / 4)
        bytes /= 2;
    return bytes;
}

static CUresult allocate(const struct flyt_lib_call *call, struct flyt_lib_workspace *one)
{
    CUcontext context;
    CUdeviceptr address = 0;
    CUresult result = flyt_context_push((CUcontext)(uintptr_t)call->context_id);
    if (result != CUDA_SUCCESS)
        return result;
    one->bytes = bytes_of(call->device);
    result = flyt_memory_alloc(one->bytes, &address);
    one->address = address;
    (void)flyt_context_pop(&context);
    return result;
}

static void free_one(struct flyt_lib_workspace **place)
{
    struct flyt_lib_workspace *one = *place;
    *place = one->next;
    (void)flyt_memory_free(one->address);
    free(one);
}

/* The stream's, which becomes the first; NULL: it has none. */
static struct flyt_lib_workspace *find_locked(struct flyt_lib_object *object, uint64_t stream_number)
{
    for (struct flyt_lib_workspace **place = &object->workspaces; *place; place = &(*place)->next) {
        struct flyt_lib_workspace *one = *place;
        if (one->stream_number != stream_number)
            continue;
        *place = one->next;
        one->next = object->workspaces;
        object->workspaces = one;
        return one;
    }
    return NULL;
}

/* A new one; of too many streams the one that was used longest ago loses its own, when all its work is done. */
static struct flyt_lib_workspace *add_locked(const struct flyt_lib_call *call, struct flyt_lib_object *object,
                                             uint64_t stream_number)
{
    struct flyt_lib_workspace **place = &object->workspaces, *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return NULL;
    for (unsigned i = 1; *place && i < WORKSPACES_MAX; i++)
        place = &(*place)->next;
    while (*place)
        free_one(place);
    if (allocate(call, fresh) != CUDA_SUCCESS) {
        free(fresh);
        return NULL;
    }
    fresh->stream_number = stream_number;
    fresh->next = object->workspaces;
    object->workspaces = fresh;
    return fresh;
}

static bool has_own(const struct flyt_lib_object *object)
{
    uint64_t address;
    memcpy(&address, object->state + object->kind->workspace_at, sizeof address);
    return address;
}

int flyt_lib_workspace_find(struct flyt_lib_call *call)
{
    struct flyt_lib_object *object = call->object_count ? call->objects[0] : NULL;
    const struct flyt_lib *library = call->row->library;
    struct flyt_stream *stream;
    if (!object || !object->kind->workspace_bytes_at || object->kind->library != library ||
        !(call->row->flags & FLYT_LIB_IN_STREAM) || has_own(object))
        return library->success;
    if (flyt_stream_get_in(call->context_id, call->device, call->stream, &stream) != CUDA_SUCCESS)
        return library->success; /* the call itself says so */
    uint64_t stream_number = stream->is_legacy ? 0 : stream->number;
    pthread_mutex_lock(&mutex);
    const struct flyt_lib_workspace *one = find_locked(object, stream_number);
    if (!one)
        one = add_locked(call, object, stream_number);
    if (one) {
        call->workspace_address = one->address;
        call->workspace_bytes = one->bytes;
    }
    pthread_mutex_unlock(&mutex);
    return one ? library->success : library->memory;
}

void flyt_lib_workspaces_free(struct flyt_lib_object *object, bool is_memory_gone)
{
    pthread_mutex_lock(&mutex);
    struct flyt_lib_workspace *one = object->workspaces;
    object->workspaces = NULL;
    pthread_mutex_unlock(&mutex);
    while (one) {
        struct flyt_lib_workspace *next = one->next;
        if (!is_memory_gone)
            (void)flyt_memory_free(one->address);
        free(one);
        one = next;
    }
}
