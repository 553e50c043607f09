/*
 * Every bound of the wire in one place. rpcgen's input and C code include this file alike, so it holds plain
 * #defines only. A decoder refuses what is larger: the record is bad and its connection is closed.
 */
#ifndef FLYT_PROTO_LIMITS_H
#define FLYT_PROTO_LIMITS_H

/* ---- what a peer may do: part of the base hash ---- */

/* A record, header included: bulk is cut so that it fits, everything else is far smaller. */
#define FLYT_RECORD_BYTES_MAX (4194304 + 65536)
/* Payload of one bulk record. */
#define FLYT_CHUNK_BYTES_MAX 4194304
/* Copies up to this travel inside their call or reply; larger ones as a transfer over the data streams. */
#define FLYT_INLINE_BYTES_MAX 65536
/* The first record of a connection: a handshake, a null call or a query. */
#define FLYT_HANDSHAKE_BYTES_MAX 65536
/* Calls of one stream that a client may have sent beyond what the server has credited. */
#define FLYT_STREAM_CREDIT_CALLS 1024
/* The server tells its progress with every credit, and at the latest after so many calls that it has received, even if
 * its queue never runs empty: the client can let go of what it keeps. */
#define FLYT_PROGRESS_CALLS      2048
#define FLYT_DEVICES_MAX         15
#define FLYT_IMAGE_BYTES_MAX     2147483647 /* one module image */
#define FLYT_LIBRARY_KERNELS_MAX 1048576    /* kernels in one library */

/* ---- bounds of fields: part of the hash of what has such a field ---- */

#define FLYT_HASH_BYTES            32 /* SHA-256 */
#define FLYT_UUID_BYTES            16
#define FLYT_TOKEN_BYTES           32
#define FLYT_CREDENTIALS_BYTES_MAX 4096
#define FLYT_PROCEDURES_MAX        4096
#define FLYT_STRING_BYTES_MAX      1024    /* names of programs, builds, devices; messages */
#define FLYT_SYMBOL_BYTES_MAX      65536   /* a mangled C++ name */
#define FLYT_LOG_BYTES_MAX         65536   /* a compiler log */
#define FLYT_OPTIONS_MAX           64      /* load options of an image */
#define FLYT_LINK_INPUTS_MAX       4096    /* images that are linked into one */
#define FLYT_KERNELS_MAX           65536   /* kernels in one reply, */
#define FLYT_KERNELS_PART_BYTES    1048576 /* which has no further one when it is so long already */
#define FLYT_KERNEL_PARAMS_MAX     8192    /* parameters of one kernel: 32,764 bytes of 4 */
#define FLYT_PARAM_BYTES_MAX       32764   /* parameter buffer of one launch */
#define FLYT_LAUNCH_ATTRIBUTES_MAX 16
#define FLYT_ATTRIBUTES_MAX        512   /* device attributes, by CUdevice_attribute */
#define FLYT_KERNEL_ATTRIBUTES_MAX 64    /* kernel attributes, by CUfunction_attribute */
#define FLYT_SEGMENT_EDGES_MAX     65536 /* earlier nodes that one node of a graph comes after directly */
#define FLYT_SEGMENT_PACKED_MAX    65536 /* bytes of nodes that one call tells of */
#define FLYT_SEGMENT_BODIES_MAX    4096  /* of one conditional node */
#define FLYT_DECOMPRESSIONS_MAX    256   /* decompressions in one call; a batch of more is several calls */
#define FLYT_STREAM_OPS_MAX        255   /* memory operations of a stream in one call: CUDA takes fewer than 256 */
#define FLYT_LIBCALL_OBJECTS_MAX   4     /* that such a call names */
#define FLYT_LIBCALL_BYTES_MAX     65536 /* arguments, results and settings of a call of one of NVIDIA's libraries */
#define FLYT_ATOMIC_OPERATIONS_MAX 256   /* of which one call asks */
#define FLYT_RANGES_MAX            4096  /* allocations that one call names */
#define FLYT_SM_UNITS_MAX          256   /* groups of SMs that a session has of one device */
#define FLYT_DATA_STREAMS_MAX      8
#define FLYT_OUTPUT_BYTES_MAX      65536 /* device printf in one record */

/* ---- one side's own ---- */

/* A library's constants on one device, of which the client keeps what it writes. */
#define FLYT_CONSTANT_BYTES_MAX 65536
/* What a client keeps of the calls that it has sent and that are not executed yet, to send them again after a move. */
#define FLYT_KEPT_BYTES_MAX 4194304
#define FLYT_KEPT_CALLS_MAX 32768

/* ---- the handshake: no part of the base hash ---- */

#define FLYT_LATE_BYTES_MAX    256 /* a field that was added later */
#define FLYT_LATE_NUMBER_BYTES 8   /* one that is a number */
#define FLYT_PROOF_BYTES       32
#define FLYT_CHALLENGE_BYTES   32

#endif
