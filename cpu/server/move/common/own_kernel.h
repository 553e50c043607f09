/*
 * The server's own kernels (page_hash.ptx, scan.ptx), which are in this program as PTX. What the driver makes of that
 * takes it 150 ms on an H200, in which a program that is moved would stand still: where servers are users of their own
 * there is no cache of the driver's (CUDA_CACHE_DISABLE), and each would do it anew. So a warm server compiles them
 * before there is a program, with the driver's linker (cuLinkAddData), and loads machine code later.
 */
#ifndef FLYT_SERVER_OWN_KERNEL_H
#define FLYT_SERVER_OWN_KERNEL_H

#include <cuda.h>

#include "cpu/server/core/driver.h"

enum flyt_own_kernel { FLYT_OWN_PAGE_HASH, FLYT_OWN_SCAN, FLYT_OWN_KERNELS };

/* Machine code of one device's compute capability; driver->own has it (driver.h). */
struct flyt_own_code;

/* Begins to compile all of them for the device of the context, in a thread of its own, which uses the driver: that must
 * last, as must the context until flyt_own_code_free. NULL: it cannot be, and PTX will be loaded. */
struct flyt_own_code *flyt_own_code_begin(const struct flyt_driver *driver, CUcontext cu_context);
/* Waits for the thread. NULL may be given. Returns NULL. */
struct flyt_own_code *flyt_own_code_free(struct flyt_own_code *code);

/*
 * A library with this kernel in the current context: from driver->own, after waiting for it to be compiled, or, where
 * there is none, or the context's device takes it not, from PTX. The caller unloads it (cuLibraryUnload). The driver's
 * error.
 */
CUresult flyt_own_kernel_load(const struct flyt_driver *driver, enum flyt_own_kernel which, CUlibrary *ret_library);

#endif
