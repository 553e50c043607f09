/*
 * A session goes on at another server: real server processes on the software GPU, of which the first is killed, a node
 * manager that the test plays (fake_node.h), and a program that makes its objects again by hand (fake_program.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/cuda/constant.h"
#include "cpu/server/test/fake_node.h"
#include "rpc/base/clock.h"
#include "rpc/base/id.h"
#include "rpc/transport/handshake.h"

enum { KIB = 1 << 10, MIB = 1 << 20, RANGES = FAKE_RANGES_MAX, EVENT = 10 /* the first one's number */ };

static const uint64_t window = 0x200000000000;

struct fixture {
    struct fake_node node;
    struct fake_range ranges[RANGES]; /* the session's allocations */
};

/* ---- a program ---- */

static void give_back(struct fake_wire *wire, uint64_t address)
{
    FAKE_WIRE_SEND(wire, FLYT_MEMORY_FREE, memory_free, .address = address);
}

static int restore_one(struct fake_wire *wire, uint64_t address, uint64_t bytes)
{
    return fake_program_restore(wire, &(struct fake_range){address, bytes}, 1);
}

/* ---- before and after ---- */

static int set_up(void **state)
{
    fake_node_fixture_new(state, sizeof(struct fixture));
    return 0;
}

static void begin(struct fixture *self, uint64_t limit_bytes)
{
    fake_node_begin(&self->node, fake_one_gpu, limit_bytes);
    fake_node_let_rejoin(&self->node);
    fake_node_connect(&self->node);
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
        assert_int_equal(fake_program_alloc(&self->node.wire, sizes[i], &self->ranges[i].address), CUDA_SUCCESS);
        fake_program_fill(&self->node.wire, self->ranges[i].address, sizes[i], 0x10 + i);
        fake_program_fill(&self->node.wire, self->ranges[i].address + sizes[i] - 1, 1, 0x80 + i);
    }
    give_back(&self->node.wire, self->ranges[1].address);
    give_back(&self->node.wire, self->ranges[5].address);
    self->ranges[1].bytes = self->ranges[5].bytes = 0;
    assert_int_equal(fake_program_synchronize(&self->node.wire, legacy), CUDA_SUCCESS);
    /* What was told is there when the process is gone: the socket keeps it. */
}

static void check_memory(struct fixture *self)
{
    for (unsigned i = 0; i < RANGES; i++) {
        if (!self->ranges[i].bytes)
            continue;
        assert_int_equal(fake_program_byte_at(&self->node.wire, self->ranges[i].address), 0x10 + i);
        assert_int_equal(fake_program_byte_at(&self->node.wire, self->ranges[i].address + self->ranges[i].bytes / 2),
                         0x10 + i);
        assert_int_equal(fake_program_byte_at(&self->node.wire, self->ranges[i].address + self->ranges[i].bytes - 1),
                         0x80 + i);
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
    fake_server_kill(self->node.first);
    fake_wire_close(&self->node.wire);
    fake_server_start(self->node.second, fake_one_gpu);
    assert_true(self->node.second->is_ready);
    fake_server_give(self->node.second, self->node.first);
    fake_listener_grant_again(&self->node.listener, self->node.second, self->node.first);
}

/* The same, but that the second one has the memory already when the first one is killed. */
static void replace_ahead(struct fixture *self)
{
    fake_server_start(self->node.second, fake_one_gpu);
    assert_true(self->node.second->is_ready);
    fake_server_give_ahead(self->node.second, self->node.first);
    check_memory(self); /* with which the first one still works */
    fake_server_kill(self->node.first);
    fake_wire_close(&self->node.wire);
    fake_server_give(self->node.second, self->node.first);
    fake_listener_grant_again(&self->node.listener, self->node.second, self->node.first);
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
    struct fake_wire *wire = &self->node.wire;
    const uint64_t sequence = (5ull << 32) + 12345;
    uint64_t address;
    begin(self, 64 * MIB);
    assert_true(wire->features & FLYT_FEATURE_RESUME);
    make_memory(self);
    const uint64_t session_id = wire->session_id, all_bytes = fake_node_used(&self->node);
    replace(self);
    assert_int_equal(held(self->node.second), all_bytes);
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    assert_int_equal(wire->session_id, session_id);
    assert_memory_equal(wire->token, self->node.listener.session.token, FLYT_TOKEN_BYTES);
    assert_true(wire->features & FLYT_FEATURE_RESUME);
    await_heard(self->node.second, "about to go on");
    assert_int_equal(fake_program_resume_begin(wire), CUDA_SUCCESS);
    assert_int_equal(fake_program_restore(wire, self->ranges, 3), CUDA_SUCCESS);
    assert_int_equal(fake_program_restore(wire, self->ranges + 3, RANGES - 3), CUDA_SUCCESS);
    assert_int_equal(fake_program_resume_end(wire, sequence), CUDA_SUCCESS);
    assert_true(wire->progress.received == sequence && wire->progress.executed == sequence &&
                wire->progress.completed == sequence);
    await_heard(self->node.second, NULL);
    assert_int_equal(fake_node_used(&self->node), all_bytes); /* not charged again */
    check_memory(self);
    /* Numbers go on behind it. */
    uint64_t before = wire->progress.received;
    assert_int_equal(fake_program_barrier(wire), CUDA_SUCCESS);
    assert_true(before > sequence && before < sequence + 100);
    assert_int_equal(wire->progress.received, before + 1);
    assert_int_equal(wire->progress.completed, before + 1);

    /* What was free is used again, what is in use is not. */
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(fake_program_alloc(wire, 512, &address), CUDA_SUCCESS);
        assert_false(overlaps(self, address, 512));
        fake_program_fill(wire, address, 512, 0xee);
        assert_int_equal(fake_program_alloc(wire, 2 * MIB, &address), CUDA_SUCCESS);
        assert_false(overlaps(self, address, 2 * MIB));
        fake_program_fill(wire, address, 2 * MIB, 0xee);
    }
    check_memory(self);
    give_back(wire, self->ranges[0].address);
    give_back(wire, self->ranges[4].address);
    self->ranges[0].bytes = 0;
    self->ranges[4].bytes = 0;
    assert_int_equal(fake_program_alloc(wire, 4 * MIB, &address), CUDA_SUCCESS);
    assert_false(overlaps(self, address, 4 * MIB));
    check_memory(self);
    fake_node_finish(&self->node, self->node.second);
}

/* Nobody names it: it is the VM's again when that needs it. */
static void memory_without_an_allocation_is_given_back(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    struct flyt_manager_link_limit limit = {.memory_bytes = 8 * MIB, .revision = 5};
    struct flyt_ledger_state ledger;
    uint64_t kept, other, small, address;
    begin(self, 32 * MIB);
    assert_int_equal(fake_program_alloc(wire, 4 * MIB, &kept), CUDA_SUCCESS);
    assert_int_equal(fake_program_alloc(wire, 16 * MIB, &other), CUDA_SUCCESS);
    assert_int_equal(fake_program_alloc(wire, 300, &small), CUDA_SUCCESS);
    assert_int_equal(fake_node_used(&self->node), 22 * MIB);
    fake_program_fill(wire, kept, 4 * MIB, 7);
    assert_int_equal(fake_program_synchronize(wire, legacy), CUDA_SUCCESS);
    replace(self);
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    assert_int_equal(fake_program_resume_begin(wire), CUDA_SUCCESS);
    assert_int_equal(restore_one(wire, kept, 4 * MIB), CUDA_SUCCESS);
    assert_int_equal(fake_program_resume_end(wire, 7), CUDA_SUCCESS);
    flyt_ledger_read(self->node.ledger, &ledger);
    assert_int_equal(ledger.used_bytes, 22 * MIB);
    assert_int_equal(ledger.cached_bytes, 18 * MIB);
    /* 28 MiB fit only if both extents go. */
    assert_int_equal(fake_program_alloc(wire, 28 * MIB, &address), CUDA_SUCCESS);
    assert_int_equal(fake_node_used(&self->node), 32 * MIB);
    await_held(self->node.second, 32 * MIB);
    give_back(wire, address);
    assert_int_equal(fake_program_barrier(wire), CUDA_SUCCESS);
    fake_server_send(self->node.second, FLYT_MANAGER_LINK_LIMIT, &limit, sizeof limit, NULL);
    fake_server_wait(self->node.second, &self->node.second->limit_done_count, 1);
    assert_int_equal(self->node.second->limit_done.used_bytes, 4 * MIB);
    assert_int_equal(fake_program_byte_at(wire, kept), 7);
    assert_int_equal(fake_program_byte_at(wire, kept + 4 * MIB - 1), 7);
    fake_node_finish(&self->node, self->node.second);
}

static void streams_and_events_go_on(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    const uint64_t stream = flyt_id(FLYT_ID_STREAM, FLYT_ID_STREAM_FIRST + 3);
    uint64_t events[5], address;
    flyt_event_query_res query;
    begin(self, 16 * MIB);
    assert_int_equal(fake_program_alloc(wire, 2 * MIB, &address), CUDA_SUCCESS);
    replace(self);
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    const uint64_t begin_ns = flyt_clock_ns();
    assert_int_equal(fake_program_resume_begin(wire), CUDA_SUCCESS);
    assert_int_equal(fake_program_synchronize(wire, legacy), CUDA_SUCCESS); /* the device's base has been reached */
    FAKE_WIRE_SEND(wire, FLYT_STREAM_CREATE, stream_create, .stream_id = stream, .flags = CU_STREAM_NON_BLOCKING);
    for (unsigned i = 0; i < 5; i++) {
        events[i] = fake_program_event(EVENT + i);
        FAKE_WIRE_SEND(wire, FLYT_EVENT_CREATE, event_create, .event_id = events[i]);
    }
    const uint64_t now_ns = flyt_clock_ns();
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RESTORE, event_restore, .event_id = events[0], .has_time = 1,
                   .time_ns = now_ns - 5000000000);
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RESTORE, event_restore, .event_id = events[1], .has_time = 1,
                   .time_ns = now_ns - 4998750000);
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RESTORE, event_restore, .event_id = events[2]);
    assert_int_equal(restore_one(wire, address, 2 * MIB), CUDA_SUCCESS);
    assert_int_equal(fake_program_resume_end(wire, 100), CUDA_SUCCESS);

    for (unsigned i = 0; i < 4; i++) /* one was never recorded */
        assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_EVENT_QUERY, event_query, &query, .event_id = events[i]),
                         CUDA_SUCCESS);
    assert_float_equal(fake_program_elapsed(wire, EVENT, EVENT + 1, CUDA_SUCCESS), 1.25, 0.001);
    assert_float_equal(fake_program_elapsed(wire, EVENT + 1, EVENT, CUDA_SUCCESS), -1.25, 0.001);
    fake_program_elapsed(wire, EVENT, EVENT + 2, CUDA_ERROR_INVALID_HANDLE);
    fake_program_elapsed(wire, EVENT, EVENT + 3, CUDA_ERROR_INVALID_HANDLE);
    FAKE_WIRE_SEND(wire, FLYT_STREAM_WAIT_EVENT, stream_wait_event, .stream_id = stream, .event_id = events[2]);
    fake_program_fill_on(wire, stream, address, 2 * MIB, 0x33);
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RECORD, event_record, .event_id = events[3], .stream_id = stream);
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RECORD, event_record, .event_id = events[4], .stream_id = stream);
    assert_int_equal(fake_program_synchronize(wire, stream), CUDA_SUCCESS);
    const float since_ms = (float)(flyt_clock_ns() - now_ns) / 1e6f, base_ms = (float)(now_ns - begin_ns) / 1e6f;
    assert_int_equal(fake_program_byte_at(wire, address + MIB), 0x33);
    /* A time of before and one of now, by the same clock; the base is as exact as the call that made it was short. */
    float across_ms = fake_program_elapsed(wire, EVENT, EVENT + 3, CUDA_SUCCESS);
    assert_true(across_ms >= 5000 - base_ms - 0.01f && across_ms <= 5000 + since_ms + base_ms + 0.01f);
    assert_float_equal(fake_program_elapsed(wire, EVENT + 3, EVENT, CUDA_SUCCESS), -across_ms, 0.01);
    fake_program_elapsed(wire, EVENT + 2, EVENT + 3, CUDA_ERROR_INVALID_HANDLE);
    float here_ms = fake_program_elapsed(wire, EVENT + 3, EVENT + 4, CUDA_SUCCESS);
    assert_float_equal(fake_program_elapsed(wire, EVENT, EVENT + 4, CUDA_SUCCESS), across_ms + here_ms, 0.01);
    /* Recorded again it is an event like any. */
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RECORD, event_record, .event_id = events[2], .stream_id = stream);
    assert_int_equal(fake_program_synchronize(wire, stream), CUDA_SUCCESS);
    assert_true(fake_program_elapsed(wire, EVENT + 3, EVENT + 2, CUDA_SUCCESS) >= here_ms);
    assert_int_equal(wire->failed_result, 0);
    fake_node_finish(&self->node, self->node.second);
}

static int fail_resumption(struct fake_wire *wire, char *reason)
{
    flyt_session_resume_fail_res res;
    return FAKE_WIRE_CALL(wire, FLYT_SESSION_RESUME_FAIL, session_resume_fail, &res, .reason = reason);
}

/* The node manager hears it once, and the session does nothing more. */
static void a_resumption_that_has_failed_is_over(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    uint64_t address;
    begin(self, 32 * MIB);
    assert_int_equal(fail_resumption(wire, "too early"), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(fake_program_alloc(wire, 4096, &address), CUDA_SUCCESS);
    replace(self);
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    assert_int_equal(fail_resumption(wire, "too early"), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(fake_program_resume_begin(wire), CUDA_SUCCESS);
    struct fake_server *server = self->node.second;
    const unsigned before = server->prepared_count;
    assert_int_equal(fail_resumption(wire, "a\nlibrary"), CUDA_SUCCESS);
    fake_server_wait(server, &server->prepared_count, before + 1);
    assert_int_equal(server->prepared.outcome, -EIO);
    assert_non_null(strstr(server->prepared_sentence, "at the new server: a library"));
    assert_int_equal(fail_resumption(wire, "again"), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(restore_one(wire, address, 4096), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(fake_program_alloc(wire, 4096, &address), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(fake_program_resume_begin(wire), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(fake_program_resume_end(wire, 40), CUDA_ERROR_NOT_PERMITTED);
    fake_wire_close(wire);
    fake_server_wait_true(server, &server->is_returned);
    assert_non_null(strstr(server->sentence, "at the new server: a library"));
    assert_int_equal(fake_server_end(server), 0);
    assert_int_equal(server->prepared_count, before + 1);
}

static void calls_in_the_wrong_order_are_refused(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    const uint64_t event = flyt_id(FLYT_ID_EVENT, 1);
    uint64_t small, large, address;
    begin(self, 32 * MIB);
    /* None of it in an ordinary session. */
    assert_int_equal(fake_program_resume_begin(wire), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(fake_program_resume_end(wire, 1), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(fake_program_alloc(wire, 4096, &small), CUDA_SUCCESS);
    assert_int_equal(fake_program_alloc(wire, 4 * MIB, &large), CUDA_SUCCESS);
    assert_int_equal(restore_one(wire, small, 4096), CUDA_ERROR_NOT_PERMITTED);
    FAKE_WIRE_SEND(wire, FLYT_EVENT_CREATE, event_create, .event_id = event);
    FAKE_WIRE_SEND(wire, FLYT_EVENT_RESTORE, event_restore, .event_id = event);
    assert_int_equal(fake_program_barrier(wire), CUDA_SUCCESS);
    assert_int_equal(wire->failed_result, CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(wire->failed_sequence, wire->progress.received - 1);

    replace(self);
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    assert_int_equal(fake_program_alloc(wire, 4096, &address), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(restore_one(wire, small, 4096), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(fake_program_resume_end(wire, 1), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(fake_program_resume_begin(wire), CUDA_SUCCESS);
    assert_int_equal(fake_program_resume_begin(wire), CUDA_ERROR_NOT_PERMITTED);

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
    assert_int_equal(fake_program_resume_end(wire, UINT64_MAX), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake_program_resume_end(wire, 40), CUDA_SUCCESS);
    assert_int_equal(fake_program_resume_end(wire, 41), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(wire->progress.received, 41);
    assert_int_equal(fake_program_resume_begin(wire), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(restore_one(wire, small + 4096, 512), CUDA_ERROR_NOT_PERMITTED);
    fake_node_finish(&self->node, self->node.second);
}

static void a_client_of_another_session_is_refused(void **state)
{
    struct fixture *self = *state;
    unsigned char token[FLYT_TOKEN_BYTES] = {1};
    begin(self, 16 * MIB);
    replace(self);
    fake_node_expect_refusal(&self->node, self->node.second, FLYT_CONNECTION_SESSION, NULL, FLYT_HANDSHAKE_NO_SESSION,
                             "cannot begin anew");

    fake_server_start(self->node.second, fake_one_gpu);
    fake_server_give(self->node.second, self->node.first);
    fake_node_hand_to_second(&self->node);
    fake_node_expect_refusal(&self->node, self->node.second, FLYT_CONNECTION_RESUME, token, FLYT_HANDSHAKE_NO_SESSION,
                             "is another one");

    fake_server_start(self->node.second, fake_one_gpu);
    fake_node_hand_to_second(&self->node);
    fake_node_expect_refusal(&self->node, self->node.second, FLYT_CONNECTION_RESUME, self->node.listener.session.token,
                             FLYT_HANDSHAKE_NO_SESSION, "no session that goes on here");
}

/* Without a way back to a restarted node manager there is none that could give the memory on. */
static void who_cannot_go_on_is_not_told_so(void **state)
{
    struct fixture *self = *state;
    fake_node_begin(&self->node, fake_one_gpu, 16 * MIB);
    fake_node_connect(&self->node);
    assert_int_equal(self->node.wire.features & FLYT_FEATURE_RESUME, 0);
    await_heard(self->node.first, "no other server");
    fake_node_finish(&self->node, self->node.first);
}

static void global(struct fake_wire *wire, unsigned number, char *name, int want)
{
    flyt_library_global_res res;
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_LIBRARY_GLOBAL, library_global, &res,
                                    .library_id = fake_program_library(number), .name = name),
                     want);
}

static void store_and_load(struct fake_wire *wire, unsigned number, const char *text)
{
    fake_program_store(wire, text);
    fake_program_load(wire, number, text, 1);
}

static void what_cannot_go_on_is_told_before_it_matters(void **state)
{
    static const char plain[] = PTX ".const .align 4 .b8 table[16] = {1};\n.visible .entry a()\n{\nret;\n}\n";
    static const char variable[] = PTX ".visible .global .align 4 .u32 x = 1;\n.visible .entry b()\n{\nret;\n}\n";
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    flyt_device_limit_set_res limited;
    begin(self, 64 * MIB);
    await_heard(self->node.first, NULL);
    store_and_load(wire, 1, plain);
    assert_int_equal(fake_program_barrier(wire), CUDA_SUCCESS);
    store_and_load(wire, 2, variable);
    await_heard(self->node.first, "variables");
    FAKE_WIRE_SEND(wire, FLYT_LIBRARY_UNLOAD, library_unload, .library_id = fake_program_library(2));
    await_heard(self->node.first, NULL);
    global(wire, 1, "other", CUDA_ERROR_NOT_FOUND);
    assert_int_equal(fake_program_barrier(wire), CUDA_SUCCESS);
    assert_true(has_heard(self->node.first, NULL));
    global(wire, 1, "table", CUDA_SUCCESS);
    await_heard(self->node.first, "address");
    fake_node_finish(&self->node, self->node.first);
    self->node.ledger = flyt_ledger_close(self->node.ledger);

    begin(self, 64 * MIB);
    await_heard(self->node.first, NULL);
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_DEVICE_LIMIT_SET, device_limit_set, &limited,
                                    .limit = CU_LIMIT_MALLOC_HEAP_SIZE, .value = 16 * MIB),
                     CUDA_SUCCESS);
    await_heard(self->node.first, "heap");
    fake_node_finish(&self->node, self->node.first);
    self->node.ledger = flyt_ledger_close(self->node.ledger);

    /* It is told before the call is answered that makes it so: nothing is done with it before. */
    begin(self, 64 * MIB);
    await_heard(self->node.first, NULL);
    store_and_load(wire, 2, variable);
    fake_server_kill(self->node.first);
    fake_wire_close(wire);
    assert_true(has_heard(self->node.first, "variables"));
}

/* ---- constants ---- */

enum { TABLE_WORDS = 16 };

/* Kernel 0 copies the table to its argument. */
static const char table_text[] =
    PTX ".visible .const .align 4 .b8 table[64] = {7};\n.const .align 4 .b8 large[65536];\n"
        ".visible .entry tell(.param .u64 p_)\n{\n.reg .b32 r;\n.reg .b64 p, c;\n.reg .pred q;\n.reg .u32 i;\n"
        "ld.param.u64 p, [p_];\nmov.u64 c, table;\nmov.u32 i, 0;\nnext:\nld.const.u32 r, [c];\n"
        "st.global.u32 [p], r;\nadd.u64 p, p, 4;\nadd.u64 c, c, 4;\nadd.u32 i, i, 1;\nsetp.lt.u32 q, i, 16;\n"
        "@q bra next;\nret;\n}\n";

static flyt_library_symbol_res place_for_copies(struct fake_wire *wire, unsigned number, char *name, bool is_kept)
{
    flyt_library_symbol_res res;
    assert_int_equal(FAKE_WIRE_CALL(wire, FLYT_LIBRARY_SYMBOL, library_symbol, &res,
                                    .library_id = fake_program_library(number), .name = name, .is_kept = is_kept),
                     CUDA_SUCCESS);
    return res;
}

static void write_constant(struct fake_wire *wire, char *name, uint64_t offset_bytes, void *data, unsigned bytes)
{
    FAKE_WIRE_SEND(wire, FLYT_CONSTANT_WRITE, constant_write, .stream_id = legacy,
                   .library_id = fake_program_library(1), .name = name, .offset_bytes = offset_bytes,
                   .data = {.data_len = bytes, .data_val = data});
}

static int read_constant(struct fake_wire *wire, char *name, uint64_t offset_bytes, uint64_t bytes, uint32_t *ret_word)
{
    flyt_constant_read_res res = {0};
    int result = FAKE_WIRE_CALL(wire, FLYT_CONSTANT_READ, constant_read, &res, .stream_id = legacy,
                                .library_id = fake_program_library(1), .name = name, .offset_bytes = offset_bytes,
                                .bytes = bytes);
    assert_int_equal(res.data.data_len, result ? 0 : bytes);
    if (!result)
        memcpy(ret_word, res.data.data_val, sizeof *ret_word);
    xdr_free((xdrproc_t)xdr_flyt_constant_read_res, &res);
    return result;
}

/* What a kernel sees of the table. */
static void check_table(struct fake_wire *wire, uint64_t address, const uint32_t *words)
{
    fake_program_launch(wire, 1, 0, address);
    for (unsigned i = 0; i < TABLE_WORDS; i++)
        assert_int_equal(fake_program_word_at(wire, address + i * sizeof *words), words[i]);
}

static void constants_that_the_client_keeps_go_on(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    uint32_t words[TABLE_WORDS] = {7}, written[4] = {0x11111111, 0x22222222, 0x33333333, 0x44444444}, one = 0x55555555,
             seen;
    begin(self, 64 * MIB);
    self->ranges[0].bytes = 4 * TABLE_WORDS;
    assert_int_equal(fake_program_alloc(wire, self->ranges[0].bytes, &self->ranges[0].address), CUDA_SUCCESS);
    store_and_load(wire, 1, table_text);
    check_table(wire, self->ranges[0].address, words);
    flyt_library_symbol_res place = place_for_copies(wire, 1, "table", true);
    assert_int_equal(place.bytes, sizeof words);
    assert_int_equal(place.is_kept, 1);
    memcpy(words + 3, written, sizeof written);
    words[4] = one;
    write_constant(wire, "table", 12, written, sizeof written);
    write_constant(wire, "table", 16, &one, sizeof one);
    check_table(wire, self->ranges[0].address, words);
    assert_int_equal(read_constant(wire, "table", 16, sizeof one, &seen), CUDA_SUCCESS);
    assert_int_equal(seen, one);
    assert_int_equal(read_constant(wire, "table", 61, sizeof one, &seen), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(read_constant(wire, "tables", 0, sizeof one, &seen), CUDA_ERROR_NOT_FOUND);
    await_heard(self->node.first, NULL);
    replace(self);

    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    assert_int_equal(fake_program_resume_begin(wire), CUDA_SUCCESS);
    fake_program_load(wire, 1, table_text, 1);
    flyt_library_symbol_res again = place_for_copies(wire, 1, "table", true);
    assert_int_equal(again.is_kept, 1);
    write_constant(wire, "table", 12, words + 3, sizeof written);
    assert_int_equal(fake_program_restore(wire, self->ranges, 1), CUDA_SUCCESS);
    assert_int_equal(fake_program_resume_end(wire, 4711), CUDA_SUCCESS);
    assert_int_equal(wire->failed_result, 0);
    check_table(wire, self->ranges[0].address, words);
    write_constant(wire, "table", 0, &one, sizeof one);
    words[0] = one;
    check_table(wire, self->ranges[0].address, words);
    await_heard(self->node.second, NULL);

    write_constant(wire, "table", 60, written, 8); /* over its end: nothing is written */
    check_table(wire, self->ranges[0].address, words);
    await_heard(self->node.second, "copied to or from by its address");
    fake_node_finish(&self->node, self->node.second);
}

static void write_by_copy(struct fake_wire *wire, uint64_t address, uint64_t other)
{
    uint32_t word = 1;
    FAKE_WIRE_SEND(wire, FLYT_COPY_IN, copy_in, .stream_id = legacy, .dst = fake_program_line(address, sizeof word),
                   .data = {.data_len = sizeof word, .data_val = (char *)&word});
}

static void write_by_copy_within(struct fake_wire *wire, uint64_t address, uint64_t other)
{
    FAKE_WIRE_SEND(wire, FLYT_COPY_WITHIN, copy_within, .stream_id = legacy, .dst = fake_program_line(address, 4),
                   .src = fake_program_line(other, 4));
}

static void write_by_fill(struct fake_wire *wire, uint64_t address, uint64_t other)
{
    fake_program_fill(wire, address, 4, 1);
}

static void write_when_asked(struct fake_wire *wire, uint64_t address, uint64_t other)
{
    FAKE_WIRE_SEND(wire, FLYT_COPY_IN_TRANSFER, copy_in_transfer, .stream_id = legacy,
                   .dst = fake_program_line(address, 4), .transfer_id = 77, .bytes = 4, .is_pull = 1);
}

static void lose_it(struct fake_wire *wire, uint64_t address, uint64_t other)
{
    assert_int_equal(place_for_copies(wire, 1, "table", false).is_kept, 0);
}

static void ask_for_its_address(struct fake_wire *wire, uint64_t address, uint64_t other)
{
    global(wire, 1, "table", CUDA_SUCCESS);
}

static void constants_that_it_does_not_keep_are_told(void **state)
{
    static const struct {
        void (*write)(struct fake_wire *wire, uint64_t address, uint64_t other);
        const char *words;
    } cases[] = {
        {write_by_copy, "copied to or from by its address"}, {write_by_copy_within, "copied to or from by its address"},
        {write_by_fill, "copied to or from by its address"}, {write_when_asked, "copied to or from by its address"},
        {lose_it, "copied to or from by its address"},       {ask_for_its_address, "has the address"}};
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t other;
        begin(self, 64 * MIB);
        await_heard(self->node.first, NULL);
        assert_int_equal(fake_program_alloc(wire, 4, &other), CUDA_SUCCESS);
        store_and_load(wire, 1, table_text);
        flyt_library_symbol_res place = place_for_copies(wire, 1, "table", true);
        assert_int_equal(fake_program_barrier(wire), CUDA_SUCCESS);
        fake_program_fill(wire, other, 4, 1);
        write_by_copy_within(wire, other, place.address); /* reading is nothing */
        assert_int_equal(fake_program_synchronize(wire, legacy), CUDA_SUCCESS);
        assert_true(has_heard(self->node.first, NULL));
        cases[i].write(wire, place.address, other);
        await_heard(self->node.first, cases[i].words);
        fake_node_finish(&self->node, self->node.first);
        self->node.ledger = flyt_ledger_close(self->node.ledger);
    }
    begin(self, 64 * MIB);
    fake_node_finish(&self->node, self->node.first);
}

/* Variables are named as long as there are any, whoever asks for their places; beyond the bound nothing is kept. */
static void what_is_not_kept_is_no_constant_or_too_much(void **state)
{
    static const char variable[] = PTX ".visible .global .align 4 .u32 x = 1;\n.visible .entry b()\n{\nret;\n}\n";
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    begin(self, 64 * MIB);
    await_heard(self->node.first, NULL);
    store_and_load(wire, 2, variable);
    await_heard(self->node.first, "variables");
    flyt_library_symbol_res place = place_for_copies(wire, 2, "x", true);
    assert_int_equal(place.is_kept, 0);
    write_by_copy(wire, place.address, 0);
    fake_program_unload(wire, 2);
    await_heard(self->node.first, NULL);

    store_and_load(wire, 1, table_text);
    assert_int_equal(place_for_copies(wire, 1, "table", true).is_kept, 1);
    assert_true(has_heard(self->node.first, NULL));
    flyt_library_symbol_res large = place_for_copies(wire, 1, "large", true);
    assert_int_equal(large.bytes, FLYT_CONSTANT_BYTES_MAX);
    assert_int_equal(large.is_kept, 0); /* with the table it is too much */
    await_heard(self->node.first, "copied to or from by its address");
    assert_int_equal(place_for_copies(wire, 1, "table", true).is_kept, 1);
    fake_node_finish(&self->node, self->node.first);
}

/* Nobody has the address of the one beyond them: the reason is that copies go by it. */
static void more_constants_than_are_noted(void **state)
{
    enum { LINE_BYTES = 64 };
    static char text[(FLYT_CONSTANT_PLACES_MAX + 3) * LINE_BYTES] = PTX;
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    char name[16];
    size_t used = strlen(text);
    for (unsigned i = 0; i <= FLYT_CONSTANT_PLACES_MAX; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, ".const .align 4 .u32 c%u = 1;\n", i);
    snprintf(text + used, sizeof text - used, ".visible .entry a()\n{\nret;\n}\n");
    begin(self, 64 * MIB);
    await_heard(self->node.first, NULL);
    store_and_load(wire, 1, text);
    for (unsigned i = 0; i < FLYT_CONSTANT_PLACES_MAX; i++) {
        snprintf(name, sizeof name, "c%u", i);
        assert_int_equal(place_for_copies(wire, 1, name, true).is_kept, 1);
    }
    assert_true(has_heard(self->node.first, NULL));
    snprintf(name, sizeof name, "c%u", FLYT_CONSTANT_PLACES_MAX);
    assert_int_equal(place_for_copies(wire, 1, name, true).is_kept, 0);
    await_heard(self->node.first, "copied to or from by its address");
    fake_node_finish(&self->node, self->node.first);
}

static void memory_is_given_before_the_end(void **state)
{
    struct fixture *self = *state;
    struct fake_wire *wire = &self->node.wire;
    const uint64_t sequence = 4711;
    begin(self, 64 * MIB);
    make_memory(self);
    const uint64_t all_bytes = fake_node_used(&self->node);
    await_held(self->node.first, all_bytes);
    replace_ahead(self);
    assert_int_equal(held(self->node.second), all_bytes);
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    assert_int_equal(fake_program_resume_begin(wire), CUDA_SUCCESS);
    assert_int_equal(fake_program_restore(wire, self->ranges, RANGES), CUDA_SUCCESS);
    assert_int_equal(fake_program_resume_end(wire, sequence), CUDA_SUCCESS);
    assert_int_equal(fake_node_used(&self->node), all_bytes);
    check_memory(self);
    fake_node_finish(&self->node, self->node.second);
}

/* Announced ahead, and then otherwise; not announced again; announced twice ahead. */
static void what_was_announced_ahead_has_to_hold(void **state)
{
    struct fixture *self = *state;
    static const struct {
        const char *words;
        struct flyt_manager_link_resume second; /* extent_count 0: none */
    } cases[] = {
        {"says twice", {.extent_count = 2, .last_extent_id = 9}},
        {"says twice", {.extent_count = 1, .last_extent_id = 8}},
        {"says twice", {.extent_count = 1, .last_extent_id = 9, .is_ahead = 1}},
        {"has not said that the process", {.extent_count = 0}},
    };
    uint64_t address;
    begin(self, 64 * MIB);
    assert_int_equal(fake_program_alloc(&self->node.wire, 2 * MIB, &address), CUDA_SUCCESS);
    fake_server_wait(self->node.first, &self->node.first->extents_told, 1);
    fake_server_kill(self->node.first);
    fake_wire_close(&self->node.wire);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct flyt_manager_link_resume first = {.extent_count = 1, .last_extent_id = 9, .is_ahead = 1};
        const struct flyt_manager_link_extent extent = {1, 2 * MIB, self->node.first->extents[0].address, 0, 0};
        fake_server_start(self->node.second, fake_one_gpu);
        fake_server_send(self->node.second, FLYT_MANAGER_LINK_RESUME, &first, sizeof first, NULL);
        fake_server_give_one(self->node.second, &extent, self->node.first->extents[0].fd);
        if (cases[i].second.extent_count)
            fake_server_send(self->node.second, FLYT_MANAGER_LINK_RESUME, &cases[i].second, sizeof cases[i].second,
                             NULL);
        fake_node_hand_to_second(&self->node);
        fake_node_expect_refusal(&self->node, self->node.second, FLYT_CONNECTION_RESUME,
                                 self->node.listener.session.token, FLYT_HANDSHAKE_NO_DEVICE, cases[i].words);
    }
    fake_server_forget(self->node.first);
}

struct bad_gift {
    const char *words;
    uint64_t announced; /* of one or two extents that follow */
    uint64_t last_extent_id;
    struct flyt_manager_link_extent extents[2];
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
        assert_int_equal(fake_program_alloc(&self->node.wire, 2 * MIB, &address), CUDA_SUCCESS);
    fake_server_wait(self->node.first, &self->node.first->extents_told, 2);
    fake_server_kill(self->node.first);
    fake_wire_close(&self->node.wire);
    assert_int_equal(self->node.first->extent_count, 2);
    for (unsigned i = 0; i < sizeof gifts / sizeof gifts[0]; i++) {
        const struct flyt_manager_link_resume resume = {.extent_count = gifts[i].announced,
                                                        .last_extent_id = gifts[i].last_extent_id};
        fake_server_start(self->node.second, fake_one_gpu);
        fake_server_send(self->node.second, FLYT_MANAGER_LINK_RESUME, &resume, sizeof resume, NULL);
        for (unsigned k = 0; k < 2; k++)
            fake_server_give_one(self->node.second, &gifts[i].extents[k], self->node.first->extents[k].fd);
        fake_node_hand_to_second(&self->node);
        fake_node_expect_refusal(&self->node, self->node.second, FLYT_CONNECTION_RESUME,
                                 self->node.listener.session.token, FLYT_HANDSHAKE_NO_DEVICE, gifts[i].words);
    }
    /* A descriptor of something else; and nothing announced at all. */
    int other_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    const struct flyt_manager_link_resume resume = {.extent_count = 1, .last_extent_id = 9};
    fake_server_start(self->node.second, fake_one_gpu);
    fake_server_send(self->node.second, FLYT_MANAGER_LINK_RESUME, &resume, sizeof resume, NULL);
    fake_server_give_one(self->node.second, &gifts[0].extents[0], other_fd);
    fake_node_hand_to_second(&self->node);
    fake_node_expect_refusal(&self->node, self->node.second, FLYT_CONNECTION_RESUME, self->node.listener.session.token,
                             FLYT_HANDSHAKE_NO_DEVICE, "cannot be taken over");
    fake_server_start(self->node.second, fake_one_gpu);
    fake_server_give_one(self->node.second, &gifts[0].extents[0], self->node.first->extents[0].fd);
    fake_node_hand_to_second(&self->node);
    fake_node_expect_refusal(&self->node, self->node.second, FLYT_CONNECTION_SESSION, NULL, FLYT_HANDSHAKE_NO_DEVICE,
                             "not announced");
    close(other_fd);
    fake_server_forget(self->node.first);
}

static void a_client_that_goes_in_the_middle_ends_the_session(void **state)
{
    struct fixture *self = *state;
    begin(self, 64 * MIB);
    make_memory(self);
    replace(self);
    assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
    assert_int_equal(fake_program_resume_begin(&self->node.wire), CUDA_SUCCESS);
    assert_int_equal(fake_program_restore(&self->node.wire, self->ranges, RANGES), CUDA_SUCCESS);
    fake_node_finish(&self->node, self->node.second);
}

/* Three servers one after the other, work at each. */
static void a_session_goes_on_again(void **state)
{
    struct fixture *self = *state;
    uint64_t sequence = 1000;
    begin(self, 64 * MIB);
    make_memory(self);
    for (unsigned round = 0; round < FAKE_NODE_SERVERS - 1; round++) {
        replace(self);
        assert_int_equal(fake_node_come_back(&self->node), FLYT_HANDSHAKE_OK);
        assert_int_equal(fake_program_resume_begin(&self->node.wire), CUDA_SUCCESS);
        assert_int_equal(fake_program_restore(&self->node.wire, self->ranges, RANGES), CUDA_SUCCESS);
        assert_int_equal(fake_program_resume_end(&self->node.wire, sequence), CUDA_SUCCESS);
        check_memory(self);
        uint64_t address;
        assert_int_equal(fake_program_alloc(&self->node.wire, 700, &address), CUDA_SUCCESS); /* lost: nobody names it */
        assert_int_equal(fake_program_barrier(&self->node.wire), CUDA_SUCCESS);
        sequence = self->node.wire.progress.completed;
        fake_node_next(&self->node);
    }
    fake_node_finish(&self->node, self->node.first);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, fake_node_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(memory_goes_on),
        TEST(memory_without_an_allocation_is_given_back),
        TEST(streams_and_events_go_on),
        TEST(calls_in_the_wrong_order_are_refused),
        TEST(a_resumption_that_has_failed_is_over),
        TEST(a_client_of_another_session_is_refused),
        TEST(who_cannot_go_on_is_not_told_so),
        TEST(what_cannot_go_on_is_told_before_it_matters),
        TEST(constants_that_the_client_keeps_go_on),
        TEST(constants_that_it_does_not_keep_are_told),
        TEST(what_is_not_kept_is_no_constant_or_too_much),
        TEST(more_constants_than_are_noted),
        TEST(memory_is_given_before_the_end),
        TEST(what_was_announced_ahead_has_to_hold),
        TEST(memory_that_cannot_be_is_refused),
        TEST(a_client_that_goes_in_the_middle_ends_the_session),
        TEST(a_session_goes_on_again),
    };
    return cmocka_run_group_tests(tests, fake_node_begin_all, fake_node_end_all);
}
