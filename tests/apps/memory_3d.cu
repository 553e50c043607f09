// 3D memory: cudaMalloc3D, cudaMemset3D and cudaMemcpy3D of boxes with offsets on both sides, synchronous and
// asynchronous, against a copy loop on the host.
#include "check.h"

enum { W = 40, H = 11, D = 7 };

static unsigned char host[D][H][W], back[D][H][W], want[D][H][W];

static cudaPitchedPtr host_box(void *data)
{
    return make_cudaPitchedPtr(data, W, W, H);
}

int main(void)
{
    cudaPitchedPtr device, whole;
    cudaMemcpy3DParms copy = {};
    cudaStream_t stream;

    for (int i = 0; i < W * H * D; i++)
        (&host[0][0][0])[i] = (unsigned char)(i * 31 + i / 256);
    CHECK(cudaMalloc3D(&device, make_cudaExtent(W, H, D)));
    EXPECT(device.ptr && device.pitch >= W && device.ysize == H);
    whole = device;
    CHECK(cudaMemset3D(device, 0x5a, make_cudaExtent(W, H, D)));

    /* A box of 9 x 4 x 3 from (3, 2, 1) of the host's volume to (20, 5, 2) of the device's. */
    copy.srcPtr = host_box(host);
    copy.dstPtr = whole;
    copy.srcPos = make_cudaPos(3, 2, 1);
    copy.dstPos = make_cudaPos(20, 5, 2);
    copy.extent = make_cudaExtent(9, 4, 3);
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    memset(want, 0x5a, sizeof(want));
    for (int z = 0; z < 3; z++)
        for (int y = 0; y < 4; y++)
            memcpy(&want[2 + z][5 + y][20], &host[1 + z][2 + y][3], 9);

    /* And one from there to another place of the same volume. */
    copy.srcPtr = copy.dstPtr = whole;
    copy.srcPos = make_cudaPos(20, 5, 2);
    copy.dstPos = make_cudaPos(0, 0, 4);
    copy.extent = make_cudaExtent(5, 4, 3);
    copy.kind = cudaMemcpyDeviceToDevice;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemcpy3DAsync(&copy, stream));
    for (int z = 0; z < 3; z++)
        for (int y = 0; y < 4; y++)
            memcpy(&want[4 + z][y][0], &want[2 + z][5 + y][20], 5);

    copy = (cudaMemcpy3DParms){};
    copy.srcPtr = whole;
    copy.dstPtr = host_box(back);
    copy.extent = make_cudaExtent(W, H, D);
    copy.kind = cudaMemcpyDeviceToHost;
    CHECK(cudaMemcpy3DAsync(&copy, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < W * H * D; i++)
        EXPECT((&back[0][0][0])[i] == (&want[0][0][0])[i], "byte %d: %d, expected %d", i, (&back[0][0][0])[i],
               (&want[0][0][0])[i]);
    CHECK(cudaMemset3DAsync(device, 0, make_cudaExtent(W, 1, D), stream));
    CHECK(cudaMemcpy3DAsync(&copy, stream));
    CHECK(cudaStreamSynchronize(stream));
    EXPECT(back[4][0][0] == 0 && back[6][0][W - 1] == 0 && back[4][1][0] == want[4][1][0]);
    CHECK(cudaFree(device.ptr));
    CHECK(cudaStreamDestroy(stream));
    return 0;
}
