/*
 * The way to mongodb.c, which is a library of its own: libmongoc and what it needs are loaded only where the store is a
 * MongoDB, and a machine whose store is a file needs none of them.
 */
#include <dlfcn.h>
#include <errno.h>

#include "control/store/store_ops.h"

typedef int (*open_fn)(const char *uri, unsigned timeout_ms, const struct flyt_schema *schema, struct flyt_error *err,
                       struct flyt_store **ret_store);

int flyt_mongodb_load(const char *uri, unsigned timeout_ms, const struct flyt_schema *schema, struct flyt_error *err,
                      struct flyt_store **ret_store)
{
    /* Found by the RUNPATH of the program; stays loaded. */
    void *library = dlopen("libflyt-store-mongodb.so", RTLD_NOW | RTLD_LOCAL);
    open_fn open = library ? (open_fn)dlsym(library, "flyt_mongodb_open") : NULL;

    if (!open)
        return flyt_error_set(err, -ENOTSUP, "a store in MongoDB needs libflyt-store-mongodb.so and libmongoc: %s",
                              dlerror());
    return open(uri, timeout_ms, schema, err, ret_store);
}
