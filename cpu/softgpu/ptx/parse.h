/* What the two halves of the parser share: declarations (parse.c) and function bodies (parse_body.c). */
#ifndef FLYT_SOFTGPU_PTX_PARSE_H
#define FLYT_SOFTGPU_PTX_PARSE_H

#include "cpu/softgpu/ptx/ir.h"
#include "cpu/softgpu/ptx/lex.h"

/* A braced part of a body: names declared in it hide those outside. */
struct ptx_scope {
    struct ptx_scope *outer;
    struct ptx_map variables; /* name → struct ptx_variable */
    struct ptx_map registers; /* name → struct ptx_register */
    struct ptx_map labels;    /* name → function-wide name */
};

struct ptx_parser {
    struct ptx_build *build;
    struct ptx_lexer lexer;
    struct ptx_ir *ir;
    struct ptx_unit *unit;         /* being parsed */
    struct ptx_function *function; /* being parsed; NULL at module scope */
    struct ptx_scope *scope;
    unsigned depth;  /* of braces */
    bool has_target; /* the unit has said which */
};

/* Token helpers. The "expect" ones fail the build when the current token is another. */
bool flyt_ptx_parser_is(const struct ptx_parser *parser, char punctuation);
bool flyt_ptx_parser_is_word(const struct ptx_parser *parser, const char *word);
bool flyt_ptx_parser_accept(struct ptx_parser *parser, char punctuation);
void flyt_ptx_parser_expect(struct ptx_parser *parser, char punctuation);
/* The current word, copied; steps on. */
const char *flyt_ptx_parser_take_word(struct ptx_parser *parser);
/* A signed integer. */
int64_t flyt_ptx_parser_take_int(struct ptx_parser *parser);
void flyt_ptx_parser_fail(struct ptx_parser *parser, const char *what) __attribute__((noreturn));
/* Skips to the matching brace of the current '{', which must be current; both go. */
void flyt_ptx_parser_skip_braces(struct ptx_parser *parser);

/*
 * Parses a declaration after its space directive: [.align n] [.vN] .type [.ptr …] name [dimensions] [= initialiser],
 * without the terminator.
 */
struct ptx_variable *flyt_ptx_parse_variable(struct ptx_parser *parser, enum ptx_space space);
/* Reserves room in the function's stack frame. */
void flyt_ptx_parse_place_local(struct ptx_parser *parser, struct ptx_variable *variable);
/* Enters a .shared variable in the module's list. */
void flyt_ptx_parse_add_shared(struct ptx_parser *parser, struct ptx_variable *variable);
/* Enters a .global or .const variable in the module's list. */
void flyt_ptx_parse_add_module_variable(struct ptx_parser *parser, struct ptx_variable *variable);
/* Parses "(params)" into *ret_params; with_names: kernel or function parameters, else a prototype's. */
struct ptx_variable **flyt_ptx_parse_params(struct ptx_parser *parser, unsigned *ret_count);

/* Parses "{ … }" of parser->function. */
void flyt_ptx_parse_body(struct ptx_parser *parser);

#endif
