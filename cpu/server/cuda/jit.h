/*
 * JIT options of a load or a link as the driver wants them, and the driver's linker. Options that are numbers come from
 * the client; buffers for logs are our own, and their text goes back in the reply; other pointers mean nothing here.
 */
#ifndef FLYT_SERVER_JIT_H
#define FLYT_SERVER_JIT_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flyt.h"

struct flyt_driver;

struct flyt_jit {
    unsigned option_count;
    CUjit_option options[FLYT_OPTIONS_MAX + 4];
    void *values[FLYT_OPTIONS_MAX + 4];
    char info_log[FLYT_LOG_BYTES_MAX], error_log[FLYT_LOG_BYTES_MAX];
};

enum flyt_jit_use {
    FLYT_JIT_LOAD,  /* with buffers for logs */
    FLYT_JIT_LINK,  /* the same, without what the linker does not take */
    FLYT_JIT_INPUT, /* of one input of a link: without logs */
};

/* Fills in *jit, which stays where it is, with empty logs: options are `count` (at most FLYT_OPTIONS_MAX).
 * CUDA_ERROR_NOT_SUPPORTED: an option that cannot be forwarded, named in the error log. */
CUresult flyt_jit_init(struct flyt_jit *jit, const flyt_load_option *options, unsigned count, enum flyt_jit_use use);

/*
 * The server refuses the image by itself: the reason, one sentence that names the instruction, variable or limit, is
 * written over the error log, which the client shows to the program and on its standard error. Returns `result`, so
 * that a loader ends with `return flyt_jit_refuse(…)`. For the thread that has the load in its hands.
 */
CUresult flyt_jit_refuse(struct flyt_jit *jit, CUresult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What is said where nobody else, the driver included, has said why `result` refuses the image (`bytes` at `image`;
 * NULL: not known). Nothing for success, and for codes that say no more than that memory is short. */
void flyt_jit_explain(struct flyt_jit *jit, CUresult result, const void *image, uint64_t bytes);

/*
 * Links one PTX text, whose NUL is among its bytes, by itself. `jit` may be NULL: no options. The machine code is the
 * caller's (free), with a NUL behind it. What the driver's linker returns; CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult flyt_jit_link(const struct flyt_driver *driver, const char *text, size_t bytes, const char *name,
                       struct flyt_jit *jit, char **ret_code, uint64_t *ret_bytes);

#endif
