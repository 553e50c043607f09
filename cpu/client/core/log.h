/*
 * The driver's error log (cuLogs…, CUDA 12.9): what this library has warned of, as on stderr (rpc/base/log.h):
 * functions that are not forwarded, modules that are refused, a lost server. The server's own log is its operator's.
 * The last FLYT_LOG_ENTRIES lines are kept, each with the time and the thread. Any thread; before cuInit too.
 */
#ifndef FLYT_CLIENT_LOG_H
#define FLYT_CLIENT_LOG_H

#include <cuda.h>
#include <stddef.h>
#include "cpu/client/core/api.h"

enum { FLYT_LOG_ENTRIES = 100, FLYT_LOG_ENTRY_BYTES = 256, FLYT_LOG_CALLBACKS = 16 };

/* The callback hears of each line from the thread that logs it, in the middle of whatever that does: functions of CUDA
 * are CUDA_ERROR_NOT_PERMITTED there, but for those of the log. CUDA_ERROR_INVALID_VALUE: none is given;
 * CUDA_ERROR_OUT_OF_MEMORY: there are FLYT_LOG_CALLBACKS. ret_handle may be NULL. */
FLYT_API CUresult flyt_logs_register(CUlogsCallback callback, void *user, CUlogsCallbackHandle *ret_handle);
FLYT_API CUresult flyt_logs_unregister(CUlogsCallbackHandle handle);
/* Behind the last line. flags: 0 by the documentation; NVIDIA's driver (580) does not look at them, nor does this. */
FLYT_API CUresult flyt_logs_current(CUlogIterator *ret_iterator, unsigned flags);
/* What comes from *iterator on (NULL: all that is kept), which then is behind the last; a first line says how many are
 * lost. The file is appended to. CUDA_ERROR_INVALID_VALUE: a path that cannot be written;
 * CUDA_ERROR_OUT_OF_MEMORY. */
FLYT_API CUresult flyt_logs_to_file(CUlogIterator *iterator, const char *path, unsigned flags);
/* The same, of *bytes bytes with the final 0; the last lines where they do not fit, behind a line that says so. *bytes
 * is what was written, without the 0. CUDA_ERROR_INVALID_VALUE and 0: there is no room for one. */
FLYT_API CUresult flyt_logs_to_memory(CUlogIterator *iterator, char *buffer, size_t *bytes, unsigned flags);

#endif
