#include "rpc/base/ticket.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "rpc/base/sha256.h"

enum { BLOCK_BYTES = 64, CREDENTIALS_VERSION = 1, MESSAGE_BYTES_MAX = 512 };
enum { MIGRATE_VERSION = 2, MIGRATE_VERSION_COREDUMPS = 3 };

void flyt_hmac(const void *key, size_t key_bytes, const void *data, size_t bytes, unsigned char *ret_digest)
{
    unsigned char block[BLOCK_BYTES] = {0}, pad[BLOCK_BYTES];
    struct flyt_sha256 hash;

    if (key_bytes > BLOCK_BYTES)
        flyt_sha256_of(key, key_bytes, block);
    else if (key_bytes)
        memcpy(block, key, key_bytes);
    for (int i = 0; i < BLOCK_BYTES; i++)
        pad[i] = block[i] ^ 0x36;
    flyt_sha256_init(&hash);
    flyt_sha256_add(&hash, pad, sizeof pad);
    flyt_sha256_add(&hash, data, bytes);
    flyt_sha256_end(&hash, ret_digest);
    for (int i = 0; i < BLOCK_BYTES; i++)
        pad[i] = block[i] ^ 0x5c;
    flyt_sha256_init(&hash);
    flyt_sha256_add(&hash, pad, sizeof pad);
    flyt_sha256_add(&hash, ret_digest, FLYT_SHA256_BYTES);
    flyt_sha256_end(&hash, ret_digest);
    explicit_bzero(block, sizeof block);
    explicit_bzero(pad, sizeof pad);
}

int flyt_equal_in_constant_time(const void *one, const void *other, size_t bytes)
{
    const volatile unsigned char *a = one, *b = other;
    unsigned char difference = 0;

    for (size_t i = 0; i < bytes; i++)
        difference |= (unsigned char)(a[i] ^ b[i]);
    return !difference;
}

/* What is signed, put together piece by piece. */
struct message {
    unsigned char data[MESSAGE_BYTES_MAX];
    size_t bytes;
};

static void put(struct message *message, const void *data, size_t bytes)
{
    memcpy(message->data + message->bytes, data, bytes);
    message->bytes += bytes;
}

static void put_number(struct message *message, uint64_t value, unsigned bytes)
{
    for (unsigned i = bytes; i-- > 0;)
        message->data[message->bytes++] = (unsigned char)(value >> (8 * i));
}

void flyt_ticket_key(const unsigned char *node_key, const struct flyt_credentials *credentials, unsigned char *ret_key)
{
    struct message message = {.bytes = 0};

    put(&message, "flyt ticket", 11);
    put(&message, credentials->vm_ip, strnlen(credentials->vm_ip, FLYT_TICKET_VM_BYTES_MAX));
    put_number(&message, 0, 1);
    put_number(&message, credentials->allocation_id, 8);
    put_number(&message, credentials->generation, 4);
    put_number(&message, credentials->key_number, 4);
    flyt_hmac(node_key, FLYT_TICKET_KEY_BYTES, message.data, message.bytes, ret_key);
}

void flyt_ticket_secret(const unsigned char *ticket_key, uint64_t program_number, unsigned char *ret_secret)
{
    struct message message = {.bytes = 0};

    put(&message, "flyt program", 12);
    put_number(&message, program_number, 8);
    flyt_hmac(ticket_key, FLYT_TICKET_KEY_BYTES, message.data, message.bytes, ret_secret);
}

static void derive(const char *label, const unsigned char *secret, const unsigned char *nonce,
                   const unsigned char *record_hash, unsigned char *ret_key)
{
    struct message message = {.bytes = 0};

    put(&message, label, strlen(label));
    put(&message, nonce, FLYT_TICKET_NONCE_BYTES);
    put(&message, record_hash, FLYT_SHA256_BYTES);
    flyt_hmac(secret, FLYT_TICKET_KEY_BYTES, message.data, message.bytes, ret_key);
}

void flyt_ticket_proof(const unsigned char *secret, const unsigned char *nonce, const unsigned char *record_hash,
                       unsigned char *ret_proof)
{
    derive("flyt proof", secret, nonce, record_hash, ret_proof);
}

void flyt_ticket_channel_key(const unsigned char *secret, const unsigned char *nonce, const unsigned char *record_hash,
                             unsigned char *ret_key)
{
    derive("flyt channel", secret, nonce, record_hash, ret_key);
}

size_t flyt_credentials_put(const struct flyt_credentials *credentials, void *data)
{
    struct message message = {.bytes = 0};
    size_t name_bytes = strnlen(credentials->vm_ip, sizeof credentials->vm_ip);

    if (name_bytes > FLYT_TICKET_VM_BYTES_MAX)
        return 0;
    put_number(&message, CREDENTIALS_VERSION, 4);
    put_number(&message, name_bytes, 4);
    put(&message, credentials->vm_ip, name_bytes);
    put_number(&message, 0, (unsigned)(-name_bytes & 3));
    put_number(&message, credentials->allocation_id, 8);
    put_number(&message, credentials->generation, 4);
    put_number(&message, credentials->key_number, 4);
    put_number(&message, credentials->program_number, 8);
    memcpy(data, message.data, message.bytes);
    return message.bytes;
}

size_t flyt_migrate_credentials_put(const struct flyt_migrate_credentials *credentials, void *data)
{
    struct message message = {.bytes = 0};
    size_t name_bytes = strnlen(credentials->client_address, sizeof credentials->client_address);

    if (name_bytes > FLYT_TICKET_VM_BYTES_MAX)
        return 0;
    put_number(&message, credentials->leaves_coredumps ? MIGRATE_VERSION_COREDUMPS : MIGRATE_VERSION, 4);
    put_number(&message, credentials->migration_id, 8);
    put_number(&message, credentials->allocation_id, 8);
    put_number(&message, credentials->session_id, 8);
    put_number(&message, credentials->stream, 4);
    put_number(&message, credentials->stream_count, 4);
    put_number(&message, credentials->started_ms, 8);
    put_number(&message, name_bytes, 4);
    put(&message, credentials->client_address, name_bytes);
    put_number(&message, 0, (unsigned)(-name_bytes & 3));
    memcpy(data, message.data, message.bytes);
    return message.bytes;
}

/* False: the data ends before. */
static bool get_number(const unsigned char **data, size_t *bytes, unsigned number_bytes, uint64_t *ret_value)
{
    if (*bytes < number_bytes)
        return false;
    *ret_value = 0;
    for (unsigned i = 0; i < number_bytes; i++)
        *ret_value = *ret_value << 8 | (*data)[i];
    *data += number_bytes;
    *bytes -= number_bytes;
    return true;
}

int flyt_credentials_get(const void *data, size_t bytes, struct flyt_credentials *ret_credentials)
{
    struct flyt_credentials credentials = {.allocation_id = 0};
    const unsigned char *at = data;
    uint64_t version, name_bytes, generation, key_number;

    if (!get_number(&at, &bytes, 4, &version) || version != CREDENTIALS_VERSION ||
        !get_number(&at, &bytes, 4, &name_bytes) || name_bytes > FLYT_TICKET_VM_BYTES_MAX)
        return -EBADMSG;
    size_t padded_bytes = ((size_t)name_bytes + 3) & ~(size_t)3;
    if (bytes < padded_bytes || memchr(at, 0, (size_t)name_bytes))
        return -EBADMSG;
    memcpy(credentials.vm_ip, at, (size_t)name_bytes);
    at += padded_bytes;
    bytes -= padded_bytes;
    if (!get_number(&at, &bytes, 8, &credentials.allocation_id) || !get_number(&at, &bytes, 4, &generation) ||
        !get_number(&at, &bytes, 4, &key_number) || !get_number(&at, &bytes, 8, &credentials.program_number) || bytes)
        return -EBADMSG;
    credentials.generation = (uint32_t)generation;
    credentials.key_number = (uint32_t)key_number;
    *ret_credentials = credentials;
    return 0;
}

int flyt_migrate_credentials_get(const void *data, size_t bytes, struct flyt_migrate_credentials *ret_credentials)
{
    struct flyt_migrate_credentials credentials = {.migration_id = 0};
    const unsigned char *at = data;
    uint64_t version, stream, stream_count, name_bytes;

    if (!get_number(&at, &bytes, 4, &version) || version < MIGRATE_VERSION || version > MIGRATE_VERSION_COREDUMPS ||
        !get_number(&at, &bytes, 8, &credentials.migration_id) ||
        !get_number(&at, &bytes, 8, &credentials.allocation_id) ||
        !get_number(&at, &bytes, 8, &credentials.session_id) || !get_number(&at, &bytes, 4, &stream) ||
        !get_number(&at, &bytes, 4, &stream_count) || !get_number(&at, &bytes, 8, &credentials.started_ms) ||
        !get_number(&at, &bytes, 4, &name_bytes))
        return -EBADMSG;
    if (name_bytes > FLYT_TICKET_VM_BYTES_MAX || bytes != (((size_t)name_bytes + 3) & ~(size_t)3) ||
        memchr(at, 0, (size_t)name_bytes) || stream_count > FLYT_MIGRATION_STREAMS_MAX || stream > stream_count)
        return -EBADMSG;
    memcpy(credentials.client_address, at, (size_t)name_bytes);
    credentials.leaves_coredumps = version == MIGRATE_VERSION_COREDUMPS;
    credentials.stream = (uint32_t)stream;
    credentials.stream_count = (uint32_t)stream_count;
    *ret_credentials = credentials;
    return 0;
}
