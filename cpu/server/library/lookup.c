/* Functions of a library's file, found by their names once. */
#include <dlfcn.h>
#include <stdint.h>

#include "cpu/server/library/library.h"

void *flyt_server_library_function(struct flyt_server_library *library, const char *name)
{
    if (!flyt_server_library_is_loaded(library))
        return NULL;
    struct flyt_server_name *place = &library->names[((uintptr_t)name >> 3) % FLYT_SERVER_NAMES];
    const char *known = NULL;
    if (atomic_compare_exchange_strong(&place->name, &known, name) || known != name) {
        void *function = dlsym(library->file, name);
        if (!known)
            atomic_store_explicit(&place->function, function, memory_order_release);
        return function;
    }
    void *function = atomic_load_explicit(&place->function, memory_order_acquire);
    return function ? function : dlsym(library->file, name); /* another thread is about to write it */
}

void *flyt_server_library_row_function(struct flyt_server_library *library, const struct flyt_server_row *row)
{
    void **place = &library->functions[row - library->rows];
    if (!*place)
        *place = dlsym(library->file, row->name);
    return *place;
}
