/*
 * What sockets of vsock(7) need beside others (rpc/transport/endpoint/listen.h): addresses, and whether a CID leads
 * where it says. A CID is a number that the hypervisor gives: it vouches for a peer's, as the kernel does for the user
 * at a unix socket, so that it names a guest, but not whose program speaks. No state.
 */
#ifndef FLYT_BASE_VSOCK_H
#define FLYT_BASE_VSOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <linux/vm_sockets.h>
#include "rpc/base/error.h"
#include "rpc/base/url.h"

struct flyt_vsock_machine {
    uint32_t own_cid;  /* of a guest; else FLYT_URL_CID_HOST, FLYT_URL_CID_LOCAL, or FLYT_URL_VSOCK_ANY: it has none, or
                        * /dev/vsock cannot be read */
    bool has_loopback; /* FLYT_URL_CID_LOCAL is this machine itself */
};

/* What this machine is. Reads it each time; does not block. */
void flyt_vsock_look(struct flyt_vsock_machine *ret_machine);

/*
 * Whether a connection to `cid` (not FLYT_URL_VSOCK_ANY) from such a machine ends where the number says. 0;
 * -EADDRNOTAVAIL: the machine itself is meant, and the kernel would send it to the host; -EHOSTUNREACH: the host is
 * meant, and this is no guest: the kernel would then connect to any process of this machine that listens. *err (may be
 * NULL) has a sentence.
 */
int flyt_vsock_check(const struct flyt_vsock_machine *machine, uint32_t cid, struct flyt_error *err);

/* The kernel's form of a vsock URL to connect to, or to listen at. */
struct sockaddr_vm flyt_vsock_peer(const struct flyt_url *url);
struct sockaddr_vm flyt_vsock_listener(const struct flyt_url *url);

#endif
