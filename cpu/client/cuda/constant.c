#include "cpu/client/cuda/constant.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/cuda/library.h"
#include "rpc/proto/limits.h"

/* Each one is far from the next, for ever: 63 bits are not used up. */
static uint64_t mint_address(uint64_t bytes)
{
    static _Atomic uint64_t next = 1ull << 63;
    return atomic_fetch_add(&next, (bytes | 255) + 1);
}

static uint64_t kept_bytes_locked(const struct flyt_library *library, int device)
{
    uint64_t bytes = 0;
    for (const struct flyt_variable *one = library->variables; one; one = one->next)
        if (one->device == device && one->constant)
            bytes += one->bytes;
    return bytes;
}

bool flyt_constant_keep_locked(const struct flyt_library *library, struct flyt_variable *variable)
{
    uint64_t bytes = variable->bytes;
    if (bytes > FLYT_CONSTANT_BYTES_MAX ||
        kept_bytes_locked(library, variable->device) > FLYT_CONSTANT_BYTES_MAX - bytes)
        return false;
    struct flyt_constant *constant = calloc(1, sizeof *constant + 2 * bytes);
    if (!constant)
        return false;
    constant->bytes = bytes;
    constant->is_written = constant->contents + bytes;
    variable->constant = constant;
    variable->address = mint_address(bytes);
    return true;
}

void flyt_constant_forget_locked(struct flyt_variable *variable)
{
    struct flyt_constant *constant = variable->constant;
    if (!constant)
        return;
    for (struct flyt_constant_change *one = constant->writes; one; one = one->next)
        one->constant = NULL;
    free(constant);
    variable->constant = NULL;
}

void flyt_constant_put(unsigned char *contents, unsigned char *is_written, const struct flyt_constant_change *change)
{
    memcpy(contents + change->offset_bytes, change->data, change->bytes);
    memset(is_written + change->offset_bytes, 1, change->bytes);
}
