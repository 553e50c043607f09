// Copies between all kinds of memory.
#include "movers.h"

#include <sys/mman.h>

static void fill_host(uint32_t *words, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++)
        words[i] = mover_pattern(i, seed);
}

static void expect_host(const uint32_t *words, size_t count, uint32_t seed, const char *what)
{
    for (size_t i = 0; i < count; i++)
        EXPECT(words[i] == mover_pattern(i, seed), "%s: word %zu is 0x%x, expected 0x%x", what, i, words[i],
               mover_pattern(i, seed));
}

static __global__ void add_to_words(uint32_t *words, size_t count, uint32_t by)
{
    for (size_t i = threadIdx.x; i < count; i += blockDim.x)
        words[i] += by;
}

/* Copies in both directions at any time: what is behind one round is checked in the next. */
struct pinned_copies : mover {
    enum { WORDS = 64 * 1024, LANES = 3 };
    struct lane {
        uint32_t *device, *to, *from, seed, by;
        cudaStream_t stream;
    } lanes[LANES];

    void set_up() override
    {
        for (struct lane &lane : lanes) {
            lane.device = mover_words(WORDS);
            CHECK(cudaMallocHost(&lane.to, WORDS * sizeof(uint32_t)));
            CHECK(cudaMallocHost(&lane.from, WORDS * sizeof(uint32_t)));
            CHECK(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking));
            lane.seed = 0;
        }
    }
    void check(struct lane &lane)
    {
        CHECK(cudaStreamSynchronize(lane.stream));
        for (size_t i = 0; lane.seed && i < WORDS; i++)
            EXPECT(lane.from[i] == mover_pattern(i, lane.seed) + lane.by, "word %zu is 0x%x, expected 0x%x", i,
                   lane.from[i], mover_pattern(i, lane.seed) + lane.by);
    }
    void round() override
    {
        const size_t bytes = WORDS * sizeof(uint32_t);
        struct lane &lane = lanes[number % LANES];

        check(lane);
        lane.seed = random() | 1;
        lane.by = random();
        fill_host(lane.to, WORDS, lane.seed);
        memset(lane.from, 0, bytes);
        CHECK(cudaMemcpyAsync(lane.device, lane.to, bytes, cudaMemcpyHostToDevice, lane.stream));
        add_to_words<<<1, 128, 0, lane.stream>>>(lane.device, WORDS, lane.by);
        CHECK_LAUNCH();
        CHECK(cudaMemcpyAsync(lane.from, lane.device, bytes, cudaMemcpyDeviceToHost, lane.stream));
    }
    void finish() override
    {
        for (struct lane &lane : lanes)
            check(lane);
    }
};

/* Copies that are larger than what a server lets come unasked: it grants the rest while they are under way. Of ordinary
 * and of pinned memory in turns, a word in each page. */
struct large_copies : mover {
    enum { WORDS = 10 * 1024 * 1024, STRIDE = 1024 };
    uint32_t *device, *pinned, *back;
    std::vector<uint32_t> ordinary = std::vector<uint32_t>(WORDS);
    cudaStream_t stream;

    void set_up() override
    {
        device = mover_words(WORDS);
        CHECK(cudaMallocHost(&pinned, WORDS * sizeof(uint32_t)));
        CHECK(cudaMallocHost(&back, WORDS * sizeof(uint32_t)));
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    void round() override
    {
        const size_t bytes = WORDS * sizeof(uint32_t);
        const uint32_t seed = random();
        uint32_t *there = number % 2 ? ordinary.data() : pinned;

        for (size_t i = 0; i < WORDS; i += STRIDE) {
            there[i] = mover_pattern(i, seed);
            back[i] = 0;
        }
        CHECK(cudaMemcpyAsync(device, there, bytes, cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemcpyAsync(back, device, bytes, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (size_t i = 0; i < WORDS; i += STRIDE)
            EXPECT(back[i] == mover_pattern(i, seed), "word %zu is 0x%x, expected 0x%x", i, back[i],
                   mover_pattern(i, seed));
    }
};

/* Several MiB from and to ordinary memory, synchronously and not. */
struct pageable_copies : mover {
    enum { WORDS = 768 * 1024 };
    uint32_t *device, *other, seed;
    std::vector<uint32_t> there = std::vector<uint32_t>(WORDS), back = std::vector<uint32_t>(WORDS);
    cudaStream_t stream;

    void set_up() override
    {
        device = mover_words(WORDS);
        other = mover_words(WORDS);
        CHECK(cudaStreamCreate(&stream));
    }
    void round() override
    {
        const size_t bytes = WORDS * sizeof(uint32_t);

        mover_sleep_ms(random(4));
        if (number > 1)
            mover_expect_pattern(device, WORDS, seed, "what the round before has left");
        seed = random();
        fill_host(there.data(), WORDS, seed);
        memset(back.data(), 0, bytes);
        if (number % 2) {
            CHECK(cudaMemcpy(device, there.data(), bytes, cudaMemcpyHostToDevice));
            CHECK(cudaMemcpy(back.data(), device, bytes, cudaMemcpyDeviceToHost));
        } else {
            CHECK(cudaMemcpyAsync(device, there.data(), bytes, cudaMemcpyHostToDevice, stream));
            CHECK(cudaMemcpyAsync(other, device, bytes, cudaMemcpyDeviceToDevice, stream));
            CHECK(cudaMemcpyAsync(back.data(), other, bytes, cudaMemcpyDeviceToHost, stream));
            CHECK(cudaStreamSynchronize(stream));
        }
        expect_host(back.data(), WORDS, seed, "3 MiB of ordinary memory, there and back");
    }
};

/* Copies from ordinary memory that are done for the program before they are for the GPU: it writes to that memory at
 * once. They come in rows, at times behind other work. */
struct early_copies : mover {
    enum { WORDS = 64 * 1024, PIECE_WORDS = 4096, COPIES = 60, LOOKS = 4 };
    uint32_t *device, *busy;
    std::vector<uint32_t> want = std::vector<uint32_t>(WORDS), piece = std::vector<uint32_t>(PIECE_WORDS);
    cudaStream_t stream;

    void set_up() override
    {
        device = mover_words(WORDS);
        busy = mover_words(WORDS);
        CHECK(cudaStreamCreate(&stream));
        CHECK(cudaMemset(device, 0, WORDS * sizeof *device));
    }
    void round() override
    {
        const bool is_async = random(2), has_work = random(4) == 0;

        if (has_work)
            mover_fill(busy, WORDS, random(), stream);
        for (int i = 0; i < COPIES; i++) {
            const size_t count = 1 + random(PIECE_WORDS), at = random(WORDS - PIECE_WORDS);
            const size_t bytes = count * sizeof(uint32_t);

            fill_host(piece.data(), count, random());
            memcpy(want.data() + at, piece.data(), bytes);
            if (is_async)
                CHECK(cudaMemcpyAsync(device + at, piece.data(), bytes, cudaMemcpyHostToDevice, stream));
            else
                CHECK(cudaMemcpy(device + at, piece.data(), bytes, cudaMemcpyHostToDevice));
            memset(piece.data(), 0xee, bytes);
        }
        if (number % LOOKS)
            return;
        CHECK(cudaStreamSynchronize(stream));
        mover_expect_words(device, want, "what was copied from memory that was written to at once");
    }
    void finish() override
    {
        CHECK(cudaStreamSynchronize(stream));
        mover_expect_words(device, want, "what the last rounds have copied");
    }
};

struct registered_memory : mover {
    enum { WORDS = 256 * 1024 };
    uint32_t *device, *memory, seed;

    void set_up() override
    {
        device = mover_words(WORDS);
        memory = (uint32_t *)mmap(NULL, 2 * WORDS * sizeof *memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                                  -1, 0);
        EXPECT(memory != MAP_FAILED, "no host memory");
        CHECK(cudaHostRegister(memory, 2 * WORDS * sizeof *memory, cudaHostRegisterDefault));
    }
    void round() override
    {
        const size_t bytes = WORDS * sizeof *memory;

        mover_sleep_ms(random(4));
        if (number > 1)
            mover_expect_pattern(device, WORDS, seed, "what the round before has left");
        if (number % 10 == 0) {
            CHECK(cudaHostUnregister(memory));
            CHECK(cudaHostRegister(memory, 2 * bytes, cudaHostRegisterDefault));
        }
        seed = random();
        fill_host(memory, WORDS, seed);
        CHECK(cudaMemcpyAsync(device, memory, bytes, cudaMemcpyHostToDevice, 0));
        CHECK(cudaMemcpyAsync(memory + WORDS, device, bytes, cudaMemcpyDeviceToHost, 0));
        CHECK(cudaDeviceSynchronize());
        expect_host(memory + WORDS, WORDS, seed, "registered memory, there and back");
    }
};

struct rows : mover {
    enum { WIDTH = 1001, HEIGHT = 90 };
    unsigned char *pitched;
    size_t pitch;
    std::vector<unsigned char> wanted = std::vector<unsigned char>(WIDTH * HEIGHT);

    void set_up() override
    {
        CHECK(cudaMallocPitch(&pitched, &pitch, WIDTH, HEIGHT));
        CHECK(cudaMemset2D(pitched, pitch, 0, WIDTH, HEIGHT));
    }
    /* A box of the rows is written, all of them are read. */
    void round() override
    {
        uint32_t x = random(WIDTH), y = random(HEIGHT), width = 1 + random(WIDTH - x), height = 1 + random(HEIGHT - y);
        std::vector<unsigned char> box(width * height), got(wanted.size());

        for (size_t i = 0; i < box.size(); i++) {
            box[i] = (unsigned char)random(256);
            wanted[(y + i / width) * WIDTH + x + i % width] = box[i];
        }
        CHECK(cudaMemcpy2D(pitched + y * pitch + x, pitch, box.data(), width, width, height, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy2D(got.data(), WIDTH, pitched, pitch, WIDTH, HEIGHT, cudaMemcpyDeviceToHost));
        for (size_t i = 0; i < got.size(); i++)
            EXPECT(got[i] == wanted[i], "byte %zu of row %zu is %u, expected %u", i % WIDTH, i / WIDTH, got[i],
                   wanted[i]);
    }
};

struct boxes : mover {
    enum { WIDTH = 96, HEIGHT = 20, DEPTH = 12 };
    cudaPitchedPtr place;
    std::vector<unsigned char> wanted = std::vector<unsigned char>(WIDTH * HEIGHT * DEPTH);

    void copy(std::vector<unsigned char> &host, cudaPos at, cudaExtent extent, enum cudaMemcpyKind kind)
    {
        cudaMemcpy3DParms parameters = {};
        cudaPitchedPtr there = make_cudaPitchedPtr(host.data(), extent.width, extent.width, extent.height);

        parameters.extent = extent;
        parameters.kind = kind;
        parameters.srcPtr = kind == cudaMemcpyHostToDevice ? there : place;
        parameters.dstPtr = kind == cudaMemcpyHostToDevice ? place : there;
        (kind == cudaMemcpyHostToDevice ? parameters.dstPos : parameters.srcPos) = at;
        CHECK(cudaMemcpy3D(&parameters));
    }
    void set_up() override
    {
        CHECK(cudaMalloc3D(&place, make_cudaExtent(WIDTH, HEIGHT, DEPTH)));
        CHECK(cudaMemset3D(place, 0, make_cudaExtent(WIDTH, HEIGHT, DEPTH)));
    }
    void round() override
    {
        uint32_t x = random(WIDTH), y = random(HEIGHT), z = random(DEPTH);
        uint32_t width = 1 + random(WIDTH - x), height = 1 + random(HEIGHT - y), depth = 1 + random(DEPTH - z);
        std::vector<unsigned char> box(width * height * depth), got(wanted.size());

        for (size_t i = 0; i < box.size(); i++) {
            size_t row = i / width;
            box[i] = (unsigned char)random(256);
            wanted[((z + row / height) * HEIGHT + y + row % height) * WIDTH + x + i % width] = box[i];
        }
        copy(box, make_cudaPos(x, y, z), make_cudaExtent(width, height, depth), cudaMemcpyHostToDevice);
        copy(got, make_cudaPos(0, 0, 0), make_cudaExtent(WIDTH, HEIGHT, DEPTH), cudaMemcpyDeviceToHost);
        for (size_t i = 0; i < got.size(); i++)
            EXPECT(got[i] == wanted[i], "byte %zu of the box is %u, expected %u", i, got[i], wanted[i]);
    }
};

/* A ring of buffers, each copied to the next one, with a step in between. */
struct copies_on_device : mover {
    enum { WORDS = 40000, BUFFERS = 5 };
    uint32_t *buffers[BUFFERS], seed = 17, added = 0;
    cudaStream_t stream;

    void set_up() override
    {
        CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        for (uint32_t *&buffer : buffers)
            buffer = mover_words(WORDS);
        mover_fill(buffers[0], WORDS, seed, stream);
    }
    void round() override
    {
        for (int i = 0; i < BUFFERS; i++) {
            uint32_t by = random();
            add_to_words<<<1, 128, 0, stream>>>(buffers[i], WORDS, by);
            CHECK_LAUNCH();
            added += by;
            CHECK(cudaMemcpyAsync(buffers[(i + 1) % BUFFERS], buffers[i], WORDS * sizeof(uint32_t),
                                  cudaMemcpyDeviceToDevice, stream));
        }
        CHECK(cudaStreamSynchronize(stream));
        std::vector<uint32_t> got = mover_read(buffers[0], WORDS);
        for (size_t i = 0; i < WORDS; i++)
            EXPECT(got[i] == mover_pattern(i, seed) + added, "word %zu is 0x%x, expected 0x%x", i, got[i],
                   mover_pattern(i, seed) + added);
    }
};

static const mover_entry entries[] = {
    {"pinned_copies", 0, mover_make<pinned_copies>, "asynchronous copies both ways, always on their way"},
    {"large_copies", 0, mover_make<large_copies>, "40 MiB there and back"},
    {"pageable_copies", 0, mover_make<pageable_copies>, "3 MiB of ordinary memory there and back"},
    {"early_copies", 0, mover_make<early_copies>, "small copies of ordinary memory, which is written to at once"},
    {"registered_memory", 0, mover_make<registered_memory>, "registered host memory, registered anew at times"},
    {"rows", 0, mover_make<rows>, "two-dimensional copies"},
    {"boxes", 0, mover_make<boxes>, "three-dimensional copies"},
    {"copies_on_device", 0, mover_make<copies_on_device>, "a ring of buffers on the device"},
};
MOVER_FAMILY(copies, entries);
