#ifndef FLYT_SERVER_PRIORITY_H
#define FLYT_SERVER_PRIORITY_H

#include <cuda.h>

struct flyt_device;

/*
 * Priorities of streams and launches. Without a node manager the program has those of the GPU. Under one the GPU's
 * range (0 to -5, as the driver counts) is divided into classes of FLYT_PRIORITIES levels: each VM is in one
 * class, by its priority, the middle one where that is 0, and a program has the levels of that class, whatever it asks
 * for. So its streams have an order of their own, and none comes before those of a VM in a higher class. A GPU with
 * less than two such classes has a class for each level.
 */
enum { FLYT_PRIORITIES = 2 };

/* The driver's priority of a stream or a launch for which the program wants `priority`, any number: what is outside of
 * flyt_priority_range is taken for the nearest in it. A context of the device, or of one like it, is current. */
int flyt_priority(const struct flyt_device *device, int priority);
/* What a program is told: 0 and -1 under a node manager, of a GPU that has two classes. The same context is current.
 * CUDA_SUCCESS or CUDA_ERROR_INVALID_CONTEXT. */
CUresult flyt_priority_range(const struct flyt_device *device, int *ret_least, int *ret_greatest);

#endif
