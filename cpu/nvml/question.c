#include "cpu/nvml/question.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/client/core/local_call.h"
#include "cpu/nvml/library.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/device_identity.h"
#include "rpc/base/log.h"

/* Names are as long as ours are, and numbers are none that nobody can have: the other side may be anybody. */
static bool can_be(const flyt_local_devices_res *answer)
{
    for (u_int i = 0; i < answer->devices.devices_len; i++) {
        const flyt_local_device *device = &answer->devices.devices_val[i];
        if (strlen(device->uuid) != FLYT_NVML_UUID_TEXT_BYTES - 1 ||
            strlen(device->pci_bus_id) >= FLYT_DEVICE_PCI_TEXT_BYTES ||
            (device->use.busy_pct > 100 && device->use.busy_pct != FLYT_UNKNOWN))
            return false;
    }
    return true;
}

static int code_of(const flyt_outcome *outcome)
{
    if (outcome->status == FLYT_STATUS_OK)
        return FLYT_NVML_SUCCESS;
    flyt_debug("nvml: the client manager says: %.400s", outcome->text);
    return outcome->status == FLYT_STATUS_DENIED ? FLYT_NVML_NO_PERMISSION : FLYT_NVML_DRIVER_NOT_LOADED;
}

int flyt_nvml_ask(flyt_local_devices_res *ret_answer)
{
    const struct flyt_local_question question = {.procedure = FLYT_LOCAL_DEVICES,
                                                 .xdr_res = (xdrproc_t)xdr_flyt_local_devices_res,
                                                 .res_bytes = sizeof *ret_answer,
                                                 .record_bytes_max = FLYT_NVML_ANSWER_BYTES_MAX};
    const char *server = getenv("FLYT_SERVER");
    flyt_local_devices_res answer;
    struct flyt_error err = {0};
    uint64_t deadline_ms = flyt_clock_ms() + FLYT_NVML_TIMEOUT_MS;
    int fd = -1;

    if (server && *server) {
        flyt_debug("nvml: FLYT_SERVER names a server: no client manager says what it gives");
        return FLYT_NVML_DRIVER_NOT_LOADED;
    }
    int status = flyt_local_connect(FLYT_NVML_TIMEOUT_MS, &err, &fd);
    if (!status) {
        status = flyt_local_ask(fd, &question, deadline_ms, NULL, &answer);
        flyt_error_set(&err, status, "the client manager does not answer: %s", strerror(-status));
        flyt_close(fd);
    }
    if (status) {
        flyt_debug("nvml: %.400s", err.text);
        return status == -EACCES ? FLYT_NVML_NO_PERMISSION : FLYT_NVML_DRIVER_NOT_LOADED;
    }
    int code = code_of(&answer.outcome);
    if (!code && !can_be(&answer)) {
        flyt_debug("nvml: the client manager's answer cannot be");
        code = FLYT_NVML_DRIVER_NOT_LOADED;
    }
    if (code)
        xdr_free((xdrproc_t)xdr_flyt_local_devices_res, (char *)&answer);
    else
        *ret_answer = answer;
    return code;
}
