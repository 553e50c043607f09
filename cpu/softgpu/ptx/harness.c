#include "cpu/softgpu/ptx/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void check(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "ptx harness: %s\n", what);
        abort();
    }
}

void flyt_ptx_harness_init(struct flyt_ptx_harness *harness, unsigned worker_count)
{
    enum { GRANULES = FLYT_PTX_HARNESS_BYTES / FLYT_PTX_HARNESS_GRANULE };

    memset(harness, 0, sizeof *harness);
    harness->base = mmap(NULL, FLYT_PTX_HARNESS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    harness->mapped = malloc(GRANULES);
    check(harness->base != MAP_FAILED && harness->mapped, "out of memory");
    memset((void *)harness->mapped, 3, GRANULES);
    harness->memory.granule_shift = 12;
    harness->memory.region_count = 1;
    harness->memory.regions[0] =
        (struct flyt_ptx_region){(uint64_t)(uintptr_t)harness->base, GRANULES, harness->mapped};
    pthread_mutex_init(&harness->text_mutex, NULL);
    check(flyt_ptx_pool_new(worker_count, &harness->pool) == CUDA_SUCCESS, "no pool");
}

void flyt_ptx_harness_fini(struct flyt_ptx_harness *harness)
{
    flyt_ptx_pool_free(harness->pool);
    flyt_ptx_module_free(harness->module);
    munmap(harness->base, FLYT_PTX_HARNESS_BYTES);
    free((void *)harness->mapped);
    pthread_mutex_destroy(&harness->text_mutex);
}

void *flyt_ptx_harness_alloc(struct flyt_ptx_harness *harness, uint64_t bytes)
{
    void *memory = harness->base + harness->used_bytes;

    check(bytes <= FLYT_PTX_HARNESS_BYTES - harness->used_bytes - 256, "device memory is used up");
    harness->used_bytes = (harness->used_bytes + bytes + 255) & ~255ull;
    memset(memory, 0, bytes);
    return memory;
}

static uint64_t heap_alloc(void *user, uint64_t bytes)
{
    struct flyt_ptx_harness *harness = user;
    uint64_t address = 0;

    pthread_mutex_lock(&harness->text_mutex);
    if (bytes && bytes < FLYT_PTX_HARNESS_BYTES - harness->used_bytes - 256)
        address = (uint64_t)(uintptr_t)flyt_ptx_harness_alloc(harness, bytes);
    pthread_mutex_unlock(&harness->text_mutex);
    return address;
}

static void heap_free(void *user, uint64_t address)
{
    (void)user;
    (void)address;
}

static void print(void *user, bool is_error, const char *text, size_t text_bytes)
{
    struct flyt_ptx_harness *harness = user;

    pthread_mutex_lock(&harness->text_mutex);
    if (text_bytes < sizeof harness->text - harness->text_bytes) {
        memcpy(harness->text + harness->text_bytes, text, text_bytes);
        harness->text_bytes += text_bytes;
        harness->text[harness->text_bytes] = 0;
    }
    pthread_mutex_unlock(&harness->text_mutex);
}

static CUresult link_module(struct flyt_ptx_harness *harness)
{
    uint64_t *addresses;
    CUresult result;
    unsigned count;

    count = flyt_ptx_module_variable_count(harness->module);
    addresses = calloc(count + 1, sizeof *addresses);
    check(addresses, "out of memory");
    for (unsigned i = 0; i < count; i++)
        addresses[i] =
            (uint64_t)(uintptr_t)flyt_ptx_harness_alloc(harness, flyt_ptx_module_variable(harness->module, i)->bytes);
    result = flyt_ptx_module_link(harness->module, addresses, &harness->diag);
    free(addresses);
    return result;
}

CUresult flyt_ptx_harness_load(struct flyt_ptx_harness *harness, const char *text)
{
    const struct flyt_ptx_target target = {9, 0, harness->isa, harness->max_registers};
    CUresult result;

    harness->module = flyt_ptx_module_free(harness->module);
    result = flyt_ptx_module_new(text, strlen(text), &target, &harness->diag, &harness->module);
    return result == CUDA_SUCCESS ? link_module(harness) : result;
}

CUresult flyt_ptx_harness_join(struct flyt_ptx_harness *harness, unsigned unit_count, const char *const *texts,
                               bool is_closed)
{
    const struct flyt_ptx_target target = {9, 0, harness->isa, harness->max_registers};
    struct flyt_ptx_unit units[FLYT_PTX_HARNESS_UNITS_MAX];
    char names[FLYT_PTX_HARNESS_UNITS_MAX][16];
    CUresult result;

    check(unit_count <= FLYT_PTX_HARNESS_UNITS_MAX, "too many units");
    for (unsigned i = 0; i < unit_count; i++) {
        snprintf(names[i], sizeof names[i], "unit%u", i);
        units[i] = (struct flyt_ptx_unit){names[i], texts[i], strlen(texts[i]), 0};
    }
    harness->module = flyt_ptx_module_free(harness->module);
    result = flyt_ptx_module_join(units, unit_count, &target, &harness->diag, is_closed ? &harness->module : NULL);
    return result == CUDA_SUCCESS && is_closed ? link_module(harness) : result;
}

CUresult flyt_ptx_harness_load_file(struct flyt_ptx_harness *harness, const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text;
    long bytes;
    CUresult result;

    check(file && !fseek(file, 0, SEEK_END), "cannot open a PTX file");
    bytes = ftell(file);
    rewind(file);
    text = calloc(1, (size_t)bytes + 1);
    check(text && fread(text, 1, (size_t)bytes, file) == (size_t)bytes, "cannot read a PTX file");
    fclose(file);
    result = flyt_ptx_harness_load(harness, text);
    free(text);
    return result;
}

void *flyt_ptx_harness_variable(struct flyt_ptx_harness *harness, const char *name)
{
    uint64_t at = 0;

    for (unsigned i = flyt_ptx_module_variable_count(harness->module); i-- > 0;)
        if (!strcmp(flyt_ptx_module_variable(harness->module, i)->name, name)) {
            /* variables were the last allocations of the load: walk back over those behind this one */
            for (unsigned j = flyt_ptx_module_variable_count(harness->module); j-- > i;)
                at += (flyt_ptx_module_variable(harness->module, j)->bytes + 255) & ~255ull;
            return harness->base + harness->used_bytes - at;
        }
    return NULL;
}

static unsigned find_kernel(const struct flyt_ptx_harness *harness, const char *name)
{
    unsigned index = 0, count = flyt_ptx_module_kernel_count(harness->module);

    while (index < count && strcmp(flyt_ptx_module_kernel(harness->module, index)->name, name))
        index++;
    check(index < count, name);
    return index;
}

CUresult flyt_ptx_harness_run(struct flyt_ptx_harness *harness, const char *kernel_name, uint32_t grid, uint32_t block,
                              unsigned param_count, const uint64_t *params)
{
    char buffer[FLYT_PTX_PARAM_BYTES_MAX] = {0};
    struct flyt_ptx_launch launch = {
        .module = harness->module,
        .kernel_index = find_kernel(harness, kernel_name),
        .grid = {grid, 1, 1},
        .block = {block, 1, 1},
        .dynamic_shared_bytes = harness->dynamic_shared_bytes,
        .params = buffer,
        .is_cooperative = harness->is_cooperative,
        .sm_count = 16,
        .memory = &harness->memory,
        .objects = &harness->objects,
        .print = print,
        .heap_alloc = heap_alloc,
        .heap_free = heap_free,
        .user = harness,
    };
    const struct flyt_ptx_kernel *kernel = flyt_ptx_module_kernel(harness->module, launch.kernel_index);

    check(param_count == kernel->param_count, "wrong number of kernel parameters");
    for (unsigned i = 0; i < param_count; i++)
        memcpy(buffer + kernel->param_offset[i], &params[i], kernel->param_bytes[i] < 8 ? kernel->param_bytes[i] : 8);
    if (harness->is_cooperative)
        launch.grid_workspace = (uint64_t)(uintptr_t)flyt_ptx_harness_alloc(harness, 64);
    return flyt_ptx_launch_run(harness->pool, &launch, &harness->counts);
}

/* ---- single instructions ---- */

/* The type of ld and mov, and the register prefix, for a letter of a shape. */
static const char *type_of(char letter)
{
    return letter == 'h' ? "b16" : letter == 'w' ? "b32" : letter == 'd' ? "b64" : letter == 'f' ? "f32" : "f64";
}

/* Room for the kernel of one instruction. */
enum { KERNEL_BYTES = 8192 };

static void write_kernel(char *text, const char *instruction, const char *shape)
{
    size_t used = 0;
    unsigned sources = (unsigned)strlen(shape) - 2;

#define ADD(...) (used += (size_t)snprintf(text + used, KERNEL_BYTES - used, __VA_ARGS__))
    ADD(".version 8.5\n.target sm_90\n.address_size 64\n"
        ".visible .entry apply(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 out, .param .u32 guarded) {\n"
        ".reg .pred %%p<8>; .reg .b16 %%h<8>; .reg .b32 %%w<8>; .reg .b64 %%d<8>; .reg .f32 %%f<8>; .reg .f64 %%g<8>;\n"
        ".reg .b32 %%r<8>; .reg .b64 %%rd<8>;\n"
        "mov.u32 %%r1, %%tid.x; mul.wide.u32 %%rd5, %%r1, 8; and.b32 %%r2, %%r1, 1; ld.param.u32 %%r3, [guarded];\n"
        "setp.eq.u32 %%p1, %%r3, 0; setp.eq.u32 %%p2, %%r2, 1; or.pred %%p3, %%p1, %%p2; mov.u64 %%rd6, 0;\n");
    for (unsigned i = 0; i < sources; i++)
        ADD("ld.param.u64 %%rd%u, [%c]; add.s64 %%rd%u, %%rd%u, %%rd5; ld.global.%s %%%c%u, [%%rd%u];\n", i, "abc"[i],
            i, i, type_of(shape[i + 2]), shape[i + 2], i + 1, i);
    if (shape[0] != 'p')
        ADD("mov.%s %%%c0, %s;\n", type_of(shape[0]), shape[0],
            shape[0] == 'f'   ? "0f00000000"
            : shape[0] == 'g' ? "0d0000000000000000"
                              : "0");
    else
        ADD("setp.ne.u32 %%p0, %%r1, %%r1;\n");
    ADD("@%%p3 %s %%%c0", instruction, shape[0]);
    for (unsigned i = 0; i < sources; i++)
        ADD(", %%%c%u", shape[i + 2], i + 1);
    ADD(";\nld.param.u64 %%rd4, [out]; add.s64 %%rd4, %%rd4, %%rd5; st.global.u64 [%%rd4], %%rd6;\n");
    if (shape[0] == 'p')
        ADD("selp.u32 %%r4, 1, 0, %%p0; st.global.u32 [%%rd4], %%r4;\n");
    else
        ADD("st.global.%s [%%rd4], %%%c0;\n", type_of(shape[0]), shape[0]);
    ADD("ret; }\n");
#undef ADD
}

CUresult flyt_ptx_harness_apply(struct flyt_ptx_harness *harness, const char *instruction, const char *shape,
                                unsigned count, const uint64_t *a, const uint64_t *b, const uint64_t *c, uint64_t *out)
{
    char text[KERNEL_BYTES];
    uint64_t used_bytes = harness->used_bytes;
    uint64_t *places[4];
    const uint64_t *inputs[3] = {a, b, c};
    CUresult result;

    write_kernel(text, instruction, shape);
    result = flyt_ptx_harness_load(harness, text);
    if (result != CUDA_SUCCESS)
        return result;
    check(count <= 256, "too many threads");
    for (unsigned i = 0; i < 4; i++) {
        places[i] = flyt_ptx_harness_alloc(harness, 256 * 8);
        if (i < 3 && inputs[i])
            memcpy(places[i], inputs[i], count * 8);
    }
    for (uint64_t guarded = 0; guarded < 2; guarded++) {
        result =
            FLYT_PTX_RUN(harness, "apply", 1, count, (uint64_t)(uintptr_t)places[0], (uint64_t)(uintptr_t)places[1],
                         (uint64_t)(uintptr_t)places[2], (uint64_t)(uintptr_t)places[3], guarded);
        check(result == CUDA_SUCCESS, "a single instruction faulted");
        for (unsigned i = 0; guarded && i < count; i++)
            check(places[3][i] == (i & 1 ? out[i] : 0), "a guard made a difference");
        if (!guarded)
            memcpy(out, places[3], count * 8);
    }
    harness->used_bytes = used_bytes;
    return CUDA_SUCCESS;
}
