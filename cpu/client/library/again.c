#include "cpu/client/library/again.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "flyt_client_calls.h"
#include "flyt_procedures.h"
#include "rpc/transport/channel.h"
#include "rpc/transport/message.h"

enum { FUNCTIONS_MAX = 4 };

static struct {
    pthread_mutex_t mutex;
    flyt_lib_again_fn list[FUNCTIONS_MAX];
    unsigned count;
} functions = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void flyt_lib_again_by(flyt_lib_again_fn again)
{
    unsigned i = 0;
    pthread_mutex_lock(&functions.mutex);
    while (i < functions.count && functions.list[i] != again)
        i++;
    if (i == functions.count && i < FUNCTIONS_MAX)
        functions.list[functions.count++] = again;
    pthread_mutex_unlock(&functions.mutex);
}

int flyt_lib_again_restore(struct flyt_restore *restore)
{
    int status = 0;
    pthread_mutex_lock(&functions.mutex);
    for (unsigned i = 0; i < functions.count && !status; i++)
        status = functions.list[i](restore);
    pthread_mutex_unlock(&functions.mutex);
    return status;
}

/* ---- calls ---- */

int flyt_lib_again_call(struct flyt_restore *restore, const struct flyt_lib_row *row,
                        const struct flyt_lib_again_bytes *arguments, const struct flyt_lib_again_bytes *array,
                        void *results, size_t result_bytes, const char *what)
{
    const size_t at = flyt_lib_align(arguments->bytes), bytes = at + (array ? flyt_lib_align(array->bytes) : 0);
    char *message = calloc(1, bytes);
    if (!message)
        return flyt_lib_again_lack(restore, what);
    memcpy(message, arguments->data, arguments->bytes);
    if (array)
        memcpy(message + at, array->data, array->bytes);
    flyt_libcall_aside_args args = {
        .thread = FLYT_RESTORE_THREAD, .row = row->id, .arguments = {(u_int)bytes, message}};
    flyt_libcall_aside_res res = {0};
    int sent = flyt_call_libcall_aside(restore->fresh, &args, &res);
    free(message);
    int status = flyt_restore_answered(restore, sent, res.result, "%s", what);
    if (!status && (res.status != row->library->success || res.results.results_len != flyt_lib_align(result_bytes)))
        status = flyt_restore_answered(restore, 0, CUDA_ERROR_UNKNOWN, "%s (its status is %d)", what, res.status);
    if (!status && result_bytes)
        memcpy(results, res.results.results_val, result_bytes);
    xdr_free((xdrproc_t)xdr_flyt_libcall_aside_res, (char *)&res);
    return status;
}

int flyt_lib_again_refuse(struct flyt_restore *restore, const char *what)
{
    return flyt_restore_answered(restore, 0, CUDA_ERROR_NOT_SUPPORTED, "%s", what);
}

int flyt_lib_again_lack(struct flyt_restore *restore, const char *what)
{
    return flyt_error_set(restore->err, -ENOMEM, "no memory to make %s again", what);
}

/* ---- calls that come again ---- */

struct walk {
    uint64_t after;
    const struct flyt_lib_row *row;
    flyt_lib_again_each_fn each;
    void *user;
};

static bool look_at_call(void *user, const struct flyt_channel_kept_call *call)
{
    const struct walk *walk = user;
    flyt_libcall_stream_args args = {0};
    struct flyt_call_head head;
    XDR xdrs;
    if (call->sequence <= walk->after || call->procedure != FLYT_LIBCALL_STREAM ||
        flyt_call_head_get(call->record, call->bytes, &head))
        return true;
    xdrmem_create(&xdrs, (char *)(uintptr_t)call->record + head.bytes, (u_int)(call->bytes - head.bytes), XDR_DECODE);
    if (xdr_flyt_libcall_stream_args(&xdrs, &args) && args.row == walk->row->id)
        walk->each(walk->user, args.arguments.arguments_val, args.arguments.arguments_len);
    xdr_free((xdrproc_t)xdr_flyt_libcall_stream_args, (char *)&args);
    return true;
}

int flyt_lib_again_kept(struct flyt_restore *restore, const struct flyt_lib_row *row, flyt_lib_again_each_fn each,
                        void *user)
{
    struct walk walk = {.after = restore->sequence, .row = row, .each = each, .user = user};
    int status = flyt_channel_kept(flyt_client.channel, restore->sequence, look_at_call, &walk);
    return status ? flyt_error_set(restore->err, -EBUSY, "more calls wait for the server than are kept") : 0;
}

/* ---- holds ---- */

bool flyt_lib_is_open(void)
{
    return flyt_client_is_usable();
}

enum flyt_lib_hold flyt_lib_hold_begin(bool joins)
{
    int status = flyt_channel_hold_begin(flyt_client.channel, joins);
    return status == FLYT_CHANNEL_OK        ? FLYT_LIB_HELD
           : status == FLYT_CHANNEL_STOPPED ? FLYT_LIB_STOPPED
                                            : FLYT_LIB_LOST;
}

void flyt_lib_hold_end(void)
{
    flyt_channel_hold_end(flyt_client.channel);
}

void flyt_lib_hold_wait(void)
{
    flyt_channel_hold_wait(flyt_client.channel);
}
