// Variables and constants of the program's own module.
#include "movers.h"

enum { ARRAY_WORDS = 700, CONSTANT_WORDS = 256 };

static __device__ uint32_t scalar = 77;
static __device__ uint32_t array[ARRAY_WORDS] = {1, 2, 3};
static __device__ uint32_t *place;
static __device__ uint32_t small_bytes_apart[3];
static __constant__ uint32_t constants[CONSTANT_WORDS] = {9, 8, 7};

static __global__ void change_variables(uint32_t by)
{
    if (threadIdx.x == 0)
        scalar = scalar * mover_factor(by) + by;
    for (uint32_t i = threadIdx.x; i < ARRAY_WORDS; i += blockDim.x)
        array[i] = array[i] * 3 + i + by;
}

struct device_variables : mover {
    uint32_t want_scalar = 77;
    std::vector<uint32_t> want_array = std::vector<uint32_t>(ARRAY_WORDS);

    void set_up() override
    {
        want_array[0] = 1, want_array[1] = 2, want_array[2] = 3;
    }
    void check()
    {
        std::vector<uint32_t> got(ARRAY_WORDS);
        uint32_t got_scalar;

        CHECK(cudaMemcpyFromSymbol(&got_scalar, scalar, sizeof got_scalar));
        EXPECT_EQ(got_scalar, want_scalar);
        CHECK(cudaMemcpyFromSymbol(got.data(), array, sizeof array));
        for (int i = 0; i < ARRAY_WORDS; i++)
            EXPECT(got[i] == want_array[i], "word %d of the array is %u, expected %u", i, got[i], want_array[i]);
    }
    void round() override
    {
        uint32_t by = random(1000);

        check();
        change_variables<<<1, 64>>>(by);
        CHECK_LAUNCH();
        want_scalar = want_scalar * mover_factor(by) + by;
        for (uint32_t i = 0; i < ARRAY_WORDS; i++)
            want_array[i] = want_array[i] * 3 + i + by;
        check();
    }
};

static __global__ void write_at_place(uint32_t index, uint32_t value)
{
    place[index] = value;
}

struct variable_points_to_buffer : mover {
    enum { WORDS = 300, KEPT_ROUNDS = 7 };
    uint32_t *buffer = NULL;
    std::vector<uint32_t> wanted;

    void replace()
    {
        if (buffer)
            CHECK(cudaFree(buffer));
        buffer = mover_words(WORDS);
        CHECK(cudaMemset(buffer, 0, WORDS * sizeof *buffer));
        wanted.assign(WORDS, 0);
        CHECK(cudaMemcpyToSymbol(place, &buffer, sizeof buffer));
    }
    void set_up() override
    {
        replace();
    }
    void round() override
    {
        uint32_t *got;

        for (int i = 0; i < 10; i++) {
            uint32_t index = random(WORDS);
            wanted[index] = random();
            write_at_place<<<1, 1>>>(index, wanted[index]);
            CHECK_LAUNCH();
        }
        mover_expect_words(buffer, wanted, "the buffer to which the variable points");
        CHECK(cudaMemcpyFromSymbol(&got, place, sizeof got));
        EXPECT(got == buffer, "the variable is %p, expected %p", (void *)got, (void *)buffer);
        if (number % KEPT_ROUNDS == 0)
            replace();
    }
};

static __global__ void read_constants(uint32_t *ret_words)
{
    for (uint32_t i = threadIdx.x; i < CONSTANT_WORDS; i += blockDim.x)
        ret_words[i] = constants[i] + constants[CONSTANT_WORDS - 1 - i];
}

struct constant_array : mover {
    enum { KEPT_ROUNDS = 4 };
    uint32_t *read;
    std::vector<uint32_t> now = std::vector<uint32_t>(CONSTANT_WORDS);

    void set_up() override
    {
        read = mover_words(CONSTANT_WORDS);
        now[0] = 9, now[1] = 8, now[2] = 7;
    }
    void round() override
    {
        std::vector<uint32_t> wanted(CONSTANT_WORDS);

        if (number % KEPT_ROUNDS == 0) {
            uint32_t first = random(CONSTANT_WORDS), count = 1 + random(CONSTANT_WORDS - first);
            for (uint32_t i = first; i < first + count; i++)
                now[i] = random();
            CHECK(cudaMemcpyToSymbol(constants, now.data() + first, count * sizeof now[0], first * sizeof now[0]));
        }
        read_constants<<<1, 64>>>(read);
        CHECK_LAUNCH();
        for (uint32_t i = 0; i < CONSTANT_WORDS; i++)
            wanted[i] = now[i] + now[CONSTANT_WORDS - 1 - i];
        mover_expect_words(read, wanted, "what a kernel reads of the constants");
    }
};

static __global__ void add_through(uint32_t *const *address, uint32_t by)
{
    (*address)[1] += by;
}

static __global__ void add_to_variable(uint32_t by)
{
    small_bytes_apart[1] += by;
}

struct address_of_variable : mover {
    uint32_t *address, **kept, want = 0;

    void set_up() override
    {
        CHECK(cudaGetSymbolAddress((void **)&address, small_bytes_apart));
        CHECK(cudaMalloc(&kept, sizeof *kept));
        CHECK(cudaMemcpy(kept, &address, sizeof address, cudaMemcpyHostToDevice));
    }
    void round() override
    {
        uint32_t by = random(100), *again;
        size_t bytes;

        add_through<<<1, 1>>>(kept, by);
        add_to_variable<<<1, 1>>>(3);
        CHECK_LAUNCH();
        want += by + 3;
        mover_expect_words(address, {0, want, 0}, "the variable, by its address");
        CHECK(cudaGetSymbolAddress((void **)&again, small_bytes_apart));
        EXPECT(again == address, "the variable is at %p, expected %p", (void *)again, (void *)address);
        CHECK(cudaGetSymbolSize(&bytes, small_bytes_apart));
        EXPECT_EQ(bytes, sizeof small_bytes_apart);
    }
};

static const mover_entry entries[] = {
    {"device_variables", MOVER_CODE, mover_make<device_variables>, "a scalar and an array that kernels change"},
    {"variable_points_to_buffer", MOVER_CODE, mover_make<variable_points_to_buffer>, "a device pointer in a variable"},
    {"constant_array", MOVER_CODE, mover_make<constant_array>, "constants rewritten in part every few rounds"},
    {"address_of_variable", MOVER_CODE, mover_make<address_of_variable>, "a variable's address in device memory"},
};
MOVER_FAMILY(variables, entries);
