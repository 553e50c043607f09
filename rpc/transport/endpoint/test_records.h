/*
 * For tests of encryption: reads what went over the wire, from the secrets that both ends have agreed on, by its own
 * account of RFC 8446 (sections 4.6.3, 5.2, 5.3 and 7), and says which keys protect how many records.
 */
#ifndef FLYT_TRANSPORT_TEST_RECORDS_H
#define FLYT_TRANSPORT_TEST_RECORDS_H

#include <stdbool.h>
#include <stddef.h>

struct flyt_secure;

enum {
    TEST_RECORDS_SECRET_BYTES = 32,
    TEST_RECORDS_HANDSHAKE_MAX = 8, /* records of the handshake, which are not read, before the first other one */
};

/* client_, server_application_traffic_secret_0. */
struct test_secrets {
    bool are_there[2];
    unsigned char of_client[TEST_RECORDS_SECRET_BYTES], of_server[TEST_RECORDS_SECRET_BYTES];
};

/* Before the handshake, at one end; *secrets is filled in by whoever makes the handshake, and outlives it. */
void test_secrets_watch(struct flyt_secure *secure, struct test_secrets *secrets);

struct test_tally {
    unsigned key_updates, alerts;
    unsigned data_records;
    unsigned most_records;  /* of any kind that one key protects */
    unsigned least_records; /* the same, of keys that have a successor; UINT_MAX: there is none */
    size_t plain_bytes;
};

/* Reads whole records. plain takes plain_max bytes of data at most. NULL, or what is wrong. */
const char *test_records_read(const unsigned char *wire, size_t wire_bytes, const unsigned char *secret,
                              unsigned char *plain, size_t plain_max, struct test_tally *ret_tally);

#endif
