// printf in kernels: formats, the returned count, the order within a thread, one line of each thread, and that the
// text is there when the synchronization returns.
#include "capture.h"

__global__ void formats(int *counts, const char *text)
{
    counts[0] = printf("int %d %5d|%-5d|%05d %u %x %X %o\n", -42, 7, 8, 9, 4000000000u, 0xbeef, 0xbeef, 8);
    counts[1] =
        printf("long %lld %llu %llx %ld\n", -1234567890123ll, 18446744073709551615ull, 0x123456789abcdefull, -5l);
    counts[2] = printf("real %f %.3f %e %g %10.2f|%G\n", 1.5, 3.14159, 12345.678, 0.0001, -2.5, 1e20);
    counts[3] = printf("text %s %c %% %10s|%-6s|\n", "literal", 'z', "right", "left");
    counts[4] = printf("%s", text);
    counts[5] = printf("\n");
}

__global__ void lines(void)
{
    for (int i = 0; i < 2; i++)
        printf("<%d:%d:%d>\n", blockIdx.x, threadIdx.x, i);
}

static char text[65536];

static void check_formats(void)
{
    const int want_counts[6] = {8, 4, 6, 4, 1, 0};
    char want[1024], *copy;
    int *counts, back[6], n = 0;
    struct capture capture;

    CHECK(cudaMalloc(&counts, sizeof(back)));
    CHECK(cudaMalloc(&copy, 32));
    CHECK(cudaMemcpy(copy, "from device memory", 19, cudaMemcpyHostToDevice));
    n += sprintf(want + n, "int %d %5d|%-5d|%05d %u %x %X %o\n", -42, 7, 8, 9, 4000000000u, 0xbeef, 0xbeef, 8);
    n += sprintf(want + n, "long %lld %llu %llx %ld\n", -1234567890123ll, 18446744073709551615ull, 0x123456789abcdefull,
                 -5l);
    n += sprintf(want + n, "real %f %.3f %e %g %10.2f|%G\n", 1.5, 3.14159, 12345.678, 0.0001, -2.5, 1e20);
    n += sprintf(want + n, "text %s %c %% %10s|%-6s|\nfrom device memory\n", "literal", 'z', "right", "left");
    capture_begin(&capture, stdout);
    formats<<<1, 1>>>(counts, copy);
    cudaError_t launch = cudaGetLastError(), sync = cudaDeviceSynchronize();
    capture_end(&capture, text, sizeof(text));
    CHECK(launch);
    CHECK(sync);
    EXPECT(strcmp(text, want) == 0, "got\n%s\nexpected\n%s", text, want);
    CHECK(cudaMemcpy(back, counts, sizeof(back), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 6; i++)
        EXPECT_EQ(back[i], want_counts[i]);
    CHECK(cudaFree(counts));
    CHECK(cudaFree(copy));
}

static void check_lines(void)
{
    enum { BLOCKS = 3, THREADS = 40 };
    struct capture capture;
    cudaStream_t stream;
    char line[64];
    size_t expected_bytes = 0;

    CHECK(cudaStreamCreate(&stream));
    capture_begin(&capture, stdout);
    lines<<<BLOCKS, THREADS, 0, stream>>>();
    cudaError_t sync = cudaStreamSynchronize(stream);
    capture_end(&capture, text, sizeof(text));
    CHECK(sync);
    for (int b = 0; b < BLOCKS; b++)
        for (int t = 0; t < THREADS; t++) {
            const char *at[2];

            for (int i = 0; i < 2; i++) {
                expected_bytes += (size_t)snprintf(line, sizeof(line), "<%d:%d:%d>\n", b, t, i);
                at[i] = strstr(text, line);
                EXPECT(at[i], "missing: %s", line);
            }
            EXPECT(at[0] < at[1], "a thread's own lines changed places: %s", line);
        }
    EXPECT_EQ(strlen(text), expected_bytes);
    CHECK(cudaStreamDestroy(stream));
}

int main(void)
{
    check_formats();
    check_lines();
    return 0;
}
