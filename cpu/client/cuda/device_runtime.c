#include "cpu/client/cuda/device_runtime.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "rpc/base/fatbin.h"

/* What nothing else defines. */
static const char launch_function[] = "cudaLaunchDeviceV2";

/* ---- the functions of a file of machine code ---- */

/* Section `index` of the file; false: it is not inside. */
static bool section_at(const char *code, size_t bytes, const Elf64_Ehdr *head, unsigned index, Elf64_Shdr *ret_section)
{
    uint64_t at = head->e_shoff + (uint64_t)index * sizeof *ret_section;
    if (index >= head->e_shnum || at < head->e_shoff || at > bytes || bytes - at < sizeof *ret_section)
        return false;
    memcpy(ret_section, code + at, sizeof *ret_section);
    return ret_section->sh_type == SHT_NOBITS ||
           (ret_section->sh_offset <= bytes && ret_section->sh_size <= bytes - ret_section->sh_offset);
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static int read_names(struct flyt_device_runtime *runtime, const char *code, const Elf64_Shdr *symbols,
                      const Elf64_Shdr *strings)
{
    const char *texts = code + strings->sh_offset;
    size_t count = symbols->sh_size / sizeof(Elf64_Sym);
    if (!strings->sh_size || texts[strings->sh_size - 1])
        return 0;
    runtime->names = calloc(count + 1, sizeof *runtime->names);
    if (!runtime->names)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        Elf64_Sym symbol;
        memcpy(&symbol, code + symbols->sh_offset + i * sizeof symbol, sizeof symbol);
        bool is_public = ELF64_ST_BIND(symbol.st_info) != STB_LOCAL && ELF64_ST_TYPE(symbol.st_info) == STT_FUNC;
        if (is_public && symbol.st_shndx != SHN_UNDEF && symbol.st_name < strings->sh_size && texts[symbol.st_name])
            runtime->names[runtime->count++] = texts + symbol.st_name;
    }
    qsort(runtime->names, runtime->count, sizeof *runtime->names, compare_names);
    return 0;
}

static int read_functions(struct flyt_device_runtime *runtime, const char *code, size_t bytes)
{
    Elf64_Ehdr head;
    Elf64_Shdr symbols, strings;
    if (bytes < sizeof head)
        return 0;
    memcpy(&head, code, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_shentsize != sizeof symbols)
        return 0;
    for (unsigned i = 0; i < head.e_shnum; i++)
        if (section_at(code, bytes, &head, i, &symbols) && symbols.sh_type == SHT_SYMTAB)
            return section_at(code, bytes, &head, symbols.sh_link, &strings) && strings.sh_type == SHT_STRTAB
                       ? read_names(runtime, code, &symbols, &strings)
                       : 0;
    return 0;
}

/* ---- the unit ---- */

static const char *find(const struct flyt_device_runtime *runtime, const char *name)
{
    if (!runtime->count)
        return NULL;
    const char **found = bsearch(&name, runtime->names, runtime->count, sizeof *runtime->names, compare_names);
    return found ? *found : NULL;
}

int flyt_device_runtime_open(const void *container, struct flyt_device_runtime *ret_runtime)
{
    struct flyt_fatbin fatbin;
    struct flyt_fatbin_entry entry;
    struct flyt_device_runtime runtime = {0};
    size_t bytes;
    if (flyt_fatbin_init(flyt_fatbin_unwrap(container), FLYT_FATBIN_BYTES_UNKNOWN, &fatbin))
        return 0;
    do
        if (flyt_fatbin_next(&fatbin, &entry) <= 0)
            return 0;
    while (entry.kind != FLYT_FATBIN_CUBIN); /* it has some for every architecture */
    int status = flyt_fatbin_decompress(&entry, &runtime.code, &bytes);
    if (status)
        return status == -ENOMEM ? status : 0;
    status = read_functions(&runtime, runtime.code, bytes);
    if (status || !find(&runtime, launch_function)) {
        flyt_device_runtime_close(&runtime);
        return status;
    }
    *ret_runtime = runtime;
    return 1;
}

void flyt_device_runtime_close(struct flyt_device_runtime *runtime)
{
    free(runtime->names);
    free(runtime->code);
    *runtime = (struct flyt_device_runtime){0};
}

/* ---- who needs it ---- */

static bool is_word(unsigned char byte)
{
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') ||
           byte == '_' || byte == '$';
}

bool flyt_device_runtime_launches(const char *name)
{
    return strstr(name, "LaunchDevice") || strstr(name, "GetParameterBuffer");
}

const char *flyt_device_runtime_named_in(const struct flyt_device_runtime *runtime, const struct flyt_image *image)
{
    enum { WORD_BYTES_MAX = 255 };
    const char *at = image->data, *end = at + image->bytes, *named = NULL;
    char word[WORD_BYTES_MAX + 1];
    while (at < end) {
        const char *begin = at;
        while (at < end && is_word((unsigned char)*at))
            at++;
        size_t bytes = (size_t)(at - begin);
        if (bytes && bytes <= WORD_BYTES_MAX) {
            memcpy(word, begin, bytes);
            word[bytes] = 0;
            const char *found = find(runtime, word);
            if (found && (!named || flyt_device_runtime_launches(found)))
                named = found;
            if (named && flyt_device_runtime_launches(named))
                return named;
        }
        at += at < end && !bytes;
    }
    return named;
}
