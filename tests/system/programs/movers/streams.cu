// Streams: work that is pending at any time, and its order.
#include "movers.h"

struct pending_work : mover {
    enum { STREAMS = 4, STEPS = 5, CHECKED_ROUNDS = 8 };
    cudaStream_t streams[STREAMS];
    mover_stepper steppers[STREAMS];

    void set_up() override
    {
        for (int i = 0; i < STREAMS; i++) {
            CHECK(cudaStreamCreateWithFlags(&streams[i], i % 2 ? cudaStreamNonBlocking : cudaStreamDefault));
            steppers[i].make(random());
        }
    }
    void check()
    {
        CHECK(cudaDeviceSynchronize());
        for (mover_stepper &stepper : steppers)
            stepper.check("what a stream has made");
    }
    void round() override
    {
        for (int k = 0; k < STEPS; k++)
            for (int i = 0; i < STREAMS; i++)
                steppers[i].step(random(), streams[i], 50);
        if (number % CHECKED_ROUNDS == 0)
            check();
    }
    void finish() override
    {
        check();
    }
};

struct many_streams : mover {
    enum { STREAMS = 24 };
    cudaStream_t streams[STREAMS];
    cudaEvent_t events[STREAMS];
    mover_stepper token;

    void set_up() override
    {
        for (int i = 0; i < STREAMS; i++) {
            CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
            CHECK(cudaEventCreateWithFlags(&events[i], cudaEventDisableTiming));
        }
        token.make(1);
    }
    /* One word goes through all streams in an order that events alone make. */
    void round() override
    {
        uint32_t i = random(STREAMS), next;

        for (int k = 0; k < STREAMS; k++, i = next) {
            token.step(random(), streams[i]);
            CHECK(cudaEventRecord(events[i], streams[i]));
            next = (i + 1 + random(STREAMS - 1)) % STREAMS;
            CHECK(cudaStreamWaitEvent(streams[next], events[i], 0));
        }
        CHECK(cudaStreamSynchronize(streams[i]));
        token.check("the word that went through all streams");
    }
};

struct stream_settings : mover {
    enum { STREAMS = 8 };
    cudaStream_t streams[STREAMS];
    unsigned flags[STREAMS];
    int priorities[STREAMS];
    unsigned long long ids[STREAMS];
    mover_stepper stepper;

    void set_up() override
    {
        int least, greatest;

        CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        for (int i = 0; i < STREAMS; i++) {
            flags[i] = i % 2 ? cudaStreamNonBlocking : cudaStreamDefault;
            priorities[i] = i % 3 ? least : greatest;
            CHECK(cudaStreamCreateWithPriority(&streams[i], flags[i], priorities[i]));
            CHECK(cudaStreamGetId(streams[i], &ids[i]));
        }
        stepper.make(3);
    }
    void round() override
    {
        for (int i = 0; i < STREAMS; i++) {
            unsigned got_flags;
            unsigned long long id;
            int priority;

            CHECK(cudaStreamGetFlags(streams[i], &got_flags));
            EXPECT_EQ(got_flags, flags[i]);
            CHECK(cudaStreamGetPriority(streams[i], &priority));
            EXPECT_EQ(priority, priorities[i]);
            CHECK(cudaStreamGetId(streams[i], &id));
            EXPECT_EQ(id, ids[i]);
            stepper.step(random(), streams[i]);
            CHECK(cudaStreamSynchronize(streams[i]));
            CHECK(cudaStreamQuery(streams[i]));
        }
        stepper.check("what all streams have made");
    }
};

struct legacy_stream_order : mover {
    enum { PASSES = 4 };
    cudaStream_t first, second;
    mover_stepper stepper;

    void set_up() override
    {
        CHECK(cudaStreamCreate(&first));
        CHECK(cudaStreamCreate(&second));
        stepper.make(9);
    }
    /* Nothing but the legacy stream's rules orders the two. */
    void round() override
    {
        for (int i = 0; i < PASSES; i++) {
            stepper.step(random(), first, 200);
            stepper.step(random(), 0);
            stepper.step(random(), second, 200);
            stepper.step(random(), cudaStreamLegacy);
        }
        stepper.check("what the streams have made around the legacy stream");
    }
};

struct streams_come_and_go : mover {
    enum { STREAMS = 6 };
    mover_stepper steppers[STREAMS];

    void set_up() override
    {
        for (mover_stepper &stepper : steppers)
            stepper.make(random());
    }
    /* A stream that is destroyed ends what it was given. */
    void round() override
    {
        for (mover_stepper &stepper : steppers) {
            cudaStream_t stream;
            cudaEvent_t event;

            CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            CHECK(cudaEventCreate(&event));
            stepper.step(random(), stream, 100);
            CHECK(cudaEventRecord(event, stream));
            stepper.step(random(), stream, 100);
            CHECK(cudaEventDestroy(event));
            CHECK(cudaStreamDestroy(stream));
        }
        CHECK(cudaDeviceSynchronize());
        for (mover_stepper &stepper : steppers)
            stepper.check("what a stream made that is gone");
    }
};

static const mover_entry entries[] = {
    {"pending_work", 0, mover_make<pending_work>, "streams that are hardly ever waited for"},
    {"many_streams", 0, mover_make<many_streams>, "a word that goes through 24 streams by events"},
    {"stream_settings", 0, mover_make<stream_settings>, "flags, priorities and ids of streams"},
    {"legacy_stream_order", 0, mover_make<legacy_stream_order>, "streams ordered by the legacy stream alone"},
    {"streams_come_and_go", 0, mover_make<streams_come_and_go>, "streams and events made and destroyed under work"},
};
MOVER_FAMILY(streams, entries);
