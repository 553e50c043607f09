#include "cpu/server/code/image_code.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/base/fatbin.h"

bool flyt_code_section(const struct flyt_code *code, unsigned index, Elf64_Shdr *ret_section)
{
    if (index >= code->header.e_shnum)
        return false;
    memcpy(ret_section, code->image + code->header.e_shoff + index * sizeof *ret_section, sizeof *ret_section);
    return ret_section->sh_type == SHT_NOBITS ||
           (ret_section->sh_offset <= code->bytes && ret_section->sh_size <= code->bytes - ret_section->sh_offset);
}

const char *flyt_code_text(const struct flyt_code *code, const Elf64_Shdr *table, uint64_t at)
{
    if (table->sh_type != SHT_STRTAB || at >= table->sh_size)
        return NULL;
    const char *text = code->image + table->sh_offset + at;
    return memchr(text, 0, table->sh_size - at) ? text : NULL;
}

bool flyt_code_open(struct flyt_code *code, const char *image, uint64_t bytes)
{
    *code = (struct flyt_code){.image = image, .bytes = bytes};
    if (bytes < sizeof code->header)
        return false;
    memcpy(&code->header, image, sizeof code->header);
    return code->header.e_ident[EI_CLASS] == ELFCLASS64 && code->header.e_shnum &&
           code->header.e_shentsize == sizeof(Elf64_Shdr) && code->header.e_shoff <= bytes &&
           (bytes - code->header.e_shoff) / sizeof(Elf64_Shdr) >= code->header.e_shnum &&
           flyt_code_section(code, code->header.e_shstrndx, &code->names) && code->names.sh_type == SHT_STRTAB;
}

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%';
}

/* Behind spaces and comments. */
static const char *pass_over(const char *at)
{
    for (;;) {
        while (isspace((unsigned char)*at))
            at++;
        if (at[0] == '/' && at[1] == '/') {
            at += strcspn(at, "\n");
        } else if (at[0] == '/' && at[1] == '*') {
            const char *end = strstr(at + 2, "*/");
            at = end ? end + 2 : at + strlen(at);
        } else {
            return at;
        }
    }
}

const char *flyt_ptx_token(const char *at, size_t *ret_bytes)
{
    at = pass_over(at);
    size_t bytes = 1;
    if (!*at)
        return NULL;
    if (*at == '"') {
        bytes += strcspn(at + 1, "\"");
        bytes += at[bytes] != 0;
    } else if (*at == '.' || is_name(*at)) {
        while (is_name(at[bytes]))
            bytes++;
    }
    *ret_bytes = bytes;
    return at;
}

bool flyt_ptx_is(const char *token, size_t bytes, const char *text)
{
    return strlen(text) == bytes && !memcmp(token, text, bytes);
}

uint64_t flyt_ptx_number(const char *token, size_t bytes)
{
    char *end;
    if (!isdigit((unsigned char)*token))
        return UINT64_MAX;
    uint64_t value = strtoull(token, &end, 0);
    if (*end == 'U')
        end++;
    return end == token + bytes ? value : UINT64_MAX;
}

/* PTX may come with its NUL, or with several. */
static int copy_plain(const char *image, uint64_t bytes, char **ret_plain, uint64_t *ret_bytes)
{
    char *copy = malloc(bytes + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, image, bytes);
    copy[bytes] = 0;
    while (bytes && !copy[bytes - 1] && memcmp(copy, ELFMAG, SELFMAG) != 0)
        bytes--;
    *ret_plain = copy;
    *ret_bytes = bytes;
    return 0;
}

int flyt_image_choose(const char *image, uint64_t bytes, int major, int minor, bool runs_code, char **ret_plain,
                      uint64_t *ret_bytes)
{
    const struct flyt_fatbin_device device = {.major = major, .minor = minor, .runs_cubin = runs_code};
    struct flyt_fatbin_entry entry;
    size_t plain_bytes;
    if (bytes < sizeof(uint32_t))
        return -EBADMSG;
    if (!flyt_fatbin_is(image))
        return copy_plain(image, bytes, ret_plain, ret_bytes);
    int status = flyt_fatbin_choose(image, bytes, &device, &entry);
    if (status == 0)
        status = flyt_fatbin_decompress(&entry, ret_plain, &plain_bytes);
    if (status == 0)
        *ret_bytes = plain_bytes;
    return status;
}
