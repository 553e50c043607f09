// Texture objects over arrays of one, two and three dimensions and over memory: every format, address mode and read
// mode, with and without filter, compared with what the guide's formulas give on the host.
#include "texture_reference.h"

#include <type_traits>

enum { POINTS = 192 };

template <class T> __device__ float4 widen(T v);
template <> __device__ float4 widen(float v)
{
    return make_float4(v, 0, 0, 0);
}
template <> __device__ float4 widen(float2 v)
{
    return make_float4(v.x, v.y, 0, 0);
}
template <> __device__ float4 widen(float4 v)
{
    return v;
}

/* As floats, from wherever the coordinates say. */
template <class T> __global__ void fetch(cudaTextureObject_t texture, int dimensions, const float3 *at, float4 *out)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (dimensions == 1)
        out[i] = widen(tex1D<T>(texture, at[i].x));
    else if (dimensions == 2)
        out[i] = widen(tex2D<T>(texture, at[i].x, at[i].y));
    else
        out[i] = widen(tex3D<T>(texture, at[i].x, at[i].y, at[i].z));
}

/* Integers, as they are. */
template <class T> __global__ void fetch_whole(cudaTextureObject_t texture, const float3 *at, long long *out)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    out[i] = (long long)tex2D<T>(texture, at[i].x, at[i].y);
}

template <class T> __global__ void fetch_line(cudaTextureObject_t texture, int first, float4 *out)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    out[i] = widen(tex1Dfetch<T>(texture, first + i));
}

/* An element as textures read it as a float. */
template <class E> double scaled(E v)
{
    if (std::is_floating_point<E>::value)
        return (double)v;
    const double most = (double)((1ull << (sizeof(E) * 8 - (std::is_signed<E>::value ? 1 : 0))) - 1);
    return std::fmax((double)v / most, -1);
}

template <class E> E random_element(unsigned *state)
{
    double v = texture_random(state);
    if (std::is_floating_point<E>::value)
        return (E)(v * 8 - 4);
    return (E)(long long)(v * std::pow(2, 8 * sizeof(E)));
}

template <class E> cudaChannelFormatDesc format_of(int channels)
{
    int bits = (int)sizeof(E) * 8;
    cudaChannelFormatKind kind = std::is_floating_point<E>::value ? cudaChannelFormatKindFloat
                                 : std::is_signed<E>::value       ? cudaChannelFormatKindSigned
                                                                  : cudaChannelFormatKindUnsigned;
    return cudaCreateChannelDesc(bits, channels > 1 ? bits : 0, channels > 2 ? bits : 0, channels > 2 ? bits : 0, kind);
}

struct points {
    float3 host[POINTS], *device;
    float4 *out, results[POINTS];
    long long *whole, wholes[POINTS];
};

static points P;

/* Around the image, never on the border between two texels. */
static void choose_points(const texture_image &image, bool is_normalized, unsigned *state)
{
    for (int i = 0; i < POINTS; i++) {
        double x[3];
        for (int d = 0; d < 3; d++) {
            double texels = std::floor((texture_random(state) * 3 - 1) * image.size[d] * 32) / 32 + 1.0 / 101;
            x[d] = is_normalized ? texels / image.size[d] : texels;
        }
        P.host[i] = make_float3((float)x[0], (float)x[1], (float)x[2]);
    }
    CHECK(cudaMemcpy(P.device, P.host, sizeof P.host, cudaMemcpyHostToDevice));
}

static void compare(const texture_image &image, const texture_sampler &sampler, double range)
{
    CHECK(cudaMemcpy(P.results, P.out, sizeof P.results, cudaMemcpyDeviceToHost));
    const double tolerance = sampler.is_linear ? range * image.dimensions / 256 + 1e-5 : 1e-5;
    for (int i = 0; i < POINTS; i++) {
        const double x[3] = {P.host[i].x, P.host[i].y, P.host[i].z};
        const float got[4] = {P.results[i].x, P.results[i].y, P.results[i].z, P.results[i].w};
        for (int c = 0; c < image.channels; c++) {
            double want = texture_fetch(image, sampler, x, c);
            EXPECT(std::fabs(got[c] - want) <= tolerance, "at %g %g %g channel %d: got %g, expected %g", x[0], x[1],
                   x[2], c, got[c], want);
        }
    }
}

template <class E> texture_image make_image(int dimensions, int channels, std::vector<E> &elements, unsigned *state)
{
    static const int sizes[] = {13, 9, 5};
    texture_image image = {dimensions, {1, 1, 1}, channels, {}};
    size_t count = (size_t)channels;
    for (int d = 0; d < dimensions; d++)
        count *= (size_t)(image.size[d] = sizes[d]);
    elements.resize(count);
    for (auto &element : elements) {
        element = random_element<E>(state);
        image.texels.push_back(scaled(element));
    }
    return image;
}

template <class E> cudaArray_t make_array(const texture_image &image, const std::vector<E> &elements)
{
    cudaChannelFormatDesc format = format_of<E>(image.channels);
    const size_t row = (size_t)(image.size[0] * image.channels) * sizeof(E);
    cudaArray_t array;
    CHECK(cudaMalloc3DArray(&array, &format,
                            make_cudaExtent((size_t)image.size[0], image.dimensions > 1 ? (size_t)image.size[1] : 0,
                                            image.dimensions > 2 ? (size_t)image.size[2] : 0)));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr((void *)elements.data(), row, (size_t)image.size[0], (size_t)image.size[1]);
    copy.dstArray = array;
    copy.extent = make_cudaExtent((size_t)image.size[0], (size_t)image.size[1], (size_t)image.size[2]);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    return array;
}

static cudaTextureObject_t make_texture(const cudaResourceDesc &resource, const texture_sampler &sampler,
                                        cudaTextureReadMode read)
{
    cudaTextureDesc desc = {};
    cudaTextureObject_t texture;
    for (int d = 0; d < 3; d++)
        desc.addressMode[d] = sampler.mode[d];
    for (int c = 0; c < 4; c++)
        desc.borderColor[c] = (float)sampler.border;
    desc.filterMode = sampler.is_linear ? cudaFilterModeLinear : cudaFilterModePoint;
    desc.normalizedCoords = sampler.is_normalized;
    desc.readMode = read;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, NULL));
    return texture;
}

static void run(cudaTextureObject_t texture, const texture_image &image)
{
    if (image.channels == 1)
        fetch<float><<<POINTS / 64, 64>>>(texture, image.dimensions, P.device, P.out);
    else if (image.channels == 2)
        fetch<float2><<<POINTS / 64, 64>>>(texture, image.dimensions, P.device, P.out);
    else
        fetch<float4><<<POINTS / 64, 64>>>(texture, image.dimensions, P.device, P.out);
    CHECK_LAUNCH();
}

template <class E> void test_floats(int dimensions, int channels)
{
    static const cudaTextureAddressMode modes[] = {cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror,
                                                   cudaAddressModeBorder};
    unsigned state = (unsigned)(dimensions * 10 + channels);
    std::vector<E> elements;
    texture_image image = make_image(dimensions, channels, elements, &state);
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = make_array(image, elements);
    const double range = std::is_floating_point<E>::value ? 8 : std::is_signed<E>::value ? 2 : 1;
    for (auto mode : modes)
        for (int which = 0; which < 4; which++) {
            texture_sampler sampler = {{mode, mode, mode}, (which & 1) != 0, (which & 2) != 0, 0};
            /* A line is a plane of one row to GPUs: with a border in the second dimension they would mix it in. */
            for (int d = dimensions; d < 3; d++)
                sampler.mode[d] = cudaAddressModeClamp;
            if (mode == cudaAddressModeBorder)
                sampler.border = 1; /* an element can be that, of each type */
            cudaTextureObject_t texture =
                make_texture(resource, sampler,
                             std::is_floating_point<E>::value ? cudaReadModeElementType : cudaReadModeNormalizedFloat);
            choose_points(image, sampler.is_normalized, &state);
            run(texture, image);
            compare(image, sampler, range);
            CHECK(cudaDestroyTextureObject(texture));
        }
    CHECK(cudaFreeArray(resource.res.array.array));
}

/* Elements as they are: no filter, any width. */
template <class E> void test_whole(void)
{
    unsigned state = sizeof(E);
    std::vector<E> elements;
    texture_image image = make_image(2, 1, elements, &state);
    cudaResourceDesc resource = {};
    texture_sampler sampler = {{cudaAddressModeClamp, cudaAddressModeClamp, cudaAddressModeClamp}, false, false, 0};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = make_array(image, elements);
    cudaTextureObject_t texture = make_texture(resource, sampler, cudaReadModeElementType);
    choose_points(image, false, &state);
    fetch_whole<E><<<POINTS / 64, 64>>>(texture, P.device, P.whole);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(P.wholes, P.whole, sizeof P.wholes, cudaMemcpyDeviceToHost));
    for (int i = 0; i < POINTS; i++) {
        int x = texture_place(cudaAddressModeClamp, (long)std::floor(P.host[i].x), image.size[0]);
        int y = texture_place(cudaAddressModeClamp, (long)std::floor(P.host[i].y), image.size[1]);
        EXPECT_EQ(P.wholes[i], (long long)elements[(size_t)(y * image.size[0] + x)]);
    }
    CHECK(cudaDestroyTextureObject(texture));
    cudaTextureDesc linear = {};
    linear.filterMode = cudaFilterModeLinear;
    EXPECT_ERR(cudaCreateTextureObject(&texture, &resource, &linear, NULL), cudaErrorInvalidFilterSetting);
    if (sizeof(E) == 4) {
        linear.readMode = cudaReadModeNormalizedFloat;
        EXPECT_ERR(cudaCreateTextureObject(&texture, &resource, &linear, NULL), cudaErrorInvalidFilterSetting);
    }
    CHECK(cudaFreeArray(resource.res.array.array));
}

/* A line of memory: by whole numbers, and nothing outside of it. */
static void test_line(void)
{
    std::vector<float2> in(1000);
    unsigned state = 77;
    float2 *memory;
    for (auto &v : in)
        v = make_float2((float)texture_random(&state), (float)texture_random(&state));
    CHECK(cudaMalloc(&memory, in.size() * sizeof in[0]));
    CHECK(cudaMemcpy(memory, in.data(), in.size() * sizeof in[0], cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {}, found;
    cudaTextureDesc desc = {};
    cudaTextureObject_t texture;
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = memory;
    resource.res.linear.desc = cudaCreateChannelDesc<float2>();
    resource.res.linear.sizeInBytes = in.size() * sizeof in[0];
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, NULL));
    for (int first : {0, 900}) {
        fetch_line<float2><<<POINTS / 64, 64>>>(texture, first, P.out);
        CHECK_LAUNCH();
        CHECK(cudaMemcpy(P.results, P.out, sizeof P.results, cudaMemcpyDeviceToHost));
        for (int i = 0; i < POINTS; i++) {
            bool is_inside = first + i < 1000;
            EXPECT(P.results[i].x == (is_inside ? in[(size_t)(first + i)].x : 0));
            EXPECT(P.results[i].y == (is_inside ? in[(size_t)(first + i)].y : 0));
        }
    }
    CHECK(cudaGetTextureObjectResourceDesc(&found, texture));
    EXPECT_EQ(found.resType, cudaResourceTypeLinear);
    EXPECT(found.res.linear.devPtr == memory);
    EXPECT_EQ(found.res.linear.desc.y, 32);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaDestroyTextureObject(texture));        /* of what is none it says nothing */
    resource.res.linear.devPtr = (char *)memory + 8; /* aligned as elements are, not as textures */
    EXPECT_ERR(cudaCreateTextureObject(&texture, &resource, &desc, NULL), cudaErrorInvalidValue);
    CHECK(cudaFree(memory));
}

/* A plane of memory with a pitch, filtered. */
static void test_plane(void)
{
    unsigned state = 5;
    std::vector<float> elements;
    texture_image image = make_image(2, 1, elements, &state);
    float *memory;
    size_t pitch;
    CHECK(cudaMallocPitch(&memory, &pitch, (size_t)image.size[0] * 4, (size_t)image.size[1]));
    CHECK(cudaMemcpy2D(memory, pitch, elements.data(), (size_t)image.size[0] * 4, (size_t)image.size[0] * 4,
                       (size_t)image.size[1], cudaMemcpyHostToDevice));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = memory;
    resource.res.pitch2D.desc = cudaCreateChannelDesc<float>();
    resource.res.pitch2D.width = (size_t)image.size[0];
    resource.res.pitch2D.height = (size_t)image.size[1];
    resource.res.pitch2D.pitchInBytes = pitch;
    for (bool is_linear : {false, true}) {
        texture_sampler sampler = {
            {cudaAddressModeClamp, cudaAddressModeBorder, cudaAddressModeClamp}, is_linear, false, 0};
        cudaTextureObject_t texture = make_texture(resource, sampler, cudaReadModeElementType);
        choose_points(image, false, &state);
        run(texture, image);
        compare(image, sampler, 8);
        CHECK(cudaDestroyTextureObject(texture));
    }
    CHECK(cudaFree(memory));
}

/* Colours become linear as they are read; the fourth channel stays. */
static void test_srgb(void)
{
    std::vector<unsigned char> in(256 * 4);
    for (size_t i = 0; i < in.size(); i++)
        in[i] = (unsigned char)(i / 4);
    cudaChannelFormatDesc format = cudaCreateChannelDesc<uchar4>();
    cudaResourceDesc resource = {};
    cudaTextureDesc desc = {}, found;
    cudaTextureObject_t texture;
    resource.resType = cudaResourceTypeArray;
    CHECK(cudaMallocArray(&resource.res.array.array, &format, 256, 1));
    CHECK(cudaMemcpy2DToArray(resource.res.array.array, 0, 0, in.data(), 1024, 1024, 1, cudaMemcpyHostToDevice));
    desc.readMode = cudaReadModeNormalizedFloat;
    desc.sRGB = 1;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, NULL));
    CHECK(cudaGetTextureObjectTextureDesc(&found, texture));
    EXPECT_EQ(found.sRGB, 1);
    EXPECT_EQ(found.readMode, cudaReadModeNormalizedFloat);
    for (int i = 0; i < POINTS; i++)
        P.host[i] = make_float3((float)i + 0.5f, 0.5f, 0);
    CHECK(cudaMemcpy(P.device, P.host, sizeof P.host, cudaMemcpyHostToDevice));
    fetch<float4><<<POINTS / 64, 64>>>(texture, 2, P.device, P.out);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(P.results, P.out, sizeof P.results, cudaMemcpyDeviceToHost));
    for (int i = 0; i < POINTS; i++) {
        double v = i / 255.0, want = v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
        EXPECT(std::fabs(P.results[i].x - want) < 1.0 / 256, "of %d: got %g, expected %g", i, P.results[i].x, want);
        EXPECT(std::fabs(P.results[i].w - v) < 1e-5);
    }
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(resource.res.array.array));
}

int main(void)
{
    CHECK(cudaMalloc(&P.device, sizeof P.host));
    CHECK(cudaMalloc(&P.out, sizeof P.results));
    CHECK(cudaMalloc(&P.whole, sizeof P.wholes));
    for (int dimensions = 1; dimensions <= 3; dimensions++)
        for (int channels : {1, 2, 4}) {
            test_floats<float>(dimensions, channels);
            test_floats<unsigned char>(dimensions, channels);
            test_floats<short>(dimensions, channels);
        }
    test_floats<signed char>(2, 4);
    test_floats<unsigned short>(2, 2);
    test_whole<unsigned char>();
    test_whole<signed char>();
    test_whole<unsigned short>();
    test_whole<short>();
    test_whole<unsigned>();
    test_whole<int>();
    test_line();
    test_plane();
    test_srgb();
    return 0;
}
