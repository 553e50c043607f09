/* Who belongs to the cluster: join tokens, join, admit, revoke. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/enrol.h"
#include "control/base/name.h"
#include "control/flytctl/actions.h"
#include "control/flytctl/certificate.h"
#include "control/flytctl/settings.h"

/* By the command's first word. */
static flyt_peer_kind kind_of(const struct flyt_arguments *arguments)
{
    static const struct {
        const char *word;
        flyt_peer_kind kind;
    } kinds[] = {{"node ", FLYT_PEER_NODE}, {"operator ", FLYT_PEER_OPERATOR}, {"viewer ", FLYT_PEER_VIEWER}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (!strncmp(arguments->command->name, kinds[i].word, strlen(kinds[i].word)))
            return kinds[i].kind;
    return FLYT_PEER_VM;
}

enum flyt_exit flyt_run_join_token(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    flyt_peer_kind kind = kind_of(arguments);
    const struct flyt_value *valid = flyt_option_get(arguments, "valid");
    flyt_token_args args = {.kind = kind,
                            .name = (char *)arguments->words[0],
                            .valid_s = valid->is_set ? (unsigned)(valid->number / 1000) : 3600};
    flyt_token_res res;

    if (kind == FLYT_PEER_VM && !flyt_is_address(args.name))
        return flyt_complain(FLYT_EXIT_USAGE, "'%s' is no IP address: a VM's certificate is for its vm_ip", args.name);
    enum flyt_exit status = flyt_link_call(ctl, FLYT_JOIN_TOKEN, (xdrproc_t)xdr_flyt_token_args, &args,
                                           (xdrproc_t)xdr_flyt_token_res, &res, sizeof res, 0);
    if (status != FLYT_EXIT_OK)
        return status;
    if (res.outcome.status != FLYT_STATUS_OK || ctl->output != FLYT_OUTPUT_JSON) {
        char *token = flyt_text_safe(res.token, strlen(res.token));
        status = flyt_finish(ctl, &res.outcome, "%s", token);
        free(token);
    } else {
        fprintf(ctl->out, "{\"status\":\"ok\",\"token\":");
        flyt_json_put_string(ctl->out, res.token);
        fprintf(ctl->out, "}\n");
    }
    xdr_free((xdrproc_t)xdr_flyt_token_res, &res);
    return status;
}

enum flyt_exit flyt_run_revoke(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    flyt_peer_kind kind = kind_of(arguments);
    flyt_revoke_args args = {.kind = kind};
    enum flyt_exit status = FLYT_EXIT_OK;

    if (kind != FLYT_PEER_VM)
        args.name = flyt_must(strdup(arguments->words[0]));
    else
        status = flyt_select_vm(ctl, arguments->words[0], &args.name);
    if (status == FLYT_EXIT_OK)
        status = flyt_act(ctl, FLYT_REVOKE, (xdrproc_t)xdr_flyt_revoke_args, &args,
                          "the certificate of %s is worth nothing any more", args.name);
    free(args.name);
    return status;
}

enum flyt_exit flyt_run_admit(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const char *file = arguments->words[0];
    struct flyt_certificate certificate = {0};
    struct flyt_error err = {0};
    char *data = flyt_must(malloc(FLYT_CERTIFICATE_BYTES_MAX));

    /* That it is one, and what it says, is told before anybody is asked; the cluster manager looks for itself. */
    FILE *stream = flyt_certificate_read(file, &certificate, &err) ? NULL : fopen(file, "re");
    size_t bytes = stream ? fread(data, 1, FLYT_CERTIFICATE_BYTES_MAX, stream) : 0;
    bool is_whole = stream && feof(stream) && !ferror(stream);
    if (stream)
        fclose(stream);
    enum flyt_exit status = FLYT_EXIT_USAGE;
    if (err.code) {
        flyt_complain(status, "%s", err.text);
    } else if (!is_whole) {
        flyt_complain(status, "%s cannot be read, or is longer than %d bytes", file, FLYT_CERTIFICATE_BYTES_MAX);
    } else {
        flyt_admit_args args = {.certificate = {(u_int)bytes, data}};
        status = flyt_act(ctl, FLYT_ADMIT, (xdrproc_t)xdr_flyt_admit_args, &args,
                          "%s %s is let in with this certificate", flyt_role_name(certificate.role), certificate.name);
    }
    free(data);
    return status;
}

/* Those of the managers that can be joined at; the strings are borrowed, `items` is the caller's. */
static struct flyt_strings tcp_only(const struct flyt_strings *managers)
{
    struct flyt_strings found = {.items = flyt_must(calloc(managers->count + 1, sizeof *found.items))};

    for (size_t i = 0; i < managers->count; i++)
        if (!strncmp(managers->items[i], "tcp:", 4))
            found.items[found.count++] = managers->items[i];
    return found;
}

/* With the token of the command line, "-": of standard input. */
static int enrol(const char *token, struct flyt_enrolment *enrolment, struct flyt_error *err, char *name)
{
    char *read = NULL;
    int status = strcmp(token, "-") ? 0 : flyt_join_token_read("-", err, &read);

    enrolment->token = read ? read : token;
    if (!status)
        status = flyt_enrol(enrolment, err, name);
    flyt_join_token_free(read);
    return status;
}

enum flyt_exit flyt_run_join(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *wished = flyt_option_get(arguments, "folder");
    char name[FLYT_NAME_BYTES_MAX + 1] = "", *own = flyt_ctl_folder();
    const char *folder = wished->is_set ? wished->texts[0] : own;
    struct flyt_ctl_settings settings;
    struct flyt_error err = {0};
    enum flyt_exit status = flyt_ctl_settings_read(arguments, &settings);

    if (status != FLYT_EXIT_OK) {
        free(own);
        return status;
    }
    const struct flyt_strings managers = tcp_only(&settings.managers);
    struct flyt_enrolled_paths paths;
    struct flyt_enrolment enrolment = {
        .managers = &managers,
        .files = flyt_enrolled_files(&(struct flyt_tls_files){0}, folder ? folder : "", &paths),
    };
    if (!managers.count)
        status = flyt_complain(FLYT_EXIT_USAGE, "join needs --manager tcp://HOST:PORT");
    else if (!folder)
        status = flyt_complain(FLYT_EXIT_USAGE, "neither HOME nor XDG_CONFIG_HOME is set: say --folder");
    else if (enrol(arguments->words[0], &enrolment, &err, name))
        status = flyt_complain(err.code == -EACCES   ? FLYT_EXIT_DENIED
                               : err.code == -EINVAL ? FLYT_EXIT_USAGE
                                                     : FLYT_EXIT_UNREACHABLE,
                               "%s", err.text);
    else
        status = flyt_finish(ctl, &(flyt_outcome){.status = FLYT_STATUS_OK, .text = (char *)""},
                             "%s is enrolled; certificate and key are in %s", name, folder);
    free(managers.items);
    flyt_config_free(flyt_ctl_settings_table, &settings);
    free(own);
    return status;
}
