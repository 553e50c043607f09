/*
 * Notifications of a device (cuDeviceRegisterAsyncNotification): the limit of the VM's memory was lowered below what is
 * in use. Each is told when the operator's order has come, when a callback is registered meanwhile, and again where the
 * session goes on at another server. Without a node manager there is no such order, and nothing is ever told.
 */
#ifndef FLYT_CLIENT_NOTIFICATION_H
#define FLYT_CLIENT_NOTIFICATION_H

#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/api.h"

/* The callback hears from a thread of this library's, one after the other; it may make calls of CUDA.
 * CUDA_ERROR_NOT_PERMITTED: from a callback; CUDA_ERROR_INVALID_VALUE: NULL; CUDA_ERROR_INVALID_DEVICE;
 * CUDA_ERROR_OUT_OF_MEMORY; CUDA_ERROR_NOT_SUPPORTED: the server is too old. */
FLYT_API CUresult flyt_notification_register(int device, CUasyncCallback callback, void *user,
                                             CUasyncCallbackHandle *ret_handle);
/* When it returns the callback is not called any more, and does not run. CUDA_ERROR_NOT_PERMITTED: from a callback;
 * CUDA_ERROR_INVALID_VALUE: none of the device's. */
FLYT_API CUresult flyt_notification_unregister(int device, CUasyncCallbackHandle handle);

/* Handler of the channel. device: as on the wire. */
void flyt_notification_over_budget(void *user, uint32_t device, uint64_t bytes);

struct flyt_restore;
/* Part (part.h): another server is asked to tell, if it knows how to. */
int flyt_notification_restore(struct flyt_restore *restore);

#endif
