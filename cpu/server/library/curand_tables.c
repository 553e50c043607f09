/* cuRAND's tables for quasi-random numbers, which its library has in host memory: a part of one at a time. */
#include <string.h>

#include "cpu/server/library/library.h"
#include "flyt_lib_curand.h"

/* Each has so many dimensions. */
enum { DIMENSIONS = 20000 };

/* What all four calls have: their rows differ in their names alone. */
#define PART struct flyt_args_curandGetDirectionVectors32
_Static_assert(sizeof(PART) == sizeof(struct flyt_args_curandGetDirectionVectors64) &&
                   sizeof(PART) == sizeof(struct flyt_args_curandGetScrambleConstants32) &&
                   sizeof(PART) == sizeof(struct flyt_args_curandGetScrambleConstants64),
               "they have the same");

/* Bytes from the first on, of a table of so many. */
static int tell(struct flyt_libcall *call, int status, const void *table, size_t table_bytes)
{
    const PART *sent = (const void *)call->arguments;
    if (status != call->library->success)
        return status;
    if (!table || sent->first > table_bytes || sent->part_bytes > table_bytes - sent->first)
        return call->library->invalid;
    void *to = flyt_libcall_out(call, sent->part_bytes, sent->part_bytes);
    if (to)
        memcpy(to, (const char *)table + sent->first, sent->part_bytes);
    return call->status;
}

#define VECTORS(name, number_bytes)                                                                                    \
    int flyt_server_run_##name(struct flyt_libcall *call);                                                             \
    int flyt_server_run_##name(struct flyt_libcall *call)                                                              \
    {                                                                                                                  \
        const void *table = NULL;                                                                                      \
        int status = ((int (*)(const void **, int))call->function)(&table, ((const PART *)call->arguments)->set);      \
        return tell(call, status, table, (size_t)DIMENSIONS * 8 * (number_bytes) * (number_bytes));                    \
    }
#define CONSTANTS(name, number_bytes)                                                                                  \
    int flyt_server_run_##name(struct flyt_libcall *call);                                                             \
    int flyt_server_run_##name(struct flyt_libcall *call)                                                              \
    {                                                                                                                  \
        const void *table = NULL;                                                                                      \
        int status = ((int (*)(const void **))call->function)(&table);                                                 \
        return tell(call, status, table, (size_t)DIMENSIONS * (number_bytes));                                         \
    }
VECTORS(curandGetDirectionVectors32, 4)
VECTORS(curandGetDirectionVectors64, 8)
CONSTANTS(curandGetScrambleConstants32, 4)
CONSTANTS(curandGetScrambleConstants64, 8)
