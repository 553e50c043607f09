// Contexts of the driver API, besides the one of the runtime.
#include "movers.h"

/* Work and memory of a context that is current for it alone. */
struct own_context {
    CUcontext context;
    CUstream stream;
    CUdeviceptr words;
    std::vector<uint32_t> wanted;

    void make(size_t count)
    {
        CHECK_CU(cuCtxCreate(&context, NULL, 0, 0));
        CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK_CU(cuMemAlloc(&words, count * sizeof(uint32_t)));
        CHECK_CU(cuMemsetD32(words, 0, count));
        CHECK_CU(cuCtxSynchronize());
        CHECK_CU(cuCtxPopCurrent(NULL));
        wanted.assign(count, 0);
    }
    void change(uint32_t first, uint32_t count, uint32_t value)
    {
        CHECK_CU(cuCtxPushCurrent(context));
        CHECK_CU(cuMemsetD32Async(words + first * sizeof value, value, count, stream));
        CHECK_CU(cuCtxPopCurrent(NULL));
        for (uint32_t i = first; i < first + count; i++)
            wanted[i] = value;
    }
    void check()
    {
        std::vector<uint32_t> got(wanted.size());
        CUcontext popped;

        CHECK_CU(cuCtxPushCurrent(context));
        CHECK_CU(cuStreamSynchronize(stream));
        CHECK_CU(cuMemcpyDtoH(got.data(), words, got.size() * sizeof got[0]));
        CHECK_CU(cuCtxPopCurrent(&popped));
        EXPECT(popped == context, "another context was current");
        for (size_t i = 0; i < got.size(); i++)
            EXPECT(got[i] == wanted[i], "word %zu of a context's memory is %u, expected %u", i, got[i], wanted[i]);
    }
};

struct several_contexts : mover {
    enum { CONTEXTS = 3, WORDS = 2000 };
    own_context contexts[CONTEXTS];
    mover_stepper stepper;

    void set_up() override
    {
        stepper.make(1);
        for (own_context &one : contexts)
            one.make(WORDS);
    }
    void round() override
    {
        for (own_context &one : contexts) {
            uint32_t first = random(WORDS);
            one.change(first, 1 + random(WORDS - first), random());
            stepper.step(random(), 0);
        }
        for (own_context &one : contexts)
            one.check();
        stepper.check("what the runtime's context has made");
    }
};

struct context_comes_and_goes : mover {
    enum { WORDS = 500 };
    mover_stepper stepper;

    void set_up() override
    {
        stepper.make(1);
    }
    void round() override
    {
        own_context passing;

        passing.make(WORDS);
        stepper.step(random(), 0, 50);
        passing.change(0, WORDS, random());
        passing.check();
        CHECK_CU(cuCtxDestroy(passing.context));
        stepper.check("what the runtime's context has made");
    }
};

static const mover_entry entries[] = {
    {"several_contexts", 0, mover_make<several_contexts>, "three contexts besides the runtime's, each with memory"},
    {"context_comes_and_goes", 0, mover_make<context_comes_and_goes>, "a context made and destroyed in every round"},
};
MOVER_FAMILY(contexts, entries);
