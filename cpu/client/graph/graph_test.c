/* Graphs over a channel without a server: what is sent when, in which order, and what another server is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/event_record.h"
#include "cpu/client/cuda/function.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/stream.h"
#include "cpu/client/cuda/kernel_record.h"
#include "cpu/client/graph/graph_record.h"
#include "rpc/api/segment.h"
#include "rpc/base/id.h"

enum { BYTES = 4096 };

static char text[4096]; /* a word for each call since it was cleared */
static uint64_t next_address = FLYT_WINDOW_BASE, function_id;
static CUdeviceptr memory;
static CUstream stream;

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
    size_t used = strlen(text);
    va_list list;
    va_start(list, format);
    vsnprintf(text + used, sizeof text - used, format, list);
    va_end(list);
}

static void note_node(const flyt_segment_node_args *args)
{
    static const char *const kinds[] = {"empty", "kernel", "set", "copy"};
    note("%s%u", kinds[args->kind], args->place);
    for (unsigned i = 0; i < args->before.before_len; i++)
        note("<%u", args->before.before_val[i]);
    if (args->value)
        note("=%u", args->value);
    for (unsigned i = 0; i < args->attributes.attributes_len; i++)
        note(args->attributes.attributes_val[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY ? "!%d" : "?%d",
             (int)args->attributes.attributes_val[i].value[0]);
    note(" ");
}

static void note_edges(const flyt_segment_edges_args *args)
{
    note("edges%u", args->place);
    for (unsigned i = 0; i < args->edges.edges_len; i++)
        note(":%x", args->edges.edges_val[i]);
    note(" ");
}

/* Of fills and empty nodes. */
static void note_packed(const flyt_segment_nodes_args *args)
{
    struct flyt_segment_packed packed;
    for (unsigned at = 0, place = args->place; at < args->nodes.nodes_len; at += packed.bytes, place++) {
        memcpy(&packed, args->nodes.nodes_val + at, sizeof packed);
        assert_int_equal(packed.bytes, flyt_segment_packed_bytes(&packed));
        const unsigned boxes = packed.kind == FLYT_SEGMENT_SET ? 2 * FLYT_SEGMENT_BOX_BYTES : 0;
        const flyt_segment_node_args node = {
            .kind = packed.kind,
            .place = place,
            .value = packed.value,
            .before = {.before_len = packed.before_count,
                       .before_val = (uint32_t *)(void *)(args->nodes.nodes_val + at + sizeof packed + boxes)}};
        note_node(&node);
    }
}

static void note_conditional(const flyt_segment_conditional_args *args)
{
    note("conditional%u", args->place);
    for (unsigned i = 0; i < args->before.before_len; i++)
        note("<%u", args->before.before_val[i]);
    note("(%u%s", args->default_value, args->flags ? "=" : "");
    for (unsigned i = 0; i < args->bodies.bodies_len; i++)
        note("%s", flyt_id_type(args->bodies.bodies_val[i]) == FLYT_ID_SEGMENT ? ",body" : ",none");
    note(") ");
}

/* The first word of its arguments says where it works. */
static void note_call(const flyt_segment_call_args *args)
{
    uint64_t workspace;
    memcpy(&workspace, args->arguments.arguments_val, sizeof workspace);
    note("call%u", args->place);
    for (unsigned i = 0; i < args->before.before_len; i++)
        note("<%u", args->before.before_val[i]);
    note("(%u of %u in %d) ", args->row, args->objects.objects_len,
         workspace ? (int)((workspace - FLYT_WINDOW_BASE) >> 24) : -1);
}

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    switch (procedure) {
    case FLYT_DEVICE_INFO:
        fake_serve_device_info(res);
        break;
    case FLYT_MEMORY_ALLOC:
        ((flyt_memory_alloc_res *)res)->address = next_address;
        next_address += 1 << 24;
        break;
    case FLYT_SEGMENT_CREATE:
        note("create ");
        break;
    case FLYT_SEGMENT_NODE:
        note_node(args);
        break;
    case FLYT_SEGMENT_NODES:
        note_packed(args);
        break;
    case FLYT_SEGMENT_EDGES:
        note_edges(args);
        break;
    case FLYT_SEGMENT_CONDITIONAL:
        note_conditional(args);
        break;
    case FLYT_SEGMENT_CALL:
        note_call(args);
        break;
    case FLYT_SEGMENT_LAUNCH:
        note("launch ");
        break;
    case FLYT_SEGMENT_UPLOAD:
        note("upload ");
        break;
    case FLYT_SEGMENT_DESTROY:
        note("destroy ");
        break;
    case FLYT_HOST_FUNCTION_LAUNCH:
        function_id = ((const flyt_host_function_launch_args *)args)->function_id;
        note("function ");
        break;
    case FLYT_EVENT_RECORD:
        note("record ");
        break;
    case FLYT_MEMORY_SET:
        note("memory_set ");
        break;
    case FLYT_COPY_IN:
        note("in ");
        break;
    case FLYT_COPY_OUT_TRANSFER:
        note("out ");
        break;
    default:
        break;
    }
}

static void expect_text(const char *want)
{
    assert_string_equal(text, want);
    text[0] = '\0';
}

static CUgraphNode set_node(CUgraph graph, const CUgraphNode *before, size_t count)
{
    const struct flyt_fill fill = {.address = memory, .width = 16, .height = 1, .depth = 1, .element_bytes = 4};
    struct flyt_node_data data;
    CUgraphNode node;
    assert_int_equal(flyt_node_data_fill(&fill, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add(&node, graph, before, NULL, count, &data), CUDA_SUCCESS);
    return node;
}

static void do_nothing(void *user)
{
}

static CUgraphNode host_node(CUgraph graph, CUgraphNode before)
{
    struct flyt_node_data data;
    CUgraphNode node;
    assert_int_equal(flyt_node_data_host(do_nothing, NULL, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add(&node, graph, &before, NULL, before ? 1 : 0, &data), CUDA_SUCCESS);
    return node;
}

static CUgraph make_graph(void)
{
    CUgraph graph;
    assert_int_equal(flyt_graph_create(&graph, 0), CUDA_SUCCESS);
    return graph;
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    assert_int_equal(flyt_graph_instantiate(&exec, graph, 0), CUDA_SUCCESS);
    return exec;
}

/* The host function that was issued last has run. */
static void run_function(void)
{
    fake.handlers->host_function(fake.user, function_id, CUDA_SUCCESS);
}

static void a_launch_is_one_call(void **state)
{
    CUgraph graph = make_graph();
    CUgraphNode a = set_node(graph, NULL, 0), both[2] = {set_node(graph, &a, 1), set_node(graph, &a, 1)};
    set_node(graph, both, 2);
    CUgraphExec exec = instantiate(graph);
    expect_text("create set0 set1<0 set2<0 set3<1<2 ");
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_upload(exec, stream), CUDA_SUCCESS);
    expect_text("launch launch upload ");
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    expect_text("destroy ");
}

/* What does not wait for the host goes before, or with what follows; each part comes after what it depends on. */
static void work_of_the_host_cuts_a_graph(void **state)
{
    static char host[BYTES];
    CUgraph graph = make_graph();
    struct flyt_node_data data;
    struct flyt_copy out = flyt_copy_plain(FLYT_PLACE_HOST, (uintptr_t)host, FLYT_PLACE_DEVICE, memory, BYTES);
    CUgraphNode first = set_node(graph, NULL, 0), host_one = host_node(graph, first), copy;
    set_node(graph, &host_one, 1);
    set_node(graph, &first, 1);
    assert_int_equal(flyt_node_data_copy(&out, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add(&copy, graph, &first, NULL, 1, &data), CUDA_SUCCESS);
    CUgraphExec exec = instantiate(graph);
    expect_text("create set0 set1<0 create set0 ");
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    expect_text("launch function out launch ");
    run_function();
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    expect_text("destroy destroy ");
}

static void child_graphs_are_dissolved(void **state)
{
    CUgraph graph = make_graph(), child = make_graph(), nothing = make_graph();
    CUgraphNode a = set_node(child, NULL, 0), before, parent, empty_parent;
    set_node(child, &a, 1);
    set_node(child, NULL, 0);
    before = set_node(graph, NULL, 0);
    assert_int_equal(flyt_graph_add_child(&parent, graph, &before, 1, child), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add_child(&empty_parent, graph, &parent, 1, nothing), CUDA_SUCCESS);
    set_node(graph, &empty_parent, 1);
    CUgraphExec exec = instantiate(graph);
    /* Between two empty nodes each: what the child begins with comes after the first, what it ends with before the
     * second. */
    expect_text("create set0 empty1<0 set2<1 set3<1 set4<2 empty5<4<3 empty6<5 empty7<6 set8<7 ");
    CUgraph owned;
    assert_int_equal(flyt_graph_node_child(parent, &owned), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(owned), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(child), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(nothing), CUDA_SUCCESS);
    expect_text("destroy ");
}

static CUresult set_value(CUgraphExec exec, CUgraphNode node, unsigned value)
{
    const struct flyt_fill fill = {
        .address = memory, .width = 16, .height = 1, .depth = 1, .element_bytes = 1, .value = value};
    struct flyt_node_data data;
    CUresult result = flyt_node_data_fill(&fill, &data);
    return result ? result : flyt_graph_exec_set(exec, node, &data);
}

/* At the next launch, each of them once, as it is then. */
static void changed_nodes_are_sent_alone(void **state)
{
    CUgraph graph = make_graph();
    CUgraphNode a = set_node(graph, NULL, 0), b = set_node(graph, &a, 1);
    CUgraphExec exec = instantiate(graph);
    expect_text("create set0 set1<0 ");
    assert_int_equal(flyt_graph_exec_enable(exec, b, 0), CUDA_SUCCESS);
    expect_text("");
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    expect_text("empty1<0 launch ");
    assert_int_equal(flyt_graph_exec_enable(exec, b, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    expect_text("launch ");
    assert_int_equal(flyt_graph_exec_enable(exec, b, 1), CUDA_SUCCESS);
    assert_int_equal(set_value(exec, b, 3), CUDA_SUCCESS);
    assert_int_equal(set_value(exec, b, 4), CUDA_SUCCESS);
    assert_int_equal(set_value(exec, a, 5), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    expect_text("set1<0=4 set0=5 launch ");
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    expect_text("destroy ");
}

/* Of a whole update those nodes are sent that do something else. */
static void an_update_sends_what_differs(void **state)
{
    const struct flyt_fill other_fill = {
        .address = memory, .width = 16, .height = 1, .depth = 1, .element_bytes = 1, .value = 9};
    CUgraph graph = make_graph(), other = make_graph();
    CUgraphNode a = set_node(graph, NULL, 0), b, c;
    CUgraphExecUpdateResultInfo info;
    struct flyt_node_data data;
    set_node(graph, &a, 1);
    CUgraphExec exec = instantiate(graph);
    expect_text("create set0 set1<0 ");
    b = set_node(other, NULL, 0);
    assert_int_equal(flyt_graph_exec_update(exec, graph, &info), CUDA_SUCCESS);
    assert_int_equal(flyt_node_data_fill(&other_fill, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add(&c, other, &b, NULL, 1, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    expect_text("launch ");
    assert_int_equal(flyt_graph_exec_update(exec, other, &info), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    expect_text("set1<0=9 launch ");
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(other), CUDA_SUCCESS);
    text[0] = '\0';
}

/* Rows of an executable graph become other rows; what has several is refused, alone and in a whole update. */
static void boxes_of_an_executable_graph_stay(void **state)
{
    struct flyt_fill box = {
        .address = memory, .width = 16, .height = 2, .depth = 1, .pitch_bytes = 32, .element_bytes = 1};
    struct flyt_copy boxes = {.dst = {FLYT_PLACE_DEVICE, memory, 32, 64},
                              .src = {FLYT_PLACE_DEVICE, memory + 1024, 32, 64},
                              .width_bytes = 16,
                              .height = 2,
                              .depth = 1};
    CUgraph graph = make_graph(), other;
    CUgraphNode fill, copy, told;
    CUgraphExecUpdateResultInfo info;
    struct flyt_node_data data;
    assert_int_equal(flyt_node_data_fill(&box, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add(&fill, graph, NULL, NULL, 0, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_node_data_copy(&boxes, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add(&copy, graph, NULL, NULL, 0, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_clone(&other, graph), CUDA_SUCCESS);
    CUgraphExec exec = instantiate(graph);
    assert_int_equal(flyt_graph_exec_update(exec, other, &info), CUDA_SUCCESS);
    assert_int_equal(set_value(exec, fill, 3), CUDA_ERROR_INVALID_VALUE);
    box.value = 7;
    assert_int_equal(flyt_node_data_fill(&box, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_exec_set(exec, fill, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_node_data_copy(&boxes, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_exec_set(exec, copy, &data), CUDA_ERROR_INVALID_VALUE);
    boxes.src.address += 1024;
    assert_int_equal(flyt_node_data_copy(&boxes, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_node_in_clone(&told, copy, other), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_node_set(told, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_exec_update(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
    assert_ptr_equal(info.errorNode, told);
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(other), CUDA_SUCCESS);
    text[0] = '\0';
}

/* A copy that goes to the memory of the host now is a call of its own, and its graph another one. */
static void a_node_that_goes_another_way_makes_another_segment(void **state)
{
    static char host[64];
    const struct flyt_copy inside = {.dst = {.address = memory, .place = FLYT_PLACE_DEVICE},
                                     .src = {.address = memory + 1024, .place = FLYT_PLACE_DEVICE},
                                     .width_bytes = 16,
                                     .height = 1,
                                     .depth = 1};
    struct flyt_copy out = inside;
    CUgraph graph = make_graph();
    CUgraphNode node;
    struct flyt_node_data data;
    assert_int_equal(flyt_node_data_copy(&inside, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add(&node, graph, NULL, NULL, 0, &data), CUDA_SUCCESS);
    CUgraphExec exec = instantiate(graph);
    expect_text("create copy0 ");
    out.dst = (struct flyt_copy_side){.address = (uintptr_t)host, .place = FLYT_PLACE_HOST};
    assert_int_equal(flyt_node_data_copy(&out, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_exec_set(exec, node, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_upload(exec, stream), CUDA_SUCCESS);
    expect_text("destroy ");
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    text[0] = '\0';
}

static void a_capture_sends_nothing(void **state)
{
    const struct flyt_fill fill = {.address = memory, .width = 16, .height = 1, .depth = 1, .element_bytes = 1};
    CUgraph graph;
    CUstream other;
    CUevent event;
    size_t count = 0;
    assert_int_equal(flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &other), CUDA_SUCCESS);
    assert_int_equal(flyt_event_create(CU_EVENT_DISABLE_TIMING, &event), CUDA_SUCCESS);
    assert_int_equal(flyt_capture_begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    assert_int_equal(flyt_fill(&fill, stream, true), CUDA_SUCCESS);
    assert_int_equal(flyt_event_record(event, stream, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_wait_event(other, event, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_fill(&fill, other, true), CUDA_SUCCESS);
    assert_int_equal(flyt_host_function_launch(stream, do_nothing, NULL), CUDA_SUCCESS);
    assert_int_equal(flyt_event_record(event, other, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_wait_event(stream, event, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_fill(&fill, stream, true), CUDA_SUCCESS);
    assert_int_equal(flyt_capture_end(stream, &graph), CUDA_SUCCESS);
    expect_text("");
    assert_int_equal(flyt_graph_nodes(graph, NULL, &count), CUDA_SUCCESS);
    assert_int_equal(count, 4);
    assert_int_equal(flyt_graph_edges(graph, NULL, NULL, NULL, &count), CUDA_SUCCESS);
    assert_int_equal(count, 4);
    /* The streams are as before. */
    assert_int_equal(flyt_fill(&fill, other, true), CUDA_SUCCESS);
    expect_text("memory_set ");
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    assert_int_equal(flyt_event_destroy(event), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_destroy(other), CUDA_SUCCESS);
}

/* An event that other processes have is recorded by each launch, and the server has heard of it then. */
static void shared_events_are_recorded(void **state)
{
    CUgraph graph = make_graph();
    CUgraphNode node;
    CUevent event;
    struct flyt_node_data data;
    assert_int_equal(flyt_event_create(CU_EVENT_DISABLE_TIMING, &event), CUDA_SUCCESS);
    flyt_event_find(event)->flags |= CU_EVENT_INTERPROCESS;
    atomic_store(&flyt_event_find(event)->sharing, FLYT_EVENT_EXPORTED);
    assert_int_equal(flyt_node_data_event(event, false, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add(&node, graph, NULL, NULL, 0, &data), CUDA_SUCCESS);
    CUgraphExec exec = instantiate(graph);
    const unsigned asked = fake.call_count[FLYT_EVENT_QUERY];
    text[0] = '\0';
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    expect_text("record record ");
    assert_int_equal(fake.call_count[FLYT_EVENT_QUERY], asked + 2);
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    assert_int_equal(flyt_event_destroy(event), CUDA_SUCCESS);
}

/* A stream that ends takes its capture with it; nothing of either is left. */
static void a_stream_ends_its_capture(void **state)
{
    CUstream one, two;
    CUgraph graph;
    assert_int_equal(flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &one), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &two), CUDA_SUCCESS);
    assert_int_equal(flyt_capture_begin(one, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    CUevent event;
    assert_int_equal(flyt_event_create(CU_EVENT_DISABLE_TIMING, &event), CUDA_SUCCESS);
    assert_int_equal(flyt_event_record(event, one, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_wait_event(two, event, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_destroy(two), CUDA_SUCCESS);
    assert_int_equal(flyt_capture_end(one, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(flyt_capture_begin(one, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_destroy(one), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&flyt_captures.count), 0);
    assert_int_equal(flyt_stream_wait_event(stream, event, 0), CUDA_ERROR_CAPTURED_EVENT);
    assert_int_equal(flyt_event_destroy(event), CUDA_SUCCESS);
}

static struct flyt_restore restore_at(uint64_t sequence, struct flyt_error *err)
{
    return (struct flyt_restore){
        .fresh = (struct flyt_channel *)(void *)&fake.call_count, .sequence = sequence, .err = err};
}

/* Another server is told of what there was behind that call. */
static void segments_are_made_again(void **state)
{
    struct flyt_error err = {0};
    CUgraph graph = make_graph();
    CUgraphNode a = set_node(graph, NULL, 0);
    set_node(graph, &a, 1);
    uint64_t before = fake.sequence;
    CUgraphExec exec = instantiate(graph);
    uint64_t made = fake.sequence;
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    uint64_t ended = fake.sequence;
    text[0] = '\0';
    struct flyt_restore restore = restore_at(before, &err);
    assert_int_equal(flyt_segment_restore(&restore), 0);
    expect_text("");
    flyt_restore_end(&restore);
    restore = restore_at(made, &err);
    assert_int_equal(flyt_segment_restore(&restore), 0);
    expect_text("create set0 set1<0 ");
    flyt_restore_end(&restore);
    restore = restore_at(ended, &err);
    assert_int_equal(flyt_segment_restore(&restore), 0);
    expect_text("");
    flyt_restore_end(&restore);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
}

static void expect_restored(uint64_t sequence, const char *want)
{
    struct flyt_error err = {0};
    struct flyt_restore restore = restore_at(sequence, &err);
    text[0] = '\0';
    assert_int_equal(flyt_segment_restore(&restore), 0);
    expect_text(want);
    flyt_restore_end(&restore);
}

/* Launches behind that call come again, and find nodes as they were then, until the changes come again too. */
static void changed_nodes_are_made_again_as_they_were(void **state)
{
    CUgraph graph = make_graph();
    CUgraphNode a = set_node(graph, NULL, 0), b = set_node(graph, &a, 1);
    CUgraphExec exec = instantiate(graph);
    uint64_t made[4] = {fake.sequence};
    for (unsigned i = 1; i < 4; i++) {
        assert_int_equal(set_value(exec, b, i), CUDA_SUCCESS);
        assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
        made[i] = fake.sequence;
    }
    expect_restored(made[0], "create set0 set1<0 ");
    expect_restored(made[1], "create set0 set1<0=1 ");
    expect_restored(made[2], "create set0 set1<0=2 ");
    expect_restored(made[2] + 1, "create set0 set1<0=3 ");
    /* What the server has executed needs to be known no more; what another one may go on behind does. */
    fake.progress.executed = made[1];
    assert_int_equal(set_value(exec, b, 4), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    expect_restored(made[1], "create set0 set1<0=1 ");
    expect_restored(made[3], "create set0 set1<0=3 ");
    expect_restored(fake.sequence, "create "); /* no call that comes again needs its nodes */
    fake.progress.executed = 0;
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    text[0] = '\0';
}

/* A server that gets a session gets the nodes of its graphs when they are launched there, once, and as they are then;
 * those that calls which come again mean it gets at once. */
static void nodes_follow_their_segment(void **state)
{
    CUgraph graph = make_graph();
    CUgraphNode a = set_node(graph, NULL, 0), b = set_node(graph, &a, 1);
    CUgraphExec exec = instantiate(graph);
    expect_text("create set0 set1<0 ");
    expect_restored(fake.sequence, "create set0 set1<0 "); /* one that was never launched may be a body */
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    const uint64_t launched = fake.sequence;
    text[0] = '\0';
    expect_restored(launched - 1, "create set0 set1<0 ");
    expect_restored(launched, "create ");
    expect_restored(launched, "create "); /* at one more */
    const uint64_t there = fake.sequence;
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    expect_text("set0 set1<0 launch ");
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    expect_text("launch ");
    /* What the second server was told, as far as it had come. */
    expect_restored(there, "create ");
    expect_restored(there + 1, "create set0 ");
    expect_restored(there + 2, "create set0 set1<0 ");
    expect_restored(fake.sequence, "create ");
    /* A change has all of it made anew. */
    assert_int_equal(set_value(exec, b, 7), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    expect_text("destroy create set0 set1<0=7 launch ");
    assert_int_equal(set_value(exec, b, 8), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    expect_text("set1<0=8 launch ");
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    text[0] = '\0';
}

/* Where nothing is executed, what nodes were is known as far back as the channel keeps calls, and no further: nobody
 * asks for what was before. */
static void earlier_nodes_do_not_pile_up(void **state)
{
    enum { CHANGES = 40000 };
    CUgraph graph = make_graph();
    CUgraphNode a = set_node(graph, NULL, 0), b = set_node(graph, &a, 1);
    CUgraphExec exec = instantiate(graph);
    char want[64];
    CUstream own;
    const unsigned waits = fake.call_count[FLYT_STREAM_SYNCHRONIZE];
    uint64_t first = 0, middle = 0, after_middle = 0;
    assert_int_equal(flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &own), CUDA_SUCCESS);
    for (unsigned i = 1; i <= CHANGES; i++) {
        assert_int_equal(set_value(exec, b, i), CUDA_SUCCESS);
        assert_int_equal(flyt_graph_launch(exec, own), CUDA_SUCCESS);
        fake.handlers->credit(fake.user, (uint64_t)(uintptr_t)own, i);
        first = i == 1 ? fake.sequence : first;
        middle = i == CHANGES / 2 ? fake.sequence : middle;
        after_middle = i == CHANGES / 2 + 1 ? fake.sequence : after_middle;
        text[0] = '\0';
    }
    assert_int_equal(fake.call_count[FLYT_STREAM_SYNCHRONIZE], waits + 1); /* the server has enough before it */
    expect_restored(first, "create set0 set1<0=1 ");
    fake.kept_gone = middle;
    assert_int_equal(set_value(exec, a, 1), CUDA_SUCCESS); /* another node's */
    assert_int_equal(flyt_graph_launch(exec, own), CUDA_SUCCESS);
    const uint64_t last = fake.sequence;
    expect_restored(first, "create set0 "); /* what the other one was then is not known any more */
    snprintf(want, sizeof want, "create set0 set1<0=%u ", CHANGES / 2);
    expect_restored(middle, want);
    snprintf(want, sizeof want, "create set0 set1<0=%u ", CHANGES / 2 + 1);
    expect_restored(after_middle, want);
    snprintf(want, sizeof want, "create set0=1 set1<0=%u ", CHANGES);
    expect_restored(last - 1, want);
    fake.kept_gone = 0;
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    text[0] = '\0';
}

static CUresult try_conditional(CUgraph graph, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                                unsigned size, CUgraphNode before, CUgraph **ret_bodies)
{
    const CUDA_CONDITIONAL_NODE_PARAMS params = {.handle = handle, .type = type, .size = size};
    struct flyt_node_data data;
    CUgraphNode node;
    CUresult result = flyt_node_data_conditional(&params, &data);
    if (result)
        return result;
    *ret_bodies = data.conditional.told;
    return flyt_graph_add(&node, graph, &before, NULL, before ? 1 : 0, &data);
}

/* attribute.id CU_LAUNCH_ATTRIBUTE_IGNORE: it has none. */
static CUgraphNode kernel_node(CUgraph graph, flyt_launch_attribute attribute)
{
    char params = 0;
    struct flyt_launch_taken taken = {
        .attributes = &attribute, .attribute_count = attribute.id != CU_LAUNCH_ATTRIBUTE_IGNORE, .buffer = &params};
    const struct flyt_node_data data = {.kind = FLYT_NODE_KERNEL, .kernel.taken = &taken};
    struct flyt_node_data own;
    CUgraphNode node;
    assert_int_equal(flyt_node_data_clone(&data, &own), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add(&node, graph, NULL, NULL, 0, &own), CUDA_SUCCESS);
    return node;
}

/* What edges have goes behind the node that they lead to, to another server too. It is not everything's: ports are
 * those of kernels, and programmatic edges lead to such. */
static void edges_have_data(void **state)
{
    const flyt_launch_attribute none = {.id = CU_LAUNCH_ATTRIBUTE_IGNORE};
    const CUgraphEdgeData programmatic = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                          .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC},
                          begun = {.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER},
                          without_port = {.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
    CUgraph graph = make_graph();
    CUgraphNode a = kernel_node(graph, none), b = kernel_node(graph, none), c = set_node(graph, NULL, 0);
    assert_int_equal(flyt_graph_edges_add(graph, &a, &b, &without_port, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_edges_add(graph, &a, &c, &programmatic, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_edges_add(graph, &c, &b, &programmatic, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_edges_add(graph, &c, &b, &begun, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_edges_add(graph, &a, &b, &programmatic, 1), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_edges_add(graph, &b, &c, NULL, 1), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_edges_add(graph, &a, &c, &begun, 1), CUDA_SUCCESS);
    CUgraphExec exec = instantiate(graph);
    expect_text("create kernel0 kernel1<0 edges1:10001 set2<1<0 edges2:0:2 ");
    const uint64_t made = fake.sequence;
    assert_int_equal(set_value(exec, c, 3), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_launch(exec, stream), CUDA_SUCCESS);
    expect_text("set2<1<0=3 edges2:0:2 launch ");
    expect_restored(made, "create kernel0 kernel1<0 edges1:10001 set2<1<0 edges2:0:2 ");
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    expect_text("destroy ");
}

/* Priorities of nodes go to the server where the graph is instantiated so that they count, then all of them. */
static void priorities_are_sent_where_they_count(void **state)
{
    const flyt_launch_attribute none = {.id = CU_LAUNCH_ATTRIBUTE_IGNORE},
                                high = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value = {(uint32_t)-3}},
                                other = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value = {1}};
    CUgraph graph = make_graph();
    CUgraphExec exec;
    cuuint64_t flags;
    kernel_node(graph, none);
    kernel_node(graph, high);
    kernel_node(graph, other);
    exec = instantiate(graph);
    expect_text("create kernel0 kernel1 kernel2?1 ");
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    expect_text("destroy ");
    assert_int_equal(flyt_graph_instantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY), CUDA_SUCCESS);
    expect_text("create kernel0!0 kernel1!-3 kernel2?1!0 ");
    assert_int_equal(flyt_graph_exec_flags(exec, &flags), CUDA_SUCCESS);
    assert_int_equal(flags, 0);
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    expect_text("destroy ");
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
}

/* Bodies go before the segment that names them, and end after it; another server gets all of them. */
static void bodies_are_segments(void **state)
{
    struct flyt_error err = {0};
    CUgraph graph = make_graph(), *outer = NULL, *inner = NULL;
    CUgraphConditionalHandle handle, nested;
    CUgraphNode a = set_node(graph, NULL, 0);
    assert_int_equal(flyt_graph_condition_create(&handle, graph, NULL, 3, CU_GRAPH_COND_ASSIGN_DEFAULT), CUDA_SUCCESS);
    assert_int_equal(try_conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 2, a, &outer), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_condition_create(&nested, outer[1], NULL, 0, 0), CUDA_SUCCESS);
    assert_int_equal(try_conditional(outer[1], nested, CU_GRAPH_COND_TYPE_WHILE, 1, NULL, &inner), CUDA_SUCCESS);
    a = set_node(outer[0], NULL, 0);
    set_node(outer[0], &a, 1);
    set_node(inner[0], NULL, 0);
    CUgraphExec exec = instantiate(graph);
    static const char made[] =
        "create set0 set1<0 create set0 create conditional0(0,body) create set0 conditional1<0(3=,body,body) ";
    expect_text(made);
    uint64_t sequence = fake.sequence;
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    expect_text("destroy destroy destroy destroy ");
    struct flyt_restore restore = restore_at(sequence, &err);
    assert_int_equal(flyt_segment_restore(&restore), 0);
    expect_text(made);
    flyt_restore_end(&restore);
    restore = restore_at(fake.sequence, &err);
    assert_int_equal(flyt_segment_restore(&restore), 0);
    expect_text("");
    flyt_restore_end(&restore);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
}

/* A library's call, as it was captured. */
struct fake_call {
    struct flyt_captured_call base;
    uint32_t row;
    bool has_gone;
    uint64_t object_id, workspace;
};

static CUresult tell_fake(const struct flyt_captured_call *base, struct flyt_captured_told *ret_told)
{
    const struct fake_call *self = (const struct fake_call *)base;
    *ret_told = (struct flyt_captured_told){.objects = {self->object_id},
                                            .object_count = 1,
                                            .row = self->row,
                                            .arguments = &self->workspace,
                                            .bytes = sizeof self->workspace};
    return self->has_gone ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult add_call(CUgraph graph, const CUgraphNode *before, struct fake_call call)
{
    const struct flyt_node_data data = {.kind = FLYT_NODE_CALL, .call = &call.base};
    struct flyt_node_data own;
    CUgraphNode node;
    call.base.tell = tell_fake;
    call.base.bytes = sizeof call;
    assert_int_equal(flyt_node_data_clone(&data, &own), CUDA_SUCCESS);
    return flyt_graph_add(&node, graph, before, NULL, before ? 1 : 0, &own);
}

/* Calls of libraries go into bodies, with memory of the graph's own to work in: one piece for all of one object and
 * stream, as large as each of them is told. What waits in the library does not, nor does a call whose object has gone.
 */
static void bodies_have_calls_of_libraries(void **state)
{
    struct flyt_error err = {0};
    CUgraph graph = make_graph(), child = make_graph(), *bodies = NULL;
    CUgraphConditionalHandle handle;
    CUgraphNode node;
    CUgraphExec exec;
    const struct fake_call own = {.row = 7, .object_id = 1},
                           given = {.base = {.workspace_bytes = 64, .stream_number = 2}, .row = 8, .object_id = 1},
                           larger = {.base = {.workspace_bytes = 96, .stream_number = 2}, .row = 8, .object_id = 1},
                           other = {.base = {.workspace_bytes = 64, .stream_number = 3}, .row = 9, .object_id = 1},
                           waiting = {.base = {.waits = true}}, gone = {.has_gone = true};
    assert_int_equal(flyt_graph_condition_create(&handle, graph, NULL, 1, 0), CUDA_SUCCESS);
    assert_int_equal(try_conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 2, NULL, &bodies), CUDA_SUCCESS);
    CUgraphNode set = set_node(bodies[0], NULL, 0);
    assert_int_equal(add_call(bodies[0], &set, own), CUDA_SUCCESS);
    assert_int_equal(add_call(bodies[0], &set, given), CUDA_SUCCESS);
    assert_int_equal(add_call(child, NULL, other), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add_child(&node, bodies[1], NULL, 0, child), CUDA_SUCCESS);
    assert_int_equal(add_call(bodies[1], NULL, given), CUDA_SUCCESS);
    assert_int_equal(add_call(bodies[1], NULL, larger), CUDA_SUCCESS);
    assert_int_equal(add_call(bodies[1], NULL, waiting), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(add_call(child, NULL, waiting), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add_child(&node, bodies[1], NULL, 0, child), CUDA_ERROR_NOT_SUPPORTED);
    const int first = (int)((next_address - FLYT_WINDOW_BASE) >> 24);
    char made[256];
    snprintf(made, sizeof made,
             "create set0 call1<0(7 of 1 in -1) call2<0(8 of 1 in %d) "
             "create empty0 call1<0(9 of 1 in %d) empty2<1 call3(8 of 1 in %d) call4(8 of 1 in %d) "
             "create conditional0(1,body,body) ",
             first, first + 1, first, first + 2);
    exec = instantiate(graph);
    expect_text(made);
    struct flyt_restore restore = restore_at(fake.sequence, &err);
    assert_int_equal(flyt_segment_restore(&restore), 0);
    expect_text(made);
    flyt_restore_end(&restore);
    fake.lacks = FLYT_SEGMENT_CALL; /* the session goes on there, and such a graph is not launched */
    restore = restore_at(fake.sequence, &err);
    assert_int_equal(flyt_segment_restore(&restore), 0);
    expect_text("create set0 create empty0 create conditional0(1,body,body) ");
    flyt_restore_end(&restore);
    fake.lacks = 0;
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    expect_text("destroy destroy destroy ");
    assert_int_equal(add_call(bodies[1], NULL, gone), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_instantiate(&exec, graph, 0), CUDA_ERROR_INVALID_HANDLE);
    text[0] = '\0';
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(child), CUDA_SUCCESS);
}

/* The driver copies any number of bytes within the GPU's memory by itself, in bodies, too. */
static void bodies_have_copies_of_any_size(void **state)
{
    const uint64_t bytes = 5ull << 30;
    CUgraph graph = make_graph(), *bodies = NULL;
    CUgraphConditionalHandle handle;
    CUgraphNode node;
    struct flyt_node_data data;
    CUdeviceptr large;
    next_address = (next_address + (1ull << 34)) & ~((1ull << 34) - 1);
    assert_int_equal(flyt_memory_alloc(2 * bytes, &large), CUDA_SUCCESS);
    next_address += 1ull << 34;
    const struct flyt_copy line = flyt_copy_plain(FLYT_PLACE_DEVICE, large, FLYT_PLACE_DEVICE, large + bytes, bytes);
    assert_int_equal(flyt_graph_condition_create(&handle, graph, NULL, 1, 0), CUDA_SUCCESS);
    assert_int_equal(try_conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &bodies), CUDA_SUCCESS);
    assert_int_equal(flyt_node_data_copy(&line, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add(&node, bodies[0], NULL, NULL, 0, &data), CUDA_SUCCESS);
    CUgraphExec exec = instantiate(graph);
    expect_text("create copy0 create conditional0(1,body) ");
    assert_int_equal(flyt_graph_exec_destroy(exec), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    assert_int_equal(flyt_memory_free(large), CUDA_SUCCESS);
    text[0] = '\0';
}

static void wrong_conditions_are_refused(void **state)
{
    CUgraph graph = make_graph(), other = make_graph(), child = make_graph(), owned, *bodies = NULL, *none;
    CUgraphConditionalHandle handle, unread;
    CUgraphExec exec;
    CUgraphNode node;
    struct flyt_node_data data;
    assert_int_equal(flyt_graph_condition_create(&handle, graph, NULL, 0, 2), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_condition_create(NULL, graph, NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_add_child(&node, other, NULL, 0, child), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_node_child(node, &owned), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_condition_create(&handle, owned, NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_condition_create(&handle, graph, NULL, 0, 0), CUDA_SUCCESS);
    assert_int_equal(try_conditional(other, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &none), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(try_conditional(owned, handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &none), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(try_conditional(graph, 7, CU_GRAPH_COND_TYPE_IF, 1, NULL, &none), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(try_conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 0, NULL, &none), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(try_conditional(graph, handle, CU_GRAPH_COND_TYPE_IF, 2, NULL, &bodies), CUDA_SUCCESS);
    assert_int_equal(try_conditional(bodies[1], handle, CU_GRAPH_COND_TYPE_IF, 1, NULL, &none),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_destroy(bodies[0]), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_add_child(&node, other, NULL, 0, graph), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(flyt_node_data_host(do_nothing, NULL, &data), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_add(&node, bodies[0], NULL, NULL, 0, &data), CUDA_ERROR_NOT_SUPPORTED);
    host_node(child, NULL);
    assert_int_equal(flyt_graph_add_child(&node, bodies[0], NULL, 0, child), CUDA_ERROR_NOT_SUPPORTED);
    /* A body goes with its node while something is captured into it. */
    assert_int_equal(flyt_capture_begin_to(stream, bodies[1], NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED),
                     CUDA_SUCCESS);
    assert_int_equal(flyt_graph_condition_create(&unread, graph, NULL, 0, 0), CUDA_SUCCESS);
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    assert_int_equal(flyt_graph_instantiate_params(&exec, graph, &params), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(params.result_out, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    assert_int_equal(flyt_capture_end(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(atomic_load(&flyt_captures.count), 0);
    assert_int_equal(flyt_graph_destroy(other), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_destroy(child), CUDA_SUCCESS);
    text[0] = '\0';
}

static void wrong_handles_are_refused(void **state)
{
    CUgraph graph = make_graph(), clone;
    CUgraphNode node = set_node(graph, NULL, 0), found;
    CUgraphExec exec;
    size_t count;
    const CUgraph none = (CUgraph)(uintptr_t)flyt_id(FLYT_ID_GRAPH, 900);
    assert_int_equal(flyt_graph_nodes(none, NULL, &count), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_nodes((CUgraph)node, NULL, &count), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_destroy(NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_instantiate(&exec, none, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_instantiate(&exec, graph, 1 << 7), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_instantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH),
                     CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(flyt_graph_edges_add(graph, &node, &node, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_clone(&clone, graph), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_node_in_clone(&found, node, clone), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_edges_add(graph, &node, &found, NULL, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_SUCCESS);
    assert_int_equal(flyt_graph_node_destroy(node), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_destroy(graph), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_graph_destroy(clone), CUDA_SUCCESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launch_is_one_call),
        cmocka_unit_test(work_of_the_host_cuts_a_graph),
        cmocka_unit_test(child_graphs_are_dissolved),
        cmocka_unit_test(changed_nodes_are_sent_alone),
        cmocka_unit_test(an_update_sends_what_differs),
        cmocka_unit_test(boxes_of_an_executable_graph_stay),
        cmocka_unit_test(a_node_that_goes_another_way_makes_another_segment),
        cmocka_unit_test(changed_nodes_are_made_again_as_they_were),
        cmocka_unit_test(nodes_follow_their_segment),
        cmocka_unit_test(earlier_nodes_do_not_pile_up),
        cmocka_unit_test(a_capture_sends_nothing),
        cmocka_unit_test(shared_events_are_recorded),
        cmocka_unit_test(a_stream_ends_its_capture),
        cmocka_unit_test(segments_are_made_again),
        cmocka_unit_test(wrong_handles_are_refused),
        cmocka_unit_test(edges_have_data),
        cmocka_unit_test(priorities_are_sent_where_they_count),
        cmocka_unit_test(bodies_are_segments),
        cmocka_unit_test(bodies_have_calls_of_libraries),
        cmocka_unit_test(bodies_have_copies_of_any_size),
        cmocka_unit_test(wrong_conditions_are_refused),
    };
    setenv("FLYT_SERVER", "unix:///nowhere", 1);
    fake.serve = serve;
    if (flyt_runtime_enter() || flyt_memory_alloc(BYTES, &memory) ||
        flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &stream))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
