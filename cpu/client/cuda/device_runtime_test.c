/* The device runtime among the units of relocatable device code: recognised by what it defines, never read past its
 * end, needed where another image names a function of it. */
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/client/cuda/device_runtime.h"

static const char strings[] = "\0cudaLaunchDeviceV2\0cudaMalloc\0cudaGetParameterBufferV2\0hidden\0taken";

struct code {
    Elf64_Ehdr head;
    Elf64_Sym symbols[6];
    char strings[sizeof strings];
    Elf64_Shdr sections[3];
};

struct container {
    unsigned char head[16], entry[64];
    struct code code;
};

static uint32_t name_at(const char *name)
{
    for (uint32_t i = 1; i < sizeof strings; i += (uint32_t)strlen(strings + i) + 1)
        if (!strcmp(strings + i, name))
            return i;
    fail();
    return 0;
}

static Elf64_Sym symbol(const char *name, unsigned char binding, uint16_t section)
{
    return (Elf64_Sym){
        .st_name = name_at(name), .st_info = (unsigned char)ELF64_ST_INFO(binding, STT_FUNC), .st_shndx = section};
}

static void put(unsigned char *at, uint64_t value, unsigned bytes)
{
    memcpy(at, &value, bytes);
}

static void fill(struct container *container)
{
    struct code *code = &container->code;
    *container = (struct container){0};
    put(container->head, 0xba55ed50, 4);
    put(container->head + 4, 1, 2);
    put(container->head + 6, sizeof container->head, 2);
    put(container->head + 8, sizeof *container - sizeof container->head, 8);
    put(container->entry, FLYT_FATBIN_CUBIN, 2);
    put(container->entry + 2, 0x0101, 2);
    put(container->entry + 4, sizeof container->entry, 4);
    put(container->entry + 8, sizeof *code, 8);
    put(container->entry + 28, 90, 4);
    memcpy(code->head.e_ident, ELFMAG, SELFMAG);
    code->head.e_ident[EI_CLASS] = ELFCLASS64;
    code->head.e_shentsize = sizeof *code->sections;
    code->head.e_shoff = offsetof(struct code, sections);
    code->head.e_shnum = 3;
    code->symbols[1] = symbol("cudaLaunchDeviceV2", STB_GLOBAL, 7);
    code->symbols[2] = symbol("cudaMalloc", STB_GLOBAL, 8);
    code->symbols[3] = symbol("cudaGetParameterBufferV2", STB_GLOBAL, 9);
    code->symbols[4] = symbol("hidden", STB_LOCAL, 9);
    code->symbols[5] = symbol("taken", STB_GLOBAL, SHN_UNDEF);
    memcpy(code->strings, strings, sizeof strings);
    code->sections[1] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
                                     .sh_offset = offsetof(struct code, symbols),
                                     .sh_size = sizeof code->symbols,
                                     .sh_link = 2};
    code->sections[2] = (Elf64_Shdr){
        .sh_type = SHT_STRTAB, .sh_offset = offsetof(struct code, strings), .sh_size = sizeof code->strings};
}

static const char *named_in(const struct flyt_device_runtime *runtime, const char *text)
{
    return flyt_device_runtime_named_in(runtime, &(struct flyt_image){.data = text, .bytes = strlen(text)});
}

static void test_names(void **state)
{
    struct container container;
    struct flyt_device_runtime runtime;
    fill(&container);
    assert_int_equal(flyt_device_runtime_open(&container, &runtime), 1);
    assert_int_equal(runtime.count, 3);
    assert_null(named_in(&runtime, ".entry k() { call hidden; call taken; }"));
    assert_null(named_in(&runtime, "cudaMallocs xcudaMalloc cudaMalloc_"));
    assert_string_equal(named_in(&runtime, "call.uni (r), cudaMalloc"), "cudaMalloc");
    assert_string_equal(named_in(&runtime, "cudaMalloc, (a); cudaGetParameterBufferV2"), "cudaGetParameterBufferV2");
    assert_true(flyt_device_runtime_launches("cudaGetParameterBufferV2"));
    assert_false(flyt_device_runtime_launches("cudaMalloc"));
    flyt_device_runtime_close(&runtime);
}

static void test_another_unit(void **state)
{
    struct container container;
    struct flyt_device_runtime runtime;
    fill(&container);
    container.code.symbols[1].st_shndx = SHN_UNDEF;
    assert_int_equal(flyt_device_runtime_open(&container, &runtime), 0);
    fill(&container);
    put(container.entry, FLYT_FATBIN_PTX, 2);
    assert_int_equal(flyt_device_runtime_open(&container, &runtime), 0);
}

/* Every byte of the file takes values that contradict the rest; the sanitizer looks on. */
static void test_damaged(void **state)
{
    static const unsigned char values[] = {0, 1, 0x7f, 0xff};
    for (size_t at = 0; at < sizeof(struct code); at++)
        for (size_t i = 0; i < sizeof values; i++) {
            struct container *container = malloc(sizeof *container);
            struct flyt_device_runtime runtime;
            fill(container);
            ((unsigned char *)&container->code)[at] = values[i];
            int status = flyt_device_runtime_open(container, &runtime);
            assert_true(status >= 0);
            if (status)
                flyt_device_runtime_close(&runtime);
            free(container);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_another_unit),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
