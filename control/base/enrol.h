/*
 * Enrolment of a node or a VM with a one-time token: makes a key, has the cluster manager sign a certificate, and
 * writes the CA's certificate, the own one and the key (mode 0600). The token holds the hash of the CA's certificate,
 * so that nobody else can answer; it holds for whom it is, and the cluster manager refuses it to others without using
 * it up.
 */
#ifndef FLYT_CONTROL_ENROL_H
#define FLYT_CONTROL_ENROL_H

#include "control/base/config.h"
#include "control/base/peer.h"
#include "control/base/tls.h"

struct flyt_enrolment {
    const struct flyt_strings *managers; /* URLs, tried in turn until one answers that leads */
    const char *token;
    enum flyt_role role; /* what the token must be for, … */
    const char *name;    /* … with this name; NULL: for anybody, whatever the role */
    struct flyt_tls_files
        files; /* where to write; the folder of each is made where it is missing, but not its parents */
};

/*
 * Blocks up to 30 seconds for each manager, on an event loop of its own. Files that are there are replaced only when
 * everything has succeeded: all new ones are on disk before the first takes its place. ret_name: for whom the token
 * was, FLYT_NAME_BYTES_MAX + 1. 0, or a negative errno and *err: -EACCES (unknown, used or expired token, or one for
 * another), -EINVAL (not a token; no manager), -ETIMEDOUT …
 */
int flyt_enrol(const struct flyt_enrolment *enrolment, struct flyt_error *err, char *ret_name);

#endif
