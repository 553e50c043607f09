/*
 * What the engine's tests and its benchmark need around it: a piece of device memory, one module, launches with
 * parameters written out, and the text that kernels print. Not part of the software GPU.
 */
#ifndef FLYT_SOFTGPU_PTX_HARNESS_H
#define FLYT_SOFTGPU_PTX_HARNESS_H

#include "cpu/softgpu/ptx/ptx.h"

#include <pthread.h>

struct flyt_ptx_harness {
    struct flyt_ptx_pool *pool;
    struct flyt_ptx_module *module;
    struct flyt_ptx_memory memory;
    struct flyt_ptx_diag diag;     /* of the last load */
    struct flyt_ptx_counts counts; /* of the last launch */
    char *base;                    /* device memory; used from the start */
    uint64_t used_bytes;
    _Atomic uint8_t *mapped;
    pthread_mutex_t text_mutex;
    char text[1 << 16]; /* printed so far, NUL-terminated */
    size_t text_bytes;
    uint32_t dynamic_shared_bytes; /* of the next launches */
    bool is_cooperative;
    enum flyt_ptx_isa isa;           /* of the next modules */
    unsigned max_registers;          /* likewise */
    struct flyt_ptx_objects objects; /* of the next launches; the test's own */
};

enum { FLYT_PTX_HARNESS_BYTES = 64 << 20, FLYT_PTX_HARNESS_GRANULE = 4096, FLYT_PTX_HARNESS_UNITS_MAX = 4 };

/* Aborts when there is no memory. worker_count as in flyt_ptx_pool_new. */
void flyt_ptx_harness_init(struct flyt_ptx_harness *harness, unsigned worker_count);
void flyt_ptx_harness_fini(struct flyt_ptx_harness *harness);
/* Compiles for compute capability 9.0, replaces the module, and links it; the diagnosis is in harness->diag. */
CUresult flyt_ptx_harness_load(struct flyt_ptx_harness *harness, const char *text);
/* The same for units called unit0, unit1 …; not is_closed: only looks at them, there is no module afterwards. */
CUresult flyt_ptx_harness_join(struct flyt_ptx_harness *harness, unsigned unit_count, const char *const *texts,
                               bool is_closed);
/* flyt_ptx_harness_load with the text of a file. */
CUresult flyt_ptx_harness_load_file(struct flyt_ptx_harness *harness, const char *path);
/* Device memory, zeroed, aligned to 256 bytes; never freed. It is this process's memory too. */
void *flyt_ptx_harness_alloc(struct flyt_ptx_harness *harness, uint64_t bytes);
/* The place of a module variable; NULL: no such variable. */
void *flyt_ptx_harness_variable(struct flyt_ptx_harness *harness, const char *name);
/*
 * Runs a kernel with a one-dimensional grid and block and 64-bit parameters; where the kernel's parameter is narrower
 * the low bytes go. Aborts when there is no such kernel or the number of parameters is wrong.
 */
CUresult flyt_ptx_harness_run(struct flyt_ptx_harness *harness, const char *kernel, uint32_t grid, uint32_t block,
                              unsigned param_count, const uint64_t *params);

/*
 * Executes one instruction in `count` threads (at most 256): out[i] = instruction(a[i], b[i], c[i]). Each value is the
 * low bytes of 64 bits, the rest of out is zero. shape names destination and sources as "w=ww": h 16, w 32, d 64 bits,
 * f 32-bit and g 64-bit floats (other registers, same bits), p (destination only) a predicate, given as 0 or 1. Runs
 * twice, with all lanes and with a guard that only odd lanes meet, and aborts unless both agree and the guard held.
 * Returns what loading the instruction gave.
 */
CUresult flyt_ptx_harness_apply(struct flyt_ptx_harness *harness, const char *instruction, const char *shape,
                                unsigned count, const uint64_t *a, const uint64_t *b, const uint64_t *c, uint64_t *out);

/* flyt_ptx_harness_run with the parameters in the call. */
#define FLYT_PTX_RUN(harness, kernel, grid, block, ...)                                                                \
    flyt_ptx_harness_run(harness, kernel, grid, block, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t),           \
                         (const uint64_t[]){__VA_ARGS__})

#endif
