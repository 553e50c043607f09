/* Statements become instructions: the regular ones, comparisons and moves here, others by the tables of their kinds. */
#include "cpu/softgpu/ptx/lower.h"

#include "cpu/softgpu/ptx/join.h"
#include "cpu/softgpu/ptx/exec.h"
#include "cpu/softgpu/ptx/lex.h"
#include "cpu/softgpu/ptx/ops.h"
#include <fenv.h>
#include <stdio.h>
#include <string.h>

/* ---- regular instructions ---- */

static uint8_t shape_bytes(char letter)
{
    return letter == 'p' ? 0 : letter == 'h' ? 2 : letter == 'w' ? 4 : 8;
}

struct regular {
    char key[128];
    int rounding;   /* FE_TONEAREST, or the mode that must be set around the instruction */
    bool saturates; /* clamp the float result to 0 … 1 */
    bool is_float, is_signed;
};

static void append(struct ptx_lower *lower, struct regular *regular, const char *modifier)
{
    size_t used = strlen(regular->key);

    if (used + strlen(modifier) + 2 > sizeof regular->key)
        flyt_ptx_lower_unsupported(lower);
    snprintf(regular->key + used, sizeof regular->key - used, "%s%s", used ? "." : "", modifier);
}

/*
 * The key of the current statement, without rounding and saturation where those are done around the instruction:
 * rounding for f32 and f64 results, except conversions to f16 and bf16, which round in software.
 */
static void make_key(struct ptx_lower *lower, struct regular *regular)
{
    const struct ptx_statement *statement = lower->statement;
    const struct ptx_type *type = flyt_ptx_type_find(statement->modifiers[statement->modifier_count - 1]);
    bool is_cvt = !strcmp(statement->modifiers[0], "cvt");
    const struct ptx_type *result = type;

    if (is_cvt && statement->modifier_count >= 3)
        result = flyt_ptx_type_find(statement->modifiers[statement->modifier_count - 2]); /* NULL: of 8-bit floats */
    regular->is_float = type && type->class == PTX_CLASS_FLOAT;
    regular->is_signed = type && type->class == PTX_CLASS_SIGNED;
    regular->rounding = FE_TONEAREST;
    for (unsigned i = 0; i < statement->modifier_count; i++) {
        const char *modifier = statement->modifiers[i];
        bool is_native = result && result->class == PTX_CLASS_FLOAT && result->bytes >= 4 && result->name[0] == 'f' &&
                         !strchr(result->name, 'x');

        if (i && !is_native && !is_cvt && !strcmp(modifier, "rn"))
            continue;
        if (i && is_native && !strcmp(modifier, "rn"))
            continue;
        if (i && is_native && (!strcmp(modifier, "rz") || !strcmp(modifier, "rm") || !strcmp(modifier, "rp")))
            regular->rounding = modifier[1] == 'z' ? FE_TOWARDZERO : modifier[1] == 'm' ? FE_DOWNWARD : FE_UPWARD;
        else if (i && is_native && !strcmp(modifier, "sat"))
            regular->saturates = true;
        else
            append(lower, regular, modifier);
    }
}

static void emit_rounding(struct ptx_lower *lower, int rounding)
{
    struct ptx_vinsn *vinsn;

    if (rounding == FE_TONEAREST)
        return;
    if (lower->statement->has_guard) /* the guard then covers two instructions: give it the longer reach */
        lower->vinsns[lower->vinsn_count - 1].aux = 2;
    vinsn = flyt_ptx_lower_emit(lower, flyt_ptx_exec_rounded);
    vinsn->aux = (uint16_t)rounding;
}

/* Emits the guard and the rounding prefix, then the instruction. */
static struct ptx_vinsn *emit_rounded(struct ptx_lower *lower, ptx_exec_fn *exec, int rounding)
{
    struct ptx_vinsn *vinsn;

    if (lower->statement->has_guard) {
        vinsn = flyt_ptx_lower_emit(lower, flyt_ptx_exec_guard);
        vinsn->op[0] = flyt_ptx_lower_vreg(lower->statement->guard);
        vinsn->aux = 1;
        vinsn->flags = lower->statement->is_guard_negated ? PTX_INSN_NEGATED : 0;
    }
    emit_rounding(lower, rounding);
    vinsn = flyt_ptx_lower_emit(lower, exec);
    vinsn->is_conditional = lower->statement->has_guard;
    return vinsn;
}

static void lower_regular(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    struct regular regular = {0};
    const struct ptx_op_row *row;
    const struct ptx_operand *target;
    unsigned source_count;
    struct ptx_vop sources[PTX_OPS_MAX], written;
    struct ptx_vinsn *vinsn;
    uint8_t bytes;

    make_key(lower, &regular);
    row = flyt_ptx_lower_row(lower, regular.key);
    source_count = (unsigned)strlen(row->shape) - 2;
    if (statement->operand_count != source_count + 1)
        flyt_ptx_lower_invalid(lower, "wrong number of operands");
    for (unsigned i = 0; i < source_count; i++)
        sources[i] = flyt_ptx_lower_source(lower, &statement->operands[i + 1], shape_bytes(row->shape[i + 2]),
                                           regular.is_float, regular.is_signed);
    target = &statement->operands[0];
    bytes = shape_bytes(row->shape[0]);
    written = flyt_ptx_lower_destination(lower, target, bytes);
    vinsn = emit_rounded(lower, row->exec, regular.rounding);
    vinsn->op[0] = written;
    memcpy(&vinsn->op[1], sources, source_count * sizeof *sources);
    vinsn->definitions = 1;
    if (regular.saturates)
        flyt_ptx_lower_emit_op(lower, bytes == 8 ? "$saturate.f64" : "$saturate.f32", written, written,
                               (struct ptx_vop){0}, true);
    flyt_ptx_lower_finish(lower, target, written, bytes,
                          !strcmp(statement->modifiers[0], "cvt") && statement->modifier_count >= 3 &&
                              statement->modifiers[statement->modifier_count - 2][0] == 's');
}

/* What the modifiers of setp and set say. */
struct comparison {
    struct regular regular;             /* the key of the plain comparison */
    const char *combine;                /* "and", "or", "xor" with a third operand, or NULL */
    const struct ptx_type *type, *into; /* of what is compared; of set's result */
    bool is_setp;
};

static struct comparison parse_comparison(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    struct comparison comparison = {.regular = {.key = "setp"}, .type = flyt_ptx_lower_type(lower)};
    unsigned last = statement->modifier_count - 1;

    comparison.is_setp = !strcmp(statement->modifiers[0], "setp");
    if (!comparison.is_setp && last >= 2)
        comparison.into = flyt_ptx_type_find(statement->modifiers[last - 1]);
    for (unsigned i = 1; i <= last; i++) {
        const char *modifier = statement->modifiers[i];

        if (!strcmp(modifier, "and") || !strcmp(modifier, "or") || !strcmp(modifier, "xor"))
            comparison.combine = modifier;
        else if (comparison.is_setp || i != last - 1)
            append(lower, &comparison.regular, modifier);
    }
    if (statement->operand_count != (comparison.combine ? 4u : 3u))
        flyt_ptx_lower_invalid(lower, "wrong number of operands");
    return comparison;
}

/* truth, combined with the third source, into `d`. */
static void emit_combined(struct ptx_lower *lower, const struct comparison *comparison, struct ptx_vop d,
                          struct ptx_vop truth)
{
    char key[16] = "mov.pred";
    struct ptx_vop c = {0};

    if (comparison->combine) {
        snprintf(key, sizeof key, "%s.pred", comparison->combine);
        c = flyt_ptx_lower_pred(lower, &lower->statement->operands[3]);
    }
    flyt_ptx_lower_emit_op(lower, key, d, truth, c, true);
}

/* The result of set: one or all bits where `truth` holds, else zero. */
static void emit_set(struct ptx_lower *lower, const struct comparison *comparison, struct ptx_vop truth)
{
    const struct ptx_operand *target = &lower->statement->operands[0];
    const struct ptx_type *into = comparison->into;
    struct ptx_vinsn *vinsn;
    struct ptx_vop written;
    uint64_t one;

    if (!into || strchr(into->name, 'x') || (into->bytes != 2 && into->bytes != 4))
        flyt_ptx_lower_unsupported(lower);
    one = into->class != PTX_CLASS_FLOAT ? UINT64_MAX
          : into->bytes == 4             ? 0x3f800000u
          : into->name[0] == 'b'         ? 0x3f80u
                                         : 0x3c00u;
    written = flyt_ptx_lower_destination(lower, target, into->bytes);
    vinsn =
        flyt_ptx_lower_emit_guarded(lower, flyt_ptx_lower_row(lower, into->bytes == 4 ? "selp.b32" : "selp.b16")->exec);
    vinsn->op[0] = written;
    vinsn->op[1] = flyt_ptx_lower_constant(lower, one, into->bytes);
    vinsn->op[2] = flyt_ptx_lower_constant(lower, 0, into->bytes);
    vinsn->op[3] = truth;
    vinsn->definitions = 1;
    flyt_ptx_lower_finish(lower, target, written, into->bytes, false);
}

/* One half of a pair, as 16 bits. */
static struct ptx_vop half_of(struct ptx_lower *lower, struct ptx_vop pair, bool is_upper)
{
    struct ptx_vop part = pair;

    if (is_upper) {
        part = flyt_ptx_lower_temp(lower, 4);
        flyt_ptx_lower_emit_op(lower, "shr.u32", part, pair, flyt_ptx_lower_constant(lower, 16, 4), false);
    }
    return flyt_ptx_lower_resize(lower, part, 4, 2, false);
}

/* setp on pairs of halves: p is of the lower ones, q of the upper ones. Either may be the source c. */
static void lower_compare_pairs(struct ptx_lower *lower)
{
    struct comparison comparison = parse_comparison(lower);
    const struct ptx_operand *target = &lower->statement->operands[0], *targets[2] = {target, target->second};
    struct ptx_vop pairs[2], truths[2];

    comparison.regular.key[strlen(comparison.regular.key) - 2] = 0; /* of one half: without x2 */
    for (unsigned i = 0; i < 2; i++)
        pairs[i] = flyt_ptx_lower_source(lower, &lower->statement->operands[i + 1], 4, false, false);
    for (unsigned half = 0; half < 2; half++) {
        struct ptx_vop truth = flyt_ptx_lower_temp(lower, 0), left = half_of(lower, pairs[0], half);

        flyt_ptx_lower_emit_op(lower, comparison.regular.key, truth, left, half_of(lower, pairs[1], half), false);
        truths[half] = flyt_ptx_lower_temp(lower, 0);
        emit_combined(lower, &comparison, truths[half], truth);
    }
    comparison.combine = NULL;
    for (unsigned half = 0; half < 2; half++)
        if (targets[half])
            emit_combined(lower, &comparison, flyt_ptx_lower_destination(lower, targets[half], 0), truths[half]);
}

/* setp.cmp[.bool][.ftz].type p[|q], a, b[, c]: the comparison, then the boolean part. set is the same into data. */
static void lower_compare(struct ptx_lower *lower)
{
    const struct ptx_operand *target = flyt_ptx_lower_operand(lower, 0);
    const struct ptx_operand *second =
        target->second && target->second->kind != PTX_OPERAND_SINK ? target->second : NULL;
    struct ptx_vop truth, sources[2];
    struct comparison comparison;
    const struct ptx_op_row *row;
    bool is_plain;

    if (flyt_ptx_map_find(&lower->ops, lower->statement->text)) { /* set on pairs of halves has rows of its own */
        lower_regular(lower);
        return;
    }
    if (!strcmp(lower->statement->modifiers[0], "setp") && strchr(flyt_ptx_lower_type(lower)->name, 'x')) {
        lower_compare_pairs(lower);
        return;
    }
    comparison = parse_comparison(lower);
    row = flyt_ptx_lower_row(lower, comparison.regular.key);
    for (unsigned i = 0; i < 2; i++)
        sources[i] = flyt_ptx_lower_source(lower, &lower->statement->operands[i + 1], shape_bytes(row->shape[i + 2]),
                                           comparison.type->class == PTX_CLASS_FLOAT,
                                           comparison.type->class == PTX_CLASS_SIGNED);
    is_plain = comparison.is_setp && !comparison.combine && !second;
    truth = is_plain ? flyt_ptx_lower_destination(lower, target, 0) : flyt_ptx_lower_temp(lower, 0);
    flyt_ptx_lower_emit_op(lower, comparison.regular.key, truth, sources[0], sources[1], is_plain);
    if (is_plain)
        return;
    if (second) { /* first, as p may be the source c; q gets the opposite comparison, combined the same way */
        struct ptx_vop inverse = flyt_ptx_lower_temp(lower, 0), both = flyt_ptx_lower_temp(lower, 0);

        flyt_ptx_lower_emit_op(lower, "not.pred", inverse, truth, (struct ptx_vop){0}, false);
        emit_combined(lower, &comparison, both, truth);
        emit_combined(lower, &comparison, flyt_ptx_lower_destination(lower, second, 0), inverse);
        comparison.combine = NULL;
        truth = both;
    }
    if (comparison.is_setp) {
        emit_combined(lower, &comparison, flyt_ptx_lower_destination(lower, target, 0), truth);
    } else {
        struct ptx_vop combined = flyt_ptx_lower_temp(lower, 0);

        emit_combined(lower, &comparison, combined, truth);
        emit_set(lower, &comparison, combined);
    }
}

static void emit_move(struct ptx_lower *lower, struct ptx_vop to, struct ptx_vop from, uint8_t bytes)
{
    static const char *const keys[9] = {[0] = "mov.pred", [2] = "mov.b16", [4] = "mov.b32", [8] = "mov.b64"};

    flyt_ptx_lower_emit_op(lower, keys[bytes], to, from, (struct ptx_vop){0}, true);
}

/* mov.b64 {lo, hi}, x: each element is a shifted part. */
static void lower_unpack(struct ptx_lower *lower, const struct ptx_operand *target, const struct ptx_operand *source)
{
    uint8_t bytes = flyt_ptx_lower_type(lower)->bytes;
    unsigned count = target->element_count;
    uint8_t part = count ? (uint8_t)(bytes / count) : 0;
    struct ptx_vop whole = flyt_ptx_lower_source(lower, source, bytes, false, false);

    if (!part || part == bytes || part * count != bytes)
        flyt_ptx_lower_invalid(lower, "the vector does not fit");
    for (unsigned i = 0; i < count; i++) {
        const struct ptx_operand *element = &target->elements[i];
        struct ptx_vop shifted = whole;
        uint8_t into;

        if (element->kind == PTX_OPERAND_SINK)
            continue;
        into = flyt_ptx_lower_register_bytes(lower, element);
        if (!into || (part >= 2 && into != part))
            flyt_ptx_lower_invalid(lower, "the vector's elements do not fit");
        if (i) {
            shifted = flyt_ptx_lower_temp(lower, bytes);
            flyt_ptx_lower_emit_op(lower,
                                   bytes == 8   ? "shr.u64"
                                   : bytes == 4 ? "shr.u32"
                                                : "shr.u16",
                                   shifted, whole, flyt_ptx_lower_constant(lower, i * part * 8u, 4), false);
        }
        if (part == 1) { /* bytes live in 16-bit registers */
            struct ptx_vop masked = flyt_ptx_lower_temp(lower, bytes);

            flyt_ptx_lower_emit_op(lower,
                                   bytes == 8   ? "and.b64"
                                   : bytes == 4 ? "and.b32"
                                                : "and.b16",
                                   masked, shifted, flyt_ptx_lower_constant(lower, 0xff, bytes), false);
            shifted = masked;
        }
        if (into == bytes) {
            emit_move(lower, flyt_ptx_lower_vreg(element->vreg), shifted, into);
        } else {
            char key[] = {'$', 't', (char)('0' + bytes), (char)('0' + into), 0};

            flyt_ptx_lower_emit_op(lower, key, flyt_ptx_lower_vreg(element->vreg), shifted, (struct ptx_vop){0}, true);
        }
    }
}

/* mov.b32 x, {a, b}: the parts shifted and joined. */
static void lower_pack(struct ptx_lower *lower, const struct ptx_operand *target, const struct ptx_operand *source)
{
    uint8_t bytes = flyt_ptx_lower_type(lower)->bytes;
    unsigned count = source->element_count;
    uint8_t part = count ? (uint8_t)(bytes / count) : 0;
    const char *shl = bytes == 8 ? "shl.b64" : bytes == 4 ? "shl.b32" : "shl.b16";
    const char * or = bytes == 8 ? "or.b64" : bytes == 4 ? "or.b32" : "or.b16";
    struct ptx_vop whole = {0};

    if (!part || part * count != bytes)
        flyt_ptx_lower_invalid(lower, "the vector does not fit");
    for (unsigned i = 0; i < count; i++) {
        struct ptx_operand element = source->elements[i];
        struct ptx_vop shifted, joined;

        if (part == 1)
            shifted = flyt_ptx_lower_resize(lower, flyt_ptx_lower_source(lower, &element, 2, false, false), 2,
                                            bytes == 2 ? 4 : bytes, false);
        else
            shifted = flyt_ptx_lower_source(lower, &element, part, false, false);
        if (part == 1) {
            struct ptx_vop masked = flyt_ptx_lower_temp(lower, bytes == 2 ? 4 : bytes);

            flyt_ptx_lower_emit_op(lower, bytes == 8 ? "and.b64" : "and.b32", masked, shifted,
                                   flyt_ptx_lower_constant(lower, 0xff, bytes == 2 ? 4 : bytes), false);
            shifted = bytes == 2 ? flyt_ptx_lower_resize(lower, masked, 4, 2, false) : masked;
        } else if (part != bytes) {
            shifted = flyt_ptx_lower_resize(lower, shifted, part, bytes, false);
        }
        if (i) {
            struct ptx_vop moved = flyt_ptx_lower_temp(lower, bytes);

            flyt_ptx_lower_emit_op(lower, shl, moved, shifted, flyt_ptx_lower_constant(lower, i * part * 8u, 4), false);
            joined = flyt_ptx_lower_temp(lower, bytes);
            flyt_ptx_lower_emit_op(lower, or, joined, whole, moved, false);
            whole = joined;
        } else {
            whole = shifted;
        }
    }
    emit_move(lower, flyt_ptx_lower_destination(lower, target, bytes), whole, bytes);
}

static void lower_move(struct ptx_lower *lower)
{
    const struct ptx_type *type = flyt_ptx_lower_type(lower);
    const struct ptx_operand *target = flyt_ptx_lower_operand(lower, 0), *source = flyt_ptx_lower_operand(lower, 1);
    struct ptx_vop from, to;
    bool has_target_vector = target->kind == PTX_OPERAND_VECTOR, has_source_vector = source->kind == PTX_OPERAND_VECTOR;

    if (lower->statement->modifier_count != 2 || type->bytes == 1 || (has_target_vector && has_source_vector))
        flyt_ptx_lower_unsupported(lower);
    if (has_target_vector) {
        lower_unpack(lower, target, source);
    } else if (has_source_vector) {
        lower_pack(lower, target, source);
    } else {
        from = flyt_ptx_lower_source(lower, source, type->bytes, type->class == PTX_CLASS_FLOAT, false);
        to = flyt_ptx_lower_destination(lower, target, type->bytes);
        emit_move(lower, to, from, type->bytes);
        flyt_ptx_lower_finish(lower, target, to, type->bytes, false);
    }
}

static const struct ptx_lowering own_lowerings[] = {
    {"mov", lower_move},
    {"setp", lower_compare},
    {"set", lower_compare},
    {NULL, NULL},
};

static bool lower_from(struct ptx_lower *lower, const struct ptx_lowering *lowerings)
{
    for (; lowerings->operation; lowerings++)
        if (!strcmp(lowerings->operation, lower->statement->modifiers[0])) {
            lowerings->lower(lower);
            return true;
        }
    return false;
}

static bool is_operation(const struct ptx_statement *statement, const char *operation)
{
    return !statement->label && !strcmp(statement->modifiers[0], operation);
}

static bool is_barrier(const struct ptx_statement *statement)
{
    return is_operation(statement, "bar") || is_operation(statement, "barrier");
}

/*
 * Where threads meet at barriers, a block ends before a write of shared memory that has a read before it: a warp that
 * comes here first lets the others read, too (PTX_LOCKSTEP_INSTRUCTIONS). *has_read: since the block began.
 */
static void end_before_write(struct ptx_lower *lower, bool *has_read)
{
    const struct ptx_statement *statement = lower->statement;

    if (is_operation(statement, "ld") && flyt_ptx_lower_has(lower, "shared"))
        *has_read = true;
    else if (is_barrier(statement) || is_operation(statement, "bra"))
        *has_read = false;
    if (!*has_read || !is_operation(statement, "st") || !flyt_ptx_lower_has(lower, "shared"))
        return;
    if (lower->vinsns[lower->vinsn_count - 1].ending == PTX_ENDS_NOT)
        flyt_ptx_lower_emit(lower, flyt_ptx_exec_fall)->ending = PTX_ENDS_FALL;
    *has_read = false;
}

/* Only video instructions take parts of registers, and negate them. */
static void refuse_parts(struct ptx_lower *lower)
{
    for (unsigned i = 0; i < lower->statement->operand_count; i++)
        if (lower->statement->operands[i].selector || lower->statement->operands[i].is_minus)
            flyt_ptx_lower_invalid(lower, "a part of a register, or a minus, is not expected here");
}

void flyt_ptx_lower_function(struct ptx_lower *lower)
{
    struct ptx_vinsn *end;
    bool has_barriers = false, has_read = false;

    for (const struct ptx_statement *statement = lower->function->first; statement; statement = statement->next)
        has_barriers |= is_barrier(statement);
    for (const struct ptx_statement *statement = lower->function->first; statement; statement = statement->next) {
        size_t first;

        lower->statement = statement;
        if (statement->label) {
            flyt_ptx_lower_place_label(lower, statement->label);
            has_read = false;
            continue;
        }
        if (has_barriers)
            end_before_write(lower, &has_read);
        first = lower->vinsn_count;
        if (statement->modifiers[0][0] != 'v' || !lower_from(lower, flyt_ptx_video_lowerings)) {
            refuse_parts(lower);
            if (!lower_from(lower, own_lowerings) && !lower_from(lower, flyt_ptx_memory_lowerings) &&
                !lower_from(lower, flyt_ptx_flow_lowerings) && !lower_from(lower, flyt_ptx_matrix_lowerings) &&
                !lower_from(lower, flyt_ptx_texture_lowerings))
                lower_regular(lower);
        }
        if (lower->vinsn_count > first)
            lower->vinsns[first].is_first = true;
    }
    lower->statement = NULL;
    end = flyt_ptx_lower_emit(lower, flyt_ptx_exec_ret); /* a body may end without ret */
    end->ending = PTX_ENDS_STOP;
}
