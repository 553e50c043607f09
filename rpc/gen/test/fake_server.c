/* The server's side of valves: what rows have made of valve.api, over a driver that is a table. Stands in for the rest.
 */
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/driver.h"
#include "cpu/server/core/session.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/move/common/counts.h"
#include "flyt_procedures.h"
#include "rpc/gen/test/valve_test.h"

/* A program that sees all devices, in the server's order. */
unsigned flyt_wire_device(unsigned device)
{
    return device;
}

struct CUvalve_st {
    unsigned flags, level;
    CUdevice device;
};

static unsigned valve_count, last_result;
static bool is_full;
static struct flyt_session *session; /* the one that is called */

/* ---- the driver ---- */

static CUresult valve_create(CUvalve *ret_valve, unsigned flags, CUdevice device)
{
    if (is_full)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_valve = calloc(1, sizeof **ret_valve);
    **ret_valve = (struct CUvalve_st){.flags = flags, .device = device};
    valve_count++;
    return CUDA_SUCCESS;
}

static CUresult valve_destroy(CUvalve valve)
{
    valve_count--;
    free(valve);
    return CUDA_SUCCESS;
}

static CUresult valve_set_level(CUvalve valve, unsigned level)
{
    if (level > 100)
        return CUDA_ERROR_INVALID_VALUE;
    valve->level = level;
    return CUDA_SUCCESS;
}

static CUresult valve_get_level(CUvalve valve, unsigned *ret_level)
{
    *ret_level = valve->level + 1000 * valve->flags + 100000 * (unsigned)valve->device;
    return CUDA_SUCCESS;
}

static CUresult valve_sums(CUvalve valve, unsigned count, const unsigned *values, uint64_t *ret_sums)
{
    for (unsigned i = 0; i + 1 < count; i++)
        ret_sums[i] = (uint64_t)valve->level + values[i] + values[i + 1];
    return CUDA_SUCCESS;
}

static CUresult valve_scale(CUvalve valve, unsigned on_device, const double *factor, const unsigned *offset,
                            double *ret_level)
{
    *ret_level = valve->level * *factor + *offset;
    return CUDA_SUCCESS;
}

static CUresult valve_room(unsigned *ret_room, unsigned flags, CUdevice device)
{
    *ret_room = flags + 10 * (unsigned)device;
    return CUDA_SUCCESS;
}

static struct flyt_driver driver = {.cuValveCreate = valve_create,
                                    .cuValveDestroy = valve_destroy,
                                    .cuValveSetLevel = valve_set_level,
                                    .cuValveGetLevel = valve_get_level,
                                    .cuValveSums = valve_sums,
                                    .cuValveScale = valve_scale,
                                    .cuDeviceGetValveRoom = valve_room};

unsigned valve_server_driver_count(void)
{
    return valve_count;
}

void valve_server_fill(bool is)
{
    is_full = is;
}

void valve_server_age(bool is_old)
{
    driver.cuValveSums = is_old ? NULL : valve_sums;
}

/* ---- sessions ---- */

struct flyt_session *valve_server_new(void)
{
    struct flyt_session *made = calloc(1, sizeof *made);
    made->driver = &driver;
    made->device_count = 2;
    flyt_objects_init(&made->objects);
    for (unsigned i = 0; i < made->device_count; i++)
        made->devices[i] = (struct flyt_device){.session = made,
                                                .ordinal = i,
                                                .cu_device = (CUdevice)i + 5,
                                                .memory = calloc(1, sizeof(struct flyt_memory))};
    return made;
}

void valve_server_use(struct flyt_session *one)
{
    session = one;
}

void valve_server_drop(struct flyt_session *one, int device)
{
    flyt_objects_drop(one, device < 0 ? NULL : &one->devices[device]);
}

void valve_server_free(struct flyt_session *one)
{
    flyt_objects_fini(&one->objects);
    for (unsigned i = 0; i < one->device_count; i++)
        free(one->devices[i].memory);
    free(one);
}

unsigned valve_server_count(const struct flyt_session *one)
{
    return flyt_objects_count(&one->objects, FLYT_OBJECTS_VALVE);
}

unsigned valve_server_refused(const struct flyt_session *one)
{
    return (unsigned)one->objects.refused_count;
}

int valve_server_compare(struct flyt_session *had, struct flyt_session *has, struct flyt_error *err)
{
    flyt_checkpoint_counts counts;
    flyt_checkpoint_tallies tallies;
    flyt_counts_take(had, &counts, &tallies);
    return flyt_counts_compare(has, &counts, &tallies, err);
}

CUresult flyt_session_use_device(struct flyt_session *one, uint32_t ordinal, struct flyt_device **ret_device)
{
    if (ordinal >= one->device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *ret_device = &one->devices[ordinal];
    return CUDA_SUCCESS;
}

CUresult flyt_device_use(struct flyt_device *device)
{
    return CUDA_SUCCESS;
}

/* What is "on the device" here. */
struct valve_numbers valve_server_numbers;

bool flyt_memory_covers(struct flyt_session *one, uint64_t address, uint64_t bytes, struct flyt_device **ret_device)
{
    const uint64_t offset_bytes = address - (uint64_t)(uintptr_t)&valve_server_numbers;
    *ret_device = &one->devices[0];
    return offset_bytes < sizeof valve_server_numbers && bytes <= sizeof valve_server_numbers - offset_bytes;
}

/* ---- calls ---- */

void *flyt_connection_user(SVCXPRT *xprt)
{
    return session;
}

bool flyt_call_begin(struct flyt_call *call)
{
    return true;
}

CUresult flyt_call_result(const struct flyt_call *call)
{
    return CUDA_SUCCESS;
}

bool_t flyt_call_end(struct flyt_call *call, CUresult result, int *ret_result, flyt_progress *ret_progress)
{
    *ret_result = (int)result;
    return TRUE;
}

bool_t flyt_call_end_oneway(struct flyt_call *call, CUresult result)
{
    last_result = result;
    return TRUE;
}

#define SERVE(number, name, ...)                                                                                       \
    case number: {                                                                                                     \
        flyt_##name##_1_svc(args, ##__VA_ARGS__, &req);                                                                \
        break;                                                                                                         \
    }

unsigned valve_server_call(unsigned procedure, void *args, void *res)
{
    struct svc_req req = {0};
    last_result = CUDA_SUCCESS;
    switch (procedure) {
        SERVE(FLYT_VALVE_CREATE, valve_create, NULL)
        SERVE(FLYT_VALVE_DESTROY, valve_destroy, NULL)
        SERVE(FLYT_VALVE_LEVEL_SET, valve_level_set, res)
        SERVE(FLYT_VALVE_LEVEL, valve_level, res)
        SERVE(FLYT_VALVE_SUMS, valve_sums, res)
        SERVE(FLYT_VALVE_SCALE, valve_scale, res)
        SERVE(FLYT_VALVE_ROOM, valve_room, res)
    default:
        abort();
    }
    return last_result;
}

/* Of the other kinds there is nothing. */
void flyt_event_drop(struct flyt_event *event, const struct flyt_device *device)
{
    abort();
}

void flyt_array_drop(struct flyt_array *array, const struct flyt_device *device)
{
    abort();
}

void flyt_texture_drop(struct flyt_texture *texture, const struct flyt_device *device)
{
    abort();
}

void flyt_green_drop(struct flyt_green *green, const struct flyt_device *device)
{
    abort();
}

void flyt_physical_drop(struct flyt_physical *physical, const struct flyt_device *device)
{
    abort();
}

void flyt_export_drop(struct flyt_export *one, const struct flyt_device *device)
{
    abort();
}

void flyt_import_drop(struct flyt_import *import, const struct flyt_device *device)
{
    abort();
}

void flyt_libobject_drop(struct flyt_libobject *object, const struct flyt_device *device)
{
}

void flyt_library_drop(struct flyt_library *library, const struct flyt_device *device)
{
    abort();
}

void flyt_segment_drop(struct flyt_segment *segment, const struct flyt_device *device)
{
    abort();
}

void flyt_stream_drop(struct flyt_stream *stream, const struct flyt_device *device)
{
    abort();
}
