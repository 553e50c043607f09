#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "control/store/json.h"
#include "control/store/store_ops.h"

const char *flyt_store_result_name(enum flyt_store_result result)
{
    switch (result) {
    case FLYT_STORE_OK:
        return "ok";
    case FLYT_STORE_NOT_FOUND:
        return "not found";
    case FLYT_STORE_CONFLICT:
        return "conflict";
    case FLYT_STORE_UNAVAILABLE:
        return "unavailable";
    case FLYT_STORE_UNKNOWN:
        return "outcome unknown";
    case FLYT_STORE_BROKEN:
        return "broken";
    }
    return "no result";
}

enum flyt_store_result flyt_store_fail(struct flyt_error *err, enum flyt_store_result result, const char *format, ...)
{
    static const int codes[] = {[FLYT_STORE_NOT_FOUND] = -ENOENT,
                                [FLYT_STORE_CONFLICT] = -EEXIST,
                                [FLYT_STORE_UNAVAILABLE] = -EAGAIN,
                                [FLYT_STORE_UNKNOWN] = -ETIMEDOUT,
                                [FLYT_STORE_BROKEN] = -EIO};
    va_list values;

    err->code = codes[result];
    va_start(values, format);
    vsnprintf(err->text, sizeof err->text, format, values);
    va_end(values);
    return result;
}

cJSON *flyt_store_broken_document(const char *id, uint64_t revision, const char *why)
{
    cJSON *document = cJSON_CreateObject();

    if (document &&
        (!cJSON_AddStringToObject(document, "_broken", why) || !flyt_json_set_store_members(document, id, revision))) {
        cJSON_Delete(document);
        return NULL;
    }
    return document;
}
