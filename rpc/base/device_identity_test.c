/* Names of a VM's devices: told apart, the same each time, and what they were in the first version. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "rpc/base/device_identity.h"

static void test_says_the_same(void **state)
{
    struct flyt_device_identity one, again;
    flyt_device_identify("10.0.1.7", 0, &one);
    flyt_device_identify("10.0.1.7", 0, &again);
    assert_memory_equal(&one.uuid, &again.uuid, sizeof one.uuid);
    assert_string_equal(one.uuid_text, again.uuid_text);
    /* Programs keep these: another algorithm would give every VM other devices. */
    assert_string_equal(one.uuid_text, "GPU-ad621db2-cb4d-8083-ad1d-97a62935c6a6");
    assert_string_equal(one.pci_bus_id, "0F17:01:00.0");
}

static void test_tells_apart(void **state)
{
    struct flyt_device_identity one, second, other;
    flyt_device_identify("10.0.1.7", 0, &one);
    flyt_device_identify("10.0.1.7", 1, &second);
    flyt_device_identify("10.0.1.70", 0, &other);
    assert_string_not_equal(one.uuid_text, second.uuid_text);
    assert_string_not_equal(one.uuid_text, other.uuid_text);
    assert_string_equal(second.pci_bus_id, "0F17:02:00.0");
    flyt_device_identify("10.0.1.7", 14, &second);
    assert_string_equal(second.pci_bus_id, "0F17:0F:00.0");
}

static void test_form(void **state)
{
    struct flyt_device_identity one;
    flyt_device_identify("fd00::1", 3, &one);
    assert_int_equal(strlen(one.uuid_text), 40);
    assert_int_equal(one.uuid[6] >> 4, 8);
    assert_int_equal(one.uuid[8] >> 6, 2);
    assert_int_equal(one.pci_bus, 4);
    assert_int_equal(one.pci_device, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_says_the_same),
        cmocka_unit_test(test_tells_apart),
        cmocka_unit_test(test_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
