/*
 * Enrolment of a node or a VM with a one-time token: makes a key, has the cluster manager sign a certificate, and
 * writes the CA's certificate, the own one and the key (mode 0600). The token holds the hash of the CA's certificate,
 * so that nobody else can answer; it holds for whom it is, and the cluster manager refuses it to others without using
 * it up.
 */
#ifndef FLYT_CONTROL_ENROL_H
#define FLYT_CONTROL_ENROL_H

#include <limits.h>

#include "control/base/config.h"
#include "control/base/peer.h"
#include "control/base/tls.h"

struct flyt_enrolment {
    const struct flyt_strings *managers; /* URLs, tried in turn until one answers that leads */
    const char *token;
    enum flyt_role role;         /* what the token must be for, … */
    const char *name;            /* … with this name; NULL: for anybody, whatever the role */
    struct flyt_tls_files files; /* where to write; folders are made where they are missing: the last one of mode 0700,
                                    those above it 0755 */
};

/* Room for the names of flyt_enrolled_files. */
struct flyt_enrolled_paths {
    char texts[3][PATH_MAX];
};

/*
 * The files of a daemon or a person: those that the settings name (set.authority is not NULL), else authority.pem,
 * certificate.pem and key.pem in `folder`, which is where enrolment puts them. Points into set or *paths.
 */
struct flyt_tls_files flyt_enrolled_files(const struct flyt_tls_files *set, const char *folder,
                                          struct flyt_enrolled_paths *paths);
/*
 * TLS with these files (as flyt_tls_new, for a client). Where the settings name none and the folder has no certificate
 * either, *ret_tls is NULL: in clear. 0, or a negative errno and *err.
 */
int flyt_enrolled_tls(const struct flyt_tls_files *set, const char *folder, struct flyt_error *err,
                      struct flyt_tls **ret_tls);

/*
 * The token that somebody gives by a file, or by standard input ("-"), so that nobody else of the machine reads it
 * among the arguments of a process: the first word of it. 0 and *ret_token, to be freed (flyt_join_token_free), or a
 * negative errno and *err.
 */
int flyt_join_token_read(const char *path, struct flyt_error *err, char **ret_token);
/* Wipes it. NULL is allowed. Returns NULL. */
char *flyt_join_token_free(char *token);

/*
 * Blocks up to 30 seconds for each manager, on an event loop of its own. Where one does not get so far as to answer,
 * because its machine or this one stands still, or it is being restarted, all are asked again until that time is over.
 * Files that are there are replaced only when everything has succeeded: all new ones are on disk before the first takes
 * its place. ret_name: for whom the token was, FLYT_NAME_BYTES_MAX + 1. 0, or a negative errno and *err: -EACCES
 * (unknown, used or expired token, or one for another), -EINVAL (not a token; no manager), -ETIMEDOUT …
 */
int flyt_enrol(const struct flyt_enrolment *enrolment, struct flyt_error *err, char *ret_name);

#endif
