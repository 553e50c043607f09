// American put options on a binomial tree (Cox, Ross and Rubinstein): one block for each option walks the tree from its
// leaves to its root, the values of one time step in shared memory. SIZE: options.
#include "textbook.h"

#include <math.h>

enum { STEPS = 250, THREADS = 128 };

struct option {
    float price, strike, years;
};

static const float rate = 0.03f, volatility = 0.25f;

// The tree of an option: the factor of a step up, the discounted probabilities of up and down.
struct tree {
    float step_up, up, down;
};

__global__ void evaluate(const struct option *options, const struct tree *trees, float *values)
{
    __shared__ float value[STEPS + 1], price[2 * STEPS + 1];
    const struct option option = options[blockIdx.x];
    const struct tree tree = trees[blockIdx.x];

    // price[STEPS + k]: after k more steps up than down.
    for (int i = threadIdx.x; i <= 2 * STEPS; i += THREADS)
        price[i] = option.price * expf((float)(i - STEPS) * tree.step_up);
    __syncthreads();
    for (int i = threadIdx.x; i <= STEPS; i += THREADS)
        value[i] = fmaxf(option.strike - price[2 * i], 0.0f);
    __syncthreads();
    for (int step = STEPS - 1; step >= 0; step--) {
        for (int first = 0; first <= step; first += THREADS) { // front to back: value[i + 1] is still of the step behind
            int i = first + threadIdx.x;
            float held = 0;

            if (i <= step)
                held = tree.up * value[i + 1] + tree.down * value[i];
            __syncthreads();
            if (i <= step)
                value[i] = fmaxf(held, option.strike - price[STEPS - step + 2 * i]);
            __syncthreads();
        }
    }
    if (threadIdx.x == 0)
        values[blockIdx.x] = value[0];
}

static double evaluate_on_host(const struct option *option)
{
    double dt = (double)option->years / STEPS, up_factor = exp(volatility * sqrt(dt)), down_factor = 1 / up_factor;
    double probability = (exp(rate * dt) - down_factor) / (up_factor - down_factor), discount = exp(-rate * dt);
    double value[STEPS + 1];

    for (int i = 0; i <= STEPS; i++)
        value[i] = fmax(option->strike - option->price * pow(up_factor, 2 * i - STEPS), 0.0);
    for (int step = STEPS - 1; step >= 0; step--)
        for (int i = 0; i <= step; i++)
            value[i] = fmax(discount * (probability * value[i + 1] + (1 - probability) * value[i]),
                            option->strike - option->price * pow(up_factor, 2 * i - step));
    return value[0];
}

int main(int argc, char **argv)
{
    struct textbook book = textbook_read(argc, argv, 8);
    std::vector<struct option> options(book.size);
    std::vector<struct tree> trees(book.size);
    std::vector<float> values(book.size);
    uint32_t seed = 5;

    for (int i = 0; i < book.size; i++) {
        options[i] = {random_float(&seed, 10, 60), random_float(&seed, 10, 60), random_float(&seed, 0.25f, 5)};
        double dt = (double)options[i].years / STEPS, up = exp(volatility * sqrt(dt));
        double probability = (exp(rate * dt) - 1 / up) / (up - 1 / up), discount = exp(-rate * dt);

        trees[i] = {(float)(volatility * sqrt(dt)), (float)(discount * probability),
                    (float)(discount * (1 - probability))};
    }
    struct option *doptions = to_device(options);
    struct tree *dtrees = to_device(trees);
    float *dvalues = to_device(values);
    for (int round = 0; round < book.rounds; round++)
        evaluate<<<book.size, THREADS>>>(doptions, dtrees, dvalues);
    CHECK_LAUNCH();
    from_device(values, dvalues);
    for (int i = 0; i < book.size; i++) {
        double want = evaluate_on_host(&options[i]);

        EXPECT(fabs(values[i] - want) <= 1e-4 * options[i].strike, "option %d: %f, expected %f", i, values[i], want);
    }
    textbook_report(&book, (double)book.size * STEPS * (STEPS + 1) / 2 * 4);
    return 0;
}
