#include "cpu/server/manager/orders.h"

#include <errno.h>
#include <string.h>

#include "cpu/server/cuda/account.h"
#include "cpu/server/cuda/ipc.h"
#include "cpu/server/manager/limit.h"
#include "cpu/server/core/manager.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/move/out/move.h"
#include "cpu/server/core/part.h"
#include "cpu/server/share/resize.h"
#include "cpu/server/move/in/resume.h"
#include "cpu/server/core/session.h"
#include "cpu/server/share/time_slice.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/ledger.h"
#include "rpc/base/log.h"

static struct flyt_device *device_of_slot(struct flyt_session *session, uint32_t slot)
{
    for (unsigned i = 0; i < session->device_count; i++)
        if (session->devices[i].slot == slot)
            return &session->devices[i];
    return NULL;
}

static void take_groups(struct flyt_session *session, const struct flyt_manager_link_sm *order)
{
    const struct flyt_manager_link_sm_done none = {.revision = order->revision, .slot = order->slot, .state = -EINVAL};
    struct flyt_device *device = device_of_slot(session, order->slot);
    if (device)
        flyt_resize_take(device, order);
    else
        flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_SM_DONE, &none, sizeof none, NULL, NULL, 0);
}

static void take_share(struct flyt_session *session, const struct flyt_manager_link_share *order, const int *fds,
                       unsigned fd_count)
{
    const struct flyt_manager_link_share_done none = {order->revision, order->slot, -EINVAL};
    struct flyt_device *device = device_of_slot(session, order->slot);
    if (device) {
        flyt_time_slice_take(device, order, fd_count ? fds : NULL);
        return;
    }
    for (unsigned i = 0; i < fd_count; i++)
        flyt_close(fds[i]);
    flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_SHARE_DONE, &none, sizeof none, NULL, NULL, 0);
}

static void take_move(struct flyt_session *session, const struct flyt_manager_order *order)
{
    struct flyt_move_order move = {.kind = order->kind,
                                   .record = order->record,
                                   .record_bytes = order->record_bytes,
                                   .stream_fds = order->fds + 1,
                                   .stream_count = order->fd_count > 1 ? order->fd_count - 1 : 0};
    _Static_assert(sizeof move.move >= sizeof move.extent && sizeof move.move >= sizeof move.stop, "largest");
    memcpy(&move.move, &order->move, sizeof move.move);
    flyt_move_order(session, &move, order->fds[0]);
    explicit_bzero(&move.move, sizeof move.move);
}

static void take_order(struct flyt_session *session, const struct flyt_manager_order *order)
{
    switch (order->kind) {
    case FLYT_MANAGER_LINK_GO_ON:
        if (!flyt_resume_let_go(session))
            take_move(session, order);
        break;
    case FLYT_MANAGER_LINK_MOVE:
    case FLYT_MANAGER_LINK_MIRROR:
    case FLYT_MANAGER_LINK_STOP:
    case FLYT_MANAGER_LINK_LAST:
    case FLYT_MANAGER_LINK_LOCKS_WANTED:
    case FLYT_MANAGER_LINK_LEAVE:
    case FLYT_MANAGER_LINK_TAKE_BACK:
        take_move(session, order);
        break;
    case FLYT_MANAGER_LINK_REJOIN: /* left by the watching thread: the link has ended */
        flyt_move_link_ended(session);
        flyt_resume_let_go(session); /* the next node manager takes it for one that goes on here */
        break;
    case FLYT_MANAGER_LINK_LIMIT:
        flyt_limit_take(session, &order->limit);
        break;
    case FLYT_MANAGER_LINK_SM:
        take_groups(session, &order->sm);
        break;
    case FLYT_MANAGER_LINK_SHARE:
        take_share(session, &order->share, order->fds, order->fd_count);
        break;
    case FLYT_MANAGER_LINK_EXTENT_CREDITED: {
        struct flyt_device *device = device_of_slot(session, order->extent.slot);
        if (device)
            flyt_account_take_credit(device, &order->extent);
        break;
    }
    case FLYT_MANAGER_LINK_NEED_DONE: {
        struct flyt_device *device = device_of_slot(session, order->need.slot);
        if (device)
            flyt_account_take_answer(device, order->need.number);
        break;
    }
    case FLYT_MANAGER_LINK_BROKERED:
        flyt_ipc_take_answer(session, &order->shared, order->fd_count ? order->fds[0] : -1);
        break;
    case FLYT_MANAGER_LINK_WELCOME:
        for (unsigned i = 0; i < session->device_count; i++)
            flyt_memory_tell_extents(&session->devices[i], order->welcome.send_extents);
        flyt_execution_tell(session);
        if (session->has_vm_memory)
            flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_VM_MEMORY, NULL, 0, NULL, session->vm_memory_fds,
                              FLYT_MANAGER_LINK_VM_MEMORY_FDS);
        if (session->locked_ledger) {
            const int fd = flyt_ledger_fd(session->locked_ledger);
            flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_LOCKED_LEDGER, NULL, 0, NULL, &fd, 1);
        }
        flyt_ipc_tell(session);
        break;
    case FLYT_MANAGER_LINK_KILL:
    case FLYT_MANAGER_LINK_GO:
        flyt_session_kill(session, *order->sentence ? order->sentence : "the session was ended by its node");
        break;
    case FLYT_MANAGER_LINK_USE: /* left by the watching thread: so much time has passed */
        for (unsigned i = 0; i < session->device_count; i++)
            flyt_memory_settle(&session->devices[i]);
        break;
    default:
        flyt_warn("session %s: the node manager says what is not for a server, kind=%u", session->label, order->kind);
    }
}

void flyt_orders_take(struct flyt_session *session)
{
    struct flyt_manager_order *order = session->manager ? flyt_manager_take_orders(session->manager) : NULL;
    while (order) {
        struct flyt_manager_order *next = order->next;
        take_order(session, order);
        flyt_manager_free_order(order);
        order = next;
    }
}

static bool rest(struct flyt_session *session, uint64_t idle_since_ns)
{
    if (!session->manager || !session->manager->limit_order_count)
        return false;
    return flyt_limit_answer(session, idle_since_ns ? flyt_clock_ns() - idle_since_ns : 0);
}

const struct flyt_part flyt_orders_part = {.kicked = flyt_orders_take, .rest = rest};
