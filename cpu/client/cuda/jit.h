/*
 * JIT options as programs give them: numbers travel to the server, buffers for logs are filled in here. And why an
 * image is refused, which is told to the program's buffer and, once, on its standard error.
 */
#ifndef FLYT_CLIENT_JIT_H
#define FLYT_CLIENT_JIT_H

#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/module.h"

/* Options whose values are numbers, ready for the wire. */
struct flyt_jit_numbers {
    unsigned count;
    flyt_load_option *values; /* owned; NULL where there are none */
};

/* CUDA_ERROR_INVALID_VALUE (malformed, or too many), _OUT_OF_MEMORY. `options` may be NULL. */
CUresult flyt_jit_numbers_init(struct flyt_jit_numbers *numbers, const struct flyt_jit_options *options);
/* A copy; CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_jit_numbers_copy(struct flyt_jit_numbers *numbers, const struct flyt_jit_numbers *from);
void flyt_jit_numbers_fini(struct flyt_jit_numbers *numbers);

enum { FLYT_JIT_REASON_BYTES = 512 };

/* Where the program wants its logs, and what the last one says. */
struct flyt_jit_logs {
    struct flyt_jit_log {
        char *text;        /* NULL: not asked for */
        size_t room_bytes; /* of text */
        void **size_value; /* gets the length without the NUL */
    } info, error;
    char reason[FLYT_JIT_REASON_BYTES]; /* the error log's first line; empty: nobody has said anything */
};

/* Notes buffers and their room, which later lengths are written over. Buffers and options' values must outlive *logs.
 * `options` may be NULL. */
void flyt_jit_logs_init(struct flyt_jit_logs *logs, const struct flyt_jit_options *options);
/* Writes the logs, cut at their room, and their lengths. The texts may be NULL: empty. */
void flyt_jit_logs_give(struct flyt_jit_logs *logs, const char *info, const char *error);
/* The client refuses the image by itself: one sentence into the error log. Returns `result`. */
CUresult flyt_jit_logs_refuse(struct flyt_jit_logs *logs, CUresult result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/*
 * An image was refused with `result`: says why, as a warning, unless the same has been said before. Says nothing of
 * success, of codes that say no more than that memory is short or the connection lost, unless there is a reason.
 */
void flyt_jit_logs_say(const struct flyt_jit_logs *logs, CUresult result);

#endif
