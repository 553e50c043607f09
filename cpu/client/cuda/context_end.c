/* How contexts end: destroyed, released for the last time, or reset with their device. What belongs to them goes. */
#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/part.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/device_state.h"
#include "flyt_client_asks.h"

FLYT_ANSWER_CALL(device_reset)

CUresult flyt_context_destroy(CUcontext context)
{
    int device;
    unsigned peers;
    CUresult result = flyt_client_enter_release();
    if (!result && flyt_context_green((uint64_t)(uintptr_t)context))
        result = CUDA_ERROR_INVALID_CONTEXT; /* cuGreenCtxDestroy ends it */
    if (!result)
        result = flyt_context_take(context, &device, &peers);
    if (result)
        return result;
    FLYT_PARTS_TELL_DOWN(context_end, (uint64_t)(uintptr_t)context, true);
    result = flyt_device_peers_leave(device, peers);
    flyt_context_give_back(context);
    return result;
}

CUresult flyt_context_detach(CUcontext context)
{
    bool is_last = false;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_context_let_go(context, &is_last);
    return is_last ? flyt_context_destroy(context) : result;
}

CUresult flyt_primary_release(int device)
{
    bool is_last = false;
    CUresult result = flyt_client_enter_release();
    if (!result)
        result = flyt_device_check(device);
    if (!result)
        result = flyt_primary_let_go(device, &is_last);
    return is_last ? flyt_device_reset(device) : result;
}

/* ---- reset ---- */

/* With nothing but a primary context in the whole session, one call ends everything; else only what the primary
 * context owns may go, piece by piece. */
static CUresult reset_primary(int device, uint64_t context_id)
{
    bool is_alone = flyt_client.device_count == 1 && flyt_context_is_only_primary(device);
    /* First of all: no earlier call needs any more what the records are about to forget (restore.h). */
    CUresult result = flyt_ask_device_synchronize((unsigned)device);
    FLYT_PARTS_TELL_DOWN(before_reset, device, context_id);
    if (!is_alone) {
        FLYT_PARTS_TELL_DOWN(context_end, context_id, true);
        return result;
    }
    flyt_device_reset_args args = {.thread = flyt_thread_number(), .device = (unsigned)device};
    flyt_device_reset_res res = {0};
    int status = call_device_reset(&args, &res);
    result = flyt_client_reply(status, res.result, "device_reset");
    FLYT_PARTS_TELL_DOWN(context_end, context_id, false);
    FLYT_PARTS_TELL_DOWN(after_reset, device);
    flyt_answer_end();
    return result;
}

CUresult flyt_device_reset(int device)
{
    CUresult broken = flyt_client_enter_release();
    if (broken && !flyt_client_is_usable())
        return broken;
    CUresult result = flyt_device_check(device);
    if (result)
        return result;
    if (broken) {
        atomic_store(&flyt_client.fatal, CUDA_ERROR_DEVICE_UNAVAILABLE);
        return CUDA_SUCCESS;
    }
    uint64_t context_id = flyt_primary_context_id(device);
    if (!context_id)
        return CUDA_SUCCESS; /* nothing was ever made */
    result = reset_primary(device, context_id);
    CUresult forgotten = flyt_device_peers_leave(device, flyt_primary_take_peers(device));
    flyt_primary_deactivate(device);
    return result ? result : forgotten;
}
