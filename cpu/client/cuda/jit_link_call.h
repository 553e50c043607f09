/* The call that links images, for the sources of this library. */
#ifndef FLYT_CLIENT_LINK_CALL_H
#define FLYT_CLIENT_LINK_CALL_H

#include "cpu/client/cuda/image.h"
#include "cpu/client/cuda/jit.h"

struct flyt_jit_link_part {
    struct flyt_image image;
    char *name;                      /* for messages; may be NULL. Owned by the caller, as the rest */
    struct flyt_jit_numbers numbers; /* its own options */
};

/*
 * Has the server at the channel's end link `count` parts (at most FLYT_LINK_INPUTS_MAX), after sending it the images
 * that it lacks. is_trial: only tries, ret_hash and ret_bytes are not used. What the linker returns, and
 * CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult flyt_jit_link_parts(struct flyt_channel *channel, const struct flyt_jit_link_part *parts, unsigned count,
                             bool is_trial, const struct flyt_jit_numbers *numbers, struct flyt_jit_logs *logs,
                             unsigned char *ret_hash, uint64_t *ret_bytes);

/* Links the units of a wrapper (flyt_fatbin_units) for a device, without the device runtime's where no other needs it.
 * CUDA_ERROR_NO_BINARY_FOR_GPU: one has no image that suits; _NOT_SUPPORTED: the device runtime, which is needed, has
 * none. */
CUresult flyt_jit_link_units(struct flyt_channel *channel, const void *const *units,
                             const struct flyt_fatbin_device *target, const struct flyt_jit_numbers *numbers,
                             struct flyt_jit_logs *logs, unsigned char *ret_hash);

#endif
