/*
 * The memory that this VM shares with its host, as a guest finds it: the PCI device that QEMU calls ivshmem
 * (1af4:1110), whose memory (BAR 2) begins with Flyt's head. The loop's thread; does not block.
 */
#ifndef FLYT_CLIENT_VM_MEMORY_H
#define FLYT_CLIENT_VM_MEMORY_H

#include <stdint.h>

#include "control/base/vm_memory.h"
#include "rpc/base/error.h"

#define FLYT_CLIENT_PCI_DEVICES "/sys/bus/pci/devices"

enum { FLYT_CLIENT_PCI_PATH_BYTES = 256 };

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

#endif
