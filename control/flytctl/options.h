/*
 * Options and arguments by tables: a command's own options and those that all have, anywhere on the command line,
 * --name=VALUE, --name VALUE, -xVALUE, -x VALUE; `--` ends them. Values are checked here, so that commands only read
 * them. Pure functions; what they return points into argv.
 */
#ifndef FLYT_FLYTCTL_OPTIONS_H
#define FLYT_FLYTCTL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/base/error.h"

enum flyt_option_kind {
    FLYT_OPTION_FLAG,
    FLYT_OPTION_TEXT,
    FLYT_OPTION_TEXTS,   /* may be repeated; at most FLYT_OPTION_TEXTS_MAX */
    FLYT_OPTION_NUMBER,  /* minimum–maximum */
    FLYT_OPTION_INTEGER, /* -maximum–maximum; number is its two's complement */
    FLYT_OPTION_SIZE,    /* bytes; "8G", "512M", a bare number is GiB */
    FLYT_OPTION_SECONDS, /* in ms; minimum–maximum are ms */
    FLYT_OPTION_CHOICE,  /* one of choices; number is its index */
};

enum { FLYT_OPTION_TEXTS_MAX = 64, FLYT_OPTIONS_MAX = 40, FLYT_WORDS_MAX = 17 };

/* A row; a table ends with one without name. */
struct flyt_option {
    const char *name; /* "memory" for --memory */
    enum flyt_option_kind kind;
    char letter;          /* 0: none */
    const char *argument; /* "SIZE", as help shows it; NULL for flags */
    const char *fallback; /* value where the option stands without one (--watch); NULL: it needs one */
    uint64_t minimum, maximum;
    const char *const *choices; /* ended by NULL */
    const char *help;
};

struct flyt_value {
    const struct flyt_option *option;
    bool is_set;
    uint64_t number;
    unsigned text_count;
    const char *texts[FLYT_OPTION_TEXTS_MAX];
};

struct flyt_command;

struct flyt_arguments {
    const struct flyt_command *command; /* NULL: none was named */
    const char *words[FLYT_WORDS_MAX];  /* what follows the command's name */
    unsigned word_count;
    struct flyt_value values[FLYT_OPTIONS_MAX];
    unsigned value_count;
};

/* Finds a command by the words so far ("vm", then "vm add"): the command; or NULL, and whether more words may make one
 * of it. */
typedef const struct flyt_command *(*flyt_find_command_fn)(const char *name, bool *ret_is_begun);

/*
 * Reads argv[1…]. `options_of` gives a command's own table (NULL: none). 0, or -EINVAL and a sentence that names the
 * word and, where one is near, what may have been meant; the arguments are then as far as they were read, so that
 * --help is found all the same.
 */
int flyt_options_read(int argc, char **argv, const struct flyt_option *common, flyt_find_command_fn find,
                      const struct flyt_option *(*options_of)(const struct flyt_command *command),
                      struct flyt_arguments *ret_arguments, struct flyt_error *err);

/* The value of an option that the command has; its is_set says whether it was given. Never NULL: an option that no
 * table has is a mistake in flytctl and ends it. */
const struct flyt_value *flyt_option_get(const struct flyt_arguments *arguments, const char *name);
bool flyt_option_is(const struct flyt_arguments *arguments, const char *name);

/* "8G", "512M", "1.5T", "8" (GiB); at least 1 byte, less than 2^63. 0 or -EINVAL. */
int flyt_option_size(const char *text, uint64_t *ret_bytes);

/* How many letters must be changed, put in, left out or swapped to make one word of the other. */
unsigned flyt_word_distance(const char *one, const char *other);

#endif
