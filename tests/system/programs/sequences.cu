/*
 * Random sequences of everything that takes device memory, and of what gives it back, with what must be true of each.
 *
 *     sequences SEED COUNT THREADS     each thread does COUNT steps; "ready", and "done TAKEN REFUSED" when all that was
 *                                      taken is given back; then it waits for the end of its standard input
 *
 * Kinds: linear memory, pitched and 3D memory, host memory (which takes none), modules with variables of any size, their
 * symbols written and read, limits of the context. What is refused must be cudaErrorMemoryAllocation.
 */
#include <atomic>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MIB = 1 << 20, KEPT_MAX = 24 };

#define CHECK(call) check((call), #call)
static void check(cudaError_t result, const char *what)
{
    if (result == cudaSuccess)
        return;
    printf("%s: %s\n", what, cudaGetErrorName(result));
    fflush(stdout);
    exit(1);
}

enum kind { LINEAR, PITCHED, CUBIC, HOST, MODULE, KINDS };

struct thing {
    enum kind kind;
    void *at;
    size_t pitch, width, height, depth;
    cudaLibrary_t library;
    unsigned char value;
};

static std::atomic<unsigned> taken_count, refused_count;
static unsigned step_count, first_seed;

static size_t size_of_some(unsigned *seed)
{
    switch (rand_r(seed) % 4) {
    case 0:
        return 1 + rand_r(seed) % 4096;
    case 1:
        return 1 + rand_r(seed) % MIB;
    default:
        return 1 + rand_r(seed) % (5 * MIB);
    }
}

static cudaError_t take_module(struct thing *thing, unsigned *seed)
{
    char text[512];

    thing->width = size_of_some(seed);
    snprintf(text, sizeof text,
             ".version 7.0\n.target sm_75\n.address_size 64\n.visible .global .align 16 .b8 room[%zu];\n"
             ".visible .entry idle()\n{\nret;\n}\n",
             thing->width);
    cudaError_t result = cudaLibraryLoadData(&thing->library, text, NULL, NULL, 0, NULL, NULL, 0);
    size_t bytes;
    if (result == cudaSuccess)
        CHECK(cudaLibraryGetGlobal(&thing->at, &bytes, thing->library, "room"));
    return result;
}

static cudaError_t take(struct thing *thing, unsigned *seed)
{
    cudaPitchedPtr pitched;
    cudaError_t result;

    *thing = (struct thing){};
    thing->kind = (enum kind)(rand_r(seed) % KINDS);
    thing->value = (unsigned char)(1 + rand_r(seed) % 255);
    thing->height = thing->depth = 1;
    switch (thing->kind) {
    case LINEAR:
        thing->width = size_of_some(seed);
        return cudaMalloc(&thing->at, thing->width);
    case PITCHED:
        thing->width = 1 + rand_r(seed) % 5000;
        thing->height = 1 + rand_r(seed) % 500;
        return cudaMallocPitch(&thing->at, &thing->pitch, thing->width, thing->height);
    case CUBIC:
        thing->width = 1 + rand_r(seed) % 500;
        thing->height = 1 + rand_r(seed) % 40;
        thing->depth = 1 + rand_r(seed) % 40;
        result = cudaMalloc3D(&pitched, make_cudaExtent(thing->width, thing->height, thing->depth));
        thing->at = pitched.ptr;
        thing->pitch = pitched.pitch;
        return result;
    case HOST:
        thing->width = size_of_some(seed);
        return cudaHostAlloc(&thing->at, thing->width, cudaHostAllocDefault);
    default:
        return take_module(thing, seed);
    }
}

/* Fills all of it; what a neighbour in memory did to it is seen when it is given back. */
static void fill(const struct thing *thing, cudaStream_t stream)
{
    if (thing->kind == HOST)
        memset(thing->at, thing->value, thing->width);
    else if (thing->pitch)
        CHECK(cudaMemset2DAsync(thing->at, thing->pitch, thing->value, thing->width, thing->height * thing->depth, stream));
    else
        CHECK(cudaMemsetAsync(thing->at, thing->value, thing->width, stream));
}

static void look(const struct thing *thing, size_t offset, cudaStream_t stream)
{
    unsigned char value = 0;

    if (thing->kind == HOST)
        value = ((unsigned char *)thing->at)[offset];
    else
        CHECK(cudaMemcpyAsync(&value, (char *)thing->at + offset, 1, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (value == thing->value)
        return;
    printf("kind %d, byte %zu: %u, not %u\n", thing->kind, offset, value, thing->value);
    fflush(stdout);
    exit(1);
}

static void give_back(const struct thing *thing, cudaStream_t stream)
{
    size_t rows = thing->height * thing->depth;

    look(thing, 0, stream);
    look(thing, (rows - 1) * thing->pitch + thing->width - 1, stream);
    if (thing->kind == HOST)
        CHECK(cudaFreeHost(thing->at));
    else if (thing->kind == MODULE)
        CHECK(cudaLibraryUnload(thing->library));
    else
        CHECK(cudaFree(thing->at));
}

/* Other limits of the context, and back: what is refused changes nothing. */
static void change_limits(unsigned *seed, size_t before)
{
    cudaError_t result = cudaDeviceSetLimit(cudaLimitPrintfFifoSize, before + rand_r(seed) % (8 * MIB));

    if (result == cudaErrorMemoryAllocation)
        cudaGetLastError();
    else
        CHECK(result);
    CHECK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, before));
}

static void *run(void *user)
{
    unsigned count = 0, seed = first_seed * 7919u + (unsigned)(uintptr_t)user;
    struct thing kept[KEPT_MAX];
    cudaStream_t stream;
    size_t limit;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaDeviceGetLimit(&limit, cudaLimitPrintfFifoSize));
    for (unsigned i = 0; i < step_count; i++) {
        unsigned choice = rand_r(&seed) % 100;
        if (choice == 0 && !user) {
            change_limits(&seed, limit);
            continue;
        }
        if (count == KEPT_MAX || (count && choice < 45)) {
            unsigned which = rand_r(&seed) % count;
            give_back(&kept[which], stream);
            kept[which] = kept[--count];
            continue;
        }
        cudaError_t result = take(&kept[count], &seed);
        if (result == cudaErrorMemoryAllocation) {
            cudaGetLastError();
            refused_count++;
            continue;
        }
        check(result, "taking memory");
        fill(&kept[count++], stream);
        taken_count++;
    }
    while (count)
        give_back(&kept[--count], stream);
    CHECK(cudaStreamDestroy(stream));
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[16];
    char byte;

    if (argc != 4)
        return 2;
    first_seed = (unsigned)atoi(argv[1]);
    step_count = (unsigned)atoi(argv[2]);
    int thread_count = atoi(argv[3]);
    CHECK(cudaFree(NULL));
    printf("ready\n");
    fflush(stdout);
    for (int i = 0; i < thread_count; i++)
        pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)i);
    for (int i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
    CHECK(cudaDeviceSynchronize());
    printf("done %u %u\n", taken_count.load(), refused_count.load());
    fflush(stdout);
    while (read(0, &byte, 1) == 1)
        continue;
    return 0;
}
