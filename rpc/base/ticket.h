/*
 * Tickets: how a program proves to a node that its VM has an allocation there, without a certificate of its own and
 * without the cluster manager being asked. Pure functions; any thread.
 *
 *   node key            32 random bytes of a node, known to it and to the cluster manager
 *   K  = HMAC-SHA-256(node key, "flyt ticket" ‖ vm_ip ‖ 0 ‖ allocation ‖ generation ‖ key number)
 *                       goes to the VM's client manager over TLS
 *   S  = HMAC-SHA-256(K, "flyt program" ‖ program number)
 *                       goes to one program over a unix socket
 *   proof = HMAC-SHA-256(S, "flyt proof" ‖ nonce ‖ SHA-256(first handshake record))
 *                       goes to the node in clear, once: the nonce belongs to one connection
 *   channel key = HMAC-SHA-256(S, "flyt channel" ‖ nonce ‖ SHA-256(first handshake record))
 *                       where encryption is configured: the pre-shared key of TLS 1.3
 *
 * Numbers are big-endian, 64 bits for allocation and program number, 32 bits for generation and key number. A ticket
 * is valid while its allocation is on the node with the same generation and key number; time plays no part.
 */
#ifndef FLYT_BASE_TICKET_H
#define FLYT_BASE_TICKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FLYT_TICKET_KEY_BYTES = 32, FLYT_TICKET_NONCE_BYTES = 32, FLYT_TICKET_VM_BYTES_MAX = 255 };

/* What a program sends as `credentials` of its handshake; encoded by flyt_credentials_put. */
struct flyt_credentials {
    char vm_ip[FLYT_TICKET_VM_BYTES_MAX + 1];
    uint64_t allocation_id;
    uint32_t generation;
    uint32_t key_number;
    uint64_t program_number; /* random, chosen by the client manager for each program */
};

/* HMAC-SHA-256 (RFC 2104). */
void flyt_hmac(const void *key, size_t key_bytes, const void *data, size_t bytes, unsigned char *ret_digest);
/* Whether two strings of bytes are equal, in a time that depends on `bytes` alone. */
int flyt_equal_in_constant_time(const void *one, const void *other, size_t bytes);

/* Each writes FLYT_TICKET_KEY_BYTES. */
void flyt_ticket_key(const unsigned char *node_key, const struct flyt_credentials *credentials, unsigned char *ret_key);
void flyt_ticket_secret(const unsigned char *ticket_key, uint64_t program_number, unsigned char *ret_secret);
void flyt_ticket_proof(const unsigned char *secret, const unsigned char *nonce, const unsigned char *record_hash,
                       unsigned char *ret_proof);
void flyt_ticket_channel_key(const unsigned char *secret, const unsigned char *nonce, const unsigned char *record_hash,
                             unsigned char *ret_key);

/* XDR: version 1, vm_ip, allocation, generation, key number, program number. Returns the bytes written to data (room
 * for 320), or 0 where vm_ip is too long. */
size_t flyt_credentials_put(const struct flyt_credentials *credentials, void *data);
/* 0 and *ret_credentials, or -EBADMSG. */
int flyt_credentials_get(const void *data, size_t bytes, struct flyt_credentials *ret_credentials);

/* ---- a node's connection to another one, with a program that migrates there ---- */

enum { FLYT_MIGRATION_SECRET_BYTES = FLYT_TICKET_KEY_BYTES, FLYT_MIGRATION_STREAMS_MAX = 8 };

/*
 * `credentials` of a handshake of kind FLYT_CONNECTION_MIGRATE. The secret that its proof and its channel key are
 * computed with (in the place of S above) is the migration's: 32 random bytes that the cluster manager has told both
 * nodes. `token`, `pid` and `program_name` of the handshake are those of the program's session.
 */
struct flyt_migrate_credentials {
    uint64_t migration_id, allocation_id, session_id;
    uint32_t stream;       /* 0: the image; 1 to stream_count: contents of its pages */
    uint32_t stream_count; /* further connections that come; at most FLYT_MIGRATION_STREAMS_MAX */
    uint64_t started_ms;   /* of the session, wall */
    bool leaves_coredumps; /* the session's contexts do, of the GPU */
    char client_address[FLYT_TICKET_VM_BYTES_MAX + 1];
};

/* XDR: version 2 (3: of a session that leaves core dumps, which older nodes do not take), migration, allocation,
 * session, stream, stream count, start, client address. As flyt_credentials_put, flyt_credentials_get; -EBADMSG also
 * where numbers are past their bounds. */
size_t flyt_migrate_credentials_put(const struct flyt_migrate_credentials *credentials, void *data);
int flyt_migrate_credentials_get(const void *data, size_t bytes, struct flyt_migrate_credentials *ret_credentials);

#endif
