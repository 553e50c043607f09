// The textbook product of square matrices: tiles of 16×16 and 32×32 elements in shared memory, one thread for each
// element of the result, the size a multiple of the tile's. Variants: 16, 32.
#include "textbook.h"

#include <math.h>

template <int TILE> __global__ void multiply(const float *a, const float *b, float *c, int n)
{
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0;

    for (int tile = 0; tile < n; tile += TILE) {
        left[y][x] = a[row * n + tile + x];
        right[y][x] = b[(tile + y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++)
            sum += left[y][k] * right[k][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

template <int TILE> static void run(const struct textbook *book, const std::vector<float> &a, const std::vector<float> &b)
{
    int n = book->size;

    if (book->variant && book->variant != TILE)
        return;
    EXPECT(n % TILE == 0);
    std::vector<float> c((size_t)n * n);
    float *da = to_device(a), *db = to_device(b), *dc = to_device(c);
    for (int round = 0; round < book->rounds; round++)
        multiply<TILE><<<dim3(n / TILE, n / TILE), dim3(TILE, TILE)>>>(da, db, dc, n);
    CHECK_LAUNCH();
    from_device(c, dc);
    for (int y = 0; y < n; y++) {
        std::vector<double> want(n), magnitude(n);

        for (int k = 0; k < n; k++)
            for (int x = 0; x < n; x++) {
                double term = (double)a[y * n + k] * b[k * n + x];

                want[x] += term;
                magnitude[x] += fabs(term);
            }
        for (int x = 0; x < n; x++)
            EXPECT(fabs(c[y * n + x] - want[x]) <= 1e-6 * magnitude[x], "tile %d (%d, %d): %f, expected %f", TILE, x, y,
                   c[y * n + x], want[x]);
    }
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dc));
}

int main(int argc, char **argv)
{
    struct textbook book = textbook_read(argc, argv, 96);
    std::vector<float> a((size_t)book.size * book.size), b(a.size());
    uint32_t seed = 3;

    for (size_t i = 0; i < a.size(); i++) {
        a[i] = random_float(&seed, -1, 1);
        b[i] = random_float(&seed, -1, 1);
    }
    run<16>(&book, a, b);
    run<32>(&book, a, b);
    textbook_report(&book, 2.0 * book.size * book.size * book.size);
    return 0;
}
