#include "cpu/softgpu/ptx/lex.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_word_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '.' || c == '%';
}

static void fail(struct ptx_lexer *lexer, const char *what)
{
    flyt_ptx_build_fail(lexer->build, CUDA_ERROR_INVALID_PTX, lexer->line, "%s", what);
}

/* False: a comment has no end. */
static bool skip_blanks(struct ptx_lexer *lexer)
{
    while (lexer->at < lexer->end) {
        char c = *lexer->at;

        if (c == '\n') {
            lexer->line++;
            lexer->at++;
        } else if (isspace((unsigned char)c)) {
            lexer->at++;
        } else if (c == '/' && lexer->at + 1 < lexer->end && lexer->at[1] == '/') {
            while (lexer->at < lexer->end && *lexer->at != '\n')
                lexer->at++;
        } else if (c == '/' && lexer->at + 1 < lexer->end && lexer->at[1] == '*') {
            for (lexer->at += 2; lexer->at + 1 < lexer->end; lexer->at++) {
                lexer->line += *lexer->at == '\n';
                if (lexer->at[0] == '*' && lexer->at[1] == '/')
                    break;
            }
            if (lexer->at + 1 >= lexer->end) {
                lexer->at = lexer->end;
                return false;
            }
            lexer->at += 2;
        } else {
            return true;
        }
    }
    return true;
}

static void take_word(struct ptx_lexer *lexer)
{
    struct ptx_token *token = &lexer->token;

    while (lexer->at < lexer->end) {
        if (*lexer->at == '.' && *token->text == '.' && lexer->at != token->text)
            break; /* ".reg.b32": two directives */
        if (is_word_char(*lexer->at))
            lexer->at++;
        else if (*lexer->at == ':' && lexer->end - lexer->at > 2 && lexer->at[1] == ':' && is_word_char(lexer->at[2]))
            lexer->at += 2; /* "L1::no_allocate" */
        else
            break;
    }
    token->kind = PTX_TOKEN_WORD;
    token->text_bytes = (size_t)(lexer->at - token->text);
}

/* Decodes the number in digits (NUL-terminated): 0x…, 0b…, 0…, decimal, 0f… and 0d… bit patterns, 1.5e3. */
static bool decode_number(struct ptx_token *token, const char *digits)
{
    char *rest = NULL;
    char prefix = digits[0] == '0' ? (char)tolower((unsigned char)digits[1]) : 0;

    token->number_kind = PTX_NUMBER_INT;
    errno = 0;
    if (prefix == 'f' || prefix == 'd') {
        token->number_kind = prefix == 'f' ? PTX_NUMBER_F32 : PTX_NUMBER_F64;
        token->bits = strtoull(digits + 2, &rest, 16);
        return strlen(digits) == (prefix == 'f' ? 10u : 18u) && !*rest;
    }
    if (prefix != 'x' && strpbrk(digits, ".eE")) {
        double value = strtod(digits, &rest);

        token->number_kind = PTX_NUMBER_F64;
        memcpy(&token->bits, &value, sizeof value);
        return !*rest;
    }
    if (prefix == 'b')
        token->bits = strtoull(digits + 2, &rest, 2);
    else
        token->bits = strtoull(digits, &rest, 0);
    if (*rest == 'U')
        rest++;
    return rest != digits && !*rest && !errno; /* nothing that 64 bits cannot hold */
}

static void take_number(struct ptx_lexer *lexer)
{
    struct ptx_token *token = &lexer->token;
    char digits[64];

    while (lexer->at < lexer->end &&
           (isalnum((unsigned char)*lexer->at) || *lexer->at == '.' ||
            ((*lexer->at == '-' || *lexer->at == '+') && tolower(lexer->at[-1]) == 'e' &&
             tolower(token->text[1]) != 'x' && tolower(token->text[1]) != 'f' && tolower(token->text[1]) != 'd')))
        lexer->at++;
    token->kind = PTX_TOKEN_NUMBER;
    token->text_bytes = (size_t)(lexer->at - token->text);
    if (token->text_bytes >= sizeof digits)
        fail(lexer, "a number is too long");
    memcpy(digits, token->text, token->text_bytes);
    digits[token->text_bytes] = 0;
    if (!decode_number(token, digits))
        fail(lexer, "malformed number");
}

static void take_string(struct ptx_lexer *lexer)
{
    struct ptx_token *token = &lexer->token;

    for (lexer->at++; lexer->at < lexer->end && *lexer->at != '"'; lexer->at++) {
        if (*lexer->at == '\n')
            break;
        if (*lexer->at == '\\' && lexer->at + 1 < lexer->end && lexer->at[1] != '\n')
            lexer->at++;
    }
    if (lexer->at >= lexer->end || *lexer->at != '"')
        fail(lexer, "unterminated string");
    lexer->at++;
    token->kind = PTX_TOKEN_STRING;
    token->text_bytes = (size_t)(lexer->at - token->text);
}

void flyt_ptx_lexer_next(struct ptx_lexer *lexer)
{
    struct ptx_token *token = &lexer->token;

    if (!skip_blanks(lexer))
        fail(lexer, "unterminated comment");
    *token = (struct ptx_token){.line = lexer->line, .text = lexer->at};
    if (lexer->at >= lexer->end || *lexer->at == 0) {
        lexer->at = lexer->end;
        token->kind = PTX_TOKEN_END; /* a NUL ends the text: loaders pass its length with the terminator */
        return;
    }
    if (isdigit((unsigned char)*lexer->at)) {
        take_number(lexer);
    } else if (*lexer->at == '"') {
        take_string(lexer);
    } else if (is_word_char(*lexer->at)) {
        take_word(lexer);
    } else if (strchr("{}()[]<>,;:=+-*/!~|&@^?", *lexer->at)) {
        token->kind = PTX_TOKEN_PUNCTUATION;
        token->punctuation = *lexer->at++;
        token->text_bytes = 1;
    } else {
        fail(lexer, "unexpected character");
    }
}

void flyt_ptx_lexer_skip_line(struct ptx_lexer *lexer)
{
    unsigned line = lexer->token.line;

    while (lexer->at < lexer->end && lexer->line == line && *lexer->at != '\n')
        lexer->at++;
    flyt_ptx_lexer_next(lexer);
}

bool flyt_ptx_lexer_is_ptx(const char *text, size_t text_bytes)
{
    static const char word[] = ".version";
    struct ptx_lexer lexer = {.at = text, .end = text + text_bytes, .line = 1};
    size_t bytes = sizeof word - 1;

    return skip_blanks(&lexer) && (size_t)(lexer.end - lexer.at) > bytes && !memcmp(lexer.at, word, bytes) &&
           !is_word_char(lexer.at[bytes]);
}

void flyt_ptx_lexer_init(struct ptx_lexer *lexer, struct ptx_build *build, const char *text, size_t text_bytes)
{
    *lexer = (struct ptx_lexer){.build = build, .at = text, .end = text + text_bytes, .line = 1};
    flyt_ptx_lexer_next(lexer);
}

/* ---- names ---- */

/* Each list is in the order of strcmp. */
static const char *const operations[] = {
    "abs",          "activemask",    "add",       "addc",       "alloca",
    "and",          "applypriority", "atom",      "bar",        "barrier",
    "bfe",          "bfi",           "bfind",     "bmsk",       "bra",
    "brev",         "brkpt",         "brx",       "call",       "clusterlaunchcontrol",
    "clz",          "cnot",          "copysign",  "cos",        "cp",
    "createpolicy", "cvt",           "cvta",      "discard",    "div",
    "dp2a",         "dp4a",          "elect",     "ex2",        "exit",
    "fence",        "fma",           "fns",       "getctarank", "griddepcontrol",
    "isspacep",     "istypep",       "ld",        "ldmatrix",   "ldu",
    "lg2",          "lop3",          "mad",       "mad24",      "madc",
    "mapa",         "match",         "max",       "mbarrier",   "membar",
    "min",          "mma",           "mov",       "movmatrix",  "mul",
    "mul24",        "multimem",      "nanosleep", "neg",        "not",
    "or",           "pmevent",       "popc",      "prefetch",   "prefetchu",
    "prmt",         "rcp",           "red",       "redux",      "rem",
    "ret",          "rsqrt",         "sad",       "selp",       "set",
    "setmaxnreg",   "setp",          "shf",       "shfl",       "shl",
    "shr",          "sin",           "slct",      "sqrt",       "st",
    "stackrestore", "stacksave",     "stmatrix",  "sub",        "subc",
    "suld",         "suq",           "sured",     "sust",       "szext",
    "tanh",         "tcgen05",       "tensormap", "testp",      "tex",
    "tld4",         "trap",          "txq",       "vabsdiff",   "vabsdiff2",
    "vabsdiff4",    "vadd",          "vadd2",     "vadd4",      "vavrg2",
    "vavrg4",       "vmad",          "vmax",      "vmax2",      "vmax4",
    "vmin",         "vmin2",         "vmin4",     "vote",       "vset",
    "vset2",        "vset4",         "vshl",      "vshr",       "vsub",
    "vsub2",        "vsub4",         "wgmma",     "wmma",       "xor",
};

static const char *const directives[] = {
    ".abi_preserve",
    ".abi_preserve_control",
    ".address_size",
    ".alias",
    ".align",
    ".attribute",
    ".blocksareclusters",
    ".branchtargets",
    ".callprototype",
    ".calltargets",
    ".common",
    ".const",
    ".entry",
    ".explicitcluster",
    ".extern",
    ".file",
    ".func",
    ".global",
    ".loc",
    ".local",
    ".maxclusterrank",
    ".maxnctapersm",
    ".maxnreg",
    ".maxntid",
    ".minnctapersm",
    ".noreturn",
    ".param",
    ".pragma",
    ".reg",
    ".reqnctapercluster",
    ".reqntid",
    ".samplerref",
    ".section",
    ".shared",
    ".sreg",
    ".surfref",
    ".target",
    ".tex",
    ".texref",
    ".unified",
    ".version",
    ".visible",
    ".weak",
};

/* What special registers begin with: ".x", "_lo" or a number may follow. */
static const char *const registers[] = {
    "%aggr_smem_size",
    "%clock",
    "%cluster_",
    "%clusterid",
    "%ctaid",
    "%current_graph_exec",
    "%dynamic_smem_size",
    "%envreg",
    "%globaltimer",
    "%gridid",
    "%is_explicit_cluster",
    "%laneid",
    "%lanemask_",
    "%nclusterid",
    "%nctaid",
    "%nsmid",
    "%ntid",
    "%nwarpid",
    "%pm",
    "%reserved_smem_offset_",
    "%smid",
    "%tid",
    "%total_smem_size",
    "%warpid",
};

#define COUNT(list) (sizeof(list) / sizeof *(list))

static int compare(const void *key, const void *element)
{
    return strcmp(key, *(const char *const *)element);
}

bool flyt_ptx_names_has_operation(const char *name)
{
    return bsearch(name, operations, COUNT(operations), sizeof *operations, compare) != NULL;
}

bool flyt_ptx_names_has_directive(const char *name)
{
    return bsearch(name, directives, COUNT(directives), sizeof *directives, compare) != NULL;
}

bool flyt_ptx_names_has_register(const char *name)
{
    for (unsigned i = 0; i < COUNT(registers); i++)
        if (!strncmp(name, registers[i], strlen(registers[i])))
            return true;
    return false;
}
