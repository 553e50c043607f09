/* Functions of a library's file: all that its rows name are found when it is loaded, by the thread that loads it. Later
 * nobody asks the loader, whose lock is held as long as another library is being opened. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/library/library.h"

bool flyt_server_library_look_up(struct flyt_server_library *library, void *file)
{
    library->functions = calloc(library->row_count + 1, sizeof *library->functions);
    library->found = calloc(library->symbol_count + 1, sizeof *library->found);
    if (!library->functions || !library->found) {
        free(library->functions);
        free(library->found);
        library->functions = library->found = NULL;
        return false;
    }
    for (unsigned i = 0; i < library->row_count; i++)
        library->functions[i] = dlsym(file, library->rows[i].name);
    for (unsigned i = 0; i < library->symbol_count; i++)
        library->found[i] = dlsym(file, library->symbols[i]);
    return true;
}

static void *search(const struct flyt_server_library *library, const char *name)
{
    unsigned low = 0, high = library->symbol_count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        int order = strcmp(library->symbols[middle], name);
        if (!order)
            return library->found[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

void *flyt_server_library_function(struct flyt_server_library *library, const char *name)
{
    if (!flyt_server_library_is_loaded(library))
        return NULL;
    struct flyt_server_name *place = &library->names[((uintptr_t)name >> 3) % FLYT_SERVER_NAMES];
    const char *known = NULL;
    if (atomic_compare_exchange_strong(&place->name, &known, name) || known != name) {
        void *function = search(library, name);
        if (!known)
            atomic_store_explicit(&place->function, function, memory_order_release);
        return function;
    }
    void *function = atomic_load_explicit(&place->function, memory_order_acquire);
    return function ? function : search(library, name); /* another thread is about to write it */
}

void *flyt_server_library_row_function(struct flyt_server_library *library, const struct flyt_server_row *row)
{
    return library->functions[row - library->rows];
}
