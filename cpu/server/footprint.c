#include "cpu/server/footprint.h"

#include <ctype.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/base/fatbin.h"

static uint64_t add(uint64_t one, uint64_t other)
{
    return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

/* ---- machine code: an ELF file (64 bit) ---- */

/* What is allocated lies in device memory, but for shared memory, which only has a size there. */
static bool takes_memory(const char *image, uint64_t bytes, const Elf64_Shdr *names, const Elf64_Shdr *section)
{
    static const char shared[] = ".nv.shared";
    uint64_t at = names->sh_offset + section->sh_name;

    if (!(section->sh_flags & SHF_ALLOC))
        return false;
    return names->sh_offset > bytes || at > bytes || bytes - at < sizeof shared ||
           memcmp(image + at, shared, sizeof shared - 1) != 0;
}

static uint64_t of_elf(const char *image, uint64_t bytes)
{
    Elf64_Ehdr header;
    Elf64_Shdr section, names = {0};
    uint64_t total = 0;

    if (bytes < sizeof header)
        return bytes;
    memcpy(&header, image, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof section || header.e_shoff > bytes ||
        (bytes - header.e_shoff) / sizeof section < header.e_shnum)
        return bytes;
    if (header.e_shstrndx < header.e_shnum)
        memcpy(&names, image + header.e_shoff + header.e_shstrndx * sizeof names, sizeof names);
    for (unsigned i = 0; i < header.e_shnum; i++) {
        memcpy(&section, image + header.e_shoff + i * sizeof section, sizeof section);
        if (takes_memory(image, bytes, &names, &section))
            total = add(total, section.sh_size);
    }
    return total;
}

/* ---- PTX ---- */

static const char *skip_spaces(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

static const char *skip_word(const char *at)
{
    while (*at && !isspace((unsigned char)*at) && !strchr(",;[={()", *at))
        at++;
    return at;
}

/* Bytes of a fundamental type, `.f32` for one; 0: it is none. */
static uint64_t type_bytes(const char *at, const char *end)
{
    while (end > at && isdigit((unsigned char)end[-1]))
        end--;
    uint64_t bits = strtoull(end, NULL, 10);

    return end > at && *at == '.' && bits >= 8 && bits <= 128 && bits % 8 == 0 ? bits / 8 : 0;
}

/* Of a declaration behind its state space: [.align N] [.attribute(…)] [.v2|.v4] .type name [N]…, up to its end. Names
 * that share one declaration count as one array each. */
static uint64_t of_declaration(const char *at)
{
    uint64_t unit = 0, vector = 1, total = 0;

    for (at = skip_spaces(at); *at == '.'; at = skip_spaces(at)) {
        const char *end = skip_word(at);
        if (!strncmp(at, ".v", 2) && (at[2] == '2' || at[2] == '4') && end == at + 3)
            vector = (uint64_t)(at[2] - '0');
        else if (strncmp(at, ".align", 6) != 0)
            unit = type_bytes(at, end) ? type_bytes(at, end) : unit;
        if (end == at)
            return 0;
        at = skip_spaces(end);
        if (isdigit((unsigned char)*at)) /* of .align */
            at = skip_word(at);
        if (*at == '(') /* of .attribute */
            at += strcspn(at, ")") + (strchr(at, ')') != NULL);
    }
    while (*at && *at != ';' && *at != '=' && *at != ')') {
        uint64_t count = 1;
        for (at = skip_spaces(skip_word(at)); *at == '['; at = skip_spaces(at)) {
            uint64_t extent = strtoull(at + 1, NULL, 0);
            count = extent && count > UINT64_MAX / extent ? UINT64_MAX : count * extent;
            at += strcspn(at, "]") + (strchr(at, ']') != NULL);
        }
        uint64_t item = unit * vector;
        total = add(total, item && count > UINT64_MAX / item ? UINT64_MAX : count * item);
        if (*at != ',')
            break;
        at = skip_spaces(at + 1);
    }
    return total;
}

static uint64_t of_ptx(const char *text, uint64_t bytes)
{
    static const char *const spaces[] = {".global", ".const"};
    uint64_t total = bytes;

    for (unsigned i = 0; i < sizeof spaces / sizeof spaces[0]; i++)
        for (const char *at = text; (at = strstr(at, spaces[i]));) {
            bool is_first = at == text || isspace((unsigned char)at[-1]);
            const char *end = at + strlen(spaces[i]);
            /* Elsewhere it is part of an instruction, or says where a parameter points: then no type follows. */
            if (is_first && isspace((unsigned char)*end))
                total = add(total, of_declaration(end));
            at = end;
        }
    return total;
}

/* ---- any ---- */

/* `image` has a NUL behind its bytes. */
static uint64_t of_one(const char *image, uint64_t bytes)
{
    return bytes >= SELFMAG && !memcmp(image, ELFMAG, SELFMAG) ? of_elf(image, bytes) : of_ptx(image, bytes);
}

uint64_t flyt_footprint(const char *image, uint64_t bytes, int major, int minor, bool runs_code)
{
    const struct flyt_fatbin_device device = {.major = major, .minor = minor, .runs_cubin = runs_code};
    struct flyt_fatbin_entry entry;
    size_t plain_bytes;
    char *plain;

    if (bytes < sizeof(uint32_t))
        return bytes;
    if (flyt_fatbin_is(image)) {
        if (flyt_fatbin_choose(image, bytes, &device, &entry) || flyt_fatbin_decompress(&entry, &plain, &plain_bytes))
            return bytes;
        bytes = plain_bytes;
    } else {
        plain = malloc(bytes + 1);
        if (!plain)
            return bytes;
        memcpy(plain, image, bytes);
        plain[bytes] = 0;
    }
    uint64_t total = of_one(plain, bytes);
    free(plain);
    return total;
}
