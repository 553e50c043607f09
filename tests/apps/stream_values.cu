// Memory operations of streams: writes of a value and waits for one, between streams and kernels; and what is refused.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

__global__ void store(volatile unsigned *to, unsigned value)
{
    *to = value;
}

__global__ void copy(unsigned *to, const volatile unsigned *from)
{
    *to = *from;
}

static unsigned read_back(CUdeviceptr address)
{
    unsigned value = 0;

    CHECK_CU(cuMemcpyDtoH(&value, address, sizeof(value)));
    return value;
}

static void check_writes(CUstream stream, CUdeviceptr words)
{
    unsigned long long wide = 0;

    CHECK_CU(cuStreamWriteValue32(stream, words, 7, CU_STREAM_WRITE_VALUE_DEFAULT));
    CHECK_CU(cuStreamWriteValue32(stream, words + 4, 8, CU_STREAM_WRITE_VALUE_DEFAULT));
    CHECK_CU(cuStreamWriteValue64(stream, words + 8, 0x123456789abcdefull, CU_STREAM_WRITE_VALUE_DEFAULT));
    CHECK_CU(cuStreamSynchronize(stream));
    EXPECT_EQ(read_back(words), 7u);
    EXPECT_EQ(read_back(words + 4), 8u);
    CHECK_CU(cuMemcpyDtoH(&wide, words + 8, sizeof(wide)));
    EXPECT_EQ(wide, 0x123456789abcdefull);
}

// One stream waits until another has written; meanwhile a third one works.
static void check_wait(CUstream waiting, CUstream writing, CUdeviceptr words, unsigned flags, unsigned wanted,
                       unsigned short_of, unsigned enough)
{
    CUdeviceptr flag = words, data = words + 16, seen = words + 20;
    unsigned zero = 0;

    CHECK_CU(cuMemcpyHtoD(seen, &zero, sizeof(zero)));
    CHECK_CU(cuStreamWriteValue32(writing, flag, short_of, 0));
    CHECK_CU(cuStreamSynchronize(writing));
    CHECK_CU(cuStreamWaitValue32(waiting, flag, wanted, flags));
    copy<<<1, 1, 0, waiting>>>((unsigned *)seen, (unsigned *)data);
    CHECK_LAUNCH();
    store<<<1, 1, 0, writing>>>((unsigned *)data, 1000 + wanted);
    CHECK_LAUNCH();
    CHECK_CU(cuStreamSynchronize(writing));
    EXPECT_CU(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
    CHECK_CU(cuStreamWriteValue32(writing, flag, enough, 0));
    CHECK_CU(cuStreamSynchronize(waiting));
    EXPECT_EQ(read_back(seen), 1000 + wanted);
}

static void check_batch(CUstream waiting, CUstream writing, CUdeviceptr words)
{
    CUstreamBatchMemOpParams wait[2] = {}, write[3] = {};

    wait[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    wait[0].waitValue.address = words + 8;
    wait[0].waitValue.value64 = 1ull << 40;
    wait[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    wait[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    wait[1].writeValue.address = words + 4;
    wait[1].writeValue.value = 99;
    write[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    write[0].writeValue.address = words;
    write[0].writeValue.value = 5;
    write[1].memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
    write[1].memoryBarrier.flags = CU_STREAM_MEMORY_BARRIER_TYPE_SYS;
    write[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    write[2].writeValue.address = words + 8;
    write[2].writeValue.value64 = 1ull << 40;
    CHECK_CU(cuMemsetD8(words, 0, 16)); // has no order with streams that do not block
    CHECK_CU(cuCtxSynchronize());
    CHECK_CU(cuStreamBatchMemOp(waiting, 2, wait, 0));
    CHECK_CU(cuStreamBatchMemOp(writing, 3, write, 0));
    CHECK_CU(cuStreamSynchronize(writing));
    CHECK_CU(cuStreamSynchronize(waiting));
    EXPECT_EQ(read_back(words), 5u);
    EXPECT_EQ(read_back(words + 4), 99u);
}

static void check_refused(CUstream stream, CUdeviceptr words)
{
    CUstreamBatchMemOpParams op = {}, many[256] = {};

    EXPECT_CU(cuStreamBatchMemOp(stream, 1, &op, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuStreamBatchMemOp(stream, 0, &op, 0));
    EXPECT_CU(cuStreamBatchMemOp(stream, 0, &op, 1), CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < 256; i++) {
        many[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        many[i].writeValue.address = words;
        many[i].writeValue.value = i;
    }
    EXPECT_CU(cuStreamBatchMemOp(stream, 256, many, 0), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuStreamBatchMemOp(stream, 255, many, 0));
    CHECK_CU(cuStreamSynchronize(stream));
    EXPECT_EQ(read_back(words), 254u);
    EXPECT_CU(cuStreamWriteValue32(stream, 16, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuStreamWriteValue32(stream, words + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuStreamWriteValue32(stream, words, 1, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuStreamWriteValue64(stream, words, 1, 2), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuStreamWaitValue32(stream, words, 1, CU_STREAM_WAIT_VALUE_NOR + 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuStreamWaitValue32(stream, words, 1, CU_STREAM_WAIT_VALUE_FLUSH), CUDA_ERROR_NOT_SUPPORTED);
    CHECK_CU(cuStreamSynchronize(stream));
}

// The driver loads a kernel at its first launch, for which it may wait for every stream, that one too which waits for a
// value.
static void load_kernels(CUstream stream, unsigned *words)
{
    store<<<1, 1, 0, stream>>>(words, 1);
    copy<<<1, 1, 0, stream>>>(words + 1, words);
    CHECK_LAUNCH();
    CHECK_CU(cuStreamSynchronize(stream));
}

int main(void)
{
    CUstream waiting, writing;
    void *words;
    int can_wide = 0, can_nor = 0, persisting = 0;

    CHECK(cudaMalloc(&words, 256));
    CHECK_CU(cuDeviceGetAttribute(&can_wide, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 0));
    CHECK_CU(cuDeviceGetAttribute(&can_nor, CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 0));
    EXPECT_EQ(can_wide, 1);
    EXPECT_EQ(can_nor, 1);
    CHECK_CU(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuStreamCreate(&writing, CU_STREAM_NON_BLOCKING));
    load_kernels(writing, (unsigned *)words);
    check_writes(writing, (CUdeviceptr)words);
    check_wait(waiting, writing, (CUdeviceptr)words, CU_STREAM_WAIT_VALUE_GEQ, 10, 9, 11);
    check_wait(waiting, writing, (CUdeviceptr)words, CU_STREAM_WAIT_VALUE_GEQ, 0, 0xffffffffu, 1);
    check_wait(waiting, writing, (CUdeviceptr)words, CU_STREAM_WAIT_VALUE_EQ, 10, 11, 10);
    check_wait(waiting, writing, (CUdeviceptr)words, CU_STREAM_WAIT_VALUE_AND, 6, 9, 4);
    check_wait(waiting, writing, (CUdeviceptr)words, CU_STREAM_WAIT_VALUE_NOR, 0xfffffff0u, 0xf, 0xe);
    check_batch(waiting, writing, (CUdeviceptr)words);
    check_refused(writing, (CUdeviceptr)words);
    CHECK_CU(cuStreamDestroy(waiting));
    CHECK_CU(cuStreamDestroy(writing));
    CHECK_CU(cuDeviceGetAttribute(&persisting, CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 0));
    EXPECT_ERR(cudaCtxResetPersistingL2Cache(), persisting ? cudaSuccess : cudaErrorNotSupported);
    EXPECT_CU(cuCtxResetPersistingL2Cache(), persisting ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED);
    CHECK(cudaFree(words));
    return 0;
}
