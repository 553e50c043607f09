/*
 * The VM's client manager, over its unix socket: where this program's server is and what proves that the program may
 * have a session there (FLYT_LOCAL_PROGRAM of rpc/proto/control.x). The connection stays open as long as the program
 * uses its GPU: by it the client manager knows which programs there are, and tells them of changes.
 *
 * One thread at a time.
 */
#ifndef FLYT_CLIENT_LOCAL_H
#define FLYT_CLIENT_LOCAL_H

#include <stdbool.h>
#include <stddef.h>

#include "cpu/client/core/local_call.h"
#include "rpc/base/error.h"
#include "rpc/base/ticket.h"
#include "rpc/base/url.h"

enum { FLYT_LOCAL_RESTART_MS = 5000 }; /* so long a client manager may take to be back */
enum { FLYT_LOCAL_TIMEOUT_MS = 30000, FLYT_LOCAL_URLS_MAX = 8, FLYT_LOCAL_CREDENTIALS_BYTES_MAX = 4096 };

struct flyt_local {
    int fd; /* -1: none */
    char urls[FLYT_LOCAL_URLS_MAX][FLYT_URL_TEXT_BYTES];
    unsigned url_count;
    bool is_elsewhere;      /* the last answer named other addresses than the one before; who looks there says false */
    unsigned first_attempt; /* to find a moved session there */
    unsigned char credentials[FLYT_LOCAL_CREDENTIALS_BYTES_MAX];
    size_t credentials_bytes;
    unsigned char secret[FLYT_TICKET_KEY_BYTES];
    bool is_encrypted;
    bool has_news; /* a notice was read that nobody has been told of (flyt_local_has_changed) */
};

/*
 * Asks for a session, on a new connection where there is none yet; a second call on the same tells the client manager
 * that what it gave is no good any more. Blocks, FLYT_LOCAL_TIMEOUT_MS at most, and FLYT_LOCAL_RESTART_MS more where
 * the client manager is being restarted. *local is zeroed but for fd before the
 * first call. 0 and what was granted in *local; -ENOENT: no client manager here; -EACCES, -ENODEV (the VM has no GPU),
 * -EBUSY (none is free), -ETIMEDOUT, -EPROTO or what connect(2) says, with a sentence in *err.
 */
int flyt_local_attach(struct flyt_local *local, struct flyt_error *err);

/* Asks for the memory that this VM shares with its host, after flyt_local_attach. A descriptor, opened for this
 * program, which is the caller's; -1: there is none for it. */
int flyt_local_open_memory(struct flyt_local *local);

/* Whether managed memory of this VM's programs is to lie on the host, where they do not say; after flyt_local_attach.
 */
bool flyt_local_wants_managed_on_host(struct flyt_local *local);

/* Reads the notices that have come, without blocking. Whether there was one since this was asked last: what was asked
 * about devices may have changed. */
bool flyt_local_has_changed(struct flyt_local *local);

/* Closes the connection and forgets the grant. */
void flyt_local_close(struct flyt_local *local);

#endif
