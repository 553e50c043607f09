/*
 * Green contexts of the program: a part of the session's SM groups on a device, by their places among those that it
 * has. So one means as many SMs, of others, when the session has got other groups. Streams in one have their driver
 * streams in a green context of the driver's of its own (partition.h).
 *
 * In a session that has the whole GPU the groups are those of FLYT_GREEN_GROUP_SMS.
 */
#ifndef FLYT_SERVER_GREEN_H
#define FLYT_SERVER_GREEN_H

#include <cuda.h>

#include "cpu/server/core/object.h"
#include "cpu/server/core/partition.h"
#include "flyt_objects.h"

struct flyt_device;

enum { FLYT_GREEN_GROUP_SMS = 8 };

struct flyt_green {
    struct flyt_object object;
    struct flyt_device *device;
    unsigned char ranks[FLYT_GROUPS_MAX / 8]; /* a bit for each of the session's groups, by its place among them */
};

/*
 * The green context for streams in `green` (NULL: in none) where the session has these groups of the device's, or, with
 * group_size 0, all. CUDA_SUCCESS and *ret_context, the device's; else as flyt_partition_get.
 */
CUresult flyt_green_partition(const struct flyt_green *green, struct flyt_device *device, unsigned group_size,
                              const unsigned char *groups, const struct flyt_partition_context **ret_context);

/* How many SMs each of the session's groups has, in their order. The driver's error, or CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_green_units(struct flyt_device *device, unsigned *ret_group_size, unsigned ret_sms[FLYT_GROUPS_MAX],
                          unsigned *ret_count);

#endif
