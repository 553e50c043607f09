/*
 * What an implementation of the store provides, and what implementations share. Included by control/store only. store.c
 * has checked collection, id and revision before an operation is called, and err is never NULL there.
 */
#ifndef FLYT_CONTROL_STORE_OPS_H
#define FLYT_CONTROL_STORE_OPS_H

#include <limits.h>

#include "control/store/store.h"

struct flyt_store_ops {
    void (*close)(struct flyt_store *store);
    enum flyt_store_result (*get)(struct flyt_store *store, const char *collection, const char *id,
                                  struct flyt_error *err, cJSON **ret_document);
    enum flyt_store_result (*list)(struct flyt_store *store, const char *collection, const char *after, unsigned limit,
                                   struct flyt_error *err, cJSON **ret_documents);
    /* Leaves `document` as it is; store.c sets its members. */
    enum flyt_store_result (*put)(struct flyt_store *store, const char *collection, const char *id, uint64_t revision,
                                  const cJSON *seen, const cJSON *document, struct flyt_error *err);
    enum flyt_store_result (*delete)(struct flyt_store *store, const char *collection, const char *id,
                                     uint64_t revision, struct flyt_error *err);
    enum flyt_store_result (*raise)(struct flyt_store *store, const char *collection, const char *name, uint64_t value,
                                    struct flyt_error *err, uint64_t *ret_count);
    int (*backup)(struct flyt_store *store, const char *path, struct flyt_error *err);
};

/* The first member of every implementation's structure. */
struct flyt_store {
    const struct flyt_store_ops *ops;
    unsigned timeout_ms;
    bool is_shared;
    char name[PATH_MAX + 16];
};

/*
 * The way to schema version `to` from the one before. Steps stand in order, from 1; a store of version N gets those
 * beyond N, of which each may do both. `sql` changes the tables of a SQLite file, in one transaction with all other
 * steps. `documents` changes documents through the store's own calls; on MongoDB it may be interrupted, and be run by
 * two managers at once: repeating it must be harmless. 0, or a negative errno and *err.
 */
struct flyt_schema_step {
    unsigned to;
    const char *sql;
    int (*documents)(struct flyt_store *store, struct flyt_error *err);
};

struct flyt_schema {
    const struct flyt_schema_step *steps;
    unsigned step_count;
};

/* The product's own schema, up to FLYT_STORE_SCHEMA (schema.c). */
extern const struct flyt_schema flyt_schema;
/* The version that a schema leads to: its last step's. */
unsigned flyt_schema_version(const struct flyt_schema *schema);
/* flyt_store_open with another schema than the product's: tests of the way forward. `schema` is borrowed for the
 * store's life. */
int flyt_store_open_schema(const char *uri, unsigned timeout_ms, const struct flyt_schema *schema,
                           struct flyt_error *err, struct flyt_store **ret_store);

/* What flyt_store_open does for each kind. `path` is what follows "sqlite://". */
int flyt_sqlite_open(const char *path, unsigned timeout_ms, const struct flyt_schema *schema, struct flyt_error *err,
                     struct flyt_store **ret_store);
__attribute__((visibility("default"))) int flyt_mongodb_open(const char *uri, unsigned timeout_ms,
                                                             const struct flyt_schema *schema, struct flyt_error *err,
                                                             struct flyt_store **ret_store);
/* The same through libflyt-store-mongodb.so; -ENOTSUP where that cannot be loaded. */
int flyt_mongodb_load(const char *uri, unsigned timeout_ms, const struct flyt_schema *schema, struct flyt_error *err,
                      struct flyt_store **ret_store);

/* Fills *err with errno_code and the sentence, and returns result. */
enum flyt_store_result flyt_store_fail(struct flyt_error *err, enum flyt_store_result result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* {"_id", "revision", "_broken"}: what a list has in the place of a document that cannot be understood. NULL: no
 * memory. */
cJSON *flyt_store_broken_document(const char *id, uint64_t revision, const char *why);

#endif
