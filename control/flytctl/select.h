/*
 * From what a person types to what the protocol takes: a VM is its vm_ip or a unique name, a GPU NODE:INDEX, a UUID or
 * the unique beginning of one, an id 16 hexadecimal digits or the unique beginning of them. What is written out whole
 * is taken as it is; for the rest a view is read.
 */
#ifndef FLYT_FLYTCTL_SELECT_H
#define FLYT_FLYTCTL_SELECT_H

#include "control/flytctl/flytctl.h"
#include "control/flytctl/view.h"

enum flyt_match { FLYT_MATCH_NONE, FLYT_MATCH_ONE, FLYT_MATCH_SEVERAL };

/* Pure: what fits in rows of a view. *ret_row is a row's (the first one's, where several fit). */
enum flyt_match flyt_match_vm(const cJSON *vms, const char *text, const cJSON **ret_row);
enum flyt_match flyt_match_gpu(const cJSON *gpus, const char *text, const cJSON **ret_row);
enum flyt_match flyt_match_id(const cJSON *rows, const char *text, const cJSON **ret_row);

/* 1–16 hexadecimal digits. */
bool flyt_is_id_prefix(const char *text);
uint64_t flyt_id_of(const char *text);

/* These ask where they must. `text` outputs: malloc'ed. */
enum flyt_exit flyt_select_vm(struct flyt_ctl *ctl, const char *text, char **ret_vm_ip);
enum flyt_exit flyt_select_gpu(struct flyt_ctl *ctl, const char *text, char **ret_uuid);
/* view: "allocations", "sessions". */
enum flyt_exit flyt_select_id(struct flyt_ctl *ctl, const char *view, const char *text, uint64_t *ret_id);
/* A node's name; or else a GPU. */
enum flyt_exit flyt_select_target(struct flyt_ctl *ctl, const char *text, flyt_target_kind *ret_kind,
                                  char **ret_target);

#endif
