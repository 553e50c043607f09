#include "cpu/server/code/image_symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/code/image_code.h"
#include "rpc/proto/limits.h"

enum { ROOM_FIRST = 16 };

struct list {
    struct flyt_image_symbols symbols;
    uint64_t *places; /* of each, what tells two of one name apart */
    uint32_t room;
};

static int add(struct list *list, const char *name, size_t name_bytes, bool is_constant, uint64_t place)
{
    struct flyt_image_symbols *symbols = &list->symbols;
    if (name_bytes > FLYT_SYMBOL_BYTES_MAX)
        return -ENOTSUP;
    if (symbols->count == FLYT_IMAGE_SYMBOLS_MAX)
        return -E2BIG;
    if (symbols->count == list->room) {
        uint32_t room = list->room ? 2 * list->room : ROOM_FIRST;
        struct flyt_image_symbol *items = reallocarray(symbols->items, room, sizeof *items);
        if (items)
            symbols->items = items;
        uint64_t *places = reallocarray(list->places, room, sizeof *places);
        if (places)
            list->places = places;
        if (!items || !places)
            return -ENOMEM;
        list->room = room;
    }
    char *copy = strndup(name, name_bytes);
    if (!copy)
        return -ENOMEM;
    list->places[symbols->count] = place;
    symbols->items[symbols->count++] = (struct flyt_image_symbol){copy, is_constant};
    return 0;
}

/* ---- machine code ---- */

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

enum section_kind { SECTION_OTHER, SECTION_VARIABLES, SECTION_CONSTANTS };

/* As image_state.c has it. */
static enum section_kind kind_of(const struct flyt_code *code, const Elf64_Shdr *section)
{
    const char *name = flyt_code_text(code, &code->names, section->sh_name);
    if (!name || !(section->sh_flags & SHF_ALLOC) || !section->sh_size)
        return SECTION_OTHER;
    if (!strcmp(name, ".nv.constant3"))
        return SECTION_CONSTANTS;
    bool is_variable =
        section->sh_flags & SHF_WRITE && !begins_with(name, ".nv.shared") && !begins_with(name, ".nv.local");
    return is_variable ? SECTION_VARIABLES : SECTION_OTHER;
}

/* The symbols of one table that lie in a section. *covered_bytes: that they have. */
static int add_of_table(struct list *list, const struct flyt_code *code, const Elf64_Shdr *table, unsigned index,
                        const Elf64_Shdr *section, enum section_kind kind, uint64_t *covered_bytes)
{
    Elf64_Shdr names;
    Elf64_Sym symbol;
    int status = 0;
    if (table->sh_entsize != sizeof symbol || !flyt_code_section(code, table->sh_link, &names))
        return -EBADMSG;
    for (uint64_t at = 0; at + sizeof symbol <= table->sh_size && !status; at += sizeof symbol) {
        memcpy(&symbol, code->image + table->sh_offset + at, sizeof symbol);
        if (symbol.st_shndx != index || !symbol.st_size || ELF64_ST_TYPE(symbol.st_info) == STT_SECTION)
            continue;
        const char *name = flyt_code_text(code, &names, symbol.st_name);
        if (!name || symbol.st_value > section->sh_size || symbol.st_size > section->sh_size - symbol.st_value)
            return -EBADMSG;
        *covered_bytes += symbol.st_size;
        status = add(list, name, strlen(name), kind == SECTION_CONSTANTS, (uint64_t)index << 48 | symbol.st_value);
    }
    return status;
}

static int of_code(struct list *list, const char *image, uint64_t bytes)
{
    struct flyt_code code;
    Elf64_Shdr section, table;
    int status = 0;
    if (!flyt_code_open(&code, image, bytes))
        return -EBADMSG;
    for (unsigned i = 0; i < code.header.e_shnum && !status; i++) {
        uint64_t covered_bytes = 0;
        if (!flyt_code_section(&code, i, &section))
            return -EBADMSG;
        enum section_kind kind = kind_of(&code, &section);
        if (kind == SECTION_OTHER)
            continue;
        for (unsigned k = 0; k < code.header.e_shnum && !status; k++)
            if (flyt_code_section(&code, k, &table) && table.sh_type == SHT_SYMTAB)
                status = add_of_table(list, &code, &table, i, &section, kind, &covered_bytes);
        /* Half of it without a name is more than what alignment leaves between. */
        if (!status && section.sh_size / 2 > covered_bytes)
            status = -ENOTSUP;
    }
    return status;
}

/* ---- all of them ---- */

struct placed {
    struct flyt_image_symbol symbol;
    uint64_t place;
};

static int compare(const void *left, const void *right)
{
    return strcmp(((const struct placed *)left)->symbol.name, ((const struct placed *)right)->symbol.name);
}

/* By name, and each once: a name that comes again is the same variable, or there is one of them that cannot be got. */
static int settle(struct list *list)
{
    struct flyt_image_symbols *symbols = &list->symbols;
    uint32_t kept = 0;
    int status = 0;
    if (!symbols->count)
        return 0;
    struct placed *all = reallocarray(NULL, symbols->count, sizeof *all);
    if (!all)
        return -ENOMEM;
    for (uint32_t i = 0; i < symbols->count; i++)
        all[i] = (struct placed){symbols->items[i], list->places[i]};
    qsort(all, symbols->count, sizeof *all, compare);
    for (uint32_t i = 0; i < symbols->count; i++) {
        if (!kept || compare(&all[kept - 1], &all[i]) != 0) {
            all[kept++] = all[i];
            continue;
        }
        if (all[kept - 1].place != all[i].place || all[kept - 1].symbol.is_constant != all[i].symbol.is_constant)
            status = -ENOTSUP;
        free(all[i].symbol.name);
    }
    for (uint32_t i = 0; i < kept; i++)
        symbols->items[i] = all[i].symbol;
    symbols->count = kept;
    free(all);
    return status;
}

int flyt_image_symbols(const char *code, uint64_t bytes, struct flyt_image_symbols *ret_symbols)
{
    struct list list = {0};
    int status = of_code(&list, code, bytes);
    if (status == 0)
        status = settle(&list);
    free(list.places);
    if (status)
        flyt_image_symbols_free(&list.symbols);
    else
        *ret_symbols = list.symbols;
    return status;
}

int64_t flyt_image_symbols_find(const struct flyt_image_symbols *symbols, const char *name)
{
    uint32_t low = 0, high = symbols->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(symbols->items[middle].name, name);
        if (order == 0)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

void flyt_image_symbols_free(struct flyt_image_symbols *symbols)
{
    for (uint32_t i = 0; i < symbols->count; i++)
        free(symbols->items[i].name);
    free(symbols->items);
    *symbols = (struct flyt_image_symbols){0};
}
