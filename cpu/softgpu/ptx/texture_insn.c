/*
 * Textures and surfaces: tex, tld4, txq, suld, sust, sured and suq, in the form in which the handle of an object is a
 * 64-bit register, as compilers emit it. Names of textures (.texref) and samplers apart from them are refused. What a
 * fetch computes is in texture.c.
 */
#include "cpu/softgpu/ptx/exec.h"
#include "cpu/softgpu/ptx/lower.h"
#include "cpu/softgpu/ptx/ops.h"

#include <string.h>

#include "cpu/softgpu/texel/store.h"

/* ---- objects ---- */

const struct flyt_ptx_object *flyt_ptx_object_find(const struct ptx_warp *w, uint64_t handle, bool is_surface)
{
    const struct flyt_ptx_objects *objects = w->run->launch->objects;
    const struct flyt_ptx_object *object;

    if (!objects || !objects->slots || handle >= FLYT_PTX_OBJECTS_MAX)
        return NULL;
    object = atomic_load_explicit(&objects->slots[handle], memory_order_acquire);
    return object && object->is_surface == is_surface ? object : NULL;
}

/* Where a lane's elements are. */
enum where { WHERE_INSIDE, WHERE_NOWHERE, WHERE_OUTSIDE, WHERE_MISALIGNED };

static int64_t clamp(int64_t at, int64_t last)
{
    return at < 0 ? 0 : at < last ? at : last;
}

static enum where find_place(const struct flyt_ptx_object *object, const struct ptx_surface_insn *what,
                             const int32_t *words, char **ret_place)
{
    const struct flyt_ptx_level *level = &object->image.levels[0];
    const int64_t unit = what->is_formatted ? object->image.texel_bytes : what->element_bytes;
    const int64_t bytes = what->is_formatted ? unit : unit * what->element_count;
    const int64_t lasts[3] = {(int64_t)level->width * object->image.texel_bytes - bytes, (int64_t)level->height - 1,
                              (int64_t)level->depth - 1};
    int64_t at[3] = {0, 0, 0};

    for (unsigned d = 0; d < what->dimensions; d++)
        at[d] = words[what->has_layer + d];
    if (what->is_formatted)
        at[0] *= unit;
    if (what->has_layer)
        at[2] = (uint32_t)words[0]; /* of layers, what is negative is beyond the last one */
    for (unsigned d = 0; d < 3; d++) {
        if (at[d] >= 0 && at[d] <= lasts[d])
            continue;
        if (what->bound == PTX_SURFACE_TRAP || lasts[d] < 0)
            return WHERE_OUTSIDE;
        if (what->bound == PTX_SURFACE_ZERO)
            return WHERE_NOWHERE;
        at[d] = clamp(at[d], lasts[d]);
        if (d == 0) /* the nearest texel */
            at[d] -= at[d] % unit;
    }
    if (at[0] % unit)
        return WHERE_MISALIGNED;
    *ret_place = (char *)(uintptr_t)(level->address + (uint64_t)at[2] * level->slice_bytes + /* NOLINT: an image's */
                                     (uint64_t)at[1] * level->row_bytes + (uint64_t)at[0]);
    return WHERE_INSIDE;
}

#define REDUCE(T)                                                                                                      \
    do {                                                                                                               \
        T *place_ = (T *)place, old_ = __atomic_load_n(place_, __ATOMIC_RELAXED), value_ = (T)value, new_;             \
        do                                                                                                             \
            new_ = op == PTX_SURFACE_ADD   ? (T)(old_ + value_)                                                        \
                   : op == PTX_SURFACE_MIN ? (old_ < value_ ? old_ : value_)                                           \
                   : op == PTX_SURFACE_MAX ? (old_ > value_ ? old_ : value_)                                           \
                   : op == PTX_SURFACE_AND ? (T)(old_ & value_)                                                        \
                                           : (T)(old_ | value_);                                                       \
        while (!__atomic_compare_exchange_n(place_, &old_, new_, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));           \
    } while (0)

static void reduce(const struct ptx_surface_insn *what, void *place, uint64_t value)
{
    const enum ptx_surface_op op = (enum ptx_surface_op)what->op;
    bool adds_unsigned = op == PTX_SURFACE_ADD || !what->is_signed; /* sums wrap */

    if (what->element_bytes == 4 && adds_unsigned)
        REDUCE(uint32_t);
    else if (what->element_bytes == 4)
        REDUCE(int32_t);
    else if (adds_unsigned)
        REDUCE(uint64_t);
    else
        REDUCE(int64_t);
}

/* Elements of less than 16 bits are in registers of 16. */
static unsigned register_bytes(const struct ptx_surface_insn *what)
{
    return what->element_bytes < 2 ? 2 : what->element_bytes;
}

/* What the lanes have loaded, before any register is written. */
struct loaded {
    unsigned char bytes[PTX_LANES][32];
};

/* Operands from `first` on are channels. Those that lack a value become 0, as on GPUs. */
static void store_texel(const struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_surface_insn *what,
                        unsigned first, uint32_t lane, const struct flyt_ptx_image *image, char *place)
{
    uint32_t words[4] = {0};

    for (unsigned e = 0; e < what->element_count; e++)
        words[e] = ((const uint32_t *)ptx_wide_operand(w, in, first + e))[lane];
    flyt_texel_store(image->format, image->channels, words, (unsigned char *)place);
}

/* place NULL: nowhere. Operands from `first` on are values. */
static void exec_lane(const struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_surface_insn *what,
                      unsigned first, uint32_t lane, char *place, struct loaded *loaded)
{
    const unsigned bytes = what->element_bytes, room = register_bytes(what);

    if (what->op == PTX_SURFACE_LOAD && place) {
        memcpy(loaded->bytes[lane], place, (size_t)bytes * what->element_count);
        return;
    }
    for (unsigned e = 0; e < what->element_count && place; e++) {
        const char *value = (const char *)ptx_wide_operand(w, in, first + e) + (size_t)lane * room;
        uint64_t bits = 0;

        memcpy(&bits, value, bytes);
        if (what->op == PTX_SURFACE_STORE)
            memcpy(place + (size_t)e * bytes, &bits, bytes);
        else
            reduce(what, place, bits);
    }
}

static void write_loaded(const struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_surface_insn *what,
                         unsigned first, const struct loaded *loaded)
{
    const unsigned bytes = what->element_bytes, room = register_bytes(what);

    for (unsigned e = 0; e < what->element_count; e++) {
        char *d = ptx_wide_operand(w, in, first + e);

        PTX_EACH_LANE(lane, w->mask)
        {
            uint64_t bits = 0;

            memcpy(&bits, loaded->bytes[lane] + (size_t)e * bytes, bytes);
            memcpy(d + (size_t)lane * room, &bits, room);
        }
    }
}

const struct ptx_insn *flyt_ptx_exec_surface(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint64_t *handles = ptx_wide_operand(w, in, 0);
    struct loaded loaded;
    struct ptx_surface_insn what;
    unsigned word_count;

    memcpy(&what, &in->imm, sizeof what);
    word_count = what.dimensions + what.has_layer;
    PTX_EACH_LANE(lane, w->mask)
    {
        const struct flyt_ptx_object *object = flyt_ptx_object_find(w, handles[lane], true);
        int32_t words[4];
        char *place = NULL;

        if (!object)
            return flyt_ptx_warp_fault(w, CUDA_ERROR_ILLEGAL_ADDRESS);
        for (unsigned i = 0; i < word_count; i++)
            words[i] = ((const int32_t *)ptx_wide_operand(w, in, 1 + i))[lane];
        switch (find_place(object, &what, words, &place)) {
        case WHERE_OUTSIDE:
            return flyt_ptx_warp_fault(w, CUDA_ERROR_ILLEGAL_ADDRESS);
        case WHERE_MISALIGNED:
            return flyt_ptx_warp_fault(w, CUDA_ERROR_MISALIGNED_ADDRESS);
        default:
            break;
        }
        if (what.op == PTX_SURFACE_LOAD)
            memset(loaded.bytes[lane], 0, sizeof loaded.bytes[lane]);
        if (!what.is_formatted)
            exec_lane(w, in, &what, 1 + word_count, lane, place, &loaded);
        else if (place)
            store_texel(w, in, &what, 1 + word_count, lane, &object->image, place);
    }
    if (what.op == PTX_SURFACE_LOAD)
        write_loaded(w, in, &what, 1 + word_count, &loaded);
    return in + ptx_wide_parts(1 + word_count + what.element_count);
}

/* ---- questions ---- */

static uint32_t answer(const struct flyt_ptx_object *object, enum ptx_texture_query query, uint32_t number)
{
    const struct flyt_ptx_image *image = &object->image;
    const struct flyt_ptx_level *level = &image->levels[number < image->level_count ? number : image->level_count - 1];

    switch (query) {
    case PTX_QUERY_WIDTH:
        return level->width;
    case PTX_QUERY_HEIGHT:
        return level->height;
    case PTX_QUERY_DEPTH:
        return image->is_layered ? 1 : level->depth;
    case PTX_QUERY_TYPE:
        return image->format;
    case PTX_QUERY_ORDER:
        return image->channels;
    case PTX_QUERY_NORMALIZED:
        return object->is_normalized;
    case PTX_QUERY_LAYERS:
        return image->is_layered ? level->depth / (image->is_cubemap ? 6 : 1) : 0;
    case PTX_QUERY_LEVELS:
        return image->level_count;
    default:
        return 0;
    }
}

/* txq and suq: op[0] result, op[1] handle, op[2] the level; aux what is asked, extra whether of a surface. */
const struct ptx_insn *flyt_ptx_exec_texture_query(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint64_t *handles = ptx_lanes(w, in->op[1]);
    const uint32_t *levels = ptx_lanes(w, in->op[2]);
    uint32_t results[PTX_LANES], *d = ptx_register(w, in->op[0]);

    PTX_EACH_LANE(lane, w->mask)
    {
        const struct flyt_ptx_object *object = flyt_ptx_object_find(w, handles[lane], in->extra);

        if (!object)
            return flyt_ptx_warp_fault(w, CUDA_ERROR_ILLEGAL_ADDRESS);
        results[lane] = answer(object, (enum ptx_texture_query)in->aux, levels[lane]);
    }
    PTX_EACH_LANE(lane, w->mask)
    d[lane] = results[lane];
    return in + 1;
}

/* ---- lowering ---- */

static const struct geometry {
    const char *name;
    uint8_t dimensions, has_layer, is_cube;
} geometries[] = {
    {"1d", 1, 0, 0},  {"2d", 2, 0, 0},   {"3d", 3, 0, 0},    {"a1d", 1, 1, 0},
    {"a2d", 2, 1, 0}, {"cube", 3, 0, 1}, {"acube", 3, 1, 1},
};

static const struct geometry *find_geometry(const char *name)
{
    for (size_t i = 0; i < sizeof geometries / sizeof *geometries; i++)
        if (!strcmp(geometries[i].name, name))
            return &geometries[i];
    return NULL;
}

/* Operands of a wide instruction, as they are collected: sources, then results. */
struct operands {
    struct ptx_vop ops[1 + PTX_TEXTURE_WORDS_MAX + 4];
    unsigned source_count, result_count;
};

static void add_source(struct operands *operands, struct ptx_vop op)
{
    operands->ops[operands->source_count++] = op;
}

/* The handle of [handle, {coordinates}]. */
static void add_handle(struct ptx_lower *lower, struct operands *operands, const struct ptx_operand *address,
                       bool has_coordinates)
{
    if (address->kind != PTX_OPERAND_ADDRESS || address->value || address->has_more != has_coordinates)
        flyt_ptx_lower_invalid(lower, "an object and its coordinates are expected");
    if (address->elements->kind != PTX_OPERAND_REGISTER)
        flyt_ptx_lower_unsupported(lower); /* the name of a texture or surface */
    if (flyt_ptx_lower_register_bytes(lower, address->elements) != 8)
        flyt_ptx_lower_invalid(lower, "a handle has 64 bits");
    add_source(operands, flyt_ptx_lower_source(lower, address->elements, 8, false, false));
}

/* `count` words of a vector, which may be longer: three go as four. Or one by itself. */
static void add_words(struct ptx_lower *lower, struct operands *operands, const struct ptx_operand *vector,
                      unsigned count, bool is_float)
{
    const struct ptx_operand *words = vector;
    unsigned given = 1;

    if (vector->kind == PTX_OPERAND_VECTOR) {
        words = vector->elements;
        given = vector->element_count;
    }
    if (given != count && !(count == 3 && given == 4))
        flyt_ptx_lower_invalid(lower, "wrong number of coordinates");
    for (unsigned i = 0; i < count; i++)
        add_source(operands, flyt_ptx_lower_source(lower, &words[i], 4, is_float, false));
}

/* Results of `bytes` each, to be copied on by finish_results where the registers are wider. */
static void add_results(struct ptx_lower *lower, struct operands *operands, const struct ptx_operand *targets,
                        unsigned count, uint8_t bytes)
{
    for (unsigned i = 0; i < count; i++)
        operands->ops[operands->source_count + operands->result_count++] =
            flyt_ptx_lower_destination(lower, &targets[i], bytes);
}

static void finish_results(struct ptx_lower *lower, const struct operands *operands, const struct ptx_operand *targets,
                           uint8_t bytes)
{
    for (unsigned i = 0; i < operands->result_count; i++)
        flyt_ptx_lower_finish(lower, &targets[i], operands->ops[operands->source_count + i], bytes, false);
}

static void require_operands(struct ptx_lower *lower, unsigned count)
{
    if (lower->statement->operand_count < count)
        flyt_ptx_lower_invalid(lower, "too few operands");
    if (lower->statement->operand_count > count || lower->statement->operands[0].second)
        flyt_ptx_lower_unsupported(lower); /* offsets, comparisons of depth, whether memory is there */
}

/* ---- textures ---- */

static bool take_how(struct ptx_texture_insn *what, const char *modifier)
{
    if (!strcmp(modifier, "base"))
        what->how = PTX_TEXTURE_BASE;
    else if (!strcmp(modifier, "level"))
        what->how = PTX_TEXTURE_LEVEL;
    else if (!strcmp(modifier, "grad"))
        what->how = PTX_TEXTURE_GRADIENT;
    else
        return false;
    return true;
}

static bool take_channel(struct ptx_texture_insn *what, const char *modifier)
{
    const char *channels = "rgba", *at = strchr(channels, modifier[0]);

    if (!modifier[0] || modifier[1] || !at)
        return false;
    what->channel = (uint8_t)(at - channels);
    return true;
}

/* Between the operation and the two types: how, the geometry, .v4. */
static void take_modifiers(struct ptx_lower *lower, struct ptx_texture_insn *what)
{
    const struct ptx_statement *statement = lower->statement;
    const bool is_gather = !strcmp(statement->modifiers[0], "tld4");
    const struct geometry *geometry = NULL;
    bool has_vector = false;

    what->how = is_gather ? PTX_TEXTURE_GATHER : PTX_TEXTURE_BASE;
    for (unsigned i = 1; i + 2 < statement->modifier_count; i++) {
        const char *modifier = statement->modifiers[i];

        if (is_gather ? take_channel(what, modifier) : take_how(what, modifier))
            continue;
        if (!geometry && (geometry = find_geometry(modifier)))
            continue;
        if (strcmp(modifier, "v4") != 0)
            flyt_ptx_lower_unsupported(lower);
        has_vector = true;
    }
    if (!geometry || !has_vector)
        flyt_ptx_lower_unsupported(lower);
    what->dimensions = geometry->dimensions;
    what->has_layer = geometry->has_layer;
    what->is_cube = geometry->is_cube;
    /* Gradients of directions are those of a face that they may leave. */
    if ((is_gather && (what->dimensions != 2 || what->has_layer)) ||
        (what->is_cube && what->how == PTX_TEXTURE_GRADIENT))
        flyt_ptx_lower_unsupported(lower);
}

/* The types of results and coordinates. */
static void take_types(struct ptx_lower *lower, struct ptx_texture_insn *what)
{
    const struct ptx_statement *statement = lower->statement;
    const struct ptx_type *result, *coordinate = flyt_ptx_lower_type(lower);

    result =
        statement->modifier_count > 2 ? flyt_ptx_type_find(statement->modifiers[statement->modifier_count - 2]) : NULL;
    if (!result || result->bytes != 4 || result->class == PTX_CLASS_BITS || coordinate->bytes != 4)
        flyt_ptx_lower_unsupported(lower);
    what->is_integer = coordinate->class == PTX_CLASS_SIGNED;
    if (!what->is_integer && coordinate->class != PTX_CLASS_FLOAT)
        flyt_ptx_lower_invalid(lower, "coordinates are .f32 or .s32");
    if (what->is_integer && (what->how != PTX_TEXTURE_BASE || what->is_cube))
        flyt_ptx_lower_unsupported(lower);
}

/*
 * tex and tld4: struct ptx_texture_insn says what the operands are. The layer is the first of the coordinates, and no
 * float.
 */
static void lower_texture(struct ptx_lower *lower)
{
    static const unsigned operand_counts[] = {2, 3, 4, 2};
    struct ptx_texture_insn what = {0};
    struct operands operands = {0};
    const struct ptx_operand *targets, *address;

    take_modifiers(lower, &what);
    take_types(lower, &what);
    require_operands(lower, operand_counts[what.how]);
    targets = flyt_ptx_lower_vector(lower, flyt_ptx_lower_operand(lower, 0), 4);
    address = flyt_ptx_lower_operand(lower, 1);
    add_handle(lower, &operands, address, true);
    add_words(lower, &operands, &address->elements[1], what.dimensions + what.has_layer, !what.is_integer);
    if (what.how == PTX_TEXTURE_LEVEL)
        add_words(lower, &operands, flyt_ptx_lower_operand(lower, 2), 1, true);
    for (unsigned i = 0; i < 2 && what.how == PTX_TEXTURE_GRADIENT; i++)
        add_words(lower, &operands, flyt_ptx_lower_operand(lower, 2 + i), what.dimensions, true);
    what.word_count = (uint8_t)(operands.source_count - 1);
    what.result_count = 4;
    add_results(lower, &operands, targets, 4, 4);
    memcpy(&flyt_ptx_lower_emit_wide(lower, flyt_ptx_lower_row(lower, "$texture")->exec, operands.ops,
                                     operands.source_count, operands.result_count)
                ->imm,
           &what, sizeof what);
    finish_results(lower, &operands, targets, 4);
}

/* ---- surfaces ---- */

static bool take_bound(struct ptx_surface_insn *what, const char *modifier)
{
    static const char *const names[] = {"trap", "clamp", "zero"};

    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], modifier)) {
            what->bound = (uint8_t)i;
            return true;
        }
    return false;
}

static bool take_reduction(struct ptx_surface_insn *what, const char *modifier)
{
    static const char *const names[] = {"add", "min", "max", "and", "or"};

    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], modifier)) {
            what->op = (uint8_t)(PTX_SURFACE_ADD + i);
            return true;
        }
    return false;
}

static bool is_cache_word(const char *modifier)
{
    static const char *const words[] = {"ca", "cg", "cs", "cv", "wb", "wt"};

    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i], modifier))
            return true;
    return false;
}

static void take_element(struct ptx_lower *lower, struct ptx_surface_insn *what, const struct ptx_type *type)
{
    bool is_reduction = what->op > PTX_SURFACE_STORE;

    if (!type || !type->bytes || type->class == PTX_CLASS_FLOAT || type->bytes > 8 || (is_reduction && type->bytes < 4))
        flyt_ptx_lower_unsupported(lower);
    what->element_bytes = type->bytes;
    what->is_signed = type->class == PTX_CLASS_SIGNED;
    if (what->element_bytes * what->element_count > 16)
        flyt_ptx_lower_invalid(lower, "more than 16 bytes");
}

/* The form .b, whose x counts bytes, or of stores .p, which converts words of 32 bits. */
static void take_surface(struct ptx_lower *lower, struct ptx_surface_insn *what)
{
    const struct ptx_statement *statement = lower->statement;
    const struct geometry *geometry = NULL;
    const struct ptx_type *type = NULL;
    bool is_bytes = false, has_bound = false;

    what->element_count = 1;
    for (unsigned i = 1; i < statement->modifier_count; i++) {
        const char *modifier = statement->modifiers[i];

        if (!strcmp(modifier, "b"))
            is_bytes = true;
        else if (!strcmp(modifier, "p") && what->op == PTX_SURFACE_STORE)
            what->is_formatted = true;
        else if (!strcmp(modifier, "v2") || !strcmp(modifier, "v4"))
            what->element_count = (uint8_t)(modifier[1] - '0');
        else if (!geometry && (geometry = find_geometry(modifier)))
            continue;
        else if (!type && (type = flyt_ptx_type_find(modifier)))
            continue;
        else if (take_bound(what, modifier))
            has_bound = true;
        else if (!(what->op == PTX_SURFACE_ADD && take_reduction(what, modifier)) && !is_cache_word(modifier))
            flyt_ptx_lower_unsupported(lower);
    }
    if (is_bytes == what->is_formatted || !geometry || geometry->is_cube || !has_bound)
        flyt_ptx_lower_unsupported(lower);
    what->dimensions = geometry->dimensions;
    what->has_layer = geometry->has_layer;
    take_element(lower, what, type);
    if (what->is_formatted && (what->element_bytes != 4 || type->class != PTX_CLASS_BITS))
        flyt_ptx_lower_unsupported(lower);
}

static void emit_surface(struct ptx_lower *lower, const struct operands *operands, const struct ptx_surface_insn *what)
{
    struct ptx_vinsn *vinsn = flyt_ptx_lower_emit_wide(lower, flyt_ptx_exec_surface, operands->ops,
                                                       operands->source_count, operands->result_count);

    memcpy(&vinsn->imm, what, sizeof *what);
}

/* suld: struct ptx_surface_insn says what the operands are. */
static void lower_surface_load(struct ptx_lower *lower)
{
    struct ptx_surface_insn what = {.op = PTX_SURFACE_LOAD};
    struct operands operands = {0};
    const struct ptx_operand *targets, *address;
    uint8_t bytes;

    take_surface(lower, &what);
    require_operands(lower, 2);
    bytes = what.element_bytes < 2 ? 2 : what.element_bytes;
    targets = flyt_ptx_lower_vector(lower, flyt_ptx_lower_operand(lower, 0), what.element_count);
    address = flyt_ptx_lower_operand(lower, 1);
    add_handle(lower, &operands, address, true);
    add_words(lower, &operands, &address->elements[1], what.dimensions + what.has_layer, false);
    add_results(lower, &operands, targets, what.element_count, bytes);
    emit_surface(lower, &operands, &what);
    finish_results(lower, &operands, targets, bytes);
}

/* sust and sured: what is stored, or the operand of the reduction, comes behind the coordinates. */
static void lower_surface_write(struct ptx_lower *lower)
{
    const bool is_store = !strcmp(lower->statement->modifiers[0], "sust");
    struct ptx_surface_insn what = {.op = is_store ? PTX_SURFACE_STORE : PTX_SURFACE_ADD};
    struct operands operands = {0};
    const struct ptx_operand *values, *address;
    uint8_t bytes;

    take_surface(lower, &what);
    require_operands(lower, 2);
    bytes = what.element_bytes < 2 ? 2 : what.element_bytes;
    address = flyt_ptx_lower_operand(lower, 0);
    values = flyt_ptx_lower_vector(lower, flyt_ptx_lower_operand(lower, 1), what.element_count);
    add_handle(lower, &operands, address, true);
    add_words(lower, &operands, &address->elements[1], what.dimensions + what.has_layer, false);
    for (unsigned i = 0; i < what.element_count; i++)
        add_source(&operands, flyt_ptx_lower_source(lower, &values[i], bytes, false, false));
    emit_surface(lower, &operands, &what);
}

/* ---- questions ---- */

static const struct {
    const char *name;
    enum ptx_texture_query query;
    bool is_of_textures, is_of_surfaces;
} queries[] = {
    {"width", PTX_QUERY_WIDTH, true, true},         {"height", PTX_QUERY_HEIGHT, true, true},
    {"depth", PTX_QUERY_DEPTH, true, true},         {"channel_data_type", PTX_QUERY_TYPE, true, true},
    {"channel_order", PTX_QUERY_ORDER, true, true}, {"normalized_coords", PTX_QUERY_NORMALIZED, true, false},
    {"array_size", PTX_QUERY_LAYERS, true, true},   {"num_mipmap_levels", PTX_QUERY_LEVELS, true, false},
};

/* txq and suq: the operands are told at flyt_ptx_exec_texture_query. */
static void lower_query(struct ptx_lower *lower)
{
    const struct ptx_statement *statement = lower->statement;
    const bool is_surface = !strcmp(statement->modifiers[0], "suq"), has_level = flyt_ptx_lower_has(lower, "level");
    const struct ptx_operand *target = flyt_ptx_lower_operand(lower, 0);
    struct operands operands = {0};
    struct ptx_vop level = flyt_ptx_lower_constant(lower, 0, 4), written;
    struct ptx_vinsn *vinsn;
    unsigned i = 0;

    while (i < sizeof queries / sizeof *queries &&
           !(flyt_ptx_lower_has(lower, queries[i].name) &&
             (is_surface ? queries[i].is_of_surfaces : queries[i].is_of_textures)))
        i++;
    if (i == sizeof queries / sizeof *queries || (is_surface && has_level) ||
        statement->modifier_count != 3u + has_level || flyt_ptx_lower_type(lower)->bytes != 4)
        flyt_ptx_lower_unsupported(lower);
    require_operands(lower, 2 + has_level);
    add_handle(lower, &operands, flyt_ptx_lower_operand(lower, 1), false);
    if (has_level)
        level = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, 2), 4, false, false);
    written = flyt_ptx_lower_destination(lower, target, 4);
    vinsn = flyt_ptx_lower_emit_guarded(lower, flyt_ptx_exec_texture_query);
    vinsn->op[0] = written;
    vinsn->op[1] = operands.ops[0];
    vinsn->op[2] = level;
    vinsn->definitions = 1;
    vinsn->aux = (uint16_t)queries[i].query;
    vinsn->extra = is_surface;
    flyt_ptx_lower_finish(lower, target, written, 4, false);
}

const struct ptx_lowering flyt_ptx_texture_lowerings[] = {
    {"tex", lower_texture},       {"tld4", lower_texture},       {"txq", lower_query},           {"suq", lower_query},
    {"suld", lower_surface_load}, {"sust", lower_surface_write}, {"sured", lower_surface_write}, {NULL, NULL},
};
