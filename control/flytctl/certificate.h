/* What a certificate's file says: for whom it is and how long it is valid. */
#ifndef FLYT_FLYTCTL_CERTIFICATE_H
#define FLYT_FLYTCTL_CERTIFICATE_H

#include <stdint.h>

#include "control/base/peer.h"

struct flyt_certificate {
    enum flyt_role role;
    char name[FLYT_NAME_BYTES_MAX + 1];
    int64_t begins_s, ends_s; /* seconds since 1970 */
};

/* Reads the first certificate of a PEM file. 0, or a negative errno and a sentence in *err: -ENOENT, -EACCES …, -EINVAL
 * (no certificate), -ENOTSUP (no role of Flyt in it; begins_s and ends_s are there). */
int flyt_certificate_read(const char *file, struct flyt_certificate *ret_certificate, struct flyt_error *err);

/* "node", "vm", "operator", "viewer", "manager", "nobody". */
const char *flyt_role_name(enum flyt_role role);

#endif
