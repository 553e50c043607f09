// Managed memory, which the host writes and reads between the kernels.
#include "movers.h"

static uint32_t *managed_words(size_t count, unsigned flags = cudaMemAttachGlobal)
{
    void *memory = NULL;

    CHECK(cudaMallocManaged(&memory, count * sizeof(uint32_t), flags));
    return (uint32_t *)memory;
}

static __global__ void add(uint32_t *words, size_t count, size_t step, uint32_t value)
{
    for (size_t i = step * (blockIdx.x * blockDim.x + threadIdx.x); i < count; i += step * gridDim.x * blockDim.x)
        words[i] += value;
}

/* A few words are changed by the host and a few by the GPU; all are looked at. */
struct managed_array : mover {
    enum { WORDS = 1536 * 1024, CHANGES = 20 };
    uint32_t *words;
    std::vector<uint32_t> wanted;

    void set_up() override
    {
        words = managed_words(WORDS);
        for (size_t i = 0; i < WORDS; i++)
            wanted.push_back(words[i] = mover_pattern(i, 7));
    }
    void round() override
    {
        for (int i = 0; i < CHANGES; i++) {
            uint32_t index = random(WORDS);
            wanted[index] = words[index] = random();
        }
        uint32_t first = random(WORDS), step = 1 + random(100000), value = random();
        for (int i = 0; i < 2; i++) {
            add<<<2, 64>>>(words + first, WORDS - first, step, value);
            CHECK_LAUNCH();
        }
        for (size_t i = first; i < WORDS; i += step)
            wanted[i] += 2 * value;
        CHECK(cudaDeviceSynchronize());
        for (size_t i = 0; i < WORDS; i++)
            EXPECT(words[i] == wanted[i], "managed word %zu is %u, expected %u", i, words[i], wanted[i]);
    }
};

struct managed_node {
    managed_node *next;
    uint32_t value;
};

static __global__ void step_list(managed_node *node, uint32_t factor, uint32_t term)
{
    for (; node; node = node->next)
        node->value = node->value * factor + term;
}

/* A list of small pieces, of which some are freed and made anew. */
struct managed_list : mover {
    managed_node *first = NULL;
    std::vector<uint32_t> wanted; /* from the first on */

    void push(uint32_t value)
    {
        managed_node *node = (managed_node *)managed_words(sizeof(managed_node) / sizeof(uint32_t));
        node->next = first;
        node->value = value;
        first = node;
        wanted.insert(wanted.begin(), value);
    }
    void set_up() override
    {
        for (uint32_t i = 0; i < 25; i++)
            push(i);
    }
    void round() override
    {
        uint32_t by = random();
        size_t i = 0;

        step_list<<<1, 1>>>(first, mover_factor(by), by);
        CHECK_LAUNCH();
        CHECK(cudaStreamSynchronize(0));
        for (managed_node *node = first; node; node = node->next, i++) {
            wanted[i] = wanted[i] * mover_factor(by) + by;
            EXPECT_EQ(node->value, wanted[i]);
        }
        EXPECT_EQ(i, wanted.size());
        managed_node *second = first->next;
        CHECK(cudaFree(first));
        wanted.erase(wanted.begin());
        first = second;
        push(random());
    }
};

/* Each of two streams has its memory; the host reads one's while the other works. */
struct managed_attached : mover {
    enum { STREAMS = 2, WORDS = 400 * 1024 };
    cudaStream_t streams[STREAMS];
    uint32_t *words[STREAMS], want[STREAMS];

    void set_up() override
    {
        for (int i = 0; i < STREAMS; i++) {
            CHECK(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
            words[i] = managed_words(WORDS, cudaMemAttachHost);
            CHECK(cudaStreamAttachMemAsync(streams[i], words[i]));
            CHECK(cudaStreamSynchronize(streams[i]));
            words[i][WORDS - 1] = want[i] = random();
        }
    }
    void round() override
    {
        for (int i = 0; i < STREAMS; i++) {
            add<<<1, 1, 0, streams[i]>>>(words[i] + WORDS - 1, 1, 1, number);
            CHECK_LAUNCH();
        }
        for (int i = 0; i < STREAMS; i++) {
            CHECK(cudaStreamSynchronize(streams[i]));
            EXPECT_EQ(words[i][WORDS - 1], want[i] += number);
            words[i][WORDS - 1] = want[i] += 3;
            add<<<1, 1, 0, streams[i]>>>(words[i] + WORDS - 1, 1, 1, 1);
            CHECK_LAUNCH();
            want[i]++;
        }
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < STREAMS; i++)
            EXPECT_EQ(words[i][WORDS - 1], want[i]);
    }
};

static const mover_entry entries[] = {
    {"managed_array", 0, mover_make<managed_array>, "6 MiB of managed memory, changed by both sides"},
    {"managed_list", 0, mover_make<managed_list>, "a list in managed memory, in small pieces"},
    {"managed_attached", 0, mover_make<managed_attached>, "managed memory that is attached to streams"},
};
MOVER_FAMILY(managed, entries);
