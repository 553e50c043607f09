/*
 * A client that sends other chunks than it should, over its main connection and over a data stream in memory: its
 * session ends, and nothing is written where it should not be. What is as it should be arrives, in any order.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/test/fake_client.h"
#include "rpc/base/clock.h"

enum {
    BYTES = 6000,
    TRANSFER = 21,
    FOREIGN = 99,
    ROUNDS = 60,
    PIECES_MAX = 8,
    LIMIT_S = 120,
    DATA_AT = 4 + CALL_HEAD_BYTES + 20
};

/* ---- a session, and where chunks are sent ---- */

struct stage {
    struct fixture *self;
    struct flyt_memory_listener listener;
    struct flyt_endpoint *stream; /* NULL: over the main connection */
    uint64_t address;
};

static void arrive(void *user, struct flyt_endpoint *endpoint)
{
    struct stage *stage = user;
    assert_int_equal(flyt_transfers_adopt(stage->self->session.transfers, endpoint, "", 0), 0);
}

static void begin(struct stage *stage, bool has_stream)
{
    *stage = (struct stage){.self = make(), .listener = {.arrive = arrive, .user = stage}};
    assert_int_equal(pthread_create(&stage->self->thread, NULL, serve, stage->self), 0);
    stage->address = alloc(stage->self, BYTES, CUDA_SUCCESS);
    create(stage->self, 0, CU_STREAM_NON_BLOCKING);
    barrier(stage->self);
    if (has_stream)
        assert_int_equal(flyt_endpoint_in_memory(&stage->listener, &stage->stream), 0);
}

/* What chunks before it were may have ended the session already. */
static void name_transfer(struct stage *stage, uint64_t bytes)
{
    const flyt_copy_in_transfer_args args = {
        .stream_id = stream_id(0), .dst = range(stage->address, bytes), .transfer_id = TRANSFER, .bytes = bytes};
    char record[2 * BYTES];
    size_t count = encode_call(stage->self, record, sizeof record, FLYT_COPY_IN_TRANSFER,
                               (xdrproc_t)xdr_flyt_copy_in_transfer_args, &args);
    send(stage->self->fd, record, count, MSG_NOSIGNAL);
}

static void deliver(struct stage *stage, const void *bytes, size_t count)
{
    if (!stage->stream) {
        send(stage->self->fd, bytes, count, MSG_NOSIGNAL); /* nobody may be there any more */
        return;
    }
    const uint64_t deadline_ms = flyt_clock_ms() + LIMIT_S * 1000;
    for (ssize_t sent; count; count -= (size_t)sent, bytes = (const char *)bytes + sent) {
        const struct iovec part = {(void *)bytes, count};
        sent = flyt_endpoint_write(stage->stream, &part, 1, false);
        if (sent == -EAGAIN) {
            assert_int_not_equal(flyt_endpoint_await(stage->stream, FLYT_ENDPOINT_OUT, -1, deadline_ms), -ETIMEDOUT);
            sent = 0;
        }
        if (sent < 0)
            return;
    }
}

/* The record of a chunk, whose data is its place. */
static size_t encode(struct stage *stage, char *record, uint64_t transfer_id, uint64_t offset_bytes, unsigned bytes)
{
    char data[BYTES];
    for (unsigned i = 0; i < bytes; i++)
        data[i] = (char)((offset_bytes + i) * 7);
    const flyt_chunk chunk = {
        .transfer_id = transfer_id, .offset_bytes = offset_bytes, .data = {.data_len = bytes, .data_val = data}};
    size_t count = encode_call(stage->self, record, 2 * BYTES, FLYT_CHUNK, (xdrproc_t)xdr_flyt_chunk, &chunk);
    stage->self->xid--; /* chunks have no number */
    return count;
}

static void send_piece(struct stage *stage, uint64_t transfer_id, uint64_t offset_bytes, unsigned bytes)
{
    char record[2 * BYTES];
    deliver(stage, record, encode(stage, record, transfer_id, offset_bytes, bytes));
}

/* Fails where the session does not end. */
static void join(pthread_t thread)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += LIMIT_S;
    assert_int_equal(pthread_timedjoin_np(thread, NULL, &end), 0);
}

/* The session goes on and has all of it, or has ended by itself. */
static void end(struct stage *stage, bool is_good)
{
    if (is_good) {
        assert_int_equal(synchronize(stage->self, stream_id(0)), CUDA_SUCCESS);
        barrier(stage->self);
        close(stage->self->fd);
    }
    join(stage->self->thread);
    assert_true(stage->self->session.is_ended);
    if (!is_good)
        close(stage->self->fd);
    flyt_endpoint_close(stage->stream);
    flyt_session_fini(&stage->self->session);
    free(stage->self);
}

/* ---- chunks ---- */

static const struct script {
    bool is_good;
    struct {
        uint64_t transfer_id, offset_bytes;
        unsigned bytes;
    } pieces[PIECES_MAX]; /* up to the first of no transfer */
} scripts[] = {
    {true, {{TRANSFER, 0, BYTES}}},
    {true, {{TRANSFER, 3000, 3000}, {TRANSFER, 1000, 2000}, {FOREIGN, 5, 7}, {TRANSFER, 0, 1000}}},
    {false, {{TRANSFER, 0, BYTES - 1}, {TRANSFER, BYTES - 1, 2}}},
    {false, {{TRANSFER, BYTES, 1}}},
    {false, {{TRANSFER, UINT64_MAX, 1}}},
    {false, {{TRANSFER, UINT64_MAX - 2, 100}}},
    {false, {{TRANSFER, UINT64_C(1) << 63, 100}}},
    {false, {{TRANSFER, 0, 0}}},
    {false, {{TRANSFER, 0, 1000}, {TRANSFER, 0, 1000}}},
    {false, {{TRANSFER, 0, 1000}, {TRANSFER, 2000, 1000}, {TRANSFER, 999, 2}}},
    {false, {{TRANSFER, 2000, 1000}, {TRANSFER, 0, 2001}}},
    {false, {{FOREIGN, 0, 1000}, {FOREIGN, 0, 1000}}},
};

static void play(const struct script *script, bool has_stream, bool is_named_first)
{
    struct stage stage;
    begin(&stage, has_stream);
    if (is_named_first) {
        name_transfer(&stage, BYTES);
        assert_int_equal(query(stage.self, stream_id(0)), CUDA_ERROR_NOT_READY); /* it is known there */
    }
    for (unsigned i = 0; i < PIECES_MAX && script->pieces[i].transfer_id; i++)
        send_piece(&stage, script->pieces[i].transfer_id, script->pieces[i].offset_bytes, script->pieces[i].bytes);
    if (!is_named_first)
        name_transfer(&stage, BYTES);
    end(&stage, script->is_good);
}

static void play_all(bool has_stream)
{
    for (unsigned i = 0; i < sizeof scripts / sizeof scripts[0]; i++)
        for (unsigned is_named_first = 0; is_named_first < 2; is_named_first++)
            play(&scripts[i], has_stream, is_named_first);
}

static void over_the_main_connection(void **state)
{
    play_all(false);
}

static void over_a_data_stream(void **state)
{
    play_all(true);
}

/* ---- records ---- */

static void put_at(char *record, size_t offset, uint32_t value)
{
    char *at = record + offset;
    put(&at, value);
}

/* Lengths that do not fit each other, or the protocol. */
static void lengths_that_lie(void **state)
{
    static const struct {
        uint32_t record_bytes, data_bytes; /* as they are told */
    } lies[] = {{CALL_HEAD_BYTES + 20 + 100, 101},
                {CALL_HEAD_BYTES + 20 + 100, 90},
                {CALL_HEAD_BYTES + 20 + 100, UINT32_MAX},
                {CALL_HEAD_BYTES + 19, 100},
                {CALL_HEAD_BYTES + 20 + FLYT_CHUNK_BYTES_MAX + 4, FLYT_CHUNK_BYTES_MAX + 4},
                {0x7fffffff, 0x7fffff00}};
    for (unsigned i = 0; i < 2 * sizeof lies / sizeof lies[0]; i++) {
        struct stage stage;
        char record[2 * BYTES];
        begin(&stage, i & 1);
        size_t count = encode(&stage, record, TRANSFER, 0, 100);
        put_at(record, 0, 0x80000000u | lies[i / 2].record_bytes);
        put_at(record, DATA_AT - 4, lies[i / 2].data_bytes);
        deliver(&stage, record, count);
        for (size_t rest = lies[i / 2].record_bytes + 4; rest > count && rest < 2 * FLYT_CHUNK_BYTES_MAX; rest -= count)
            deliver(&stage, record, rest - count < count ? rest - count : count);
        end(&stage, false);
    }
}

/* A stream that ends within a chunk: its data is missing for ever. */
static void a_chunk_that_is_cut(void **state)
{
    for (size_t cut = DATA_AT; cut < DATA_AT + 1000; cut += 333) {
        struct stage stage;
        char record[2 * BYTES];
        begin(&stage, true);
        encode(&stage, record, TRANSFER, 0, 1000);
        deliver(&stage, record, cut);
        flyt_endpoint_shut(stage.stream, FLYT_ENDPOINT_WRITING);
        end(&stage, false);
    }
}

/* ---- how much there may be ---- */

/* What it takes to keep a chunk counts, too: of small ones that is the most. */
static void small_chunks_are_counted(void **state)
{
    enum { COUNT = 100, SPILLED = COUNT - (FLYT_STAGING_LARGE_MAX - FLYT_STAGING_RESERVED) };
    struct flyt_buffer *buffers[COUNT];
    struct stage stage;
    atomic_bool is_turn = false;
    begin(&stage, false);
    struct flyt_staging *staging = stage.self->session.staging;
    for (unsigned i = 0; i < COUNT; i++)
        assert_non_null(buffers[i] = flyt_staging_take_chunk(staging, 1, &is_turn, false));
    assert_int_equal(staging->spilled_bytes, SPILLED * (1 + FLYT_STAGING_PIECE_BYTES));
    for (unsigned i = 0; i < COUNT; i++)
        flyt_staging_release(staging, buffers[i]);
    assert_int_equal(staging->spilled_bytes, 0);
    send_piece(&stage, TRANSFER, 0, 0);
    end(&stage, false);
}

/* ---- at random ---- */

static unsigned next(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 8;
}

/* Random chunks, most of them good, up to the first bad one or until all has come. */
static void play_at_random(unsigned *seed)
{
    struct stage stage;
    unsigned char map[BYTES] = {0};
    bool is_good = true;
    begin(&stage, next(seed) % 2);
    name_transfer(&stage, BYTES);
    assert_int_equal(query(stage.self, stream_id(0)), CUDA_ERROR_NOT_READY);
    while (is_good && memchr(map, 0, BYTES)) {
        const bool is_wild = next(seed) % 40 == 0;
        unsigned offset = is_wild ? next(seed) % (BYTES + 100)
                                  : (unsigned)((unsigned char *)memchr(map, 0, BYTES) - map) + next(seed) % 2 * 500;
        unsigned bytes = 1 + next(seed) % 900;
        for (unsigned i = 0; !is_wild && i < bytes; i++)
            bytes = offset + i >= BYTES || map[offset + i] ? i : bytes;
        if (!bytes)
            continue;
        is_good = offset <= BYTES && bytes <= BYTES - offset && !memchr(map + offset, 1, bytes);
        if (is_good)
            memset(map + offset, 1, bytes);
        send_piece(&stage, TRANSFER, offset, bytes);
    }
    end(&stage, is_good);
}

static void at_random(void **state)
{
    unsigned seed = 7;
    for (unsigned i = 0; i < ROUNDS; i++)
        play_at_random(&seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_the_main_connection), cmocka_unit_test(over_a_data_stream),
        cmocka_unit_test(lengths_that_lie),         cmocka_unit_test(a_chunk_that_is_cut),
        cmocka_unit_test(small_chunks_are_counted), cmocka_unit_test(at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
