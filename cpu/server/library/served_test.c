/* Calls of NVIDIA's libraries over the wire, to a session whose libraries are functions of this test: the order of
 * those that wait, in full streams and beside one which a thread makes; and what is refused of lists of attributes and
 * of orders for NCCL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <dlfcn.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/core/observer.h"
#include "cpu/server/library/library.h"
#include "cpu/server/library/nccl.h"
#include "cpu/server/test/fake_client.h"
#include "cpu/server/test/fake_library.h"
#include "flyt_lib_cudnn.h"
#include "flyt_lib_curand.h"
#include "flyt_lib_nccl.h"
#include "flyt_objects.h"
#include "rpc/library/cudnn_list.h"
#include "rpc/library/nccl_list.h"

#define SEEN __attribute__((visibility("default")))

extern struct flyt_server_library flyt_server_library_cudnn, flyt_server_library_curand, flyt_server_library_nccl;

enum { PLAN = FLYT_CUDNN_EXECUTION_PLAN, TENSOR = FLYT_CUDNN_TENSOR };

static char lines[512];
static sem_t may_finalize, is_finalizing;
static unsigned made_count;

static void say(const char *word)
{
    size_t at = strlen(lines);
    snprintf(lines + at, sizeof lines - at, "%s ", word);
}

/* ---- the libraries ---- */

#define IS_FINE(name, ...)                                                                                             \
    SEEN int name(__VA_ARGS__);                                                                                        \
    SEEN int name(__VA_ARGS__)

IS_FINE(curandCreateGenerator, void **generator, int type)
{
    *generator = &made_count;
    made_count++;
    return 0;
}

IS_FINE(curandSetStream, void *generator, void *stream)
{
    return 0;
}

IS_FINE(curandGenerate, void *generator, void *out, size_t count)
{
    say(out ? "later" : "earlier");
    return 0;
}

IS_FINE(cudnnCreate, void **handle)
{
    *handle = &made_count;
    made_count++;
    return 0;
}

IS_FINE(cudnnSetStream, void *handle, void *stream)
{
    return 0;
}

IS_FINE(cudnnDropoutGetStatesSize, void *handle, size_t *bytes)
{
    say("asked");
    return 0;
}

IS_FINE(cudnnBackendCreateDescriptor, int type, void **desc)
{
    *desc = (void *)(uintptr_t)type;
    made_count++;
    return 0;
}

IS_FINE(cudnnBackendSetAttribute, void *desc, int name, int type, int64_t count, const void *elements)
{
    return 0;
}

IS_FINE(cudnnBackendGetAttribute, void *desc, int name, int type, int64_t requested, int64_t *count, void *elements)
{
    *count = 0;
    return 0;
}

IS_FINE(cudnnBackendFinalize, void *desc)
{
    if (desc != (void *)PLAN)
        return 0;
    sem_post(&is_finalizing);
    sem_wait(&may_finalize);
    say("finalized");
    return 0;
}

IS_FINE(cudnnBackendDestroyDescriptor, void *desc)
{
    say("destroyed");
    return 0;
}

struct unique_id {
    char bytes[FLYT_NCCL_UNIQUE_ID_BYTES];
};

IS_FINE(ncclCommInitRank, void)
{
    return 0;
}

IS_FINE(ncclCommInitRankConfig, void **comm, int ranks, struct unique_id id, int rank, void *config)
{
    *comm = &made_count;
    made_count++;
    return 0;
}

IS_FINE(ncclCommAbort, void *comm)
{
    say("aborted");
    return 0;
}

IS_FINE(ncclCommRegister, void *comm, void *buffer, size_t bytes, void **handle)
{
    say("registered");
    *handle = buffer;
    return 0;
}

IS_FINE(ncclCommDeregister, void *comm, void *handle)
{
    say("deregistered");
    return handle == (void *)FLYT_WINDOW_BASE ? 0 : 1;
}

/* As NCCL's, whose numbers are its own. */
IS_FINE(ncclRedOpCreatePreMulSum, int *op, void *scalar, int type, int residence, void *comm)
{
    say("operator");
    *op = 1000;
    return 0;
}

IS_FINE(ncclRedOpDestroy, int op, void *comm)
{
    return op == 1000 ? 0 : 1;
}

/* As if loaded. */
static void load(struct flyt_server_library *library)
{
    void *file = dlopen(NULL, RTLD_NOW);
    assert_true(flyt_server_library_look_up(library, file));
    atomic_store(&library->file, file);
    assert_non_null(dlsym(file, "curandGenerate"));
}

/* ---- the client ---- */

#define CURAND(name) row(&flyt_server_library_curand, name)
#define CUDNN(name)  row(&flyt_server_library_cudnn, name)
#define NCCL(name)   row(&flyt_server_library_nccl, name)

static uint64_t object_id(unsigned number)
{
    return flyt_id(FLYT_ID_LIBOBJECT, number);
}

static uint32_t send_new(struct fixture *self, unsigned number, uint32_t row_id, const void *arguments, size_t bytes)
{
    return SEND(self, FLYT_LIBOBJECT_NEW, libobject_new, .thread = 1, .object_id = object_id(number), .row = row_id,
                .arguments = {(u_int)bytes, (char *)(uintptr_t)arguments});
}

static int await_new(struct fixture *self, uint32_t xid)
{
    flyt_libobject_new_res res = {0};
    await_reply(self, xid, (xdrproc_t)xdr_flyt_libobject_new_res, &res);
    xdr_free((xdrproc_t)xdr_flyt_libobject_new_res, (char *)&res);
    return res.result ? res.result : res.status;
}

static void draw(struct fixture *self, unsigned stream, uint64_t address)
{
    struct {
        struct flyt_args_curandGenerate args;
        uint64_t state FLYT_LIB_ALIGNED;
    } sent = {.args = {.num = 4, .outputPtr = address}};
    uint64_t id = object_id(1);
    SEND(self, FLYT_LIBCALL_STREAM, libcall_stream, .thread = 1, .stream_id = stream_id(stream), .objects = {1, &id},
         .row = CURAND("curandGenerate"), .arguments = {sizeof sent, (char *)&sent});
}

/* What a call without arguments has. */
struct nothing {
    uint64_t room FLYT_LIB_ALIGNED;
};

struct generator {
    struct flyt_args_curandCreateGenerator args FLYT_LIB_ALIGNED;
};

/* A list of one attribute, which names objects. */
struct finalize {
    struct flyt_args_cudnnBackendFinalize args;
    struct {
        struct flyt_cudnn_attribute head FLYT_LIB_ALIGNED;
        uint64_t id;
    } attributes[3];
};

static struct finalize a_plan(void)
{
    struct finalize sent = {.args = {.type = PLAN, .list_bytes = sizeof sent.attributes}};
    static const struct {
        int type;
        unsigned number;
    } named[] = {
        {FLYT_CUDNN_TYPE_HANDLE, 2}, {FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 3}, {FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR, 3}};
    for (unsigned i = 0; i < 3; i++) {
        sent.attributes[i].head =
            (struct flyt_cudnn_attribute){.name = (int)i, .type = named[i].type, .count = 1, .bytes = 8};
        sent.attributes[i].id = object_id(named[i].number);
    }
    return sent;
}

struct tensor {
    struct flyt_args_cudnnBackendFinalize args FLYT_LIB_ALIGNED;
};

/* ---- tests ---- */

static void calls_of_a_sequential_object_keep_their_order(void **state)
{
    struct fixture *self = *state;
    const struct generator made = {{.rng_type = 100}};
    uint64_t address = alloc(self, 64, CUDA_SUCCESS);
    lines[0] = '\0';
    create(self, 0, CU_STREAM_NON_BLOCKING);
    create(self, 1, CU_STREAM_NON_BLOCKING);
    assert_int_equal(await_new(self, send_new(self, 1, CURAND("curandCreateGenerator"), &made, sizeof made)), 0);
    flyt_fake_hold(1);
    for (unsigned i = 0; i < FLYT_STREAM_DEPTH_MAX; i++)
        set(self, stream_id(0), address);
    draw(self, 0, 0);
    draw(self, 1, address);
    query(self, stream_id(1));
    assert_string_equal(lines, "");
    flyt_fake_release(1);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    assert_int_equal(synchronize(self, stream_id(1)), CUDA_SUCCESS);
    assert_string_equal(lines, "earlier later ");
}

static struct flyt_objects_tally tally(struct fixture *self)
{
    return flyt_objects_tally(&self->session.objects, FLYT_OBJECTS_LIBOBJECT);
}

/* What is compared where a session goes on: as many objects, made by other calls, are not what they were. A descriptor
 * may be made again by the other call that makes one. */
static void the_call_that_made_an_object_is_noted(void **state)
{
    struct fixture *self = *state;
    const struct tensor tensor = {{.type = TENSOR}};
    const struct {
        struct flyt_args_cudnnBackendCreateDescriptor args FLYT_LIB_ALIGNED;
    } desc = {{.type = TENSOR}};
    const struct nothing nothing = {0};
    const struct flyt_objects_tally before = tally(self);
    struct flyt_objects_tally with_tensor, with_handle;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(
            await_new(self, i ? send_new(self, 40, CUDNN("cudnnBackendCreateDescriptor"), &desc, sizeof desc)
                              : send_new(self, 40, CUDNN("cudnnBackendFinalize"), &tensor, sizeof tensor)),
            0);
        assert_int_equal(tally(self).count, before.count + 1);
        assert_int_not_equal(tally(self).digest, before.digest);
        assert_true(i == 0 || tally(self).digest == with_tensor.digest);
        with_tensor = tally(self);
        SEND(self, FLYT_LIBOBJECT_FORGET, libobject_forget, .thread = 1, .object_id = object_id(40),
             .row = CUDNN("cudnnBackendDestroyDescriptor"));
        query(self, legacy);
        assert_int_equal(tally(self).count, before.count);
        assert_int_equal(tally(self).digest, before.digest);
    }
    assert_int_equal(await_new(self, send_new(self, 40, CUDNN("cudnnCreate"), &nothing, sizeof nothing)), 0);
    with_handle = tally(self);
    assert_int_equal(with_handle.count, with_tensor.count);
    assert_int_not_equal(with_handle.digest, with_tensor.digest);
    assert_int_equal(await_new(self, send_new(self, 41, CUDNN("cudnnCreate"), &nothing, sizeof nothing)), 0);
    assert_int_not_equal(tally(self).digest - with_handle.digest, with_handle.digest - before.digest);
}

static void what_a_thread_uses_is_its_own(void **state)
{
    struct fixture *self = *state;
    const struct tensor tensor = {{.type = TENSOR}};
    struct finalize plan = a_plan();
    struct {
        struct flyt_args_cudnnDropoutGetStatesSize args;
        uint64_t state FLYT_LIB_ALIGNED;
    } ask = {.args = {.sizeInBytes_bytes = sizeof(size_t)}};
    const struct nothing nothing = {0};
    lines[0] = '\0';
    assert_int_equal(await_new(self, send_new(self, 2, CUDNN("cudnnCreate"), &nothing, sizeof nothing)), 0);
    assert_int_equal(await_new(self, send_new(self, 3, CUDNN("cudnnBackendFinalize"), &tensor, sizeof tensor)), 0);
    uint32_t plan_xid = send_new(self, 4, CUDNN("cudnnBackendFinalize"), &plan, sizeof plan);
    sem_wait(&is_finalizing);
    uint64_t handle = object_id(2);
    SEND(self, FLYT_LIBOBJECT_FORGET, libobject_forget, .thread = 1, .object_id = object_id(3),
         .row = CUDNN("cudnnBackendDestroyDescriptor"));
    uint32_t ask_xid =
        SEND(self, FLYT_LIBCALL_ASK, libcall_ask, .thread = 1, .stream_id = legacy, .objects = {1, &handle},
             .row = CUDNN("cudnnDropoutGetStatesSize"), .arguments = {sizeof ask, (char *)&ask});
    query(self, legacy);
    assert_string_equal(lines, "");
    sem_post(&may_finalize);
    assert_int_equal(await_new(self, plan_xid), 0);
    flyt_libcall_ask_res res = {0};
    await_reply(self, ask_xid, (xdrproc_t)xdr_flyt_libcall_ask_res, &res);
    assert_int_equal(res.result, 0);
    xdr_free((xdrproc_t)xdr_flyt_libcall_ask_res, (char *)&res);
    assert_string_equal(lines, "finalized destroyed asked ");
}

/* The device's reset leaves what a thread's call names, and what it makes. */
static void a_reset_leaves_what_a_thread_uses(void **state)
{
    struct fixture *self = *state;
    const struct tensor tensor = {{.type = TENSOR}};
    struct finalize plan = a_plan();
    const struct nothing nothing = {0};
    flyt_device_reset_res res = {0};
    assert_int_equal(await_new(self, send_new(self, 2, CUDNN("cudnnCreate"), &nothing, sizeof nothing)), 0);
    assert_int_equal(await_new(self, send_new(self, 3, CUDNN("cudnnBackendFinalize"), &tensor, sizeof tensor)), 0);
    uint32_t plan_xid = send_new(self, 4, CUDNN("cudnnBackendFinalize"), &plan, sizeof plan);
    sem_wait(&is_finalizing);
    await_reply(self, SEND(self, FLYT_DEVICE_RESET, device_reset), (xdrproc_t)xdr_flyt_device_reset_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
    sem_post(&may_finalize);
    assert_int_equal(await_new(self, plan_xid), 0);
}

/* Tells a segment's node of a call of a generator's. */
static void tell_call(struct fixture *self, unsigned place, unsigned generator, size_t bytes)
{
    struct {
        struct flyt_args_curandGenerate args;
        uint64_t state FLYT_LIB_ALIGNED;
    } sent = {.args = {.num = 4}};
    uint64_t id = object_id(generator);
    SEND(self, FLYT_SEGMENT_CALL, segment_call, .thread = 1, .segment_id = flyt_id(FLYT_ID_SEGMENT, 1), .place = place,
         .objects = {1, &id}, .row = CURAND("curandGenerate"), .arguments = {(u_int)bytes, (char *)&sent});
}

static void open_curand(struct fixture *self)
{
    flyt_library_open_res opened = {0};
    await_reply(self,
                SEND(self, FLYT_LIBRARY_OPEN, library_open, .thread = 1, .name = (char *)"curand",
                     .client_version = flyt_server_library_curand.version, .environment = (char *)""),
                (xdrproc_t)xdr_flyt_library_open_res, &opened);
    xdr_free((xdrproc_t)xdr_flyt_library_open_res, (char *)&opened);
}

static void launch(struct fixture *self, CUresult want)
{
    flyt_back_call_error error;
    SEND(self, FLYT_SEGMENT_LAUNCH, segment_launch, .thread = 1, .stream_id = stream_id(0),
         .segment_id = flyt_id(FLYT_ID_SEGMENT, 1));
    if (want == CUDA_SUCCESS)
        return;
    await_back(self, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &error);
    assert_int_equal(error.result, want);
}

/* The library's work is captured when the graph is made, once: not while a thread is in a library, whose waiting would
 * break the capture. */
static void a_graphs_calls_are_captured_when_it_is_made(void **state)
{
    struct fixture *self = *state;
    const struct tensor tensor = {{.type = TENSOR}};
    const struct generator made = {{.rng_type = 100}};
    const size_t bytes = sizeof(struct flyt_args_curandGenerate) + FLYT_LIB_ALIGN;
    struct finalize plan = a_plan();
    const struct nothing nothing = {0};
    lines[0] = '\0';
    create(self, 0, CU_STREAM_NON_BLOCKING);
    SEND(self, FLYT_SEGMENT_CREATE, segment_create, .segment_id = flyt_id(FLYT_ID_SEGMENT, 1), .node_count = 2);
    tell_call(self, 0, 1, bytes);
    tell_call(self, 1, 1, bytes);
    launch(self, CUDA_ERROR_INVALID_HANDLE); /* without a library */
    open_curand(self);
    launch(self, CUDA_ERROR_INVALID_HANDLE); /* without the generator */
    assert_int_equal(await_new(self, send_new(self, 1, CURAND("curandCreateGenerator"), &made, sizeof made)), 0);
    assert_int_equal(await_new(self, send_new(self, 2, CUDNN("cudnnCreate"), &nothing, sizeof nothing)), 0);
    assert_int_equal(await_new(self, send_new(self, 3, CUDNN("cudnnBackendFinalize"), &tensor, sizeof tensor)), 0);
    uint32_t plan_xid = send_new(self, 4, CUDNN("cudnnBackendFinalize"), &plan, sizeof plan);
    sem_wait(&is_finalizing);
    flyt_fake_log_clear();
    launch(self, CUDA_SUCCESS);
    launch(self, CUDA_SUCCESS);
    const unsigned made_before = made_count;
    uint32_t next_xid = send_new(self, 5, CUDNN("cudnnCreate"), &nothing, sizeof nothing);
    query(self, legacy);
    assert_string_equal(lines, "");
    assert_int_equal(made_count, made_before); /* else threads could follow each other for ever */
    sem_post(&may_finalize);
    assert_int_equal(await_new(self, plan_xid), 0);
    assert_int_equal(await_new(self, next_xid), 0);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    assert_string_equal(lines, "finalized earlier earlier ");
    assert_int_equal(count_in_log("capture"), 2);
    assert_int_equal(count_in_log("graph:1"), 2);
    assert_int_equal(count_in_log("made:child@0,child@0,"), 1);
    /* Another one at a place makes it anew; so does what is no call of the row's. */
    tell_call(self, 1, 1, bytes);
    launch(self, CUDA_SUCCESS);
    assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    assert_string_equal(lines, "finalized earlier earlier earlier earlier ");
    tell_call(self, 1, 1, FLYT_LIB_ALIGN);
    launch(self, CUDA_ERROR_INVALID_VALUE);
    tell_call(self, 1, 2, bytes); /* a handle of cuDNN's */
    launch(self, CUDA_ERROR_INVALID_HANDLE);
    SEND(self, FLYT_SEGMENT_DESTROY, segment_destroy, .segment_id = flyt_id(FLYT_ID_SEGMENT, 1));
    query(self, legacy);
    assert_int_equal(self->session.segment_bytes, 0);
}

/* A library's launches that use host memory would find nothing of the call there when the graph is launched. */
static void graphs_use_no_host_memory(void **state)
{
    struct fixture *self = *state;
    const struct generator made = {{.rng_type = 100}};
    const CUDA_MEMCPY3D within = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE},
                        from_host = {.srcMemoryType = CU_MEMORYTYPE_HOST, .dstMemoryType = CU_MEMORYTYPE_DEVICE},
                        to_unknown = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                      .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                      .dstDevice = (uintptr_t)&made};
    const struct flyt_fake_node kernel = {.type = CU_GRAPH_NODE_TYPE_KERNEL},
                                function = {.type = CU_GRAPH_NODE_TYPE_HOST},
                                copies[] = {{.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = within},
                                            {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = from_host},
                                            {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = to_unknown}},
                                good_child = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = &copies[0]},
                                bad_child = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = &function};
    const struct flyt_fake_node *const good[] = {&kernel, &copies[0], &good_child}, *const bad[] = {
                                                                                        &function, &copies[1],
                                                                                        &copies[2], &bad_child};
    create(self, 0, CU_STREAM_NON_BLOCKING);
    SEND(self, FLYT_SEGMENT_CREATE, segment_create, .segment_id = flyt_id(FLYT_ID_SEGMENT, 1), .node_count = 1);
    open_curand(self);
    assert_int_equal(await_new(self, send_new(self, 1, CURAND("curandCreateGenerator"), &made, sizeof made)), 0);
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        flyt_fake_capture(bad[i]);
        tell_call(self, 0, 1, sizeof(struct flyt_args_curandGenerate) + FLYT_LIB_ALIGN);
        launch(self, CUDA_ERROR_NOT_SUPPORTED);
    }
    flyt_fake_log_clear();
    for (unsigned i = 0; i < sizeof good / sizeof *good; i++) {
        flyt_fake_capture(good[i]);
        tell_call(self, 0, 1, sizeof(struct flyt_args_curandGenerate) + FLYT_LIB_ALIGN);
        launch(self, CUDA_SUCCESS);
        assert_int_equal(synchronize(self, stream_id(0)), CUDA_SUCCESS);
    }
    assert_int_equal(count_in_log("graph:1"), 3);
    flyt_fake_capture(NULL);
}

/* A call for a thread that waited for an object first, and then for a capture, is made when that is over: nothing else
 * ends that would have it tried again. */
static void what_waits_for_a_capture_follows_it(void **state)
{
    struct fixture *self = *state;
    const struct tensor tensor = {{.type = TENSOR}};
    const struct generator made = {{.rng_type = 100}};
    struct finalize plan = a_plan();
    const struct nothing nothing = {0};
    lines[0] = '\0';
    create(self, 0, CU_STREAM_NON_BLOCKING);
    SEND(self, FLYT_SEGMENT_CREATE, segment_create, .segment_id = flyt_id(FLYT_ID_SEGMENT, 1), .node_count = 1);
    tell_call(self, 0, 1, sizeof(struct flyt_args_curandGenerate) + FLYT_LIB_ALIGN);
    open_curand(self);
    assert_int_equal(await_new(self, send_new(self, 1, CURAND("curandCreateGenerator"), &made, sizeof made)), 0);
    assert_int_equal(await_new(self, send_new(self, 2, CUDNN("cudnnCreate"), &nothing, sizeof nothing)), 0);
    assert_int_equal(await_new(self, send_new(self, 3, CUDNN("cudnnBackendFinalize"), &tensor, sizeof tensor)), 0);
    uint32_t plan_xid = send_new(self, 4, CUDNN("cudnnBackendFinalize"), &plan, sizeof plan);
    sem_wait(&is_finalizing);
    uint32_t next_xid = send_new(self, 5, CUDNN("cudnnBackendFinalize"), &plan, sizeof plan);
    launch(self, CUDA_SUCCESS);
    query(self, legacy);
    assert_string_equal(lines, "");
    sem_post(&may_finalize);
    sem_post(&may_finalize);
    assert_int_equal(await_new(self, plan_xid), 0);
    assert_int_equal(await_new(self, next_xid), 0);
    sem_wait(&is_finalizing);
    assert_string_equal(lines, "finalized earlier finalized ");
}

/* No thread waits for a test that has failed. */
static int let_go(void **state)
{
    sem_post(&may_finalize);
    int status = tear_down(state);
    while (!sem_trywait(&may_finalize))
        ;
    return status;
}

static void an_id_that_is_known_costs_the_library_nothing(void **state)
{
    struct fixture *self = *state;
    const struct nothing nothing = {0};
    assert_int_equal(await_new(self, send_new(self, 2, CUDNN("cudnnCreate"), &nothing, sizeof nothing)), 0);
    unsigned before = made_count;
    assert_int_equal(await_new(self, send_new(self, 2, CUDNN("cudnnCreate"), &nothing, sizeof nothing)),
                     CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(made_count, before);
}

/* What libraries have taken by themselves counts, once it was measured. */
static void beyond_the_limit_nothing_is_made_that_takes_memory(void **state)
{
    enum { SERVER = 5, MIB = 1 << 20, ALLOCATION_FAILED = 102 };
    struct fixture *self = *state;
    struct flyt_device *device = &self->session.devices[0];
    const struct generator made = {{.rng_type = 100}};
    const struct tensor tensor = {{.type = TENSOR}};
    uint64_t used, limit;
    assert_int_equal(flyt_ledger_new(64 * MIB, &device->ledger), 0);
    assert_int_equal(flyt_ledger_join(device->ledger, SERVER), 0);
    assert_int_equal(flyt_ledger_reserve_measured(device->ledger, SERVER, 65 * MIB, &used, &limit), 0);
    unsigned before = made_count;
    assert_int_equal(await_new(self, send_new(self, 4, CURAND("curandCreateGenerator"), &made, sizeof made)),
                     ALLOCATION_FAILED);
    assert_int_equal(made_count, before);
    assert_int_equal(await_new(self, send_new(self, 3, CUDNN("cudnnBackendFinalize"), &tensor, sizeof tensor)), 0);
    assert_int_equal(flyt_ledger_reserve_measured(device->ledger, SERVER, 64 * MIB, &used, &limit), 0);
    assert_int_equal(await_new(self, send_new(self, 4, CURAND("curandCreateGenerator"), &made, sizeof made)), 0);
    /* A limit that is to sink below what is in use; and what would be given back does not count. */
    assert_int_equal(flyt_ledger_set_limit(device->ledger, 32 * MIB, 2, true, NULL), 0);
    assert_int_equal(await_new(self, send_new(self, 5, CURAND("curandCreateGenerator"), &made, sizeof made)),
                     ALLOCATION_FAILED);
    assert_int_equal(flyt_ledger_reserve_measured(device->ledger, SERVER, 0, &used, &limit), 0);
    assert_int_equal(flyt_ledger_charge(device->ledger, SERVER, 31 * MIB), 0);
    assert_int_equal(flyt_ledger_reserve_measured(device->ledger, SERVER, 2 * MIB, &used, &limit), 0);
    flyt_ledger_set_cached(device->ledger, SERVER, 4 * MIB);
    assert_int_equal(await_new(self, send_new(self, 5, CURAND("curandCreateGenerator"), &made, sizeof made)), 0);
    device->ledger = flyt_ledger_close(device->ledger);
}

/* A list of what configurations are made again from, some of it wrong. */
static int make_config(struct fixture *self, uint64_t graph_id, int graph_name, uint32_t config_bytes, int64_t knobs)
{
    struct {
        struct flyt_args_cudnnBackendFinalize args;
        struct flyt_cudnn_attribute graph FLYT_LIB_ALIGNED;
        uint64_t id;
        struct flyt_cudnn_attribute config FLYT_LIB_ALIGNED;
        struct flyt_cudnn_config numbers;
    } sent = {
        .args = {.type = FLYT_CUDNN_CONFIG},
        .graph = {.name = graph_name, .type = FLYT_CUDNN_TYPE_BACKEND_DESCRIPTOR, .count = 1, .bytes = 8},
        .id = graph_id,
        .config = {.name = FLYT_CUDNN_AGAIN_CONFIG,
                   .type = FLYT_CUDNN_TYPE_CHAR,
                   .count = config_bytes,
                   .bytes = config_bytes},
        .numbers = {.engine = 1, .knob_count = knobs},
    };
    size_t bytes = offsetof(__typeof__(sent), numbers) + flyt_lib_align(config_bytes);
    sent.args.list_bytes = (uint32_t)(bytes - offsetof(__typeof__(sent), graph));
    return await_new(self, send_new(self, 9, CUDNN("cudnnBackendFinalize"), &sent, bytes));
}

static void lists_are_what_they_say(void **state)
{
    enum { INVALID = 2000, REFUSED = 3000, WHOLE = sizeof(struct flyt_cudnn_config) };
    struct fixture *self = *state;
    const struct tensor tensor = {{.type = TENSOR}};
    assert_int_equal(await_new(self, send_new(self, 3, CUDNN("cudnnBackendFinalize"), &tensor, sizeof tensor)), 0);
    assert_int_equal(make_config(self, object_id(3), FLYT_CUDNN_AGAIN_GRAPH, 8, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(make_config(self, object_id(77), FLYT_CUDNN_AGAIN_GRAPH, WHOLE, 0), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(make_config(self, 0, FLYT_CUDNN_AGAIN_GRAPH, WHOLE, 0), INVALID);
    assert_int_equal(make_config(self, object_id(3), FLYT_CUDNN_ENGINE_GRAPH, WHOLE, 0), INVALID);
    assert_int_equal(make_config(self, object_id(3), FLYT_CUDNN_AGAIN_GRAPH, WHOLE, -1), INVALID);
    assert_int_equal(make_config(self, object_id(3), FLYT_CUDNN_AGAIN_GRAPH, WHOLE, FLYT_CUDNN_KNOBS_MAX + 1), INVALID);
    /* This library tells of an engine 0. */
    assert_int_equal(make_config(self, object_id(3), FLYT_CUDNN_AGAIN_GRAPH, WHOLE, 0), REFUSED);
}

/* ---- orders for NCCL ---- */

/* What a call aside comes to: CUDA's code, or the library's status; with the first 8 bytes of its results. */
static int ask_aside(struct fixture *self, uint32_t row_id, const void *arguments, size_t bytes, uint64_t *ret_first)
{
    flyt_libcall_aside_res res = {0};
    uint32_t xid = SEND(self, FLYT_LIBCALL_ASIDE, libcall_aside, .thread = 1, .row = row_id,
                        .arguments = {(u_int)bytes, (char *)(uintptr_t)arguments});
    await_reply(self, xid, (xdrproc_t)xdr_flyt_libcall_aside_res, &res);
    if (ret_first && res.results.results_len >= sizeof *ret_first)
        memcpy(ret_first, res.results.results_val, sizeof *ret_first);
    int status = res.result ? (int)res.result : res.status;
    xdr_free((xdrproc_t)xdr_flyt_libcall_aside_res, (char *)&res);
    return status;
}

struct init {
    struct flyt_args_ncclCommInitRank args;
    struct flyt_nccl_order order FLYT_LIB_ALIGNED;
    unsigned char id[FLYT_NCCL_UNIQUE_ID_BYTES];
};

/* A communicator of one rank; its unique id has an address of the loopback. */
static struct init an_init(void)
{
    struct init sent = {.args = {.orders_bytes = sizeof sent.order + sizeof sent.id, .is_made_bytes = 4},
                        .order = {.control = FLYT_NCCL_INIT, .comm = object_id(20), .rank_count = 1, .id_count = 1},
                        .id = {[8] = AF_INET, [12] = 127, [15] = 1}};
    return sent;
}

static int init(struct fixture *self, const struct init *sent, size_t bytes)
{
    return ask_aside(self, NCCL("ncclCommInitRank"), sent, bytes, NULL);
}

static void orders_that_make_communicators_are_what_they_say(void **state)
{
    enum { INVALID = 4 };
    struct fixture *self = *state;
    struct init wrong = an_init();
    unsigned before = made_count;
    assert_int_equal(init(self, &wrong, sizeof wrong - FLYT_LIB_ALIGN), CUDA_ERROR_INVALID_VALUE); /* it is cut off */
    wrong.order.id_count = FLYT_NCCL_RANKS_MAX;
    assert_int_equal(init(self, &wrong, sizeof wrong), CUDA_ERROR_INVALID_VALUE);
    wrong.order.id_count = 0;
    assert_int_equal(init(self, &wrong, sizeof wrong), CUDA_ERROR_INVALID_VALUE);
    wrong = an_init();
    wrong.order.control = FLYT_NCCL_CONTROLS;
    assert_int_equal(init(self, &wrong, sizeof wrong), CUDA_ERROR_INVALID_VALUE);
    wrong.order.control = FLYT_NCCL_DESTROY;
    wrong.order.id_count = 0;
    wrong.args.orders_bytes = sizeof wrong.order;
    assert_int_equal(init(self, &wrong, sizeof wrong), CUDA_ERROR_INVALID_HANDLE); /* there is none of that id */
    wrong = an_init();
    wrong.order.device = 99;
    assert_int_not_equal(init(self, &wrong, sizeof wrong), CUDA_SUCCESS);
    struct {
        struct init first;
        struct flyt_nccl_order second;
        unsigned char id[FLYT_NCCL_UNIQUE_ID_BYTES];
    } twice = {.first = an_init()};
    twice.second = twice.first.order;
    memcpy(twice.id, twice.first.id, sizeof twice.id);
    twice.first.args =
        (struct flyt_args_ncclCommInitRank){.orders_bytes = sizeof twice - sizeof twice.first.args, .is_made_bytes = 8};
    assert_int_equal(ask_aside(self, NCCL("ncclCommInitRank"), &twice, sizeof twice, NULL), CUDA_ERROR_INVALID_VALUE);
    wrong = an_init();
    wrong.order.control = FLYT_NCCL_SPLIT; /* of one that is not there */
    wrong.order.id_count = 0;
    wrong.order.parent = object_id(21);
    wrong.args.orders_bytes = sizeof wrong.order;
    assert_int_equal(init(self, &wrong, sizeof wrong), CUDA_ERROR_INVALID_HANDLE);
    wrong = an_init();
    wrong.args.is_made_bytes = 8; /* of two orders, and there is one */
    assert_int_equal(init(self, &wrong, sizeof wrong), INVALID);
    assert_int_equal(made_count, before);
}

static void reset_device(struct fixture *self)
{
    flyt_device_reset_res res = {0};
    await_reply(self, SEND(self, FLYT_DEVICE_RESET, device_reset), (xdrproc_t)xdr_flyt_device_reset_res, &res);
    assert_int_equal(res.result, CUDA_SUCCESS);
}

/* Of two ids, of which the last one leads to this address. */
struct two_ids {
    struct init first;
    unsigned char id[FLYT_NCCL_UNIQUE_ID_BYTES];
};

static struct two_ids ids_to(int family, const char *text, unsigned number)
{
    struct two_ids sent = {.first = an_init()};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(4242)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(4242)};
    void *at = family == AF_INET ? (void *)&four.sin_addr : (void *)&six.sin6_addr;
    sent.first.order.comm = object_id(number);
    assert_int_equal(inet_pton(family, text, at), 1);
    memcpy(sent.id, sent.first.id, sizeof sent.id);
    if (family == AF_INET)
        memcpy(sent.id + 8, &four, sizeof four);
    else
        memcpy(sent.id + 8, &six, sizeof six);
    return sent;
}

static int init_with_one(struct fixture *self, const struct two_ids *ids)
{
    struct init sent = ids->first;
    memcpy(sent.id, ids->id, sizeof sent.id);
    return init(self, &sent, sizeof sent);
}

static int init_with_both(struct fixture *self, const struct two_ids *ids)
{
    struct two_ids sent = *ids;
    sent.first.order.id_count = 2;
    sent.first.args.orders_bytes = sizeof sent - sizeof sent.first.args;
    return ask_aside(self, NCCL("ncclCommInitRank"), &sent, sizeof sent, NULL);
}

/* Where the operator names no interfaces of networks, nothing listens but on this machine, and a program could have the
 * node connect to an address of its own choice: what a unique id says. */
static void ids_lead_only_where_the_operator_allows(void **state)
{
    static const struct {
        int family;
        const char *text;
        bool is_here;
    } addresses[] = {
        {AF_INET, "127.0.0.1", true},  {AF_INET, "127.255.0.9", true}, {AF_INET, "10.0.0.1", false},
        {AF_INET, "128.0.0.1", false}, {AF_INET, "0.0.0.0", false},    {AF_INET, "1.0.0.127", false},
        {AF_INET6, "::1", true},       {AF_INET6, "::2", false},       {AF_INET6, "fe80::1", false},
        {AF_INET6, "::", false},       {AF_INET6, "fd00::1", false},   {AF_INET6, "::ffff:10.0.0.1", false},
    };
    struct fixture *self = *state;
    unsigned number = 30, expected = made_count;
    for (unsigned i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        struct two_ids sent = ids_to(addresses[i].family, addresses[i].text, number++);
        bool is_here = addresses[i].is_here;
        assert_int_equal(unsetenv("FLYT_NCCL_INTERFACES"), 0);
        assert_int_equal(init_with_one(self, &sent), is_here ? 0 : CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(made_count, expected += is_here);
        if (is_here)
            continue;
        assert_int_equal(init_with_both(self, &sent), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(setenv("FLYT_NCCL_INTERFACES", "", 1), 0); /* the same as none */
        assert_int_equal(init_with_one(self, &sent), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(made_count, expected);
        assert_int_equal(setenv("FLYT_NCCL_INTERFACES", "eth7", 1), 0);
        assert_int_equal(init_with_one(self, &sent), 0);
        assert_int_equal(made_count, ++expected);
    }
    unsetenv("FLYT_NCCL_INTERFACES");
    struct two_ids sent = ids_to(AF_INET, "127.0.0.1", number);
    sent.id[8] = AF_UNIX;
    assert_int_equal(init_with_one(self, &sent), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(made_count, expected);
    reset_device(self); /* ends them */
}

static void expect_environment(const char *interfaces, const char *socket_interfaces, bool is_alone)
{
    static const char *const names[] = {"NCCL_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_NET"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(unsetenv(names[i]), 0);
    assert_int_equal(interfaces ? setenv("FLYT_NCCL_INTERFACES", interfaces, 1) : unsetenv("FLYT_NCCL_INTERFACES"), 0);
    flyt_nccl_set_environment();
    assert_string_equal(getenv("NCCL_SOCKET_IFNAME"), socket_interfaces);
    assert_int_equal(getenv("NCCL_IB_DISABLE") != NULL, is_alone);
    assert_int_equal(getenv("NCCL_NET") != NULL, is_alone);
    if (is_alone) {
        assert_string_equal(getenv("NCCL_IB_DISABLE"), "1");
        assert_string_equal(getenv("NCCL_NET"), "Socket");
    }
    assert_string_equal(getenv("NCCL_SHM_DISABLE"), "1");
    assert_string_equal(getenv("NCCL_RAS_ENABLE"), "0");
    unsetenv("FLYT_NCCL_INTERFACES");
}

static void nccl_listens_where_the_operator_says(void **state)
{
    expect_environment(NULL, "=lo", true);
    expect_environment("", "=lo", true);
    expect_environment("eth7,ib", "eth7,ib", false);
}

/* Under this number. */
static int register_as(struct fixture *self, uint64_t comm, uint64_t buffer, uint64_t bytes, uint64_t number,
                       uint64_t *ret_number)
{
    const struct {
        struct flyt_args_ncclCommRegister args FLYT_LIB_ALIGNED;
    } sent = {{.comm = comm, .buffer = buffer, .bytes = bytes, .number = number, .handle_bytes = sizeof(uint64_t)}};
    return ask_aside(self, NCCL("ncclCommRegister"), &sent, sizeof sent, ret_number);
}

static int register_buffer(struct fixture *self, uint64_t comm, uint64_t buffer, uint64_t bytes, uint64_t *ret_number)
{
    return register_as(self, comm, buffer, bytes, 77, ret_number);
}

static int deregister(struct fixture *self, uint64_t number)
{
    const struct {
        struct flyt_args_ncclCommDeregister args FLYT_LIB_ALIGNED;
    } sent = {{.comm = object_id(20), .handle = number}};
    return ask_aside(self, NCCL("ncclCommDeregister"), &sent, sizeof sent, NULL);
}

static void buffers_are_the_programs_and_handles_are_known(void **state)
{
    enum { MEMORY = 2, INVALID = 4 };
    struct fixture *self = *state;
    struct init sent = an_init();
    const uint64_t comm = object_id(20), last = FLYT_WINDOW_BASE + FLYT_WINDOW_BYTES;
    uint64_t number = 0;
    assert_int_equal(init(self, &sent, sizeof sent), 0);
    assert_int_equal(init(self, &sent, sizeof sent), CUDA_ERROR_INVALID_VALUE); /* that id is taken */
    lines[0] = '\0';
    assert_int_equal(register_buffer(self, object_id(21), FLYT_WINDOW_BASE, 64, NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(register_buffer(self, comm, (uint64_t)(uintptr_t)lines, 64, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(register_buffer(self, comm, FLYT_WINDOW_BASE, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(register_buffer(self, comm, last - 64, 65, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(register_buffer(self, comm, FLYT_WINDOW_BASE, UINT64_MAX, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(register_as(self, comm, FLYT_WINDOW_BASE, 64, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_string_equal(lines, "");
    assert_int_equal(register_buffer(self, comm, FLYT_WINDOW_BASE, 64, &number), 0);
    assert_int_equal(number, 77);                                                      /* no handle of the library's */
    assert_int_equal(register_buffer(self, comm, FLYT_WINDOW_BASE, 64, NULL), MEMORY); /* the number is taken */
    assert_int_equal(deregister(self, FLYT_WINDOW_BASE), INVALID);
    assert_int_equal(deregister(self, number), 0);
    assert_int_equal(deregister(self, number), INVALID);
    assert_string_equal(lines, "registered deregistered ");
}

/* Under this number, with a scalar in host memory of so many bytes. */
static int make_operator(struct fixture *self, uint64_t comm, int number, uint32_t scalar_bytes, int residence)
{
    struct {
        struct flyt_args_ncclRedOpCreatePreMulSum args FLYT_LIB_ALIGNED;
        double scalar FLYT_LIB_ALIGNED;
    } sent = {.args = {.comm = comm,
                       .op = number,
                       .scalar_bytes = scalar_bytes,
                       .datatype = 8, /* ncclFloat64 */
                       .residence = residence}};
    return ask_aside(self, NCCL("ncclRedOpCreatePreMulSum"), &sent, sizeof sent, NULL);
}

static int destroy_operator(struct fixture *self, int number)
{
    const struct {
        struct flyt_args_ncclRedOpDestroy args FLYT_LIB_ALIGNED;
    } sent = {{.comm = object_id(22), .op = number}};
    return ask_aside(self, NCCL("ncclRedOpDestroy"), &sent, sizeof sent, NULL);
}

static void operators_have_numbers_of_the_clients(void **state)
{
    enum { MEMORY = 2, INVALID = 4, IMMEDIATE = 1 };
    struct fixture *self = *state;
    struct init sent = an_init();
    sent.order.comm = object_id(22);
    assert_int_equal(init(self, &sent, sizeof sent), 0);
    lines[0] = '\0';
    assert_int_equal(make_operator(self, object_id(23), 5, 8, IMMEDIATE), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(make_operator(self, object_id(22), 4, 8, IMMEDIATE),
                     CUDA_ERROR_INVALID_VALUE); /* a built-in one */
    assert_int_equal(make_operator(self, object_id(22), -1, 8, IMMEDIATE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(make_operator(self, object_id(22), 5, 4, IMMEDIATE), INVALID); /* half a number */
    assert_int_equal(make_operator(self, object_id(22), 5, 0, IMMEDIATE), INVALID);
    assert_int_equal(make_operator(self, object_id(22), 5, 8, 7), INVALID);
    assert_string_equal(lines, "");
    assert_int_equal(make_operator(self, object_id(22), 5, 8, IMMEDIATE), 0);
    assert_int_equal(make_operator(self, object_id(22), 5, 8, IMMEDIATE), MEMORY); /* the number is taken */
    assert_string_equal(lines, "operator ");
    assert_int_equal(destroy_operator(self, 1000), INVALID); /* the library's own */
    assert_int_equal(destroy_operator(self, 5), 0);
    assert_int_equal(destroy_operator(self, 5), INVALID);
}

static struct flyt_observer observer;
static int staying_count;

static void count_staying(struct flyt_session *session, const char *what, bool is_more)
{
    assert_string_equal(what, "an NCCL communicator");
    staying_count += is_more ? 1 : -1;
}

/* Communicators of the device are no more, and nothing of them stands against moving. */
static void a_reset_ends_communicators(void **state)
{
    struct fixture *self = *state;
    struct init sent = an_init();
    const uint64_t comm = object_id(20);
    uint64_t number = 0;
    sent.order.rank_count = 2; /* the other one is elsewhere */
    observer = *self->session.observer;
    observer.staying = count_staying;
    self->session.observer = &observer;
    assert_int_equal(init(self, &sent, sizeof sent), 0);
    assert_int_equal(register_buffer(self, comm, FLYT_WINDOW_BASE, 64, &number), 0);
    assert_int_equal(staying_count, 1);
    lines[0] = '\0';
    reset_device(self);
    assert_string_equal(lines, "aborted ");
    assert_int_equal(staying_count, 0);
    assert_int_equal(register_buffer(self, comm, FLYT_WINDOW_BASE, 64, NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(init(self, &sent, sizeof sent), 0); /* its id is free */
    reset_device(self);
    assert_string_equal(lines, "aborted aborted ");
    reset_device(self);
    assert_string_equal(lines, "aborted aborted ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_of_a_sequential_object_keep_their_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_call_that_made_an_object_is_noted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_thread_uses_is_its_own, set_up, let_go),
        cmocka_unit_test_setup_teardown(a_reset_leaves_what_a_thread_uses, set_up, let_go),
        cmocka_unit_test_setup_teardown(a_graphs_calls_are_captured_when_it_is_made, set_up, let_go),
        cmocka_unit_test_setup_teardown(graphs_use_no_host_memory, set_up, let_go),
        cmocka_unit_test_setup_teardown(what_waits_for_a_capture_follows_it, set_up, let_go),
        cmocka_unit_test_setup_teardown(lists_are_what_they_say, set_up, tear_down),
        cmocka_unit_test_setup_teardown(beyond_the_limit_nothing_is_made_that_takes_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_id_that_is_known_costs_the_library_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(orders_that_make_communicators_are_what_they_say, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ids_lead_only_where_the_operator_allows, set_up, tear_down),
        cmocka_unit_test(nccl_listens_where_the_operator_says),
        cmocka_unit_test_setup_teardown(a_reset_ends_communicators, set_up, tear_down),
        cmocka_unit_test_setup_teardown(buffers_are_the_programs_and_handles_are_known, set_up, tear_down),
        cmocka_unit_test_setup_teardown(operators_have_numbers_of_the_clients, set_up, tear_down),
    };
    sem_init(&may_finalize, 0, 0);
    sem_init(&is_finalizing, 0, 0);
    load(&flyt_server_library_cudnn);
    load(&flyt_server_library_curand);
    load(&flyt_server_library_nccl);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
