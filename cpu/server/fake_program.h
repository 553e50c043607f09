/*
 * For tests: what a program does that speaks the wire by itself (fake_wire.h): memory, libraries, kernels, events.
 * Functions fail the running test where something is not as it should be. To be included by one source file, which has
 * cmocka's headers.
 */
#ifndef FLYT_SERVER_FAKE_PROGRAM_H
#define FLYT_SERVER_FAKE_PROGRAM_H

#include <cuda.h>
#include <stdint.h>
#include <string.h>

#include "cpu/server/fake_wire.h"
#include "flyt_procedures.h"
#include "rpc/base/id.h"
#include "rpc/base/sha256.h"

/* What PTX begins with. */
#define PTX ".version 8.0\n.target sm_75\n.address_size 64\n"

static const uint64_t legacy = (uint64_t)FLYT_ID_STREAM << 56 | 1;

static inline uint64_t library(unsigned number)
{
    return flyt_id(FLYT_ID_LIBRARY, number);
}

static inline uint64_t event(unsigned number)
{
    return flyt_id(FLYT_ID_EVENT, number);
}

static inline flyt_box line(uint64_t address, uint64_t bytes)
{
    return (flyt_box){address, bytes, 1, 1, bytes, bytes};
}

static inline int alloc(struct fake_wire *wire, uint64_t bytes, uint64_t *ret_address)
{
    flyt_memory_alloc_res res = {0};
    int result = FAKE_WIRE_CALL(wire, FLYT_MEMORY_ALLOC, memory_alloc, &res, .bytes = bytes);
    *ret_address = res.address;
    return result;
}

static inline void fill(struct fake_wire *wire, uint64_t address, uint64_t bytes, unsigned value)
{
    FAKE_WIRE_SEND(wire, FLYT_MEMORY_SET, memory_set, .stream_id = legacy, .dst = line(address, bytes),
                   .element_bytes = 1, .value = value);
}

static inline uint32_t word_at(struct fake_wire *wire, uint64_t address)
{
    flyt_copy_out_res res = {0};
    uint32_t value;
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_COPY_OUT, copy_out, &res, .stream_id = legacy, .src = line(address, 4)),
                     CUDA_SUCCESS);
    assert_int_equal(res.data.data_len, sizeof value);
    memcpy(&value, res.data.data_val, sizeof value);
    xdr_free((xdrproc_t)xdr_flyt_copy_out_res, &res);
    return value;
}

static inline void store(struct fake_wire *wire, const char *text)
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

static inline flyt_library_load_args arguments(unsigned number, const char *text)
{
    static flyt_load_option option = {.id = CU_JIT_OPTIMIZATION_LEVEL, .value = 2};
    flyt_library_load_args args = {.library_id = library(number)};
    args.options.options_len = number % 2 == 0; /* every second one has an option */
    args.options.options_val = &option;
    flyt_sha256_of(text, strlen(text), (unsigned char *)args.image_hash);
    return args;
}

static inline void load(struct fake_wire *wire, unsigned number, const char *text, unsigned kernel_count)
{
    flyt_library_load_args args = arguments(number, text);
    flyt_library_load_res res = {0};
    assert_int_equal(fake_wire_call(wire, FLYT_LIBRARY_LOAD, (xdrproc_t)xdr_flyt_library_load_args, &args,
                                    (xdrproc_t)xdr_flyt_library_load_res, &res),
                     CUDA_SUCCESS);
    assert_int_equal(res.kernel_count, kernel_count);
    xdr_free((xdrproc_t)xdr_flyt_library_load_res, &res);
}

/* Where a variable is: the program has asked then. */
static inline uint64_t place_of(struct fake_wire *wire, unsigned number, const char *name)
{
    flyt_library_global_res res;
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_LIBRARY_GLOBAL, library_global, &res, .library_id = library(number),
                                    .name = (char *)name),
                     CUDA_SUCCESS);
    return res.address;
}

/* Launches one thread of a kernel of the library, by its place among them, with one number of 8 bytes; waits for it. */
static inline void launch(struct fake_wire *wire, unsigned number, unsigned kernel, uint64_t argument)
{
    flyt_stream_synchronize_res res;
    FAKE_WIRE_SEND(wire, FLYT_KERNEL_LAUNCH, kernel_launch, .stream_id = legacy,
                   .kernel_id = flyt_kernel_id(library(number), kernel), .grid = {1, 1, 1}, .block = {1, 1, 1},
                   .params = {.params_len = sizeof argument, .params_val = (char *)&argument});
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_STREAM_SYNCHRONIZE, stream_synchronize, &res, .stream_id = legacy),
                     CUDA_SUCCESS);
}

static inline float elapsed(struct fake_wire *wire, unsigned start, unsigned end, int want)
{
    flyt_event_elapsed_res res = {0};
    assert_int_equal(
        FAKE_WIRE_CALL(wire, FLYT_EVENT_ELAPSED, event_elapsed, &res, .start_id = event(start), .end_id = event(end)),
        want);
    return res.elapsed_ms;
}

#endif
