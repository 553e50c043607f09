/* A call of one of NVIDIA's libraries as a line of text, for those who make it and those who get it
 * (library_recorder.py): its name, and behind each parameter's what it is: bytes, an address, the number of an object.
 */
#ifndef FLYT_LIBRARY_RECORD_H
#define FLYT_LIBRARY_RECORD_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "rpc/library/library.h"

struct record {
    size_t at;
    char text[1 << 14];
};

static void record_word(struct record *record, const char *name, char mark, uint64_t number)
{
    record->at += (size_t)snprintf(record->text + record->at, sizeof record->text - record->at, " %s%c%llx", name, mark,
                                   (unsigned long long)number);
}

static void record_bytes(struct record *record, const char *name, const void *data, size_t bytes)
{
    record->at += (size_t)snprintf(record->text + record->at, sizeof record->text - record->at, " %s=", name);
    for (size_t i = 0; data && i < bytes && record->at + 3 < sizeof record->text; i++)
        record->at += (size_t)sprintf(record->text + record->at, "%02x", ((const unsigned char *)data)[i]);
    if (!data)
        record->at += (size_t)snprintf(record->text + record->at, sizeof record->text - record->at, "none");
}

/* Streams by the order in which they are first seen: the program's and the driver's are others, in the same places. */
static inline void record_stream(struct record *record, const char *name, const void *stream)
{
    enum { STREAMS = 16 };
    static const void *seen[STREAMS];
    static unsigned count;
    unsigned number = 0;
    while (number < count && seen[number] != stream)
        number++;
    if (number == count && count < STREAMS)
        seen[count++] = stream;
    record_word(record, name, '~', number);
}

/* NVIDIA's libraries declare complex numbers with this alignment. */
static inline void record_place(struct record *record, const char *name, const void *data)
{
    if ((uintptr_t)data % 16)
        record_word(record, name, '%', (uintptr_t)data % 16);
}

/* One write at the end of the file that the environment names. */
static void record_end(struct record *record, const char *variable)
{
    const char *path = getenv(variable);
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    record->text[record->at++] = '\n';
    if (file < 0 || write(file, record->text, record->at) != (ssize_t)record->at)
        abort();
    close(file);
}

/* What a parameter of a row has, told by the row's number. */
static inline void fill(void *to, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; to && i < bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        ((unsigned char *)to)[i] = (unsigned char)(seed >> 24);
    }
}

/* Arrays that the server looks at before the library gets them. */
static inline void fill_offsets(void *to, size_t count, int last)
{
    for (size_t i = 0; i < count; i++)
        ((int *)to)[i] = i + 1 == count || (int)i > last ? last : (int)i;
}

static inline void fill_indices(void *to, size_t count, int limit)
{
    for (size_t i = 0; i < count; i++)
        ((int *)to)[i] = (int)(i * 7) % limit;
}

static inline void fill_order(void *to, size_t count, int limit)
{
    for (size_t i = 0; i < count; i++)
        ((int *)to)[i] = limit - 1 - (int)i;
}

static inline int is_filled(const void *data, size_t bytes, uint32_t seed)
{
    unsigned char wanted[4096];
    fill(wanted, bytes, seed);
    return bytes <= sizeof wanted && !memcmp(wanted, data, bytes);
}

#endif
