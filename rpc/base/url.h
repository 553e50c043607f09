/*
 * Addresses of servers as people write them: tcp://HOST:PORT, tcp://[::1]:PORT, tcp://:PORT (to listen on all
 * addresses), unix:///PATH, vsock://CID:PORT (vsock(7): a virtual machine and its host), vsock://:PORT; and as programs
 * tell each other: unix://BOOT_ID/PATH, a socket of the machine whose boot has that id (rpc/base/machine.h). Pure
 * functions; nothing is looked up.
 */
#ifndef FLYT_BASE_URL_H
#define FLYT_BASE_URL_H

#include <stdbool.h>
#include <stdint.h>
#include "rpc/base/error.h"

enum flyt_url_scheme { FLYT_URL_TCP, FLYT_URL_UNIX, FLYT_URL_VSOCK };

/* CIDs with a meaning, and no number that stands for a CID or a port of vsock: vsock(7). */
#define FLYT_URL_CID_LOCAL 1u /* the machine itself */
#define FLYT_URL_CID_HOST  2u /* the host, as its virtual machines see it */
#define FLYT_URL_VSOCK_ANY UINT32_MAX

enum {
    FLYT_URL_HOST_BYTES_MAX = 253, /* a DNS name */
    FLYT_URL_PATH_BYTES_MAX = 107, /* sun_path without its NUL, unix(7) */
    FLYT_URL_BOOT_ID_BYTES = 37,   /* NUL included */
    FLYT_URL_TEXT_BYTES = 300      /* room for any URL that flyt_url_print makes, NUL included */
};

struct flyt_url {
    enum flyt_url_scheme scheme;
    char host[FLYT_URL_HOST_BYTES_MAX + 1]; /* without brackets; empty: every address (to listen). unix: the boot id of
                                             * its machine; empty: of the machine where it is read */
    uint32_t cid;  /* vsock: whose; FLYT_URL_VSOCK_ANY: every one of this machine's (to listen), itself (to connect) */
    uint32_t port; /* 0: the kernel chooses (to listen); at most 65535 but for vsock's */
    char path[FLYT_URL_PATH_BYTES_MAX + 1]; /* begins with / */
};

/* 0 and *ret_url, or -EINVAL and a sentence in *err (may be NULL) that quotes the text and says what is wrong. */
int flyt_url_parse(const char *text, struct flyt_error *err, struct flyt_url *ret_url);

/* The canonical form; `text` has FLYT_URL_TEXT_BYTES of room. */
void flyt_url_print(const struct flyt_url *url, char *text);

/*
 * The order in which a program of the machine with this boot id (empty: it is not known) tries the addresses of a
 * server: first unix sockets that are that machine's by name, then all others in the order in which they are told. Unix
 * sockets of other machines are left out. What is no URL counts as one of the others. Returns how many there are in
 * ret_texts, which has room for `count`; longer texts are cut.
 */
unsigned flyt_url_order(char *const *texts, unsigned count, const char *boot_id,
                        char (*ret_texts)[FLYT_URL_TEXT_BYTES]);

#endif
