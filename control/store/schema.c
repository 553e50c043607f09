/* The store's schema: what each version changed. A new version is a further step here and FLYT_STORE_SCHEMA + 1. */
#include "control/store/store_ops.h"

static const struct flyt_schema_step steps[] = {
    {.to = 1,
     .sql = "CREATE TABLE documents (collection TEXT NOT NULL, id TEXT NOT NULL, revision INTEGER NOT NULL DEFAULT 0,"
            " body TEXT NOT NULL, PRIMARY KEY (collection, id))"},
};

_Static_assert(sizeof steps / sizeof *steps == FLYT_STORE_SCHEMA, "each version has its step");

const struct flyt_schema flyt_schema = {steps, sizeof steps / sizeof *steps};

unsigned flyt_schema_version(const struct flyt_schema *schema)
{
    return schema->steps[schema->step_count - 1].to;
}
