/*
 * What has arrived at a server that a session is moved to is what was sent: the hashes of memory that was copied to it,
 * and the contents of variables (fake_prepare.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/test/fake_prepare.h"
#include "rpc/base/id.h"

static int set_up(void **state)
{
    fake_node_fixture_new(state, sizeof(struct fake_prepare));
    return 0;
}

/* ---- hashes ---- */

static int compare_addresses(const void *left, const void *right)
{
    uint64_t a = ((const struct fake_extent *)left)->address, b = ((const struct fake_extent *)right)->address;
    return a < b ? -1 : a > b;
}

/* Which page of an extent is told with another hash than it has; -1: none. */
static void put_hashes_of(struct flyt_checkpoint_writer *writer, const struct flyt_page_hash_keys *keys,
                          const struct fake_extent *held, int64_t wrong)
{
    const uint64_t pages_count = held->bytes / FLYT_PAGE_BYTES;
    struct flyt_page_hash *hashes = calloc(pages_count, sizeof *hashes);
    const unsigned char *memory = mmap(NULL, held->bytes, PROT_READ, MAP_SHARED, held->fd, 0);
    struct flyt_error err;
    assert_true(hashes && memory != MAP_FAILED);
    for (uint64_t page = 0; page < pages_count; page++)
        flyt_page_hash(keys, memory + page * FLYT_PAGE_BYTES, &hashes[page], NULL);
    if (wrong >= 0)
        hashes[(uint64_t)wrong % pages_count].words[wrong & 1] ^= 1;
    assert_int_equal(flyt_checkpoint_put_hashes(writer, held->address, pages_count, hashes, &err), 0);
    munmap((void *)memory, held->bytes);
    free(hashes);
}

/* The hashes of an extent of which all pages are zero, one by one; `wrong`: of a page that is told to be another. */
static void put_zeros_one_by_one(struct flyt_checkpoint_writer *writer, const struct flyt_page_hash_keys *keys,
                                 const struct flyt_manager_link_extent *extent, int64_t wrong)
{
    static const unsigned char page[FLYT_PAGE_BYTES];
    struct flyt_page_hash right, other;
    struct flyt_error err;
    flyt_page_hash(keys, page, &right, NULL);
    other = right;
    other.words[1] ^= 1;
    for (uint64_t i = 0; i < extent->bytes / FLYT_PAGE_BYTES; i++)
        assert_int_equal(flyt_checkpoint_put_hashes(writer, extent->address + i * FLYT_PAGE_BYTES, 1,
                                                    (int64_t)i == wrong ? &other : &right, &err),
                         0);
}

static const struct flyt_page_key key = {"fedcba987654321"};

/* Hashes are to be compared: the key's, which the caller frees. */
static struct flyt_page_hash_keys *begin_with_key(struct fake_prepare *self)
{
    struct flyt_page_hash_keys *keys = calloc(1, sizeof *keys);
    fake_prepare_begin(self);
    assert_non_null(keys);
    flyt_page_hash_prepare(&key, keys);
    return keys;
}

/* What is in memory that was made here is what the image says, to the bit and to the page. */
static void hashes_tell_what_is_to_be_in_memory(void **state)
{
    enum { RIGHT, WRONG_FIRST, WRONG_LAST, ONE_TOO_FEW, NONE, ONE_TOO_MANY, CASES };
    static const struct {
        int want;
        const char *words;
    } cases[CASES] = {
        [RIGHT] = {0, NULL},
        [WRONG_FIRST] = {-EIO, "1 are not what was copied"},
        [WRONG_LAST] = {-EIO, "1 are not what was copied"},
        [ONE_TOO_FEW] = {-EIO, "pages of memory are here"},
        [NONE] = {-EIO, "pages of memory are here, and 0 were compared"}, /* though there is a key */
        [ONE_TOO_MANY] = {-EBADMSG, "memory that was not made here"},
    };
    struct fake_prepare *self = *state;
    struct flyt_page_hash_keys *keys = begin_with_key(self);
    struct fake_server *first = self->node.first;
    const unsigned count = first->extent_count;
    assert_true(count >= 2);
    qsort(first->extents, count, sizeof first->extents[0], compare_addresses);
    uint64_t pages_count = 0;
    char all[64];
    for (unsigned i = 0; i < count; i++)
        pages_count += first->extents[i].bytes / FLYT_PAGE_BYTES;
    snprintf(all, sizeof all, "of %llu pages of memory", (unsigned long long)pages_count);
    for (unsigned i = 0; i < CASES; i++) {
        int fd;
        fake_prepare_start(self);
        fake_prepare_make_all(self);
        struct flyt_checkpoint_writer *writer = fake_prepare_image_with(&key, &fd);
        for (unsigned n = 0; n < count - (i == ONE_TOO_FEW) && i != NONE; n++)
            put_hashes_of(writer, keys, &first->extents[n],
                          i == WRONG_FIRST && !n              ? 0
                          : i == WRONG_LAST && n == count - 1 ? INT32_MAX
                                                              : -1);
        if (i == ONE_TOO_MANY) {
            const struct flyt_page_hash hash = {0};
            struct flyt_error err;
            const struct fake_extent *last = &first->extents[count - 1];
            assert_int_equal(flyt_checkpoint_put_hashes(writer, last->address + last->bytes, 1, &hash, &err), 0);
        }
        fake_prepare_end_image(writer);
        fake_prepare_expect(self->node.second, fd, cases[i].want, cases[i].words);
        if (i == WRONG_FIRST || i == WRONG_LAST) /* all extents in one launch */
            assert_non_null(strstr(self->node.second->prepared_sentence, all));
        if (cases[i].want)
            fake_prepare_refuse(self, cases[i].words);
        else
            fake_server_kill(self->node.second);
    }
    free(keys);
    fake_server_kill(first);
    fake_server_forget(first);
}

/* More pieces than two launches take: what is told of all of them is compared, in three. */
static void hashes_of_many_pieces(void **state)
{
    enum { FIRST = 2048, SECOND = 2048, LAST = 512 }; /* pages of each launch */
    static const char *const gpu[] = {"--soft", "1", "--soft-memory", "512M", NULL};
    static const struct {
        int64_t wrong;
        int want;
        const char *words;
    } cases[] = {
        {-1, 0, NULL},
        {7, -EIO, "of 2048 pages of memory 1 are not what was copied"},
        {FIRST, -EIO, "of 2048 pages of memory 1 are not what was copied"},
        {FIRST + SECOND + LAST - 1, -EIO, "of 512 pages of memory 1 are not what was copied"},
    };
    const struct flyt_manager_link_extent extent = {1, (uint64_t)(FIRST + SECOND + LAST) * FLYT_PAGE_BYTES,
                                                    flyt_window_base(0), 0, 0};
    struct fake_prepare *self = *state;
    struct flyt_page_hash_keys *keys = begin_with_key(self);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int fd;
        fake_server_start(self->node.second, gpu);
        fake_node_prepare(&self->node, self->node.second);
        fake_prepare_make(self->node.second, &extent, 0);
        struct flyt_checkpoint_writer *writer = fake_prepare_image_with(&key, &fd);
        put_zeros_one_by_one(writer, keys, &extent, cases[i].wrong);
        fake_prepare_end_image(writer);
        fake_prepare_expect(self->node.second, fd, cases[i].want, cases[i].words);
        fake_server_kill(self->node.second);
    }
    free(keys);
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

/* What hashes takes long to make: it is there before anything can be copied here, and so before the program stops. */
static void what_hashes_is_made_before_memory_is_told(void **state)
{
    struct fake_prepare *self = *state;
    struct flyt_page_hash_keys *keys = begin_with_key(self);
    int fd;
    const struct flyt_manager_link_extent extent = fake_extent_told(&self->node.first->extents[0]);
    setenv("FLYT_FAULT", "prepare.page_reader:kill", 1);
    fake_prepare_start(self);
    const unsigned before = self->node.second->made_count;
    fake_server_send(self->node.second, FLYT_MANAGER_LINK_MAKE, &extent, sizeof extent, NULL);
    fake_server_wait_true(self->node.second, &self->node.second->is_hung_up);
    assert_int_equal(self->node.second->made_count, before);
    fake_server_kill(self->node.second);
    /* Where it cannot be made then, it is when it is needed. */
    setenv("FLYT_FAULT", "prepare.page_reader:error:1", 1);
    fake_prepare_start(self);
    unsetenv("FLYT_FAULT");
    fake_prepare_make(self->node.second, &extent, 0);
    fake_prepare_copy(self->node.first->extents[0].fd, self->node.second->made_fd, extent.bytes);
    struct flyt_checkpoint_writer *writer = fake_prepare_image_with(&key, &fd);
    put_hashes_of(writer, keys, &self->node.first->extents[0], -1);
    fake_prepare_end_image(writer);
    fake_prepare_expect(self->node.second, fd, 0, NULL);
    fake_server_kill(self->node.second);
    free(keys);
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

enum { SMALL = 600, ARRAYS = 20, ARRAY_BYTES = 32768 };

/* A library with many small variables and some arrays. */
static char *many_text(void)
{
    enum { ROOM = 128 * KIB };
    char *text = malloc(ROOM);
    assert_non_null(text);
    int used = snprintf(text, ROOM, "%s", PTX);
    for (unsigned i = 0; i < SMALL; i++)
        used += snprintf(text + used, (size_t)(ROOM - used), ".visible .global .align 4 .u32 small%u = 9;\n", i);
    for (unsigned i = 0; i < ARRAYS; i++)
        used += snprintf(text + used, (size_t)(ROOM - used), ".visible .global .align 4 .b8 array%u[%d];\n", i,
                         ARRAY_BYTES);
    used += snprintf(text + used, (size_t)(ROOM - used), ".visible .entry nothing()\n{\nret;\n}\n");
    assert_in_range(used, 1, ROOM - 1);
    return text;
}

static int many_image(void)
{
    static unsigned char array[ARRAY_BYTES];
    int fd;
    struct flyt_checkpoint_writer *writer = fake_prepare_image(&fd);
    char name[32];
    for (unsigned i = 0; i < SMALL; i++) {
        const uint32_t value = 0x1000 + i;
        snprintf(name, sizeof name, "small%u", i);
        fake_prepare_put(writer, &(struct fake_variable){1, name, 0, sizeof value, &value});
    }
    for (unsigned i = 0; i < ARRAYS; i++) {
        memset(array, (int)i + 1, sizeof array);
        snprintf(name, sizeof name, "array%u", i);
        fake_prepare_put(writer, &(struct fake_variable){1, name, 0, sizeof array, array});
    }
    fake_prepare_end_image(writer);
    return fd;
}

/* They wait for each other, as many as there is room for: each is compared, and the one that differs is named. */
static void many_variables(void **state)
{
    static const unsigned wrong[] = {0, 1, 256, 257, 600, 615, 616, 617, 620}; /* which one; 0: none */
    struct fake_prepare *self = *state;
    char *text = many_text();
    fake_prepare_begin(self);
    fake_program_store(&self->node.wire, text);
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char fault[64], words[64];
        const unsigned n = wrong[i] - 1;
        snprintf(fault, sizeof fault, "prepare.variable:error:%u", wrong[i]);
        snprintf(words, sizeof words, "the variable %s%u is not what was written", n < SMALL ? "small" : "array",
                 n < SMALL ? n : n - SMALL);
        if (wrong[i])
            setenv("FLYT_FAULT", fault, 1);
        fake_prepare_start(self);
        unsetenv("FLYT_FAULT");
        fake_prepare_library(self->node.second, 1, text);
        fake_prepare_expect(self->node.second, many_image(), wrong[i] ? -EIO : 0, wrong[i] ? words : NULL);
        fake_server_kill(self->node.second);
    }
    free(text);
    fake_server_kill(self->node.first);
    fake_server_forget(self->node.first);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, fake_node_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(hashes_tell_what_is_to_be_in_memory),
        TEST(hashes_of_many_pieces),
        TEST(what_hashes_is_made_before_memory_is_told),
        TEST(many_variables),
    };
    return cmocka_run_group_tests(tests, fake_node_begin_all, fake_node_end_all);
}
