/* What state modules have, as nvcc makes them, by their machine code alone and with their PTX; and images that are
 * none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/test/fake_sample.h"
#include "cpu/server/code/image_state.h"

/* Machine code with the PTX of the same module, or without it. */
static unsigned of_sample(unsigned part, bool has_ptx)
{
    uint64_t bytes, ptx_bytes;
    char *code = fake_sample_read(SAMPLES, part, "cubin", &bytes);
    char *ptx = fake_sample_read(SAMPLES, part, "ptx", &ptx_bytes);
    unsigned state = flyt_image_state(code, bytes, has_ptx ? ptx : NULL);
    free(code);
    free(ptx);
    return state;
}

static void expect(unsigned part, unsigned want, unsigned want_code)
{
    assert_int_equal(of_sample(part, true), want);
    assert_int_equal(of_sample(part, false), want_code);
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

/* With the machine code of a module that has a constant and literals. */
static unsigned of_text(const char *text)
{
    uint64_t bytes;
    char whole[1024], *code = fake_sample_read(SAMPLES, 0, "cubin", &bytes);
    snprintf(whole, sizeof whole, ".version 9.0\n.target sm_90\n%s", text);
    unsigned state = flyt_image_state(code, bytes, whole);
    free(code);
    return state;
}

static void words_of_ptx(void **state)
{
    assert_int_equal(of_text(""), 0);
    assert_int_equal(of_text(".const .align 4 .b8 one[16];\n"), 0);
    assert_int_equal(of_text("ld.const.u32 %r1, [%rd1];\ncvta.to.global.u64 %rd1, %rd2;\n"), 0);
    assert_int_equal(of_text("// cvta.const;\n/* malloc ( */\n.file 1 \"a malloc b\"\n"), 0);
    assert_int_equal(of_text("cvta.const.u64 %rd1, %rd2;\n"), FLYT_IMAGE_CONSTANTS);
    assert_int_equal(of_text("cvta/**/ .const.u64 %rd1, %rd2;\n"), FLYT_IMAGE_CONSTANTS);
    assert_int_equal(of_text(".global .u64 $str = generic(x);\n"), FLYT_IMAGE_CONSTANTS);
    assert_int_equal(of_text(".global .texref t;\n"), FLYT_IMAGE_VARIABLES);
    assert_int_equal(of_text("call (retval0), malloc, (param0);\n"), FLYT_IMAGE_HEAP);
    assert_int_equal(of_text("call (retval0), my_malloc, (param0);\n"), 0);
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
        assert_int_not_equal(flyt_image_state(copy, cut, NULL), 0);
        free(copy);
    }
    char *copy = malloc(bytes);
    assert_non_null(copy);
    for (uint64_t at = 0; at < bytes; at++) {
        memcpy(copy, image, bytes);
        copy[at] = (char)~copy[at];
        flyt_image_state(copy, bytes, NULL);
    }
    free(copy);
    free(image);
    assert_int_equal(flyt_image_state("", 0, NULL), FLYT_IMAGE_UNKNOWN);
    assert_int_equal(flyt_image_state("something else", 14, ""), FLYT_IMAGE_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_as_the_compiler_makes_them),
        cmocka_unit_test(words_of_ptx),
        cmocka_unit_test(damaged_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
