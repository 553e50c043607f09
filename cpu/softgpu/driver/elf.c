#include "cpu/softgpu/driver/elf.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/memory.h"

enum { MACHINE_CUDA = 190, BLOCK_ALIGN = 512, TEXT_ALIGN = 128 };

/* The file's sections by number. */
enum {
    ELF_NONE,
    ELF_SECTION_NAMES,
    ELF_NAMES,
    ELF_SYMBOLS,
    ELF_PTX,
    ELF_PLACED, /* the first of FLYT_SOFT_SECTIONS */
    ELF_SECTIONS = ELF_PLACED + FLYT_SOFT_SECTIONS
};

static const struct {
    const char *name;
    Elf64_Word type;
    Elf64_Xword flags;
} elf_sections[ELF_SECTIONS] = {
    [ELF_NONE] = {"", SHT_NULL, 0},
    [ELF_SECTION_NAMES] = {".shstrtab", SHT_STRTAB, 0},
    [ELF_NAMES] = {".strtab", SHT_STRTAB, 0},
    [ELF_SYMBOLS] = {".symtab", SHT_SYMTAB, 0},
    [ELF_PTX] = {".nv_softgpu.ptx", SHT_PROGBITS, 0},
    [ELF_PLACED + FLYT_SOFT_SECTION_TEXT] = {".text", SHT_NOBITS, SHF_ALLOC | SHF_EXECINSTR},
    [ELF_PLACED + FLYT_SOFT_SECTION_CONSTANT] = {".nv.constant3", SHT_NOBITS, SHF_ALLOC},
    [ELF_PLACED + FLYT_SOFT_SECTION_INITIAL] = {".nv.global.init", SHT_NOBITS, SHF_ALLOC | SHF_WRITE},
    [ELF_PLACED + FLYT_SOFT_SECTION_GLOBAL] = {".nv.global", SHT_NOBITS, SHF_ALLOC | SHF_WRITE},
};

/* ---- layout ---- */

enum flyt_soft_section flyt_soft_section_of(const struct flyt_ptx_variable *variable)
{
    if (variable->space == FLYT_PTX_CONST)
        return FLYT_SOFT_SECTION_CONSTANT;
    return variable->is_initialised ? FLYT_SOFT_SECTION_INITIAL : FLYT_SOFT_SECTION_GLOBAL;
}

static uint64_t align_up(uint64_t value, uint64_t align)
{
    return (value + align - 1) & ~(align - 1);
}

/* In the order of the text, so that the same modules loaded in the same order have the same addresses everywhere. */
CUresult flyt_soft_layout_init(struct flyt_soft_layout *layout, const struct flyt_ptx_module *module, size_t ptx_bytes)
{
    uint64_t aligns[FLYT_SOFT_SECTIONS] = {[FLYT_SOFT_SECTION_TEXT] = TEXT_ALIGN};
    unsigned count = flyt_ptx_module_variable_count(module);

    *layout = (struct flyt_soft_layout){.bytes = {[FLYT_SOFT_SECTION_TEXT] = ptx_bytes}, .align = BLOCK_ALIGN};
    layout->offsets = calloc(count + 1, sizeof(*layout->offsets));
    if (!layout->offsets)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < count; i++) {
        const struct flyt_ptx_variable *variable = flyt_ptx_module_variable(module, i);
        uint64_t align = variable->align ? variable->align : 1;
        enum flyt_soft_section section = flyt_soft_section_of(variable);
        uint64_t *bytes = &layout->bytes[section];

        if (align > FLYT_SOFT_GRANULE_BYTES || variable->bytes > FLYT_SOFT_SPAN_BYTES)
            return CUDA_ERROR_OUT_OF_MEMORY;
        aligns[section] = align > aligns[section] ? align : aligns[section];
        layout->offsets[i] = align_up(*bytes, align);
        *bytes = layout->offsets[i] + variable->bytes;
        if (*bytes > FLYT_SOFT_SPAN_BYTES)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (unsigned i = 0; i < FLYT_SOFT_SECTIONS; i++) {
        uint64_t align = aligns[i] ? aligns[i] : 1;

        layout->align = align > layout->align ? align : layout->align;
        layout->starts[i] = align_up(layout->total_bytes, align);
        layout->total_bytes = layout->starts[i] + layout->bytes[i];
    }
    return CUDA_SUCCESS;
}

void flyt_soft_layout_fini(struct flyt_soft_layout *layout)
{
    free(layout->offsets);
    layout->offsets = NULL;
}

bool flyt_soft_layout_is_same(const struct flyt_soft_layout *one, const struct flyt_soft_layout *other)
{
    return memcmp(one->bytes, other->bytes, sizeof(one->bytes)) == 0;
}

/* ---- writing ---- */

struct writer {
    Elf64_Shdr sections[ELF_SECTIONS];
    char section_names[256], *names;
    Elf64_Sym *symbols;
    size_t section_names_bytes, names_bytes, symbol_count;
};

static void add_symbol(struct writer *writer, const char *name, enum flyt_soft_section section, uint64_t offset,
                       uint64_t bytes, unsigned type, unsigned bind, unsigned other)
{
    Elf64_Sym *symbol = &writer->symbols[writer->symbol_count++];

    *symbol = (Elf64_Sym){.st_name = (Elf64_Word)writer->names_bytes,
                          .st_info = (unsigned char)ELF64_ST_INFO(bind, type),
                          .st_other = (unsigned char)other,
                          .st_shndx = (Elf64_Half)(ELF_PLACED + section),
                          .st_value = offset,
                          .st_size = bytes};
    strcpy(writer->names + writer->names_bytes, name);
    writer->names_bytes += strlen(name) + 1;
}

/* Room for all symbols and their names, and these: an empty one first, as ELF has it. */
static bool make_symbols(struct writer *writer, const struct flyt_ptx_module *module,
                         const struct flyt_soft_layout *layout)
{
    unsigned variables = flyt_ptx_module_variable_count(module), kernels = flyt_ptx_module_kernel_count(module);
    size_t names_bytes = 1;

    for (unsigned i = 0; i < variables; i++)
        names_bytes += strlen(flyt_ptx_module_variable(module, i)->name) + 1;
    for (unsigned i = 0; i < kernels; i++)
        names_bytes += strlen(flyt_ptx_module_kernel(module, i)->name) + 1;
    writer->names = calloc(1, names_bytes);
    writer->symbols = calloc(1 + variables + kernels, sizeof(*writer->symbols));
    if (!writer->names || !writer->symbols)
        return false;
    writer->names_bytes = writer->symbol_count = 1;
    for (unsigned i = 0; i < variables; i++) {
        const struct flyt_ptx_variable *variable = flyt_ptx_module_variable(module, i);

        add_symbol(writer, variable->name, flyt_soft_section_of(variable), layout->offsets[i], variable->bytes,
                   STT_OBJECT, variable->is_visible ? STB_GLOBAL : STB_LOCAL,
                   variable->is_managed ? FLYT_SOFT_ELF_MANAGED : 0);
    }
    for (unsigned i = 0; i < kernels; i++)
        add_symbol(writer, flyt_ptx_module_kernel(module, i)->name, FLYT_SOFT_SECTION_TEXT, 0, 0, STT_FUNC, STB_GLOBAL,
                   FLYT_SOFT_ELF_ENTRY);
    return true;
}

/* Gives each section that has bytes its place in the file; returns the file's length up to the section headers. */
static uint64_t make_sections(struct writer *writer, const struct flyt_soft_layout *layout, size_t ptx_bytes)
{
    const uint64_t bytes[ELF_SECTIONS] = {[ELF_SECTION_NAMES] = sizeof(writer->section_names),
                                          [ELF_NAMES] = writer->names_bytes,
                                          [ELF_SYMBOLS] = writer->symbol_count * sizeof(Elf64_Sym),
                                          [ELF_PTX] = ptx_bytes + 1};
    uint64_t at = sizeof(Elf64_Ehdr);

    for (unsigned i = 0; i < ELF_SECTIONS; i++) {
        Elf64_Shdr *section = &writer->sections[i];

        *section = (Elf64_Shdr){.sh_name = (Elf64_Word)writer->section_names_bytes,
                                .sh_type = elf_sections[i].type,
                                .sh_flags = elf_sections[i].flags,
                                .sh_offset = i ? at : 0,
                                .sh_size = i < ELF_PLACED ? bytes[i] : layout->bytes[i - ELF_PLACED],
                                .sh_addralign = i ? 8 : 0};
        strcpy(writer->section_names + writer->section_names_bytes, elf_sections[i].name);
        writer->section_names_bytes += strlen(elf_sections[i].name) + 1;
        at = align_up(at + bytes[i], 8);
    }
    writer->sections[ELF_SYMBOLS].sh_link = ELF_NAMES;
    writer->sections[ELF_SYMBOLS].sh_entsize = sizeof(Elf64_Sym);
    writer->sections[ELF_SYMBOLS].sh_info = (Elf64_Word)writer->symbol_count;
    return at;
}

static Elf64_Ehdr header_of(uint64_t headers_at)
{
    return (Elf64_Ehdr){
        .e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT, ELFOSABI_STANDALONE},
        .e_type = ET_EXEC,
        .e_machine = MACHINE_CUDA,
        .e_version = EV_CURRENT,
        .e_shoff = headers_at,
        .e_ehsize = sizeof(Elf64_Ehdr),
        .e_shentsize = sizeof(Elf64_Shdr),
        .e_shnum = ELF_SECTIONS,
        .e_shstrndx = ELF_SECTION_NAMES};
}

static CUresult write_file(const struct writer *writer, uint64_t headers_at, const char *ptx, size_t ptx_bytes,
                           char **ret_image)
{
    const Elf64_Shdr *sections = writer->sections;
    Elf64_Ehdr header = header_of(headers_at);
    char *image = calloc(1, headers_at + sizeof(writer->sections));

    if (!image)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(image, &header, sizeof(header));
    memcpy(image + sections[ELF_SECTION_NAMES].sh_offset, writer->section_names, sizeof(writer->section_names));
    memcpy(image + sections[ELF_NAMES].sh_offset, writer->names, writer->names_bytes);
    memcpy(image + sections[ELF_SYMBOLS].sh_offset, writer->symbols, writer->symbol_count * sizeof(Elf64_Sym));
    memcpy(image + sections[ELF_PTX].sh_offset, ptx, ptx_bytes);
    memcpy(image + headers_at, sections, sizeof(writer->sections));
    *ret_image = image;
    return CUDA_SUCCESS;
}

CUresult flyt_soft_elf_make(const struct flyt_ptx_module *module, const char *ptx, size_t ptx_bytes, char **ret_image,
                            size_t *ret_image_bytes)
{
    struct writer writer = {0};
    struct flyt_soft_layout layout;
    CUresult r = flyt_soft_layout_init(&layout, module, ptx_bytes);

    if (r == CUDA_SUCCESS && !make_symbols(&writer, module, &layout))
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS) {
        uint64_t headers_at = make_sections(&writer, &layout, ptx_bytes);

        r = write_file(&writer, headers_at, ptx, ptx_bytes, ret_image);
        if (r == CUDA_SUCCESS)
            *ret_image_bytes = headers_at + sizeof(writer.sections);
    }
    free(writer.names);
    free(writer.symbols);
    flyt_soft_layout_fini(&layout);
    return r;
}

/* ---- reading ---- */

bool flyt_soft_elf_is(const void *image)
{
    return strncmp(image, ELFMAG, SELFMAG) == 0;
}

CUresult flyt_soft_elf_read(const void *image, char **ret_ptx, size_t *ret_ptx_bytes,
                            struct flyt_soft_layout *ret_layout)
{
    const char *bytes = image;
    Elf64_Ehdr header;
    Elf64_Shdr sections[ELF_SECTIONS];
    const Elf64_Shdr *text = &sections[ELF_PTX];

    memcpy(&header, bytes, sizeof(header));
    if (header.e_ident[EI_CLASS] != ELFCLASS64)
        return CUDA_ERROR_INVALID_IMAGE;
    if (header.e_machine != MACHINE_CUDA || header.e_ident[EI_OSABI] != ELFOSABI_STANDALONE)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    if (header.e_shnum != ELF_SECTIONS || header.e_shentsize != sizeof(sections[0]))
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(sections, bytes + header.e_shoff, sizeof(sections));
    for (unsigned i = 0; i < ELF_SECTIONS; i++)
        if (sections[i].sh_type != elf_sections[i].type || sections[i].sh_flags != elf_sections[i].flags)
            return CUDA_ERROR_INVALID_IMAGE;
    if (text->sh_size < 1 || text->sh_size > FLYT_SOFT_ELF_PTX_BYTES_MAX || bytes[text->sh_offset + text->sh_size - 1])
        return CUDA_ERROR_INVALID_IMAGE;
    *ret_layout = (struct flyt_soft_layout){0};
    for (unsigned i = 0; i < FLYT_SOFT_SECTIONS; i++)
        ret_layout->bytes[i] = sections[ELF_PLACED + i].sh_size;
    *ret_ptx = strdup(bytes + text->sh_offset);
    if (!*ret_ptx)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_ptx_bytes = strlen(*ret_ptx);
    return CUDA_SUCCESS;
}
