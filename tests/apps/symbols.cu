// __device__ and __constant__ variables: copies to and from them with offsets, synchronous and asynchronous,
// their addresses and sizes, pointers between them that the compiler put there, and unknown symbols.
#include "check.h"

struct node {
    int value;
    const struct node *next;
};

__device__ int table[64] = {1, 2, 3};
__constant__ float factors[8] = {0.5f, 1.5f};
__device__ double scalar = 2.25;
/* Initialised with addresses of each other: the loader has to relocate them. */
__device__ struct node second = {20, NULL};
__device__ struct node first = {10, &second};
__constant__ const struct node *entry = &first;
__device__ int *into_table = &table[2];
static int not_a_symbol;

__global__ void follow(int *out)
{
    out[0] = entry->value;
    out[1] = entry->next->value;
    out[2] = *into_table;
    out[3] = (int)(factors[1] * 4);
    out[4] = table[10];
    out[5] = (int)(scalar * 4);
}

static void check_addresses(void)
{
    void *address = NULL;
    size_t bytes = 0;
    int value = 0;
    struct node node;

    CHECK(cudaGetSymbolSize(&bytes, table));
    EXPECT_EQ(bytes, sizeof(table));
    CHECK(cudaGetSymbolSize(&bytes, factors));
    EXPECT_EQ(bytes, sizeof(factors));
    CHECK(cudaGetSymbolAddress(&address, table));
    CHECK(cudaMemcpy(&value, (int *)address + 2, sizeof(value), cudaMemcpyDeviceToHost));
    EXPECT_EQ(value, 3);
    CHECK(cudaMemset((int *)address + 40, 0xff, sizeof(int)));
    CHECK(cudaMemcpyFromSymbol(&value, table, sizeof(value), 40 * sizeof(int)));
    EXPECT_EQ(value, -1);
    CHECK(cudaMemcpyFromSymbol(&node, first, sizeof(node)));
    CHECK(cudaGetSymbolAddress(&address, second));
    EXPECT(node.next == address, "first.next %p, second at %p", (const void *)node.next, address);

    EXPECT_ERR(cudaGetSymbolAddress(&address, not_a_symbol), cudaErrorInvalidSymbol);
    EXPECT_ERR(cudaGetSymbolSize(&bytes, not_a_symbol), cudaErrorInvalidSymbol);
    EXPECT_ERR(cudaMemcpyToSymbol(not_a_symbol, &value, sizeof(value)), cudaErrorInvalidSymbol);
    EXPECT_ERR(cudaMemcpyToSymbol(scalar, &node, sizeof(node)), cudaErrorInvalidValue);
}

int main(void)
{
    int *out, host[6], values[4] = {7, 8, 9, 10};
    float factor = 3.25f;
    cudaStream_t stream;

    CHECK(cudaMalloc(&out, sizeof(host)));
    follow<<<1, 1>>>(out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
    EXPECT(host[0] == 10 && host[1] == 20 && host[2] == 3 && host[3] == 6 && host[4] == 0 && host[5] == 9,
           "%d %d %d %d %d %d", host[0], host[1], host[2], host[3], host[4], host[5]);

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemcpyToSymbol(table, values, sizeof(values), 9 * sizeof(int)));
    CHECK(cudaMemcpyToSymbolAsync(factors, &factor, sizeof(factor), sizeof(float), cudaMemcpyHostToDevice, stream));
    follow<<<1, 1, 0, stream>>>(out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpyAsync(host, out, sizeof(host), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaMemcpyFromSymbolAsync(values, table, sizeof(int) * 2, 10 * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(host[3] == 13 && host[4] == 8 && values[0] == 8 && values[1] == 9, "%d %d %d %d", host[3], host[4],
           values[0], values[1]);

    /* Device to device, in both directions. */
    CHECK(cudaMemcpyFromSymbol(out, table, 4 * sizeof(int), 0, cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpyToSymbol(table, out, 2 * sizeof(int), 20 * sizeof(int), cudaMemcpyDeviceToDevice));
    CHECK(cudaMemcpyFromSymbol(values, table, 2 * sizeof(int), 20 * sizeof(int)));
    EXPECT(values[0] == 1 && values[1] == 2);
    check_addresses();
    CHECK(cudaFree(out));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
