// Decompression by the GPU (cuMemBatchDecompressAsync): a batch of LZ4 blocks in the order of its stream, where the
// device has it; the errors that it documents. A device without it says so by its attribute, and refuses.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

enum { PIECES = 300, PIECE_BYTES = 4096, BLOCK_BYTES = 64 };

/* A block of LZ4 for `bytes` bytes (20 to 4096) that repeat a word: one word as it is, then a match at distance 4,
 * which leaves five bytes for the end of the block, as its format asks. Returns the block's bytes. */
static size_t make_block(unsigned char *block, unsigned word, size_t bytes)
{
    size_t match = bytes - 4 - 5, rest = match - 4, at = 0;

    block[at++] = 4 << 4 | (rest < 15 ? rest : 15);
    memcpy(block + at, &word, 4);
    at += 4;
    block[at++] = 4;
    block[at++] = 0;
    if (rest >= 15) {
        for (rest -= 15; rest >= 255; rest -= 255)
            block[at++] = 255;
        block[at++] = (unsigned char)rest;
    }
    block[at++] = 5 << 4;
    for (unsigned i = 0; i < 5; i++)
        block[at++] = ((const unsigned char *)&word)[(bytes - 5 + i) % 4];
    return at;
}

static size_t bytes_of(unsigned piece)
{
    return 20 + piece * 13 % (PIECE_BYTES - 19);
}

static unsigned word_of(unsigned piece)
{
    return 0x01234567u * (piece + 1);
}

struct memory {
    CUdeviceptr blocks, pieces, written;
};

static CUmemDecompressParams params_of(const struct memory *memory, unsigned piece, size_t block_bytes)
{
    CUmemDecompressParams params;

    memset(&params, 0, sizeof params);
    params.srcNumBytes = block_bytes;
    params.dstNumBytes = PIECE_BYTES;
    params.dstActBytes = (cuuint32_t *)(memory->written + 4 * piece);
    params.src = (const void *)(memory->blocks + BLOCK_BYTES * piece);
    params.dst = (void *)(memory->pieces + PIECE_BYTES * piece);
    params.algo = CU_MEM_DECOMPRESS_ALGORITHM_LZ4;
    return params;
}

static void check_pieces(const struct memory *memory)
{
    static unsigned char piece[PIECES][PIECE_BYTES];
    static unsigned written[PIECES];

    CHECK_CU(cuMemcpyDtoH(piece, memory->pieces, sizeof piece));
    CHECK_CU(cuMemcpyDtoH(written, memory->written, sizeof written));
    for (unsigned i = 0; i < PIECES; i++) {
        const unsigned word = word_of(i);
        EXPECT_EQ(written[i], bytes_of(i));
        for (size_t at = 0; at < bytes_of(i); at++)
            EXPECT_EQ(piece[i][at], ((const unsigned char *)&word)[at % 4]);
    }
}

/* More pieces than travel in one message; the blocks come by the same stream right before. */
static void a_batch(const struct memory *memory)
{
    static unsigned char blocks[PIECES][BLOCK_BYTES];
    static CUmemDecompressParams params[PIECES];
    CUstream stream;
    size_t index = 7;

    for (unsigned i = 0; i < PIECES; i++) {
        size_t bytes = make_block(blocks[i], word_of(i), bytes_of(i));
        EXPECT(bytes <= BLOCK_BYTES);
        params[i] = params_of(memory, i, bytes);
    }
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuMemcpyHtoDAsync(memory->blocks, blocks, sizeof blocks, stream));
    CHECK_CU(cuMemBatchDecompressAsync(params, PIECES, 0, &index, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    check_pieces(memory);

    /* Room that is not told is all that there is behind the address. */
    CHECK_CU(cuMemsetD8(memory->written, 0, 4 * PIECES));
    params[0].dstNumBytes = 0;
    CHECK_CU(cuMemBatchDecompressAsync(params, 1, 0, NULL, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    unsigned written;
    CHECK_CU(cuMemcpyDtoH(&written, memory->written, sizeof written));
    EXPECT_EQ(written, bytes_of(0));
    CHECK_CU(cuStreamDestroy(stream));
}

static void refused(const struct memory *memory, CUmemDecompressParams wrong)
{
    CUmemDecompressParams params[2] = {params_of(memory, 0, 16), wrong};
    size_t index = 7;

    EXPECT_CU(cuMemBatchDecompressAsync(params, 2, 0, &index, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(index, 1);
}

static void what_is_wrong(const struct memory *memory, int max_bytes)
{
    CUmemDecompressParams good = params_of(memory, 1, 16), wrong;
    size_t index = 7;
    static char host[64];

    EXPECT_CU(cuMemBatchDecompressAsync(&good, 1, 1, &index, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(index == SIZE_MAX);
    EXPECT_CU(cuMemBatchDecompressAsync(NULL, 1, 0, &index, NULL), CUDA_ERROR_INVALID_VALUE);
    (wrong = good).algo = (CUmemDecompressAlgorithm)(1 << 7);
    refused(memory, wrong);
    (wrong = good).src = host;
    refused(memory, wrong);
    (wrong = good).dst = (void *)0x1000;
    refused(memory, wrong);
    (wrong = good).srcNumBytes = (size_t)max_bytes + 1;
    refused(memory, wrong);
    (wrong = good).padding[3] = 1;
    refused(memory, wrong);
}

static void memory_says_that_it_can(const struct memory *memory, int device)
{
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle handle;
    unsigned is_capable = 0;

    CHECK_CU(cuPointerGetAttribute(&is_capable, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, memory->pieces));
    EXPECT(is_capable & 1);
    memset(&prop, 0, sizeof prop);
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    prop.allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS;
    CHECK_CU(cuMemCreate(&handle, 2 << 20, &prop, 0));
    memset(&prop, 0, sizeof prop);
    CHECK_CU(cuMemGetAllocationPropertiesFromHandle(&prop, handle));
    EXPECT_EQ(prop.allocFlags.usage, CU_MEM_CREATE_USAGE_HW_DECOMPRESS);
    CHECK_CU(cuMemRelease(handle));
}

int main(void)
{
    CUcontext context;
    struct memory memory;
    int mask = -1, max_bytes = -1;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuDeviceGetAttribute(&mask, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, 0));
    CHECK_CU(cuDeviceGetAttribute(&max_bytes, CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH, 0));
    CHECK_CU(cuMemAlloc(&memory.blocks, PIECES * BLOCK_BYTES));
    CHECK_CU(cuMemAlloc(&memory.pieces, PIECES * PIECE_BYTES));
    CHECK_CU(cuMemAlloc(&memory.written, PIECES * 4));
    if (!mask) {
        CUmemDecompressParams params = params_of(&memory, 0, 16);
        unsigned is_capable = 0;
        EXPECT_CU(cuMemBatchDecompressAsync(&params, 1, 0, NULL, NULL), CUDA_ERROR_NOT_SUPPORTED);
        CHECK_CU(cuPointerGetAttribute(&is_capable, CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, memory.pieces));
        EXPECT(is_capable & 1); // an H200's driver says so
        return 0;
    }
    EXPECT(max_bytes >= PIECE_BYTES, "the most that one operation takes: %d", max_bytes);
    if (!(mask & CU_MEM_DECOMPRESS_ALGORITHM_LZ4)) {
        printf("skip: the device decompresses no LZ4\n");
        return 77;
    }
    a_batch(&memory);
    what_is_wrong(&memory, max_bytes);
    memory_says_that_it_can(&memory, 0);
    return 0;
}
