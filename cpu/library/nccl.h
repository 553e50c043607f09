/*
 * NCCL in the client: groups. What a program does between ncclGroupStart and the outermost ncclGroupEnd of its thread
 * is kept in lists of the thread's, and goes to the server when the group ends. A call outside of groups is a group of
 * one. All results are ncclResult_t.
 */
#ifndef FLYT_LIBRARY_CLIENT_NCCL_H
#define FLYT_LIBRARY_CLIENT_NCCL_H

#include <stdint.h>

#include "cpu/client/library/library_call.h"
#include "flyt_lib_nccl.h"
#include "rpc/library/nccl_list.h"

enum { NCCL_SUCCESS = 0, NCCL_INTERNAL = 3, NCCL_ARGUMENT = 4, NCCL_USAGE = 5 };

extern const struct flyt_lib flyt_lib_nccl;
extern const struct flyt_lib_kind flyt_lib_kind_nccl_comm;
extern const struct flyt_lib_row flyt_lib_row_ncclGroupStart, flyt_lib_row_ncclGroupEnd, flyt_lib_row_ncclCommInitRank,
    flyt_lib_row_ncclCommAbort, flyt_lib_row_ncclGetUniqueId, flyt_lib_row_ncclCommGetAsyncError,
    flyt_lib_row_ncclGetLastError, flyt_lib_row_ncclRedOpCreatePreMulSum, flyt_lib_row_ncclRedOpDestroy,
    flyt_lib_row_ncclCommCount, flyt_lib_row_ncclCommUserRank, flyt_lib_row_ncclCommRegister,
    flyt_lib_row_ncclCommDeregister;

FLYT_LIB_ENTRY int ncclGroupStart(void);
FLYT_LIB_ENTRY int ncclGroupEnd(void);

/* The communicator, or NULL. */
static inline struct flyt_lib_object *flyt_nccl_comm(void *comm)
{
    return flyt_lib_find((uint64_t)(uintptr_t)comm, &flyt_lib_kind_nccl_comm);
}

/* Adds an operation to the thread's group. */
int flyt_nccl_add_op(struct flyt_nccl_op *op, void *comm, void *stream);
/* Adds an order, with `bytes` bytes behind it. `ret_comm`: where the handle of the communicator that it makes goes,
 * which is made in the call's context; NULL: it makes none. */
int flyt_nccl_add_order(const struct flyt_lib_call *call, struct flyt_nccl_order *order, const void *more,
                        size_t more_bytes, void **ret_comm);
/* Notes an error of a call in the group, which ends it with that. Returns it. */
int flyt_nccl_fail(int status);
/* Sends orders, a list of `count`; made: by each whether it has made a communicator. */
int flyt_nccl_send_orders(const struct flyt_lib_row *row, const void *orders, size_t bytes, int32_t *made,
                          unsigned count);

#endif
