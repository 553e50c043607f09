// Several threads of the program, in calls of all kinds at any time.
#include "movers.h"

struct threads_on_own_streams : mover {
    enum { THREADS = 8, STEPS = 4 };
    cudaStream_t streams[THREADS];
    mover_stepper steppers[THREADS];
    mover_workers workers;

    void take_turn(unsigned index, unsigned turn)
    {
        mover_stepper &stepper = steppers[index];
        uint32_t got = 0;

        for (unsigned i = 0; i < STEPS; i++)
            stepper.step(turn * STEPS + i, streams[index], 10);
        if (turn % 4 == 0) {
            CHECK(cudaMemcpyAsync(&got, stepper.word, sizeof got, cudaMemcpyDeviceToHost, streams[index]));
            CHECK(cudaStreamSynchronize(streams[index]));
            EXPECT(got == stepper.want, "thread %u has made %u, expected %u", index, got, stepper.want);
        }
    }
    void set_up() override
    {
        for (int i = 0; i < THREADS; i++) {
            CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
            steppers[i].make(random());
        }
        workers.start(THREADS, [this](unsigned index, unsigned turn) { take_turn(index, turn); });
    }
    void round() override
    {
        workers.await_turn();
    }
    void finish() override
    {
        workers.end();
        CHECK(cudaDeviceSynchronize());
        for (mover_stepper &stepper : steppers)
            stepper.check("what a thread has made");
    }
};

static __global__ void add_to_sum(unsigned long long *sum, unsigned by)
{
    *sum += by; /* one stream: one kernel at a time */
}

struct threads_on_one_stream : mover {
    enum { THREADS = 8, ADDED = 5 };
    cudaStream_t stream;
    unsigned long long *sum, want = 0;
    mover_workers workers;

    void take_turn(unsigned index, unsigned turn)
    {
        unsigned long long added = 0;

        for (unsigned i = 0; i < ADDED; i++) {
            unsigned by = index * 1000 + turn + i;
            add_to_sum<<<1, 1, 0, stream>>>(sum, by);
            CHECK_LAUNCH();
            added += by;
        }
        __atomic_fetch_add(&want, added, __ATOMIC_SEQ_CST);
        if (turn % 8 == index)
            CHECK(cudaStreamSynchronize(stream));
    }
    void set_up() override
    {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaMalloc(&sum, sizeof *sum));
        CHECK(cudaMemset(sum, 0, sizeof *sum));
        CHECK(cudaDeviceSynchronize());
        workers.start(THREADS, [this](unsigned index, unsigned turn) { take_turn(index, turn); });
    }
    /* While others add, the sum only grows. */
    void round() override
    {
        unsigned long long before = 0, after = 0;

        CHECK(cudaMemcpy(&before, sum, sizeof before, cudaMemcpyDeviceToHost));
        workers.await_turn();
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpy(&after, sum, sizeof after, cudaMemcpyDeviceToHost));
        EXPECT(after > before, "the sum was %llu and is %llu", before, after);
    }
    void finish() override
    {
        unsigned long long got = 0;

        workers.end();
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpy(&got, sum, sizeof got, cudaMemcpyDeviceToHost));
        EXPECT_EQ(got, want);
    }
};

/* Threads that wait in every way, each for a kernel that takes a while, while one issues without waiting. */
struct threads_that_wait : mover {
    enum { THREADS = 5, TURNS = 4000, BLOCK_WORDS = 100000 };
    cudaStream_t streams[THREADS];
    cudaEvent_t events[THREADS];
    mover_stepper steppers[THREADS];
    uint32_t *block;
    mover_workers workers;

    void wait(unsigned index)
    {
        switch (index) {
        case 0:
            CHECK(cudaStreamSynchronize(streams[index]));
            return;
        case 1: /* sleeps */
        case 2: /* spins */
            CHECK(cudaEventRecord(events[index], streams[index]));
            CHECK(cudaEventSynchronize(events[index]));
            return;
        case 3: {
            std::vector<uint32_t> copy(BLOCK_WORDS);
            mover_fill(block, BLOCK_WORDS, steppers[index].want, streams[index]);
            CHECK(cudaMemcpyAsync(copy.data(), block, BLOCK_WORDS * sizeof copy[0], cudaMemcpyDeviceToHost,
                                  streams[index]));
            CHECK(cudaStreamSynchronize(streams[index]));
            for (size_t i = 0; i < BLOCK_WORDS; i++)
                EXPECT(copy[i] == mover_pattern(i, steppers[index].want), "word %zu of the block is 0x%x", i, copy[i]);
            return;
        }
        default:
            CHECK(cudaStreamWaitEvent(streams[index], events[1], 0));
            return;
        }
    }
    void take_turn(unsigned index, unsigned turn)
    {
        uint32_t got = 0;

        steppers[index].step(turn, streams[index], index == THREADS - 1 ? 5 : TURNS);
        wait(index);
        if (index < THREADS - 1 || turn % 16 == 0) {
            /* In the legacy stream, which none of these streams waits for: it sees what was waited for. */
            if (index == THREADS - 1)
                CHECK(cudaStreamSynchronize(streams[index]));
            CHECK(cudaMemcpy(&got, steppers[index].word, sizeof got, cudaMemcpyDeviceToHost));
            EXPECT(got == steppers[index].want, "thread %u has made %u, expected %u", index, got, steppers[index].want);
        }
    }
    void set_up() override
    {
        block = mover_words(BLOCK_WORDS);
        for (int i = 0; i < THREADS; i++) {
            CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
            CHECK(cudaEventCreateWithFlags(&events[i], i == 1 ? cudaEventBlockingSync : cudaEventDefault));
            steppers[i].make(random());
        }
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

struct threads_come_and_go : mover {
    enum { THREADS = 12 };
    struct visit {
        pthread_t thread;
        mover_stepper stepper;
        uint32_t by;
    } visits[THREADS];

    /* A thread whose first and last calls are these. */
    static void *come(void *user)
    {
        struct visit *visit = (struct visit *)user;
        uint32_t got = 0;

        CHECK(cudaSetDevice(0));
        visit->stepper.step(visit->by, cudaStreamPerThread, 10);
        CHECK(cudaMemcpyAsync(&got, visit->stepper.word, sizeof got, cudaMemcpyDeviceToHost, cudaStreamPerThread));
        CHECK(cudaStreamSynchronize(cudaStreamPerThread));
        EXPECT(got == visit->stepper.want, "a thread has made %u, expected %u", got, visit->stepper.want);
        return NULL;
    }
    void set_up() override
    {
        for (struct visit &visit : visits)
            visit.stepper.make(random());
    }
    void round() override
    {
        for (struct visit &visit : visits) {
            visit.by = random();
            EXPECT(pthread_create(&visit.thread, NULL, come, &visit) == 0, "no thread");
        }
        for (struct visit &visit : visits)
            EXPECT(pthread_join(visit.thread, NULL) == 0, "a thread cannot be joined");
        for (struct visit &visit : visits)
            visit.stepper.check("what threads have made that are gone");
    }
};

/* Each thread has a last error of its own, which calls that succeed leave alone. */
struct errors_of_threads : mover {
    enum { THREADS = 4, KEPT_TURNS = 10 };
    mover_workers workers;
    mover_stepper steppers[THREADS];

    cudaError_t err(unsigned index)
    {
        uint32_t word;
        void *memory;

        switch (index) {
        case 0:
            return cudaSuccess;
        case 1:
            EXPECT_CODE(cudaSetDevice(4711), cudaErrorInvalidDevice);
            return cudaErrorInvalidDevice;
        case 2:
            EXPECT_CODE(cudaMalloc(&memory, (size_t)1 << 50), cudaErrorMemoryAllocation);
            return cudaErrorMemoryAllocation;
        default:
            EXPECT_CODE(cudaMemcpy(&word, steppers[index].word, sizeof word, (enum cudaMemcpyKind)9),
                        cudaErrorInvalidMemcpyDirection);
            return cudaErrorInvalidMemcpyDirection;
        }
    }
    void take_turn(unsigned index, unsigned turn)
    {
        static const cudaError_t kept[THREADS] = {cudaSuccess, cudaErrorInvalidDevice, cudaErrorMemoryAllocation,
                                                  cudaErrorInvalidMemcpyDirection};
        uint32_t got = 0;

        if (turn == 1)
            EXPECT_EQ(err(index), kept[index]);
        EXPECT_CODE(cudaPeekAtLastError(), kept[index]);
        CHECK(cudaMemcpyAsync(&got, steppers[index].word, sizeof got, cudaMemcpyDeviceToHost, cudaStreamPerThread));
        CHECK(cudaStreamSynchronize(cudaStreamPerThread));
        EXPECT_EQ(got, steppers[index].want);
        EXPECT_CODE(cudaPeekAtLastError(), kept[index]);
        if (turn % KEPT_TURNS == 0) {
            EXPECT_CODE(cudaGetLastError(), kept[index]);
            CHECK(cudaGetLastError());
            steppers[index].step(turn, cudaStreamPerThread);
            err(index);
        }
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
        CHECK(cudaPeekAtLastError());
    }
    void finish() override
    {
        workers.end();
    }
};

static const mover_entry entries[] = {
    {"threads_on_own_streams", 0, mover_make<threads_on_own_streams>, "eight threads that issue without pause"},
    {"threads_on_one_stream", 0, mover_make<threads_on_one_stream>, "eight threads that issue on one stream"},
    {"threads_that_wait", 0, mover_make<threads_that_wait>, "threads in blocking calls while others issue"},
    {"threads_come_and_go", 0, mover_make<threads_come_and_go>, "twelve new threads in every round"},
    {"errors_of_threads", 0, mover_make<errors_of_threads>, "each thread's last error"},
};
MOVER_FAMILY(threads, entries);
