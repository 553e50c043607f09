/*
 * Who else hears what is logged: a client library keeps it for the program (cpu/client/core/log.h).
 */
#ifndef FLYT_BASE_LOG_SINK_H
#define FLYT_BASE_LOG_SINK_H

#include <stddef.h>
#include "rpc/base/log.h"

/* One line without its end and without the program's name, from any thread; it may log itself. */
typedef void (*flyt_log_sink_fn)(enum flyt_log_level level, const char *text, size_t bytes);

/* From now on for every line that FLYT_LOG lets through. NULL: nobody. */
void flyt_log_set_sink(flyt_log_sink_fn sink);

#endif
