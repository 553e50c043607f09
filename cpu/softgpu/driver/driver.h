/*
 * The software GPU's driver: what its files share.
 *
 * libflyt-softgpu.so exports functions of the CUDA driver API under their own names; this header is internal to it.
 * One instance (struct flyt_soft_driver) is made by cuInit and lives until the process ends. Each device has one
 * address map, one set of limits and one sticky error, whatever number of contexts it has.
 *
 * Locks, in the order in which they may be taken: driver->mutex (objects, address map, modules), a pool's mutex
 * (memory.h), a device's list of contexts, the queue's mutex (queue.h), a device's print mutexes, the
 * accounts' mutex (account.c), the engine's own. None is held while work of a stream runs.
 */
#ifndef FLYT_SOFTGPU_DRIVER_H
#define FLYT_SOFTGPU_DRIVER_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/softgpu/driver/coredump.h"
#include "cpu/softgpu/driver/handle.h"
#include "cpu/softgpu/driver/memory.h"
#include "cpu/softgpu/driver/texture.h"
#include "cpu/softgpu/ptx/ptx.h"

/* Marks an entry point of the driver API. */
#define FLYT_SOFT_API __attribute__((visibility("default"))) CUresult CUDAAPI

enum {
    FLYT_SOFT_DRIVER_VERSION = 13000,
    FLYT_SOFT_DEVICES_MAX = 16,
    FLYT_SOFT_SMS_MAX = 512,
    FLYT_SOFT_CLIENT_SLOTS_MAX = 4096,
    FLYT_SOFT_CONTEXT_DEPTH_MAX = 64,          /* contexts pushed on one thread */
    FLYT_SOFT_PRIORITY_GREATEST = -5,          /* stream priorities run from 0 to this */
    FLYT_SOFT_ACCESS_WINDOW_BYTES = 128 << 20, /* of an access policy; it changes nothing */
    FLYT_SOFT_LEFTOVER = 0xd1,                 /* every byte of dirty memory */
};

/* A set of a device's SMs, one bit each. */
struct flyt_soft_sms {
    uint64_t bits[FLYT_SOFT_SMS_MAX / 64];
};

/* The limits of a compute capability that launches and occupancy are checked against. */
struct flyt_soft_arch {
    int major, minor;
    unsigned threads_per_sm;
    unsigned blocks_per_sm;
    unsigned shared_per_sm_bytes;
    unsigned shared_optin_bytes;    /* most that one block can have */
    unsigned shared_reserved_bytes; /* taken by the system in every block */
    unsigned sm_group_min;          /* smallest group of a split with default flags */
};

enum {
    FLYT_SOFT_WARP_THREADS = 32,
    FLYT_SOFT_BLOCK_THREADS_MAX = 1024,
    FLYT_SOFT_SHARED_DEFAULT_BYTES = 48 * 1024, /* what a block gets without asking */
    FLYT_SOFT_REGISTERS_PER_SM = 65536,
};

/* Text of device printf that has not been written to the standard output yet. */
struct flyt_soft_print {
    pthread_mutex_t write_mutex; /* held while writing, so that text comes out in order; taken before `mutex` */
    pthread_mutex_t mutex;       /* covers the rest */
    char *text;
    size_t text_bytes;
    size_t room_bytes;
};

struct flyt_soft_device {
    int index;
    unsigned sm_count;
    uint32_t sm_loads[FLYT_SOFT_SMS_MAX]; /* what runs on each: of ptx/partition.h */
    struct flyt_soft_arch arch;
    CUuuid uuid;
    struct flyt_soft_map map; /* address map and memory accounting */
    struct CUctx_st *primary; /* NULL while not retained */
    unsigned primary_refs;
    unsigned primary_flags;
    size_t limits[CU_LIMIT_MAX];
    pthread_mutex_t contexts_mutex; /* covers `contexts`, and the last reference of each */
    struct CUctx_st *contexts;      /* all that are referenced, linked by next_in_device */
    _Atomic CUresult sticky;        /* first error that broke the device's contexts, for ever */
    atomic_bool cancel;             /* set together with it: running launches stop */
    atomic_bool is_dumped;          /* a core dump was made of it (coredump.h), or is being made */
    struct flyt_soft_print print;
    struct flyt_soft_textures textures;
    atomic_bool has_launched; /* the heap's size is fixed from then on */
    pthread_mutex_t conditions_mutex;
    struct flyt_soft_condition *conditions; /* all of them (condition.h) */
};

struct flyt_soft_driver {
    pthread_mutex_t mutex;
    unsigned device_count;
    struct flyt_soft_device devices[FLYT_SOFT_DEVICES_MAX];
    struct flyt_soft_space space;       /* reservations and mappings, common to all devices */
    struct flyt_soft_queue *queue;      /* executes streams */
    struct flyt_ptx_pool *pool;         /* executes kernels */
    struct CUdevResourceDesc_st *descs; /* list of all that were made */
    pthread_key_t thread_key;           /* struct thread_state of context.c */
    _Atomic uint64_t next_id;           /* of contexts, streams, buffers */
    _Atomic uint64_t next_split;        /* number of calls that split SMs */
    uint64_t sm_rate;                   /* thread-instructions per second and SM; 0: unlimited */
    bool has_green;                     /* green contexts */
    bool is_dirty;                      /* new extents hold what somebody may have left there */
    unsigned dump_ms;                   /* that writing a core dump takes at least */
    struct flyt_soft_faults *faults;    /* NULL: faults stay in the process */
    struct flyt_soft_clients *clients;  /* NULL: any number of processes may use the GPU */
    struct flyt_soft_accounts *accounts;
};

struct CUctx_st {
    enum flyt_soft_kind kind;
    atomic_uint refs; /* one of its owner, one per stream, event wait and thread that has it current */
    struct flyt_soft_device *device;
    struct CUctx_st *next_in_device;
    struct CUgreenCtx_st *green; /* NULL: not of a green context, or it has been destroyed */
    bool is_green;               /* made for a green context: its streams may outlive it */
    unsigned flags;
    struct flyt_soft_coredump coredump;
    unsigned sm_count; /* that its streams run on */
    struct flyt_ptx_partition *partition;
    _Atomic uint64_t work_count; /* of libraries (work.h), that was begun */
    uint64_t id;
    atomic_bool is_dead;            /* destroyed; still referenced */
    struct CUstream_st *streams;    /* list, under the queue's mutex */
    struct CUstream_st *legacy;     /* made at first use, likewise */
    struct CUstream_st *per_thread; /* handle 2; one for all threads of the context */
};

/* The instance, or NULL before a successful cuInit. */
struct flyt_soft_driver *flyt_soft_driver(void);
/* cuInit has made it. Once. */
void flyt_soft_driver_set(struct flyt_soft_driver *driver);

/* Prepares what each thread keeps. 0 or -ENOMEM. */
int flyt_soft_threads_init(struct flyt_soft_driver *driver);

/* A new id, unique in the process. */
uint64_t flyt_soft_id_new(void);

/*
 * What nearly every entry point begins with: the calling thread's current context.
 * CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_INVALID_CONTEXT (none current), CUDA_ERROR_CONTEXT_IS_DESTROYED, or the
 * device's sticky error. *ret_ctx is borrowed: the thread's own stack of contexts holds it.
 */
CUresult flyt_soft_enter(struct CUctx_st **ret_ctx);

/*
 * As flyt_soft_enter, but with the sticky error ignored: for calls that a GPU still answers after a fault, and for
 * those that free something, which do so in any case and return what flyt_soft_leave makes of it.
 */
CUresult flyt_soft_enter_broken(struct CUctx_st **ret_ctx);
/* `r`, or the device's sticky error where that is success. */
CUresult flyt_soft_leave(const struct CUctx_st *ctx, CUresult r);

/* The device of an ordinal. CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_INVALID_DEVICE. */
CUresult flyt_soft_device_find(CUdevice ordinal, struct flyt_soft_device **ret_device);

/* Whether the device decompresses, as GPUs do from compute capability 10.0 on; and of one operation, the most bytes on
 * either side. */
static inline bool flyt_soft_decompresses(const struct flyt_soft_device *device)
{
    return device->arch.major >= 10;
}
enum { FLYT_SOFT_DECOMPRESS_BYTES_MAX = 4 << 20 };

/* Fills in what belongs to a compute capability. False: one that the software GPU does not know. */
bool flyt_soft_arch_find(int major, int minor, struct flyt_soft_arch *ret_arch);

/* Makes `error` the device's sticky error, unless it has one, and cancels what runs. Whether it had none. */
bool flyt_soft_device_break(struct flyt_soft_device *device, CUresult error);

/* A context of the device with one reference; NULL where memory is out. green may be NULL. sms: those that its streams
 * run on, at least one; NULL: all. */
struct CUctx_st *flyt_soft_context_new(struct flyt_soft_device *device, struct CUgreenCtx_st *green, unsigned flags,
                                       const struct flyt_soft_sms *sms);
void flyt_soft_context_ref(struct CUctx_st *ctx);
/* Frees it with the last reference. NULL is allowed. */
void flyt_soft_context_unref(struct CUctx_st *ctx);
/* Marks a context destroyed, after its streams have run empty, and gives up its owner's reference. */
void flyt_soft_context_retire(struct CUctx_st *ctx);

/*
 * Limits the number of processes that have contexts to slot_count of those that name the same folder, which must exist.
 * 0 or a negative code.
 */
int flyt_soft_clients_new(const char *folder, unsigned slot_count, struct flyt_soft_clients **ret_clients);
/* To be asked before a context is made: whether this process has a slot, which it then keeps until it ends.
 * CUDA_ERROR_MPS_MAX_CLIENTS_REACHED: all are taken. clients may be NULL. */
CUresult flyt_soft_client_admit(struct flyt_soft_clients *clients);

/*
 * Lets faults of this process's devices end the contexts of all processes that name the same folder, which must exist,
 * and theirs those of this one. folder NULL: faults stay at home, *ret_faults is NULL. 0 or a negative code.
 */
int flyt_soft_faults_new(struct flyt_soft_driver *driver, const char *folder, struct flyt_soft_faults **ret_faults);
/* The device was broken by this process's own work. faults may be NULL. */
void flyt_soft_fault_tell(struct flyt_soft_faults *faults, const struct flyt_soft_device *device, CUresult error);

/* What account.h promises. folder: where this process's file goes; NULL: no file. 0 or a negative code. */
int flyt_soft_accounts_new(const char *folder, struct flyt_soft_accounts **ret_accounts);
/* A context begins and ends. */
void flyt_soft_account_open(const struct CUctx_st *ctx);
void flyt_soft_account_close(const struct CUctx_st *ctx);
/* The context's line in the file shall say what it has used until now. */
void flyt_soft_account_write(const struct CUctx_st *ctx);

/* Waits until every stream of every context of the device has done what it had when called. */
void flyt_soft_device_drain(struct flyt_soft_device *device);

/* Counts one user of a device's primary context, making it if there is none. */
CUresult flyt_soft_primary_retain(struct flyt_soft_device *device, struct CUctx_st **ret_ctx);
/* CUDA_ERROR_INVALID_CONTEXT where there is none. */
CUresult flyt_soft_primary_release(struct flyt_soft_device *device);

/* Device printf: keeps text / writes everything kept to the process's standard output. From any thread. */
void flyt_soft_print_add(struct flyt_soft_device *device, const char *text, size_t text_bytes);
void flyt_soft_print_flush(struct flyt_soft_device *device);
/* What a failed assertion says: written to the process's standard error at once, as the work ends there. */
void flyt_soft_print_error(const char *text, size_t text_bytes);

#endif
