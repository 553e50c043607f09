// Convolution of an image with a separable kernel of radius 8: a pass over the rows and one over the columns, each with
// its tile and what lies beside it in shared memory, the weights in constant memory. SIZE: the square image's edge, a
// multiple of 64.
#include "textbook.h"

#include <math.h>

enum { RADIUS = 8, ROW_X = 32, ROW_Y = 4, COLUMN_X = 32, COLUMN_Y = 8, STEPS = 2 };

__constant__ float weights[2 * RADIUS + 1];

__global__ void convolve_rows(const float *in, float *out, int n)
{
    __shared__ float tile[ROW_Y][STEPS * ROW_X + 2 * RADIUS];
    int first = blockIdx.x * STEPS * ROW_X, y = blockIdx.y * ROW_Y + threadIdx.y;

    for (int i = threadIdx.x; i < STEPS * ROW_X + 2 * RADIUS; i += ROW_X) {
        int x = first + i - RADIUS;

        tile[threadIdx.y][i] = x >= 0 && x < n ? in[y * n + x] : 0;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < STEPS * ROW_X; i += ROW_X) {
        float sum = 0;

        for (int k = -RADIUS; k <= RADIUS; k++)
            sum = fmaf(weights[RADIUS - k], tile[threadIdx.y][i + k + RADIUS], sum);
        out[y * n + first + i] = sum;
    }
}

__global__ void convolve_columns(const float *in, float *out, int n)
{
    __shared__ float tile[STEPS * COLUMN_Y + 2 * RADIUS][COLUMN_X];
    int x = blockIdx.x * COLUMN_X + threadIdx.x, first = blockIdx.y * STEPS * COLUMN_Y;

    for (int i = threadIdx.y; i < STEPS * COLUMN_Y + 2 * RADIUS; i += COLUMN_Y) {
        int y = first + i - RADIUS;

        tile[i][threadIdx.x] = y >= 0 && y < n ? in[y * n + x] : 0;
    }
    __syncthreads();
    for (int i = threadIdx.y; i < STEPS * COLUMN_Y; i += COLUMN_Y) {
        float sum = 0;

        for (int k = -RADIUS; k <= RADIUS; k++)
            sum = fmaf(weights[RADIUS - k], tile[i + k + RADIUS][threadIdx.x], sum);
        out[(first + i) * n + x] = sum;
    }
}

// One pass on the host: along x where step is 1, along y where it is n.
static std::vector<float> convolve_on_host(const std::vector<float> &in, const float *host_weights, int n, int step)
{
    std::vector<float> out(in.size());

    for (int y = 0; y < n; y++)
        for (int x = 0; x < n; x++) {
            int at = step == 1 ? x : y;
            float sum = 0;

            for (int k = -RADIUS; k <= RADIUS; k++)
                if (at + k >= 0 && at + k < n)
                    sum = fmaf(host_weights[RADIUS - k], in[y * n + x + k * step], sum);
            out[y * n + x] = sum;
        }
    return out;
}

int main(int argc, char **argv)
{
    struct textbook book = textbook_read(argc, argv, 128);
    int n = book.size;
    std::vector<float> image((size_t)n * n), got(image.size());
    float host_weights[2 * RADIUS + 1];
    uint32_t seed = 7;

    EXPECT(n % (STEPS * ROW_X) == 0);
    for (float &value : image)
        value = random_float(&seed, 0, 16);
    for (float &value : host_weights)
        value = random_float(&seed, -1, 1);
    CHECK(cudaMemcpyToSymbol(weights, host_weights, sizeof(host_weights)));
    float *din = to_device(image), *dbetween = to_device(got), *dout = to_device(got);
    for (int round = 0; round < book.rounds; round++) {
        convolve_rows<<<dim3(n / (STEPS * ROW_X), n / ROW_Y), dim3(ROW_X, ROW_Y)>>>(din, dbetween, n);
        convolve_columns<<<dim3(n / COLUMN_X, n / (STEPS * COLUMN_Y)), dim3(COLUMN_X, COLUMN_Y)>>>(dbetween, dout, n);
    }
    CHECK_LAUNCH();
    from_device(got, dout);
    std::vector<float> want = convolve_on_host(convolve_on_host(image, host_weights, n, 1), host_weights, n, n);
    for (int i = 0; i < n * n; i++)
        EXPECT(got[i] == want[i], "(%d, %d): %.9g, expected %.9g", i % n, i / n, got[i], want[i]);
    textbook_report(&book, 2.0 * n * n * 2 * (2 * RADIUS + 1));
    return 0;
}
