/*
 * Registration with rpcbind (RFC 1833), so that ONC RPC tools find a program by its number (`rpcinfo -T tcp HOST
 * 536874775`). An option for people: nothing of ours looks there. No state; any thread. Each call asks the rpcbind of
 * this machine and blocks until it answers: at once where none runs, a minute where one is there and says nothing.
 */
#ifndef FLYT_SERVER_RPCBIND_H
#define FLYT_SERVER_RPCBIND_H

#include <stdint.h>

#include "rpc/base/error.h"

/* The program's TCP port, 1 to 65535, in place of what was registered before, by whomever. 0, or -ECONNREFUSED and a
 * sentence: there is no rpcbind, or the registration is another user's. */
int flyt_rpcbind_register(uint32_t program, uint32_t version, unsigned port, struct flyt_error *err);

/* Takes the registration back, where it still has this port: another server's stays. */
void flyt_rpcbind_unregister(uint32_t program, uint32_t version, unsigned port);

#endif
