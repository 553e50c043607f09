// Default streams of threads: this file alone is compiled with --default-stream per-thread.
// nvcc: --default-stream per-thread
#include "movers.h"

#ifndef CUDA_API_PER_THREAD_DEFAULT_STREAM
#error "to be compiled with --default-stream per-thread"
#endif

static __global__ void step_here(uint32_t *word, uint32_t by, uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++)
        *word = *word * mover_factor(by) + by;
}

struct default_stream_per_thread : mover {
    enum { THREADS = 4, STEPS = 6 };
    mover_stepper steppers[THREADS];
    mover_workers workers;

    void take_turn(unsigned index, unsigned turn)
    {
        mover_stepper &stepper = steppers[index];
        uint32_t got = 0;

        for (unsigned i = 0; i < STEPS; i++) {
            step_here<<<1, 1>>>(stepper.word, turn + i, 20);
            CHECK_LAUNCH();
            stepper.expect_step(turn + i, 20);
        }
        CHECK(cudaMemcpyAsync(&got, stepper.word, sizeof got, cudaMemcpyDeviceToHost, 0));
        CHECK(cudaStreamSynchronize(0));
        EXPECT(got == stepper.want, "thread %u's default stream made %u, expected %u", index, got, stepper.want);
    }
    void set_up() override
    {
        for (mover_stepper &stepper : steppers)
            stepper.make(random());
        workers.start(THREADS, [this](unsigned index, unsigned turn) { take_turn(index, turn); });
    }
    void round() override
    {
        workers.await_turn();
    }
    void finish() override
    {
        workers.end();
    }
};

/* A thread's default stream is ordered by the legacy stream, as other streams are. */
struct both_default_streams : mover {
    enum { PASSES = 5 };
    mover_stepper stepper;

    void set_up() override
    {
        stepper.make(4);
    }
    void step(cudaStream_t stream)
    {
        uint32_t by = random();

        step_here<<<1, 1, 0, stream>>>(stepper.word, by, 100);
        CHECK_LAUNCH();
        stepper.expect_step(by, 100);
    }
    void round() override
    {
        for (int i = 0; i < PASSES; i++) {
            step(0);
            step(cudaStreamLegacy);
            step(cudaStreamPerThread);
        }
        CHECK(cudaStreamSynchronize(cudaStreamPerThread));
        stepper.check("what both default streams have made");
    }
};

static const mover_entry entries[] = {
    {"default_stream_per_thread", 0, mover_make<default_stream_per_thread>,
     "threads with default streams of their own"},
    {"both_default_streams", 0, mover_make<both_default_streams>, "a thread's default stream and the legacy one"},
};
MOVER_FAMILY(per_thread, entries);
