// Copies between pinned host memory and the device, in boxes of every shape, whose order is the stream's alone: what one
// copy writes the next one reads, host functions between them too. Pinned memory is taken and given back many times.
// nvcc: -lcuda
#include "check.h"
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 96, HEIGHT = 5, DEPTH = 3, ROOM = 64 << 10, MANY = 200 };

struct shape {
    size_t width, height, depth, pitch, rows; // rows: from slice to slice
};

static unsigned char value(size_t i)
{
    return (unsigned char)(i * 31 + i / 251);
}

static cudaMemcpy3DParms box(void *to, const shape &dst, const void *from, const shape &src, cudaMemcpyKind kind)
{
    cudaMemcpy3DParms parms = {};

    parms.dstPtr = make_cudaPitchedPtr(to, dst.pitch, dst.width, dst.rows);
    parms.srcPtr = make_cudaPitchedPtr((void *)from, src.pitch, src.width, src.rows);
    parms.extent = make_cudaExtent(dst.width, dst.height, dst.depth);
    parms.kind = kind;
    return parms;
}

// A box goes to the device and back to another place, with gaps of its own on all four sides of that way.
static void check_shape(char *pinned, char *back, char *device, cudaStream_t stream, const shape &host, const shape &gpu,
                        const shape &other)
{
    for (size_t i = 0; i < ROOM; i++)
        pinned[i] = (char)value(i);
    memset(back, 0x11, ROOM);
    cudaMemcpy3DParms in = box(device, gpu, pinned, host, cudaMemcpyHostToDevice);
    cudaMemcpy3DParms out = box(back, other, device, gpu, cudaMemcpyDeviceToHost);
    CHECK(cudaMemsetAsync(device, 0x22, ROOM, stream));
    CHECK(cudaMemcpy3DAsync(&in, stream));
    CHECK(cudaMemcpy3DAsync(&out, stream));
    CHECK(cudaStreamSynchronize(stream));
    size_t wrong = 0, inside = 0;
    for (size_t slice = 0; slice < host.depth; slice++)
        for (size_t row = 0; row < host.height; row++)
            for (size_t column = 0; column < host.width; column++) {
                size_t from = (slice * host.rows + row) * host.pitch + column;
                size_t to = (slice * other.rows + row) * other.pitch + column;
                wrong += back[to] != (char)value(from);
                back[to] = 0x11;
                inside++;
            }
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(inside, host.width * host.height * host.depth);
    for (size_t i = 0; i < ROOM; i++)
        wrong += back[i] != 0x11;
    EXPECT_EQ(wrong, 0u);
}

static void check_shapes(cudaStream_t stream)
{
    static const shape shapes[][3] = {
        {{WIDTH, 1, 1, WIDTH, 1}, {WIDTH, 1, 1, WIDTH, 1}, {WIDTH, 1, 1, WIDTH, 1}},
        {{ROOM, 1, 1, ROOM, 1}, {ROOM, 1, 1, ROOM, 1}, {ROOM, 1, 1, ROOM, 1}},
        {{WIDTH, HEIGHT, 1, WIDTH, HEIGHT}, {WIDTH, HEIGHT, 1, 128, HEIGHT}, {WIDTH, HEIGHT, 1, 100, HEIGHT}},
        {{WIDTH, HEIGHT, 1, 500, HEIGHT}, {WIDTH, HEIGHT, 1, WIDTH, HEIGHT}, {WIDTH, HEIGHT, 1, 97, HEIGHT}},
        {{WIDTH, HEIGHT, DEPTH, 128, 9}, {WIDTH, HEIGHT, DEPTH, 256, 5}, {WIDTH, HEIGHT, DEPTH, 96, 5}},
        {{1, HEIGHT, DEPTH, 3, 7}, {1, HEIGHT, DEPTH, 5, 5}, {1, HEIGHT, DEPTH, 2, 11}},
        {{WIDTH, 1, DEPTH, 128, 2}, {WIDTH, 1, DEPTH, 96, 1}, {WIDTH, 1, DEPTH, 300, 3}},
    };
    char *pinned, *back, *device;

    CHECK(cudaMallocHost(&pinned, ROOM));
    CHECK(cudaMallocHost(&back, ROOM));
    CHECK(cudaMalloc(&device, ROOM));
    for (const shape(&one)[3] : shapes)
        check_shape(pinned, back, device, stream, one[0], one[1], one[2]);
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFreeHost(back));
}

static void add_one(void *data)
{
    for (size_t i = 0; i < ROOM; i++)
        ((char *)data)[i]++;
}

// The stream is the only order: device to pinned memory, a host function that changes it, and back, a hundred times.
static void check_order(cudaStream_t stream)
{
    char *pinned, *device, result[16];

    CHECK(cudaMallocHost(&pinned, ROOM));
    CHECK(cudaMalloc(&device, ROOM));
    CHECK(cudaMemsetAsync(device, 0, ROOM, stream)); // in the stream, which does not wait for the default one
    for (unsigned i = 0; i < 100; i++) {
        CHECK(cudaMemcpyAsync(pinned, device, ROOM, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaLaunchHostFunc(stream, add_one, pinned));
        CHECK(cudaMemcpy2DAsync(device, ROOM / 4, pinned, ROOM / 4, ROOM / 4, 4, cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemsetAsync(device + ROOM - 1, 0, 1, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaMemcpy(result, device + ROOM - 16, 16, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < 15; i++)
        EXPECT_EQ(result[i], 100);
    EXPECT_EQ(result[15], 0);
    CHECK(cudaFree(device));
    CHECK(cudaFreeHost(pinned));
}

// Memory that is given back while a copy of it is on its way is waited for; what is taken anew is as large as asked.
static void check_many(cudaStream_t stream)
{
    char *pieces[MANY] = {}, *device, *check;
    size_t sizes[MANY];
    unsigned seed = 7;

    CHECK(cudaMalloc(&device, ROOM));
    check = (char *)malloc(ROOM);
    for (unsigned i = 0; i < 3 * MANY; i++) {
        seed = seed * 1103515245u + 12345u;
        unsigned n = seed / 65536 % MANY;
        if (pieces[n]) {
            CHECK(cudaMemcpyAsync(device, pieces[n], sizes[n], cudaMemcpyHostToDevice, stream));
            CHECK(cudaFreeHost(pieces[n]));
            pieces[n] = nullptr;
            CHECK(cudaStreamSynchronize(stream));
            CHECK(cudaMemcpy(check, device, sizes[n], cudaMemcpyDeviceToHost));
            EXPECT_EQ(check[0], (char)n);
            EXPECT_EQ(check[sizes[n] - 1], (char)n);
        } else {
            sizes[n] = 1 + seed / 256 % ROOM;
            CHECK(cudaMallocHost(&pieces[n], sizes[n]));
            memset(pieces[n], (char)n, sizes[n]);
        }
    }
    for (char *piece : pieces)
        if (piece)
            CHECK(cudaFreeHost(piece));
    EXPECT_EQ(cudaFreeHost(check), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    free(check);
    CHECK(cudaFree(device));
}

int main()
{
    cudaStream_t stream;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check_shapes(stream);
    check_shapes(nullptr);
    check_order(stream);
    check_many(stream);
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
