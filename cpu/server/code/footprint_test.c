/* What a module takes, by its machine code, or at most, by its PTX; and images that are none. */
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/server/code/footprint.h"

static uint64_t of_text(const char *text)
{
    uint64_t code_bytes = 16 * strlen(text), bytes = flyt_footprint_at_most(text);
    assert_true(bytes >= code_bytes);
    return bytes - code_bytes;
}

static void variables_of_ptx(void **state)
{
    assert_int_equal(of_text(".version 9.0\n.target sm_90\n.visible .entry f()\n{\nret;\n}\n"), 0);
    assert_int_equal(of_text(".global .align 4 .b8 table[64];\n"), 64 + 4);
    assert_int_equal(of_text(".visible .global .align 16 .f64 big[1024][8];\n"), 8 * 8192 + 16);
    assert_int_equal(of_text("\n.const .align 4 .u32 one = 7;\n.global .s16 a, b[3];\n"), 4 + 4 + 2 + 6);
    assert_int_equal(of_text(".global .align 16 .v4 .f32 v[10] = {1, 2};\n"), 160 + 16);
    assert_int_equal(of_text(".global .attribute(.managed) .align 8 .u64 m[2];\n"), 16 + 8);
    /* Neither are instructions, parameters' spaces and other spaces. */
    assert_int_equal(of_text(".entry f(.param .u64 .ptr .global .align 4 p, .param .u32 n)\n{\n"
                             "ld.global.u32 %r1, [%rd1];\nst.global.f64 [%rd2], %f1;\n.shared .b8 s[9999];\n"
                             "cvta.to.global.u64 %rd3, %rd4;\natom.global.add.u32 %r2, [%rd1], 1;\n"
                             "ret;}{cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [a], [b], c, [d];"
                             "cp.async.bulk.global.shared::cta.bulk_group [a], [b], c;}{isspacep.global p,a;"
                             "L:@p ld.acquire.gpu.global.u32 r,[a];M:red.relaxed.gpu.global.add.u32[a],r;}\n"),
                     0);
    assert_int_equal(of_text("call (r), vprintf, (a, b);\ncall __assertfail;\n"), 92 << 20);
    assert_int_equal(of_text(".global .b8 huge[0x4000000000];\n"), 0x4000000000);
    assert_true(of_text(".global .b64 more[0xffffffffffffffff];\n") > 1ull << 60);
    /* Of code, what the greediest instruction becomes. */
    assert_true(flyt_footprint_at_most("rem.s32 a,a,b;") >= 160);
}

/* What the compiler takes for a declaration counts as one, however it is written; at least what it takes. */
static void spellings_of_ptx(void **state)
{
    static const char *const texts[] = {
        ".visible .global/**/.align 8 .b8 x[1000000];\n",
        ".visible .global// a comment\n.b8 x /* [1] */ [ /* 2 */ 1000000 ] ;",
        ".visible.global.align 8.b8 x[1000000];",
        ".extern .global .b8 x[01750000][4];",
        ".weak .global .b8 x[1000][1000];",
        ".common .global .b8 x<1000>[1000];",
        ".const .b8 y, x[1000000], z;",
        ".global .b8 x[1000000] = {1, 2, {3}};",
        ".target sm_80.global .b8 x[1000000];",
        ".global .texref t[100000];",
        ".entry f()\n{\n.global .b8 x[1000000];\nret;\n}",
        "ld /**/ .global .b8 x[1000000];",
        /* Glued behind an instruction, a label, a guard, a directive. */
        "{st.global.u32[here],r;ret;}.global .align 8 .b8 x[1000000];",
        "{st.global.u32[here],r;.global .b8 x[1000000];ret;}",
        "{st.global.u32[here],r;{.global .b8 x[1000000];}ret;}",
        "{@p st.global.u32[here],r;ret;}.global .b8 x[1000000];",
        "{@%p1 ld.global.u32 r,[here];.global .b8 x[1000000];ret;}",
        "{\nld:.global .b8 x[1000000];\nret;\n}",
        "{\nld::.global .b8 x[1000000];\nret;\n}",
        "{\nL: ld: T: .branchtargets ld;.global .b8 x[1000000];ret;}",
        ".visible .entry ld\n{ret;}.global .b8 x[1000000];",
        ".extern .func ld.noreturn;.global .b8 x[1000000];",
        ".visible .entry k() .pragma \"ld\";{ret;}.global .b8 x[1000000];",
        ".section .debug_str {ld:\n.b8 1,2}.global .b8 x[1000000];",
        ".file 1 \"ld\"\n{\n.loc 1 1 1\n.global .b8 x[1000000];}",
        "{ld.volatile.global.u32 r,[x];}.weak .global .b8 x[1000000];",
        "{st.global.u32[here],r;}.const .b8 x[1000000];",
        "{ld.shared::cta.u32 r,[x];}.global .b8 x[1000000];",
        "{st.global.u32[x],r/**/;/**/ret;}.common .global .b8 x[1000000];",
        ":.global .b8 x[1000000];",
        "::ld.global .b8 x[1000000];.global .b8 y[1000000];",
        ".const[2] .b8 x[1000000];",
        ".global .b8 a[4], b[1000000];",
        ".global .b8 a = 1, b[2] = {1, 2}, x[1000000] = {0};",
        ".global .b8 x[][500000]={{},{}};",
        /* One declaration does not hide another. */
        ".entry f(.param .u64 .ptr .align 8 .global p)\n{\nret;\n}\n.global .b8 x[1000000];",
        ".section .const { .b8 1,2\n}\n.global .b8 x[1000000];",
        /* What cannot be understood is too much for everybody. */
        ".global .b8 x[1000*1000];",
        ".global .b8 x[N];",
        "#define global const\n",
        ".global .b8 x[1000000U",
        ".global .align .b8 x[1];",
    };
    for (unsigned i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_true(of_text(texts[i]) >= 1000000);
}

static void truncated_ptx_is_read_to_its_end(void **state)
{
    static const char text[] = ".visible .global .attribute(.managed) .align 16 .v4 .f32 name[64][3] = {1, \"2\"};\n";
    for (size_t bytes = 0; bytes < sizeof text; bytes++) {
        char *copy = malloc(bytes + 1);
        assert_non_null(copy);
        memcpy(copy, text, bytes);
        copy[bytes] = 0;
        assert_true(flyt_footprint_at_most(copy) >= bytes);
        free(copy);
    }
}

enum { SECTIONS = 8, SYMBOLS = 3 };

struct code {
    Elf64_Ehdr header;
    Elf64_Shdr sections[SECTIONS];
    Elf64_Sym symbols[SYMBOLS];
    char names[128];
};

static struct code make_code(void)
{
    struct code code = {.header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
                                   .e_shoff = offsetof(struct code, sections),
                                   .e_shentsize = sizeof(Elf64_Shdr),
                                   .e_shnum = SECTIONS,
                                   .e_shstrndx = 1}};
    static const char names[] = "\0.text.f\0.nv.global\0.nv.shared.f\0.nv.info\0.nv.constant3\0.symtab\0.other";
    memcpy(code.names, names, sizeof names);
    code.sections[1] =
        (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = offsetof(struct code, names), .sh_size = sizeof code.names};
    code.sections[2] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC, .sh_size = 4096};
    code.sections[3] = (Elf64_Shdr){.sh_name = 9, .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC, .sh_size = 1 << 28};
    code.sections[4] = (Elf64_Shdr){.sh_name = 20, .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC, .sh_size = 49152};
    code.sections[5] = (Elf64_Shdr){.sh_name = 33, .sh_type = SHT_NOBITS, .sh_size = 777};
    code.sections[6] = (Elf64_Shdr){.sh_name = 42, .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC, .sh_size = 100};
    code.sections[7] = (Elf64_Shdr){.sh_name = 56,
                                    .sh_type = SHT_SYMTAB,
                                    .sh_offset = offsetof(struct code, symbols),
                                    .sh_size = sizeof code.symbols,
                                    .sh_entsize = sizeof(Elf64_Sym)};
    code.symbols[1] = (Elf64_Sym){.st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT), .st_shndx = 3, .st_size = 1 << 27};
    code.symbols[2] = code.symbols[1];
    return code;
}

static uint64_t of_code(const struct code *code)
{
    uint64_t bytes = 0;
    assert_true(flyt_footprint_of_code((const char *)code, sizeof *code, &bytes));
    return bytes;
}

static void sections_of_machine_code(void **state)
{
    const uint64_t all = 4096 + (1 << 28) + 512, granule = 2 << 20;
    struct code code = make_code();
    assert_int_equal(of_code(&code), all);
    /* What does not fit into a granule has granules of its own. */
    code.sections[3].sh_size += 1;
    assert_int_equal(of_code(&code), all + granule);
    /* Each variable does so. */
    code.sections[3].sh_size -= 1;
    code.symbols[1].st_size += 3;
    assert_int_equal(of_code(&code), all + granule);
    code = make_code();
    /* The driver goes by the symbols, and by the names: neither smaller sections nor flags say anything. */
    code.sections[3].sh_size = 16;
    code.sections[3].sh_flags = code.sections[6].sh_flags = code.sections[2].sh_flags = 0;
    assert_int_equal(of_code(&code), all);
    code.symbols[2].st_size = 1ull << 40;
    assert_int_equal(of_code(&code), all - (1 << 27) + (1ull << 40));
    /* Of two thirds of a granule, none shares one with another; of half of one, two do. */
    code.symbols[2].st_size = code.symbols[1].st_size = granule / 3 * 2;
    assert_int_equal(of_code(&code), 4096 + 512 + 2 * granule);
    code.symbols[2].st_size = code.symbols[1].st_size = granule / 2;
    assert_int_equal(of_code(&code), 4096 + 512 + granule);
    code.symbols[2].st_size = UINT64_MAX - 5;
    assert_int_equal(of_code(&code), UINT64_MAX);
    code = make_code();
    code.sections[2].sh_size = UINT64_MAX - 1;
    assert_int_equal(of_code(&code), UINT64_MAX);
}

static void variables_without_a_section(void **state)
{
    const uint64_t all = 4096 + (1 << 28) + 512;
    struct code code = make_code();
    code.symbols[2].st_shndx = SHN_COMMON;
    code.symbols[2].st_size = 1 << 30;
    assert_int_equal(of_code(&code), all + (1 << 30));
    code.symbols[2].st_size = 100;
    assert_int_equal(of_code(&code), all + 512);
    code.symbols[2].st_size = UINT64_MAX;
    assert_int_equal(of_code(&code), UINT64_MAX);
}

static void segments_of_machine_code(void **state)
{
    struct {
        struct code code;
        Elf64_Phdr segments[2];
    } image = {.code = make_code()};
    const uint64_t all = 4096 + (1 << 28) + 512;
    uint64_t bytes = 0;
    image.code.header.e_phoff = offsetof(__typeof__(image), segments);
    image.code.header.e_phentsize = sizeof image.segments[0];
    image.code.header.e_phnum = 2;
    image.segments[0] = (Elf64_Phdr){.p_type = PT_LOAD, .p_memsz = 1 << 20};
    image.segments[1] = (Elf64_Phdr){.p_type = PT_PHDR, .p_memsz = 1ull << 40};
#define IS_READ flyt_footprint_of_code((const char *)&image, sizeof image, &bytes)
    assert_true(IS_READ);
    assert_int_equal(bytes, all);
    image.segments[1] = (Elf64_Phdr){.p_type = PT_LOAD, .p_memsz = 1 << 30};
    assert_true(IS_READ);
    assert_int_equal(bytes, (1 << 30) + (1 << 20));
    image.segments[1].p_memsz = UINT64_MAX - 3;
    assert_true(IS_READ);
    assert_int_equal(bytes, UINT64_MAX);
    /* A table that does not lie inside. */
    image.code.header.e_phnum = 3;
    assert_false(IS_READ);
    image.code.header.e_phnum = 2;
    image.code.header.e_phentsize = 8;
    assert_false(IS_READ);
    image.code.header.e_phentsize = sizeof image.segments[0];
    image.code.header.e_phoff = UINT64_MAX - 7;
    assert_false(IS_READ);
}

/* What the driver has of its own for kernels that print, assert and allocate. */
static void functions_of_the_driver(void **state)
{
    struct code code = make_code();
    static const char names[] = "\0vprintf\0malloc\0my_vprintf";
    assert_int_equal(flyt_footprint_of_functions((char *)&code, sizeof code), 0);
    code.sections[5] = (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = sizeof code - 40, .sh_size = 40};
    code.sections[7].sh_link = 5;
    memcpy((char *)&code + sizeof code - 40, names, sizeof names);
    code.symbols[1] = (Elf64_Sym){.st_name = 16};
    assert_int_equal(flyt_footprint_of_functions((char *)&code, sizeof code), 0);
    code.symbols[1].st_name = 1;
    assert_int_equal(flyt_footprint_of_functions((char *)&code, sizeof code), 64 << 20);
    code.symbols[2] = (Elf64_Sym){.st_name = 9};
    assert_int_equal(flyt_footprint_of_functions((char *)&code, sizeof code), 148 << 20);
    code.symbols[2].st_shndx = 2; /* its own */
    assert_int_equal(flyt_footprint_of_functions((char *)&code, sizeof code), 64 << 20);
    assert_int_equal(flyt_footprint_of_functions((char *)&code, 100), 0);
}

static bool is_read(const struct code *code, size_t bytes)
{
    uint64_t unused;
    return flyt_footprint_of_code((const char *)code, bytes, &unused);
}

/* It is not loaded. */
static void what_cannot_be_read_is_said(void **state)
{
    struct code code = make_code();
    assert_false(is_read(&code, sizeof code - sizeof code.names));
    assert_false(is_read(&code, 20));
    assert_false(is_read(&code, 0));
    code.sections[1].sh_offset = UINT64_MAX - 8;
    assert_false(is_read(&code, sizeof code));
    code = make_code();
    code.header.e_shoff = sizeof code;
    assert_false(is_read(&code, sizeof code));
    code = make_code();
    code.sections[3].sh_name = sizeof code.names;
    assert_false(is_read(&code, sizeof code));
    code = make_code();
    code.sections[7].sh_entsize = 7;
    assert_false(is_read(&code, sizeof code));
    code = make_code();
    code.sections[3].sh_type = SHT_NULL; /* in which variables are said to lie */
    assert_false(is_read(&code, sizeof code));
    code = make_code();
    code.symbols[2].st_shndx = SECTIONS;
    assert_false(is_read(&code, sizeof code));
    code.symbols[2].st_shndx = SHN_ABS;
    assert_true(is_read(&code, sizeof code));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_of_ptx),
        cmocka_unit_test(truncated_ptx_is_read_to_its_end),
        cmocka_unit_test(spellings_of_ptx),
        cmocka_unit_test(sections_of_machine_code),
        cmocka_unit_test(variables_without_a_section),
        cmocka_unit_test(segments_of_machine_code),
        cmocka_unit_test(functions_of_the_driver),
        cmocka_unit_test(what_cannot_be_read_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
