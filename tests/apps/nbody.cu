// N bodies under gravity for some steps: vector types, shared tiles and rsqrtf, against the same sum in double
// precision, and the conservation of momentum.
#include "check.h"
#include <math.h>

enum { BODIES = 256, STEPS = 4, TILE = 64 };

#define SOFTENING 0.05f
#define STEP      0.01f

__global__ void accelerate(const float4 *bodies, float4 *velocities)
{
    __shared__ float4 tile[TILE];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = bodies[i], v = velocities[i];
    float3 a = make_float3(0, 0, 0);

    for (int t = 0; t < BODIES; t += TILE) {
        tile[threadIdx.x] = bodies[t + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < TILE; j++) {
            float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + SOFTENING);
            float pull = tile[j].w * inverse * inverse * inverse;

            a.x += dx * pull;
            a.y += dy * pull;
            a.z += dz * pull;
        }
        __syncthreads();
    }
    v.x += a.x * STEP;
    v.y += a.y * STEP;
    v.z += a.z * STEP;
    velocities[i] = v;
}

__global__ void move(float4 *bodies, const float4 *velocities)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    bodies[i].x += velocities[i].x * STEP;
    bodies[i].y += velocities[i].y * STEP;
    bodies[i].z += velocities[i].z * STEP;
}

static double position[BODIES][3], velocity[BODIES][3], mass[BODIES];

static void step_on_host(void)
{
    for (int i = 0; i < BODIES; i++)
        for (int j = 0; j < BODIES; j++) {
            double d[3], square = SOFTENING, pull;

            for (int k = 0; k < 3; k++) {
                d[k] = position[j][k] - position[i][k];
                square += d[k] * d[k];
            }
            pull = mass[j] / (square * sqrt(square));
            for (int k = 0; k < 3; k++)
                velocity[i][k] += d[k] * pull * STEP;
        }
    for (int i = 0; i < BODIES; i++)
        for (int k = 0; k < 3; k++)
            position[i][k] += velocity[i][k] * STEP;
}

int main(void)
{
    static float4 bodies[BODIES], velocities[BODIES];
    float4 *device_bodies, *device_velocities;
    double momentum[3] = {0};
    uint32_t seed = 42;

    for (int i = 0; i < BODIES; i++) {
        float v[4];

        for (int k = 0; k < 4; k++)
            v[k] = (float)(next_random(&seed) % 20000) / 10000 - (k < 3 ? 1.0f : -0.1f);
        bodies[i] = make_float4(v[0], v[1], v[2], v[3]);
        for (int k = 0; k < 3; k++)
            position[i][k] = v[k];
        mass[i] = v[3];
    }
    CHECK(cudaMalloc(&device_bodies, sizeof(bodies)));
    CHECK(cudaMalloc(&device_velocities, sizeof(velocities)));
    CHECK(cudaMemcpy(device_bodies, bodies, sizeof(bodies), cudaMemcpyHostToDevice));
    CHECK(cudaMemset(device_velocities, 0, sizeof(velocities)));
    for (int s = 0; s < STEPS; s++) {
        accelerate<<<BODIES / TILE, TILE>>>(device_bodies, device_velocities);
        move<<<BODIES / TILE, TILE>>>(device_bodies, device_velocities);
        step_on_host();
    }
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(bodies, device_bodies, sizeof(bodies), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(velocities, device_velocities, sizeof(velocities), cudaMemcpyDeviceToHost));
    for (int i = 0; i < BODIES; i++) {
        const float got[3] = {bodies[i].x, bodies[i].y, bodies[i].z};
        const float speed[3] = {velocities[i].x, velocities[i].y, velocities[i].z};

        for (int k = 0; k < 3; k++) {
            EXPECT(fabs(got[k] - position[i][k]) < 1e-3, "body %d: %f, expected %f", i, got[k], position[i][k]);
            momentum[k] += speed[k] * mass[i];
        }
    }
    for (int k = 0; k < 3; k++)
        EXPECT(fabs(momentum[k]) < 0.1, "momentum %f", momentum[k]);
    CHECK(cudaFree(device_bodies));
    CHECK(cudaFree(device_velocities));
    return 0;
}
