// Pitched memory: cudaMallocPitch, 2D copies in every direction with differing pitches, 2D memset, a kernel
// that walks rows by pitch, and the refusal of a row wider than its pitch.
#include "check.h"

enum { WIDTH = 37, HEIGHT = 19, HOST_PITCH = 50 };

__global__ void add_row(unsigned char *base, size_t pitch, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;

    if (x < width && y < height)
        base[y * pitch + x] += y;
}

/* A large box with gaps goes from pinned memory in the background, and from one stream to the next in order. */
static void check_large_from_pinned(void)
{
    enum { ROWS = 3001, ROW = 2999, STRIDE = 3200, ROUNDS = 3 };
    unsigned char *pinned[2], *device, *back = (unsigned char *)malloc((size_t)ROW * ROWS);
    cudaStream_t stream;
    size_t pitch, wrong = 0;

    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMallocPitch(&device, &pitch, ROW, ROWS));
    for (int i = 0; i < 2; i++) {
        CHECK(cudaMallocHost(&pinned[i], (size_t)STRIDE * ROWS));
        for (size_t j = 0; j < (size_t)STRIDE * ROWS; j++)
            pinned[i][j] = (unsigned char)(j % STRIDE < ROW ? j / STRIDE * 3 + j % STRIDE + i : 0xee);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2; i++)
            CHECK(cudaMemcpy2DAsync(device, pitch, pinned[i], STRIDE, ROW, ROWS, cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemcpy2DAsync(back, ROW, device, pitch, ROW, ROWS, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (size_t j = 0; j < (size_t)ROW * ROWS; j++)
            wrong += back[j] != (unsigned char)(j / ROW * 3 + j % ROW + 1);
        EXPECT(wrong == 0, "round %d: %zu bytes are wrong", round, wrong);
    }
    for (int i = 0; i < 2; i++)
        CHECK(cudaFreeHost(pinned[i]));
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
    free(back);
}

int main(void)
{
    unsigned char host[HEIGHT][HOST_PITCH], back[HEIGHT][WIDTH], padded[HEIGHT][HOST_PITCH];
    unsigned char *a, *b;
    size_t pitch_a = 0, pitch_b = 0;
    cudaStream_t stream;

    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < HOST_PITCH; x++)
            host[y][x] = (unsigned char)(x < WIDTH ? y * 7 + x : 0xee);
    CHECK(cudaMallocPitch(&a, &pitch_a, WIDTH, HEIGHT));
    CHECK(cudaMallocPitch(&b, &pitch_b, 700, HEIGHT));
    EXPECT(pitch_a >= WIDTH && pitch_b >= 700 && pitch_a % 32 == 0 && pitch_b % 32 == 0);
    CHECK(cudaMemset2D(a, pitch_a, 0x11, pitch_a, HEIGHT));
    CHECK(cudaMemset2D(b, pitch_b, 0x22, 700, HEIGHT));
    CHECK(cudaMemcpy2D(a, pitch_a, host, HOST_PITCH, WIDTH, HEIGHT, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2D(b + 5, pitch_b, a, pitch_a, WIDTH, HEIGHT, cudaMemcpyDeviceToDevice));
    add_row<<<dim3(5, 3), dim3(8, 8)>>>(b + 5, pitch_b, WIDTH, HEIGHT);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy2D(back, WIDTH, b + 5, pitch_b, WIDTH, HEIGHT, cudaMemcpyDeviceToHost));
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            EXPECT(back[y][x] == (unsigned char)(y * 8 + x), "(%d, %d): %d", x, y, back[y][x]);

    /* The columns beside the copied ones keep what memset wrote there. */
    CHECK(cudaMemcpy2D(padded, HOST_PITCH, b, pitch_b, HOST_PITCH, HEIGHT, cudaMemcpyDefault));
    EXPECT(padded[3][4] == 0x22 && padded[3][5 + WIDTH] == 0x22 && padded[3][5] == 24);

    CHECK(cudaStreamCreate(&stream));
    memset(padded, 0x33, sizeof(padded));
    CHECK(cudaMemset2DAsync(b + 1, pitch_b, 9, 10, 2, stream));
    CHECK(cudaMemcpy2DAsync(padded, HOST_PITCH, b, pitch_b, 20, 3, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(padded[1][1] == 9 && padded[1][10] == 9 && padded[1][0] == 0x22 && padded[2][1] == 0x22);
    EXPECT(padded[1][20] == 0x33 && padded[3][0] == 0x33, "bytes outside the rectangle were written");
    CHECK(cudaMemcpy2D(padded, HOST_PITCH, host, HOST_PITCH, WIDTH, HEIGHT, cudaMemcpyHostToHost));
    EXPECT(memcmp(padded[HEIGHT - 1], host[HEIGHT - 1], WIDTH) == 0 && padded[3][WIDTH] == 0x33);

    CHECK(cudaMemcpy2D(back, WIDTH, b, pitch_b, 0, HEIGHT, cudaMemcpyDeviceToHost));
    EXPECT_ERR(cudaMemcpy2D(a, pitch_a, host, WIDTH - 1, WIDTH, HEIGHT, cudaMemcpyHostToDevice),
               cudaErrorInvalidPitchValue);
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    check_large_from_pinned();
    return 0;
}
