/*
 * The doctor: the parts that look. Each looks at one thing, says one sentence, and what to do where that
 * is not "ok". Nothing is changed on the machine.
 */
#ifndef FLYT_FLYTCTL_DOCTOR_H
#define FLYT_FLYTCTL_DOCTOR_H

#include "control/base/peer.h"
#include "control/flytctl/finding.h"
#include "control/flytctl/flytctl.h"

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
