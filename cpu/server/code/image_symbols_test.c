/* The names of modules' variables and constants, as nvcc makes them (the samples of image_state_test.cu); and images
 * that are none. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/test/fake_sample.h"
#include "cpu/server/code/image_symbols.h"

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

static void expect_image(const char *image, uint64_t bytes, int want_status, const char *want)
{
    struct flyt_image_symbols symbols = {0};
    char text[1024];
    assert_int_equal(flyt_image_symbols(image, bytes, &symbols), want_status);
    describe(&symbols, text, sizeof text);
    assert_string_equal(text, want);
    assert_int_equal(flyt_image_symbols_find(&symbols, "no such name"), -1);
    flyt_image_symbols_free(&symbols);
}

static void expect_sample(unsigned part, const char *want)
{
    uint64_t bytes;
    char *image = fake_sample_read(SAMPLES, part, "cubin", &bytes);
    expect_image(image, bytes, 0, want);
    free(image);
}

static void modules_as_the_compiler_makes_them(void **state)
{
    expect_sample(1, "count ");
    expect_sample(2, "$str state ");
    expect_sample(3, "table:c ");
    expect_sample(4, "");
    expect_sample(5, "_ZTV6square ");
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
        if (flyt_image_symbols(copy, cut, &symbols) == 0) {
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
        if (flyt_image_symbols(copy, bytes, &symbols) == 0)
            flyt_image_symbols_free(&symbols);
    }
    free(copy);
    free(image);
    expect_image("", 0, -EBADMSG, "");
    expect_image("something else", 14, -EBADMSG, "");
    expect_image(".version 9.0\n.global .u32 x;", 27, -EBADMSG, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_as_the_compiler_makes_them),
        cmocka_unit_test(damaged_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
