// nvcc: -lcuda
/*
 * ordinals WINDOW...: whether each device is what the program was to see under its number: its memory is in the window
 * of addresses of the server's device WINDOW (1 TiB each from 2^45 on), and all that names a device by a number names
 * that one. "check" does that, with work on each device; "check N" is the answer, N being the number of devices.
 * "whole" does more: it asks for the address of a variable on each, after which a program may have to stay where it is.
 * "uuid N": the device's UUID. What is wrong ends it with a line on stderr.
 */
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT_MAX = 15, WORDS = 1 << 16, BYTES = WORDS * (int)sizeof(unsigned) };

__device__ unsigned own;

struct device {
    unsigned window;
    unsigned *words, *other;
    cudaStream_t stream;
    cudaEvent_t event;
};

static void fail(const char *what, int device, int line)
{
    fprintf(stderr, "device %d, line %d: %s\n", device, line, what);
    exit(1);
}

#define EXPECT(device, condition) ((condition) ? (void)0 : fail(#condition, device, __LINE__))
#define CHECK(device, call)                                                                                            \
    do {                                                                                                               \
        int code_ = (int)(call);                                                                                       \
        if (code_) {                                                                                                   \
            fprintf(stderr, "result %d: ", code_);                                                                     \
            fail(#call, device, __LINE__);                                                                             \
        }                                                                                                              \
    } while (0)

__global__ static void fill(unsigned *words, unsigned seed)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    words[i] = i * 2654435761u + seed;
    if (!i)
        own = seed;
}

static void names(int i)
{
    cudaDeviceProp properties;
    CUdevice device;
    CUuuid uuid;
    char text[64];
    int found, sms;

    CHECK(i, cudaGetDeviceProperties(&properties, i));
    CHECK(i, cuDeviceGet(&device, i));
    EXPECT(i, device == i);
    CHECK(i, cuDeviceGetUuid(&uuid, device));
    EXPECT(i, !memcmp(uuid.bytes, properties.uuid.bytes, sizeof uuid.bytes));
    CHECK(i, cudaDeviceGetPCIBusId(text, sizeof text, i));
    CHECK(i, cudaDeviceGetByPCIBusId(&found, text));
    EXPECT(i, found == i);
    CHECK(i, cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    EXPECT(i, sms == properties.multiProcessorCount);
}

static void begin(struct device *one, int i, unsigned window)
{
    one->window = window;
    CHECK(i, cudaSetDevice(i));
    CHECK(i, cudaMalloc(&one->words, BYTES));
    CHECK(i, cudaMalloc(&one->other, BYTES));
    CHECK(i, cudaStreamCreate(&one->stream));
    CHECK(i, cudaEventCreate(&one->event));
    EXPECT(i, ((unsigned long long)one->words - (1ull << 45)) >> 40 == window);
}

/* What is asked of the device, its memory and its streams. */
static void places(const struct device *one, int i)
{
    cudaPointerAttributes attributes;
    int ordinal;
    CUdevice device;
    CUcontext context;

    CHECK(i, cudaSetDevice(i));
    CHECK(i, cudaGetDevice(&ordinal));
    EXPECT(i, ordinal == i);
    CHECK(i, cuCtxGetDevice(&device));
    EXPECT(i, device == i);
    CHECK(i, cudaPointerGetAttributes(&attributes, one->words));
    EXPECT(i, attributes.type == cudaMemoryTypeDevice && attributes.device == i);
    CHECK(i, cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (CUdeviceptr)one->words));
    EXPECT(i, ordinal == i);
    CHECK(i, cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, (CUdeviceptr)one->words));
    CHECK(i, cuCtxPushCurrent(context));
    CHECK(i, cuCtxGetDevice(&device));
    CHECK(i, cuCtxPopCurrent(&context));
    EXPECT(i, device == i);
}

/* On each device at once, in its legacy default stream or in another. */
static void work(const struct device *all, int count, unsigned seed)
{
    static unsigned words[WORDS];

    for (int i = 0; i < count; i++) {
        CHECK(i, cudaSetDevice(i));
        fill<<<WORDS / 256, 256, 0, seed & 1 ? all[i].stream : 0>>>(all[i].words, seed + i);
        CHECK(i, cudaGetLastError());
        CHECK(i, cudaEventRecord(all[i].event, seed & 1 ? all[i].stream : 0));
        CHECK(i, cudaMemcpyAsync(all[i].other, all[i].words, BYTES, cudaMemcpyDeviceToDevice, 0));
    }
    for (int i = 0; i < count; i++) {
        CHECK(i, cudaSetDevice(i));
        CHECK(i, cudaEventSynchronize(all[i].event));
        CHECK(i, cudaMemcpy(words, all[i].other, BYTES, cudaMemcpyDeviceToHost));
        for (unsigned j = 0; j < WORDS; j++)
            EXPECT(i, words[j] == j * 2654435761u + seed + i);
        while (cudaStreamQuery(0) == cudaErrorNotReady)
            ;
        CHECK(i, cudaDeviceSynchronize());
    }
}

/* Each has its own. */
static void variables(int count, unsigned seed)
{
    for (int i = 0; i < count; i++) {
        cudaPointerAttributes attributes;
        unsigned variable, *place;
        CHECK(i, cudaSetDevice(i));
        CHECK(i, cudaMemcpyFromSymbol(&variable, own, sizeof variable));
        EXPECT(i, variable == seed + i);
        CHECK(i, cudaGetSymbolAddress((void **)&place, own));
        CHECK(i, cudaPointerGetAttributes(&attributes, place));
        EXPECT(i, attributes.device == i);
    }
}

/* Between each two: what is read comes from the one that is named. */
static void peers(const struct device *all, int count, unsigned seed)
{
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < count; j++) {
            int can, result;
            unsigned word;
            if (i == j)
                continue;
            CHECK(i, cudaSetDevice(i));
            CHECK(i, cudaDeviceCanAccessPeer(&can, i, j));
            EXPECT(i, can);
            result = cudaDeviceEnablePeerAccess(j, 0);
            EXPECT(i, result == cudaSuccess || result == cudaErrorPeerAccessAlreadyEnabled);
            if (result)
                (void)cudaGetLastError();
            CHECK(i, cudaMemcpyPeer(all[i].other, i, all[j].words, j, BYTES));
            CHECK(i, cudaMemcpy(&word, all[i].other + 7, sizeof word, cudaMemcpyDeviceToHost));
            EXPECT(i, word == 7 * 2654435761u + seed + j);
        }
    }
}

int main(int argc, char **argv)
{
    static struct device all[COUNT_MAX];
    unsigned seed = 100;
    char line[64];
    int count = 0, i;
    int result = (int)cudaGetDeviceCount(&count);

    if (argc == 1) {
        printf("count %d %d\n", count, result);
        return 0;
    }
    CHECK(-1, result);
    EXPECT(-1, count == argc - 1);
    for (i = 0; i < count; i++)
        begin(&all[i], i, (unsigned)atoi(argv[i + 1]));
    EXPECT(count, cudaSetDevice(count) == cudaErrorInvalidDevice);
    EXPECT(count, cudaGetLastError() == cudaErrorInvalidDevice);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        if (sscanf(line, "uuid %d", &i) == 1) {
            cudaDeviceProp properties;
            CHECK(i, cudaGetDeviceProperties(&properties, i));
            printf("uuid ");
            for (unsigned j = 0; j < sizeof properties.uuid.bytes; j++)
                printf("%02x", (unsigned char)properties.uuid.bytes[j]);
            puts("");
        } else {
            for (i = 0; i < count; i++) {
                names(i);
                places(&all[i], i);
            }
            for (unsigned round = 0; round < 2; round++, seed += 101) {
                work(all, count, seed);
                peers(all, count, seed);
            }
            line[strcspn(line, "\n")] = 0;
            if (!strcmp(line, "whole"))
                variables(count, seed - 101);
            printf("%s %d\n", line, count);
        }
        fflush(stdout);
    }
    return 0;
}
