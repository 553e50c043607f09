// What movers.h promises to all cases, besides what main.cu knows: patterns, steps, threads, clock.
#include "movers.h"

#include <time.h>

uint32_t mover::random()
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state >> 3;
}

void mover_check_equal(const char *file, int line, const char *what, long long got, long long want)
{
    if (got != want)
        mover_fail(file, line, "%s is %lld (0x%llx), expected %lld (0x%llx)", what, got, got, want, want);
}

void mover_check(const char *file, int line, const char *call, int got, int want, bool is_driver)
{
    const char *name = NULL;

    if (got == want)
        return;
    if (is_driver)
        cuGetErrorName((CUresult)got, &name);
    else
        name = cudaGetErrorName((cudaError_t)got);
    mover_fail(file, line, "%s gave %d (%s), expected %d", call, got, name ? name : "?", want);
}

// ---- patterns

static __global__ void fill_words(uint32_t *words, size_t count, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x)
        words[i] = mover_pattern(i, seed);
}

uint32_t *mover_words(size_t count)
{
    uint32_t *words;

    CHECK(cudaMalloc(&words, count * sizeof *words));
    return words;
}

void mover_fill(uint32_t *words, size_t count, uint32_t seed, cudaStream_t stream)
{
    fill_words<<<4, 128, 0, stream>>>(words, count, seed);
    CHECK_LAUNCH();
}

std::vector<uint32_t> mover_read(const uint32_t *words, size_t count)
{
    std::vector<uint32_t> copy(count);

    CHECK(cudaMemcpy(copy.data(), words, count * sizeof *words, cudaMemcpyDeviceToHost));
    return copy;
}

static void expect_word(size_t i, uint32_t got, uint32_t want, const char *what)
{
    EXPECT(got == want, "%s: word %zu is 0x%08x, expected 0x%08x", what, i, got, want);
}

void mover_expect_pattern(const uint32_t *words, size_t count, uint32_t seed, const char *what)
{
    std::vector<uint32_t> copy = mover_read(words, count);

    for (size_t i = 0; i < count; i++)
        expect_word(i, copy[i], mover_pattern(i, seed), what);
}

void mover_expect_words(const uint32_t *words, const std::vector<uint32_t> &want, const char *what)
{
    std::vector<uint32_t> copy = mover_read(words, want.size());

    for (size_t i = 0; i < want.size(); i++)
        expect_word(i, copy[i], want[i], what);
}

// ---- steps

static __global__ void step_word(uint32_t *word, uint32_t factor, uint32_t term, uint32_t turns)
{
    uint32_t value = *word;

    for (uint32_t i = 0; i < turns; i++)
        value = value * factor + term;
    *word = value;
}

void mover_step(uint32_t *word, uint32_t factor, uint32_t term, uint32_t turns, cudaStream_t stream)
{
    step_word<<<1, 1, 0, stream>>>(word, factor, term, turns);
    CHECK_LAUNCH();
}

void mover_stepper::make(uint32_t first)
{
    word = mover_words(1);
    want = first;
    CHECK(cudaMemcpy(word, &first, sizeof first, cudaMemcpyHostToDevice));
}

void mover_stepper::step(uint32_t by, cudaStream_t stream, uint32_t turns)
{
    mover_step(word, mover_factor(by), by, turns, stream);
    expect_step(by, turns);
}

void mover_stepper::expect_step(uint32_t by, uint32_t turns)
{
    while (turns--)
        want = want * mover_factor(by) + by;
}

void mover_stepper::check(const char *what)
{
    uint32_t got = ~want;

    CHECK(cudaMemcpy(&got, word, sizeof got, cudaMemcpyDeviceToHost));
    expect_word(0, got, want, what);
}

// ---- threads

static void *run_worker(void *user)
{
    mover_workers *workers = (mover_workers *)user;

    pthread_mutex_lock(&workers->mutex);
    unsigned index = workers->begun++;
    while (!workers->is_ending) {
        unsigned turn = workers->turns[index] + 1;
        pthread_mutex_unlock(&workers->mutex);
        workers->turn(index, turn);
        pthread_mutex_lock(&workers->mutex);
        workers->turns[index] = turn;
        pthread_cond_broadcast(&workers->changed);
    }
    pthread_mutex_unlock(&workers->mutex);
    return NULL;
}

void mover_workers::start(unsigned count, std::function<void(unsigned index, unsigned turn)> take_turn)
{
    turn = take_turn;
    turns.assign(count, 0);
    threads.resize(count);
    for (pthread_t &thread : threads)
        EXPECT(pthread_create(&thread, NULL, run_worker, this) == 0, "no thread");
}

void mover_workers::await_turn()
{
    pthread_mutex_lock(&mutex);
    /* The turn that a thread is in has begun before: the one after it has not. */
    std::vector<unsigned> before = turns;
    for (size_t i = 0; i < before.size(); i++)
        while (turns[i] < before[i] + 2)
            pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

void mover_workers::end()
{
    pthread_mutex_lock(&mutex);
    is_ending = true;
    pthread_mutex_unlock(&mutex);
    for (pthread_t thread : threads)
        EXPECT(pthread_join(thread, NULL) == 0, "a thread cannot be joined");
    threads.clear();
}

// ---- clock

double mover_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

void mover_sleep_ms(unsigned ms)
{
    struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

    while (nanosleep(&left, &left) != 0)
        ;
}
