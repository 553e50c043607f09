/*
 * What a session has beside its pages, saved: a session in this process over the software GPU, whose client loads
 * libraries, changes their variables by kernels and records events; then nobody serves it any more, and the image is
 * read and compared with what the test has computed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "cpu/image/reader.h"
#include "cpu/server/test/fake_client.h"
#include "cpu/server/test/fake_soft.h"
#include "cpu/server/cuda/image_cache.h"
#include "cpu/server/move/out/libraries.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/move/out/move.h"
#include "cpu/server/move/out/save.h"
#include "cpu/server/move/common/state.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/sha256.h"

enum { MIB = 1 << 20, SEQUENCE = 4711, BIG_BYTES = 9 * MIB + 4, GLOBALS_MAX = 32, EVENTS = 6 };

#define PTX ".version 8.0\n.target sm_75\n.address_size 64\n"

/* bump: counter += by, and marks in big; keep: *p = &target; point: pointer = &target. */
static const char first_text[] =
    PTX ".visible .global .align 4 .u32 counter = 5;\n"
        ".global .align 4 .b8 big[9437188];\n"
        ".const .align 4 .u32 factors[4] = {1, 2, 3, 4};\n"
        ".global .align 4 .u32 target = 77;\n"
        ".global .align 8 .u64 pointer;\n"
        ".visible .entry bump(.param .u32 by_)\n{\n"
        ".reg .b32 r<4>;\n.reg .b64 p;\n"
        "ld.param.u32 r0, [by_];\nld.global.u32 r1, [counter];\nadd.u32 r1, r1, r0;\nst.global.u32 [counter], r1;\n"
        "mov.u64 p, big;\nst.global.u32 [p], r0;\nadd.u64 p, p, 4194304;\nst.global.u32 [p], r1;\n"
        "add.u64 p, p, 5242880;\nst.global.u32 [p], r1;\nret;\n}\n"
        ".visible .entry keep(.param .u64 p_)\n{\n"
        ".reg .b64 p, q;\nld.param.u64 p, [p_];\nmov.u64 q, target;\nst.global.u64 [p], q;\nret;\n}\n"
        ".visible .entry point()\n{\n.reg .b64 q;\nmov.u64 q, target;\nst.global.u64 [pointer], q;\nret;\n}\n";
static const char second_text[] =
    PTX ".visible .global .align 4 .u32 counter = 100;\n.global .align 4 .u32 other = 9;\n"
        ".visible .entry twice()\n{\n.reg .b32 r;\nld.global.u32 r, [counter];\nadd.u32 r, r, r;\n"
        "st.global.u32 [counter], r;\nst.global.u32 [other], r;\nret;\n}\n";

struct saved_global {
    uint64_t module_id, address, bytes, have_bytes;
    char symbol[64];
    bool is_constant;
    unsigned char *contents;
};

struct saved {
    struct saved_global globals[GLOBALS_MAX];
    unsigned global_count;
    struct flyt_state_event events[EVENTS + 1];
    unsigned event_count;
    flyt_checkpoint_sequence sequence;
    unsigned slot_count, extent_count;
};

struct kept {
    struct fixture *client;
    struct flyt_manager manager;
    int fd; /* the node manager's end of the link */
    bool is_served;
    struct flyt_manager_link_message message;
};

static int begin_over(void **state, const struct flyt_driver *driver, enum flyt_resume_state resume_state)
{
    struct kept *self = calloc(1, sizeof *self);
    const struct flyt_manager_link_session granted = {.session_id = 1, .server_id = 1, .slot_count = 1};
    int fds[2];
    assert_non_null(self);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
    self->fd = fds[0];
    self->client = make_over(driver);
    assert_int_equal(flyt_manager_open(&self->manager, fds[1], &granted, NULL), 0);
    struct flyt_session *session = &self->client->session;
    session->manager = &self->manager;
    session->session_id = 0xabc;
    session->client_pid = 12;
    session->resume.state = resume_state;
    assert_int_equal(flyt_image_cache_open(session->images, getenv("SAVE_IMAGES")), 0);
    session->current_device = NULL; /* a context is current for a thread */
    assert_int_equal(pthread_create(&self->client->thread, NULL, serve, self->client), 0);
    self->is_served = true;
    *state = self;
    return 0;
}

static int begin(void **state)
{
    return begin_over(state, &fake_soft_driver, FLYT_RESUME_NONE);
}

static int begin_with_two(void **state)
{
    setenv("FLYT_SOFT_DEVICES", "2", 1);
    return begin(state);
}

/* Nobody serves the session any more: it is this thread's. */
static void stop(struct kept *self)
{
    struct flyt_session *session = &self->client->session;
    close(self->client->fd);
    pthread_join(self->client->thread, NULL);
    self->is_served = false;
    session->current_device = NULL; /* of that thread */
    assert_int_equal(flyt_device_use(&session->devices[0]), CUDA_SUCCESS);
}

static int finish(void **state)
{
    struct kept *self = *state;
    if (self->is_served)
        stop(self);
    self->client->session.move->move_id = 0;
    flyt_image_cache_close(self->client->session.images);
    flyt_session_fini(&self->client->session);
    close(self->manager.fd);
    close(self->fd);
    free(self->client);
    free(self);
    return 0;
}

/* ---- the client ---- */

static uint64_t library(unsigned number)
{
    return flyt_id(FLYT_ID_LIBRARY, number);
}

static void load(struct kept *self, unsigned number, const char *text, unsigned option_count)
{
    static flyt_load_option options[2] = {{.id = CU_JIT_OPTIMIZATION_LEVEL, .value = 3},
                                          {.id = CU_JIT_MAX_REGISTERS, .value = 32}};
    flyt_library_load_args args = {.library_id = library(number),
                                   .options = {.options_len = option_count, .options_val = options}};
    flyt_library_load_res res = {0};
    flyt_sha256_of(text, strlen(text), (unsigned char *)args.image_hash);
    assert_int_equal(
        flyt_image_cache_put(self->client->session.images, (unsigned char *)args.image_hash, text, strlen(text)), 0);
    uint32_t xid = send_call(self->client, FLYT_LIBRARY_LOAD, (xdrproc_t)xdr_flyt_library_load_args, &args);
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_library_load_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    xdr_free((xdrproc_t)xdr_flyt_library_load_res, &res);
}

/* A kernel by its place, which is that in the text. */
static void launch_on(struct kept *self, unsigned device, unsigned number, unsigned index, void *params, unsigned bytes)
{
    const uint64_t stream = flyt_legacy_stream_id(device);
    SEND(self->client, FLYT_KERNEL_LAUNCH, kernel_launch, .stream_id = stream,
         .kernel_id = flyt_kernel_id(library(number), index), .grid = {1, 1, 1}, .block = {1, 1, 1},
         .params = {.params_len = bytes, .params_val = params});
    assert_int_equal(synchronize(self->client, stream), CUDA_SUCCESS);
}

static void launch(struct kept *self, unsigned number, unsigned index, void *params, unsigned bytes)
{
    launch_on(self, 0, number, index, params, bytes);
}

static void bump(struct kept *self, uint32_t by)
{
    launch(self, 1, 0, &by, sizeof by);
}

static void keep(struct kept *self, uint64_t address)
{
    launch(self, 1, 1, &address, sizeof address);
}

static void load_both(struct kept *self)
{
    load(self, 1, first_text, 0);
    load(self, 2, second_text, 1);
}

/* ---- the image ---- */

static void take_global(struct saved *saved, struct flyt_checkpoint_reader *reader,
                        const struct flyt_checkpoint_record *record)
{
    const flyt_checkpoint_global *body = &record->body->global;
    struct flyt_error err;
    struct saved_global *global = &saved->globals[saved->global_count - (saved->global_count > 0)];
    if (!saved->global_count || global->have_bytes == global->bytes) {
        assert_true(saved->global_count < GLOBALS_MAX);
        global = &saved->globals[saved->global_count++];
        *global = (struct saved_global){.module_id = body->module_id,
                                        .address = body->address,
                                        .bytes = body->total_bytes,
                                        .is_constant = body->is_constant,
                                        .contents = malloc(body->total_bytes + 1)};
        assert_true(strlen(body->symbol) < sizeof global->symbol);
        strcpy(global->symbol, body->symbol);
    }
    assert_int_equal(body->offset_bytes, global->have_bytes);
    assert_int_equal(flyt_checkpoint_place(reader, global->contents + global->have_bytes, &err), 0);
    global->have_bytes += record->place_bytes;
}

static struct saved *read_image(int fd)
{
    struct saved *saved = calloc(1, sizeof *saved);
    struct flyt_checkpoint_reader *reader;
    struct flyt_checkpoint_record record;
    struct flyt_error err = {0};
    int status;
    assert_non_null(saved);
    assert_int_equal(lseek(fd, 0, SEEK_CUR), 0);
    assert_int_equal(flyt_checkpoint_reader_new(fd, "the image", true, &reader, &err), 0);
    while ((status = flyt_checkpoint_next(reader, &record, &err)) > 0) {
        if (record.type == FLYT_CHECKPOINT_GLOBAL)
            take_global(saved, reader, &record);
        if (record.type == FLYT_CHECKPOINT_OBJECT) {
            const flyt_checkpoint_object *object = &record.body->object;
            assert_int_equal(object->kind, FLYT_CHECKPOINT_EVENT);
            assert_true(saved->event_count <= EVENTS);
            assert_true(flyt_state_event_get(object->value.value_val, object->value.value_len,
                                             &saved->events[saved->event_count++]));
        }
        if (record.type == FLYT_CHECKPOINT_HEAD) {
            assert_true(record.body->head.session_id == 0xabc && record.body->head.pid == 12);
            assert_true(record.body->head.sm_count > 0 && record.body->head.created_ms > 0);
        }
    }
    if (status)
        fail_msg("%s", err.text);
    saved->sequence = flyt_checkpoint_reader_totals(reader)->sequence;
    saved->slot_count = flyt_checkpoint_reader_totals(reader)->slot_count;
    saved->extent_count = (unsigned)flyt_checkpoint_reader_totals(reader)->extent_count;
    flyt_checkpoint_reader_free(reader);
    close(fd);
    return saved;
}

static void free_saved(struct saved *saved)
{
    for (unsigned i = 0; i < saved->global_count; i++)
        free(saved->globals[i].contents);
    free(saved);
}

static struct saved *save(struct kept *self)
{
    struct flyt_error err = {0};
    int fd = flyt_save_state(&self->client->session, SEQUENCE, &err);
    if (fd < 0)
        fail_msg("%s", err.text);
    return read_image(fd);
}

static const struct saved_global *find(const struct saved *saved, unsigned number, const char *symbol)
{
    for (unsigned i = 0; i < saved->global_count; i++)
        if (saved->globals[i].module_id == library(number) && !strcmp(saved->globals[i].symbol, symbol))
            return &saved->globals[i];
    fail_msg("%s of %u was not saved", symbol, number);
    return NULL;
}

static uint32_t number_at(const struct saved_global *global, uint64_t offset)
{
    uint32_t value;
    assert_true(offset + sizeof value <= global->bytes);
    memcpy(&value, global->contents + offset, sizeof value);
    return value;
}

/* Where the driver has it. */
static uint64_t place_of(struct kept *self, unsigned number, const char *symbol)
{
    struct flyt_session *session = &self->client->session;
    const struct flyt_library *object = (const void *)flyt_object_find(&session->objects, library(number));
    CUdeviceptr address = 0;
    size_t bytes;
    assert_int_equal(flyt_device_use(&session->devices[0]), CUDA_SUCCESS);
    assert_int_equal(cuLibraryGetGlobal(&address, &bytes, object->cu_library, symbol), CUDA_SUCCESS);
    return address;
}

/* ---- tests ---- */

static void contents_of_variables_and_constants(void **state)
{
    static const unsigned char zeros[BIG_BYTES];
    struct kept *self = *state;
    load_both(self);
    bump(self, 30);
    bump(self, 12);
    launch(self, 2, 0, NULL, 0);
    stop(self);
    struct saved *saved = save(self);
    assert_int_equal(saved->global_count, 7);
    assert_true(saved->sequence.received == SEQUENCE && saved->sequence.completed == SEQUENCE);
    assert_int_equal(saved->slot_count, self->client->session.device_count);
    assert_int_equal(saved->extent_count, 0);
    assert_int_equal(number_at(find(saved, 1, "counter"), 0), 5 + 30 + 12);
    assert_int_equal(number_at(find(saved, 2, "counter"), 0), 200);
    assert_int_equal(number_at(find(saved, 2, "other"), 0), 200);
    assert_int_equal(number_at(find(saved, 1, "target"), 0), 77);
    const struct saved_global *big = find(saved, 1, "big"), *factors = find(saved, 1, "factors");
    assert_int_equal(big->bytes, BIG_BYTES);
    assert_int_equal(number_at(big, 0), 12);
    assert_int_equal(number_at(big, 4 * MIB), 5 + 30 + 12);
    assert_int_equal(number_at(big, 9 * MIB), 5 + 30 + 12);
    assert_memory_equal(big->contents + 4, zeros, 4 * MIB - 4);
    assert_memory_equal(big->contents + 4 * MIB + 4, zeros, 5 * MIB - 4);
    assert_true(factors->is_constant && !big->is_constant);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(number_at(factors, 4 * i), i + 1);
    /* The program has no address of any. */
    for (unsigned i = 0; i < saved->global_count; i++)
        assert_int_equal(saved->globals[i].address, 0);
    free_saved(saved);
}

static void addresses_that_the_program_has(void **state)
{
    struct kept *self = *state;
    load_both(self);
    uint64_t address = alloc(self->client, 4096, CUDA_SUCCESS);
    keep(self, address + 4096 - 8); /* the last word */
    stop(self);
    struct saved *saved = save(self);
    /* It may be meant for what ends there, too. */
    uint64_t target = place_of(self, 1, "target");
    unsigned kept_count = 0;
    for (unsigned i = 0; i < saved->global_count; i++) {
        const struct saved_global *global = &saved->globals[i];
        uint64_t place = place_of(self, (unsigned)flyt_id_number(global->module_id), global->symbol);
        bool is_kept = target >= place && target <= place + global->bytes;
        assert_true(global->address == (is_kept ? place : 0));
        kept_count += is_kept;
    }
    assert_true(kept_count == 1 || kept_count == 2);
    free_saved(saved);
}

static void addresses_that_a_variable_has(void **state)
{
    struct kept *self = *state;
    load_both(self);
    launch(self, 1, 2, NULL, 0);
    stop(self);
    struct saved *saved = save(self);
    uint64_t pointer;
    memcpy(&pointer, find(saved, 1, "pointer")->contents, sizeof pointer);
    assert_true(pointer == place_of(self, 1, "target"));
    assert_true(find(saved, 1, "target")->address == pointer);
    assert_int_equal(find(saved, 1, "pointer")->address, 0);
    assert_int_equal(find(saved, 2, "counter")->address, 0);
    free_saved(saved);
}

static uint64_t ask(struct kept *self, unsigned number, const char *symbol)
{
    flyt_library_global_res res;
    uint32_t xid =
        SEND(self->client, FLYT_LIBRARY_GLOBAL, library_global, .library_id = library(number), .name = (char *)symbol);
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_library_global_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    return res.address;
}

/* Which of all variables the image has the address of, by "library.symbol " in the image's order. */
static void expect_addresses(struct kept *self, const char *want)
{
    char text[256] = "";
    struct saved *saved = save(self);
    for (unsigned i = 0; i < saved->global_count; i++) {
        const struct saved_global *global = &saved->globals[i];
        unsigned number = (unsigned)flyt_id_number(global->module_id);
        size_t used = strlen(text);
        if (!global->address)
            continue;
        assert_true(global->address == place_of(self, number, global->symbol));
        snprintf(text + used, sizeof text - used, "%u.%s ", number, global->symbol);
    }
    assert_string_equal(text, want);
    free_saved(saved);
}

/* What it has done with it nobody knows. */
static void addresses_that_the_program_has_asked_for(void **state)
{
    struct kept *self = *state;
    load_both(self);
    ask(self, 2, "other");
    ask(self, 1, "factors");
    stop(self);
    expect_addresses(self, "1.factors 2.other ");
}

/* Where it has them from nobody knows: what it writes to, and reads from, inside of a variable. */
static void addresses_that_the_program_has_used(void **state)
{
    struct kept *self = *state;
    load_both(self);
    const uint64_t big = ask(self, 1, "big");
    flyt_memory_set_args args = {.stream_id = legacy, .dst = range(big + 4096, 64), .element_bytes = 1, .value = 3};
    struct flyt_session *session = &self->client->session;
    send_call(self->client, FLYT_MEMORY_SET, (xdrproc_t)xdr_flyt_memory_set_args, &args);
    assert_int_equal(synchronize(self->client, legacy), CUDA_SUCCESS);
    stop(self);
    expect_addresses(self, "1.big ");
    struct flyt_library *object = (struct flyt_library *)flyt_object_find(&session->objects, library(1));
    const int64_t place = flyt_image_symbols_find(&object->code.symbols, "big");
    assert_true(object->is_asked[place]);
    object->is_asked[place] = false; /* as if a kernel had told it */
    expect_addresses(self, "1.big ");
    assert_int_equal(session->save->used_count, 1);
    session->save->used_count = 0;
    expect_addresses(self, "");
    /* More than are kept. */
    for (unsigned i = 0; i <= FLYT_SAVE_USED_MAX; i++) {
        assert_false(session->save->is_any);
        flyt_save_note_used(session, big + 8 + i % FLYT_SAVE_USED_MAX); /* one comes again */
    }
    expect_addresses(self, "1.big ");
    flyt_save_note_used(session, big);
    expect_addresses(self, "1.big 1.counter 1.factors 1.pointer 1.target 2.counter 2.other ");
}

/* ---- constants that the client writes again where it goes on ---- */

/* It is offered to keep what is written to it, and does not learn where it is. Where it is, for the test. */
static uint64_t keep_factors(struct kept *self)
{
    flyt_library_symbol_res place;
    uint32_t xid = SEND(self->client, FLYT_LIBRARY_SYMBOL, library_symbol, .library_id = library(1), .name = "factors",
                        .is_kept = 1);
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_library_symbol_res, &place);
    assert_int_equal(place.result, CUDA_SUCCESS);
    assert_int_equal(place.is_kept, 1);
    return place.address;
}

static void write_factors(struct kept *self, unsigned offset_bytes, char byte)
{
    SEND(self->client, FLYT_CONSTANT_WRITE, constant_write, .stream_id = legacy, .library_id = library(1),
         .name = "factors", .offset_bytes = offset_bytes, .data = {.data_len = 1, .data_val = &byte});
}

static void read_by_name(struct kept *self)
{
    flyt_constant_read_res res = {0};
    uint32_t xid = SEND(self->client, FLYT_CONSTANT_READ, constant_read, .stream_id = legacy, .library_id = library(1),
                        .name = "factors", .offset_bytes = 1, .bytes = 1);
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_constant_read_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    assert_int_equal(res.data.data_len, 1);
    assert_int_equal(*res.data.data_val, 9);
    xdr_free((xdrproc_t)xdr_flyt_constant_read_res, &res);
}

static void read_by_address(struct kept *self, uint64_t address, uint64_t other)
{
    flyt_copy_out_res res = {0};
    uint32_t xid = SEND(self->client, FLYT_COPY_OUT, copy_out, .stream_id = legacy, .src = range(address, 4));
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_copy_out_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    xdr_free((xdrproc_t)xdr_flyt_copy_out_res, &res);
}

static void write_by_address(struct kept *self, uint64_t address, uint64_t other)
{
    char data[4] = {1};
    SEND(self->client, FLYT_COPY_IN, copy_in, .stream_id = legacy, .dst = range(address, sizeof data),
         .data = {.data_len = sizeof data, .data_val = data});
}

static void fill_by_address(struct kept *self, uint64_t address, uint64_t other)
{
    SEND(self->client, FLYT_MEMORY_SET, memory_set, .stream_id = legacy, .dst = range(address, 4), .element_bytes = 1);
}

static void copy_from(struct kept *self, uint64_t address, uint64_t other)
{
    SEND(self->client, FLYT_COPY_WITHIN, copy_within, .stream_id = legacy, .dst = range(other, 4),
         .src = range(address, 4));
}

static void copy_to(struct kept *self, uint64_t address, uint64_t other)
{
    copy_from(self, other, address);
}

/* What the client copies by its name tells nothing; who names its address has it from elsewhere. */
static void addresses_of_constants_that_the_client_keeps(void **state)
{
    static void (*const uses[])(struct kept *, uint64_t, uint64_t) = {read_by_address, write_by_address,
                                                                      fill_by_address, copy_from, copy_to};
    struct kept *self = *state;
    struct flyt_session *session = &self->client->session;
    load(self, 1, first_text, 0);
    const struct flyt_library *object = (const void *)flyt_object_find(&session->objects, library(1));
    bool *is_known = &object->is_asked[flyt_image_symbols_find(&object->code.symbols, "factors")];
    const uint64_t factors = keep_factors(self), other = alloc(self->client, 64, CUDA_SUCCESS);
    write_factors(self, 1, 9);
    read_by_name(self);
    assert_int_equal(synchronize(self->client, legacy), CUDA_SUCCESS);
    assert_false(*is_known);
    for (unsigned i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        *is_known = false; /* nothing is under way */
        uses[i](self, factors + 4, other);
        assert_int_equal(synchronize(self->client, legacy), CUDA_SUCCESS);
        assert_true(*is_known);
    }
    assert_int_equal(session->save->used_count, 0);
    stop(self);
    expect_addresses(self, "1.factors ");
}

static _Atomic unsigned wait_count; /* for a stream, in the driver */

static CUresult count_wait(CUstream stream)
{
    wait_count++;
    return cuStreamSynchronize(stream);
}

static int begin_again(void **state)
{
    static struct flyt_driver counting;
    counting = fake_soft_driver;
    counting.cuStreamSynchronize = count_wait;
    return begin_over(state, &counting, FLYT_RESUME_AWAITED);
}

/* However many pieces it is in, nobody waits for each: that would be the time for which the program stands still. */
static void constants_are_written_again_without_waiting_for_each(void **state)
{
    enum { BYTES = 16 };
    struct kept *self = *state;
    flyt_session_resume_begin_res begun;
    flyt_session_resume_end_res ended;
    unsigned char expected[BYTES], seen[BYTES];
    uint32_t xid = SEND(self->client, FLYT_SESSION_RESUME_BEGIN, session_resume_begin, .thread = 1);
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_session_resume_begin_res, &begun);
    assert_int_equal(begun.result, CUDA_SUCCESS);
    load(self, 1, first_text, 0);
    keep_factors(self);
    const unsigned before = wait_count;
    for (unsigned i = 0; i < BYTES; i++) {
        expected[i] = (unsigned char)(3 + 11 * i);
        write_factors(self, i, (char)expected[i]);
    }
    xid = SEND(self->client, FLYT_SESSION_RESUME_END, session_resume_end, .sequence = SEQUENCE);
    await_reply(self->client, xid, (xdrproc_t)xdr_flyt_session_resume_end_res, &ended);
    assert_int_equal(ended.result, CUDA_SUCCESS);
    assert_int_equal(wait_count, before);
    stop(self);
    assert_ok(cuMemcpyDtoH(seen, place_of(self, 1, "factors"), sizeof seen));
    assert_memory_equal(seen, expected, sizeof seen);
}

/* Each has its own; memory of one may have addresses of the other's. */
static void variables_of_two_devices(void **state)
{
    struct kept *self = *state;
    struct fixture *client = self->client;
    uint32_t by = 1000;
    flyt_memory_alloc_res res;
    load(self, 1, first_text, 0);
    bump(self, 30);
    assert_int_equal(self->client->session.device_count, 2);
    uint32_t xid = SEND(client, FLYT_MEMORY_ALLOC, memory_alloc, .bytes = 4096, .device = 1);
    await_reply(client, xid, (xdrproc_t)xdr_flyt_memory_alloc_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    launch_on(self, 1, 1, 0, &by, sizeof by);
    flyt_device_peer_access_set_res allowed;
    xid = SEND(client, FLYT_DEVICE_PEER_ACCESS_SET, device_peer_access_set, .device = 1, .peer_device = 0,
               .is_enabled = 1);
    await_reply(client, xid, (xdrproc_t)xdr_flyt_device_peer_access_set_res, &allowed);
    assert_int_equal(allowed.result, CUDA_SUCCESS);
    uint64_t other = alloc(client, 4096, CUDA_SUCCESS);
    launch_on(self, 1, 1, 1, &other, sizeof other); /* puts device 1's variable into device 0's memory */
    stop(self);
    struct saved *saved = save(self);
    assert_int_equal(saved->global_count, 10);
    assert_int_equal(saved->slot_count, 2);
    assert_int_equal(number_at(find(saved, 1, "counter"), 0), 5 + 30);
    unsigned seen = 0;
    for (unsigned i = 0; i < saved->global_count; i++) {
        const struct saved_global *global = &saved->globals[i];
        bool is_second = flyt_state_ordinal(global->module_id) == 1;
        assert_true(flyt_state_library_id(global->module_id) == library(1));
        seen += is_second;
        if (is_second && !strcmp(global->symbol, "counter"))
            assert_int_equal(number_at(global, 0), 5 + 1000);
        if (!strcmp(global->symbol, "target"))
            assert_int_equal(global->address != 0, is_second);
    }
    assert_int_equal(seen, 5);
    free_saved(saved);
}

static void times_of_events(void **state)
{
    struct kept *self = *state;
    struct fixture *client = self->client;
    flyt_event_elapsed_res elapsed[EVENTS - 2];
    for (unsigned i = 1; i <= EVENTS; i++)
        SEND(client, FLYT_EVENT_CREATE, event_create, .event_id = event_id(i),
             .flags = i == EVENTS - 1 ? CU_EVENT_DISABLE_TIMING : 0);
    /* In another order than their numbers; the last was never recorded. */
    static const unsigned order[] = {3, 1, 4, 2, EVENTS - 1};
    for (unsigned i = 0; i < sizeof order / sizeof order[0]; i++) {
        SEND(client, FLYT_EVENT_RECORD, event_record, .event_id = event_id(order[i]), .stream_id = legacy);
        assert_int_equal(synchronize(client, legacy), CUDA_SUCCESS);
    }
    for (unsigned i = 0; i < 3; i++) {
        uint32_t xid = SEND(client, FLYT_EVENT_ELAPSED, event_elapsed, .start_id = event_id(order[i]),
                            .end_id = event_id(order[i + 1]));
        await_reply(client, xid, (xdrproc_t)xdr_flyt_event_elapsed_res, &elapsed[i]);
        assert_int_equal(elapsed[i].result, CUDA_SUCCESS);
    }
    stop(self);
    struct saved *saved = save(self);
    uint64_t times[EVENTS + 1] = {0};
    unsigned seen = 0;
    assert_int_equal(saved->event_count, EVENTS - 1);
    for (unsigned i = 0; i < saved->event_count; i++) {
        unsigned number = (unsigned)flyt_id_number(saved->events[i].event_id);
        assert_true(number >= 1 && number < EVENTS && !(seen >> number & 1));
        seen |= 1u << number;
        assert_int_equal(saved->events[i].has_time, number != EVENTS - 1);
        times[number] = saved->events[i].time_ns;
        assert_true(times[number] <= self->client->session.clock_ns());
    }
    /* As the driver has told what is between them, but for what rounding takes. */
    for (unsigned i = 0; i < 3; i++) {
        double ms = ((double)times[order[i + 1]] - (double)times[order[i]]) / 1e6;
        assert_true(fabs(ms - (double)elapsed[i].elapsed_ms) < 1e-5);
    }
    free_saved(saved);
}

static void receive_library(struct kept *self, unsigned number, const char *text, unsigned option_count)
{
    flyt_library_load_args args = {0};
    unsigned char hash[FLYT_SHA256_BYTES];
    XDR xdrs;
    do
        hear(self->fd, &self->message);
    while (self->message.kind == FLYT_MANAGER_LINK_USE || self->message.kind == FLYT_MANAGER_LINK_EXTENT);
    assert_int_equal(self->message.kind, FLYT_MANAGER_LINK_LIBRARY);
    assert_true(self->message.library.library_id == library(number));
    assert_int_equal(self->message.library.has_ended, !text);
    if (!text) {
        assert_int_equal(self->message.data_bytes, 0);
        return;
    }
    xdrmem_create(&xdrs, (char *)self->message.data, self->message.data_bytes, XDR_DECODE);
    assert_true(xdr_flyt_library_load_args(&xdrs, &args));
    assert_int_equal(xdr_getpos(&xdrs), self->message.data_bytes);
    flyt_sha256_of(text, strlen(text), hash);
    assert_memory_equal(args.image_hash, hash, sizeof hash);
    assert_true(args.library_id == library(number));
    assert_int_equal(args.options.options_len, option_count);
    if (option_count)
        assert_true(args.options.options_val[0].id == CU_JIT_OPTIMIZATION_LEVEL &&
                    args.options.options_val[0].value == 3);
    if (option_count > 1)
        assert_true(args.options.options_val[1].id == CU_JIT_MAX_REGISTERS && args.options.options_val[1].value == 32);
    xdr_free((xdrproc_t)xdr_flyt_library_load_args, &args);
}

/* In the order of loading, whatever their numbers; those that are unloaded are not told. */
static void libraries_are_told(void **state)
{
    struct kept *self = *state;
    struct flyt_session *session = &self->client->session;
    load(self, 9, second_text, 2);
    load(self, 3, first_text, 0);
    load(self, 5, second_text, 0);
    load(self, 1, first_text, 1);
    SEND(self->client, FLYT_LIBRARY_UNLOAD, library_unload, .library_id = library(5));
    assert_int_equal(synchronize(self->client, legacy), CUDA_SUCCESS);
    barrier(self->client);
    stop(self);
    flyt_save_libraries(session); /* no move: nothing */
    session->move->move_id = 1;
    flyt_save_libraries(session);
    receive_library(self, 9, second_text, 2);
    receive_library(self, 3, first_text, 0);
    receive_library(self, 1, first_text, 1);
    flyt_library_destroy((struct flyt_library *)flyt_object_find(&session->objects, library(3)));
    receive_library(self, 3, NULL, 0);
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count;
    assert_int_equal(flyt_manager_link_receive(self->fd, &self->message, fds, &fd_count), -EAGAIN);
    struct saved *saved = save(self); /* without what is unloaded */
    for (unsigned i = 0; i < saved->global_count; i++)
        assert_true(saved->globals[i].module_id == library(9) || saved->globals[i].module_id == library(1));
    assert_int_equal(saved->global_count, 7);
    free_saved(saved);
}

static void what_cannot_be_saved_is_refused(void **state)
{
    struct kept *self = *state;
    struct flyt_session *session = &self->client->session;
    struct flyt_error err = {0};
    load(self, 1, first_text, 0);
    stop(self);
    struct flyt_library *object = (struct flyt_library *)flyt_object_find(&session->objects, library(1));
    object->code.symbols_status = -ENOTSUP;
    assert_int_equal(flyt_save_check(session, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "cannot be told from its image"));
    assert_int_equal(flyt_save_state(session, SEQUENCE, &err), -ENOTSUP);
    object->code.symbols_status = 0;
    assert_int_equal(flyt_save_check(session, &err), 0);
    assert_int_equal(flyt_fault_set("state.save:error"), 0);
    assert_int_equal(flyt_save_state(session, SEQUENCE, &err), -EIO);
    assert_int_equal(flyt_fault_set(NULL), 0);
    /* The driver has no such variable: nothing uses it. */
    free(object->code.symbols.items[0].name);
    object->code.symbols.items[0].name = strdup("nowhere");
    struct saved *saved = save(self);
    assert_int_equal(saved->global_count, 4);
    free_saved(saved);
    /* Nobody can change what was saved. */
    int fd = flyt_save_state(session, SEQUENCE, &err);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), -1);
    assert_int_equal(errno, EPERM);
    close(fd);
}

static int run_alone(const struct CMUnitTest *test)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        exit(_cmocka_run_group_tests(test->name, test, 1, NULL, NULL));
    return pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

int main(void)
{
    char folder[] = "/var/tmp/flyt-save-test-XXXXXX", command[128];
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)
    const struct CMUnitTest tests[] = {
        TEST(contents_of_variables_and_constants),
        TEST(addresses_that_the_program_has),
        TEST(addresses_that_a_variable_has),
        TEST(addresses_that_the_program_has_asked_for),
        TEST(addresses_that_the_program_has_used),
        TEST(addresses_of_constants_that_the_client_keeps),
        {"constants_are_written_again_without_waiting_for_each", constants_are_written_again_without_waiting_for_each,
         begin_again, finish, NULL},
        {"variables_of_two_devices", variables_of_two_devices, begin_with_two, finish, NULL},
        TEST(times_of_events),
        TEST(libraries_are_told),
        TEST(what_cannot_be_saved_is_refused),
    };
    if (!mkdtemp(folder))
        return 1;
    setenv("SAVE_IMAGES", folder, 1);
    setenv("FLYT_LOG", "warn", 0);
    /* Each in a process of its own: a session has the windows of addresses, and there is one such session. */
    int failed = 0;
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        failed += run_alone(&tests[i]);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command) ? 1 : failed;
}
