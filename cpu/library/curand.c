/* What of cuRAND is answered in the client, by hand: the version, and tables that the node's library has. */
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/library/library_call.h"
#include "flyt_lib_curand.h"

extern const struct flyt_lib flyt_lib_curand;

enum { VERSION_MAJOR = 10, VERSION_MINOR = 4, VERSION_PATCH = 0 };

FLYT_LIB_ENTRY int curandGetVersion(int *version)
{
    if (!version)
        return flyt_lib_curand.invalid;
    *version = VERSION_MAJOR * 1000 + VERSION_MINOR * 100 + VERSION_PATCH;
    return flyt_lib_curand.success;
}

FLYT_LIB_ENTRY int curandGetProperty(int type, int *value)
{
    static const int values[] = {VERSION_MAJOR, VERSION_MINOR, VERSION_PATCH};
    if (type < 0 || type > 2 || !value)
        return flyt_lib_curand.invalid;
    *value = values[type];
    return flyt_lib_curand.success;
}

/* ---- tables for quasi-random numbers ---- */

enum { DIMENSIONS = 20000, PART_BYTES = 60000 };

/* What all four calls have: their rows differ in their names alone. */
#define PART struct flyt_args_curandGetDirectionVectors32
_Static_assert(sizeof(PART) == sizeof(struct flyt_args_curandGetDirectionVectors64) &&
                   sizeof(PART) == sizeof(struct flyt_args_curandGetScrambleConstants32) &&
                   sizeof(PART) == sizeof(struct flyt_args_curandGetScrambleConstants64),
               "they have the same");

extern const struct flyt_lib_row flyt_lib_row_curandGetDirectionVectors32, flyt_lib_row_curandGetDirectionVectors64,
    flyt_lib_row_curandGetScrambleConstants32, flyt_lib_row_curandGetScrambleConstants64;

/* Those that the program has asked for, of sets by their numbers; they stay as long as it does. */
static struct {
    pthread_mutex_t mutex;
    void *vectors_32[2], *vectors_64[2], *constants_32, *constants_64;
} tables = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int fetch_part(const struct flyt_lib_row *row, int set, char *table, size_t first, size_t bytes)
{
    PART sent = {.set = set, .first = (uint32_t)first};
    struct flyt_lib_call call = {.row = row, .arguments = &sent};
    flyt_lib_begin(&call);
    sent.part_bytes = flyt_lib_out(&call, table + first, bytes, false);
    return flyt_lib_finish(&call);
}

static int fetch(const struct flyt_lib_row *row, int set, size_t bytes, void **ret_table)
{
    char *table = malloc(bytes);
    int status = table ? flyt_lib_curand.success : flyt_lib_curand.memory;
    for (size_t at = 0; at < bytes && status == flyt_lib_curand.success; at += PART_BYTES)
        status = fetch_part(row, set, table, at, bytes - at < PART_BYTES ? bytes - at : PART_BYTES);
    if (status == flyt_lib_curand.success)
        *ret_table = table;
    else
        free(table);
    return status;
}

/* `kept`: NULL where there is no such set, which the node's library then says. */
static int tell_table(const struct flyt_lib_row *row, int set, size_t bytes, void **kept, void *ret_table)
{
    void *other = NULL, **place = kept ? kept : &other;
    if (!ret_table)
        return flyt_lib_curand.invalid;
    pthread_mutex_lock(&tables.mutex);
    int status = *place ? flyt_lib_curand.success : fetch(row, set, bytes, place);
    if (status == flyt_lib_curand.success && kept)
        memcpy(ret_table, place, sizeof *place);
    pthread_mutex_unlock(&tables.mutex);
    free(other);
    return status == flyt_lib_curand.success && !kept ? flyt_lib_curand.invalid : status;
}

FLYT_LIB_ENTRY int curandGetDirectionVectors32(void *vectors, int set)
{
    return tell_table(&flyt_lib_row_curandGetDirectionVectors32, set, (size_t)DIMENSIONS * 32 * 4,
                      set == 101 || set == 102 ? &tables.vectors_32[set - 101] : NULL, vectors);
}

FLYT_LIB_ENTRY int curandGetDirectionVectors64(void *vectors, int set)
{
    return tell_table(&flyt_lib_row_curandGetDirectionVectors64, set, (size_t)DIMENSIONS * 64 * 8,
                      set == 103 || set == 104 ? &tables.vectors_64[set - 103] : NULL, vectors);
}

FLYT_LIB_ENTRY int curandGetScrambleConstants32(void *constants)
{
    return tell_table(&flyt_lib_row_curandGetScrambleConstants32, 0, (size_t)DIMENSIONS * 4, &tables.constants_32,
                      constants);
}

FLYT_LIB_ENTRY int curandGetScrambleConstants64(void *constants)
{
    return tell_table(&flyt_lib_row_curandGetScrambleConstants64, 0, (size_t)DIMENSIONS * 8, &tables.constants_64,
                      constants);
}
