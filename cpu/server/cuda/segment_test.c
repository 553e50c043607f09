/*
 * Segments of graphs over a driver that does nothing: when the driver's graph is made, and in which context; what of a
 * client's nodes is refused; what is left behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/server/cuda/module.h"
#include "cpu/server/test/fake_orders.h"
#include "rpc/api/segment.h"

static uint64_t segment_id(unsigned number)
{
    return flyt_id(FLYT_ID_SEGMENT, number);
}

/* The error that the server tells of the call, which has no answer. */
static void expect_error(struct fixture *client, CUresult want)
{
    flyt_back_call_error error;
    await_back(client, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &error);
    assert_int_equal(error.result, want);
    assert_int_equal(error.sequence, client->xid);
}

static void make_segment(struct fixture *client, unsigned number, unsigned node_count)
{
    SEND(client, FLYT_SEGMENT_CREATE, segment_create, .segment_id = segment_id(number), .node_count = node_count);
}

static void add_value(struct fixture *client, unsigned number, unsigned place, uint64_t address, unsigned value,
                      unsigned element_bytes, unsigned *before, unsigned before_count)
{
    SEND(client, FLYT_SEGMENT_NODE, segment_node, .segment_id = segment_id(number), .place = place,
         .kind = FLYT_SEGMENT_SET, .dst = range(address, 64), .element_bytes = element_bytes, .value = value,
         .before = {.before_len = before_count, .before_val = before});
}

static void add_set(struct fixture *client, unsigned number, unsigned place, uint64_t address, unsigned *before,
                    unsigned before_count)
{
    add_value(client, number, place, address, 0, 4, before, before_count);
}

static void add_copy(struct fixture *client, unsigned number, unsigned place, uint64_t address, unsigned before)
{
    SEND(client, FLYT_SEGMENT_NODE, segment_node, .segment_id = segment_id(number), .place = place,
         .kind = FLYT_SEGMENT_COPY, .dst = range(address, 32), .src = range(address + 32, 32),
         .before = {.before_len = 1, .before_val = &before});
}

static void launch(struct fixture *client, uint64_t stream, unsigned number)
{
    SEND(client, FLYT_SEGMENT_LAUNCH, segment_launch, .stream_id = stream, .segment_id = segment_id(number));
}

/* Made at the first launch; again where a node has changed; ended with the segment. */
static void is_made_when_it_is_needed(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    unsigned first = 0;
    create(client, 0, CU_STREAM_NON_BLOCKING);
    barrier(client);
    flyt_fake_log_clear();
    make_segment(client, 1, 2);
    add_set(client, 1, 0, address, NULL, 0);
    add_copy(client, 1, 1, address, 0);
    barrier(client);
    assert_log("");
    launch(client, stream_id(0), 1);
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("made:set@1,copy@1<1,"), 1);
    assert_int_equal(count_in_log("graph:1"), 2);
    /* The same place again. */
    flyt_fake_log_clear();
    add_set(client, 1, 1, address, &first, 1);
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("unmade"), 1);
    assert_int_equal(count_in_log("made:set@1,set@1<1,"), 1);
    flyt_fake_log_clear();
    SEND(client, FLYT_SEGMENT_DESTROY, segment_destroy, .segment_id = segment_id(1));
    barrier(client);
    assert_log("unmade");
    assert_int_equal(client->session.segment_bytes, 0);
}

/* Nodes that have changed are changed in the driver's graph, each once however often it was told of, before the next
 * launch; a node that is empty now is switched off. What the driver does not change has the graph made anew. */
static void changed_nodes_go_alone(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    unsigned first = 0;
    create(client, 0, CU_STREAM_NON_BLOCKING);
    make_segment(client, 1, 3);
    add_set(client, 1, 0, address, NULL, 0);
    add_value(client, 1, 1, address, 5, 4, &first, 1);
    add_copy(client, 1, 2, address, 0);
    launch(client, stream_id(0), 1);
    barrier(client);
    flyt_fake_log_clear();
    add_value(client, 1, 1, address, 6, 4, &first, 1);
    add_value(client, 1, 1, address, 7, 4, &first, 1);
    barrier(client);
    assert_log("");
    launch(client, stream_id(0), 1);
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("changed:"), 1);
    assert_int_equal(count_in_log("changed:set2@1=7"), 1);
    assert_int_equal(count_in_log("made:"), 0);
    assert_int_equal(count_in_log("graph:1"), 2);
    flyt_fake_log_clear();
    SEND(client, FLYT_SEGMENT_NODE, segment_node, .segment_id = segment_id(1), .place = 1, .kind = FLYT_SEGMENT_EMPTY,
         .before = {.before_len = 1, .before_val = &first});
    add_copy(client, 1, 2, address, 0);
    launch(client, stream_id(0), 1);
    add_value(client, 1, 1, address, 8, 4, &first, 1);
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("off:2"), 1);
    assert_int_equal(count_in_log("changed:copy3@1"), 1);
    assert_int_equal(count_in_log("changed:set2@1=8"), 1);
    assert_int_equal(count_in_log("on:2"), 1);
    assert_int_equal(count_in_log("made:"), 0);
    /* Other edges, and what the driver refuses. */
    flyt_fake_log_clear();
    add_value(client, 1, 1, address, 8, 4, NULL, 0);
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("made:set@1,set@1,copy@1<1,"), 1);
    add_value(client, 1, 1, address, 9, 1, NULL, 0);
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("changed:set2@1=9"), 1);
    assert_int_equal(count_in_log("made:set@1,set@1,copy@1<1,"), 2);
    /* What has changed is in the graph that is made on other SMs; and is changed there. */
    add_value(client, 1, 1, address, 10, 4, NULL, 0);
    uint64_t revision = order(self, 3);
    expect(self, revision, FLYT_MANAGER_LINK_SWITCHED);
    expect(self, revision, FLYT_MANAGER_LINK_VACATED);
    flyt_fake_log_clear();
    launch(client, stream_id(0), 1);
    add_value(client, 1, 1, address, 11, 4, NULL, 0);
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("changed:"), 1);
    assert_int_equal(count_in_log("changed:set2@2=11"), 1);
    assert_int_equal(count_in_log("made:set@2,set@2,copy@2<1,"), 1);
    SEND(client, FLYT_SEGMENT_DESTROY, segment_destroy, .segment_id = segment_id(1));
    barrier(client);
    assert_int_equal(client->session.segment_bytes, 0);
}

/* No node stays in a context that the session has left. */
static void is_made_again_on_other_sms(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    create(client, 0, CU_STREAM_NON_BLOCKING);
    make_segment(client, 1, 2);
    add_set(client, 1, 0, address, NULL, 0);
    add_copy(client, 1, 1, address, 0);
    launch(client, stream_id(0), 1);
    barrier(client);
    uint64_t revision = order(self, 3);
    expect(self, revision, FLYT_MANAGER_LINK_SWITCHED);
    expect(self, revision, FLYT_MANAGER_LINK_VACATED);
    flyt_fake_log_clear();
    launch(client, stream_id(0), 1);
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("made:set@2,copy@2<1,"), 1);
    assert_int_equal(count_in_log("unmade"), 1);
    assert_int_equal(count_in_log("graph:"), 2);
}

static void add_conditional(struct fixture *client, unsigned number, unsigned place, CUgraphConditionalNodeType kind,
                            unsigned default_value, uint64_t *bodies, unsigned body_count)
{
    SEND(client, FLYT_SEGMENT_CONDITIONAL, segment_conditional, .segment_id = segment_id(number), .place = place,
         .handle = flyt_id(FLYT_ID_GRAPH_CONDITION, default_value), .kind = kind, .default_value = default_value,
         .bodies = {.bodies_len = body_count, .bodies_val = bodies});
}

/* Bodies are filled, in each context anew, whether they were told of before the node or after it. */
static void conditional_nodes_have_bodies(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    uint64_t two[] = {segment_id(2), segment_id(4)}, one[] = {segment_id(3)};
    create(client, 0, CU_STREAM_NON_BLOCKING);
    make_segment(client, 1, 2);
    add_set(client, 1, 0, address, NULL, 0);
    add_conditional(client, 1, 1, CU_GRAPH_COND_TYPE_IF, 7, two, 2);
    make_segment(client, 2, 1);
    make_segment(client, 4, 1);
    make_segment(client, 3, 1);
    add_conditional(client, 2, 0, CU_GRAPH_COND_TYPE_WHILE, 9, one, 1);
    add_set(client, 3, 0, address, NULL, 0);
    SEND(client, FLYT_SEGMENT_NODE, segment_node, .segment_id = segment_id(4), .kind = FLYT_SEGMENT_EMPTY);
    flyt_fake_log_clear();
    launch(client, stream_id(0), 1);
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("made:set@1,if7@1,(while9@1,(set@1,))(empty@0,)"), 1);
    assert_int_equal(count_in_log("graph:1"), 2);
    uint64_t revision = order(self, 3);
    expect(self, revision, FLYT_MANAGER_LINK_SWITCHED);
    expect(self, revision, FLYT_MANAGER_LINK_VACATED);
    flyt_fake_log_clear();
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("made:set@2,if7@2,(while9@2,(set@2,))(empty@0,)"), 1);
    for (unsigned i = 1; i <= 4; i++)
        SEND(client, FLYT_SEGMENT_DESTROY, segment_destroy, .segment_id = segment_id(i));
    barrier(client);
    assert_int_equal(client->session.segment_bytes, 0);
}

/* Trees that are none: of segments inside of themselves, too many, missing, unfinished, and of a bad node. */
static void hostile_bodies_are_refused(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t itself[] = {segment_id(1)}, missing[] = {segment_id(9)}, wide[16], unfinished[] = {segment_id(6)};
    create(client, 0, CU_STREAM_NON_BLOCKING);
    make_segment(client, 1, 1);
    add_conditional(client, 1, 0, CU_GRAPH_COND_TYPE_WHILE, 1, itself, 1);
    launch(client, stream_id(0), 1);
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    make_segment(client, 2, 1);
    add_conditional(client, 2, 0, CU_GRAPH_COND_TYPE_WHILE, 1, missing, 1);
    launch(client, stream_id(0), 2);
    expect_error(client, CUDA_ERROR_INVALID_HANDLE);
    for (unsigned number = 10; number < 20; number++) { /* 16 bodies in each of 16 bodies … */
        for (unsigned i = 0; i < 16; i++)
            wide[i] = segment_id(number + 1);
        make_segment(client, number, number < 19);
        if (number < 19)
            add_conditional(client, number, 0, CU_GRAPH_COND_TYPE_SWITCH, 1, wide, 16);
    }
    launch(client, stream_id(0), 10);
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    make_segment(client, 5, 1);
    make_segment(client, 6, 2);
    add_conditional(client, 5, 0, CU_GRAPH_COND_TYPE_WHILE, 1, unfinished, 1);
    launch(client, stream_id(0), 5);
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    add_set(client, 6, 0, 4096, NULL, 0); /* nobody's memory */
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    launch(client, stream_id(0), 5);
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    SEND(client, FLYT_SEGMENT_NODE, segment_node, .segment_id = segment_id(5), .kind = FLYT_SEGMENT_CHOICE);
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    barrier(client);
}

/* Two fills and a copy, the last two after the first. */
static unsigned pack_three(char *content, uint64_t address)
{
    unsigned bytes = 0;
    for (unsigned i = 0; i < 3; i++) {
        struct flyt_segment_packed packed = {.kind = i < 2 ? FLYT_SEGMENT_SET : FLYT_SEGMENT_COPY,
                                             .element_bytes = i < 2 ? 4 : 0,
                                             .before_count = i > 0};
        const flyt_box dst = range(address, i < 2 ? 64 : 32), src = i < 2 ? (flyt_box){0} : range(address + 32, 32);
        packed.bytes = (uint32_t)flyt_segment_packed_bytes(&packed);
        memset(content + bytes, 0, packed.bytes);
        memcpy(content + bytes, &packed, sizeof packed);
        memcpy(content + bytes + sizeof packed, &dst, sizeof dst);
        memcpy(content + bytes + sizeof packed + sizeof dst, &src, sizeof src);
        bytes += packed.bytes;
    }
    return bytes;
}

static void send_nodes(struct fixture *client, unsigned number, unsigned place, char *content, unsigned bytes)
{
    SEND(client, FLYT_SEGMENT_NODES, segment_nodes, .segment_id = segment_id(number), .place = place,
         .nodes = {.nodes_len = bytes, .nodes_val = content});
}

/* Many nodes of one call are as by themselves; what is cut off, or says that it is longer than it is, is refused. */
static void packed_nodes_are_taken(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    char content[1024];
    const unsigned bytes = pack_three(content, address);
    create(client, 0, CU_STREAM_NON_BLOCKING);
    make_segment(client, 1, 3);
    send_nodes(client, 1, 0, content, bytes);
    flyt_fake_log_clear();
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("made:set@1,set@1<1,copy@1<1,"), 1);
    const unsigned lengths[] = {1, sizeof(struct flyt_segment_packed) - 1, sizeof(struct flyt_segment_packed),
                                bytes - 8, bytes - 1};
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        make_segment(client, 10 + i, 3);
        send_nodes(client, 10 + i, 0, content, lengths[i]);
        expect_error(client, CUDA_ERROR_INVALID_VALUE);
        launch(client, stream_id(0), 10 + i);
        expect_error(client, CUDA_ERROR_INVALID_VALUE);
    }
    const size_t fields[] = {offsetof(struct flyt_segment_packed, bytes), offsetof(struct flyt_segment_packed, kind),
                             offsetof(struct flyt_segment_packed, attribute_count),
                             offsetof(struct flyt_segment_packed, before_count),
                             offsetof(struct flyt_segment_packed, param_bytes)};
    for (unsigned i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        memset(content + fields[i], 0xff, 4);
        make_segment(client, 20 + i, 3);
        send_nodes(client, 20 + i, 0, content, bytes);
        expect_error(client, CUDA_ERROR_INVALID_VALUE);
        pack_three(content, address);
    }
    make_segment(client, 30, 2); /* fewer places than nodes */
    send_nodes(client, 30, 0, content, bytes);
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    barrier(client);
}

static void hostile_nodes_are_refused(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    unsigned far = 1;
    create(client, 0, CU_STREAM_NON_BLOCKING);
    make_segment(client, 1, 2);
    add_set(client, 1, 1, address, NULL, 0); /* beyond the end */
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    add_set(client, 1, 0, address, &far, 1); /* behind a later one */
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    add_set(client, 1, 0, address + 1, NULL, 0); /* not aligned, and beyond its allocation */
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    add_set(client, 1, 0, 4096, NULL, 0); /* nobody's memory */
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    SEND(client, FLYT_SEGMENT_NODE, segment_node, .segment_id = segment_id(1), .kind = FLYT_SEGMENT_KINDS);
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    SEND(client, FLYT_SEGMENT_NODE, segment_node, .segment_id = segment_id(1), .kind = FLYT_SEGMENT_KERNEL);
    expect_error(client, CUDA_ERROR_INVALID_HANDLE);
    SEND(client, FLYT_SEGMENT_NODE, segment_node, .segment_id = segment_id(1), .kind = FLYT_SEGMENT_KERNEL,
         .kernel_id = flyt_id(FLYT_ID_KERNEL, 7));
    expect_error(client, CUDA_ERROR_INVALID_HANDLE);
    launch(client, stream_id(0), 2);
    expect_error(client, CUDA_ERROR_INVALID_HANDLE);
    /* One that lacks a node, or that has had a bad one, is never launched. */
    launch(client, stream_id(0), 1);
    expect_error(client, CUDA_ERROR_INVALID_HANDLE);
    make_segment(client, 2, 2);
    add_set(client, 2, 0, address, NULL, 0);
    launch(client, stream_id(0), 2);
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    make_segment(client, 3, FLYT_SEGMENT_NODES_MAX + 1);
    expect_error(client, CUDA_ERROR_OUT_OF_MEMORY);
    make_segment(client, 4, 0); /* no place for any, however often */
    for (unsigned i = 0; i < 3; i++) {
        send_nodes(client, 4, 0, NULL, 0);
        expect_error(client, CUDA_ERROR_INVALID_VALUE);
    }
    SEND(client, FLYT_SEGMENT_DESTROY, segment_destroy, .segment_id = segment_id(4));
    SEND(client, FLYT_SEGMENT_DESTROY, segment_destroy, .segment_id = segment_id(2));
    barrier(client);
    assert_int_equal(client->session.segment_bytes, 0);
    barrier(client);
}

static void add_kernel(struct fixture *client, unsigned place, unsigned *before, unsigned before_count)
{
    SEND(client, FLYT_SEGMENT_NODE, segment_node, .segment_id = segment_id(1), .place = place,
         .kind = FLYT_SEGMENT_KERNEL, .kernel_id = flyt_kernel_id(flyt_id(FLYT_ID_LIBRARY, 1), 0), .grid = {1, 1, 1},
         .block = {1, 1, 1}, .before = {.before_len = before_count, .before_val = before});
}

static void set_edges(struct fixture *client, unsigned place, unsigned *edges, unsigned count)
{
    SEND(client, FLYT_SEGMENT_EDGES, segment_edges, .segment_id = segment_id(1), .place = place,
         .edges = {.edges_len = count, .edges_val = edges});
}

/* The driver's edges have the data that they were told to, between kernels, also where a node is told again; a place
 * that is empty now has none. Where the driver has no such edges, they are whole. */
static void edges_have_data(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    struct flyt_kernel kernel = {.reserved_mask = ~0u};
    struct flyt_library library = {.object.id = flyt_id(FLYT_ID_LIBRARY, 1), .kernels = &kernel, .kernel_count = 1};
    uint64_t address = alloc(client, 64, CUDA_SUCCESS);
    unsigned before[] = {0, 1}, programmatic = 1 | 1 << 16, both[] = {2, 1 | 1 << 16}, high = 3, wide[] = {1, 1, 1};
    create(client, 0, CU_STREAM_NON_BLOCKING);
    barrier(client);
    kernel.library = &library;
    assert_int_equal(flyt_session_insert(&client->session, &library.object, FLYT_ID_LIBRARY), CUDA_SUCCESS);
    make_segment(client, 1, 3);
    add_kernel(client, 0, NULL, 0);
    add_kernel(client, 1, before, 1);
    set_edges(client, 1, &programmatic, 1);
    add_set(client, 1, 2, address, before, 2);
    set_edges(client, 2, both, 2);
    flyt_fake_log_clear();
    launch(client, stream_id(0), 1);
    barrier(client);
    /* What is no kernel waits for the whole of one whose port it is told of by a programmatic edge. */
    assert_int_equal(count_in_log("made:kernel@1,kernel@1,[1>2:1.1]set@1<2,[1>3:2.0]"), 1);
    SEND(client, FLYT_SEGMENT_NODE, segment_node, .segment_id = segment_id(1), .kind = FLYT_SEGMENT_EMPTY);
    add_kernel(client, 2, before, 2);
    add_kernel(client, 0, NULL, 0);
    flyt_fake_log_clear();
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("made:kernel@1,kernel@1,[1>2:1.1]kernel@1,[1>3:2.0][2>3:1.1]"), 1);
    SEND(client, FLYT_SEGMENT_NODE, segment_node, .segment_id = segment_id(1), .kind = FLYT_SEGMENT_SET,
         .dst = range(address, 64), .element_bytes = 4);
    flyt_fake_log_clear();
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("made:set@1,kernel@1<1,kernel@1<1,[2>3:1.1]"), 1);
    flyt_fake_refuse_edge_data();
    add_kernel(client, 0, NULL, 0);
    flyt_fake_log_clear();
    launch(client, stream_id(0), 1);
    barrier(client);
    assert_int_equal(count_in_log("made:kernel@1,kernel@1,[1>2:0.0]kernel@1,[1>3:0.0][2>3:0.0]"), 1);
    set_edges(client, 1, wide, 3);
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    set_edges(client, 1, &high, 1);
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    set_edges(client, 3, &programmatic, 1);
    expect_error(client, CUDA_ERROR_INVALID_VALUE);
    SEND(client, FLYT_SEGMENT_DESTROY, segment_destroy, .segment_id = segment_id(1));
    barrier(client);
    assert_int_equal(client->session.segment_bytes, 0);
    flyt_object_remove(&client->session.objects, &library.object);
}

/* There is an end to what nodes keep of the server's memory. */
static void memory_is_bounded(void **state)
{
    struct managed *self = *state;
    struct fixture *client = self->client;
    make_segment(client, 1, 1);
    barrier(client);
    client->session.segment_bytes = FLYT_SEGMENT_BYTES_MAX - 10;
    SEND(client, FLYT_SEGMENT_NODE, segment_node, .segment_id = segment_id(1), .kind = FLYT_SEGMENT_EMPTY);
    expect_error(client, CUDA_ERROR_OUT_OF_MEMORY);
    client->session.segment_bytes = 0;
    SEND(client, FLYT_SEGMENT_NODE, segment_node, .segment_id = segment_id(1), .kind = FLYT_SEGMENT_EMPTY);
    barrier(client);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(is_made_when_it_is_needed),  TEST(is_made_again_on_other_sms), TEST(conditional_nodes_have_bodies),
        TEST(hostile_bodies_are_refused), TEST(hostile_nodes_are_refused),  TEST(memory_is_bounded),
        TEST(changed_nodes_go_alone),     TEST(packed_nodes_are_taken),     TEST(edges_have_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
