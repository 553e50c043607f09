#include "rpc/transport/endpoint/test_records.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "rpc/transport/endpoint/secure_state.h"

enum {
    HEAD_BYTES = 5,
    TAG_BYTES = 16,
    KEY_BYTES = 16,
    IV_BYTES = 12,
    BODY_MAX = (1 << 14) + 256,
    TYPE_ALERT = 21,
    TYPE_HANDSHAKE = 22,
    TYPE_DATA = 23,
};

/* ---- secrets ---- */

static bool read_hex(const char *text, unsigned char *bytes, size_t count)
{
    unsigned byte;
    for (size_t i = 0; i < count; i++) {
        if (sscanf(text + 2 * i, "%2x", &byte) != 1)
            return false;
        bytes[i] = (unsigned char)byte;
    }
    return true;
}

/* "CLIENT_TRAFFIC_SECRET_0 <the client's random number> <secret>" */
static void keep_secret(const SSL *ssl, const char *line)
{
    struct test_secrets *secrets = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), 0);
    const char *secret = strrchr(line, ' ');
    if (secret && strncmp(line, "CLIENT_TRAFFIC_SECRET_0 ", 24) == 0)
        secrets->are_there[0] = read_hex(secret + 1, secrets->of_client, sizeof secrets->of_client);
    if (secret && strncmp(line, "SERVER_TRAFFIC_SECRET_0 ", 24) == 0)
        secrets->are_there[1] = read_hex(secret + 1, secrets->of_server, sizeof secrets->of_server);
}

void test_secrets_watch(struct flyt_secure *secure, struct test_secrets *secrets)
{
    *secrets = (struct test_secrets){0};
    SSL_CTX_set_ex_data(secure->context, 0, secrets);
    SSL_CTX_set_keylog_callback(secure->context, keep_secret);
}

/* ---- keys ---- */

struct key {
    unsigned char secret[TEST_RECORDS_SECRET_BYTES], key[KEY_BYTES], iv[IV_BYTES];
    uint64_t sequence;
};

/* HKDF-Expand-Label (section 7.1) with no context, of at most one block of SHA-256 (RFC 5869). */
static void expand_label(const unsigned char *secret, const char *label, unsigned char *out, size_t bytes)
{
    unsigned char info[64], block[EVP_MAX_MD_SIZE];
    unsigned block_bytes;
    int count = snprintf((char *)info, sizeof info, "%c%c%ctls13 %s%c%c", 0, (char)bytes, (char)(6 + strlen(label)),
                         label, 0, 1);
    HMAC(EVP_sha256(), secret, TEST_RECORDS_SECRET_BYTES, info, (size_t)count, block, &block_bytes);
    memcpy(out, block, bytes);
}

static void set_secret(struct key *key, const unsigned char *secret)
{
    memcpy(key->secret, secret, sizeof key->secret);
    expand_label(key->secret, "key", key->key, sizeof key->key);
    expand_label(key->secret, "iv", key->iv, sizeof key->iv);
    key->sequence = 0;
}

static void take_next(struct key *key)
{
    unsigned char next[TEST_RECORDS_SECRET_BYTES];
    expand_label(key->secret, "traffic upd", next, sizeof next);
    set_secret(key, next);
}

/* The bytes inside a whole record, its type behind them; 0: it is not this key's next one. */
static size_t open_record(const struct key *key, const unsigned char *record, size_t body_bytes, unsigned char *inside)
{
    unsigned char nonce[IV_BYTES], tag[TAG_BYTES], rest[TAG_BYTES];
    int bytes = (int)body_bytes - TAG_BYTES, done = 0;
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    memcpy(nonce, key->iv, sizeof nonce);
    for (unsigned i = 0; i < 8; i++)
        nonce[IV_BYTES - 1 - i] ^= (unsigned char)(key->sequence >> 8 * i);
    memcpy(tag, record + HEAD_BYTES + bytes, sizeof tag);
    bool is_right = EVP_DecryptInit_ex(cipher, EVP_aes_128_gcm(), NULL, key->key, nonce) == 1 &&
                    EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_AEAD_SET_TAG, sizeof tag, tag) == 1 &&
                    EVP_DecryptUpdate(cipher, NULL, &done, record, HEAD_BYTES) == 1 &&
                    EVP_DecryptUpdate(cipher, inside, &done, record + HEAD_BYTES, bytes) == 1 &&
                    EVP_DecryptFinal_ex(cipher, rest, &done) == 1;
    EVP_CIPHER_CTX_free(cipher);
    while (is_right && bytes > 0 && !inside[bytes - 1])
        bytes--; /* padding */
    return is_right ? (size_t)bytes : 0;
}

/* ---- records ---- */

struct reader {
    struct key key;
    unsigned handshake_records, key_records;
    unsigned char inside[BODY_MAX];
    unsigned char *plain;
    size_t plain_max;
    struct test_tally tally;
};

static void end_key(struct reader *reader)
{
    if (reader->key_records < reader->tally.least_records)
        reader->tally.least_records = reader->key_records;
    reader->key_records = 0;
    reader->tally.key_updates++;
    take_next(&reader->key);
}

static const char *take_inside(struct reader *reader, size_t bytes)
{
    static const unsigned char key_update[] = {24, 0, 0, 1, 0};
    struct test_tally *tally = &reader->tally;
    if (++reader->key_records > tally->most_records)
        tally->most_records = reader->key_records;
    reader->key.sequence++;
    unsigned char type = reader->inside[--bytes];
    if (type == TYPE_ALERT) {
        tally->alerts++;
        return NULL;
    }
    if (type == TYPE_HANDSHAKE) {
        if (bytes != sizeof key_update || memcmp(reader->inside, key_update, bytes) != 0)
            return "a message that is no KeyUpdate, or one that asks for another";
        end_key(reader);
        return NULL;
    }
    if (type != TYPE_DATA || bytes > reader->plain_max - tally->plain_bytes)
        return "a record of another type, or too much data";
    memcpy(reader->plain + tally->plain_bytes, reader->inside, bytes);
    tally->plain_bytes += bytes;
    tally->data_records++;
    return NULL;
}

/* The handshake's records come before, in clear or with keys of its own. */
static const char *take_record(struct reader *reader, const unsigned char *record, size_t body_bytes)
{
    bool is_sealed = record[0] == TYPE_DATA && body_bytes > TAG_BYTES;
    bool has_begun = reader->key.sequence || reader->tally.key_updates;
    size_t bytes = is_sealed ? open_record(&reader->key, record, body_bytes, reader->inside) : 0;
    if (bytes)
        return take_inside(reader, bytes);
    if (has_begun)
        return "a record that its key does not open";
    return ++reader->handshake_records > TEST_RECORDS_HANDSHAKE_MAX ? "no record of the first key" : NULL;
}

const char *test_records_read(const unsigned char *wire, size_t wire_bytes, const unsigned char *secret,
                              unsigned char *plain, size_t plain_max, struct test_tally *ret_tally)
{
    struct reader reader = {.plain = plain, .plain_max = plain_max, .tally.least_records = UINT_MAX};
    const char *wrong = NULL;
    set_secret(&reader.key, secret);
    for (size_t at = 0; at < wire_bytes && !wrong;) {
        size_t left = wire_bytes - at;
        size_t body_bytes = left < HEAD_BYTES ? 0 : (size_t)wire[at + 3] << 8 | wire[at + 4];
        if (left < HEAD_BYTES || body_bytes > BODY_MAX || body_bytes > left - HEAD_BYTES)
            return "what is no whole record";
        wrong = take_record(&reader, wire + at, body_bytes);
        at += HEAD_BYTES + body_bytes;
    }
    *ret_tally = reader.tally;
    return wrong;
}
