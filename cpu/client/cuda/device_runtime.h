/*
 * The unit of NVIDIA's device runtime (libcudadevrt) among those of relocatable device code. nvcc puts it behind every
 * program that it leaves to be linked on the node, whether anything in there is used or not: device-side launches, and
 * what CUDA lets device code call of the runtime. As a linker does with the member of an archive, it is left out where
 * no other unit names a function that it defines.
 */
#ifndef FLYT_CLIENT_DEVICE_RUNTIME_H
#define FLYT_CLIENT_DEVICE_RUNTIME_H

#include <stdbool.h>
#include <cuda.h>
#include "cpu/client/cuda/jit_link_call.h"

/* The functions that it defines, in the order of strcmp. */
struct flyt_device_runtime {
    char *code; /* the unit's machine code, which the names are in */
    const char **names;
    unsigned count;
};

/* Whether the container of a unit is the device runtime's: 1 and *ret_runtime filled in, 0: another one;
 * -ENOMEM. Nothing in the container is trusted. */
int flyt_device_runtime_open(const void *container, struct flyt_device_runtime *ret_runtime);
void flyt_device_runtime_close(struct flyt_device_runtime *runtime);

/* A function of it that an image, of PTX or machine code, names; NULL: none. Where there are several, one that launches
 * kernels comes first. The name lives as long as *runtime. */
const char *flyt_device_runtime_named_in(const struct flyt_device_runtime *runtime, const struct flyt_image *image);
/* Whether the function is one of those that a kernel launches another one with. */
bool flyt_device_runtime_launches(const char *name);

#endif
