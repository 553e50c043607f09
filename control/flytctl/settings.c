#include "control/flytctl/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/flytctl/text.h"

#define AT(field) offsetof(struct flyt_ctl_settings, field)

const struct flyt_setting flyt_ctl_settings_table[] = {
    {.path = "managers",
     .kind = FLYT_SETTING_STRINGS,
     .offset = AT(managers),
     .fallback = "",
     .help = "addresses of the cluster managers, tried in turn"},
    {.path = "tls.authority",
     .kind = FLYT_SETTING_STRING,
     .offset = AT(authority),
     .fallback = "",
     .help = "CA's certificates (PEM)"},
    {.path = "tls.certificate",
     .kind = FLYT_SETTING_STRING,
     .offset = AT(certificate),
     .fallback = "",
     .help = "own certificate (PEM), of an operator or a viewer"},
    {.path = "tls.key", .kind = FLYT_SETTING_STRING, .offset = AT(key), .fallback = "", .help = "its key (PEM, 0600)"},
    {0},
};

static void add_manager(struct flyt_strings *managers, const char *text, size_t bytes)
{
    managers->items = flyt_must(reallocarray(managers->items, managers->count + 1, sizeof *managers->items));
    managers->items[managers->count++] = flyt_must(strndup(text, bytes));
}

/* A list, separated by commas or blanks. */
static void add_managers(struct flyt_strings *managers, const char *text)
{
    static const char between[] = ", ";

    for (text += strspn(text, between); *text; text += strspn(text, between)) {
        size_t bytes = strcspn(text, between);
        add_manager(managers, text, bytes);
        text += bytes;
    }
}

/* What a file says of what is not decided yet. */
static enum flyt_exit read_file(const char *path, struct flyt_ctl_settings *settings)
{
    struct flyt_ctl_settings read = {0};
    struct flyt_error err;

    if (access(path, F_OK))
        return FLYT_EXIT_OK;
    if (flyt_config_read(path, flyt_ctl_settings_table, &read, &err))
        return flyt_complain(err.code == -EACCES ? FLYT_EXIT_DENIED : FLYT_EXIT_USAGE, "%s", err.text);
    if (!settings->managers.count) {
        settings->managers = read.managers;
        read.managers = (struct flyt_strings){0};
    }
    if (!settings->authority && !settings->certificate && !settings->key) {
        settings->authority = read.authority;
        settings->certificate = read.certificate;
        settings->key = read.key;
        read.authority = read.certificate = read.key = NULL;
    }
    flyt_config_free(flyt_ctl_settings_table, &read);
    return FLYT_EXIT_OK;
}

char *flyt_ctl_folder(void)
{
    const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

    if (folder && *folder)
        return flyt_text_format("%s/flyt", folder);
    return home && *home ? flyt_text_format("%s/.config/flyt", home) : NULL;
}

/* What `flytctl join` has left there, where nothing else is named. */
static void use_joined(const char *folder, struct flyt_ctl_settings *settings)
{
    char *certificate = flyt_text_format("%s/certificate.pem", folder);

    if (settings->authority || settings->certificate || settings->key || access(certificate, F_OK)) {
        free(certificate);
        return;
    }
    settings->certificate = certificate;
    settings->authority = flyt_text_format("%s/authority.pem", folder);
    settings->key = flyt_text_format("%s/key.pem", folder);
}

static char *text_option(const struct flyt_arguments *arguments, const char *name)
{
    const struct flyt_value *value = flyt_option_get(arguments, name);

    return value->is_set ? flyt_must(strdup(value->texts[0])) : NULL;
}

enum flyt_exit flyt_ctl_settings_read(const struct flyt_arguments *arguments, struct flyt_ctl_settings *ret_settings)
{
    const struct flyt_value *managers = flyt_option_get(arguments, "manager");
    const char *named = getenv("FLYT_MANAGER");
    char *folder = flyt_ctl_folder();
    struct flyt_ctl_settings settings = {.authority = text_option(arguments, "authority"),
                                         .certificate = text_option(arguments, "certificate"),
                                         .key = text_option(arguments, "key")};
    enum flyt_exit status = FLYT_EXIT_OK;

    for (unsigned i = 0; i < managers->text_count; i++)
        add_managers(&settings.managers, managers->texts[i]);
    if (!settings.managers.count && named)
        add_managers(&settings.managers, named);
    if (folder) {
        char *path = flyt_text_format("%s/flytctl.conf", folder);
        status = read_file(path, &settings);
        free(path);
    }
    if (status == FLYT_EXIT_OK)
        status = read_file(FLYT_CTL_CONF_SYSTEM, &settings);
    if (folder)
        use_joined(folder, &settings);
    free(folder);
    if (status == FLYT_EXIT_OK && !settings.managers.count)
        add_managers(&settings.managers, FLYT_CTL_MANAGER_DEFAULT);
    if (status == FLYT_EXIT_OK &&
        (!settings.authority != !settings.certificate || !settings.authority != !settings.key))
        status = flyt_complain(FLYT_EXIT_USAGE, "TLS needs authority, certificate and key, all three or none");
    if (status == FLYT_EXIT_OK)
        *ret_settings = settings;
    else
        flyt_config_free(flyt_ctl_settings_table, &settings);
    return status;
}
