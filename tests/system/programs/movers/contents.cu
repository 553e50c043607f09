// What is in memory, and how much of it changes.
#include "movers.h"

enum { PAGE_WORDS = 4096 / sizeof(uint32_t), ROOM_WORDS = 512 * 1024 };

struct all_rewritten : mover {
    uint32_t *words, seed = 1;

    void set_up() override
    {
        words = mover_words(ROOM_WORDS);
        mover_fill(words, ROOM_WORDS, seed);
    }
    void round() override
    {
        mover_sleep_ms(random(4));
        mover_expect_pattern(words, ROOM_WORDS, seed, "memory before it is rewritten");
        for (int i = 0; i < 3; i++) {
            seed = random();
            mover_fill(words, ROOM_WORDS, seed);
        }
    }
};

struct nothing_rewritten : mover {
    enum { SHOWN_WORDS = 64 * 1024 };
    uint32_t *words;

    void set_up() override
    {
        words = mover_words(2 * ROOM_WORDS);
        mover_fill(words, 2 * ROOM_WORDS, 5);
    }
    void round() override
    {
        mover_expect_pattern(words, 2 * ROOM_WORDS, 5, "memory that nobody writes");
        mover_sleep_ms(2);
    }
};

/* The host does by itself what it has kernels do, and compares everything. */
struct changed_in_places : mover {
    uint32_t *words;
    std::vector<uint32_t> wanted;

    void set_up() override
    {
        words = mover_words(ROOM_WORDS);
        mover_fill(words, ROOM_WORDS, 6);
        for (size_t i = 0; i < ROOM_WORDS; i++)
            wanted.push_back(mover_pattern(i, 6));
    }
    void check()
    {
        mover_expect_words(words, wanted, "memory that is changed in places");
    }
};

struct hundredth_rewritten : changed_in_places {
    void round() override
    {
        uint32_t seed = random();

        for (int i = 0; i < ROOM_WORDS / PAGE_WORDS / 100; i++) {
            size_t first = random(ROOM_WORDS / PAGE_WORDS) * PAGE_WORDS;
            mover_fill(words + first, PAGE_WORDS, seed + i);
            for (size_t k = 0; k < PAGE_WORDS; k++)
                wanted[first + k] = mover_pattern(k, seed + i);
        }
        check();
    }
};

static __global__ void flip_bit(uint32_t *words, uint32_t index, uint32_t bit)
{
    words[index] ^= 1u << bit;
}

struct single_bits : changed_in_places {
    void round() override
    {
        for (int i = 0; i < 5; i++) {
            uint32_t index = random(ROOM_WORDS), bit = random(32);
            flip_bit<<<1, 1>>>(words, index, bit);
            CHECK_LAUNCH();
            wanted[index] ^= 1u << bit;
        }
        check();
    }
};

static __global__ void invert_words(uint32_t *words, uint32_t count)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        words[i] = ~words[i];
}

/* Pages that change and are soon again what they were: whoever asks seldom sees nothing of it. */
struct changes_and_changes_back : mover {
    enum { WORDS = 8 * PAGE_WORDS };
    uint32_t *words;
    cudaStream_t stream;

    void set_up() override
    {
        CHECK(cudaStreamCreate(&stream));
        words = mover_words(WORDS);
        mover_fill(words, WORDS, 8);
        CHECK(cudaDeviceSynchronize());
    }
    void invert()
    {
        invert_words<<<2, 64, 0, stream>>>(words, WORDS);
        CHECK_LAUNCH();
        CHECK(cudaStreamSynchronize(stream));
    }
    void round() override
    {
        bool is_looked_at = random(2);

        invert();
        if (is_looked_at) {
            std::vector<uint32_t> got = mover_read(words, WORDS);
            for (size_t i = 0; i < WORDS; i++)
                EXPECT(got[i] == ~mover_pattern(i, 8), "inverted word %zu is 0x%x, expected 0x%x", i, got[i],
                       ~mover_pattern(i, 8));
        }
        mover_sleep_ms(1 + random(4));
        invert();
        mover_expect_pattern(words, WORDS, 8, "what was changed back");
        mover_sleep_ms(random(3));
    }
};

struct large_allocation : mover {
    enum { WORDS = 5 * 1024 * 1024, SLICE_WORDS = WORDS / 20 };
    uint32_t *words, seed = 3;

    void set_up() override
    {
        words = mover_words(WORDS);
        mover_fill(words, WORDS, seed);
    }
    void round() override
    {
        size_t first = number % 20 * SLICE_WORDS;
        std::vector<uint32_t> got = mover_read(words + first, SLICE_WORDS);

        for (size_t i = 0; i < SLICE_WORDS; i++)
            EXPECT(got[i] == mover_pattern(first + i, seed), "word %zu of 20 MiB is 0x%x, expected 0x%x", first + i,
                   got[i], mover_pattern(first + i, seed));
    }
    void finish() override
    {
        mover_expect_pattern(words, WORDS, seed, "20 MiB");
    }
};

/* Fills by the API in place of kernels. */
struct fills : mover {
    enum { PITCH = 512, ROWS = 300 };
    unsigned char *bytes;
    std::vector<unsigned char> wanted = std::vector<unsigned char>(PITCH * ROWS);
    cudaStream_t stream;

    void set_up() override
    {
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaMalloc(&bytes, wanted.size()));
        CHECK(cudaMemset(bytes, 0, wanted.size()));
        CHECK(cudaDeviceSynchronize());
    }
    void fill_box()
    {
        uint32_t x = random(PITCH), y = random(ROWS), width = 1 + random(PITCH - x), height = 1 + random(ROWS - y);
        int value = (int)random(256);

        CHECK(cudaMemset2DAsync(bytes + y * PITCH + x, PITCH, value, width, height, stream));
        for (uint32_t row = y; row < y + height; row++)
            memset(&wanted[row * PITCH + x], value, width);
    }
    void fill_words()
    {
        uint32_t first = random(PITCH * ROWS / 4 - 64), value = random();

        CHECK_CU(cuMemsetD32Async((CUdeviceptr)(uintptr_t)bytes + first * 4, value, 64, stream));
        for (uint32_t i = first; i < first + 64; i++)
            memcpy(&wanted[i * 4], &value, 4);
    }
    void round() override
    {
        std::vector<unsigned char> got(wanted.size());

        for (int i = 0; i < 3; i++) {
            fill_box();
            fill_words();
        }
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpy(got.data(), bytes, got.size(), cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < got.size(); i++)
            EXPECT(got[i] == wanted[i], "byte %zu is %u, expected %u", i, got[i], wanted[i]);
    }
};

static const mover_entry entries[] = {
    {"all_rewritten", 0, mover_make<all_rewritten>, "2 MiB rewritten all the time"},
    {"hundredth_rewritten", 0, mover_make<hundredth_rewritten>, "a hundredth of 2 MiB rewritten all the time"},
    {"nothing_rewritten", 0, mover_make<nothing_rewritten>, "4 MiB that are only read"},
    {"single_bits", 0, mover_make<single_bits>, "single bits of 2 MiB that change"},
    {"changes_and_changes_back", 0, mover_make<changes_and_changes_back>, "pages that are soon what they were"},
    {"large_allocation", 0, mover_make<large_allocation>, "20 MiB, looked at in slices and at the end"},
    {"fills", 0, mover_make<fills>, "bytes, words and boxes set by the API"},
};
MOVER_FAMILY(contents, entries);
