/* Replies that several procedures give, and who makes a call. */
#ifndef FLYT_CLUSTER_IO_REPLY_H
#define FLYT_CLUSTER_IO_REPLY_H

#include <cjson/cJSON.h>

#include "control/base/peer.h"

/* Replies with an outcome alone: for procedures whose result is a flyt_outcome or begins with one. */
void flyt_call_outcome(struct flyt_call *call, flyt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Sets *err to the sentence, with -EINVAL, and returns the status: for what checks an order before anything is done. */
flyt_status flyt_refuse(struct flyt_error *err, flyt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "operator:alice": who makes a call. `who` has room for FLYT_NAME_BYTES_MAX + 1 bytes. */
const char *flyt_call_who(const struct flyt_call *call, char *who);
/* Replies with an array, which is freed. */
void flyt_view_reply(struct flyt_call *call, flyt_status status, const char *text, cJSON *array, uint64_t next);
/* By kind, from 1; NULL behind the last. */
extern const char *const flyt_kind_names[];
const char *flyt_kind_name(enum flyt_peer_kind kind);

#endif
