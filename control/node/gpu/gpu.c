#include "control/node/gpu/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/base/log.h"
#include "rpc/base/sha256.h"
#include "rpc/base/time_slices.h"

int flyt_node_uuid_parse(const char *text, unsigned char *ret_bytes)
{
    unsigned char bytes[FLYT_UUID_BYTES];
    static const unsigned dashes = 1u << 4 | 1u << 6 | 1u << 8 | 1u << 10; /* before these bytes */

    if (strncmp(text, "GPU-", 4) != 0)
        return -EINVAL;
    text += 4;
    for (unsigned i = 0; i < sizeof bytes; i++) {
        unsigned value;
        if (dashes >> i & 1 && *text++ != '-')
            return -EINVAL;
        if (strspn(text, "0123456789abcdefABCDEF") < 2 || sscanf(text, "%2x", &value) != 1)
            return -EINVAL;
        bytes[i] = (unsigned char)value;
        text += 2;
    }
    if (*text)
        return -EINVAL;
    memcpy(ret_bytes, bytes, sizeof bytes);
    return 0;
}

void flyt_node_uuid_print(const unsigned char *b, char *ret_text)
{
    snprintf(ret_text, FLYT_NODE_UUID_BYTES, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

int flyt_node_gpus_make_software(struct flyt_node_gpus *gpus, const struct flyt_node_settings *settings,
                                 const char *node)
{
    unsigned count = (unsigned)settings->software_gpus;
    struct flyt_node_gpu *items = calloc(count, sizeof *items);

    if (!items)
        return -ENOMEM;
    for (unsigned i = 0; i < count; i++) {
        unsigned char hash[FLYT_SHA256_BYTES];
        char text[FLYT_NAME_BYTES_MAX + 64];
        snprintf(text, sizeof text, "flyt software gpu %u of %.255s", i, node);
        flyt_sha256_of(text, strlen(text), hash);
        memcpy(items[i].uuid_bytes, hash, sizeof items[i].uuid_bytes);
        flyt_node_uuid_print(items[i].uuid_bytes, items[i].uuid);
        snprintf(items[i].type, sizeof items[i].type, "Flyt software GPU");
        items[i].index = i;
        items[i].is_software = true;
        items[i].group_size = (unsigned)settings->group_size;
    }
    *gpus = (struct flyt_node_gpus){items, count};
    return 0;
}

void flyt_node_gpus_fini(struct flyt_node_gpus *gpus)
{
    for (unsigned i = 0; i < gpus->count; i++)
        flyt_time_slices_close(gpus->items[i].time_slices);
    free(gpus->items);
    *gpus = (struct flyt_node_gpus){0};
}

struct flyt_node_gpu *flyt_node_gpus_find(const struct flyt_node_gpus *gpus, const char *uuid)
{
    for (unsigned i = 0; i < gpus->count; i++)
        if (!strcmp(gpus->items[i].uuid, uuid))
            return &gpus->items[i];
    return NULL;
}

void flyt_node_gpus_set_isolation(struct flyt_node_gpus *gpus, const struct flyt_node_settings *settings)
{
    for (unsigned i = 0; i < gpus->count; i++) {
        struct flyt_node_gpu *gpu = &gpus->items[i];
        char index[16];
        snprintf(index, sizeof index, "%u", gpu->index);
        gpu->isolation = (flyt_isolation)settings->isolation;
        for (size_t j = 0; j < settings->strict_gpus.count; j++)
            if (!strcmp(settings->strict_gpus.items[j], gpu->uuid) || !strcmp(settings->strict_gpus.items[j], index))
                gpu->isolation = FLYT_ISOLATION_STRICT;
    }
}

int flyt_node_gpu_learn(struct flyt_node_gpu *gpu, const struct flyt_manager_link_ready *ready, struct flyt_error *err)
{
    unsigned sum = 0;

    for (unsigned i = 0; i < ready->group_count; i++)
        sum += ready->group_sms[i];
    if (!ready->sm_count || !ready->group_count || sum > ready->sm_count)
        return flyt_error_set(err, -EINVAL, "a server tells of %u SMs in %u groups with %u SMs on GPU %s",
                              ready->sm_count, ready->group_count, sum, gpu->uuid);
    if (ready->group_size != gpu->group_size)
        return flyt_error_set(err, -EINVAL, "a server has groups of %u SMs instead of %u on GPU %s", ready->group_size,
                              gpu->group_size, gpu->uuid);
    if (!gpu->is_software && memcmp(ready->gpu_uuid, gpu->uuid_bytes, sizeof gpu->uuid_bytes) != 0)
        return flyt_error_set(err, -EINVAL, "the driver's GPU %u is not %s", gpu->index, gpu->uuid);
    bool is_same = gpu->sm_count == ready->sm_count && gpu->group_count == ready->group_count;
    for (unsigned i = 0; is_same && i < ready->group_count; i++)
        is_same = gpu->group_sms[i] == ready->group_sms[i];
    if (gpu->is_known && !is_same)
        return flyt_error_set(err, -EINVAL,
                              "a server finds %u SM groups with %u SMs on GPU %s, where others found %u with %u: the "
                              "same numbers would mean other SMs",
                              ready->group_count, sum, gpu->uuid, gpu->group_count, gpu->sm_count);
    gpu->sm_count = ready->sm_count;
    gpu->group_count = ready->group_count;
    for (unsigned i = 0; i < ready->group_count; i++)
        gpu->group_sms[i] = ready->group_sms[i];
    gpu->memory_bytes = ready->memory_bytes;
    if (ready->reserve_bytes > gpu->context_bytes)
        gpu->context_bytes = ready->reserve_bytes;
    if ((uint64_t)ready->copying_kib << 10 > gpu->copying_bytes)
        gpu->copying_bytes = (uint64_t)ready->copying_kib << 10;
    gpu->compute_major = ready->compute_major;
    gpu->compute_minor = ready->compute_minor;
    gpu->is_known = true;
    return 0;
}

void flyt_node_gpu_set_health(struct flyt_node_gpu *gpu, flyt_health health, const char *text)
{
    if (gpu->health == health && !strcmp(gpu->health_text, text))
        return;
    gpu->health = health;
    snprintf(gpu->health_text, sizeof gpu->health_text, "%s", text);
    if (health == FLYT_HEALTH_OK)
        flyt_info("gpu %u: well again uuid=%s", gpu->index, gpu->uuid);
    else
        flyt_fail("gpu %u: %s uuid=%s: %s", gpu->index, health == FLYT_HEALTH_FAILED ? "failed" : "degraded", gpu->uuid,
                  text);
}

void flyt_node_gpu_set_group_size(struct flyt_node_gpu *gpu, unsigned group_size)
{
    gpu->group_size = group_size;
    gpu->is_known = false;
    gpu->group_count = 0;
}

unsigned flyt_node_gpu_sms(const struct flyt_node_gpu *gpu, const unsigned char *groups)
{
    unsigned sms = 0;

    for (unsigned i = 0; i < gpu->group_count; i++)
        if (flyt_manager_link_has_group(groups, i))
            sms += gpu->group_sms[i];
    return sms;
}

void flyt_node_gpu_describe(const struct flyt_node_gpu *gpu, unsigned client_slots, flyt_gpu *ret_gpu)
{
    *ret_gpu = (flyt_gpu){
        .uuid = (char *)gpu->uuid,
        .index = gpu->index,
        .type = (char *)gpu->type,
        .sm_count = gpu->sm_count,
        .group_size = gpu->group_size,
        .group_sms = {gpu->group_count, (u_int *)gpu->group_sms},
        .memory_bytes = gpu->memory_bytes,
        .server_reserve_bytes = gpu->context_bytes + gpu->copying_bytes,
        .client_slots = client_slots,
        .isolation = gpu->isolation,
        .health = gpu->is_known ? gpu->health : FLYT_HEALTH_FAILED,
        .health_text =
            (char *)(gpu->is_known || *gpu->health_text ? gpu->health_text : "no server was ready on it yet"),
        .compute_major = gpu->compute_major,
        .compute_minor = gpu->compute_minor,
    };
}
