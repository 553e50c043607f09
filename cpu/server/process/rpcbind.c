#include "cpu/server/process/rpcbind.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <rpc/rpc.h>
#include <rpc/pmap_clnt.h>

int flyt_rpcbind_register(uint32_t program, uint32_t version, unsigned port, struct flyt_error *err)
{
    /* What a killed server has left stays registered until somebody takes it back. */
    pmap_unset(program, version);
    if (pmap_set(program, version, IPPROTO_TCP, (int)port))
        return 0;
    return flyt_error_set(err, -ECONNREFUSED,
                          "rpcbind does not register program %u at port %u: it does not run here, or another user has "
                          "registered that program",
                          program, port);
}

void flyt_rpcbind_unregister(uint32_t program, uint32_t version, unsigned port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

    if (pmap_getport(&here, program, version, IPPROTO_TCP) == port)
        pmap_unset(program, version);
}
