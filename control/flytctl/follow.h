/*
 * What takes its time, is begun by one call and then followed in a view, so that who follows may come and go:
 * migrations, checkpoints, restores. Their objects have `id`, `phase` ("done" and "failed" are its end) and `round`
 * (where copying has rounds).
 */
#ifndef FLYT_FLYTCTL_FOLLOW_H
#define FLYT_FLYTCTL_FOLLOW_H

#include <cjson/cJSON.h>

#include "control/flytctl/flytctl.h"

struct flyt_following {
    const char *view; /* "migrations" */
    const char *word; /* "migration" */
    const char *id;
    /* One line without its end; any text, it is made safe. */
    void (*put_progress)(FILE *out, const cJSON *row, void *user);
    void *user;
    const char *meanwhile; /* what is said to who ends the following: where it goes on */
};

bool flyt_follow_is_over(const cJSON *row);
/* The object; NULL and *ret_status: it cannot be had, which was said. */
cJSON *flyt_follow_read(struct flyt_ctl *ctl, const struct flyt_following *following, enum flyt_exit *ret_status);
/*
 * Until it is over, showing how far it is: on a terminal in one line that is written over, elsewhere a line for each
 * phase and round, with -o json nothing. FLYT_EXIT_OK: it is over; FLYT_EXIT_PENDING: Ctrl-C has ended the following.
 * *ret_row: the last that was seen, the caller's; NULL: nothing was.
 */
enum flyt_exit flyt_follow(struct flyt_ctl *ctl, const struct flyt_following *following, cJSON **ret_row);

/* For -o json: an object of what was not begun. */
cJSON *flyt_follow_refusal(const char *vm_ip, const char *phase, const char *reason);
void flyt_follow_put_json(struct flyt_ctl *ctl, const cJSON *row);

#endif
