/* Attributes of streams: kept here, and set at the server. */
#include <pthread.h>
#include <string.h>
#include "cpu/client/core/answer.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/stream_record.h"

FLYT_ANSWER_CALL(stream_attribute_set)

_Static_assert(sizeof((flyt_launch_attribute){0}.value) == FLYT_STREAM_ATTRIBUTE_WORDS * sizeof(uint32_t),
               "an attribute is kept as it travels");

/* Guards the attributes of all streams; they are rarely set. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* What the attribute is where the program has set none. */
static void take_default(const struct flyt_stream *stream, int place, uint32_t *words)
{
    const struct flyt_device_info *info;
    CUlaunchAttributeValue value = {0};
    unsigned bytes;
    switch (flyt_stream_attribute_at(place, &bytes)) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        value.syncPolicy = (CUsynchronizationPolicy)-1; /* what NVIDIA's driver says */
        break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        value.priority = stream->priority;
        break;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        value.memSyncDomainMap.remote =
            !flyt_device_info(stream->device, &info) && info->attributes[CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT] > 1;
        break;
    default:
        break;
    }
    memcpy(words, &value, FLYT_STREAM_ATTRIBUTE_WORDS * sizeof *words);
}

static void take(const struct flyt_stream *stream, int place, uint32_t *words)
{
    pthread_mutex_lock(&mutex);
    bool is_set = stream->set_attributes >> place & 1;
    if (is_set)
        memcpy(words, stream->attributes[place], sizeof stream->attributes[place]);
    pthread_mutex_unlock(&mutex);
    if (!is_set)
        take_default(stream, place, words);
}

static void note(struct flyt_stream *stream, int place, const uint32_t *words)
{
    pthread_mutex_lock(&mutex);
    memcpy(stream->attributes[place], words, sizeof stream->attributes[place]);
    stream->set_attributes |= 1u << place;
    pthread_mutex_unlock(&mutex);
}

int flyt_stream_priority_now(struct flyt_stream *stream)
{
    CUlaunchAttributeValue value = {0};
    uint32_t words[FLYT_STREAM_ATTRIBUTE_WORDS];
    take(stream, flyt_stream_attribute_place(CU_LAUNCH_ATTRIBUTE_PRIORITY), words);
    memcpy(&value, words, sizeof words);
    return value.priority;
}

static CUresult clamp_priority(const struct flyt_stream *stream, uint32_t *words)
{
    CUlaunchAttributeValue value = {0};
    memcpy(&value, words, FLYT_STREAM_ATTRIBUTE_WORDS * sizeof *words);
    CUresult result = flyt_stream_priority_clamp(stream->device, &value.priority);
    memcpy(words, &value, FLYT_STREAM_ATTRIBUTE_WORDS * sizeof *words);
    return result;
}

static CUresult set(struct flyt_stream *stream, int place, const uint32_t *words)
{
    unsigned bytes;
    flyt_stream_attribute_set_args args = {.thread = flyt_thread_number(),
                                           .stream_id = stream->stream_id,
                                           .attribute.id = flyt_stream_attribute_at(place, &bytes)};
    memcpy(args.attribute.value, words, sizeof args.attribute.value);
    flyt_stream_attribute_set_res res = {0};
    CUresult result = flyt_stream_begin(stream);
    if (result)
        return result;
    int status = call_stream_attribute_set(&args, &res);
    result = flyt_client_reply(status, res.result, "stream_attribute_set");
    if (!result)
        note(stream, place, words);
    flyt_answer_end();
    return result;
}

CUresult flyt_stream_attribute_set(CUstream handle, unsigned attribute, const void *value)
{
    struct flyt_stream *stream;
    int place = flyt_stream_attribute_place(attribute);
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(handle, &stream);
    if (!result && (!value || place < 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    /* Of the value no more is read than the attribute has. */
    uint32_t words[FLYT_STREAM_ATTRIBUTE_WORDS] = {0};
    unsigned bytes;
    flyt_stream_attribute_at(place, &bytes);
    memcpy(words, value, bytes);
    if (attribute == CU_LAUNCH_ATTRIBUTE_PRIORITY)
        result = clamp_priority(stream, words);
    return result ? result : set(stream, place, words);
}

CUresult flyt_stream_attribute(CUstream handle, unsigned attribute, void *ret_value)
{
    struct flyt_stream *stream;
    int place = flyt_stream_attribute_place(attribute);
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(handle, &stream);
    if (!result && (!ret_value || place < 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    uint32_t words[FLYT_STREAM_ATTRIBUTE_WORDS];
    unsigned bytes;
    flyt_stream_attribute_at(place, &bytes);
    take(stream, place, words);
    memcpy(ret_value, words, bytes);
    return CUDA_SUCCESS;
}

/* The legacy streams are those of whatever context of their device is current. */
static bool are_of_one_context(const struct flyt_stream *one, const struct flyt_stream *other)
{
    return one->device == other->device && (one->is_legacy || other->is_legacy || one->context_id == other->context_id);
}

CUresult flyt_stream_attributes_copy(CUstream to, CUstream from)
{
    struct flyt_stream *target, *source;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(to, &target);
    if (!result)
        result = flyt_stream_get(from, &source);
    if (!result && !are_of_one_context(target, source))
        result = CUDA_ERROR_INVALID_VALUE;
    for (int place = 0; place < FLYT_STREAM_ATTRIBUTE_COUNT && !result; place++) {
        uint32_t words[FLYT_STREAM_ATTRIBUTE_WORDS], now[FLYT_STREAM_ATTRIBUTE_WORDS];
        take(source, place, words);
        take(target, place, now);
        if (memcmp(words, now, sizeof words) != 0)
            result = set(target, place, words);
    }
    return result;
}

int flyt_stream_attributes_restore(struct flyt_restore *restore, struct flyt_stream *stream)
{
    int status = 0;
    for (int place = 0; place < FLYT_STREAM_ATTRIBUTE_COUNT && !status; place++) {
        if (!(stream->set_attributes >> place & 1))
            continue;
        unsigned bytes;
        flyt_stream_attribute_set_args args = {.thread = FLYT_RESTORE_THREAD,
                                               .stream_id = stream->stream_id,
                                               .attribute.id = flyt_stream_attribute_at(place, &bytes)};
        take(stream, place, args.attribute.value);
        flyt_stream_attribute_set_res res = {0};
        int called = flyt_call_stream_attribute_set(restore->fresh, &args, &res);
        status = flyt_restore_answered(restore, called, res.result, "attribute %u of stream %#llx", args.attribute.id,
                                       (unsigned long long)stream->stream_id);
    }
    return status;
}
