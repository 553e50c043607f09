#include "cpu/client/cuda/graph_memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/memory.h"
#include "rpc/proto/limits.h"

struct memory {
    struct memory *next;
    CUdeviceptr address;
    uint64_t bytes, context_id;
    int device;
    unsigned refs;
    bool is_host;      /* no device's books have it */
    bool is_allocated; /* by a launch, and not freed since */
};

struct marks {
    uint64_t used, used_high, reserved, reserved_high;
};

static struct {
    pthread_mutex_t mutex;
    struct memory *first;
    _Atomic unsigned count;
    struct marks marks[FLYT_DEVICES_MAX];
} all = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct memory *find_locked(CUdeviceptr address)
{
    struct memory *one = all.first;
    while (one && one->address != address)
        one = one->next;
    return one;
}

static void raise_to(uint64_t *high, uint64_t now)
{
    if (*high < now)
        *high = now;
}

static CUresult take_host(const struct memory *self, CUdeviceptr *ret_address)
{
    void *address;
    CUresult result = flyt_host_take(self->bytes, CU_MEMHOSTALLOC_PORTABLE | FLYT_HOST_OF_POOL, self->context_id,
                                     self->device, &address);
    if (!result)
        *ret_address = (CUdeviceptr)(uintptr_t)address;
    return result;
}

/* More is reserved, and in use; or, negative, less. */
static void book_locked(const struct memory *self, int reserved, int used)
{
    struct marks *marks = &all.marks[self->device];
    if (self->is_host)
        return;
    marks->reserved += (uint64_t)reserved * self->bytes;
    marks->used += (uint64_t)used * self->bytes;
    raise_to(&marks->reserved_high, marks->reserved);
    raise_to(&marks->used_high, marks->used);
}

CUresult flyt_graph_memory_new(uint64_t context_id, int device, bool is_host, uint64_t bytes, CUdeviceptr *ret_address)
{
    struct memory *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *self = (struct memory){.bytes = bytes, .context_id = context_id, .device = device, .refs = 1, .is_host = is_host};
    CUresult result =
        is_host ? take_host(self, &self->address) : flyt_memory_take(context_id, device, bytes, &self->address);
    if (result) {
        free(self);
        return result;
    }
    pthread_mutex_lock(&all.mutex);
    self->next = all.first;
    all.first = self;
    book_locked(self, 1, 0);
    atomic_fetch_add(&all.count, 1);
    pthread_mutex_unlock(&all.mutex);
    *ret_address = self->address;
    return CUDA_SUCCESS;
}

bool flyt_graph_memory_is(CUdeviceptr address)
{
    if (!atomic_load_explicit(&all.count, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&all.mutex);
    bool is = find_locked(address);
    pthread_mutex_unlock(&all.mutex);
    return is;
}

void flyt_graph_memory_ref(CUdeviceptr address)
{
    pthread_mutex_lock(&all.mutex);
    struct memory *self = find_locked(address);
    if (self)
        self->refs++;
    pthread_mutex_unlock(&all.mutex);
}

/* Takes it off the list; the memory is still to be freed. */
static void leave_locked(struct memory *self)
{
    struct memory **link = &all.first;
    while (*link != self)
        link = &(*link)->next;
    *link = self->next;
    book_locked(self, -1, -self->is_allocated);
    atomic_fetch_sub(&all.count, 1);
}

/* Off the list where nobody has it any more; true: the caller frees it. */
static bool settle_locked(struct memory *self)
{
    bool is_left = !self->refs && !self->is_allocated;
    if (is_left)
        leave_locked(self);
    return is_left;
}

static void release(struct memory *self)
{
    if (self->is_host)
        flyt_host_give((void *)(uintptr_t)self->address, FLYT_HOST_OF_POOL); /* NOLINT: a loss shows at the next call */
    else
        flyt_range_free(self->address);
    free(self);
}

void flyt_graph_memory_unref(CUdeviceptr address)
{
    pthread_mutex_lock(&all.mutex);
    struct memory *self = find_locked(address);
    bool is_left = false;
    if (self) {
        self->refs--;
        is_left = settle_locked(self);
    }
    pthread_mutex_unlock(&all.mutex);
    if (is_left)
        release(self);
}

CUresult flyt_graph_memory_allocate(CUdeviceptr address, bool is_freed_first)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&all.mutex);
    struct memory *self = find_locked(address);
    if (!self || (self->is_allocated && !is_freed_first)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (!self->is_allocated) {
        self->is_allocated = true;
        book_locked(self, 0, 1);
    }
    pthread_mutex_unlock(&all.mutex);
    return result;
}

bool flyt_graph_memory_free(CUdeviceptr address, CUresult *ret_result)
{
    bool is_left = false;
    if (!atomic_load_explicit(&all.count, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&all.mutex);
    struct memory *self = find_locked(address);
    if (self) {
        *ret_result = self->is_allocated ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
        book_locked(self, 0, -self->is_allocated);
        self->is_allocated = false;
        is_left = settle_locked(self);
    }
    pthread_mutex_unlock(&all.mutex);
    if (is_left)
        release(self);
    return self;
}

/* The device's ranges go with the context by themselves. */
void flyt_graph_memory_clear(uint64_t context_id, bool is_on_server)
{
    struct memory *of_host = NULL;
    pthread_mutex_lock(&all.mutex);
    for (struct memory *next, *one = all.first; one; one = next) {
        next = one->next;
        if (one->context_id != context_id)
            continue;
        leave_locked(one);
        if (one->is_host) {
            one->next = of_host;
            of_host = one;
        } else {
            free(one);
        }
    }
    pthread_mutex_unlock(&all.mutex);
    while (of_host) {
        struct memory *next = of_host->next;
        release(of_host);
        of_host = next;
    }
}

/* ---- attributes ---- */

static CUresult enter(int device)
{
    const struct flyt_device_info *info;
    CUresult result = flyt_client_enter();
    return result ? result : flyt_device_info(device, &info);
}

static uint64_t *place_locked(int device, CUgraphMem_attribute attribute)
{
    struct marks *marks = &all.marks[device];
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        return &marks->used;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        return &marks->used_high;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        return &marks->reserved;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        return &marks->reserved_high;
    default:
        return NULL;
    }
}

CUresult flyt_graph_memory_attribute(int device, CUgraphMem_attribute attribute, void *ret_value)
{
    CUresult result = enter(device);
    if (result)
        return result;
    pthread_mutex_lock(&all.mutex);
    const uint64_t *place = place_locked(device, attribute);
    if (place && ret_value)
        *(cuuint64_t *)ret_value = *place;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&all.mutex);
    return result;
}

CUresult flyt_graph_memory_attribute_set(int device, CUgraphMem_attribute attribute, const void *value)
{
    CUresult result = enter(device);
    const bool is_high =
        attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH || attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH;
    if (!result && (!value || !is_high || *(const cuuint64_t *)value))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&all.mutex);
    struct marks *marks = &all.marks[device];
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        marks->used_high = marks->used;
    else
        marks->reserved_high = marks->reserved;
    pthread_mutex_unlock(&all.mutex);
    return CUDA_SUCCESS;
}

CUresult flyt_graph_memory_trim(int device)
{
    return enter(device);
}
