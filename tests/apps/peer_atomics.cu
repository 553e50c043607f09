// What the links between two devices, and to the host, can do of atomic operations: as many answers as questions, and
// no more.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

static const CUatomicOperation asked[] = {CU_ATOMIC_OPERATION_INTEGER_ADD, CU_ATOMIC_OPERATION_CAS,
                                          CU_ATOMIC_OPERATION_INTEGER_ADD};
static const cudaAtomicOperation asked_runtime[] = {cudaAtomicOperationIntegerAdd, cudaAtomicOperationCAS};
enum { COUNT = 3, UNTOUCHED = 12345 };

static void check_errors(void)
{
    unsigned answers[COUNT] = {UNTOUCHED, UNTOUCHED, UNTOUCHED};

    EXPECT_CU(cuDeviceGetP2PAtomicCapabilities(answers, asked, COUNT, 0, 0), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CU(cuDeviceGetP2PAtomicCapabilities(answers, asked, COUNT, 0, 999), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CU(cuDeviceGetP2PAtomicCapabilities(NULL, asked, COUNT, 0, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuDeviceGetP2PAtomicCapabilities(answers, NULL, COUNT, 0, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuDeviceGetP2PAtomicCapabilities(answers, asked, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT_ERR(cudaDeviceGetP2PAtomicCapabilities(answers, asked_runtime, 2, 0, 0), cudaErrorInvalidDevice);
    EXPECT_EQ(answers[0], UNTOUCHED);
}

static void check_answers(void)
{
    unsigned answers[COUNT + 1], runtime[COUNT];
    const CUatomicOperation none = CU_ATOMIC_OPERATION_MAX;

    for (int i = 0; i <= COUNT; i++)
        answers[i] = UNTOUCHED;
    CHECK_CU(cuDeviceGetP2PAtomicCapabilities(answers, asked, COUNT, 0, 1));
    EXPECT(answers[0] != UNTOUCHED && answers[1] != UNTOUCHED, "%u, %u", answers[0], answers[1]);
    EXPECT_EQ(answers[2], answers[0]);
    EXPECT_EQ(answers[COUNT], UNTOUCHED);
    CHECK(cudaDeviceGetP2PAtomicCapabilities(runtime, asked_runtime, 2, 0, 1));
    EXPECT(runtime[0] == answers[0] && runtime[1] == answers[1], "%u, %u", runtime[0], runtime[1]);
    EXPECT_CU(cuDeviceGetP2PAtomicCapabilities(answers, &none, 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
}

static void check_host(void)
{
    unsigned answers[COUNT + 1], runtime[COUNT];
    const CUatomicOperation none = CU_ATOMIC_OPERATION_MAX;

    for (int i = 0; i <= COUNT; i++)
        answers[i] = UNTOUCHED;
    EXPECT_CU(cuDeviceGetHostAtomicCapabilities(answers, asked, COUNT, 999), CUDA_ERROR_INVALID_DEVICE);
    EXPECT_CU(cuDeviceGetHostAtomicCapabilities(NULL, asked, COUNT, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuDeviceGetHostAtomicCapabilities(answers, asked, 0, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(answers[0], UNTOUCHED);
    EXPECT_CU(cuDeviceGetHostAtomicCapabilities(answers, &none, 1, 0),
              CUDA_ERROR_INVALID_VALUE); /* it may have been 0 then */
    CHECK_CU(cuDeviceGetHostAtomicCapabilities(answers, asked, COUNT, 0));
    EXPECT(answers[0] != UNTOUCHED && answers[1] != UNTOUCHED, "%u, %u", answers[0], answers[1]);
    EXPECT_EQ(answers[2], answers[0]);
    EXPECT_EQ(answers[COUNT], UNTOUCHED);
    CHECK(cudaDeviceGetHostAtomicCapabilities(runtime, asked_runtime, 2, 0));
    EXPECT(runtime[0] == answers[0] && runtime[1] == answers[1], "%u, %u", runtime[0], runtime[1]);
}

int main(void)
{
    int count = 0;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGetCount(&count));
    check_host();
    check_errors();
    if (count > 1)
        check_answers();
    return 0;
}
