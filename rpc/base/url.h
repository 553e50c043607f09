/*
 * Addresses of servers as people write them: tcp://HOST:PORT, tcp://[::1]:PORT, tcp://:PORT (to listen on all
 * addresses), unix:///PATH. A pure parser; nothing is looked up.
 */
#ifndef FLYT_BASE_URL_H
#define FLYT_BASE_URL_H

#include <stdbool.h>
#include <stdint.h>
#include "rpc/base/error.h"

enum flyt_url_scheme { FLYT_URL_TCP, FLYT_URL_UNIX };

enum {
    FLYT_URL_HOST_BYTES_MAX = 253, /* a DNS name */
    FLYT_URL_PATH_BYTES_MAX = 107, /* sun_path without its NUL, unix(7) */
    FLYT_URL_TEXT_BYTES = 300      /* room for any URL that flyt_url_print makes, NUL included */
};

struct flyt_url {
    enum flyt_url_scheme scheme;
    char host[FLYT_URL_HOST_BYTES_MAX + 1]; /* without brackets; empty: every address (to listen) */
    uint16_t port;                          /* 0: the kernel chooses (to listen) */
    char path[FLYT_URL_PATH_BYTES_MAX + 1]; /* begins with / */
};

/* 0 and *ret_url, or -EINVAL and a sentence in *err (may be NULL) that quotes the text and says what is wrong. */
int flyt_url_parse(const char *text, struct flyt_error *err, struct flyt_url *ret_url);

/* The canonical form; `text` has FLYT_URL_TEXT_BYTES of room. */
void flyt_url_print(const struct flyt_url *url, char *text);

#endif
