/*
 * Events that processes share. What each of them has is an event as any other (cuda/event.h) but that the server is
 * asked how far it is: another process may have recorded it. A record is known to all when the call returns, so that a
 * process which is told of it waits for that one.
 */
#include "cpu/client/ipc/ipc.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/event_record.h"
#include "cpu/client/ipc/token.h"

_Static_assert((int)FLYT_EVENT_TOKEN_BYTES == (int)FLYT_TOKEN_OF_MEMORY_BYTES, "a token");

static const char magic[16] = "flyt event";

/* What is in a handle. */
struct content {
    unsigned char token[FLYT_EVENT_TOKEN_BYTES];
    char magic[sizeof magic];
    uint64_t reserved[2];
};
_Static_assert(sizeof(struct content) == sizeof(CUipcEventHandle), "handle layout");

/* Held while an event is exported: its handles are alike. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

FLYT_ANSWER_CALL(ipc_event_export)
FLYT_ANSWER_CALL(ipc_event_import)

static CUresult export_locked(struct flyt_event *event)
{
    flyt_ipc_event_export_args args = {.thread = flyt_thread_number(), .event_id = event->record.minted_id};
    flyt_ipc_event_export_res res = {0};
    if (atomic_load(&event->sharing) == FLYT_EVENT_EXPORTED)
        return CUDA_SUCCESS;
    if (getrandom(event->token, sizeof event->token, 0) != (ssize_t)sizeof event->token)
        return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(args.token, event->token, sizeof args.token);
    int status = call_ipc_event_export(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "ipc_event_export");
    if (!result)
        atomic_store(&event->sharing, FLYT_EVENT_EXPORTED);
    flyt_answer_end();
    return result;
}

CUresult flyt_ipc_get_event_handle(CUevent handle, CUipcEventHandle *ret_handle)
{
    struct content content = {0};
    CUresult result = flyt_client_enter();
    struct flyt_event *event = flyt_event_find(handle);
    if (!result && !event)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (!result && !flyt_ipc_is_supported())
        result = flyt_not_supported("IPC handle without a node manager (cuIpcGetEventHandle)");
    if (!result && (!(event->flags & CU_EVENT_INTERPROCESS) || atomic_load(&event->sharing) == FLYT_EVENT_IMPORTED))
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result)
        return result;
    pthread_mutex_lock(&mutex);
    result = export_locked(event);
    memcpy(content.token, event->token, sizeof content.token);
    pthread_mutex_unlock(&mutex);
    memcpy(content.magic, magic, sizeof magic);
    if (!result)
        memcpy(ret_handle, &content, sizeof content);
    return result;
}

/* Whether this process has made it. */
static bool is_own(const unsigned char *token)
{
    const struct flyt_event *event;
    uint32_t slot = 0;
    while ((event = flyt_event_next_at(UINT64_MAX, &slot)))
        if (atomic_load(&event->sharing) == FLYT_EVENT_EXPORTED && !memcmp(event->token, token, sizeof event->token))
            return true;
    return false;
}

static CUresult import(struct flyt_event *event, const unsigned char *token)
{
    flyt_ipc_event_import_args args = {.thread = flyt_thread_number(), .event_id = event->record.minted_id};
    flyt_ipc_event_import_res res = {0};
    memcpy(event->token, token, sizeof event->token);
    memcpy(args.token, token, sizeof args.token);
    int status = call_ipc_event_import(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "ipc_event_import");
    if (!result)
        atomic_store(&event->sharing, FLYT_EVENT_IMPORTED);
    flyt_answer_end();
    return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_MAP_FAILED : result;
}

CUresult flyt_ipc_open_event(const CUipcEventHandle *handle, CUevent *ret_event)
{
    struct content content;
    CUevent fresh;
    CUresult result = flyt_client_enter();
    if (!result && !flyt_ipc_is_supported())
        result = flyt_not_supported("IPC handle without a node manager (cuIpcOpenEventHandle)");
    if (result)
        return result;
    memcpy(&content, handle, sizeof content);
    if (memcmp(content.magic, magic, sizeof magic) != 0)
        return CUDA_ERROR_MAP_FAILED;
    if (is_own(content.token))
        return CUDA_ERROR_INVALID_CONTEXT;
    result = flyt_event_create(CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS, &fresh);
    if (result)
        return result;
    struct flyt_event *event = flyt_event_find(fresh);
    result = event ? import(event, content.token) : CUDA_ERROR_INVALID_CONTEXT;
    if (result)
        flyt_event_destroy(fresh);
    else
        *ret_event = fresh;
    return result;
}

/* ---- at another server ---- */

static int export_again(struct flyt_restore *restore, const struct flyt_event *event)
{
    flyt_ipc_event_export_args args = {.thread = FLYT_RESTORE_THREAD, .event_id = event->record.minted_id};
    flyt_ipc_event_export_res res = {0};
    memcpy(args.token, event->token, sizeof args.token);
    int sent = flyt_call_ipc_event_export(restore->fresh, &args, &res);
    return flyt_restore_answered(restore, sent, res.result, "the export of an event");
}

/* Its exporter may have destroyed it by now. */
static int import_again(struct flyt_restore *restore, const struct flyt_event *event)
{
    flyt_ipc_event_import_args args = {
        .thread = FLYT_RESTORE_THREAD, .event_id = event->record.minted_id, .is_restored = 1};
    flyt_ipc_event_import_res res = {0};
    memcpy(args.token, event->token, sizeof args.token);
    int sent = flyt_call_ipc_event_import(restore->fresh, &args, &res);
    return flyt_restore_answered(restore, sent, res.result, "an event of another process");
}

static int restore_all(struct flyt_restore *restore, int sharing,
                       int (*restore_one)(struct flyt_restore *, const struct flyt_event *))
{
    const struct flyt_event *event;
    uint32_t slot = 0;
    int status = 0;
    while (!status && (event = flyt_event_next_at(restore->sequence, &slot)))
        if ((int)atomic_load(&event->sharing) == sharing)
            status = restore_one(restore, event);
    return status;
}

int flyt_ipc_event_restore(struct flyt_restore *restore)
{
    int status = restore_all(restore, FLYT_EVENT_EXPORTED, export_again);
    return status ? status : restore_all(restore, FLYT_EVENT_IMPORTED, import_again);
}
