/* The kernel that hashes pages, executed by the software GPU, against the algorithm on the CPU; and what stands in for
 * the kernel with a software GPU. All tests run with either. */
#include <stdlib.h>
#include <string.h>

#include "cpu/server/test/fake_soft.h"
#include "cpu/server/move/common/page_hasher.h"
#include "cpu/server/move/common/page_table.h"
#include "rpc/base/test_random.h"

enum { AREAS = 3, AREA_PAGES = 40, PAGES = AREAS * AREA_PAGES, RANGES_MAX = 64, PAGE = FLYT_PAGE_BYTES };

struct fixture {
    struct flyt_page_hasher hasher;
    struct flyt_page_batch batch;
    struct flyt_page_hash_keys keys;
    CUdeviceptr hasher_memory, batch_memory, area_memory[AREAS], copies;
    CUdeviceptr areas[AREAS]; /* in that, from a page's beginning on */
    unsigned char *bytes;     /* what is in the areas, one behind the other */
    CUstream stream;
    uint64_t random;
};

static uint64_t next_random(struct fixture *self)
{
    return test_random_next(&self->random);
}

/* Of five pages one is zero, one has a single bit, and three are random. */
static void fill(struct fixture *self)
{
    for (unsigned page = 0; page < PAGES; page++) {
        unsigned char *bytes = self->bytes + (size_t)page * PAGE;
        if (page % 5 == 1)
            bytes[next_random(self) % PAGE] = (unsigned char)(1u << page % 8);
        for (unsigned i = 0; page % 5 > 1 && i < PAGE; i += 8) {
            uint64_t word = next_random(self);
            memcpy(bytes + i, &word, sizeof word);
        }
    }
    for (unsigned i = 0; i < AREAS; i++)
        assert_ok(cuMemcpyHtoD(self->areas[i], self->bytes + (size_t)i * AREA_PAGES * PAGE, AREA_PAGES * PAGE));
}

static int set_up(void **state)
{
    static const struct flyt_page_key key = {"sixteen bytes !"};
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    self->random = TEST_RANDOM_SEED;
    self->bytes = calloc(PAGES, PAGE);
    assert_non_null(self->bytes);
    self->stream = fake_soft_begin();
    assert_ok(cuMemAlloc(&self->hasher_memory, FLYT_PAGE_HASHER_BYTES));
    assert_ok(cuMemAlloc(&self->batch_memory, FLYT_PAGE_BATCH_BYTES(PAGES)));
    assert_ok(cuMemAlloc(&self->copies, (size_t)PAGES * PAGE));
    for (unsigned i = 0; i < AREAS; i++) {
        assert_ok(cuMemAlloc(&self->area_memory[i], (AREA_PAGES + 1) * PAGE));
        self->areas[i] = (self->area_memory[i] + PAGE - 1) / PAGE * PAGE;
    }
    fill(self);
    flyt_page_hash_prepare(&key, &self->keys);
    assert_ok(flyt_page_hasher_init(&self->hasher, *state, 0, &key, self->hasher_memory, self->stream));
    assert_ok(flyt_page_batch_init(&self->batch, &self->hasher, PAGES, self->batch_memory));
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *self = *state;
    assert_ok(cuStreamSynchronize(self->stream));
    flyt_page_batch_fini(&self->batch);
    flyt_page_hasher_fini(&self->hasher);
    for (unsigned i = 0; i < AREAS; i++)
        assert_ok(cuMemFree(self->area_memory[i]));
    assert_ok(cuMemFree(self->copies));
    assert_ok(cuMemFree(self->batch_memory));
    assert_ok(cuMemFree(self->hasher_memory));
    assert_ok(cuStreamDestroy(self->stream));
    free(self->bytes);
    free(self);
    return 0;
}

/* Random ranges of at most `pages_max` pages in all, empty ones among them; where page n of them is in bytes. */
static uint32_t draw_ranges(struct fixture *self, uint32_t pages_max, struct flyt_page_range *ret_ranges,
                            uint32_t *ret_places, uint32_t *ret_pages)
{
    uint32_t count = 0, pages = 0;
    while (count < RANGES_MAX && pages < pages_max) {
        uint32_t area = (uint32_t)(next_random(self) % AREAS), first = (uint32_t)(next_random(self) % AREA_PAGES);
        uint32_t length = (uint32_t)(next_random(self) % 8);
        if (length > AREA_PAGES - first)
            length = AREA_PAGES - first;
        if (length > pages_max - pages)
            length = pages_max - pages;
        ret_ranges[count++] = (struct flyt_page_range){self->areas[area] + (uint64_t)first * PAGE, length};
        for (uint32_t i = 0; i < length; i++)
            ret_places[pages++] = area * AREA_PAGES + first + i;
    }
    *ret_pages = pages;
    return count;
}

static void check(struct fixture *self, const void *bytes, struct flyt_page_hash hash, bool is_zero)
{
    struct flyt_page_hash expected;
    bool is_expected_zero;
    flyt_page_hash(&self->keys, bytes, &expected, &is_expected_zero);
    assert_true(flyt_page_hash_is_equal(&expected, &hash));
    assert_int_equal(is_expected_zero, is_zero);
}

static void finish(struct fixture *self)
{
    assert_ok(cuStreamSynchronize(self->stream));
    assert_ok(flyt_page_batch_finish(&self->batch));
}

/* From one block that hashes all pages in turn to one page per block. */
static void hashes_are_right(void **state)
{
    struct fixture *self = *state;
    struct flyt_page_range ranges[RANGES_MAX];
    uint32_t places[PAGES], pages;
    for (unsigned round = 0; round < 12; round++) {
        uint32_t count = draw_ranges(self, 1 + (uint32_t)(next_random(self) % PAGES), ranges, places, &pages);
        if (!pages)
            continue;
        assert_ok(flyt_page_batch_look(&self->batch, ranges, count, round % 4 == 3 ? 132 : 1 + round, self->stream));
        finish(self);
        for (uint32_t i = 0; i < pages; i++) {
            struct flyt_page_seen seen = flyt_page_batch_seen(&self->batch, i);
            check(self, self->bytes + (size_t)places[i] * PAGE, seen.hash, seen.is_zero);
        }
    }
}

static void the_zero_page_is_known(void **state)
{
    struct fixture *self = *state;
    struct flyt_page_range range = {self->areas[0], 2}; /* the first one is zero */
    assert_ok(flyt_page_batch_look(&self->batch, &range, 1, 8, self->stream));
    finish(self);
    struct flyt_page_hash zero = flyt_page_hasher_zero(&self->hasher);
    struct flyt_page_seen first = flyt_page_batch_seen(&self->batch, 0), second = flyt_page_batch_seen(&self->batch, 1);
    assert_true(first.is_zero && flyt_page_hash_is_equal(&zero, &first.hash));
    assert_false(second.is_zero || flyt_page_hash_is_equal(&zero, &second.hash));
}

static void copies_are_the_pages(void **state)
{
    struct fixture *self = *state;
    struct flyt_page_range ranges[RANGES_MAX];
    uint32_t places[PAGES], pages;
    unsigned char *copies = malloc((size_t)PAGES * PAGE);
    assert_non_null(copies);
    uint32_t count = draw_ranges(self, PAGES - 1, ranges, places, &pages);
    assert_ok(cuMemsetD8(self->copies, 0xab, (size_t)PAGES * PAGE));
    assert_ok(cuCtxSynchronize());
    assert_ok(flyt_page_batch_copy(&self->batch, ranges, count, self->copies, 4, self->stream));
    finish(self);
    assert_ok(cuMemcpyDtoH(copies, self->copies, (size_t)PAGES * PAGE));
    for (uint32_t i = 0; i < pages; i++) {
        struct flyt_page_sent sent = flyt_page_batch_sent(&self->batch, i);
        assert_memory_equal(copies + (size_t)i * PAGE, self->bytes + (size_t)places[i] * PAGE, PAGE);
        check(self, copies + (size_t)i * PAGE, sent.hash, sent.is_zero);
    }
    /* And nothing behind the last one. */
    for (size_t i = (size_t)pages * PAGE; i < (size_t)PAGES * PAGE; i++)
        assert_int_equal(copies[i], 0xab);
    free(copies);
}

/* Pages of all areas, scattered, into a mirror of one of them: others of the mirror stay what they were. */
static void copies_are_at_a_distance(void **state)
{
    struct fixture *self = *state;
    struct flyt_page_range ranges[AREA_PAGES];
    unsigned char *copies = malloc(AREA_PAGES * PAGE);
    uint64_t from = self->areas[2], to = (self->copies + PAGE - 1) / PAGE * PAGE;
    assert_non_null(copies);
    for (unsigned round = 0; round < 4; round++) {
        uint32_t places[AREA_PAGES], count = 0, pages = 0;
        bool is_copied[AREA_PAGES] = {false};
        for (uint32_t page = (uint32_t)(next_random(self) % 3); page < AREA_PAGES;
             page += 2 + (uint32_t)(next_random(self) % 3)) {
            uint64_t length = page + 2 <= AREA_PAGES && next_random(self) % 4 == 0 ? 2 : 1;
            ranges[count++] = (struct flyt_page_range){from + (uint64_t)page * PAGE, length};
            for (uint64_t i = 0; i < length; i++) {
                is_copied[page + i] = true;
                places[pages++] = page + (uint32_t)i;
            }
        }
        assert_ok(cuMemsetD8(self->copies, 0xab, (size_t)(AREA_PAGES + 1) * PAGE));
        assert_ok(cuCtxSynchronize());
        assert_ok(flyt_page_batch_copy_at(&self->batch, ranges, count, to - from, 1 + round, self->stream));
        finish(self);
        assert_ok(cuMemcpyDtoH(copies, to, (size_t)AREA_PAGES * PAGE));
        for (uint32_t i = 0; i < pages; i++) {
            struct flyt_page_sent sent = flyt_page_batch_sent(&self->batch, i);
            const unsigned char *copy = copies + (size_t)places[i] * PAGE;
            assert_memory_equal(copy, self->bytes + ((size_t)2 * AREA_PAGES + places[i]) * PAGE, PAGE);
            check(self, copy, sent.hash, sent.is_zero);
        }
        for (uint32_t page = 0; page < AREA_PAGES; page++)
            for (size_t i = 0; !is_copied[page] && i < PAGE; i++)
                assert_int_equal(copies[(size_t)page * PAGE + i], 0xab);
    }
    free(copies);
}

/* Another stream fills the pages all the time: what a copy contains is what its hash says, whatever that is. */
static void hashes_are_those_of_the_copies(void **state)
{
    enum { HOT = 8, ROUNDS = 24, FILLS = 64 };
    struct fixture *self = *state;
    struct flyt_page_range range = {self->areas[1], HOT};
    unsigned char *copies = malloc(HOT * PAGE);
    uint64_t mirror = (self->copies + PAGE - 1) / PAGE * PAGE;
    CUstream writer;
    assert_non_null(copies);
    assert_ok(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < FILLS; i++)
            assert_ok(cuMemsetD32Async(self->areas[1] + (i % 8) * PAGE, round * FILLS + i, PAGE / 4, writer));
        if (round % 2)
            assert_ok(flyt_page_batch_copy(&self->batch, &range, 1, mirror, 4, self->stream));
        else
            assert_ok(flyt_page_batch_copy_at(&self->batch, &range, 1, mirror - range.address, 4, self->stream));
        finish(self);
        assert_ok(cuMemcpyDtoH(copies, mirror, HOT * PAGE));
        for (uint32_t i = 0; i < HOT; i++) {
            struct flyt_page_sent sent = flyt_page_batch_sent(&self->batch, i);
            check(self, copies + i * PAGE, sent.hash, sent.is_zero);
        }
        assert_ok(cuStreamSynchronize(writer));
    }
    assert_ok(cuStreamDestroy(writer));
    free(copies);
}

static void what_does_not_fit_is_refused(void **state)
{
    struct fixture *self = *state;
    struct flyt_page_range range = {self->areas[0], 1}, many[PAGES + 1] = {{0}};
    struct flyt_page_batch batch;
    const CUresult invalid = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i <= PAGES; i++)
        many[i] = range;
    assert_int_equal(flyt_page_batch_look(&self->batch, NULL, 0, 1, self->stream), invalid);
    assert_int_equal(flyt_page_batch_look(&self->batch, many, PAGES + 1, 1, self->stream), invalid);
    assert_int_equal(flyt_page_batch_look(&self->batch, &range, 1, 0, self->stream), invalid);
    range.pages_count = 0;
    assert_int_equal(flyt_page_batch_look(&self->batch, &range, 1, 1, self->stream), invalid);
    range.pages_count = PAGES + 1;
    assert_int_equal(flyt_page_batch_look(&self->batch, &range, 1, 1, self->stream), invalid);
    range.pages_count = UINT64_MAX;
    many[1] = range;
    assert_int_equal(flyt_page_batch_look(&self->batch, many, 2, 1, self->stream), invalid);
    range = (struct flyt_page_range){self->areas[0] + 512, 1};
    assert_int_equal(flyt_page_batch_look(&self->batch, &range, 1, 1, self->stream), invalid);
    range.address = self->areas[0];
    assert_int_equal(flyt_page_batch_copy(&self->batch, &range, 1, 0, 1, self->stream), invalid);
    assert_int_equal(flyt_page_batch_copy(&self->batch, &range, 1, self->copies + 8, 1, self->stream), invalid);
    assert_int_equal(flyt_page_batch_copy_at(&self->batch, &range, 1, 0, 1, self->stream), invalid);
    assert_int_equal(flyt_page_batch_copy_at(&self->batch, &range, 1, PAGE / 2, 1, self->stream), invalid);
    assert_int_equal(flyt_page_batch_init(&batch, &self->hasher, 0, self->batch_memory), invalid);
    assert_int_equal(flyt_page_batch_init(&batch, &self->hasher, FLYT_PAGE_BATCH_PAGES_MAX + 1, self->batch_memory),
                     invalid);
    flyt_page_batch_fini(&batch);
    assert_ok(flyt_page_batch_look(&self->batch, &range, 1, 1, self->stream));
}

/* ---- with the table: a small migration ---- */

enum { EXTENTS = 2, EXTENT_PAGES = FLYT_PAGE_EXTENT_BYTES / PAGE, MOVED_PAGES = EXTENTS * EXTENT_PAGES };

struct move {
    struct fixture *self;
    struct flyt_page_table table;
    struct flyt_page_runs runs;
    CUdeviceptr memory[2], source, target; /* from an extent's beginning on, in those */
    CUstream writer;
};

/* The program: changes pages, makes them zero, and back what they were before. */
static void write_somewhere(struct move *move)
{
    for (unsigned i = 0; i < 48; i++) {
        uint64_t page = next_random(move->self) % MOVED_PAGES, value = next_random(move->self) % 3;
        uint64_t at = move->source + page * PAGE + next_random(move->self) % 2 * (PAGE / 2);
        assert_ok(cuMemsetD32Async(at, (unsigned)value * 0x01020304u, PAGE / 8, move->writer));
    }
}

/* Looks at all pages. */
static void look(struct move *move)
{
    struct fixture *self = move->self;
    struct flyt_page_range ranges[RANGES_MAX];
    uint64_t cursor = 0;
    uint32_t count;
    flyt_page_runs_clear(&move->runs);
    while ((count = flyt_page_table_look(&move->table, &cursor, 25, RANGES_MAX, ranges))) {
        assert_ok(flyt_page_batch_look(&self->batch, ranges, count, 4, self->stream));
        finish(self);
        uint32_t n = 0;
        for (uint32_t i = 0; i < count; i++)
            for (uint64_t page = 0; page < ranges[i].pages_count; page++)
                assert_int_equal(flyt_page_table_compare(&move->table, ranges[i].address + page * PAGE,
                                                         flyt_page_batch_seen(&self->batch, n++), &move->runs),
                                 0);
    }
}

/* Sends the runs to the target. */
static void send_runs(struct move *move)
{
    struct fixture *self = move->self;
    for (uint64_t i = 0; i < move->runs.count; i++) {
        const struct flyt_page_run *run = &move->runs.items[i];
        const struct flyt_page_range range = {run->address, run->pages_count};
        CUdeviceptr to = move->target + (run->address - move->source);
        assert_int_equal(flyt_page_table_begin(&move->table, run), 0);
        if (run->is_zero) {
            assert_ok(cuMemsetD8Async(to, 0, run->pages_count * PAGE, self->stream));
            assert_ok(cuStreamSynchronize(self->stream));
            assert_int_equal(flyt_page_table_sent_zeros(&move->table, run), 0);
            continue;
        }
        assert_ok(flyt_page_batch_copy(&self->batch, &range, 1, self->copies, 4, self->stream));
        assert_ok(cuMemcpyDtoDAsync(to, self->copies, run->pages_count * PAGE, self->stream));
        finish(self);
        for (uint64_t n = 0; n < run->pages_count; n++)
            assert_int_equal(
                flyt_page_table_sent(&move->table, run, n, flyt_page_batch_sent(&self->batch, (uint32_t)n)), 0);
    }
}

/* While the program writes, whatever the order of things; when it stands, one round more makes both sides equal. */
static void what_is_sent_becomes_what_is_there(void **state)
{
    enum { ROUNDS = 6, BYTES = MOVED_PAGES * PAGE };
    struct move move = {.self = *state};
    struct flyt_page_hash zero = flyt_page_hasher_zero(&move.self->hasher);
    unsigned char *here = malloc(BYTES), *there = malloc(BYTES);
    assert_true(here && there);
    for (unsigned i = 0; i < 2; i++)
        assert_ok(cuMemAlloc(&move.memory[i], (EXTENTS + 1) * FLYT_PAGE_EXTENT_BYTES));
    move.source = (move.memory[0] + FLYT_PAGE_EXTENT_BYTES - 1) / FLYT_PAGE_EXTENT_BYTES * FLYT_PAGE_EXTENT_BYTES;
    move.target = (move.memory[1] + FLYT_PAGE_EXTENT_BYTES - 1) / FLYT_PAGE_EXTENT_BYTES * FLYT_PAGE_EXTENT_BYTES;
    assert_ok(cuMemsetD8(move.source, 0x55, BYTES));
    assert_ok(cuMemsetD8(move.target, 0xaa, BYTES));
    assert_ok(cuCtxSynchronize());
    assert_ok(cuStreamCreate(&move.writer, CU_STREAM_NON_BLOCKING));
    flyt_page_table_init(&move.table, &zero);
    for (unsigned i = 0; i < EXTENTS; i++)
        assert_int_equal(
            flyt_page_table_add(&move.table, move.source + i * FLYT_PAGE_EXTENT_BYTES, FLYT_PAGE_EXTENT_BYTES), 0);
    assert_int_equal(flyt_page_table_collect(&move.table, &move.runs), 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        write_somewhere(&move);
        send_runs(&move);
        write_somewhere(&move);
        look(&move);
    }
    write_somewhere(&move);
    assert_ok(cuStreamSynchronize(move.writer));
    look(&move);
    assert_false(flyt_page_table_is_exact(&move.table, &move.runs));
    send_runs(&move);
    look(&move);
    assert_true(flyt_page_table_is_exact(&move.table, &move.runs));
    assert_ok(cuMemcpyDtoH(here, move.source, BYTES));
    assert_ok(cuMemcpyDtoH(there, move.target, BYTES));
    assert_memory_equal(here, there, BYTES);
    flyt_page_runs_fini(&move.runs);
    flyt_page_table_fini(&move.table);
    assert_ok(cuStreamDestroy(move.writer));
    for (unsigned i = 0; i < 2; i++)
        assert_ok(cuMemFree(move.memory[i]));
    free(here);
    free(there);
}

int main(void)
{
#define TEST(name) FAKE_SOFT_BOTH(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(hashes_are_right),
        TEST(the_zero_page_is_known),
        TEST(copies_are_the_pages),
        TEST(copies_are_at_a_distance),
        TEST(hashes_are_those_of_the_copies),
        TEST(what_does_not_fit_is_refused),
        TEST(what_is_sent_becomes_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
