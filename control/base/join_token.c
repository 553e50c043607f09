/* The text of join tokens. */
#include "control/base/tls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { SECRET_BYTES = 32, WORD_DIGITS = 43 }; /* 32 bytes in base64url (RFC 4648, section 5), without padding */

static const char prefix[] = "flyt1.";
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static void put_word(const unsigned char *bytes, char *text)
{
    for (unsigned i = 0; i < WORD_DIGITS; i++) {
        unsigned bit = 6 * i, at = bit / 8;
        unsigned pair = (unsigned)bytes[at] << 8 | (at + 1 < SECRET_BYTES ? bytes[at + 1] : 0);
        text[i] = digits[pair >> (10 - bit % 8) & 63];
    }
}

/* One text for each value: bits that no byte takes must be 0. */
static int get_word(const char *text, unsigned char *ret_bytes)
{
    unsigned held = 0, bit_count = 0, at = 0;

    for (unsigned i = 0; i < WORD_DIGITS; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return -EINVAL;
        held = (held << 6 | (unsigned)(digit - digits)) & 0xffff;
        bit_count += 6;
        if (bit_count >= 8) {
            bit_count -= 8;
            ret_bytes[at++] = (unsigned char)(held >> bit_count);
        }
    }
    return held & ((1u << bit_count) - 1) ? -EINVAL : 0;
}

void flyt_join_token_make(const unsigned char authority_hash[32], const unsigned char secret[32], char *ret_text)
{
    char one[WORD_DIGITS + 1] = {0}, other[WORD_DIGITS + 1] = {0};

    put_word(authority_hash, one);
    put_word(secret, other);
    snprintf(ret_text, FLYT_JOIN_TOKEN_BYTES, "%s%s.%s", prefix, one, other);
}

int flyt_join_token_parse(const char *text, unsigned char ret_authority_hash[32], unsigned char ret_secret[32])
{
    unsigned char hash[SECRET_BYTES], secret[SECRET_BYTES];
    const char *one = text + strlen(prefix), *other = one + WORD_DIGITS + 1;

    if (strncmp(text, prefix, strlen(prefix)) || strlen(one) != 2 * WORD_DIGITS + 1 || one[WORD_DIGITS] != '.' ||
        get_word(one, hash) || get_word(other, secret))
        return -EINVAL;
    memcpy(ret_authority_hash, hash, sizeof hash);
    memcpy(ret_secret, secret, sizeof secret);
    return 0;
}
