#include "cpu/softgpu/ptx/lex.h"
#include "cpu/softgpu/ptx/parse.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { BRACES_MAX = 200, REGISTERS_MAX = 1 << 22 };

/* Declared registers: one, or with is_range `count` of them called name0, name1, … */
struct ptx_register {
    uint8_t bytes;
    bool is_range, is_assigned;
    uint32_t count;
    uint32_t vreg; /* where is_assigned */
};

static void *scratch(struct ptx_parser *parser, size_t bytes)
{
    return flyt_ptx_build_alloc(parser->build, &parser->build->scratch, bytes);
}

static uint32_t new_vreg(struct ptx_parser *parser, uint8_t bytes)
{
    struct ptx_function *function = parser->function;

    if (function->vreg_count >= REGISTERS_MAX)
        flyt_ptx_parser_fail(parser, "too many registers");
    function->vreg_bytes =
        flyt_ptx_build_grow(parser->build, function->vreg_bytes, 1, function->vreg_count, &function->vreg_capacity);
    function->vreg_bytes[function->vreg_count] = bytes;
    return (uint32_t)function->vreg_count++;
}

/* ---- declarations ---- */

static void parse_registers(struct ptx_parser *parser)
{
    const char *word = flyt_ptx_parser_take_word(parser);
    const struct ptx_type *type = flyt_ptx_type_find(word + 1);

    if (!type)
        flyt_ptx_build_fail(parser->build, CUDA_ERROR_NOT_SUPPORTED, parser->lexer.token.line,
                            "registers of type %.40s are not supported by the software GPU", word);
    do {
        struct ptx_register *declared = scratch(parser, sizeof *declared);
        const char *name = flyt_ptx_parser_take_word(parser);

        declared->bytes = type->class != PTX_CLASS_PRED && type->bytes == 1 ? 2 : type->bytes;
        if (flyt_ptx_parser_accept(parser, '<')) {
            int64_t count = flyt_ptx_parser_take_int(parser);

            if (count < 0 || count > UINT32_MAX)
                flyt_ptx_parser_fail(parser, "absurd register count");
            flyt_ptx_parser_expect(parser, '>');
            declared->is_range = true;
            declared->count = (uint32_t)count;
        }
        flyt_ptx_map_put(parser->build, &parser->scope->registers, name, declared);
    } while (flyt_ptx_parser_accept(parser, ','));
    flyt_ptx_parser_expect(parser, ';');
}

/* Finds "%r17" as declared, or as member 17 of "%r<…>", which then gets an entry of its own. */
static struct ptx_register *find_register(struct ptx_parser *parser, const char *name)
{
    size_t stem_bytes = strlen(name);
    uint64_t index = 0, scale = 1;
    char stem[128];

    for (struct ptx_scope *scope = parser->scope; scope; scope = scope->outer) {
        struct ptx_register *known = flyt_ptx_map_find(&scope->registers, name);

        if (known && !known->is_range)
            return known;
    }
    while (stem_bytes && isdigit((unsigned char)name[stem_bytes - 1]) && scale < 1000000000000ull) {
        index += (uint64_t)(name[--stem_bytes] - '0') * scale;
        scale *= 10;
    }
    if (scale == 1 || !stem_bytes || stem_bytes >= sizeof stem)
        return NULL;
    memcpy(stem, name, stem_bytes);
    stem[stem_bytes] = 0;
    for (struct ptx_scope *scope = parser->scope; scope; scope = scope->outer) {
        struct ptx_register *range = flyt_ptx_map_find(&scope->registers, stem);

        if (range && range->is_range && index < range->count) {
            struct ptx_register *member = scratch(parser, sizeof *member);

            *member = (struct ptx_register){.bytes = range->bytes};
            flyt_ptx_map_put(parser->build, &scope->registers, name, member);
            return member;
        }
    }
    return NULL;
}

static struct ptx_variable *find_variable(struct ptx_parser *parser, const char *name)
{
    for (struct ptx_scope *scope = parser->scope; scope; scope = scope->outer) {
        struct ptx_variable *known = flyt_ptx_map_find(&scope->variables, name);

        if (known)
            return known;
    }
    return flyt_ptx_map_find(&parser->unit->variables, name);
}

static void parse_body_variable(struct ptx_parser *parser, enum ptx_space space)
{
    do {
        struct ptx_variable *variable = flyt_ptx_parse_variable(parser, space);

        if (space == PTX_SPACE_SHARED)
            flyt_ptx_parse_add_shared(parser, variable);
        else if (space == PTX_SPACE_LOCAL)
            flyt_ptx_parse_place_local(parser, variable);
        else
            flyt_ptx_parse_add_module_variable(parser, variable);
        variable->unit = parser->unit;
        flyt_ptx_map_put(parser->build, &parser->scope->variables, variable->name, variable);
    } while (flyt_ptx_parser_accept(parser, ','));
    flyt_ptx_parser_expect(parser, ';');
}

/* label: .branchtargets a, b, c;   (.calltargets too, whose list nothing needs) */
static void parse_label_list(struct ptx_parser *parser, const char *name)
{
    struct ptx_label_list *list = scratch(parser, sizeof *list);
    size_t count = 0, capacity = 0;

    do {
        list->labels = flyt_ptx_build_grow(parser->build, list->labels, sizeof *list->labels, count, &capacity);
        list->labels[count++] = flyt_ptx_parser_take_word(parser);
    } while (flyt_ptx_parser_accept(parser, ','));
    list->count = (unsigned)count;
    flyt_ptx_parser_expect(parser, ';');
    flyt_ptx_map_put(parser->build, &parser->function->targets, name, list);
}

/* label: .callprototype (result) _ (params) [.noreturn]; */
static void parse_prototype(struct ptx_parser *parser, const char *name)
{
    struct ptx_prototype *prototype = scratch(parser, sizeof *prototype);
    unsigned count = 0;

    if (flyt_ptx_parser_is(parser, '('))
        flyt_ptx_parse_params(parser, &prototype->result_count);
    flyt_ptx_parser_take_word(parser);
    if (flyt_ptx_parser_is(parser, '('))
        flyt_ptx_parse_params(parser, &count);
    prototype->param_count = count;
    while (parser->lexer.token.kind == PTX_TOKEN_WORD) {
        flyt_ptx_parser_take_word(parser);
        if (parser->lexer.token.kind == PTX_TOKEN_NUMBER)
            flyt_ptx_lexer_next(&parser->lexer);
    }
    flyt_ptx_parser_expect(parser, ';');
    flyt_ptx_map_put(parser->build, &parser->function->prototypes, name, prototype);
}

/* ---- operands ---- */

static void parse_number(struct ptx_parser *parser, struct ptx_operand *operand, bool is_negative)
{
    const struct ptx_token *token = &parser->lexer.token;
    uint64_t bits = token->bits;

    if (token->kind != PTX_TOKEN_NUMBER)
        flyt_ptx_parser_fail(parser, "expected a number");
    operand->kind = PTX_OPERAND_NUMBER;
    operand->number_kind = (uint8_t)token->number_kind;
    if (is_negative)
        bits = token->number_kind == PTX_NUMBER_INT   ? 0 - bits
               : token->number_kind == PTX_NUMBER_F32 ? bits ^ 1u << 31
                                                      : bits ^ 1ull << 63;
    operand->value = (int64_t)bits;
    flyt_ptx_lexer_next(&parser->lexer);
}

/* "%r1.h0": the register, and what is behind the dot. */
static struct ptx_register *find_part(struct ptx_parser *parser, const char *name, const char **ret_selector)
{
    const char *dot = strchr(name, '.');
    struct ptx_register *found =
        find_register(parser, flyt_ptx_build_copy(parser->build, &parser->build->scratch, name, (size_t)(dot - name)));

    if (found)
        *ret_selector = dot + 1;
    return found;
}

/* A name: register, special register, sink, variable or what the instruction takes it for. */
static void parse_name(struct ptx_parser *parser, struct ptx_operand *operand)
{
    const char *name = flyt_ptx_parser_take_word(parser);
    struct ptx_register *declared;

    if (!strcmp(name, "_")) {
        operand->kind = PTX_OPERAND_SINK;
        return;
    }
    declared = find_register(parser, name);
    if (!declared && strchr(name, '.'))
        declared = find_part(parser, name, &operand->selector);
    if (declared) {
        if (!declared->is_assigned) {
            declared->vreg = new_vreg(parser, declared->bytes);
            declared->is_assigned = true;
        }
        operand->kind = PTX_OPERAND_REGISTER;
        operand->vreg = declared->vreg;
        return;
    }
    operand->name = name;
    if (name[0] == '%' || !strcmp(name, "WARP_SZ")) {
        operand->kind = PTX_OPERAND_SPECIAL;
        return;
    }
    operand->kind = PTX_OPERAND_SYMBOL;
    operand->variable = find_variable(parser, name);
    if (flyt_ptx_parser_is(parser, '+') || flyt_ptx_parser_is(parser, '-'))
        operand->value = flyt_ptx_parser_take_int(parser);
}

static void parse_operand(struct ptx_parser *parser, struct ptx_operand *operand, unsigned depth);

/* [base], [base+offset], [number]; and [texture, {coordinates}], which are a second element. */
static void parse_address(struct ptx_parser *parser, struct ptx_operand *operand, unsigned depth)
{
    struct ptx_operand *base = scratch(parser, 2 * sizeof *base);

    if (depth > 1)
        flyt_ptx_parser_fail(parser, "operands are nested too deeply");
    operand->kind = PTX_OPERAND_ADDRESS;
    operand->elements = base;
    operand->element_count = 1;
    flyt_ptx_parser_expect(parser, '[');
    if (parser->lexer.token.kind == PTX_TOKEN_NUMBER || flyt_ptx_parser_is(parser, '-'))
        parse_number(parser, base, flyt_ptx_parser_accept(parser, '-'));
    else
        parse_name(parser, base);
    if (base->selector)
        flyt_ptx_parser_fail(parser, "a part of a register is no address");
    operand->value = base->kind == PTX_OPERAND_SYMBOL ? base->value : 0;
    base->value = base->kind == PTX_OPERAND_SYMBOL ? 0 : base->value;
    while (flyt_ptx_parser_is(parser, '+') || flyt_ptx_parser_is(parser, '-'))
        operand->value = (int64_t)((uint64_t)operand->value + (uint64_t)flyt_ptx_parser_take_int(parser));
    while (flyt_ptx_parser_accept(parser, ',')) {
        if (operand->has_more)
            flyt_ptx_parser_fail(parser, "too many parts of an address");
        parse_operand(parser, &base[1], depth + 1);
        operand->element_count = 2;
        operand->has_more = true;
    }
    flyt_ptx_parser_expect(parser, ']');
}

/* The elements of a vector or list up to `close`. */
static void parse_elements(struct ptx_parser *parser, struct ptx_operand *operand, char close, unsigned depth)
{
    size_t count = 0, capacity = 0;

    if (depth > 1)
        flyt_ptx_parser_fail(parser, "operands are nested too deeply");
    while (!flyt_ptx_parser_is(parser, close)) {
        operand->elements =
            flyt_ptx_build_grow(parser->build, operand->elements, sizeof *operand->elements, count, &capacity);
        parse_operand(parser, &operand->elements[count++], depth + 1);
        if (!flyt_ptx_parser_accept(parser, ',') && !flyt_ptx_parser_is(parser, close))
            flyt_ptx_parser_fail(parser, "unterminated operand list");
    }
    flyt_ptx_parser_expect(parser, close);
    operand->element_count = (unsigned)count;
}

/* "|q" behind an operand. */
static void parse_second(struct ptx_parser *parser, struct ptx_operand *operand, unsigned depth)
{
    if (depth || !flyt_ptx_parser_accept(parser, '|'))
        return;
    operand->second = scratch(parser, sizeof *operand->second);
    parse_operand(parser, operand->second, 1);
}

static void parse_operand(struct ptx_parser *parser, struct ptx_operand *operand, unsigned depth)
{
    memset(operand, 0, sizeof *operand);
    if (flyt_ptx_parser_is(parser, '[')) {
        parse_address(parser, operand, depth);
        return;
    }
    if (flyt_ptx_parser_accept(parser, '{')) {
        operand->kind = PTX_OPERAND_VECTOR;
        parse_elements(parser, operand, '}', depth);
        parse_second(parser, operand, depth);
        return;
    }
    if (flyt_ptx_parser_accept(parser, '(')) {
        operand->kind = PTX_OPERAND_LIST;
        parse_elements(parser, operand, ')', depth);
        return;
    }
    bool is_minus = flyt_ptx_parser_accept(parser, '-');

    operand->is_negated = !is_minus && flyt_ptx_parser_accept(parser, '!');
    if (parser->lexer.token.kind == PTX_TOKEN_WORD) {
        parse_name(parser, operand);
        operand->is_minus = is_minus;
    } else {
        parse_number(parser, operand, is_minus);
    }
    if (depth && (operand->selector || operand->is_minus))
        flyt_ptx_parser_fail(parser, "a part of a register, or a minus, is not expected here");
    parse_second(parser, operand, depth);
}

/* ---- statements ---- */

const char *flyt_ptx_scope_label(const struct ptx_scope *scope, const char *name)
{
    for (; scope; scope = scope->outer) {
        const char *label = flyt_ptx_map_find(&scope->labels, name);

        if (label)
            return label;
    }
    return name;
}

/* Enters a label; one in inner braces gets a name of its own by its line. */
static const char *declare_label(struct ptx_parser *parser, const char *name, unsigned line)
{
    const char *label = name;
    char unique[256];

    if (parser->scope->outer && parser->scope->outer->outer) {
        int bytes = snprintf(unique, sizeof unique, "%.200s %u", name, line);

        label = flyt_ptx_build_copy(parser->build, &parser->build->scratch, unique, (size_t)bytes);
    }
    if (flyt_ptx_map_find(&parser->scope->labels, name))
        flyt_ptx_parser_fail(parser, "a label stands twice in one scope, before");
    flyt_ptx_map_put(parser->build, &parser->scope->labels, name, (void *)(uintptr_t)label);
    return label;
}

static struct ptx_statement *add_statement(struct ptx_parser *parser, struct ptx_statement ***last)
{
    struct ptx_statement *statement = scratch(parser, sizeof *statement);

    statement->line = parser->lexer.token.line;
    statement->scope = parser->scope;
    **last = statement;
    *last = &statement->next;
    return statement;
}

static void split_modifiers(struct ptx_parser *parser, struct ptx_statement *statement)
{
    char *word = flyt_ptx_build_copy(parser->build, &parser->build->scratch, statement->text, strlen(statement->text));

    for (char *dot; word; word = dot) {
        dot = strchr(word, '.');
        if (dot)
            *dot++ = 0;
        if (statement->modifier_count == PTX_MODIFIERS_MAX)
            flyt_ptx_parser_fail(parser, "too many modifiers before");
        statement->modifiers[statement->modifier_count++] = word;
    }
}

static void parse_guard(struct ptx_parser *parser, struct ptx_statement *statement)
{
    struct ptx_operand guard = {0};

    statement->has_guard = true;
    statement->is_guard_negated = flyt_ptx_parser_accept(parser, '!');
    parse_name(parser, &guard);
    if (guard.kind != PTX_OPERAND_REGISTER || parser->function->vreg_bytes[guard.vreg])
        flyt_ptx_parser_fail(parser, "a guard must be a predicate, before");
    statement->guard = guard.vreg;
}

static void parse_operands(struct ptx_parser *parser, struct ptx_statement *statement)
{
    while (!flyt_ptx_parser_is(parser, ';')) {
        if (statement->operand_count == PTX_OPERANDS_MAX)
            flyt_ptx_parser_fail(parser, "too many operands");
        parse_operand(parser, &statement->operands[statement->operand_count++], 0);
        if (!flyt_ptx_parser_accept(parser, ',') && !flyt_ptx_parser_is(parser, ';'))
            flyt_ptx_parser_fail(parser, "expected ',' or ';'");
    }
    flyt_ptx_parser_expect(parser, ';');
}

/* A directive inside a body. */
static void parse_body_directive(struct ptx_parser *parser)
{
    unsigned line = parser->lexer.token.line;
    const char *word;

    if (flyt_ptx_parser_is_word(parser, ".loc") || flyt_ptx_parser_is_word(parser, ".file")) {
        flyt_ptx_lexer_skip_line(&parser->lexer);
        return;
    }
    word = flyt_ptx_parser_take_word(parser);
    if (!strcmp(word, ".reg")) {
        parse_registers(parser);
    } else if (!strcmp(word, ".local") || !strcmp(word, ".param")) {
        parse_body_variable(parser, PTX_SPACE_LOCAL);
    } else if (!strcmp(word, ".shared")) {
        parse_body_variable(parser, PTX_SPACE_SHARED);
    } else if (!strcmp(word, ".global")) {
        parse_body_variable(parser, PTX_SPACE_GLOBAL);
    } else if (!strcmp(word, ".const")) {
        parse_body_variable(parser, PTX_SPACE_CONST);
    } else if (!strcmp(word, ".pragma")) {
        flyt_ptx_lexer_next(&parser->lexer);
        flyt_ptx_parser_expect(parser, ';');
    } else {
        flyt_ptx_build_fail(parser->build,
                            flyt_ptx_names_has_directive(word) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_PTX,
                            line, "directive %.80s is not supported by the software GPU", word);
    }
}

/* What starts with a plain word: a label with or without a list behind it, or an instruction. */
static void parse_instruction(struct ptx_parser *parser, struct ptx_statement ***last)
{
    struct ptx_statement *statement = add_statement(parser, last);

    if (flyt_ptx_parser_accept(parser, '@'))
        parse_guard(parser, statement);
    statement->line = parser->lexer.token.line;
    statement->text = flyt_ptx_parser_take_word(parser);
    if (!statement->has_guard && flyt_ptx_parser_accept(parser, ':')) {
        const char *name = statement->text;

        statement->label = declare_label(parser, name, statement->line);
        statement->text = NULL;
        if (flyt_ptx_parser_is_word(parser, ".branchtargets") || flyt_ptx_parser_is_word(parser, ".calltargets")) {
            flyt_ptx_lexer_next(&parser->lexer);
            parse_label_list(parser, name);
        } else if (flyt_ptx_parser_is_word(parser, ".callprototype")) {
            flyt_ptx_lexer_next(&parser->lexer);
            parse_prototype(parser, name);
        }
        return;
    }
    split_modifiers(parser, statement);
    parse_operands(parser, statement);
}

static void enter_scope(struct ptx_parser *parser)
{
    struct ptx_scope *scope = scratch(parser, sizeof *scope);

    if (++parser->depth > BRACES_MAX)
        flyt_ptx_parser_fail(parser, "braces are nested too deeply");
    scope->outer = parser->scope;
    parser->scope = scope;
}

void flyt_ptx_parse_body(struct ptx_parser *parser)
{
    struct ptx_statement **last = &parser->function->first;

    parser->depth = 0;
    if (!flyt_ptx_parser_is(parser, '{'))
        flyt_ptx_parser_fail(parser, "expected '{'");
    do {
        const struct ptx_token *token = &parser->lexer.token;

        if (token->kind == PTX_TOKEN_END)
            flyt_ptx_parser_fail(parser, "the text ends inside a function");
        if (flyt_ptx_parser_accept(parser, '{')) {
            enter_scope(parser);
        } else if (flyt_ptx_parser_accept(parser, '}')) {
            parser->depth--;
            parser->scope = parser->scope->outer;
        } else if (flyt_ptx_parser_accept(parser, ';')) {
            continue;
        } else if (token->kind == PTX_TOKEN_WORD && token->text[0] == '.') {
            parse_body_directive(parser);
        } else {
            parse_instruction(parser, &last);
        }
    } while (parser->depth);
}
