/*
 * What is known about a kernel on one device, for the sources of this library: asked once, at the kernel's first launch
 * or question there.
 */
#ifndef FLYT_CLIENT_KERNEL_RECORD_H
#define FLYT_CLIENT_KERNEL_RECORD_H

#include <pthread.h>
#include "cpu/client/cuda/kernel.h"
#include "cpu/client/cuda/library.h"
#include "flyt.h"

struct flyt_device_info;

enum { FLYT_OCCUPANCY_KEPT = 16 };

struct flyt_occupancy {
    int block_threads;
    uint64_t dynamic_shared_bytes;
    unsigned flags;
    int block_count;
};

struct flyt_kernel_device {
    _Atomic bool is_known;         /* false again after a device reset, until it is asked anew */
    _Atomic int max_block_threads; /* CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK */
    _Atomic int max_dynamic_shared_bytes;
    uint64_t kernel_id;                         /* what the kernel is called on the wire there; set before is_known */
    const struct flyt_device_info *device_info; /* set before is_known */
    unsigned required_cluster[3];               /* __cluster_dims__; [0] is 0: none. Set before is_known */
    unsigned required_block[3];                 /* .reqntid; [0] is 0: none that is known. Set before is_known */
    pthread_mutex_t mutex;                      /* for what follows */
    int attributes[FLYT_KERNEL_ATTRIBUTES_MAX];
    unsigned attribute_count;
    uint64_t changed_attributes; /* bit per attribute that the program set: what makes it again */
    int cache_config;            /* likewise; -1: never set */
    struct flyt_occupancy occupancies[FLYT_OCCUPANCY_KEPT]; /* the latest answers, a ring */
    unsigned occupancy_count;
};

/* The kernel that a handle names, its library loaded (again, after a device reset). CUDA_ERROR_INVALID_HANDLE. */
CUresult flyt_kernel_get(CUfunction function, struct flyt_kernel **ret_kernel);
/* Its record for a device, made empty where there is none; NULL: no memory. */
struct flyt_kernel_device *flyt_kernel_record(struct flyt_kernel *kernel, int device);
/* Where all is known already, without asking; else NULL. */
static inline struct flyt_kernel_device *flyt_kernel_known(struct flyt_kernel *kernel, int device)
{
    struct flyt_kernel_device *known = atomic_load_explicit(&kernel->devices[device], memory_order_acquire);
    return known && atomic_load_explicit(&known->is_known, memory_order_acquire) ? known : NULL;
}
/* Frees what is known about a kernel; whether it was used on a device; forgets what was asked and set there. */
void flyt_kernel_fini(struct flyt_kernel *kernel);
bool flyt_kernel_is_used(const struct flyt_kernel *kernel, int device);
void flyt_kernel_forget(struct flyt_kernel *kernel, int device);

/* What is known about it on a device; asks where nothing is. */
CUresult flyt_kernel_device(struct flyt_kernel *kernel, int device, struct flyt_kernel_device **ret_info);
/* flyt_kernel_occupancy without entering. */
CUresult flyt_kernel_ask_occupancy(struct flyt_kernel *kernel, int device, int block_threads,
                                   uint64_t dynamic_shared_bytes, unsigned flags, int *ret_block_count);

/* launch.c, for its test: lays the values of `params` out as the kernel wants them; `buffer` has param_bytes of room
 * and is zeroed where no parameter is. Whether one may be a host address (host_param.h). */
bool flyt_kernel_pack(const struct flyt_kernel *kernel, void *const *params, void *buffer);
/* A launch as a node of a graph has it: checked, with the parameters copied; buffer and params are the taker's. */
struct flyt_launch_taken {
    uint64_t kernel_id; /* on the wire */
    int device;
    uint32_t param_bytes, param_count;
    char *buffer;                      /* param_bytes */
    void **params;                     /* into it, one for each */
    bool has_host;                     /* one may be a host address */
    flyt_launch_attribute *attributes; /* the taker's, too; NULL: none */
    unsigned attribute_count;
};
/* On the current context's device; `stream` of the launch does not count. What flyt_kernel_launch returns. */
CUresult flyt_launch_take(const struct flyt_launch *launch, struct flyt_launch_taken *ret_taken);
/* The event that the attribute names, which it has recorded; NULL: it names none. */
CUevent flyt_launch_event(const CUlaunchAttribute *attribute);
/* Attributes of a launch as they go over the wire. CUDA_ERROR_INVALID_VALUE: more than room. */
CUresult flyt_kernel_wire_attributes(const struct flyt_launch *launch, flyt_launch_attribute *ret_attributes);

#endif
