/*
 * What GPUs themselves count of the processes that use them, whatever these say: NVML of real ones (nvml.h), the
 * software GPU's accounts in tests (soft_account.h). Both may tell nothing of a process; that is not the same as
 * nothing. The loop's thread.
 */
#ifndef FLYT_NODE_GPU_ACCOUNT_H
#define FLYT_NODE_GPU_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct flyt_node_gpu;

struct flyt_node_gpu_account_ops {
    /* How long it has had kernels on the GPU, in us, from any beginning that stays the same. False: not told. */
    bool (*busy)(void *source, const struct flyt_node_gpu *gpu, pid_t pid, uint64_t *ret_busy_us);
    /* Its memory there, in bytes, with all that the driver takes for it. False: not told. */
    bool (*memory)(void *source, const struct flyt_node_gpu *gpu, pid_t pid, uint64_t *ret_bytes);
};

/* All zero: nothing is counted. */
struct flyt_node_gpu_account {
    const struct flyt_node_gpu_account_ops *ops;
    void *source; /* not owned */
};

static inline bool flyt_node_gpu_account_busy(const struct flyt_node_gpu_account *account,
                                              const struct flyt_node_gpu *gpu, pid_t pid, uint64_t *ret_busy_us)
{
    return account->ops && account->ops->busy(account->source, gpu, pid, ret_busy_us);
}

static inline bool flyt_node_gpu_account_memory(const struct flyt_node_gpu_account *account,
                                                const struct flyt_node_gpu *gpu, pid_t pid, uint64_t *ret_bytes)
{
    return account->ops && account->ops->memory(account->source, gpu, pid, ret_bytes);
}

#endif
