#include "cpu/server/cuda/account.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/device.h"
#include "cpu/server/core/manager.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/core/session.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

static uint64_t server_id(const struct flyt_device *device)
{
    return device->session->manager->granted.server_id;
}

static void warn(const struct flyt_device *device, const char *what, int status)
{
    flyt_warn("session %s: device %u: %s: %s", device->session->label, device->ordinal, what, strerror(-status));
}

/* Asks the VM's other servers, through the node manager, for what they cache. CUDA_ERROR_NOT_READY: they have not
 * answered; CUDA_ERROR_OUT_OF_MEMORY: there are none, or they have. */
static CUresult ask_others(struct flyt_device *device, uint64_t bytes, unsigned server_count)
{
    struct flyt_account_need *need = &device->memory->need;
    uint64_t now_ms = flyt_clock_ms();
    if (need->state == FLYT_NEED_ANSWERED && device->memory->attempt > need->sequence)
        need->state = FLYT_NEED_NONE;
    if (need->state == FLYT_NEED_NONE && server_count > 1) {
        const struct flyt_manager_link_need message = {.number = ++need->number, .bytes = bytes, .slot = device->slot};
        need->since_ms = now_ms;
        need->sequence = device->session->received_sequence;
        if (flyt_manager_tell(device->session->manager, FLYT_MANAGER_LINK_NEED, &message, sizeof message, NULL, NULL,
                              0))
            need->state = FLYT_NEED_ASKED;
    }
    if (need->state == FLYT_NEED_ASKED && now_ms - need->since_ms < FLYT_ACCOUNT_NEED_MS)
        return CUDA_ERROR_NOT_READY;
    /* They do not answer: who has not waited for that asks once more. */
    if (need->state == FLYT_NEED_ASKED && device->memory->attempt > need->sequence) {
        need->state = FLYT_NEED_NONE;
        return CUDA_ERROR_NOT_READY;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void flyt_account_take_answer(struct flyt_device *device, uint64_t number)
{
    struct flyt_account_need *need = &device->memory->need;
    if (need->state == FLYT_NEED_ASKED && need->number == number)
        need->state = FLYT_NEED_ANSWERED;
}

/* CUDA_SUCCESS: the ledger is to decide. */
static CUresult look_for_room(struct flyt_device *device, uint64_t bytes, bool is_last_try)
{
    struct flyt_ledger_state state;
    flyt_ledger_read(device->ledger, &state);
    bool is_over = state.used_bytes > state.limit_bytes || bytes > state.limit_bytes - state.used_bytes;
    if (!is_over)
        return CUDA_SUCCESS;
    if (device->memory->debts)
        return CUDA_ERROR_NOT_READY;
    if (!is_last_try)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (ask_others(device, bytes, state.entry_count) == CUDA_ERROR_NOT_READY)
        return CUDA_ERROR_NOT_READY;
    return CUDA_SUCCESS;
}

/* What the ledger has decided. */
static CUresult take_answer(struct flyt_device *device, int status)
{
    if (status && status != -ENOMEM)
        warn(device, "memory cannot be charged", status);
    return status ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult flyt_account_charge(struct flyt_device *device, uint64_t bytes, bool is_last_try)
{
    CUresult result = device->ledger ? look_for_room(device, bytes, is_last_try) : CUDA_SUCCESS;
    if (!device->ledger || result != CUDA_SUCCESS)
        return result;
    return take_answer(device, flyt_ledger_charge(device->ledger, server_id(device), bytes));
}

CUresult flyt_account_reserve(struct flyt_device *device, uint64_t bytes, bool is_last_try)
{
    CUresult result = device->ledger ? look_for_room(device, bytes, is_last_try) : CUDA_SUCCESS;
    if (!device->ledger || result != CUDA_SUCCESS)
        return result;
    return take_answer(device, flyt_ledger_reserve_change(device->ledger, server_id(device), (int64_t)bytes));
}

void flyt_account_unreserve(struct flyt_device *device, uint64_t bytes)
{
    if (!device->ledger || !bytes)
        return;
    int status = flyt_ledger_reserve_change(device->ledger, server_id(device), -(int64_t)bytes);
    if (status)
        warn(device, "memory cannot be credited", status);
}

void flyt_account_estimate(struct flyt_device *device, uint64_t present_bytes, uint64_t ahead_bytes)
{
    flyt_ledger_set_estimate(device->ledger, server_id(device), present_bytes, ahead_bytes);
}

void flyt_account_uncharge(struct flyt_device *device, uint64_t bytes)
{
    if (!device->ledger || !bytes)
        return;
    int status = flyt_ledger_release(device->ledger, server_id(device), bytes);
    if (status)
        warn(device, "memory cannot be credited", status);
}

uint64_t flyt_account_tell_extent(struct flyt_device *device, uint64_t extent_id, uint64_t address, uint64_t bytes,
                                  CUmemGenericAllocationHandle handle)
{
    struct flyt_manager *manager = device->session->manager;
    int fd = -1;
    if (!manager)
        return 0;
    CUresult result =
        device->session->driver->cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result != CUDA_SUCCESS) {
        flyt_warn("session %s: device %u: memory cannot be handed to the node manager, cuda_result=%d",
                  device->session->label, device->ordinal, (int)result);
        return 0;
    }
    const struct flyt_manager_link_extent extent = {.extent_id = extent_id ? extent_id : ++manager->last_extent_id,
                                                    .bytes = bytes,
                                                    .address = address,
                                                    .slot = device->slot};
    bool is_told = flyt_manager_tell(manager, FLYT_MANAGER_LINK_EXTENT, &extent, sizeof extent, NULL, &fd, 1);
    flyt_close(fd);
    /* One that is away is told when it is back. */
    if (!is_told)
        return extent_id;
    if (!extent_id)
        atomic_fetch_add(&manager->extent_count, 1);
    return extent.extent_id;
}

void flyt_account_drop_extent(struct flyt_device *device, uint64_t extent_id, uint64_t address, uint64_t bytes)
{
    struct flyt_manager *manager = device->session->manager;
    if (!manager)
        return;
    struct flyt_account_debt *debt = extent_id ? calloc(1, sizeof *debt) : NULL;
    if (extent_id)
        atomic_fetch_sub(&manager->extent_count, 1);
    if (!extent_id) {
        flyt_account_uncharge(device, bytes);
        return;
    }
    const struct flyt_manager_link_extent extent = {
        .extent_id = extent_id, .bytes = bytes, .address = address, .slot = device->slot};
    if (debt && device->ledger) {
        *debt =
            (struct flyt_account_debt){.next = device->memory->debts, .extent = extent, .since_ms = flyt_clock_ms()};
        device->memory->debts = debt;
        atomic_fetch_add(&manager->debt_count, 1);
    } else {
        free(debt);
    }
    flyt_manager_tell(manager, FLYT_MANAGER_LINK_EXTENT_GONE, &extent, sizeof extent, NULL, NULL, 0);
}

/* Takes a debt out of the list. */
static void forget(struct flyt_device *device, struct flyt_account_debt **link)
{
    struct flyt_account_debt *debt = *link;
    *link = debt->next;
    free(debt);
    atomic_fetch_sub(&device->session->manager->debt_count, 1);
}

/* Nothing is to be credited any more: what is there is what is charged. */
static void correct(struct flyt_device *device)
{
    uint64_t bytes = device->memory->extent_bytes;
    uint64_t charged_bytes = flyt_ledger_charged(device->ledger, server_id(device));
    if (charged_bytes > bytes)
        flyt_account_uncharge(device, charged_bytes - bytes);
}

void flyt_account_take_credit(struct flyt_device *device, const struct flyt_manager_link_extent *extent)
{
    struct flyt_account_debt **link = &device->memory->debts;
    while (*link && (*link)->extent.extent_id != extent->extent_id)
        link = &(*link)->next;
    struct flyt_account_debt *debt = *link;
    if (!debt)
        return;
    if (!extent->bytes && !debt->is_retold)
        flyt_account_uncharge(device, debt->extent.bytes);
    forget(device, link);
    if (!device->memory->debts)
        correct(device);
}

/* Asks once more. What the node manager credited before it says so again: this server credits nothing then. */
static void retell(struct flyt_device *device, struct flyt_account_debt *debt)
{
    debt->since_ms = flyt_clock_ms();
    debt->is_retold = true;
    flyt_manager_tell(device->session->manager, FLYT_MANAGER_LINK_EXTENT_GONE, &debt->extent, sizeof debt->extent, NULL,
                      NULL, 0);
}

void flyt_account_retell_debts(struct flyt_device *device, bool holds_nothing)
{
    if (!device->ledger)
        return;
    if (holds_nothing) {
        flyt_account_fini(device);
        correct(device);
        return;
    }
    for (struct flyt_account_debt *debt = device->memory->debts; debt; debt = debt->next)
        retell(device, debt);
}

void flyt_account_settle(struct flyt_device *device)
{
    struct flyt_manager *manager = device->session->manager;
    uint64_t now_ms = flyt_clock_ms();
    if (!manager || !device->ledger)
        return;
    pthread_mutex_lock(&manager->mutex);
    bool is_away = manager->fd < 0;
    pthread_mutex_unlock(&manager->mutex);
    bool is_any_forgotten = false;
    for (struct flyt_account_debt **link = &device->memory->debts; *link;) {
        struct flyt_account_debt *debt = *link;
        bool is_late = !is_away && now_ms - debt->since_ms >= FLYT_ACCOUNT_CREDIT_MS;
        if (is_late && debt->is_retold) {
            warn(device, "the node manager does not say that it has let go of memory", -ETIMEDOUT);
            forget(device, link);
            is_any_forgotten = true;
            continue;
        }
        if (is_late)
            retell(device, debt);
        link = &debt->next;
    }
    /* It may have credited them: what is charged becomes what is there. */
    if (is_any_forgotten && !device->memory->debts)
        correct(device);
}

void flyt_account_fini(struct flyt_device *device)
{
    while (device->memory->debts)
        forget(device, &device->memory->debts);
}

uint64_t flyt_account_total(const struct flyt_device *device, uint64_t gpu_bytes)
{
    struct flyt_ledger_state state;
    if (!device->ledger)
        return gpu_bytes;
    flyt_ledger_read(device->ledger, &state);
    return state.limit_bytes;
}

void flyt_account_set_cached(struct flyt_device *device, uint64_t bytes)
{
    if (device->ledger)
        flyt_ledger_set_cached(device->ledger, server_id(device), bytes);
}

uint64_t flyt_account_left(const struct flyt_device *device, uint64_t gpu_bytes, uint64_t cached_bytes)
{
    struct flyt_ledger_state state;
    uint64_t gpu_left = gpu_bytes + cached_bytes;
    if (!device->ledger)
        return gpu_left;
    flyt_ledger_read(device->ledger, &state);
    uint64_t kept = state.used_bytes - state.cached_bytes;
    uint64_t left = state.limit_bytes > kept ? state.limit_bytes - kept : 0;
    return left < gpu_left ? left : gpu_left;
}

uint64_t flyt_account_over(const struct flyt_device *device)
{
    struct flyt_ledger_state state;
    if (!device->ledger)
        return 0;
    flyt_ledger_read(device->ledger, &state);
    return state.used_bytes > state.limit_bytes ? state.used_bytes - state.limit_bytes : 0;
}
