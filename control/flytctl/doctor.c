/* doctor: finds out where it is, has the parts look, and prints what was found. */
#include "control/flytctl/doctor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/flytctl/commands.h"
#include "control/flytctl/json.h"
#include "control/flytctl/text.h"
#include "control/flytctl/view.h"

#define NODE_CONF "/etc/flyt/node.conf"
#define VM_CONF   "/etc/flyt/client.conf"

/* Reads a configuration file; false, and a finding, where it cannot be. */
static bool read_config(struct flyt_doctor *doctor, const char *file)
{
    config_destroy(&doctor->config);
    config_init(&doctor->config);
    doctor->file = NULL;
    if (!file) {
        flyt_doctor_say(doctor, FLYT_VERDICT_WARN, "configuration",
                        "write the file; its manual page lists the settings",
                        "there is no configuration file: defaults are assumed");
        return true;
    }
    if (access(file, R_OK)) {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "configuration",
                        errno == EACCES ? "run flytctl doctor as root"
                                        : "write the file, or name another with --config",
                        "%s: %s", file, strerror(errno));
        return false;
    }
    if (config_read_file(&doctor->config, file) != CONFIG_TRUE) {
        flyt_doctor_say(doctor, FLYT_VERDICT_FAIL, "configuration", "correct this line", "%s:%d: %s", file,
                        config_error_line(&doctor->config), config_error_text(&doctor->config));
        return false;
    }
    doctor->file = file;
    flyt_doctor_say(doctor, FLYT_VERDICT_OK, "configuration", "", "%s can be read", file);
    return true;
}

static void put_findings(struct flyt_ctl *ctl, const struct flyt_doctor *doctor)
{
    const cJSON *finding;

    if (ctl->output == FLYT_OUTPUT_JSON) {
        char *text = flyt_must(cJSON_PrintUnformatted(doctor->findings));
        flyt_json_put(ctl->out, text, strlen(text), ctl->is_terminal);
        free(text);
        return;
    }
    cJSON_ArrayForEach(finding, doctor->findings)
    {
        const char *advice = flyt_row_text(finding, "advice");
        char *subject = flyt_text_safe(flyt_row_text(finding, "subject"), strlen(flyt_row_text(finding, "subject")));
        fprintf(ctl->out, "%-4s  %-14s  ", flyt_row_text(finding, "verdict"), subject);
        free(subject);
        flyt_text_put(ctl->out, flyt_row_text(finding, "text"));
        fputc('\n', ctl->out);
        if (*advice) {
            fprintf(ctl->out, "%22s  -> ", "");
            flyt_text_put(ctl->out, advice);
            fputc('\n', ctl->out);
        }
    }
}

/* Which of the two this machine is: by the options, by what the named file is about, by the files that there are. */
static void choose(const struct flyt_arguments *arguments, const char *named, bool *ret_node, bool *ret_vm)
{
    config_t config;
    const char *text;

    *ret_node = flyt_option_is(arguments, "node");
    *ret_vm = flyt_option_is(arguments, "vm");
    if (*ret_node || *ret_vm)
        return;
    if (!named) {
        *ret_node = !access(NODE_CONF, F_OK);
        *ret_vm = !access(VM_CONF, F_OK);
        return;
    }
    config_init(&config);
    *ret_vm =
        config_read_file(&config, named) == CONFIG_TRUE && config_lookup_string(&config, "vm_ip", &text) == CONFIG_TRUE;
    *ret_node = !*ret_vm;
    config_destroy(&config);
}

static const char *file_of(const char *named, const char *usual)
{
    return named ? named : !access(usual, F_OK) ? usual : NULL;
}

enum flyt_exit flyt_run_doctor(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    const struct flyt_value *config = flyt_option_get(arguments, "config");
    const char *named = config->is_set ? config->texts[0] : NULL;
    struct flyt_doctor doctor = {.findings = flyt_must(cJSON_CreateArray())};
    bool is_node = false, is_vm = false, is_cluster = flyt_option_is(arguments, "cluster");
    enum flyt_exit status = FLYT_EXIT_OK;

    if (!is_cluster || named || flyt_option_is(arguments, "node") || flyt_option_is(arguments, "vm"))
        choose(arguments, named, &is_node, &is_vm);
    if (!is_cluster && !is_node && !is_vm) {
        cJSON_Delete(doctor.findings);
        return flyt_complain(FLYT_EXIT_USAGE,
                             "neither %s nor %s is there: say --node, --vm, --cluster or --config FILE", NODE_CONF,
                             VM_CONF);
    }
    config_init(&doctor.config);
    if (is_node && read_config(&doctor, file_of(named, NODE_CONF)))
        flyt_doctor_node(&doctor);
    if (is_vm && read_config(&doctor, file_of(named, VM_CONF)))
        flyt_doctor_vm(&doctor);
    if (is_cluster)
        status = flyt_doctor_cluster(&doctor, ctl);
    if (status == FLYT_EXIT_OK)
        put_findings(ctl, &doctor);
    config_destroy(&doctor.config);
    cJSON_Delete(doctor.findings);
    return status != FLYT_EXIT_OK ? status : doctor.fail_count ? FLYT_EXIT_REFUSED : FLYT_EXIT_OK;
}
