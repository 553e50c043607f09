#include "control/cluster/io/document.h"

#include <errno.h>

#include "rpc/base/log.h"

cJSON *flyt_document_write(const struct flyt_field *fields, const void *const *parts, const char *kind,
                           const char *name)
{
    struct flyt_error err = {0};
    cJSON *document = flyt_fields_write(fields, parts, &err);

    if (!document && err.code != -ENOMEM)
        flyt_fail("%s %s cannot be written: %s", kind, name, err.text);
    return document;
}

int flyt_document_read(const struct flyt_field *fields, const cJSON *document, void *const *parts, const char *kind,
                       const char *name)
{
    struct flyt_error err = {0};
    int status = flyt_fields_read(fields, document, parts, FLYT_LEAVE_UNKNOWN | FLYT_LEAVE_WRONG, &err);

    if (status == -ENOMEM)
        return status;
    if (status) {
        flyt_fail("store: %s %s cannot be used: %s", kind, name, err.text);
        return -EBADMSG;
    }
    if (err.code)
        flyt_warn("store: %s %s: %s; it is as if it were not there", kind, name, err.text);
    return 0;
}
