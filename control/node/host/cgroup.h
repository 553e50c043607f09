/*
 * Control groups of the servers, where the service manager has delegated some (cgroup v2): one for each server, inside
 * one for each VM, which bounds what all servers of the VM together take of this machine: host memory, CPU time and
 * tasks. Warm servers have a group of their own, without bounds; memory that they took before their session stays
 * charged there.
 *
 *   BASE/manager               the node manager; it was started there (DelegateSubgroup=manager)
 *   BASE/warm/server-PID
 *   BASE/vm-HASH/server-PID    memory.max, cpu.max, pids.max at vm-HASH; HASH as in images.h
 *
 * A group with controllers may hold no process itself, not even for a moment: were the node manager in BASE, its next
 * start there would fail. So nothing is done unless it finds itself in a subgroup. Where there are no groups everything
 * works without; that is said once. The loop's thread.
 */
#ifndef FLYT_NODE_CGROUP_H
#define FLYT_NODE_CGROUP_H

#include <stdint.h>
#include <sys/types.h>

#include "control/node/state/settings.h"

enum { FLYT_NODE_CGROUP_BYTES = 64 };

struct flyt_node_cgroups {
    const struct flyt_node_settings *settings;
    int base_fd;     /* -1: there are none */
    bool has_failed; /* said once */
};

/* Looks for them: settings->cgroup, else the parent of the group that this process is in, where that is named
 * "manager". Without them: one line of the log. */
void flyt_node_cgroups_open(struct flyt_node_cgroups *groups, const struct flyt_node_settings *settings);
void flyt_node_cgroups_close(struct flyt_node_cgroups *groups);

/* What servers of a VM may take of host memory together: its bound, less what it shares with this machine, which is
 * there from the beginning. 0: there is no bound. */
uint64_t flyt_node_cgroup_memory_bytes(const struct flyt_node_settings *settings, const char *vm_ip);

/*
 * Puts a server into its group: that of its VM, or (vm_ip NULL) of the warm ones; ret_group (FLYT_NODE_CGROUP_BYTES)
 * is the group's path below BASE, empty where there is none. The group that it was in (`ret_group` as it comes) is
 * removed. The VM's bounds are set anew.
 */
void flyt_node_cgroups_enter(struct flyt_node_cgroups *groups, pid_t pid, const char *vm_ip, char *ret_group);
/* The server has ended: removes its group, and its VM's where it was the last. */
void flyt_node_cgroups_leave(struct flyt_node_cgroups *groups, const char *group);

#endif
