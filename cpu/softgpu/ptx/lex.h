/*
 * Cuts PTX text into tokens. A word is an identifier, a register, a directive or a whole instruction with its
 * modifiers ("ld.global.L1::no_allocate.u32"): everything without blanks that starts like a name, a dot or a percent
 * sign. Comments vanish. The text is not modified and need not be NUL-terminated.
 */
#ifndef FLYT_SOFTGPU_PTX_LEX_H
#define FLYT_SOFTGPU_PTX_LEX_H

#include "cpu/softgpu/ptx/build.h"

enum ptx_token_kind { PTX_TOKEN_END, PTX_TOKEN_WORD, PTX_TOKEN_NUMBER, PTX_TOKEN_STRING, PTX_TOKEN_PUNCTUATION };

enum ptx_number_kind { PTX_NUMBER_INT, PTX_NUMBER_F32, PTX_NUMBER_F64 };

struct ptx_token {
    enum ptx_token_kind kind;
    unsigned line;
    const char *text; /* in the source; text_bytes long */
    size_t text_bytes;
    char punctuation; /* of PTX_TOKEN_PUNCTUATION */
    enum ptx_number_kind number_kind;
    uint64_t bits; /* of PTX_TOKEN_NUMBER: the integer, or the bit pattern of the float or double */
};

struct ptx_lexer {
    struct ptx_build *build;
    const char *at, *end;
    unsigned line;
    struct ptx_token token; /* the current one */
};

/* Whether a text is one that a loader takes for PTX: the first word behind blanks and comments is .version. */
bool flyt_ptx_lexer_is_ptx(const char *text, size_t text_bytes);
/* Starts at the first token of text[0 … text_bytes-1]. */
void flyt_ptx_lexer_init(struct ptx_lexer *lexer, struct ptx_build *build, const char *text, size_t text_bytes);
/* Steps to the next token; the build fails on a character that no token begins with. */
void flyt_ptx_lexer_next(struct ptx_lexer *lexer);
/* Skips the rest of the current token's line (.loc and .file have no terminator). */
void flyt_ptx_lexer_skip_line(struct ptx_lexer *lexer);

/*
 * The names that the PTX ISA knows, whether the engine has what they stand for or not: what is not among them is an
 * error in the text (CUDA_ERROR_INVALID_PTX), what is and lacks here is CUDA_ERROR_NOT_SUPPORTED. As of PTX 9.0.
 */

/* An instruction's first part: "add", not "add.s32". */
bool flyt_ptx_names_has_operation(const char *name);
/* A special register with its percent sign: "%tid.x". */
bool flyt_ptx_names_has_register(const char *name);
/* A directive with its dot: ".global". */
bool flyt_ptx_names_has_directive(const char *name);

#endif
