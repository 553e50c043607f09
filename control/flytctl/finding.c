/* Findings of the doctor, and the settings that its parts look at. */
#include "control/flytctl/finding.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "control/flytctl/text.h"

static const char *const verdicts[] = {"ok", "warn", "fail"};

void flyt_doctor_say(struct flyt_doctor *doctor, enum flyt_verdict verdict, const char *subject, const char *advice,
                     const char *format, ...)
{
    cJSON *finding = flyt_must(cJSON_CreateObject());
    va_list arguments;
    char *text;

    va_start(arguments, format);
    if (vasprintf(&text, format, arguments) < 0)
        text = NULL;
    va_end(arguments);
    cJSON_AddStringToObject(finding, "verdict", verdicts[verdict]);
    cJSON_AddStringToObject(finding, "subject", subject);
    cJSON_AddStringToObject(finding, "text", flyt_must(text));
    cJSON_AddStringToObject(finding, "advice", advice);
    cJSON_AddItemToArray(doctor->findings, finding);
    doctor->fail_count += verdict == FLYT_VERDICT_FAIL;
    free(text);
}

const char *flyt_doctor_text(const struct flyt_doctor *doctor, const char *path, const char *fallback)
{
    const char *text;

    return config_lookup_string(&doctor->config, path, &text) == CONFIG_TRUE && *text ? text : fallback;
}

long long flyt_doctor_number(const struct flyt_doctor *doctor, const char *path, long long fallback)
{
    long long number;

    return config_lookup_int64(&doctor->config, path, &number) == CONFIG_TRUE ? number : fallback;
}

unsigned flyt_doctor_list(const struct flyt_doctor *doctor, const char *path, const char **ret_texts)
{
    config_setting_t *setting = config_lookup(&doctor->config, path);
    unsigned count = 0;

    if (!setting)
        return 0;
    if (config_setting_type(setting) == CONFIG_TYPE_STRING && *config_setting_get_string(setting)) {
        ret_texts[0] = config_setting_get_string(setting);
        return 1;
    }
    for (int i = 0; config_setting_is_aggregate(setting) && i < config_setting_length(setting); i++) {
        const char *text = config_setting_get_string_elem(setting, i);
        if (text && count < FLYT_DOCTOR_LIST_MAX)
            ret_texts[count++] = text;
    }
    return count;
}
