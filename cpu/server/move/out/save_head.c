#include "cpu/server/move/out/save_head.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include "cpu/image/writer.h"
#include "cpu/server/core/session.h"
#include "flyt.h"
#include "flyt_signatures.h"
#include "rpc/base/build_name.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

int flyt_save_head(struct flyt_session *session, struct flyt_save_head *ret_head, struct flyt_error *err)
{
    const struct flyt_driver *driver = session->driver;
    CUdevice cu_device = session->devices[0].cu_device;
    int major = 0, minor = 0;
    struct timespec now;
    *ret_head = (struct flyt_save_head){.head = {.build = (char *)flyt_build_name,
                                                 .program_name = session->client_name,
                                                 .pid = (u_int)session->client_pid,
                                                 .session_id = session->session_id,
                                                 .vm = (char *)"",
                                                 .gpu_type = ret_head->gpu_type,
                                                 .driver_version = (u_int)session->driver_version,
                                                 .sm_count = session->devices[0].partition->sm_count}};
    flyt_checkpoint_head *head = &ret_head->head;
    clock_gettime(CLOCK_REALTIME, &now);
    head->created_ms = (u_quad_t)now.tv_sec * 1000 + (u_quad_t)now.tv_nsec / 1000000;
    if (getrandom(head->id, sizeof head->id, 0) != (ssize_t)sizeof head->id)
        return flyt_error_set(err, -errno, "no random bytes: %m");
    memcpy(head->base_hash, flyt_base_hash, sizeof head->base_hash);
    if (driver->cuDeviceGetName(ret_head->gpu_type, sizeof ret_head->gpu_type, cu_device) != CUDA_SUCCESS ||
        driver->cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, cu_device) != CUDA_SUCCESS ||
        driver->cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, cu_device) != CUDA_SUCCESS)
        return flyt_error_set(err, -EIO, "the driver does not describe the GPU");
    head->compute_major = (u_int)major;
    head->compute_minor = (u_int)minor;
    for (unsigned i = 0; session->manager && i < session->device_count; i++)
        ret_head->memory_limits[i] = session->manager->granted.slots[session->devices[i].slot].memory_bytes;
    return 0;
}
