// Makes plans of cuFFT's whose work areas are large, as told, and transforms with them.
//
//   plan N MIB   one plan of MIB MiB of complex numbers, in place of what plan N was: "plan STATUS FREE", the status of cuFFT and
//                how many bytes are free
//   use N        a transform, there and back, compared: "use STATUS"
//   drop N       the plan ends: "drop FREE"
//   end          also the end of input: exit status 0
//
// The first line is "ready". An error is "error NAME STATUS" and exit status 7.
// nvcc: -lcufft
#include <cufft.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

enum { PLANS = 8, MIB = 1 << 20 };

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        int status_ = (int)(call);                                                                                     \
        if (status_) {                                                                                                 \
            printf("error %s %d\n", #call, status_);                                                                   \
            fflush(stdout);                                                                                            \
            _Exit(7);                                                                                                  \
        }                                                                                                              \
    } while (0)

static cufftHandle plans[PLANS];
static int counts[PLANS]; // 0: there is no plan

static size_t free_bytes()
{
    size_t left, all;
    CHECK(cudaMemGetInfo(&left, &all));
    return left;
}

static void drop(int number)
{
    if (counts[number])
        CHECK(cufftDestroy(plans[number]));
    counts[number] = 0;
}

static int plan(int number, int mib)
{
    drop(number);
    int count = mib * (MIB / (int)sizeof(cufftComplex)), status = cufftPlan1d(&plans[number], count, CUFFT_C2C, 1);
    counts[number] = status ? 0 : count;
    return status;
}

static int use(int number)
{
    int count = counts[number];
    std::vector<cufftComplex> in(count), out(count);
    cufftComplex *data;
    for (int i = 0; i < count; i++)
        in[i] = {(float)(i % 7), (float)(i % 5)};
    CHECK(cudaMalloc(&data, count * sizeof *data));
    CHECK(cudaMemcpy(data, in.data(), count * sizeof *data, cudaMemcpyHostToDevice));
    int status = cufftExecC2C(plans[number], data, data, CUFFT_FORWARD);
    if (!status)
        status = cufftExecC2C(plans[number], data, data, CUFFT_INVERSE);
    CHECK(cudaMemcpy(out.data(), data, count * sizeof *data, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(data));
    for (int i = 0; i < count && !status; i++)
        if (!(abs(out[i].x / count - in[i].x) < 1e-3f) || !(abs(out[i].y / count - in[i].y) < 1e-3f))
            status = 1000;
    return status;
}

int main()
{
    char line[64];
    int number, mib;
    CHECK(cudaFree(0));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        if (sscanf(line, "plan %d %d", &number, &mib) == 2 && (unsigned)number < PLANS) {
            int status = plan(number, mib);
            printf("plan %d %zu\n", status, free_bytes());
        } else if (sscanf(line, "use %d", &number) == 1 && (unsigned)number < PLANS) {
            printf("use %d\n", use(number));
        } else if (sscanf(line, "drop %d", &number) == 1 && (unsigned)number < PLANS) {
            drop(number);
            printf("drop %zu\n", free_bytes());
        }
        fflush(stdout);
    }
    return 0;
}
