// Textures of layers, cubemaps and mipmapped arrays, by level of detail and by gradient; gathers; halves; and views of
// other levels and types.
#include "texture_reference.h"

enum { SIZE = 16, LAYERS = 5, LEVELS = 5, POINTS = 128 };

struct point {
    float x, y, z, lod;
    int layer;
};

enum how {
    LAYERED_1D,
    LAYERED_2D,
    CUBE,
    LAYERED_CUBE,
    LEVEL_1D,
    LEVEL_2D,
    LEVEL_3D,
    GRADIENT_2D,
    LEVEL_LAYERED,
    PLAIN_2D
};

__global__ void fetch(cudaTextureObject_t texture, how what, const point *points, float *out)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    point p = points[i];
    float step = exp2f(p.lod) / SIZE;
    switch (what) {
    case LAYERED_1D:
        out[i] = tex1DLayered<float>(texture, p.x, p.layer);
        break;
    case LAYERED_2D:
        out[i] = tex2DLayered<float>(texture, p.x, p.y, p.layer);
        break;
    case CUBE:
        out[i] = texCubemap<float>(texture, p.x, p.y, p.z);
        break;
    case LAYERED_CUBE:
        out[i] = texCubemapLayered<float>(texture, p.x, p.y, p.z, p.layer);
        break;
    case LEVEL_1D:
        out[i] = tex1DLod<float>(texture, p.x, p.lod);
        break;
    case LEVEL_2D:
        out[i] = tex2DLod<float>(texture, p.x, p.y, p.lod);
        break;
    case LEVEL_3D:
        out[i] = tex3DLod<float>(texture, p.x, p.y, p.z, p.lod);
        break;
    case GRADIENT_2D:
        out[i] = tex2DGrad<float>(texture, p.x, p.y, make_float2(step, 0), make_float2(0, step));
        break;
    case LEVEL_LAYERED:
        out[i] = tex2DLayeredLod<float>(texture, p.x, p.y, p.layer, p.lod);
        break;
    default:
        out[i] = tex2D<float>(texture, p.x, p.y);
        break;
    }
}

__global__ void gather(cudaTextureObject_t texture, const point *points, float4 *out)
{
    int i = (int)threadIdx.x;
    out[i] = tex2Dgather<float4>(texture, points[i].x, points[i].y, 0);
    out[blockDim.x + i] = tex2Dgather<float4>(texture, points[i].x, points[i].y, 3);
}

static point points[POINTS], *device_points;
static float results[POINTS], *device_results;
static unsigned state = 1;

static void run(cudaTextureObject_t texture, how what)
{
    CHECK(cudaMemcpy(device_points, points, sizeof points, cudaMemcpyHostToDevice));
    fetch<<<POINTS / 64, 64>>>(texture, what, device_points, device_results);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(results, device_results, sizeof results, cudaMemcpyDeviceToHost));
}

static void expect_near(int i, double want, double tolerance)
{
    EXPECT(std::fabs(results[i] - want) <= tolerance, "point %d (%g %g %g, lod %g, layer %d): got %g, expected %g", i,
           points[i].x, points[i].y, points[i].z, points[i].lod, points[i].layer, results[i], want);
}

static texture_image random_image(int dimensions, int width, int height, int depth)
{
    texture_image image = {dimensions, {width, height, depth}, 1, {}};
    for (int i = 0; i < width * height * depth; i++)
        image.texels.push_back((float)texture_random(&state));
    return image;
}

static void upload(cudaArray_t array, const std::vector<texture_image> &slices)
{
    std::vector<float> all;
    for (auto &slice : slices)
        for (double texel : slice.texels)
            all.push_back((float)texel);
    const int *size = slices[0].size;
    const size_t width = (size_t)size[0], height = (size_t)size[1], depth = slices.size() * (size_t)size[2];
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(all.data(), width * 4, width, height);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(width, height, depth);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
}

static cudaTextureDesc sampling(bool is_linear)
{
    cudaTextureDesc desc = {};
    for (int d = 0; d < 3; d++)
        desc.addressMode[d] = cudaAddressModeClamp;
    desc.filterMode = is_linear ? cudaFilterModeLinear : cudaFilterModePoint;
    desc.normalizedCoords = 1;
    desc.maxMipmapLevelClamp = 99;
    return desc;
}

static texture_sampler reference(bool is_linear)
{
    return texture_sampler{{cudaAddressModeClamp, cudaAddressModeClamp, cudaAddressModeClamp}, is_linear, true, 0};
}

static cudaTextureObject_t make_texture(cudaArray_t array, const cudaTextureDesc &desc)
{
    cudaResourceDesc resource = {};
    cudaTextureObject_t texture;
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, NULL));
    return texture;
}

static float somewhere(int count)
{
    return (float)((std::floor(texture_random(&state) * count * 32) / 32 + 1.0 / 101) / count);
}

static void choose_points(void)
{
    for (auto &p : points) {
        p.x = somewhere(SIZE);
        p.y = somewhere(SIZE);
        p.z = somewhere(SIZE);
        p.lod = (float)(texture_random(&state) * (LEVELS + 1) - 1);
        p.layer = (int)(texture_random(&state) * LAYERS);
    }
}

static void test_layers(int dimensions)
{
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    std::vector<texture_image> slices;
    cudaArray_t array;
    for (int i = 0; i < LAYERS; i++)
        slices.push_back(random_image(dimensions, SIZE, dimensions > 1 ? SIZE : 1, 1));
    CHECK(
        cudaMalloc3DArray(&array, &format, make_cudaExtent(SIZE, dimensions > 1 ? SIZE : 0, LAYERS), cudaArrayLayered));
    upload(array, slices);
    for (bool is_linear : {false, true}) {
        cudaTextureObject_t texture = make_texture(array, sampling(is_linear));
        choose_points();
        run(texture, dimensions > 1 ? LAYERED_2D : LAYERED_1D);
        for (int i = 0; i < POINTS; i++) {
            double x[3] = {points[i].x, points[i].y, 0};
            expect_near(i, texture_fetch(slices[(size_t)points[i].layer], reference(is_linear), x, 0),
                        is_linear ? 2.0 / 256 : 0);
        }
        CHECK(cudaDestroyTextureObject(texture));
    }
    CHECK(cudaFreeArray(array));
}

/* The guide's table in "Cubemap Textures". */
static int find_face(const point &p, double *s, double *t)
{
    double x = p.x, y = p.y, z = p.z, ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z), m;
    int face;
    if (ax > ay && ax > az) {
        face = x >= 0 ? 0 : 1, m = ax;
        *s = x >= 0 ? -z : z, *t = -y;
    } else if (ay > az) {
        face = y >= 0 ? 2 : 3, m = ay;
        *s = x, *t = y >= 0 ? z : -z;
    } else {
        face = z >= 0 ? 4 : 5, m = az;
        *s = z >= 0 ? x : -x, *t = -y;
    }
    *s = (*s / m + 1) / 2;
    *t = (*t / m + 1) / 2;
    return face;
}

/* Each face is one colour in the middle: points near edges, where GPUs may take the neighbour, are left out. */
static void test_cube(int cubes)
{
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    std::vector<texture_image> faces;
    cudaArray_t array;
    for (int i = 0; i < 6 * cubes; i++)
        faces.push_back(random_image(2, SIZE, SIZE, 1));
    CHECK(cudaMalloc3DArray(&array, &format, make_cudaExtent(SIZE, SIZE, 6 * (size_t)cubes),
                            cudaArrayCubemap | (cubes > 1 ? cudaArrayLayered : 0)));
    upload(array, faces);
    for (bool is_linear : {false, true}) {
        cudaTextureObject_t texture = make_texture(array, sampling(is_linear));
        for (auto &p : points) {
            p.x = (float)(texture_random(&state) * 2 - 1);
            p.y = (float)(texture_random(&state) * 2 - 1);
            p.z = (float)(texture_random(&state) * 2 - 1);
            p.layer = (int)(texture_random(&state) * cubes);
        }
        run(texture, cubes > 1 ? LAYERED_CUBE : CUBE);
        for (int i = 0; i < POINTS; i++) {
            double x[3] = {0, 0, 0};
            int face = find_face(points[i], &x[0], &x[1]);
            double u = x[0] * SIZE, v = x[1] * SIZE, near_u = std::fabs(u - std::round(u)),
                   near_v = std::fabs(v - std::round(v));
            if (u < 0.6 || v < 0.6 || u > SIZE - 0.6 || v > SIZE - 0.6 || near_u < 0.01 || near_v < 0.01)
                continue;
            expect_near(
                i, texture_fetch(faces[(size_t)(6 * points[i].layer * (cubes > 1) + face)], reference(is_linear), x, 0),
                is_linear ? 3.0 / 256 : 0);
        }
        CHECK(cudaDestroyTextureObject(texture));
    }
    CHECK(cudaFreeArray(array));
}

/* Of levels: the nearest one, or two of them mixed, after bias and clamp. */
static double level_of_detail(const std::vector<texture_image> &levels, const texture_sampler &sampler, double lod,
                              bool is_mixed, const double *x)
{
    double last = (double)levels.size() - 1;
    lod = std::fmin(std::fmax(lod, 0), last);
    if (!is_mixed)
        return texture_fetch(levels[(size_t)std::floor(lod + 0.5)], sampler, x, 0);
    size_t low = (size_t)std::floor(lod);
    double second = std::floor((lod - (double)low) * 256 + 0.5) / 256;
    double value = (1 - second) * texture_fetch(levels[low], sampler, x, 0);
    return second > 0 ? value + second * texture_fetch(levels[low + 1 < levels.size() ? low + 1 : low], sampler, x, 0)
                      : value;
}

static cudaMipmappedArray_t make_levels(int dimensions, std::vector<texture_image> &levels)
{
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaMipmappedArray_t mipmap;
    CHECK(cudaMallocMipmappedArray(
        &mipmap, &format, make_cudaExtent(SIZE, dimensions > 1 ? SIZE : 0, dimensions > 2 ? SIZE : 0), LEVELS));
    for (unsigned i = 0; i < LEVELS; i++) {
        cudaArray_t level;
        int size = SIZE >> i;
        levels.push_back(random_image(dimensions, size, dimensions > 1 ? size : 1, dimensions > 2 ? size : 1));
        CHECK(cudaGetMipmappedArrayLevel(&level, mipmap, i));
        upload(level, {levels[i]});
    }
    return mipmap;
}

static void test_levels(int dimensions)
{
    static const how whats[] = {LEVEL_1D, LEVEL_2D, LEVEL_3D};
    std::vector<texture_image> levels;
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = make_levels(dimensions, levels);
    for (int which = 0; which < 4; which++) {
        const bool is_linear = which & 1, is_mixed = which & 2;
        cudaTextureDesc desc = sampling(is_linear);
        cudaTextureObject_t texture;
        desc.mipmapFilterMode = is_mixed ? cudaFilterModeLinear : cudaFilterModePoint;
        desc.mipmapLevelBias = 0.25f;
        desc.maxMipmapLevelClamp = LEVELS - 2;
        CHECK(cudaCreateTextureObject(&texture, &resource, &desc, NULL));
        choose_points();
        for (auto &p : points) /* never between two levels of which either may be the nearest */
            p.lod = std::floor(p.lod * 8) / 8 + 1.0f / 32;
        for (int gradient = 0; gradient < (dimensions == 2 ? 2 : 1); gradient++) {
            run(texture, gradient ? GRADIENT_2D : whats[dimensions - 1]);
            for (int i = 0; i < POINTS; i++) {
                double x[3] = {points[i].x, points[i].y, points[i].z};
                bool is_near = false; /* to the border between two texels of a smaller level */
                for (int d = 0; d < dimensions; d++)
                    for (int l = 1; l < LEVELS; l++)
                        is_near |= std::fabs(x[d] * (SIZE >> l) - std::round(x[d] * (SIZE >> l))) < 0.004;
                if (is_near && !is_linear)
                    continue;
                double lod = std::fmin(points[i].lod + 0.25, LEVELS - 2);
                expect_near(i, level_of_detail(levels, reference(is_linear), lod, is_mixed, x),
                            (is_linear ? dimensions / 256.0 : 0) + (is_mixed ? 1.5 / 256 : 0) +
                                (gradient ? 4.0 / 256 : 1e-5));
            }
        }
        CHECK(cudaDestroyTextureObject(texture));
    }
    CHECK(cudaFreeMipmappedArray(resource.res.mipmap.mipmap));
}

/* Two levels of several, as integers of the same bits; and a description that comes back. */
static void test_views(void)
{
    std::vector<texture_image> levels;
    cudaResourceDesc resource = {};
    cudaResourceViewDesc view = {}, found;
    cudaTextureDesc desc = sampling(false);
    cudaTextureObject_t texture;
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = make_levels(2, levels);
    view.format = cudaResViewFormatFloat1;
    view.width = view.height = SIZE; /* the resource's, whichever levels are shown */
    view.firstMipmapLevel = 1;
    view.lastMipmapLevel = 2;
    CHECK(cudaCreateTextureObject(&texture, &resource, &desc, &view));
    CHECK(cudaGetTextureObjectResourceViewDesc(&found, texture));
    EXPECT_EQ(found.lastMipmapLevel, 2u);
    choose_points();
    for (auto &p : points)
        p.lod = p.lod > 0.5f ? 9 : 0;
    run(texture, LEVEL_2D);
    for (int i = 0; i < POINTS; i++) {
        double x[3] = {points[i].x, points[i].y, 0};
        bool is_near = false;
        for (int d = 0; d < 2; d++)
            for (int l = 1; l < 3; l++)
                is_near |= std::fabs(x[d] * (SIZE >> l) - std::round(x[d] * (SIZE >> l))) < 0.004;
        if (!is_near)
            expect_near(i, texture_fetch(levels[points[i].lod > 1 ? 2 : 1], reference(false), x, 0), 0);
    }
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeMipmappedArray(resource.res.mipmap.mipmap));
}

/* The four texels around, of one channel, against the clock from the lower left one on. */
static void test_gather(void)
{
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
    texture_image image = {2, {SIZE, SIZE, 1}, 4, {}};
    std::vector<float> all;
    cudaArray_t array;
    float4 *device, got[2 * 64];
    for (int i = 0; i < SIZE * SIZE * 4; i++) {
        all.push_back((float)texture_random(&state));
        image.texels.push_back(all.back());
    }
    CHECK(cudaMallocArray(&array, &format, SIZE, SIZE, cudaArrayTextureGather));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, all.data(), SIZE * 16, SIZE * 16, SIZE, cudaMemcpyHostToDevice));
    CHECK(cudaMalloc(&device, sizeof got));
    cudaTextureObject_t texture = make_texture(array, sampling(false));
    choose_points();
    CHECK(cudaMemcpy(device_points, points, sizeof points, cudaMemcpyHostToDevice));
    gather<<<1, 64>>>(texture, device_points, device);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(got, device, sizeof got, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 64; i++) {
        double u = points[i].x * SIZE - 0.5, v = points[i].y * SIZE - 0.5;
        long x = (long)std::floor(u), y = (long)std::floor(v);
        if (u - (double)x > 0.98 || v - (double)y > 0.98)
            continue;
        for (int which = 0; which < 2; which++) {
            const float4 four = got[which * 64 + i];
            const float texels[4] = {four.x, four.y, four.z, four.w};
            for (int k = 0; k < 4; k++) {
                long at[3] = {x + (k == 1 || k == 2), y + (k < 2), 0};
                EXPECT(texels[k] == (float)texture_texel(image, reference(true), at, which * 3));
            }
        }
    }
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFree(device));
}

/* Halves are floats of 16 bits: here such that are exact. */
static void test_halves(void)
{
    cudaChannelFormatDesc format = cudaCreateChannelDescHalf();
    unsigned short in[SIZE * SIZE];
    cudaArray_t array;
    for (int i = 0; i < SIZE * SIZE; i++)
        in[i] = (unsigned short)(0x3c00 + i); /* 1 + i / 1024 */
    CHECK(cudaMallocArray(&array, &format, SIZE, SIZE));
    CHECK(cudaMemcpy2DToArray(array, 0, 0, in, SIZE * 2, SIZE * 2, SIZE, cudaMemcpyHostToDevice));
    cudaTextureObject_t texture = make_texture(array, sampling(false));
    choose_points();
    run(texture, PLAIN_2D);
    for (int i = 0; i < POINTS; i++)
        expect_near(i, 1 + (std::floor(points[i].y * SIZE) * SIZE + std::floor(points[i].x * SIZE)) / 1024.0, 0);
    CHECK(cudaDestroyTextureObject(texture));
    CHECK(cudaFreeArray(array));
}

int main(void)
{
    CHECK(cudaMalloc(&device_points, sizeof points));
    CHECK(cudaMalloc(&device_results, sizeof results));
    test_layers(1);
    test_layers(2);
    test_cube(1);
    test_cube(3);
    for (int dimensions = 1; dimensions <= 3; dimensions++)
        test_levels(dimensions);
    test_views();
    test_gather();
    test_halves();
    return 0;
}
