/*
 * Core dumps: a file that is written when work of a context breaks its device, before anybody hears of the fault, where
 * the context was told to (cuCoredumpSetAttribute). Its format is the software GPU's own, which no debugger reads:
 *
 *   flyt-soft-core 1
 *   error NUMBER NAME
 *   device ORDINAL
 *   context ID
 *   kernel NAME          ┐
 *   grid X Y Z           │ of a launch
 *   block X Y Z          │
 *   shared BYTES         ┘ dynamic
 *   memory ADDRESS BYTES   for each range that device code can read, with so many bytes behind the line; unless
 *                          CU_COREDUMP_SKIP_GLOBAL_MEMORY is set
 *   end
 *
 * As in NVIDIA's driver, a context begins with the process's settings (…Global), and the file is opened by its name in
 * this process. Unlike there, no variable of the environment counts, the process never aborts (a host's core dump is
 * only noted), and there is no pipe: a user's trigger is refused.
 */
#ifndef FLYT_SOFTGPU_DRIVER_COREDUMP_H
#define FLYT_SOFTGPU_DRIVER_COREDUMP_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { FLYT_SOFT_COREDUMP_NAME_BYTES = 1024 }; /* of a file's name, its 0 included (cuda.h) */

struct flyt_soft_coredump {
    bool is_enabled;
    bool is_of_host;
    unsigned flags;                           /* CUCoredumpGenerationFlags */
    char file[FLYT_SOFT_COREDUMP_NAME_BYTES]; /* empty: the default */
};

struct CUctx_st;
struct flyt_soft_op;

/* What a new context begins with; flags: its own. */
void flyt_soft_coredump_begin(struct flyt_soft_coredump *coredump, unsigned context_flags);
/* The bytes of an attribute's value: of a name FLYT_SOFT_COREDUMP_NAME_BYTES; 0: there is no such attribute. */
size_t flyt_soft_coredump_size(CUcoredumpSettings attrib);
/*
 * One of a context, or, with NULL, of the process. `bytes`: of *value, as many as flyt_soft_coredump_size says, of a
 * name any number. CUDA_ERROR_INVALID_VALUE: a name too long for that, or no flags; CUDA_ERROR_NOT_PERMITTED: the
 * pipe is the process's; CUDA_ERROR_NOT_SUPPORTED: a user's trigger.
 */
CUresult flyt_soft_coredump_get(const struct flyt_soft_coredump *coredump, CUcoredumpSettings attrib, void *value,
                                size_t bytes);
CUresult flyt_soft_coredump_set(struct flyt_soft_coredump *coredump, CUcoredumpSettings attrib, const void *value,
                                size_t bytes);
/* The operation of the context's stream has failed: writes what the context was told to, once for each device. */
void flyt_soft_coredump_write(struct CUctx_st *ctx, const struct flyt_soft_op *op, CUresult error);

#endif
