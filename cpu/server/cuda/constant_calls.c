/* Calls about constants and variables by their names (constant.h). */
#include "cpu/server/cuda/constant.h"

#include <stdlib.h>
#include "cpu/server/core/call.h"
#include "cpu/server/cuda/copy.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/submit.h"
#include "flyt_serve.h"

CUresult flyt_serve_library_symbol(struct flyt_call *call, const flyt_library_symbol_args *args,
                                   struct flyt_library *library, flyt_library_symbol_res *res)
{
    uint64_t address, bytes;
    CUresult result = flyt_library_find_variable(call, library, args->name, args->device, &address, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    int64_t symbol = flyt_image_symbols_find(&library->code.symbols, args->name);
    const struct flyt_constant_place found = {.library = library,
                                              .address = address,
                                              .bytes = bytes,
                                              .device = args->device,
                                              .symbol = symbol,
                                              .is_constant =
                                                  symbol >= 0 && library->code.symbols.items[symbol].is_constant};
    res->address = address;
    res->bytes = bytes;
    res->is_kept = flyt_constant_note_place(call->session, &found, args->is_kept);
    if (!res->is_kept)
        call->session->observer->name_asked(library, args->name);
    return CUDA_SUCCESS;
}

/* The place of part of a variable that is named, as a box. What flyt_library_find_variable returns, and
 * CUDA_ERROR_INVALID_VALUE: it has not so much. */
static CUresult find_part(struct flyt_call *call, struct flyt_library *library, const char *name, uint32_t device,
                          uint64_t offset_bytes, uint64_t bytes, flyt_box *ret_box)
{
    uint64_t address, variable_bytes;
    CUresult result = flyt_library_find_variable(call, library, name, device, &address, &variable_bytes);
    if (result != CUDA_SUCCESS)
        return result;
    if (offset_bytes > variable_bytes || bytes > variable_bytes - offset_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_box = flyt_box_line(address + offset_bytes, bytes);
    return CUDA_SUCCESS;
}

struct at_once {
    const flyt_constant_write_args *args;
    uint64_t address;
};

static CUresult submit_write(void *user, struct flyt_stream *target)
{
    const struct at_once *self = user;
    return target->device->session->driver->cuMemcpyHtoDAsync(self->address, self->args->data.data_val,
                                                              self->args->data.data_len, target->cu_stream);
}

/* Of a session that goes on here: nothing else of it runs, and no gate is in the way (the VM may be suspended). Up to
 * 64 KiB of ordinary memory have been read when the driver returns; session_resume_end waits for the GPU. */
static CUresult write_at_once(struct flyt_call *call, const flyt_constant_write_args *args, uint64_t address)
{
    struct at_once self = {args, address};
    struct flyt_device *device;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    return flyt_stream_submit(device->legacy, call->sequence, FLYT_SUBMIT_ADDED, device, submit_write, &self);
}

CUresult flyt_serve_constant_write(struct flyt_call *call, const flyt_constant_write_args *args,
                                   struct flyt_stream *stream, struct flyt_library *library)
{
    struct flyt_session *session = call->session;
    flyt_box box;
    CUresult result = find_part(call, library, args->name, args->device, args->offset_bytes, args->data.data_len, &box);
    if (result == FLYT_CALL_RETRY)
        return result;
    const struct flyt_constant_place *place = result == CUDA_SUCCESS ? flyt_constant_find(session, box.address) : NULL;
    bool is_kept = place && place->is_kept;
    if (result == CUDA_SUCCESS && is_kept && session->resume.state == FLYT_RESUME_UNDER_WAY)
        result = write_at_once(call, args, box.address);
    else if (result == CUDA_SUCCESS)
        result = flyt_copy_in(call, stream, &box, args->data.data_val, args->data.data_len);
    /* It may hold anything now. */
    if (result != FLYT_CALL_RETRY && (result != CUDA_SUCCESS || !is_kept))
        session->observer->used(session, FLYT_USE_CONTENTS);
    return result;
}

CUresult flyt_serve_constant_read(struct flyt_call *call, const flyt_constant_read_args *args,
                                  struct flyt_stream *stream, struct flyt_library *library, flyt_constant_read_res *res)
{
    flyt_box src;
    CUresult result = find_part(call, library, args->name, args->device, args->offset_bytes, args->bytes, &src);
    /* The reply that comes later is of the same shape as that of copy_out. */
    return result == CUDA_SUCCESS ? flyt_copy_out(call, stream, &src) : result;
}
