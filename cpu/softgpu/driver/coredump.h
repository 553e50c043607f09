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
 * As in NVIDIA's driver (580), a context begins with the process's settings (…Global), and the file is opened by its
 * name in this process. And so:
 *
 *   - A context leaves a dump where it began enabled, a green one where its primary context did. Enabled later, it does
 *     not. Where it is disabled again, modules are not loaded in it, and a fault is CUDA_ERROR_LAUNCH_FAILED, without a
 *     dump.
 *   - The name of the file and what the dump leaves out are the process's, as they are when the fault comes. What a
 *     context sets of them does nothing.
 *   - The fault is told when the dump is there. Until then work behind the kernel is done, and who waits for it or asks
 *     hears that it is. FLYT_SOFT_DUMP_MS makes that last longer; half of it goes by before there is a file. The fault
 *     of another process is told at once, and a context that is made anew meanwhile is lost by this one, too.
 *
 * Unlike there, no variable of the environment counts, the process never aborts (a host's core dump is only noted), and
 * there is no pipe: a user's trigger is refused.
 */
#ifndef FLYT_SOFTGPU_DRIVER_COREDUMP_H
#define FLYT_SOFTGPU_DRIVER_COREDUMP_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { FLYT_SOFT_COREDUMP_NAME_BYTES = 1024 }; /* of a file's name, its 0 included (cuda.h) */

struct flyt_soft_coredump {
    bool has_begun_enabled;
    bool is_enabled;
    bool is_of_host;
    unsigned flags;                           /* CUCoredumpGenerationFlags */
    char file[FLYT_SOFT_COREDUMP_NAME_BYTES]; /* empty: the default */
};

struct CUctx_st;
struct flyt_soft_device;
struct flyt_soft_op;

/* What a new context begins with; flags: its own. */
void flyt_soft_coredump_begin(struct flyt_soft_coredump *coredump, unsigned context_flags);
/* And a new green one, of this primary context. */
void flyt_soft_coredump_begin_green(struct flyt_soft_coredump *coredump, const struct flyt_soft_coredump *primary);
/* Whether the context began enabled, and is not any more. */
bool flyt_soft_coredump_is_broken(const struct flyt_soft_coredump *coredump);
/* The bytes of an attribute's value: of a name FLYT_SOFT_COREDUMP_NAME_BYTES; 0: there is no such attribute. */
size_t flyt_soft_coredump_size(CUcoredumpSettings attrib);
/*
 * One of a context, or, with NULL, of the process. `bytes`: of *value, as many as flyt_soft_coredump_size says, of a
 * name any number; one that nobody has set is empty. CUDA_ERROR_INVALID_VALUE: a name too long for that, or no flags;
 * to get: the pipe and a user's trigger are the process's. To set: CUDA_ERROR_NOT_PERMITTED: the pipe is the process's;
 * CUDA_ERROR_NOT_SUPPORTED: a user's trigger.
 */
CUresult flyt_soft_coredump_get(const struct flyt_soft_coredump *coredump, CUcoredumpSettings attrib, void *value,
                                size_t bytes);
CUresult flyt_soft_coredump_set(struct flyt_soft_coredump *coredump, CUcoredumpSettings attrib, const void *value,
                                size_t bytes);
/* Breaks the device. */
typedef void (*flyt_soft_coredump_end_fn)(struct flyt_soft_device *device, CUresult error);
/*
 * Work of the context has failed, this operation of it. True: that leaves a dump, of which there is one for each
 * device; `end` is called when it is there. False: it does not.
 */
bool flyt_soft_coredump_leave(struct CUctx_st *ctx, const struct flyt_soft_op *op, CUresult error,
                              flyt_soft_coredump_end_fn end);

#endif
