/* What CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER say of three devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/visible.h"

/* On the PCI: 2, 0, 1. The fastest: 1. */
static const struct flyt_visible_device devices[] = {
    {"GPU-aabb0000-0000-0000-0000-000000000001", .bus = 7, .device = 1, .speed = 5},
    {"GPU-aabc0000-0000-0000-0000-000000000002", .domain = 1, .bus = 1, .speed = 9},
    {"GPU-ccdd0000-0000-0000-0000-000000000003", .bus = 7, .device = 0, .speed = 5},
};

static const char *chosen(const char *visible, const char *order, unsigned count)
{
    static char text[64];
    struct flyt_visible seen = flyt_visible_choose(visible, order, devices, count);
    size_t used = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < seen.count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%u", seen.devices[i]);
    return text;
}

static void expect(const char *visible, const char *order, const char *wanted)
{
    if (strcmp(chosen(visible, order, 3), wanted) != 0)
        fail_msg("%s, %s: %s", visible ? visible : "unset", order ? order : "unset", chosen(visible, order, 3));
}

static void numbers(void **state)
{
    static const struct {
        const char *visible, *wanted;
    } rows[] = {
        {NULL, "012"},      {"", ""},
        {"-1", ""},         {"0", "0"},
        {"0,1", "01"},      {"0,1,2", "012"},
        {"0,1,2,3", "012"}, {"0,-1,1", "0"},
        {"0,,1", "0"},      {"none", ""},
        {"0,0", ""},        {"1", "1"},
        {"0,2", "02"},      {"1,0", "10"},
        {"3", ""},          {"0,x", "0"},
        {"2,1,0", "210"},   {"2,3,0", "2"},
        {"0 ", "0"},        {" 0", "0"},
        {"1,2,1", ""},      {"99999999999999999999", ""},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect(rows[i].visible, NULL, rows[i].wanted);
    assert_string_equal(chosen("0", NULL, 0), "");
    assert_string_equal(chosen(NULL, "PCI_BUS_ID", 0), "");
}

static void uuids(void **state)
{
    expect("GPU-ccdd0000-0000-0000-0000-000000000003", NULL, "2");
    expect("GPU-c,GPU-aabb", NULL, "20");
    expect("GPU-AABC", NULL, "1");
    expect("GPU-aab", NULL, "");                 /* of two */
    expect("GPU-c,GPU-aab,GPU-aabb", NULL, "2"); /* likewise: the list ends there */
    expect("GPU-e,0", NULL, "");
    expect("GPU-ccdd0000-0000-0000-0000-0000000000031", NULL, "");
    expect("GPU-c,GPU-ccdd", NULL, ""); /* twice */
    expect("1,GPU-c", NULL, "12");
    expect("0,MIG-GPU-aabb/0/0,1", NULL, "0");
    expect("MIG-aabb", NULL, "");
    /* A part of a UUID is told by its bytes alone. */
    expect("GPU-", NULL, "");
    assert_string_equal(chosen("GPU-", NULL, 1), "0");
}

static void orders(void **state)
{
    expect(NULL, "PCI_BUS_ID", "201");
    expect(NULL, "FASTEST_FIRST", "102");
    expect(NULL, "else", "012");
    expect("0,1", "PCI_BUS_ID", "20");
    expect("2", "FASTEST_FIRST", "2");
    expect("1,0", "FASTEST_FIRST", "01");
    expect("GPU-aabb", "PCI_BUS_ID", "0");
    assert_false(flyt_visible_needs_devices(NULL, NULL));
    assert_false(flyt_visible_needs_devices("2,1", "else"));
    assert_true(flyt_visible_needs_devices("2,GPU-1", NULL));
    assert_true(flyt_visible_needs_devices(NULL, "PCI_BUS_ID"));
    assert_true(flyt_visible_needs_devices("", "FASTEST_FIRST"));
}

static void both_ways(void **state)
{
    flyt_client.visible = flyt_visible_choose("2,0", NULL, NULL, 3);
    assert_int_equal(flyt_wire_device(0), 2);
    assert_int_equal(flyt_wire_device(1), 0);
    assert_int_equal(flyt_wire_device(2), FLYT_DEVICES_MAX);
    assert_int_equal(flyt_wire_device(UINT32_MAX), FLYT_DEVICES_MAX);
    assert_int_equal(flyt_seen_device(0), 1);
    assert_int_equal(flyt_seen_device(1), -1);
    assert_int_equal(flyt_seen_device(2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(numbers), cmocka_unit_test(uuids), cmocka_unit_test(orders),
                                       cmocka_unit_test(both_ways)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
