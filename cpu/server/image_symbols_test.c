/* The names of modules' variables and constants, as nvcc makes them (the samples of image_state_test.cu) and as PTX may
 * have them; and images that are none. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/fake_sample.h"
#include "cpu/server/image_symbols.h"

/* "name" of a variable, "name:c" of a constant; a space behind each. */
static void describe(const struct flyt_image_symbols *symbols, char *text, size_t room)
{
    *text = 0;
    for (uint32_t i = 0; i < symbols->count; i++) {
        const struct flyt_image_symbol *symbol = &symbols->items[i];
        size_t used = strlen(text);
        snprintf(text + used, room - used, "%s%s ", symbol->name, symbol->is_constant ? ":c" : "");
        assert_int_equal(flyt_image_symbols_find(symbols, symbol->name), i);
    }
}

static void expect_image(const char *image, uint64_t bytes, bool runs_code, int want_status, const char *want)
{
    struct flyt_image_symbols symbols = {0};
    char text[1024];
    assert_int_equal(flyt_image_symbols(image, bytes, 9, 0, runs_code, &symbols), want_status);
    describe(&symbols, text, sizeof text);
    assert_string_equal(text, want);
    assert_int_equal(flyt_image_symbols_find(&symbols, "no such name"), -1);
    flyt_image_symbols_free(&symbols);
}

/* In every form, for a GPU that runs machine code and one that does not. */
static void expect_sample(unsigned part, const char *want)
{
    static const char *const kinds[] = {"ptx", "cubin", "fatbin"};
    for (unsigned i = 0; i < 3; i++) {
        uint64_t bytes;
        char *image = fake_sample_read(SAMPLES, part, kinds[i], &bytes);
        expect_image(image, bytes, true, 0, want);
        if (i != 1)
            expect_image(image, bytes, false, 0, want);
        free(image);
    }
}

static void modules_as_the_compiler_makes_them(void **state)
{
    expect_sample(1, "count ");
    expect_sample(2, "$str state ");
    expect_sample(3, "table:c ");
    expect_sample(4, "");
    expect_sample(5, "_ZTV6square ");
}

static void expect_text(const char *text, int want_status, const char *want)
{
    char whole[1024];
    snprintf(whole, sizeof whole, ".version 9.0\n.target sm_90\n%s", text);
    expect_image(whole, strlen(whole), true, want_status, want);
}

static void declarations_of_ptx(void **state)
{
    expect_text("", 0, "");
    expect_text(".global .u32 x;\n", 0, "x ");
    expect_text(".visible .global .align 16 .v4 .f32 x[4][2] = {1, 2};\n.const .align 4 .b8 y[16];", 0, "x y:c ");
    expect_text(".global .u32 b, a[2] = {1, 2}, c = 3, d;\n", 0, "a b c d ");
    expect_text(".extern .const .b8 e[];\n.weak .global .u64 p = generic(q);\n.global .u64 q[2] = {0, 0xabc};", 0,
                "e:c p q ");
    expect_text(".global .u64 table[2] = {f, g};\n.global .f32 h = 0f3F800000;\n", 0, "h table ");
    expect_text(".global .attribute(.managed) .u32 x;\n", 0, "x ");
    expect_text("// .global .u32 not;\n/* .global .u32 not; ( */\n.file 1 \"a ( .global .u32 b\"\n", 0, "");
    expect_text(".entry f(.param .u64 .ptr .global .align 4 p)\n{\nld.global.u32 %r1, [%rd1];\nret;\n}\n", 0, "");
    expect_text(".global /* a */ .u32 // b\n x /* , y */ ;\n", 0, "x ");
    /* Declared, then defined: one variable. */
    expect_text(".extern .global .u32 x;\n.visible .global .u32 x;\n", 0, "x ");
    expect_text(".global .u32 x;\n.const .u32 x;\n", -ENOTSUP, "");
    expect_text(".global .u32 x<10>;\n", -ENOTSUP, "");
    expect_text(".global .u32 x", -EBADMSG, "");
    expect_text(".global", -ENOTSUP, "");
}

static void names_of_any_length(void **state)
{
    enum { LONGEST = 65536 };
    char *text = malloc(LONGEST + 100);
    assert_non_null(text);
    for (unsigned more = 0; more < 2; more++) {
        struct flyt_image_symbols symbols = {0};
        int head = sprintf(text, ".version 9.0\n.global .u32 ");
        memset(text + head, 'x', LONGEST + more);
        strcpy(text + head + LONGEST + more, ";");
        assert_int_equal(flyt_image_symbols(text, strlen(text), 9, 0, true, &symbols), more ? -ENOTSUP : 0);
        assert_int_equal(symbols.count, more ? 0 : 1);
        flyt_image_symbols_free(&symbols);
    }
    free(text);
}

/* Cut off anywhere, or with any one byte changed: never read outside, and never a part taken for the whole. */
static void damaged_images(void **state)
{
    uint64_t bytes;
    char *image = fake_sample_read(SAMPLES, 2, "cubin", &bytes);
    unsigned whole_count = 0;
    for (uint64_t cut = 0; cut < bytes; cut++) {
        struct flyt_image_symbols symbols = {0};
        char *copy = malloc(cut + 1);
        assert_non_null(copy);
        memcpy(copy, image, cut);
        if (flyt_image_symbols(copy, cut, 9, 0, true, &symbols) == 0) {
            char text[64];
            describe(&symbols, text, sizeof text);
            assert_string_equal(text, "$str state "); /* what was cut off has no names */
            whole_count++;
        }
        flyt_image_symbols_free(&symbols);
        free(copy);
    }
    assert_true(whole_count < 512);
    char *copy = malloc(bytes);
    assert_non_null(copy);
    for (uint64_t at = 0; at < bytes; at++) {
        struct flyt_image_symbols symbols = {0};
        memcpy(copy, image, bytes);
        copy[at] = (char)~copy[at];
        if (flyt_image_symbols(copy, bytes, 9, 0, true, &symbols) == 0)
            flyt_image_symbols_free(&symbols);
    }
    free(copy);
    free(image);
    expect_image("", 0, true, -EBADMSG, "");
    expect_image("something else", 14, true, -EBADMSG, "");
    expect_image(".version\0.global .u32 x;", 24, true, -EBADMSG, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_as_the_compiler_makes_them),
        cmocka_unit_test(declarations_of_ptx),
        cmocka_unit_test(names_of_any_length),
        cmocka_unit_test(damaged_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
