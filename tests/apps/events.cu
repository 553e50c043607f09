// Events: record, query, synchronize, elapsed time against a known delay in the stream, the flags, and the
// errors of elapsed time.
#include "check.h"
#include "gate.h"

static void sleep_30_ms(void *unused)
{
    usleep(30000);
}

static void check_elapsed(void)
{
    cudaEvent_t begin, end;
    cudaStream_t stream;
    struct timespec before, after;
    float ms = -1;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
    clock_gettime(CLOCK_MONOTONIC, &before);
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaLaunchHostFunc(stream, sleep_30_ms, NULL));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    clock_gettime(CLOCK_MONOTONIC, &after);
    CHECK(cudaEventElapsedTime(&ms, begin, end));
    /* Both events lie between the two looks at the clock, however long the machine takes; clocks differ a little. */
    double passed_ms = (double)(after.tv_sec - before.tv_sec) * 1e3 + (double)(after.tv_nsec - before.tv_nsec) / 1e6;
    EXPECT(ms > 29 && ms < passed_ms * 1.01 + 10, "%f ms of %f", ms, passed_ms);
    CHECK(cudaEventElapsedTime(&ms, begin, begin));
    EXPECT(ms == 0, "%f ms", ms);
    CHECK(cudaEventElapsedTime(&ms, end, begin));
    EXPECT(ms < -29, "%f ms", ms);
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaStreamDestroy(stream));
}

static void check_states(void)
{
    struct gate gate = {};
    cudaEvent_t timed, untimed, fresh;
    cudaStream_t stream;
    float ms;

    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&timed));
    CHECK(cudaEventCreate(&fresh));
    CHECK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));

    /* An event that was never recorded counts as complete, but has no time. */
    CHECK(cudaEventQuery(fresh));
    CHECK(cudaEventSynchronize(fresh));
    CHECK(cudaEventRecord(timed, stream));
    CHECK(cudaEventSynchronize(timed));
    EXPECT_ERR(cudaEventElapsedTime(&ms, timed, fresh), cudaErrorInvalidResourceHandle);

    CHECK(cudaLaunchHostFunc(stream, gate_wait, &gate));
    CHECK(cudaEventRecord(untimed, stream));
    CHECK(cudaEventRecordWithFlags(fresh, stream, cudaEventRecordDefault));
    EXPECT_ERR(cudaEventQuery(untimed), cudaErrorNotReady);
    EXPECT_ERR(cudaEventElapsedTime(&ms, timed, fresh), cudaErrorNotReady);
    gate_open(&gate);
    CHECK(cudaEventSynchronize(untimed));
    CHECK(cudaEventSynchronize(fresh));
    CHECK(cudaEventElapsedTime(&ms, timed, fresh));
    EXPECT_ERR(cudaEventElapsedTime(&ms, timed, untimed), cudaErrorInvalidResourceHandle);

    /* Recorded again, it is pending again. */
    gate = (struct gate){};
    CHECK(cudaLaunchHostFunc(stream, gate_wait, &gate));
    CHECK(cudaEventRecord(timed, stream));
    EXPECT_ERR(cudaEventQuery(timed), cudaErrorNotReady);
    gate_open(&gate);
    CHECK(cudaEventSynchronize(timed));
    CHECK(cudaEventQuery(timed));

    EXPECT_ERR(cudaEventCreateWithFlags(&fresh, 0x4000), cudaErrorInvalidValue);
    CHECK(cudaEventDestroy(timed));
    CHECK(cudaEventDestroy(fresh));
    CHECK(cudaEventDestroy(untimed));
    CHECK(cudaStreamDestroy(stream));
}

int main(void)
{
    cudaEvent_t event;

    check_elapsed();
    check_states();
    CHECK(cudaEventCreate(&event));
    CHECK(cudaEventRecord(event));
    CHECK(cudaEventSynchronize(event));
    CHECK(cudaEventDestroy(event));
    return 0;
}
