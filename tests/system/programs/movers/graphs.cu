// Graphs: launched again and again, changed, made and destroyed, and captures that are under way for long.
#include "movers.h"

static __global__ void step_word(uint32_t *word, const uint32_t *by, uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++)
        *word = *word * mover_factor(*by) + *by;
}

/* The host's part. */
static uint32_t stepped(uint32_t word, uint32_t by, uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++)
        word = word * mover_factor(by) + by;
    return word;
}

static void CUDART_CB count_launch(void *user)
{
    ++*(unsigned *)user;
}

/* Two branches that join, with input that the host changes between launches, a function of the host's and a result. */
struct graph_launches : mover {
    enum { LAUNCHES = 5, TURNS = 30 };
    cudaStream_t stream, side;
    cudaGraphExec_t exec;
    uint32_t *words, *by, want[2], *input, *output;
    unsigned called = 0, asked = 0;

    void set_up() override
    {
        cudaEvent_t fork, join;
        cudaGraph_t graph;

        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
        CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
        words = mover_words(2);
        by = mover_words(1);
        CHECK(cudaMallocHost(&input, sizeof *input));
        output = (uint32_t *)malloc(2 * sizeof *output);
        want[0] = want[1] = 0;
        CHECK(cudaMemset(words, 0, 2 * sizeof *words));
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        CHECK(cudaMemcpyAsync(by, input, sizeof *by, cudaMemcpyHostToDevice, stream));
        CHECK(cudaEventRecord(fork, stream));
        CHECK(cudaStreamWaitEvent(side, fork, 0));
        step_word<<<1, 1, 0, stream>>>(words, by, TURNS);
        step_word<<<1, 1, 0, side>>>(words + 1, by, 2 * TURNS);
        CHECK(cudaEventRecord(join, side));
        CHECK(cudaStreamWaitEvent(stream, join, 0));
        CHECK(cudaMemcpyAsync(output, words, 2 * sizeof *output, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaLaunchHostFunc(stream, count_launch, &called));
        CHECK(cudaStreamEndCapture(stream, &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphDestroy(graph));
    }
    void round() override
    {
        *input = random();
        for (int i = 0; i < LAUNCHES; i++) {
            CHECK(cudaGraphLaunch(exec, stream));
            want[0] = stepped(want[0], *input, TURNS);
            want[1] = stepped(want[1], *input, 2 * TURNS);
            asked++;
        }
        CHECK(cudaStreamSynchronize(stream));
        EXPECT_EQ(called, asked);
        EXPECT(output[0] == want[0] && output[1] == want[1], "%u and %u, expected %u and %u", output[0], output[1],
               want[0], want[1]);
    }
};

/* Graphs of device work alone, of which none is waited for in a round: some are changed, some replaced. */
struct graph_changes : mover {
    enum { GRAPHS = 6, NODES = 12, LAUNCHES = 4 };
    cudaStream_t stream;
    uint32_t *words, *values, want[GRAPHS], factors[GRAPHS][NODES];
    cudaGraph_t graphs[GRAPHS];
    cudaGraphExec_t execs[GRAPHS];
    cudaGraphNode_t nodes[GRAPHS][NODES];

    void params_of(int g, int n, cudaKernelNodeParams *params, void **args, uint32_t **places)
    {
        static const uint32_t turns = 3;

        places[0] = words + g;
        places[1] = values + factors[g][n] % 64;
        args[0] = &places[0];
        args[1] = &places[1];
        args[2] = (void *)&turns;
        *params = {};
        params->func = (void *)step_word;
        params->gridDim = params->blockDim = dim3(1);
        params->kernelParams = args;
    }
    void make(int g)
    {
        CHECK(cudaGraphCreate(&graphs[g], 0));
        for (int n = 0; n < NODES; n++) {
            cudaKernelNodeParams params;
            void *args[3];
            uint32_t *places[2];

            factors[g][n] = random();
            params_of(g, n, &params, args, places);
            CHECK(cudaGraphAddKernelNode(&nodes[g][n], graphs[g], n ? &nodes[g][n - 1] : NULL, n ? 1 : 0, &params));
        }
        CHECK(cudaGraphInstantiate(&execs[g], graphs[g], 0));
    }
    void set_up() override
    {
        uint32_t host[64];

        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        words = mover_words(GRAPHS);
        values = mover_words(64);
        for (uint32_t i = 0; i < 64; i++)
            host[i] = mover_pattern(i, 5);
        CHECK(cudaMemcpy(values, host, sizeof host, cudaMemcpyHostToDevice));
        CHECK(cudaMemset(words, 0, GRAPHS * sizeof *words));
        CHECK(cudaDeviceSynchronize());
        for (int g = 0; g < GRAPHS; g++) {
            want[g] = 0;
            make(g);
        }
    }
    void change(int g)
    {
        cudaKernelNodeParams params;
        void *args[3];
        uint32_t *places[2];
        int n = (int)random(NODES);

        factors[g][n] = random();
        params_of(g, n, &params, args, places);
        CHECK(cudaGraphExecKernelNodeSetParams(execs[g], nodes[g][n], &params));
    }
    void round() override
    {
        for (int i = 0; i < LAUNCHES * GRAPHS; i++) {
            int g = (int)random(GRAPHS);

            CHECK(cudaGraphLaunch(execs[g], stream));
            for (int n = 0; n < NODES; n++)
                want[g] = stepped(want[g], mover_pattern(factors[g][n] % 64, 5), 3);
            if (random(4) == 0)
                change(g);
        }
        int g = (int)random(GRAPHS);
        CHECK(cudaGraphExecDestroy(execs[g]));
        CHECK(cudaGraphDestroy(graphs[g]));
        make(g);
        CHECK(cudaStreamSynchronize(stream));
        mover_expect_words(words, std::vector<uint32_t>(want, want + GRAPHS), "what graphs have stepped");
    }
};

static __global__ void loop_step(uint32_t *word, const uint32_t *by, uint32_t *left, cudaGraphConditionalHandle handle)
{
    *word = *word * mover_factor(*by) + *by;
    *left -= 1;
    cudaGraphSetConditional(handle, *left);
}

static __global__ void tell_condition(const uint32_t *value, cudaGraphConditionalHandle handle)
{
    cudaGraphSetConditional(handle, *value);
}

/* Loops that the GPU ends, of as many rounds as the program says, and another path where it says none. */
struct graph_loops : mover {
    enum { GRAPHS = 3, LAUNCHES = 6, TURNS_MAX = 50 };
    cudaStream_t stream;
    uint32_t *words, *by, *left, want[GRAPHS];
    cudaGraph_t graphs[GRAPHS];
    cudaGraphExec_t execs[GRAPHS];

    cudaGraphNode_t kernel(cudaGraph_t graph, const cudaGraphNode_t *before, void *function, void **args)
    {
        cudaKernelNodeParams params = {};
        cudaGraphNode_t node;

        params.func = function;
        params.gridDim = params.blockDim = dim3(1);
        params.kernelParams = args;
        CHECK(cudaGraphAddKernelNode(&node, graph, before, before ? 1 : 0, &params));
        return node;
    }
    cudaGraph_t *conditional(cudaGraph_t graph, cudaGraphNode_t before, cudaGraphConditionalHandle handle,
                             cudaGraphConditionalNodeType type, unsigned size)
    {
        cudaGraphNodeParams params = {};
        cudaGraphNode_t node;

        params.type = cudaGraphNodeTypeConditional;
        params.conditional.handle = handle;
        params.conditional.type = type;
        params.conditional.size = size;
        CHECK(cudaGraphAddNode(&node, graph, before ? &before : NULL, NULL, before ? 1 : 0, &params));
        return params.conditional.phGraph_out;
    }
    void make(int g)
    {
        cudaGraphConditionalHandle any, again;
        uint32_t *word = words + g, *mine = left + g;
        cudaGraph_t *paths, *loop;

        CHECK(cudaGraphCreate(&graphs[g], 0));
        CHECK(cudaGraphConditionalHandleCreate(&any, graphs[g], 0, 0));
        CHECK(cudaGraphConditionalHandleCreate(&again, graphs[g], 1, cudaGraphCondAssignDefault));
        void *tell_args[] = {&mine, &any}, *loop_args[] = {&word, &by, &mine, &again};
        const uint32_t turns = 2;
        void *step_args[] = {&word, &by, (void *)&turns};
        cudaGraphNode_t tell = kernel(graphs[g], NULL, (void *)tell_condition, tell_args);
        paths = conditional(graphs[g], tell, any, cudaGraphCondTypeIf, 2);
        loop = conditional(paths[0], NULL, again, cudaGraphCondTypeWhile, 1);
        kernel(loop[0], NULL, (void *)loop_step, loop_args);
        kernel(paths[1], NULL, (void *)step_word, step_args);
        CHECK(cudaGraphInstantiate(&execs[g], graphs[g], 0));
    }
    void set_up() override
    {
        const uint32_t value = 33;

        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        words = mover_words(GRAPHS);
        left = mover_words(GRAPHS);
        by = mover_words(1);
        CHECK(cudaMemcpy(by, &value, sizeof value, cudaMemcpyHostToDevice));
        CHECK(cudaMemset(words, 0, GRAPHS * sizeof *words));
        CHECK(cudaDeviceSynchronize());
        for (int g = 0; g < GRAPHS; g++) {
            want[g] = 0;
            make(g);
        }
    }
    void round() override
    {
        for (int i = 0; i < LAUNCHES; i++) {
            int g = (int)random(GRAPHS);
            uint32_t turns = random(TURNS_MAX);

            CHECK(cudaMemcpyAsync(left + g, &turns, sizeof turns, cudaMemcpyHostToDevice, stream));
            CHECK(cudaGraphLaunch(execs[g], stream));
            want[g] = stepped(want[g], 33, turns ? turns : 2);
        }
        CHECK(cudaStreamSynchronize(stream));
        mover_expect_words(words, std::vector<uint32_t>(want, want + GRAPHS), "what loops have stepped");
        if (random(4) == 0) {
            int g = (int)random(GRAPHS);

            CHECK(cudaGraphExecDestroy(execs[g]));
            CHECK(cudaGraphDestroy(graphs[g]));
            make(g);
        }
    }
};

/* A capture that is under way for several rounds, while other streams work. */
struct capture_under_way : mover {
    enum { ROUNDS = 4 };
    cudaStream_t captured, stream;
    mover_stepper stepper;
    uint32_t *word, *by, want = 0, steps = 0;

    void begin()
    {
        CHECK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
        steps = 0;
    }
    void set_up() override
    {
        const uint32_t value = 77;

        CHECK(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking));
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        stepper.make(random());
        word = mover_words(1);
        by = mover_words(1);
        CHECK(cudaMemcpy(by, &value, sizeof value, cudaMemcpyHostToDevice));
        CHECK(cudaMemset(word, 0, sizeof *word));
        CHECK(cudaDeviceSynchronize());
        begin();
    }
    void launch()
    {
        cudaGraph_t graph;
        cudaGraphExec_t exec;

        CHECK(cudaStreamEndCapture(captured, &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        for (int i = 0; i < 3; i++) {
            CHECK(cudaGraphLaunch(exec, captured));
            want = stepped(want, 77, steps);
        }
        CHECK(cudaGraphExecDestroy(exec));
        CHECK(cudaGraphDestroy(graph));
        CHECK(cudaStreamSynchronize(captured));
        mover_expect_words(word, std::vector<uint32_t>(1, want), "what a captured stream has stepped");
        begin();
    }
    void round() override
    {
        step_word<<<1, 1, 0, captured>>>(word, by, 1);
        CHECK_LAUNCH();
        steps++;
        stepper.step(random(), stream, 10);
        CHECK(cudaStreamSynchronize(stream));
        stepper.check("beside a capture");
        if (number % ROUNDS == 0)
            launch();
    }
};

/* Executable graphs that the program keeps, though the module of their kernel is gone. */
struct graph_outlives_module : mover {
    cudaStream_t stream;
    CUgraphExec kept = NULL;
    mover_stepper stepper;

    void make()
    {
        static const char image[] =
            ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";
        CUDA_KERNEL_NODE_PARAMS params = {};
        CUmodule module;
        CUgraph graph;
        CUgraphNode node;

        CHECK_CU(cuModuleLoadData(&module, image));
        CHECK_CU(cuModuleGetFunction(&params.func, module, "nothing"));
        params.gridDimX = params.gridDimY = params.gridDimZ = 1;
        params.blockDimX = params.blockDimY = params.blockDimZ = 1;
        CHECK_CU(cuGraphCreate(&graph, 0));
        CHECK_CU(cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
        CHECK_CU(cuGraphInstantiate(&kept, graph, 0));
        CHECK_CU(cuGraphLaunch(kept, stream));
        CHECK_CU(cuStreamSynchronize(stream));
        CHECK_CU(cuGraphDestroy(graph));
        CHECK_CU(cuModuleUnload(module));
    }
    void set_up() override
    {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        stepper.make(random());
        make();
    }
    void round() override
    {
        stepper.step(random(), stream, 10);
        CHECK(cudaStreamSynchronize(stream));
        stepper.check("beside a graph of a module that is gone");
        if (random(8) == 0) {
            CHECK_CU(cuGraphExecDestroy(kept));
            make();
        }
    }
};

static const mover_entry entries[] = {
    {"graph_launches", 0, mover_make<graph_launches>, "a graph with work of the GPU and of the host"},
    {"graph_changes", 0, mover_make<graph_changes>, "graphs whose nodes are changed between launches"},
    {"graph_loops", 0, mover_make<graph_loops>, "graphs with loops and choices that the GPU makes"},
    {"graph_outlives_module", 0, mover_make<graph_outlives_module>, "a graph whose module is gone"},
    {"capture_under_way", 0, mover_make<capture_under_way>, "a capture that lasts for rounds"},
};
MOVER_FAMILY(graphs, entries);
