/*
 * Device memory of the session's in the place of the program's host memory: for arrays that do not fit into a call, and
 * for results that the node's library writes in device memory alone. It is there from a call's begin to its end.
 */
#ifndef FLYT_CLIENT_LIBRARY_STAGE_H
#define FLYT_CLIENT_LIBRARY_STAGE_H

#include "cpu/client/library/library_call.h"

/* Memory for all of the call's arrays, with what it reads. Whatever comes of it, flyt_lib_stage_close follows. */
CUresult flyt_lib_stage_open(struct flyt_lib_call *call);
/* Copies what the call has written into the program's memory. */
CUresult flyt_lib_stage_fetch(const struct flyt_lib_call *call);
void flyt_lib_stage_close(struct flyt_lib_call *call);

/* Memory for what the call writes into `data`. */
CUresult flyt_lib_fetched_open(struct flyt_lib_call *call, void *data, size_t bytes);

#endif
