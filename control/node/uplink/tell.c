#include "control/node/uplink/tell.h"

#include <errno.h>
#include <string.h>

#include "control.h"
#include "control/base/uplink.h"
#include "control/node/model/node.h"
#include "control/node/process/libraries.h"
#include "control/node/uplink/manager.h"
#include "control/node/uplink/report.h"
#include "rpc/base/log.h"

static void on_told(void *user, int status, void *result)
{
    const flyt_outcome *outcome = result;
    const char *what = user;

    if (status && status != -ECANCELED)
        flyt_debug("%s was not told: %s", what, strerror(-status));
    else if (!status && outcome->status != FLYT_STATUS_OK)
        flyt_debug("%s was not told: %s", what, outcome->text);
}

/* FNV-1a of a record, so that what is the same is not told again; never 0. */
static uint64_t sum_of(xdrproc_t encode, void *args)
{
    uint64_t sum = 0xcbf29ce484222325u;
    u_int bytes = (u_int)xdr_sizeof(encode, args);
    char *record = malloc(bytes + 1);
    XDR xdr;

    if (!record)
        return 0;
    xdrmem_create(&xdr, record, bytes, XDR_ENCODE);
    if (!encode(&xdr, args))
        sum = 0;
    for (u_int i = 0; sum && i < bytes; i++)
        sum = (sum ^ (unsigned char)record[i]) * 0x100000001b3u;
    xdr_destroy(&xdr);
    free(record);
    return sum;
}

static void tell(struct flyt_uplink *uplink, uint32_t procedure, xdrproc_t encode, void *args, const char *what,
                 uint64_t *told)
{
    uint64_t sum = sum_of(encode, args);

    if (!sum || sum == *told)
        return;
    if (!flyt_uplink_call(uplink, procedure, encode, args, (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome),
                          FLYT_NODE_CALL_MS, on_told, (void *)what))
        *told = sum;
}

void flyt_node_tell_what_changed(const struct flyt_node *node, struct flyt_uplink *uplink, struct flyt_node_told *told)
{
    flyt_libraries_args libraries;
    flyt_needs_args needs;

    /* Who is missing after a restart has what the cluster manager was told before. */
    if (node->is_reattaching)
        return;
    /* Nothing needed is not told first: it is what a cluster manager believes. */
    if (!flyt_node_report_needs(node, &needs) && (needs.needs.needs_len || told->needs))
        tell(uplink, FLYT_NODE_NEEDS, (xdrproc_t)xdr_flyt_needs_args, &needs, "what programs' launches have needed",
             &told->needs);
    xdr_free((xdrproc_t)xdr_flyt_needs_args, &needs);
    if (!flyt_node_report_libraries(node, &libraries))
        tell(uplink, FLYT_NODE_LIBRARIES, (xdrproc_t)xdr_flyt_libraries_args, &libraries,
             "which of NVIDIA's libraries there are", &told->libraries);
    xdr_free((xdrproc_t)xdr_flyt_libraries_args, &libraries);
}
