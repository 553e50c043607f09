/* Looking for addresses of variables in device memory: the kernel, executed by the software GPU, and the CPU in its
 * place, both against words that the test has put there and against a plain search of its own. */
#include <stdlib.h>
#include <string.h>

#include "cpu/server/test/fake_soft.h"
#include "cpu/server/move/out/scan.h"
#include "rpc/base/test_random.h"

enum { MEMORY_BYTES = 1 << 20, WORDS = MEMORY_BYTES / 8, SMS = 4, MANY = 5000 };

struct fixture {
    const struct flyt_driver *driver;
    CUstream stream;
    CUdeviceptr memory;
    uint64_t *words; /* what is to be there */
    uint64_t random;
};

static uint64_t next_random(struct fixture *self)
{
    return test_random_next(&self->random);
}

static int set_up(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->driver = *state;
    self->random = TEST_RANDOM_SEED;
    self->words = calloc(WORDS, 8);
    assert_non_null(self->words);
    self->stream = fake_soft_begin();
    assert_ok(cuMemAlloc(&self->memory, MEMORY_BYTES));
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *self = *state;
    assert_ok(cuMemFree(self->memory));
    assert_ok(cuStreamDestroy(self->stream));
    free(self->words);
    free(self);
    return 0;
}

static void scan(struct fixture *self, const struct flyt_scan_range *ranges, uint32_t range_count,
                 struct flyt_scan_place *places, uint32_t place_count)
{
    assert_ok(cuMemcpyHtoD(self->memory, self->words, MEMORY_BYTES));
    for (uint32_t i = 0; i < place_count; i++)
        places[i].is_referenced = false;
    assert_ok(flyt_scan(self->driver, 0, ranges, range_count, places, place_count, SMS, self->stream));
}

static void scan_all(struct fixture *self, struct flyt_scan_place *places, uint32_t place_count)
{
    const struct flyt_scan_range all = {self->memory, MEMORY_BYTES};
    scan(self, &all, 1, places, place_count);
}

static void words_inside_and_outside(void **state)
{
    static const struct {
        uint64_t word;
        unsigned found; /* bit n: place n */
    } cases[] = {
        {0x7f0000001000, 1}, {0x7f0000000fff, 0},
        {0x7f00000010ff, 1}, {0x7f0000001100, 1},
        {0x7f0000001101, 0}, {0x7f0000002000, 2},
        {0x7f0000002001, 2}, {0x7f0000002002, 0},
        {0x7f0000004000, 4}, {0x7f0000004008, 12},
        {0x7f000000400c, 8}, {0x7f0000004010, 8},
        {0x7f0000004011, 0}, {0, 0},
        {UINT64_MAX, 0},     {0x7f00001000, 0},
        {0x1000, 0},
    };
    static const unsigned spots[] = {0, 1, 511, 512, 2047, 2048, 4095, WORDS / 2, WORDS - 1};
    struct fixture *self = *state;
    /* One of no bytes; two that touch each other; not by address. */
    struct flyt_scan_place places[] = {{0x7f0000001000, 0x100, false},
                                       {0x7f0000002000, 0, false},
                                       {0x7f0000004000, 8, false},
                                       {0x7f0000004008, 8, false}};
    struct flyt_scan_place order[] = {places[3], places[1], places[0], places[2]};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned spot = spots[i % (sizeof spots / sizeof spots[0])];
        self->words[spot] = cases[i].word;
        scan_all(self, places, 4);
        scan_all(self, order, 4);
        for (unsigned k = 0; k < 4; k++)
            assert_int_equal(places[k].is_referenced, cases[i].found >> k & 1);
        assert_int_equal(order[0].is_referenced, places[3].is_referenced);
        assert_int_equal(order[1].is_referenced, places[1].is_referenced);
        assert_int_equal(order[2].is_referenced, places[0].is_referenced);
        assert_int_equal(order[3].is_referenced, places[2].is_referenced);
        self->words[spot] = 0;
    }
}

static void every_word_is_looked_at(void **state)
{
    struct fixture *self = *state;
    struct flyt_scan_place place = {0x7f0000001000, 16, false};
    /* Ranges that leave one word out: it is in none, then in one of them. */
    for (unsigned i = 0; i < 40; i++) {
        uint64_t spot = i < 4 ? i : i < 8 ? WORDS - 1 - (i - 4) : next_random(self) % WORDS;
        const struct flyt_scan_range ranges[] = {{self->memory, spot * 8},
                                                 {self->memory + spot * 8 + 8, MEMORY_BYTES - spot * 8 - 8}};
        const struct flyt_scan_range exactly = {self->memory + spot * 8, 8};
        self->words[spot] = 0x7f0000001008;
        scan(self, ranges, 2, &place, 1);
        assert_false(place.is_referenced);
        scan(self, &exactly, 1, &place, 1);
        assert_true(place.is_referenced);
        scan_all(self, &place, 1);
        assert_true(place.is_referenced);
        self->words[spot] = 0;
    }
}

/* Words lie at multiples of 8; what sticks out of a range at either end is none of it. */
static void ranges_begin_and_end_anywhere(void **state)
{
    struct fixture *self = *state;
    struct flyt_scan_place place = {0x7f0000001000, 16, false};
    self->words[10] = 0x7f0000001000;
    for (unsigned begin = 0; begin < 24; begin++)
        for (unsigned bytes = 0; bytes < 32; bytes++) {
            const struct flyt_scan_range range = {self->memory + 72 + begin, bytes};
            scan(self, &range, 1, &place, 1);
            assert_int_equal(place.is_referenced, begin <= 8 && begin + bytes >= 16);
        }
    /* An address that is put across two words is none. */
    memset(self->words, 0, MEMORY_BYTES);
    uint64_t word = 0x7f0000001008;
    memcpy((char *)self->words + 804, &word, sizeof word);
    scan_all(self, &place, 1);
    assert_false(place.is_referenced);
}

/* More than one pass holds, overlapping ones among them, in memory full of words that are near. */
static void many_places_and_many_words(void **state)
{
    struct fixture *self = *state;
    const uint64_t base = 0x7f1234000000;
    struct flyt_scan_place *places = calloc(MANY, sizeof *places);
    unsigned found_count = 0;
    assert_non_null(places);
    for (unsigned i = 0; i < MANY; i++) {
        places[i].address = base + i * 64 + next_random(self) % 32;
        places[i].bytes = next_random(self) % 32;
    }
    for (unsigned i = 0; i < WORDS; i++) /* of four out of eight variables, and what is not in any */
        self->words[i] = i % 16 ? next_random(self) : base + (next_random(self) % (MANY * 8) / 4 * 2 + i / 16 % 2) * 8;
    for (unsigned i = 0; i < WORDS; i++)
        if (self->words[i] >= base && self->words[i] < base + MANY * 64 && self->words[i] / 64 % 4 == 1)
            self->words[i] = 0;
    scan_all(self, places, MANY);
    bool *wants = calloc(MANY, sizeof *wants);
    assert_non_null(wants);
    for (unsigned i = 0; i < WORDS; i++) {
        uint64_t at = self->words[i] - base;
        for (uint64_t k = at / 64 ? at / 64 - 1 : 0; at <= MANY * 64 && k <= at / 64 && k < MANY; k++) {
            uint64_t bytes = places[k].bytes ? places[k].bytes : 1;
            wants[k] |= self->words[i] >= places[k].address && self->words[i] <= places[k].address + bytes;
        }
    }
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(places[i].is_referenced, wants[i]);
        found_count += wants[i];
    }
    assert_true(found_count > MANY / 10 && found_count < MANY - MANY / 10);
    free(wants);
    free(places);
}

static void overlapping_places_are_found_together(void **state)
{
    struct fixture *self = *state;
    struct flyt_scan_place places[] = {
        {0x7f0000001000, 64, false}, {0x7f0000001010, 16, false}, {0x7f0000001000, 64, false}};
    self->words[77] = 0x7f0000001014;
    scan_all(self, places, 3);
    assert_true(places[0].is_referenced && places[1].is_referenced && places[2].is_referenced);
}

static void nothing_to_look_for(void **state)
{
    struct fixture *self = *state;
    const struct flyt_scan_range all = {self->memory, MEMORY_BYTES};
    struct flyt_scan_place place = {0x7f0000001000, 64, true};
    assert_ok(flyt_scan(self->driver, 0, &all, 1, NULL, 0, SMS, self->stream));
    assert_ok(flyt_scan(self->driver, 0, NULL, 0, &place, 1, SMS, self->stream));
    assert_ok(flyt_scan(self->driver, 0, &all, 1, &place, 1, SMS, self->stream));
    assert_true(place.is_referenced); /* what was known stays */
}

int main(void)
{
#define TEST(name) FAKE_SOFT_BOTH(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(words_inside_and_outside),
        TEST(every_word_is_looked_at),
        TEST(ranges_begin_and_end_anywhere),
        TEST(many_places_and_many_words),
        TEST(overlapping_places_are_found_together),
        TEST(nothing_to_look_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
