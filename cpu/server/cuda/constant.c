#include "cpu/server/cuda/constant.h"

#include <stdlib.h>

#include "cpu/server/code/image_state.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/core/session.h"
#include "flyt_serve.h"

/* ---- the places ---- */

static struct flyt_constant_place *find(const struct flyt_session *session, uint64_t address)
{
    const struct flyt_constants *self = session->constants;
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
        session->observer->used(session, FLYT_USE_CONTENTS);
    flyt_constant_note_used(session, address);
}

void flyt_constant_forget(struct flyt_session *session, const struct flyt_library *library)
{
    struct flyt_constants *self = session->constants;
    unsigned left = 0;
    for (unsigned i = 0; i < self->count; i++)
        if (self->places[i].library != library)
            self->places[left++] = self->places[i];
    self->count = left;
}

void flyt_constant_fini(struct flyt_session *session)
{
    free(session->constants->places);
    *session->constants = (struct flyt_constants){0};
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

/* Notes the variable, and what stands against replacing this server. Whether the client is to keep what it writes. */
bool flyt_constant_note_place(struct flyt_session *session, const struct flyt_constant_place *found, bool is_offered)
{
    struct flyt_constants *self = session->constants;
    struct flyt_constant_place *place = find(session, found->address);
    bool is_known = found->is_constant || found->library->code.state & FLYT_IMAGE_VARIABLES;
    if (!place && is_known)
        place = add(self);
    if (!place) { /* the client copies by its address, and nothing else would say what that means */
        session->observer->used(session, found->is_constant ? FLYT_USE_CONTENTS : FLYT_USE_ADDRESS);
        return false;
    }
    *place = *found;
    place->is_kept = place->is_constant && is_offered && place->bytes <= FLYT_CONSTANT_BYTES_MAX &&
                     kept_bytes(self, place->library, place->device) <= FLYT_CONSTANT_BYTES_MAX - place->bytes;
    if (place->is_constant && !place->is_kept) /* the client copies by its address */
        session->observer->used(session, FLYT_USE_CONTENTS);
    return place->is_kept;
}
