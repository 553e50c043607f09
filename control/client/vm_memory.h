/*
 * The memory that this VM shares with its host, as a guest finds it: the PCI device that QEMU calls ivshmem
 * (1af4:1110), whose memory (BAR 2) begins with Flyt's head. The loop's thread; does not block.
 *
 * On some hosts the guest's kernel maps such memory uncached: the processor then waits for every word of it. What a
 * copy takes is measured, and memory that is slow is not used. --admit-memory is the step of the service's start that
 * has the rights: it lets the client manager's user open the memory.
 */
#ifndef FLYT_CLIENT_VM_MEMORY_H
#define FLYT_CLIENT_VM_MEMORY_H

#include <stdint.h>
#include <sys/types.h>

#include "control/base/vm_memory.h"
#include "rpc/base/error.h"

#define FLYT_CLIENT_PCI_DEVICES "/sys/bus/pci/devices"

enum {
    FLYT_CLIENT_PCI_PATH_BYTES = 256,
    FLYT_CLIENT_MEMORY_SLOW = 8, /* times what a copy of ordinary memory takes */
};

struct flyt_client_vm_memory {
    int fd; /* of the whole memory, the caller's, close-on-exec; map it to use it */
    uint64_t bytes;
    char device[FLYT_CLIENT_PCI_PATH_BYTES]; /* the device's folder in sysfs */
};

/*
 * Looks through a folder of PCI devices (FLYT_CLIENT_PCI_DEVICES) for this VM's memory. 0 and *ret_memory; -ENODEV: no
 * device is of this kind; else of the last one that is: -EACCES and the like, where it cannot be opened or mapped, or
 * what flyt_vm_memory_head_check says of it; -EINVAL: it is another VM's. *err has a sentence.
 */
int flyt_client_vm_memory_find(const char *folder, const char *vm_ip, struct flyt_error *err,
                               struct flyt_client_vm_memory *ret_memory);

/* How many times longer than one of ordinary memory a copy out of it takes; the best of several of each. 0 and
 * *ret_ratio, or what mmap(2) says. */
int flyt_client_vm_memory_measure(const struct flyt_client_vm_memory *memory, double *ret_ratio);

/* Opens it anew, for a program: what that claims (rpc/base/claims.h) is its own. A descriptor or a negative errno. */
int flyt_client_vm_memory_open(const struct flyt_client_vm_memory *memory);

/* Enables every device of this kind in a folder, and gives its memory to a group, which may read and write it then. 0,
 * also where there is none; or a negative errno of the first that failed, with a sentence. */
int flyt_client_vm_memory_admit(const char *folder, gid_t gid, struct flyt_error *err);

#endif
