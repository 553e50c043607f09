/*
 * What the host has written into constants: what is kept of it, what a new server is written, and when nothing is kept
 * any more. The servers' part is played by a memory of their own each.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <sys/mman.h>
#include "cpu/client/core/client.h"
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/module.h"
#include "cpu/client/cuda/stream.h"
#include "cpu/client/records/restore.h"
#include "rpc/base/id.h"
#include "rpc/proto/limits.h"

enum { TABLE_BYTES = 256, NEW = 0xee /* what a new server has in the table by its image */ };

static const uint64_t other_address = 0x90000;
static struct flyt_channel *const fresh = (struct flyt_channel *)(void *)&fake.call_count;

static struct {
    unsigned char table[2][TABLE_BYTES]; /* of the old server and of the new one */
    uint64_t copy_out_id;
    uint64_t table_address; /* of whichever is asked */
    unsigned writes[2], reads, plain_writes, within, asked, told, asked_without;
    uint64_t table_bytes;
    bool keeps_nothing;
} server;

static void write_here(unsigned which, uint64_t offset_bytes, const char *data, unsigned bytes)
{
    assert_in_range(offset_bytes, 0, TABLE_BYTES - bytes);
    memcpy(server.table[which] + offset_bytes, data, bytes);
}

static void copy_here(unsigned which, const flyt_box *box, const char *data, unsigned bytes)
{
    server.plain_writes++;
    assert_int_equal(box->width_bytes, bytes);
    assert_int_equal(box->height * box->depth, 1);
    if (box->address < other_address)
        write_here(which, box->address - server.table_address, data, bytes);
}

static void read_here(unsigned which, const flyt_constant_read_args *args, flyt_constant_read_res *res, void *data)
{
    server.reads++;
    assert_string_equal(args->name, "table");
    assert_in_range(args->offset_bytes, 0, TABLE_BYTES - args->bytes);
    memcpy(data, server.table[which] + args->offset_bytes, args->bytes);
    res->data.data_len = (u_int)args->bytes;
}

static void tell_place(const char *name, uint64_t *ret_address, uint64_t *ret_bytes)
{
    *ret_address = strcmp(name, "table") ? other_address : server.table_address;
    *ret_bytes = strcmp(name, "table") ? FLYT_CONSTANT_BYTES_MAX - TABLE_BYTES + 1 : server.table_bytes;
}

static void tell_symbol(const flyt_library_symbol_args *args, flyt_library_symbol_res *res)
{
    server.asked++;
    server.asked_without += !args->is_kept;
    res->is_kept = args->is_kept && !server.keeps_nothing;
    tell_place(args->name, (uint64_t *)&res->address, (uint64_t *)&res->bytes);
}

static void tell_device(flyt_device_info_res *res)
{
    res->name = strdup("test device");
    res->pci_bus_id = strdup("0000:00:00.0");
    res->attributes.attributes_len = CU_DEVICE_ATTRIBUTE_MAX;
    res->attributes.attributes_val = calloc(CU_DEVICE_ATTRIBUTE_MAX, sizeof(int));
    res->attributes.attributes_val[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR] = 9;
}

static void serve(unsigned procedure, const void *data, void *res, void *payload)
{
    const union {
        const void *any;
        const flyt_constant_write_args *constant;
        const flyt_copy_in_args *copy;
        const flyt_copy_within_args *within;
        const flyt_copy_out_transfer_args *out;
        const flyt_library_global_args *global;
    } args = {data};
    unsigned which = fake.channel == fresh;
    switch (procedure) {
    case FLYT_DEVICE_INFO:
        return tell_device(res);
    case FLYT_IMAGE_FIND:
        ((flyt_image_find_res *)res)->is_known = 1;
        return;
    case FLYT_LIBRARY_LOAD:
        ((flyt_library_load_res *)res)->info_log = strdup("");
        ((flyt_library_load_res *)res)->error_log = strdup("");
        return;
    case FLYT_MEMORY_ALLOC:
        ((flyt_memory_alloc_res *)res)->address = FLYT_WINDOW_BASE;
        return;
    case FLYT_LIBRARY_SYMBOL:
        return tell_symbol(data, res);
    case FLYT_LIBRARY_MANAGED:
        ((flyt_library_managed_res *)res)->result = CUDA_ERROR_NOT_FOUND;
        return;
    case FLYT_LIBRARY_GLOBAL:
        server.told++;
        return tell_place(args.global->name, (uint64_t *)&((flyt_library_global_res *)res)->address,
                          (uint64_t *)&((flyt_library_global_res *)res)->bytes);
    case FLYT_CONSTANT_WRITE:
        server.writes[which]++;
        assert_string_equal(args.constant->name, "table");
        return write_here(which, args.constant->offset_bytes, args.constant->data.data_val,
                          args.constant->data.data_len);
    case FLYT_CONSTANT_READ:
        return read_here(which, data, res, payload);
    case FLYT_COPY_OUT_TRANSFER:
        server.copy_out_id = args.out->transfer_id;
        assert_int_equal(args.out->src.address, server.table_address);
        return;
    case FLYT_COPY_WITHIN:
        server.within++;
        assert_int_equal(args.within->dst.address, server.table_address + 4);
        return;
    case FLYT_COPY_IN:
        return copy_here(which, &args.copy->dst, args.copy->data.data_val, args.copy->data.data_len);
    default:
        return;
    }
}

/* ---- each test's program ---- */

static CUcontext context;
static CUlibrary library;
static unsigned char expected[TABLE_BYTES];
static const char image[] = ".version 8.0\n";

static void complete_all(void)
{
    fake.progress.received = fake.progress.executed = fake.progress.completed = fake.sequence;
}

static int set_up(void **state)
{
    memset(&server, 0, sizeof server);
    memset(server.table[1], NEW, TABLE_BYTES);
    memset(expected, NEW, sizeof expected);
    server.table_bytes = TABLE_BYTES;
    server.table_address = 0x70000;
    return flyt_context_create(0, 0, &context) != CUDA_SUCCESS ||
           flyt_library_load(image, NULL, &library) != CUDA_SUCCESS;
}

static int tear_down(void **state)
{
    CUresult result = flyt_library_unload(library);
    if (!result)
        result = flyt_context_destroy(context);
    complete_all();
    return result != CUDA_SUCCESS;
}

static uint64_t place_of(const char *name)
{
    CUdeviceptr address;
    size_t bytes;
    assert_int_equal(flyt_library_symbol(library, name, 0, &address, &bytes), CUDA_SUCCESS);
    return address;
}

static void copy_to(uint64_t address, const void *from, uint64_t bytes, bool is_async)
{
    struct flyt_copy copy =
        flyt_copy_plain(FLYT_PLACE_DEVICE, address, FLYT_PLACE_ANY, (uint64_t)(uintptr_t)from, bytes);
    assert_int_equal(flyt_copy(&copy, NULL, is_async), CUDA_SUCCESS);
}

/* Writes into the table by its name, and into what is expected of it. */
static void put(uint64_t offset_bytes, uint64_t bytes, unsigned seed)
{
    unsigned char data[TABLE_BYTES];
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(seed + 3 * i);
    memcpy(expected + offset_bytes, data, bytes);
    copy_to(place_of("table") + offset_bytes, data, bytes, false);
    memset(data, 0xdd, sizeof data); /* the program's memory is its own again */
}

static void go_on(void)
{
    struct flyt_error err = {0};
    memset(server.table[1], NEW, TABLE_BYTES);
    server.writes[1] = 0;
    assert_int_equal(flyt_restore(fake.user, fresh, &err), 0);
    assert_string_equal(err.text, "");
}

/* ---- tests ---- */

static void test_what_was_written_is_written_again(void **state)
{
    put(10, 20, 1);
    put(25, 10, 2); /* over the end of the first, */
    put(35, 1, 3);  /* right behind, */
    put(200, 56, 4);
    put(200, 3, 5); /* and once more */
    assert_int_equal(server.writes[0], 5);
    assert_int_equal(server.asked, 1);
    assert_int_equal(server.told + server.plain_writes, 0);
    complete_all();
    for (unsigned i = 0; i < 2; i++) { /* any number of tries */
        server.table_address += 4096;  /* it is elsewhere there */
        go_on();
        assert_int_equal(server.writes[1], 2); /* nothing else than these bytes */
        assert_memory_equal(server.table[1], expected, TABLE_BYTES);
    }
    assert_int_equal(server.asked_without, 0);
    put(0, TABLE_BYTES, 6);
    complete_all();
    go_on();
    assert_int_equal(server.writes[1], 1);
    assert_memory_equal(server.table[1], expected, TABLE_BYTES);
    assert_int_equal(server.plain_writes, 0);
}

static void test_constants_that_nobody_wrote_are_the_images(void **state)
{
    place_of("table");
    complete_all();
    go_on();
    assert_int_equal(server.asked, 2);
    assert_int_equal(server.writes[1], 0);
}

/* Eight bytes of the table are read, by its name; the constant is kept as before. */
static void reading_changes_nothing(unsigned offset, bool is_async)
{
    unsigned char data[8];
    struct flyt_copy copy = flyt_copy_plain(FLYT_PLACE_HOST, (uint64_t)(uintptr_t)data, FLYT_PLACE_DEVICE,
                                            place_of("table") + offset, sizeof data);
    assert_int_equal(flyt_copy(&copy, NULL, is_async), CUDA_SUCCESS);
    assert_memory_equal(data, expected + offset, sizeof data);
    assert_int_equal(server.reads, 1);
    complete_all();
    go_on();
    assert_int_equal(server.asked_without, 0);
    assert_memory_equal(server.table[1], expected, TABLE_BYTES);
}

static void test_reading_changes_nothing(void **state)
{
    put(100, 8, 1);
    server.table_address += 4096;
    complete_all();
    go_on();
    memcpy(server.table[0], server.table[1], TABLE_BYTES); /* the session is there now */
    reading_changes_nothing(98, false);
}

/* A copy to memory that is not pinned waits, whatever it is called. */
static void test_reading_to_pageable_memory_changes_nothing(void **state)
{
    put(100, 8, 1);
    complete_all();
    reading_changes_nothing(100, true);
}

/* The call that comes again writes it: a launch before it must not see it. Checked at the call itself. */
static uint64_t behind;

static void serve_and_go_on(unsigned procedure, const void *args, void *res, void *payload)
{
    serve(procedure, args, res, payload);
    if (procedure != FLYT_STREAM_SYNCHRONIZE || fake.channel == fresh || !behind)
        return;
    uint64_t sequence = fake.sequence;
    const struct flyt_channel *channel = fake.channel;
    fake.progress.received = fake.progress.executed = fake.progress.completed = behind;
    behind = 0;
    go_on();
    fake.sequence = sequence;
    fake.channel = channel;
    complete_all();
}

static void test_a_write_under_way_is_written_where_it_is_executed(void **state)
{
    put(0, 16, 1);
    complete_all();
    fake.serve = serve_and_go_on;
    behind = fake.sequence; /* the write that follows is the next call */
    unsigned char before[TABLE_BYTES];
    memcpy(before, expected, sizeof before);
    put(8, 16, 2);
    assert_int_equal(behind, 0);
    assert_memory_equal(server.table[1], before, TABLE_BYTES);

    behind = fake.sequence + 1; /* the next call is executed */
    put(100, 16, 3);
    assert_int_equal(behind, 0);
    assert_memory_equal(server.table[1], expected, TABLE_BYTES);
    fake.serve = serve;
}

/* What cannot be repeated: from then on the constant is not kept, and every server hears so. */
static void lost_by(void (*write)(void))
{
    put(0, 16, 1);
    write();
    assert_int_equal(server.asked_without, 1); /* before the copy */
    unsigned plain = server.plain_writes;
    complete_all();
    go_on();
    assert_int_equal(server.writes[1], 0);
    assert_int_equal(server.asked_without, 2);
    put(0, 16, 2);
    assert_int_equal(server.writes[0], 1);
    assert_int_equal(server.plain_writes, plain + 1); /* at the true address */
    assert_memory_equal(server.table[0], expected, 16);
    complete_all();
    go_on();
    assert_int_equal(server.writes[1], 0);
    server.table_address += 4096; /* which a copy has */
    struct flyt_error err = {0};
    assert_int_equal(flyt_restore(fake.user, fresh, &err), -EIO);
    assert_string_equal(err.text, "variable table, whose address the program or a copy has, is at another one there");
    server.table_address -= 4096;
}

static void write_later(void)
{
    unsigned char data[4] = {1, 2, 3, 4};
    copy_to(place_of("table"), data, sizeof data, true);
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
}

static void write_from_device(void)
{
    CUdeviceptr memory;
    assert_int_equal(flyt_memory_alloc(16, &memory), CUDA_SUCCESS);
    struct flyt_copy copy = flyt_copy_plain(FLYT_PLACE_DEVICE, place_of("table") + 4, FLYT_PLACE_DEVICE, memory, 16);
    assert_int_equal(flyt_copy(&copy, NULL, false), CUDA_SUCCESS);
    assert_int_equal(server.within, 1);
    assert_int_equal(flyt_memory_free(memory), CUDA_SUCCESS);
}

/* The address that is no address is nobody's but flyt_copy's. */
static void read_later(void)
{
    unsigned char *pinned;
    assert_int_equal(flyt_host_alloc(16, 0, (void **)&pinned), CUDA_SUCCESS);
    struct flyt_copy copy =
        flyt_copy_plain(FLYT_PLACE_HOST, (uint64_t)(uintptr_t)pinned, FLYT_PLACE_DEVICE, place_of("table"), 16);
    assert_int_equal(flyt_copy(&copy, NULL, true), CUDA_SUCCESS);
    assert_non_null(fake.handlers->chunk_place(fake.user, server.copy_out_id, 0, 16));
    fake.handlers->chunk_done(fake.user, server.copy_out_id, 0, 16);
    complete_all();
    assert_int_equal(flyt_host_free(pinned), CUDA_SUCCESS);
}

static void test_a_read_that_does_not_wait_loses_it(void **state)
{
    lost_by(read_later);
}

static void test_a_copy_that_does_not_wait_loses_it(void **state)
{
    lost_by(write_later);
}

static void test_a_copy_within_the_device_loses_it(void **state)
{
    lost_by(write_from_device);
}

/* The server dies before it hears that the constant is lost: what is kept is all that there is of it. */
static bool dies_unheard;

static void serve_unless_it_dies(unsigned procedure, const void *args, void *res, void *payload)
{
    if (procedure == FLYT_LIBRARY_SYMBOL && fake.channel != fresh && dies_unheard &&
        !((const flyt_library_symbol_args *)args)->is_kept) {
        dies_unheard = false;
        uint64_t sequence = fake.sequence;
        const struct flyt_channel *channel = fake.channel;
        fake.progress.received = fake.progress.executed = fake.progress.completed = sequence - 1;
        go_on();
        assert_int_equal(server.asked_without, 0); /* the new server keeps it until the call comes again */
        assert_memory_equal(server.table[1], expected, TABLE_BYTES);
        fake.sequence = sequence;
        fake.channel = channel;
    }
    serve(procedure, args, res, payload);
}

static void test_what_the_server_has_not_heard_is_kept(void **state)
{
    put(0, 64, 1);
    complete_all();
    dies_unheard = true;
    fake.serve = serve_unless_it_dies;
    unsigned char data[8] = {9, 8, 7, 6, 5, 4, 3, 2};
    copy_to(place_of("table") + 60, data, sizeof data, true);
    assert_false(dies_unheard);
    assert_int_equal(server.asked_without, 1);
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    complete_all();
    go_on(); /* now it has heard */
    assert_int_equal(server.writes[1], 0);
    assert_int_equal(server.asked_without, 2);
    fake.serve = serve;
}

/* Nor has one that answers with an error: no copy goes by the name, but what is kept stays until it knows. */
static void serve_with_an_error(unsigned procedure, const void *args, void *res, void *payload)
{
    serve(procedure, args, res, payload);
    if (procedure == FLYT_LIBRARY_SYMBOL && fake.channel != fresh && !((const flyt_library_symbol_args *)args)->is_kept)
        ((flyt_library_symbol_res *)res)->result = CUDA_ERROR_OUT_OF_MEMORY;
}

static void test_what_the_server_cannot_be_told_is_kept(void **state)
{
    put(0, 64, 1);
    complete_all();
    fake.serve = serve_with_an_error;
    unsigned char data[4] = {9, 8, 7, 6};
    struct flyt_copy copy = flyt_copy_plain(FLYT_PLACE_DEVICE, place_of("table") + 62, FLYT_PLACE_ANY,
                                            (uint64_t)(uintptr_t)data, sizeof data);
    assert_int_equal(flyt_copy(&copy, NULL, true), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(flyt_copy(&copy, NULL, false), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(server.asked_without, 2);
    assert_int_equal(server.writes[0] + server.plain_writes, 1);
    complete_all();
    go_on();
    assert_int_equal(server.asked_without, 2);
    assert_memory_equal(server.table[1], expected, TABLE_BYTES);
    fake.serve = serve;
    put(62, 4, 2); /* the question comes again */
    assert_int_equal(server.asked_without, 3);
    assert_int_equal(server.plain_writes, 1);
}

static void test_who_is_told_the_address_has_no_constant_kept(void **state)
{
    CUdeviceptr address;
    put(0, 16, 1);
    assert_int_equal(flyt_library_global(library, "table", 0, &address, NULL), CUDA_SUCCESS);
    assert_int_equal(flyt_library_global(library, "table", 0, &address, NULL), CUDA_SUCCESS);
    assert_int_equal(address, server.table_address);
    assert_int_equal(server.told, 1); /* the server hears of it, once */
    complete_all();
    go_on();
    assert_int_equal(server.told, 2);
    assert_int_equal(server.asked, 1);
    assert_int_equal(server.writes[1], 0);
    put(0, 16, 2); /* at the true address */
    assert_int_equal(server.asked + server.writes[0], 2);
    assert_int_equal(server.plain_writes, 1);
    assert_memory_equal(server.table[0], expected, 16);
}

static void test_more_than_the_bound_is_not_kept(void **state)
{
    unsigned char byte = 1;
    put(0, 16, 1);
    copy_to(place_of("large"), &byte, 1, false);
    assert_int_equal(server.writes[0], 1);
    assert_int_equal(server.plain_writes, 1);
    complete_all();
    go_on();
    assert_int_equal(server.asked_without, 2); /* the large one's: at once, and again */
    assert_memory_equal(server.table[1], expected, TABLE_BYTES);
}

/* It is known then, and has to be known to copies that are not told where they go. */
static void test_one_that_the_server_cannot_be_told_of_is_device_memory(void **state)
{
    CUdeviceptr address;
    unsigned char byte = 7;
    put(0, 16, 1);
    fake.serve = serve_with_an_error;
    assert_int_equal(flyt_library_symbol(library, "large", 0, &address, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    fake.serve = serve;
    address = place_of("large");
    assert_int_equal(address, other_address);
    struct flyt_copy copy =
        flyt_copy_plain(FLYT_PLACE_ANY, address, FLYT_PLACE_ANY, (uint64_t)(uintptr_t)&byte, sizeof byte);
    assert_int_equal(flyt_copy(&copy, NULL, false), CUDA_SUCCESS);
    assert_int_equal(server.plain_writes, 1);
    complete_all();
}

static void test_a_variable_is_copied_as_ever(void **state)
{
    server.keeps_nothing = true;
    put(0, 16, 1);
    assert_int_equal(server.writes[0], 0);
    assert_int_equal(server.plain_writes, 1);
    complete_all();
    go_on();
    assert_int_equal(server.writes[1], 0);
    assert_int_equal(server.asked_without, 0);
}

/* The program goes on where it is: the sentence says why. One whose address it has needs nothing that is new. */
static void test_a_server_that_is_older_is_named(void **state)
{
    struct flyt_error err = {0};
    CUdeviceptr address;
    place_of("table");
    complete_all();
    fake.lacks = FLYT_LIBRARY_SYMBOL;
    int status = flyt_restore(fake.user, fresh, &err);
    fake.lacks = 0;
    assert_int_equal(status, -ENOTSUP);
    assert_string_equal(err.text, "variable table is copied by its name: the server there is older than that");
    assert_int_equal(server.asked, 1);
    go_on();
    assert_int_equal(flyt_library_global(library, "table", 0, &address, NULL), CUDA_SUCCESS);
    complete_all();
    fake.lacks = FLYT_LIBRARY_SYMBOL;
    go_on();
    fake.lacks = 0;
}

static void test_a_reset_begins_anew(void **state)
{
    CUcontext primary;
    assert_int_equal(flyt_primary_retain(0, &primary), CUDA_SUCCESS);
    put(0, 16, 1);
    assert_int_equal(flyt_device_reset(0), CUDA_SUCCESS);
    complete_all();
    assert_int_equal(flyt_library_ensure(library), CUDA_SUCCESS);
    memset(expected, NEW, sizeof expected);
    put(40, 4, 2);
    complete_all();
    go_on();
    assert_memory_equal(server.table[1], expected, TABLE_BYTES);
}

/* ---- variables and memory of the program ---- */

/* A page of the program's where the server will say that the table is. */
static void *take_place(void)
{
    void *place = mmap((void *)(uintptr_t)server.table_address, 4096, PROT_READ | PROT_WRITE, /* NOLINT */
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    assert_ptr_equal(place, (void *)(uintptr_t)server.table_address);
    return place;
}

/* Between a program's memory and a variable nobody has to guess: one of them is not there. */
static void test_a_variable_where_the_program_has_memory_is_refused(void **state)
{
    CUdeviceptr address = 0;
    unsigned char *own = take_place();
    server.keeps_nothing = true;
    own[0] = 'x';
    assert_int_equal(flyt_library_global(library, "table", 0, &address, NULL), CUDA_ERROR_MAP_FAILED);
    assert_int_equal(flyt_library_symbol(library, "table", 0, &address, NULL), CUDA_ERROR_MAP_FAILED);
    assert_int_equal(flyt_library_global(library, "table", 0, &address, NULL), CUDA_ERROR_MAP_FAILED); /* again */
    assert_int_equal(address, 0);
    CUdeviceptr memory;
    assert_int_equal(flyt_memory_alloc(4096, &memory), CUDA_SUCCESS);
    unsigned within = server.within, plain = server.plain_writes;
    struct flyt_copy copy = flyt_copy_plain(FLYT_PLACE_ANY, memory, FLYT_PLACE_ANY, (uint64_t)(uintptr_t)own,
                                            8); /* the program's, surely */
    assert_int_equal(flyt_copy(&copy, NULL, false), CUDA_SUCCESS);
    assert_int_equal(server.within, within);
    assert_int_equal(server.plain_writes, plain + 1);
    assert_int_equal(flyt_memory_free(memory), CUDA_SUCCESS);
    munmap(own, 4096);
    assert_int_equal(flyt_library_global(library, "table", 0, &address, NULL), CUDA_SUCCESS);
    assert_int_equal(address, server.table_address);
    complete_all();
}

/* What comes after it goes elsewhere, until the module has gone. */
static void test_a_variable_keeps_the_programs_memory_away(void **state)
{
    CUdeviceptr address;
    CUlibrary other;
    void *wanted = (void *)(uintptr_t)server.table_address; /* NOLINT */
    assert_int_equal(flyt_library_load(image, NULL, &other), CUDA_SUCCESS);
    assert_int_equal(flyt_library_global(other, "table", 0, &address, NULL), CUDA_SUCCESS);
    assert_ptr_equal(mmap(wanted, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     MAP_FAILED);
    assert_int_equal(flyt_library_unload(other), CUDA_SUCCESS);
    munmap(take_place(), 4096);
    complete_all();
}

/* Copies by name know no address; after a move it is asked for, and is another one. */
static void test_an_address_told_after_a_move_is_reserved(void **state)
{
    CUdeviceptr address = 0;
    put(0, 16, 1);
    munmap(take_place(), 4096);
    complete_all();
    server.table_address += 4096;
    go_on();
    void *own = take_place();
    assert_int_equal(flyt_library_global(library, "table", 0, &address, NULL), CUDA_ERROR_MAP_FAILED);
    assert_int_equal(address, 0);
    unsigned writes = server.writes[0];
    put(16, 4, 2); /* by name as before */
    assert_int_equal(server.writes[0], writes + 1);
    munmap(own, 4096);
    assert_int_equal(flyt_library_global(library, "table", 0, &address, NULL), CUDA_SUCCESS);
    assert_int_equal(address, server.table_address);
    assert_ptr_equal(mmap((void *)(uintptr_t)address, 4096, PROT_NONE, /* NOLINT */
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
                     MAP_FAILED);
    complete_all();
}

/* The client's own marks for constants are nothing that a server may say. */
static void test_an_address_that_no_driver_gives_is_refused(void **state)
{
    CUdeviceptr address;
    server.table_address = 1ull << 63;
    server.keeps_nothing = true;
    assert_int_equal(flyt_library_global(library, "table", 0, &address, NULL), CUDA_ERROR_UNKNOWN);
    assert_int_equal(flyt_library_symbol(library, "table", 0, &address, NULL), CUDA_ERROR_UNKNOWN);
    complete_all();
}

int main(void)
{
    setenv("FLYT_SERVER", "unix:///nowhere", 1);
    fake.serve = serve;
#define TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_what_was_written_is_written_again),
        TEST(test_constants_that_nobody_wrote_are_the_images),
        TEST(test_reading_changes_nothing),
        TEST(test_reading_to_pageable_memory_changes_nothing),
        TEST(test_a_write_under_way_is_written_where_it_is_executed),
        TEST(test_a_copy_that_does_not_wait_loses_it),
        TEST(test_a_read_that_does_not_wait_loses_it),
        TEST(test_a_copy_within_the_device_loses_it),
        TEST(test_what_the_server_has_not_heard_is_kept),
        TEST(test_what_the_server_cannot_be_told_is_kept),
        TEST(test_who_is_told_the_address_has_no_constant_kept),
        TEST(test_more_than_the_bound_is_not_kept),
        TEST(test_one_that_the_server_cannot_be_told_of_is_device_memory),
        TEST(test_a_variable_is_copied_as_ever),
        TEST(test_a_server_that_is_older_is_named),
        TEST(test_a_reset_begins_anew),
        TEST(test_a_variable_where_the_program_has_memory_is_refused),
        TEST(test_a_variable_keeps_the_programs_memory_away),
        TEST(test_an_address_told_after_a_move_is_reserved),
        TEST(test_an_address_that_no_driver_gives_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
