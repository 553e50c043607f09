// Managed variables of the program's own module.
#include "movers.h"

enum { ARRAY_WORDS = 3000 };

static __managed__ uint32_t scalar = 77;
static __managed__ uint32_t array[ARRAY_WORDS] = {1, 2, 3};
static __managed__ uint32_t *place;

static __global__ void change(uint32_t by)
{
    if (threadIdx.x == 0)
        scalar = scalar * mover_factor(by) + by;
    for (uint32_t i = threadIdx.x; i < ARRAY_WORDS; i += blockDim.x)
        array[i] = array[i] * 3 + i + by;
    if (threadIdx.x == 0 && place)
        *place += 1;
}

struct managed_variables : mover {
    uint32_t want_scalar = 77;
    std::vector<uint32_t> want_array = std::vector<uint32_t>(ARRAY_WORDS);

    void set_up() override
    {
        want_array[0] = 1, want_array[1] = 2, want_array[2] = 3;
    }
    void round() override
    {
        uint32_t by = random(1000), index = random(ARRAY_WORDS);

        scalar += 5;
        want_scalar += 5;
        want_array[index] = array[index] = by;
        place = &array[index];
        change<<<1, 64>>>(by);
        CHECK_LAUNCH();
        CHECK(cudaDeviceSynchronize());
        want_scalar = want_scalar * mover_factor(by) + by;
        for (uint32_t i = 0; i < ARRAY_WORDS; i++)
            want_array[i] = want_array[i] * 3 + i + by;
        EXPECT_EQ(scalar, want_scalar);
        EXPECT(place == &array[index], "a pointer in managed memory has changed");
        /* Which of the two changes of that word was first is not said. */
        uint32_t plus = array[index] - want_array[index];
        EXPECT(plus == 1 || plus == 3, "word %u is %u too much", index, plus);
        want_array[index] += plus;
        for (uint32_t i = 0; i < ARRAY_WORDS; i++)
            EXPECT(array[i] == want_array[i], "word %u is %u, expected %u", i, array[i], want_array[i]);
    }
};

static const mover_entry entries[] = {
    {"managed_variables", MOVER_CODE, mover_make<managed_variables>, "variables that the host has at their addresses"},
};
MOVER_FAMILY(managed_variables, entries);
