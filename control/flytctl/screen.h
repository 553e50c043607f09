/*
 * Something shown again and again: on a terminal in place, cut to its lines, until q is typed or a signal comes (the
 * terminal is as it was before); elsewhere one after another.
 */
#ifndef FLYT_FLYTCTL_SCREEN_H
#define FLYT_FLYTCTL_SCREEN_H

#include "control/flytctl/flytctl.h"

/*
 * Calls show(ctl, user), which prints to ctl->out, every delay_ms, `count` times (0: until it is ended). What it says
 * on stderr stays readable. Returns the last show's status; FLYT_EXIT_OK where q or a signal has ended it.
 */
enum flyt_exit flyt_screen_run(struct flyt_ctl *ctl, uint64_t delay_ms, uint64_t count,
                               enum flyt_exit (*show)(struct flyt_ctl *ctl, void *user), void *user);

/* Columns and lines of the terminal that stdout is; false where it is none. */
bool flyt_screen_size(unsigned *ret_columns, unsigned *ret_lines);

#endif
