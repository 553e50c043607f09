/*
 * Textures and surfaces: objects of the driver's, whose handles the program has from it. Made in the primary context,
 * so that they outlive a change of SMs.
 *
 * At another server each must get the handle that it had, for it may be in the program's memory. The driver gives
 * handles by its own rules; so objects are made until one has it, and the others go again when it is found.
 */
#ifndef FLYT_SERVER_TEXTURE_H
#define FLYT_SERVER_TEXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/core/object.h"

struct flyt_device;

/* How many are made at most in looking for a handle. */
enum { FLYT_TEXTURE_TRIES_MAX = 4096 };

struct flyt_texture {
    struct flyt_object object;
    struct flyt_device *device;
    bool is_surface;
    uint64_t handle;
};

#endif
