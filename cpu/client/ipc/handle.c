/* Handles of allocations. */
#include "cpu/client/ipc/ipc.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/client/bulk/range.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/pool.h"
#include "cpu/client/cuda/virtual.h"
#include "cpu/client/ipc/token.h"

static const char magic[8] = "flyt ipc";

/* What is in a handle. */
struct content {
    unsigned char token[FLYT_TOKEN_OF_MEMORY_BYTES]; /* of the extent, */
    uint64_t offset, bytes;                          /* and the allocation in it */
    char magic[sizeof magic];
    uint64_t reserved;
};
_Static_assert(sizeof(struct content) == sizeof(CUipcMemHandle), "handle layout");

/* An allocation of another process's. */
struct opened {
    struct opened *next;
    struct content content;
    uint64_t address, import_id, context_id;
    unsigned count;
};

/* The mutex is not held while the server is asked. */
static struct {
    pthread_mutex_t mutex;
    struct opened *first;
} books = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- getting ---- */

CUresult flyt_ipc_get_handle(CUdeviceptr address, CUipcMemHandle *ret_handle)
{
    struct content content = {0};
    struct flyt_range range;
    CUresult result = flyt_client_enter();
    if (!result && !flyt_ipc_is_supported())
        result = flyt_not_supported("IPC handle without a node manager (cuIpcGetMemHandle)");
    if (!result && (!flyt_range_find(address, &range) || !flyt_range_is_ipc_capable(&range) ||
                    flyt_pool_has(range.base, NULL, NULL)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_ipc_export(range.base, range.buffer_id, content.token, &content.offset);
    if (result)
        return result;
    content.bytes = range.bytes;
    memcpy(content.magic, magic, sizeof magic);
    memcpy(ret_handle, &content, sizeof content);
    return CUDA_SUCCESS;
}

struct flyt_ipc_pointer flyt_ipc_pointer_find(CUdeviceptr address)
{
    struct flyt_ipc_pointer pointer = {0};
    struct flyt_range range;
    if (flyt_client_is_forked() || !flyt_range_find(address, &range) || flyt_range_is_host(&range))
        return pointer;
    pointer.has_handle =
        flyt_range_is_ipc_capable(&range) && !flyt_pool_has(range.base, &pointer.pool, &pointer.handle_types);
    if (range.kind == FLYT_RANGE_MAPPED)
        pointer.handle_types = flyt_virtual_handle_types(range.base);
    if (!flyt_ipc_is_supported()) {
        pointer.has_handle = false;
        pointer.handle_types = 0;
    }
    return pointer;
}

/* ---- closing ---- */

/* Takes it out of the books: it is the caller's. */
static void remove_locked(struct opened **link)
{
    struct opened *gone = *link;
    *link = gone->next;
    flyt_range_remove(gone->address, FLYT_RANGE_IMPORTED, NULL);
}

static CUresult close_one(CUdeviceptr address)
{
    pthread_mutex_lock(&books.mutex);
    struct opened **link = &books.first;
    while (*link && (*link)->address != address)
        link = &(*link)->next;
    struct opened *one = *link;
    bool is_last = one && !--one->count;
    if (is_last)
        remove_locked(link);
    pthread_mutex_unlock(&books.mutex);
    if (!is_last)
        return one ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_ipc_import_end(one->import_id, true);
    free(one);
    return result;
}

CUresult flyt_ipc_close(CUdeviceptr address)
{
    CUresult result = flyt_client_enter_release();
    if (!result && !flyt_ipc_is_supported())
        result = flyt_not_supported("IPC handle without a node manager (cuIpcCloseMemHandle)");
    return result ? result : close_one(address);
}

/* ---- opening ---- */

/* Opens once more what is open already. False: it is not. */
static bool open_again_locked(const struct content *content, CUdeviceptr *ret_address)
{
    struct opened *one = books.first;
    while (one && memcmp(&one->content, content, sizeof *content))
        one = one->next;
    if (!one)
        return false;
    one->count++;
    *ret_address = one->address;
    return true;
}

static CUresult add_range(const struct opened *one, int device)
{
    const struct flyt_range range = {.base = one->address,
                                     .bytes = one->content.bytes,
                                     .kind = FLYT_RANGE_IMPORTED,
                                     .device = device,
                                     .context_id = one->context_id};
    return flyt_range_insert(&range) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* Enters what was imported; another thread may have opened the same meanwhile: then this one's import is not needed. */
static CUresult enter(struct opened *fresh, int device, CUdeviceptr *ret_address, bool *ret_is_needed)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&books.mutex);
    *ret_is_needed = !open_again_locked(&fresh->content, ret_address);
    if (*ret_is_needed)
        result = add_range(fresh, device);
    if (*ret_is_needed && !result) {
        fresh->next = books.first;
        books.first = fresh;
        *ret_address = fresh->address;
    }
    pthread_mutex_unlock(&books.mutex);
    return result;
}

static CUresult open(const struct content *content, uint64_t context_id, CUdeviceptr *ret_address)
{
    struct flyt_import *import;
    bool is_needed = false;
    struct opened *fresh = calloc(1, sizeof *fresh);
    CUresult result = fresh ? flyt_ipc_import(content->token, &import) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result) {
        free(fresh);
        return result;
    }
    *fresh = (struct opened){.content = *content,
                             .address = import->address + content->offset,
                             .import_id = import->record.minted_id,
                             .context_id = context_id,
                             .count = 1};
    if (content->offset >= import->bytes || content->bytes > import->bytes - content->offset)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = enter(fresh, import->device, ret_address, &is_needed);
    if (is_needed && !result)
        return CUDA_SUCCESS;
    flyt_ipc_import_end(fresh->import_id, true);
    free(fresh);
    return result;
}

/* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: the current context's device reaches the memory, as by cuCtxEnablePeerAccess. */
static CUresult enable_access(int device, CUdeviceptr address)
{
    struct flyt_range range;
    if (!flyt_range_find(address, &range) || range.device == device)
        return CUDA_SUCCESS;
    CUresult result = flyt_device_peer_enable(range.device, 0);
    return result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? CUDA_SUCCESS : result;
}

CUresult flyt_ipc_open(const CUipcMemHandle *handle, unsigned flags, CUdeviceptr *ret_address)
{
    struct content content;
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (!result && !flyt_ipc_is_supported())
        result = flyt_not_supported("IPC handle without a node manager (cuIpcOpenMemHandle)");
    if (!result)
        result = flyt_capture_ask_unsafe();
    if (!result)
        result = flyt_context_get(&context_id, &device);
    if (result)
        return result;
    memcpy(&content, handle, sizeof content);
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || !ret_address || memcmp(content.magic, magic, sizeof magic) ||
        !content.bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (flyt_ipc_is_own(content.token))
        return CUDA_ERROR_INVALID_CONTEXT;
    CUdeviceptr address;
    pthread_mutex_lock(&books.mutex);
    bool is_open = open_again_locked(&content, &address);
    pthread_mutex_unlock(&books.mutex);
    if (!is_open)
        result = open(&content, context_id, &address);
    if (result)
        return result;
    result = enable_access(device, address);
    if (result)
        close_one(address);
    else
        *ret_address = address;
    return result;
}

void flyt_ipc_clear(uint64_t context_id, bool is_on_server)
{
    struct opened *gone = NULL;
    pthread_mutex_lock(&books.mutex);
    for (struct opened **link = &books.first, *one; (one = *link);) {
        if (one->context_id != context_id) {
            link = &one->next;
            continue;
        }
        remove_locked(link);
        one->next = gone;
        gone = one;
    }
    pthread_mutex_unlock(&books.mutex);
    while (gone) {
        struct opened *one = gone;
        gone = one->next;
        flyt_ipc_import_end(one->import_id, is_on_server);
        free(one);
    }
}
