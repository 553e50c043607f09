/* NCCL's communicators: what makes, ends and asks them. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/client/core/visible.h"
#include "cpu/client/cuda/device.h"
#include "cpu/library/nccl.h"

struct unique_id {
    char bytes[FLYT_NCCL_UNIQUE_ID_BYTES];
};

enum { UNSET = INT_MIN };

FLYT_LIB_ENTRY int ncclGetUniqueId(struct unique_id *uniqueId)
{
    struct flyt_args_ncclGetUniqueId sent = {0};
    struct flyt_lib_call call = {.row = &flyt_lib_row_ncclGetUniqueId, .arguments = &sent};
    if (!uniqueId)
        return NCCL_ARGUMENT;
    flyt_lib_begin(&call);
    sent.uniqueId_bytes = flyt_lib_out(&call, uniqueId, sizeof *uniqueId, false);
    return flyt_lib_finish(&call);
}

/* ---- configurations ---- */

/* What the program's has; what it is too short for is unset. A network is what the operator allows, and no program's.
 */
static int take_config(const struct flyt_nccl_own_config *given, struct flyt_nccl_config *ret)
{
    struct flyt_nccl_own_config config = {.blocking = UNSET,
                                          .cga_cluster_size = UNSET,
                                          .min_ctas = UNSET,
                                          .max_ctas = UNSET,
                                          .split_share = UNSET,
                                          .traffic_class = UNSET,
                                          .collnet_enable = UNSET,
                                          .cta_policy = UNSET,
                                          .shrink_share = UNSET,
                                          .nvls_ctas = UNSET,
                                          .channels_per_net_peer = UNSET,
                                          .nvlink_centric_sched = UNSET};
    if (!given)
        return NCCL_SUCCESS;
    if (given->magic != (unsigned)FLYT_NCCL_CONFIG_MAGIC ||
        given->bytes < offsetof(struct flyt_nccl_own_config, cga_cluster_size) || given->bytes > sizeof config)
        return NCCL_ARGUMENT;
    memcpy(&config, given, given->bytes);
    if (config.net_name)
        return flyt_lib_refuse(&flyt_lib_nccl, "netName of ncclConfig_t");
    if (config.comm_name && strlen(config.comm_name) >= FLYT_NCCL_NAME_BYTES)
        return NCCL_ARGUMENT;
    *ret = (struct flyt_nccl_config){.is_given = 1,
                                     .has_name = config.comm_name != NULL,
                                     .blocking = config.blocking,
                                     .cga_cluster_size = config.cga_cluster_size,
                                     .min_ctas = config.min_ctas,
                                     .max_ctas = config.max_ctas,
                                     .split_share = config.split_share,
                                     .traffic_class = config.traffic_class,
                                     .collnet_enable = config.collnet_enable,
                                     .cta_policy = config.cta_policy,
                                     .shrink_share = config.shrink_share,
                                     .nvls_ctas = config.nvls_ctas,
                                     .channels_per_net_peer = config.channels_per_net_peer,
                                     .nvlink_centric_sched = config.nvlink_centric_sched};
    if (config.comm_name)
        strcpy(ret->name, config.comm_name);
    return NCCL_SUCCESS;
}

/* ---- making ---- */

/* In the thread's context. */
static int make(struct flyt_nccl_order *order, const struct flyt_nccl_own_config *config, const void *more,
                size_t more_bytes, void **ret_comm)
{
    struct flyt_lib_call call = {.row = &flyt_lib_row_ncclCommInitRank};
    int status = ret_comm ? take_config(config, &order->config) : NCCL_ARGUMENT;
    if (!status) {
        flyt_lib_begin(&call);
        status = call.status;
    }
    if (!status && order->parent)
        flyt_lib_place(&call, flyt_nccl_comm((void *)(uintptr_t)order->parent));
    if (status)
        return flyt_nccl_fail(status);
    ncclGroupStart();
    status = flyt_nccl_add_order(&call, order, more, more_bytes, ret_comm);
    int ended = ncclGroupEnd();
    return status ? status : ended;
}

FLYT_LIB_ENTRY int ncclCommInitRankScalable(void **newcomm, int nranks, int myrank, int nId, struct unique_id *commIds,
                                            struct flyt_nccl_own_config *config)
{
    struct flyt_nccl_order order = {
        .control = FLYT_NCCL_INIT, .rank_count = nranks, .rank = myrank, .id_count = (uint32_t)nId};
    if (nranks < 1 || myrank < 0 || myrank >= nranks || nId < 1 || nId > FLYT_NCCL_RANKS_MAX || !commIds)
        return flyt_nccl_fail(NCCL_ARGUMENT);
    return make(&order, config, commIds, (size_t)nId * sizeof *commIds, newcomm);
}

FLYT_LIB_ENTRY int ncclCommInitRankConfig(void **comm, int nranks, struct unique_id commId, int rank,
                                          struct flyt_nccl_own_config *config)
{
    return ncclCommInitRankScalable(comm, nranks, rank, 1, &commId, config);
}

FLYT_LIB_ENTRY int ncclCommInitRank(void **comm, int nranks, struct unique_id commId, int rank)
{
    return ncclCommInitRankScalable(comm, nranks, rank, 1, &commId, NULL);
}

static int init_all(void **comms, int count, const int *devices, const struct unique_id *id)
{
    CUcontext before = NULL;
    CUresult result = flyt_context_current(&before);
    int status = NCCL_SUCCESS;
    ncclGroupStart();
    for (int i = 0; i < count && !result && !status; i++) {
        result = flyt_runtime_device_set(devices ? devices[i] : i);
        if (!result)
            status = ncclCommInitRank(&comms[i], count, *id, i);
    }
    if (result)
        status = flyt_nccl_fail(NCCL_ARGUMENT);
    int ended = ncclGroupEnd();
    if (before)
        flyt_context_set_current(before);
    return status ? status : ended;
}

FLYT_LIB_ENTRY int ncclCommInitAll(void **comm, int ndev, const int *devlist)
{
    struct unique_id id;
    int device_count = 0, before = 0;
    if (!comm || ndev < 1 || flyt_device_count(&device_count) || ndev > device_count)
        return NCCL_ARGUMENT;
    for (int i = 0; devlist && i < ndev; i++)
        for (int k = 0; k < i; k++)
            if (devlist[i] == devlist[k])
                return NCCL_USAGE;
    bool has_device = !flyt_runtime_device(&before);
    int status = ncclGetUniqueId(&id);
    if (!status)
        status = init_all(comm, ndev, devlist, &id);
    if (has_device)
        flyt_runtime_device_set(before);
    return status;
}

static uint64_t op_count(void *comm)
{
    const struct flyt_state_comm *state = flyt_lib_state(flyt_nccl_comm(comm));
    return __atomic_load_n(&state->op_count, __ATOMIC_RELAXED);
}

FLYT_LIB_ENTRY int ncclCommSplit(void *comm, int color, int key, void **newcomm, struct flyt_nccl_own_config *config)
{
    if (!flyt_nccl_comm(comm))
        return flyt_nccl_fail(NCCL_ARGUMENT);
    struct flyt_nccl_order order = {.control = FLYT_NCCL_SPLIT,
                                    .parent = (uint64_t)(uintptr_t)comm,
                                    .groups = op_count(comm),
                                    .color = color,
                                    .key = key};
    return make(&order, config, NULL, 0, newcomm);
}

FLYT_LIB_ENTRY int ncclCommShrink(void *comm, int *excludeRanksList, int excludeRanksCount, void **newcomm,
                                  struct flyt_nccl_own_config *config, int shrinkFlags)
{
    if (!flyt_nccl_comm(comm) || !excludeRanksList || excludeRanksCount < 1 || excludeRanksCount > FLYT_NCCL_RANKS_MAX)
        return flyt_nccl_fail(NCCL_ARGUMENT);
    struct flyt_nccl_order order = {.control = FLYT_NCCL_SHRINK,
                                    .parent = (uint64_t)(uintptr_t)comm,
                                    .groups = op_count(comm),
                                    .flags = shrinkFlags,
                                    .excluded_count = (uint32_t)excludeRanksCount};
    return make(&order, config, excludeRanksList, (size_t)excludeRanksCount * sizeof *excludeRanksList, newcomm);
}

/* ---- ending ---- */

static struct flyt_nccl_order order_of(enum flyt_nccl_control control, void *comm)
{
    return (struct flyt_nccl_order){.control = control, .comm = (uint64_t)(uintptr_t)comm, .groups = op_count(comm)};
}

static int with_comm(enum flyt_nccl_control control, void *comm)
{
    struct flyt_lib_object *object = flyt_nccl_comm(comm);
    struct flyt_lib_call call = {.row = &flyt_lib_row_ncclCommInitRank};
    if (!object)
        return flyt_nccl_fail(NCCL_ARGUMENT);
    struct flyt_nccl_order order = order_of(control, comm);
    flyt_lib_place(&call, object);
    ncclGroupStart();
    int status = flyt_nccl_add_order(&call, &order, NULL, 0, NULL), ended = ncclGroupEnd();
    return status ? status : ended;
}

FLYT_LIB_ENTRY int ncclCommFinalize(void *comm)
{
    return with_comm(FLYT_NCCL_FINALIZE, comm);
}

FLYT_LIB_ENTRY int ncclCommDestroy(void *comm)
{
    return comm ? with_comm(FLYT_NCCL_DESTROY, comm) : NCCL_SUCCESS;
}

/* At once, in a group too, and whatever the communicator's other calls wait for. */
static int at_once(enum flyt_nccl_control control, void *comm, int flags)
{
    struct flyt_lib_object *object = flyt_nccl_comm(comm);
    struct flyt_lib_call place = {.row = &flyt_lib_row_ncclCommAbort};
    int32_t made = 0;
    if (!object)
        return NCCL_ARGUMENT;
    struct flyt_nccl_order order = order_of(control, comm);
    flyt_lib_place(&place, object);
    order.device = flyt_wire_device((unsigned)place.device);
    order.flags = flags;
    return flyt_nccl_send_orders(&flyt_lib_row_ncclCommAbort, &order, sizeof order, &made, 1);
}

FLYT_LIB_ENTRY int ncclCommAbort(void *comm)
{
    if (!comm)
        return NCCL_SUCCESS;
    int status = at_once(FLYT_NCCL_ABORT, comm, 0);
    flyt_lib_own_end((uint64_t)(uintptr_t)comm, &flyt_lib_kind_nccl_comm);
    return status;
}

FLYT_LIB_ENTRY int ncclCommRevoke(void *comm, int revokeFlags)
{
    return at_once(FLYT_NCCL_REVOKE, comm, revokeFlags);
}

/* ---- asking ---- */

#define ASKS_NUMBER(name, field)                                                                                       \
    FLYT_LIB_ENTRY int name(void *comm, int *field)                                                                    \
    {                                                                                                                  \
        struct flyt_args_##name sent = {.comm = (uint64_t)(uintptr_t)comm};                                            \
        struct flyt_lib_call call = {.row = &flyt_lib_row_##name, .arguments = &sent};                                 \
        if (!flyt_nccl_comm(comm) || !field)                                                                           \
            return NCCL_ARGUMENT;                                                                                      \
        flyt_lib_begin(&call);                                                                                         \
        sent.field##_bytes = flyt_lib_out(&call, field, sizeof *field, false);                                         \
        return flyt_lib_finish(&call);                                                                                 \
    }

ASKS_NUMBER(ncclCommGetAsyncError, asyncError)
ASKS_NUMBER(ncclCommCount, count)
ASKS_NUMBER(ncclCommUserRank, rank)

FLYT_LIB_ENTRY int ncclCommCuDevice(void *comm, int *device)
{
    struct flyt_lib_object *object = flyt_nccl_comm(comm);
    struct flyt_lib_call place = {0};
    if (!object || !device)
        return NCCL_ARGUMENT;
    flyt_lib_place(&place, object);
    *device = place.device;
    return NCCL_SUCCESS;
}

/* Of the communicator's server; the text is the thread's, until it asks again. */
FLYT_LIB_ENTRY const char *ncclGetLastError(void *comm)
{
    static _Thread_local char text[FLYT_NCCL_TEXT_BYTES];
    struct flyt_args_ncclGetLastError sent = {.comm = (uint64_t)(uintptr_t)comm};
    struct flyt_lib_call call = {.row = &flyt_lib_row_ncclGetLastError, .arguments = &sent};
    if (!flyt_nccl_comm(comm))
        return text;
    flyt_lib_begin(&call);
    sent.text_bytes = flyt_lib_out(&call, text, sizeof text, false);
    if (flyt_lib_finish(&call))
        text[0] = '\0';
    text[sizeof text - 1] = '\0';
    return text;
}
