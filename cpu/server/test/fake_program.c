#include "cpu/server/test/fake_program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "flyt_procedures.h"
#include "rpc/base/sha256.h"

enum { EVENTS = 4 };

const char fake_step_text[] =
    PTX ".visible .global .align 4 .u32 counter = 100;\n"
        ".visible .entry step(.param .u64 p_)\n{\n.reg .b32 r;\n.reg .b64 p;\nld.param.u64 p, [p_];\n"
        "ld.global.u32 r, [counter];\nadd.u32 r, r, 1;\nst.global.u32 [counter], r;\nst.global.u32 [p], r;\nret;\n}\n";

uint64_t fake_program_library(unsigned number)
{
    return flyt_id(FLYT_ID_LIBRARY, number);
}

uint64_t fake_program_event(unsigned number)
{
    return flyt_id(FLYT_ID_EVENT, number);
}

/* ---- memory ---- */

flyt_box fake_program_line(uint64_t address, uint64_t bytes)
{
    return (flyt_box){address, bytes, 1, 1, bytes, bytes};
}

int fake_program_alloc(struct fake_wire *wire, uint64_t bytes, uint64_t *ret_address)
{
    flyt_memory_alloc_res res = {0};
    int result = FAKE_WIRE_CALL(wire, FLYT_MEMORY_ALLOC, memory_alloc, &res, .bytes = bytes);
    *ret_address = res.address;
    return result;
}

void fake_program_fill_on(struct fake_wire *wire, uint64_t stream_id, uint64_t address, uint64_t bytes, unsigned value)
{
    FAKE_WIRE_SEND(wire, FLYT_MEMORY_SET, memory_set, .stream_id = stream_id, .dst = fake_program_line(address, bytes),
                   .element_bytes = 1, .value = value);
}

void fake_program_fill(struct fake_wire *wire, uint64_t address, uint64_t bytes, unsigned value)
{
    fake_program_fill_on(wire, legacy, address, bytes, value);
}

static void read_at(struct fake_wire *wire, uint64_t address, void *ret_value, unsigned bytes)
{
    flyt_copy_out_res res = {0};
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_COPY_OUT, copy_out, &res, .stream_id = legacy,
                                    .src = fake_program_line(address, bytes)),
                     CUDA_SUCCESS);
    assert_int_equal(res.data.data_len, bytes);
    memcpy(ret_value, res.data.data_val, bytes);
    xdr_free((xdrproc_t)xdr_flyt_copy_out_res, &res);
}

uint32_t fake_program_word_at(struct fake_wire *wire, uint64_t address)
{
    uint32_t value;
    read_at(wire, address, &value, sizeof value);
    return value;
}

unsigned fake_program_byte_at(struct fake_wire *wire, uint64_t address)
{
    unsigned char value;
    read_at(wire, address, &value, sizeof value);
    return value;
}

int fake_program_synchronize(struct fake_wire *wire, uint64_t stream_id)
{
    flyt_stream_synchronize_res res;
    return FAKE_WIRE_CALL(wire, FLYT_STREAM_SYNCHRONIZE, stream_synchronize, &res, .stream_id = stream_id);
}

int fake_program_barrier(struct fake_wire *wire)
{
    flyt_session_barrier_res res;
    return FAKE_WIRE_CALL(wire, FLYT_SESSION_BARRIER, session_barrier, &res, .thread = 1);
}

/* ---- libraries ---- */

void fake_program_store(struct fake_wire *wire, const char *text)
{
    static uint64_t transfer_id = 100;
    flyt_image_store_args args = {.transfer_id = ++transfer_id, .bytes = strlen(text)};
    flyt_chunk chunk = {.transfer_id = transfer_id,
                        .data = {.data_len = (u_int)strlen(text), .data_val = (char *)text}};
    flyt_image_store_res res;
    flyt_sha256_of(text, strlen(text), (unsigned char *)args.image_hash);
    fake_wire_send(wire, FLYT_CHUNK, (xdrproc_t)xdr_flyt_chunk, &chunk);
    assert_int_equal(fake_wire_call(wire, FLYT_IMAGE_STORE, (xdrproc_t)xdr_flyt_image_store_args, &args,
                                    (xdrproc_t)xdr_flyt_image_store_res, &res),
                     CUDA_SUCCESS);
}

flyt_library_load_args fake_program_arguments(unsigned number, const char *text)
{
    static flyt_load_option option = {.id = CU_JIT_OPTIMIZATION_LEVEL, .value = 2};
    flyt_library_load_args args = {.library_id = fake_program_library(number)};
    args.options.options_len = number % 2 == 0;
    args.options.options_val = &option;
    flyt_sha256_of(text, strlen(text), (unsigned char *)args.image_hash);
    return args;
}

void fake_program_load(struct fake_wire *wire, unsigned number, const char *text, unsigned kernel_count)
{
    flyt_library_load_args args = fake_program_arguments(number, text);
    flyt_library_load_res res = {0};
    assert_int_equal(fake_wire_call(wire, FLYT_LIBRARY_LOAD, (xdrproc_t)xdr_flyt_library_load_args, &args,
                                    (xdrproc_t)xdr_flyt_library_load_res, &res),
                     CUDA_SUCCESS);
    assert_int_equal(res.kernel_count, kernel_count);
    xdr_free((xdrproc_t)xdr_flyt_library_load_res, &res);
}

void fake_program_unload(struct fake_wire *wire, unsigned number)
{
    FAKE_WIRE_SEND(wire, FLYT_LIBRARY_UNLOAD, library_unload, .library_id = fake_program_library(number));
    assert_int_equal(fake_program_barrier(wire), CUDA_SUCCESS);
}

uint64_t fake_program_place_of(struct fake_wire *wire, unsigned number, const char *name)
{
    flyt_library_global_res res;
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_LIBRARY_GLOBAL, library_global, &res,
                                    .library_id = fake_program_library(number), .name = (char *)name),
                     CUDA_SUCCESS);
    return res.address;
}

void fake_program_launch(struct fake_wire *wire, unsigned number, unsigned kernel, uint64_t argument)
{
    FAKE_WIRE_SEND(wire, FLYT_KERNEL_LAUNCH, kernel_launch, .stream_id = legacy,
                   .kernel_id = flyt_kernel_id(fake_program_library(number), kernel), .grid = {1, 1, 1},
                   .block = {1, 1, 1}, .params = {.params_len = sizeof argument, .params_val = (char *)&argument});
    assert_int_equal(fake_program_synchronize(wire, legacy), CUDA_SUCCESS);
}

/* ---- events ---- */

void fake_program_record(struct fake_wire *wire, unsigned number)
{
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RECORD, event_record, .event_id = fake_program_event(number), .stream_id = legacy);
    assert_int_equal(fake_program_synchronize(wire, legacy), CUDA_SUCCESS);
}

float fake_program_elapsed(struct fake_wire *wire, unsigned start, unsigned end, int want)
{
    flyt_event_elapsed_res res = {0};
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_EVENT_ELAPSED, event_elapsed, &res,
                                    .start_id = fake_program_event(start), .end_id = fake_program_event(end)),
                     want);
    return res.elapsed_ms;
}

/* ---- going on ---- */

int fake_program_resume_begin(struct fake_wire *wire)
{
    flyt_session_resume_begin_res res;
    return FAKE_WIRE_CALL(wire, FLYT_SESSION_RESUME_BEGIN, session_resume_begin, &res, .thread = 1);
}

int fake_program_restore(struct fake_wire *wire, const struct fake_range *ranges, unsigned count)
{
    uint64_t addresses[FAKE_RANGES_MAX], sizes[FAKE_RANGES_MAX];
    flyt_memory_restore_res res;
    unsigned live = 0;
    assert_in_range(count, 0, FAKE_RANGES_MAX);
    for (unsigned i = 0; i < count; i++) {
        if (!ranges[i].bytes)
            continue;
        addresses[live] = ranges[i].address;
        sizes[live++] = ranges[i].bytes;
    }
    return FAKE_WIRE_CALL(wire, FLYT_MEMORY_RESTORE, memory_restore, &res,
                          .addresses = {.addresses_len = live, .addresses_val = (u_quad_t *)addresses},
                          .sizes = {.sizes_len = live, .sizes_val = (u_quad_t *)sizes});
}

void fake_program_restore_events(struct fake_wire *wire, unsigned count, unsigned recorded)
{
    for (unsigned i = 1; i <= count; i++) {
        FAKE_WIRE_SEND(wire, FLYT_EVENT_CREATE, event_create, .event_id = fake_program_event(i));
        if (i <= recorded)
            FAKE_WIRE_SEND(wire, FLYT_EVENT_RESTORE, event_restore, .event_id = fake_program_event(i));
    }
}

int fake_program_resume_end(struct fake_wire *wire, uint64_t sequence)
{
    flyt_session_resume_end_res res;
    return FAKE_WIRE_CALL(wire, FLYT_SESSION_RESUME_END, session_resume_end, &res, .sequence = sequence);
}

/* ---- a program in the midst of its work ---- */

void fake_work_load(struct fake_work *work, unsigned number)
{
    assert_in_range(number, 1, FAKE_LIBRARIES_MAX);
    fake_program_load(work->wire, number, number == 1 ? work->first_text : fake_step_text, number == 1 ? 3 : 1);
    work->is_loaded[number] = true;
}

void fake_work_unload(struct fake_work *work, unsigned number)
{
    fake_program_unload(work->wire, number);
    work->is_loaded[number] = false;
}

void fake_work_allocate(struct fake_work *work, unsigned i, uint64_t bytes)
{
    work->ranges[i].bytes = bytes;
    assert_int_equal(fake_program_alloc(work->wire, bytes, &work->ranges[i].address), CUDA_SUCCESS);
    fake_program_fill(work->wire, work->ranges[i].address, bytes, 0x21 + i);
}

void fake_work_check_ends(const struct fake_work *work)
{
    for (unsigned i = 0; i < FAKE_WORK_RANGES; i++)
        assert_int_equal(
            fake_program_word_at(work->wire, work->ranges[i].address + work->ranges[i].bytes - sizeof(uint32_t)),
            0x01010101 * (0x21 + i));
}

void fake_work_begin(struct fake_work *work, uint64_t bytes, bool is_reversed)
{
    fake_program_store(work->wire, work->first_text);
    fake_program_store(work->wire, fake_step_text);
    fake_work_load(work, is_reversed ? 2 : 1);
    fake_work_load(work, is_reversed ? 1 : 2);
    fake_work_allocate(work, 0, 1000);
    fake_work_allocate(work, 1, bytes);
    for (unsigned i = 1; i <= EVENTS; i++)
        FAKE_WIRE_SEND(work->wire, FLYT_EVENT_CREATE, event_create, .event_id = fake_program_event(i));
    fake_program_record(work->wire, 1);
    fake_program_launch(work->wire, 1, 0, 10);
    fake_program_record(work->wire, 2);
}

void fake_work_go_on(struct fake_work *work, unsigned recorded, uint64_t sequence)
{
    assert_int_equal(fake_program_resume_begin(work->wire), CUDA_SUCCESS);
    for (unsigned i = 1; i <= FAKE_LIBRARIES_MAX; i++)
        if (work->is_loaded[i])
            fake_work_load(work, i);
    assert_int_equal(fake_program_restore(work->wire, work->ranges, FAKE_WORK_RANGES), CUDA_SUCCESS);
    fake_program_restore_events(work->wire, EVENTS, recorded);
    assert_int_equal(fake_program_resume_end(work->wire, sequence), CUDA_SUCCESS);
    assert_int_equal(work->wire->failed_result, 0);
}
