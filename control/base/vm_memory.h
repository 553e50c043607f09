/*
 * The memory that a virtual machine shares with its host (QEMU's ivshmem-plain), as both ends know it: the page that it
 * begins with. A node manager writes that (control/node/host/vm_memory.h), the client manager in the guest looks for it
 * (control/client/vm_memory.h). Whoever can write to the memory can write to this page: it tells which memory is meant
 * and proves nothing. Pure functions, any thread.
 */
#ifndef FLYT_CONTROL_VM_MEMORY_H
#define FLYT_CONTROL_VM_MEMORY_H

#include <stdint.h>

#include "rpc/base/error.h"
#include "rpc/proto/control_limits.h"

#define FLYT_VM_MEMORY_SIGNATURE "flyt vm memory\n"

enum {
    FLYT_VM_MEMORY_SIGNATURE_BYTES = 16, /* NUL included */
    FLYT_VM_MEMORY_VERSION = 1,
    FLYT_VM_MEMORY_HEAD_BYTES = 4096, /* what follows begins here */
    FLYT_VM_MEMORY_NAME_BYTES = 64,   /* NUL included */
};

/* Little-endian, as x86-64 and arm64 are. */
struct flyt_vm_memory_head {
    char signature[FLYT_VM_MEMORY_SIGNATURE_BYTES];
    uint32_t version;
    uint32_t head_bytes;
    uint64_t bytes;                        /* of the whole memory, the head included */
    char vm_ip[FLYT_VM_MEMORY_NAME_BYTES]; /* whose it is */
};
_Static_assert(sizeof(struct flyt_vm_memory_head) == 96 && FLYT_VM_MEMORY_NAME_BYTES > 45,
               "a layout that two programs share, with room for any IPv6 address");

/* The page's beginning for a VM; the rest of the page is zero. vm_ip is an address in text (flyt_is_address). */
struct flyt_vm_memory_head flyt_vm_memory_head_of(const char *vm_ip, uint64_t bytes);

/* Whether this is the head of a memory that has so many bytes, and of a version that is known here. `head` is a copy
 * that nobody else writes to. 0; -ENOENT: it has not the signature; -EPROTO: another version; -EINVAL: it contradicts
 * itself, or the memory. *err (may be NULL) has a sentence. */
int flyt_vm_memory_head_check(const struct flyt_vm_memory_head *head, uint64_t bytes, struct flyt_error *err);

#endif
