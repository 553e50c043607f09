/*
 * The server's own kernels (page_hash.ptx, scan.ptx), which are in this program as PTX. What the driver makes of that
 * takes it 150 ms on an H200, in which a program that is moved would stand still: where servers are users of their own
 * there is no cache of the driver's (CUDA_CACHE_DISABLE), and each would do it anew. So a warm server compiles them
 * before there is a program, with the driver's linker (cuLinkAddData), and loads machine code.
 *
 * It loads that before there is a program, too. Loading may need all work of the context to end (CUDA Programming
 * Guide, Lazy Loading, "Concurrent Execution"): where kernels of two ranks of NCCL wait for each other, and one is not
 * launched yet, that does not come before the loading has ended.
 */
#ifndef FLYT_SERVER_OWN_KERNEL_H
#define FLYT_SERVER_OWN_KERNEL_H

#include <cuda.h>

#include "cpu/server/core/driver.h"

enum flyt_own_kernel { FLYT_OWN_PAGE_HASH, FLYT_OWN_SCAN, FLYT_OWN_KERNELS };

/* The kernels as libraries, which all devices of their compute capability may have; driver->own has it (driver.h). */
struct flyt_own_code;

/* Begins to compile all of them for the device, and to load them in its primary context, in a thread of its own, which
 * uses the driver: that must last, as must the context until flyt_own_code_free. NULL: it cannot be, and PTX will be
 * loaded.
 */
struct flyt_own_code *flyt_own_code_begin(const struct flyt_driver *driver, CUdevice cu_device, CUcontext cu_context);
/* Waits for the thread, and unloads them: a device's primary context is about to end. They are compiled anew for the
 * first device that is added then. */
void flyt_own_code_end_device(struct flyt_own_code *code);
/* Loads them for another device, after waiting for them to be compiled; makes its primary context current. Where the
 * device does not take them, PTX will be loaded. */
void flyt_own_code_add_device(struct flyt_own_code *code, CUdevice cu_device, CUcontext cu_primary);
/* Waits for the thread, and unloads them. NULL may be given. Returns NULL. */
struct flyt_own_code *flyt_own_code_free(struct flyt_own_code *code);

/*
 * A library with this kernel for the device, a context of which is current: that of driver->own, after waiting for it
 * to be loaded, or, where there is none, or the device has it not, one of PTX. The caller gives it back with
 * flyt_own_kernel_unload. The driver's error.
 */
CUresult flyt_own_kernel_load(const struct flyt_driver *driver, CUdevice cu_device, enum flyt_own_kernel which,
                              CUlibrary *ret_library);
CUresult flyt_own_kernel_unload(const struct flyt_driver *driver, CUlibrary library);

#endif
