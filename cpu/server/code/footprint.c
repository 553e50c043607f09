#include "cpu/server/code/footprint.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/code/image_code.h"

/* As the driver maps memory, and as it aligns what shares some. */
#define GRANULE_BYTES ((uint64_t)2 << 20)
#define ALIGN_BYTES   ((uint64_t)512)

static uint64_t add(uint64_t one, uint64_t other)
{
    return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

static uint64_t multiply(uint64_t one, uint64_t other)
{
    return other && one > UINT64_MAX / other ? UINT64_MAX : one * other;
}

/* ---- machine code ---- */

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Shared and local memory only have a size there. */
static bool takes_memory(const char *name, const Elf64_Shdr *section)
{
    if (begins_with(name, ".nv.shared") || begins_with(name, ".nv.local"))
        return false;
    return section->sh_flags & SHF_ALLOC || begins_with(name, ".nv.global") || begins_with(name, ".nv.constant") ||
           begins_with(name, ".text");
}

/* What does not fit into a granule gets granules of its own; of smaller pieces, a granule holds as many as fit. */
static uint64_t placed_bytes(uint64_t bytes)
{
    if (bytes > GRANULE_BYTES)
        return add(bytes, -bytes % GRANULE_BYTES);
    bytes += -bytes % ALIGN_BYTES;
    return bytes ? GRANULE_BYTES / (GRANULE_BYTES / bytes) : 0;
}

/* What the symbols of each section take, into an array by section; those of none yet (`.common`) into its place 0.
 * False: a table cannot be read, or names sections that are not there. */
static bool add_symbols(const struct flyt_code *code, const Elf64_Shdr *table, uint64_t *symbol_bytes)
{
    Elf64_Shdr section;
    Elf64_Sym symbol;
    if (table->sh_entsize != sizeof symbol)
        return false;
    for (uint64_t at = 0; at + sizeof symbol <= table->sh_size; at += sizeof symbol) {
        memcpy(&symbol, code->image + table->sh_offset + at, sizeof symbol);
        if (symbol.st_shndx == SHN_COMMON)
            symbol_bytes[0] = add(symbol_bytes[0], placed_bytes(symbol.st_size));
        if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= SHN_LORESERVE)
            continue;
        /* A driver was seen to crash where it is none. */
        if (!flyt_code_section(code, symbol.st_shndx, &section) || section.sh_type == SHT_NULL)
            return false;
        if (ELF64_ST_TYPE(symbol.st_info) != STT_SECTION)
            symbol_bytes[symbol.st_shndx] = add(symbol_bytes[symbol.st_shndx], placed_bytes(symbol.st_size));
    }
    return true;
}

static bool add_sections(const struct flyt_code *code, uint64_t *symbol_bytes, uint64_t *ret_bytes)
{
    Elf64_Shdr section;
    for (unsigned i = 0; i < code->header.e_shnum; i++)
        if (!flyt_code_section(code, i, &section) ||
            (section.sh_type == SHT_SYMTAB && !add_symbols(code, &section, symbol_bytes)))
            return false;
    uint64_t total = symbol_bytes[0];
    for (unsigned i = 1; i < code->header.e_shnum; i++) {
        flyt_code_section(code, i, &section);
        const char *name = flyt_code_text(code, &code->names, section.sh_name);
        if (!name)
            return false;
        if (!takes_memory(name, &section))
            continue;
        uint64_t bytes = placed_bytes(section.sh_size);
        total = add(total, bytes > symbol_bytes[i] ? bytes : symbol_bytes[i]);
    }
    *ret_bytes = total;
    return true;
}

/* What its segments are said to take in memory. False: their table does not lie inside. */
static bool add_segments(const struct flyt_code *code, uint64_t *ret_bytes)
{
    const Elf64_Ehdr *header = &code->header;
    Elf64_Phdr segment;
    uint64_t total = 0;
    if (header->e_phnum && (header->e_phentsize != sizeof segment || header->e_phoff > code->bytes ||
                            (code->bytes - header->e_phoff) / sizeof segment < header->e_phnum))
        return false;
    for (unsigned i = 0; i < header->e_phnum; i++) {
        memcpy(&segment, code->image + header->e_phoff + i * sizeof segment, sizeof segment);
        if (segment.p_type == PT_LOAD)
            total = add(total, placed_bytes(segment.p_memsz));
    }
    *ret_bytes = total;
    return true;
}

/* The driver's functions that kernels call, and what they take, measured on an H100 with driver 580: the largest of
 * them counts, for they share it. With malloc comes the heap of a context as it is made. */
static const struct {
    const char *name;
    uint64_t bytes;
} functions[] = {
    {"vprintf", (uint64_t)64 << 20},
    {"__assertfail", (uint64_t)92 << 20},
    {"malloc", (uint64_t)148 << 20},
};

static uint64_t of_function(const struct flyt_code *code, const Elf64_Shdr *names, const Elf64_Sym *symbol)
{
    const char *name = symbol->st_shndx == SHN_UNDEF ? flyt_code_text(code, names, symbol->st_name) : NULL;
    for (unsigned i = 0; name && i < sizeof functions / sizeof functions[0]; i++)
        if (!strcmp(name, functions[i].name))
            return functions[i].bytes;
    return 0;
}

uint64_t flyt_footprint_of_functions(const char *image, uint64_t bytes)
{
    struct flyt_code code;
    Elf64_Shdr table, names;
    Elf64_Sym symbol;
    uint64_t most_bytes = 0;
    if (!flyt_code_open(&code, image, bytes))
        return 0;
    for (unsigned i = 0; i < code.header.e_shnum; i++) {
        if (!flyt_code_section(&code, i, &table) || table.sh_type != SHT_SYMTAB || table.sh_entsize != sizeof symbol ||
            !flyt_code_section(&code, table.sh_link, &names))
            continue;
        for (uint64_t at = 0; at + sizeof symbol <= table.sh_size; at += sizeof symbol) {
            memcpy(&symbol, image + table.sh_offset + at, sizeof symbol);
            uint64_t function_bytes = of_function(&code, &names, &symbol);
            most_bytes = function_bytes > most_bytes ? function_bytes : most_bytes;
        }
    }
    return most_bytes;
}

bool flyt_footprint_of_code(const char *code, uint64_t bytes, uint64_t *ret_bytes)
{
    struct flyt_code opened;
    if (!flyt_code_open(&opened, code, bytes))
        return false;
    uint64_t *symbol_bytes = calloc(opened.header.e_shnum, sizeof *symbol_bytes);
    uint64_t section_bytes, segment_bytes;
    bool is_read =
        symbol_bytes && add_sections(&opened, symbol_bytes, &section_bytes) && add_segments(&opened, &segment_bytes);
    free(symbol_bytes);
    if (is_read)
        *ret_bytes = section_bytes > segment_bytes ? section_bytes : segment_bytes;
    return is_read;
}

/* ---- PTX ---- */

/* No instruction takes more for each character of its text: `rem.s32 a,a,b;` became 160 bytes, 11 for each, with ptxas
 * 13 for sm_90. A loop that is unrolled may, but not by much in the time that it takes to compile, and the node manager
 * corrects the charge once a second. */
enum { CODE_BYTES_A_CHARACTER = 16 };

/* The largest that a type without a number in its name has: a reference to a texture. */
enum { OTHER_TYPE_BYTES = 64 };

struct token {
    const char *text;
    size_t bytes;
};

/* False: the text has no more; the token is empty then, and stays so. */
static bool next(struct token *token)
{
    const char *behind = token->text + token->bytes;
    const char *text = flyt_ptx_token(behind, &token->bytes);
    token->text = text ? text : behind;
    if (!text)
        token->bytes = 0;
    return text;
}

static bool is(const struct token *token, const char *text)
{
    return flyt_ptx_is(token->text, token->bytes, text);
}

static bool is_space(const struct token *token)
{
    return is(token, ".global") || is(token, ".const");
}

/* Of a whole number. UINT64_MAX: it is none. */
static uint64_t value_of(const struct token *token)
{
    return flyt_ptx_number(token->text, token->bytes);
}

/* `.f32` for one; `.v4` is a number of them. */
static uint64_t type_bytes(const struct token *token)
{
    size_t at = token->bytes;
    while (at && isdigit((unsigned char)token->text[at - 1]))
        at--;
    uint64_t bits = at < token->bytes ? strtoull(token->text + at, NULL, 10) : 0;
    return bits >= 8 && bits <= 128 && bits % 8 == 0 ? bits / 8 : OTHER_TYPE_BYTES;
}

/* What stands before the names: [[bank]] [.align N] [.attribute(…)] [.v2|.v4] .type. Bytes of an item; *token: the
 * first name. */
static uint64_t read_type(struct token *token, uint64_t *ret_align)
{
    uint64_t unit = OTHER_TYPE_BYTES, vector = 1;
    unsigned depth = 0;
    *ret_align = 0;
    while (next(token) && (depth || *token->text == '.' || *token->text == '(' || *token->text == '[')) {
        depth += *token->text == '(' || *token->text == '[';
        if (*token->text == ')' || *token->text == ']') {
            depth -= depth > 0;
            continue;
        }
        if (depth)
            continue;
        if (is(token, ".align"))
            *ret_align = next(token) ? value_of(token) : UINT64_MAX;
        else if (token->bytes == 3 && token->text[1] == 'v' && isdigit((unsigned char)token->text[2]))
            vector = (uint64_t)(token->text[2] - '0');
        else if (!is(token, ".attribute"))
            unit = type_bytes(token);
    }
    return multiply(unit, vector);
}

/* Behind a name: its extents, and how many contents it has where one of them is not said. *token: the comma or
 * semicolon behind it. */
static uint64_t read_count(struct token *token)
{
    uint64_t count = 1, content_count = 0;
    unsigned depth = 0;
    bool is_open = false, has_more;
    while ((has_more = next(token)) && (is(token, "[") || is(token, "<"))) {
        bool is_extent = is(token, "[");
        has_more = next(token);
        if (has_more && is_extent && is(token, "]")) {
            is_open = true;
            continue;
        }
        count = multiply(count, has_more ? value_of(token) : UINT64_MAX);
        if (!next(token) || !is(token, is_extent ? "]" : ">"))
            return UINT64_MAX;
    }
    for (; has_more && (depth || (!is(token, ",") && !is(token, ";"))); has_more = next(token)) {
        if (is_space(token))
            return UINT64_MAX; /* another declaration, of which this would not be the name */
        depth += is(token, "{") || is(token, "(");
        depth -= (is(token, "}") || is(token, ")")) && depth;
        content_count = add(content_count, token->bytes);
    }
    if (!has_more)
        return UINT64_MAX;
    return is_open ? multiply(count, add(content_count, 1)) : count;
}

/* Behind `.global` or `.const`, up to its semicolon. */
static uint64_t of_declaration(struct token *token)
{
    uint64_t align, item_bytes = read_type(token, &align), total = 0;
    do
        total = add(total, add(align, multiply(item_bytes, read_count(token))));
    while (is(token, ",") && next(token));
    return total;
}

/* Whether the state space belongs to an instruction that begins with this word. */
static bool is_of_instruction(const struct token *first)
{
    static const char *const names[] = {
        "ld",       "ldu",     "st",           "atom", "red",      "prefetch",  "cvta",  "prefetchu", "applypriority",
        "isspacep", "discard", "createpolicy", "cp",   "multimem", "tensormap", "fence", "mbarrier"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (is(first, names[i]))
            return true;
    return false;
}

static bool is_glued(const struct token *token, const struct token *previous)
{
    return token->text == previous->text + previous->bytes;
}

/* Whether the token goes on with an instruction's name, which is a word and, glued to it, others that begin with a dot
 * or with two colons: `ld.global.u32`, `cp.async.bulk.shared::cluster.global`. Anything else ends it, a single colon
 * too: that of a label. */
static bool goes_on(const struct token *token, const struct token *previous, const struct token *first)
{
    if (!is_glued(token, previous))
        return false;
    if (is(token, ":"))
        return is(previous, ":") || token->text[1] == ':';
    /* Of two colons, neither is the first token. */
    return is(previous, ":") ? *token->text != '.' && previous->text != first->text : *token->text == '.';
}

uint64_t flyt_footprint_at_most(const char *text)
{
    struct token token = {.text = text}, previous = {.text = text}, first = {.text = text};
    uint64_t total = multiply(strlen(text), CODE_BYTES_A_CHARACTER), function_bytes = 0;
    while (next(&token)) {
        for (unsigned i = 0; i < sizeof functions / sizeof functions[0]; i++)
            if (is(&token, functions[i].name) && functions[i].bytes > function_bytes)
                function_bytes = functions[i].bytes;
        if (!goes_on(&token, &previous, &first))
            first = token;
        /* A preprocessor's line may give anything another name. */
        if (is(&token, "#"))
            return UINT64_MAX;
        bool is_pointer = is(&previous, ".ptr"); /* says where a parameter points */
        previous = token;
        if (is_space(&token) && !is_pointer && !is_of_instruction(&first)) {
            total = add(total, of_declaration(&token));
            previous = token;
        }
    }
    return add(total, function_bytes);
}
