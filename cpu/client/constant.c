#include "cpu/client/constant.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/answer.h"
#include "cpu/client/instance.h"
#include "cpu/client/library.h"
#include "cpu/client/range.h"
#include "cpu/client/restore.h"
#include "cpu/client/stream_record.h"
#include "cpu/client/thread.h"

_Static_assert(FLYT_CONSTANT_BYTES_MAX <= FLYT_INLINE_BYTES_MAX, "a copy goes in one call");

FLYT_ANSWER_CALL(library_symbol, FLYT_LIBRARY_SYMBOL)

/* What a call names a constant by. The name is its own, to be freed. */
struct place {
    char *name;
    uint64_t library_id, offset_bytes;
    int device;
};

/* A copy that is not known to be executed. Those of one constant do not overlap: their order does not matter. */
struct write {
    struct write *next;
    struct flyt_constant *constant; /* NULL: it is lost, or gone. Under the lock of variables */
    struct place place;
    uint64_t bytes;
    uint64_t sequence; /* the channel writes it; 0: not sent yet */
    unsigned char data[];
};

struct flyt_constant {
    struct write *writes;
    uint64_t bytes;            /* of the variable */
    unsigned char *is_written; /* by byte; what is not is the image's */
    unsigned char contents[];
};

/* ---- what is kept ---- */

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
    for (struct write *one = constant->writes; one; one = one->next)
        one->constant = NULL;
    free(constant);
    variable->constant = NULL;
}

static void put(unsigned char *contents, unsigned char *is_written, const struct write *write)
{
    memcpy(contents + write->place.offset_bytes, write->data, write->bytes);
    memset(is_written + write->place.offset_bytes, 1, write->bytes);
}

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
    for (const struct write *one = constant->writes; one; one = one->next)
        if (one->place.offset_bytes < offset_bytes + bytes && offset_bytes < one->place.offset_bytes + one->bytes)
            return true;
    return false;
}

static struct write *free_write(struct write *write)
{
    if (write)
        free(write->place.name);
    free(write);
    return NULL;
}

/* NULL: it cannot be kept. */
static struct write *begin(uint64_t address, const void *data, uint64_t bytes)
{
    struct write *write = bytes <= FLYT_CONSTANT_BYTES_MAX ? calloc(1, sizeof *write + bytes) : NULL;
    struct flyt_constant *constant;
    if (!write)
        return NULL;
    write->bytes = bytes;
    memcpy(write->data, data, bytes);
    flyt_variables_lock();
    bool is_kept = find_kept_locked(address, bytes, &constant, &write->place) &&
                   !is_under_way(constant, write->place.offset_bytes, bytes);
    if (is_kept) {
        write->constant = constant;
        write->next = constant->writes;
        constant->writes = write;
    }
    flyt_variables_unlock();
    return is_kept ? write : free_write(write);
}

/* is_sent: the constant has these bytes now, or will have them before anybody can look. */
static void end(struct write *write, bool is_sent)
{
    flyt_variables_lock();
    struct flyt_constant *constant = write->constant;
    if (constant) {
        struct write **link = &constant->writes;
        while (*link != write)
            link = &(*link)->next;
        *link = write->next;
        if (is_sent)
            put(constant->contents, constant->is_written, write);
    }
    flyt_variables_unlock();
    free_write(write);
}

CUresult flyt_constant_write(struct flyt_stream *stream, uint64_t address, const void *data, uint64_t bytes)
{
    struct write *write = begin(address, data, bytes);
    if (!write)
        return CUDA_ERROR_NOT_READY;
    CUresult result = flyt_stream_begin(stream);
    if (!result) {
        flyt_constant_write_args args = {.thread = flyt_thread_number(),
                                         .stream_id = stream->stream_id,
                                         .library_id = write->place.library_id,
                                         .name = write->place.name,
                                         .device = (unsigned)write->place.device,
                                         .offset_bytes = write->place.offset_bytes,
                                         .data = {.data_len = (u_int)bytes, .data_val = (char *)write->data}};
        result = flyt_client_status(flyt_send_constant_write(flyt_client.channel, &args, &write->sequence),
                                    "constant_write");
        flyt_stream_sent(stream, write->sequence);
    }
    bool is_sent = !result;
    if (!result)
        result = flyt_stream_wait(stream);
    end(write, is_sent);
    return result;
}

/* ---- reading ---- */

CUresult flyt_constant_read(struct flyt_stream *stream, uint64_t address, void *data, uint64_t bytes)
{
    struct flyt_constant *constant;
    struct place place;
    struct flyt_cover cover = {0};
    flyt_variables_lock();
    bool is_kept = find_kept_locked(address, bytes, &constant, &place);
    flyt_variables_unlock();
    if (!is_kept)
        return CUDA_ERROR_NOT_READY;
    CUresult result = flyt_stream_begin(stream);
    if (!result) {
        flyt_cover_set(&cover, &stream->cover);
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
        result = flyt_cover_wait(&cover);
    flyt_cover_clear(&cover);
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

/* ---- at another server ---- */

static int write_again(struct flyt_restore *restore, uint64_t library_id, const struct flyt_variable *variable,
                       const unsigned char *data, uint64_t offset_bytes, uint64_t bytes)
{
    uint64_t sequence = 0;
    flyt_constant_write_args args = {.thread = FLYT_RESTORE_THREAD,
                                     .stream_id = flyt_legacy_stream_id((unsigned)variable->device),
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
    for (const struct write *one = constant->writes; one; one = one->next)
        if (one->sequence && one->sequence <= restore->sequence)
            put(contents, is_written, one);
    for (uint64_t at = 0, next; at < constant->bytes && !status; at = next) {
        for (next = at + 1; next < constant->bytes && is_written[next] == is_written[at];)
            next++;
        if (is_written[at])
            status = write_again(restore, library_id, variable, contents + at, at, next - at);
    }
    free(contents);
    return status;
}
