#include "cpu/softgpu/ptx/parse.h"

#include "cpu/softgpu/ptx/join.h"
#include "cpu/softgpu/ptx/lex.h"

#include <string.h>

static const struct ptx_type types[] = {
    {"pred", 0, PTX_CLASS_PRED},    {"b8", 1, PTX_CLASS_BITS},      {"b16", 2, PTX_CLASS_BITS},
    {"b32", 4, PTX_CLASS_BITS},     {"b64", 8, PTX_CLASS_BITS},     {"u8", 1, PTX_CLASS_UNSIGNED},
    {"u16", 2, PTX_CLASS_UNSIGNED}, {"u32", 4, PTX_CLASS_UNSIGNED}, {"u64", 8, PTX_CLASS_UNSIGNED},
    {"s8", 1, PTX_CLASS_SIGNED},    {"s16", 2, PTX_CLASS_SIGNED},   {"s32", 4, PTX_CLASS_SIGNED},
    {"s64", 8, PTX_CLASS_SIGNED},   {"f16", 2, PTX_CLASS_FLOAT},    {"bf16", 2, PTX_CLASS_FLOAT},
    {"f16x2", 4, PTX_CLASS_FLOAT},  {"bf16x2", 4, PTX_CLASS_FLOAT}, {"f32", 4, PTX_CLASS_FLOAT},
    {"f64", 8, PTX_CLASS_FLOAT},    {"tf32", 4, PTX_CLASS_FLOAT},
};

const struct ptx_type *flyt_ptx_type_find(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i].name, name))
            return &types[i];
    return NULL;
}

void flyt_ptx_parser_fail(struct ptx_parser *parser, const char *what)
{
    const struct ptx_token *token = &parser->lexer.token;
    int shown = token->text_bytes > 60 ? 60 : (int)token->text_bytes;

    flyt_ptx_build_fail(parser->build, CUDA_ERROR_INVALID_PTX, token->line, "%s at '%.*s'", what, shown, token->text);
}

bool flyt_ptx_parser_is(const struct ptx_parser *parser, char punctuation)
{
    return parser->lexer.token.kind == PTX_TOKEN_PUNCTUATION && parser->lexer.token.punctuation == punctuation;
}

bool flyt_ptx_parser_is_word(const struct ptx_parser *parser, const char *word)
{
    const struct ptx_token *token = &parser->lexer.token;

    return token->kind == PTX_TOKEN_WORD && token->text_bytes == strlen(word) &&
           !memcmp(token->text, word, token->text_bytes);
}

static bool accept_word(struct ptx_parser *parser, const char *word)
{
    if (!flyt_ptx_parser_is_word(parser, word))
        return false;
    flyt_ptx_lexer_next(&parser->lexer);
    return true;
}

bool flyt_ptx_parser_accept(struct ptx_parser *parser, char punctuation)
{
    if (!flyt_ptx_parser_is(parser, punctuation))
        return false;
    flyt_ptx_lexer_next(&parser->lexer);
    return true;
}

void flyt_ptx_parser_expect(struct ptx_parser *parser, char punctuation)
{
    char what[] = "expected 'x'";

    what[10] = punctuation;
    if (!flyt_ptx_parser_accept(parser, punctuation))
        flyt_ptx_parser_fail(parser, what);
}

const char *flyt_ptx_parser_take_word(struct ptx_parser *parser)
{
    const struct ptx_token *token = &parser->lexer.token;
    const char *word;

    if (token->kind != PTX_TOKEN_WORD)
        flyt_ptx_parser_fail(parser, "expected a name");
    word = flyt_ptx_build_copy(parser->build, &parser->build->scratch, token->text, token->text_bytes);
    flyt_ptx_lexer_next(&parser->lexer);
    return word;
}

int64_t flyt_ptx_parser_take_int(struct ptx_parser *parser)
{
    bool is_negative;
    uint64_t value;

    flyt_ptx_parser_accept(parser, '+'); /* "+-8" is how nvcc writes a negative offset */
    is_negative = flyt_ptx_parser_accept(parser, '-');
    if (parser->lexer.token.kind != PTX_TOKEN_NUMBER || parser->lexer.token.number_kind != PTX_NUMBER_INT)
        flyt_ptx_parser_fail(parser, "expected an integer");
    value = parser->lexer.token.bits;
    flyt_ptx_lexer_next(&parser->lexer);
    return (int64_t)(is_negative ? 0 - value : value);
}

void flyt_ptx_parser_skip_braces(struct ptx_parser *parser)
{
    unsigned depth = 0;

    do {
        if (parser->lexer.token.kind == PTX_TOKEN_END)
            flyt_ptx_parser_fail(parser, "unbalanced braces");
        depth += flyt_ptx_parser_is(parser, '{');
        depth -= flyt_ptx_parser_is(parser, '}');
        flyt_ptx_lexer_next(&parser->lexer);
    } while (depth);
}

static void *scratch(struct ptx_parser *parser, size_t bytes)
{
    return flyt_ptx_build_alloc(parser->build, &parser->build->scratch, bytes);
}

static int64_t take_bounded(struct ptx_parser *parser, int64_t max, const char *what)
{
    int64_t value = flyt_ptx_parser_take_int(parser);

    if (value < 0 || value > max)
        flyt_ptx_parser_fail(parser, what);
    return value;
}

/* ---- initialisers ---- */

/* The bit pattern of the current number as a value of `type`. */
static uint64_t convert_number(struct ptx_parser *parser, const struct ptx_type *type, bool is_negative)
{
    const struct ptx_token *token = &parser->lexer.token;
    uint64_t bits = token->bits;
    double wide;
    float narrow;

    if (token->number_kind == PTX_NUMBER_INT && type->class == PTX_CLASS_FLOAT && type->bytes >= 4) {
        wide = (double)bits;
        memcpy(&bits, &wide, sizeof bits);
    } else if (token->number_kind == PTX_NUMBER_INT) {
        return is_negative ? 0 - bits : bits;
    } else if (token->number_kind == PTX_NUMBER_F32) {
        if (type->bytes == 8) {
            uint32_t low = (uint32_t)bits;

            memcpy(&narrow, &low, sizeof narrow);
            wide = narrow;
            memcpy(&bits, &wide, sizeof bits);
            return is_negative ? bits ^ 1ull << 63 : bits;
        }
        return is_negative ? bits ^ 1u << 31 : bits;
    }
    memcpy(&wide, &bits, sizeof wide);
    wide = is_negative ? -wide : wide;
    memcpy(&bits, &wide, sizeof bits);
    if (type->bytes == 4) {
        uint32_t low;

        narrow = (float)wide;
        memcpy(&low, &narrow, sizeof low);
        bits = low;
    }
    return bits;
}

/* One element: a number, symbol[+offset], generic(symbol)[+offset], or mask(symbol[+offset]). */
static void parse_initial(struct ptx_parser *parser, const struct ptx_type *type, struct ptx_initial *initial)
{
    bool is_negative = flyt_ptx_parser_accept(parser, '-');

    initial->line = parser->lexer.token.line;
    initial->byte_count = type->bytes;
    if (parser->lexer.token.kind == PTX_TOKEN_NUMBER) {
        initial->bits = convert_number(parser, type, is_negative);
        flyt_ptx_lexer_next(&parser->lexer);
        if (!flyt_ptx_parser_is(parser, '('))
            return;
        while (initial->bits && !(initial->bits & 0xff)) { /* 0xFF00(symbol): the second byte of the address */
            initial->bits >>= 8;
            initial->shift_bits += 8;
        }
        if (initial->bits != 0xff || initial->shift_bits > 56)
            flyt_ptx_parser_fail(parser, "unsupported address mask");
        initial->bits = 0;
        flyt_ptx_parser_expect(parser, '(');
        initial->symbol = flyt_ptx_parser_take_word(parser);
        if (!strcmp(initial->symbol, "generic") && flyt_ptx_parser_accept(parser, '(')) {
            initial->symbol = flyt_ptx_parser_take_word(parser);
            flyt_ptx_parser_expect(parser, ')');
        }
    } else {
        initial->symbol = flyt_ptx_parser_take_word(parser);
        if (!strcmp(initial->symbol, "generic")) {
            flyt_ptx_parser_expect(parser, '(');
            initial->symbol = flyt_ptx_parser_take_word(parser);
            flyt_ptx_parser_expect(parser, ')');
        }
    }
    if (flyt_ptx_parser_is(parser, '+') || flyt_ptx_parser_is(parser, '-'))
        initial->bits = (uint64_t)flyt_ptx_parser_take_int(parser);
    if (initial->shift_bits || initial->byte_count == 1)
        flyt_ptx_parser_expect(parser, ')');
}

static void parse_initials(struct ptx_parser *parser, struct ptx_variable *variable, bool is_unsized)
{
    struct ptx_initial **last = &variable->initial;
    unsigned depth = 0;
    uint64_t offset = 0;

    do {
        if (flyt_ptx_parser_accept(parser, '{')) {
            depth++;
            continue;
        }
        if (depth && flyt_ptx_parser_accept(parser, '}')) {
            depth--;
            flyt_ptx_parser_accept(parser, ',');
            continue;
        }
        *last = scratch(parser, sizeof **last);
        (*last)->offset = offset;
        parse_initial(parser, variable->type, *last);
        offset += (*last)->byte_count;
        last = &(*last)->next;
        if (depth && !flyt_ptx_parser_is(parser, '}'))
            flyt_ptx_parser_expect(parser, ',');
    } while (depth);
    if (is_unsized)
        variable->bytes = offset;
    if (offset > variable->bytes)
        flyt_ptx_parser_fail(parser, "more initialisers than elements");
}

/* ---- variables ---- */

static void parse_dimensions(struct ptx_parser *parser, struct ptx_variable *variable, bool *is_unsized)
{
    while (flyt_ptx_parser_accept(parser, '[')) {
        if (flyt_ptx_parser_is(parser, ']')) {
            *is_unsized = true;
            variable->bytes = 0;
        } else {
            uint64_t count = (uint64_t)take_bounded(parser, 1ll << 40, "absurd array length");

            if (count && variable->bytes > (1ull << 40) / count)
                flyt_ptx_parser_fail(parser, "absurd array length");
            variable->bytes *= count;
        }
        flyt_ptx_parser_expect(parser, ']');
    }
}

static void skip_attribute(struct ptx_parser *parser, struct ptx_variable *variable)
{
    flyt_ptx_parser_expect(parser, '(');
    while (!flyt_ptx_parser_is(parser, ')')) {
        if (parser->lexer.token.kind == PTX_TOKEN_END)
            flyt_ptx_parser_fail(parser, "unterminated attribute");
        variable->is_managed |= flyt_ptx_parser_is_word(parser, ".managed");
        flyt_ptx_lexer_next(&parser->lexer);
    }
    flyt_ptx_parser_expect(parser, ')');
}

/* Qualifiers before the name. A vector type is kept as the element type and a multiple of its size. */
static void parse_qualifiers(struct ptx_parser *parser, struct ptx_variable *variable)
{
    unsigned vector = 1;

    for (;;) {
        const struct ptx_token *token = &parser->lexer.token;
        const char *word;

        if (token->kind != PTX_TOKEN_WORD || token->text[0] != '.')
            break;
        word = flyt_ptx_parser_take_word(parser);
        if (!strcmp(word, ".align")) {
            variable->align = (uint32_t)take_bounded(parser, 1 << 20, "absurd alignment");
            if (!variable->align || (variable->align & (variable->align - 1)))
                flyt_ptx_parser_fail(parser, "alignment is not a power of two");
        } else if (!strcmp(word, ".attribute")) {
            skip_attribute(parser, variable);
        } else if (!strcmp(word, ".v2") || !strcmp(word, ".v4") || !strcmp(word, ".v8")) {
            vector = (unsigned)(word[2] - '0');
        } else if (flyt_ptx_type_find(word + 1)) {
            variable->type = flyt_ptx_type_find(word + 1);
        } else if (!strcmp(word, ".texref") || !strcmp(word, ".surfref") || !strcmp(word, ".samplerref")) {
            flyt_ptx_build_fail(parser->build, CUDA_ERROR_NOT_SUPPORTED, variable->line,
                                "%s is not supported by the software GPU", word);
        } else if (strcmp(word, ".ptr") && strcmp(word, ".global") && strcmp(word, ".const") &&
                   strcmp(word, ".shared") && strcmp(word, ".local") && strcmp(word, ".space") &&
                   strcmp(word, ".generic")) {
            flyt_ptx_build_fail(parser->build, CUDA_ERROR_INVALID_PTX, variable->line, "unknown qualifier %s", word);
        }
    }
    if (!variable->type || !variable->type->bytes)
        flyt_ptx_parser_fail(parser, "a variable without a data type");
    variable->bytes = (uint64_t)variable->type->bytes * vector;
    if (!variable->align)
        variable->align = (uint32_t)variable->bytes;
}

struct ptx_variable *flyt_ptx_parse_variable(struct ptx_parser *parser, enum ptx_space space)
{
    struct ptx_variable *variable = scratch(parser, sizeof *variable);
    bool is_unsized = false;

    variable->space = space;
    variable->line = parser->lexer.token.line;
    parse_qualifiers(parser, variable);
    variable->name = parser->lexer.token.kind == PTX_TOKEN_WORD ? flyt_ptx_parser_take_word(parser) : "_";
    parse_dimensions(parser, variable, &is_unsized);
    if (flyt_ptx_parser_accept(parser, '='))
        parse_initials(parser, variable, is_unsized);
    return variable;
}

void flyt_ptx_parse_place_local(struct ptx_parser *parser, struct ptx_variable *variable)
{
    struct ptx_function *function = parser->function;
    uint64_t align = variable->align > 16 ? 16 : variable->align;

    variable->offset = (function->frame_bytes + align - 1) & ~(align - 1);
    function->frame_bytes = variable->offset + variable->bytes;
    if (function->frame_bytes > 512 * 1024)
        flyt_ptx_parser_fail(parser, "more than 512 KiB of local memory");
}

void flyt_ptx_parse_add_shared(struct ptx_parser *parser, struct ptx_variable *variable)
{
    struct ptx_ir *ir = parser->ir;

    ir->shared_variables = flyt_ptx_build_grow(parser->build, ir->shared_variables, sizeof *ir->shared_variables,
                                               ir->shared_variable_count, &ir->shared_variable_capacity);
    variable->shared_index = (unsigned)ir->shared_variable_count;
    ir->shared_variables[ir->shared_variable_count++] = variable;
}

void flyt_ptx_parse_add_module_variable(struct ptx_parser *parser, struct ptx_variable *variable)
{
    struct ptx_ir *ir = parser->ir;

    ir->module_variables = flyt_ptx_build_grow(parser->build, ir->module_variables, sizeof *ir->module_variables,
                                               ir->module_variable_count, &ir->module_variable_capacity);
    variable->module_index = (unsigned)ir->module_variable_count;
    ir->module_variables[ir->module_variable_count++] = variable;
}

struct linkage {
    bool is_extern, is_visible, is_weak, is_common;
};

static void parse_module_variable(struct ptx_parser *parser, enum ptx_space space, struct linkage linkage)
{
    do {
        struct ptx_variable *variable = flyt_ptx_parse_variable(parser, space);

        variable->is_extern = linkage.is_extern;
        variable->is_visible = linkage.is_visible || linkage.is_weak || linkage.is_common;
        variable->is_weak = linkage.is_weak;
        variable->is_common = linkage.is_common;
        variable->unit = parser->unit;
        flyt_ptx_join_variable(parser, variable);
    } while (flyt_ptx_parser_accept(parser, ','));
    flyt_ptx_parser_expect(parser, ';');
}

/* ---- functions ---- */

struct ptx_variable **flyt_ptx_parse_params(struct ptx_parser *parser, unsigned *ret_count)
{
    struct ptx_variable **params = NULL;
    size_t count = 0, capacity = 0;

    flyt_ptx_parser_expect(parser, '(');
    while (!flyt_ptx_parser_is(parser, ')')) {
        if (accept_word(parser, ".reg"))
            flyt_ptx_build_fail(parser->build, CUDA_ERROR_NOT_SUPPORTED, parser->lexer.token.line,
                                "parameters in registers are not supported by the software GPU");
        if (!accept_word(parser, ".param"))
            flyt_ptx_parser_fail(parser, "expected .param");
        params = flyt_ptx_build_grow(parser->build, params, sizeof *params, count, &capacity);
        params[count++] = flyt_ptx_parse_variable(parser, PTX_SPACE_PARAM);
        if (!flyt_ptx_parser_accept(parser, ',') && !flyt_ptx_parser_is(parser, ')'))
            flyt_ptx_parser_fail(parser, "expected ',' or ')'");
    }
    flyt_ptx_parser_expect(parser, ')');
    *ret_count = (unsigned)count;
    return params;
}

static void parse_three(struct ptx_parser *parser, uint32_t values[3])
{
    for (int i = 0; i < 3; i++)
        values[i] = 1;
    for (int i = 0; i < 3; i++) {
        values[i] = (uint32_t)take_bounded(parser, UINT32_MAX, "absurd dimension");
        if (!flyt_ptx_parser_accept(parser, ','))
            break;
    }
}

/* .maxntid and its like, between the parameters and the body. */
static void parse_performance(struct ptx_parser *parser, struct ptx_function *function)
{
    uint32_t ignored[3];

    function->max_threads = function->max_threads ? function->max_threads : 1024;
    while (parser->lexer.token.kind == PTX_TOKEN_WORD) {
        const char *word = flyt_ptx_parser_take_word(parser);

        if (!strcmp(word, ".maxntid") || !strcmp(word, ".reqntid")) {
            uint64_t product;

            parse_three(parser, ignored);
            product = (uint64_t)ignored[0] * ignored[1] * (ignored[0] && ignored[1] < 65536 ? ignored[2] : 1);
            function->max_threads = product && product < 1024 ? (uint32_t)product : 1024;
            function->has_max_threads = true;
            if (!strcmp(word, ".reqntid"))
                memcpy(function->required_block, ignored, sizeof ignored);
        } else if (!strcmp(word, ".reqnctapercluster")) {
            parse_three(parser, function->required_cluster);
        } else if (!strcmp(word, ".minnctapersm")) {
            function->min_blocks = (uint32_t)take_bounded(parser, UINT32_MAX, "absurd number of blocks");
        } else if (!strcmp(word, ".maxnreg")) {
            function->max_registers = (uint32_t)take_bounded(parser, UINT32_MAX, "absurd number of registers");
        } else if (!strcmp(word, ".maxnctapersm") || !strcmp(word, ".maxclusterrank")) {
            flyt_ptx_parser_take_int(parser);
        } else if (!strcmp(word, ".pragma")) {
            flyt_ptx_lexer_next(&parser->lexer);
            flyt_ptx_parser_accept(parser, ';');
        } else if (strcmp(word, ".noreturn") && strcmp(word, ".explicitcluster") &&
                   strcmp(word, ".blocksareclusters") && strcmp(word, ".unified")) {
            flyt_ptx_build_fail(parser->build, CUDA_ERROR_INVALID_PTX, function->line, "unknown directive %s", word);
        }
    }
}

/* Where each parameter lies: a kernel's in the launch's buffer, a function's in its stack frame. */
static void place_params(struct ptx_parser *parser, struct ptx_function *function)
{
    for (unsigned i = 0; i < function->param_count; i++) {
        struct ptx_variable *param = function->params[i];

        if (function->is_entry) {
            param->offset = (function->params_bytes + param->align - 1) & ~(uint64_t)(param->align - 1);
            function->params_bytes = param->offset + param->bytes;
            if (function->params_bytes > FLYT_PTX_PARAM_BYTES_MAX)
                flyt_ptx_parser_fail(parser, "too many bytes of kernel parameters");
        } else {
            param->space = PTX_SPACE_LOCAL;
            flyt_ptx_parse_place_local(parser, param);
        }
    }
    if (function->result) {
        function->result->space = PTX_SPACE_LOCAL;
        flyt_ptx_parse_place_local(parser, function->result);
    }
}

static void enter_function(struct ptx_parser *parser, struct ptx_function *function)
{
    struct ptx_scope *scope = scratch(parser, sizeof *scope);

    parser->function = function;
    parser->scope = scope;
    function->frame_bytes = 0;
    function->params_bytes = 0;
    place_params(parser, function);
    for (unsigned i = 0; i < function->param_count; i++)
        flyt_ptx_map_put(parser->build, &scope->variables, function->params[i]->name, function->params[i]);
    if (function->result)
        flyt_ptx_map_put(parser->build, &scope->variables, function->result->name, function->result);
    function->has_body = true;
    flyt_ptx_parse_body(parser);
    parser->function = NULL;
    parser->scope = NULL;
}

static void parse_function(struct ptx_parser *parser, bool is_entry, struct linkage linkage)
{
    struct ptx_function *function = scratch(parser, sizeof *function);
    unsigned result_count = 0;
    struct ptx_variable **results = NULL;

    function->line = parser->lexer.token.line;
    function->unit = parser->unit;
    function->is_entry = is_entry;
    function->is_visible = linkage.is_visible || linkage.is_weak;
    function->is_extern = linkage.is_extern;
    function->is_weak = linkage.is_weak;
    if (accept_word(parser, ".attribute")) {
        struct ptx_variable ignored = {0};

        skip_attribute(parser, &ignored);
    }
    if (!is_entry && flyt_ptx_parser_is(parser, '('))
        results = flyt_ptx_parse_params(parser, &result_count);
    if (result_count > 1)
        flyt_ptx_parser_fail(parser, "more than one result");
    function->result = result_count ? results[0] : NULL;
    function->name = flyt_ptx_parser_take_word(parser);
    if (flyt_ptx_parser_is(parser, '('))
        function->params = flyt_ptx_parse_params(parser, &function->param_count);
    parse_performance(parser, function);
    function = flyt_ptx_join_function(parser, function, flyt_ptx_parser_is(parser, '{'));
    if (flyt_ptx_parser_accept(parser, ';'))
        return;
    if (function)
        enter_function(parser, function);
    else if (flyt_ptx_parser_is(parser, '{'))
        flyt_ptx_parser_skip_braces(parser);
    else
        flyt_ptx_parser_fail(parser, "expected '{'");
}

/* ---- module ---- */

/* The number after "sm_" or "compute_": 75 for sm_75, 90 for sm_90a. */
static int parse_target_name(const char *name)
{
    const char *digits = strpbrk(name, "0123456789");
    int number = 0;

    if (strncmp(name, "sm_", 3) && strncmp(name, "compute_", 8))
        return 0;
    for (; digits && *digits >= '0' && *digits <= '9' && number < 1000; digits++)
        number = number * 10 + (*digits - '0');
    return number;
}

/* Every PTX of CUDA 13 is below. */
enum { VERSION_END = 10 };

static void parse_version(struct ptx_parser *parser)
{
    const struct ptx_token *token = &parser->lexer.token;
    double version;

    if (token->kind != PTX_TOKEN_NUMBER || token->number_kind != PTX_NUMBER_F64)
        flyt_ptx_parser_fail(parser, "expected a version");
    memcpy(&version, &token->bits, sizeof version);
    if (!(version >= 1 && version < 1000))
        flyt_ptx_parser_fail(parser, "absurd version");
    if (version >= VERSION_END)
        flyt_ptx_build_fail(parser->build, CUDA_ERROR_UNSUPPORTED_PTX_VERSION, token->line,
                            ".version %.1f is newer than the software GPU", version);
    if (parser->ir->version < (int)(version * 10 + 0.5))
        parser->ir->version = (int)(version * 10 + 0.5);
    flyt_ptx_lexer_next(&parser->lexer);
}

static void parse_target(struct ptx_parser *parser, const struct flyt_ptx_target *target)
{
    do {
        const char *name = flyt_ptx_parser_take_word(parser);
        int number = parse_target_name(name);

        parser->has_target |= number != 0;
        if (parser->ir->target < number)
            parser->ir->target = number;
        if (number > target->major * 10 + target->minor)
            flyt_ptx_build_fail(parser->build, CUDA_ERROR_NO_BINARY_FOR_GPU, parser->lexer.token.line,
                                "target %s is newer than the device's compute capability %d.%d", name, target->major,
                                target->minor);
    } while (flyt_ptx_parser_accept(parser, ','));
}

static void parse_alias(struct ptx_parser *parser)
{
    const char *alias = flyt_ptx_parser_take_word(parser);
    struct ptx_function *function, *known;

    flyt_ptx_parser_expect(parser, ',');
    function = flyt_ptx_unit_function(parser->unit, flyt_ptx_parser_take_word(parser));
    if (!function)
        flyt_ptx_parser_fail(parser, "an alias of an unknown function");
    known = flyt_ptx_unit_function(parser->unit, alias);
    if (known == function)
        flyt_ptx_parser_fail(parser, "an alias of itself");
    if (known)
        known->alias = function; /* declared before, perhaps to other units */
    else
        flyt_ptx_map_put(parser->build, &parser->unit->functions, alias, function);
    flyt_ptx_parser_expect(parser, ';');
}

static void parse_directive(struct ptx_parser *parser, const struct flyt_ptx_target *target)
{
    struct linkage linkage = {0};
    unsigned line = parser->lexer.token.line;
    const char *word;

    if (flyt_ptx_parser_is_word(parser, ".file") || flyt_ptx_parser_is_word(parser, ".loc")) {
        flyt_ptx_lexer_skip_line(&parser->lexer);
        return;
    }
    for (;;) {
        if (accept_word(parser, ".extern"))
            linkage.is_extern = true;
        else if (accept_word(parser, ".visible"))
            linkage.is_visible = true;
        else if (accept_word(parser, ".weak"))
            linkage.is_weak = true;
        else if (accept_word(parser, ".common"))
            linkage.is_common = true;
        else
            break;
    }
    word = flyt_ptx_parser_take_word(parser);
    if (!strcmp(word, ".version")) {
        parse_version(parser);
    } else if (!strcmp(word, ".target")) {
        parse_target(parser, target);
    } else if (!strcmp(word, ".address_size")) {
        if (flyt_ptx_parser_take_int(parser) != 64)
            flyt_ptx_parser_fail(parser, "only 64-bit addresses are supported");
    } else if (!strcmp(word, ".func") || !strcmp(word, ".entry")) {
        parse_function(parser, word[1] == 'e', linkage);
    } else if (!strcmp(word, ".global")) {
        parse_module_variable(parser, PTX_SPACE_GLOBAL, linkage);
    } else if (!strcmp(word, ".const")) {
        parse_module_variable(parser, PTX_SPACE_CONST, linkage);
    } else if (!strcmp(word, ".shared")) {
        parse_module_variable(parser, PTX_SPACE_SHARED, linkage);
    } else if (!strcmp(word, ".alias")) {
        parse_alias(parser);
    } else if (!strcmp(word, ".pragma")) {
        flyt_ptx_lexer_next(&parser->lexer);
        flyt_ptx_parser_expect(parser, ';');
    } else if (!strcmp(word, ".section")) {
        flyt_ptx_parser_take_word(parser);
        if (!flyt_ptx_parser_is(parser, '{'))
            flyt_ptx_parser_fail(parser, "expected '{'");
        flyt_ptx_parser_skip_braces(parser);
    } else {
        flyt_ptx_build_fail(parser->build,
                            flyt_ptx_names_has_directive(word) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_PTX,
                            line, "directive %.80s is not supported by the software GPU", word);
    }
}

static void parse_unit(struct ptx_parser *parser, const struct flyt_ptx_unit *text,
                       const struct flyt_ptx_target *target)
{
    if (!flyt_ptx_lexer_is_ptx(text->text, text->text_bytes))
        flyt_ptx_build_fail(parser->build, CUDA_ERROR_INVALID_IMAGE, 1, "PTX begins with .version, this does not");
    parser->has_target = false;
    flyt_ptx_lexer_init(&parser->lexer, parser->build, text->text, text->text_bytes);
    while (parser->lexer.token.kind != PTX_TOKEN_END)
        parse_directive(parser, target);
    if (!parser->has_target)
        flyt_ptx_build_fail(parser->build, CUDA_ERROR_INVALID_PTX, parser->lexer.token.line, "no .target");
}

struct ptx_ir *flyt_ptx_parse(struct ptx_build *build, const struct flyt_ptx_unit *units, unsigned unit_count,
                              enum ptx_joining joining, const struct flyt_ptx_target *target)
{
    struct ptx_ir *ir = flyt_ptx_build_alloc(build, &build->scratch, sizeof *ir);
    struct ptx_parser parser = {.build = build, .ir = ir};

    ir->joining = joining;
    ir->last_function = &ir->first_function;
    for (unsigned i = 0; i < unit_count; i++) {
        parser.unit = scratch(&parser, sizeof *parser.unit);
        if (joining != PTX_JOIN_ALONE)
            parser.unit->name = units[i].name ? units[i].name : "<unnamed>";
        parser.unit->max_registers = units[i].max_registers ? units[i].max_registers : target->max_registers;
        build->unit_name = parser.unit->name;
        parse_unit(&parser, &units[i], target);
    }
    build->unit_name = NULL;
    return ir;
}
