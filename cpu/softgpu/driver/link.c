/*
 * Linking of units that were compiled apart (`nvcc -rdc=true`): cuLink*.
 *
 * A linked image is machine code of the software GPU (elf.h), whose text is the units' PTX, each behind a
 * comment line that tells its length, its limit of registers and its name. A device's module is joined from it when it
 * is loaded (ptx/join.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cpu/softgpu/driver/module.h"

enum { UNITS_MAX = 65536, UNIT_BYTES_MAX = 1 << 30, NAME_BYTES_MAX = 256 };

/* As a string, so that looking for it never reads past the end of a short text. */
static const char unit_mark[] = "//flyt-unit ";

static const char empty_text[] = ".version 7.0\n.target sm_75\n.address_size 64\n";

struct unit {
    char *text, *name;
    size_t text_bytes;
    unsigned max_registers; /* CU_JIT_MAX_REGISTERS; 0: no limit */
};

struct CUlinkState_st {
    enum flyt_soft_kind kind;
    struct flyt_soft_arch arch;
    struct flyt_soft_log log;
    unsigned max_registers; /* of units that say nothing themselves */
    struct unit *units;
    unsigned unit_count;
    CUresult broken; /* units contradict each other: what cuLinkComplete will say */
    char *image;     /* set by cuLinkComplete */
    size_t image_bytes;
};

/* ---- the text of linked images ---- */

/* One unit behind its mark; *text is moved on to the next one's. False: the image is damaged. `name` is cut off in
 * place. */
static bool next_unit(char **text, const char *end, struct flyt_ptx_unit *ret_unit)
{
    char *line_end = memchr(*text, '\n', (size_t)(end - *text)), *at;
    unsigned long long bytes, max_registers;

    if (!line_end || strncmp(*text, unit_mark, sizeof(unit_mark) - 1))
        return false;
    *line_end = 0;
    bytes = strtoull(*text + sizeof(unit_mark) - 1, &at, 10);
    if (*at != ' ' || bytes > (size_t)(end - line_end - 1))
        return false;
    max_registers = strtoull(at + 1, &at, 10);
    if (*at != ' ' || max_registers > UINT32_MAX)
        return false;
    *ret_unit = (struct flyt_ptx_unit){at + 1, line_end + 1, bytes, (unsigned)max_registers};
    *text = line_end + 1 + bytes;
    return true;
}

CUresult flyt_soft_units_compile(const char *ptx, size_t ptx_bytes, const struct flyt_ptx_target *target,
                                 struct flyt_ptx_diag *diag, struct flyt_ptx_module **ret_module)
{
    struct flyt_ptx_unit *units = NULL;
    unsigned count = 0, room = 0;
    CUresult r = CUDA_SUCCESS;
    char *copy, *at;

    if (strncmp(ptx, unit_mark, sizeof(unit_mark) - 1))
        return flyt_ptx_module_new(ptx, ptx_bytes, target, diag, ret_module);
    copy = strndup(ptx, ptx_bytes);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    ptx_bytes = strlen(copy);
    for (at = copy; at < copy + ptx_bytes && r == CUDA_SUCCESS; count++) {
        if (count == room) {
            struct flyt_ptx_unit *grown = reallocarray(units, room = room ? 2 * room : 16, sizeof(*units));

            if (!grown) {
                r = CUDA_ERROR_OUT_OF_MEMORY;
                break;
            }
            units = grown;
        }
        if (!next_unit(&at, copy + ptx_bytes, &units[count]))
            r = CUDA_ERROR_INVALID_IMAGE;
    }
    if (r == CUDA_SUCCESS)
        r = flyt_ptx_module_join(units, count, target, diag, ret_module);
    free(units);
    free(copy);
    return r;
}

static CUresult image_make(struct CUlinkState_st *state, const struct flyt_ptx_module *module)
{
    size_t room = 1, used = 0;
    char *text;
    CUresult r;

    for (unsigned i = 0; i < state->unit_count; i++)
        room += sizeof(unit_mark) + 40 + strlen(state->units[i].name) + state->units[i].text_bytes;
    text = malloc(room);
    if (!text)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < state->unit_count; i++) {
        const struct unit *unit = &state->units[i];

        used +=
            (size_t)sprintf(text + used, "%s%zu %u %s\n", unit_mark, unit->text_bytes, unit->max_registers, unit->name);
        memcpy(text + used, unit->text, unit->text_bytes);
        used += unit->text_bytes;
    }
    r = flyt_soft_elf_make(module, text, used, &state->image, &state->image_bytes);
    free(text);
    return r;
}

/* ---- units ---- */

static void unit_fini(struct unit *unit)
{
    free(unit->text);
    free(unit->name);
}

/* The name in messages: without what would end the mark's line, and not longer than anybody reads. */
static char *name_copy(const char *name)
{
    char *copy = strndup(name && *name ? name : "<unnamed>", NAME_BYTES_MAX);

    for (char *at = copy; at && *at; at++)
        if ((unsigned char)*at < ' ')
            *at = '?';
    return copy;
}

static CUresult unit_read(const struct CUlinkState_st *state, CUjitInputType type, const void *data, size_t bytes,
                          struct unit *ret_unit, struct flyt_ptx_diag *diag)
{
    switch (type) {
    case CU_JIT_INPUT_PTX:
        ret_unit->text_bytes = strnlen(data, bytes);
        ret_unit->text = strndup(data, ret_unit->text_bytes);
        return ret_unit->text ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    case CU_JIT_INPUT_FATBINARY:
        if (bytes < sizeof(uint64_t))
            return CUDA_ERROR_INVALID_IMAGE;
        return flyt_soft_fatbin_read(data, bytes, &state->arch, &ret_unit->text, &ret_unit->text_bytes);
    case CU_JIT_INPUT_CUBIN:
        if (bytes < 4 || memcmp(data, "\177ELF", 4))
            return CUDA_ERROR_INVALID_IMAGE;
        snprintf(diag->text, sizeof(diag->text), "machine code cannot be linked by the software GPU");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    case CU_JIT_INPUT_OBJECT:
    case CU_JIT_INPUT_LIBRARY:
    case CU_JIT_INPUT_NVVM:
        snprintf(diag->text, sizeof(diag->text), "the software GPU links PTX and fat binaries with PTX only");
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Joins the units there are: looks only where ret_module is NULL. */
static CUresult units_join(const struct CUlinkState_st *state, struct flyt_ptx_diag *diag,
                           struct flyt_ptx_module **ret_module)
{
    struct flyt_ptx_target target = {.major = state->arch.major, .minor = state->arch.minor};
    struct flyt_ptx_unit *units = calloc(state->unit_count + 1, sizeof(*units));
    CUresult r;

    if (!units)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < state->unit_count; i++)
        units[i] = (struct flyt_ptx_unit){state->units[i].name, state->units[i].text, state->units[i].text_bytes,
                                          state->units[i].max_registers};
    r = flyt_ptx_module_join(units, state->unit_count, &target, diag, ret_module);
    free(units);
    return r;
}

/* Takes over the unit, also on failure. */
static CUresult unit_add(struct CUlinkState_st *state, struct unit *unit, struct flyt_ptx_diag *diag)
{
    struct unit *grown = NULL;
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

    if (unit->text && unit->name && unit->text_bytes <= UNIT_BYTES_MAX && state->unit_count < UNITS_MAX)
        grown = reallocarray(state->units, state->unit_count + 1, sizeof(*grown));
    if (grown) {
        state->units = grown;
        state->units[state->unit_count++] = *unit;
        r = units_join(state, diag, NULL);
    }
    if (r == CUDA_ERROR_UNKNOWN) /* as a GPU's linker: an error that stays */
        state->broken = r;
    if (r == CUDA_SUCCESS)
        return r;
    if (grown)
        state->unit_count--;
    unit_fini(unit);
    return r;
}

/* ---- the API ---- */

static CUresult state_check(const struct CUlinkState_st *state)
{
    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    return flyt_soft_is(state, FLYT_SOFT_LINK) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

FLYT_SOFT_API cuLinkCreate(unsigned int numOptions, CUjit_option *options, void **optionValues, CUlinkState *stateOut)
{
    struct CUlinkState_st *state;
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!stateOut || (numOptions && (!options || !optionValues)))
        return CUDA_ERROR_INVALID_VALUE;
    state = calloc(1, sizeof(*state));
    if (!state)
        return CUDA_ERROR_OUT_OF_MEMORY;
    state->kind = FLYT_SOFT_LINK;
    state->arch = ctx->device->arch;
    flyt_soft_log_init(&state->log, options, optionValues, numOptions);
    state->max_registers = flyt_soft_max_registers(options, optionValues, numOptions);
    *stateOut = state;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuLinkAddData(CUlinkState state, CUjitInputType type, void *data, size_t size, const char *name,
                            unsigned int numOptions, CUjit_option *options, void **optionValues)
{
    struct flyt_ptx_diag diag = {{0}};
    struct unit unit = {0};
    CUresult r = state_check(state);

    if (r != CUDA_SUCCESS)
        return r;
    if (state->image || !data || !size || (numOptions && (!options || !optionValues)))
        return CUDA_ERROR_INVALID_VALUE;
    r = unit_read(state, type, data, size, &unit, &diag);
    if (r == CUDA_SUCCESS) {
        unit.name = name_copy(name);
        unit.max_registers = flyt_soft_max_registers(options, optionValues, numOptions);
        if (!unit.max_registers)
            unit.max_registers = state->max_registers;
        r = unit_add(state, &unit, &diag);
    }
    if (r != CUDA_SUCCESS || !state->broken)
        flyt_soft_log_write(&state->log, &diag);
    return r;
}

FLYT_SOFT_API cuLinkAddFile(CUlinkState state, CUjitInputType type, const char *path, unsigned int numOptions,
                            CUjit_option *options, void **optionValues)
{
    CUresult r = state_check(state);
    struct stat status;
    char *data = NULL;
    FILE *file;

    if (r != CUDA_SUCCESS)
        return r;
    if (!path)
        return CUDA_ERROR_INVALID_VALUE;
    file = fopen(path, "rbe");
    if (!file)
        return CUDA_ERROR_FILE_NOT_FOUND;
    if (fstat(fileno(file), &status) || !S_ISREG(status.st_mode) || status.st_size > UNIT_BYTES_MAX)
        r = CUDA_ERROR_INVALID_VALUE;
    else if (!(data = malloc((size_t)status.st_size + 1)))
        r = CUDA_ERROR_OUT_OF_MEMORY;
    else if (fread(data, 1, (size_t)status.st_size, file) != (size_t)status.st_size)
        r = CUDA_ERROR_FILE_NOT_FOUND;
    else
        r = cuLinkAddData(state, type, data, (size_t)status.st_size, path, numOptions, options, optionValues);
    free(data);
    fclose(file);
    return r;
}

FLYT_SOFT_API cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    struct flyt_ptx_module *module;
    struct flyt_ptx_diag diag = {{0}};
    CUresult r = state_check(state);

    if (r != CUDA_SUCCESS)
        return r;
    if (!cubinOut)
        return CUDA_ERROR_INVALID_VALUE;
    if (state->image) /* a state is completed once */
        return CUDA_ERROR_INVALID_HANDLE;
    if (state->broken)
        return state->broken;
    if (!state->unit_count) { /* nothing makes an image too, one with nothing in it */
        struct unit nothing = {strdup(empty_text), strdup("nothing"), sizeof(empty_text) - 1, 0};

        r = unit_add(state, &nothing, &diag);
        if (r != CUDA_SUCCESS)
            return r;
    }
    r = units_join(state, &diag, &module);
    if (r == CUDA_SUCCESS) {
        r = image_make(state, module);
        flyt_ptx_module_free(module);
    }
    flyt_soft_log_write(&state->log, &diag);
    if (r != CUDA_SUCCESS)
        return r;
    *cubinOut = state->image;
    if (sizeOut)
        *sizeOut = state->image_bytes;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuLinkDestroy(CUlinkState state)
{
    CUresult r = state_check(state);

    if (r != CUDA_SUCCESS)
        return r;
    state->kind = FLYT_SOFT_DEAD;
    for (unsigned i = 0; i < state->unit_count; i++)
        unit_fini(&state->units[i]);
    free(state->units);
    free(state->image);
    free(state);
    return CUDA_SUCCESS;
}
