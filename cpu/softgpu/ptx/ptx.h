/*
 * The PTX engine: turns PTX text into a form that CPU cores execute, and executes kernels.
 *
 * It knows nothing of the CUDA driver API (softgpu's driver files are its only caller) and keeps no state between
 * modules: every function is safe to call from several threads on different objects; a module is immutable after
 * flyt_ptx_module_link and may then run any number of launches at once.
 *
 * Addresses of device memory are addresses of this process: the driver side maps every region at the address that
 * device code sees. What device code may touch is described by struct flyt_ptx_memory and checked at each access.
 */
#ifndef FLYT_SOFTGPU_PTX_H
#define FLYT_SOFTGPU_PTX_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/softgpu/ptx/partition.h"
#include "cpu/softgpu/ptx/texture.h"

/* What memory device code may touch: a few regions of equal-sized granules, one byte per granule. */
enum { FLYT_PTX_REGIONS_MAX = 20 };

struct flyt_ptx_region {
    uint64_t base;                 /* first address */
    uint64_t granule_count;        /* region length in granules */
    const _Atomic uint8_t *mapped; /* granule_count bytes: 0 not accessible, 1 readable, 3 readable and writable */
};

struct flyt_ptx_memory {
    unsigned granule_shift; /* log2 of a granule's bytes; at least 12 */
    unsigned region_count;  /* at most FLYT_PTX_REGIONS_MAX */
    struct flyt_ptx_region regions[FLYT_PTX_REGIONS_MAX];
};

/* The CPU's instructions that modules execute with: the x86-64 levels of the psABI; elsewhere BASE is all. */
enum flyt_ptx_isa { FLYT_PTX_ISA_BEST, FLYT_PTX_ISA_BASE, FLYT_PTX_ISA_V3, FLYT_PTX_ISA_V4 };

/* False: this processor lacks them, or the engine was not compiled for them. */
bool flyt_ptx_isa_is_here(enum flyt_ptx_isa isa);

/* What a module is compiled for. */
struct flyt_ptx_target {
    int major, minor;      /* compute capability, e.g. 9, 0: a .target above it is CUDA_ERROR_NO_BINARY_FOR_GPU */
    enum flyt_ptx_isa isa; /* BEST: the last one that is here. Another one, for tests, must be here */
    /* Registers that a thread may have at most (CU_JIT_MAX_REGISTERS); 0: no limit. As with a GPU's compiler, what a
     * kernel's own directives say goes before. */
    unsigned max_registers;
};

/* Why a module was refused: one line, e.g. "line 120: wgmma.fence.sync.aligned is not supported by the software GPU".
 */
struct flyt_ptx_diag {
    char text[512];
};

enum flyt_ptx_space { FLYT_PTX_GLOBAL, FLYT_PTX_CONST };

/* A module-scope .global or .const variable. */
struct flyt_ptx_variable {
    const char *name; /* owned by the module */
    enum flyt_ptx_space space;
    uint64_t bytes;      /* 0 for an unsized extern */
    uint32_t align;      /* power of two */
    bool is_managed;     /* carries .attribute(.managed) */
    bool is_visible;     /* .visible, .weak or .common: findable by name from the host */
    bool is_initialised; /* has contents of its own: else it is zeros */
};

enum { FLYT_PTX_PARAM_BYTES_MAX = 32764 };

/* A .entry. */
struct flyt_ptx_kernel {
    const char *name; /* owned by the module */
    uint32_t param_count;
    const uint32_t *param_offset; /* param_count byte offsets in the parameter buffer */
    const uint32_t *param_bytes;  /* param_count sizes */
    uint32_t params_bytes;        /* length of the whole parameter buffer */
    uint32_t static_shared_bytes;
    uint32_t local_bytes;         /* per thread */
    uint32_t const_bytes;         /* module's .const variables that it may use */
    uint32_t register_count;      /* per thread: an estimate in the range a GPU would report, 1–255 */
    uint32_t max_threads;         /* per block: .maxntid/.reqntid product, else 1024 */
    uint32_t required_block[3];   /* .reqntid, or zeros */
    uint32_t required_cluster[3]; /* .reqnctapercluster, or zeros */
    int ptx_version;              /* e.g. 90 for .version 9.0 */
    int target_version;           /* e.g. 75 for .target sm_75 */
};

struct flyt_ptx_module;

/*
 * Parses and compiles one PTX text. `text` need not be NUL-terminated and is not kept.
 * CUDA_SUCCESS and *ret_module (owned by the caller, flyt_ptx_module_free), or, with the reason in *diag:
 * CUDA_ERROR_INVALID_IMAGE (does not begin as PTX does), CUDA_ERROR_INVALID_PTX (an error in the text),
 * CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_NO_BINARY_FOR_GPU (target above `target`), CUDA_ERROR_NOT_SUPPORTED
 * (an instruction, register, directive or system function that exists and that the engine lacks; named),
 * CUDA_ERROR_OUT_OF_MEMORY. Never crashes on any input.
 */
CUresult flyt_ptx_module_new(const char *text, size_t text_bytes, const struct flyt_ptx_target *target,
                             struct flyt_ptx_diag *diag, struct flyt_ptx_module **ret_module);
/* One text of those that are joined. */
struct flyt_ptx_unit {
    const char *name; /* for diagnoses: "UNIT, line 3: …"; NULL is allowed */
    const char *text; /* text_bytes long; as of flyt_ptx_module_new */
    size_t text_bytes;
    unsigned max_registers; /* as the target's, which is for units that say 0 */
};

/*
 * As flyt_ptx_module_new for several units, each compiled by itself (`nvcc -rdc=true`): names that are .extern,
 * .visible, .weak or .common mean the same object in all units, others stay apart. Also CUDA_ERROR_UNKNOWN, as a GPU's
 * linker has it: a name is defined twice, or differently, or not at all. ret_module NULL: only looks whether the units
 * are sound and agree; what is missing may be in units that are still to come.
 */
CUresult flyt_ptx_module_join(const struct flyt_ptx_unit *units, unsigned unit_count,
                              const struct flyt_ptx_target *target, struct flyt_ptx_diag *diag,
                              struct flyt_ptx_module **ret_module);
/* NULL is allowed. No launch of the module may be running. Returns NULL. */
struct flyt_ptx_module *flyt_ptx_module_free(struct flyt_ptx_module *module);

unsigned flyt_ptx_module_variable_count(const struct flyt_ptx_module *module);
/* 0 ≤ index < count. The result lives as long as the module. */
const struct flyt_ptx_variable *flyt_ptx_module_variable(const struct flyt_ptx_module *module, unsigned index);
unsigned flyt_ptx_module_kernel_count(const struct flyt_ptx_module *module);
const struct flyt_ptx_kernel *flyt_ptx_module_kernel(const struct flyt_ptx_module *module, unsigned index);

/*
 * Gives every variable its address and writes its initial value there (addresses of other variables and of functions
 * in initialisers included). addresses: one per variable, in index order, aligned as asked, memory writable by this
 * process. To be called once, before the first launch. A context-independent library is linked once per device: each
 * device has a module of its own.
 */
CUresult flyt_ptx_module_link(struct flyt_ptx_module *module, const uint64_t *addresses, struct flyt_ptx_diag *diag);

/* Where device printf goes, and what failed assertions say (is_error): finished text, as the format and its arguments
 * made it. Called from worker threads. */
typedef void (*flyt_ptx_print_fn)(void *user, bool is_error, const char *text, size_t text_bytes);

/* The heap behind device malloc and free: addresses inside struct flyt_ptx_memory. Called from worker threads. */
typedef uint64_t (*flyt_ptx_heap_alloc_fn)(void *user, uint64_t bytes);
typedef void (*flyt_ptx_heap_free_fn)(void *user, uint64_t address);

/* Sets the condition of a graph's conditional nodes (cudaGraphSetConditional); false: there is no such handle. Called
 * from worker threads. */
typedef bool (*flyt_ptx_set_condition_fn)(void *user, uint64_t handle, uint32_t value);

/* Counters of one launch, for accounting; every field is a sum over all threads of the launch. */
struct flyt_ptx_counts {
    uint64_t thread_instructions;
    uint64_t warp_instructions;
    uint64_t blocks;
};

struct flyt_ptx_launch {
    const struct flyt_ptx_module *module;
    unsigned kernel_index;
    uint32_t grid[3], block[3];
    uint32_t cluster[3]; /* zeros or ones: no clusters */
    uint32_t dynamic_shared_bytes;
    const void *params;   /* kernel->params_bytes bytes; read until the launch ends */
    uint32_t stack_bytes; /* local memory per thread where recursion makes it unbounded; 0: 64 KiB. At most 512 KiB */
    bool is_cooperative;  /* all blocks must be co-resident: grid-wide barriers make progress */
    uint32_t sm_count;    /* %nsmid; blocks are spread over SMs 0 … sm_count-1 of the partition */
    /* At most as many blocks run at once as the partition has room for (of a cooperative launch, all at once); sm_count
     * must be its own. NULL: without such limits. */
    struct flyt_ptx_partition *partition;
    uint32_t blocks_per_sm; /* that fit on an SM which is empty; not 0 where there is a partition */
    const struct flyt_ptx_memory *memory;
    const struct flyt_ptx_objects *objects; /* textures and surfaces; NULL: none */
    uint64_t grid_workspace; /* device address for the cooperative grid barrier (%envreg1/2), 0 where none */
    flyt_ptx_print_fn print;
    flyt_ptx_heap_alloc_fn heap_alloc;
    flyt_ptx_heap_free_fn heap_free;
    flyt_ptx_set_condition_fn set_condition;
    void *user;                /* first argument of the four above */
    const atomic_bool *cancel; /* set by anyone: the launch stops soon, with CUDA_ERROR_LAUNCH_FAILED. May be NULL */
};

/*
 * A pool of worker threads that runs launches: blocks of all launches in flight share the workers.
 * worker_count: 0 takes the number of processors this process may use.
 */
struct flyt_ptx_pool;
CUresult flyt_ptx_pool_new(unsigned worker_count, struct flyt_ptx_pool **ret_pool);
/* Waits for launches in flight. NULL is allowed. Returns NULL. */
struct flyt_ptx_pool *flyt_ptx_pool_free(struct flyt_ptx_pool *pool);

/*
 * Runs one launch to its end; blocks the caller, which may be one of many. Launches of different callers overlap, and
 * a launch that spins for another launch's write makes progress (blocks are preempted).
 * CUDA_SUCCESS; CUDA_ERROR_ILLEGAL_ADDRESS (outside mapped memory, or a write to read-only),
 * CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_ASSERT, CUDA_ERROR_ILLEGAL_INSTRUCTION (trap), CUDA_ERROR_INVALID_PC,
 * CUDA_ERROR_LAUNCH_FAILED (cancelled, local stack overflow). Arguments that the driver checks beforehand (grid
 * and block limits, shared memory) are asserted here. *ret_counts is filled in every case; NULL is allowed.
 */
CUresult flyt_ptx_launch_run(struct flyt_ptx_pool *pool, const struct flyt_ptx_launch *launch,
                             struct flyt_ptx_counts *ret_counts);

#endif
