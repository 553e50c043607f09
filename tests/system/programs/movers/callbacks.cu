// Functions of the host that streams call.
#include "movers.h"

/* What is called in one stream, in order. */
struct call_count {
    unsigned called = 0, asked = 0;
};

static void CUDART_CB count_call(void *user)
{
    ((struct call_count *)user)->called++;
}

static void CUDART_CB count_callback(cudaStream_t, cudaError_t status, void *user)
{
    CHECK(status);
    ((struct call_count *)user)->called++;
}

template <bool IS_CALLBACK> struct counted_functions : mover {
    enum { STREAMS = 3, CALLS = 6, CHECKED_ROUNDS = 6 };
    cudaStream_t streams[STREAMS];
    mover_stepper steppers[STREAMS];
    struct call_count counts[STREAMS];

    void set_up() override
    {
        for (int i = 0; i < STREAMS; i++) {
            CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
            steppers[i].make(random());
        }
    }
    void check()
    {
        for (int i = 0; i < STREAMS; i++) {
            CHECK(cudaStreamSynchronize(streams[i]));
            EXPECT(counts[i].called == counts[i].asked, "%u functions were called, expected %u", counts[i].called,
                   counts[i].asked);
            steppers[i].check("what a stream made between its functions");
        }
    }
    void round() override
    {
        for (int k = 0; k < CALLS; k++)
            for (int i = 0; i < STREAMS; i++) {
                steppers[i].step(random(), streams[i], 20);
                if (IS_CALLBACK)
                    CHECK(cudaStreamAddCallback(streams[i], count_callback, &counts[i], 0));
                else
                    CHECK(cudaLaunchHostFunc(streams[i], count_call, &counts[i]));
                counts[i].asked++;
            }
        if (number % CHECKED_ROUNDS == 0)
            check();
    }
    void finish() override
    {
        check();
    }
};

/* Whatever a kernel made is on the host when the function behind the copy is called. */
struct functions_behind_copies : mover {
    enum { WORDS = 2000, SLOTS = 4 };
    struct slot {
        uint32_t *device, *pinned, seed;
        bool is_busy;
        unsigned called;
    } slots[SLOTS];
    cudaStream_t stream;
    unsigned passes = 0;

    static void CUDART_CB look(void *user)
    {
        struct slot *slot = (struct slot *)user;

        for (size_t i = 0; i < WORDS; i++)
            EXPECT(slot->pinned[i] == mover_pattern(i, slot->seed),
                   "word %zu is 0x%x when the function is called, expected 0x%x", i, slot->pinned[i],
                   mover_pattern(i, slot->seed));
        memset(slot->pinned, 0, WORDS * sizeof *slot->pinned);
        slot->called++;
    }
    void set_up() override
    {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (struct slot &slot : slots) {
            slot = {mover_words(WORDS), NULL, 0, false, 0};
            CHECK(cudaMallocHost(&slot.pinned, WORDS * sizeof *slot.pinned));
        }
    }
    void round() override
    {
        for (struct slot &slot : slots) {
            slot.seed = random();
            mover_fill(slot.device, WORDS, slot.seed, stream);
            CHECK(
                cudaMemcpyAsync(slot.pinned, slot.device, WORDS * sizeof *slot.pinned, cudaMemcpyDeviceToHost, stream));
            CHECK(cudaLaunchHostFunc(stream, look, &slot));
        }
        CHECK(cudaStreamSynchronize(stream));
        passes++;
        for (const struct slot &slot : slots)
            EXPECT_EQ(slot.called, passes);
    }
};

/* What a function of the host writes, a copy behind it takes to the device. */
struct functions_before_copies : mover {
    enum { WORDS = 500, PASSES = 5 };
    uint32_t *device, *pinned, next = 0;
    cudaStream_t stream;

    static void CUDART_CB write(void *user)
    {
        functions_before_copies *self = (functions_before_copies *)user;

        self->next++;
        for (size_t i = 0; i < WORDS; i++)
            self->pinned[i] = mover_pattern(i, self->next);
    }
    void set_up() override
    {
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaMallocHost(&pinned, WORDS * sizeof *pinned));
        device = mover_words(WORDS);
        mover_fill(device, WORDS, next);
    }
    void round() override
    {
        mover_sleep_ms(random(4));
        mover_expect_pattern(device, WORDS, next, "what the round before has left");
        for (int i = 0; i < PASSES; i++) {
            CHECK(cudaLaunchHostFunc(stream, write, this));
            CHECK(cudaMemcpyAsync(device, pinned, WORDS * sizeof *pinned, cudaMemcpyHostToDevice, stream));
        }
        CHECK(cudaStreamSynchronize(stream));
        EXPECT_EQ(next, number * PASSES);
        mover_expect_pattern(device, WORDS, next, "what a function wrote and a copy took");
    }
};

static const mover_entry entries[] = {
    {"host_functions", 0, mover_make<counted_functions<false>>, "host functions in flight, counted"},
    {"stream_callbacks", 0, mover_make<counted_functions<true>>, "stream callbacks in flight, counted"},
    {"functions_behind_copies", 0, mover_make<functions_behind_copies>, "host functions that look at what was copied"},
    {"functions_before_copies", 0, mover_make<functions_before_copies>, "host functions that write what is copied"},
};
MOVER_FAMILY(callbacks, entries);
