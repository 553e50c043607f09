// Memory that the program maps itself: where it is mapped, how often, and who may access it, stays as it was.
#include "movers.h"

enum { GRANULE = 2 << 20, PIECE_WORDS = GRANULE / 4 };

static CUmemAllocationProp device_memory()
{
    CUmemAllocationProp properties = {};

    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    return properties;
}

static CUmemGenericAllocationHandle create()
{
    const CUmemAllocationProp properties = device_memory();
    CUmemGenericAllocationHandle handle;

    CHECK_CU(cuMemCreate(&handle, GRANULE, &properties, 0));
    return handle;
}

static void map(CUdeviceptr address, CUmemGenericAllocationHandle handle)
{
    CUmemAccessDesc access = {};

    access.location = device_memory().location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CHECK_CU(cuMemMap(address, GRANULE, 0, handle, 0));
    CHECK_CU(cuMemSetAccess(address, GRANULE, &access, 1));
}

/* A segment of pieces, some of which come and go. */
struct mapped_segment : mover {
    enum { PIECES = 12 };
    CUdeviceptr base = 0;
    bool is_there[PIECES] = {};
    uint32_t seeds[PIECES] = {};

    uint32_t *words(unsigned i)
    {
        return (uint32_t *)(uintptr_t)(base + (CUdeviceptr)i * GRANULE);
    }
    void come(unsigned i)
    {
        CUmemGenericAllocationHandle handle = create();

        map(base + (CUdeviceptr)i * GRANULE, handle);
        if (random(2)) /* it lasts without a handle, too */
            CHECK_CU(cuMemRelease(handle));
        is_there[i] = true;
        seeds[i] = random();
        mover_fill(words(i), PIECE_WORDS, seeds[i]);
    }
    void go(unsigned i)
    {
        mover_expect_pattern(words(i), PIECE_WORDS, seeds[i], "a piece that is unmapped");
        CHECK_CU(cuMemUnmap(base + (CUdeviceptr)i * GRANULE, GRANULE));
        is_there[i] = false;
    }
    void set_up() override
    {
        CHECK(cudaFree(0)); /* which initialises the driver */
        CHECK_CU(cuMemAddressReserve(&base, PIECES * (size_t)GRANULE, 0, 0, 0));
        for (unsigned i = 0; i < PIECES; i += 1 + random(2))
            come(i);
    }
    void round() override
    {
        unsigned i = random(PIECES), kept = random(PIECES);

        is_there[i] ? go(i) : come(i);
        if (is_there[kept])
            mover_expect_pattern(words(kept), PIECE_WORDS, seeds[kept], "a piece of a segment");
    }
    void finish() override
    {
        for (unsigned i = 0; i < PIECES; i++)
            if (is_there[i])
                go(i);
        CHECK_CU(cuMemAddressFree(base, PIECES * (size_t)GRANULE));
    }
};

/* One piece at two places, and one with a handle alone. */
struct mapped_twice : mover {
    CUdeviceptr places[2] = {};
    CUmemGenericAllocationHandle twice = 0, unmapped = 0;
    uint32_t seed = 0, kept_seed = 0;

    uint32_t *words(unsigned place)
    {
        return (uint32_t *)(uintptr_t)places[place];
    }
    void look_at_unmapped(bool is_new)
    {
        CUdeviceptr address;

        CHECK_CU(cuMemAddressReserve(&address, GRANULE, 0, 0, 0));
        map(address, unmapped);
        uint32_t *there = (uint32_t *)(uintptr_t)address;
        if (!is_new)
            mover_expect_pattern(there, PIECE_WORDS, kept_seed, "memory that was not mapped");
        kept_seed = random();
        mover_fill(there, PIECE_WORDS, kept_seed);
        CHECK_CU(cuMemUnmap(address, GRANULE));
        CHECK_CU(cuMemAddressFree(address, GRANULE));
    }
    void set_up() override
    {
        CHECK(cudaFree(0)); /* which initialises the driver */
        twice = create();
        unmapped = create();
        for (CUdeviceptr &place : places) {
            CHECK_CU(cuMemAddressReserve(&place, GRANULE, 0, 0, 0));
            map(place, twice);
        }
        seed = random();
        mover_fill(words(0), PIECE_WORDS, seed);
        look_at_unmapped(true);
    }
    void round() override
    {
        unsigned long long flags = 0;
        const CUmemLocation device = device_memory().location;
        CUmemGenericAllocationHandle handle;

        mover_expect_pattern(words(1), PIECE_WORDS, seed, "memory that was written at another place");
        seed = random();
        mover_fill(words(number % 2), PIECE_WORDS, seed);
        mover_expect_pattern(words(number % 2 ^ 1), PIECE_WORDS, seed, "memory at its other place");
        mover_fill(words(0), PIECE_WORDS, seed);
        CHECK_CU(cuMemGetAccess(&flags, &device, places[0]));
        EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        CHECK_CU(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)places[1]));
        EXPECT(handle == twice, "the handle of what is mapped has changed");
        CHECK_CU(cuMemRelease(handle));
        look_at_unmapped(false);
    }
};

static const mover_entry entries[] = {
    {"mapped_segment", 0, mover_make<mapped_segment>, "pieces of a segment of addresses that come and go"},
    {"mapped_twice", 0, mover_make<mapped_twice>, "one piece of memory at two places, one at none"},
};
MOVER_FAMILY(mapped, entries);
