/*
 * What the program's environment says to NVIDIA's libraries, in the server's own.
 *
 * The driver has threads that may read the environment at any time, and setenv beside getenv reads freed memory. So
 * each variable has its place in the environment before there are threads: from then on nothing but one pointer
 * changes, from one text to another, and no text is ever freed. A reader finds the old one or the new one.
 */
#include "cpu/server/library/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/base/log.h"
#include "rpc/library/environment.h"

/* What a place holds that has no value yet, and how often values may change: their texts stay. */
enum { NAME_BYTES_MAX = 64, CHANGES_MAX = 64 };

struct text {
    struct text *next;
    char line[];
};

static struct {
    char nothing[FLYT_LIB_ENVIRONMENT_NAMES][NAME_BYTES_MAX];
    struct text *texts;
    unsigned change_count;
} self;

extern char **environ;

/* Where the variable is in the environment; NULL: it has no place. */
static char **place_of(unsigned variable)
{
    const char *name = flyt_lib_environment_names[variable];
    size_t length = strlen(name);
    for (char **one = environ; one && *one; one++)
        if (*one == self.nothing[variable] || (!strncmp(*one, name, length) && (*one)[length] == '='))
            return one;
    return NULL;
}

void flyt_server_environment_reserve(void)
{
    for (unsigned i = 0; i < FLYT_LIB_ENVIRONMENT_NAMES; i++) {
        if (place_of(i))
            continue;
        snprintf(self.nothing[i], NAME_BYTES_MAX, "FLYT_ROOM_FOR_%s=", flyt_lib_environment_names[i]);
        putenv(self.nothing[i]);
    }
}

static void put(unsigned variable, const char *value, size_t bytes)
{
    const char *name = flyt_lib_environment_names[variable];
    size_t before = strlen(name) + 1;
    char **place = place_of(variable);
    if (!place) {
        flyt_warn("%s of the program's environment is not told to NVIDIA's libraries: the server has no room", name);
        return;
    }
    if (!strncmp(*place, name, before - 1) && strlen(*place) == before + bytes &&
        !memcmp(*place + before, value, bytes))
        return;
    struct text *text = self.change_count < CHANGES_MAX ? malloc(sizeof *text + before + bytes + 1) : NULL;
    if (!text) {
        flyt_warn("%s of the program's environment is not told to NVIDIA's libraries: it has changed too often", name);
        return;
    }
    snprintf(text->line, before + bytes + 1, "%s=%.*s", name, (int)bytes, value);
    text->next = self.texts;
    self.texts = text;
    self.change_count++;
    __atomic_store_n(place, text->line, __ATOMIC_RELEASE); /* with getenv in the threads of libraries */
}

static int find_name(const char *name, size_t bytes)
{
    for (unsigned i = 0; i < FLYT_LIB_ENVIRONMENT_NAMES; i++)
        if (strlen(flyt_lib_environment_names[i]) == bytes && !memcmp(flyt_lib_environment_names[i], name, bytes))
            return (int)i;
    return -1;
}

void flyt_server_environment_take(const char *lines)
{
    for (const char *end; (end = strchr(lines, '\n')); lines = end + 1) {
        const char *equals = memchr(lines, '=', (size_t)(end - lines));
        int variable = equals ? find_name(lines, (size_t)(equals - lines)) : -1;
        size_t bytes = equals ? (size_t)(end - equals - 1) : 0;
        if (variable >= 0 && flyt_lib_is_value(equals + 1, bytes))
            put((unsigned)variable, equals + 1, bytes);
    }
}
