/* Two discs of stars fall into each other: tiled n-body in shared memory, a picture of where the stars ended. The total
 * momentum, which gravity between the stars cannot change, is compared before and after. */
#include "demo.h"
#include "picture.h"
#include <cmath>

const int TILE = 128;

__global__ void step(const float4 *from, float4 *to, float4 *velocity, int count, float dt)
{
    __shared__ float4 tile[TILE];
    int i = blockIdx.x * TILE + threadIdx.x;
    float4 me = from[i];
    float ax = 0, ay = 0, az = 0;
    for (int base = 0; base < count; base += TILE) {
        tile[threadIdx.x] = from[base + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < TILE; j++) {
            float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
            float near = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
            float pull = tile[j].w * near * near * near;
            ax += dx * pull, ay += dy * pull, az += dz * pull;
        }
        __syncthreads();
    }
    float4 v = velocity[i];
    v.x += ax * dt, v.y += ay * dt, v.z += az * dt;
    velocity[i] = v;
    to[i] = make_float4(me.x + v.x * dt, me.y + v.y * dt, me.z + v.z * dt, me.w);
}

static float random_unit()
{
    static unsigned long long state = 1;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 40) / (float)(1 << 24);
}

static void momentum(const std::vector<float4> &place, const std::vector<float4> &velocity, double sum[3])
{
    sum[0] = sum[1] = sum[2] = 0;
    for (size_t i = 0; i < place.size(); i++) {
        sum[0] += place[i].w * velocity[i].x;
        sum[1] += place[i].w * velocity[i].y;
        sum[2] += place[i].w * velocity[i].z;
    }
}

int main(int argc, char **argv)
{
    const int count = 2048, steps = argc > 2 ? atoi(argv[2]) : 40;
    const unsigned side = 512;
    print_device();
    std::vector<float4> place(count), velocity(count);
    for (int i = 0; i < count; i++) {
        int disc = i & 1;
        float angle = 6.2831853f * random_unit(), radius = 0.2f + 1.3f * sqrtf(random_unit());
        float speed = sqrtf(radius / (radius * radius + 0.1f)) * 0.7f;
        float cx = disc ? 1.6f : -1.6f, cy = disc ? 0.8f : -0.8f;
        place[i] = make_float4(cx + radius * cosf(angle), cy + radius * sinf(angle), 0.1f * (random_unit() - 0.5f),
                               1.0f / count);
        velocity[i] = make_float4(-speed * sinf(angle) + (disc ? -0.25f : 0.25f), speed * cosf(angle), 0, 0);
    }
    double before[3], after[3];
    momentum(place, velocity, before);

    float4 *places[2], *velocities;
    const size_t bytes = count * sizeof(float4);
    CHECK(cudaMalloc(&places[0], bytes));
    CHECK(cudaMalloc(&places[1], bytes));
    CHECK(cudaMalloc(&velocities, bytes));
    CHECK(cudaMemcpy(places[0], place.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(velocities, velocity.data(), bytes, cudaMemcpyHostToDevice));
    for (int i = 0; i < steps; i++)
        step<<<count / TILE, TILE>>>(places[i & 1], places[~i & 1], velocities, count, 0.05f);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(place.data(), places[steps & 1], bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(velocity.data(), velocities, bytes, cudaMemcpyDeviceToHost));
    momentum(place, velocity, after);

    std::vector<unsigned char> pixels(side * side);
    for (const float4 &star : place) {
        int x = (int)((star.x / 7.0f + 0.5f) * side), y = (int)((star.y / 7.0f + 0.5f) * side);
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++)
                if (x + dx >= 0 && y + dy >= 0 && x + dx < (int)side && y + dy < (int)side) {
                    unsigned char &pixel = pixels[(y + dy) * side + x + dx];
                    int light = pixel + (dx || dy ? 60 : 150);
                    pixel = light > 255 ? 255 : light;
                }
    }
    picture_show(pixels, side, side, 64);
    double drift = 0;
    for (int axis = 0; axis < 3; axis++)
        drift = fmax(drift, fabs(after[axis] - before[axis]));
    printf("    %d stars, %d steps; momentum changed by %.1e: %s\n", count, steps, drift,
           drift < 1e-4 ? "correct" : "WRONG");
    if (argc > 1 && picture_write(argv[1], pixels, side, side))
        printf("    picture: %s\n", argv[1]);
    return drift < 1e-4 ? 0 : 1;
}
