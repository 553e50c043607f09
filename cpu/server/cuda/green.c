/* Calls about green contexts of the program. */
#include "cpu/server/core/green.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/digest.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "cpu/server/cuda/reserve.h"
#include "flyt_serve.h"

/* Of a session: each holds a green context of the driver's, which stays as long as the process (partition.h). */
enum { GREENS_MAX = 32 };

CUresult flyt_serve_green_units(struct flyt_call *call, const flyt_green_units_args *args, flyt_green_units_res *res)
{
    struct flyt_device *device;
    unsigned count;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    unsigned *sms = result == CUDA_SUCCESS ? calloc(FLYT_SM_UNITS_MAX, sizeof *sms) : NULL;
    if (!sms)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    result = flyt_green_units(device, &res->group_size, sms, &count);
    if (result != CUDA_SUCCESS) {
        free(sms);
        return result;
    }
    res->sms.sms_val = sms; /* the reply's, which frees it */
    res->sms.sms_len = count;
    return CUDA_SUCCESS;
}

static CUresult make(struct flyt_device *device, struct flyt_green *green)
{
    const struct flyt_partition_context *context;
    const unsigned count = flyt_objects_count(&device->session->objects, FLYT_OBJECTS_GREEN) + 1;
    CUresult result = count <= GREENS_MAX ? flyt_reserve_greens(device, count) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_ERROR_NOT_READY)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return result == CUDA_SUCCESS ? flyt_green_partition(green, device, device->group_size, device->groups, &context)
                                  : result;
}

CUresult flyt_serve_green_create(struct flyt_call *call, const flyt_green_create_args *args, flyt_green_create_res *res)
{
    struct flyt_device *device;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    struct flyt_green *green = result == CUDA_SUCCESS ? calloc(1, sizeof *green) : NULL;
    if (!green)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    green->object.id = args->green_id;
    green->object.made =
        flyt_digest(args->device, args->ranks[0], (int64_t)args->ranks[1], args->ranks[2] ^ args->ranks[3]);
    green->device = device;
    for (unsigned i = 0; i < sizeof green->ranks; i++)
        green->ranks[i] = (unsigned char)(args->ranks[i / 8] >> (8 * (i % 8)));
    result = make(device, green);
    if (result == CUDA_SUCCESS)
        result = flyt_session_insert(call->session, &green->object, FLYT_ID_GREEN);
    if (result != CUDA_SUCCESS)
        free(green);
    return flyt_session_check(call->session, result);
}

static void end(struct flyt_green *green)
{
    for (struct flyt_stream *stream = green->device->streams_first; stream; stream = stream->device_next)
        if (stream->green == green)
            stream->green = NULL; /* its driver stream stays where it is until the session gets other SMs */
    flyt_object_remove(&green->device->session->objects, &green->object);
    free(green);
}

CUresult flyt_serve_green_destroy(struct flyt_call *call, const flyt_green_destroy_args *args, struct flyt_green *green)
{
    end(green);
    return CUDA_SUCCESS;
}

void flyt_green_drop(struct flyt_green *green, const struct flyt_device *device)
{
    if (!device || green->device == device)
        end(green);
}

CUresult flyt_serve_green_stream(struct flyt_call *call, const flyt_green_stream_args *args, struct flyt_stream *stream,
                                 struct flyt_green *green, flyt_green_stream_res *res)
{
    if (stream->is_legacy || stream->device != green->device || stream->submitted)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_device_use(stream->device);
    if (result == CUDA_SUCCESS)
        result = flyt_stream_enter_green(stream, green);
    return flyt_session_check(call->session, result);
}
