#include "cpu/server/core/device.h"
#include "cpu/server/core/session.h"

CUresult flyt_device_use(struct flyt_device *device)
{
    struct flyt_session *session = device->session;
    if (session->current_device == device)
        return CUDA_SUCCESS;
    CUresult result = session->driver->cuCtxSetCurrent(device->partition->cu_context);
    if (result == CUDA_SUCCESS)
        session->current_device = device;
    return result;
}
