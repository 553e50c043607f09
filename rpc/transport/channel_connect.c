#include "rpc/transport/channel_state.h"

#include <stdlib.h>
#include <string.h>
#include "rpc/base/clock.h"
#include "rpc/transport/endpoint/listen.h"

int flyt_channel_connect_data(struct flyt_channel *channel, struct flyt_lane *lane, flyt_input_split_fn split_fn,
                              struct flyt_error *err)
{
    uint64_t deadline_ms = flyt_clock_ms() + channel->connect_timeout_ms;
    flyt_handshake_args args;
    flyt_handshake_res res;

    int status = flyt_endpoint_make_beside(channel->endpoint, &lane->endpoint);
    if (status)
        return flyt_error_set(err, status, "cannot make a socket: %s", strerror(-status));
    status = flyt_endpoint_connect_beside(lane->endpoint, channel->endpoint, deadline_ms, channel->lost_fd);
    if (!status)
        status = flyt_output_init(&lane->output, lane->endpoint);
    if (status) {
        flyt_error_set(err, status, "cannot connect to %s: %s", channel->url, strerror(-status));
        goto close_endpoint;
    }
    /* Little ahead: what is read into the buffer of a payload is copied twice. */
    status =
        flyt_input_init(&lane->input, lane->endpoint, FLYT_RECORD_BYTES_MAX, 2 * FLYT_INPUT_PEEK_BYTES, split_fn, lane);
    if (status)
        goto fini_output;
    flyt_channel_fill_handshake(channel, FLYT_CONNECTION_DATA, &args);
    /* From its answer on the server sends data over it: who gave up shortly before would lose what is on its way. So
     * the answer has as long as a server may be silent. */
    struct flyt_greeting greeting = {.endpoint = &lane->endpoint,
                                     .output = &lane->output,
                                     .input = &lane->input,
                                     .deadline_ms = flyt_clock_ms() + FLYT_PEER_SILENT_MS,
                                     .cancel_fd = channel->lost_fd,
                                     .fds = FLYT_GREETING_NO_FDS};
    status = flyt_channel_greet(channel, &greeting, &args, &res, err);
    if (status)
        goto fini_input;
    xdr_free((xdrproc_t)xdr_flyt_handshake_res, &res);
    return 0;

fini_input:
    flyt_input_fini(&lane->input);
fini_output:
    flyt_output_fini(&lane->output);
close_endpoint:;
    struct flyt_endpoint *endpoint = lane->endpoint;
    lane->endpoint = NULL; /* first: a child that is forked in between must not close what has its number then */
    flyt_endpoint_close(endpoint);
    return status;
}
