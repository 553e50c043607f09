// Callbacks for notifications of a device: registering and unregistering them, and what is refused. Nothing lowers the
// limit of the memory here, so that none is called.
#include "check.h"

static void never(cudaAsyncNotificationInfo_t *info, void *user, cudaAsyncCallbackHandle_t handle)
{
    fail_at(__FILE__, __LINE__, "never", " a notification of type %d has come", (int)info->type);
}

int main(void)
{
    cudaAsyncCallbackHandle_t first, second, handle;
    int device_count;
    CHECK(cudaGetDeviceCount(&device_count));
    cudaError_t error = cudaDeviceRegisterAsyncNotification(0, never, NULL, &first);
    if (error == cudaErrorNotSupported) {
        puts("skip: the driver has no notifications");
        return 77;
    }
    CHECK(error);
    CHECK(cudaDeviceRegisterAsyncNotification(0, never, &first, &second));
    EXPECT(first != second, "each registration has a handle of its own");
    EXPECT_ERR(cudaDeviceRegisterAsyncNotification(0, NULL, NULL, &handle), cudaErrorInvalidValue);
    if (is_forwarded()) // natively the driver ends the process
        EXPECT_ERR(cudaDeviceRegisterAsyncNotification(0, never, NULL, NULL), cudaErrorInvalidValue);
    EXPECT_ERR(cudaDeviceRegisterAsyncNotification(device_count, never, NULL, &handle), cudaErrorInvalidDevice);
    EXPECT_ERR(cudaDeviceUnregisterAsyncNotification(0, NULL), cudaErrorInvalidValue);
    CHECK(cudaDeviceUnregisterAsyncNotification(0, first));
    void *memory;
    CHECK(cudaMalloc(&memory, 1 << 20));
    CHECK(cudaFree(memory));
    CHECK(cudaDeviceUnregisterAsyncNotification(0, second));
    return 0;
}
