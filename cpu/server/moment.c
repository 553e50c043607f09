#include "cpu/server/moment.h"

#include <stdlib.h>

#include "cpu/server/device.h"
#include "cpu/server/session.h"
#include "cpu/server/stream.h"

CUresult flyt_moment_promise(struct flyt_device *device, bool has_timing, struct flyt_moment **ret_moment)
{
    struct flyt_moment *moment = device->moments.free[has_timing];
    if (moment) {
        device->moments.free[has_timing] = moment->next_free;
    } else {
        moment = calloc(1, sizeof *moment);
        if (!moment)
            return CUDA_ERROR_OUT_OF_MEMORY;
        unsigned flags = has_timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
        CUresult result = device->session->driver->cuEventCreate(&moment->cu_event, flags);
        if (result != CUDA_SUCCESS) {
            free(moment);
            return result;
        }
        moment->device = device;
        moment->has_timing = has_timing;
    }
    moment->refs = 1;
    moment->is_recorded = false;
    moment->result = CUDA_ERROR_NOT_READY;
    *ret_moment = moment;
    return CUDA_SUCCESS;
}

CUresult flyt_moment_record(struct flyt_stream *stream, bool has_timing, struct flyt_moment **ret_moment)
{
    struct flyt_moment *moment;
    CUresult result = flyt_moment_promise(stream->device, has_timing, &moment);
    if (result != CUDA_SUCCESS)
        return result;
    result = flyt_moment_keep(moment, stream);
    if (result != CUDA_SUCCESS) {
        flyt_moment_unref(moment);
        return result;
    }
    *ret_moment = moment;
    return CUDA_SUCCESS;
}

CUresult flyt_moment_keep(struct flyt_moment *moment, struct flyt_stream *stream)
{
    CUresult result = stream->device->session->driver->cuEventRecord(moment->cu_event, stream->cu_stream);
    moment->is_recorded = result == CUDA_SUCCESS;
    return result;
}

void flyt_moment_break(struct flyt_moment *moment)
{
    if (moment && !moment->is_recorded && moment->result == CUDA_ERROR_NOT_READY)
        moment->result = CUDA_SUCCESS;
}

CUresult flyt_moment_poll(struct flyt_moment *moment)
{
    if (!moment)
        return CUDA_SUCCESS;
    if (moment->result == CUDA_ERROR_NOT_READY) {
        struct flyt_session *session = moment->device->session;
        if (session->fatal != CUDA_SUCCESS)
            moment->result = session->fatal;
        else if (moment->is_recorded)
            moment->result = session->driver->cuEventQuery(moment->cu_event);
        if (moment->result != CUDA_ERROR_NOT_READY)
            flyt_session_check(session, moment->result);
    }
    return moment->result;
}

struct flyt_moment *flyt_moment_ref(struct flyt_moment *moment)
{
    if (moment)
        moment->refs++;
    return moment;
}

struct flyt_moment *flyt_moment_unref(struct flyt_moment *moment)
{
    if (moment && !--moment->refs) {
        struct flyt_moment_pool *pool = &moment->device->moments;
        moment->next_free = pool->free[moment->has_timing];
        pool->free[moment->has_timing] = moment;
    }
    return NULL;
}

void flyt_moment_pool_fini(struct flyt_device *device)
{
    for (unsigned kind = 0; kind < 2; kind++) {
        struct flyt_moment *moment;
        while ((moment = device->moments.free[kind])) {
            device->moments.free[kind] = moment->next_free;
            device->session->driver->cuEventDestroy(moment->cu_event);
            free(moment);
        }
    }
}

CUresult flyt_moment_set_add(struct flyt_moment_set *set, struct flyt_moment *moment)
{
    if (!moment)
        return CUDA_SUCCESS;
    struct flyt_moment **moments = reallocarray(set->moments, set->count + 1, sizeof *moments);
    if (!moments) {
        flyt_moment_unref(moment);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    set->moments = moments;
    set->moments[set->count++] = moment;
    return CUDA_SUCCESS;
}

CUresult flyt_moment_set_poll(struct flyt_moment_set *set)
{
    while (set->count) {
        CUresult result = flyt_moment_poll(set->moments[set->count - 1]);
        if (result != CUDA_SUCCESS)
            return result;
        flyt_moment_unref(set->moments[--set->count]);
    }
    return CUDA_SUCCESS;
}

void flyt_moment_set_fini(struct flyt_moment_set *set)
{
    while (set->count)
        flyt_moment_unref(set->moments[--set->count]);
    free(set->moments);
    *set = (struct flyt_moment_set){0};
}
