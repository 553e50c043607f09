/*
 * GPU core dumps: cuCoredump… of CUDA's driver API. Any thread. The attributes are those of the program: what it sets
 * it gets. The dump is made where the GPU is, in the folder that the VM has on its node, under the node's bound
 * (control/node/process/coredumps.h): never at the program's path. So there is no pipe that could trigger one, and the
 * program goes on after a dump, as with CU_COREDUMP_SKIP_ABORT: it gets the fault's error code.
 *
 * As NVIDIA's driver does (580): a context leaves a dump where that was enabled when it began, by the environment, the
 * process's attribute or CU_CTX_COREDUMP_ENABLE; one that enables it later leaves none. What a dump leaves out is what
 * the process says when the fault comes. Unlike there, a context that no longer wants dumps goes on without. All
 * contexts of a device are one at the server, whose own began before the program asked: it makes them again, which it
 * can while the program has nothing there yet (cpu/server/cuda/coredump.h). So the first context must ask.
 *
 * Variables of the environment outrank all of it, as natively: CUDA_ENABLE_COREDUMP_ON_EXCEPTION,
 * CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION, CUDA_ENABLE_LIGHTWEIGHT_COREDUMP, CUDA_COREDUMP_FILE, CUDA_COREDUMP_PIPE,
 * CUDA_COREDUMP_GENERATION_FLAGS; CUDA_ENABLE_USER_TRIGGERED_COREDUMP is refused by name.
 */
#ifndef FLYT_CLIENT_COREDUMP_H
#define FLYT_CLIENT_COREDUMP_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/client/core/api.h"

struct flyt_restore;

/* Of names, the final 0 included (cuda.h). */
enum { FLYT_COREDUMP_NAME_BYTES = 1024 };

/* Which context is meant, 0: the process; and its device. What it returns instead of CUDA_SUCCESS is the answer. */
typedef CUresult (*flyt_coredump_context_fn)(uint64_t *ret_context_id, int *ret_device);

/*
 * value NULL: *bytes becomes how many the attribute has. CUDA_ERROR_INVALID_VALUE: no such attribute; to get: of a
 * context the pipe or its use, other bytes than the attribute has, a name without room; to set: no bytes, too few for
 * flags or unknown ones, a name of more than 1023 characters. To set: CUDA_ERROR_NOT_PERMITTED: a variable of the
 * environment has set it, or the pipe or its use is set of a context; CUDA_ERROR_NOT_SUPPORTED, said once: a user's
 * trigger. A name that nobody has set is empty. _global: of the process, which needs no cuInit.
 */
CUresult flyt_coredump_get(flyt_coredump_context_fn enter, CUcoredumpSettings attribute, void *value, size_t *bytes);
CUresult flyt_coredump_set(flyt_coredump_context_fn enter, CUcoredumpSettings attribute, const void *value,
                           size_t *bytes);
FLYT_API CUresult flyt_coredump_get_global(CUcoredumpSettings attribute, void *value, size_t *bytes);
FLYT_API CUresult flyt_coredump_set_global(CUcoredumpSettings attribute, const void *value, size_t *bytes);

/* Whether the flags of a context can be had: CUDA_ERROR_NOT_SUPPORTED, said once: dumps by a user's trigger. */
CUresult flyt_coredump_flags_check(unsigned context_flags);
/* A context is made. Dumps that it begins with, and that the server does not make, are said to be not supported. */
void flyt_coredump_begin(uint64_t context_id, int device, unsigned context_flags);

/* part.h */
void flyt_coredump_init(void);
void flyt_coredump_clear(uint64_t context_id, bool is_on_server);
void flyt_coredump_before_reset(int device, uint64_t context_id);
int flyt_coredump_restore(struct flyt_restore *restore);

#endif
