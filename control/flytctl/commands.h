/*
 * The one table of commands, out of which usage, help, the manual page's command section and the completion are made.
 */
#ifndef FLYT_FLYTCTL_COMMANDS_H
#define FLYT_FLYTCTL_COMMANDS_H

#include "control/flytctl/flytctl.h"

/* A row; the table ends with one without name. */
struct flyt_command {
    const char *name;      /* "vm add" */
    const char *arguments; /* "VM_IP", "[SELECTOR]"; "" for none */
    unsigned words_min, words_max;
    const struct flyt_option *options; /* its own; NULL: none */
    enum flyt_exit (*run)(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
    bool may_watch;   /* --watch repeats it */
    const char *help; /* one line, begins with a verb */
    const char *more; /* paragraphs for --help and the manual page; NULL: none */
};

extern const struct flyt_command flyt_commands[];
extern const struct flyt_option flyt_common_options[];

/* Both fit flyt_options_read. */
const struct flyt_command *flyt_command_find(const char *name, bool *ret_is_begun);
const struct flyt_option *flyt_command_options(const struct flyt_command *command);
/* The name that is nearest to a mistyped one; NULL: none is near. */
const char *flyt_command_guess(const char *name);

/* One for each family; each file says what it does. */
enum flyt_exit flyt_run_view(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_events(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_top(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_vm_set(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_vm_remove(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_tenant_set(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_suspend(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_resize(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_migrate(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_checkpoint(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_restore(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_schedule(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_gpu_set(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_allocation(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_fence(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_adopt(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_join_token(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_join(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_admit(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_revoke(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_session_show(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_vm_device(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_session_kill(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_explain(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_doctor(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_backup(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_image_show(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_image_verify(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_coredump_list(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_coredump_remove(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_version(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);
enum flyt_exit flyt_run_help(struct flyt_ctl *ctl, const struct flyt_arguments *arguments);

#endif
