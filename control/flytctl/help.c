#include "control/flytctl/help.h"

#include <string.h>

#include "control/flytctl/text.h"

static void put_usage(FILE *out, const struct flyt_command *command)
{
    fprintf(out, "%s%s%s%s%s", command->name, *command->arguments ? " " : "", command->arguments,
            command->options ? " [OPTION…]" : "", "");
}

/* "-o, --output FORMAT", "    --watch[=S]" */
static void option_head(char *text, size_t bytes, const struct flyt_option *option)
{
    char letter[8] = "    ";

    if (option->letter)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(text, bytes,
             option->fallback   ? "%s--%s[=%s]"
             : option->argument ? "%s--%s %s"
                                : "%s--%s",
             letter, option->name, option->argument);
}

static void put_options(FILE *out, const struct flyt_option *options)
{
    for (; options && options->name; options++) {
        char head[80];
        option_head(head, sizeof head, options);
        fprintf(out, "  %-26s %s\n", head, options->help);
    }
}

/* Paragraphs, folded at 100 columns. */
static void put_folded(FILE *out, const char *text)
{
    unsigned column = 0;

    while (*text) {
        size_t bytes = strcspn(text, " ");
        if (column && column + 1 + bytes > 100) {
            fputc('\n', out);
            column = 0;
        }
        fprintf(out, "%s%.*s", column ? " " : "", (int)bytes, text);
        column += (unsigned)bytes + (column ? 1 : 0);
        text += bytes + (text[bytes] == ' ');
    }
    fputc('\n', out);
}

void flyt_help_all(FILE *out)
{
    fputs("usage: flytctl [OPTION…] COMMAND [ARGUMENT…]\n\n"
          "Shows and changes what a Flyt cluster gives to virtual machines.\n\nCommands:\n",
          out);
    for (const struct flyt_command *command = flyt_commands; command->name; command++) {
        char head[64];
        snprintf(head, sizeof head, "%s %s", command->name, command->arguments);
        fprintf(out, "  %-26s %s\n", head, command->help);
    }
    fputs("\nOptions, anywhere on the line:\n", out);
    put_options(out, flyt_common_options);
    fputs("\n`flytctl help COMMAND` and `flytctl COMMAND --help` tell more. A VM is its vm_ip or a unique name, a GPU\n"
          "NODE:INDEX or the beginning of its UUID, an id the beginning of its 16 digits; 8G is 8 GiB.\n\n"
          "Exit status: 0 done; 1 refused; 2 usage; 3 not found; 4 not reachable or no answer in time; 5 not allowed;\n"
          "6 recorded but not acknowledged yet, or SMs that were taken away are still draining (resize).\n",
          out);
}

void flyt_help_command(FILE *out, const struct flyt_command *command)
{
    fputs("usage: flytctl ", out);
    put_usage(out, command);
    fprintf(out, "\n\n%c%s.\n", command->help[0] - 'a' + 'A', command->help + 1);
    if (command->more)
        put_folded(out, command->more);
    if (command->options) {
        fputs("\nOptions:\n", out);
        put_options(out, command->options);
    }
    fputs("\nOptions of all commands:\n", out);
    put_options(out, flyt_common_options);
}

bool flyt_help_group(FILE *out, const char *word)
{
    size_t bytes = strlen(word);
    bool is_any = false;

    for (const struct flyt_command *command = flyt_commands; command->name; command++) {
        if (strncmp(command->name, word, bytes) || command->name[bytes] != ' ')
            continue;
        fputs(is_any ? "       flytctl " : "usage: flytctl ", out);
        put_usage(out, command);
        fputc('\n', out);
        is_any = true;
    }
    return is_any;
}

/* ---- the manual page ---- */

/* Text for troff: hyphens as they are typed, backslashes and leading dots kept. */
static void put_man_text(FILE *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else if (!strncmp(text, "…", 3))
            fputs("\\&...", out), text += 2;
        else
            fputc(*text, out);
    }
}

static void put_man_options(FILE *out, const struct flyt_option *options)
{
    for (; options && options->name; options++) {
        char head[80];
        option_head(head, sizeof head, options);
        fputs(".TP\n.B \"", out);
        put_man_text(out, head + strspn(head, " "));
        fputs("\"\n", out);
        put_man_text(out, options->help);
        fputs(".\n", out);
    }
}

void flyt_help_man(FILE *out)
{
    fputs(".SH OPTIONS\nThey may stand anywhere on the line.\n", out);
    put_man_options(out, flyt_common_options);
    fputs(".SH COMMANDS\n", out);
    for (const struct flyt_command *command = flyt_commands; command->name; command++) {
        fputs(".SS \"", out);
        put_man_text(out, command->name);
        fputs(*command->arguments ? " " : "", out);
        put_man_text(out, command->arguments);
        fputs(command->options ? " [\\-\\-OPTION]\"\n" : "\"\n", out);
        fputc(command->help[0] - 'a' + 'A', out);
        put_man_text(out, command->help + 1);
        fputs(".\n", out);
        if (command->more) {
            put_man_text(out, command->more);
            fputc('\n', out);
        }
        put_man_options(out, command->options);
    }
}

/* ---- completion ---- */

static void put_option_words(FILE *out, const struct flyt_option *options)
{
    for (; options && options->name; options++)
        fprintf(out, " --%s", options->name);
}

/* The words that may follow after a first word, or "" for the first ones. */
static void put_words(FILE *out, const char *first)
{
    size_t bytes = strlen(first);
    char last[40] = "";

    for (const struct flyt_command *command = flyt_commands; command->name; command++) {
        const char *word = command->name;
        if (bytes) {
            if (strncmp(word, first, bytes) || word[bytes] != ' ')
                continue;
            word += bytes + 1;
        }
        size_t length = strcspn(word, " ");
        if (strlen(last) == length && !strncmp(last, word, length))
            continue;
        snprintf(last, sizeof last, "%.*s", (int)length, word);
        fprintf(out, " %s", last);
    }
}

static void put_choices(FILE *out, const struct flyt_option *options)
{
    for (; options && options->name; options++) {
        if (options->kind != FLYT_OPTION_CHOICE)
            continue;
        fprintf(out, "    --%s", options->name);
        if (options->letter)
            fprintf(out, " | -%c", options->letter);
        fputs(") words=\"", out);
        for (unsigned i = 0; options->choices[i]; i++)
            fprintf(out, "%s%s", i ? " " : "", options->choices[i]);
        fputs("\" ;;\n", out);
    }
}

/* What follows an option that takes a word of its own. */
static void put_takers(FILE *out, const struct flyt_option *options, bool *is_first)
{
    for (; options && options->name; options++) {
        if (options->kind == FLYT_OPTION_FLAG || options->fallback)
            continue;
        fprintf(out, "%s--%s", *is_first ? "" : " | ", options->name);
        if (options->letter)
            fprintf(out, " | -%c", options->letter);
        *is_first = false;
    }
}

void flyt_help_bash(FILE *out)
{
    bool is_first = true;

    fputs("# bash completion for flytctl; made by `make man` out of the table of commands\n\n"
          "_flytctl() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD-1]} words=\n"
          "    local first= command= i skip=\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        [ -n \"$skip\" ] && { skip=; continue; }\n"
          "        case ${COMP_WORDS[i]} in\n        ",
          out);
    put_takers(out, flyt_common_options, &is_first);
    for (const struct flyt_command *command = flyt_commands; command->name; command++)
        put_takers(out, command->options, &is_first);
    fputs(") skip=1 ;;\n"
          "        -*) ;;\n"
          "        *)\n"
          "            if [ -z \"$first\" ]; then first=${COMP_WORDS[i]} command=$first\n"
          "            elif [ \"$command\" = \"$first\" ]; then command=\"$first ${COMP_WORDS[i]}\"; fi ;;\n"
          "        esac\n"
          "    done\n"
          "    case $last in\n"
          "    --authority | --certificate | --key | --config) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n",
          out);
    put_choices(out, flyt_common_options);
    put_choices(out, flyt_command_find("vm add", &(bool){false})->options);
    put_choices(out, flyt_command_find("resize", &(bool){false})->options);
    put_choices(out, flyt_command_find("gpu set", &(bool){false})->options);
    put_choices(out, flyt_command_find("help", &(bool){false})->options);
    fputs("    esac\n"
          "    [ -n \"$words\" ] && { COMPREPLY=($(compgen -W \"$words\" -- \"$word\")); return; }\n"
          "    case $command in\n    '') words=\"",
          out);
    put_words(out, "");
    fputs("\" ;;\n", out);
    char last[40] = "";
    for (const struct flyt_command *command = flyt_commands; command->name; command++) {
        size_t length = strcspn(command->name, " ");
        if (command->name[length] && strncmp(last, command->name, sizeof last - 1)) {
            char group[40];
            snprintf(group, sizeof group, "%.*s", (int)length, command->name);
            if (strcmp(group, last)) {
                fprintf(out, "    %s) words=\"", group);
                put_words(out, group);
                fputs("\" ;;\n", out);
                snprintf(last, sizeof last, "%s", group);
            }
        }
        /* Behind a command of one word, command is that word and its first argument. */
        if (command->name[length])
            fprintf(out, "    '%s') words=\"", command->name);
        else
            fprintf(out, "    '%s' | '%s '*) words=\"", command->name, command->name);
        put_option_words(out, command->options);
        fputs("\" ;;\n", out);
    }
    fputs("    esac\n"
          "    case $word in -*) words+=\"",
          out);
    put_option_words(out, flyt_common_options);
    fputs("\" ;; esac\n"
          "    case $command in backup | 'image '*) COMPREPLY=($(compgen -f -- \"$word\")) && return ;; esac\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
          "}\n"
          "complete -F _flytctl flytctl\n",
          out);
}

/* ---- help ---- */

enum flyt_exit flyt_run_help(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *form = flyt_option_get(arguments, "form");
    char name[120] = "";
    bool is_begun;

    for (unsigned i = 0; i < arguments->word_count; i++) {
        size_t used = strlen(name);
        snprintf(name + used, sizeof name - used, "%s%s", i ? " " : "", arguments->words[i]);
    }
    if (form->is_set && !strcmp(form->texts[0], "man")) {
        flyt_help_man(ctl->out);
    } else if (form->is_set) {
        flyt_help_bash(ctl->out);
    } else if (!*name) {
        flyt_help_all(ctl->out);
    } else {
        const struct flyt_command *command = flyt_command_find(name, &is_begun);
        if (command)
            flyt_help_command(ctl->out, command);
        else if (!is_begun || !flyt_help_group(ctl->out, name))
            return flyt_complain(FLYT_EXIT_USAGE, "there is no command %s", name);
    }
    return FLYT_EXIT_OK;
}
