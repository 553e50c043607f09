/*
 * Chains of images by chance, each made of a memory that changes; what flatten makes of the newest is compared byte by
 * byte with that memory, and what the index says with what was put. And chains with something wrong.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu/image/file.h"
#include "cpu/image/flatten.h"
#include "cpu/image/page_index.h"
#include "cpu/image/test_image.h"
#include "cpu/image/verify.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/id.h"

enum {
    PAGE = FLYT_CHECKPOINT_PAGE_BYTES,
    ALIGN = FLYT_CHECKPOINT_EXTENT_ALIGN,
    SLOTS = 4,
    EXTENT_PAGES = ALIGN / PAGE
};
enum { HASH = FLYT_CHECKPOINT_PAGE_HASH_BYTES };
/* The modules of an image, one behind the other. */
enum { MODULES = 3, MODULE_BYTES_MAX = 2 * FLYT_CHECKPOINT_PAYLOAD_BYTES_MAX + 4711 };

#define WINDOW   flyt_window_base(0)
#define DO(call) assert_int_equal((call), 0)

static char folder[140];
static unsigned seed;
static bool has_large_module; /* the second one has several parts */

/* What the session has: SLOTS extents, side by side, some of which are there. A page is made of its number; 0: zeros.
 */
static struct {
    bool is_there, was_there; /* was: in the image before */
    unsigned pages[EXTENT_PAGES], before[EXTENT_PAGES];
} memory[SLOTS];

static unsigned chance(unsigned count)
{
    seed = seed * 1103515245 + 12345;
    return (seed >> 16) % count;
}

static int make_folder(void **state)
{
    const char *parent = getenv("TMPDIR");

    snprintf(folder, sizeof folder, "%.100s/flyt-flatten-test.XXXXXX", parent ? parent : "/tmp");
    memset(memory, 0, sizeof memory);
    has_large_module = false;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *about, int flag, struct FTW *where)
{
    return remove(path);
}

static int remove_folder(void **state)
{
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void path_of(unsigned id, char *ret_path)
{
    flyt_checkpoint_head head = test_head(id, 0);
    char name[FLYT_CHECKPOINT_NAME_BYTES];

    flyt_checkpoint_file_name(head.id, name);
    sprintf(ret_path, "%s/%s", folder, name);
}

static void fill(unsigned char *ret_page, unsigned number)
{
    for (unsigned i = 0; i < PAGE; i += sizeof number)
        memcpy(ret_page + i, &number, sizeof number);
}

static void hash_of(unsigned number, unsigned char *ret_hash)
{
    memset(ret_hash, 0, HASH);
    memcpy(ret_hash, &number, sizeof number);
}

/* ---- writing ---- */

static void change_memory(void)
{
    static unsigned last_number;

    for (unsigned e = 0; e < SLOTS; e++) {
        memory[e].was_there = memory[e].is_there;
        memcpy(memory[e].before, memory[e].pages, sizeof memory[e].pages);
        bool is_new = chance(5) == 0; /* another one at the same place, or none any more */
        if (is_new || !memory[e].is_there) {
            memory[e].is_there = chance(4) != 0;
            memset(memory[e].pages, 0, sizeof memory[e].pages);
        }
        for (unsigned p = 0; p < EXTENT_PAGES && memory[e].is_there; p++)
            if (chance(3) == 0)
                memory[e].pages[p] = chance(3) ? ++last_number : 0;
    }
}

static void put_one(struct flyt_checkpoint_writer *writer, unsigned e, unsigned p, unsigned number)
{
    const uint64_t address = WINDOW + (uint64_t)e * ALIGN + (uint64_t)p * PAGE;
    unsigned char page[PAGE], hash[HASH];
    struct flyt_error err;

    hash_of(number, hash);
    fill(page, number);
    if (number)
        DO(flyt_checkpoint_put_pages(writer, address, 1, page, hash, &err));
    else
        DO(flyt_checkpoint_put_run(writer, address, 1, FLYT_CHECKPOINT_ZERO, NULL, &err));
}

/* In a first round pages are the parent's, or have something that is not right yet; in a second one the right ones. */
static void put_pages(struct flyt_checkpoint_writer *writer, bool has_parent)
{
    unsigned char hash[HASH];
    struct flyt_error err;
    bool is_right[SLOTS][EXTENT_PAGES] = {0};

    for (unsigned e = 0; e < SLOTS; e++)
        for (unsigned p = 0; p < EXTENT_PAGES && memory[e].is_there; p++) {
            bool is_same = has_parent && memory[e].was_there && memory[e].before[p] == memory[e].pages[p];
            hash_of(memory[e].pages[p], hash);
            is_right[e][p] = is_same && memory[e].pages[p] && chance(4);
            if (is_right[e][p])
                DO(flyt_checkpoint_put_run(writer, WINDOW + (uint64_t)e * ALIGN + (uint64_t)p * PAGE, 1,
                                           FLYT_CHECKPOINT_PARENT, hash, &err));
            else if (chance(2))
                put_one(writer, e, p, 1000000 + p);
        }
    DO(flyt_checkpoint_put_round(writer, &err));
    for (unsigned e = 0; e < SLOTS; e++)
        for (unsigned p = 0; p < EXTENT_PAGES && memory[e].is_there; p++)
            if (!is_right[e][p])
                put_one(writer, e, p, memory[e].pages[p]);
}

/* Returns its bytes; what is behind them in ret_module is untouched. */
static size_t fill_module(unsigned id, unsigned module, unsigned char *ret_module)
{
    size_t bytes = module == 1 && has_large_module ? MODULE_BYTES_MAX : 20 + id;

    for (size_t i = 0; i < bytes; i++)
        ret_module[i] = (unsigned char)(i / 8191 * 31 + i + id * MODULES + module);
    return bytes;
}

static void put_objects(struct flyt_checkpoint_writer *writer, unsigned id)
{
    flyt_checkpoint_object object = {
        .number = id, .kind = FLYT_CHECKPOINT_MODULE, .value = {.value_len = 4, .value_val = (char *)"abcd"}};
    flyt_checkpoint_global global = {.module_id = 1, .symbol = (char *)"counter", .total_bytes = sizeof id};
    unsigned char sha256[FLYT_CHECKPOINT_SHA256_BYTES];
    unsigned char *image = malloc(MODULE_BYTES_MAX);
    struct flyt_error err;

    assert_non_null(image);
    for (unsigned module = 0; module < MODULES; module++)
        DO(flyt_checkpoint_put_module_image(writer, image, fill_module(id, module, image), sha256, &err));
    free(image);
    DO(flyt_checkpoint_put_object(writer, &object, &err));
    DO(flyt_checkpoint_put_global(writer, &global, &id, sizeof id, &err));
}

static void write_image(unsigned id, unsigned parent)
{
    flyt_checkpoint_head head = test_head(id, parent);
    const flyt_checkpoint_sequence sequence = {.received = id};
    flyt_checkpoint_range ranges[SLOTS];
    struct flyt_checkpoint_file file;
    struct flyt_error err;
    unsigned count = 0;

    if (flyt_checkpoint_file_create(folder, &head, (enum flyt_checkpoint_packing)chance(3), &file, &err))
        fail_msg("%s", err.text);
    DO(flyt_checkpoint_put_slot(file.writer, 0, 0, &err));
    DO(flyt_checkpoint_put_hash_key(file.writer, "0123456789abcdef", &err));
    DO(flyt_checkpoint_put_round(file.writer, &err));
    for (unsigned e = 0; e < SLOTS; e++) {
        const uint64_t address = WINDOW + (uint64_t)e * ALIGN;
        if (!memory[e].is_there)
            continue;
        DO(flyt_checkpoint_put_extent(file.writer, address, ALIGN, &err));
        ranges[count++] = (flyt_checkpoint_range){address, 100 + id};
    }
    DO(flyt_checkpoint_put_allocations(file.writer, ranges, count, &err));
    put_objects(file.writer, id);
    put_pages(file.writer, parent != 0);
    DO(flyt_checkpoint_put_sequence(file.writer, &sequence, &err));
    DO(flyt_checkpoint_put_end(file.writer, &err));
    if (flyt_checkpoint_file_commit(&file, &err))
        fail_msg("%s", err.text);
}

/* ---- comparing ---- */

static int flattened(unsigned id, int *ret_fd, struct flyt_error *err)
{
    char path[PATH_MAX];

    path_of(id, path);
    *ret_fd = test_fd("", 0);
    int status = flyt_checkpoint_flatten(path, *ret_fd, err);
    DO(lseek(*ret_fd, 0, SEEK_SET));
    return status;
}

static void take_pages(struct flyt_checkpoint_reader *reader, const flyt_checkpoint_pages *pages,
                       bool (*ret_has)[EXTENT_PAGES])
{
    unsigned char *contents = malloc((size_t)pages->page_count * PAGE), want[PAGE];
    struct flyt_error err;

    assert_non_null(contents);
    DO(flyt_checkpoint_place(reader, contents, &err));
    for (unsigned i = 0; i < pages->page_count; i++) {
        uint64_t page = (pages->address - WINDOW) / PAGE + i;
        unsigned e = (unsigned)(page / EXTENT_PAGES), p = (unsigned)(page % EXTENT_PAGES);
        assert_true(e < SLOTS && memory[e].is_there && !ret_has[e][p]);
        ret_has[e][p] = true;
        fill(want, memory[e].pages[p]);
        assert_memory_equal(contents + (size_t)i * PAGE, want, PAGE);
    }
    free(contents);
}

/* The part lies where it belongs in the module that was put, and the modules come in their order. */
static void take_module(struct flyt_checkpoint_reader *reader, const struct flyt_checkpoint_record *record, unsigned id,
                        unsigned *module)
{
    const flyt_checkpoint_module_image *part = &record->body->module_image;
    unsigned char *want = malloc(MODULE_BYTES_MAX), *have = malloc(record->place_bytes);
    struct flyt_error err;

    assert_true(want && have);
    assert_in_range(*module, 0, MODULES - 1);
    assert_int_equal(part->total_bytes, fill_module(id, *module, want));
    DO(flyt_checkpoint_place(reader, have, &err));
    assert_memory_equal(have, want + part->offset_bytes, record->place_bytes);
    *module += part->offset_bytes + record->place_bytes == part->total_bytes;
    free(want);
    free(have);
}

static void is_the_memory(unsigned id)
{
    bool has[SLOTS][EXTENT_PAGES] = {0};
    struct flyt_checkpoint_reader *reader;
    struct flyt_checkpoint_record record;
    struct flyt_error err = {0};
    unsigned value = 0, module = 0;
    int fd, status = flattened(id, &fd, &err);

    if (status)
        fail_msg("%s", err.text);
    DO(flyt_checkpoint_reader_new(fd, "flat", true, &reader, &err));
    while ((status = flyt_checkpoint_next(reader, &record, &err)) > 0) {
        if (record.type == FLYT_CHECKPOINT_HEAD)
            assert_true(flyt_checkpoint_id_is_none(record.body->head.parent_id) && record.body->head.id[0] == (char)id);
        if (record.type == FLYT_CHECKPOINT_PAGES)
            take_pages(reader, &record.body->pages, has);
        if (record.type == FLYT_CHECKPOINT_MODULE_IMAGE)
            take_module(reader, &record, id, &module);
        if (record.type == FLYT_CHECKPOINT_GLOBAL)
            DO(flyt_checkpoint_place(reader, &value, &err));
    }
    if (status)
        fail_msg("%s", err.text);
    assert_int_equal(value, id);
    for (unsigned e = 0; e < SLOTS; e++)
        for (unsigned p = 0; p < EXTENT_PAGES; p++)
            assert_int_equal(has[e][p], memory[e].is_there);
    const struct flyt_checkpoint_totals *totals = flyt_checkpoint_reader_totals(reader);
    assert_int_equal(totals->sequence.received, id);
    assert_int_equal(module, MODULES);
    assert_int_equal(totals->module_image_count, MODULES);
    assert_int_equal(totals->object_counts[FLYT_CHECKPOINT_MODULE], 1);
    assert_int_equal(totals->allocation_bytes, totals->extent_count * (100 + id));
    flyt_checkpoint_reader_free(reader);
    close(fd);
}

/* Each page's hash, without the contents. */
static void are_the_hashes(unsigned id)
{
    struct flyt_page_index index;
    unsigned char hash[HASH];
    struct flyt_error err;
    char path[PATH_MAX];

    path_of(id, path);
    flyt_auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    DO(flyt_page_index_read(fd, path, &index, &err));
    assert_int_equal(index.session_id, 0x1122334455667788);
    assert_true(index.has_hash_key && !memcmp(index.hash_key, "0123456789abcdef", 16));
    for (unsigned e = 0; e < SLOTS; e++) {
        const struct flyt_indexed_extent *extent = flyt_page_index_match(&index, WINDOW + (uint64_t)e * ALIGN, ALIGN);
        assert_int_equal(extent != NULL, memory[e].is_there);
        for (unsigned p = 0; p < EXTENT_PAGES && extent; p++) {
            hash_of(memory[e].pages[p], hash);
            assert_int_equal(extent->flags[p], memory[e].pages[p] ? FLYT_PAGE_HAS_HASH : FLYT_PAGE_IS_ZERO);
            if (memory[e].pages[p])
                assert_memory_equal(extent->hashes + p * HASH, hash, HASH);
        }
    }
    assert_null(flyt_page_index_match(&index, WINDOW, 2 * ALIGN));
    flyt_page_index_fini(&index);
}

static void chains_become_one(void **state)
{
    for (unsigned id = 1; id <= 40; id++) {
        struct flyt_checkpoint_summary summary;
        struct flyt_error err;
        char path[PATH_MAX];
        seed = id;
        change_memory();
        write_image(id, id % 10 == 1 ? 0 : id - 1);
        path_of(id, path);
        if (flyt_checkpoint_verify(path, true, &summary, &err))
            fail_msg("%s", err.text);
        assert_int_equal(summary.parent_count, (id - 1) % 10);
        flyt_checkpoint_summary_fini(&summary);
        is_the_memory(id);
        are_the_hashes(id);
    }
}

static void write_chain(unsigned length)
{
    for (unsigned id = 1; id <= length; id++) {
        seed = id;
        for (unsigned e = 0; e < SLOTS; e++) {
            memory[e].was_there = id > 1;
            memory[e].is_there = true;
            memcpy(memory[e].before, memory[e].pages, sizeof memory[e].pages);
            memory[e].pages[id] = id;
            memory[e].pages[0] = 4711; /* never changes */
        }
        write_image(id, id - 1);
    }
}

static void a_module_has_several_parts(void **state)
{
    has_large_module = true;
    write_chain(2);
    is_the_memory(2);
}

static void refused(unsigned id, int want, const char *words)
{
    struct flyt_error err = {0};
    int fd, status = flattened(id, &fd, &err);

    close(fd);
    if (status != want || !strstr(err.text, words))
        fail_msg("%d '%s', not %d '%s'", status, err.text, want, words);
}

/* Twice is not at all. */
static void damage(const char *path, off_t place)
{
    flyt_auto_close int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte;

    assert_int_equal(pread(fd, &byte, 1, place), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, place), 1);
}

static void what_is_missing_or_damaged_is_told(void **state)
{
    char path[PATH_MAX], other[PATH_MAX + 8];
    struct stat about;
    struct flyt_error err;
    unsigned failures = 0;

    write_chain(5);
    is_the_memory(5);
    path_of(2, path);
    DO(stat(path, &about));
    for (off_t place = about.st_size - 3; place > 0; place -= 997) { /* contents are read where they are needed */
        damage(path, place);
        int fd, status = flattened(5, &fd, &err);
        close(fd);
        if (!status)
            is_the_memory(5);
        else
            assert_true(status == -EBADMSG || status == -ENODATA);
        failures += status != 0;
        damage(path, place);
    }
    assert_true(failures > 0);
    is_the_memory(5);
    sprintf(other, "%s.away", path);
    DO(rename(path, other));
    refused(5, -ENOENT, "cannot be opened");
    DO(mkfifo(path, 0600)); /* nobody writes to it */
    refused(5, -EINVAL, "it is no file");
    DO(unlink(path));
    path_of(1, path);
    path_of(2, other);
    DO(link(path, other)); /* one of another id */
    refused(5, -EBADMSG, "another id");
    DO(unlink(other));
}

/* One of the same id, with other contents. */
static void another_parent_is_told(void **state)
{
    char path[PATH_MAX];

    write_chain(3);
    is_the_memory(3);
    path_of(1, path);
    DO(unlink(path));
    for (unsigned e = 0; e < SLOTS; e++) {
        memset(memory[e].pages, 0, sizeof memory[e].pages);
        memory[e].pages[0] = 4712;
    }
    seed = 1;
    write_image(1, 0);
    is_the_memory(1);
    refused(3, -EBADMSG, "another page");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(chains_become_one, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_module_has_several_parts, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_is_missing_or_damaged_is_told, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(another_parent_is_told, make_folder, remove_folder),
    };
    signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
