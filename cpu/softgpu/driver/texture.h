/*
 * Texture and surface objects. Their handles are the places in a table of the device, the lowest that is free, from 1
 * on: they depend only on the calls made.
 */
#ifndef FLYT_SOFTGPU_DRIVER_TEXTURE_H
#define FLYT_SOFTGPU_DRIVER_TEXTURE_H

#include "cpu/softgpu/ptx/texture.h"

struct flyt_soft_textures {
    struct flyt_ptx_objects objects; /* as the engine reads them */
    uint32_t used_count;             /* places up to the last one that was ever taken; under the driver's mutex */
};

#endif
