/*
 * JIT options as programs give them: numbers travel to the server, buffers for logs are filled in here.
 */
#ifndef FLYT_CLIENT_JIT_H
#define FLYT_CLIENT_JIT_H

#include "cpu/client/instance.h"
#include "cpu/client/module.h"

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

/* Where the program wants its logs. */
struct flyt_jit_logs {
    struct flyt_jit_log {
        char *text;        /* NULL: not asked for */
        size_t room_bytes; /* of text */
        void **size_value; /* gets the length without the NUL */
    } info, error;
};

/* Notes buffers and their room, which later lengths are written over. Buffers and options' values must outlive *logs.
 * `options` may be NULL. */
void flyt_jit_logs_init(struct flyt_jit_logs *logs, const struct flyt_jit_options *options);
/* Writes the logs, cut at their room, and their lengths. The texts may be NULL: empty. */
void flyt_jit_logs_give(const struct flyt_jit_logs *logs, const char *info, const char *error);

#endif
