#include "control/base/vm_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "control/base/name.h"

struct flyt_vm_memory_head flyt_vm_memory_head_of(const char *vm_ip, uint64_t bytes)
{
    struct flyt_vm_memory_head head = {.signature = FLYT_VM_MEMORY_SIGNATURE,
                                       .version = FLYT_VM_MEMORY_VERSION,
                                       .head_bytes = FLYT_VM_MEMORY_HEAD_BYTES,
                                       .bytes = bytes};

    snprintf(head.vm_ip, sizeof head.vm_ip, "%s", vm_ip);
    return head;
}

int flyt_vm_memory_head_check(const struct flyt_vm_memory_head *head, uint64_t bytes, struct flyt_error *err)
{
    if (memcmp(head->signature, FLYT_VM_MEMORY_SIGNATURE, sizeof head->signature) != 0)
        return flyt_error_set(err, -ENOENT, "it does not begin with Flyt's signature");
    if (head->version != FLYT_VM_MEMORY_VERSION || head->head_bytes != FLYT_VM_MEMORY_HEAD_BYTES)
        return flyt_error_set(err, -EPROTO,
                              "its version is %" PRIu32 ", and this program knows %d: upgrade the older side",
                              head->version, FLYT_VM_MEMORY_VERSION);
    if (head->bytes != bytes)
        return flyt_error_set(err, -EINVAL, "it says that it has %" PRIu64 " bytes, and has %" PRIu64, head->bytes,
                              bytes);
    if (!memchr(head->vm_ip, 0, sizeof head->vm_ip) || !flyt_is_address(head->vm_ip))
        return flyt_error_set(err, -EINVAL, "it does not name a VM by its address");
    return 0;
}
