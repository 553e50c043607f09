/* mma, wmma, ldmatrix, stmatrix and movmatrix: which shapes and types there are, and how many registers they take. */
#include "cpu/softgpu/ptx/exec.h"
#include "cpu/softgpu/ptx/lower.h"
#include "cpu/softgpu/ptx/matrix.h"
#include "cpu/softgpu/ptx/ops.h"

#include <fenv.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    enum ptx_element element;
} elements[] = {
    {"f16", PTX_ELEMENT_F16},   {"bf16", PTX_ELEMENT_BF16}, {"tf32", PTX_ELEMENT_TF32}, {"e4m3", PTX_ELEMENT_E4M3},
    {"e5m2", PTX_ELEMENT_E5M2}, {"s8", PTX_ELEMENT_S8},     {"u8", PTX_ELEMENT_U8},     {"s4", PTX_ELEMENT_S4},
    {"u4", PTX_ELEMENT_U4},     {"b1", PTX_ELEMENT_B1},     {"f64", PTX_ELEMENT_F64},   {"f32", PTX_ELEMENT_F32},
    {"s32", PTX_ELEMENT_S32},
};

#define ONE(element) (1u << PTX_ELEMENT_##element)
#define EIGHT_BITS   (ONE(S8) | ONE(U8))
#define FOUR_BITS    (ONE(S4) | ONE(U4))
#define SMALL_FLOATS (ONE(E4M3) | ONE(E5M2))

/* The shapes, and the elements that A and B may have there. mma of m8n8k4 and f16 is of GPUs before 7.5. */
static const struct shape {
    const char *operation, *name;
    unsigned rows, columns, depth;
    uint32_t elements;
} shapes[] = {
    {"mma", "m8n8k4", 8, 8, 4, ONE(F64)},
    {"mma", "m16n8k4", 16, 8, 4, ONE(TF32) | ONE(F64)},
    {"mma", "m16n8k8", 16, 8, 8, ONE(F16) | ONE(BF16) | ONE(TF32) | ONE(F64)},
    {"mma", "m16n8k16", 16, 8, 16, ONE(F16) | ONE(BF16) | ONE(F64) | EIGHT_BITS | SMALL_FLOATS},
    {"mma", "m8n8k16", 8, 8, 16, EIGHT_BITS},
    {"mma", "m16n8k32", 16, 8, 32, EIGHT_BITS | FOUR_BITS | SMALL_FLOATS},
    {"mma", "m8n8k32", 8, 8, 32, FOUR_BITS},
    {"mma", "m16n8k64", 16, 8, 64, FOUR_BITS},
    {"mma", "m8n8k128", 8, 8, 128, ONE(B1)},
    {"mma", "m16n8k128", 16, 8, 128, ONE(B1)},
    {"mma", "m16n8k256", 16, 8, 256, ONE(B1)},
    {"wmma", "m16n16k16", 16, 16, 16, ONE(F16) | ONE(BF16) | EIGHT_BITS},
    {"wmma", "m32n8k16", 32, 8, 16, ONE(F16) | ONE(BF16) | EIGHT_BITS},
    {"wmma", "m8n32k16", 8, 32, 16, ONE(F16) | ONE(BF16) | EIGHT_BITS},
    {"wmma", "m16n16k8", 16, 16, 8, ONE(TF32)},
    {"wmma", "m8n8k4", 8, 8, 4, ONE(F64)},
    {"wmma", "m8n8k32", 8, 8, 32, FOUR_BITS},
    {"wmma", "m8n8k128", 8, 8, 128, ONE(B1)},
};

/* What goes together: accumulators of a product of such elements, and what computes it. */
static const struct {
    uint32_t elements, accumulators;
    const char *key;
} kinds[] = {
    {ONE(F16) | SMALL_FLOATS, ONE(F16) | ONE(F32), "$product.float"},
    {ONE(BF16) | ONE(TF32), ONE(F32), "$product.float"},
    {EIGHT_BITS, ONE(S32), "$product.integer"},
    {FOUR_BITS, ONE(S32), "$product.integer"},
    {ONE(B1), ONE(S32), "$product.bits"},
    {ONE(F64), ONE(F64), "$product.double"},
};

/* What the modifiers of an instruction say, in the order in which they stand. */
struct words {
    const struct shape *shape;
    enum ptx_element elements[4]; /* d, a, b, c; or the one of a load or store */
    unsigned element_count;
    enum ptx_space space;
    char part;         /* a, b, c or d of wmma.load and wmma.store */
    bool is_column[2]; /* row or col, as often as it stands there */
    unsigned layout_count;
    uint8_t flags; /* enum ptx_product_flags */
    bool has_xor;
    int rounding; /* of f64, as of fesetround */
};

static bool take_element(struct words *words, const char *modifier)
{
    for (size_t i = 0; i < sizeof elements / sizeof *elements; i++)
        if (!strcmp(modifier, elements[i].name) && words->element_count < 4) {
            words->elements[words->element_count++] = elements[i].element;
            return true;
        }
    return false;
}

static bool take_shape(struct words *words, const char *operation, const char *modifier)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!strcmp(modifier, shapes[i].name) && !strcmp(operation, shapes[i].operation)) {
            words->shape = &shapes[i];
            return true;
        }
    return false;
}

static bool take_layout(struct words *words, const char *modifier)
{
    bool is_column = !strcmp(modifier, "col");

    if ((!is_column && strcmp(modifier, "row")) || words->layout_count == 2)
        return false;
    words->is_column[words->layout_count++] = is_column;
    return true;
}

/* How a product is computed. The counting of bits says both "popc" and what is counted. */
static bool take_manner(struct words *words, const char *modifier)
{
    static const struct {
        const char *name;
        int rounding;
    } roundings[] = {{"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

    for (size_t i = 0; i < sizeof roundings / sizeof *roundings; i++)
        if (!strcmp(modifier, roundings[i].name)) {
            words->rounding = roundings[i].rounding;
            return true;
        }
    if (!strcmp(modifier, "satfinite"))
        words->flags |= PTX_PRODUCT_SATURATES;
    else if (!strcmp(modifier, "and"))
        words->flags |= PTX_PRODUCT_AND;
    else if (!strcmp(modifier, "xor"))
        words->has_xor = true;
    else
        return !strcmp(modifier, "popc");
    return true;
}

/* From modifier `first` on: what nobody knows here refuses the instruction. is_product: mma and wmma.mma. */
static struct words parse_words(struct ptx_lower *lower, unsigned first, bool is_product)
{
    const struct ptx_statement *statement = lower->statement;
    struct words words = {.space = PTX_SPACE_GENERIC, .rounding = FE_TONEAREST};
    bool is_together = flyt_ptx_lower_has(lower, "sync") && flyt_ptx_lower_has(lower, "aligned");

    for (unsigned i = first; i < statement->modifier_count; i++) {
        const char *modifier = statement->modifiers[i];
        bool is_known = !strcmp(modifier, "sync") || !strcmp(modifier, "aligned") || take_element(&words, modifier) ||
                        take_layout(&words, modifier) || take_shape(&words, statement->modifiers[0], modifier);

        if (!is_known &&
            !(is_product ? take_manner(&words, modifier) : flyt_ptx_lower_take_space(modifier, &words.space)))
            flyt_ptx_lower_unsupported(lower);
    }
    if (!is_together || !words.shape ||
        (words.space != PTX_SPACE_GENERIC && words.space != PTX_SPACE_GLOBAL && words.space != PTX_SPACE_SHARED))
        flyt_ptx_lower_unsupported(lower);
    return words;
}

/* ---- products ---- */

/* The kind of elements that a, b, c and d have; refused where they do not go together, or not with the shape. */
static const char *find_kind(struct ptx_lower *lower, const struct words *words, const struct ptx_product *product)
{
    bool is_wmma = lower->statement->modifiers[0][0] == 'w';

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        uint32_t factors = kinds[i].elements, sums = kinds[i].accumulators;
        bool mixes = factors & (EIGHT_BITS | FOUR_BITS | SMALL_FLOATS) && !is_wmma;

        if (!(words->shape->elements & 1u << product->a) || !(factors >> product->a & 1) ||
            !(factors >> product->b & 1) || !(sums >> product->c & 1) || !(sums >> product->d & 1))
            continue;
        if ((product->a != product->b && !mixes) || (product->c != product->d && !is_wmma))
            continue;
        return kinds[i].key;
    }
    flyt_ptx_lower_unsupported(lower);
}

/* What the manner of computing may be said of. */
static void check_manner(struct ptx_lower *lower, const struct words *words, const struct ptx_product *product)
{
    bool is_bits = product->a == PTX_ELEMENT_B1, is_wmma = lower->statement->modifiers[0][0] == 'w';
    uint32_t saturates = EIGHT_BITS | FOUR_BITS | (is_wmma ? ONE(F16) : 0);
    bool counts = words->has_xor || words->flags & PTX_PRODUCT_AND;

    if (is_bits != counts || (words->has_xor && words->flags & PTX_PRODUCT_AND) ||
        flyt_ptx_lower_has(lower, "popc") != is_bits ||
        (words->flags & PTX_PRODUCT_SATURATES && !(saturates >> product->a & 1)) ||
        (words->rounding != FE_TONEAREST && product->a != PTX_ELEMENT_F64))
        flyt_ptx_lower_unsupported(lower);
}

static struct ptx_product describe_product(struct ptx_lower *lower, const struct words *words)
{
    const enum ptx_element *named = words->elements;
    struct ptx_product product = {.flags = words->flags};
    bool names_accumulators = words->element_count == 2; /* wmma of f16 */

    if (words->element_count != 4 && !(names_accumulators && lower->statement->modifiers[0][0] == 'w'))
        flyt_ptx_lower_unsupported(lower);
    product.d = (uint8_t)named[0];
    product.a = names_accumulators ? PTX_ELEMENT_F16 : (uint8_t)named[1];
    product.b = names_accumulators ? PTX_ELEMENT_F16 : (uint8_t)named[2];
    product.c = (uint8_t)named[names_accumulators ? 1 : 3];
    product.rows = (uint8_t)(words->shape->rows / PTX_BLOCK_ROWS);
    product.columns = (uint8_t)(words->shape->columns / PTX_BLOCK_ROWS);
    product.depth = (uint8_t)(words->shape->depth / ptx_block_depth(product.a));
    return product;
}

/* The registers of a vector operand, or the first of `given` that are there: wmma has elements more than once. */
static unsigned take_sources(struct ptx_lower *lower, unsigned operand, unsigned count, unsigned given,
                             enum ptx_element element, struct ptx_vop *ops)
{
    const struct ptx_operand *vector = flyt_ptx_lower_vector(lower, flyt_ptx_lower_operand(lower, operand), given);
    uint8_t bytes = element == PTX_ELEMENT_F64 ? 8 : 4;
    bool is_float = element == PTX_ELEMENT_F64 || element == PTX_ELEMENT_F32;

    for (unsigned i = 0; i < count; i++)
        ops[i] = flyt_ptx_lower_source(lower, &vector[i], bytes, is_float, false);
    return count;
}

static unsigned take_results(struct ptx_lower *lower, unsigned operand, unsigned count, enum ptx_element element,
                             struct ptx_vop *ops)
{
    const struct ptx_operand *vector = flyt_ptx_lower_vector(lower, flyt_ptx_lower_operand(lower, operand), count);

    for (unsigned i = 0; i < count; i++)
        ops[i] = flyt_ptx_lower_exact_destination(lower, &vector[i], element == PTX_ELEMENT_F64 ? 8 : 4);
    return count;
}

/* Registers of A or B of wmma: of f16 always eight, in which elements are repeated. */
static unsigned given_registers(bool is_wmma, enum ptx_element element, unsigned blocks)
{
    return is_wmma && element == PTX_ELEMENT_F16 ? 8 : blocks;
}

/* d, a, b, c: a, b, c and d one after the other in the instruction; imm the product, aux the rounding of f64. */
static void lower_product(struct ptx_lower *lower, unsigned first_modifier)
{
    bool is_wmma = lower->statement->modifiers[0][0] == 'w';
    struct words words = parse_words(lower, first_modifier, true);
    struct ptx_product product = describe_product(lower, &words);
    const char *key = find_kind(lower, &words, &product);
    unsigned a = (unsigned)product.rows * product.depth, b = (unsigned)product.columns * product.depth;
    unsigned blocks = (unsigned)product.rows * product.columns, source_count = 0, result_count;
    struct ptx_vop ops[PTX_WIDE_OPERANDS_MAX];
    struct ptx_vinsn *vinsn;

    check_manner(lower, &words, &product);
    if (words.layout_count != 2 || (!is_wmma && (words.is_column[0] || !words.is_column[1])))
        flyt_ptx_lower_unsupported(lower);
    if (lower->statement->operand_count != 4)
        flyt_ptx_lower_unsupported(lower);
    source_count += take_sources(lower, 1, a, given_registers(is_wmma, product.a, a), product.a, ops);
    source_count += take_sources(lower, 2, b, given_registers(is_wmma, product.b, b), product.b, ops + source_count);
    a = blocks * ptx_block_registers(product.c);
    source_count += take_sources(lower, 3, a, a, product.c, ops + source_count);
    result_count = take_results(lower, 0, blocks * ptx_block_registers(product.d), product.d, ops + source_count);
    vinsn = flyt_ptx_lower_emit_wide(lower, flyt_ptx_lower_row(lower, key)->exec, ops, source_count, result_count);
    memcpy(&vinsn->imm, &product, sizeof product);
    vinsn->aux = (uint16_t)words.rounding;
}

static void lower_mma(struct ptx_lower *lower)
{
    lower_product(lower, 1);
}

/* ---- memory ---- */

/* An address as one register of 64 bits, the offset added. *space: as told, then that of a variable named there. */
static struct ptx_vop take_address(struct ptx_lower *lower, unsigned operand, enum ptx_space *space)
{
    struct ptx_place place = flyt_ptx_lower_place(lower, flyt_ptx_lower_operand(lower, operand), *space, 1, false);
    struct ptx_vop sum;

    if (place.is_fixed)
        flyt_ptx_lower_invalid(lower, "an address of this space is not expected here");
    *space = place.space;
    if (!place.offset)
        return place.base;
    sum = flyt_ptx_lower_temp(lower, 8);
    flyt_ptx_lower_emit_op(lower, "add.u64", sum, place.base, flyt_ptx_lower_constant(lower, (uint64_t)place.offset, 8),
                           false);
    return sum;
}

static bool is_accumulator(enum ptx_element element)
{
    return element == PTX_ELEMENT_F16 || element == PTX_ELEMENT_F32 || element == PTX_ELEMENT_F64 ||
           element == PTX_ELEMENT_S32;
}

/* Which elements accumulators of a shape may have. */
static bool has_accumulator(const struct shape *shape, enum ptx_element element)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].elements & shape->elements && kinds[i].accumulators >> element & 1)
            return true;
    return false;
}

/* The matrix of a wmma.load or wmma.store. *ret_stride: elements of a line where the instruction does not say. */
static struct ptx_fragment describe_fragment(struct ptx_lower *lower, const struct words *words, uint32_t *ret_stride)
{
    const struct shape *shape = words->shape;
    enum ptx_element element = words->elements[0];
    bool is_sum = words->part == 'c' || words->part == 'd', is_column = words->is_column[0];
    unsigned outer = words->part == 'b' ? shape->columns : shape->rows;
    unsigned inner = is_sum ? shape->columns : shape->depth, blocks;
    struct ptx_fragment fragment = {.element = (uint8_t)element, .block_registers = 1};

    if (words->element_count != 1 || words->layout_count != 1 ||
        (is_sum ? !is_accumulator(element) || !has_accumulator(shape, element) : !(shape->elements >> element & 1)))
        flyt_ptx_lower_unsupported(lower);
    fragment.block_width = (uint8_t)(is_sum ? PTX_BLOCK_ROWS : ptx_block_depth(element));
    fragment.outer = (uint8_t)(outer / PTX_BLOCK_ROWS);
    fragment.inner = (uint8_t)(inner / fragment.block_width);
    fragment.is_across = is_column != (words->part == 'b');
    fragment.is_paired = words->part != 'b' && fragment.outer > 1;
    if (is_sum)
        fragment.block_registers = (uint8_t)ptx_block_registers(element);
    blocks = (unsigned)fragment.outer * fragment.inner;
    fragment.register_count =
        (uint8_t)(is_sum ? blocks * fragment.block_registers : given_registers(true, element, blocks));
    if (fragment.is_across && ptx_element_bits(element) < 8)
        flyt_ptx_lower_unsupported(lower);
    *ret_stride = fragment.is_across ? outer : inner;
    return fragment;
}

/*
 * wmma.load.a|b|c r, p[, stride] and wmma.store.d p, r[, stride]: the address, the stride in elements, the registers;
 * aux the space, imm the fragment.
 */
static void lower_fragment(struct ptx_lower *lower, bool is_store)
{
    const struct ptx_statement *statement = lower->statement;
    struct words words = parse_words(lower, 3, false);
    struct ptx_vop ops[PTX_WIDE_OPERANDS_MAX];
    struct ptx_fragment fragment;
    struct ptx_vinsn *vinsn;
    uint32_t stride;
    unsigned count;

    words.part = statement->modifiers[2][0];
    fragment = describe_fragment(lower, &words, &stride);
    if (statement->operand_count != 2 && statement->operand_count != 3)
        flyt_ptx_lower_unsupported(lower);
    ops[0] = take_address(lower, is_store ? 0 : 1, &words.space);
    ops[1] = statement->operand_count == 3 ? flyt_ptx_lower_source(lower, &statement->operands[2], 4, false, false)
                                           : flyt_ptx_lower_constant(lower, stride, 4);
    count = fragment.register_count;
    if (is_store)
        take_sources(lower, 1, count, count, fragment.element, ops + 2);
    else
        take_results(lower, 0, count, fragment.element, ops + 2);
    vinsn = flyt_ptx_lower_emit_wide(lower,
                                     flyt_ptx_lower_row(lower, is_store ? "$fragment.store" : "$fragment.load")->exec,
                                     ops, is_store ? 2 + count : 2, is_store ? 0 : count);
    memcpy(&vinsn->imm, &fragment, sizeof fragment);
    vinsn->aux = (uint16_t)words.space;
}

static void lower_wmma(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    const char *what = statement->modifier_count > 2 ? statement->modifiers[1] : "", *part = statement->modifiers[2];

    if (!strcmp(what, "mma"))
        lower_product(lower, 2);
    else if (!strcmp(what, "load") && (!strcmp(part, "a") || !strcmp(part, "b") || !strcmp(part, "c")))
        lower_fragment(lower, false);
    else if (!strcmp(what, "store") && !strcmp(part, "d"))
        lower_fragment(lower, true);
    else
        flyt_ptx_lower_unsupported(lower);
}

/* The number of matrices that ldmatrix or stmatrix moves; *ret_space, *ret_is_turned: what else it says. */
static unsigned parse_matrices(struct ptx_lower *lower, enum ptx_space *ret_space, bool *ret_is_turned)
{
    const struct ptx_statement *statement = lower->statement;
    unsigned count = 0;

    *ret_space = PTX_SPACE_GENERIC;
    *ret_is_turned = flyt_ptx_lower_has(lower, "trans");
    for (unsigned i = 1; i + 1 < statement->modifier_count; i++) {
        const char *modifier = statement->modifiers[i];

        if (!strcmp(modifier, "x1") || !strcmp(modifier, "x2") || !strcmp(modifier, "x4"))
            count = (unsigned)(modifier[1] - '0');
        else if (strcmp(modifier, "sync") && strcmp(modifier, "aligned") && strcmp(modifier, "m8n8") &&
                 strcmp(modifier, "trans") && !flyt_ptx_lower_take_space(modifier, ret_space))
            flyt_ptx_lower_unsupported(lower);
    }
    if (!count || !flyt_ptx_lower_has(lower, "sync") || !flyt_ptx_lower_has(lower, "aligned") ||
        !flyt_ptx_lower_has(lower, "m8n8") || strcmp(statement->modifiers[statement->modifier_count - 1], "b16") ||
        (*ret_space != PTX_SPACE_SHARED && *ret_space != PTX_SPACE_GENERIC) || statement->operand_count != 2)
        flyt_ptx_lower_unsupported(lower);
    return count;
}

static void lower_matrices(struct ptx_lower *lower)
{
    bool is_store = lower->statement->modifiers[0][0] == 's', is_turned;
    struct ptx_vop ops[PTX_OPS_MAX];
    enum ptx_space space;
    unsigned count = parse_matrices(lower, &space, &is_turned);
    struct ptx_vinsn *vinsn;

    ops[0] = take_address(lower, is_store ? 0 : 1, &space);
    if (is_store)
        take_sources(lower, 1, count, count, PTX_ELEMENT_F16, ops + 1);
    else
        take_results(lower, 0, count, PTX_ELEMENT_F16, ops + 1);
    vinsn = flyt_ptx_lower_emit_wide(lower, flyt_ptx_lower_row(lower, is_store ? "$rows.store" : "$rows.load")->exec,
                                     ops, is_store ? 1 + count : 1, is_store ? 0 : count);
    vinsn->aux = (uint16_t)space;
    vinsn->extra = (uint8_t)count;
    vinsn->imm = is_turned;
}

static void lower_movmatrix(struct ptx_lower *lower)
{
    struct ptx_vop ops[2];

    if (strcmp(lower->statement->text, "movmatrix.sync.aligned.m8n8.trans.b16") || lower->statement->operand_count != 2)
        flyt_ptx_lower_unsupported(lower);
    take_sources(lower, 1, 1, 1, PTX_ELEMENT_F16, &ops[1]);
    take_results(lower, 0, 1, PTX_ELEMENT_F16, &ops[0]);
    memcpy(flyt_ptx_lower_emit_guarded(lower, flyt_ptx_lower_row(lower, "$rows.turn")->exec)->op, ops, sizeof ops);
    lower->vinsns[lower->vinsn_count - 1].definitions = 1;
}

const struct ptx_lowering flyt_ptx_matrix_lowerings[] = {
    {"mma", lower_mma},           {"wmma", lower_wmma},           {"ldmatrix", lower_matrices},
    {"stmatrix", lower_matrices}, {"movmatrix", lower_movmatrix}, {NULL, NULL},
};
