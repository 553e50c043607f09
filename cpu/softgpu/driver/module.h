/*
 * Modules, libraries and the functions in them.
 *
 * A library is one image, kept as PTX; it is compiled and linked once for each device that uses it, because a
 * module's variables have an address of their own on each. A CUmodule is one image on one device: loaded by itself, or
 * a library's. A CUfunction is a kernel of a module, a CUkernel a kernel of a library; launches take both.
 */
#ifndef FLYT_SOFTGPU_DRIVER_MODULE_H
#define FLYT_SOFTGPU_DRIVER_MODULE_H

#include <cuda.h>
#include <stdatomic.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/elf.h"

struct CUfunc_st {
    enum flyt_soft_kind kind;
    struct CUmod_st *module;
    struct CUkern_st *kernel; /* NULL where the module is no library's */
    unsigned index;           /* in the module */
    const struct flyt_ptx_kernel *info;
    /* Attributes that can be set. */
    _Atomic int max_dynamic_shared_bytes;
    _Atomic int carveout_pct;
    _Atomic int nonportable_cluster;
    _Atomic int cluster_policy;
};

struct CUmod_st {
    enum flyt_soft_kind kind;
    atomic_uint refs; /* one of its owner, one per launch that has not ended */
    struct flyt_soft_device *device;
    struct flyt_ptx_module *ptx;
    uint64_t block;      /* address of its code and variables */
    uint64_t *addresses; /* of each variable */
    bool is_of_library;  /* goes with its library */
    unsigned function_count;
    struct CUfunc_st *functions;
};

struct CUkern_st {
    enum flyt_soft_kind kind;
    struct CUlib_st *library;
    unsigned index;
    const char *name; /* of the library's first module */
};

/* What is in a program's image: the text, and of machine code (elf.h) what its sections say. */
struct flyt_soft_image {
    char *ptx; /* owned */
    size_t ptx_bytes;
    unsigned max_registers; /* that whoever loads it asks for; 0: nothing. Machine code is made already */
    bool has_layout;
    struct flyt_soft_layout layout; /* sizes of sections alone */
};

struct CUlib_st {
    enum flyt_soft_kind kind;
    struct flyt_soft_image image;
    pthread_mutex_t mutex;                           /* covers `modules` */
    struct CUmod_st *modules[FLYT_SOFT_DEVICES_MAX]; /* made at first use */
    unsigned kernel_count;
    struct CUkern_st *kernels;
};

/* Where the caller of a load or a link wants its logs: the JIT options' buffers, and where their lengths go. */
struct flyt_soft_log {
    struct flyt_soft_log_part {
        char *text;        /* NULL: not asked for */
        size_t room_bytes; /* of text */
        void **size_value; /* gets the length without the NUL */
    } error, info;
};

/* The arrays may be NULL; `values` and
 * the buffers must live as long as the log. */
void flyt_soft_log_init(struct flyt_soft_log *log, CUjit_option *options, void **values, unsigned option_count);
/* Writes the diagnosis, which may be empty. */
void flyt_soft_log_write(const struct flyt_soft_log *log, const struct flyt_ptx_diag *diag);

/* The value of CU_JIT_MAX_REGISTERS among the options; 0: there is none. All others but this one and the logs are hints
 * to a compiler that the software GPU does not have. The arrays may be NULL. */
unsigned flyt_soft_max_registers(const CUjit_option *options, void *const *values, unsigned option_count);

/* Compiles what flyt_soft_image_read gave: one PTX text, or a linked image of several
 * (link.c). The results of flyt_ptx_module_new and flyt_ptx_module_join. */
CUresult flyt_soft_units_compile(const char *ptx, size_t ptx_bytes, const struct flyt_ptx_target *target,
                                 struct flyt_ptx_diag *diag, struct flyt_ptx_module **ret_module);

/*
 * Finds the PTX in an image: PTX text (NUL-terminated), a linked image (elf.h), a fat binary, or its wrapper.
 * ret_image->ptx belongs to the caller (free). CUDA_ERROR_INVALID_VALUE (NULL), CUDA_ERROR_INVALID_IMAGE (none of
 * these, or corrupt), CUDA_ERROR_NO_BINARY_FOR_GPU (a GPU's machine code only, or PTX for newer devices only),
 * CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult flyt_soft_image_read(const void *image, const struct flyt_soft_arch *arch, struct flyt_soft_image *ret_image);

/* The same of a fat binary's container, of which `room_bytes` can be read (FLYT_FATBIN_BYTES_UNKNOWN: as many as it
 * says). */
CUresult flyt_soft_fatbin_read(const void *container, size_t room_bytes, const struct flyt_soft_arch *arch,
                               char **ret_ptx, size_t *ret_ptx_bytes);

/* A launch's hold on the module. */
void flyt_soft_module_ref(struct CUmod_st *module);
void flyt_soft_module_unref(struct CUmod_st *module);

/* The library's module on a device, made if need be. The errors of loading a module. *ret_module is borrowed. */
CUresult flyt_soft_library_module(struct CUlib_st *library, struct flyt_soft_device *device,
                                  struct CUmod_st **ret_module);

/* The function behind a CUfunction, or behind a CUkernel passed as one, on a device. CUDA_ERROR_INVALID_HANDLE. */
CUresult flyt_soft_function_find(CUfunction handle, struct flyt_soft_device *device, struct CUfunc_st **ret_function);

/* Most dynamic shared memory that the function's device can give it beside its static one. */
unsigned flyt_soft_function_shared_room(const struct CUfunc_st *function);

/* How many of the function's blocks fit on one SM together; 0: not even one. */
unsigned flyt_soft_occupancy(const struct CUfunc_st *function, unsigned block_threads, uint64_t dynamic_shared_bytes);

#endif
