#include "control/base/config.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <libconfig.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rpc/base/log.h"

enum { PATH_BYTES = 128 };

int flyt_size_parse(const char *text, uint64_t *ret_bytes)
{
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (errno || end == text || !(value >= 0))
        return -EINVAL;
    static const char units[] = "KMGT";
    unsigned shift = 0;
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit)
        shift = 10 * (unsigned)(unit - units + 1), end++;
    if (*end)
        return -EINVAL;
    value *= (double)(1ull << shift);
    if (value >= 9.2e18)
        return -EINVAL;
    *ret_bytes = (uint64_t)value;
    return 0;
}

/* Where a value stands: "FILE:LINE: ", or nothing for one that no file gave. */
static int complain(struct flyt_error *err, const config_setting_t *value, const char *format, const char *path,
                    const char *what)
{
    char sentence[400];
    snprintf(sentence, sizeof sentence, format, path, what);
    if (!value)
        return flyt_error_set(err, -EINVAL, "%s", sentence);
    const char *file = config_setting_source_file(value);
    return flyt_error_set(err, -EINVAL, "%s:%u: %s", file ? file : "configuration", config_setting_source_line(value),
                          sentence);
}

static void *field(const struct flyt_setting *setting, void *config)
{
    return (char *)config + setting->offset;
}

static int put_string(const struct flyt_setting *setting, const char *text, void *config)
{
    char *copy = *text ? strdup(text) : NULL;
    if (*text && !copy)
        return -ENOMEM;
    *(char **)field(setting, config) = copy;
    return 0;
}

static int add_string(struct flyt_strings *strings, const char *text)
{
    char **items = reallocarray(strings->items, strings->count + 1, sizeof *items);
    if (!items)
        return -ENOMEM;
    strings->items = items;
    items[strings->count] = strdup(text);
    if (!items[strings->count])
        return -ENOMEM;
    strings->count++;
    return 0;
}

static int put_choice(const struct flyt_setting *setting, const config_setting_t *value, const char *text, void *config,
                      struct flyt_error *err)
{
    char all[256] = "";
    for (int i = 0; setting->choices[i]; i++) {
        if (strcmp(setting->choices[i], text) == 0) {
            *(int *)field(setting, config) = i;
            return 0;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s\"%s\"", i ? ", " : "", setting->choices[i]);
    }
    return complain(err, value, "%s must be one of %s", setting->path, all);
}

static int put_number(const struct flyt_setting *setting, const config_setting_t *value, uint64_t number, void *config,
                      struct flyt_error *err)
{
    if (number < setting->minimum || number > setting->maximum) {
        char range[128];
        if (setting->kind == FLYT_SETTING_SECONDS)
            snprintf(range, sizeof range, "%g to %g seconds", (double)setting->minimum / 1000,
                     (double)setting->maximum / 1000);
        else
            snprintf(range, sizeof range, "%" PRIu64 " to %" PRIu64 "%s", setting->minimum, setting->maximum,
                     setting->kind == FLYT_SETTING_SIZE ? " bytes" : "");
        return complain(err, value, "%s must be from %s", setting->path, range);
    }
    *(uint64_t *)field(setting, config) = number;
    return 0;
}

static const char *kind_name(const struct flyt_setting *setting)
{
    switch (setting->kind) {
    case FLYT_SETTING_STRING:
    case FLYT_SETTING_CHOICE:
        return "a string in quotes";
    case FLYT_SETTING_STRINGS:
        return "a string or a list of strings";
    case FLYT_SETTING_BOOL:
        return "true or false";
    case FLYT_SETTING_NUMBER:
        return "a whole number";
    case FLYT_SETTING_SECONDS:
        return "a number of seconds";
    case FLYT_SETTING_SIZE:
        return "a size such as \"8G\", or a number of bytes";
    case FLYT_SETTING_RANGE:
        return "a range of numbers in quotes, \"FIRST-LAST\"";
    case FLYT_SETTING_GROUPS:
        return "a list of groups: ( { … }, … )";
    }
    return "";
}

static int put_range(const struct flyt_setting *setting, const config_setting_t *value, const char *text, void *config,
                     struct flyt_error *err)
{
    struct flyt_range *range = field(setting, config);
    char bounds[128], *where = NULL, *end;
    if (!*text)
        return 0;
    errno = 0;
    uint64_t first = strtoull(text, &end, 10), last = 0;
    bool is_range = isdigit((unsigned char)*text) && *end == '-' && isdigit((unsigned char)end[1]);
    if (is_range)
        last = strtoull(end + 1, &end, 10);
    snprintf(bounds, sizeof bounds, "%" PRIu64 " to %" PRIu64, setting->minimum, setting->maximum);
    if (!is_range || *end || errno)
        return complain(err, value, "%s must be %s", setting->path, kind_name(setting));
    if (first < setting->minimum || last > setting->maximum)
        return complain(err, value, "the numbers of %s must be from %s", setting->path, bounds);
    if (first > last)
        return complain(err, value, "%s ends before it begins: %s", setting->path, text);
    const char *file = value ? config_setting_source_file(value) : NULL;
    if (value &&
        asprintf(&where, "%s:%u: ", file ? file : "configuration", (unsigned)config_setting_source_line(value)) < 0)
        return -ENOMEM;
    free(range->where);
    *range = (struct flyt_range){first, last, where};
    return 0;
}

/* A value in the form in which a file would have it. */
static int put_text(const struct flyt_setting *setting, const config_setting_t *value, const char *text, void *config,
                    struct flyt_error *err)
{
    uint64_t number;
    char *end;
    switch (setting->kind) {
    case FLYT_SETTING_STRING:
        return put_string(setting, text, config);
    case FLYT_SETTING_STRINGS:
        return *text ? add_string(field(setting, config), text) : 0;
    case FLYT_SETTING_CHOICE:
        return put_choice(setting, value, text, config, err);
    case FLYT_SETTING_BOOL:
        *(bool *)field(setting, config) = strcmp(text, "true") == 0;
        return 0;
    case FLYT_SETTING_SIZE:
        if (flyt_size_parse(text, &number) != 0)
            return complain(err, value, "%s must be a size such as \"512M\" or \"8G\", not \"%s\"", setting->path,
                            text);
        return put_number(setting, value, number, config, err);
    case FLYT_SETTING_SECONDS:
        return put_number(setting, value, (uint64_t)(strtod(text, &end) * 1000 + 0.5), config, err);
    case FLYT_SETTING_NUMBER:
        return put_number(setting, value, strtoull(text, &end, 0), config, err);
    case FLYT_SETTING_RANGE:
        return put_range(setting, value, text, config, err);
    case FLYT_SETTING_GROUPS:
        return 0;
    }
    return -EINVAL;
}

static int read_group(config_setting_t *group, const char *prefix, const struct flyt_setting *settings, void *config,
                      struct flyt_error *err);
static void free_fields(const struct flyt_setting *settings, void *config);

static int read_strings(const struct flyt_setting *setting, config_setting_t *value, void *config,
                        struct flyt_error *err)
{
    int count = config_setting_length(value);
    for (int i = 0; i < count; i++) {
        const char *text = config_setting_get_string_elem(value, i);
        if (!text)
            return complain(err, value, "%s must be %s", setting->path, kind_name(setting));
        int status = add_string(field(setting, config), text);
        if (status)
            return status;
    }
    return 0;
}

static int read_groups(const struct flyt_setting *setting, config_setting_t *value, void *config,
                       struct flyt_error *err)
{
    struct flyt_groups *groups = field(setting, config);
    int count = config_setting_length(value);
    groups->items = calloc((size_t)count + 1, setting->group_bytes);
    if (!groups->items)
        return -ENOMEM;
    for (int i = 0; i < count; i++) {
        config_setting_t *member = config_setting_get_elem(value, (unsigned)i);
        if (!config_setting_is_group(member))
            return complain(err, member, "%s must be %s", setting->path, kind_name(setting));
        groups->count++;
        int status =
            read_group(member, "", setting->members, (char *)groups->items + (size_t)i * setting->group_bytes, err);
        if (status)
            return status;
    }
    return 0;
}

static int read_value(const struct flyt_setting *setting, config_setting_t *value, void *config, struct flyt_error *err)
{
    int type = config_setting_type(value);
    bool is_integer = type == CONFIG_TYPE_INT || type == CONFIG_TYPE_INT64;
    bool is_list = type == CONFIG_TYPE_LIST || type == CONFIG_TYPE_ARRAY;
    if (is_integer && config_setting_get_int64(value) < 0 && setting->kind != FLYT_SETTING_STRING)
        return complain(err, value, "%s must not be negative%s", setting->path, "");
    switch (setting->kind) {
    case FLYT_SETTING_STRINGS:
        if (is_list)
            return read_strings(setting, value, config, err);
        break;
    case FLYT_SETTING_BOOL:
        if (type != CONFIG_TYPE_BOOL)
            return complain(err, value, "%s must be %s", setting->path, kind_name(setting));
        *(bool *)field(setting, config) = config_setting_get_bool(value);
        return 0;
    case FLYT_SETTING_SECONDS:
        if (type == CONFIG_TYPE_FLOAT && config_setting_get_float(value) >= 0)
            return put_number(setting, value, (uint64_t)(config_setting_get_float(value) * 1000 + 0.5), config, err);
        if (is_integer)
            return put_number(setting, value, (uint64_t)config_setting_get_int64(value) * 1000, config, err);
        return complain(err, value, "%s must be %s", setting->path, kind_name(setting));
    case FLYT_SETTING_NUMBER:
        if (!is_integer)
            return complain(err, value, "%s must be %s", setting->path, kind_name(setting));
        return put_number(setting, value, (uint64_t)config_setting_get_int64(value), config, err);
    case FLYT_SETTING_SIZE:
        if (is_integer)
            return put_number(setting, value, (uint64_t)config_setting_get_int64(value), config, err);
        break;
    case FLYT_SETTING_GROUPS:
        if (type != CONFIG_TYPE_LIST)
            return complain(err, value, "%s must be %s", setting->path, kind_name(setting));
        return read_groups(setting, value, config, err);
    default:
        break;
    }
    if (type != CONFIG_TYPE_STRING)
        return complain(err, value, "%s must be %s", setting->path, kind_name(setting));
    return put_text(setting, value, config_setting_get_string(value), config, err);
}

/* The setting of this path, or of something below it. */
static const struct flyt_setting *find(const struct flyt_setting *settings, const char *path, bool *ret_is_group)
{
    size_t length = strlen(path);
    *ret_is_group = false;
    for (const struct flyt_setting *s = settings; s->path; s++) {
        if (strcmp(s->path, path) == 0)
            return s;
        if (strncmp(s->path, path, length) == 0 && s->path[length] == '.')
            *ret_is_group = true;
    }
    return NULL;
}

/* Every value of a group of the file, groups below it included. */
static int read_members(config_setting_t *group, const char *prefix, const struct flyt_setting *settings, void *config,
                        bool *is_given, struct flyt_error *err)
{
    int count = config_setting_length(group);
    for (int i = 0; i < count; i++) {
        config_setting_t *value = config_setting_get_elem(group, (unsigned)i);
        char path[PATH_BYTES];
        bool is_group;
        snprintf(path, sizeof path, "%s%s", prefix, config_setting_name(value));
        const struct flyt_setting *setting = find(settings, path, &is_group);
        int status;
        if (setting) {
            is_given[setting - settings] = true;
            status = read_value(setting, value, config, err);
        } else if (is_group && config_setting_is_group(value)) {
            strncat(path, ".", sizeof path - strlen(path) - 1);
            status = read_members(value, path, settings, config, is_given, err);
        } else {
            status = complain(err, value, "there is no setting %s%s", path, is_group ? " without braces" : "");
        }
        if (status)
            return status;
    }
    return 0;
}

static int read_group(config_setting_t *group, const char *prefix, const struct flyt_setting *settings, void *config,
                      struct flyt_error *err)
{
    size_t count = 0;
    while (settings[count].path)
        count++;
    bool *is_given = calloc(count + 1, sizeof *is_given);
    if (!is_given)
        return -ENOMEM;
    int status = group ? read_members(group, prefix, settings, config, is_given, err) : 0;
    for (size_t i = 0; status == 0 && i < count; i++) {
        if (is_given[i])
            continue;
        if (!settings[i].fallback && settings[i].kind != FLYT_SETTING_GROUPS)
            status = complain(err, group, "the setting %s is missing%s", settings[i].path, "");
        else if (settings[i].fallback)
            status = put_text(&settings[i], NULL, settings[i].fallback, config, err);
    }
    free(is_given);
    return status;
}

int flyt_config_read(const char *path, const struct flyt_setting *settings, void *config, struct flyt_error *err)
{
    struct flyt_error cause = {0};
    config_t file;
    config_init(&file);
    int status = 0;
    /* libconfig does not say why a file cannot be opened. */
    if (path && access(path, R_OK) != 0)
        status = flyt_error_set(&cause, -errno, "%s: %s", path, strerror(errno));
    else if (path && config_read_file(&file, path) != CONFIG_TRUE)
        status = flyt_error_set(&cause, -EINVAL, "%s:%d: %s", path, config_error_line(&file), config_error_text(&file));
    if (status == 0)
        status = read_group(path ? config_root_setting(&file) : NULL, "", settings, config, &cause);
    if (status && !cause.code)
        flyt_error_set(&cause, status, "%s: %s", path ? path : "configuration", strerror(-status));
    if (status)
        flyt_error_set(err, status, "%s", cause.text);
    config_destroy(&file);
    if (status)
        free_fields(settings, config);
    return status;
}

static void free_strings(struct flyt_strings *strings)
{
    for (size_t i = 0; i < strings->count; i++)
        free(strings->items[i]);
    free(strings->items);
    *strings = (struct flyt_strings){0};
}

static void free_field(const struct flyt_setting *setting, void *config)
{
    if (setting->kind == FLYT_SETTING_STRING) {
        free(*(char **)field(setting, config));
        *(char **)field(setting, config) = NULL;
    } else if (setting->kind == FLYT_SETTING_STRINGS) {
        free_strings(field(setting, config));
    } else if (setting->kind == FLYT_SETTING_GROUPS) {
        struct flyt_groups *groups = field(setting, config);
        for (size_t i = 0; i < groups->count; i++)
            free_fields(setting->members, (char *)groups->items + i * setting->group_bytes);
        free(groups->items);
        *groups = (struct flyt_groups){0};
    } else if (setting->kind == FLYT_SETTING_RANGE) {
        struct flyt_range *range = field(setting, config);
        free(range->where);
        *range = (struct flyt_range){0};
    }
}

static void free_fields(const struct flyt_setting *settings, void *config)
{
    for (const struct flyt_setting *s = settings; s->path; s++)
        free_field(s, config);
}

void flyt_config_free(const struct flyt_setting *settings, void *config)
{
    free_fields(settings, config);
}

static size_t field_bytes(const struct flyt_setting *setting)
{
    switch (setting->kind) {
    case FLYT_SETTING_STRING:
        return sizeof(char *);
    case FLYT_SETTING_STRINGS:
        return sizeof(struct flyt_strings);
    case FLYT_SETTING_BOOL:
        return sizeof(bool);
    case FLYT_SETTING_RANGE:
        return sizeof(struct flyt_range);
    case FLYT_SETTING_CHOICE:
        return sizeof(int);
    case FLYT_SETTING_GROUPS:
        return sizeof(struct flyt_groups);
    default:
        return sizeof(uint64_t);
    }
}

static bool is_same_text(const char *one, const char *other)
{
    return one && other ? strcmp(one, other) == 0 : one == other;
}

static bool are_same(const struct flyt_setting *settings, void *one, void *other);

static bool is_same(const struct flyt_setting *setting, void *one, void *other)
{
    if (setting->kind == FLYT_SETTING_STRING)
        return is_same_text(*(char **)field(setting, one), *(char **)field(setting, other));
    if (setting->kind == FLYT_SETTING_STRINGS) {
        const struct flyt_strings *a = field(setting, one), *b = field(setting, other);
        bool same = a->count == b->count;
        for (size_t i = 0; same && i < a->count; i++)
            same = is_same_text(a->items[i], b->items[i]);
        return same;
    }
    if (setting->kind == FLYT_SETTING_GROUPS) {
        const struct flyt_groups *a = field(setting, one), *b = field(setting, other);
        bool same = a->count == b->count;
        for (size_t i = 0; same && i < a->count; i++)
            same = are_same(setting->members, (char *)a->items + i * setting->group_bytes,
                            (char *)b->items + i * setting->group_bytes);
        return same;
    }
    if (setting->kind == FLYT_SETTING_RANGE) {
        const struct flyt_range *a = field(setting, one), *b = field(setting, other);
        return a->first == b->first && a->last == b->last;
    }
    return memcmp(field(setting, one), field(setting, other), field_bytes(setting)) == 0;
}

static bool are_same(const struct flyt_setting *settings, void *one, void *other)
{
    for (const struct flyt_setting *s = settings; s->path; s++)
        if (!is_same(s, one, other))
            return false;
    return true;
}

void flyt_config_apply(const struct flyt_setting *settings, void *config, void *fresh)
{
    for (const struct flyt_setting *s = settings; s->path; s++) {
        if (is_same(s, config, fresh))
            continue;
        if (!s->is_live) {
            flyt_warn("configuration: %s has changed and needs a restart", s->path);
            continue;
        }
        char kept[sizeof(struct flyt_range)]; /* the largest that is live */
        size_t bytes = field_bytes(s);
        memcpy(kept, field(s, config), bytes);
        memcpy(field(s, config), field(s, fresh), bytes);
        memcpy(field(s, fresh), kept, bytes);
        flyt_info("configuration: %s has changed", s->path);
    }
    free_fields(settings, fresh);
}
