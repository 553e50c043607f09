#include "cpu/server/constant.h"

#include <stdlib.h>

#include "cpu/server/call.h"
#include "cpu/server/copy.h"
#include "cpu/server/image_state.h"
#include "cpu/server/module.h"
#include "cpu/server/save.h"
#include "cpu/server/session.h"
#include "flyt_serve.h"

/* ---- the places ---- */

static struct flyt_constant_place *find(const struct flyt_session *session, uint64_t address)
{
    const struct flyt_constants *self = &session->constants;
    for (unsigned i = 0; i < self->count; i++)
        if (address >= self->places[i].address && address - self->places[i].address < self->places[i].bytes)
            return &self->places[i];
    return NULL;
}

const struct flyt_constant_place *flyt_constant_find(const struct flyt_session *session, uint64_t address)
{
    return find(session, address);
}

void flyt_constant_note_used(struct flyt_session *session, uint64_t address)
{
    const struct flyt_constant_place *place = flyt_window_device(address) < 0 ? find(session, address) : NULL;
    if (place && place->is_kept) /* as if it had asked; the address alone may be the end of another one, too */
        place->library->is_asked[place->symbol] = true;
}

void flyt_constant_note_written(struct flyt_session *session, uint64_t address)
{
    if (flyt_window_device(address) >= 0)
        return;
    const struct flyt_constant_place *place = find(session, address);
    if (place && place->is_constant)
        flyt_replaceable_note(session, FLYT_REASON_CONTENTS);
    flyt_constant_note_used(session, address);
}

void flyt_constant_forget(struct flyt_session *session, const struct flyt_library *library)
{
    struct flyt_constants *self = &session->constants;
    unsigned left = 0;
    for (unsigned i = 0; i < self->count; i++)
        if (self->places[i].library != library)
            self->places[left++] = self->places[i];
    self->count = left;
}

void flyt_constant_fini(struct flyt_session *session)
{
    free(session->constants.places);
    session->constants = (struct flyt_constants){0};
}

/* What the client keeps already of the library's constants on the device. */
static uint64_t kept_bytes(const struct flyt_constants *self, const struct flyt_library *library, unsigned device)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < self->count; i++)
        if (self->places[i].library == library && self->places[i].device == device && self->places[i].is_kept)
            bytes += self->places[i].bytes;
    return bytes;
}

/* Room for one that is new. NULL: there are as many as there may be, or no host memory. */
static struct flyt_constant_place *add(struct flyt_constants *self)
{
    if (!self->places)
        self->places = calloc(FLYT_CONSTANT_PLACES_MAX, sizeof *self->places);
    return self->places && self->count < FLYT_CONSTANT_PLACES_MAX ? &self->places[self->count++] : NULL;
}

/* ---- calls ---- */

/* Notes the variable, and what stands against replacing this server. Whether the client is to keep what it writes. */
static bool note_place(struct flyt_session *session, const struct flyt_constant_place *found, bool is_offered)
{
    struct flyt_constants *self = &session->constants;
    struct flyt_constant_place *place = find(session, found->address);
    bool is_known = found->is_constant || found->library->image_state & FLYT_IMAGE_VARIABLES;
    if (!place && is_known)
        place = add(self);
    if (!place) { /* the client copies by its address, and nothing else would say what that means */
        flyt_replaceable_note(session, found->is_constant ? FLYT_REASON_CONTENTS : FLYT_REASON_ADDRESS);
        return false;
    }
    *place = *found;
    place->is_kept = place->is_constant && is_offered && place->bytes <= FLYT_CONSTANT_BYTES_MAX &&
                     kept_bytes(self, place->library, place->device) <= FLYT_CONSTANT_BYTES_MAX - place->bytes;
    if (place->is_constant && !place->is_kept) /* the client copies by its address */
        flyt_replaceable_note(session, FLYT_REASON_CONTENTS);
    return place->is_kept;
}

CUresult flyt_serve_library_symbol(struct flyt_call *call, const flyt_library_symbol_args *args,
                                   struct flyt_library *library, flyt_library_symbol_res *res)
{
    uint64_t address, bytes;
    CUresult result = flyt_library_find_variable(call, library, args->name, args->device, &address, &bytes);
    if (result != CUDA_SUCCESS)
        return result;
    int64_t symbol = flyt_image_symbols_find(&library->symbols, args->name);
    const struct flyt_constant_place found = {.library = library,
                                              .address = address,
                                              .bytes = bytes,
                                              .device = args->device,
                                              .symbol = symbol,
                                              .is_constant = symbol >= 0 && library->symbols.items[symbol].is_constant};
    res->address = address;
    res->bytes = bytes;
    res->is_kept = note_place(call->session, &found, args->is_kept);
    if (!res->is_kept)
        flyt_save_note_asked(library, args->name);
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

/* Of a session that goes on here: nothing else of it runs, and no gate is in the way (the VM may be suspended). Up to
 * 64 KiB of ordinary memory have been read when the driver returns; session_resume_end waits for the GPU, once for all
 * that was written. */
static CUresult write_at_once(struct flyt_session *session, uint32_t ordinal, uint64_t address, const void *data,
                              uint64_t bytes)
{
    struct flyt_device *device;
    CUresult result = flyt_session_use_device(session, ordinal, &device);
    if (result != CUDA_SUCCESS)
        return result;
    session->resume.written_devices |= 1u << ordinal;
    result = session->driver->cuMemcpyHtoDAsync(address, data, bytes, device->legacy->cu_stream);
    return flyt_session_check(session, result);
}

CUresult flyt_serve_constant_write(struct flyt_call *call, const flyt_constant_write_args *args,
                                   struct flyt_stream *stream, struct flyt_library *library)
{
    struct flyt_session *session = call->session;
    flyt_box box;
    CUresult result = find_part(call, library, args->name, args->device, args->offset_bytes, args->data.data_len, &box);
    if (result == FLYT_CALL_PARKED)
        return result;
    const struct flyt_constant_place *place = result == CUDA_SUCCESS ? find(session, box.address) : NULL;
    bool is_kept = place && place->is_kept;
    if (result == CUDA_SUCCESS && is_kept && session->resume.state == FLYT_RESUME_UNDER_WAY)
        result = write_at_once(session, args->device, box.address, args->data.data_val, args->data.data_len);
    else if (result == CUDA_SUCCESS)
        result = flyt_copy_in(call, stream, &box, args->data.data_val, args->data.data_len);
    /* It may hold anything now. */
    if (result != FLYT_CALL_PARKED && (result != CUDA_SUCCESS || !is_kept))
        flyt_replaceable_note(session, FLYT_REASON_CONTENTS);
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
