/*
 * The one instance of the client library in a process: the connection to the server, its state, and what every call
 * asks first.
 *
 * Nothing happens when the library is loaded. The first call that needs the server connects to the address in
 * FLYT_SERVER (tcp://HOST:PORT or unix:///PATH), reserves the window of device addresses, and registers the fork
 * handler. All functions of this library may be called from any thread, and every exported function that returns a
 * CUresult begins with one of the flyt_client_enter functions by itself: callers need not.
 *
 * Results common to all exported functions, not repeated at each:
 *   CUDA_ERROR_SYSTEM_NOT_READY        no server configured, or it cannot be reached
 *   CUDA_ERROR_SYSTEM_DRIVER_MISMATCH  the server speaks another version of the protocol
 *   CUDA_ERROR_NOT_PERMITTED           the server denies the session; or the call comes from a host function
 *   CUDA_ERROR_NO_DEVICE               the server has no working device
 *   CUDA_ERROR_DEVICE_UNAVAILABLE      the connection was lost: for ever
 *   CUDA_ERROR_NOT_INITIALIZED         forked child of a process that had used CUDA
 *   CUDA_ERROR_DEINITIALIZED           the process is past its exit handlers
 *   a fatal error of the context       for ever, to every thread
 *   the error of an earlier one-way call of this thread, once
 *
 * Order of locks, outermost first: client connect, context, library, variables, kernel, object table (one per type),
 * range table, transfer, thread list, function queue, stream credit, output. Only client connect and library are held
 * across a call with a reply; no handler of the channel takes one of these two. While everything is made again at
 * another server (restore.h), variables, kernel and range table are held across calls to that one.
 */
#ifndef FLYT_CLIENT_CLIENT_H
#define FLYT_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/api.h"
#include "rpc/base/device_identity.h"

/* What cuInit does: connects if that has not happened. Fails alike at every further call if connecting failed. Blocks
 * at most the connection time-out (10 s). */
FLYT_API CUresult flyt_client_init(void);

/* Whether anything (cuInit or a runtime call) has tried to connect, with whatever outcome: a call tells that by its own
 * code. The driver API's entry points return CUDA_ERROR_NOT_INITIALIZED while it is false; the runtime's do not ask.
 * Never blocks. */
FLYT_API bool flyt_client_is_initialized(void);

/* Whether `result`, of an entering call, is the fault that broke the context (not CUDA_SUCCESS, a lost connection, or
 * the state after a reset): what the client knows by itself can still be asked then. */
FLYT_API bool flyt_client_is_faulted(CUresult result);

/* What a call that works with a context asks first; connects where needed. CUDA_SUCCESS: go on. Else the list above:
 * the call returns that and does nothing. About 2 ns when all is well. */
FLYT_API CUresult flyt_client_enter(void);

/* The same for calls that give something back (free, destroy, unload): an earlier one-way call's error does not stop
 * them and stays pending for the next call. */
FLYT_API CUresult flyt_client_enter_release(void);

/* The same for questions about devices, which CUDA answers without a context and hence after a fatal error of one. */
FLYT_API CUresult flyt_client_enter_device(void);

/* The CUDA version of the replaced libraries, e.g. 13000. */
FLYT_API int flyt_client_cuda_version(void);
/* cuDriverGetVersion: that of the node's driver, of the present node where the session has moved. Never connects:
 * programs ask before they fork. Before the first call that does it is flyt_client_cuda_version. */
FLYT_API int flyt_client_driver_version(void);
/* What the VM calls its device, wherever that is; false: no client manager has named the server, and the device is what
 * the server says. */
FLYT_API bool flyt_client_identify(unsigned device, struct flyt_device_identity *ret_identity);
/* The newest interface that a program may ask for by number: it may take the driver's version for it. */
FLYT_API int flyt_client_newest_version(void);

/* The answer of an entry point that Flyt does not have: says so once per name on stderr, at level warn. `name` is the
 * entry point's, a string literal. Returns CUDA_ERROR_NOT_SUPPORTED. Does not connect. */
FLYT_API CUresult flyt_not_supported(const char *name);

#endif
