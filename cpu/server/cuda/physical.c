#include "cpu/server/cuda/physical.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/server/bulk/region.h"
#include "cpu/server/core/call.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "cpu/server/cuda/memory.h"
#include "flyt_serve.h"
#include "rpc/base/id.h"

enum { REGION_TIMES_MAX = 4 };

static bool is_granular(uint64_t bytes)
{
    return bytes % FLYT_GRANULE_BYTES == 0;
}

static bool is_mappable(uint64_t address, uint64_t bytes)
{
    return bytes && is_granular(address) && is_granular(bytes) && flyt_virtual_has(address, bytes);
}

/* ---- the mappings ---- */

/* The first one that ends behind the address: its place among them. */
static unsigned place_of(const struct flyt_mappings *mappings, uint64_t address)
{
    unsigned low = 0, high = mappings->count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (mappings->items[middle].address + mappings->items[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct flyt_device *device_of(struct flyt_session *session, const struct flyt_mapping *mapping)
{
    return mapping->physical ? mapping->physical->device : &session->devices[0];
}

bool flyt_mappings_use_region(const struct flyt_session *session, uint64_t offset_bytes, uint64_t bytes)
{
    const struct flyt_mappings *mappings = session->mappings;
    bool is_used = false;
    for (unsigned i = 0; i < mappings->count && !is_used; i++)
        is_used = !mappings->items[i].physical && mappings->items[i].offset_bytes < offset_bytes + bytes &&
                  offset_bytes < mappings->items[i].offset_bytes + mappings->items[i].bytes;
    return is_used;
}

bool flyt_mappings_cover(struct flyt_session *session, uint64_t address, uint64_t bytes,
                         struct flyt_device **ret_device)
{
    const struct flyt_mappings *mappings = session->mappings;
    unsigned i = place_of(mappings, address);
    if (i == mappings->count || mappings->items[i].address > address)
        return false;
    struct flyt_device *device = device_of(session, &mappings->items[i]);
    uint64_t end = mappings->items[i].address + mappings->items[i].bytes;
    while (end - address < bytes) {
        const struct flyt_mapping *next = ++i < mappings->count ? &mappings->items[i] : NULL;
        if (!next || next->address != end || device_of(session, next) != device)
            return false;
        end += next->bytes;
    }
    *ret_device = device;
    return true;
}

/* How many mappings are the range, each as a whole, from *ret_first on; 0: some of it is not mapped, or not as a
 * whole. */
static unsigned count_in(const struct flyt_mappings *mappings, uint64_t address, uint64_t bytes, unsigned *ret_first)
{
    unsigned first = place_of(mappings, address), i = first;
    uint64_t at = address;
    while (i < mappings->count && mappings->items[i].address == at && mappings->items[i].bytes <= address + bytes - at)
        at += mappings->items[i++].bytes;
    *ret_first = first;
    return at == address + bytes ? i - first : 0;
}

static CUresult make_room(struct flyt_mappings *mappings)
{
    if (mappings->count < mappings->capacity)
        return CUDA_SUCCESS;
    unsigned capacity = mappings->capacity ? 2 * mappings->capacity : 64;
    struct flyt_mapping *items =
        mappings->count < FLYT_MAPPINGS_MAX ? realloc(mappings->items, capacity * sizeof *items) : NULL;
    if (!items)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mappings->items = items;
    mappings->capacity = capacity;
    return CUDA_SUCCESS;
}

/* A place for a mapping that is made next, where no other one is. */
static CUresult find_place(struct flyt_mappings *mappings, uint64_t address, uint64_t bytes, unsigned *ret_place)
{
    *ret_place = place_of(mappings, address);
    if (*ret_place < mappings->count && mappings->items[*ret_place].address < address + bytes)
        return CUDA_ERROR_INVALID_VALUE;
    return make_room(mappings);
}

static void enter(struct flyt_mappings *mappings, unsigned place, const struct flyt_mapping *mapping)
{
    memmove(mappings->items + place + 1, mappings->items + place, (mappings->count - place) * sizeof *mappings->items);
    mappings->items[place] = *mapping;
    mappings->count++;
}

/* CUDA_ERROR_OUT_OF_MEMORY: something of the driver's lies there. */
static CUresult reserve_window(struct flyt_session *session)
{
    CUdeviceptr address = 0;
    if (session->mappings->is_reserved)
        return CUDA_SUCCESS;
    CUresult result =
        session->driver->cuMemAddressReserve(&address, FLYT_VIRTUAL_BYTES, FLYT_GRANULE_BYTES, FLYT_VIRTUAL_BASE, 0);
    if (result != CUDA_SUCCESS)
        return result;
    if (address != FLYT_VIRTUAL_BASE) {
        session->driver->cuMemAddressFree(address, FLYT_VIRTUAL_BYTES);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    session->mappings->is_reserved = true;
    return CUDA_SUCCESS;
}

/* ---- physical memory ---- */

void flyt_physical_drop(struct flyt_physical *physical, const struct flyt_device *device)
{
    if (device)
        return;
    flyt_object_remove(&physical->device->session->objects, &physical->object);
    free(physical);
}

CUresult flyt_physical_enter(struct flyt_device *device, uint64_t id, struct flyt_extent *extent, unsigned *import_uses)
{
    struct flyt_physical *physical = calloc(1, sizeof *physical);
    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *physical = (struct flyt_physical){.object.id = id, .device = device, .extent = extent, .import_uses = import_uses};
    CUresult result = flyt_session_insert(device->session, &physical->object, FLYT_ID_PHYSICAL);
    if (result != CUDA_SUCCESS)
        free(physical);
    else if (import_uses)
        ++*import_uses;
    return result;
}

static CUresult create(struct flyt_device *device, uint64_t sequence, uint64_t id, uint64_t bytes,
                       uint64_t *ret_address)
{
    struct flyt_extent *extent;
    CUresult result = flyt_memory_create_whole(device, sequence, bytes, &extent);
    if (result != CUDA_SUCCESS)
        return result;
    *ret_address = extent->address;
    result = flyt_physical_enter(device, id, extent, NULL);
    if (result != CUDA_SUCCESS)
        flyt_memory_free_whole(device, extent);
    return result;
}

/* It waits for freed memory. */
struct create_job {
    struct flyt_job job;
    struct flyt_device *device;
    uint64_t id, bytes, address;
};

static CUresult create_advance(struct flyt_job *job)
{
    struct create_job *self = (struct create_job *)job;
    if (job->session->fatal != CUDA_SUCCESS)
        return job->session->fatal;
    CUresult result = flyt_device_use(self->device);
    return result == CUDA_SUCCESS ? create(self->device, job->sequence, self->id, self->bytes, &self->address) : result;
}

static void create_finish(struct flyt_job *job, CUresult result)
{
    flyt_virtual_create_res res = {.address = ((struct create_job *)job)->address};
    flyt_job_reply_with(job, result, &res, sizeof res);
}

static const struct flyt_job_ops create_ops = {create_advance, create_finish, NULL};

CUresult flyt_serve_virtual_create(struct flyt_call *call, const flyt_virtual_create_args *args,
                                   flyt_virtual_create_res *res)
{
    struct flyt_device *device;
    if (!args->bytes || !is_granular(args->bytes))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    if (result == CUDA_SUCCESS)
        result = create(device, call->sequence, args->physical_id, args->bytes, &res->address);
    if (result != CUDA_ERROR_NOT_READY)
        return result;
    struct create_job *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->device = device;
    self->id = args->physical_id;
    self->bytes = args->bytes;
    flyt_job_start(&self->job, &create_ops, call, NULL);
    return FLYT_CALL_STARTED;
}

CUresult flyt_serve_virtual_restore(struct flyt_call *call, const flyt_virtual_restore_args *args,
                                    flyt_virtual_restore_res *res)
{
    struct flyt_device *device;
    struct flyt_extent *extent;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    if (result == CUDA_SUCCESS)
        result = flyt_memory_restore_whole(device, args->address, args->bytes, &extent);
    return result == CUDA_SUCCESS ? flyt_physical_enter(device, args->physical_id, extent, NULL) : result;
}

CUresult flyt_serve_virtual_release(struct flyt_call *call, const flyt_virtual_release_args *args,
                                    struct flyt_physical *physical)
{
    struct flyt_device *device = physical->device;
    if (physical->mapping_count)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_device_use(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (physical->import_uses)
        --*physical->import_uses;
    else
        flyt_memory_free_whole(device, physical->extent);
    flyt_physical_drop(physical, NULL);
    return CUDA_SUCCESS;
}

/* ---- calls about mappings ---- */

CUresult flyt_serve_virtual_map(struct flyt_call *call, const flyt_virtual_map_args *args,
                                struct flyt_physical *physical, flyt_virtual_map_res *res)
{
    struct flyt_mappings *mappings = call->session->mappings;
    if (!is_mappable(args->address, args->bytes) || args->bytes > physical->extent->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned place;
    CUresult result = find_place(mappings, args->address, args->bytes, &place);
    if (result == CUDA_SUCCESS)
        result = flyt_device_use(physical->device);
    if (result == CUDA_SUCCESS)
        result = reserve_window(call->session);
    if (result == CUDA_SUCCESS)
        result = call->session->driver->cuMemMap(args->address, args->bytes, 0, physical->extent->handle, 0);
    if (result != CUDA_SUCCESS)
        return result;
    enter(mappings, place,
          &(struct flyt_mapping){.address = args->address, .bytes = args->bytes, .physical = physical});
    physical->mapping_count++;
    return CUDA_SUCCESS;
}

/* What a session has mapped of its region is no more than so many times what it has locked of it: what the kernel and
 * the driver need for that is in nobody's account. */
static bool may_map_of_region(const struct flyt_session *session, uint64_t bytes)
{
    const struct flyt_mappings *mappings = session->mappings;
    for (unsigned i = 0; i < mappings->count; i++)
        bytes += mappings->items[i].physical ? 0 : mappings->items[i].bytes;
    return bytes <= REGION_TIMES_MAX * session->region->locked_bytes;
}

/* On the submission thread: the driver locks the pages once more, which takes as long as it did at first. */
CUresult flyt_serve_virtual_map_region(struct flyt_call *call, const flyt_virtual_map_region_args *args,
                                       flyt_virtual_map_region_res *res)
{
    struct flyt_session *session = call->session;
    const struct flyt_region_span span = {
        .offset_bytes = args->offset_bytes, .width_bytes = args->bytes, .height = 1, .depth = 1};
    unsigned place;
    if (!is_mappable(args->address, args->bytes) || !flyt_session_region_is_mapped(session) ||
        !flyt_session_region_place(session, args->region_id, &span))
        return CUDA_ERROR_INVALID_VALUE;
    if (!may_map_of_region(session, args->bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = find_place(session->mappings, args->address, args->bytes, &place);
    if (result == CUDA_SUCCESS)
        result = flyt_device_use(&session->devices[0]);
    if (result == CUDA_SUCCESS)
        result = reserve_window(session);
    if (result == CUDA_SUCCESS)
        result = flyt_session_region_map_again(session, args->offset_bytes, args->bytes, args->address);
    if (result == CUDA_SUCCESS)
        enter(
            session->mappings, place,
            &(struct flyt_mapping){.address = args->address, .bytes = args->bytes, .offset_bytes = args->offset_bytes});
    return result;
}

CUresult flyt_serve_virtual_access(struct flyt_call *call, const flyt_virtual_access_args *args,
                                   flyt_virtual_access_res *res)
{
    struct flyt_device *device;
    unsigned first;
    if (!is_mappable(args->address, args->bytes) || args->flags & ~CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
        !count_in(call->session->mappings, args->address, args->bytes, &first))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->cu_device},
                                    .flags = (CUmemAccess_flags)args->flags};
    return call->session->driver->cuMemSetAccess(args->address, args->bytes, &access, 1);
}

struct unmap_job {
    struct flyt_job job;
    uint64_t address, bytes;
};

static CUresult unmap_one(struct flyt_session *session, const struct flyt_mapping *one)
{
    CUresult result = flyt_device_use(device_of(session, one));
    if (result != CUDA_SUCCESS)
        return result;
    return one->physical ? session->driver->cuMemUnmap(one->address, one->bytes)
                         : flyt_session_region_unmap_again(session, one->address, one->bytes);
}

/* Nothing uses the memory any more. */
static CUresult unmap(struct flyt_session *session, uint64_t address, uint64_t bytes)
{
    struct flyt_mappings *mappings = session->mappings;
    unsigned first, count = count_in(mappings, address, bytes, &first), done = 0;
    CUresult result = count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (; done < count && result == CUDA_SUCCESS; done++) {
        const struct flyt_mapping *one = &mappings->items[first + done];
        result = unmap_one(session, one);
        if (result != CUDA_SUCCESS)
            break;
        if (one->physical)
            one->physical->mapping_count--;
    }
    mappings->count -= done;
    memmove(mappings->items + first, mappings->items + first + done,
            (mappings->count - first) * sizeof *mappings->items);
    return result;
}

static void unmap_finish(struct flyt_job *job, CUresult result)
{
    const struct unmap_job *self = (const struct unmap_job *)job;
    flyt_job_reply(job, result == CUDA_SUCCESS ? unmap(job->session, self->address, self->bytes) : result);
}

static const struct flyt_job_ops unmap_ops = {NULL, unmap_finish, NULL};

CUresult flyt_serve_virtual_unmap(struct flyt_call *call, const flyt_virtual_unmap_args *args,
                                  flyt_virtual_unmap_res *res)
{
    unsigned first;
    if (!is_mappable(args->address, args->bytes) ||
        !count_in(call->session->mappings, args->address, args->bytes, &first))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result;
    struct unmap_job *self = flyt_stream_job_after_all(call, sizeof *self, &result);
    if (!self)
        return result;
    self->address = args->address;
    self->bytes = args->bytes;
    result = flyt_job_begin(&self->job, &unmap_ops, call);
    flyt_job_keep_unexecuted(&self->job);
    return result;
}
