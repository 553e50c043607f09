#include "cpu/server/code/image_state.h"

#include <string.h>

#include "cpu/server/code/image_code.h"

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Whether kernels never write the variable: the compiler has made it, of what the program cannot write. */
static bool is_literal(const char *name)
{
    return !strcmp(name, "$str") || begins_with(name, "$str$") || begins_with(name, "__unnamed_") ||
           begins_with(name, "__cudart_");
}

/* ---- machine code ---- */

/* What one symbol says; `initialised` is the section of variables with contents (0: none), whose bytes are counted. */
static unsigned of_symbol(const char *name, const Elf64_Sym *symbol, unsigned initialised, uint64_t *covered_bytes)
{
    if (!strcmp(name, "malloc"))
        return FLYT_IMAGE_HEAP;
    if (!initialised || symbol->st_shndx != initialised || ELF64_ST_TYPE(symbol->st_info) == STT_SECTION)
        return 0;
    if (!is_literal(name))
        return FLYT_IMAGE_VARIABLES;
    *covered_bytes += symbol->st_size < UINT32_MAX ? symbol->st_size : 0;
    return 0;
}

static unsigned of_symbols(const struct flyt_code *code, const Elf64_Shdr *table, unsigned initialised,
                           uint64_t *covered_bytes)
{
    Elf64_Shdr names;
    Elf64_Sym symbol;
    unsigned state = 0;
    if (table->sh_entsize != sizeof symbol || !flyt_code_section(code, table->sh_link, &names))
        return FLYT_IMAGE_UNKNOWN;
    for (uint64_t at = 0; at + sizeof symbol <= table->sh_size; at += sizeof symbol) {
        memcpy(&symbol, code->image + table->sh_offset + at, sizeof symbol);
        const char *name = flyt_code_text(code, &names, symbol.st_name);
        state |= name ? of_symbol(name, &symbol, initialised, covered_bytes) : FLYT_IMAGE_UNKNOWN;
    }
    return state;
}

/* What one section says; *ret_initialised: it is the one of variables with contents. */
static unsigned of_section(const struct flyt_code *code, const Elf64_Shdr *section, bool *ret_initialised)
{
    const char *name = flyt_code_text(code, &code->names, section->sh_name);
    *ret_initialised = false;
    if (!name)
        return FLYT_IMAGE_UNKNOWN;
    if (!(section->sh_flags & SHF_ALLOC) || !section->sh_size)
        return 0;
    if (!strcmp(name, ".nv.constant3")) /* the program's; others are the compiler's and parameters */
        return FLYT_IMAGE_CONSTANTS;
    if (!(section->sh_flags & SHF_WRITE) || begins_with(name, ".nv.shared") || begins_with(name, ".nv.local"))
        return 0;
    *ret_initialised = !strcmp(name, ".nv.global.init");
    return *ret_initialised ? 0 : FLYT_IMAGE_VARIABLES;
}

static unsigned of_code(const char *image, uint64_t bytes)
{
    struct flyt_code code;
    Elf64_Shdr section, variables = {0};
    unsigned state = 0, initialised = 0;
    uint64_t covered_bytes = 0;
    if (!flyt_code_open(&code, image, bytes))
        return FLYT_IMAGE_UNKNOWN;
    for (unsigned i = 0; i < code.header.e_shnum; i++) {
        bool is_initialised;
        if (!flyt_code_section(&code, i, &section))
            return FLYT_IMAGE_UNKNOWN;
        state |= of_section(&code, &section, &is_initialised);
        if (is_initialised && initialised)
            return state | FLYT_IMAGE_UNKNOWN;
        if (is_initialised) {
            initialised = i;
            variables = section;
        }
    }
    for (unsigned i = 0; i < code.header.e_shnum; i++) {
        flyt_code_section(&code, i, &section);
        if (section.sh_type == SHT_SYMTAB)
            state |= of_symbols(&code, &section, initialised, &covered_bytes);
    }
    /* Half of it without a name is more than what alignment leaves between literals. */
    if (variables.sh_size / 2 > covered_bytes)
        state |= FLYT_IMAGE_VARIABLES;
    return state;
}

/* ---- PTX ---- */

/* What machine code does not tell. */
static unsigned of_ptx(const char *text)
{
    unsigned state = 0;
    size_t bytes, previous_bytes = 0;
    const char *previous = "";
    for (const char *at = text; (at = flyt_ptx_token(at, &bytes)); at += bytes) {
        /* As an initialiser: generic(name). */
        if ((flyt_ptx_is(at, bytes, ".const") && flyt_ptx_is(previous, previous_bytes, "cvta")) ||
            flyt_ptx_is(at, bytes, "generic"))
            state |= FLYT_IMAGE_CONSTANTS;
        if (flyt_ptx_is(at, bytes, "malloc"))
            state |= FLYT_IMAGE_HEAP;
        if (flyt_ptx_is(at, bytes, ".texref") || flyt_ptx_is(at, bytes, ".surfref") ||
            flyt_ptx_is(at, bytes, ".samplerref"))
            state |= FLYT_IMAGE_VARIABLES;
        previous = at;
        previous_bytes = bytes;
    }
    return state;
}

unsigned flyt_image_state(const char *code, uint64_t bytes, const char *ptx)
{
    unsigned state = of_code(code, bytes);
    if (!ptx)
        return state;
    unsigned told = of_ptx(ptx);
    if (!(told & FLYT_IMAGE_CONSTANTS))
        state &= ~(unsigned)FLYT_IMAGE_CONSTANTS;
    return state | (told & ~(unsigned)FLYT_IMAGE_CONSTANTS);
}
