/* The Mandelbrot set, every pixel compared with the same loop on the CPU. */
#include "demo.h"
#include "picture.h"

__host__ __device__ inline int escape(float cx, float cy, int limit)
{
    float x = 0, y = 0;
    int i = 0;
    while (i < limit && x * x + y * y <= 4.0f) {
        float next = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = next;
        i++;
    }
    return i;
}

__global__ void render(unsigned char *pixels, int width, int height, int limit)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        int steps = escape(-2.2f + 3.2f * x / width, -1.6f + 3.2f * y / height, limit);
        pixels[y * width + x] = steps == limit ? 0 : 255 - steps * 255 / limit;
    }
}

int main(int argc, char **argv)
{
    const int width = 384, height = 384, limit = 64;
    print_device();
    std::vector<unsigned char> pixels(width * height);
    unsigned char *device;
    CHECK(cudaMalloc(&device, pixels.size()));
    render<<<dim3((width + 15) / 16, (height + 15) / 16), dim3(16, 16)>>>(device, width, height, limit);
    CHECK(cudaGetLastError());
    CHECK(cudaMemcpy(pixels.data(), device, pixels.size(), cudaMemcpyDeviceToHost));
    picture_show(pixels, width, height, 64);
    int differ = 0;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            int steps = escape(-2.2f + 3.2f * x / width, -1.6f + 3.2f * y / height, limit);
            int expected = steps == limit ? 0 : 255 - steps * 255 / limit;
            differ += abs(expected - pixels[y * width + x]) > 8;
        }
    /* The GPU fuses multiply and add, so a few pixels on the very edge of the set may fall otherwise. */
    bool is_right = differ * 200 < width * height;
    printf("    %d x %d pixels, %d differ from the CPU's: %s\n", width, height, differ, is_right ? "correct" : "WRONG");
    if (argc > 1 && picture_write(argv[1], pixels, width, height))
        printf("    picture: %s\n", argv[1]);
    return is_right ? 0 : 1;
}
