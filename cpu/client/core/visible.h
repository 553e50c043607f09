/*
 * Which devices a program sees, and in which order, as the CUDA programming guide describes it for CUDA_VISIBLE_DEVICES
 * and CUDA_DEVICE_ORDER.
 *
 * A device has two numbers: the program's, which all of the client knows it by, and the server's. They differ where the
 * program has asked for another order, or for some devices alone. Between them there are few places only: calls whose
 * arguments name a device (generated: flyt_client_calls.h), ids of legacy default streams (cuda/stream.c), the window
 * in which a device's memory is (cuda/memory.c), and NCCL's orders (cpu/library/nccl_comm.c, nccl_group.c). The order
 * is fixed when the session begins, moves included.
 */
#ifndef FLYT_CLIENT_VISIBLE_H
#define FLYT_CLIENT_VISIBLE_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu/client/core/api.h"
#include "rpc/base/device_identity.h"
#include "flyt_limits.h"

struct flyt_visible {
    unsigned count;
    unsigned char devices[FLYT_DEVICES_MAX]; /* the server's number of each */
};

/* What is to be known of a device of the server's. */
struct flyt_visible_device {
    char uuid_text[FLYT_DEVICE_UUID_TEXT_BYTES]; /* "GPU-8-4-4-4-12 digits" */
    unsigned domain, bus, device;                /* on the PCI */
    uint64_t speed;                              /* comparable */
};

/* Whether what these variables say (NULL: nothing) depends on more than the number of devices. */
bool flyt_visible_needs_devices(const char *visible, const char *order);

/*
 * Of `count` devices (FLYT_DEVICES_MAX at most), in the server's order; `devices` may be NULL where they are not
 * needed.
 *
 * order: PCI_BUS_ID; FASTEST_FIRST puts the fastest one first; else as the server has them. visible: numbers in that
 * order, or the beginnings of UUIDs that only one has ("GPU-..."), by commas; what follows the first entry that names
 * no device does not count, and a device that is named twice leaves none. Parts of GPUs ("MIG-...") there are none,
 * which a line on stderr says.
 */
struct flyt_visible flyt_visible_choose(const char *visible, const char *order,
                                        const struct flyt_visible_device *devices, unsigned count);

/* The server's number of the program's device; of one that it has not, FLYT_DEVICES_MAX, which no server has. */
FLYT_API unsigned flyt_wire_device(unsigned device);
/* The program's number of the server's device; -1: it does not see it. */
int flyt_seen_device(unsigned wire_device);

#endif
