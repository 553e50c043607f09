/*
 * The one place that turns a failure to reach the server, or to keep it, into a CUDA code. After a loss every call of
 * every thread gives the same code for ever; the process itself goes on.
 */
#ifndef FLYT_CLIENT_LOST_H
#define FLYT_CLIENT_LOST_H

#include <cuda.h>

/* For the negative errno of flyt_channel_open, and -ENODATA where no server is configured. */
CUresult flyt_lost_connect_code(int error);
/* For a connection that ended in the middle. */
CUresult flyt_lost_code(void);

#endif
