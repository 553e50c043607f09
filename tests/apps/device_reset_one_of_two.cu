// cudaDeviceReset ends what the process has on one device; on the other one everything goes on: memory, module variables
// with their contents and addresses, kernels. Those of the device that was reset have their initial values again.
#include "check.h"

__device__ int counter = 5;
__device__ int table[3] = {10, 20, 30};

__global__ void add(int n)
{
    atomicAdd(&counter, n);
    table[threadIdx.x] += n;
}

__global__ void read(int *values)
{
    values[0] = counter;
    values[1] = table[2];
}

static int *variable_address(void)
{
    void *address = NULL;

    CHECK(cudaGetSymbolAddress(&address, counter));
    return (int *)address;
}

/* What copies and what kernels see of the current device's variables. */
static void expect_values(int counter_value, int table_value)
{
    int value = 0, values[3] = {0}, seen[2] = {0}, *device;

    CHECK(cudaMemcpyFromSymbol(&value, counter, sizeof(value)));
    EXPECT_EQ(value, counter_value);
    CHECK(cudaMemcpyFromSymbol(values, table, sizeof(values)));
    EXPECT_EQ(values[2], table_value);
    CHECK(cudaMalloc(&device, sizeof(seen)));
    read<<<1, 1>>>(device);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(seen, device, sizeof(seen), cudaMemcpyDeviceToHost));
    EXPECT_EQ(seen[0], counter_value);
    EXPECT_EQ(seen[1], table_value);
    CHECK(cudaFree(device));
}

static void add_on(int device, int n)
{
    CHECK(cudaSetDevice(device));
    add<<<1, 3>>>(n);
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
}

int main(void)
{
    int count = 0, memory_value = 77, *memory, *address;

    CHECK(cudaGetDeviceCount(&count));
    if (count < 2)
        SKIP("one device only");
    CHECK(cudaSetDevice(1));
    address = variable_address();
    CHECK(cudaMalloc(&memory, sizeof(*memory)));
    CHECK(cudaMemcpy(memory, &memory_value, sizeof(*memory), cudaMemcpyHostToDevice));
    add_on(1, 100);
    expect_values(5 + 3 * 100, 130);
    for (int round = 1; round <= 3; round++) {
        add_on(0, round);
        expect_values(5 + 3 * round, 30 + round);
        CHECK(cudaDeviceReset());
        CHECK(cudaGetLastError());
        expect_values(5, 30);
        CHECK(cudaSetDevice(1));
        EXPECT(variable_address() == address);
        expect_values(305 + 3 * (round - 1), 130 + round - 1);
        memory_value = 0;
        CHECK(cudaMemcpy(&memory_value, memory, sizeof(memory_value), cudaMemcpyDeviceToHost));
        EXPECT_EQ(memory_value, 77);
        add_on(1, 1);
        expect_values(305 + 3 * round, 130 + round);
    }
    /* Now the other way round, and then both. */
    add_on(0, 7);
    CHECK(cudaSetDevice(1));
    CHECK(cudaDeviceReset());
    expect_values(5, 30);
    CHECK(cudaSetDevice(0));
    expect_values(5 + 3 * 7, 37);
    CHECK(cudaDeviceReset());
    CHECK(cudaSetDevice(1));
    CHECK(cudaDeviceReset());
    for (int device = 0; device < 2; device++) {
        CHECK(cudaSetDevice(device));
        expect_values(5, 30);
    }
    return 0;
}
