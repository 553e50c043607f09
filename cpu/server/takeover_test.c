/*
 * A session goes on at another server: real server processes on the software GPU, of which the first is killed, a node
 * manager that the test plays (fake_manager.h), and a program that makes its objects again by hand (fake_wire.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/fake_manager.h"
#include "cpu/server/fake_wire.h"
#include "flyt_procedures.h"
#include "rpc/base/clock.h"
#include "rpc/base/id.h"
#include "rpc/base/sha256.h"
#include "rpc/transport/handshake.h"

enum { KIB = 1 << 10, MIB = 1 << 20, RANGES = 8, SERVERS = 4 };

static const char *const one_gpu[] = {"--soft", "1", "--soft-memory", "256M", NULL};
static const uint64_t legacy = (uint64_t)FLYT_ID_STREAM << 56 | 1;
static const uint64_t window = 0x200000000000;

struct range {
    uint64_t address, bytes;
};

struct fixture {
    struct fake_door door;
    struct fake_server servers[SERVERS], *first, *second; /* one after the other */
    struct fake_wire wire;
    struct flyt_ledger *ledger;
    struct range ranges[RANGES]; /* the session's allocations; bytes 0: freed */
};

/* ---- a program ---- */

static int alloc(struct fake_wire *wire, uint64_t bytes, uint64_t *ret_address)
{
    flyt_memory_alloc_res res = {0};
    int result = FAKE_WIRE_CALL(wire, FLYT_MEMORY_ALLOC, memory_alloc, &res, .bytes = bytes);
    *ret_address = res.address;
    return result;
}

static void give_back(struct fake_wire *wire, uint64_t address)
{
    FAKE_WIRE_SEND(wire, FLYT_MEMORY_FREE, memory_free, .address = address);
}

static flyt_box line(uint64_t address, uint64_t bytes)
{
    return (flyt_box){address, bytes, 1, 1, bytes, bytes};
}

static int synchronize(struct fake_wire *wire, uint64_t stream)
{
    flyt_stream_synchronize_res res;
    return FAKE_WIRE_CALL(wire, FLYT_STREAM_SYNCHRONIZE, stream_synchronize, &res, .stream_id = stream);
}

static void fill(struct fake_wire *wire, uint64_t stream, uint64_t address, uint64_t bytes, unsigned value)
{
    FAKE_WIRE_SEND(wire, FLYT_MEMORY_SET, memory_set, .stream_id = stream, .dst = line(address, bytes),
                   .element_bytes = 1, .value = value);
}

static unsigned byte_at(struct fake_wire *wire, uint64_t address)
{
    flyt_copy_out_res res = {0};
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_COPY_OUT, copy_out, &res, .stream_id = legacy, .src = line(address, 1)),
                     CUDA_SUCCESS);
    assert_int_equal(res.data.data_len, 1);
    unsigned value = (unsigned char)res.data.data_val[0];
    xdr_free((xdrproc_t)xdr_flyt_copy_out_res, &res);
    return value;
}

static int barrier(struct fake_wire *wire)
{
    flyt_session_barrier_res res;
    return FAKE_WIRE_CALL(wire, FLYT_SESSION_BARRIER, session_barrier, &res, .thread = 1);
}

static int resume_begin(struct fake_wire *wire)
{
    flyt_session_resume_begin_res res;
    return FAKE_WIRE_CALL(wire, FLYT_SESSION_RESUME_BEGIN, session_resume_begin, &res, .thread = 1);
}

static int resume_end(struct fake_wire *wire, uint64_t sequence)
{
    flyt_session_resume_end_res res;
    return FAKE_WIRE_CALL(wire, FLYT_SESSION_RESUME_END, session_resume_end, &res, .sequence = sequence);
}

static int restore(struct fake_wire *wire, const struct range *ranges, unsigned count)
{
    uint64_t addresses[RANGES], sizes[RANGES];
    flyt_memory_restore_res res;
    unsigned live = 0;
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

static int restore_one(struct fake_wire *wire, uint64_t address, uint64_t bytes)
{
    return restore(wire, &(struct range){address, bytes}, 1);
}

/* ---- before and after ---- */

static int set_up(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    fake_door_open(&self->door);
    self->wire.fd = -1;
    self->first = &self->servers[0];
    self->second = &self->servers[1];
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *self = *state;
    fake_door_close(&self->door);
    flyt_ledger_close(self->ledger);
    free(self);
    return 0;
}

static void begin(struct fixture *self, uint64_t limit_bytes)
{
    fake_server_start(self->first, one_gpu);
    assert_true(self->first->is_ready);
    assert_int_equal(flyt_ledger_new(limit_bytes, &self->ledger), 0);
    fake_door_grant(&self->door, self->first, self->ledger, limit_bytes);
    snprintf(self->door.session.rejoin_path, sizeof self->door.session.rejoin_path, "%s/link", getenv("FAKE_IMAGES"));
    assert_int_equal(fake_wire_open(&self->wire, self->door.url, FLYT_CONNECTION_SESSION, NULL), FLYT_HANDSHAKE_OK);
}

static uint64_t used(const struct fixture *self)
{
    struct flyt_ledger_state state;
    flyt_ledger_read(self->ledger, &state);
    return state.used_bytes;
}

static uint64_t held(struct fake_server *server)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&server->mutex);
    for (unsigned i = 0; i < server->extent_count; i++)
        bytes += server->extents[i].bytes;
    pthread_mutex_unlock(&server->mutex);
    return bytes;
}

static void await_held(struct fake_server *server, uint64_t bytes)
{
    for (unsigned i = 0; held(server) != bytes && i < 60000; i++)
        usleep(1000);
    assert_int_equal(held(server), bytes);
}

/* Allocations of both kinds, with gaps, each with bytes of its own at its ends. */
static void make_memory(struct fixture *self)
{
    static const uint64_t sizes[RANGES] = {1000, 512, 100 * KIB, MIB, 4 * MIB, 2 * MIB, MIB + 1, 6 * MIB};
    for (unsigned i = 0; i < RANGES; i++) {
        self->ranges[i].bytes = sizes[i];
        assert_int_equal(alloc(&self->wire, sizes[i], &self->ranges[i].address), CUDA_SUCCESS);
        fill(&self->wire, legacy, self->ranges[i].address, sizes[i], 0x10 + i);
        fill(&self->wire, legacy, self->ranges[i].address + sizes[i] - 1, 1, 0x80 + i);
    }
    give_back(&self->wire, self->ranges[1].address);
    give_back(&self->wire, self->ranges[5].address);
    self->ranges[1].bytes = self->ranges[5].bytes = 0;
    assert_int_equal(synchronize(&self->wire, legacy), CUDA_SUCCESS);
    /* What was told is there when the process is gone: the socket keeps it. */
}

static void check_memory(struct fixture *self)
{
    for (unsigned i = 0; i < RANGES; i++) {
        if (!self->ranges[i].bytes)
            continue;
        assert_int_equal(byte_at(&self->wire, self->ranges[i].address), 0x10 + i);
        assert_int_equal(byte_at(&self->wire, self->ranges[i].address + self->ranges[i].bytes / 2), 0x10 + i);
        assert_int_equal(byte_at(&self->wire, self->ranges[i].address + self->ranges[i].bytes - 1), 0x80 + i);
    }
}

/* What the node manager has heard last of the session: replaceable (NULL), or not, with these words. */
static bool has_heard(struct fake_server *server, const char *words)
{
    pthread_mutex_lock(&server->mutex);
    bool has = server->use_count && (words ? !server->use.is_replaceable && strstr(server->why_not_replaceable, words)
                                           : server->use.is_replaceable && !*server->why_not_replaceable);
    pthread_mutex_unlock(&server->mutex);
    return has;
}

static void await_heard(struct fake_server *server, const char *words)
{
    for (unsigned i = 0; !has_heard(server, words) && i < 60000; i++)
        usleep(1000);
    if (!has_heard(server, words))
        fail_msg("heard '%s', not '%s'", server->why_not_replaceable, words ? words : "");
}

/* The first server is killed; the second one has what it had, and waits for the program. */
static void replace(struct fixture *self)
{
    fake_server_kill(self->first);
    fake_wire_close(&self->wire);
    fake_server_start(self->second, one_gpu);
    assert_true(self->second->is_ready);
    fake_server_give(self->second, self->first);
    fake_door_grant_again(&self->door, self->second, self->first);
}

static flyt_handshake_status come_back(struct fixture *self)
{
    return fake_wire_open(&self->wire, self->door.url, FLYT_CONNECTION_RESUME, self->door.session.token);
}

static void finish(struct fixture *self, struct fake_server *server)
{
    uint64_t bytes, id = server->server_id;
    fake_wire_close(&self->wire);
    fake_server_wait_true(server, &server->is_returned);
    assert_string_equal(server->sentence, "");
    assert_int_equal(fake_server_end(server), 0);
    assert_int_equal(flyt_ledger_reclaim(self->ledger, id, &bytes), 0);
    assert_int_equal(used(self), 0);
}

static bool overlaps(const struct fixture *self, uint64_t address, uint64_t bytes)
{
    for (unsigned i = 0; i < RANGES; i++)
        if (self->ranges[i].bytes && self->ranges[i].address < address + bytes &&
            address < self->ranges[i].address + self->ranges[i].bytes)
            return true;
    return false;
}

/* ---- tests ---- */

static void memory_goes_on(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->wire;
    const uint64_t sequence = (5ull << 32) + 12345;
    uint64_t address;
    begin(self, 64 * MIB);
    assert_true(wire->features & FLYT_FEATURE_RESUME);
    make_memory(self);
    const uint64_t session_id = wire->session_id, all_bytes = used(self);
    replace(self);
    assert_int_equal(held(self->second), all_bytes);
    assert_int_equal(come_back(self), FLYT_HANDSHAKE_OK);
    assert_int_equal(wire->session_id, session_id);
    assert_memory_equal(wire->token, self->door.session.token, FLYT_TOKEN_BYTES);
    assert_true(wire->features & FLYT_FEATURE_RESUME);
    await_heard(self->second, "about to go on");
    assert_int_equal(resume_begin(wire), CUDA_SUCCESS);
    assert_int_equal(restore(wire, self->ranges, 3), CUDA_SUCCESS);
    assert_int_equal(restore(wire, self->ranges + 3, RANGES - 3), CUDA_SUCCESS);
    assert_int_equal(resume_end(wire, sequence), CUDA_SUCCESS);
    assert_true(wire->progress.received == sequence && wire->progress.executed == sequence &&
                wire->progress.completed == sequence);
    await_heard(self->second, NULL);
    assert_int_equal(used(self), all_bytes); /* not charged again */
    check_memory(self);
    /* Numbers go on behind it. */
    uint64_t before = wire->progress.received;
    assert_int_equal(barrier(wire), CUDA_SUCCESS);
    assert_true(before > sequence && before < sequence + 100);
    assert_int_equal(wire->progress.received, before + 1);
    assert_int_equal(wire->progress.completed, before + 1);

    /* What was free is used again, what is in use is not. */
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(alloc(wire, 512, &address), CUDA_SUCCESS);
        assert_false(overlaps(self, address, 512));
        fill(wire, legacy, address, 512, 0xee);
        assert_int_equal(alloc(wire, 2 * MIB, &address), CUDA_SUCCESS);
        assert_false(overlaps(self, address, 2 * MIB));
        fill(wire, legacy, address, 2 * MIB, 0xee);
    }
    check_memory(self);
    give_back(wire, self->ranges[0].address);
    give_back(wire, self->ranges[4].address);
    self->ranges[0].bytes = 0;
    self->ranges[4].bytes = 0;
    assert_int_equal(alloc(wire, 4 * MIB, &address), CUDA_SUCCESS);
    assert_false(overlaps(self, address, 4 * MIB));
    check_memory(self);
    finish(self, self->second);
}

/* Nobody names it: it is the VM's again when that needs it. */
static void memory_without_an_allocation_is_given_back(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->wire;
    struct flyt_server_link_limit limit = {.memory_bytes = 8 * MIB, .revision = 5};
    struct flyt_ledger_state ledger;
    uint64_t kept, other, small, address;
    begin(self, 32 * MIB);
    assert_int_equal(alloc(wire, 4 * MIB, &kept), CUDA_SUCCESS);
    assert_int_equal(alloc(wire, 16 * MIB, &other), CUDA_SUCCESS);
    assert_int_equal(alloc(wire, 300, &small), CUDA_SUCCESS);
    assert_int_equal(used(self), 22 * MIB);
    fill(wire, legacy, kept, 4 * MIB, 7);
    assert_int_equal(synchronize(wire, legacy), CUDA_SUCCESS);
    replace(self);
    assert_int_equal(come_back(self), FLYT_HANDSHAKE_OK);
    assert_int_equal(resume_begin(wire), CUDA_SUCCESS);
    assert_int_equal(restore_one(wire, kept, 4 * MIB), CUDA_SUCCESS);
    assert_int_equal(resume_end(wire, 7), CUDA_SUCCESS);
    flyt_ledger_read(self->ledger, &ledger);
    assert_int_equal(ledger.used_bytes, 22 * MIB);
    assert_int_equal(ledger.cached_bytes, 18 * MIB);
    /* 28 MiB fit only if both extents go. */
    assert_int_equal(alloc(wire, 28 * MIB, &address), CUDA_SUCCESS);
    assert_int_equal(used(self), 32 * MIB);
    await_held(self->second, 32 * MIB);
    give_back(wire, address);
    assert_int_equal(barrier(wire), CUDA_SUCCESS);
    fake_server_send(self->second, FLYT_SERVER_LINK_LIMIT, &limit, sizeof limit, NULL);
    fake_server_wait(self->second, &self->second->limit_done_count, 1);
    assert_int_equal(self->second->limit_done.used_bytes, 4 * MIB);
    assert_int_equal(byte_at(wire, kept), 7);
    assert_int_equal(byte_at(wire, kept + 4 * MIB - 1), 7);
    finish(self, self->second);
}

static float elapsed(struct fake_wire *wire, uint64_t start, uint64_t end, int want)
{
    flyt_event_elapsed_res res = {0};
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_EVENT_ELAPSED, event_elapsed, &res, .start_id = start, .end_id = end),
                     want);
    return res.elapsed_ms;
}

static void streams_and_events_go_on(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->wire;
    const uint64_t stream = flyt_id(FLYT_ID_STREAM, FLYT_STREAM_NUMBER_FIRST + 3);
    uint64_t events[5], address;
    flyt_event_query_res query;
    begin(self, 16 * MIB);
    assert_int_equal(alloc(wire, 2 * MIB, &address), CUDA_SUCCESS);
    replace(self);
    assert_int_equal(come_back(self), FLYT_HANDSHAKE_OK);
    const uint64_t begin_ns = flyt_clock_ns();
    assert_int_equal(resume_begin(wire), CUDA_SUCCESS);
    assert_int_equal(synchronize(wire, legacy), CUDA_SUCCESS); /* the device's base has been reached */
    FAKE_WIRE_SEND(wire, FLYT_STREAM_CREATE, stream_create, .stream_id = stream, .flags = CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < 5; i++) {
        events[i] = flyt_id(FLYT_ID_EVENT, 10 + i);
        FAKE_WIRE_SEND(wire, FLYT_EVENT_CREATE, event_create, .event_id = events[i]);
    }
    const uint64_t now_ns = flyt_clock_ns();
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RESTORE, event_restore, .event_id = events[0], .has_time = 1,
                   .time_ns = now_ns - 5000000000);
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RESTORE, event_restore, .event_id = events[1], .has_time = 1,
                   .time_ns = now_ns - 4998750000);
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RESTORE, event_restore, .event_id = events[2]);
    assert_int_equal(restore_one(wire, address, 2 * MIB), CUDA_SUCCESS);
    assert_int_equal(resume_end(wire, 100), CUDA_SUCCESS);

    for (unsigned i = 0; i < 4; i++) /* one was never recorded */
        assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_EVENT_QUERY, event_query, &query, .event_id = events[i]),
                         CUDA_SUCCESS);
    assert_float_equal(elapsed(wire, events[0], events[1], CUDA_SUCCESS), 1.25, 0.001);
    assert_float_equal(elapsed(wire, events[1], events[0], CUDA_SUCCESS), -1.25, 0.001);
    elapsed(wire, events[0], events[2], CUDA_ERROR_INVALID_HANDLE);
    elapsed(wire, events[0], events[3], CUDA_ERROR_INVALID_HANDLE);
    FAKE_WIRE_SEND(wire, FLYT_STREAM_WAIT_EVENT, stream_wait_event, .stream_id = stream, .event_id = events[2]);
    fill(wire, stream, address, 2 * MIB, 0x33);
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RECORD, event_record, .event_id = events[3], .stream_id = stream);
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RECORD, event_record, .event_id = events[4], .stream_id = stream);
    assert_int_equal(synchronize(wire, stream), CUDA_SUCCESS);
    const float since_ms = (float)(flyt_clock_ns() - now_ns) / 1e6f, base_ms = (float)(now_ns - begin_ns) / 1e6f;
    assert_int_equal(byte_at(wire, address + MIB), 0x33);
    /* A time of before and one of now, by the same clock; the base is as exact as the call that made it was short. */
    float across_ms = elapsed(wire, events[0], events[3], CUDA_SUCCESS);
    assert_true(across_ms >= 5000 - base_ms - 0.01f && across_ms <= 5000 + since_ms + base_ms + 0.01f);
    assert_float_equal(elapsed(wire, events[3], events[0], CUDA_SUCCESS), -across_ms, 0.01);
    elapsed(wire, events[2], events[3], CUDA_ERROR_INVALID_HANDLE);
    float here_ms = elapsed(wire, events[3], events[4], CUDA_SUCCESS);
    assert_float_equal(elapsed(wire, events[0], events[4], CUDA_SUCCESS), across_ms + here_ms, 0.01);
    /* Recorded again it is an event like any. */
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RECORD, event_record, .event_id = events[2], .stream_id = stream);
    assert_int_equal(synchronize(wire, stream), CUDA_SUCCESS);
    assert_true(elapsed(wire, events[3], events[2], CUDA_SUCCESS) >= here_ms);
    assert_int_equal(wire->failed_result, 0);
    finish(self, self->second);
}

static void calls_in_the_wrong_order_are_refused(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->wire;
    const uint64_t event = flyt_id(FLYT_ID_EVENT, 1);
    uint64_t small, large, address;
    begin(self, 32 * MIB);
    /* None of it in an ordinary session. */
    assert_int_equal(resume_begin(wire), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(resume_end(wire, 1), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(alloc(wire, 4096, &small), CUDA_SUCCESS);
    assert_int_equal(alloc(wire, 4 * MIB, &large), CUDA_SUCCESS);
    assert_int_equal(restore_one(wire, small, 4096), CUDA_ERROR_NOT_PERMITTED);
    FAKE_WIRE_SEND(wire, FLYT_EVENT_CREATE, event_create, .event_id = event);
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RESTORE, event_restore, .event_id = event);
    assert_int_equal(barrier(wire), CUDA_SUCCESS);
    assert_int_equal(wire->failed_result, CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(wire->failed_sequence, wire->progress.received - 1);

    replace(self);
    assert_int_equal(come_back(self), FLYT_HANDSHAKE_OK);
    assert_int_equal(alloc(wire, 4096, &address), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(restore_one(wire, small, 4096), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(resume_end(wire, 1), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(resume_begin(wire), CUDA_SUCCESS);
    assert_int_equal(resume_begin(wire), CUDA_ERROR_NOT_PERMITTED);

    assert_int_equal(restore_one(wire, large, 4 * MIB), CUDA_SUCCESS);
    assert_int_equal(restore_one(wire, large, 4 * MIB), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(restore_one(wire, large + 2 * MIB, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(restore_one(wire, large + MIB, 512), CUDA_ERROR_INVALID_VALUE); /* small among large */
    assert_int_equal(restore_one(wire, small, 4 * MIB), CUDA_ERROR_INVALID_VALUE);   /* longer than its extent */
    assert_int_equal(restore_one(wire, small + 4, 100), CUDA_ERROR_INVALID_VALUE);   /* none begins there */
    assert_int_equal(restore_one(wire, small, 4096), CUDA_SUCCESS);
    assert_int_equal(restore_one(wire, small + 4096 - 512, 512), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(restore_one(wire, small, 2 * MIB), CUDA_ERROR_INVALID_VALUE); /* large among small */
    assert_int_equal(restore_one(wire, window + 512 * MIB, 512), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(restore_one(wire, 4096, 512), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(restore_one(wire, small + 4096, UINT64_MAX), CUDA_ERROR_INVALID_VALUE);
    const uint64_t sizes[2] = {512, 512};
    flyt_memory_restore_res res;
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_MEMORY_RESTORE, memory_restore, &res,
                                    .addresses = {.addresses_len = 1, .addresses_val = (u_quad_t *)&small},
                                    .sizes = {.sizes_len = 2, .sizes_val = (u_quad_t *)sizes}),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(resume_end(wire, UINT64_MAX), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(resume_end(wire, 40), CUDA_SUCCESS);
    assert_int_equal(resume_end(wire, 41), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(wire->progress.received, 41);
    assert_int_equal(resume_begin(wire), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(restore_one(wire, small + 4096, 512), CUDA_ERROR_NOT_PERMITTED);
    finish(self, self->second);
}

static void send_to_second(struct fixture *self)
{
    self->door.server = self->second;
    self->second->ledgers[0] = self->ledger;
}

/* The program hears the words, and so does the node manager. */
static void expect_refusal(struct fixture *self, struct fake_server *server, flyt_connection_kind kind,
                           const void *token, flyt_handshake_status status, const char *words)
{
    assert_int_equal(fake_wire_open(&self->wire, self->door.url, kind, token), status);
    if (!strstr(self->wire.refusal, words))
        fail_msg("'%s' does not say '%s'", self->wire.refusal, words);
    fake_server_wait_true(server, &server->is_returned);
    assert_non_null(strstr(server->sentence, words));
    fake_wire_close(&self->wire);
    assert_int_equal(fake_server_end(server), 0);
}

static void a_client_of_another_session_is_refused(void **state)
{
    struct fixture *self = *state;
    unsigned char token[FLYT_TOKEN_BYTES] = {1};
    begin(self, 16 * MIB);
    replace(self);
    expect_refusal(self, self->second, FLYT_CONNECTION_SESSION, NULL, FLYT_HANDSHAKE_NO_SESSION, "cannot begin anew");

    fake_server_start(self->second, one_gpu);
    fake_server_give(self->second, self->first);
    send_to_second(self);
    expect_refusal(self, self->second, FLYT_CONNECTION_RESUME, token, FLYT_HANDSHAKE_NO_SESSION, "is another one");

    fake_server_start(self->second, one_gpu);
    send_to_second(self);
    expect_refusal(self, self->second, FLYT_CONNECTION_RESUME, self->door.session.token, FLYT_HANDSHAKE_NO_SESSION,
                   "no session that goes on here");
}

/* Without a way back to a restarted node manager there is none that could give the memory on. */
static void who_cannot_go_on_is_not_told_so(void **state)
{
    struct fixture *self = *state;
    fake_server_start(self->first, one_gpu);
    assert_int_equal(flyt_ledger_new(16 * MIB, &self->ledger), 0);
    fake_door_grant(&self->door, self->first, self->ledger, 16 * MIB);
    assert_int_equal(fake_wire_open(&self->wire, self->door.url, FLYT_CONNECTION_SESSION, NULL), FLYT_HANDSHAKE_OK);
    assert_int_equal(self->wire.features & FLYT_FEATURE_RESUME, 0);
    await_heard(self->first, "no other server");
    finish(self, self->first);
}

static void load(struct fake_wire *wire, const char *text, uint64_t library)
{
    static uint64_t transfer_id = 100;
    flyt_image_store_args store = {.transfer_id = ++transfer_id, .bytes = strlen(text)};
    flyt_library_load_args args = {.library_id = library};
    flyt_chunk chunk = {.transfer_id = transfer_id,
                        .data = {.data_len = (u_int)strlen(text), .data_val = (char *)text}};
    flyt_image_store_res stored;
    flyt_library_load_res loaded = {0};
    flyt_sha256_of(text, strlen(text), (unsigned char *)store.image_hash);
    memcpy(args.image_hash, store.image_hash, sizeof args.image_hash);
    fake_wire_send(wire, FLYT_CHUNK, (xdrproc_t)xdr_flyt_chunk, &chunk);
    assert_int_equal(fake_wire_call(wire, FLYT_IMAGE_STORE, (xdrproc_t)xdr_flyt_image_store_args, &store,
                                    (xdrproc_t)xdr_flyt_image_store_res, &stored),
                     CUDA_SUCCESS);
    assert_int_equal(fake_wire_call(wire, FLYT_LIBRARY_LOAD, (xdrproc_t)xdr_flyt_library_load_args, &args,
                                    (xdrproc_t)xdr_flyt_library_load_res, &loaded),
                     CUDA_SUCCESS);
    xdr_free((xdrproc_t)xdr_flyt_library_load_res, &loaded);
}

static void global(struct fake_wire *wire, uint64_t library, char *name, int want)
{
    flyt_library_global_res res;
    assert_int_equal(
        FAKE_WIRE_CALL(wire, FLYT_LIBRARY_GLOBAL, library_global, &res, .library_id = library, .name = name), want);
}

#define PTX ".version 8.0\n.target sm_75\n.address_size 64\n"

static void what_cannot_go_on_is_told_before_it_matters(void **state)
{
    static const char plain[] = PTX ".const .align 4 .b8 table[16] = {1};\n.visible .entry a()\n{\nret;\n}\n";
    static const char variable[] = PTX ".visible .global .align 4 .u32 x = 1;\n.visible .entry b()\n{\nret;\n}\n";
    struct fixture *self = *state;
    struct fake_wire *wire = &self->wire;
    const uint64_t first = flyt_id(FLYT_ID_LIBRARY, 1), second = flyt_id(FLYT_ID_LIBRARY, 2);
    flyt_device_limit_set_res limited;
    begin(self, 64 * MIB);
    await_heard(self->first, NULL);
    load(wire, plain, first);
    assert_int_equal(barrier(wire), CUDA_SUCCESS);
    load(wire, variable, second);
    await_heard(self->first, "variables");
    FAKE_WIRE_SEND(wire, FLYT_LIBRARY_UNLOAD, library_unload, .library_id = second);
    await_heard(self->first, NULL);
    global(wire, first, "other", CUDA_ERROR_NOT_FOUND);
    assert_int_equal(barrier(wire), CUDA_SUCCESS);
    assert_true(has_heard(self->first, NULL));
    global(wire, first, "table", CUDA_SUCCESS);
    await_heard(self->first, "address");
    finish(self, self->first);
    self->ledger = flyt_ledger_close(self->ledger);

    begin(self, 64 * MIB);
    await_heard(self->first, NULL);
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_DEVICE_LIMIT_SET, device_limit_set, &limited,
                                    .limit = CU_LIMIT_MALLOC_HEAP_SIZE, .value = 16 * MIB),
                     CUDA_SUCCESS);
    await_heard(self->first, "heap");
    finish(self, self->first);
    self->ledger = flyt_ledger_close(self->ledger);

    /* It is told before the call is answered that makes it so: nothing is done with it before. */
    begin(self, 64 * MIB);
    await_heard(self->first, NULL);
    load(wire, variable, second);
    fake_server_kill(self->first);
    fake_wire_close(wire);
    assert_true(has_heard(self->first, "variables"));
}

struct bad_gift {
    const char *words;
    uint64_t announced; /* of one or two extents that follow */
    uint64_t last_extent_id;
    struct flyt_server_link_extent extents[2];
};

static void memory_that_cannot_be_is_refused(void **state)
{
    static const uint64_t base = 0x200000000000;
    const struct bad_gift gifts[] = {
        {"not announced", 1, 9, {{1, 2 * MIB, base, 0, 0}, {2, 2 * MIB, base + 8 * MIB, 0, 0}}},
        {"only 2 of the session's 3", 3, 9, {{1, 2 * MIB, base, 0, 0}, {2, 2 * MIB, base + 8 * MIB, 0, 0}}},
        {"where other memory is", 2, 9, {{1, 2 * MIB, base, 0, 0}, {2, 2 * MIB, base, 0, 0}}},
        {"twice under one id", 2, 9, {{1, 2 * MIB, base, 0, 0}, {1, 2 * MIB, base + 8 * MIB, 0, 0}}},
        {"under an id that cannot be", 2, 9, {{1, 2 * MIB, base, 0, 0}, {10, 2 * MIB, base + 8 * MIB, 0, 0}}},
        {"under an id that cannot be", 2, 9, {{1, 2 * MIB, base, 0, 0}, {0, 2 * MIB, base + 8 * MIB, 0, 0}}},
        {"that is no extent", 2, 9, {{1, 2 * MIB, base, 0, 0}, {2, 2 * MIB - 4096, base + 8 * MIB, 0, 0}}},
        {"that is no extent", 2, 9, {{1, 2 * MIB, base, 0, 0}, {2, 2 * MIB, base + 8 * MIB + 4096, 0, 0}}},
        {"that is no extent", 2, 9, {{1, 2 * MIB, base, 0, 0}, {2, 0, base + 8 * MIB, 0, 0}}},
        {"that is no extent", 2, 9, {{1, 2 * MIB, base, 0, 0}, {2, 2 * MIB, 0x7f0000000000, 0, 0}}},
        {"that is no extent", 2, 9, {{1, 2 * MIB, base, 0, 0}, {2, 4 * MIB, base + (1ull << 40) - 2 * MIB, 0, 0}}},
        {"outside of its device's window", 2, 9, {{1, 2 * MIB, base, 0, 0}, {2, 2 * MIB, base + (1ull << 40), 0, 0}}},
        {"a slot that the allocation has not", 2, 9, {{1, 2 * MIB, base, 0, 0}, {2, 2 * MIB, base + 8 * MIB, 1, 0}}},
        {"cannot be put where it was", 2, 9, {{1, 2 * MIB, base, 0, 0}, {2, 4 * MIB, base + 8 * MIB, 0, 0}}},
    };
    struct fixture *self = *state;
    uint64_t address;
    begin(self, 64 * MIB);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(alloc(&self->wire, 2 * MIB, &address), CUDA_SUCCESS);
    fake_server_wait(self->first, &self->first->extents_told, 2);
    fake_server_kill(self->first);
    fake_wire_close(&self->wire);
    assert_int_equal(self->first->extent_count, 2);
    for (unsigned i = 0; i < sizeof gifts / sizeof gifts[0]; i++) {
        const struct flyt_server_link_resume resume = {.extent_count = gifts[i].announced,
                                                       .last_extent_id = gifts[i].last_extent_id};
        fake_server_start(self->second, one_gpu);
        fake_server_send(self->second, FLYT_SERVER_LINK_RESUME, &resume, sizeof resume, NULL);
        for (unsigned k = 0; k < 2; k++)
            fake_server_give_one(self->second, &gifts[i].extents[k], self->first->extents[k].fd);
        send_to_second(self);
        expect_refusal(self, self->second, FLYT_CONNECTION_RESUME, self->door.session.token, FLYT_HANDSHAKE_NO_DEVICE,
                       gifts[i].words);
    }
    /* A descriptor of something else; and nothing announced at all. */
    int other_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    const struct flyt_server_link_resume resume = {.extent_count = 1, .last_extent_id = 9};
    fake_server_start(self->second, one_gpu);
    fake_server_send(self->second, FLYT_SERVER_LINK_RESUME, &resume, sizeof resume, NULL);
    fake_server_give_one(self->second, &gifts[0].extents[0], other_fd);
    send_to_second(self);
    expect_refusal(self, self->second, FLYT_CONNECTION_RESUME, self->door.session.token, FLYT_HANDSHAKE_NO_DEVICE,
                   "cannot be taken over");
    fake_server_start(self->second, one_gpu);
    fake_server_give_one(self->second, &gifts[0].extents[0], self->first->extents[0].fd);
    send_to_second(self);
    expect_refusal(self, self->second, FLYT_CONNECTION_SESSION, NULL, FLYT_HANDSHAKE_NO_DEVICE, "not announced");
    close(other_fd);
    for (unsigned i = 0; i < 2; i++)
        close(self->first->extents[i].fd);
}

static void a_client_that_goes_in_the_middle_ends_the_session(void **state)
{
    struct fixture *self = *state;
    begin(self, 64 * MIB);
    make_memory(self);
    replace(self);
    assert_int_equal(come_back(self), FLYT_HANDSHAKE_OK);
    assert_int_equal(resume_begin(&self->wire), CUDA_SUCCESS);
    assert_int_equal(restore(&self->wire, self->ranges, RANGES), CUDA_SUCCESS);
    finish(self, self->second);
}

/* Three servers one after the other, work at each. */
static void a_session_goes_on_again(void **state)
{
    struct fixture *self = *state;
    uint64_t sequence = 1000;
    begin(self, 64 * MIB);
    make_memory(self);
    for (unsigned round = 0; round < SERVERS - 1; round++) {
        replace(self);
        assert_int_equal(come_back(self), FLYT_HANDSHAKE_OK);
        assert_int_equal(resume_begin(&self->wire), CUDA_SUCCESS);
        assert_int_equal(restore(&self->wire, self->ranges, RANGES), CUDA_SUCCESS);
        assert_int_equal(resume_end(&self->wire, sequence), CUDA_SUCCESS);
        check_memory(self);
        uint64_t address;
        assert_int_equal(alloc(&self->wire, 700, &address), CUDA_SUCCESS); /* lost: nobody names it */
        assert_int_equal(barrier(&self->wire), CUDA_SUCCESS);
        sequence = self->wire.progress.completed;
        self->first = self->second;
        self->second = &self->servers[(round + 2) % SERVERS]; /* not used after the last round */
    }
    finish(self, self->first);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    return remove(path);
}

int main(void)
{
    char folder[] = "/var/tmp/flyt-takeover-test-XXXXXX";
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(memory_goes_on),
        TEST(memory_without_an_allocation_is_given_back),
        TEST(streams_and_events_go_on),
        TEST(calls_in_the_wrong_order_are_refused),
        TEST(a_client_of_another_session_is_refused),
        TEST(who_cannot_go_on_is_not_told_so),
        TEST(what_cannot_go_on_is_told_before_it_matters),
        TEST(memory_that_cannot_be_is_refused),
        TEST(a_client_that_goes_in_the_middle_ends_the_session),
        TEST(a_session_goes_on_again),
    };
    if (!mkdtemp(folder))
        return 1;
    setenv("FAKE_IMAGES", folder, 1);
    setenv("FLYT_LOG", "warn", 0);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS); /* with the images in it */
    return failed;
}
