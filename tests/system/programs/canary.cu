// Watches the SMs that it has by their clock registers: a block on each measures again and again how many cycles the
// same arithmetic takes, which keeps the SM's pipes full. Whoever else runs a kernel there takes some of them.
//
//   watch WINDOWS WAIT_US   "watch SMS WATCHED USUAL SLOW...": SMs that there are, SMs that were watched, the median of
//   a window's
//                           cycles, and how many windows of each million took more than that by a 64th, a 32nd … a half
//                           of it
//   starts LAUNCHES         "starts SMS LAUNCHES USUAL SLOW...": launches, one behind the other, whose blocks need an
//   SM each for
//                           themselves, one for each SM. USUAL is the median of the ns from one launch's start to the
//                           next one's, and SLOW how many of each million took longer than that by once, twice, 4 … 32
//                           times it
//   end                     also the end of input: exit status 0
//
// A kernel that wants nearly all registers or shared memory of an SM never runs beside another: windows say nothing of
// it, starts do.
//
// So many blocks come that they fill all SMs, however they are placed. The first on each SM, by %smid, watches it; the
// others end once all have come, or WAIT_US after the first one came. The first line is "ready". An error is "error
// NAME", exit status 7.
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

enum { THREADS = 512, ROUNDS = 50, WINDOWS_MAX = 400000, SMS_MAX = 1024, SHARES = 6 };

struct Meeting {
    unsigned long long deadline; // in nanoseconds of %globaltimer; 0: nobody has come
    unsigned come, watcher_count, claims[SMS_MAX];
};

static void check(cudaError_t error)
{
    if (!error)
        return;
    printf("error %s\n", cudaGetErrorName(error));
    fflush(stdout);
    _Exit(7);
}

__device__ static unsigned long long now()
{
    unsigned long long ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

// The block's number among those that watch, else -1. For one thread of the block.
__device__ static int meet(Meeting *meeting, unsigned most, unsigned long long wait_ns)
{
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    const bool is_first = !atomicAdd(&meeting->claims[sm % SMS_MAX], 1u);
    unsigned number = is_first ? atomicAdd(&meeting->watcher_count, 1u) : most;
    atomicCAS(&meeting->deadline, 0ull, now() + wait_ns);
    atomicAdd(&meeting->come, 1u);
    while (atomicAdd(&meeting->come, 0u) < gridDim.x && now() < atomicAdd(&meeting->deadline, 0ull))
        ;
    return number < most ? (int)number : -1;
}

__global__ static void __launch_bounds__(THREADS)
    watch(unsigned *cycles, Meeting *meeting, unsigned most, unsigned long long wait_ns, int windows, float *sink)
{
    __shared__ int number;
    float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
    if (!threadIdx.x)
        number = meet(meeting, most, wait_ns);
    __syncthreads();
    if (number < 0)
        return;
    for (int window = 0; window < windows; window++) {
        __syncthreads();
        long long begin = clock64();
        for (int i = 0; i < ROUNDS; i++) {
            a = a * 0.5f + 1, b = b * 0.5f + 1, c = c * 0.5f + 1, d = d * 0.5f + 1;
        }
        __syncthreads();
        if (!threadIdx.x)
            cycles[(size_t)number * windows + window] = (unsigned)(clock64() - begin);
    }
    if (a + b + c + d < 0)
        *sink = a;
}

__global__ static void __launch_bounds__(32) start(unsigned long long *at)
{
    if (!threadIdx.x && !blockIdx.x)
        *at = now();
}

// From one start to the next, in ns.
static std::vector<unsigned> started(cudaStream_t stream, int sms, int launches)
{
    int most_bytes;
    unsigned long long *device;
    std::vector<unsigned long long> at(launches + 1);
    std::vector<unsigned> out;
    check(cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    check(cudaFuncSetAttribute(start, cudaFuncAttributeMaxDynamicSharedMemorySize, most_bytes));
    check(cudaMalloc(&device, at.size() * sizeof at[0]));
    for (size_t i = 0; i < at.size(); i++)
        start<<<sms, 32, most_bytes, stream>>>(device + i);
    check(cudaGetLastError());
    check(cudaStreamSynchronize(stream));
    check(cudaMemcpy(at.data(), device, at.size() * sizeof at[0], cudaMemcpyDeviceToHost));
    check(cudaFree(device));
    for (int i = 0; i < launches; i++)
        out.push_back((unsigned)(at[i + 1] - at[i]));
    return out;
}

// The windows of all SMs that were watched.
static std::vector<unsigned> watched(cudaStream_t stream, int sms, int windows, int wait_us, float *sink,
                                     int *ret_watched)
{
    unsigned *cycles;
    int blocks_per_sm;
    Meeting *meeting;
    static Meeting seen;
    check(cudaMalloc(&cycles, (size_t)sms * windows * sizeof *cycles));
    check(cudaMalloc(&meeting, sizeof *meeting));
    check(cudaMemset(meeting, 0, sizeof *meeting));
    check(cudaDeviceSynchronize());
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, watch, THREADS, 0));
    watch<<<sms * blocks_per_sm, THREADS, 0, stream>>>(cycles, meeting, sms, 1000ull * wait_us, windows, sink);
    check(cudaGetLastError());
    check(cudaStreamSynchronize(stream));
    check(cudaMemcpy(&seen, meeting, sizeof seen, cudaMemcpyDeviceToHost));
    *ret_watched = (int)std::min(seen.watcher_count, (unsigned)sms);
    std::vector<unsigned> out((size_t)*ret_watched * windows);
    check(cudaMemcpy(out.data(), cycles, out.size() * sizeof *cycles, cudaMemcpyDeviceToHost));
    check(cudaFree(cycles));
    check(cudaFree(meeting));
    return out;
}

// The first SLOW are those by more than this share of the usual over it; each next share is twice that.
static void tell(const char *what, int sms, int count, std::vector<unsigned> seen, double share)
{
    std::nth_element(seen.begin(), seen.begin() + seen.size() / 2, seen.end());
    const unsigned usual = seen[seen.size() / 2];
    printf("%s %d %d %u", what, sms, count, usual);
    for (int i = 0; i < SHARES; i++) {
        const double most = usual * (1 + share * (1 << i));
        const size_t slow = std::count_if(seen.begin(), seen.end(), [=](unsigned one) { return one > most; });
        printf(" %zu", (size_t)(1e6 * slow / seen.size()));
    }
    puts("");
    fflush(stdout);
}

int main()
{
    char line[64];
    int count, wait_us, sms, watched_count;
    float *sink;
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaMalloc(&sink, sizeof *sink));
    /* An SM whose memory is divided for a kernel runs none that wants more of it as shared memory, until that one has
     * ended. */
    check(cudaFuncSetAttribute(watch, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
        if (sscanf(line, "watch %d %d", &count, &wait_us) == 2) {
            count = std::min(std::max(count, 1), (int)WINDOWS_MAX);
            std::vector<unsigned> seen = watched(stream, sms, count, wait_us, sink, &watched_count);
            tell("watch", sms, watched_count, std::move(seen), 1.0 / 64);
        } else if (sscanf(line, "starts %d", &count) == 1) {
            count = std::min(std::max(count, 1), (int)WINDOWS_MAX);
            tell("starts", sms, count, started(stream, sms, count), 1);
        } else {
            break;
        }
    }
    return 0;
}
