/* A device that the client manager has named is called as the VM calls it; one of FLYT_SERVER as its server calls it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/client/core/fake_channel.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/device.h"
#include "rpc/proto/limits.h"

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    if (procedure == FLYT_DEVICE_INFO)
        fake_serve_device_info(res);
}

static int attribute(CUdevice_attribute which)
{
    int value = -1;
    assert_int_equal(flyt_device_attribute(0, which, &value), CUDA_SUCCESS);
    return value;
}

static const struct flyt_device_info *ask(void)
{
    const struct flyt_device_info *info;
    fake.serve = serve;
    setenv("FLYT_SERVER", "unix:///fake", 1);
    assert_int_equal(flyt_client_init(), CUDA_SUCCESS);
    assert_int_equal(flyt_device_info(0, &info), CUDA_SUCCESS);
    return info;
}

static void test_of_a_vm(void **state)
{
    struct flyt_credentials credentials = {.vm_ip = "10.0.1.7", .allocation_id = 1};
    struct flyt_local *grant = &flyt_client.local;
    struct flyt_device_identity identity;

    grant->credentials_bytes = flyt_credentials_put(&credentials, grant->credentials);
    const struct flyt_device_info *info = ask();
    flyt_device_identify("10.0.1.7", 0, &identity);
    assert_memory_equal(info->uuid, identity.uuid, sizeof info->uuid);
    assert_string_equal(info->pci_bus_id, identity.pci_bus_id);
    assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID), identity.pci_domain);
    assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID), identity.pci_bus);
    assert_int_equal(attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID), 0);
    int found = -1;
    assert_int_equal(flyt_device_find_by_pci_bus_id(identity.pci_bus_id, &found), CUDA_SUCCESS);
    assert_int_equal(found, 0);
}

static void test_of_a_server(void **state)
{
    struct flyt_device_identity identity;
    assert_int_equal(flyt_client_init(), CUDA_SUCCESS);
    flyt_client.local.credentials_bytes = 0;
    assert_false(flyt_client_identify(0, &identity));
    flyt_client.local.credentials_bytes = 1; /* of something that is no credentials */
    assert_false(flyt_client_identify(0, &identity));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_a_vm),
        cmocka_unit_test(test_of_a_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
