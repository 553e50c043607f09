/* Every field of cudaDeviceProp that is an attribute is set, at its full width, and devices compare as they should. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/cudart/properties.h"

enum { ATTRIBUTES = 200 };

static void test_fill(void **state)
{
    int attributes[ATTRIBUTES];
    struct cudaDeviceProp prop;
    const size_t first = offsetof(struct cudaDeviceProp, sharedMemPerBlock);
    const size_t end = offsetof(struct cudaDeviceProp, reserved);

    for (int i = 0; i < ATTRIBUTES; i++)
        attributes[i] = 1000 + i;
    memset(&prop, 0, sizeof(prop));
    flyt_cudart_properties_fill(&prop, attributes, ATTRIBUTES);
    assert_int_equal(prop.sharedMemPerBlock, 1000 + cudaDevAttrMaxSharedMemoryPerBlock);
    assert_int_equal(prop.maxGridSize[2], 1000 + cudaDevAttrMaxGridDimZ);
    assert_int_equal(prop.reservedSharedMemPerBlock, 1000 + cudaDevAttrReservedSharedMemoryPerBlock);
    assert_int_equal(prop.hostNumaMultinodeIpcSupported, 1000 + cudaDevAttrHostNumaMultinodeIpcSupported);
    /* What is not an attribute lies before; behind it, each int is one, or half of a size_t. */
    for (size_t at = first; at < end; at += sizeof(int)) {
        int value, before;

        memcpy(&value, (char *)&prop + at, sizeof(value));
        memcpy(&before, (char *)&prop + at - sizeof(int), sizeof(before));
        assert_true((value > 1000 && value < 1000 + ATTRIBUTES) || (value == 0 && before > 1000));
    }
    for (size_t i = 0; i < sizeof(prop.reserved) / sizeof(prop.reserved[0]); i++)
        assert_int_equal(prop.reserved[i], 0);
    assert_int_equal(prop.totalGlobalMem, 0);
    assert_int_equal(prop.name[0], 0);
}

static void test_fewer_attributes(void **state)
{
    int attributes[20] = {[cudaDevAttrWarpSize] = 32};
    struct cudaDeviceProp prop;

    memset(&prop, 0xee, sizeof(prop));
    flyt_cudart_properties_fill(&prop, attributes, 20);
    assert_int_equal(prop.warpSize, 32);
    assert_int_equal(prop.clusterLaunch, 0);
    assert_int_equal(prop.sharedMemPerBlockOptin, 0);
}

static void test_match(void **state)
{
    static const struct cudaDeviceProp old = {.major = 7, .minor = 5, .multiProcessorCount = 40};
    static const struct cudaDeviceProp new = {.major = 9, .minor = 0, .multiProcessorCount = 132};
    struct cudaDeviceProp wanted = {.name = ""};

    assert_int_equal(flyt_cudart_properties_match(&wanted, &old), flyt_cudart_properties_match(&wanted, &new));
    wanted.major = 8;
    assert_true(flyt_cudart_properties_match(&wanted, &new) > flyt_cudart_properties_match(&wanted, &old));
    wanted.major = 7;
    wanted.minor = 5;
    assert_true(flyt_cudart_properties_match(&wanted, &old) > flyt_cudart_properties_match(&wanted, &new));
    /* The compute capability weighs more than size. */
    wanted.multiProcessorCount = 132;
    assert_true(flyt_cudart_properties_match(&wanted, &old) > flyt_cudart_properties_match(&wanted, &new));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_fewer_attributes),
        cmocka_unit_test(test_match),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
