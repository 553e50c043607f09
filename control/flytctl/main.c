/*
 * flytctl: what a person types. One process, one thread, one connection to the cluster manager, which ends with it.
 * Reads the command line by the tables in commands.c, runs one command, and turns its outcome into an exit status.
 */
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/base/json_memory.h"
#include "control/flytctl/commands.h"
#include "control/flytctl/help.h"
#include "control/flytctl/link.h"
#include "control/flytctl/screen.h"
#include "control/flytctl/text.h"
#include "rpc/base/build_name.h"
#include "rpc/base/log.h"

/* The command line could not be understood. name: of a command that there is not; "" where it is something else. */
static enum flyt_exit complain_usage(const struct flyt_arguments *arguments, const struct flyt_error *err)
{
    const char *guess;

    if (err->code != -ENOENT) {
        flyt_complain(FLYT_EXIT_USAGE, "%s (flytctl %s%s--help)", err->text,
                      arguments->command ? arguments->command->name : "", arguments->command ? " " : "");
        return FLYT_EXIT_USAGE;
    }
    bool is_begun;
    flyt_command_find(err->text, &is_begun);
    if (is_begun) {
        flyt_help_group(stderr, err->text);
        return FLYT_EXIT_USAGE;
    }
    guess = flyt_command_guess(err->text);
    if (guess)
        return flyt_complain(FLYT_EXIT_USAGE, "there is no command '%s': is '%s' meant?", err->text, guess);
    return flyt_complain(FLYT_EXIT_USAGE, "there is no command '%s' (flytctl --help lists them)", err->text);
}

/* --help: of the command, of the commands that begin so, or of all. */
static enum flyt_exit put_help(const struct flyt_arguments *arguments, int status, const struct flyt_error *err)
{
    if (arguments->command)
        flyt_help_command(stdout, arguments->command);
    else if (status != -ENOENT || !flyt_help_group(stdout, err->text))
        flyt_help_all(stdout);
    return FLYT_EXIT_OK;
}

static enum flyt_exit check_words(const struct flyt_arguments *arguments)
{
    const struct flyt_command *command = arguments->command;

    if (arguments->word_count < command->words_min)
        return flyt_complain(FLYT_EXIT_USAGE, "%s needs %s (flytctl %s --help)", command->name, command->arguments,
                             command->name);
    if (arguments->word_count > command->words_max)
        return flyt_complain(FLYT_EXIT_USAGE, "'%s' is one argument too many for %s (flytctl %s --help)",
                             arguments->words[command->words_max], command->name, command->name);
    for (unsigned i = 0; i < arguments->word_count; i++)
        if (!*arguments->words[i] || strlen(arguments->words[i]) > FLYT_NAME_BYTES_MAX)
            if (strcmp(command->name, "backup") && strncmp(command->name, "image ", 6)) /* their words are paths */
                return flyt_complain(FLYT_EXIT_USAGE, "an argument is empty or longer than %d bytes",
                                     FLYT_NAME_BYTES_MAX);
    return FLYT_EXIT_OK;
}

static enum flyt_exit run(const struct flyt_arguments *arguments)
{
    const struct flyt_value *output = flyt_option_get(arguments, "output");
    struct flyt_ctl ctl = {.out = stdout, .arguments = arguments, .output = (enum flyt_output)output->number};
    unsigned lines;

    ctl.is_terminal = flyt_screen_size(&ctl.width, &lines);
    enum flyt_exit status = check_words(arguments);
    if (status == FLYT_EXIT_OK)
        status = arguments->command->run(&ctl, arguments);
    flyt_link_close(&ctl);
    return status;
}

/* cJSON leaves out what it finds no memory for. */
static void *allocate_json(size_t bytes)
{
    return flyt_must(malloc(bytes));
}

int main(int argc, char **argv)
{
    struct flyt_arguments arguments;
    struct flyt_error err = {0};
    enum flyt_exit status;

    flyt_log_init("flytctl", FLYT_LOG_WARN);
    setlocale(LC_CTYPE, "C.UTF-8"); /* widths of characters; where there is none, all are 1 wide */
    signal(SIGPIPE, SIG_IGN);
    flyt_json_watch_memory(allocate_json);
    int read =
        flyt_options_read(argc, argv, flyt_common_options, flyt_command_find, flyt_command_options, &arguments, &err);
    if (flyt_option_is(&arguments, "help")) {
        status = put_help(&arguments, read, &err);
    } else if (!read && flyt_option_is(&arguments, "version")) {
        printf("flytctl %s\n", flyt_build_name);
        status = FLYT_EXIT_OK;
    } else if (read) {
        status = complain_usage(&arguments, &err);
    } else if (!arguments.command) {
        flyt_help_all(stderr);
        status = FLYT_EXIT_USAGE;
    } else {
        status = run(&arguments);
    }
    if ((fflush(stdout) || ferror(stdout)) && status == FLYT_EXIT_OK)
        status = flyt_complain(FLYT_EXIT_UNREACHABLE, "standard output cannot be written: %s", strerror(errno));
    return (int)status;
}
