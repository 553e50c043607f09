/*
 * Where the cluster managers are and with what to prove who one is: options, then FLYT_MANAGER, then
 * $XDG_CONFIG_HOME/flyt/flytctl.conf (~/.config), then /etc/flyt/flytctl.conf, then unix:///run/flyt/cluster.sock. The
 * first place that names managers decides about managers, the first that names TLS files about those; where none does,
 * those that `flytctl join` has put into the user's folder.
 */
#ifndef FLYT_FLYTCTL_SETTINGS_H
#define FLYT_FLYTCTL_SETTINGS_H

#include "control/base/config.h"
#include "control/flytctl/flytctl.h"

#define FLYT_CTL_MANAGER_DEFAULT "unix:///run/flyt/cluster.sock"
#define FLYT_CTL_CONF_SYSTEM     "/etc/flyt/flytctl.conf"

struct flyt_ctl_settings {
    struct flyt_strings managers;
    char *authority, *certificate, *key; /* all or none */
};

/* The user's folder, $XDG_CONFIG_HOME/flyt; malloc'ed, NULL where there is none. */
char *flyt_ctl_folder(void);

extern const struct flyt_setting flyt_ctl_settings_table[];

/* Says what is wrong where a file is. On success free with flyt_config_free(flyt_ctl_settings_table, …). */
enum flyt_exit flyt_ctl_settings_read(const struct flyt_arguments *arguments, struct flyt_ctl_settings *ret_settings);

#endif
