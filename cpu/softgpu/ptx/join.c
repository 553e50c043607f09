#include "cpu/softgpu/ptx/join.h"

struct ptx_function *flyt_ptx_unit_function(const struct ptx_unit *unit, const char *name)
{
    struct ptx_function *function = flyt_ptx_map_find(&unit->functions, name);

    while (function && function->alias)
        function = function->alias;
    return function;
}

void flyt_ptx_join_fail_undefined(struct ptx_build *build, const char *name, const struct ptx_unit *unit)
{
    flyt_ptx_build_fail(build, CUDA_ERROR_UNKNOWN, 0, "Undefined reference to '%.100s' in '%.60s'", name, unit->name);
}

/* `what` is "Size doesn't match for" and the like. */
static void __attribute__((noreturn))
fail_match(struct ptx_parser *parser, const char *what, const char *name, const struct ptx_unit *first)
{
    if (first == parser->unit)
        flyt_ptx_build_fail(parser->build, CUDA_ERROR_INVALID_PTX, parser->lexer.token.line, "%s '%.100s'", what, name);
    flyt_ptx_build_fail(parser->build, CUDA_ERROR_UNKNOWN, 0, "%s '%.80s' in '%.40s', first specified in '%.40s'", what,
                        name, parser->unit->name, first->name);
}

static void __attribute__((noreturn))
fail_twice(struct ptx_parser *parser, const char *kind, const char *name, const struct ptx_unit *first)
{
    if (first == parser->unit)
        flyt_ptx_build_fail(parser->build, CUDA_ERROR_INVALID_PTX, parser->lexer.token.line,
                            "Duplicate definition of %s '%.100s'", kind, name);
    flyt_ptx_build_fail(parser->build, CUDA_ERROR_UNKNOWN, 0,
                        "Multiple definition of '%.80s' in '%.40s', first defined in '%.40s'", name, parser->unit->name,
                        first->name);
}

/* ---- variables ---- */

static bool is_shared_name(const struct ptx_variable *variable)
{
    return variable->is_extern || variable->is_visible;
}

/* An array without a length agrees with every other; common variables need not agree. */
static bool sizes_agree(const struct ptx_variable *one, const struct ptx_variable *other)
{
    return one->bytes == other->bytes || !one->bytes || !other->bytes || one->is_common || other->is_common;
}

static void widen(struct ptx_variable *known, const struct ptx_variable *variable)
{
    if (known->bytes < variable->bytes)
        known->bytes = variable->bytes;
    if (known->align < variable->align)
        known->align = variable->align;
}

static void replace_variable(struct ptx_variable *known, const struct ptx_variable *definition)
{
    unsigned module_index = known->module_index, shared_index = known->shared_index;

    *known = *definition;
    known->module_index = module_index;
    known->shared_index = shared_index;
}

static void merge_variable(struct ptx_parser *parser, struct ptx_variable *known, const struct ptx_variable *variable)
{
    bool is_strong = !variable->is_weak && !variable->is_common;

    if (known->space != variable->space)
        fail_match(parser, "Memory space doesn't match for", known->name, known->unit);
    if (!sizes_agree(known, variable))
        fail_match(parser, "Size doesn't match for", known->name, known->unit);
    if (variable->is_extern) {
        if (known->is_extern)
            widen(known, variable);
    } else if (known->is_extern || (is_strong && (known->is_weak || known->is_common))) {
        replace_variable(known, variable);
    } else if (is_strong) {
        fail_twice(parser, "variable", known->name, known->unit);
    } else if (known->is_common && variable->is_common) {
        widen(known, variable);
    }
}

void flyt_ptx_join_variable(struct ptx_parser *parser, struct ptx_variable *variable)
{
    struct ptx_build *build = parser->build;
    struct ptx_map *shared = &parser->ir->shared_variable_names;
    struct ptx_variable *known = flyt_ptx_map_find(&parser->unit->variables, variable->name);
    bool is_new_here = !known;

    if (!known && is_shared_name(variable))
        known = flyt_ptx_map_find(shared, variable->name);
    if (known) {
        merge_variable(parser, known, variable);
        variable = known;
    } else if (variable->space == PTX_SPACE_SHARED) {
        flyt_ptx_parse_add_shared(parser, variable);
    } else {
        flyt_ptx_parse_add_module_variable(parser, variable);
    }
    if (is_new_here)
        flyt_ptx_map_put(build, &parser->unit->variables, variable->name, variable);
    if (is_shared_name(variable) && !flyt_ptx_map_find(shared, variable->name))
        flyt_ptx_map_put(build, shared, variable->name, variable);
}

/* ---- functions ---- */

static bool prototypes_agree(const struct ptx_function *one, const struct ptx_function *other)
{
    if (one->is_entry != other->is_entry || one->param_count != other->param_count || !one->result != !other->result)
        return false;
    for (unsigned i = 0; i < one->param_count; i++)
        if (one->params[i]->bytes != other->params[i]->bytes)
            return false;
    return !one->result || one->result->bytes == other->result->bytes;
}

struct ptx_function *flyt_ptx_join_function(struct ptx_parser *parser, struct ptx_function *function,
                                            bool is_definition)
{
    struct ptx_build *build = parser->build;
    struct ptx_map *shared = &parser->ir->shared_function_names;
    struct ptx_function *known = flyt_ptx_map_find(&parser->unit->functions, function->name);
    bool is_shared = function->is_extern || function->is_visible, is_new_here = !known, is_taken = true;

    if (!known && is_shared)
        known = flyt_ptx_map_find(shared, function->name);
    if (!known) {
        known = function;
        *parser->ir->last_function = function;
        parser->ir->last_function = &function->next;
    } else {
        if (!prototypes_agree(known, function))
            fail_match(parser, "Prototype doesn't match for", known->name, known->unit);
        if (is_definition && (!known->has_body || (known->is_weak && !function->is_weak))) {
            struct ptx_function *next = known->next;

            *known = *function;
            known->next = next;
        } else if (is_definition && !function->is_weak) {
            fail_twice(parser, "function", known->name, known->unit);
        } else {
            is_taken = false;
        }
    }
    if (is_new_here)
        flyt_ptx_map_put(build, &parser->unit->functions, known->name, known);
    if (is_shared && !flyt_ptx_map_find(shared, known->name))
        flyt_ptx_map_put(build, shared, known->name, known);
    return is_taken ? known : NULL;
}
