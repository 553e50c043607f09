/* usage: stars COUNT. A cluster of stars (a multiple of 128), all pairs, step by step, until standard input ends. About
 * once a second it prints how many interactions it has computed per second since its last line, and the number of SMs
 * that CUDA says the GPU has. Gravity between the stars cannot change their total momentum: that is compared at the end. */
#include "demo.h"
#include <cmath>
#include <poll.h>
#include <time.h>
#include <unistd.h>
#include <vector>

const int TILE = 32, PARTS = 4;

/* What one part of the stars does to a tile of them: many small blocks, so that all SMs of any number have some. */
__global__ void pull(const float4 *place, float3 *sums, int count)
{
    __shared__ float4 tile[TILE];
    int i = blockIdx.x * TILE + threadIdx.x, part = count / PARTS;
    float4 me = place[i];
    float ax = 0, ay = 0, az = 0;
    for (int base = blockIdx.y * part; base < (int)(blockIdx.y + 1) * part; base += TILE) {
        tile[threadIdx.x] = place[base + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < TILE; j++) {
            float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
            float near = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
            float force = tile[j].w * near * near * near;
            ax += dx * force, ay += dy * force, az += dz * force;
        }
        __syncthreads();
    }
    sums[blockIdx.y * count + i] = make_float3(ax, ay, az);
}

__global__ void move(float4 *place, float4 *velocity, const float3 *sums, int count, float dt)
{
    int i = blockIdx.x * TILE + threadIdx.x;
    float4 me = place[i], v = velocity[i];
    for (int part = 0; part < PARTS; part++) {
        float3 a = sums[part * count + i];
        v.x += a.x * dt, v.y += a.y * dt, v.z += a.z * dt;
    }
    velocity[i] = v;
    place[i] = make_float4(me.x + v.x * dt, me.y + v.y * dt, me.z + v.z * dt, me.w);
}

static float random_unit()
{
    static unsigned long long state = 1;
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (state >> 40) / (float)(1 << 24);
}

static double now_s()
{
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
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

static bool is_over()
{
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, 0) > 0;
}

int main(int argc, char **argv)
{
    const int count = argc > 1 ? atoi(argv[1]) : 0;
    if (count < TILE * PARTS || count % (TILE * PARTS))
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    std::vector<float4> place(count), velocity(count);
    for (int i = 0; i < count; i++) {
        float angle = 6.2831853f * random_unit(), radius = 0.2f + 1.3f * sqrtf(random_unit());
        place[i] = make_float4(radius * cosf(angle), radius * sinf(angle), random_unit() - 0.5f, 1.0f / count);
        velocity[i] = make_float4(-0.5f * sinf(angle), 0.5f * cosf(angle), 0, 0);
    }
    double before[3], after[3];
    momentum(place, velocity, before);

    float4 *places, *velocities;
    float3 *sums;
    const size_t bytes = count * sizeof(float4);
    CHECK(cudaMalloc(&places, bytes));
    CHECK(cudaMalloc(&velocities, bytes));
    CHECK(cudaMalloc(&sums, PARTS * count * sizeof *sums));
    CHECK(cudaMemcpy(places, place.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(velocities, velocity.data(), bytes, cudaMemcpyHostToDevice));
    int steps = 0, told = 0;
    for (double told_s = now_s(); !is_over(); steps++) {
        pull<<<dim3(count / TILE, PARTS), TILE>>>(places, sums, count);
        move<<<count / TILE, TILE>>>(places, velocities, sums, count, 0.002f);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
        double s = now_s();
        if (s - told_s < 1)
            continue;
        int sms;
        CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
        printf("%d SMs: %.2f million interactions per second\n", sms,
               1e-6 * count * count * (steps + 1 - told) / (s - told_s));
        told = steps + 1;
        told_s = s;
    }
    CHECK(cudaMemcpy(place.data(), places, bytes, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(velocity.data(), velocities, bytes, cudaMemcpyDeviceToHost));
    momentum(place, velocity, after);
    double drift = 0;
    for (int axis = 0; axis < 3; axis++)
        drift = fmax(drift, fabs(after[axis] - before[axis]));
    printf("%d stars, %d steps; momentum changed by %.1e: %s\n", count, steps, drift,
           drift < 1e-4 ? "correct" : "WRONG");
    return drift < 1e-4 ? 0 : 1;
}
