#include "control/flytctl/options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES = 40 };

/* What strtod(3) may have taken; it knows other forms too. */
#define DECIMAL "0123456789."

unsigned flyt_word_distance(const char *one, const char *other)
{
    size_t n = strnlen(one, WORD_BYTES), m = strnlen(other, WORD_BYTES);
    unsigned rows[3][WORD_BYTES + 1]; /* the two before, and this one */

    for (size_t j = 0; j <= m; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned best = above[j - 1] + (one[i - 1] != other[j - 1]);
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] && second[j - 2] + 1 < best)
                best = second[j - 2] + 1;
            row[j] = best;
        }
    }
    return rows[n % 3][m];
}

int flyt_option_size(const char *text, uint64_t *ret_bytes)
{
    char *end;

    if (!*text || !strchr("0123456789.", *text))
        return -EINVAL;
    errno = 0;
    double value = strtod(text, &end);
    if (errno || strspn(text, DECIMAL) != (size_t)(end - text))
        return -EINVAL;
    static const char units[] = "KMGT";
    const char *unit = *end ? strchr(units, *end) : &units[2];
    if (!unit || (*end && end[1] && strcmp(end + 1, "iB") && strcmp(end + 1, "B")))
        return -EINVAL;
    value *= (double)(1ull << 10 * (unsigned)(unit - units + 1));
    if (value < 1 || value >= 9.2e18)
        return -EINVAL;
    *ret_bytes = (uint64_t)value;
    return 0;
}

static int bad_value(struct flyt_error *err, const struct flyt_option *option, const char *text, const char *expected)
{
    return flyt_error_set(err, -EINVAL, "--%s takes %s, not '%.60s'", option->name, expected, text);
}

static int read_number(struct flyt_value *value, const char *text, struct flyt_error *err)
{
    const struct flyt_option *option = value->option;
    char range[96], *end;

    snprintf(range, sizeof range, "a number from %" PRIu64 " to %" PRIu64, option->minimum, option->maximum);
    errno = 0;
    value->number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value->number < option->minimum ||
        value->number > option->maximum)
        return bad_value(err, option, text, range);
    return 0;
}

static int read_integer(struct flyt_value *value, const char *text, struct flyt_error *err)
{
    const struct flyt_option *option = value->option;
    int64_t limit = (int64_t)option->maximum;
    const char *digits = text + (*text == '-');
    char range[96], *end;

    snprintf(range, sizeof range, "a number from -%" PRId64 " to %" PRId64, limit, limit);
    errno = 0;
    int64_t number = strtoll(text, &end, 10);
    if (*digits < '0' || *digits > '9' || *end || errno || number < -limit || number > limit)
        return bad_value(err, option, text, range);
    value->number = (uint64_t)number;
    return 0;
}

static int read_seconds(struct flyt_value *value, const char *text, struct flyt_error *err)
{
    const struct flyt_option *option = value->option;
    char range[96], *end;

    snprintf(range, sizeof range, "%g to %g seconds", (double)option->minimum / 1000, (double)option->maximum / 1000);
    errno = 0;
    double seconds = strtod(text, &end);
    if (!*text || strspn(text, DECIMAL) != strlen(text) || *end || errno ||
        !(seconds * 1000 + 0.5 >= (double)option->minimum && seconds * 1000 <= (double)option->maximum))
        return bad_value(err, option, text, range);
    value->number = (uint64_t)(seconds * 1000 + 0.5);
    return 0;
}

static int read_choice(struct flyt_value *value, const char *text, struct flyt_error *err)
{
    char all[200] = "one of";

    for (unsigned i = 0; value->option->choices[i]; i++) {
        if (!strcmp(value->option->choices[i], text)) {
            value->number = i;
            return 0;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s %s", i ? "," : "", value->option->choices[i]);
    }
    return bad_value(err, value->option, text, all);
}

static int put_value(struct flyt_value *value, const char *text, struct flyt_error *err)
{
    const struct flyt_option *option = value->option;

    if (value->is_set && option->kind != FLYT_OPTION_TEXTS && option->kind != FLYT_OPTION_FLAG)
        return flyt_error_set(err, -EINVAL, "--%s is given twice", option->name);
    if (value->text_count == FLYT_OPTION_TEXTS_MAX)
        return flyt_error_set(err, -EINVAL, "--%s is given more than %d times", option->name, FLYT_OPTION_TEXTS_MAX);
    value->is_set = true;
    if (option->kind != FLYT_OPTION_FLAG)
        value->texts[value->text_count++] = text;
    switch (option->kind) {
    case FLYT_OPTION_NUMBER:
        return read_number(value, text, err);
    case FLYT_OPTION_INTEGER:
        return read_integer(value, text, err);
    case FLYT_OPTION_SECONDS:
        return read_seconds(value, text, err);
    case FLYT_OPTION_CHOICE:
        return read_choice(value, text, err);
    case FLYT_OPTION_SIZE:
        if (flyt_option_size(text, &value->number))
            return bad_value(err, option, text, "a size such as 8G (GiB), 512M or 1.5T");
        return 0;
    default:
        return 0;
    }
}

struct reader {
    int argc, at;
    char **argv;
    struct flyt_arguments *arguments;
    struct flyt_error *err;
};

static void add_options(struct flyt_arguments *arguments, const struct flyt_option *options)
{
    for (; options && options->name && arguments->value_count < FLYT_OPTIONS_MAX; options++)
        arguments->values[arguments->value_count++].option = options;
}

static struct flyt_value *find_value(struct flyt_arguments *arguments, const char *name, size_t bytes)
{
    for (unsigned i = 0; i < arguments->value_count; i++) {
        const char *known = arguments->values[i].option->name;
        if (strlen(known) == bytes && !strncmp(known, name, bytes))
            return &arguments->values[i];
    }
    return NULL;
}

static int unknown_option(struct reader *reader, const char *word)
{
    const char *near = NULL;
    char name[WORD_BYTES];
    unsigned best = 3;

    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (unsigned i = 0; i < reader->arguments->value_count; i++) {
        unsigned distance = flyt_word_distance(name, reader->arguments->values[i].option->name);
        if (distance < best && distance < strlen(name)) {
            best = distance;
            near = reader->arguments->values[i].option->name;
        }
    }
    if (near)
        return flyt_error_set(reader->err, -EINVAL, "there is no option '%.60s': is --%s meant?", word, near);
    return flyt_error_set(reader->err, -EINVAL, "there is no option '%.60s'%s", word,
                          reader->arguments->command ? "" : " before a command");
}

/* Takes the value of an option that needs one from the next word. */
static int put_next(struct reader *reader, struct flyt_value *value)
{
    if (value->option->fallback)
        return put_value(value, value->option->fallback, reader->err);
    if (reader->at + 1 >= reader->argc)
        return flyt_error_set(reader->err, -EINVAL, "--%s needs %s", value->option->name, value->option->argument);
    return put_value(value, reader->argv[++reader->at], reader->err);
}

static int read_long(struct reader *reader, const char *word)
{
    const char *equals = strchr(word, '=');
    struct flyt_value *value = find_value(reader->arguments, word + 2, strcspn(word + 2, "="));

    if (!value)
        return unknown_option(reader, word);
    if (value->option->kind == FLYT_OPTION_FLAG)
        return equals ? flyt_error_set(reader->err, -EINVAL, "--%s takes no value", value->option->name)
                      : put_value(value, "", reader->err);
    return equals ? put_value(value, equals + 1, reader->err) : put_next(reader, value);
}

static int read_short(struct reader *reader, const char *word)
{
    for (const char *letter = word + 1; *letter; letter++) {
        struct flyt_value *value = NULL;
        for (unsigned i = 0; i < reader->arguments->value_count; i++)
            if (reader->arguments->values[i].option->letter == *letter)
                value = &reader->arguments->values[i];
        if (!value)
            return flyt_error_set(reader->err, -EINVAL, "there is no option '%.60s'%s", word,
                                  reader->arguments->command ? "" : " before a command");
        if (value->option->kind != FLYT_OPTION_FLAG)
            return letter[1] ? put_value(value, letter + 1, reader->err) : put_next(reader, value);
        put_value(value, "", reader->err);
    }
    return 0;
}

/* A word: a part of the command's name, or an argument. */
static int read_word(struct reader *reader, const char *word, char *name, size_t name_bytes, flyt_find_command_fn find,
                     const struct flyt_option *(*options_of)(const struct flyt_command *command))
{
    struct flyt_arguments *arguments = reader->arguments;
    bool is_begun;

    if (!arguments->command) {
        size_t used = strlen(name);
        snprintf(name + used, name_bytes - used, "%s%s", used ? " " : "", word);
        arguments->command = find(name, &is_begun);
        if (arguments->command)
            add_options(arguments, options_of(arguments->command));
        else if (!is_begun)
            return flyt_error_set(reader->err, -ENOENT, "%s", name);
        return 0;
    }
    if (arguments->word_count == FLYT_WORDS_MAX)
        return flyt_error_set(reader->err, -EINVAL, "'%.60s' is one argument too many", word);
    arguments->words[arguments->word_count++] = word;
    return 0;
}

int flyt_options_read(int argc, char **argv, const struct flyt_option *common, flyt_find_command_fn find,
                      const struct flyt_option *(*options_of)(const struct flyt_command *command),
                      struct flyt_arguments *ret_arguments, struct flyt_error *err)
{
    struct reader reader = {.argc = argc, .argv = argv, .arguments = ret_arguments, .err = err};
    char name[120] = "";
    bool has_ended = false;
    int first = 0;

    memset(ret_arguments, 0, sizeof *ret_arguments);
    add_options(ret_arguments, common);
    /* All is read even behind a mistake, so that --help is seen; the first mistake is told. */
    for (reader.at = 1; reader.at < argc; reader.at++) {
        const char *word = argv[reader.at];
        struct flyt_error later;
        reader.err = first ? &later : err;
        int status = 0;
        if (!has_ended && !strcmp(word, "--"))
            has_ended = true;
        else if (!has_ended && word[0] == '-' && word[1] == '-')
            status = read_long(&reader, word);
        else if (!has_ended && word[0] == '-' && word[1])
            status = read_short(&reader, word);
        else if (first != -ENOENT)
            status = read_word(&reader, word, name, sizeof name, find, options_of);
        first = first ? first : status;
    }
    if (!first && !ret_arguments->command && *name)
        return flyt_error_set(err, -ENOENT, "%s", name);
    return first;
}

const struct flyt_value *flyt_option_get(const struct flyt_arguments *arguments, const char *name)
{
    for (unsigned i = 0; i < arguments->value_count; i++)
        if (!strcmp(arguments->values[i].option->name, name))
            return &arguments->values[i];
    fprintf(stderr, "flytctl: no table has the option --%s\n", name);
    abort();
}

bool flyt_option_is(const struct flyt_arguments *arguments, const char *name)
{
    return flyt_option_get(arguments, name)->is_set;
}
