/* What modules are refused for, and that their sections can be read, as nvcc makes them (the samples of
 * image_state_test.cu) and as PTX may have them. */
#include <stdlib.h>
#include <string.h>

#include "cpu/server/test/fake_sample.h"
#include "cpu/server/code/footprint.h"
#include "cpu/server/code/image_refusal.h"

enum { PART_LAUNCH = 7, PARTS = 8 };

static void modules_as_the_compiler_makes_them(void **state)
{
    static const char *const kinds[] = {"cubin", "linked", "ptx"};
    for (unsigned part = 0; part < PARTS; part++)
        for (unsigned i = 0; i < 3; i++) {
            char why[512] = "";
            uint64_t bytes;
            if (i == 1 && part != PART_LAUNCH)
                continue;
            char *image = fake_sample_read(SAMPLES, part, kinds[i], &bytes);
            bool is_refused = i == 2 ? flyt_image_refusal_of_ptx(image, why, sizeof why)
                                     : flyt_image_refusal_of_code(image, bytes, why, sizeof why);
            uint64_t taken_bytes = 0;
            assert_true(i == 2 || flyt_footprint_of_code(image, bytes, &taken_bytes));
            assert_true(i == 2 || (taken_bytes > 0 && taken_bytes < 1 << 20));
            assert_int_equal(is_refused, part == PART_LAUNCH);
            if (part == PART_LAUNCH)
                assert_ptr_equal(strstr(why, "device-side launch is not supported"), why);
            free(image);
        }
}

static bool is_refused(const char *text)
{
    char why[32]; /* is cut */
    return flyt_image_refusal_of_ptx(text, why, sizeof why);
}

static void spellings_of_ptx(void **state)
{
    assert_true(is_refused("call (r), cudaLaunchDeviceV2, (a, b);"));
    assert_true(is_refused(".extern .func (.param .b64 r) __cudaCDP2GetParameterBufferV2"));
    assert_true(is_refused(".extern .func (.param .b32 r) cudaLaunchDevice (.param .b64 f)"));
    assert_true(is_refused("call cnpLaunchDeviceV2;"));
    assert_false(is_refused("// cudaLaunchDevice\n/* cnpLaunchDevice */ .file 1 \"cudaLaunchDevice\";"));
    assert_false(is_refused(".global .attribute(.managed) .u32 x;"));
    assert_false(is_refused("call cudaGetLastError; .visible .entry my_LaunchDevice() {ret;}"));
    assert_false(is_refused(""));
}

/* Cut off anywhere, or with any one byte changed: never read outside. */
static void damaged_images(void **state)
{
    uint64_t bytes;
    char why[512], *image = fake_sample_read(SAMPLES, PART_LAUNCH, "cubin", &bytes);
    for (uint64_t at = 0; at < bytes; at++) {
        char *copy = malloc(at + 1);
        assert_non_null(copy);
        memcpy(copy, image, at);
        flyt_image_refusal_of_code(copy, at, why, sizeof why);
        free(copy);
        image[at] = (char)~image[at];
        flyt_image_refusal_of_code(image, bytes, why, sizeof why);
        image[at] = (char)~image[at];
    }
    free(image);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_as_the_compiler_makes_them),
        cmocka_unit_test(spellings_of_ptx),
        cmocka_unit_test(damaged_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
