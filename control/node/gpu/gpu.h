/*
 * The GPUs of a node: what they are (from NVML or the configuration, completed by the first server that was ready on
 * each) and how they are. The loop's thread.
 */
#ifndef FLYT_NODE_GPU_H
#define FLYT_NODE_GPU_H

#include <stdbool.h>
#include <stdint.h>

#include "control.h"
#include "control/node/state/settings.h"
#include "rpc/transport/manager_link.h"

enum { FLYT_NODE_UUID_BYTES = 48, FLYT_NODE_DRIVER_BYTES = 80 };

struct flyt_node_gpu {
    unsigned index;                  /* on this node; the driver's with CUDA_DEVICE_ORDER=PCI_BUS_ID */
    char uuid[FLYT_NODE_UUID_BYTES]; /* "GPU-8-4-4-4-12 digits" */
    unsigned char uuid_bytes[FLYT_UUID_BYTES];
    char type[FLYT_NAME_BYTES_MAX + 1];
    bool is_software;
    flyt_isolation isolation;
    unsigned group_size; /* that servers are started with */
    /* As servers say. */
    bool is_known;
    bool is_mps; /* shared by MPS: also faults are */
    unsigned sm_count, group_count;
    u_int group_sms[FLYT_GROUPS_MAX];
    uint64_t memory_bytes;
    uint64_t context_bytes, copying_bytes; /* the most that a server took, and may take while its session is copied */
    unsigned compute_major, compute_minor;
    /* How it is. */
    flyt_health health;
    char health_text[512];
    uint64_t used_bytes;  /* as the driver counts */
    uint64_t fault_count; /* that have ended all servers of it */
    unsigned busy_pct, power_w, temperature_c;
    struct flyt_time_slices *time_slices; /* the token of who shares its SMs in time (share.h); NULL: nobody has yet */
};

struct flyt_node_gpus {
    struct flyt_node_gpu *items;
    unsigned count;
};

/* Software GPUs as configured; their UUIDs are made of the node's name and their index. 0 or -ENOMEM. */
int flyt_node_gpus_make_software(struct flyt_node_gpus *gpus, const struct flyt_node_settings *settings,
                                 const char *node);
void flyt_node_gpus_fini(struct flyt_node_gpus *gpus);
/* By UUID; NULL: none. */
struct flyt_node_gpu *flyt_node_gpus_find(const struct flyt_node_gpus *gpus, const char *uuid);
/* Sets each GPU's class from the settings. */
void flyt_node_gpus_set_isolation(struct flyt_node_gpus *gpus, const struct flyt_node_settings *settings);

/* "GPU-…" <-> 16 bytes. 0 or -EINVAL. */
int flyt_node_uuid_parse(const char *text, unsigned char *ret_bytes);
void flyt_node_uuid_print(const unsigned char *bytes, char *ret_text /* FLYT_NODE_UUID_BYTES */);

/* A server is ready on it: SMs, groups, memory. 0; -EINVAL and *err: what it says cannot be (of a real GPU: it is
 * another one). */
int flyt_node_gpu_learn(struct flyt_node_gpu *gpu, const struct flyt_manager_link_ready *ready, struct flyt_error *err);
/* Its health and why; a change is logged. */
void flyt_node_gpu_set_health(struct flyt_node_gpu *gpu, flyt_health health, const char *text);
/* Its group size changes: what servers said of groups is forgotten. */
void flyt_node_gpu_set_group_size(struct flyt_node_gpu *gpu, unsigned group_size);

/* SMs of the groups in a bit map. */
unsigned flyt_node_gpu_sms(const struct flyt_node_gpu *gpu, const unsigned char *groups);
/* Fills what the cluster manager is told; strings stay the GPU's. client_slots: servers besides warm ones. */
void flyt_node_gpu_describe(const struct flyt_node_gpu *gpu, unsigned client_slots, flyt_gpu *ret_gpu);

#endif
