#include "cpu/server/process/parts.h"

#include <stddef.h>

#include "cpu/server/bulk/bulk.h"
#include "cpu/server/cuda/families.h"
#include "cpu/server/move/moving.h"
#include "cpu/server/manager/orders.h"
#include "cpu/server/core/session.h"
#include "cpu/server/share/share.h"

/* rpcgen's dispatch of the session's calls (flyt_svc.c). */
void flyt_program_1(struct svc_req *request, SVCXPRT *xprt);

static int init_dispatch(struct flyt_session *session, struct flyt_error *err)
{
    session->dispatch = flyt_program_1;
    return 0;
}

static const struct flyt_part dispatch_part = {.init = init_dispatch};

flyt_part_list flyt_parts = {
    &dispatch_part, &flyt_bulk_part, &flyt_families_part, &flyt_share_part, &flyt_moving_part, &flyt_orders_part, NULL};
