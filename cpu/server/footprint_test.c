/* What a module takes, by its PTX, its machine code, or a fat binary of both; and images that are none. */
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/server/footprint.h"

static uint64_t of_text(const char *text)
{
    return flyt_footprint(text, strlen(text), 9, 0, true) - strlen(text);
}

static void variables_of_ptx(void **state)
{
    assert_int_equal(of_text(".version 9.0\n.target sm_90\n.visible .entry f()\n{\nret;\n}\n"), 0);
    assert_int_equal(of_text(".global .align 4 .b8 table[64];\n"), 64);
    assert_int_equal(of_text(".visible .global .align 16 .f64 big[1024][8];\n"), 8 * 8192);
    assert_int_equal(of_text("\n.const .align 4 .u32 one = 7;\n.global .s16 a, b[3];\n"), 4 + 2 + 6);
    assert_int_equal(of_text(".global .align 16 .v4 .f32 v[10] = {1, 2};\n"), 160);
    assert_int_equal(of_text(".global .attribute(.managed) .align 8 .u64 m[2];\n"), 16);
    /* Neither are instructions, parameters' spaces and other spaces. */
    assert_int_equal(of_text(".entry f(.param .u64 .ptr .global .align 4 p, .param .u32 n)\n{\n"
                             "ld.global.u32 %r1, [%rd1];\nst.global.f64 [%rd2], %f1;\n.shared .b8 s[9999];\n}\n"),
                     0);
    assert_int_equal(of_text(".global .b8 huge[0x4000000000];\n"), 0x4000000000);
    assert_true(of_text(".global .b64 more[0xffffffffffffffff];\n") > 1ull << 60);
}

static void truncated_ptx_is_read_to_its_end(void **state)
{
    static const char text[] = ".visible .global .attribute(.managed) .align 16 .v4 .f32 name[64][3] = {1, 2};\n";
    for (size_t bytes = 0; bytes < sizeof text; bytes++) {
        char *copy = malloc(bytes + 1);
        assert_non_null(copy);
        memcpy(copy, text, bytes);
        copy[bytes] = 0;
        assert_true(flyt_footprint(copy, bytes, 9, 0, true) >= bytes);
        free(copy);
    }
}

struct code {
    Elf64_Ehdr header;
    Elf64_Shdr sections[6];
    char names[64];
};

static struct code make_code(void)
{
    struct code code = {.header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
                                   .e_shoff = offsetof(struct code, sections),
                                   .e_shentsize = sizeof(Elf64_Shdr),
                                   .e_shnum = 6,
                                   .e_shstrndx = 1}};
    memcpy(code.names, "\0.text.f\0.nv.global\0.nv.shared.f\0.nv.info\0", 43);
    code.sections[1] =
        (Elf64_Shdr){.sh_type = SHT_STRTAB, .sh_offset = offsetof(struct code, names), .sh_size = sizeof code.names};
    code.sections[2] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC, .sh_size = 4096};
    code.sections[3] = (Elf64_Shdr){.sh_name = 9, .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC, .sh_size = 1 << 28};
    code.sections[4] = (Elf64_Shdr){.sh_name = 20, .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC, .sh_size = 49152};
    code.sections[5] = (Elf64_Shdr){.sh_name = 33, .sh_type = SHT_PROGBITS, .sh_size = 777};
    return code;
}

static void sections_of_machine_code(void **state)
{
    struct code code = make_code();
    assert_int_equal(flyt_footprint((char *)&code, sizeof code, 9, 0, true), 4096 + (1 << 28));
    /* Names that are not there: shared memory cannot be told from the rest, and counts. */
    code.sections[1].sh_offset = UINT64_MAX - 8;
    assert_int_equal(flyt_footprint((char *)&code, sizeof code, 9, 0, true), 4096 + (1 << 28) + 49152);
    code.sections[2].sh_size = UINT64_MAX - 1;
    assert_int_equal(flyt_footprint((char *)&code, sizeof code, 9, 0, true), UINT64_MAX);
    /* What cannot be understood counts as what it is long. */
    code.header.e_shoff = sizeof code;
    assert_int_equal(flyt_footprint((char *)&code, sizeof code, 9, 0, true), sizeof code);
    assert_int_equal(flyt_footprint((char *)&code, 20, 9, 0, true), 20);
    assert_int_equal(flyt_footprint("", 0, 9, 0, true), 0);
}

static char *read_sample(const char *name, uint64_t *ret_bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", SAMPLES, name);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    char *data = calloc(1, 1 << 20);
    assert_non_null(data);
    *ret_bytes = fread(data, 1, (1 << 20) - 1, file);
    fclose(file);
    return data;
}

/* The same source as text, alone and in containers, compressed and not. */
static void containers_are_opened(void **state)
{
    uint64_t text_bytes, bytes, first = 0;
    char *text = read_sample("text.ptx", &text_bytes);
    uint64_t expected = flyt_footprint(text, text_bytes, 7, 5, false);
    static const char *const names[] = {"none.fatbin", "size.fatbin", "speed.fatbin"};
    assert_true(expected >= text_bytes);
    for (unsigned i = 0; i < 3; i++) {
        char *container = read_sample(names[i], &bytes);
        uint64_t got = flyt_footprint(container, bytes, 7, 5, false);
        assert_in_range(got, expected - 1024, expected + 64); /* comments are left out there */
        assert_true(i == 0 || got == first);
        first = got;
        /* Where its machine code can be run, that counts. */
        uint64_t code = flyt_footprint(container, bytes, 7, 5, true);
        assert_true(code > 0 && code != got);
        free(container);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_of_ptx),
        cmocka_unit_test(truncated_ptx_is_read_to_its_end),
        cmocka_unit_test(sections_of_machine_code),
        cmocka_unit_test(containers_are_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
