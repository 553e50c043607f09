/* A program whose memory changes at a known rate, and which knows to the microsecond when it stood still: what is moved
 * to another GPU, written to an image, or checkpointed by the driver while it runs.
 *
 * usage: rewrite --bytes N [--share PERCENT|all] [--work BLOCKS,ITERATIONS] [--graphs GRAPHS,NODES] [--seconds S]
 *                [--every S]
 *
 *   --bytes    so much device memory, in pages of 64 KiB, filled before "ready"
 *   --share    so many of all pages are rewritten in a second, each once before any a second time, in scattered order,
 *              another one in each pass (default 0); all: without a pause, and nothing else is done
 *   --work     a round's fixed work (default 256,20000): a kernel of so many blocks that steps each thread's
 *              generator so often
 *   --graphs   has so many executable graphs of so many kernels, each launched when it is made, before "ready", and
 *              when it ends (default 0,0)
 *   --seconds  ends by itself after so long; else by SIGTERM, or the line "end" on standard input
 *   --every    says "window" so often (default 0: not)
 *
 * Each round launches the work and what is due of the rewriting, and waits for both (cudaStreamSynchronize). The time
 * from one round's end to the next one's is a gap: while the program is stopped, by whomever, there is a long one.
 * Times are µs of CLOCK_MONOTONIC. Standard output has a JSON object in each line:
 *
 *   {"event": "ready", "pid", "pages"}
 *   {"event": "window" or "span", "seconds", "rounds", "rounds_per_s", "pages_per_s", "median_gap_us",
 *    "gaps": [{"us", "began_us", "ended_us"}, the GAPS_SAID longest, the longest first]}
 *        A span answers the line "span FROM_US TO_US": rounds that ended within it, and gaps that reach into it.
 *        It may lie as far back as the last ROUNDS_KEPT rounds.
 *   {"event": "graphs", "count"}
 *        Answers the lines "graphs on" and "graphs off", which make and end those of --graphs.
 *   {"event": "end", "intact": true, "rounds", "rewritten_pages"}
 *   {"event": "end", "intact": false, "wrong_pages", "first_wrong" (address), "memory" (where it begins),
 *    "expected_version", "version" (what the device had), "wrong_threads", "wrong_graphs"}
 *
 * At the end the GPU compares every word of every page with a pattern of its address and of the version that the page
 * must have by the host's count, and the host compares every thread's generator with where it must be: a write that
 * was lost, done twice or brought back from before is seen. Each graph's kernels count what they did. Exit status: 0
 * intact, 8 not, 1 a CUDA error, 2 wrong options. */
#include "bench.h"
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <getopt.h>
#include <poll.h>
#include <string>
#include <unistd.h>

enum {
    PAGE_BYTES = 65536,
    THREADS = 128,
    CHUNKS = PAGE_BYTES / 16, /* of a page: what a thread writes at once */
    ROUNDS_KEPT = 1 << 20,
    PAGES_MAX = 1 << 24,
    GAPS_SAID = 5,
    ROUNDS_OF_PASS = 16, /* --share all: a sixteenth of the memory in a round */
    FACTOR = 1664525,    /* of the generators: x becomes FACTOR * x + TERM, modulo 2^32 */
    TERM = 1013904223
};
static const double OWED_S_MAX = 0.25; /* what was due in a longer gap is not made up for */

/* The order of a pass: a bijection of 0 … pages - 1. */
struct order {
    unsigned pages, mask, shift, key;
};

__device__ static unsigned page_at(struct order order, unsigned x)
{
    do {
        x = (x + order.key) & order.mask;
        x ^= x >> order.shift;
        x = x * 0x9e3779b1u & order.mask;
        x ^= x >> order.shift;
        x = x * 0x85ebca6bu & order.mask;
        x ^= x >> order.shift;
    } while (x >= order.pages);
    return x;
}

/* 16 bytes that differ with the address and with the version, and that no packer makes smaller. */
__device__ static uint4 pattern(const uint4 *place, unsigned version)
{
    uint64_t address = (uint64_t)(uintptr_t)place >> 4;
    unsigned x = (unsigned)address * 0x9e3779b1u ^ (unsigned)(address >> 32) * 0xc2b2ae35u ^ version * 0x85ebca77u;
    uint4 words;
    x = (x ^ x >> 15) * 0x2c1b3c6du;
    words.x = x ^= x >> 12;
    words.y = x = (x ^ x >> 16) * 0x297a2d39u;
    words.z = x = (x ^ x >> 15) * 0x9e3779b1u + version;
    words.w = (x ^ x >> 14) * 0x85ebca6bu;
    return words;
}

__device__ static bool differs(uint4 a, uint4 b)
{
    return ((a.x ^ b.x) | (a.y ^ b.y) | (a.z ^ b.z) | (a.w ^ b.w)) != 0;
}

/* A block for each page of a pass, from `first` on: its next version. */
__global__ void rewrite_pages(uint4 *data, unsigned *versions, struct order order, unsigned first)
{
    unsigned page = page_at(order, first + blockIdx.x);
    uint4 *chunks = data + (size_t)page * CHUNKS;
    unsigned version = versions[page] + 1;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < CHUNKS; i += THREADS)
        chunks[i] = pattern(chunks + i, version);
    if (!threadIdx.x)
        versions[page] = version;
}

struct finding {
    unsigned long long first_wrong; /* address; ~0: none */
    unsigned wrong_pages;
};

/* Of a pass of which `done` pages are rewritten, `pass` passes complete before it. */
__global__ void check_pages(const uint4 *data, const unsigned *versions, struct order order, unsigned pass,
                            unsigned done, struct finding *finding)
{
    __shared__ unsigned wrong_count;
    unsigned page = page_at(order, blockIdx.x), expected = pass + (blockIdx.x < done);
    const uint4 *chunks = data + (size_t)page * CHUNKS;
    if (!threadIdx.x)
        wrong_count = 0;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < CHUNKS; i += THREADS) {
        if (differs(chunks[i], pattern(chunks + i, expected)) || (!i && versions[page] != expected)) {
            atomicMin(&finding->first_wrong, (unsigned long long)(uintptr_t)(chunks + i));
            atomicAdd(&wrong_count, 1u);
        }
    }
    __syncthreads();
    if (!threadIdx.x && wrong_count)
        atomicAdd(&finding->wrong_pages, 1u);
}

__global__ void step(unsigned *generators, unsigned iterations)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x, x = generators[i];
    for (unsigned j = 0; j < iterations; j++)
        x = x * FACTOR + TERM;
    generators[i] = x;
}

/* A node of a graph, which is a chain of them: it counts where the one before it has. */
__global__ void count_up(unsigned *counter, unsigned nodes, unsigned node)
{
    if (*counter % nodes == node)
        *counter += 1;
}

/* ---- the host ---- */

struct options {
    unsigned long long bytes;
    bool is_all;
    double share_pct, seconds, every_s;
    unsigned blocks, iterations;
    unsigned graphs, nodes;
};

struct round {
    double begin_us, end_us;
    unsigned long long rewritten_pages; /* by then, the first filling included */
};

struct program {
    struct options options;
    cudaStream_t stream;
    uint4 *data;
    unsigned *versions, *generators;
    unsigned pages;
    unsigned long long rewritten_pages, round_count;
    double owed_pages, due_us; /* what is due was counted until then */
    std::vector<cudaGraphExec_t> graphs;
    unsigned *counters;               /* of each graph */
    unsigned wrong_graphs;            /* of those that have ended */
    std::vector<struct round> rounds; /* the last ROUNDS_KEPT, each at its number modulo that */
};

static volatile sig_atomic_t is_ending;

static void on_terminate(int)
{
    is_ending = 1;
}

static struct order order_of(const struct program *program, unsigned pass)
{
    struct order order = {program->pages, 1, 1, pass * 0x632be5abu};
    unsigned bits = 1;
    while (order.mask < program->pages - 1) {
        order.mask = order.mask << 1 | 1;
        bits++;
    }
    order.shift = (bits + 1) / 2;
    return order;
}

/* Launches the rewriting of the next `count` pages. */
static void rewrite(struct program *program, unsigned long long count)
{
    while (count) {
        unsigned pass = (unsigned)(program->rewritten_pages / program->pages);
        unsigned first = (unsigned)(program->rewritten_pages % program->pages);
        unsigned blocks = (unsigned)std::min<unsigned long long>(count, program->pages - first);
        rewrite_pages<<<blocks, THREADS, 0, program->stream>>>(program->data, program->versions,
                                                               order_of(program, pass), first);
        CHECK(cudaGetLastError());
        program->rewritten_pages += blocks;
        count -= blocks;
    }
}

static unsigned long long due_pages(struct program *program, double seconds)
{
    if (program->options.is_all)
        return std::max(1u, program->pages / ROUNDS_OF_PASS);
    program->owed_pages += program->pages * program->options.share_pct / 100 * std::min(seconds, OWED_S_MAX);
    auto count = (unsigned long long)program->owed_pages;
    program->owed_pages -= (double)count;
    return count;
}

static void go_round(struct program *program, double *begin_us)
{
    rewrite(program, due_pages(program, (*begin_us - program->due_us) * 1e-6));
    program->due_us = *begin_us;
    if (!program->options.is_all) {
        step<<<program->options.blocks, THREADS, 0, program->stream>>>(program->generators,
                                                                       program->options.iterations);
        CHECK(cudaGetLastError());
    }
    CHECK(cudaStreamSynchronize(program->stream));
    double end_us = wall_us();
    program->rounds[program->round_count++ % ROUNDS_KEPT] = {*begin_us, end_us, program->rewritten_pages};
    *begin_us = end_us;
}

static double gap_us(const struct round &round)
{
    return round.end_us - round.begin_us;
}

static bool is_longer(const struct round &one, const struct round &other)
{
    return gap_us(one) > gap_us(other);
}

/* The number of the first round from `first` on that ended after that; that of the next one: none has. */
static unsigned long long first_ending_after(const struct program *program, unsigned long long first, double us)
{
    unsigned long long end = program->round_count;
    while (first < end) {
        unsigned long long middle = first + (end - first) / 2;
        if (program->rounds[middle % ROUNDS_KEPT].end_us > us)
            end = middle;
        else
            first = middle + 1;
    }
    return first;
}

/* It costs time, which is part of the gap that it falls into: about 0.1 ms for a thousand rounds. */
static void say_span(const struct program *program, const char *event, double from_us, double to_us)
{
    unsigned long long first = program->round_count > ROUNDS_KEPT ? program->round_count - ROUNDS_KEPT : 0, rounds = 0;
    unsigned long long pages_first = program->pages, pages_last = program->pages;
    std::vector<struct round> reaching;
    std::vector<double> gaps;
    if (first && program->rounds[first % ROUNDS_KEPT].begin_us > from_us) {
        printf("{\"event\": \"%s\", \"error\": \"the rounds of that time are not kept any more\"}\n", event);
        return;
    }
    unsigned long long next = first_ending_after(program, first, from_us);
    if (next > first)
        pages_first = pages_last = program->rounds[(next - 1) % ROUNDS_KEPT].rewritten_pages;
    for (; next < program->round_count; next++) {
        const struct round &round = program->rounds[next % ROUNDS_KEPT];
        if (round.begin_us >= to_us)
            break;
        reaching.push_back(round);
        gaps.push_back(gap_us(round));
        if (round.end_us <= to_us) {
            rounds++;
            pages_last = round.rewritten_pages;
        }
    }
    double seconds = (to_us - from_us) * 1e-6;
    size_t longest = std::min<size_t>(GAPS_SAID, reaching.size());
    std::partial_sort(reaching.begin(), reaching.begin() + (ptrdiff_t)longest, reaching.end(), is_longer);
    printf("{\"event\": \"%s\", \"seconds\": %.6f, \"rounds\": %llu, \"rounds_per_s\": %.3f, \"pages_per_s\": %.3f, "
           "\"median_gap_us\": %.1f, \"gaps\": [",
           event, seconds, rounds, (double)rounds / seconds, (double)(pages_last - pages_first) / seconds,
           gaps.empty() ? 0 : median(gaps));
    for (size_t i = 0; i < longest; i++)
        printf("%s{\"us\": %.1f, \"began_us\": %.1f, \"ended_us\": %.1f}", i ? ", " : "", gap_us(reaching[i]),
               reaching[i].begin_us, reaching[i].end_us);
    puts("]}");
}

/* Where a generator is after so many steps: the step applied to itself, squared and squared again. */
static unsigned stepped(unsigned x, unsigned long long steps)
{
    unsigned factor = FACTOR, term = TERM;
    for (; steps; steps >>= 1) {
        if (steps & 1)
            x = x * factor + term;
        term = factor * term + term;
        factor *= factor;
    }
    return x;
}

static unsigned wrong_threads(const struct program *program)
{
    std::vector<unsigned> now(program->options.blocks * THREADS);
    unsigned wrong = 0;
    CHECK(cudaMemcpy(now.data(), program->generators, now.size() * sizeof now[0], cudaMemcpyDeviceToHost));
    unsigned long long steps = program->options.is_all ? 0 : program->round_count * program->options.iterations;
    for (unsigned i = 0; i < now.size(); i++)
        wrong += now[i] != stepped(i, steps);
    return wrong;
}

static void make_graphs(struct program *program)
{
    CHECK(cudaMalloc(&program->counters, (program->options.graphs + 1) * sizeof(unsigned)));
    CHECK(cudaMemset(program->counters, 0, (program->options.graphs + 1) * sizeof(unsigned)));
    CHECK(cudaDeviceSynchronize());
    for (unsigned i = 0; i < program->options.graphs; i++) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        CHECK(cudaStreamBeginCapture(program->stream, cudaStreamCaptureModeGlobal));
        for (unsigned node = 0; node < program->options.nodes; node++)
            count_up<<<1, 1, 0, program->stream>>>(program->counters + i, program->options.nodes, node);
        CHECK(cudaStreamEndCapture(program->stream, &graph));
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphDestroy(graph));
        program->graphs.push_back(exec);
    }
}

static void launch_graphs(const struct program *program)
{
    for (cudaGraphExec_t exec : program->graphs)
        CHECK(cudaGraphLaunch(exec, program->stream));
    CHECK(cudaStreamSynchronize(program->stream));
}

/* Each was launched twice. */
static void end_graphs(struct program *program)
{
    std::vector<unsigned> counts(program->graphs.size());
    launch_graphs(program);
    CHECK(cudaMemcpy(counts.data(), program->counters, counts.size() * sizeof counts[0], cudaMemcpyDeviceToHost));
    for (unsigned count : counts)
        program->wrong_graphs += count != 2 * program->options.nodes;
    for (cudaGraphExec_t exec : program->graphs)
        CHECK(cudaGraphExecDestroy(exec));
    program->graphs.clear();
    CHECK(cudaFree(program->counters));
    program->counters = NULL;
}

static void have_graphs(struct program *program, bool are_wanted)
{
    if (are_wanted && program->graphs.empty()) {
        make_graphs(program);
        launch_graphs(program);
    }
    if (!are_wanted && !program->graphs.empty())
        end_graphs(program);
}

/* The exit status. */
static int end(struct program *program)
{
    unsigned pass = (unsigned)(program->rewritten_pages / program->pages);
    unsigned done = (unsigned)(program->rewritten_pages % program->pages), version = 0;
    struct finding finding = {~0ull, 0}, *place;
    CHECK(cudaMalloc(&place, sizeof finding));
    CHECK(cudaMemcpy(place, &finding, sizeof finding, cudaMemcpyHostToDevice));
    check_pages<<<program->pages, THREADS, 0, program->stream>>>(program->data, program->versions,
                                                                 order_of(program, pass), pass, done, place);
    CHECK(cudaGetLastError());
    CHECK(cudaStreamSynchronize(program->stream));
    CHECK(cudaMemcpy(&finding, place, sizeof finding, cudaMemcpyDeviceToHost));
    have_graphs(program, false);
    unsigned threads = wrong_threads(program), graphs = program->wrong_graphs;
    if (!finding.wrong_pages && !threads && !graphs) {
        printf("{\"event\": \"end\", \"intact\": true, \"rounds\": %llu, \"rewritten_pages\": %llu}\n",
               program->round_count, program->rewritten_pages - program->pages);
        return 0;
    }
    if (finding.wrong_pages) {
        size_t page = (size_t)(finding.first_wrong - (uintptr_t)program->data) / PAGE_BYTES;
        CHECK(cudaMemcpy(&version, program->versions + page, sizeof version, cudaMemcpyDeviceToHost));
    }
    printf(
        "{\"event\": \"end\", \"intact\": false, \"wrong_pages\": %u, \"first_wrong\": \"%#llx\", \"memory\": \"%p\", "
        "\"expected_version\": \"%u or %u\", \"version\": %u, \"wrong_threads\": %u, \"wrong_graphs\": %u}\n",
        finding.wrong_pages, finding.first_wrong, (void *)program->data, pass, pass + 1, version, threads, graphs);
    return 8;
}

/* What there is on standard input, without waiting. False: the program is to end. */
static bool obey(struct program *program, bool *is_open)
{
    static std::string input;
    struct pollfd in = {STDIN_FILENO, POLLIN, 0};
    char text[256];
    double from_us, to_us;
    if (!*is_open || poll(&in, 1, 0) <= 0)
        return true;
    ssize_t count = read(STDIN_FILENO, text, sizeof text);
    *is_open = count > 0 || (count < 0 && errno == EINTR);
    if (count > 0)
        input.append(text, (size_t)count);
    for (size_t at; (at = input.find('\n')) != std::string::npos; input.erase(0, at + 1)) {
        std::string line = input.substr(0, at);
        if (line == "end")
            return false;
        if (sscanf(line.c_str(), "span %lf %lf", &from_us, &to_us) == 2 && from_us < to_us)
            say_span(program, "span", from_us, to_us);
        else if (line == "graphs on" || line == "graphs off") {
            have_graphs(program, line == "graphs on");
            printf("{\"event\": \"graphs\", \"count\": %zu}\n", program->graphs.size());
        } else
            printf("{\"event\": \"unknown\"}\n");
    }
    return true;
}

static void prepare(struct program *program)
{
    std::vector<unsigned> generators(program->options.blocks * THREADS);
    program->pages = (unsigned)(program->options.bytes / PAGE_BYTES);
    program->rounds.resize(ROUNDS_KEPT);
    CHECK(cudaStreamCreateWithFlags(&program->stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&program->data, (size_t)program->pages * PAGE_BYTES));
    CHECK(cudaMalloc(&program->versions, program->pages * sizeof(unsigned)));
    CHECK(cudaMalloc(&program->generators, generators.size() * sizeof generators[0]));
    for (unsigned i = 0; i < generators.size(); i++)
        generators[i] = i;
    CHECK(cudaMemcpy(program->generators, generators.data(), generators.size() * sizeof generators[0],
                     cudaMemcpyHostToDevice));
    CHECK(cudaMemset(program->versions, 0, program->pages * sizeof(unsigned)));
    CHECK(cudaDeviceSynchronize());
    rewrite(program, program->pages);
    have_graphs(program, program->options.graphs);
}

static bool parse_options(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {{"bytes", 1, NULL, 'b'},
                                          {"share", 1, NULL, 's'},
                                          {"work", 1, NULL, 'w'},
                                          {"seconds", 1, NULL, 't'},
                                          {"every", 1, NULL, 'e'},
                                          {"graphs", 1, NULL, 'g'},
                                          {}};
    *options = {0, false, 0, 0, 0, 256, 20000, 0, 0};
    for (int name; (name = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        char *rest;
        double value = strtod(optarg ? optarg : "", &rest);
        bool is_number = optarg && rest != optarg && !*rest && value >= 0 && value <= 1e15;
        if (name == 's' && !strcmp(optarg, "all"))
            options->is_all = true;
        else if (name == 's' && is_number)
            options->share_pct = value;
        else if (name == 'b' && is_number)
            options->bytes = (unsigned long long)value;
        else if (name == 't' && is_number)
            options->seconds = value;
        else if (name == 'e' && is_number)
            options->every_s = value;
        else if (name == 'g' && sscanf(optarg, "%u,%u", &options->graphs, &options->nodes) == 2)
            continue;
        else if (name != 'w' || sscanf(optarg, "%u,%u", &options->blocks, &options->iterations) != 2)
            return false;
    }
    return optind == argc && options->bytes / PAGE_BYTES >= ROUNDS_OF_PASS &&
           options->bytes / PAGE_BYTES <= PAGES_MAX && options->blocks > 0 && options->blocks <= 65535;
}

int main(int argc, char **argv)
{
    struct program program = {};
    struct sigaction action = {};
    bool is_open = true;
    if (!parse_options(argc, argv, &program.options)) {
        fprintf(stderr, "usage: rewrite --bytes N [--share PERCENT|all] [--work BLOCKS,ITERATIONS] "
                        "[--graphs GRAPHS,NODES] [--seconds S] [--every S]; N from 1 MiB to 1 TiB\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    action.sa_handler = on_terminate;
    sigaction(SIGTERM, &action, NULL);
    prepare(&program);
    printf("{\"event\": \"ready\", \"pid\": %d, \"pages\": %u}\n", (int)getpid(), program.pages);
    const double start_us = wall_us(), length_us = program.options.seconds * 1e6,
                 every_us = program.options.every_s * 1e6;
    double window_us = start_us, begin_us = program.due_us = start_us;
    while (!is_ending && (!length_us || begin_us - start_us < length_us)) {
        go_round(&program, &begin_us);
        if (every_us && begin_us - window_us >= every_us) {
            say_span(&program, "window", window_us, begin_us);
            window_us = begin_us;
        }
        if (!obey(&program, &is_open))
            break;
    }
    return end(&program);
}
