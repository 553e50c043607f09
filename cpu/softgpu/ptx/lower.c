#include "cpu/softgpu/ptx/join.h"
#include "cpu/softgpu/ptx/lower.h"

#include "cpu/softgpu/ptx/exec.h"
#include "cpu/softgpu/ptx/lex.h"
#include "cpu/softgpu/ptx/ops.h"

#include <fenv.h>
#include <stdio.h>
#include <string.h>

void *flyt_ptx_lower_scratch(struct ptx_lower *lower, size_t bytes)
{
    return flyt_ptx_build_alloc(lower->build, &lower->build->scratch, bytes);
}

void flyt_ptx_lower_unsupported(struct ptx_lower *lower)
{
    if (!flyt_ptx_names_has_operation(lower->statement->modifiers[0]))
        flyt_ptx_lower_invalid(lower, "not a name of any known instruction");
    flyt_ptx_build_fail(lower->build, CUDA_ERROR_NOT_SUPPORTED, lower->statement->line,
                        "%.120s is not supported by the software GPU", lower->statement->text);
}

void flyt_ptx_lower_invalid(struct ptx_lower *lower, const char *why)
{
    flyt_ptx_build_fail(lower->build, CUDA_ERROR_INVALID_PTX, lower->statement->line, "%.80s: %s",
                        lower->statement->text, why);
}

bool flyt_ptx_lower_has(const struct ptx_lower *lower, const char *modifier)
{
    for (unsigned i = 1; i < lower->statement->modifier_count; i++)
        if (!strcmp(lower->statement->modifiers[i], modifier))
            return true;
    return false;
}

const struct ptx_type *flyt_ptx_lower_type(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    const struct ptx_type *type = flyt_ptx_type_find(statement->modifiers[statement->modifier_count - 1]);

    if (!type)
        flyt_ptx_lower_unsupported(lower);
    return type;
}

const struct ptx_operand *flyt_ptx_lower_operand(struct ptx_lower *lower, unsigned i)
{
    if (i >= lower->statement->operand_count)
        flyt_ptx_lower_invalid(lower, "too few operands");
    return &lower->statement->operands[i];
}

/* ---- emission ---- */

struct ptx_vinsn *flyt_ptx_lower_emit(struct ptx_lower *lower, ptx_exec_fn *exec)
{
    struct ptx_vinsn *vinsn;

    lower->vinsns = flyt_ptx_build_grow(lower->build, lower->vinsns, sizeof *lower->vinsns, lower->vinsn_count,
                                        &lower->vinsn_capacity);
    vinsn = &lower->vinsns[lower->vinsn_count++];
    memset(vinsn, 0, sizeof *vinsn);
    vinsn->exec = exec;
    vinsn->line = lower->statement ? lower->statement->line : lower->function->line;
    return vinsn;
}

struct ptx_vinsn *flyt_ptx_lower_emit_guarded(struct ptx_lower *lower, ptx_exec_fn *exec)
{
    const struct ptx_statement *statement = lower->statement;
    struct ptx_vinsn *vinsn;

    if (!statement || !statement->has_guard)
        return flyt_ptx_lower_emit(lower, exec);
    vinsn = flyt_ptx_lower_emit(lower, flyt_ptx_exec_guard);
    vinsn->op[0] = flyt_ptx_lower_vreg(statement->guard);
    vinsn->aux = 1;
    vinsn->flags = statement->is_guard_negated ? PTX_INSN_NEGATED : 0;
    vinsn = flyt_ptx_lower_emit(lower, exec);
    vinsn->is_conditional = true;
    return vinsn;
}

struct ptx_vinsn *flyt_ptx_lower_emit_wide(struct ptx_lower *lower, ptx_exec_fn *exec, const struct ptx_vop *ops,
                                           unsigned source_count, unsigned result_count)
{
    unsigned count = source_count + result_count, part_count = ptx_wide_parts(count);
    size_t first;

    flyt_ptx_lower_emit_guarded(lower, exec);
    first = lower->vinsn_count - 1;
    if (lower->statement->has_guard)
        lower->vinsns[first - 1].aux = (uint16_t)part_count;
    for (unsigned part = 1; part < part_count; part++)
        flyt_ptx_lower_emit(lower, flyt_ptx_exec_operands)->is_conditional = lower->statement->has_guard;
    for (unsigned i = 0; i < count; i++) {
        struct ptx_vinsn *vinsn = &lower->vinsns[first + i / PTX_OPS_MAX];

        vinsn->op[i % PTX_OPS_MAX] = ops[i];
        if (i >= source_count)
            vinsn->definitions |= (uint8_t)(1 << i % PTX_OPS_MAX);
    }
    return &lower->vinsns[first];
}

const struct ptx_op_row *flyt_ptx_lower_row(struct ptx_lower *lower, const char *key)
{
    const struct ptx_op_row *row = flyt_ptx_map_find(&lower->ops, key);

    if (!row)
        flyt_ptx_lower_unsupported(lower);
    return row;
}

void flyt_ptx_lower_emit_op(struct ptx_lower *lower, const char *key, struct ptx_vop d, struct ptx_vop a,
                            struct ptx_vop b, bool is_guarded)
{
    ptx_exec_fn *exec = flyt_ptx_lower_row(lower, key)->exec;
    struct ptx_vinsn *vinsn = is_guarded ? flyt_ptx_lower_emit_guarded(lower, exec) : flyt_ptx_lower_emit(lower, exec);

    vinsn->op[0] = d;
    vinsn->op[1] = a;
    vinsn->op[2] = b;
    vinsn->definitions = 1;
}

const char *flyt_ptx_lower_new_label(struct ptx_lower *lower)
{
    char name[32];
    int bytes = snprintf(name, sizeof name, " %zu", lower->vinsn_count);

    return flyt_ptx_build_copy(lower->build, &lower->build->scratch, name, (size_t)bytes);
}

void flyt_ptx_lower_place_label(struct ptx_lower *lower, const char *name)
{
    struct ptx_label *label = flyt_ptx_lower_scratch(lower, sizeof *label);

    if (lower->vinsn_count && lower->vinsns[lower->vinsn_count - 1].ending == PTX_ENDS_NOT)
        flyt_ptx_lower_emit(lower, flyt_ptx_exec_fall)->ending = PTX_ENDS_FALL; /* a label begins a block */
    if (flyt_ptx_map_find(&lower->labels, name))
        flyt_ptx_build_fail(lower->build, CUDA_ERROR_INVALID_PTX, lower->function->line,
                            "label %.80s stands twice in %.80s", name, lower->function->name);
    label->index = lower->vinsn_count;
    flyt_ptx_map_put(lower->build, &lower->labels, name, label);
}

/* ---- operands ---- */

struct ptx_vop flyt_ptx_lower_temp(struct ptx_lower *lower, uint8_t bytes)
{
    struct ptx_function *function = lower->function;

    function->vreg_bytes =
        flyt_ptx_build_grow(lower->build, function->vreg_bytes, 1, function->vreg_count, &function->vreg_capacity);
    function->vreg_bytes[function->vreg_count] = bytes;
    return flyt_ptx_lower_vreg((uint32_t)function->vreg_count++);
}

/* Room for one broadcast constant; a predicate takes 4 bytes. */
static uint32_t new_constant(struct ptx_lower *lower, uint8_t bytes)
{
    size_t room = bytes ? (size_t)bytes * PTX_LANES : 64;
    size_t offset = lower->constants_bytes;

    if (offset + room > UINT32_MAX / 2)
        flyt_ptx_build_fail(lower->build, CUDA_ERROR_OUT_OF_MEMORY, 0, "too many constants");
    while (offset + room > lower->constants_capacity)
        lower->constants = flyt_ptx_build_grow(lower->build, lower->constants, 1, lower->constants_capacity,
                                               &lower->constants_capacity);
    lower->constants_bytes += room;
    return (uint32_t)offset;
}

struct ptx_vop flyt_ptx_lower_constant(struct ptx_lower *lower, uint64_t bits, uint8_t bytes)
{
    char key[40];
    uintptr_t known;
    uint32_t offset;

    if (bytes && bytes < 8)
        bits &= (1ull << bytes * 8) - 1;
    snprintf(key, sizeof key, "%u:%llx", bytes, (unsigned long long)bits);
    known = (uintptr_t)flyt_ptx_map_find(&lower->constant_offsets, key);
    if (known)
        return (struct ptx_vop){PTX_VOP_CONST, (uint32_t)(known - 1)};
    offset = new_constant(lower, bytes);
    if (bytes)
        for (unsigned i = 0; i < PTX_LANES; i++)
            memcpy(lower->constants + offset + i * bytes, &bits, bytes);
    else
        *(uint32_t *)(lower->constants + offset) = bits ? PTX_ALL_LANES : 0;
    flyt_ptx_map_put(lower->build, &lower->constant_offsets,
                     flyt_ptx_build_copy(lower->build, &lower->build->scratch, key, strlen(key)),
                     (void *)((uintptr_t)offset + 1));
    return (struct ptx_vop){PTX_VOP_CONST, offset};
}

/* The address of a module variable, filled in at link time. */
static struct ptx_vop relocated_constant(struct ptx_lower *lower, const struct ptx_variable *variable, int64_t addend,
                                         uint8_t bytes)
{
    uint32_t offset = new_constant(lower, bytes);

    lower->relocations = flyt_ptx_build_grow(lower->build, lower->relocations, sizeof *lower->relocations,
                                             lower->relocation_count, &lower->relocation_capacity);
    lower->relocations[lower->relocation_count++] =
        (struct ptx_relocation){offset, variable->module_index, bytes, (uint64_t)addend};
    return (struct ptx_vop){PTX_VOP_CONST, offset};
}

/* The number of an operand as a bit pattern of `bytes`. */
static uint64_t number_bits(const struct ptx_operand *operand, uint8_t bytes, bool is_float)
{
    uint64_t bits = (uint64_t)operand->value;
    double wide;
    float narrow;
    uint32_t low;

    if (operand->number_kind == PTX_NUMBER_INT && !(is_float && bytes >= 4))
        return bits;
    if (operand->number_kind == PTX_NUMBER_INT) {
        wide = (double)operand->value;
    } else if (operand->number_kind == PTX_NUMBER_F32) {
        if (bytes <= 4)
            return bits;
        low = (uint32_t)bits;
        memcpy(&narrow, &low, sizeof narrow);
        wide = narrow;
    } else {
        memcpy(&wide, &bits, sizeof wide);
    }
    if (bytes == 8) {
        memcpy(&bits, &wide, sizeof bits);
        return bits;
    }
    narrow = (float)wide;
    memcpy(&low, &narrow, sizeof low);
    return low;
}

/* Offset of a shared variable: a constant in a kernel, looked up per kernel elsewhere. */
static struct ptx_vop shared_address(struct ptx_lower *lower, const struct ptx_variable *variable, int64_t addend,
                                     uint8_t bytes)
{
    struct ptx_vinsn *vinsn;
    struct ptx_vop result;

    if (lower->shared_offset)
        return flyt_ptx_lower_constant(lower, lower->shared_offset[variable->shared_index] + (uint64_t)addend, bytes);
    result = flyt_ptx_lower_temp(lower, bytes);
    vinsn = flyt_ptx_lower_emit(lower, bytes == 4 ? flyt_ptx_exec_shared_address32 : flyt_ptx_exec_shared_address64);
    vinsn->op[0] = result;
    vinsn->definitions = 1;
    vinsn->aux = (uint16_t)variable->shared_index;
    vinsn->imm = addend;
    return result;
}

static struct ptx_vop local_address(struct ptx_lower *lower, const struct ptx_variable *variable, int64_t addend,
                                    uint8_t bytes)
{
    struct ptx_vop result = flyt_ptx_lower_temp(lower, bytes);
    struct ptx_vinsn *vinsn =
        flyt_ptx_lower_emit(lower, bytes == 4 ? flyt_ptx_exec_local_address32 : flyt_ptx_exec_local_address64);

    vinsn->op[0] = result;
    vinsn->definitions = 1;
    vinsn->imm = (int64_t)variable->offset + addend;
    return result;
}

/* The address that a name stands for, as a number of its state space. */
static struct ptx_vop symbol_address(struct ptx_lower *lower, const struct ptx_operand *operand, uint8_t bytes)
{
    const struct ptx_variable *variable = operand->variable;
    struct ptx_function *function;

    if (bytes < 4)
        flyt_ptx_lower_invalid(lower, "an address does not fit the register");
    if (!variable) {
        function = flyt_ptx_unit_function(lower->function->unit, operand->name);
        if (!function)
            flyt_ptx_build_fail(lower->build, CUDA_ERROR_INVALID_PTX, lower->statement->line, "unknown name %.100s",
                                operand->name);
        if (!function->has_body && lower->ir->joining == PTX_JOIN_CLOSED)
            flyt_ptx_join_fail_undefined(lower->build, operand->name, lower->function->unit);
        if (!function->has_body && lower->ir->joining == PTX_JOIN_ALONE)
            flyt_ptx_build_fail(lower->build, CUDA_ERROR_INVALID_PTX, lower->statement->line,
                                "unresolved extern function %.100s", operand->name);
        return flyt_ptx_lower_constant(lower, PTX_FUNCTION_BASE + 16ull * function->index, bytes);
    }
    switch (variable->space) {
    case PTX_SPACE_SHARED:
        return shared_address(lower, variable, operand->value, bytes);
    case PTX_SPACE_LOCAL:
        return local_address(lower, variable, operand->value, bytes);
    case PTX_SPACE_PARAM:
        return flyt_ptx_lower_constant(lower, PTX_PARAM_BASE + variable->offset + (uint64_t)operand->value, bytes);
    default:
        return relocated_constant(lower, variable, operand->value, bytes);
    }
}

uint8_t flyt_ptx_lower_register_bytes(struct ptx_lower *lower, const struct ptx_operand *operand)
{
    if (operand->kind != PTX_OPERAND_REGISTER)
        flyt_ptx_lower_invalid(lower, "a register is expected");
    return lower->function->vreg_bytes[operand->vreg];
}

/* Converts between register sizes through the internal rows "$z24", "$s48", "$t82" … */
struct ptx_vop flyt_ptx_lower_resize(struct ptx_lower *lower, struct ptx_vop from, uint8_t from_bytes, uint8_t bytes,
                                     bool is_signed)
{
    struct ptx_vop result = flyt_ptx_lower_temp(lower, bytes);
    char key[] = {'$',
                  from_bytes > bytes ? 't'
                  : is_signed        ? 's'
                                     : 'z',
                  (char)('0' + from_bytes), (char)('0' + bytes), 0};

    flyt_ptx_lower_emit_op(lower, key, result, from, (struct ptx_vop){0}, false);
    return result;
}

struct ptx_vop flyt_ptx_lower_pred(struct ptx_lower *lower, const struct ptx_operand *operand)
{
    struct ptx_vop pred, result;

    if (operand->kind == PTX_OPERAND_NUMBER)
        return flyt_ptx_lower_constant(lower, operand->value != 0, 0);
    if (flyt_ptx_lower_register_bytes(lower, operand))
        flyt_ptx_lower_invalid(lower, "a predicate is expected");
    pred = flyt_ptx_lower_vreg(operand->vreg);
    if (!operand->is_negated)
        return pred;
    result = flyt_ptx_lower_temp(lower, 0);
    flyt_ptx_lower_emit_op(lower, "not.pred", result, pred, (struct ptx_vop){0}, false);
    return result;
}

/* In PTX 1.x these had 16 bits: mov and cvt of 16 bits still read them, as the manual says. */
static bool is_half_readable(const struct ptx_lower *lower, const char *name, uint8_t bytes)
{
    const char *operation = lower->statement->modifiers[0];
    bool is_place = !strncmp(name, "%tid.", 5) || !strncmp(name, "%ntid.", 6) || !strncmp(name, "%ctaid.", 7) ||
                    !strncmp(name, "%nctaid.", 8);

    return bytes == 2 && is_place && (!strcmp(operation, "mov") || !strcmp(operation, "cvt"));
}

struct ptx_vop flyt_ptx_lower_source(struct ptx_lower *lower, const struct ptx_operand *operand, uint8_t bytes,
                                     bool is_float, bool is_signed)
{
    uint8_t have;

    if (!bytes)
        return flyt_ptx_lower_pred(lower, operand);
    switch (operand->kind) {
    case PTX_OPERAND_NUMBER:
        return flyt_ptx_lower_constant(lower, number_bits(operand, bytes, is_float), bytes);
    case PTX_OPERAND_SYMBOL:
        return symbol_address(lower, operand, bytes);
    case PTX_OPERAND_SPECIAL: {
        struct ptx_vop result;
        struct ptx_vinsn *vinsn;
        int special = flyt_ptx_special_find(operand->name);

        if (special < 0)
            flyt_ptx_build_fail(
                lower->build,
                flyt_ptx_names_has_register(operand->name) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_PTX,
                lower->statement->line, "register %.80s is not known to the software GPU", operand->name);
        if (bytes < 4 && !is_half_readable(lower, operand->name, bytes))
            flyt_ptx_lower_invalid(lower, "a special register does not fit");
        result = flyt_ptx_lower_temp(lower, bytes < 4 ? 4 : bytes);
        vinsn = flyt_ptx_lower_emit(lower, bytes == 8 ? flyt_ptx_exec_special64 : flyt_ptx_exec_special32);
        vinsn->op[0] = result;
        vinsn->definitions = 1;
        vinsn->aux = (uint16_t)special;
        lower->module->uses_reserved_shared |= !strncmp(operand->name, "%reserved_smem_", 15);
        return bytes < 4 ? flyt_ptx_lower_resize(lower, result, 4, bytes, false) : result;
    }
    case PTX_OPERAND_REGISTER:
        have = lower->function->vreg_bytes[operand->vreg];
        if (!have)
            flyt_ptx_lower_invalid(lower, "a predicate where data is expected");
        return have == bytes ? flyt_ptx_lower_vreg(operand->vreg)
                             : flyt_ptx_lower_resize(lower, flyt_ptx_lower_vreg(operand->vreg), have, bytes, is_signed);
    default:
        flyt_ptx_lower_invalid(lower, "an operand of this kind is not expected here");
    }
}

struct ptx_vop flyt_ptx_lower_destination(struct ptx_lower *lower, const struct ptx_operand *operand, uint8_t bytes)
{
    if (operand->kind == PTX_OPERAND_SINK)
        return flyt_ptx_lower_temp(lower, bytes);
    if (flyt_ptx_lower_register_bytes(lower, operand) == bytes)
        return flyt_ptx_lower_vreg(operand->vreg);
    if (!bytes || !lower->function->vreg_bytes[operand->vreg])
        flyt_ptx_lower_invalid(lower, "predicate and data do not mix");
    return flyt_ptx_lower_temp(lower, bytes);
}

struct ptx_vop flyt_ptx_lower_exact_destination(struct ptx_lower *lower, const struct ptx_operand *operand,
                                                uint8_t bytes)
{
    if (operand->kind != PTX_OPERAND_SINK && flyt_ptx_lower_register_bytes(lower, operand) != bytes)
        flyt_ptx_lower_invalid(lower, "the result is of another size");
    return flyt_ptx_lower_destination(lower, operand, bytes);
}

void flyt_ptx_lower_finish(struct ptx_lower *lower, const struct ptx_operand *operand, struct ptx_vop written,
                           uint8_t bytes, bool is_signed)
{
    uint8_t have;
    char key[] = "$z24";

    if (operand->kind == PTX_OPERAND_SINK || written.index == operand->vreg)
        return;
    have = flyt_ptx_lower_register_bytes(lower, operand);
    key[1] = bytes > have ? 't' : is_signed ? 's' : 'z';
    key[2] = (char)('0' + bytes);
    key[3] = (char)('0' + have);
    flyt_ptx_lower_emit_op(lower, key, flyt_ptx_lower_vreg(operand->vreg), written, (struct ptx_vop){0}, true);
}
