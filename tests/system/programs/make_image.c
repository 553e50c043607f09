/*
 * Writes checkpoint images into a folder, as a server would: for the tests of those who read them.
 *
 * usage: make_image FOLDER ID [PARENT_ID]     (32 hexadecimal digits each)
 *
 * Without a parent: slots 0 and 1 (8 GiB; no limit), two extents of 2 and 4 MiB, of 96 pages 3 raw noise, 5 that pack
 * and the rest zero, 3 allocations, 2 module images, objects, 2 globals, a constant. With one: page 0 anew, page 1 as
 * the parent's, all others not named.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/image/file.h"
#include "rpc/base/id.h"
#include "rpc/base/page_hash.h"

enum { PAGE = FLYT_CHECKPOINT_PAGE_BYTES, PAGES = 96, NOISE_PAGES = 3, PACKED_PAGES = 5 };

static struct flyt_error err;

static void must(int status)
{
    if (status) {
        fprintf(stderr, "make_image: %s\n", err.text);
        exit(1);
    }
}

static void read_id(const char *text, char *ret_id)
{
    for (unsigned i = 0; i < FLYT_CHECKPOINT_ID_BYTES; i++) {
        unsigned byte;
        if (strlen(text) != 2 * FLYT_CHECKPOINT_ID_BYTES || sscanf(text + 2 * i, "%2x", &byte) != 1) {
            fprintf(stderr, "make_image: %s is no id\n", text);
            exit(2);
        }
        ret_id[i] = (char)byte;
    }
}

static void put_objects(struct flyt_checkpoint_writer *writer)
{
    static const unsigned kinds[] = {FLYT_CHECKPOINT_MODULE, FLYT_CHECKPOINT_STREAM, FLYT_CHECKPOINT_STREAM,
                                     FLYT_CHECKPOINT_EVENT, 4000};
    flyt_checkpoint_global global = {.module_id = 1, .symbol = (char *)"counter", .total_bytes = 4};
    flyt_checkpoint_global table = {.module_id = 1, .symbol = (char *)"table", .total_bytes = 6};
    flyt_checkpoint_global constant = {
        .module_id = 1, .symbol = (char *)"weights", .is_constant = TRUE, .total_bytes = 12};
    unsigned char sha256[FLYT_SHA256_BYTES];

    must(flyt_checkpoint_put_module_image(writer, "the first image", 15, sha256, &err));
    must(flyt_checkpoint_put_module_image(writer, "the other one", 13, sha256, &err));
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        flyt_checkpoint_object object = {.number = i + 1, .kind = kinds[i]};
        must(flyt_checkpoint_put_object(writer, &object, &err));
    }
    must(flyt_checkpoint_put_global(writer, &global, "abcd", 4, &err));
    must(flyt_checkpoint_put_global(writer, &table, "abcdef", 6, &err));
    must(flyt_checkpoint_put_global(writer, &constant, "abcdefghijkl", 12, &err));
}

/* NOISE_PAGES of noise, in a record of their own; PACKED_PAGES behind a page of zeros; then zeros. */
static void put_all_pages(struct flyt_checkpoint_writer *writer)
{
    unsigned char *pages = calloc(PAGES, PAGE);
    uint64_t state = 1;

    if (!pages)
        exit(1);
    for (unsigned i = 0; i < NOISE_PAGES * PAGE; i++)
        pages[i] = (unsigned char)((state = state * 6364136223846793005u + 1) >> 33);
    memset(pages + (NOISE_PAGES + 1) * PAGE, 'x', PACKED_PAGES * PAGE);
    must(flyt_checkpoint_put_pages(writer, flyt_window_base(0), PAGES, pages, NULL, &err));
    free(pages);
}

static void put_some_pages(struct flyt_checkpoint_writer *writer)
{
    unsigned char page[PAGE];

    memset(page, 'y', sizeof page);
    must(flyt_checkpoint_put_pages(writer, flyt_window_base(0), 1, page, NULL, &err));
    must(flyt_checkpoint_put_run(writer, flyt_window_base(0) + PAGE, 1, FLYT_CHECKPOINT_PARENT, NULL, &err));
}

int main(int argc, char **argv)
{
    const flyt_checkpoint_range ranges[] = {
        {flyt_window_base(0), 1000}, {flyt_window_base(0) + 1024, 500}, {flyt_window_base(0) + 2000000, 3000000}};
    const flyt_checkpoint_sequence sequence = {.received = 300, .executed = 200, .completed = 100};
    flyt_checkpoint_head head = {.build = (char *)"v9.9-test",
                                 .created_ms = 1767225600000 + (uint64_t)argc,
                                 .program_name = (char *)"my\033[31m_program",
                                 .pid = 4711,
                                 .session_id = 0x0123456789abcdef,
                                 .vm = (char *)"10.0.0.7",
                                 .gpu_type = (char *)"NVIDIA H200",
                                 .compute_major = 9,
                                 .driver_version = 13000,
                                 .sm_count = 132,
                                 .page_hash = FLYT_PAGE_HASH_VERSION};
    struct flyt_checkpoint_file file;

    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: make_image FOLDER ID [PARENT_ID]\n");
        return 2;
    }
    signal(SIGXFSZ, SIG_IGN);
    read_id(argv[2], head.id);
    if (argc == 4)
        read_id(argv[3], head.parent_id);
    must(flyt_checkpoint_file_create(argv[1], &head, FLYT_CHECKPOINT_PACK_ZSTD, &file, &err));
    must(flyt_checkpoint_put_slot(file.writer, 0, 8ull << 30, &err));
    must(flyt_checkpoint_put_slot(file.writer, 1, 0, &err));
    must(flyt_checkpoint_put_round(file.writer, &err));
    must(flyt_checkpoint_put_extent(file.writer, flyt_window_base(0), 2ull << 20, &err));
    must(flyt_checkpoint_put_extent(file.writer, flyt_window_base(0) + (2ull << 20), 4ull << 20, &err));
    must(flyt_checkpoint_put_allocations(file.writer, ranges, 3, &err));
    put_objects(file.writer);
    if (argc == 4)
        put_some_pages(file.writer);
    else
        put_all_pages(file.writer);
    must(flyt_checkpoint_put_sequence(file.writer, &sequence, &err));
    must(flyt_checkpoint_put_end(file.writer, &err));
    must(flyt_checkpoint_file_commit(&file, &err));
    return 0;
}
