/*
 * The library's one instance: how often it was initialised, and what the client manager said last of the VM's devices.
 * Nothing happens when it is loaded. No connection stays open between two questions: so a client manager may be
 * restarted, a program may fork, and a monitor holds nothing.
 *
 * What the client manager said counts for FRESH_MS. Where it does not answer later, which devices there are stays
 * known, and what changes (memory in use, programs) is not ready. Any thread; a question is asked by one at a time.
 */
#ifndef FLYT_NVML_LIBRARY_H
#define FLYT_NVML_LIBRARY_H

#include <stdbool.h>

#include "control.h"
#include "cpu/nvml/types.h"

/* Defines an exported function, which nvml.h declares for those who call it. */
#define FLYT_NVML_FUNCTION(name, ...)                                                                                  \
    int name(__VA_ARGS__);                                                                                             \
    __attribute__((visibility("default"))) int name(__VA_ARGS__)

enum {
    FLYT_NVML_FRESH_MS = 200,
    FLYT_NVML_TIMEOUT_MS = 5000, /* of one question, connecting included */
    FLYT_NVML_ANSWER_BYTES_MAX = 262144,
};

/* One more that has initialised it. Asks the client manager; 0 or a code. */
int flyt_nvml_begin(bool may_lack_gpus);
/* One less; FLYT_NVML_UNINITIALIZED: there was none. */
int flyt_nvml_end(void);
bool flyt_nvml_is_begun(void);

/*
 * What is known, locked until flyt_nvml_give_back: 0 and *ret_known, else a code and nothing is locked. is_now: also
 * what changes, or FLYT_NVML_NOT_READY.
 */
int flyt_nvml_take(bool is_now, const flyt_local_devices_res **ret_known);
/* The same for one device. FLYT_NVML_INVALID_ARGUMENT: there is no such one. */
int flyt_nvml_take_device(flyt_nvml_device device, bool is_now, const flyt_local_devices_res **ret_known,
                          const flyt_local_device **ret_device);
void flyt_nvml_give_back(void);

/* The handle of a device by its number; its number by the handle, which may be anything: -1: it is none. */
flyt_nvml_device flyt_nvml_handle(unsigned index);
int flyt_nvml_index(const void *device);

/* Copies a text into the caller's room: 0, FLYT_NVML_INVALID_ARGUMENT (no room given), FLYT_NVML_INSUFFICIENT_SIZE, or
 * FLYT_NVML_NOT_SUPPORTED where the text is empty: not known. */
int flyt_nvml_copy_text(const char *text, char *ret_text, unsigned bytes);

#endif
