// Memory that comes and goes, and what is said about it.
#include "movers.h"

struct block {
    uint32_t *words;
    size_t count;
    uint32_t seed;
};

struct memory_comes_and_goes : mover {
    enum { BLOCKS = 40, CHANGED = 6, LOOKED_AT = 4 };
    std::vector<block> blocks;

    void add()
    {
        block fresh = {NULL, random(8) ? 1 + random(3000) : 300000 + random(200000), random()};

        fresh.words = mover_words(fresh.count);
        for (const block &old : blocks)
            EXPECT(fresh.words + fresh.count <= old.words || old.words + old.count <= fresh.words,
                   "new memory at %p, %zu words, is in memory at %p, %zu words", (void *)fresh.words, fresh.count,
                   (void *)old.words, old.count);
        mover_fill(fresh.words, fresh.count, fresh.seed);
        blocks.push_back(fresh);
    }
    void check(const block &one)
    {
        mover_expect_pattern(one.words, one.count, one.seed, "a block among others that come and go");
    }
    void set_up() override
    {
        for (int i = 0; i < BLOCKS; i++)
            add();
    }
    void round() override
    {
        for (int i = 0; i < CHANGED; i++) {
            size_t gone = random((uint32_t)blocks.size());
            check(blocks[gone]);
            CHECK(cudaFree(blocks[gone].words));
            blocks.erase(blocks.begin() + (long)gone);
        }
        while (blocks.size() < BLOCKS)
            add();
        for (int i = 0; i < LOOKED_AT; i++)
            check(blocks[random((uint32_t)blocks.size())]);
    }
    void finish() override
    {
        for (const block &one : blocks)
            check(one);
    }
};

static __global__ void touch_each(uint32_t *const *places, uint32_t count, uint32_t by, uint32_t *ret_values)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        ret_values[i] = *places[i] += by * i;
}

struct small_allocations : mover {
    enum { COUNT = 2000, REPLACED = 10 };
    uint32_t **places, *values;
    std::vector<uint32_t *> addresses;
    std::vector<uint32_t> wanted;

    void replace(uint32_t i)
    {
        uint32_t first = random();

        if (addresses[i])
            CHECK(cudaFree(addresses[i]));
        addresses[i] = mover_words(1 + i % 200);
        CHECK(cudaMemcpy(addresses[i], &first, sizeof first, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy(places + i, &addresses[i], sizeof addresses[i], cudaMemcpyHostToDevice));
        wanted[i] = first;
    }
    void set_up() override
    {
        addresses.assign(COUNT, NULL);
        wanted.assign(COUNT, 0);
        CHECK(cudaMalloc(&places, COUNT * sizeof *places));
        values = mover_words(COUNT);
        for (uint32_t i = 0; i < COUNT; i++)
            replace(i);
    }
    void round() override
    {
        uint32_t by = random();

        for (int i = 0; i < REPLACED; i++)
            replace(random(COUNT));
        touch_each<<<4, 64>>>(places, COUNT, by, values);
        CHECK_LAUNCH();
        for (uint32_t i = 0; i < COUNT; i++)
            wanted[i] += by * i;
        mover_expect_words(values, wanted, "what is in many small allocations");
    }
};

/* Others may use the same GPU: what is free is not known, but what is held is not free. */
struct memory_info : mover {
    enum { BLOCK_WORDS = 1 << 20 };
    size_t total_bytes;
    uint32_t *held[2];

    size_t free_bytes()
    {
        size_t free_bytes, total;

        CHECK(cudaMemGetInfo(&free_bytes, &total));
        EXPECT_EQ(total, total_bytes);
        EXPECT(free_bytes <= total_bytes, "%zu bytes of %zu are free", free_bytes, total_bytes);
        return free_bytes;
    }
    void set_up() override
    {
        size_t unused_bytes;

        CHECK(cudaMemGetInfo(&unused_bytes, &total_bytes));
        for (uint32_t *&words : held)
            words = mover_words(BLOCK_WORDS);
        mover_fill(held[0], BLOCK_WORDS, 1);
        mover_fill(held[1], BLOCK_WORDS, 2);
    }
    void round() override
    {
        void *much = NULL;

        EXPECT(free_bytes() <= total_bytes - sizeof(uint32_t) * 2 * BLOCK_WORDS, "what is held is free");
        EXPECT_CODE(cudaMalloc(&much, total_bytes + 1), cudaErrorMemoryAllocation);
        EXPECT_CODE(cudaGetLastError(), cudaErrorMemoryAllocation);
        EXPECT(!much, "memory that was refused is at %p", much);
        CHECK(cudaFree(held[number % 2]));
        held[number % 2] = mover_words(BLOCK_WORDS);
        mover_fill(held[number % 2], BLOCK_WORDS, number);
        mover_expect_pattern(held[number % 2], BLOCK_WORDS / 64, number, "memory that was there before");
    }
};

struct pointer_attributes : mover {
    enum { BYTES = 1 << 20 };
    unsigned char *device, *pinned, *registered, *pageable;

    void expect_kind(const void *pointer, enum cudaMemoryType type)
    {
        struct cudaPointerAttributes got;

        CHECK(cudaPointerGetAttributes(&got, pointer));
        EXPECT_EQ(got.type, type);
        if (type == cudaMemoryTypeHost)
            EXPECT(got.hostPointer == pointer, "%p is %p on the host", pointer, got.hostPointer);
        if (type == cudaMemoryTypeDevice) {
            EXPECT(got.devicePointer == pointer, "%p is %p on the device", pointer, got.devicePointer);
            EXPECT_EQ(got.device, 0);
        }
    }
    void set_up() override
    {
        CHECK(cudaMalloc(&device, BYTES));
        CHECK(cudaMallocHost(&pinned, BYTES));
        pageable = (unsigned char *)malloc(BYTES);
        EXPECT(posix_memalign((void **)&registered, 4096, BYTES) == 0 && pageable, "no host memory");
        CHECK(cudaHostRegister(registered, BYTES, cudaHostRegisterDefault));
    }
    void round() override
    {
        CUdeviceptr base;
        size_t bytes, offset = random(BYTES);

        expect_kind(device + offset, cudaMemoryTypeDevice);
        expect_kind(pinned + offset, cudaMemoryTypeHost);
        expect_kind(registered + offset, cudaMemoryTypeHost);
        expect_kind(pageable + offset, cudaMemoryTypeUnregistered);
        CHECK_CU(cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)(uintptr_t)(device + offset)));
        EXPECT((unsigned char *)(uintptr_t)base == device && bytes == BYTES, "%p is in %zu bytes at %llx",
               (void *)device, bytes, (unsigned long long)base);
        mover_sleep_ms(1);
    }
};

static const mover_entry entries[] = {
    {"memory_comes_and_goes", 0, mover_make<memory_comes_and_goes>, "allocations that never overlap"},
    {"small_allocations", 0, mover_make<small_allocations>, "2000 small ones, some replaced in every round"},
    {"memory_info", 0, mover_make<memory_info>, "what cudaMemGetInfo says of what is held; too much is refused"},
    {"pointer_attributes", 0, mover_make<pointer_attributes>, "what pointers of all kinds are said to be"},
};
MOVER_FAMILY(allocations, entries);
