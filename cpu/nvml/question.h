/* What is asked of the VM's client manager, and whether its answer can be. */
#ifndef FLYT_NVML_QUESTION_H
#define FLYT_NVML_QUESTION_H

#include "control.h"

/*
 * Blocks FLYT_NVML_TIMEOUT_MS at most. 0 and *ret_answer (xdr_free); FLYT_NVML_DRIVER_NOT_LOADED: there is no client
 * manager, it names no devices or does not answer, or FLYT_SERVER names a server (direct mode: nobody is there to ask);
 * FLYT_NVML_NO_PERMISSION: this user may not. Why is said at debug level.
 */
int flyt_nvml_ask(flyt_local_devices_res *ret_answer);

#endif
