/*
 * The store's documents by tables (control/base/fields.h). A leader reads what another build has written, and what a
 * hand has: a member that no table names is left out, a field that is wrong and not needed is as if it were not there,
 * and the log says so.
 */
#ifndef FLYT_CLUSTER_IO_DOCUMENT_H
#define FLYT_CLUSTER_IO_DOCUMENT_H

#include "control/base/fields.h"

/* What the store says of a document, and documents do not say of themselves. */
struct flyt_document {
    const char *id; /* borrowed from what was read */
    uint64_t revision;
};

/* Both are read only: the part is NULL where a document is written. */
#define FLYT_DOCUMENT_FIELDS(its_slot)                                                                                 \
    {"_id", FLYT_TEXT(struct flyt_document, id), .part = its_slot, .rules = FLYT_NEEDED | FLYT_BORROWED},              \
    {                                                                                                                  \
        "revision", FLYT_NUMBER(struct flyt_document, revision), .part = its_slot                                      \
    }

/* NULL: no memory, or it has a number that no document holds, which is logged. `kind` and `name` say what it is. */
cJSON *flyt_document_write(const struct flyt_field *fields, const void *const *parts, const char *kind,
                           const char *name);
/* 0; -ENOMEM; -EBADMSG: it is of no use, which is logged. */
int flyt_document_read(const struct flyt_field *fields, const cJSON *document, void *const *parts, const char *kind,
                       const char *name);

#endif
