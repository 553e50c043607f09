/*
 * Calls one function in all ways, or from one on, and prints a line for each: its name, the way, the result. Each line is
 * written before the next call, which may end the process.
 *
 * usage: conformance --list | FUNCTION [FIRST]
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/conformance/calls.h"

enum { ROOMS = 24, ROOM_BYTES = 1 << 16 };

static const char *const names[HOWS] = {"uninitialized", "bare", "zero", "room", "wrong", "high", "ones", "ended"};
static _Alignas(128) unsigned char rooms[ROOMS][ROOM_BYTES];
static CUcontext context;
static uint64_t ended_stream, ended_event, ended_pool, ended_address;

enum kind kind_by(int class, const char *type)
{
    enum { POINTER_CLASS = 5, RECORD_CLASS = 12, UNION_CLASS = 13 };
    if (!strcmp(type, "CUstream") || !strcmp(type, "cudaStream_t"))
        return STREAM;
    if (!strcmp(type, "CUevent") || !strcmp(type, "cudaEvent_t"))
        return EVENT;
    if (!strcmp(type, "CUmemoryPool") || !strcmp(type, "cudaMemPool_t"))
        return POOL;
    if (!strcmp(type, "CUdeviceptr"))
        return ADDRESS;
    if (class == POINTER_CLASS)
        return HANDLE;
    return class == RECORD_CLASS || class == UNION_CLASS ? STRUCTURE : NUMBER;
}

static uint64_t ended(enum kind kind)
{
    switch (kind) {
    case STREAM:
        return ended_stream;
    case EVENT:
        return ended_event;
    case POOL:
        return ended_pool;
    default:
        return ended_address;
    }
}

static void put(void *argument, size_t bytes, uint64_t value)
{
    memcpy(argument, &value, bytes < sizeof value ? bytes : sizeof value);
}

void fill(void *argument, size_t bytes, enum kind kind, enum how how, int place)
{
    memset(argument, 0, bytes);
    if (how <= ZERO)
        return;
    if (kind == DATA) {
        put(argument, bytes, (uint64_t)(uintptr_t)rooms[place]);
        return;
    }
    if (how == ENDED && kind >= STREAM)
        put(argument, bytes, ended(kind));
    else if (how == WRONG && (kind == HANDLE || kind >= STREAM))
        put(argument, bytes, kind == ADDRESS ? 0x5a5a5a5a5a00 : 0x5a5a5a5a5a40);
    else if (kind == NUMBER && how == WRONG)
        put(argument, bytes, 1);
    else if (kind == NUMBER && (how == HIGH || how == ONES))
        put(argument, bytes, how == ONES ? UINT64_MAX : UINT64_MAX >> (65 - 8 * (bytes < 8 ? bytes : 8)));
}

static void need(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "conformance: %s: CUDA error %d\n", what, (int)result);
    exit(2);
}

static void make_ended(void)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                  .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUstream stream;
    CUevent event;
    CUmemoryPool pool;
    CUdeviceptr address;
    need(cuStreamCreate(&stream, 0), "cuStreamCreate");
    need(cuEventCreate(&event, 0), "cuEventCreate");
    need(cuMemPoolCreate(&pool, &props), "cuMemPoolCreate");
    need(cuMemAlloc(&address, 1 << 22), "cuMemAlloc");
    need(cuStreamDestroy(stream), "cuStreamDestroy");
    need(cuEventDestroy(event), "cuEventDestroy");
    need(cuMemPoolDestroy(pool), "cuMemPoolDestroy");
    need(cuMemFree(address), "cuMemFree");
    ended_stream = (uint64_t)(uintptr_t)stream;
    ended_event = (uint64_t)(uintptr_t)event;
    ended_pool = (uint64_t)(uintptr_t)pool;
    ended_address = address;
}

/* What there is when a function is called this way. */
static void prepare(enum how how)
{
    if (how >= BARE)
        need(cuInit(0), "cuInit");
    if (how >= ZERO) { /* the last call may have ended it */
        need(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
        need(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    }
    if (how == ENDED)
        make_ended();
    memset(rooms, 0, sizeof rooms);
}

/* What a function has begun to capture. */
static void end_capture(enum how how)
{
    CUgraph graph;
    if (how >= ZERO && cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph) == CUDA_SUCCESS)
        cuGraphDestroy(graph);
}

static int call_all(const struct function *function, int first)
{
    for (int how = first; how < HOWS; how++) {
        if (how < ZERO && function->is_runtime) /* it initialises the driver itself */
            continue;
        prepare((enum how)how);
        printf("%s %s ", function->name, names[how]);
        fflush(stdout);
        printf("%lld", function->call((enum how)how));
        fflush(stdout);
        end_capture((enum how)how);
        /* What comes of it later is said, too. */
        CUresult later = how >= ZERO ? cuCtxSynchronize() : CUDA_SUCCESS;
        printf(later == CUDA_SUCCESS || later == CUDA_ERROR_INVALID_CONTEXT || later == CUDA_ERROR_CONTEXT_IS_DESTROYED ? "\n" : "+%d\n",
               (int)later);
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (unsigned i = 0; i < function_count; i++)
            puts(functions[i].name);
        return 0;
    }
    for (unsigned i = 0; argc >= 2 && i < function_count; i++)
        if (!strcmp(functions[i].name, argv[1]))
            return call_all(&functions[i], argc > 2 ? atoi(argv[2]) : 0);
    fprintf(stderr, "usage: conformance --list | FUNCTION [FIRST]\n");
    return 2;
}
