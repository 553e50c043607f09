/*
 * The server's part of the handshake (rpc/proto/flyt.x) for whoever reads a connection's first record: decoding it,
 * deciding what both sides can call, encoding the answer. Pure functions without CUDA; records are raw, as
 * flyt_greeter hands them over: with their record marks, in one or more fragments.
 *
 * On a session's own connection the server's dispatch answers the handshake (flyt_handshake_1_svc); it uses
 * flyt_handshake_check and flyt_handshake_answer_rows. Who refuses a client before that uses flyt_handshake_refuse.
 */
#ifndef FLYT_TRANSPORT_HANDSHAKE_H
#define FLYT_TRANSPORT_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "flyt.h"
#include "rpc/base/error.h"

/* In the handshake's answer, beside FLYT_FEATURE_PROGRESS_PAGE: when this server is no more, the session may go on at
 * another one, by a connection of kind FLYT_CONNECTION_RESUME with its token. */
enum { FLYT_FEATURE_RESUME = 2 };
/* The client is to send the descriptor of its region (rpc/base/region.h) behind the answer, as region_offer.h says;
 * only for one that says FLYT_CLIENT_BRINGS_REGION. */
enum { FLYT_FEATURE_REGION = 4 };
/* The descriptor of two rings (rings.h) comes with the answer, behind that of the progress page; only for a client that
 * says FLYT_CLIENT_TAKES_RINGS. What follows the answer, and the region, goes through them, in both directions. */
enum { FLYT_FEATURE_RINGS = 8 };
/* The client is to name places for rings in the memory that its VM shares with this host, as region_offer.h says; only
 * for one that says FLYT_CLIENT_HAS_VM_MEMORY. Where one is taken, what follows goes through them, in both directions,
 * and that memory is the session's region. */
enum { FLYT_FEATURE_VM_MEMORY = 16 };

/*
 * Decodes the arguments of a handshake call. 0: *ret_args is filled, to be freed with
 * xdr_free(xdr_flyt_handshake_args), and *ret_xid names the call; -EBADMSG: the record is none, nothing to be freed.
 */
int flyt_handshake_decode(const void *record, size_t bytes, uint32_t *ret_xid, flyt_handshake_args *ret_args);

/* SHA-256 of a record without its marks, which a proof is computed of. 0, -EBADMSG (no complete record) or -ENOMEM. */
int flyt_handshake_hash(const void *record, size_t bytes, unsigned char *ret_hash);

/* Whether two handshakes of a connection ask for the same: all that is known of them but the proofs is equal. */
bool flyt_handshake_is_same(const flyt_handshake_args *first, const flyt_handshake_args *second);

/* 0, or -EPROTO where the client's base protocol differs; `err` then says which side is to be upgraded. */
int flyt_handshake_check(const flyt_handshake_args *args, const char *own_build, struct flyt_error *err);

/*
 * Which of the client's procedures the server has with the same signature; `signatures` has rising numbers. Fills
 * ret_accepted, which has room for args->procedures.procedures_len numbers, and returns how many.
 */
unsigned flyt_handshake_accept(const flyt_handshake_args *args, const flyt_signature *signatures, unsigned count,
                               u_int *ret_accepted);

/* One hash over all rows. ret_hash: FLYT_HASH_BYTES. */
void flyt_handshake_hash_rows(const flyt_signature *signatures, unsigned count, unsigned char *ret_hash);

/*
 * What the answer says of procedures: `accepted`; or `rows` where both sides have the same rows; or status ROWS where
 * the list is wanted. What is put into *res is malloc'ed. 0 or -ENOMEM.
 */
int flyt_handshake_answer_rows(const flyt_handshake_args *args, const flyt_signature *signatures, unsigned count,
                               flyt_handshake_res *res);

/* Whether the answer accepts a procedure of this build's tables. */
bool flyt_handshake_accepts(const flyt_handshake_res *res, unsigned procedure);

/* A late field that is a number. Reading it: 0 where it is empty, or no number. Writing it: ret_place, of
 * FLYT_LATE_NUMBER_BYTES, is what the field then points to. */
uint64_t flyt_handshake_number(const flyt_late_bytes *field);
flyt_late_bytes flyt_handshake_put_number(uint64_t number, char *ret_place);

/* What the answer says of data that the client sends: it may send `window_bytes` of each transfer, and then what is
 * granted, where it heeds grants. Puts what is malloc'ed into *res; returns the window, or 0: it sends all, also where
 * there is no memory. */
uint64_t flyt_handshake_answer_window(const flyt_handshake_args *args, uint64_t window_bytes, flyt_handshake_res *res);

/* How many data streams this end takes part in, by its processors: each has a thread that copies. The lesser of both
 * ends' numbers counts. */
unsigned flyt_handshake_data_streams(void);

/* Encodes the reply to call xid, record mark included. *ret_record is malloc'ed. 0, -EINVAL (a value is out of its
 * bounds) or -ENOMEM. */
int flyt_handshake_encode_reply(uint32_t xid, flyt_handshake_res *res, void **ret_record, size_t *ret_bytes);

/* Answers call xid on fd with a challenge of FLYT_CHALLENGE_BYTES. As flyt_handshake_refuse. */
int flyt_handshake_challenge(int fd, uint32_t xid, const unsigned char *challenge);

/* Answers call xid on fd with a status other than OK and one sentence. Does not block long: a peer that does not read
 * gets no answer. The descriptor stays open. 0 or a negative errno. */
int flyt_handshake_refuse(int fd, uint32_t xid, flyt_handshake_status status, const char *sentence);

#endif
