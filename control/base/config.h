/*
 * Configuration files (libconfig's format): read by a table of settings, so that every unknown name, wrong type and
 * value out of range is an error with file and line, and --help and man pages can be checked against the table.
 */
#ifndef FLYT_CONTROL_CONFIG_H
#define FLYT_CONTROL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/base/error.h"

enum flyt_setting_kind {
    FLYT_SETTING_STRING,  /* char *, malloc'ed */
    FLYT_SETTING_STRINGS, /* struct flyt_strings: a list or a single string */
    FLYT_SETTING_BOOL,    /* bool */
    FLYT_SETTING_NUMBER,  /* uint64_t, minimum–maximum; libconfig integers of any size */
    FLYT_SETTING_SECONDS, /* uint64_t, in ms: a number of seconds, which may have a fraction */
    FLYT_SETTING_SIZE,    /* uint64_t, in bytes: "512M", "4G", "1T", or a number of bytes */
    FLYT_SETTING_CHOICE,  /* int: the index of the string in choices */
    FLYT_SETTING_RANGE,   /* struct flyt_range, minimum–maximum: "FIRST-LAST" */
    FLYT_SETTING_GROUPS,  /* a list of groups: struct flyt_groups, each read by `members` */
};

struct flyt_strings {
    char **items;
    size_t count;
};

struct flyt_range {
    uint64_t first, last; /* last 0: there is none */
    char *where;          /* "FILE:LINE: ", for who finds later that it cannot be; NULL: no file gave it */
};

struct flyt_groups {
    void *items; /* count structures of group_bytes */
    size_t count;
};

/* A row; the table ends with one without `path`. */
struct flyt_setting {
    const char *path; /* "tls.certificate" */
    enum flyt_setting_kind kind;
    size_t offset;                      /* of the field in the structure */
    const char *fallback;               /* as it would be written, NULL: required; "" for an absent string (NULL) */
    uint64_t minimum, maximum;          /* NUMBER, SECONDS (in ms), SIZE; RANGE: of its numbers */
    const char *const *choices;         /* CHOICE, ended by NULL */
    const struct flyt_setting *members; /* GROUPS */
    size_t group_bytes;
    bool is_live;     /* may change on SIGHUP; others need a restart, which is said */
    const char *help; /* one line */
};

/*
 * Reads a file (path NULL: only fallbacks) into *config, a zeroed structure. 0; or a negative errno and in *err one
 * sentence that begins with "FILE:LINE: ". On failure *config is as flyt_config_free leaves it.
 */
int flyt_config_read(const char *path, const struct flyt_setting *settings, void *config, struct flyt_error *err);
/* Frees what the fields own and zeroes them. */
void flyt_config_free(const struct flyt_setting *settings, void *config);
/*
 * After SIGHUP: moves the live settings of *fresh into *config and says (log, info) what changed, and (warn) what else
 * differs and needs a restart. Frees the rest of *fresh.
 */
void flyt_config_apply(const struct flyt_setting *settings, void *config, void *fresh);
/* "8G", "512M", "1.5T" or bytes. 0 or -EINVAL. */
int flyt_size_parse(const char *text, uint64_t *ret_bytes);

#endif
