/*
 * What a run of flytctl has: its options, where it prints, and its connection. One thread; nothing here is for daemons.
 * Every function that returns an enum flyt_exit has said on stderr why, where that is not FLYT_EXIT_OK.
 */
#ifndef FLYT_FLYTCTL_H
#define FLYT_FLYTCTL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "control.h"
#include "control/flytctl/options.h"

/* Exit statuses, documented in --help and flytctl(1). */
enum flyt_exit {
    FLYT_EXIT_OK = 0,
    FLYT_EXIT_REFUSED = 1,
    FLYT_EXIT_USAGE = 2,
    FLYT_EXIT_NOT_FOUND = 3,
    FLYT_EXIT_UNREACHABLE = 4,
    FLYT_EXIT_DENIED = 5,
    FLYT_EXIT_PENDING = 6,
};

enum flyt_output { FLYT_OUTPUT_TABLE, FLYT_OUTPUT_WIDE, FLYT_OUTPUT_JSON };

struct flyt_link;

struct flyt_ctl {
    FILE *out;        /* stdout, or a screen's buffer */
    bool is_terminal; /* out goes to one, in the end */
    unsigned width;   /* of the terminal in columns; 0: no limit */
    enum flyt_output output;
    const struct flyt_arguments *arguments;
    struct flyt_link *link; /* made at the first call */
};

/* One line "flytctl: …" on stderr; control characters in it are shown, not sent. Returns status. */
enum flyt_exit flyt_complain(enum flyt_exit status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* What a status of the protocol means for a script, and its name in JSON ("no_capacity"). */
enum flyt_exit flyt_exit_of(flyt_status status);
const char *flyt_status_name(flyt_status status);

/*
 * Tells how a command ended that answers with an outcome only: in JSON {"status": …, "text": …}, else `done` (one
 * sentence) where it is done and the outcome's text on stderr where it is not. Returns the exit status.
 */
enum flyt_exit flyt_finish(struct flyt_ctl *ctl, const flyt_outcome *outcome, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
