/*
 * The video instructions: arithmetic on bytes and half-words that are selected from 32-bit registers. Scalar ones may
 * be followed by a second operation, or write a part of the destination; SIMD ones do two or four at once.
 *
 * Lowering packs what the modifiers say into the instruction; op[0] d, op[1] a, op[2] b, op[3] c.
 */
#include "cpu/softgpu/ptx/exec.h"
#include "cpu/softgpu/ptx/lower.h"

#include <string.h>

enum video_op { ADD, SUB, ABSDIFF, MIN, MAX, AVERAGE, SHL, SHR, MAD, SET };
enum video_second { SECOND_NONE, SECOND_ADD, SECOND_MIN, SECOND_MAX };
enum video_compare { COMPARE_NONE, COMPARE_EQ, COMPARE_NE, COMPARE_LT, COMPARE_LE, COMPARE_GT, COMPARE_GE };
enum { PART_WORD = 6 }; /* of a scalar: 0 … 3 a byte, 4 and 5 a half-word, or the whole */

struct video {
    uint64_t op : 4, parts : 3; /* parts: 1 scalar, 2, 4 */
    uint64_t is_signed : 1, is_a_signed : 1, is_b_signed : 1;
    uint64_t saturates : 1, second : 2, compare : 3;
    uint64_t wraps : 1, plus_one : 1, shift : 4; /* of shifts; of mad: .po, .shr7, .shr15 */
    uint64_t negates_a : 1, negates_b : 1, negates_c : 1;
    uint64_t merge : 3;      /* scalar: the part of d that is written */
    uint64_t mask : 4;       /* SIMD: the parts of d that are */
    uint64_t a : 12, b : 12; /* scalar: a part; SIMD: three bits for each part, the lowest first */
};
_Static_assert(sizeof(struct video) == sizeof(int64_t), "fits into an instruction");

/* ---- execution ---- */

static int64_t extend(uint32_t bits, unsigned width, bool is_signed)
{
    uint64_t value = width == 32 ? bits : bits & ((1u << width) - 1);

    return is_signed ? (int64_t)(value << (64 - width)) >> (64 - width) : (int64_t)value;
}

static int64_t select_scalar(uint32_t word, unsigned part, bool is_signed)
{
    if (part == PART_WORD)
        return extend(word, 32, is_signed);
    return part < 4 ? extend(word >> 8 * part, 8, is_signed) : extend(word >> 16 * (part - 4), 16, is_signed);
}

/* Part `index` of both words: those of b come behind those of a. */
static int64_t select_simd(uint32_t a, uint32_t b, unsigned index, unsigned parts, bool is_signed)
{
    unsigned width = 32 / parts;
    uint32_t word = index < parts ? a : b;

    return extend(word >> width * (index % parts), width, is_signed);
}

static __int128 clamp(__int128 value, unsigned width, bool is_signed)
{
    const __int128 most = is_signed ? ((__int128)1 << (width - 1)) - 1 : ((__int128)1 << width) - 1;
    const __int128 least = is_signed ? -((__int128)1 << (width - 1)) : 0;

    return value < least ? least : value > most ? most : value;
}

static bool compare(enum video_compare compare, int64_t a, int64_t b)
{
    switch (compare) {
    case COMPARE_EQ:
        return a == b;
    case COMPARE_NE:
        return a != b;
    case COMPARE_LT:
        return a < b;
    case COMPARE_LE:
        return a <= b;
    case COMPARE_GT:
        return a > b;
    default:
        return a >= b;
    }
}

static __int128 operate(const struct video *v, int64_t a, int64_t b)
{
    switch ((enum video_op)v->op) {
    case ADD:
        return a + b;
    case SUB:
        return a - b;
    case ABSDIFF:
        return a < b ? b - a : a - b;
    case MIN:
        return a < b ? a : b;
    case MAX:
        return a > b ? a : b;
    case AVERAGE: /* rounded away from zero */
        return a + b >= 0 ? (a + b + 1) >> 1 : (a + b) >> 1;
    case SHL:
    case SHR:
        b = v->wraps ? b & 31 : b > 32 ? 32 : b;
        return v->op == SHL ? (__int128)a * ((__int128)1 << b) : a >> b;
    default:
        return compare((enum video_compare)v->compare, a, b);
    }
}

static uint32_t finish_scalar(const struct video *v, __int128 value, uint32_t c)
{
    unsigned width = v->merge == PART_WORD ? 32 : v->merge < 4 ? 8 : 16;
    unsigned place = v->merge == PART_WORD ? 0 : v->merge < 4 ? 8 * v->merge : 16 * (v->merge - 4u);
    __int128 third = extend(c, 32, v->is_signed);
    uint32_t mask;

    if (v->saturates)
        value = clamp(value, width, v->is_signed);
    if (v->second == SECOND_ADD)
        value += third;
    else if (v->second == SECOND_MIN)
        value = value < third ? value : third;
    else if (v->second == SECOND_MAX)
        value = value > third ? value : third;
    if (width == 32)
        return (uint32_t)value;
    mask = ((1u << width) - 1) << place;
    return ((uint32_t)value << place & mask) | (c & ~mask);
}

static uint32_t run_scalar(const struct video *v, uint32_t a, uint32_t b, uint32_t c)
{
    int64_t part_a = select_scalar(a, v->a, v->is_a_signed);
    int64_t part_b = select_scalar(b, v->b, v->is_b_signed);

    return finish_scalar(v, operate(v, part_a, part_b), c);
}

/* The manual's table of signs comes down to: the result is unsigned where all three operands are. */
static uint32_t run_mad(const struct video *v, uint32_t a, uint32_t b, uint32_t c)
{
    bool negates = v->negates_a != v->negates_b;
    bool is_signed = v->is_a_signed || v->is_b_signed || negates || v->negates_c;
    __int128 value = (__int128)select_scalar(a, v->a, v->is_a_signed) * select_scalar(b, v->b, v->is_b_signed);
    __int128 third = extend(c, 32, is_signed);

    if (negates)
        value = -value;
    else if (v->negates_c && !v->plus_one)
        third = -(__int128)extend(c, 32, true);
    value = (value + third + v->plus_one) >> v->shift;
    return (uint32_t)(v->saturates ? clamp(value, 32, is_signed) : value);
}

static uint32_t run_simd(const struct video *v, uint32_t a, uint32_t b, uint32_t c)
{
    unsigned width = 32 / v->parts;
    uint32_t d = v->second == SECOND_ADD ? c : 0;

    for (unsigned i = 0; i < v->parts; i++) {
        uint32_t mask = ((1u << width) - 1) << width * i;
        __int128 value;

        if (!(v->mask >> i & 1)) {
            d |= v->second == SECOND_ADD ? 0 : c & mask;
            continue;
        }
        value = operate(v, select_simd(a, b, v->a >> 3 * i & 7, v->parts, v->is_a_signed),
                        select_simd(a, b, v->b >> 3 * i & 7, v->parts, v->is_b_signed));
        if (v->saturates)
            value = clamp(value, width, v->is_signed);
        if (v->second == SECOND_ADD)
            d += (uint32_t)value;
        else
            d |= (uint32_t)value << width * i & mask;
    }
    return d;
}

static const struct ptx_insn *exec_video(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint32_t *d = ptx_lanes(w, in->op[0]);
    const uint32_t *a = ptx_lanes(w, in->op[1]), *b = ptx_lanes(w, in->op[2]), *c = ptx_lanes(w, in->op[3]);
    struct video v;

    memcpy(&v, &in->imm, sizeof v);
    PTX_EACH_LANE(lane, w->mask)
    d[lane] = v.op == MAD    ? run_mad(&v, a[lane], b[lane], c[lane])
              : v.parts == 1 ? run_scalar(&v, a[lane], b[lane], c[lane])
                             : run_simd(&v, a[lane], b[lane], c[lane]);
    return in + 1;
}

/* ---- lowering ---- */

static const struct {
    const char *name;
    enum video_op op;
    unsigned parts;
} operations[] = {
    {"vadd", ADD, 1},          {"vsub", SUB, 1},  {"vabsdiff", ABSDIFF, 1}, {"vmin", MIN, 1},
    {"vmax", MAX, 1},          {"vshl", SHL, 1},  {"vshr", SHR, 1},         {"vmad", MAD, 1},
    {"vset", SET, 1},          {"vadd2", ADD, 2}, {"vsub2", SUB, 2},        {"vavrg2", AVERAGE, 2},
    {"vabsdiff2", ABSDIFF, 2}, {"vmin2", MIN, 2}, {"vmax2", MAX, 2},        {"vset2", SET, 2},
    {"vadd4", ADD, 4},         {"vsub4", SUB, 4}, {"vavrg4", AVERAGE, 4},   {"vabsdiff4", ABSDIFF, 4},
    {"vmin4", MIN, 4},         {"vmax4", MAX, 4}, {"vset4", SET, 4},
};

static void find_operation(struct ptx_lower *lower, struct video *video)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (!strcmp(operations[i].name, lower->statement->modifiers[0])) {
            video->op = operations[i].op;
            video->parts = operations[i].parts & 7;
            return;
        }
    flyt_ptx_lower_unsupported(lower);
}

static bool take_signedness(struct ptx_lower *lower, unsigned index)
{
    const char *name = index < lower->statement->modifier_count ? lower->statement->modifiers[index] : "";

    if (strcmp(name, "u32") != 0 && strcmp(name, "s32") != 0)
        flyt_ptx_lower_invalid(lower, "a video instruction takes .u32 and .s32");
    return name[0] == 's';
}

static int find_name(const char *const *names, const char *name)
{
    for (int i = 0; names[i]; i++)
        if (!strcmp(names[i], name))
            return i;
    return -1;
}

/* A modifier behind the types. False: this operation has none such. */
static bool take_modifier(struct video *video, const char *name, bool *has_mode)
{
    static const char *const seconds[] = {"", "add", "min", "max", NULL};
    static const char *const compares[] = {"", "eq", "ne", "lt", "le", "gt", "ge", NULL};
    int second = find_name(seconds, name), comparison = find_name(compares, name);
    bool is_shift = video->op == SHL || video->op == SHR;

    if (!strcmp(name, "sat") && video->op != SET && !video->saturates) {
        video->saturates = 1;
    } else if (is_shift && !*has_mode && (!strcmp(name, "clamp") || !strcmp(name, "wrap"))) {
        video->wraps = name[0] == 'w';
        *has_mode = true;
    } else if (video->op == MAD && !strcmp(name, "po") && !video->plus_one) {
        video->plus_one = 1;
    } else if (video->op == MAD && !video->shift && (!strcmp(name, "shr7") || !strcmp(name, "shr15"))) {
        video->shift = strcmp(name, "shr7") ? 15 : 7;
    } else if (video->op == SET && comparison > 0 && !video->compare) {
        video->compare = (uint64_t)comparison & 7;
    } else if (video->op != MAD && second > 0 && !video->second && (video->parts == 1 || second == SECOND_ADD)) {
        video->second = (uint64_t)second & 3;
    } else {
        return false;
    }
    return true;
}

static void take_modifiers(struct ptx_lower *lower, struct video *video)
{
    const struct ptx_statement *statement = lower->statement;
    unsigned at = 1;
    bool has_mode = false;

    if (video->op != SET)
        video->is_signed = take_signedness(lower, at++);
    video->is_a_signed = take_signedness(lower, at++);
    video->is_b_signed = take_signedness(lower, at++);
    for (; at < statement->modifier_count; at++)
        if (!take_modifier(video, statement->modifiers[at], &has_mode))
            flyt_ptx_lower_invalid(lower, "a modifier is not expected here");
    if ((video->op == SHL || video->op == SHR) && (!has_mode || video->is_b_signed))
        flyt_ptx_lower_invalid(lower, "a shift is by .u32, and says .clamp or .wrap");
    if (video->op == SET && !video->compare)
        flyt_ptx_lower_invalid(lower, "the comparison is missing");
    if (video->parts > 1 && video->saturates && video->second)
        flyt_ptx_lower_invalid(lower, ".sat and .add together");
}

static unsigned scalar_selector(struct ptx_lower *lower, const char *selector)
{
    static const char *const names[] = {"b0", "b1", "b2", "b3", "h0", "h1", NULL};
    int part = selector ? find_name(names, selector) : PART_WORD;

    if (part < 0)
        flyt_ptx_lower_invalid(lower, "unknown selector");
    return (unsigned)part;
}

/* .h32, .b7654: which of the parts of both sources, the highest first. */
static unsigned simd_selector(struct ptx_lower *lower, const struct video *video, const char *selector, bool is_b)
{
    static const char *const defaults[2][2] = {{"h10", "h32"}, {"b3210", "b7654"}};
    unsigned packed = 0;

    selector = selector ? selector : defaults[video->parts == 4][is_b];
    if (selector[0] != (video->parts == 4 ? 'b' : 'h') || strlen(selector) != video->parts + 1u)
        flyt_ptx_lower_invalid(lower, "unknown selector");
    for (unsigned i = 0; i < video->parts; i++) {
        unsigned part = (unsigned)selector[1 + i] - '0';

        if (part >= 2u * video->parts)
            flyt_ptx_lower_invalid(lower, "unknown selector");
        packed = packed << 3 | part;
    }
    return packed;
}

/* .h10, .b20: parts of the destination, the highest first. */
static unsigned simd_mask(struct ptx_lower *lower, const struct video *video, const char *selector)
{
    unsigned mask = 0, last = video->parts;

    if (!selector)
        return (1u << video->parts) - 1;
    if (selector[0] != (video->parts == 4 ? 'b' : 'h') || !selector[1])
        flyt_ptx_lower_invalid(lower, "unknown mask");
    for (const char *digit = selector + 1; *digit; digit++) {
        unsigned part = (unsigned)*digit - '0';

        if (part >= last)
            flyt_ptx_lower_invalid(lower, "unknown mask");
        mask |= 1u << part;
        last = part;
    }
    return mask;
}

static void take_selectors(struct ptx_lower *lower, struct video *video)
{
    const struct ptx_operand *d = flyt_ptx_lower_operand(lower, 0), *a = flyt_ptx_lower_operand(lower, 1);
    const struct ptx_operand *b = flyt_ptx_lower_operand(lower, 2);

    video->merge = PART_WORD;
    if (video->parts > 1) {
        video->mask = simd_mask(lower, video, d->selector) & 15;
        video->a = simd_selector(lower, video, a->selector, false) & 4095;
        video->b = simd_selector(lower, video, b->selector, true) & 4095;
        return;
    }
    video->merge = scalar_selector(lower, d->selector) & 7;
    video->a = scalar_selector(lower, a->selector) & 7;
    video->b = scalar_selector(lower, b->selector) & 7;
    if (d->selector && (video->op == MAD || video->second))
        flyt_ptx_lower_invalid(lower, "a part of the destination and a second operation");
}

static void take_signs(struct ptx_lower *lower, struct video *video)
{
    const struct ptx_operand *operands = lower->statement->operands;
    bool has_some = false;

    for (unsigned i = 0; i < lower->statement->operand_count; i++)
        has_some |= operands[i].is_minus;
    if (has_some && (video->op != MAD || video->plus_one || operands[0].is_minus))
        flyt_ptx_lower_invalid(lower, "an operand cannot be negated here");
    video->negates_a = operands[1].is_minus;
    video->negates_b = operands[2].is_minus;
    video->negates_c = lower->statement->operand_count > 3 && operands[3].is_minus;
    if ((video->negates_a != video->negates_b) && video->negates_c)
        flyt_ptx_lower_invalid(lower, "product and addend are both negated");
}

static void lower_video(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    const struct ptx_operand *target = flyt_ptx_lower_operand(lower, 0);
    struct video video = {0};
    struct ptx_vop sources[3], written;
    struct ptx_vinsn *vinsn;
    unsigned source_count;

    find_operation(lower, &video);
    take_modifiers(lower, &video);
    take_selectors(lower, &video);
    take_signs(lower, &video);
    source_count = video.parts > 1 || video.op == MAD || video.second || video.merge != PART_WORD ? 3 : 2;
    if (statement->operand_count != source_count + 1 || (source_count == 3 && statement->operands[3].selector))
        flyt_ptx_lower_invalid(lower, "wrong number of operands");
    for (unsigned i = 0; i < 3; i++)
        sources[i] = i < source_count ? flyt_ptx_lower_source(lower, &statement->operands[i + 1], 4, false, false)
                                      : flyt_ptx_lower_constant(lower, 0, 4);
    written = flyt_ptx_lower_destination(lower, target, 4);
    vinsn = flyt_ptx_lower_emit_guarded(lower, exec_video);
    vinsn->op[0] = written;
    memcpy(&vinsn->op[1], sources, sizeof sources);
    vinsn->definitions = 1;
    memcpy(&vinsn->imm, &video, sizeof video);
    flyt_ptx_lower_finish(lower, target, written, 4, video.is_signed);
}

#define ROWS(name)                                                                                                     \
    {name, lower_video}, {name "2", lower_video},                                                                      \
    {                                                                                                                  \
        name "4", lower_video                                                                                          \
    }

const struct ptx_lowering flyt_ptx_video_lowerings[] = {
    ROWS("vadd"),          ROWS("vsub"),          ROWS("vabsdiff"),        ROWS("vmin"),
    ROWS("vmax"),          ROWS("vset"),          {"vavrg2", lower_video}, {"vavrg4", lower_video},
    {"vshl", lower_video}, {"vshr", lower_video}, {"vmad", lower_video},   {NULL, NULL},
};
