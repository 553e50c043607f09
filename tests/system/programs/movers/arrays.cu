// CUDA arrays, and textures and surfaces of them, whose handles the GPU's memory has.
#include "movers.h"

static cudaArray_t make_array(const cudaChannelFormatDesc &format, size_t width, size_t height, size_t depth,
                              unsigned flags)
{
    cudaArray_t array;
    CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(width, height, depth), flags));
    return array;
}

/* What copies of an array count: so many words, which are so many texels across and down. */
struct element {
    cudaChannelFormatDesc format;
    size_t words, side;
};
static const element word = {cudaCreateChannelDesc<unsigned>(), 1, 1},
                     normalized = {cudaCreateChannelDesc<cudaChannelFormatKindUnsignedNormalized8X4>(), 1, 1},
                     block = {cudaCreateChannelDesc<cudaChannelFormatKindUnsignedBlockCompressed3>(), 4, 4};

/* A box of elements, to an array or from it. */
static void copy_box(cudaArray_t array, const element &of, const uint32_t *words, cudaPos at, cudaExtent extent,
                     bool to_array)
{
    cudaMemcpy3DParms copy = {};
    const size_t row_bytes = extent.width * of.words * 4;
    cudaPitchedPtr memory = make_cudaPitchedPtr((void *)words, row_bytes, row_bytes, extent.height);
    copy.extent = make_cudaExtent(extent.width * of.side, extent.height * of.side, extent.depth);
    at = make_cudaPos(at.x * of.side, at.y * of.side, at.z);
    if (to_array) {
        copy.srcPtr = memory;
        copy.dstArray = array;
        copy.dstPos = at;
        copy.kind = cudaMemcpyHostToDevice;
    } else {
        copy.dstPtr = memory;
        copy.srcArray = array;
        copy.srcPos = at;
        copy.kind = cudaMemcpyDeviceToHost;
    }
    CHECK(cudaMemcpy3D(&copy));
}

/* Arrays of several shapes and formats, of which boxes change; one is made anew now and then. */
struct array_contents : mover {
    struct shape {
        element of;
        size_t width, height, depth; /* in elements */
        unsigned flags;
    };
    struct one {
        shape is;
        cudaArray_t array;
        std::vector<uint32_t> wanted;
    };
    std::vector<one> arrays;

    void make(one &made, shape is)
    {
        made.is = is;
        made.array = make_array(is.of.format, is.width * is.of.side, is.height * is.of.side, is.depth, is.flags);
        made.wanted.resize(is.of.words * is.width * (is.height ? is.height : 1) * (is.depth ? is.depth : 1));
        for (size_t i = 0; i < made.wanted.size(); i++)
            made.wanted[i] = mover_pattern(i, random());
        copy_box(made.array, is.of, made.wanted.data(), make_cudaPos(0, 0, 0), extent_of(is), true);
    }
    static cudaExtent extent_of(const shape &is)
    {
        return make_cudaExtent(is.width, is.height ? is.height : 1, is.depth ? is.depth : 1);
    }
    void set_up() override
    {
        static const shape shapes[] = {{word, 1000, 0, 0, 0},
                                       {word, 700, 900, 0, cudaArraySurfaceLoadStore},
                                       {word, 60, 50, 40, 0},
                                       {word, 33, 21, 7, cudaArrayLayered},
                                       {word, 16, 16, 6, cudaArrayCubemap},
                                       {normalized, 300, 200, 0, 0},
                                       {block, 301, 203, 0, 0}};
        arrays.resize(sizeof shapes / sizeof shapes[0]);
        for (size_t i = 0; i < arrays.size(); i++)
            make(arrays[i], shapes[i]);
    }
    void change(one &some)
    {
        cudaExtent all = extent_of(some.is),
                   part = make_cudaExtent(1 + random((uint32_t)all.width), 1 + random((uint32_t)all.height),
                                          1 + random((uint32_t)all.depth));
        cudaPos at = make_cudaPos(random((uint32_t)(all.width - part.width + 1)),
                                  random((uint32_t)(all.height - part.height + 1)),
                                  random((uint32_t)(all.depth - part.depth + 1)));
        const size_t each = some.is.of.words;
        std::vector<uint32_t> words(part.width * part.height * part.depth * each);
        size_t i = 0;
        for (size_t z = 0; z < part.depth; z++)
            for (size_t y = 0; y < part.height; y++)
                for (size_t x = 0; x < part.width * each; x++, i++)
                    words[i] = some.wanted[(((at.z + z) * all.height + at.y + y) * all.width + at.x) * each + x] =
                        random();
        copy_box(some.array, some.is.of, words.data(), at, part, true);
    }
    void check(const one &some)
    {
        std::vector<uint32_t> got(some.wanted.size());
        copy_box(some.array, some.is.of, got.data(), make_cudaPos(0, 0, 0), extent_of(some.is), false);
        for (size_t i = 0; i < got.size(); i++)
            EXPECT(got[i] == some.wanted[i], "word %zu of an array is %u, expected %u", i, got[i], some.wanted[i]);
    }
    void round() override
    {
        change(arrays[random((uint32_t)arrays.size())]);
        if (random(4) == 0) {
            one &some = arrays[random((uint32_t)arrays.size())];
            CHECK(cudaFreeArray(some.array));
            make(some, some.is);
        }
        for (const one &some : arrays)
            check(some);
    }
};

static cudaTextureObject_t make_texture(cudaArray_t array)
{
    cudaResourceDesc resource = {};
    cudaTextureDesc desc = {};
    cudaTextureObject_t texture;
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, NULL));
    return texture;
}

static cudaSurfaceObject_t make_surface(cudaArray_t array)
{
    cudaResourceDesc resource = {};
    cudaSurfaceObject_t surface;
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    CHECK(cudaCreateSurfaceObject(&surface, &resource));
    return surface;
}

struct handle_pair {
    cudaTextureObject_t texture;
    cudaSurfaceObject_t surface;
};

/* Each block steps the words of one array, which it finds by handles in memory. */
static __global__ void step_arrays(const handle_pair *pairs, uint32_t factor, uint32_t term)
{
    int x = (int)threadIdx.x;
    unsigned word = tex1D<unsigned>(pairs[blockIdx.x].texture, x + 0.5f);
    surf1Dwrite(word * factor + term, pairs[blockIdx.x].surface, x * 4);
}

/* Objects that come and go, so that handles have gaps between them; all of them are used by their handles in memory. */
struct texture_handles : mover {
    enum { PAIRS = 12, WIDTH = 32 };
    cudaArray_t arrays[PAIRS];
    handle_pair pairs[PAIRS], *memory;
    std::vector<uint32_t> wanted[PAIRS];

    void set_up() override
    {
        CHECK(cudaMalloc(&memory, sizeof pairs));
        for (int i = 0; i < PAIRS; i++) {
            for (size_t k = 0; k < WIDTH; k++)
                wanted[i].push_back(mover_pattern(k, (uint32_t)i));
            arrays[i] = make_array(word.format, WIDTH, 0, 0, cudaArraySurfaceLoadStore);
            copy_box(arrays[i], word, wanted[i].data(), make_cudaPos(0, 0, 0), make_cudaExtent(WIDTH, 1, 1), true);
            cudaTextureObject_t gap = make_texture(arrays[i]);
            pairs[i] = {make_texture(arrays[i]), make_surface(arrays[i])};
            CHECK(cudaDestroyTextureObject(gap));
        }
        CHECK(cudaMemcpy(memory, pairs, sizeof pairs, cudaMemcpyHostToDevice));
    }
    void replace(uint32_t i)
    {
        cudaSurfaceObject_t before = make_surface(arrays[i]);
        CHECK(cudaDestroyTextureObject(pairs[i].texture));
        CHECK(cudaDestroySurfaceObject(pairs[i].surface));
        pairs[i] = {make_texture(arrays[i]), make_surface(arrays[i])};
        CHECK(cudaDestroySurfaceObject(before));
        CHECK(cudaMemcpy(&memory[i], &pairs[i], sizeof pairs[i], cudaMemcpyHostToDevice));
    }
    void round() override
    {
        uint32_t by = random();
        if (random(3) == 0)
            replace(random(PAIRS));
        step_arrays<<<PAIRS, WIDTH>>>(memory, mover_factor(by), by);
        CHECK_LAUNCH();
        for (int i = 0; i < PAIRS; i++) {
            uint32_t got[WIDTH];
            copy_box(arrays[i], word, got, make_cudaPos(0, 0, 0), make_cudaExtent(WIDTH, 1, 1), false);
            for (int k = 0; k < WIDTH; k++) {
                wanted[i][(size_t)k] = wanted[i][(size_t)k] * mover_factor(by) + by;
                EXPECT_EQ(got[k], wanted[i][(size_t)k]);
            }
        }
    }
};

static __global__ void sum_levels(cudaTextureObject_t levels, cudaTextureObject_t line, float *out)
{
    int i = (int)threadIdx.x;
    out[i] = tex2DLod<float>(levels, 0.5f, 0.5f, (float)(i % 4)) + tex1Dfetch<float>(line, i);
}

/* Levels of a mipmapped array, each of one value, and a texture of a line of memory. */
struct texture_levels : mover {
    enum { SIZE = 16, LEVELS = 4, COUNT = 32 };
    cudaMipmappedArray_t mipmap;
    cudaTextureObject_t levels, line;
    float values[LEVELS], *memory, *out;

    void set_level(unsigned level, float value)
    {
        const size_t size = SIZE >> level;
        std::vector<float> all(size * size, value);
        cudaArray_t array;
        CHECK(cudaGetMipmappedArrayLevel(&array, mipmap, level));
        CHECK(cudaMemcpy2DToArray(array, 0, 0, all.data(), size * 4, size * 4, size, cudaMemcpyHostToDevice));
        values[level] = value;
    }
    void set_up() override
    {
        cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
        cudaResourceDesc resource = {};
        cudaTextureDesc desc = {};
        float host[COUNT];
        CHECK(cudaMallocMipmappedArray(&mipmap, &format, make_cudaExtent(SIZE, SIZE, 0), LEVELS));
        for (unsigned i = 0; i < LEVELS; i++)
            set_level(i, (float)i);
        resource.resType = cudaResourceTypeMipmappedArray;
        resource.res.mipmap.mipmap = mipmap;
        desc.normalizedCoords = 1;
        desc.maxMipmapLevelClamp = LEVELS;
        CHECK(cudaCreateTextureObject(&levels, &resource, &desc, NULL));
        for (int i = 0; i < COUNT; i++)
            host[i] = 1000.0f * (float)i;
        CHECK(cudaMalloc(&memory, sizeof host));
        CHECK(cudaMalloc(&out, sizeof host));
        CHECK(cudaMemcpy(memory, host, sizeof host, cudaMemcpyHostToDevice));
        resource = {};
        resource.resType = cudaResourceTypeLinear;
        resource.res.linear.devPtr = memory;
        resource.res.linear.desc = format;
        resource.res.linear.sizeInBytes = sizeof host;
        desc = {};
        CHECK(cudaCreateTextureObject(&line, &resource, &desc, NULL));
    }
    void round() override
    {
        float got[COUNT];
        set_level(random(LEVELS), (float)random(1000));
        sum_levels<<<1, COUNT>>>(levels, line, out);
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
        for (int i = 0; i < COUNT; i++)
            EXPECT(got[i] == values[i % 4] + 1000.0f * (float)i, "sum %d is %g, expected %g", i, got[i],
                   values[i % 4] + 1000.0f * (float)i);
    }
};

static __global__ void read_colours(cudaTextureObject_t plane, uchar2 *out)
{
    int x = (int)threadIdx.x, y = (int)blockIdx.x;
    out[y * (int)blockDim.x + x] = tex2D<uchar2>(plane, x + 0.5f, y + 0.5f);
}

/* Planes of an array of video, each with contents of its own, and a texture of one of them. */
struct array_planes : mover {
    enum { WIDTH = 96, HEIGHT = 64, ROW = WIDTH, VIDEO = 0x100 }; /* CUDA_ARRAY3D_VIDEO_ENCODE_DECODE */
    cudaArray_t whole, planes[2];
    cudaTextureObject_t colours;
    uchar2 *out;
    std::vector<unsigned char> wanted[2]; /* rows of as many bytes, of the second one half as many */

    size_t rows(int plane) const
    {
        return wanted[plane].size() / ROW;
    }
    void put(int plane, size_t first, size_t count)
    {
        for (size_t i = first * ROW; i < (first + count) * ROW; i++)
            wanted[plane][i] = (unsigned char)random(256);
        CHECK(cudaMemcpy2DToArray(planes[plane], 0, first, &wanted[plane][first * ROW], ROW, ROW, count,
                                  cudaMemcpyHostToDevice));
    }
    void set_up() override
    {
        const cudaChannelFormatDesc format = cudaCreateChannelDesc<cudaChannelFormatKindNV12>();
        CHECK(cudaMallocArray(&whole, &format, WIDTH, HEIGHT, VIDEO));
        for (int plane = 0; plane < 2; plane++) {
            CHECK(cudaArrayGetPlane(&planes[plane], whole, (unsigned)plane));
            wanted[plane].resize((size_t)ROW * HEIGHT / (plane ? 2 : 1));
            put(plane, 0, rows(plane));
        }
        colours = make_texture(planes[1]);
        CHECK(cudaMalloc(&out, wanted[1].size()));
    }
    void round() override
    {
        const int plane = (int)random(2);
        const size_t first = random((uint32_t)rows(plane));
        put(plane, first, 1 + random((uint32_t)(rows(plane) - first)));
        for (int i = 0; i < 2; i++) {
            std::vector<unsigned char> got(wanted[i].size());
            CHECK(cudaMemcpy2DFromArray(got.data(), ROW, planes[i], 0, 0, ROW, rows(i), cudaMemcpyDeviceToHost));
            EXPECT(got == wanted[i], "plane %d has changed", i);
        }
        std::vector<unsigned char> got(wanted[1].size());
        read_colours<<<HEIGHT / 2, WIDTH / 2>>>(colours, out);
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(got.data(), out, got.size(), cudaMemcpyDeviceToHost));
        EXPECT(got == wanted[1], "the texture reads something else");
    }
};

static const mover_entry entries[] = {
    {"array_contents", 0, mover_make<array_contents>, "arrays of several shapes and formats, of which boxes change"},
    {"texture_handles", 0, mover_make<texture_handles>, "textures and surfaces, by handles in memory"},
    {"array_planes", 0, mover_make<array_planes>, "planes of an array of video; a texture of one"},
    {"texture_levels", 0, mover_make<texture_levels>, "levels of a mipmapped array; a texture of memory"},
};
MOVER_FAMILY(arrays, entries);
