/*
 * The client's record of a library and of its kernels, for the sources of this library.
 *
 * A library is NEW (nothing sent), LOADED, or FAILED (a lazy one: the same error every time). After a device reset it
 * is NEW again and will be loaded under the same id, so that kernel ids stay good.
 */
#ifndef FLYT_CLIENT_LIBRARY_H
#define FLYT_CLIENT_LIBRARY_H

#include <pthread.h>
#include <stdbool.h>
#include "cpu/client/core/table.h"
#include "cpu/client/cuda/jit.h"
#include "cpu/client/cuda/module.h"
#include "rpc/base/fatbin.h"
#include "rpc/proto/limits.h"

struct flyt_kernel_param_place {
    uint32_t offset_bytes, bytes;
};

struct flyt_kernel_device; /* what was asked about a kernel on one device (kernel.c) */

struct flyt_kernel {
    uint64_t kernel_id;
    char *name;
    uint32_t param_count, param_bytes; /* bytes of the whole parameter buffer */
    struct flyt_kernel_param_place *params;
    struct flyt_kernel_device *_Atomic devices[FLYT_DEVICES_MAX];
    struct flyt_kernel_steps *steps; /* launch.c's; NULL: no launch in steps */
};

struct flyt_constant; /* what the host has written (constant.h) */

struct flyt_variable {
    struct flyt_variable *next;
    int device;
    uint64_t address;      /* by which copies by the variable's name have it; may be minted (constant.h) */
    uint64_t true_address; /* on the server; 0: nobody here has it */
    uint64_t bytes;
    bool is_told;                   /* the program has the true address */
    struct flyt_constant *constant; /* NULL: not kept. Under the lock of all libraries' variables, as are: */
    bool is_lost; /* no copy goes by its name any more; without `constant` the server knows, or was never to keep it */
    char name[];
};

enum flyt_library_state { FLYT_LIBRARY_NEW = 0, FLYT_LIBRARY_LOADED, FLYT_LIBRARY_FAILED };

/* What makes it again, kernels and variables stay when it is unloaded, until the slot is used again. */
struct flyt_library {
    struct flyt_record record; /* `created` is 1 from the first time that it is loaded on: the number is not known */
    pthread_mutex_t mutex;     /* loading and variables; held across calls */
    bool has_mutex;            /* it was initialised when the slot was first used, for ever */
    _Atomic int state;         /* enum flyt_library_state; LOADED is stored after kernels, with release */
    CUresult load_result;      /* of a FAILED one */
    bool is_module;            /* belongs to a context and goes with it */
    uint64_t context_id;       /* of a module, else 0 */
    const void *image;         /* what makes it again: the program's (lazy) or owned_image; NULL: it is gone */
    char *owned_image;
    struct flyt_fatbin_device image_target; /* that the image was chosen for */
    uint64_t load_number; /* in the order in which they were loaded: it is kept when they are loaded again */
    unsigned char image_hash[FLYT_HASH_BYTES];
    struct flyt_jit_numbers numbers; /* the options that are kept for loading it again */
    struct flyt_kernel *kernels;     /* by index; kept until the slot is used again */
    uint32_t kernel_count;
    uint32_t *by_name;               /* indices in the order of names */
    struct flyt_variable *variables; /* under the lock of all libraries' variables */
    /* By device: what is there instead, since a reset of that device while others went on; NULL: nothing. Never
     * published: programs know only this library and its kernels. */
    struct flyt_library *_Atomic own[FLYT_DEVICES_MAX];
};

/* NULL: unknown. */
struct flyt_library *flyt_library_find(uint64_t library_id);
/* The record of a kernel whose library is loaded, or that was loaded before a device reset: NULL is an unknown handle,
 * *ret_library (may be NULL) its library. Takes no lock. */
struct flyt_kernel *flyt_kernel_find(uint64_t kernel_id, struct flyt_library **ret_library);
/* Loads it where it is not; without entering. */
CUresult flyt_library_load_now(struct flyt_library *library);
/* flyt_module_load and flyt_module_unload without entering. CUDA_ERROR_NOT_PERMITTED: a library that is no module. */
CUresult flyt_library_load_module(const void *image, const struct flyt_jit_options *options, uint64_t context_id,
                                  uint64_t *ret_library_id);
CUresult flyt_library_unload_module(uint64_t library_id);
/* Unloads the modules of a context; is_on_server false: the server has done so already. */
void flyt_library_clear(uint64_t context_id, bool is_on_server);
/*
 * A device is about to be reset: its variables shall be new. A library that no other device uses is unloaded and NEW.
 * One that is in use elsewhere stays, because on the server a library is loaded for all devices; for this device it is
 * loaded once more, under an id of its own, when it is used there again. Modules of the context are unloaded.
 */
void flyt_library_before_reset(int device, uint64_t context_id);
/* Around reading or changing any library's variables. Never held across a call. */
void flyt_variables_lock(void);
void flyt_variables_unlock(void);
/* Has the node at the channel's end hold the library's image, and gives the hash under which it does: the best of those
 * in the program's image, or, of relocatable device code whose linked image does not suit, what its units make when
 * they are linked. `logs` is for the linker. */
CUresult flyt_library_send_image(struct flyt_channel *channel, const struct flyt_library *library,
                                 struct flyt_jit_logs *logs, unsigned char *ret_hash);
/* What a device has instead of the library (load it before use), or NULL: the library itself. */
struct flyt_library *flyt_library_on(const struct flyt_library *library, int device);
/* symbol.c: what a kernel is called on the wire on a device, its library loaded there. The errors of loading. */
CUresult flyt_library_kernel_on(const struct flyt_kernel *kernel, int device, uint64_t *ret_kernel_id);

/* As flyt_table_next_at, of libraries; what devices have instead of one included. */
struct flyt_library *flyt_library_next_at(uint64_t sequence, uint32_t *slot);
struct flyt_restore;
/* kernel.c: sets again what the program has set of a kernel. */
int flyt_kernel_restore(struct flyt_restore *restore, const struct flyt_kernel *kernel);

#endif
