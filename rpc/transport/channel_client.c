#include "rpc/transport/channel_state.h"

#include <stdlib.h>

/* What a CLIENT of ours has in cl_private. */
struct client {
    CLIENT client;
    struct flyt_channel *channel;
    enum clnt_stat status; /* of the last call, for cl_geterr */
};

static enum clnt_stat client_call(CLIENT *client, rpcproc_t procedure, xdrproc_t xdr_args, void *args,
                                  xdrproc_t xdr_res, void *res, struct timeval timeout)
{
    struct client *self = client->cl_private;
    const struct flyt_procedure *known = flyt_procedure_find((unsigned)procedure);
    int status;

    if (known && !known->xdr_res)
        status = flyt_channel_send(self->channel, (unsigned)procedure, xdr_args, args, NULL);
    else
        status = flyt_channel_call(self->channel, (unsigned)procedure, xdr_args, args, xdr_res, res);
    self->status = status == FLYT_CHANNEL_OK            ? RPC_SUCCESS
                   : status == FLYT_CHANNEL_UNSUPPORTED ? RPC_PROCUNAVAIL
                                                        : RPC_CANTRECV;
    return self->status;
}

static void client_abort(CLIENT *client)
{
}

static void client_geterr(CLIENT *client, struct rpc_err *error)
{
    struct client *self = client->cl_private;

    *error = (struct rpc_err){.re_status = self->status};
}

static bool_t client_freeres(CLIENT *client, xdrproc_t xdr_res, void *res)
{
    xdr_free(xdr_res, res);
    return TRUE;
}

static void client_destroy(CLIENT *client)
{
    free(client->cl_private);
}

static bool_t client_control(CLIENT *client, u_int request, void *info)
{
    struct client *self = client->cl_private;

    if (request == CLGET_FD) {
        *(int *)info = flyt_endpoint_fd(self->channel->endpoint);
        return TRUE;
    }
    return request == CLSET_TIMEOUT; /* taken and ignored: calls wait for their reply or for the connection's end */
}

CLIENT *flyt_channel_client(struct flyt_channel *channel)
{
    static struct clnt_ops operations = {
        .cl_call = client_call,
        .cl_abort = client_abort,
        .cl_geterr = client_geterr,
        .cl_freeres = client_freeres,
        .cl_destroy = client_destroy,
        .cl_control = client_control,
    };
    struct client *self = calloc(1, sizeof *self);

    if (!self)
        return NULL;
    self->channel = channel;
    self->client.cl_ops = &operations;
    self->client.cl_private = self;
    return &self->client;
}
