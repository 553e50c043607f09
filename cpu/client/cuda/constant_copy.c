#include "cpu/client/cuda/constant_copy.h"

#include <stdlib.h>
#include <string.h>
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/constant.h"
#include "cpu/client/cuda/library.h"
#include "cpu/client/cuda/stream_record.h"

_Static_assert(FLYT_CONSTANT_BYTES_MAX <= FLYT_INLINE_BYTES_MAX, "a copy goes in one call");

FLYT_ANSWER_CALL(library_symbol)

/* What a call names a constant by. The name is its own, to be freed. */
struct place {
    char *name;
    uint64_t library_id, offset_bytes;
    int device;
};

/* ---- finding them ---- */

/* The variable of a minted address, lost or not; NULL: it is gone. */
static struct flyt_variable *find_locked(uint64_t address, const struct flyt_library **ret_library)
{
    struct flyt_range range;
    if (!flyt_range_find(address, &range) || range.kind != FLYT_RANGE_VARIABLE)
        return NULL;
    *ret_library = flyt_library_find(range.library_id);
    struct flyt_variable *one = *ret_library ? (*ret_library)->variables : NULL;
    while (one && one->address != range.base)
        one = one->next;
    return one;
}

/* False: no memory. */
static bool name_place(const struct flyt_library *library, const struct flyt_variable *variable, uint64_t address,
                       struct place *ret_place)
{
    const struct flyt_library *own = flyt_library_on(library, variable->device);
    *ret_place = (struct place){.name = strdup(variable->name),
                                .library_id = (own ? own : library)->record.minted_id,
                                .offset_bytes = address - variable->address,
                                .device = variable->device};
    return ret_place->name;
}

/* Names what is kept there, `bytes` of it; false: it is not kept. */
static bool find_kept_locked(uint64_t address, uint64_t bytes, struct flyt_constant **ret_constant,
                             struct place *ret_place)
{
    const struct flyt_library *library;
    const struct flyt_variable *variable = find_locked(address, &library);
    if (!variable || !variable->constant || variable->is_lost)
        return false;
    uint64_t offset_bytes = address - variable->address;
    if (offset_bytes > variable->bytes || bytes > variable->bytes - offset_bytes)
        return false;
    *ret_constant = variable->constant;
    return name_place(library, variable, address, ret_place);
}

/* ---- writing ---- */

static bool is_under_way(const struct flyt_constant *constant, uint64_t offset_bytes, uint64_t bytes)
{
    for (const struct flyt_constant_change *one = constant->writes; one; one = one->next)
        if (one->offset_bytes < offset_bytes + bytes && offset_bytes < one->offset_bytes + one->bytes)
            return true;
    return false;
}

/* NULL: it cannot be kept. Else *ret_place names it. */
static struct flyt_constant_change *begin(uint64_t address, const void *data, uint64_t bytes, struct place *ret_place)
{
    struct flyt_constant_change *change = bytes <= FLYT_CONSTANT_BYTES_MAX ? calloc(1, sizeof *change + bytes) : NULL;
    struct flyt_constant *constant;
    if (!change)
        return NULL;
    change->bytes = bytes;
    memcpy(change->data, data, bytes);
    flyt_variables_lock();
    bool is_kept = find_kept_locked(address, bytes, &constant, ret_place) &&
                   !is_under_way(constant, ret_place->offset_bytes, bytes);
    if (is_kept) {
        change->offset_bytes = ret_place->offset_bytes;
        change->constant = constant;
        change->next = constant->writes;
        constant->writes = change;
    }
    flyt_variables_unlock();
    if (is_kept)
        return change;
    free(ret_place->name);
    free(change);
    return NULL;
}

/* is_sent: the constant has these bytes now, or will have them before anybody can look. */
static void end(struct flyt_constant_change *change, bool is_sent)
{
    flyt_variables_lock();
    struct flyt_constant *constant = change->constant;
    if (constant) {
        struct flyt_constant_change **link = &constant->writes;
        while (*link != change)
            link = &(*link)->next;
        *link = change->next;
        if (is_sent)
            flyt_constant_put(constant->contents, constant->is_written, change);
    }
    flyt_variables_unlock();
    free(change);
}

CUresult flyt_constant_write(struct flyt_stream *stream, uint64_t address, const void *data, uint64_t bytes)
{
    struct place place = {0};
    struct flyt_constant_change *change = begin(address, data, bytes, &place);
    if (!change)
        return CUDA_ERROR_NOT_READY;
    CUresult result = flyt_stream_begin(stream);
    if (!result) {
        flyt_constant_write_args args = {.thread = flyt_thread_number(),
                                         .stream_id = stream->stream_id,
                                         .library_id = place.library_id,
                                         .name = place.name,
                                         .device = (unsigned)place.device,
                                         .offset_bytes = change->offset_bytes,
                                         .data = {.data_len = (u_int)bytes, .data_val = (char *)change->data}};
        result = flyt_client_status(flyt_send_constant_write(flyt_client.channel, &args, &change->sequence),
                                    "constant_write");
        flyt_stream_sent(stream, change->sequence);
    }
    bool is_sent = !result;
    if (!result)
        result = flyt_stream_wait(stream);
    end(change, is_sent);
    free(place.name);
    return result;
}

/* ---- reading ---- */

CUresult flyt_constant_read(struct flyt_stream *stream, uint64_t address, void *data, uint64_t bytes)
{
    struct flyt_constant *constant;
    struct place place;
    struct flyt_pending_d2h pending_d2h = {0};
    flyt_variables_lock();
    bool is_kept = find_kept_locked(address, bytes, &constant, &place);
    flyt_variables_unlock();
    if (!is_kept)
        return CUDA_ERROR_NOT_READY;
    CUresult result = flyt_stream_begin(stream);
    if (!result) {
        flyt_pending_d2h_set(&pending_d2h, &stream->pending_d2h);
        flyt_constant_read_args args = {.thread = flyt_thread_number(),
                                        .stream_id = stream->stream_id,
                                        .library_id = place.library_id,
                                        .name = place.name,
                                        .device = (unsigned)place.device,
                                        .offset_bytes = place.offset_bytes,
                                        .bytes = bytes};
        flyt_constant_read_res res = {0};
        int status = flyt_call_constant_read(flyt_client.channel, &args, &res, data, bytes);
        result = flyt_client_reply(status, res.result, "constant_read");
        if (!result && res.data.data_len != bytes)
            result = CUDA_ERROR_UNKNOWN;
    }
    free(place.name);
    if (!result)
        result = flyt_pending_d2h_wait(&pending_d2h);
    flyt_pending_d2h_clear(&pending_d2h);
    return result;
}

/* ---- when it is lost ---- */

/* Asks where it is; the server hears that copies go there. Until its answer has come a server that takes over is
 * written what is kept, and hears this question after that. */
static CUresult ask_address(const struct place *place, uint64_t key)
{
    const struct flyt_library *library;
    flyt_library_symbol_args args = {.thread = flyt_thread_number(),
                                     .library_id = place->library_id,
                                     .name = place->name,
                                     .device = (unsigned)place->device};
    flyt_library_symbol_res res = {0};
    int status = call_library_symbol(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "library_symbol");
    flyt_variables_lock();
    struct flyt_variable *variable = result ? NULL : find_locked(key, &library);
    if (variable) {
        flyt_constant_forget_locked(variable);
        variable->true_address = res.address;
    }
    flyt_variables_unlock();
    flyt_answer_end();
    return result;
}

/* One look: whether the true address is known, or else what to ask by. */
static CUresult look(uint64_t *in_out_address, bool *ret_is_known, struct place *ret_place)
{
    const struct flyt_library *library;
    CUresult result = CUDA_SUCCESS;
    flyt_variables_lock();
    struct flyt_variable *variable = find_locked(*in_out_address, &library);
    *ret_is_known = variable && variable->true_address;
    if (!variable) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (*ret_is_known) {
        *in_out_address += variable->true_address - variable->address;
    } else if (name_place(library, variable, *in_out_address, ret_place)) {
        variable->is_lost = true;
    } else {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    flyt_variables_unlock();
    return result;
}

CUresult flyt_constant_lose(uint64_t *in_out_address)
{
    struct place place = {0};
    bool is_known;
    CUresult result = look(in_out_address, &is_known, &place);
    if (result || is_known)
        return result;
    result = ask_address(&place, *in_out_address);
    free(place.name);
    place.name = NULL;
    if (!result)
        result = look(in_out_address, &is_known, &place);
    free(place.name);
    return result || is_known ? result : CUDA_ERROR_INVALID_VALUE;
}
