/*
 * Enrolment of a node or a VM with a one-time token: makes a key, has the cluster manager sign a certificate for what
 * the token was made for, and writes authority.pem, certificate.pem and key.pem (mode 0600) into a folder. The token
 * holds the hash of the CA's certificate, so that nobody else can answer.
 */
#ifndef FLYT_CONTROL_ENROL_H
#define FLYT_CONTROL_ENROL_H

#include "control/base/peer.h"

/*
 * Blocks up to 30 seconds, on an event loop of its own. `url` is a manager's, `folder` is made where it is missing.
 * What is there is replaced only when everything has succeeded. *ret_name (FLYT_NAME_BYTES_MAX + 1): for whom the token
 * was. 0, or a negative errno and *err: -EACCES (unknown, used or expired token), -EINVAL (not a token), -ETIMEDOUT …
 */
int flyt_enrol(const char *url, const char *token, const char *folder, struct flyt_error *err, char *ret_name);

#endif
