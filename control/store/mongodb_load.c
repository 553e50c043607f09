/*
 * The way to mongodb.c, which is a library of its own: libmongoc and what it needs are loaded only where the store is a
 * MongoDB, and a machine whose store is a file needs none of them.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "control/store/store_ops.h"

typedef int (*open_fn)(const char *uri, unsigned timeout_ms, const struct flyt_schema *schema, struct flyt_error *err,
                       struct flyt_store **ret_store);

/* Beside the program (a build's bin or a bundle's, an installed one, a test's), else where the system looks. Not by
 * RUNPATH: under a sanitizer dlopen has another caller. */
static void *load(void)
{
    static const char *const folders[] = {"../lib", "../lib/flyt", "../../lib"};
    char path[PATH_MAX], program[PATH_MAX - 64];
    ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);

    if (bytes > 0) {
        program[bytes] = 0;
        *strrchr(program, '/') = 0;
    }
    for (unsigned i = 0; bytes > 0 && i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s/%s/libflyt-store-mongodb.so", program, folders[i]);
        void *library = access(path, F_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
        if (library)
            return library;
    }
    return dlopen("libflyt-store-mongodb.so", RTLD_NOW | RTLD_LOCAL);
}

int flyt_mongodb_load(const char *uri, unsigned timeout_ms, const struct flyt_schema *schema, struct flyt_error *err,
                      struct flyt_store **ret_store)
{
    void *library = load(); /* stays loaded */
    open_fn open = library ? (open_fn)dlsym(library, "flyt_mongodb_open") : NULL;

    if (!open)
        return flyt_error_set(err, -ENOTSUP, "a store in MongoDB needs libflyt-store-mongodb.so and libmongoc: %s",
                              dlerror());
    return open(uri, timeout_ms, schema, err, ret_store);
}
