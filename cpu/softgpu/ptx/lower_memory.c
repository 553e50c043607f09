#include "cpu/softgpu/ptx/exec.h"
#include "cpu/softgpu/ptx/lower.h"
#include "cpu/softgpu/ptx/ops.h"

#include <stdio.h>
#include <string.h>

/* What a memory instruction's modifiers say. */
struct access {
    enum ptx_space space;
    const struct ptx_type *type;
    unsigned vector; /* elements: 1, 2, 4, 8 */
    uint8_t flags;   /* PTX_INSN_ACQUIRE, PTX_INSN_RELEASE */
    bool may_wait;   /* volatile, relaxed or stronger: may be polling */
};

static const struct {
    const char *name;
    enum ptx_space space;
} spaces[] = {
    {"global", PTX_SPACE_GLOBAL},
    {"const", PTX_SPACE_CONST},
    {"shared", PTX_SPACE_SHARED},
    {"shared::cta", PTX_SPACE_SHARED},
    {"shared::cluster", PTX_SPACE_SHARED}, /* a cluster is one block */
    {"local", PTX_SPACE_LOCAL},
    {"param", PTX_SPACE_PARAM},
    {"param::entry", PTX_SPACE_PARAM},
    {"param::func", PTX_SPACE_PARAM},
};

bool flyt_ptx_lower_take_space(const char *modifier, enum ptx_space *space)
{
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (!strcmp(modifier, spaces[i].name)) {
            *space = spaces[i].space;
            return true;
        }
    return false;
}

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(word, *words))
            return true;
    return false;
}

/* Memory order and scope: true when the modifier was one. */
static bool take_order(const char *modifier, struct access *access)
{
    static const char *const harmless[] = {"weak", "cta", "gpu", "sys", "cluster", NULL};

    if (!strcmp(modifier, "acquire") || !strcmp(modifier, "acq_rel") || !strcmp(modifier, "sc"))
        access->flags |= PTX_INSN_ACQUIRE;
    if (!strcmp(modifier, "release") || !strcmp(modifier, "acq_rel") || !strcmp(modifier, "sc"))
        access->flags |= PTX_INSN_RELEASE;
    if (access->flags || !strcmp(modifier, "volatile") || !strcmp(modifier, "relaxed") || !strcmp(modifier, "mmio"))
        access->may_wait = true;
    return access->may_wait
               ? is_one_of(modifier, harmless) || !strcmp(modifier, "acquire") || !strcmp(modifier, "release") ||
                     !strcmp(modifier, "acq_rel") || !strcmp(modifier, "sc") || !strcmp(modifier, "volatile") ||
                     !strcmp(modifier, "relaxed") || !strcmp(modifier, "mmio")
               : is_one_of(modifier, harmless);
}

/* Hints about caches, which there are none of: .ca, .nc, .L1::no_allocate, .L2::128B, .L2::cache_hint … */
static bool is_cache_hint(const char *modifier)
{
    static const char *const hints[] = {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "unified", NULL};

    return is_one_of(modifier, hints) || !strncmp(modifier, "L1::", 4) || !strncmp(modifier, "L2::", 4);
}

/*
 * The number of operands without the policy, which .L2::cache_hint has as the last one: createpolicy made it, and
 * nobody looks at it.
 */
static unsigned count_operands(struct ptx_lower *lower)
{
    unsigned count = lower->statement->operand_count;

    if (!flyt_ptx_lower_has(lower, "L2::cache_hint"))
        return count;
    if (!count || flyt_ptx_lower_register_bytes(lower, &lower->statement->operands[count - 1]) != 8)
        flyt_ptx_lower_invalid(lower, "a policy of 64 bits is expected");
    return count - 1;
}

static struct access parse_access(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    struct access access = {.vector = 1, .type = flyt_ptx_lower_type(lower)};

    for (unsigned i = 1; i + 1 < statement->modifier_count; i++) {
        const char *modifier = statement->modifiers[i];

        if (!strcmp(modifier, "v2") || !strcmp(modifier, "v4"))
            access.vector = (unsigned)(modifier[1] - '0');
        else if (!flyt_ptx_lower_take_space(modifier, &access.space) && !is_cache_hint(modifier) &&
                 !take_order(modifier, &access))
            flyt_ptx_lower_unsupported(lower);
    }
    if (!access.type->bytes)
        flyt_ptx_lower_unsupported(lower);
    if (count_operands(lower) != 2)
        flyt_ptx_lower_invalid(lower, "wrong number of operands");
    return access;
}

struct ptx_place flyt_ptx_lower_place(struct ptx_lower *lower, const struct ptx_operand *operand, enum ptx_space space,
                                      uint64_t bytes, bool may_be_narrow)
{
    struct ptx_place place = {.space = space, .offset = operand->value};
    const struct ptx_operand *base = operand->elements;
    const struct ptx_variable *variable;

    if (operand->kind != PTX_OPERAND_ADDRESS || operand->has_more)
        flyt_ptx_lower_invalid(lower, "an address is expected");
    variable = base->kind == PTX_OPERAND_SYMBOL ? base->variable : NULL;
    if (variable && (variable->space == PTX_SPACE_LOCAL || variable->space == PTX_SPACE_PARAM) &&
        (space == PTX_SPACE_LOCAL || space == PTX_SPACE_PARAM)) {
        if (operand->value < 0 || (uint64_t)operand->value > variable->bytes ||
            bytes > variable->bytes - (uint64_t)operand->value)
            flyt_ptx_lower_invalid(lower, "access outside of the variable");
        place.space = variable->space;
        place.is_fixed = true;
        place.offset += (int64_t)variable->offset;
        if (place.offset % (int64_t)(bytes & (0 - bytes) ? bytes & (0 - bytes) : 1) &&
            variable->space == PTX_SPACE_LOCAL)
            place.is_fixed = false; /* let the run-time check find the misalignment */
        if (place.is_fixed)
            return place;
        place.offset = operand->value;
        place.space = space;
    }
    if (space == PTX_SPACE_PARAM && !lower->function->is_entry)
        place.space = PTX_SPACE_LOCAL; /* a function's parameters lie in its stack */
    if (variable && space == PTX_SPACE_GENERIC && variable->space != PTX_SPACE_GLOBAL &&
        variable->space != PTX_SPACE_CONST)
        place.space = variable->space;
    place.is_narrow = may_be_narrow && place.space == PTX_SPACE_SHARED && base->kind == PTX_OPERAND_REGISTER &&
                      flyt_ptx_lower_register_bytes(lower, base) == 4;
    place.base = flyt_ptx_lower_source(lower, base, place.is_narrow ? 4 : 8, false, false);
    return place;
}

const struct ptx_operand *flyt_ptx_lower_vector(struct ptx_lower *lower, const struct ptx_operand *operand,
                                                unsigned count)
{
    if (count == 1 && operand->kind != PTX_OPERAND_VECTOR)
        return operand;
    if (operand->kind != PTX_OPERAND_VECTOR || operand->element_count != count)
        flyt_ptx_lower_invalid(lower, "the vector has another length");
    return operand->elements;
}

/* The load or store of memory_bytes into or from registers of register_bytes; NULL: no such combination. */
static ptx_exec_fn *find_access(struct ptx_lower *lower, const char *operation, uint8_t memory_bytes,
                                uint8_t register_bytes, bool is_signed)
{
    char key[24];
    const struct ptx_op_row *row;

    snprintf(key, sizeof key, "%s.%c%u.%u", operation, is_signed && memory_bytes < register_bytes ? 's' : 'u',
             memory_bytes * 8u, register_bytes * 8u);
    row = flyt_ptx_map_find(&lower->ops, key);
    return row ? row->exec : NULL;
}

/* Whether another access with the same base can spare it the work of finding out how the addresses lie. */
static bool can_share_base(const struct access *access, const struct ptx_place *place)
{
    return !place->is_fixed && access->vector == 1 && !access->flags && place->base.kind == PTX_VOP_VREG;
}

/*
 * ld: op[0 … vector-1] results, op[4] base; imm the offset; aux the space; extra the vector length. Fixed places have
 * no base: imm is the offset, extra as before, aux memory bytes, bit 8 sign, register bytes from bit 9.
 */
static void lower_load(struct ptx_lower *lower)
{
    struct access access = parse_access(lower);
    uint8_t bytes = access.type->bytes, register_bytes = 0;
    bool is_signed = access.type->class == PTX_CLASS_SIGNED;
    const struct ptx_operand *targets = flyt_ptx_lower_vector(lower, flyt_ptx_lower_operand(lower, 0), access.vector);
    struct ptx_place place = flyt_ptx_lower_place(lower, flyt_ptx_lower_operand(lower, 1), access.space,
                                                  (uint64_t)bytes * access.vector, true);
    struct ptx_vinsn *vinsn;
    ptx_exec_fn *exec;

    for (unsigned i = 0; i < access.vector; i++) {
        uint8_t have =
            targets[i].kind == PTX_OPERAND_SINK ? register_bytes : flyt_ptx_lower_register_bytes(lower, &targets[i]);

        if (!have && targets[i].kind != PTX_OPERAND_SINK)
            flyt_ptx_lower_invalid(lower, "a predicate where data is expected");
        if (register_bytes && have != register_bytes)
            flyt_ptx_lower_invalid(lower, "registers of different sizes");
        register_bytes = have;
    }
    register_bytes = register_bytes ? register_bytes : bytes < 2 ? 2 : bytes;
    exec = find_access(lower,
                       access.vector > 1 ? "$ldv"
                       : place.is_narrow ? "$lds"
                                         : "$ld",
                       bytes, register_bytes, is_signed);
    if (!exec)
        flyt_ptx_lower_invalid(lower, "the register is too small");
    if (place.is_fixed)
        exec = place.space == PTX_SPACE_PARAM ? flyt_ptx_exec_load_param : flyt_ptx_exec_load_frame;
    vinsn = flyt_ptx_lower_emit_guarded(lower, exec);
    for (unsigned i = 0; i < access.vector; i++)
        if (targets[i].kind == PTX_OPERAND_REGISTER) {
            vinsn->op[i] = (struct ptx_vop){PTX_VOP_VREG, targets[i].vreg};
            vinsn->definitions |= (uint8_t)(1 << i);
        }
    if (!vinsn->definitions && !place.is_fixed && access.vector == 1) { /* into nothing: but it is checked */
        vinsn->op[0] = flyt_ptx_lower_temp(lower, register_bytes);
        vinsn->definitions = 1;
    }
    vinsn->op[4] = place.base;
    vinsn->imm = place.offset;
    vinsn->aux = place.is_fixed ? (uint16_t)(bytes | is_signed << 8 | register_bytes << 9) : (uint16_t)place.space;
    vinsn->extra = (uint8_t)access.vector;
    vinsn->flags = access.flags | (place.is_narrow ? PTX_INSN_NARROW : 0);
    vinsn->access_bytes = bytes;
    if (can_share_base(&access, &place))
        vinsn->exec_kept = find_access(lower, place.is_narrow ? "$ldsk" : "$ldk", bytes, register_bytes, is_signed);
    vinsn->may_wait = access.may_wait;
}

/* st: as ld, with op[0 … vector-1] the values. */
static void lower_store(struct ptx_lower *lower)
{
    struct access access = parse_access(lower);
    uint8_t bytes = access.type->bytes, register_bytes = bytes < 2 ? 2 : bytes;
    const struct ptx_operand *values = flyt_ptx_lower_vector(lower, flyt_ptx_lower_operand(lower, 1), access.vector);
    struct ptx_place place = flyt_ptx_lower_place(lower, flyt_ptx_lower_operand(lower, 0), access.space,
                                                  (uint64_t)bytes * access.vector, true);
    struct ptx_vop sources[4];
    struct ptx_vinsn *vinsn;

    if (access.space == PTX_SPACE_CONST || (place.space == PTX_SPACE_PARAM && place.is_fixed))
        flyt_ptx_lower_invalid(lower, "this space is read-only");
    for (unsigned i = 0; i < access.vector; i++)
        sources[i] =
            flyt_ptx_lower_source(lower, &values[i], register_bytes, access.type->class == PTX_CLASS_FLOAT, false);
    vinsn = flyt_ptx_lower_emit_guarded(lower, place.is_fixed ? flyt_ptx_exec_store_frame
                                                              : find_access(lower,
                                                                            access.vector > 1 ? "$stv"
                                                                            : place.is_narrow ? "$sts"
                                                                                              : "$st",
                                                                            bytes, register_bytes, false));
    memcpy(vinsn->op, sources, access.vector * sizeof *sources);
    vinsn->op[4] = place.base;
    vinsn->imm = place.offset;
    vinsn->aux = place.is_fixed ? (uint16_t)(bytes | register_bytes << 9) : (uint16_t)place.space;
    vinsn->extra = (uint8_t)access.vector;
    vinsn->flags = access.flags | (place.is_narrow ? PTX_INSN_NARROW : 0);
    vinsn->access_bytes = bytes;
    if (can_share_base(&access, &place))
        vinsn->exec_kept = find_access(lower, place.is_narrow ? "$stsk" : "$stk", bytes, register_bytes, false);
    vinsn->may_wait = access.may_wait;
}

/* What atom or red says: the operation on one element by its key, and how many elements. */
static ptx_exec_fn *parse_atomic(struct ptx_lower *lower, struct access *access, bool *ret_is_cas)
{
    const struct ptx_statement *statement = lower->statement;
    const char *operation = NULL;
    char key[48];
    ptx_exec_fn *exec;

    *access = (struct access){.vector = 1};
    for (unsigned i = 1; i < statement->modifier_count; i++) {
        const char *modifier = statement->modifiers[i];
        const struct ptx_type *type = flyt_ptx_type_find(modifier);

        if (type)
            access->type = type;
        else if (!strcmp(modifier, "v2") || !strcmp(modifier, "v4") || !strcmp(modifier, "v8"))
            access->vector = (unsigned)(modifier[1] - '0');
        else if (!flyt_ptx_lower_take_space(modifier, &access->space) && strcmp(modifier, "noftz") &&
                 strcmp(modifier, "L2::cache_hint") && !take_order(modifier, access)) {
            if (operation)
                flyt_ptx_lower_unsupported(lower);
            operation = modifier;
        }
    }
    snprintf(key, sizeof key, "%.20s.%s", operation ? operation : "", access->type ? access->type->name : "");
    exec = flyt_ptx_atomic_find(key);
    if (!exec || (access->vector > 1 && (access->type->bytes > 4 || access->vector * access->type->bytes > 16)))
        flyt_ptx_lower_unsupported(lower);
    *ret_is_cas = !strncmp(key, "cas.", 4);
    return exec;
}

/*
 * atom and red: op[0] result, op[1] base, op[2] and op[3] the values; imm the offset; aux the space. Each element of a
 * vector is atomic for itself, and has an instruction of its own.
 */
static void lower_atomic(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    bool has_result = !strcmp(statement->modifiers[0], "atom"), is_cas;
    struct access access;
    ptx_exec_fn *exec = parse_atomic(lower, &access, &is_cas);
    uint8_t bytes = access.type->bytes;
    bool is_float = access.type->class == PTX_CLASS_FLOAT;
    unsigned first = has_result ? 1 : 0;
    struct ptx_place place;
    const struct ptx_operand *targets = NULL, *values;
    struct ptx_vop results[8];

    if (count_operands(lower) != first + 2 + is_cas)
        flyt_ptx_lower_unsupported(lower);
    place = flyt_ptx_lower_place(lower, &statement->operands[first], access.space, bytes, false);
    if (place.is_fixed) {
        place.is_fixed = false;
        place.offset = statement->operands[first].value;
        place.base = flyt_ptx_lower_source(lower, statement->operands[first].elements, 8, false, false);
    }
    values = flyt_ptx_lower_vector(lower, &statement->operands[first + 1], access.vector);
    if (has_result)
        targets = flyt_ptx_lower_vector(lower, &statement->operands[0], access.vector);
    for (unsigned i = 0; i < access.vector; i++) {
        struct ptx_vop b = flyt_ptx_lower_source(lower, &values[i], bytes, is_float, false), c = {0}, written = {0};
        struct ptx_vinsn *vinsn;

        if (is_cas)
            c = flyt_ptx_lower_source(lower, &statement->operands[first + 2], bytes, is_float, false);
        if (has_result) /* of a vector: elsewhere first, as it may be the value of the next element */
            results[i] = written = access.vector > 1 ? flyt_ptx_lower_temp(lower, bytes)
                                                     : flyt_ptx_lower_destination(lower, targets, bytes);
        vinsn = flyt_ptx_lower_emit_guarded(lower, exec);
        vinsn->op[0] = written;
        vinsn->op[1] = place.base;
        vinsn->op[2] = b;
        vinsn->op[3] = c;
        vinsn->definitions = has_result;
        vinsn->imm = place.offset + (int64_t)i * bytes;
        vinsn->aux = (uint16_t)place.space;
        vinsn->may_wait = true;
    }
    if (has_result && access.vector == 1)
        flyt_ptx_lower_finish(lower, targets, results[0], bytes, access.type->class == PTX_CLASS_SIGNED);
    for (unsigned i = 0; has_result && access.vector > 1 && i < access.vector; i++)
        flyt_ptx_lower_emit_op(lower, bytes == 2 ? "mov.b16" : "mov.b32",
                               flyt_ptx_lower_exact_destination(lower, &targets[i], bytes), results[i],
                               (struct ptx_vop){0}, true);
}

/* The first address of a space's window. Global and constant memory need none. */
static uint64_t window_base(enum ptx_space space)
{
    return space == PTX_SPACE_SHARED ? PTX_SHARED_BASE : space == PTX_SPACE_LOCAL ? PTX_LOCAL_BASE : 0;
}

/* cvta[.to].space: an addition or a subtraction; parameter addresses are generic from the start. */
static void lower_cvta(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    bool is_to = flyt_ptx_lower_has(lower, "to");
    enum ptx_space space = PTX_SPACE_GENERIC;
    const struct ptx_type *type = flyt_ptx_lower_type(lower);
    struct ptx_vop a, written;
    uint64_t base;

    for (unsigned i = 1; i + 1 < statement->modifier_count; i++)
        if (!flyt_ptx_lower_take_space(statement->modifiers[i], &space) && strcmp(statement->modifiers[i], "to"))
            flyt_ptx_lower_unsupported(lower);
    if (statement->operand_count != 2 || type->bytes != 8)
        flyt_ptx_lower_unsupported(lower);
    if (space == PTX_SPACE_PARAM && !lower->function->is_entry)
        space = PTX_SPACE_LOCAL;
    base = window_base(space);
    a = flyt_ptx_lower_source(lower, &statement->operands[1], 8, false, false);
    written = flyt_ptx_lower_destination(lower, &statement->operands[0], 8);
    flyt_ptx_lower_emit_op(lower, "add.u64", written, a, flyt_ptx_lower_constant(lower, is_to ? 0 - base : base, 8),
                           true);
    flyt_ptx_lower_finish(lower, &statement->operands[0], written, 8, false);
}

/* isspacep.space p, a: op[0] result, op[1] the generic address; aux the space. */
static void lower_isspacep(struct ptx_lower *lower)
{
    enum ptx_space space = PTX_SPACE_GENERIC;
    struct ptx_vinsn *vinsn;
    struct ptx_vop a;

    if (lower->statement->modifier_count != 2)
        flyt_ptx_lower_unsupported(lower);
    if (!flyt_ptx_lower_take_space(lower->statement->modifiers[1], &space))
        flyt_ptx_lower_unsupported(lower);
    a = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, 1), 8, false, false);
    vinsn = flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_is_space);
    vinsn->op[0] = flyt_ptx_lower_destination(lower, flyt_ptx_lower_operand(lower, 0), 0);
    vinsn->op[1] = a;
    vinsn->definitions = 1;
    vinsn->aux = (uint16_t)space;
}

static void lower_fence(struct ptx_lower *lower)
{
    flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_fence)->may_wait = true;
}

/* Prefetches and hints about cache policy do nothing: their addresses need not even be valid. */
static void lower_nothing(struct ptx_lower *lower)
{
    flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_prefetch);
}

/* createpolicy: caches follow no policy, and one is as good as another. */
static void lower_policy(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    const char *form = statement->modifier_count > 2 ? statement->modifiers[1] : "";
    struct ptx_vop written;

    if ((strcmp(form, "fractional") && strcmp(form, "range") && strcmp(form, "cvt")) ||
        strcmp(statement->modifiers[statement->modifier_count - 1], "b64"))
        flyt_ptx_lower_unsupported(lower);
    for (unsigned i = 2; i + 1 < statement->modifier_count; i++)
        if (strcmp(statement->modifiers[i], "global") && strcmp(statement->modifiers[i], "L2") &&
            strncmp(statement->modifiers[i], "L2::", 4))
            flyt_ptx_lower_unsupported(lower);
    written = flyt_ptx_lower_exact_destination(lower, flyt_ptx_lower_operand(lower, 0), 8);
    flyt_ptx_lower_emit_op(lower, "mov.b64", written, flyt_ptx_lower_constant(lower, 0, 8), (struct ptx_vop){0}, true);
}

/* What the modifiers of a copy say: only shared memory is written, and global memory read. */
static void check_copy(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;

    for (unsigned i = 2; i < statement->modifier_count; i++) {
        const char *modifier = statement->modifiers[i];
        bool is_known = i == 2   ? !strcmp(modifier, "ca") || !strcmp(modifier, "cg")
                        : i == 3 ? !strcmp(modifier, "shared") || !strcmp(modifier, "shared::cta")
                        : i == 4 ? !strcmp(modifier, "global")
                                 : !strncmp(modifier, "L2::", 4);

        if (!is_known)
            flyt_ptx_lower_unsupported(lower);
    }
    if (statement->modifier_count < 5)
        flyt_ptx_lower_unsupported(lower);
}

/* Bytes that a copy writes: the third operand, always written out. */
static uint64_t copy_bytes(struct ptx_lower *lower)
{
    const struct ptx_operand *operand = flyt_ptx_lower_operand(lower, 2);
    int64_t bytes = operand->kind == PTX_OPERAND_NUMBER ? operand->value : 0;

    if ((bytes != 4 && bytes != 8 && bytes != 16) || (bytes != 16 && !strcmp(lower->statement->modifiers[2], "cg")))
        flyt_ptx_lower_invalid(lower, "such a number of bytes is not copied");
    return (uint64_t)bytes;
}

/* Whether a copy's fourth operand is a predicate: where it holds, zeros are written and nothing is read. */
static bool has_ignore(struct ptx_lower *lower, unsigned operand_count)
{
    const struct ptx_operand *operand = &lower->statement->operands[3];

    return operand_count == 4 && operand->kind == PTX_OPERAND_REGISTER &&
           !flyt_ptx_lower_register_bytes(lower, operand);
}

/*
 * cp.async copies at once: an asynchronous copy may complete at any time. op[0] shared base, op[1] global base,
 * op[2] bytes to read (the rest is zeros) or none, op[3] predicate of lanes that read nothing or none; imm: shared
 * offset and, from bit 32, global offset; aux bytes.
 */
static void lower_copy(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    unsigned operand_count = count_operands(lower);
    uint64_t bytes = copy_bytes(lower);
    struct ptx_place to, from;
    struct ptx_vop read_bytes = {0}, ignores = {0};
    struct ptx_vinsn *vinsn;

    check_copy(lower);
    if (operand_count > 4)
        flyt_ptx_lower_invalid(lower, "too many operands");
    to = flyt_ptx_lower_place(lower, &statement->operands[0], PTX_SPACE_SHARED, bytes, false);
    from = flyt_ptx_lower_place(lower, &statement->operands[1], PTX_SPACE_GLOBAL, bytes, false);
    if (has_ignore(lower, operand_count))
        ignores = flyt_ptx_lower_pred(lower, &statement->operands[3]);
    else if (operand_count == 4)
        read_bytes = flyt_ptx_lower_source(lower, &statement->operands[3], 4, false, false);
    vinsn = flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_copy_async);
    vinsn->op[0] = to.base;
    vinsn->op[1] = from.base;
    vinsn->op[2] = read_bytes;
    vinsn->op[3] = ignores;
    vinsn->imm = (int64_t)((uint64_t)(uint32_t)to.offset | (uint64_t)from.offset << 32);
    vinsn->aux = (uint16_t)bytes;
}

/* cp.async in its forms; with those of bulk copies it has only the first two words in common. */
static void lower_copy_async(struct ptx_lower *lower)
{
    static const char *const waits[] = {"commit_group", "wait_group", "wait_all", NULL};
    const struct ptx_statement *statement = lower->statement;

    if (statement->modifier_count < 3 || strcmp(statement->modifiers[1], "async"))
        flyt_ptx_lower_unsupported(lower);
    if (is_one_of(statement->modifiers[2], waits) && statement->modifier_count == 3)
        flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_prefetch); /* nothing is under way */
    else if (!strcmp(statement->modifiers[2], "mbarrier") && statement->modifier_count > 3 &&
             !strcmp(statement->modifiers[3], "arrive"))
        flyt_ptx_lower_copies_arrive(lower);
    else if (strcmp(statement->modifiers[2], "ca") && strcmp(statement->modifiers[2], "cg"))
        flyt_ptx_lower_unsupported(lower);
    else
        lower_copy(lower);
}

/*
 * ---- accesses with a base in common ----
 *
 * Unrolled loops read one place after the other from the same register; how its 32 addresses lie need be found out
 * once, by the first of them.
 */

/* A register that an access of this block of instructions has used as its base. */
struct kept {
    struct ptx_vinsn *first; /* NULL: none */
    const struct ptx_vinsn *last;
};

/* Whether the second access may use what is known of the first one's base. */
static bool is_alike(const struct ptx_vinsn *a, const struct ptx_vinsn *b)
{
    return a->op[4].index == b->op[4].index && a->access_bytes == b->access_bytes && a->aux == b->aux &&
           !((a->flags ^ b->flags) & PTX_INSN_NARROW);
}

static void note_access(struct kept kept[PTX_BASES], struct ptx_vinsn *vinsn)
{
    unsigned oldest = 0;

    for (unsigned b = 0; b < PTX_BASES; b++) {
        if (kept[b].first && is_alike(kept[b].first, vinsn)) {
            kept[b].first->flags |= PTX_INSN_KEEPS;
            kept[b].last = vinsn;
            vinsn->exec = vinsn->exec_kept;
            vinsn->base = (uint8_t)b;
            return;
        }
        if (kept[b].last < kept[oldest].last)
            oldest = b;
    }
    if (vinsn->is_conditional)
        return;
    kept[oldest] = (struct kept){vinsn, vinsn};
    vinsn->base = (uint8_t)oldest;
}

/* What a base register is written over with, nobody has looked at. */
static void forget_written(struct kept kept[PTX_BASES], const struct ptx_vinsn *vinsn)
{
    for (unsigned o = 0; o < PTX_OPS_MAX; o++)
        for (unsigned b = 0; b < PTX_BASES; b++)
            if (vinsn->definitions >> o & 1 && kept[b].first && kept[b].first->op[4].index == vinsn->op[o].index)
                kept[b] = (struct kept){0};
}

void flyt_ptx_lower_share_bases(struct ptx_lower *lower)
{
    struct kept kept[PTX_BASES] = {0};

    for (size_t i = 0; i < lower->vinsn_count; i++) {
        struct ptx_vinsn *vinsn = &lower->vinsns[i];

        if (vinsn->exec_kept)
            note_access(kept, vinsn);
        forget_written(kept, vinsn);
        if (vinsn->ending != PTX_ENDS_NOT)
            memset(kept, 0, sizeof kept);
    }
}

const struct ptx_lowering flyt_ptx_memory_lowerings[] = {
    {"ld", lower_load},
    {"ldu", lower_load},
    {"st", lower_store},
    {"atom", lower_atomic},
    {"red", lower_atomic},
    {"cvta", lower_cvta},
    {"isspacep", lower_isspacep},
    {"membar", lower_fence},
    {"fence", lower_fence},
    {"prefetch", lower_nothing},
    {"prefetchu", lower_nothing},
    {"discard", lower_nothing},
    {"applypriority", lower_nothing},
    {"createpolicy", lower_policy},
    {"cp", lower_copy_async},
    {NULL, NULL},
};
