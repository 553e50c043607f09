/* Everything that is said about commands, made of the table of commands. */
#ifndef FLYT_FLYTCTL_HELP_H
#define FLYT_FLYTCTL_HELP_H

#include <stdio.h>

#include "control/flytctl/commands.h"

/* All commands. */
void flyt_help_all(FILE *out);
/* One command. */
void flyt_help_command(FILE *out, const struct flyt_command *command);
/* The commands that begin with this word; false: there are none. */
bool flyt_help_group(FILE *out, const char *word);
/* The manual page's sections OPTIONS and COMMANDS (man(7)). */
void flyt_help_man(FILE *out);
/* The completion for bash. */
void flyt_help_bash(FILE *out);

#endif
