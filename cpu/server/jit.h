/*
 * JIT options of a load or a link as the driver wants them. Options that are numbers come from the client; buffers for
 * logs are our own, and their text goes back in the reply; other pointers mean nothing here.
 */
#ifndef FLYT_SERVER_JIT_H
#define FLYT_SERVER_JIT_H

#include <cuda.h>
#include <stdbool.h>

#include "flyt.h"

struct flyt_jit {
    unsigned option_count;
    CUjit_option options[FLYT_OPTIONS_MAX + 4];
    void *values[FLYT_OPTIONS_MAX + 4];
    char info_log[FLYT_LOG_BYTES_MAX], error_log[FLYT_LOG_BYTES_MAX];
};

/* Fills in *jit, which is zeroed and stays where it is: options are `count` (at most FLYT_OPTIONS_MAX). has_logs: with
 * buffers for logs. CUDA_ERROR_NOT_SUPPORTED: an option that cannot be forwarded. */
CUresult flyt_jit_init(struct flyt_jit *jit, const flyt_load_option *options, unsigned count, bool has_logs);

#endif
