#include "cpu/client/records/constant_restore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/cuda/constant.h"
#include "cpu/client/cuda/library.h"
#include "rpc/base/id.h"

static int write_again(struct flyt_restore *restore, uint64_t library_id, const struct flyt_variable *variable,
                       const unsigned char *data, uint64_t offset_bytes, uint64_t bytes)
{
    uint64_t sequence = 0;
    flyt_constant_write_args args = {.thread = FLYT_RESTORE_THREAD,
                                     .stream_id = flyt_legacy_stream_id(flyt_wire_device((unsigned)variable->device)),
                                     .library_id = library_id,
                                     .name = (char *)(uintptr_t)variable->name,
                                     .device = (unsigned)variable->device,
                                     .offset_bytes = offset_bytes,
                                     .data = {.data_len = (u_int)bytes, .data_val = (char *)(uintptr_t)data}};
    int status = flyt_send_constant_write(restore->fresh, &args, &sequence);
    return flyt_restore_sent(restore, status, sequence, "a constant of library", flyt_id_number(library_id));
}

int flyt_constant_restore_locked(struct flyt_restore *restore, uint64_t library_id,
                                 const struct flyt_variable *variable)
{
    const struct flyt_constant *constant = variable->constant;
    unsigned char *contents = malloc(2 * constant->bytes + 1);
    int status = 0;
    if (!contents)
        return flyt_error_set(restore->err, -ENOMEM, "no memory to write the constant %s again", variable->name);
    unsigned char *is_written = contents + constant->bytes;
    memcpy(contents, constant->contents, constant->bytes);
    memcpy(is_written, constant->is_written, constant->bytes);
    for (const struct flyt_constant_change *one = constant->writes; one; one = one->next)
        if (one->sequence && one->sequence <= restore->sequence)
            flyt_constant_put(contents, is_written, one);
    for (uint64_t at = 0, next; at < constant->bytes && !status; at = next) {
        for (next = at + 1; next < constant->bytes && is_written[next] == is_written[at];)
            next++;
        if (is_written[at])
            status = write_again(restore, library_id, variable, contents + at, at, next - at);
    }
    free(contents);
    return status;
}
