/*
 * The machine's GPUs by NVML, which is loaded at run time (libnvidia-ml.so.1): the few documented functions that are
 * needed are declared in nvml.c. NVML may wait for the driver, so after the start it is asked on a thread of its own.
 */
#ifndef FLYT_NODE_NVML_H
#define FLYT_NODE_NVML_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#include "control/node/gpu/gpu.h"
#include "control/node/gpu/gpu_account.h"
#include "rpc/base/error.h"

struct flyt_node_nvml;

/* Loads the library (NULL: the system's) and initialises it. Blocks. 0, or a negative errno and *err: -ENOENT where
 * there is none. */
int flyt_node_nvml_open(const char *library, sd_event *event, struct flyt_error *err, struct flyt_node_nvml **ret_nvml);
/* Waits for what its thread does. NULL is allowed. Returns NULL. */
struct flyt_node_nvml *flyt_node_nvml_close(struct flyt_node_nvml *nvml);

/* All GPUs, with UUID, name and memory. Blocks. 0 or a negative errno and *err. */
int flyt_node_nvml_list(struct flyt_node_nvml *nvml, unsigned group_size, struct flyt_error *err,
                        struct flyt_node_gpus *ret_gpus);

/* The driver's version as text, and the newest CUDA that it knows (13000): "" and 0 where it does not say. Blocks. */
void flyt_node_nvml_versions(struct flyt_node_nvml *nvml, char *ret_driver /* FLYT_NODE_DRIVER_BYTES */,
                             unsigned *ret_cuda);

/* Measures all GPUs of the list on the thread, then, on the loop, puts the figures and a lost GPU's health into them
 * and calls `measured` (may be NULL). Nothing happens while the last measurement is under way. `gpus` outlives the
 * nvml. */
void flyt_node_nvml_measure(struct flyt_node_nvml *nvml, struct flyt_node_gpus *gpus, void (*measured)(void *user),
                            void *user);
bool flyt_node_nvml_is_measuring(const struct flyt_node_nvml *nvml);
/* What a process had of a GPU in the last measurement; by MPS's account where it is an MPS client. False: NVML does not
 * tell, or does not know it. */
bool flyt_node_nvml_process(const struct flyt_node_nvml *nvml, unsigned gpu, pid_t pid, uint64_t *ret_bytes);
/*
 * The last measurements as what GPUs count. GPU time is NVML's share of the time in which a process kept SMs busy,
 * times the time between two measurements. A process counts from its first share on that is not 0: before that NVML may
 * not tell of it at all. Of GPUs that MPS shares no GPU time is told: what its clients' shares are NVML's documentation
 * does not say. nvml outlives it.
 */
struct flyt_node_gpu_account flyt_node_nvml_account(struct flyt_node_nvml *nvml);

#endif
