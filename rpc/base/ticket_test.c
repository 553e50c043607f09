/* Tickets: HMAC against RFC 4231, what each derivation depends on, credentials cut at every byte. */
#include "rpc/base/ticket.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void assert_hex(const unsigned char *bytes, const char *hex)
{
    char text[65];
    for (int i = 0; i < 32; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    assert_string_equal(text, hex);
}

/* RFC 4231, sections 4.2, 4.3, 4.4, 4.7 and 4.8. */
static void hmac_gives_what_the_rfc_says(void **state)
{
    unsigned char key[131], data[200], digest[32];
    memset(key, 0x0b, 20);
    flyt_hmac(key, 20, "Hi There", 8, digest);
    assert_hex(digest, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    flyt_hmac("Jefe", 4, "what do ya want for nothing?", 28, digest);
    assert_hex(digest, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0xaa, sizeof key);
    memset(data, 0xdd, 50);
    flyt_hmac(key, 20, data, 50, digest);
    assert_hex(digest, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
    flyt_hmac(key, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 54, digest);
    assert_hex(digest, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    const char *longer = "This is a test using a larger than block-size key and a larger than block-size data. The key "
                         "needs to be hashed before being used by the HMAC algorithm.";
    flyt_hmac(key, 131, longer, strlen(longer), digest);
    assert_hex(digest, "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

static const struct flyt_credentials sample = {.vm_ip = "10.0.0.17",
                                               .allocation_id = 0x1122334455667788,
                                               .generation = 7,
                                               .key_number = 2,
                                               .program_number = 0xabcdef};

/* Each number of the ticket makes another key. */
static void keys_depend_on_everything(void **state)
{
    unsigned char node_key[32], other_key[32], keys[6][32];
    memset(node_key, 1, 32);
    memset(other_key, 2, 32);
    struct flyt_credentials changed[4] = {sample, sample, sample, sample};
    strcpy(changed[0].vm_ip, "10.0.0.1");
    changed[1].allocation_id++;
    changed[2].generation++;
    changed[3].key_number++;
    flyt_ticket_key(node_key, &sample, keys[0]);
    flyt_ticket_key(other_key, &sample, keys[1]);
    for (int i = 0; i < 4; i++)
        flyt_ticket_key(node_key, &changed[i], keys[2 + i]);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(keys[i], keys[j], 32);
    /* The layout that the header documents, put together by hand. */
    static const unsigned char message[] = "flyt ticket10.0.0.17\0\x11\x22\x33\x44\x55\x66\x77\x88\0\0\0\7\0\0\0\2";
    unsigned char digest[32];
    flyt_hmac(node_key, 32, message, sizeof message - 1, digest);
    assert_memory_equal(digest, keys[0], 32);
}

static void proofs_and_channel_keys_differ(void **state)
{
    unsigned char key[32], secret[32], other[32], nonce[32] = {3}, hash[32] = {4}, proof[32], channel[32], again[32];
    memset(key, 9, 32);
    flyt_ticket_secret(key, 5, secret);
    flyt_ticket_secret(key, 6, other);
    assert_memory_not_equal(secret, other, 32);
    flyt_ticket_proof(secret, nonce, hash, proof);
    flyt_ticket_channel_key(secret, nonce, hash, channel);
    assert_memory_not_equal(proof, channel, 32);
    nonce[31] = 1;
    flyt_ticket_proof(secret, nonce, hash, again);
    assert_memory_not_equal(proof, again, 32);
    nonce[31] = 0;
    hash[0] = 5;
    flyt_ticket_proof(secret, nonce, hash, again);
    assert_memory_not_equal(proof, again, 32);
    hash[0] = 4;
    flyt_ticket_proof(secret, nonce, hash, again);
    assert_true(flyt_equal_in_constant_time(proof, again, 32));
    again[31] ^= 0x80;
    assert_false(flyt_equal_in_constant_time(proof, again, 32));
}

static void credentials_travel_whole_or_not(void **state)
{
    for (size_t name_bytes = 0; name_bytes <= FLYT_TICKET_VM_BYTES_MAX; name_bytes++) {
        struct flyt_credentials sent = sample, got;
        unsigned char data[320];
        memset(sent.vm_ip, 0, sizeof sent.vm_ip);
        memset(sent.vm_ip, 'v', name_bytes);
        size_t bytes = flyt_credentials_put(&sent, data);
        assert_true(bytes > 0 && bytes <= sizeof data);
        assert_int_equal(flyt_credentials_get(data, bytes, &got), 0);
        assert_memory_equal(&got, &sent, sizeof got);
        for (size_t cut = 0; cut < bytes; cut++) {
            unsigned char *exact = malloc(cut ? cut : 1);
            memcpy(exact, data, cut);
            assert_int_equal(flyt_credentials_get(exact, cut, &got), -EBADMSG);
            free(exact);
        }
        data[bytes] = 0;
        if (bytes < sizeof data)
            assert_int_equal(flyt_credentials_get(data, bytes + 1, &got), -EBADMSG);
    }
    unsigned char bad[] = {0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                           0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    struct flyt_credentials got;
    assert_int_equal(flyt_credentials_get(bad, sizeof bad, &got), -EBADMSG); /* another version */
}

static void a_migration_s_credentials_travel_whole_or_not(void **state)
{
    for (unsigned leaves_coredumps = 0; leaves_coredumps < 2; leaves_coredumps++) {
        const struct flyt_migrate_credentials sent = {.migration_id = 1ull << 40,
                                                      .allocation_id = 7,
                                                      .session_id = 9,
                                                      .stream = 2,
                                                      .stream_count = 3,
                                                      .started_ms = 1ull << 41,
                                                      .leaves_coredumps = leaves_coredumps,
                                                      .client_address = "10.0.0.17:999"};
        struct flyt_migrate_credentials got;
        unsigned char data[512];
        size_t bytes = flyt_migrate_credentials_put(&sent, data);
        assert_int_equal(flyt_migrate_credentials_get(data, bytes, &got), 0);
        assert_int_equal(got.migration_id, sent.migration_id);
        assert_int_equal(got.session_id, sent.session_id);
        assert_int_equal(got.started_ms, sent.started_ms);
        assert_int_equal(got.leaves_coredumps, leaves_coredumps);
        assert_string_equal(got.client_address, sent.client_address);
        for (size_t cut = 0; cut < bytes; cut++)
            assert_int_equal(flyt_migrate_credentials_get(data, cut, &got), -EBADMSG);
        data[3] = 4; /* a version that there is not */
        assert_int_equal(flyt_migrate_credentials_get(data, bytes, &got), -EBADMSG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hmac_gives_what_the_rfc_says),
        cmocka_unit_test(keys_depend_on_everything),
        cmocka_unit_test(proofs_and_channel_keys_differ),
        cmocka_unit_test(credentials_travel_whole_or_not),
        cmocka_unit_test(a_migration_s_credentials_travel_whole_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
