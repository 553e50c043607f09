// CUDA arrays: their descriptions, and copies of every kind and direction: boxes within them, runs of bytes, layers and
// levels, small ones and such as take several messages, pageable and page-locked, waited for and not, and in graphs.
#include "check.h"

#include <vector>

typedef std::vector<unsigned char> bytes;

static unsigned char pattern(int which, size_t i)
{
    return (unsigned char)(which * 41 + i * 7 + (i >> 8) * 13 + (i >> 16));
}

static bytes filled(int which, size_t count)
{
    bytes out(count);
    for (size_t i = 0; i < count; i++)
        out[i] = pattern(which, i);
    return out;
}

/* What an array is described as, and what is no array. */
static void test_descriptions(void)
{
    static const struct {
        int bits[4];
        cudaChannelFormatKind kind;
    } formats[] = {
        {{8, 0, 0, 0}, cudaChannelFormatKindUnsigned},     {{8, 8, 0, 0}, cudaChannelFormatKindSigned},
        {{8, 8, 8, 8}, cudaChannelFormatKindUnsigned},     {{16, 0, 0, 0}, cudaChannelFormatKindSigned},
        {{16, 16, 16, 16}, cudaChannelFormatKindUnsigned}, {{16, 16, 0, 0}, cudaChannelFormatKindFloat},
        {{32, 0, 0, 0}, cudaChannelFormatKindSigned},      {{32, 32, 0, 0}, cudaChannelFormatKindUnsigned},
        {{32, 32, 32, 32}, cudaChannelFormatKindFloat},
    };
    for (auto &format : formats) {
        cudaChannelFormatDesc desc = cudaCreateChannelDesc(format.bits[0], format.bits[1], format.bits[2],
                                                           format.bits[3], format.kind),
                              found;
        cudaArray_t array;
        cudaExtent extent;
        unsigned flags = 99;
        CHECK(cudaMallocArray(&array, &desc, 37, 5, cudaArraySurfaceLoadStore));
        CHECK(cudaArrayGetInfo(&found, &extent, &flags, array));
        EXPECT_EQ(found.x, desc.x);
        EXPECT_EQ(found.y, desc.y);
        EXPECT_EQ(found.z, desc.z);
        EXPECT_EQ(found.w, desc.w);
        EXPECT_EQ(found.f, desc.f);
        EXPECT_EQ(extent.width, 37u);
        EXPECT_EQ(extent.height, 5u);
        EXPECT_EQ(extent.depth, 0u);
        EXPECT_EQ(flags, (unsigned)cudaArraySurfaceLoadStore);
        CHECK(cudaGetChannelDesc(&found, array));
        EXPECT_EQ(found.f, desc.f);
        CHECK(cudaFreeArray(array));
    }
    cudaChannelFormatDesc good = cudaCreateChannelDesc<float>();
    cudaChannelFormatDesc three = cudaCreateChannelDesc(32, 32, 32, 0, cudaChannelFormatKindFloat);
    cudaArray_t array;
    EXPECT_ERR(cudaMallocArray(&array, &three, 8, 8), cudaErrorInvalidChannelDescriptor);
    EXPECT_ERR(cudaMallocArray(&array, &good, 0, 8), cudaErrorInvalidValue);
    EXPECT_ERR(cudaMalloc3DArray(&array, &good, make_cudaExtent(8, 9, 6), cudaArrayCubemap), cudaErrorInvalidValue);
    CHECK(cudaFreeArray(NULL));
}

/* Boxes of a plane: in with a pitch, out with another, both ways within the device. */
static void test_planes(size_t width, size_t height, bool is_async)
{
    const size_t texel = sizeof(short4), row = width * texel, pitch = row + 48, out_pitch = row + 16;
    cudaChannelFormatDesc desc = cudaCreateChannelDesc<short4>();
    bytes in = filled(1, pitch * height), out(out_pitch * height, 0xee), again(row * height);
    cudaArray_t array, other;
    unsigned char *device;
    size_t device_pitch;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMallocArray(&array, &desc, width, height));
    CHECK(cudaMallocArray(&other, &desc, width, height));
    CHECK(cudaMallocPitch((void **)&device, &device_pitch, row, height));
    if (is_async) {
        CHECK(cudaMemcpy2DToArrayAsync(array, 0, 0, in.data(), pitch, row, height, cudaMemcpyHostToDevice, stream));
        CHECK(cudaMemcpy2DFromArrayAsync(device, device_pitch, array, 0, 0, row, height, cudaMemcpyDeviceToDevice,
                                         stream));
        CHECK(cudaMemcpy2DToArrayAsync(other, 0, 0, device, device_pitch, row, height, cudaMemcpyDefault, stream));
        CHECK(cudaMemcpy2DFromArrayAsync(out.data(), out_pitch, other, 0, 0, row, height, cudaMemcpyDeviceToHost,
                                         stream));
        CHECK(cudaStreamSynchronize(stream));
    } else {
        CHECK(cudaMemcpy2DToArray(array, 0, 0, in.data(), pitch, row, height, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpy2DArrayToArray(other, 0, 0, array, 0, 0, row, height));
        CHECK(cudaMemcpy2DFromArray(out.data(), out_pitch, other, 0, 0, row, height, cudaMemcpyDefault));
    }
    for (size_t y = 0; y < height; y++) {
        EXPECT_EQ(memcmp(&out[y * out_pitch], &in[y * pitch], row), 0);
        EXPECT_EQ(out[y * out_pitch + row], 0xee);
    }
    /* A box within: texels 3 … of rows 1 …, from one array to another place of the other. */
    CHECK(cudaMemcpy2DArrayToArray(other, texel, 2, array, 3 * texel, 1, row / 2 / texel * texel - 4 * texel,
                                   height - 3));
    CHECK(cudaMemcpy2DFromArray(again.data(), row, other, 0, 0, row, height, cudaMemcpyDeviceToHost));
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < row; x++) {
            bool is_inside = x >= texel && x < row / 2 / texel * texel - 3 * texel && y >= 2 && y < height - 1;
            EXPECT_EQ(again[y * row + x], is_inside ? in[(y - 1) * pitch + x + 2 * texel] : in[y * pitch + x]);
        }
    EXPECT_ERR(cudaMemcpy2DToArray(array, texel, 0, in.data(), pitch, row, height, cudaMemcpyHostToDevice),
               cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemcpy2DToArray(array, 0, 1, in.data(), pitch, row, height, cudaMemcpyHostToDevice),
               cudaErrorInvalidValue);
    EXPECT_ERR(cudaMemcpy2DToArray(array, 0, 0, in.data(), row - 1, row, height, cudaMemcpyHostToDevice),
               cudaErrorInvalidPitchValue);
    EXPECT_ERR(cudaMemcpy2DToArray(array, 0, 0, in.data(), row - 1, row, 1, cudaMemcpyHostToDevice),
               cudaErrorInvalidValue);
    CHECK(cudaFreeArray(array));
    CHECK(cudaFreeArray(other));
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
}

/* Page-locked memory, in one stream, one copy after the other. */
static void test_pinned(void)
{
    enum { WIDTH = 1500, HEIGHT = 700 };
    const size_t count = (size_t)WIDTH * HEIGHT * sizeof(float);
    cudaChannelFormatDesc desc = cudaCreateChannelDesc<float>();
    unsigned char *in, *out;
    cudaArray_t array;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMallocHost(&in, count));
    CHECK(cudaMallocHost(&out, count));
    CHECK(cudaMallocArray(&array, &desc, WIDTH, HEIGHT));
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++)
            in[i] = pattern(round, i);
        CHECK(cudaMemcpy2DToArrayAsync(array, 0, 0, in, WIDTH * 4, WIDTH * 4, HEIGHT, cudaMemcpyHostToDevice, stream));
        CHECK(
            cudaMemcpy2DFromArrayAsync(out, WIDTH * 4, array, 0, 0, WIDTH * 4, HEIGHT, cudaMemcpyDeviceToHost, stream));
        CHECK(cudaStreamSynchronize(stream));
        EXPECT_EQ(memcmp(in, out, count), 0);
    }
    CHECK(cudaFreeArray(array));
    CHECK(cudaFreeHost(in));
    CHECK(cudaFreeHost(out));
    CHECK(cudaStreamDestroy(stream));
}

/* Runs of bytes that begin and end within rows. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static void test_runs(void)
{
    enum { WIDTH = 31, HEIGHT = 9, COUNT = WIDTH * HEIGHT };
    cudaChannelFormatDesc desc = cudaCreateChannelDesc<unsigned char>();
    bytes in = filled(5, COUNT), out(COUNT), expected = in, run = filled(6, 100);
    cudaArray_t array;
    CHECK(cudaMallocArray(&array, &desc, WIDTH, HEIGHT));
    CHECK(cudaMemcpyToArray(array, 0, 0, in.data(), COUNT, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyToArray(array, 20, 2, run.data(), 100, cudaMemcpyHostToDevice));
    memcpy(&expected[2 * WIDTH + 20], run.data(), 100);
    CHECK(cudaMemcpyFromArray(out.data(), array, 0, 0, COUNT, cudaMemcpyDeviceToHost));
    EXPECT_EQ(memcmp(out.data(), expected.data(), COUNT), 0);
    CHECK(cudaMemcpyFromArray(out.data(), array, 30, 1, 70, cudaMemcpyDeviceToHost));
    EXPECT_EQ(memcmp(out.data(), &expected[WIDTH + 30], 70), 0);
    CHECK(cudaFreeArray(array));
}

/* Three dimensions: solid, layers of rows and of planes, faces, with a box in the middle. */
static void test_boxes(size_t width, size_t height, size_t depth, unsigned flags)
{
    const size_t rows = height ? height : 1, texel = sizeof(float2), pitch = width * texel + 8, room = rows + 1;
    cudaChannelFormatDesc desc = cudaCreateChannelDesc<float2>();
    bytes in = filled(7, pitch * room * depth), out(in.size(), 0xdd), part = filled(8, in.size());
    cudaArray_t array, other;
    CHECK(cudaMalloc3DArray(&array, &desc, make_cudaExtent(width, height, depth), flags));
    CHECK(cudaMalloc3DArray(&other, &desc, make_cudaExtent(width, height, depth), flags));
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(in.data(), pitch, width, room);
    copy.dstArray = array;
    copy.extent = make_cudaExtent(width, rows, depth);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    copy = {};
    copy.srcArray = array;
    copy.dstArray = other;
    copy.extent = make_cudaExtent(width, rows, depth);
    copy.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaMemcpy3D(&copy));
    copy = {};
    copy.srcPtr = make_cudaPitchedPtr(part.data(), pitch, width, room);
    copy.srcPos = make_cudaPos(2, 0, 1); /* of memory, too, in elements of the array */
    copy.dstArray = other;
    copy.dstPos = make_cudaPos(1, 0, depth - 2);
    copy.extent = make_cudaExtent(width - 3, rows, 2);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    copy = {};
    copy.srcArray = other;
    copy.dstPtr = make_cudaPitchedPtr(out.data(), pitch, width, room);
    copy.extent = make_cudaExtent(width, rows, depth);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3D(&copy));
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < rows; y++)
            for (size_t x = 0; x < width; x++) {
                size_t at = (z * room + y) * pitch + x * texel;
                bool is_part = x >= 1 && x < width - 2 && z >= depth - 2;
                size_t from = is_part ? ((z - (depth - 2) + 1) * room + y) * pitch + (x - 1) * texel + 16 : at;
                EXPECT_EQ(memcmp(&out[at], is_part ? &part[from] : &in[from], texel), 0);
            }
    copy.extent.depth = depth + 1;
    EXPECT_ERR(cudaMemcpy3D(&copy), cudaErrorInvalidValue);
    CHECK(cudaFreeArray(array));
    CHECK(cudaFreeArray(other));
}

/* Levels are arrays of their own extents. */
static void test_levels(void)
{
    cudaChannelFormatDesc desc = cudaCreateChannelDesc<unsigned short>(), found;
    cudaMipmappedArray_t mipmap;
    cudaArray_t level, again;
    CHECK(cudaMallocMipmappedArray(&mipmap, &desc, make_cudaExtent(40, 24, 0), 99));
    for (unsigned i = 0; i < 6; i++) {
        const size_t width = 40 >> i, height = 24 >> i ? 24 >> i : 1;
        bytes in = filled(20 + (int)i, width * height * 2);
        cudaExtent extent;
        CHECK(cudaGetMipmappedArrayLevel(&level, mipmap, i));
        CHECK(cudaArrayGetInfo(&found, &extent, NULL, level));
        EXPECT_EQ(extent.width, width);
        EXPECT_EQ(extent.height, height);
        CHECK(cudaMemcpy2DToArray(level, 0, 0, in.data(), width * 2, width * 2, height, cudaMemcpyHostToDevice));
    }
    EXPECT_ERR(cudaGetMipmappedArrayLevel(&level, mipmap, 6), cudaErrorInvalidValue);
    for (unsigned i = 0; i < 6; i++) {
        const size_t width = 40 >> i, height = 24 >> i ? 24 >> i : 1;
        bytes in = filled(20 + (int)i, width * height * 2), out(in.size());
        CHECK(cudaGetMipmappedArrayLevel(&again, mipmap, i));
        CHECK(cudaMemcpy2DFromArray(out.data(), width * 2, again, 0, 0, width * 2, height, cudaMemcpyDeviceToHost));
        EXPECT_EQ(memcmp(in.data(), out.data(), in.size()), 0);
    }
    CHECK(cudaFreeMipmappedArray(mipmap));
}

/* Whether an array is seen to take memory, and to give it back. */
static bool is_seen(void)
{
    const size_t bytes = (size_t)32 << 20;
    cudaChannelFormatDesc desc = cudaCreateChannelDesc<float4>();
    size_t before, with, after = 0, total;
    cudaArray_t array;

    CHECK(cudaMemGetInfo(&before, &total));
    CHECK(cudaMallocArray(&array, &desc, 2048, 1024));
    CHECK(cudaMemGetInfo(&with, &total));
    CHECK(cudaFreeArray(array));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 500 && after < with + bytes * 3 / 4;
         i++) { /* it goes when the GPU is done with all that came before */
        CHECK(cudaMemGetInfo(&after, &total));
        usleep(1000);
    }
    return with + bytes <= before && after >= with + bytes * 3 / 4;
}

/* Others may have the GPU, too, and take or give back theirs meanwhile: then it is looked at again. */
static void test_memory(void)
{
    int tries = 50;

    while (tries && !is_seen())
        tries--;
    EXPECT(tries > 0, "the device's free memory does not tell of arrays");
}

static cudaMemcpy3DParms host_side(void *host, size_t width, size_t height, bool to_host)
{
    cudaMemcpy3DParms params = {};
    (to_host ? params.dstPtr : params.srcPtr) = make_cudaPitchedPtr(host, width * 2, width * 2, height);
    params.kind = to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
    params.extent = make_cudaExtent(width, height, 1);
    return params;
}

/* Memcpy nodes: host memory into an array, a box of that into a level of another one, that into device memory and
 * host memory. What they are asked for is what they were given. */
static void test_graph_nodes(void)
{
    enum { WIDTH = 24, HEIGHT = 10, BOX_WIDTH = 8, BOX_HEIGHT = 4, X = 5, Y = 3 };
    cudaChannelFormatDesc desc = cudaCreateChannelDesc<short>();
    bytes in = filled(1, WIDTH * HEIGHT * 2), other = filled(2, WIDTH * HEIGHT * 2), out(BOX_WIDTH * BOX_HEIGHT * 2);
    cudaArray_t array, level;
    cudaMipmappedArray_t mipmap;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t first, box, last;
    cudaGraphExecUpdateResultInfo info;
    cudaMemcpy3DParms told, params = host_side(in.data(), WIDTH, HEIGHT, false);
    unsigned char *linear;
    CHECK(cudaMallocArray(&array, &desc, WIDTH, HEIGHT));
    CHECK(cudaMallocMipmappedArray(&mipmap, &desc, make_cudaExtent(4 * BOX_WIDTH, 4 * BOX_HEIGHT, 0), 3));
    CHECK(cudaGetMipmappedArrayLevel(&level, mipmap, 1));
    CHECK(cudaMalloc(&linear, out.size()));
    CHECK(cudaGraphCreate(&graph, 0));
    params.dstArray = array;
    CHECK(cudaGraphAddMemcpyNode(&first, graph, NULL, 0, &params));
    cudaMemcpy3DParms within = {};
    within.srcArray = array;
    within.srcPos = make_cudaPos(X, Y, 0);
    within.dstArray = level;
    within.dstPos = make_cudaPos(2, 1, 0);
    within.extent = make_cudaExtent(BOX_WIDTH, BOX_HEIGHT, 1);
    within.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaGraphAddMemcpyNode(&box, graph, &first, 1, &within));
    CHECK(cudaGraphMemcpyNodeGetParams(box, &told));
    EXPECT(told.srcArray == array && told.dstArray == level, "the arrays");
    EXPECT_EQ(told.srcPos.x, (size_t)X);
    EXPECT_EQ(told.srcPos.y, (size_t)Y);
    EXPECT_EQ(told.dstPos.x, 2u);
    EXPECT_EQ(told.dstPos.y, 1u);
    EXPECT_EQ(told.extent.width, (size_t)BOX_WIDTH);
    EXPECT_EQ(told.extent.height, (size_t)BOX_HEIGHT);
    CHECK(cudaGraphMemcpyNodeGetParams(first, &told));
    EXPECT(told.dstArray == array && told.srcPtr.ptr == in.data() && !told.srcArray, "the first node");
    EXPECT_EQ(told.extent.width, (size_t)WIDTH);
    cudaMemcpy3DParms to_linear = {};
    to_linear.srcArray = level;
    to_linear.srcPos = within.dstPos;
    to_linear.dstPtr = make_cudaPitchedPtr(linear, BOX_WIDTH * 2, BOX_WIDTH * 2, BOX_HEIGHT);
    to_linear.extent = within.extent;
    to_linear.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaGraphAddMemcpyNode(&last, graph, &box, 1, &to_linear));
    CHECK(cudaGraphAddMemcpyNode1D(&last, graph, &last, 1, out.data(), linear, out.size(), cudaMemcpyDeviceToHost));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        if (round == 1)
            in = other;   /* what is in the host's memory at the launch */
        if (round == 2) { /* boxes of arrays are not changed in an executable graph */
            within.srcPos.x = 0;
            EXPECT_ERR(cudaGraphExecMemcpyNodeSetParams(exec, box, &within), cudaErrorInvalidValue);
            CHECK(cudaGraphExecUpdate(exec, graph, &info));
            CHECK(cudaGraphMemcpyNodeSetParams(box, &within));
            EXPECT_ERR(cudaGraphExecUpdate(exec, graph, &info), cudaErrorGraphExecUpdateFailure);
            EXPECT_EQ(info.result, cudaGraphExecUpdateErrorParametersChanged);
            EXPECT(info.errorNode == box, "the node that differs");
            CHECK(cudaGraphExecDestroy(exec));
            CHECK(cudaGraphInstantiate(&exec, graph, 0));
        }
        CHECK(cudaGraphLaunch(exec, NULL));
        CHECK(cudaDeviceSynchronize());
        for (size_t y = 0; y < BOX_HEIGHT; y++)
            for (size_t x = 0; x < BOX_WIDTH * 2; x++)
                EXPECT_EQ(out[y * BOX_WIDTH * 2 + x],
                          pattern(round ? 2 : 1, (Y + y) * WIDTH * 2 + (round == 2 ? 0 : X * 2) + x));
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaFree(linear));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFreeMipmappedArray(mipmap));
}

/* Captured: rows into an array and out of it. */
static void test_captured(void)
{
    enum { WIDTH = 16, HEIGHT = 6 };
    cudaChannelFormatDesc desc = cudaCreateChannelDesc<int>();
    bytes expected = filled(3, WIDTH * HEIGHT * 4);
    cudaArray_t array;
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    unsigned char *in, *out;
    CHECK(cudaMallocHost(&in, expected.size()));
    CHECK(cudaMallocHost(&out, expected.size()));
    CHECK(cudaMallocArray(&array, &desc, WIDTH, HEIGHT));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaMemcpy2DToArrayAsync(array, 0, 0, in, WIDTH * 4, WIDTH * 4, HEIGHT, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpy2DFromArrayAsync(out, WIDTH * 4, array, 0, 0, WIDTH * 4, HEIGHT, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < expected.size(); i++)
            in[i] = (unsigned char)(expected[i] + round);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        for (size_t i = 0; i < expected.size(); i++)
            EXPECT_EQ(out[i], (unsigned char)(expected[i] + round));
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFreeArray(array));
    CHECK(cudaFreeHost(in));
    CHECK(cudaFreeHost(out));
}

/* Pitches and heights that are too small: which code it is depends on whether there are several rows and slices. */
static void test_pitches(void)
{
    enum { INVALID = cudaErrorInvalidValue, PITCH = cudaErrorInvalidPitchValue };
    static const struct {
        size_t pitch, rows, width, height, depth;
        int error;
    } cases[] = {
        {64, 8, 64, 8, 4, 0},     {32, 8, 64, 8, 4, PITCH}, {32, 8, 64, 1, 4, PITCH},    {32, 8, 64, 1, 1, INVALID},
        {0, 8, 64, 1, 1, 0},      {0, 0, 64, 1, 1, 0},      {0, 8, 64, 8, 1, PITCH},     {0, 1, 64, 1, 4, PITCH},
        {64, 4, 64, 8, 4, PITCH}, {64, 0, 64, 8, 4, PITCH}, {64, 4, 64, 8, 1, INVALID},  {64, 0, 64, 8, 1, 0},
        {32, 8, 0, 8, 4, 0},      {32, 4, 65, 8, 4, PITCH}, {128, 8, 65, 8, 4, INVALID},
    };
    const cudaChannelFormatDesc desc = cudaCreateChannelDesc<char>();
    std::vector<char> host(64 * 8 * 8);
    cudaArray_t array;
    CHECK(cudaMalloc3DArray(&array, &desc, make_cudaExtent(64, 8, 4), 0));
    for (auto &of : cases) {
        cudaMemcpy3DParms to = {}, from = {};
        to.srcPtr = from.dstPtr = make_cudaPitchedPtr(host.data(), of.pitch, of.width, of.rows);
        to.dstArray = from.srcArray = array;
        to.extent = from.extent = make_cudaExtent(of.width, of.height, of.depth);
        to.kind = cudaMemcpyHostToDevice;
        from.kind = cudaMemcpyDeviceToHost;
        EXPECT_ERR(cudaMemcpy3D(&to), (cudaError_t)of.error);
        EXPECT_ERR(cudaMemcpy3D(&from), (cudaError_t)of.error);
    }
    CHECK(cudaFreeArray(array));
}

int main(void)
{
    test_descriptions();
    test_planes(40, 9, false);
    test_planes(40, 9, true);
    test_planes(1300, 900, false); /* several messages, cut within rows */
    test_planes(1300, 900, true);
    test_pinned();
    test_runs();
    test_boxes(21, 6, 5, cudaArrayDefault);
    test_boxes(300, 200, 20, cudaArrayDefault);
    test_boxes(33, 0, 7, cudaArrayLayered);
    test_boxes(33, 11, 7, cudaArrayLayered);
    test_boxes(16, 16, 6, cudaArrayCubemap);
    test_boxes(16, 16, 12, cudaArrayCubemap | cudaArrayLayered);
    test_levels();
    test_memory();
    test_graph_nodes();
    test_captured();
    test_pitches();
    return 0;
}
