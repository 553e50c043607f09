#include "cpu/server/test/fake_soft.h"

#define X(name) .name = name,
const struct flyt_driver fake_soft_driver = {FLYT_DRIVER_FUNCTIONS(X).is_soft = true};
const struct flyt_driver fake_soft_gpu_driver = {FLYT_DRIVER_FUNCTIONS(X).is_soft = false};
#undef X

CUstream fake_soft_begin(void)
{
    CUcontext context;
    CUstream stream;

    assert_ok(cuInit(0));
    assert_ok(cuDevicePrimaryCtxRetain(&context, 0));
    assert_ok(cuCtxSetCurrent(context));
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}
