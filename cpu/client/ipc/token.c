#include "cpu/client/ipc/token.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "cpu/client/bulk/range.h"
#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/virtual.h"
#include "rpc/base/id.h"

struct export
{
    struct flyt_record record;
    unsigned char token[FLYT_TOKEN_OF_MEMORY_BYTES];
    uint64_t address, owner_id, offset;
    bool is_lost; /* the server that the session has come to was not told of it: its memory had been freed */
};

static struct flyt_table export_table = FLYT_TABLE_INIT(FLYT_ID_EXPORT, struct export, 1);
static struct flyt_table import_table = FLYT_TABLE_INIT(FLYT_ID_IMPORT, struct flyt_import, 1);

/* Held while an export is looked for and entered; not while the server is asked. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

FLYT_ANSWER_CALL(ipc_export)
FLYT_ANSWER_CALL(ipc_import)
FLYT_ANSWER_CALL(ipc_import_end)

bool flyt_ipc_is_supported(void)
{
    const struct flyt_device_info *info;
    return flyt_client.device_count && !flyt_device_info(0, &info) &&
           info->attributes[CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED];
}

/* ---- exports ---- */

/* Whether what it names is still that. */
static bool is_current(const struct export *one)
{
    struct flyt_range range;
    if (flyt_id_type(one->owner_id) == FLYT_ID_PHYSICAL)
        return flyt_virtual_is_there(one->owner_id);
    return flyt_range_find(one->address, &range) && range.buffer_id == one->owner_id;
}

static void end_export(struct export *one)
{
    flyt_ipc_export_end_args args = {.thread = flyt_thread_number(), .export_id = one->record.minted_id};
    if (!flyt_table_take(&export_table, one->record.minted_id))
        return;
    one->record.destroyed = 1; /* where the server has none */
    if (!one->is_lost)
        flyt_send_ipc_export_end(flyt_client.channel, &args, &one->record.destroyed);
    flyt_table_free(&export_table, &one->record);
}

/* The one of the owner; ends those of owners that are gone. NULL: there is none. */
static struct export *find_export_locked(uint64_t owner_id)
{
    struct export *one, *found = NULL;
    uint32_t slot = 0;
    while ((one = flyt_table_next(&export_table, &slot))) {
        if (one->owner_id == owner_id)
            found = one;
        else if (!is_current(one))
            end_export(one);
    }
    return found;
}

static CUresult ask_to_export(struct export *one)
{
    flyt_ipc_export_args args = {
        .thread = flyt_thread_number(), .export_id = one->record.minted_id, .address = one->address};
    flyt_ipc_export_res res = {0};
    memcpy(args.token, one->token, sizeof args.token);
    int status = call_ipc_export(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "ipc_export");
    if (!result) {
        one->offset = res.offset;
        one->record.created = 1; /* by an earlier call than any behind which the session goes on */
        flyt_table_publish(&one->record);
    }
    flyt_answer_end();
    return result;
}

static CUresult make_export(uint64_t address, uint64_t owner_id)
{
    struct export *fresh = flyt_table_new(&export_table);
    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh->address = address;
    fresh->owner_id = owner_id;
    fresh->is_lost = false;
    CUresult result = getrandom(fresh->token, sizeof fresh->token, 0) == (ssize_t)sizeof fresh->token
                          ? ask_to_export(fresh)
                          : CUDA_ERROR_OPERATING_SYSTEM;
    if (result)
        flyt_table_free(&export_table, &fresh->record);
    return result;
}

CUresult flyt_ipc_export(uint64_t address, uint64_t owner_id, unsigned char *ret_token, uint64_t *ret_offset)
{
    for (bool is_made = false;; is_made = true) {
        pthread_mutex_lock(&mutex);
        const struct export *one = find_export_locked(owner_id);
        if (one) { /* where two threads have made one each, both take the same */
            memcpy(ret_token, one->token, sizeof one->token);
            *ret_offset = one->offset;
        }
        pthread_mutex_unlock(&mutex);
        CUresult result = one ? CUDA_SUCCESS : is_made ? CUDA_ERROR_INVALID_VALUE : make_export(address, owner_id);
        if (one || result)
            return result;
    }
}

bool flyt_ipc_is_own(const unsigned char *token)
{
    const struct export *one;
    uint32_t slot = 0;
    while ((one = flyt_table_next(&export_table, &slot)))
        if (!memcmp(one->token, token, sizeof one->token))
            return true;
    return false;
}

/* ---- imports ---- */

/* Nowhere else may device memory be: the program's own memory would be taken for it. */
static CUresult enter_import(struct flyt_import *import, uint64_t address, uint64_t bytes)
{
    int wire_device = flyt_window_device(address);
    if (wire_device < 0 || !bytes || bytes > flyt_window_base((unsigned)wire_device) + FLYT_WINDOW_BYTES - address)
        return CUDA_ERROR_UNKNOWN;
    import->address = address;
    import->bytes = bytes;
    import->device = flyt_seen_device((unsigned)wire_device);
    import->record.created = 1;
    flyt_table_publish(&import->record);
    return import->device < 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult flyt_ipc_import(const unsigned char *token, struct flyt_import **ret_import)
{
    struct flyt_import *fresh = flyt_table_new(&import_table);
    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    flyt_ipc_import_args args = {.thread = flyt_thread_number(), .import_id = fresh->record.minted_id};
    flyt_ipc_import_res res = {0};
    memcpy(fresh->token, token, sizeof fresh->token);
    memcpy(args.token, token, sizeof args.token);
    int status = call_ipc_import(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "ipc_import");
    bool is_there = !result;
    if (is_there)
        result = enter_import(fresh, res.address, res.bytes);
    flyt_answer_end();
    if (!is_there)
        flyt_table_free(&import_table, &fresh->record);
    else if (result == CUDA_ERROR_INVALID_DEVICE)
        flyt_ipc_import_end(fresh->record.minted_id, true);
    else
        *ret_import = fresh;
    return result;
}

CUresult flyt_ipc_import_end(uint64_t import_id, bool is_on_server)
{
    flyt_ipc_import_end_args args = {.thread = flyt_thread_number(), .import_id = import_id};
    flyt_ipc_import_end_res res = {0};
    CUresult result = CUDA_SUCCESS;
    if (is_on_server) {
        int status = call_ipc_import_end(&args, &res);
        result = flyt_client_reply(status, res.result, "ipc_import_end");
    }
    struct flyt_import *gone = flyt_table_take(&import_table, import_id);
    if (gone) {
        gone->record.destroyed = 1; /* no server that comes has it again */
        flyt_table_free(&import_table, &gone->record);
    }
    flyt_answer_end();
    return result;
}

/* ---- at another server ---- */

static int export_again(struct flyt_restore *restore, struct export *one)
{
    flyt_ipc_export_args args = {
        .thread = FLYT_RESTORE_THREAD, .export_id = one->record.minted_id, .address = one->address};
    flyt_ipc_export_res res = {0};
    one->is_lost = !is_current(one);
    if (one->is_lost)
        return 0;
    memcpy(args.token, one->token, sizeof args.token);
    int sent = flyt_call_ipc_export(restore->fresh, &args, &res);
    return flyt_restore_answered(restore, sent, res.result, "the export of memory at %#llx",
                                 (unsigned long long)one->address);
}

static int import_again(struct flyt_restore *restore, const struct flyt_import *one)
{
    flyt_ipc_import_args args = {
        .thread = FLYT_RESTORE_THREAD, .import_id = one->record.minted_id, .address = one->address};
    flyt_ipc_import_res res = {0};
    memcpy(args.token, one->token, sizeof args.token);
    int sent = flyt_call_ipc_import(restore->fresh, &args, &res);
    return flyt_restore_answered(restore, sent, res.result, "memory of another process at %#llx",
                                 (unsigned long long)one->address);
}

int flyt_ipc_restore(struct flyt_restore *restore)
{
    struct export *export;
    const struct flyt_import *import;
    uint32_t slot = 0;
    int status = 0;
    while (!status && (export = flyt_table_next_at(&export_table, restore->sequence, &slot)))
        status = export_again(restore, export);
    slot = 0;
    while (!status && (import = flyt_table_next_at(&import_table, restore->sequence, &slot)))
        status = import_again(restore, import);
    return status;
}
