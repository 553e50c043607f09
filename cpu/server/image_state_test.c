/* What state modules have, as nvcc makes them, by their PTX, their machine code, or a fat binary of one or both; and
 * images that are none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/fake_sample.h"
#include "cpu/server/image_state.h"

static unsigned of_sample(unsigned part, const char *kind, bool runs_code)
{
    uint64_t bytes;
    char *image = fake_sample_read(SAMPLES, part, kind, &bytes);
    unsigned state = flyt_image_state(image, bytes, 9, 0, runs_code);
    free(image);
    return state;
}

/* In every form, for a GPU that runs machine code and one that does not. */
static void expect(unsigned part, unsigned want, unsigned want_code)
{
    assert_int_equal(of_sample(part, "ptx", true), want);
    assert_int_equal(of_sample(part, "cubin", true), want_code);
    assert_int_equal(of_sample(part, "fatbin", true), want);
    assert_int_equal(of_sample(part, "fatbin", false), want);
}

static void modules_as_the_compiler_makes_them(void **state)
{
    expect(0, 0, FLYT_IMAGE_CONSTANTS); /* machine code alone does not tell whether an address is kept */
    expect(1, FLYT_IMAGE_VARIABLES, FLYT_IMAGE_VARIABLES);
    expect(2, FLYT_IMAGE_VARIABLES, FLYT_IMAGE_VARIABLES);
    expect(3, FLYT_IMAGE_CONSTANTS, FLYT_IMAGE_CONSTANTS);
    expect(4, FLYT_IMAGE_HEAP, FLYT_IMAGE_HEAP);
    expect(5, FLYT_IMAGE_VARIABLES, FLYT_IMAGE_VARIABLES);
}

static unsigned of_text(const char *text)
{
    char whole[1024];
    snprintf(whole, sizeof whole, ".version 9.0\n.target sm_90\n%s", text);
    return flyt_image_state(whole, strlen(whole), 9, 0, true);
}

static void declarations_of_ptx(void **state)
{
    assert_int_equal(of_text(""), 0);
    assert_int_equal(of_text(".global .align 1 .b8 $str[3] = {72, 105};\n"), 0);
    assert_int_equal(of_text(".global .align 1 .b8 $str$12[3] = {72, 105};\n"), 0);
    assert_int_equal(of_text(".global .align 16 .v4 .b8 __cudart_i2opi_f[3] = {72, 105};\n"), 0);
    assert_int_equal(of_text(".const .align 4 .b8 one[16];\n"), 0);
    assert_int_equal(of_text(".entry f(.param .u64 .ptr .global .align 4 p)\n{\nld.global.u32 %r1, [%rd1];\nret;\n}\n"),
                     0);
    assert_int_equal(of_text("// .global .u32 not;\n/* .global .u32 not; ( */\n.file 1 \"a ( .global .u32 b\"\n"), 0);
    /* Not by the compiler's names, without contents, several at once, in parentheses that a comment seems to open. */
    assert_int_equal(of_text(".global .u32 x = 1;\n"), FLYT_IMAGE_VARIABLES);
    assert_int_equal(of_text(".visible .global .align 4 .b8 $string[3] = {1};\n"), FLYT_IMAGE_VARIABLES);
    assert_int_equal(of_text(".global .align 1 .b8 $str[3];\n"), FLYT_IMAGE_VARIABLES);
    assert_int_equal(of_text(".global .u32 $str, x = 1;\n"), FLYT_IMAGE_VARIABLES);
    assert_int_equal(of_text("// (\n.global .u32 x;\n"), FLYT_IMAGE_VARIABLES);
    assert_int_equal(of_text("\".file (\"\n.global .u32 x;\n"), FLYT_IMAGE_VARIABLES);
    assert_int_equal(of_text(".global\t.attribute(.managed)\n.u32 x;\n"), FLYT_IMAGE_VARIABLES);
    assert_int_equal(of_text(".extern .global .u32 x;\n"), FLYT_IMAGE_VARIABLES);
    assert_int_equal(of_text(".global .u64 $str = generic(x);\n"), FLYT_IMAGE_CONSTANTS);
    assert_int_equal(of_text("cvta.const.u64 %rd1, %rd2;\n"), FLYT_IMAGE_CONSTANTS);
    assert_int_equal(of_text(".global .texref t;\n"), FLYT_IMAGE_VARIABLES);
    assert_int_equal(of_text("call (retval0), malloc, (param0);\n"), FLYT_IMAGE_HEAP);
    assert_int_equal(of_text("call (retval0), my_malloc, (param0);\n"), 0);
    assert_int_equal(of_text(".global .u32 x;\ncall malloc;\n"), FLYT_IMAGE_VARIABLES | FLYT_IMAGE_HEAP);
}

/* Cut off anywhere, or with any one byte changed: never read outside, and never said to be without state where it is
 * too short to tell. */
static void damaged_images(void **state)
{
    uint64_t bytes;
    char *image = fake_sample_read(SAMPLES, 2, "cubin", &bytes);
    for (uint64_t cut = 0; cut < bytes; cut++) {
        char *copy = malloc(cut + 1);
        assert_non_null(copy);
        memcpy(copy, image, cut);
        assert_int_not_equal(flyt_image_state(copy, cut, 9, 0, true), 0);
        free(copy);
    }
    char *copy = malloc(bytes);
    assert_non_null(copy);
    for (uint64_t at = 0; at < bytes; at++) {
        memcpy(copy, image, bytes);
        copy[at] = (char)~copy[at];
        flyt_image_state(copy, bytes, 9, 0, true);
    }
    free(copy);
    free(image);
    image = fake_sample_read(SAMPLES, 0, "fatbin", &bytes);
    for (uint64_t cut = 0; cut < bytes; cut += 7) {
        copy = malloc(cut + 1);
        assert_non_null(copy);
        memcpy(copy, image, cut);
        assert_int_not_equal(flyt_image_state(copy, cut, 9, 0, true), 0);
        free(copy);
    }
    free(image);
    assert_int_equal(flyt_image_state("", 0, 9, 0, true), FLYT_IMAGE_UNKNOWN);
    assert_int_equal(flyt_image_state("something else", 14, 9, 0, true), FLYT_IMAGE_UNKNOWN);
    assert_int_equal(flyt_image_state(".version\0.global .u32 x;", 24, 9, 0, true), FLYT_IMAGE_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_as_the_compiler_makes_them),
        cmocka_unit_test(declarations_of_ptx),
        cmocka_unit_test(damaged_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
