/*
 * When bytes of managed memory travel, and which: over a channel without a server, whose device memory is a buffer of
 * the test's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/stream.h"
#include "cpu/client/cuda/watch.h"
#include "cpu/client/managed/managed.h"
#include "rpc/base/id.h"
#include "rpc/base/region.h"

enum { GPU_BYTES = 1 << 20, PAGE = 4096 };

/* The GPU's memory, from the window's beginning on. */
static struct {
    unsigned char bytes[GPU_BYTES];
    uint64_t next_offset;               /* of what is allocated */
    uint64_t asked_bytes, given, freed; /* of the last allocation; its address; that of the last one that was freed */
    uint64_t in_bytes;                  /* that have come */
    uint64_t ins[8];                    /* addresses of copies to the device */
    unsigned in_count, out_count;
    uint64_t transfer_id, transfer_address, transfer_bytes; /* of a copy to the host whose bytes come with a wait */
    CUresult out_result;
    bool is_busy; /* streams that are asked are */
} gpu;

static unsigned char *at(uint64_t address)
{
    assert_in_range(address, FLYT_WINDOW_BASE, FLYT_WINDOW_BASE + GPU_BYTES - 1);
    return gpu.bytes + (address - FLYT_WINDOW_BASE);
}

static void serve_copy_in(const flyt_copy_in_args *args)
{
    memcpy(at(args->dst.address), args->data.data_val, args->data.data_len);
    gpu.in_bytes += args->data.data_len;
    gpu.ins[gpu.in_count++ % 8] = args->dst.address;
}

/* Several pieces come as transfers: the last one that was asked for is enough for these tests. */
static void deliver(void)
{
    void *place =
        gpu.transfer_bytes ? fake.handlers->chunk_place(fake.user, gpu.transfer_id, 0, gpu.transfer_bytes) : NULL;
    if (!place)
        return;
    memcpy(place, at(gpu.transfer_address), gpu.transfer_bytes);
    fake.handlers->chunk_done(fake.user, gpu.transfer_id, 0, gpu.transfer_bytes);
    gpu.transfer_bytes = 0;
}

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    const flyt_copy_out_args *out = args;
    const flyt_copy_out_transfer_args *transfer = args;
    const flyt_memory_set_args *set = args;
    switch (procedure) {
    case FLYT_MEMORY_ALLOC:
        gpu.asked_bytes = ((const flyt_memory_alloc_args *)args)->bytes;
        gpu.given = ((flyt_memory_alloc_res *)res)->address = FLYT_WINDOW_BASE + gpu.next_offset;
        gpu.next_offset += (gpu.asked_bytes + 511) / 512 * 512;
        break;
    case FLYT_MEMORY_FREE:
        gpu.freed = ((const flyt_memory_free_args *)args)->address;
        break;
    case FLYT_MEMORY_SET:
        memset(at(set->dst.address), (int)set->value, set->dst.width_bytes);
        break;
    case FLYT_COPY_IN:
        serve_copy_in(args);
        break;
    case FLYT_COPY_OUT:
        gpu.out_count++;
        ((flyt_copy_out_res *)res)->result = (int)gpu.out_result;
        ((flyt_copy_out_res *)res)->data.data_len = (u_int)out->src.width_bytes;
        memcpy(data, at(out->src.address), out->src.width_bytes);
        break;
    case FLYT_COPY_OUT_TRANSFER:
        gpu.out_count++;
        deliver(); /* an earlier one */
        gpu.transfer_id = transfer->transfer_id;
        gpu.transfer_address = transfer->src.address;
        gpu.transfer_bytes = transfer->bytes;
        break;
    case FLYT_STREAM_SYNCHRONIZE:
        deliver();
        break;
    case FLYT_STREAM_QUERY:
        ((flyt_stream_query_res *)res)->result = gpu.is_busy ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
        break;
    default:
        break;
    }
}

static unsigned char *alloc(size_t bytes, unsigned flags)
{
    CUdeviceptr memory = 0;
    assert_int_equal(flyt_managed_alloc(bytes, flags, &memory), CUDA_SUCCESS);
    return (unsigned char *)(uintptr_t)memory;
}

static void release(void *memory)
{
    assert_int_equal(flyt_memory_free((CUdeviceptr)(uintptr_t)memory), CUDA_SUCCESS);
}

/* Work of the stream's that may use any memory. */
static void work(CUstream stream)
{
    static CUdeviceptr word;
    if (!word)
        assert_int_equal(flyt_memory_alloc(8, &word), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_memory_op(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, word, 1, 0), CUDA_SUCCESS);
}

static unsigned ins_since(unsigned *in_out_count)
{
    unsigned more = gpu.in_count - *in_out_count;
    *in_out_count = gpu.in_count;
    return more;
}

static void a_piece_begins_with_a_page(void **state)
{
    gpu.next_offset += 512; /* as other allocations have it */
    memset(gpu.bytes, 0xee, GPU_BYTES);
    unsigned char *memory = alloc(100, CU_MEM_ATTACH_GLOBAL);
    assert_int_equal((uintptr_t)memory % PAGE, 0);
    assert_int_equal(gpu.asked_bytes, 2 * PAGE);
    assert_in_range((uintptr_t)memory, gpu.given, gpu.given + PAGE - 1);
    assert_int_equal(memory[0] | memory[99], 0);
    assert_int_equal(*at((uintptr_t)memory) | *at((uintptr_t)memory + 99), 0);
    assert_int_equal(*at((uintptr_t)memory + 100), 0xee); /* not the program's */
    release(memory);
    assert_int_equal(gpu.freed, gpu.given);
    assert_int_equal(flyt_memory_free((CUdeviceptr)(uintptr_t)memory), CUDA_ERROR_INVALID_VALUE);
}

static void there_and_back(void **state)
{
    unsigned char *memory = alloc(3 * PAGE, CU_MEM_ATTACH_GLOBAL);
    unsigned ins = gpu.in_count, outs = gpu.out_count;
    work(NULL);
    assert_int_equal(ins_since(&ins), 0); /* zero on both sides */
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    memory[PAGE + 5] = 7;
    work(NULL);
    assert_int_equal(ins_since(&ins), 1);
    assert_int_equal(gpu.ins[(gpu.in_count - 1) % 8], (uintptr_t)memory + PAGE);
    assert_int_equal(*at((uintptr_t)memory + PAGE + 5), 7);
    work(NULL); /* the host cannot have touched it */
    assert_int_equal(ins_since(&ins), 0);
    *at((uintptr_t)memory + 2 * PAGE) = 9; /* a kernel's doing */
    outs = gpu.out_count;
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    assert_int_equal(gpu.out_count, outs + 1);
    assert_int_equal(memory[2 * PAGE], 9);
    assert_int_equal(memory[PAGE + 5], 7);
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS); /* nothing happened since */
    assert_int_equal(gpu.out_count, outs + 1);
    work(NULL);
    assert_int_equal(ins_since(&ins), 0); /* what came is agreed on */
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    release(memory);
}

/* What could not be fetched is fetched the next time. */
static void an_error_on_the_way(void **state)
{
    unsigned char *memory = alloc(10, CU_MEM_ATTACH_GLOBAL);
    work(NULL);
    *at((uintptr_t)memory) = 5;
    gpu.out_result = CUDA_ERROR_OUT_OF_MEMORY;
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(memory[0], 0);
    gpu.out_result = CUDA_SUCCESS;
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    assert_int_equal(memory[0], 5);
    release(memory);
}

static void attached_pieces(void **state)
{
    unsigned char *memory = alloc(10, CU_MEM_ATTACH_HOST);
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)memory;
    CUstream own, other;
    assert_int_equal(flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &own), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &other), CUDA_SUCCESS);
    unsigned ins = gpu.in_count;
    memory[0] = 1;
    work(own);
    work(other);
    assert_int_equal(ins_since(&ins), 0); /* the host's */
    assert_int_equal(flyt_managed_attach(NULL, address, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_managed_attach(own, address, 9, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_managed_attach(own, address + 1, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_managed_attach(own, address, 10, CU_MEM_ATTACH_SINGLE), CUDA_SUCCESS);
    work(other);
    assert_int_equal(ins_since(&ins), 0);
    work(own);
    assert_int_equal(ins_since(&ins), 1);
    *at((uintptr_t)memory) = 2;
    gpu.is_busy = true;
    assert_int_equal(flyt_stream_synchronize(other), CUDA_SUCCESS);
    assert_int_equal(memory[0], 1); /* its stream is not done */
    gpu.is_busy = false;
    assert_int_equal(flyt_stream_synchronize(other), CUDA_SUCCESS);
    assert_int_equal(memory[0], 2); /* it is by now: events may have ordered them */
    assert_int_equal(flyt_stream_synchronize(own), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_destroy(own), CUDA_SUCCESS);
    memory[0] = 3;
    work(other);
    assert_int_equal(ins_since(&ins), 0); /* the host's once more, as it was allocated */
    assert_int_equal(flyt_managed_attach(other, address, 0, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    work(NULL);
    assert_int_equal(ins_since(&ins), 1);
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    assert_int_equal(flyt_stream_destroy(other), CUDA_SUCCESS);
    release(memory);
}

/* A copy of each of several small pieces, asked for together. */
static void several_pieces(void **state)
{
    unsigned char *pieces[5];
    for (int i = 0; i < 5; i++)
        pieces[i] = alloc(50, CU_MEM_ATTACH_GLOBAL);
    work(NULL);
    for (int i = 0; i < 5; i++)
        *at((uintptr_t)pieces[i] + 49) = (unsigned char)(i + 1);
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(pieces[i][49], i + 1);
        release(pieces[i]);
    }
}

/* ---- on the host ---- */

/* As in a process that has chosen it when it connected. */
static void make_region(void)
{
    int fd;
    atomic_store(&flyt_watch_installed, NULL);
    assert_int_equal(flyt_region_new(&fake.region, &fd), 0);
    close(fd);
    fake.region_at = 1;
    fake.maps_region = true;
    flyt_client.is_managed_on_host = true;
}

static bool is_managed(const void *address)
{
    struct flyt_pointer pointer;
    assert_int_equal(flyt_pointer_find(address, &pointer), CUDA_SUCCESS);
    return pointer.kind == FLYT_POINTER_DEVICE && pointer.is_managed;
}

/* Pages of the region, which the server locks; kernels may have an address of them from the first one on. Nothing
 * travels. Behind a move to a server that shares none there is no more of it. */
static void on_the_host(void **state)
{
    const unsigned locks = fake.call_count[FLYT_REGION_LOCK], unlocks = fake.call_count[FLYT_REGION_UNLOCK];
    const unsigned reached = fake.call_count[FLYT_REGION_REACH];
    const uint64_t outs = gpu.out_count;
    CUdeviceptr none = 0;
    make_region();
    unsigned ins = gpu.in_count;
    unsigned char *first = alloc(100, CU_MEM_ATTACH_GLOBAL), *second = alloc(3 * PAGE, CU_MEM_ATTACH_HOST);
    assert_in_range((uintptr_t)first, (uintptr_t)fake.region.base, (uintptr_t)fake.region.base + fake.region.bytes);
    assert_int_equal(fake.call_count[FLYT_REGION_LOCK] - locks, 2);
    assert_int_equal(fake.call_count[FLYT_REGION_REACH] - reached, 1);
    assert_true(is_managed(first) && is_managed(second + 3 * PAGE - 1));
    first[0] = second[0] = 1;
    work(NULL);
    assert_int_equal(flyt_stream_synchronize(NULL), CUDA_SUCCESS);
    assert_int_equal(ins_since(&ins) + gpu.out_count - outs, 0);
    assert_int_equal(flyt_host_free(second), CUDA_ERROR_INVALID_VALUE);
    release(second);
    assert_false(is_managed(second));
    assert_int_equal(flyt_memory_free((CUdeviceptr)(uintptr_t)second), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake.call_count[FLYT_REGION_UNLOCK] - unlocks, 1);
    fake.region_at = 0;
    fake.maps_region = false;
    assert_int_equal(flyt_managed_alloc(100, CU_MEM_ATTACH_GLOBAL, &none), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(first[0], 1); /* what there was is the program's */
    release(first);
    flyt_client.is_managed_on_host = false;
}

int main(void)
{
    setenv("FLYT_SERVER", "unix:///nowhere", 1);
    fake.serve = serve;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_piece_begins_with_a_page),
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(an_error_on_the_way),
        cmocka_unit_test(attached_pieces),
        cmocka_unit_test(several_pieces),
        cmocka_unit_test(on_the_host),
    };
    return flyt_runtime_enter() ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
