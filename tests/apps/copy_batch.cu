// Batches of copies: ranges and boxes in every direction, with the order of access that their sources have, and what is
// refused.
#include "check.h"

enum { COUNT = 24, BYTES = 40000, WIDTH = 100, HEIGHT = 7, DEPTH = 3, ROW = 128, ROWS = 9 };

static unsigned char pattern(int which, int i)
{
    return (unsigned char)(which * 37 + i * 11 + (i >> 8));
}

static cudaMemcpyAttributes of_order(cudaMemcpySrcAccessOrder order)
{
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = order;
    attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
    return attributes;
}

/* To the device from three kinds of memory, within it, and back; sources that may be used again are. */
static void test_ranges(cudaStream_t stream)
{
    unsigned char *device, *pinned, *back, *pageable = (unsigned char *)malloc(BYTES), ephemeral[256];
    CHECK(cudaMalloc(&device, COUNT * BYTES));
    CHECK(cudaMemset(device, 0, COUNT * BYTES));
    CHECK(cudaMallocHost(&pinned, 2 * BYTES));
    CHECK(cudaMallocHost(&back, COUNT * BYTES));
    for (int i = 0; i < BYTES; i++) {
        pinned[i] = pattern(1, i);
        pinned[BYTES + i] = pattern(2, i);
        pageable[i] = pattern(3, i);
    }
    for (int i = 0; i < 256; i++)
        ephemeral[i] = pattern(4, i);
    CHECK(cudaDeviceSynchronize());
    void *dsts[] = {device, device + BYTES, device + 2 * BYTES, device + 3 * BYTES};
    const void *srcs[] = {pinned, pinned + BYTES, pageable, ephemeral};
    size_t sizes[] = {BYTES, BYTES - 1, BYTES, 256}, firsts[] = {0, 1, 2};
    cudaMemcpyAttributes attributes[] = {of_order(cudaMemcpySrcAccessOrderStream),
                                         of_order(cudaMemcpySrcAccessOrderDuringApiCall),
                                         of_order(cudaMemcpySrcAccessOrderDuringApiCall)};
    CHECK(cudaMemcpyBatchAsync(dsts, srcs, sizes, 4, attributes, firsts, 3, stream));
    memset(pinned + BYTES, 0, BYTES); /* what was to be read during the call is the program's again */
    memset(pageable, 0, BYTES);
    memset(ephemeral, 0, sizeof ephemeral);
    void *further[] = {device + 4 * BYTES, device + 5 * BYTES};
    const void *within[] = {device, device + 2 * BYTES};
    CHECK(cudaMemcpyBatchAsync(further, within, sizes, 2, attributes, firsts, 1, stream));
    void *home[] = {back, back + 6 * BYTES};
    const void *from[] = {device, device};
    size_t all[] = {6 * BYTES, 100};
    cudaMemcpyAttributes any = of_order(cudaMemcpySrcAccessOrderAny);
    CHECK(cudaMemcpyBatchAsync(home, from, all, 2, &any, firsts, 1, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < BYTES; i++) {
        EXPECT_EQ(back[i], pattern(1, i));
        EXPECT_EQ(back[BYTES + i], i < BYTES - 1 ? pattern(2, i) : 0);
        EXPECT_EQ(back[2 * BYTES + i], pattern(3, i));
        EXPECT_EQ(back[3 * BYTES + i], i < 256 ? pattern(4, i) : 0);
        EXPECT_EQ(back[4 * BYTES + i], pattern(1, i));
        EXPECT_EQ(back[5 * BYTES + i], i < BYTES - 1 ? pattern(3, i) : 0);
        EXPECT_EQ(back[6 * BYTES + i], i < 100 ? pattern(1, i) : 0);
    }
    CHECK(cudaFreeHost(back));
    CHECK(cudaFreeHost(pinned));
    CHECK(cudaFree(device));
    free(pageable);
}

static cudaMemcpy3DOperand at(void *address, size_t row, size_t rows)
{
    cudaMemcpy3DOperand operand = {};
    operand.type = cudaMemcpyOperandTypePointer;
    operand.op.ptr.ptr = address;
    operand.op.ptr.rowLength = row;
    operand.op.ptr.layerHeight = rows;
    return operand;
}

static void test_boxes(cudaStream_t stream)
{
    static unsigned char host[DEPTH * ROWS * ROW], back[DEPTH * HEIGHT * WIDTH];
    unsigned char *device;
    CHECK(cudaMalloc(&device, sizeof host));
    for (int i = 0; i < (int)sizeof host; i++)
        host[i] = pattern(5, i);
    cudaMemcpy3DBatchOp ops[2] = {};
    ops[0].src = at(host, ROW, ROWS);
    ops[0].dst = at(device, 0, 0); /* packed */
    ops[0].extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH);
    ops[0].srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
    CHECK(cudaMemcpy3DBatchAsync(1, ops, 0, stream));
    memset(host, 0, sizeof host);
    ops[0].src = at(device, 0, 0);
    ops[0].dst = at(back, 0, 0);
    ops[0].extent = make_cudaExtent(WIDTH, HEIGHT, 1);
    ops[0].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    ops[1] = ops[0];
    ops[1].src = at(device + WIDTH * HEIGHT, 0, 0);
    ops[1].dst = at(back + WIDTH * HEIGHT, 0, 0);
    ops[1].extent.depth = DEPTH - 1;
    CHECK(cudaMemcpy3DBatchAsync(2, ops, 0, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int slice = 0; slice < DEPTH; slice++)
        for (int row = 0; row < HEIGHT; row++)
            for (int i = 0; i < WIDTH; i++)
                EXPECT_EQ(back[(slice * HEIGHT + row) * WIDTH + i], pattern(5, (slice * ROWS + row) * ROW + i));
    ops[0].extent.height = 0;
    EXPECT_ERR(cudaMemcpy3DBatchAsync(1, ops, 0, stream), cudaErrorInvalidValue);
    ops[0].extent.height = HEIGHT;
    ops[0].src = at(device, WIDTH - 1, 0);
    EXPECT_ERR(cudaMemcpy3DBatchAsync(1, ops, 0, stream), cudaErrorInvalidValue);
    ops[0].src = at(device, 0, 0);
    ops[0].srcAccessOrder = cudaMemcpySrcAccessOrderInvalid;
    EXPECT_ERR(cudaMemcpy3DBatchAsync(1, ops, 0, stream), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemcpy3DBatchAsync(0, ops, 0, stream), cudaErrorInvalidValue);
    CHECK(cudaFree(device));
}

static cudaMemcpy3DOperand within(cudaArray_t array, size_t x, size_t y, size_t z)
{
    cudaMemcpy3DOperand operand = {};
    operand.type = cudaMemcpyOperandTypeArray;
    operand.op.array.array = array;
    operand.op.array.offset = {x, y, z};
    return operand;
}

/* Widths, rows and offsets are elements of the arrays. */
static void test_arrays(cudaStream_t stream)
{
    static short2 host[DEPTH * ROWS * ROW], back[DEPTH * HEIGHT * WIDTH];
    const cudaChannelFormatDesc format = cudaCreateChannelDesc<short2>(), other = cudaCreateChannelDesc<float2>();
    const cudaExtent whole = make_cudaExtent(WIDTH + 3, HEIGHT + 2, DEPTH + 1);
    cudaArray_t first, second, wider;
    CHECK(cudaMalloc3DArray(&first, &format, whole));
    CHECK(cudaMalloc3DArray(&second, &format, whole));
    CHECK(cudaMalloc3DArray(&wider, &other, whole));
    for (int i = 0; i < DEPTH * ROWS * ROW; i++)
        host[i] = make_short2(i, pattern(6, i));
    cudaMemcpy3DBatchOp op = {};
    op.src = at(host, ROW, ROWS);
    op.dst = within(first, 3, 2, 1);
    op.extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH);
    op.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    CHECK(cudaMemcpy3DBatchAsync(1, &op, 0, stream));
    op.src = op.dst;
    op.dst = within(second, 0, 1, 0);
    CHECK(cudaMemcpy3DBatchAsync(1, &op, 0, stream));
    op.src = op.dst;
    op.dst = at(back, 0, 0);
    CHECK(cudaMemcpy3DBatchAsync(1, &op, 0, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int slice = 0; slice < DEPTH; slice++)
        for (int row = 0; row < HEIGHT; row++)
            for (int i = 0; i < WIDTH; i++) {
                const short2 found = back[(slice * HEIGHT + row) * WIDTH + i];
                EXPECT_EQ(found.x, (short)((slice * ROWS + row) * ROW + i));
                EXPECT_EQ(found.y, pattern(6, (slice * ROWS + row) * ROW + i));
            }
    op.dst = within(wider, 0, 0, 0); /* elements of another size */
    EXPECT_ERR(cudaMemcpy3DBatchAsync(1, &op, 0, stream), cudaErrorInvalidValue);
    op.dst = within(first, 4, 0, 0); /* one element behind the end */
    EXPECT_ERR(cudaMemcpy3DBatchAsync(1, &op, 0, stream), cudaErrorInvalidValue);
    CHECK(cudaFreeArray(first));
    CHECK(cudaFreeArray(second));
    CHECK(cudaFreeArray(wider));
}

static void test_refused(cudaStream_t stream)
{
    unsigned char *device, host[16] = {};
    CHECK(cudaMalloc(&device, 1024));
    void *dsts[] = {device, device + 16};
    const void *srcs[] = {host, host};
    size_t sizes[] = {16, 16}, firsts[] = {0, 1}, odd[] = {1, 1};
    cudaMemcpyAttributes good[] = {of_order(cudaMemcpySrcAccessOrderStream), of_order(cudaMemcpySrcAccessOrderAny)};
    cudaMemcpyAttributes bad[] = {of_order(cudaMemcpySrcAccessOrderInvalid), good[1]};
    CHECK(cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, good, firsts, 2, stream));
    EXPECT_ERR(cudaMemcpyBatchAsync(dsts, srcs, sizes, 0, good, firsts, 1, stream), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, good, firsts, 0, stream), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemcpyBatchAsync(dsts, srcs, sizes, 1, good, firsts, 2, stream), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, good, odd, 2, stream), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, bad, firsts, 2, stream), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemcpyBatchAsync(dsts, srcs, sizes, 2, good, firsts, 2, 0), cudaErrorInvalidValue);
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(device));
}

int main(void)
{
    cudaStream_t blocking, other;
    CHECK(cudaStreamCreate(&blocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    test_ranges(blocking);
    test_ranges(other);
    test_boxes(other);
    test_arrays(other);
    test_refused(blocking);
    return 0;
}
