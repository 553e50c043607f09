/*
 * What /etc/flyt/node.conf says: the table of settings and the structure that it fills (control/base/config.h).
 */
#ifndef FLYT_NODE_SETTINGS_H
#define FLYT_NODE_SETTINGS_H

#include "control/base/config.h"

enum flyt_node_mps_mode { FLYT_NODE_MPS_OFF, FLYT_NODE_MPS_WATCH, FLYT_NODE_MPS_START };

enum { FLYT_NODE_LIBRARIES_BYTES_MAX = 500 }; /* a server gets them as one argument */

struct flyt_node_settings {
    char *name; /* NULL: the host's */
    struct flyt_strings managers;
    struct flyt_strings listen;
    struct flyt_strings data_urls; /* none: those of `listen`, with host_ip where they name no host */
    char *socket;                  /* unix socket for programs of this machine; NULL: none */
    char *host_ip;
    char *authority, *certificate, *key; /* NULL: those in state_dir; none: no TLS, loopback */
    char *state_dir;
    char *server; /* flyt-server */
    uint64_t software_gpus, software_sms, software_memory_bytes, software_sm_rate;
    struct flyt_strings software_cc; /* "MAJOR.MINOR" of each; the last one is that of those behind it, too */
    int mps;                         /* enum flyt_node_mps_mode */
    char *mps_control, *mps_dir;
    int isolation;                   /* FLYT_ISOLATION_… of every GPU … */
    struct flyt_strings strict_gpus; /* … but of these, by UUID or index */
    uint64_t warm, starts_max, client_slots, group_size;
    struct flyt_range server_uids; /* last 0: servers are the node manager's user */
    bool is_sharing_memory;        /* with programs of this machine */
    bool is_scrubbing;             /* servers clear the memory that they get */
    char *libraries;               /* folders of NVIDIA's libraries, by colons; NULL: where the loader looks */
    char *nccl_interfaces;         /* that NCCL in servers may use; NULL: the loopback alone */
    char *cgroup; /* NULL: where the service manager has started us, if that is a group to be shared out */
    char *vm_device_folder, *vm_device_user; /* of the memory that VMs share with this machine; folder NULL: none */
    uint64_t vm_device_bytes;
    uint64_t vm_memory_host_bytes, vm_cpu_pct, vm_pids; /* of all servers of a VM; 0: no bound */
    uint64_t vm_sessions_max, vm_attach_rate, vm_attach_burst, vm_image_bytes_max, vm_coredump_bytes_max;
    uint64_t client_lost_ms, kill_grace_ms, rejoin_ms, limit_wait_ms, fence_after_ms, server_lost_ms;
    char *metrics; /* NULL: none */
};

extern const struct flyt_setting flyt_node_setting_table[];

/* What the table cannot say. 0 or negative and *err. */
int flyt_node_settings_check(const void *settings, struct flyt_error *err);

#endif
