/*
 * Files of memory that VMs of this machine share with it (QEMU's ivshmem-plain). Each is FOLDER/flyt-VM_IP with mode
 * 0600, in a tmpfs or a hugetlbfs, has all of its pages from the beginning, and begins with a flyt_vm_memory_head. What
 * is in it afterwards, and how long it is, are in the hands of QEMU and the guest. The functions block for as long as
 * the kernel takes to find the pages: a worker's thread.
 */
#ifndef FLYT_NODE_VM_MEMORY_H
#define FLYT_NODE_VM_MEMORY_H

#include <stdint.h>
#include <sys/types.h>

#include "rpc/base/error.h"
#include "rpc/proto/control_limits.h"

enum { FLYT_NODE_VM_MEMORY_PATH_BYTES = FLYT_NAME_BYTES_MAX + 1 };

struct flyt_node_vm_memory {
    const char *folder;
    uint64_t bytes; /* a power of two, as a PCI device's memory is */
    uid_t uid;      /* whose the file is to be: QEMU's user */
    gid_t gid;
};

/*
 * Makes the file for a VM, or finds the one that was made before, whose pages stay as they are. 0 and its path in
 * ret_path (FLYT_NODE_VM_MEMORY_PATH_BYTES of room); -EINVAL: vm_ip is no address, `bytes` no power of two or not of
 * whole pages there, or the folder is in no memory; -EEXIST: something else is there, or one of another size or owner;
 * -ENOSPC, or what the kernel says. Nothing is left behind. *err has a sentence.
 */
int flyt_node_vm_memory_make(const struct flyt_node_vm_memory *memory, const char *vm_ip, struct flyt_error *err,
                             char *ret_path);

/* Opens a VM's file anew, for claims of one more session (rpc/base/claims.h); does not block. A descriptor; -ENOENT:
 * there is none; -EEXIST: what is there is no such file, or has not as many bytes; or what the kernel says. *err has a
 * sentence. */
int flyt_node_vm_memory_open(const struct flyt_node_vm_memory *memory, const char *vm_ip, struct flyt_error *err);

/* What a VM's file takes of this machine; 0: there is none. Does not block. */
uint64_t flyt_node_vm_memory_bytes(const char *folder, const char *vm_ip);

/* Removes a VM's file, of whatever size; a guest that has it keeps its pages until it ends. 0, also where there is
 * none; -EEXIST: what is there is no such file, and stays; or what the kernel says. *err has a sentence. */
int flyt_node_vm_memory_remove(const struct flyt_node_vm_memory *memory, const char *vm_ip, struct flyt_error *err);

#endif
