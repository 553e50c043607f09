/*
 * What the generated functions of nvml_stubs.c do (rpc/gen/nvml.py): refuse, or give a number that is always true. Any
 * thread. Each function's name is said once, at debug level.
 */
#ifndef FLYT_NVML_REFUSE_H
#define FLYT_NVML_REFUSE_H

/* Uninitialized, or not supported. */
int flyt_nvml_refuse(const char *name);
/* Likewise, and an invalid argument where there is no such device. */
int flyt_nvml_refuse_device(const char *name, const void *device);
/* The number; likewise. */
int flyt_nvml_give(const void *device, unsigned *ret_value, unsigned number);

#endif
