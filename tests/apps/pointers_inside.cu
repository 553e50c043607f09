// Structures with pointers inside: a list and a tree built on the device with addresses the host has handed over,
// followed by kernels, and device function pointers kept in memory.
#include "check.h"

struct node {
    struct node *next;
    int value;
};

struct matrix {
    float *rows[8];
    struct matrix *transposed;
    int size;
};

typedef int (*operation)(int, int);

__device__ int op_add(int a, int b)
{
    return a + b;
}
__device__ int op_multiply(int a, int b)
{
    return a * b;
}
__device__ int op_difference(int a, int b)
{
    return a > b ? a - b : b - a;
}
__device__ operation operations[3] = {op_add, op_multiply, op_difference};
__device__ operation chosen = op_multiply;

/* Links the nodes in an order that strides through them. */
__global__ void link(struct node *nodes, int count, struct node **head)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= count)
        return;
    nodes[i].value = i;
    nodes[i * 7 % count].next = i + 1 < count ? &nodes[(i + 1) * 7 % count] : NULL;
    if (i == 0)
        *head = nodes;
}

__global__ void walk(struct node *const *head, int *count, long long *weighted)
{
    *count = 0;
    *weighted = 0;
    for (struct node *n = *head; n; n = n->next)
        *weighted += (long long)n->value * ++*count;
}

__global__ void transpose(struct matrix *m)
{
    int x = threadIdx.x, y = threadIdx.y;

    m->transposed->rows[x][y] = m->rows[y][x];
}

__global__ void apply(const operation *table, int *out, int a, int b)
{
    out[threadIdx.x] = table[threadIdx.x % 3](a, b + threadIdx.x) + chosen(2, threadIdx.x);
}

static void check_list(void)
{
    enum { COUNT = 1000 };
    struct node *nodes, **head;
    long long *weighted, got = 0, want = 0;
    int *count, length = 0;

    CHECK(cudaMalloc(&nodes, COUNT * sizeof(*nodes)));
    CHECK(cudaMalloc(&head, sizeof(*head)));
    CHECK(cudaMalloc(&weighted, sizeof(*weighted)));
    CHECK(cudaMalloc(&count, sizeof(*count)));
    link<<<4, 256>>>(nodes, COUNT, head);
    walk<<<1, 1>>>(head, count, weighted);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&length, count, sizeof(length), cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&got, weighted, sizeof(got), cudaMemcpyDeviceToHost));
    for (long long i = 0; i < COUNT; i++)
        want += i * 7 % COUNT * (i + 1);
    EXPECT_EQ(length, COUNT);
    EXPECT_EQ(got, want);
    CHECK(cudaFree(nodes));
    CHECK(cudaFree(head));
    CHECK(cudaFree(weighted));
    CHECK(cudaFree(count));
}

static void check_matrix(void)
{
    struct matrix host[2], *device;
    float row[8], *cells;

    CHECK(cudaMalloc(&device, sizeof(host)));
    CHECK(cudaMalloc(&cells, 2 * 64 * sizeof(float)));
    for (int m = 0; m < 2; m++) {
        for (int y = 0; y < 8; y++)
            host[m].rows[y] = cells + 64 * m + 8 * y;
        host[m].transposed = device + !m;
        host[m].size = 8;
    }
    CHECK(cudaMemcpy(device, host, sizeof(host), cudaMemcpyHostToDevice));
    for (int y = 0; y < 8; y++) {
        for (int x = 0; x < 8; x++)
            row[x] = (float)(y * 8 + x);
        CHECK(cudaMemcpy(host[0].rows[y], row, sizeof(row), cudaMemcpyHostToDevice));
    }
    transpose<<<1, dim3(8, 8)>>>(device);
    CHECK_LAUNCH();
    for (int y = 0; y < 8; y++) {
        CHECK(cudaMemcpy(row, host[1].rows[y], sizeof(row), cudaMemcpyDeviceToHost));
        for (int x = 0; x < 8; x++)
            EXPECT(row[x] == (float)(x * 8 + y), "(%d, %d): %f", x, y, row[x]);
    }
    CHECK(cudaFree(device));
    CHECK(cudaFree(cells));
}

static void check_functions(void)
{
    operation host[3], *table;
    int *out, back[33];

    /* Device function pointers are data: read, shuffled on the host, sent back. */
    CHECK(cudaMemcpyFromSymbol(host, operations, sizeof(host)));
    operation swap = host[0];
    host[0] = host[2];
    host[2] = swap;
    CHECK(cudaMalloc(&table, sizeof(host)));
    CHECK(cudaMalloc(&out, sizeof(back)));
    CHECK(cudaMemcpy(table, host, sizeof(host), cudaMemcpyHostToDevice));
    apply<<<1, 33>>>(table, out, 10, 3);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(back, out, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 33; i++) {
        int b = 3 + i, want = i % 3 == 0 ? abs(10 - b) : i % 3 == 1 ? 10 * b : 10 + b;

        EXPECT_EQ(back[i], want + 2 * i);
    }
    CHECK(cudaFree(table));
    CHECK(cudaFree(out));
}

int main(void)
{
    check_list();
    check_matrix();
    check_functions();
    return 0;
}
