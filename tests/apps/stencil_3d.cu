// A wave's finite differences in three dimensions, 25 points: each block walks through the planes of its column of the
// volume, the plane's tile in shared memory, what lies before and behind in registers. SIZE: the cube's inner edge, a
// multiple of 32.
#include "textbook.h"

#include <math.h>

enum { RADIUS = 4, TILE_X = 32, TILE_Y = 8, STEPS = 2 };

__constant__ float weights[RADIUS + 1];

// The volume has RADIUS points on each side that stay as they are. `stride`: points of a row, `plane`: of a plane.
__global__ void step(const float *in, float *out, int n, int stride, int plane)
{
    __shared__ float tile[TILE_Y + 2 * RADIUS][TILE_X + 2 * RADIUS];
    int tx = threadIdx.x + RADIUS, ty = threadIdx.y + RADIUS;
    int at = (blockIdx.y * TILE_Y + ty) * stride + blockIdx.x * TILE_X + tx;
    float before[RADIUS], here, behind[RADIUS];

    for (int i = RADIUS - 1; i >= 0; i--, at += plane)
        before[i] = in[at];
    here = in[at];
    for (int i = 0; i < RADIUS; i++)
        behind[i] = in[at + (i + 1) * plane];
    for (int z = 0; z < n; z++, at += plane) {
        float sum;

        __syncthreads();
        tile[ty][tx] = here;
        if (threadIdx.y < RADIUS) {
            tile[threadIdx.y][tx] = in[at - RADIUS * stride];
            tile[ty + TILE_Y][tx] = in[at + TILE_Y * stride];
        }
        if (threadIdx.x < RADIUS) {
            tile[ty][threadIdx.x] = in[at - RADIUS];
            tile[ty][tx + TILE_X] = in[at + TILE_X];
        }
        __syncthreads();
        sum = weights[0] * here;
        for (int i = 1; i <= RADIUS; i++)
            sum = fmaf(weights[i], before[i - 1] + behind[i - 1] + tile[ty - i][tx] + tile[ty + i][tx] +
                                       tile[ty][tx - i] + tile[ty][tx + i], sum);
        out[at] = sum;
        for (int i = RADIUS - 1; i > 0; i--)
            before[i] = before[i - 1];
        before[0] = here;
        here = behind[0];
        for (int i = 0; i < RADIUS - 1; i++)
            behind[i] = behind[i + 1];
        if (z + 1 < n)
            behind[RADIUS - 1] = in[at + (RADIUS + 1) * plane];
    }
}

static std::vector<float> step_on_host(const std::vector<float> &in, const float *host_weights, int n, int stride,
                                       int plane)
{
    std::vector<float> out = in;

    for (int z = RADIUS; z < n + RADIUS; z++)
        for (int y = RADIUS; y < n + RADIUS; y++)
            for (int x = RADIUS; x < n + RADIUS; x++) {
                const float *at = &in[z * plane + y * stride + x];
                float sum = host_weights[0] * *at;

                for (int i = 1; i <= RADIUS; i++)
                    sum = fmaf(host_weights[i], at[-i * plane] + at[i * plane] + at[-i * stride] + at[i * stride] +
                                                    at[-i] + at[i], sum);
                out[z * plane + y * stride + x] = sum;
            }
    return out;
}

int main(int argc, char **argv)
{
    struct textbook book = textbook_read(argc, argv, 32);
    int n = book.size, stride = n + 2 * RADIUS, plane = stride * stride;
    std::vector<float> volume((size_t)plane * stride), got(volume.size());
    float host_weights[RADIUS + 1] = {-0.5f, 0.125f, -0.03f, 0.006f, -0.001f};
    uint32_t seed = 13;

    EXPECT(n % TILE_X == 0);
    for (float &value : volume)
        value = random_float(&seed, -1, 1);
    CHECK(cudaMemcpyToSymbol(weights, host_weights, sizeof(host_weights)));
    float *din = to_device(volume), *dout = to_device(volume);
    for (int round = 0; round < book.rounds; round++) {
        CHECK(cudaMemcpy(din, volume.data(), volume.size() * sizeof(float), cudaMemcpyHostToDevice));
        for (int i = 0; i < STEPS; i++) {
            step<<<dim3(n / TILE_X, n / TILE_Y), dim3(TILE_X, TILE_Y)>>>(i % 2 ? dout : din, i % 2 ? din : dout, n,
                                                                        stride, plane);
        }
    }
    CHECK_LAUNCH();
    from_device(got, STEPS % 2 ? dout : din);
    std::vector<float> want = volume;
    for (int i = 0; i < STEPS; i++)
        want = step_on_host(want, host_weights, n, stride, plane);
    for (size_t i = 0; i < got.size(); i++)
        EXPECT(got[i] == want[i], "(%d, %d, %d): %.9g, expected %.9g", (int)(i % stride), (int)(i / stride % stride),
               (int)(i / plane), got[i], want[i]);
    textbook_report(&book, STEPS * (double)n * n * n * (1 + RADIUS * 7));
    return 0;
}
