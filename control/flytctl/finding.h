/* What the doctor has found: a verdict, one sentence, and what to do. */
#ifndef FLYT_FLYTCTL_FINDING_H
#define FLYT_FLYTCTL_FINDING_H

#include <cjson/cJSON.h>
#include <libconfig.h>

enum flyt_verdict { FLYT_VERDICT_OK, FLYT_VERDICT_WARN, FLYT_VERDICT_FAIL };

struct flyt_doctor {
    cJSON *findings; /* {verdict, subject, text, advice} */
    unsigned fail_count;
    config_t config;  /* of what is looked at; empty where there is no file */
    const char *file; /* its name; NULL: there is none */
};

enum { FLYT_DOCTOR_PROBE_MS = 3000, FLYT_DOCTOR_LIST_MAX = 16 };

/* advice: what to do; "" where nothing is. */
void flyt_doctor_say(struct flyt_doctor *doctor, enum flyt_verdict verdict, const char *subject, const char *advice,
                     const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Settings as the file has them. The fallback, where it has none. Borrowed. */
const char *flyt_doctor_text(const struct flyt_doctor *doctor, const char *path, const char *fallback);
long long flyt_doctor_number(const struct flyt_doctor *doctor, const char *path, long long fallback);
/* A list or a single string; the number of them, at most FLYT_DOCTOR_LIST_MAX. */
unsigned flyt_doctor_list(const struct flyt_doctor *doctor, const char *path, const char **ret_texts);

#endif
