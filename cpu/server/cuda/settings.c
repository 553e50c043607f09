#include "cpu/server/cuda/settings.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/server/core/digest.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "rpc/base/fault_point.h"

struct flyt_kernel_setting *flyt_settings_of_kernel(struct flyt_kernel *kernel, uint32_t device, int32_t attribute)
{
    struct flyt_kernel_setting *setting = kernel->settings;
    while (setting && (setting->device != device || setting->attribute != attribute))
        setting = setting->next;
    if (setting)
        return setting;
    setting = malloc(sizeof *setting);
    if (!setting)
        return NULL;
    *setting = (struct flyt_kernel_setting){.next = kernel->settings, .device = device, .attribute = attribute};
    kernel->settings = setting;
    return setting;
}

void flyt_settings_free(struct flyt_kernel *kernel)
{
    struct flyt_kernel_setting *setting;
    while ((setting = kernel->settings)) {
        kernel->settings = setting->next;
        free(setting);
    }
}

void flyt_settings_note(struct flyt_device_settings *settings, uint32_t number, uint64_t value)
{
    settings->values[number] = value;
    settings->mask |= 1u << number;
}

bool flyt_settings_is_passed_over(const struct flyt_session *session)
{
    return session->resume.state == FLYT_RESUME_UNDER_WAY && flyt_fault_point("prepare.setting") == FLYT_FAULT_ERROR;
}

/* ---- digests ---- */

static int take_library(void *user, uint64_t number, void *object)
{
    const struct flyt_library *library = object;
    flyt_checkpoint_settings *settings = user;
    for (uint32_t i = 0; i < library->kernel_count; i++)
        for (const struct flyt_kernel_setting *one = library->kernels[i].settings; one; one = one->next) {
            if (!one->is_set)
                continue;
            settings->kernels++;
            settings->kernels_digest += flyt_digest(flyt_kernel_id(library->object.id, i), one->device, one->attribute,
                                                    (uint64_t)(int64_t)one->value);
        }
    return 0;
}

/* In one sum with those of kernels. */
static void take_stream(const struct flyt_stream *stream, flyt_checkpoint_settings *settings)
{
    for (int place = 0; place < FLYT_STREAM_ATTRIBUTE_COUNT; place++) {
        if (!(stream->set_attributes >> place & 1))
            continue;
        uint64_t value = 0;
        for (unsigned word = 0; word < FLYT_STREAM_ATTRIBUTE_WORDS; word++)
            value = flyt_digest_mix(value + stream->attributes[place][word]);
        settings->kernels++;
        settings->kernels_digest += flyt_digest(stream->object.id, stream->device->ordinal, place, value);
    }
}

static void take_device(const struct flyt_device *device, flyt_checkpoint_settings *settings)
{
    for (uint32_t number = 0; number < FLYT_SETTINGS_OF_DEVICE; number++) {
        if (!(device->settings->mask >> number & 1))
            continue;
        settings->devices++;
        settings->devices_digest += flyt_digest(0, device->ordinal, number, device->settings->values[number]);
    }
    for (const struct flyt_stream *stream = device->streams_first; stream; stream = stream->device_next)
        if (!stream->is_removed)
            take_stream(stream, settings);
    for (uint32_t peer = 0; peer < FLYT_DEVICES_MAX; peer++) {
        if (!(device->peer_mask >> peer & 1))
            continue;
        settings->peers++;
        settings->peers_digest += flyt_digest(0, device->ordinal, peer, 1);
    }
}

void flyt_settings_take(struct flyt_session *session, flyt_checkpoint_settings *ret_settings)
{
    flyt_checkpoint_settings settings = {0};
    if (session->device_count == 1)
        flyt_objects_each(&session->objects, FLYT_OBJECTS_LIBRARY, take_library, &settings);
    for (unsigned i = 0; i < session->device_count; i++)
        take_device(&session->devices[i], &settings);
    *ret_settings = settings;
}

/* ---- comparing ---- */

static int compare(const char *what, uint64_t had, uint64_t had_digest, uint64_t has, uint64_t has_digest,
                   struct flyt_error *err)
{
    if (had != has)
        return flyt_error_set(err, -EIO, "its client has set %llu %s again, and it had set %llu",
                              (unsigned long long)has, what, (unsigned long long)had);
    if (had_digest != has_digest)
        return flyt_error_set(err, -EIO, "its client has set %s again that are not what they were", what);
    return 0;
}

int flyt_settings_compare(struct flyt_session *session, const flyt_checkpoint_settings *had, struct flyt_error *err)
{
    flyt_checkpoint_settings has;
    flyt_settings_take(session, &has);
    int status = compare("attributes of kernels and streams", had->kernels, had->kernels_digest, has.kernels,
                         has.kernels_digest, err);
    if (!status)
        status = compare("limits of devices", had->devices, had->devices_digest, has.devices, has.devices_digest, err);
    if (!status)
        status =
            compare("accesses of devices to others", had->peers, had->peers_digest, has.peers, has.peers_digest, err);
    return status;
}
