/*
 * Every bound of the control plane's protocols in one place. rpcgen's input and C code include this file alike, so it
 * holds plain #defines only. A decoder refuses what is larger: the record is bad and its connection is closed.
 */
#ifndef FLYT_PROTO_CONTROL_LIMITS_H
#define FLYT_PROTO_CONTROL_LIMITS_H

/* Another number in HELLO is refused with a sentence: raised when a structure has changed other than at its end. */
#define FLYT_CONTROL_PROTOCOL 3

/* A record, by who sends it. Nobody without an identity may send more than the first. */
#define FLYT_CONTROL_HELLO_BYTES_MAX  65536
#define FLYT_CONTROL_RECORD_BYTES_MAX 16777216

#define FLYT_TEXT_BYTES_MAX        4096
#define FLYT_NAME_BYTES_MAX        255
#define FLYT_URL_BYTES_MAX         299
#define FLYT_NAMES_MAX             64
#define FLYT_URLS_MAX              8
#define FLYT_MANAGERS_MAX          16
#define FLYT_INSTANCE_BYTES        16
#define FLYT_KEY_BYTES             32
#define FLYT_CERTIFICATE_BYTES_MAX 32768
#define FLYT_CREDENTIALS_MAX       4096
#define FLYT_SLOTS_MAX             15
#define FLYT_GROUPS_MAX            256
#define FLYT_GPUS_MAX              64   /* of one node */
#define FLYT_ALLOCATIONS_MAX       4096 /* of one node */
#define FLYT_SESSIONS_MAX          4096 /* of one node */
#define FLYT_VIEW_BYTES_MAX        4194304
#define FLYT_LIBRARIES_MAX         16 /* of NVIDIA's, that a node has or a session has opened */
#define FLYT_LIBRARY_NAME_BYTES    16 /* of a name ("cublaslt"), its end included */

/* Of numbers that nobody knows. */
#define FLYT_UNKNOWN       0xffffffffu
#define FLYT_UNKNOWN_BYTES 0xffffffffffffffffull

#endif
