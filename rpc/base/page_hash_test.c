/* The hash of pages: that it is what its header says, for ever, and that no kind of change escapes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "rpc/base/page_hash.h"
#include "rpc/base/test_random.h"

enum { WORDS = FLYT_PAGE_BYTES / 4, ROW = FLYT_PAGE_HASH_ROW_WORDS, SEEN_MAX = 1 << 17 };

/* All hashes that a test has seen: they must all differ. */
struct seen {
    struct flyt_page_hash hashes[SEEN_MAX];
    unsigned count;
};

struct fixture {
    struct flyt_page_hash_keys keys;
    union {
        uint32_t words[WORDS];
        unsigned char bytes[FLYT_PAGE_BYTES + 1];
    } page;
    struct seen seen;
    uint64_t random;
};

static uint64_t next_random(struct fixture *self)
{
    return test_random_next(&self->random);
}

static void fill_random(struct fixture *self)
{
    for (unsigned i = 0; i < WORDS; i += 2) {
        uint64_t both = next_random(self);
        memcpy(self->page.words + i, &both, sizeof both);
    }
}

static void prepare(struct fixture *self, unsigned char first, unsigned char step)
{
    struct flyt_page_key key;
    for (unsigned i = 0; i < sizeof key.bytes; i++)
        key.bytes[i] = (unsigned char)(first + i * step);
    flyt_page_hash_prepare(&key, &self->keys);
}

static int set_up(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->random = TEST_RANDOM_SEED;
    prepare(self, 0, 1);
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    free(*state);
    return 0;
}

static struct flyt_page_hash hash(const struct fixture *self)
{
    struct flyt_page_hash result;
    flyt_page_hash(&self->keys, self->page.bytes, &result, NULL);
    return result;
}

static void see(struct fixture *self)
{
    assert_true(self->seen.count < SEEN_MAX);
    self->seen.hashes[self->seen.count++] = hash(self);
}

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct flyt_page_hash));
}

static void assert_all_differ(struct fixture *self)
{
    struct flyt_page_hash *hashes = self->seen.hashes;
    qsort(hashes, self->seen.count, sizeof *hashes, compare);
    for (unsigned i = 1; i < self->seen.count; i++)
        assert_memory_not_equal(&hashes[i - 1], &hashes[i], sizeof *hashes);
    assert_true(self->seen.count > 1);
}

/* ---- that it is frozen ---- */

static void fill_count(struct fixture *self)
{
    for (unsigned i = 0; i < WORDS; i++)
        self->page.words[i] = i;
}

static void fill_last_bit(struct fixture *self)
{
    self->page.bytes[FLYT_PAGE_BYTES - 1] = 0x80;
}

static void fill_ones(struct fixture *self)
{
    memset(self->page.bytes, 0xff, FLYT_PAGE_BYTES);
}

static void fill_zero(struct fixture *self)
{
}

/* Computed with integers of any length from the header's text, by a program that shares nothing with this one. */
static void known_answers(void **state)
{
    static const struct {
        unsigned char key_first, key_step;
        void (*fill)(struct fixture *self);
        struct flyt_page_hash hash;
    } answers[] = {
        {0, 0, fill_zero, {{0x7bde2de091b345d7ull, 0x1152531683560eafull}}},
        {0, 0, fill_ones, {{0x2cb9292ea492b905ull, 0x35dae052a747439cull}}},
        {0, 0, fill_count, {{0xff9444ae75853b3dull, 0x1acceb61af80ea87ull}}},
        {0, 0, fill_last_bit, {{0xd0b0e683535dffbeull, 0xa054aa550f353b36ull}}},
        {0, 0, fill_random, {{0xafc9d63df12080c6ull, 0xa2a7f71b3ff9509cull}}},
        {0, 1, fill_zero, {{0x379354be976edcebull, 0x31cbc90cd3541f89ull}}},
        {0, 1, fill_ones, {{0x5788f2622a6b4f9eull, 0x7e43f93a85a4350dull}}},
        {0, 1, fill_count, {{0x8253115521bbba44ull, 0x2e7da587d29cb616ull}}},
        {0, 1, fill_last_bit, {{0x34436f77d079b6f4ull, 0xe82c83501d1a994aull}}},
        {0, 1, fill_random, {{0x775ad882a0286ee2ull, 0x83a7e2dab0876a60ull}}},
        {255, 0, fill_zero, {{0x5e7a584040558dd2ull, 0x7e82f5af30053a23ull}}},
        {255, 0, fill_ones, {{0xb00773cdbc71dd44ull, 0x27861dc3da114931ull}}},
        {255, 0, fill_count, {{0x6292d88ca121cba5ull, 0x46adcef437f3d432ull}}},
        {255, 0, fill_last_bit, {{0x58256b4f02d09942ull, 0xf3712b409a69e7d4ull}}},
        {255, 0, fill_random, {{0x03e8e74bbea4b74cull, 0xa3bec7c3fe2ad017ull}}},
    };
    struct fixture *self = *state;
    assert_int_equal(FLYT_PAGE_HASH_VERSION, 1); /* other answers need another number */
    for (unsigned i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        prepare(self, answers[i].key_first, answers[i].key_step);
        memset(&self->page, 0, sizeof self->page);
        self->random = TEST_RANDOM_SEED;
        answers[i].fill(self);
        struct flyt_page_hash result = hash(self);
        assert_int_equal(result.words[0], answers[i].hash.words[0]);
        assert_int_equal(result.words[1], answers[i].hash.words[1]);
    }
}

static void key_words_are_known(void **state)
{
    struct fixture *self = *state;
    assert_int_equal(self->keys.words[0], 0x2107bff1);
    assert_int_equal(self->keys.words[FLYT_PAGE_HASH_WORDS - 1], 0x3447a82b);
    assert_int_equal(self->keys.factors[0][0], 0x1b6408966b29abf9ull);
    assert_int_equal(self->keys.factors[1][7], 0xe9ab041b665b7eaull);
}

static void the_place_of_the_page_is_nothing_to_it(void **state)
{
    struct fixture *self = *state;
    fill_random(self);
    struct flyt_page_hash expected = hash(self), result;
    memmove(self->page.bytes + 1, self->page.bytes, FLYT_PAGE_BYTES);
    flyt_page_hash(&self->keys, self->page.bytes + 1, &result, NULL);
    assert_true(flyt_page_hash_is_equal(&expected, &result));
}

/* ---- what must not escape it ---- */

/* Some bits of every word, and every bit of many: 13 and 32 have no common divisor. */
static void single_bits_change_it(struct fixture *self)
{
    see(self);
    for (unsigned bit = 0; bit < FLYT_PAGE_BYTES * 8; bit += 13) {
        self->page.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        see(self);
        self->page.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_all_differ(self);
}

static void single_bits_of_random_pages(void **state)
{
    fill_random(*state);
    single_bits_change_it(*state);
}

static void single_bits_of_zero_pages(void **state)
{
    single_bits_change_it(*state);
}

static void swap(struct fixture *self, unsigned a, unsigned b, unsigned words)
{
    uint32_t kept[ROW];
    assert_true(words <= ROW);
    memcpy(kept, self->page.words + a, words * sizeof *kept);
    memcpy(self->page.words + a, self->page.words + b, words * sizeof *kept);
    memcpy(self->page.words + b, kept, words * sizeof *kept);
}

/* Of words, pairs, chunks and rows, near and far, one swap at a time. */
static void swaps(void **state)
{
    struct fixture *self = *state;
    fill_random(self);
    see(self);
    for (unsigned words = 1; words <= ROW; words *= 2) {
        for (unsigned distance = words; distance < WORDS; distance *= 2) {
            for (unsigned round = 0; round < 8; round++) {
                unsigned a = (unsigned)(next_random(self) % (WORDS - distance - words + 1)) / words * words;
                swap(self, a, a + distance, words);
                see(self);
                swap(self, a, a + distance, words);
            }
        }
    }
    /* The rounds may have drawn the same swap twice: but none of them is what was there before. */
    struct flyt_page_hash *hashes = self->seen.hashes, original = hash(self);
    unsigned equal = 0;
    for (unsigned i = 0; i < self->seen.count; i++)
        equal += flyt_page_hash_is_equal(&hashes[i], &original);
    assert_int_equal(equal, 1);
}

static void rotations(void **state)
{
    struct fixture *self = *state;
    fill_count(self);
    for (unsigned i = 0; i < 2048; i++) {
        see(self);
        unsigned by = i % 2 ? 1 : 1 + (unsigned)(next_random(self) % 7);
        uint32_t kept[8];
        memcpy(kept, self->page.words, by * 4);
        memmove(self->page.words, self->page.words + by, (WORDS - by) * 4);
        memcpy(self->page.words + WORDS - by, kept, by * 4);
    }
    assert_all_differ(self);
}

/* The same value in every place by itself. */
static void equal_values_in_different_places(void **state)
{
    struct fixture *self = *state;
    see(self);
    for (unsigned i = 0; i < WORDS; i++) {
        self->page.words[i] = 0x3f800000; /* 1.0f */
        see(self);
        self->page.words[i] = 0;
    }
    assert_all_differ(self);
}

/* Changes that sums and xors of words would not see: +x here and -x there, the sign of two floats, one word copied. */
static void changes_that_cancel(void **state)
{
    struct fixture *self = *state;
    fill_random(self);
    see(self);
    for (unsigned i = 0; i < 8192; i++) {
        unsigned a = (unsigned)(next_random(self) % WORDS),
                 b = (a + 1 + (unsigned)(next_random(self) % (WORDS - 1))) % WORDS;
        uint32_t kept_a = self->page.words[a], kept_b = self->page.words[b], x = (uint32_t)next_random(self) | 1;
        switch (i % 4) {
        case 0:
            self->page.words[a] += x, self->page.words[b] -= x;
            break;
        case 1:
            self->page.words[a] ^= 0x80000000, self->page.words[b] ^= 0x80000000;
            break;
        case 2:
            self->page.words[a] ^= x, self->page.words[b] ^= x;
            break;
        default:
            self->page.words[a] = -kept_a, self->page.words[b] = -kept_b;
        }
        see(self);
        self->page.words[a] = kept_a;
        self->page.words[b] = kept_b;
    }
    assert_all_differ(self);
}

static void zero_pages_are_told(void **state)
{
    struct fixture *self = *state;
    struct flyt_page_hash result;
    bool is_zero = false;
    flyt_page_hash(&self->keys, self->page.bytes, &result, &is_zero);
    assert_true(is_zero);
    for (unsigned i = 0; i < FLYT_PAGE_BYTES; i += 7) {
        self->page.bytes[i] = (unsigned char)(1u << i % 8);
        flyt_page_hash(&self->keys, self->page.bytes, &result, &is_zero);
        assert_false(is_zero);
        self->page.bytes[i] = 0;
    }
}

/* One bit of the key makes another hash of the same page, the zero page's too. */
static void every_bit_of_the_key_counts(void **state)
{
    struct fixture *self = *state;
    struct flyt_page_key key = {{0}};
    see(self);
    for (unsigned bit = 0; bit < 128; bit++) {
        key.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        flyt_page_hash_prepare(&key, &self->keys);
        see(self);
        key.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_all_differ(self);
}

/* Of pages that differ in one counting word, each bit of the hash is 1 half of the time, and changes half of the time
 * from one page to the next: within six standard deviations. */
static void bits_are_balanced(void **state)
{
    enum { PAGES = 16384, MARGIN = 6 * 64 }; /* the deviation is half of the root of PAGES */
    struct fixture *self = *state;
    unsigned ones[128] = {0}, changes[128] = {0};
    struct flyt_page_hash last = hash(self);
    for (unsigned i = 1; i <= PAGES; i++) {
        self->page.words[5000] = i;
        struct flyt_page_hash result = hash(self);
        for (unsigned bit = 0; bit < 128; bit++) {
            ones[bit] += result.words[bit / 64] >> bit % 64 & 1;
            changes[bit] += (result.words[bit / 64] ^ last.words[bit / 64]) >> bit % 64 & 1;
        }
        last = result;
    }
    for (unsigned bit = 0; bit < 128; bit++) {
        assert_in_range(ones[bit], PAGES / 2 - MARGIN, PAGES / 2 + MARGIN);
        assert_in_range(changes[bit], PAGES / 2 - MARGIN, PAGES / 2 + MARGIN);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(known_answers),
        TEST(key_words_are_known),
        TEST(the_place_of_the_page_is_nothing_to_it),
        TEST(single_bits_of_random_pages),
        TEST(single_bits_of_zero_pages),
        TEST(swaps),
        TEST(rotations),
        TEST(equal_values_in_different_places),
        TEST(changes_that_cancel),
        TEST(zero_pages_are_told),
        TEST(every_bit_of_the_key_counts),
        TEST(bits_are_balanced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
