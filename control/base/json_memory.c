#include "control/base/json_memory.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

/* cJSON's allocator is the process's, and has no argument to say for whom it works. */
static void *(*allocate_bytes)(size_t bytes) = malloc;
static _Thread_local uint64_t failure_count, taken_count;

static void *allocate_counted(size_t bytes)
{
    void *memory = allocate_bytes(bytes);

    failure_count += !memory;
    return memory;
}

void flyt_json_watch_memory(void *(*allocate)(size_t bytes))
{
    allocate_bytes = allocate ? allocate : malloc;
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = allocate_counted, .free_fn = free});
}

uint64_t flyt_json_failures(void)
{
    return failure_count;
}

bool flyt_json_take_failure(void)
{
    bool has_failed = failure_count != taken_count;

    taken_count = failure_count;
    return has_failed;
}
