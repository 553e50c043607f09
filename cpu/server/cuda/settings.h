/*
 * What a program has set that is no object of its own: attributes and cache preferences of kernels, attributes of
 * streams, limits and cache preferences of devices, and which device reaches which one's memory. Noted here when the
 * driver has taken it. The server that a moved session leaves tells how much there is, and a digest of it (save.h); the
 * one where it goes on compares when the client has made its objects again (resume.h), so that a setting that is
 * missing, or has another value, is found before the program does anything with it.
 *
 * A session with several devices does not compare those of kernels: when one of the devices is reset, its client alone
 * knows which of them count no more. Page-locked and registered memory of the host is the client's alone: there is
 * nothing of it here.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_SETTINGS_H
#define FLYT_SERVER_SETTINGS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "checkpoint.h"
#include "rpc/base/error.h"

struct flyt_kernel;
struct flyt_session;

enum {
    FLYT_SETTING_CACHE_CONFIG = -1,                  /* of a kernel: in the place of an attribute */
    FLYT_SETTING_DEVICE_CACHE_CONFIG = CU_LIMIT_MAX, /* of a device: in the place of a limit */
    FLYT_SETTINGS_OF_DEVICE
};

/* One of a kernel on one device; in the kernel's list, by no order. */
struct flyt_kernel_setting {
    struct flyt_kernel_setting *next;
    uint32_t device;
    int32_t attribute;
    int32_t value;
    bool is_set; /* the driver has taken it */
};

struct flyt_device_settings {
    uint64_t values[FLYT_SETTINGS_OF_DEVICE]; /* of those whose bit is set: */
    uint32_t mask;
};
_Static_assert(FLYT_SETTINGS_OF_DEVICE <= 32, "a bit each");

/* The kernel's setting, made where there is none; whoever has the driver take a value writes it there. NULL: no
 * memory. It lives as long as the kernel's library. */
struct flyt_kernel_setting *flyt_settings_of_kernel(struct flyt_kernel *kernel, uint32_t device, int32_t attribute);
/* Frees all of a kernel. */
void flyt_settings_free(struct flyt_kernel *kernel);

/* The driver has taken the value. */
void flyt_settings_note(struct flyt_device_settings *settings, uint32_t number, uint64_t value);

/* Whether a test wants a setting that the client makes again to be passed over. */
bool flyt_settings_is_passed_over(const struct flyt_session *session);

void flyt_settings_take(struct flyt_session *session, flyt_checkpoint_settings *ret_settings);
/* Whether the session has set what it had. 0, or -EIO with a sentence that names the first kind that is not as it was.
 */
int flyt_settings_compare(struct flyt_session *session, const flyt_checkpoint_settings *had, struct flyt_error *err);

#endif
