/* Moving a VM's programs to another GPU, of their node or of another one, while they run, as migrate, drain and resize
 * do it. */
#ifndef FLYT_FLYTCTL_MIGRATE_H
#define FLYT_FLYTCTL_MIGRATE_H

#include <cjson/cJSON.h>

#include "control/flytctl/flytctl.h"

/*
 * Asks for it and, unless is_detached, shows how far it is until it is over. FLYT_EXIT_OK: it is done (is_detached: it
 * has begun); FLYT_EXIT_PENDING: the user does not wait any longer, and it goes on. *ret_row is an object for -o json,
 * never NULL, the caller's: that of the view "migrations", or vm_ip, phase "refused" and reason. What is said of a
 * failure goes to stderr, unless is_quiet.
 */
enum flyt_exit flyt_migrate(struct flyt_ctl *ctl, const flyt_migrate_args *args, bool is_detached, bool is_quiet,
                            cJSON **ret_row);

/* What is left on a GPU or a node (rows of allocations) is moved, one VM after the other, and told; `how` says
 * everything but vm and target. FLYT_EXIT_OK: all has moved. */
enum flyt_exit flyt_migrate_all(struct flyt_ctl *ctl, const flyt_migrate_args *how, const cJSON *allocations);

/* "migrate", "drain": one line about such an object; stdout. */
void flyt_migrate_put_end(struct flyt_ctl *ctl, const cJSON *row);

/* Of the options --rounds, --stop-timeout, --timeout, --rest, --streams, --pack; vm and target are empty. */
flyt_migrate_args flyt_migrate_how(const struct flyt_arguments *arguments);

#endif
