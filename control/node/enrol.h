/*
 * --join TOKEN --manager URL: makes a key and a certificate request, sends it to the cluster manager, whose CA the
 * token names, and writes key, certificate and CA to the files of the settings.
 */
#ifndef FLYT_NODE_ENROL_H
#define FLYT_NODE_ENROL_H

#include <systemd/sd-event.h>

#include "control/node/settings.h"
#include "rpc/base/error.h"

struct flyt_node_enrol;

/* Begins. `done` is called once, later: err->code 0, or what went wrong. 0 and *ret_enrol; or a negative errno and
 * *err. */
int flyt_node_enrol_new(sd_event *event, const struct flyt_node_settings *settings, const char *token, const char *url,
                        void (*done)(void *user, const struct flyt_error *err), void *user, struct flyt_error *err,
                        struct flyt_node_enrol **ret_enrol);
/* NULL is allowed. Returns NULL. */
struct flyt_node_enrol *flyt_node_enrol_free(struct flyt_node_enrol *enrol);

#endif
