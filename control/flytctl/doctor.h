/*
 * The doctor: findings, and the parts that look. Each looks at one thing, says one sentence, and what to do where that
 * is not "ok". Nothing is changed on the machine.
 */
#ifndef FLYT_FLYTCTL_DOCTOR_H
#define FLYT_FLYTCTL_DOCTOR_H

#include <cjson/cJSON.h>
#include <libconfig.h>

#include "control/base/peer.h"
#include "control/flytctl/flytctl.h"

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

/* ---- doctor_common.c: what nodes and VMs have alike ---- */

/* Clock, certificate (for this role and name) and the cluster managers. */
void flyt_doctor_trust(struct flyt_doctor *doctor, const char *state_dir, enum flyt_role role, const char *name);
/* Whether this user may write there; a folder that is missing is a finding too. */
void flyt_doctor_folder(struct flyt_doctor *doctor, const char *subject, const char *path);

/* ---- doctor_node.c, doctor_vm.c, doctor_cluster.c ---- */
void flyt_doctor_node(struct flyt_doctor *doctor);
void flyt_doctor_vm(struct flyt_doctor *doctor);
/* Asks the cluster manager. FLYT_EXIT_OK; else that it could not be asked, which has been said. */
enum flyt_exit flyt_doctor_cluster(struct flyt_doctor *doctor, struct flyt_ctl *ctl);

#endif
