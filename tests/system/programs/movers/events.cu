// Events: what was recorded stays recorded, and times are those that have passed.
#include "movers.h"

#include <math.h>

/*
 * What the host knows of the time between two events, for it waited: it issued and awaited the first between two looks
 * at its clock, and the second between two others. The two clocks may differ by a hundredth and by SLACK_MS.
 */
static const double SLACK_MS = 2, SLACK_SHARE = 0.01;

struct moment {
    cudaEvent_t event;
    double before_ms, after_ms;

    void take(cudaStream_t stream)
    {
        before_ms = mover_now_ms();
        CHECK(cudaEventRecord(event, stream));
        CHECK(cudaEventSynchronize(event));
        after_ms = mover_now_ms();
    }
};

static double elapsed_ms(const moment &first, const moment &last)
{
    float ms, back_ms;

    CHECK(cudaEventElapsedTime(&ms, first.event, last.event));
    CHECK(cudaEventElapsedTime(&back_ms, last.event, first.event));
    EXPECT(fabs(ms + back_ms) <= 0.01 + fabs(ms) * 1e-5, "elapsed is %f ms, and %f ms the other way", ms, back_ms);
    return ms;
}

static void expect_plausible(const moment &first, const moment &last)
{
    double ms = elapsed_ms(first, last), least_ms = last.before_ms - first.after_ms;
    double most_ms = last.after_ms - first.before_ms;

    EXPECT(ms > 0, "elapsed is %f ms, although the host waited in between", ms);
    EXPECT(ms >= least_ms * (1 - SLACK_SHARE) - SLACK_MS, "elapsed is %f ms, but the host waited %f ms", ms, least_ms);
    EXPECT(ms <= most_ms * (1 + SLACK_SHARE) + SLACK_MS, "elapsed is %f ms, but the host saw %f ms pass", ms, most_ms);
}

struct event_times : mover {
    enum { EVENTS = 5 };
    cudaStream_t stream;
    moment first, moments[EVENTS];

    void set_up() override
    {
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaEventCreate(&first.event));
        for (moment &one : moments)
            CHECK(cudaEventCreate(&one.event));
        first.take(stream);
        for (moment &one : moments) {
            mover_sleep_ms(2);
            one.take(stream);
        }
    }
    void round() override
    {
        moment &oldest = moments[(number - 1) % EVENTS], &newest = moments[(number + EVENTS - 2) % EVENTS];

        expect_plausible(first, newest);
        expect_plausible(oldest, newest);
        mover_sleep_ms(2 + random(3));
        oldest.take(stream); /* is the newest now */
        expect_plausible(newest, oldest);
        expect_plausible(first, oldest);
    }
};

struct old_events : mover {
    enum { EVENTS = 6 };
    cudaStream_t stream;
    cudaEvent_t events[EVENTS], plain, never;
    float ms[EVENTS];
    mover_stepper stepper;

    void set_up() override
    {
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaEventCreateWithFlags(&plain, cudaEventDisableTiming));
        CHECK(cudaEventCreate(&never));
        stepper.make(1);
        for (cudaEvent_t &event : events) {
            CHECK(cudaEventCreate(&event));
            stepper.step(7, stream, 500);
            CHECK(cudaEventRecord(event, stream));
        }
        CHECK(cudaEventRecord(plain, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (int i = 0; i < EVENTS; i++) {
            CHECK(cudaEventElapsedTime(&ms[i], events[0], events[i]));
            EXPECT(i == 0 || ms[i] >= ms[i - 1], "event %d is %f ms, the one before %f ms", i, ms[i], ms[i - 1]);
        }
    }
    /* As long as the program runs nothing of this changes. */
    void round() override
    {
        for (int i = 0; i < EVENTS; i++) {
            float again_ms;

            CHECK(cudaEventQuery(events[i]));
            CHECK(cudaEventSynchronize(events[i]));
            CHECK(cudaEventElapsedTime(&again_ms, events[0], events[i]));
            EXPECT(fabsf(again_ms - ms[i]) < 0.002f, "event %d was %f ms behind the first, and is %f", i, ms[i],
                   again_ms);
        }
        CHECK(cudaEventQuery(plain));
        CHECK(cudaEventQuery(never));
        CHECK(cudaStreamWaitEvent(stream, plain, 0));
        CHECK(cudaStreamWaitEvent(stream, never, 0));
        float unused_ms;
        EXPECT_CODE(cudaEventElapsedTime(&unused_ms, events[0], plain), cudaErrorInvalidResourceHandle);
        EXPECT_CODE(cudaEventElapsedTime(&unused_ms, events[0], never), cudaErrorInvalidResourceHandle);
        cudaGetLastError();
        stepper.step(random(), stream);
        CHECK(cudaStreamSynchronize(stream));
        stepper.check("what the stream has made");
    }
};

struct event_queries : mover {
    enum { EVENTS = 8, TURNS = 3000 };
    cudaStream_t stream;
    cudaEvent_t events[EVENTS];
    mover_stepper stepper;

    void set_up() override
    {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (int i = 0; i < EVENTS; i++)
            CHECK(cudaEventCreateWithFlags(&events[i], i % 2 ? cudaEventDisableTiming : cudaEventBlockingSync));
        stepper.make(2);
    }
    /* Asks until all are complete: one after the other, and what is complete stays so. */
    void round() override
    {
        int complete = 0;

        for (cudaEvent_t event : events) {
            stepper.step(random(), stream, TURNS);
            CHECK(cudaEventRecord(event, stream));
        }
        while (complete < EVENTS) {
            cudaError_t error = cudaEventQuery(events[complete]);
            if (error != cudaErrorNotReady)
                CHECK(error);
            complete += error == cudaSuccess;
            for (int i = 0; i < complete; i++)
                CHECK(cudaEventQuery(events[i]));
        }
        cudaGetLastError(); /* not ready is one */
        CHECK(cudaStreamQuery(stream));
        stepper.check("what is there when the last event is complete");
    }
};

static const mover_entry entries[] = {
    {"event_times", 0, mover_make<event_times>, "elapsed times against the host's clock"},
    {"old_events", 0, mover_make<old_events>, "events recorded once, asked again and again"},
    {"event_queries", 0, mover_make<event_queries>, "events that are asked while work is on its way"},
};
MOVER_FAMILY(events, entries);
